"""Tables and diagrams of a shard plan: which rank stores which elements."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from splitops.common.json_values import select_json_values
from splitops.errors import brief, format_bytes, one_line
from splitops.explain.canvas import FIELD, FONT, Canvas, make_printable
from splitops.explain.palette import get_colour
from splitops.sharding.globs import match_glob
from splitops.sharding.planning import ShardPlan
from splitops.sharding.tensor_sharding import TensorSharding

_LEFT: Final = 10
_BAR: Final = 74
_GAP: Final = 10
_LINE: Final = 26
_MAX_RANKS: Final = 16
_MAX_ROWS: Final = 200
HEADING: Final = ("tensors", "shape", "axis", "sizes", "bytes", "repeats")


@dataclass(frozen=True)
class RankRow:
    """A row of the table: tensors with the same rule, type and shape, and their total bytes on each rank.

    If the tensors are assigned to different ranks, ``cut`` is the sharding of the first one.
    """

    rule: int
    match: str
    tensors: tuple[str, ...]
    dtype: str
    shape: tuple[int, ...]
    cut: TensorSharding
    bytes: tuple[int, ...]

    @property
    def is_assigned(self) -> bool:
        """Whether each tensor is stored unsharded on one of several ranks."""
        return self.cut.axis is None and any(shard is None for shard in self.cut.shards)

    @property
    def sizes(self) -> str:
        """Text for the sizes of the shards, such as "2 x 4 + 1 x 3", and for the pieces of fused sections."""
        if self.cut.axis is None:
            return "one rank each" if self.is_assigned else "whole"
        shards = [shard for shard in self.cut.shards if shard is not None]
        text = " + ".join(f"{count} x {size}" for size, count in Counter(s.size for s in shards).items())
        fused = max(shards, key=lambda shard: len(shard.pieces))
        if len(fused.pieces) > 1:
            text += f" [{' | '.join(str(piece.size) for piece in fused.pieces)}]"
        return text

    @property
    def repeats(self) -> str:
        """Text for repeated and padded indices of the axis, or for replicated tensors.

        "2 of 6 on 2" means that 2 of 6 indices are on 2 ranks each; "on up to 4", that their numbers differ.
        """
        if self.cut.axis is None:
            return "" if self.is_assigned or len(self.cut.shards) == 1 else f"all on {len(self.cut.shards)}"
        held = [piece for shard in self.cut.shards if shard is not None for piece in shard.pieces]
        counts = Counter((piece.begin, piece.size) for piece in held)
        notes = []
        copies = {count for count in counts.values() if count > 1}
        if copies:
            repeated = sum(size for (_, size), count in counts.items() if count > 1)
            bound = "up to " * (len(copies) > 1)
            notes.append(f"{repeated} of {self.shape[self.cut.axis]} on {bound}{max(copies)}")
        if self.cut.padded:
            notes.append(f"{self.cut.padded - self.shape[self.cut.axis]} padded")
        return "; ".join(notes)

    @property
    def cells(self) -> tuple[str, ...]:
        """The table cells under :data:`HEADING`. The bytes are those of the rank with the most."""
        axis = "" if self.cut.axis is None else str(self.cut.axis)
        names, kind = f"{len(self.tensors)} x {one_line(self.match, 60)}", f"{self.dtype} {self.shape}"
        return names, kind, axis, self.sizes, str(max(self.bytes)), self.repeats

    def as_dict(self) -> dict[str, Any]:
        """Return the row as JSON-serialisable values."""
        return {
            **select_json_values(self, "rule", "match"),
            "tensors": len(self.tensors),
            "first": self.tensors[0],
            **select_json_values(self, "dtype", "shape"),
            "axis": self.cut.axis,
            "sizes": self.sizes,
            "shards": [] if self.is_assigned else select_json_values(self.cut, "shards")["shards"],
            **select_json_values(self, "repeats", "bytes"),
        }


def make_rows(plan: ShardPlan) -> list[RankRow]:
    """Group the tensors of a plan by rule, type and shape, in the order of the rules."""
    groups: dict[tuple[int, str, tuple[int, ...]], list[int]] = {}
    held = plan.placements
    for index, (rule, tensor) in enumerate(zip(plan.rules, held.tensors, strict=True)):
        groups.setdefault((rule.number, tensor.code, tensor.shape), []).append(index)
    made = []
    for (number, code, shape), members in sorted(groups.items(), key=lambda item: item[0][0]):
        names = tuple(held.tensors[i].name for i in members)
        globs = plan.rules[members[0]].match
        match = ", ".join(glob for glob in globs if any(match_glob(glob, name) is not None for name in names))
        cut, total = held.cuts[members[0]], held.sum_rank_bytes(members)
        made.append(RankRow(number, match, names, code, shape, cut, total))
    return made


def draw(plan: ShardPlan) -> str:
    """Draw which rank stores which elements, as a self-contained SVG document.

    Each :class:`RankRow` is a line with one bar per rank. A bar represents the complete axis or, if each
    tensor is on one rank, the bytes of all tensors. The part of the rank is coloured. Only the first 16 ranks
    and 200 rows are drawn.
    """
    rows = make_rows(plan)
    shown, ranks = rows[:_MAX_ROWS], min(plan.ranks, _MAX_RANKS)
    width = max(_LEFT + ranks * (_BAR + _GAP), 340)
    more = f", the first {ranks} drawn" if ranks < plan.ranks else ""
    heading = f"{len(plan.placements.tensors)} tensors on {plan.ranks} ranks{more}"
    canvas = Canvas(heading)
    canvas.add_text(10, 18, heading, size=12)
    for rank in range(ranks):
        label = f"{rank}: {format_bytes(plan.rank_bytes[rank])}"
        canvas.add_text(_LEFT + rank * (_BAR + _GAP), _LINE + 18, label, size=12)
    for line, row in enumerate(shown, 1):
        top = 2 * line * _LINE
        text = f"{len(row.tensors)} x {row.match} {brief(row.shape)}"
        canvas.add_text(10, top + 15, text if len(text) <= 58 else f"{text[:55]}...", size=12)
        for rank in range(ranks):
            _draw_bar(canvas, row, rank, _LEFT + rank * (_BAR + _GAP), top + 20)
    return canvas.to_document(width, 2 * _LINE * (len(shown) + 1))


def _draw_bar(canvas: Canvas, row: RankRow, rank: int, left: float, top: float) -> None:
    canvas.add_rect(left, top, _BAR, 18, FIELD)
    for begin, end in _find_ranges(row, rank):
        width = max(0.5, (end - begin) * _BAR)
        title = f"rank {rank}: {row.bytes[rank]} bytes"
        canvas.add_rect(left + begin * _BAR, top, width, 18, get_colour(rank), title=title)


def _find_ranges(row: RankRow, rank: int) -> Sequence[tuple[float, float]]:
    """Return the ranges of a bar that a rank stores, as fractions of its length."""
    if row.is_assigned:  # the bar represents the bytes of all tensors, not an axis
        total = max(1, sum(row.bytes))
        begin = sum(row.bytes[:rank]) / total
        return [(begin, begin + row.bytes[rank] / total)] if row.bytes[rank] else []
    shard = row.cut.shards[rank]
    if row.cut.axis is None or shard is None:
        return [(0.0, 1.0)] if shard is not None else []
    size = max(1, row.shape[row.cut.axis])
    return [(piece.begin / size, (piece.begin + piece.size) / size) for piece in shard.pieces]


def make_page(plan: ShardPlan) -> str:
    """Return the diagram and the table of a plan as one HTML document."""
    cells = "\n".join(
        "<tr>" + "".join(f"<td>{html.escape(make_printable(cell))}</td>" for cell in cells) + "</tr>"
        for cells in ((str(row.rule), row.match, *row.cells) for row in make_rows(plan))
    )
    head = "".join(f"<th>{name}</th>" for name in ("rule", "match", *HEADING))
    return (
        '<!doctype html>\n<html lang="en"><meta charset="utf-8">\n'
        '<meta name="color-scheme" content="light dark"><title>What each rank holds</title>\n'
        f"<style>body{{font-family:{FONT};margin:2em}}svg{{max-width:100%}}"
        "table{border-collapse:collapse}"
        "td,th{padding:.2em .8em;text-align:left;border-bottom:1px solid #d0d7de}"
        f"</style>\n{draw(plan)}<table>\n<tr>{head}</tr>\n{cells}\n</table></html>\n"
    )
