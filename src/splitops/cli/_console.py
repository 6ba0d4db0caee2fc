"""What commands print with: text that no file can abuse, JSON, and rich's console."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = ["console", "json_option", "one_line", "print_json", "table"]

_WIDTH_OF_FILES = 120
"""Line width where the output is no terminal, such as a pipe; the variable COLUMNS overrides it."""

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, and nothing else, to stdout.")


def console(*, stderr: bool = False) -> Console:
    """Return a console for stdout (or stderr) as they stand now; its text is taken literally."""
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
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", pad_edge=False)
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return made


def print_json(value: Any) -> None:
    """Print a value as JSON, indented; a list of plain values stays on one line."""
    click.echo(_json(value, ""))


def _json(value: Any, margin: str) -> str:
    inner = margin + "  "
    if isinstance(value, dict) and value:
        items = (f"{inner}{json.dumps(key)}: {_json(item, inner)}" for key, item in value.items())
        return "{\n" + ",\n".join(items) + f"\n{margin}}}"
    if isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        return "[\n" + ",\n".join(inner + _json(item, inner) for item in value) + f"\n{margin}]"
    return json.dumps(value, allow_nan=False)


def one_line(text: str, limit: int = 2000) -> str:
    """Write text from a file in one line: what moves the cursor or cannot be printed is escaped.

    Examples:
        >>> one_line("a\\x1b[2Jb\\nc")
        'a\\\\x1b[2Jb\\\\nc'
    """
    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text[: limit + 1])
    return shown if len(shown) <= limit else f"{shown[: limit - 3]}..."
