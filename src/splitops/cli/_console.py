"""Output of commands: rich consoles and tables, JSON, and text from files without control characters."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from splitops.errors import Where

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_Row = TypeVar("_Row")

_WIDTH_OF_FILES = 120
"""Line width of output that does not go to a terminal. The environment variable COLUMNS overrides it."""
_MAX_SHAPES: Final = 6
"""Maximum number of shapes in a cell. Equal neighbours count once."""

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, and nothing else, to stdout.")


def make_console(*, stderr: bool = False) -> Console:
    """Return a rich console on the current stdout or stderr. It prints text literally, without markup."""
    from rich.console import Console

    class _Console(Console):
        def on_broken_pipe(self) -> None:  # rich would exit with 1
            raise BrokenPipeError

    console = _Console(stderr=stderr, markup=False, emoji=False, highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _WIDTH_OF_FILES
    return console


def make_table(*columns: str, right: tuple[str, ...] = (), title: str | None = None) -> Table:
    """Return an empty table with ``columns``. The columns in ``right`` are right-aligned."""
    from rich import box

    from splitops.cli._tables import WordTable

    table = WordTable(box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
    table.title_style = "bold"
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return table


def group_equal_rows(rows: Iterable[_Row], key: Callable[[_Row], Hashable]) -> list[list[_Row]]:
    """Group rows with equal keys, in the order of their first rows. Large models repeat the same rows often.

    Examples:
        >>> group_equal_rows(["a", "bb", "c"], len)
        [['a', 'c'], ['bb']]
    """
    groups: dict[Hashable, list[_Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return list(groups.values())


def format_place(where: Where) -> str:
    """Format the node and the graph of a location, without the model.

    Examples:
        >>> format_place(Where(model="m.onnx", graph="loop.body", node="cut"))
        'cut in loop.body'
    """
    return " in ".join(escape(text, 80) for text in (where.node, where.graph) if text)


def format_shapes(shapes: Sequence[Sequence[object] | None]) -> str:
    """Format shapes of parts: "2 of" counts equal neighbours, "?" is an unknown rank, "..." ends a long list.

    Examples:
        >>> format_shapes([(2, 3), (2, 3), ("N",), None])
        '2 of (2, 3), (N,), ?'
    """
    texts = [
        "?" if shape is None else f"({', '.join(map(str, shape))}{',' * (len(shape) == 1)})"
        for shape in shapes
    ]
    groups = [(text, len(list(equal))) for text, equal in groupby(texts)]
    words = [text if count == 1 else f"{count} of {text}" for text, count in groups]
    return ", ".join(words if len(words) <= _MAX_SHAPES else [*words[:_MAX_SHAPES], "..."]) or "none"


def print_written(*paths: Path | None, stderr: bool = False) -> None:
    """Print the paths that were written. None, for an output that was not requested, is skipped."""
    out = make_console(stderr=stderr)
    for path in paths:
        if path is not None:
            out.print(escape(f"Written to {path}"), soft_wrap=True)


def print_model_written(files: Sequence[Path]) -> None:
    """Print the path of a written model, and of its external data unless that is the ``.bin`` of an IR."""
    names = [str(path) for path in reversed(files) if path.suffix != ".bin"]
    if names:
        make_console().print(escape(f"Written to {' and '.join(names)}"), soft_wrap=True)


def print_json(value: Any) -> None:
    """Print a value as indented JSON, with each list of plain values on one line."""
    click.echo(_format_json(value, ""))


def _format_json(value: Any, margin: str) -> str:
    inner = margin + "  "
    if isinstance(value, dict) and value:
        items = (f"{inner}{_encode(key)}: {_format_json(item, inner)}" for key, item in value.items())
        return "{\n" + ",\n".join(items) + f"\n{margin}}}"
    if isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        return "[\n" + ",\n".join(inner + _format_json(item, inner) for item in value) + f"\n{margin}]"
    return _encode(value)


_encode: Final = json.JSONEncoder(allow_nan=False).encode  # json.dumps would make an encoder for each value


def escape(text: str, limit: int = 2000) -> str:
    """Return text from a file as one line of at most ``limit`` characters, with control characters escaped.

    Examples:
        >>> escape("a\\x1b[2Jb\\nc")
        'a\\\\x1b[2Jb\\\\nc'
    """
    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text[: limit + 1])
    return shown if len(shown) <= limit else f"{shown[: limit - 3]}..."
