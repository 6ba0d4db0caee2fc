"""TransposeReduction: a Transpose before a reduction is moved after it.

::

    x -> Transpose -> Reduce (axes dropped)        x -> Reduce -> Transpose of the other axes

OpenVINO may omit the second Transpose if it only moves axes of size 1, although it changes the shape. When it
does so is unknown. A reduction that keeps its axes is moved correctly.

Reported in compare/docs/reports/transpose-reduce.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any, Final

import onnx_ir as ir

from splitops.models.formats.openvino.nodes import LayerNode
from splitops.models.graph.editor import Editor
from splitops.models.graph.onnx import find_integers, find_shape
from splitops.models.quirks.graph_view import GraphView, is_same_shape
from splitops.models.quirks.quirk import Match, Quirk
from splitops.spec.sizes.dims import Dim

REDUCTIONS: Final = frozenset(
    f"Reduce{name}"
    for name in ("L1", "L2", "LogSum", "LogicalAnd", "LogicalOr", "Max", "Mean", "Min", "Prod", "Sum")
)
"""The reductions that the pass moves. Some exist in only one of the formats."""


def find(view: GraphView, reduction: ir.Node) -> Iterator[Match]:
    """Yield the match that ends at a reduction, if the result may be wrong."""
    data = reduction.inputs[0] if may_drop_axes(reduction) else None
    value = None if data is None else view.skip_idle(data, "Transpose")
    transpose, shape = (None, None) if value is None else (value.producer(), find_shape(value))
    if transpose is None or view.name(transpose) != "Transpose" or shape is None:
        return
    reduced, order = _read_axes(reduction, len(shape)), list(range(len(shape)))
    if reduced is None:  # OpenVINO moves only reductions with constant axes
        return
    path, consumer = [reduction], reduction
    # OpenVINO merges a chain of Transposes.
    while transpose is not None and view.is_only_for(transpose.outputs[0], consumer):
        step = view.editor.read_permutation(transpose, len(shape))
        if step is None:
            return
        order, path = [step[axis] for axis in order], [transpose, *path]
        if _may_move_ones([(order[axis], size) for axis, size in enumerate(shape) if axis not in reduced]):
            yield Match(TRANSPOSE_REDUCTION, transpose, tuple(path), certain=False)
            return
        consumer = transpose
        transpose = view.find_producer(transpose.inputs[0], "Transpose")


def _may_move_ones(kept: list[tuple[int, Dim]]) -> bool:
    """Return whether a permutation may change the shape, but only by moving sizes of 1.

    ``kept`` has the original axis and the size of each axis of the result.
    """
    before = sorted(kept, key=itemgetter(0))
    others = [axis for axis, size in kept if not _may_be_one(size)]
    is_same = is_same_shape(tuple(size for _, size in kept), tuple(size for _, size in before))
    return kept != before and others == sorted(others) and not is_same


def _may_be_one(size: Dim) -> bool:
    """Return whether OpenVINO may infer that a size is 1. It does not for symbols of the inputs."""
    return size == 1 if isinstance(size, int) else size.name is None and size.lo <= 1


def may_drop_axes(node: ir.Node) -> bool:
    """Return whether a reduction may drop the axes that it reduces."""
    if type(node) is LayerNode:
        return (node.layer.get_attribute("keep_dims") or "").lower() not in ("true", "1")
    keepdims = node.attributes.get("keepdims")
    return keepdims is not None and (keepdims.is_ref() or not keepdims.value)


def _read_axes(reduction: ir.Node, rank: int) -> frozenset[int] | None:
    """Return the reduced axes of a reduction, or None if they are unknown."""
    attribute = reduction.attributes.get("axes")
    value = reduction.inputs[1] if len(reduction.inputs) > 1 else None
    axes: Sequence[int] | None = ()
    if attribute is not None:
        axes = attribute.value
    elif value is not None:
        axes = find_integers(value)
    if axes is None or not all(-rank <= axis < rank for axis in axes):
        return None
    if not axes and type(reduction) is not LayerNode:  # the default in ONNX is to reduce all axes
        unless = reduction.attributes.get("noop_with_empty_axes")
        if unless is None or not unless.value:
            return None if unless is not None and unless.is_ref() else frozenset(range(rank))
    return frozenset(axis % rank for axis in axes)


def _keep_axes(editor: Editor, match: Match) -> str | None:
    """Make a reduction keep its axes, and add Squeezes after it that remove them.

    Return a description of the new nodes, or None if the shape, the reduced axes or ``keepdims`` is unknown.
    """
    reduction, data = match.last, match.last.inputs[0]
    shape = None if data is None else find_shape(data)
    reduced = None if shape is None else _read_axes(reduction, len(shape))
    keepdims = reduction.attributes.get("keepdims")
    if shape is None or reduced is None or (keepdims is not None and keepdims.is_ref()):
        return None
    kept = tuple(1 if axis in reduced else size for axis, size in enumerate(shape))
    keeping: dict[str, Any] = {"keep_dims": "true"} if editor.domain else {"keepdims": 1}
    output = editor.make_builder(reduction).repeat(reduction, reduction.inputs, kept, keeping)
    for axis in sorted(reduced, reverse=True):
        output = editor.make_builder(reduction).squeeze(output, axis)
    editor.substitute(reduction, [output])
    return f"{reduction.op_type}(keepdims=1), Squeeze(axes={sorted(reduced)})"


TRANSPOSE_REDUCTION: Final = Quirk("turned-reduction", "openvino", _keep_axes, says_may=True)
