"""Text diagram of a split, as spans that a terminal can colour."""

from __future__ import annotations

from typing import NamedTuple

from splitops.explain.axis import Cell, group_cells, share_width
from splitops.explain.layout import Explanation, format_axes


class TextSpan(NamedTuple):
    """Text in the colour of the part with the index ``part``, or uncoloured if that is None."""

    text: str
    part: int | None = None


Line = list[TextSpan]


_UNICODE = ("┌┬┐", "└┴┘", "│", "─", "…")
_ASCII = ("+++", "+++", "|", "-", "..")
_CELLS = 64


def draw_diagram(layout: Explanation, width: int = 80, *, ascii_only: bool = False) -> list[Line]:
    """Draw the data as a grid: the split axis as columns, all dimensions before it as rows.

    If there are too many parts, those in the middle share a cell.

    Args:
        layout: the parts to draw.
        width: line width in characters. If it is too small, the lines are longer.
        ascii_only: whether to use only ASCII characters.

    Returns:
        The lines. Each cell contains its size, with the offset above and the part's index below. An offset
        that would touch the previous one is omitted. Without parts, the only line is "no parts: the axis has
        size 0".

    Examples:
        >>> import splitops
        >>> plan = splitops.plan("VariadicSplit", shape=(2, 12), axis=1, split_lengths=[2, 4, -1])
        >>> lines = draw_diagram(Explanation(plan), 40)
        >>> print("\\n".join("".join(span.text for span in line).rstrip() for line in lines))
                offset
                0    2         6             12
                ┌────┬─────────┬─────────────┐
        axis 0  │    │         │             │
        2       │ 2  │    4    │      6      │
                │    │         │             │
                └────┴─────────┴─────────────┘
        part      0       1           2
    """
    top, bottom, vertical, horizontal, _ = _ASCII if ascii_only else _UNICODE
    gutter = _draw_gutter(layout)
    margin = max(len(line) for line in (*gutter, "part")) + 2
    room = max(8, width - margin - len(str(layout.size)))
    shown = _fit_cells(layout, room)
    if not shown:
        return [[TextSpan("no parts: the axis has size 0")]]
    labels = [cell.label for cell in shown]
    minimums = [max(len(label), len(str(cell.size))) + 2 for cell, label in zip(shown, labels, strict=True)]
    widths = share_width([cell.size for cell in shown], minimums, room - len(shown) - 1)
    height = 3 if gutter else 1
    lines = [[TextSpan(" " * margin + "offset")], [TextSpan(" " * margin + _draw_ruler(shown, widths))]]
    lines.append([TextSpan(" " * margin + _draw_border(top, horizontal, widths))])
    for row in range(height):
        left = gutter[row] if row < len(gutter) else ""
        line = [TextSpan(left.ljust(margin) + vertical)]
        for cell, cell_width in zip(shown, widths, strict=True):
            text = str(cell.size) if row == (height - 1) // 2 else ""
            line += [TextSpan(text.center(cell_width), cell.first), TextSpan(vertical)]
        lines.append(line)
    lines.append([TextSpan(" " * margin + _draw_border(bottom, horizontal, widths))])
    below = " ".join(label.center(cell_width) for label, cell_width in zip(labels, widths, strict=True))
    lines.append([TextSpan("part".ljust(margin + 1) + below)])
    return lines


def draw_memory(layout: Explanation, width: int = 80, *, ascii_only: bool = False) -> Line:
    """Draw the memory of the row-major data as a line of the parts, each with its size along the split axis.

    The sequence of parts is repeated for each index of the axes before the split axis. Repetitions that do
    not fit are drawn as dots. Empty parts are left out, and parts in the middle may share a block. For empty
    data, the line is "empty".
    """
    *_, dots = _ASCII if ascii_only else _UNICODE
    shown = [cell for cell in _fit_cells(layout, width // 2) if cell.size]
    if not shown or layout.outer * layout.inner == 0:
        return [TextSpan("empty")]
    labels = [str(cell.size) for cell in shown]
    minimums = [len(label) + 1 for label in labels]
    period = max(sum(minimums), width if layout.outer == 1 else width // 3)
    repeats = min(layout.outer, max(1, (width - len(dots) - 1) // period))
    if layout.outer == 1:
        period = width
    widths = share_width([cell.size for cell in shown], minimums, period)
    line = [
        TextSpan(label.center(cell_width), cell.first)
        for _ in range(repeats)
        for cell, cell_width, label in zip(shown, widths, labels, strict=True)
    ]
    if repeats < layout.outer:
        line.append(TextSpan(f" {dots}"))
    return line


def _draw_gutter(layout: Explanation) -> list[str]:
    """Return the lines to the left of the grid: the dimensions before the split axis."""
    before = layout.plan.shape[: layout.plan.axis]
    if not before:
        return []
    return [format_axes(0, len(before)), " x ".join(map(str, before))]


def _fit_cells(layout: Explanation, room: int) -> tuple[Cell, ...]:
    """Return as many cells as fit into ``room`` characters: at most 64, at least one if there are parts."""
    limit = min(len(layout), _CELLS)
    while limit > 1:
        shown = group_cells(layout, limit)
        if sum(max(len(cell.label), len(str(cell.size))) + 3 for cell in shown) + 1 <= room:
            return shown
        limit -= 1
    return group_cells(layout, 1)


def _draw_border(corners: str, horizontal: str, widths: list[int]) -> str:
    return corners[0] + corners[1].join(horizontal * width for width in widths) + corners[2]


def _draw_ruler(shown: tuple[Cell, ...], widths: list[int]) -> str:
    """Return the line of offsets above the grid. One that would touch the previous one is omitted."""
    text, at = "", 0
    for cell, width in zip(shown, widths, strict=True):
        if not text or at > len(text):
            text = text.ljust(at) + str(cell.offset)
        at += width + 1
    end = str(shown[-1].offset + shown[-1].size)
    return text.ljust(at) + end if at > len(text) else text
