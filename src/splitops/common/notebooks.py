"""HTML tables for notebooks, returned by ``_repr_html_`` methods."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

_MAX_ROWS: Final = 200


def format_html_table(title: str, columns: Sequence[str], rows: Sequence[Iterable[object]]) -> str:
    """Return an HTML table of escaped text. Rows after the first 200 are only counted.

    Examples:
        >>> format_html_table("1 split", ["node"], [["<a>"]])
        '<table><caption>1 split</caption><thead><tr><th>node</th></tr></thead>\
<tbody><tr><td>&lt;a&gt;</td></tr></tbody></table>'
    """
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows[:_MAX_ROWS]
    )
    if len(rows) > _MAX_ROWS:
        body += f'<tr><td colspan="{len(columns)}">... and {len(rows) - _MAX_ROWS} more</td></tr>'
    caption = f"<caption>{escape(title)}</caption>"
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
