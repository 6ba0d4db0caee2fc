"""Optimiser passes of OpenVINO that are wrong around splits, one module per pass.

A pass replaces the nodes that match its pattern with others. Each module finds nodes that are not
equivalent to their replacement, and rewrites them to prevent the match.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import onnx_ir as ir

from splitops.models.formats.walk import iter_all_graphs
from splitops.models.graph.editor import Editor
from splitops.models.quirks.graph_view import MAY_BE_IDLE, GraphView, get_onnx_name
from splitops.models.quirks.openvino import (
    group_convolution,
    grouped_slices,
    lstm_cell,
    rope,
    split_concat_pair_to_interpolate,
    split_squeeze_concat,
    transpose_reduction,
)
from splitops.models.quirks.quirk import Match, Quirk

QUIRKS: Final[tuple[Quirk, ...]] = (
    split_squeeze_concat.NEGATIVE_AXIS,
    split_squeeze_concat.TWO_OPEN_SIZES,
    split_concat_pair_to_interpolate.INTERPOLATE,
    group_convolution.ANY_ORDER,
    group_convolution.JOINED_WITH_A_CONSTANT,
    rope.ROPE,
    grouped_slices.REVERSED_SLICES,
    lstm_cell.LSTM_CELL,
    transpose_reduction.TRANSPOSE_REDUCTION,
)
_FINDERS: Final[Mapping[str, tuple[Callable[[GraphView, ir.Node], Iterator[Match]], ...]]] = {
    "Concat": (
        split_squeeze_concat.find,
        split_concat_pair_to_interpolate.find,
        group_convolution.find,
        rope.find,
    ),
    "Split": (lstm_cell.find,),
    "Slice": (grouped_slices.find,),
    **dict.fromkeys(transpose_reduction.REDUCTIONS, (transpose_reduction.find,)),
}
"""Functions that find the pattern of a pass, keyed by the operator of the node at which they start."""


def find(editor: Editor, *, equal_as_count: bool = False) -> Iterator[Match]:
    """Yield the matches of the quirks of OpenVINO in an annotated model, in the order of the model.

    With ``equal_as_count``, splits by equal lengths are treated as splits by a number of parts.
    """
    for _, graph in iter_all_graphs(editor.model):
        view = GraphView(graph, editor, equal_as_count=equal_as_count)
        for node in graph:
            for find_in_pass in _FINDERS.get(get_onnx_name(node), ()):
                yield from find_in_pass(view, node) if view.name(node) else ()


def may_be_in(model: ir.Model) -> bool:
    """Return whether :func:`find` may find a match, judging each node by itself and its first input."""
    return any(map(_may_be_at, (node for _, graph in iter_all_graphs(model) for node in graph)))


def _may_be_at(node: ir.Node) -> bool:
    if node.op_type == "Concat":
        first = node.inputs[0].producer() if node.inputs and node.inputs[0] is not None else None
        return first is not None and get_onnx_name(first) in _BEFORE_A_CONCAT
    if node.op_type == "Split":
        return len(node.outputs) == lstm_cell.GATES
    return may_end_a_pattern(node.op_type, drops_axes=transpose_reduction.may_drop_axes(node))


def may_end_a_pattern(operator: str, *, drops_axes: bool) -> bool:
    """Return whether an operator is a Concat, a Slice or an axis-dropping reduction: each pattern has one."""
    return operator in ("Concat", "Slice") or (drops_axes and operator in transpose_reduction.REDUCTIONS)


_BEFORE_A_CONCAT: Final = MAY_BE_IDLE | {"Conv", "Neg", "Split"}
"""Operators that may produce the first input of a Concat at which :func:`find` starts."""
