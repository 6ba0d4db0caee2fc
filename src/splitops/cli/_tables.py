"""A table that breaks no word: columns give way as far as their longest words, then its rows become lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

_ENDLESS = 1 << 16
"""Characters of a line in which every table fits."""


class WholeWords(Table):
    """A table whose columns are never narrower than their longest words.

    If the words of all columns do not fit side by side, each row becomes lines: names of columns, and cells.
    """

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        wide = options.update(max_width=_ENDLESS)
        ranges = [_range(column, console, wide) for column in self.columns]
        most, least = [one.maximum for one in ranges], [one.minimum for one in ranges]
        room = options.max_width - (self.__rich_measure__(console, wide).maximum - sum(most))
        excess = 0
        while sum(most) > room - excess >= sum(least):
            widths = shared_widths(least, most, room - excess)
            for column, width, natural in zip(self.columns, widths, most, strict=True):
                column.width = None if width == natural else width
            found = self.__rich_measure__(console, wide).maximum
            if found <= options.max_width:
                break
            excess += found - options.max_width  # older releases of rich pad fixed columns at the edges
        if sum(least) <= room:
            yield from super().__rich_console__(console, options)
        else:
            yield from self._lines()

    def _lines(self) -> Iterator[RenderableType]:
        if self.title:
            yield Text(str(self.title), style="bold")
        for cells in zip_longest(*(column.cells for column in self.columns), fillvalue=""):
            yield ""
            for column, cell in zip(self.columns, cells, strict=True):
                if str(cell):
                    yield f"{column.header}: {cell}" if str(column.header) else cell
        yield ""


def _range(column: Column, console: Console, options: ConsoleOptions) -> Measurement:
    """Return the width of the longest word of a column, and of its longest line."""
    sizes = [Measurement.get(console, options, cell) for cell in (column.header, *column.cells)]
    return Measurement(max(size.minimum for size in sizes), max(size.maximum for size in sizes))


def shared_widths(least: Sequence[int], most: Sequence[int], room: int) -> list[int]:
    """Return widths that fill the room: the narrowest column that needs more gets it, the last one first.

    Examples:
        >>> shared_widths([4, 10], [20, 30], 24)
        [12, 12]
        >>> shared_widths([4, 10], [6, 30], 24)
        [6, 18]
    """
    widths = list(least)
    for _ in range(room - sum(least)):
        growing = [index for index, width in enumerate(widths) if width < most[index]]
        if growing:
            widths[min(growing, key=lambda index: (widths[index], -index))] += 1
    return widths
