"""Slice: a part of each of some axes, in steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from splitops.models.abstract_values import AbstractTensor, Entry
from splitops.models.abstract_values import Value as Numbers
from splitops.models.movers.followed import entries, moved, numbers, shape_of
from splitops.models.movers.followed import integers as known_integers
from splitops.models.movers.form import as_int64, length_of, prove
from splitops.models.movers.mover import LayerWriter, Mover, NodeWriter, OnnxNode, Reader, Role
from splitops.models.movers.shapes import axis_within, clamped, sliced
from splitops.spec.elements.types import ElementType
from splitops.spec.sizes.dims import Dim

if TYPE_CHECKING:
    import onnx_ir as ir

    from splitops.models.formats.openvino import Layer, Output

_FIRST: Final = 8
"""The first operation set with Slice."""


def _inferred(
    data: AbstractTensor,
    starts: Sequence[Entry],
    ends: Sequence[Entry],
    axes: Sequence[int] | None,
    steps: Sequence[int] | None,
) -> AbstractTensor:
    """Return what is known of a slice; axes and steps that are not stated are the first ones, and 1."""
    sizes: list[Dim] = list(shape_of(data))
    axes = range(len(starts)) if axes is None else [axis_within(axis, len(sizes)) for axis in axes]
    bounds = list(zip(axes, starts, ends, [1] * len(starts) if steps is None else steps, strict=True))
    for axis, start, end, step in bounds:
        sizes[axis] = sliced(sizes[axis], start, end, step)

    def cut() -> Numbers:
        found = numbers(data)
        index = [slice(None)] * len(sizes)
        for axis, start, end, step in bounds:
            if not isinstance(start, int) or not isinstance(end, int):
                raise ValueError("a bound is unknown")
            index[axis] = clamped(found.shape[axis], slice(start, end, step))
        return found[tuple(index)]

    return moved(data.type, tuple(sizes), cut)


def _infer_layer(layer: Layer, inputs: Sequence[AbstractTensor]) -> AbstractTensor:
    data, starts, ends, steps, *axes = inputs
    return _inferred(
        data,
        entries(starts),
        entries(ends),
        known_integers(axes[0]) if axes else None,
        known_integers(steps),
    )


def _infer_node(node: OnnxNode) -> AbstractTensor:
    if "starts" in node.attributes:  # before opset 10
        starts, ends, steps = node.attributes["starts"], node.attributes["ends"], None
    else:
        starts, ends, steps = node.entries(1), node.entries(2), node.given("steps", 4)
    return _inferred(node.tensor(), starts, ends, node.given("axes", 3), steps)


def _to_onnx(builder: NodeWriter, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    data, *given = sources
    start, stop, step, *axes = (as_int64(builder, value) for value in given)
    if not axes:
        axes = [builder.integers(range(length_of(builder, given[0], f"the number of bounds of {layer}")))]
    numbers_of_axes, shape = builder.read_constant(axes[0]), builder.shape_of(data)
    if numbers_of_axes is not None and shape is not None:
        found = [axis_within(int(axis), len(shape)) for axis in numbers_of_axes.reshape(-1)]
        prove(len(set(found)) == len(found), f"{layer} has an axis twice: {found}")
    return builder.op("Slice", [data, start, stop, axes[0], step])


def _takes_node(node: ir.Node, graph: Reader, opset: int) -> bool:
    """Return whether a layer can say what a node does: OpenVINO slices neither strings nor parts of bytes.

    Steps that a node leaves out must be written: for that, their number and type must be known.
    """
    data = node.inputs[0]
    kind = None if data is None else graph.type_of(data)
    if kind is None or kind.bits < 8:
        return False
    return "starts" in node.attributes or _stated(node, 4) is not None or _steps(node, graph) is not None


def _stated(node: ir.Node, index: int) -> ir.Value | None:
    return node.inputs[index] if index < len(node.inputs) else None


def _steps(node: ir.Node, graph: Reader) -> tuple[int, ElementType] | None:
    """Return how many steps a node leaves out, and the type of its bounds."""
    kinds = [None if value is None else graph.type_of(value) for value in node.inputs[1:3]]
    shapes = [graph.shape_of(value) for value in node.inputs[1:4] if value is not None]
    counts = [shape[0] for shape in shapes if shape is not None and len(shape) == 1]
    count = next((count for count in counts if isinstance(count, int)), None)
    return None if count is None or kinds[0] is None else (count, kinds[0])


def _to_openvino(layers: LayerWriter, node: ir.Node) -> Output:
    data = node.inputs[0]
    inputs: list[ir.Value | Output | None]
    if "starts" in node.attributes:  # before opset 10
        starts, ends = node.attributes["starts"].value, node.attributes["ends"].value
        inputs = [data, layers.integers(starts), layers.integers(ends), layers.integers([1] * len(starts))]
        if "axes" in node.attributes:
            inputs.append(layers.integers(node.attributes["axes"].value))
    else:
        steps: ir.Value | Output | None = _stated(node, 4)
        if steps is None:
            left_out = _steps(node, layers)
            assert left_out is not None
            count, kind = left_out
            steps = layers.integers([1] * count, kind)
        inputs = [*node.inputs[:3], steps]
        if (axes := _stated(node, 3)) is not None:
            inputs.append(axes)
    return layers.layer(node, "Slice", inputs, version=f"opset{_FIRST}")


SLICE: Final = Mover(
    onnx="Slice",
    openvino="Slice",
    role=Role.SLICE,
    versions=frozenset(f"opset{number}" for number in range(_FIRST, 100)),
    takes_node=_takes_node,
    infer_layer=_infer_layer,
    infer_node=_infer_node,
    to_onnx=_to_onnx,
    to_openvino=_to_openvino,
)
