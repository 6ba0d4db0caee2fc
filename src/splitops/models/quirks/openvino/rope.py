"""RoPEFusion: a rotary position embedding becomes one node.

::

    x ------------------------------------- Mul by cos --+
    x -> Split on -1 --+-> second -> Neg --+             +-> Add
                       +-> first ----------+-> Concat ---> Mul by sin

The pass reads whole rows of both tables, even if they are not as wide as ``x``, and assumes equal halves. A
Concat on a non-negative axis is not fused.

Reported in compare/docs/reports/rope.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import onnx_ir as ir

from splitops.models.graph.editor import Editor, Role
from splitops.models.graph.onnx import find_shape, is_constant
from splitops.models.quirks.graph_view import Bindings, GraphView, op
from splitops.models.quirks.quirk import Match, Quirk, count_axis_from_the_front
from splitops.spec.sizes.dims import Dim, Shape

_NEGATED: Final = (op("Neg", "second"), op("Mul", "second", -1), op("Sub", 0, "second"))
_ROPE: Final = op(
    "Add",
    op("Mul", op("Concat", _NEGATED, "first", bind="concat"), "sin", bind="product"),
    op("Mul", "x", "cos"),
)


def find(view: GraphView, concat: ir.Node) -> Iterator[Match]:
    """Yield the matches that contain a Concat, if the fusion is or may be wrong."""
    if len(concat.inputs) == 2:
        for product in view.find_consumers(concat.outputs[0], "Mul"):
            for total in view.find_consumers(product.outputs[0], "Add"):
                matches = (_read(view, found, total) for found in view.match(total.outputs[0], _ROPE))
                yield from filter(None, [next(filter(None, matches), None)])


def _read(view: GraphView, found: Bindings, total: ir.Node) -> Match | None:
    x, tables, half = found["x"], (found["cos"], found["sin"]), find_shape(found["first"])
    shape, concat, product = find_shape(x), found["concat"].producer(), found["product"].producer()
    if shape is None or not half or concat is None or product is None or not _is_of(view, found["first"], x):
        return None
    certain = _is_misread(shape, half[-1], map(find_shape, tables))
    axis = view.editor.find_axis(concat)
    if certain is None or axis != -1 or not all(_has_rank(table, len(shape)) for table in tables):
        return None
    node = _read_halves(view, found["first"], found["second"])
    return None if node is None else Match(ROPE, node, (node, concat, product, total), certain)


def _is_of(view: GraphView, part: ir.Value, data: ir.Value) -> bool:
    node = view.find_producer(part, "Split", "Slice")
    return node is not None and node.inputs[0] is not None and view.skip_idle(node.inputs[0]) is data


def _read_halves(view: GraphView, first: ir.Value, second: ir.Value) -> ir.Node | None:
    """Return the split by lengths, or the first of the Slices, that produces both halves of the last axis.

    Return None if there is none.
    """
    one, other = (view.slice(view.find_producer(value, "Slice")) for value in (first, second))
    if one is not None and other is not None and one.data is other.data and one.axis == other.axis:
        shape, span = find_shape(one.data), one.span
        follows = span is not None and other.bounds.start in (span[1], span[1] - (one.size or 0))
        is_last = shape is not None and one.axis == len(shape) - 1
        return one.node if is_last and span is not None and not span[0] and follows else None
    part, rest = view.find_split(first), view.find_split(second)
    if part is None or rest is None or part[0] is not rest[0] or (part[1], rest[1]) != (0, 1):
        return None
    split = part[0]
    cut = view.editor.read_split_facts(split)
    if cut is None or cut.sizes is None or len(cut.sizes) != 2 or view.is_counted(split):
        return None
    return split if view.editor.find_signed_axis(split) == cut.rank - 1 else None


def _is_misread(shape: Shape, half: Dim, tables: Iterable[Shape | None]) -> bool | None:
    """Return whether the halves or tables certainly differ from the assumed sizes.

    Return None if they certainly do not differ, or if the pass does not fuse the rank.
    """
    if len(shape) not in (3, 4):
        return None
    size, found = shape[-1], list(tables)
    widths = [None if table is None else (table or (1,))[-1] for table in found]
    grown = any(table is not None and _is_product_larger(table, shape) for table in found)
    halved = isinstance(half, int) and 2 * half == size
    if grown or not halved or any(isinstance(width, int) and width != size for width in widths):
        return isinstance(size, int) or grown
    return None if all(isinstance(width, int) for width in widths) else False


def _is_product_larger(table: Shape, shape: Shape) -> bool:
    """Return whether broadcasting with a table certainly enlarges data of a shape."""
    pairs = zip(reversed(shape), reversed(table), strict=False)
    return len(table) > len(shape) or any(
        size == 1 and isinstance(other, int) and other != 1 for size, other in pairs
    )


def _has_rank(table: ir.Value, rank: int) -> bool:
    """Return whether a table may have the rank of the data. OpenVINO reshapes constants to it."""
    shape = find_shape(table)
    return shape is None or len(shape) == rank or is_constant(table)


def _count_concat_axis_from_the_front(editor: Editor, match: Match) -> str | None:
    concat = next(node for node in match.path if editor.find_role(node) is Role.CONCAT)
    return count_axis_from_the_front(editor, match, concat)


ROPE: Final = Quirk("rotated-halves", "openvino", _count_concat_axis_from_the_front)
