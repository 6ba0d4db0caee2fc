"""A rich table that breaks lines only between words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

_ENDLESS = 1 << 16
"""A line width in characters that is enough for every table."""


class WordTable(Table):
    """A table whose columns are at least as wide as their longest words.

    If the line is too short for that, each row is printed as lines of column names and cells.
    """

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        wide = options.update(max_width=_ENDLESS)
        ranges = [_measure_column(column, console, wide) for column in self.columns]
        maxima, minima = [one.maximum for one in ranges], [one.minimum for one in ranges]
        room = options.max_width - (self.__rich_measure__(console, wide).maximum - sum(maxima))
        excess = 0
        while sum(maxima) > room - excess >= sum(minima):
            widths = share_width(minima, maxima, room - excess)
            for column, width, natural in zip(self.columns, widths, maxima, strict=True):
                column.width = None if width == natural else width
            found = self.__rich_measure__(console, wide).maximum
            if found <= options.max_width:
                break
            excess += found - options.max_width  # older releases of rich pad fixed columns at the edges
        if sum(minima) <= room:
            yield from super().__rich_console__(console, options)
        else:
            yield from self._iter_lines()

    def _iter_lines(self) -> Iterator[RenderableType]:
        if self.title:
            yield Text(str(self.title), style="bold")
        for cells in zip_longest(*(column.cells for column in self.columns), fillvalue=""):
            yield ""
            for column, cell in zip(self.columns, cells, strict=True):
                if str(cell):
                    yield f"{column.header}: {cell}" if str(column.header) else cell
        yield ""


def _measure_column(column: Column, console: Console, options: ConsoleOptions) -> Measurement:
    """Return the widths of the longest word and of the longest line of a column."""
    sizes = [Measurement.get(console, options, cell) for cell in (column.header, *column.cells)]
    return Measurement(max(size.minimum for size in sizes), max(size.maximum for size in sizes))


def share_width(minima: Sequence[int], maxima: Sequence[int], room: int) -> list[int]:
    """Return column widths between ``minima`` and ``maxima`` whose sum is ``room``, if that is possible.

    The narrowest column grows first; among equals, the last.

    Examples:
        >>> share_width([4, 10], [20, 30], 24)
        [12, 12]
        >>> share_width([4, 10], [6, 30], 24)
        [6, 18]
    """
    widths = list(minima)
    for _ in range(room - sum(minima)):
        growing = [index for index, width in enumerate(widths) if width < maxima[index]]
        if growing:
            widths[min(growing, key=lambda index: (widths[index], -index))] += 1
    return widths
