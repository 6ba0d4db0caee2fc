"""What each rank holds: the tensors of a plan that are cut alike, as rows of data, and a picture of them."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from splitops.errors import brief, format_bytes, one_line
from splitops.explain.canvas import FIELD, FONT, Canvas, printable
from splitops.explain.palette import colour
from splitops.ground.records import select_json_values
from splitops.sharding.cuts import Cut
from splitops.sharding.globs import matched
from splitops.sharding.planning import ShardPlan

_LEFT: Final = 10
_BAR: Final = 74
_GAP: Final = 10
_LINE: Final = 26
_MOST_RANKS: Final = 16
_MOST_ROWS: Final = 200
HEADING: Final = ("tensors", "shape", "axis", "sizes", "bytes", "repeats")


@dataclass(frozen=True)
class Row:
    """Tensors of one rule, type and shape, with the globs that name them and the bytes of all by rank.

    The cut of tensors that go whole to one rank each is that of the first.
    """

    rule: int
    match: str
    tensors: tuple[str, ...]
    dtype: str
    shape: tuple[int, ...]
    cut: Cut
    bytes: tuple[int, ...]

    @property
    def places(self) -> bool:
        """Whether each tensor goes whole to one rank."""
        return self.cut.axis is None and any(shard is None for shard in self.cut.shards)

    @property
    def sizes(self) -> str:
        """The sizes of the cut axis by rank, equal ones counted, with the pieces of fused sections."""
        if self.cut.axis is None:
            return "one rank each" if self.places else "whole"
        shards = [shard for shard in self.cut.shards if shard is not None]
        text = " + ".join(f"{count} x {size}" for size, count in Counter(s.size for s in shards).items())
        fused = max(shards, key=lambda shard: len(shard.pieces))
        if len(fused.pieces) > 1:
            text += f" [{' | '.join(str(piece.size) for piece in fused.pieces)}]"
        return text

    @property
    def repeats(self) -> str:
        """What more than one rank holds, on how many of them, and what is padded."""
        if self.cut.axis is None:
            return "" if self.places or len(self.cut.shards) == 1 else f"all on {len(self.cut.shards)}"
        held = [piece for shard in self.cut.shards if shard is not None for piece in shard.pieces]
        counts = Counter((piece.begin, piece.size) for piece in held)
        said = []
        most = max(counts.values(), default=1)
        if most > 1:
            own = sum(size for (_, size), count in counts.items() if count > 1)
            said.append(f"{own} of {self.shape[self.cut.axis]} on {most}")
        if self.cut.padded:
            said.append(f"{self.cut.padded - self.shape[self.cut.axis]} padded")
        return "; ".join(said)

    @property
    def cells(self) -> tuple[str, ...]:
        """What a table says of them, under :data:`HEADING`; the bytes are those of the largest rank."""
        axis = "" if self.cut.axis is None else str(self.cut.axis)
        names, kind = f"{len(self.tensors)} x {one_line(self.match, 60)}", f"{self.dtype} {self.shape}"
        return names, kind, axis, self.sizes, str(max(self.bytes)), self.repeats

    def as_dict(self) -> dict[str, Any]:
        """Return it as values for JSON."""
        return {
            **select_json_values(self, "rule", "match"),
            "tensors": len(self.tensors),
            "first": self.tensors[0],
            **select_json_values(self, "dtype", "shape"),
            "axis": self.cut.axis,
            "sizes": self.sizes,
            "shards": [] if self.places else select_json_values(self.cut, "shards")["shards"],
            **select_json_values(self, "repeats", "bytes"),
        }


def rows_of(plan: ShardPlan) -> list[Row]:
    """Return what a plan does, in the order of its rules; tensors that are cut alike are one row."""
    groups: dict[tuple[int, str, tuple[int, ...]], list[int]] = {}
    held = plan.placements
    for index, (rule, tensor) in enumerate(zip(plan.rules, held.tensors, strict=True)):
        groups.setdefault((rule.number, tensor.code, tensor.shape), []).append(index)
    made = []
    for (number, code, shape), members in sorted(groups.items(), key=lambda item: item[0][0]):
        names = tuple(held.tensors[i].name for i in members)
        globs = plan.rules[members[0]].match
        match = ", ".join(glob for glob in globs if any(matched(glob, name) is not None for name in names))
        made.append(Row(number, match, names, code, shape, held.cuts[members[0]], held.rank_bytes(members)))
    return made


def draw(plan: ShardPlan) -> str:
    """Draw what each rank holds, as a self-contained SVG document.

    Tensors that are cut alike share a line of bars, one for each rank: the whole axis, with what the rank
    holds of it in the rank's colour.
    """
    rows = rows_of(plan)
    shown, ranks = rows[:_MOST_ROWS], min(plan.ranks, _MOST_RANKS)
    width = max(_LEFT + ranks * (_BAR + _GAP), 340)
    more = f", the first {ranks} drawn" if ranks < plan.ranks else ""
    heading = f"{len(plan.placements.tensors)} tensors on {plan.ranks} ranks{more}"
    canvas = Canvas(heading)
    canvas.text(10, 18, heading, size=12)
    for rank in range(ranks):
        said = f"{rank}: {format_bytes(plan.rank_bytes[rank])}"
        canvas.text(_LEFT + rank * (_BAR + _GAP), _LINE + 18, said, size=12)
    for line, row in enumerate(shown, 1):
        top = 2 * line * _LINE
        text = f"{len(row.tensors)} x {row.match} {brief(row.shape)}"
        canvas.text(10, top + 15, text if len(text) <= 58 else f"{text[:55]}...", size=12)
        for rank in range(ranks):
            _cell(canvas, row, rank, _LEFT + rank * (_BAR + _GAP), top + 20)
    return canvas.document(width, 2 * _LINE * (len(shown) + 1))


def _cell(canvas: Canvas, row: Row, rank: int, left: float, top: float) -> None:
    canvas.rect(left, top, _BAR, 18, FIELD)
    for begin, end in _held(row, rank):
        width = max(0.5, (end - begin) * _BAR)
        said = f"rank {rank}: {row.bytes[rank]} bytes"
        canvas.rect(left + begin * _BAR, top, width, 18, colour(rank), title=said)


def _held(row: Row, rank: int) -> Sequence[tuple[float, float]]:
    """Return which parts a rank holds of what a row's bar stands for, from 0 to 1."""
    if row.places:  # the bar is all of the tensors
        total = max(1, sum(row.bytes))
        begin = sum(row.bytes[:rank]) / total
        return [(begin, begin + row.bytes[rank] / total)] if row.bytes[rank] else []
    shard = row.cut.shards[rank]
    if row.cut.axis is None or shard is None:
        return [(0.0, 1.0)] if shard is not None else []
    size = max(1, row.shape[row.cut.axis])
    return [(piece.begin / size, (piece.begin + piece.size) / size) for piece in shard.pieces]


def page(plan: ShardPlan) -> str:
    """Return the picture and the table as one HTML document."""
    cells = "\n".join(
        "<tr>" + "".join(f"<td>{html.escape(printable(cell))}</td>" for cell in cells) + "</tr>"
        for cells in ((str(row.rule), row.match, *row.cells) for row in rows_of(plan))
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
