"""SVG diagram of a split: the tensor as a block of parts, its memory, and a table."""

from __future__ import annotations

import textwrap
from itertools import islice
from typing import Final

from splitops.errors import count_of
from splitops.explain.axis import Cell, group_cells, share_width
from splitops.explain.canvas import FAINT, PAPER, TEXT, Canvas, to_text
from splitops.explain.layout import Explanation, PartGroup, format_axes
from splitops.explain.palette import get_colour, get_ink, mix

_NARROW: Final = 600
"""Width in pixels below which the layout for phones is used."""
_CELLS: Final = 64
"""Maximum number of blocks. If there are more parts, those in the middle are drawn as one block."""
_ROWS: Final = 12
"""Maximum number of rows in the table. A row contains consecutive parts of equal size."""
_REPEATS: Final = 4
_TIMES: Final = "\N{MULTIPLICATION SIGN}"
_EMPTY: Final = {"stroke": FAINT, "stroke_dasharray": "3 3"}


def to_svg(layout: Explanation, title: str = "", width: int = 960) -> str:
    """Draw a split as a self-contained SVG document.

    Args:
        layout: the parts to draw.
        title: beginning of the heading, for example the operator, as plain text.
        width: width in pixels, which should be at least 340. Below 600, the layout is for phones: no text is
            smaller than 12 pixels, and the table does not have the columns of bytes and blocks.

    Returns:
        A well-formed XML document without scripts, fonts or links. If there are more than 64 parts, those in
        the middle are drawn as one block.

    Examples:
        >>> import splitops
        >>> from splitops.explain import explain
        >>> to_svg(explain(splitops.plan("Split", shape=(6, 4), split=[2, 4])), "Split-18")[:4]
        '<svg'
    """
    return _Drawing(layout, title, width).draw()


class _Drawing:
    """A diagram that is drawn from top to bottom; ``y`` is the current position."""

    def __init__(self, layout: Explanation, title: str, width: int) -> None:
        self.layout = layout
        self.title = title
        self.width = width
        self.narrow = width < _NARROW
        self.margin = 16 if self.narrow else 40
        self.cells = group_cells(layout, _CELLS)
        self.canvas = Canvas(self._make_heading())
        self.y = 30.0 if self.narrow else 44.0

    def draw(self) -> str:
        (size, line), (small, lower) = ((15, 20), (12, 17)) if self.narrow else ((20, 22), (13, 18))
        self._write(self._make_heading(), size, line, weight="600")
        self._write(self._summarise(), small, lower, fill=FAINT)
        self.y += 12
        if self.cells:
            self._draw_block()
            self._draw_memory()
            self._draw_table()
        else:
            self.canvas.add_text(self.margin, self.y + 20, "No parts: the axis has size 0.")
            self.y += 40
        return self.canvas.to_document(self.width, round(self.y + 24))

    def _write(self, text: str, size: int, line: int, **style: str) -> None:
        """Write text at the current position, wrapped into lines, and move below it."""
        for one in textwrap.wrap(text, int((self.width - 2 * self.margin) / (0.58 * size))):
            self.canvas.add_text(self.margin, self.y, one, size=size, **style)
            self.y += line

    def _make_heading(self) -> str:
        parts = count_of(len(self.layout), "part")
        what = f"{self.layout.plan.shape} along axis {self.layout.plan.axis} into {parts}"
        return f"{self.title}: {what}" if self.title else what

    def _summarise(self) -> str:
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

    def _draw_block(self) -> None:
        """Draw the tensor: the split axis as width, the axes before it as height, those after it as depth."""
        plan = self.layout.plan
        before, after = plan.shape[: plan.axis], plan.shape[plan.axis + 1 :]
        left = self.margin + ((64 if self.narrow else 110) if before else 0)
        depth = (24 if self.narrow else 44) if after else 0
        height = 130 if before else 72
        gap = 5 if len(self.cells) <= 24 else 2
        room = self.width - self.margin - left - depth - gap * (len(self.cells) - 1)
        widths = _compute_widths(self.cells, room)
        top = self.y + depth * 0.6 + 20
        x = float(left)
        ticks = _Labels(self.canvas, 12 if self.narrow else 11)
        # From left to right, since each block covers a side of the previous one in this perspective.
        for cell, width in zip(self.cells, widths, strict=True):
            self._draw_slab(cell, x, top, width, height, depth)
            ticks.put(x + width / 2, top + height + 18, f"part{'s' if cell.count > 1 else ''} {cell.label}")
            x += width + gap
        bottom = top + height
        middle = (left + x - gap) / 2
        name = f"axis {plan.axis} = {self.layout.size:,}"
        self.canvas.add_text(middle, bottom + 42, name, anchor="middle", weight="600")
        if before:
            self.canvas.add_text(
                left - 14, top + height / 2 - 4, format_axes(0, len(before)), anchor="end", weight="600"
            )
            self.canvas.add_text(
                left - 14, top + height / 2 + 14, _format_product(before), anchor="end", fill=FAINT
            )
        if after:
            text = f"{format_axes(plan.axis + 1, len(after))}: {_format_product(after)}"
            self.canvas.add_text(
                self.width - self.margin, top - depth * 0.6 - 10, text, anchor="end", weight="600"
            )
        self.y = bottom + 72

    def _draw_slab(self, cell: Cell, x: float, y: float, width: float, height: float, depth: float) -> None:
        fill = FAINT if cell.count > 1 else get_colour(cell.first)
        rise = depth * 0.6
        title = self._describe(cell)
        if cell.size == 0:
            self.canvas.add_rect(x, y, width, height, PAPER, title=title, **_EMPTY)
            self._draw_label(cell, x, y, width, height, TEXT)
            return
        if depth:
            lid = [(x, y), (x + depth, y - rise), (x + width + depth, y - rise), (x + width, y)]
            side = [
                (x + width, y),
                (x + width + depth, y - rise),
                (x + width + depth, y - rise + height),
                (x + width, y + height),
            ]
            self.canvas.add_polygon(lid, mix(fill, 0.35))
            self.canvas.add_polygon(side, mix(fill, -0.25))
        self.canvas.add_rect(x, y, width, height, fill, title=title)
        self._draw_label(cell, x, y, width, height, get_ink(fill))

    def _draw_label(self, cell: Cell, x: float, y: float, width: float, height: float, fill: str) -> None:
        """Write the size of a cell into it, rotated if necessary. On phones, very narrow cells stay empty."""
        label = f"{cell.size:,}"
        for size in (16, 13, 12) if self.narrow else (16, 13, 10, 8):
            if _estimate_width(label, size) <= width - 1:
                middle = y + height / 2 + size * 0.35
                self.canvas.add_text(x + width / 2, middle, label, size=size, fill=fill, anchor="middle")
                return
        if self.narrow and width < 14:
            return  # the table contains the size
        at = f"translate({to_text(x + width / 2 + 3)} {to_text(y + height / 2)}) rotate(-90)"
        self.canvas.add_text(
            0, 0, label, size=12 if self.narrow else 9, fill=fill, anchor="middle", transform=at
        )

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

    def _draw_memory(self) -> None:
        shown = [cell for cell in self.cells if cell.size]
        flat = len(self.layout.plan.shape) == 1  # the block shows the memory already
        if flat or not shown or not self.layout.outer * self.layout.inner:
            return
        contiguous = self.layout.outer == 1
        repeats = min(self.layout.outer, _REPEATS if len(shown) <= 16 else 1)
        more = repeats < self.layout.outer
        room = self.width - 2 * self.margin - (40 if more else 0)
        caption = "Memory, from the first element"
        if not contiguous:
            caption += f": the sequence of all parts repeats {self.layout.outer:,} times"
        self._write(caption, 13, 18, weight="600")
        size = 12 if self.narrow else 10
        x, y = float(self.margin), self.y - 6
        for _ in range(repeats):
            widths = _compute_widths(shown, room / repeats - 4)
            for cell, width in zip(shown, widths, strict=True):
                fill = FAINT if cell.count > 1 else get_colour(cell.first)
                self.canvas.add_rect(x, y, width, 22, fill, stroke=PAPER, stroke_width="0.5")
                label = f"{cell.size:,}"
                if _estimate_width(label, size) <= width:
                    middle, ink = x + width / 2, get_ink(fill)
                    self.canvas.add_text(middle, y + 15, label, size=size, fill=ink, anchor="middle")
                x += width
            x += 4
        if more:
            self.canvas.add_text(x + 4, y + 16, "…", size=16, fill=FAINT)
        self.y = y + 60

    # Table

    def _draw_table(self) -> None:
        groups = list(islice(self.layout.groups(), _ROWS + 1))
        names = ("parts", "offset", "size", "shape", "bytes each", f"blocks {_TIMES} elements")
        columns = (38, 104, 172, 232) if self.narrow else (62, 200, 310, 400, 620, 760)
        for x, name in zip(columns, names, strict=False):
            if name != "bytes each" or self.layout.bytes is not None:
                self.canvas.add_text(x, self.y, name, size=12, weight="600", fill=FAINT)
        self.y += 8
        for group in groups[:_ROWS]:
            self.canvas.add_line(self.margin, self.y, self.width - self.margin, self.y)
            self.y += 19
            self._draw_swatch(group)
            for x, text in zip(columns, _make_row(group), strict=False):
                self.canvas.add_text(x, self.y, text, size=13)
            self.y += 8
        if len(groups) > _ROWS:
            self.y += 14
            self.canvas.add_text(
                self.margin + 22, self.y, "and more parts of other sizes", size=13, fill=FAINT
            )

    def _draw_swatch(self, group: PartGroup) -> None:
        """Draw the colours of the first four parts of a group, or a dashed box if its parts are empty."""
        if not group.first.size:
            self.canvas.add_rect(self.margin, self.y - 11, 14, 14, PAPER, **_EMPTY)
            return
        width = 14 / min(group.count, 4)
        for i in range(min(group.count, 4)):
            fill = get_colour(group.first.index + i)
            self.canvas.add_rect(self.margin + i * width, self.y - 11, width, 14, fill)


class _Labels:
    """Centred labels on a line. A label that would touch the previous one is omitted."""

    def __init__(self, canvas: Canvas, size: int) -> None:
        self.canvas = canvas
        self.size = size
        self.end = 0.0

    def put(self, x: float, y: float, text: str) -> None:
        half = _estimate_width(text, self.size) / 2
        if x - half > self.end:
            self.canvas.add_text(x, y, text, size=self.size, fill=FAINT, anchor="middle")
            self.end = x + half + 3


def _make_row(group: PartGroup) -> tuple[str, ...]:
    first = group.first
    offset = f"{first.offset:,}" if group.count == 1 else f"from {first.offset:,}"
    blocks = f"{first.runs:,} {_TIMES} {first.run_elements:,}" if first.runs else "empty"
    taken = "" if first.bytes is None else f"{first.bytes:,}"
    return group.label, offset, f"{first.size:,}", str(first.shape), taken, blocks


def _compute_widths(shown: tuple[Cell, ...] | list[Cell], room: float) -> list[int]:
    narrowest = max(2, min(14, int(room / len(shown))))
    return share_width([cell.size for cell in shown], [narrowest] * len(shown), int(room))


def _format_product(sizes: tuple[int, ...]) -> str:
    return f" {_TIMES} ".join(f"{size:,}" for size in sizes)


def _estimate_width(text: str, size: int) -> float:
    """Estimate the width of a text that is mostly digits. A digit takes about 0.58 of the font size."""
    return len(text) * size * 0.58
