"""The picture of a split as SVG: the tensor as a block cut into its parts, its memory, and a table."""

from __future__ import annotations

import textwrap
from itertools import islice
from typing import Final

from splitops.errors import count_of
from splitops.explain.axis import Cell, cells, proportional
from splitops.explain.canvas import FAINT, PAPER, TEXT, Canvas, number
from splitops.explain.layout import Explanation, Group, axes
from splitops.explain.palette import colour, ink, shade

_NARROW: Final = 600
"""Below this width, what does not fit beside something else is left out or below it."""
_CELLS: Final = 64
"""Beyond, the parts in the middle are drawn as one block."""
_ROWS: Final = 12
"""Rows of the table; each stands for consecutive parts of equal size."""
_REPEATS: Final = 4
_TIMES: Final = "\N{MULTIPLICATION SIGN}"
_EMPTY: Final = {"stroke": FAINT, "stroke_dasharray": "3 3"}


def svg(layout: Explanation, title: str = "", width: int = 960) -> str:
    """Draw a split as a self-contained SVG document.

    Args:
        layout: the parts.
        title: the heading, for example the operator; plain text, escaped here.
        width: of the picture, in pixels, 340 or more. A picture narrower than 600 is for phones: no text is
            smaller than 12 pixels, and the table has no bytes.

    Returns:
        The document: well-formed XML without scripts, fonts or links. Up to 64 parts are drawn one by one;
        of more, those in the middle are one block.

    Examples:
        >>> import splitops
        >>> from splitops.explain import explain
        >>> svg(explain(splitops.plan("Split", shape=(6, 4), split=[2, 4])), "Split-18")[:4]
        '<svg'
    """
    return _Drawing(layout, title, width).document()


class _Drawing:
    """One picture, drawn from top to bottom."""

    def __init__(self, layout: Explanation, title: str, width: int) -> None:
        self.layout = layout
        self.title = title
        self.width = width
        self.narrow = width < _NARROW
        self.margin = 16 if self.narrow else 40
        self.cells = cells(layout, _CELLS)
        self.canvas = Canvas(self._heading())
        self.y = 30.0 if self.narrow else 44.0

    def document(self) -> str:
        (size, line), (small, lower) = ((15, 20), (12, 17)) if self.narrow else ((20, 22), (13, 18))
        self._write(self._heading(), size, line, weight="600")
        self._write(self._summary(), small, lower, fill=FAINT)
        self.y += 12
        if self.cells:
            self._block()
            self._memory()
            self._table()
        else:
            self.canvas.text(self.margin, self.y + 20, "No parts: the axis has size 0.")
            self.y += 40
        return self.canvas.document(self.width, round(self.y + 24))

    def _write(self, text: str, size: int, line: int, **style: str) -> None:
        """Write a text in as many lines as it needs, from here down."""
        for one in textwrap.wrap(text, int((self.width - 2 * self.margin) / (0.58 * size))):
            self.canvas.text(self.margin, self.y, one, size=size, **style)
            self.y += line

    def _heading(self) -> str:
        parts = count_of(len(self.layout), "part")
        what = f"{self.layout.plan.shape} along axis {self.layout.plan.axis} into {parts}"
        return f"{self.title}: {what}" if self.title else what

    def _summary(self) -> str:
        words = []
        if self.layout.element_type is not None:
            words.append(str(self.layout.element_type))
        if self.layout.bytes is not None:
            words.append(f"{self.layout.bytes:,} bytes")
        if self.layout.contiguous:
            words.append("each part is one unbroken block of memory")
        else:
            words.append(f"parts alternate {self.layout.outer:,} times in memory")
        return " · ".join(words)

    # The block

    def _block(self) -> None:
        """Draw the tensor: the axis to the right, the dimensions before it down, those after it backwards."""
        plan = self.layout.plan
        before, after = plan.shape[: plan.axis], plan.shape[plan.axis + 1 :]
        left = self.margin + ((64 if self.narrow else 110) if before else 0)
        depth = (24 if self.narrow else 44) if after else 0
        height = 130 if before else 72
        gap = 5 if len(self.cells) <= 24 else 2
        room = self.width - self.margin - left - depth - gap * (len(self.cells) - 1)
        widths = _widths(self.cells, room)
        top = self.y + depth * 0.6 + 20
        x = float(left)
        ticks = _Labels(self.canvas, 12 if self.narrow else 11)
        # From left to right: seen from the upper right, each block covers the side of the one before it.
        for cell, width in zip(self.cells, widths, strict=True):
            self._slab(cell, x, top, width, height, depth)
            ticks.put(x + width / 2, top + height + 18, f"part{'s' if cell.count > 1 else ''} {cell.label}")
            x += width + gap
        bottom = top + height
        middle = (left + x - gap) / 2
        name = f"axis {plan.axis} = {self.layout.size:,}"
        self.canvas.text(middle, bottom + 42, name, anchor="middle", weight="600")
        if before:
            self.canvas.text(
                left - 14, top + height / 2 - 4, axes(0, len(before)), anchor="end", weight="600"
            )
            self.canvas.text(left - 14, top + height / 2 + 14, _product(before), anchor="end", fill=FAINT)
        if after:
            text = f"{axes(plan.axis + 1, len(after))}: {_product(after)}"
            self.canvas.text(
                self.width - self.margin, top - depth * 0.6 - 10, text, anchor="end", weight="600"
            )
        self.y = bottom + 72

    def _slab(self, cell: Cell, x: float, y: float, width: float, height: float, depth: float) -> None:
        fill = FAINT if cell.count > 1 else colour(cell.first)
        rise = depth * 0.6
        said = self._describe(cell)
        if cell.size == 0:
            self.canvas.rect(x, y, width, height, PAPER, title=said, **_EMPTY)
            self._label(cell, x, y, width, height, TEXT)
            return
        if depth:
            lid = [(x, y), (x + depth, y - rise), (x + width + depth, y - rise), (x + width, y)]
            side = [
                (x + width, y),
                (x + width + depth, y - rise),
                (x + width + depth, y - rise + height),
                (x + width, y + height),
            ]
            self.canvas.polygon(lid, shade(fill, 0.35))
            self.canvas.polygon(side, shade(fill, -0.25))
        self.canvas.rect(x, y, width, height, fill, title=said)
        self._label(cell, x, y, width, height, ink(fill))

    def _label(self, cell: Cell, x: float, y: float, width: float, height: float, fill: str) -> None:
        """Write the size where it has room, along the height where the cell is narrow."""
        label = f"{cell.size:,}"
        for size in (16, 13, 12) if self.narrow else (16, 13, 10, 8):
            if _text_width(label, size) <= width - 1:
                middle = y + height / 2 + size * 0.35
                self.canvas.text(x + width / 2, middle, label, size=size, fill=fill, anchor="middle")
                return
        if self.narrow and width < 14:
            return  # the table has it
        at = f"translate({number(x + width / 2 + 3)} {number(y + height / 2)}) rotate(-90)"
        self.canvas.text(0, 0, label, size=12 if self.narrow else 9, fill=fill, anchor="middle", transform=at)

    def _describe(self, cell: Cell) -> str:
        if cell.count > 1:
            return f"parts {cell.label}: {cell.count:,} parts, {cell.size:,} in all"
        part = self.layout[cell.first]
        words = [
            f"part {part.index}: offset {part.offset:,}",
            f"size {part.size:,}",
            f"shape {part.shape}",
        ]
        return ", ".join(words if part.bytes is None else [*words, f"{part.bytes:,} bytes"])

    # Memory

    def _memory(self) -> None:
        shown = [cell for cell in self.cells if cell.size]
        alone = len(self.layout.plan.shape) == 1  # the axis is the memory
        if alone or not shown or not self.layout.outer * self.layout.inner:
            return
        contiguous = self.layout.outer == 1
        repeats = min(self.layout.outer, _REPEATS if len(shown) <= 16 else 1)
        more = repeats < self.layout.outer
        room = self.width - 2 * self.margin - (40 if more else 0)
        caption = "Memory, from the first element on"
        if not contiguous:
            caption += f": one turn of all parts for each of the {self.layout.outer:,} steps before the axis"
        self._write(caption, 13, 18, weight="600")
        size = 12 if self.narrow else 10
        x, y = float(self.margin), self.y - 6
        for _ in range(repeats):
            widths = _widths(shown, room / repeats - 4)
            for cell, width in zip(shown, widths, strict=True):
                fill = FAINT if cell.count > 1 else colour(cell.first)
                self.canvas.rect(x, y, width, 22, fill, stroke=PAPER, stroke_width="0.5")
                label = f"{cell.size:,}"
                if _text_width(label, size) <= width:
                    self.canvas.text(x + width / 2, y + 15, label, size=size, fill=ink(fill), anchor="middle")
                x += width
            x += 4
        if more:
            self.canvas.text(x + 4, y + 16, "…", size=16, fill=FAINT)
        self.y = y + 60

    # Table

    def _table(self) -> None:
        groups = list(islice(self.layout.groups(), _ROWS + 1))
        names = ("parts", "offset", "size", "shape", "bytes each", f"blocks {_TIMES} elements")
        columns = (38, 104, 172, 232) if self.narrow else (62, 200, 310, 400, 620, 760)
        for x, name in zip(columns, names, strict=False):
            if name != "bytes each" or self.layout.bytes is not None:
                self.canvas.text(x, self.y, name, size=12, weight="600", fill=FAINT)
        self.y += 8
        for group in groups[:_ROWS]:
            self.canvas.line(self.margin, self.y, self.width - self.margin, self.y)
            self.y += 19
            self._swatch(group)
            for x, text in zip(columns, _row(group), strict=False):
                self.canvas.text(x, self.y, text, size=13)
            self.y += 8
        if len(groups) > _ROWS:
            self.y += 14
            self.canvas.text(self.margin + 22, self.y, "and more parts of other sizes", size=13, fill=FAINT)

    def _swatch(self, group: Group) -> None:
        """Draw the colours of a group's parts, side by side."""
        if not group.first.size:
            self.canvas.rect(self.margin, self.y - 11, 14, 14, PAPER, **_EMPTY)
            return
        width = 14 / min(group.count, 4)
        for i in range(min(group.count, 4)):
            fill = colour(group.first.index + i)
            self.canvas.rect(self.margin + i * width, self.y - 11, width, 14, fill)


class _Labels:
    """Centred labels on one line; one that would touch the label before it is left out."""

    def __init__(self, canvas: Canvas, size: int) -> None:
        self.canvas = canvas
        self.size = size
        self.end = 0.0

    def put(self, x: float, y: float, text: str) -> None:
        half = _text_width(text, self.size) / 2
        if x - half > self.end:
            self.canvas.text(x, y, text, size=self.size, fill=FAINT, anchor="middle")
            self.end = x + half + 3


def _row(group: Group) -> tuple[str, ...]:
    first = group.first
    offset = f"{first.offset:,}" if group.count == 1 else f"from {first.offset:,}"
    blocks = f"{first.runs:,} {_TIMES} {first.run_elements:,}" if first.runs else "empty"
    taken = "" if first.bytes is None else f"{first.bytes:,}"
    return group.label, offset, f"{first.size:,}", str(first.shape), taken, blocks


def _widths(shown: tuple[Cell, ...] | list[Cell], room: float) -> list[int]:
    narrowest = max(2, min(14, int(room / len(shown))))
    return proportional([cell.size for cell in shown], [narrowest] * len(shown), int(room))


def _product(sizes: tuple[int, ...]) -> str:
    return f" {_TIMES} ".join(f"{size:,}" for size in sizes)


def _text_width(text: str, size: int) -> float:
    """Return about how wide a text is; digits and signs, the most of it, are 0.58 of the size."""
    return len(text) * size * 0.58
