"""What commands print with: text that no file can abuse, JSON, and rich's console."""

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
"""Line width where the output is not a terminal, such as a pipe; the variable COLUMNS overrides it."""
_MAX_SHAPES: Final = 6
"""Maximum number of different shapes in a cell."""

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, and nothing else, to stdout.")


def console(*, stderr: bool = False) -> Console:
    """Return a console for stdout (or stderr) unchanged now; its text is taken literally."""
    from rich.console import Console

    class _Console(Console):
        def on_broken_pipe(self) -> None:  # rich would exit with 1
            raise BrokenPipeError

    found = _Console(stderr=stderr, markup=False, emoji=False, highlight=False)
    if not found.is_terminal and "COLUMNS" not in os.environ:
        found.width = _WIDTH_OF_FILES
    return found


def table(*columns: str, right: tuple[str, ...] = (), title: str | None = None) -> Table:
    """Return an empty table in the one style of all commands."""
    from rich import box

    from splitops.cli._tables import WholeWords

    made = WholeWords(box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
    made.title_style = "bold"
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return made


def alike(rows: Iterable[_Row], key: Callable[[_Row], Hashable]) -> list[list[_Row]]:
    """Put rows together that say the same of different places; a large model says many things often.

    Examples:
        >>> alike(["a", "bb", "c"], len)
        [['a', 'c'], ['bb']]
    """
    groups: dict[Hashable, list[_Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return list(groups.values())


def place(where: Where) -> str:
    """Write a place inside a model.

    Examples:
        >>> place(Where(model="m.onnx", graph="loop.body", node="cut"))
        'cut in loop.body'
    """
    return " in ".join(one_line(text, 80) for text in (where.node, where.graph) if text)


def places(names: Sequence[str]) -> str:
    """Write where a row holds: the first places, and how many more there are.

    Examples:
        >>> places(["a", "b", "c", "d", "e"])
        'a, b, c and 2 more'
    """
    left = len(names) - 3
    return ", ".join(names) if left <= 0 else f"{', '.join(names[:3])} and {left} more"


def format_shapes(shapes: Sequence[Sequence[object] | None]) -> str:
    """Format the shapes of parts: equal neighbours once, at most six different ones, ? for an unknown rank.

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


def say_written(*paths: Path | None, stderr: bool = False) -> None:
    """Print which files were written; None is a file that was not requested."""
    out = console(stderr=stderr)
    for path in paths:
        if path is not None:
            out.print(one_line(f"Written to {path}"), soft_wrap=True)


def say_model_written(files: Sequence[Path]) -> None:
    """Print where a model was written, and where its data if that is not the ``.bin`` of an IR."""
    names = [str(path) for path in reversed(files) if path.suffix != ".bin"]
    if names:
        console().print(one_line(f"Written to {' and '.join(names)}"), soft_wrap=True)


def print_json(value: Any) -> None:
    """Print a value as JSON, indented; a list of plain values stays on one line."""
    click.echo(_json(value, ""))


def _json(value: Any, margin: str) -> str:
    inner = margin + "  "
    if isinstance(value, dict) and value:
        items = (f"{inner}{_encode(key)}: {_json(item, inner)}" for key, item in value.items())
        return "{\n" + ",\n".join(items) + f"\n{margin}}}"
    if isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        return "[\n" + ",\n".join(inner + _json(item, inner) for item in value) + f"\n{margin}]"
    return _encode(value)


_encode: Final = json.JSONEncoder(allow_nan=False).encode  # json.dumps makes an encoder for each value


def one_line(text: str, limit: int = 2000) -> str:
    """Write text from a file in one line: what moves the cursor or cannot be printed is escaped.

    Examples:
        >>> one_line("a\\x1b[2Jb\\nc")
        'a\\\\x1b[2Jb\\\\nc'
    """
    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text[: limit + 1])
    return shown if len(shown) <= limit else f"{shown[: limit - 3]}..."
