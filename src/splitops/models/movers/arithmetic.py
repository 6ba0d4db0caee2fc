"""Arithmetic on sizes, and their comparison.

Layers of floating-point numbers are written too; only sizes are followed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial, reduce
from typing import TYPE_CHECKING, Final

from splitops.errors import ModelError
from splitops.models.abstract_values import AbstractTensor
from splitops.models.abstract_values import Value as Numbers
from splitops.models.movers.followed import moved, numbers, shape_of
from splitops.models.movers.form import BOOL, INT64, NUMBERS, SIZES
from splitops.models.movers.mover import LayerWriter, Mover, NodeWriter, OnnxNode, Reader, Role
from splitops.models.movers.numbers import ARITHMETIC, apply, equal
from splitops.models.movers.shapes import broadcast
from splitops.spec.elements.types import ELEMENT_TYPES, ElementType

if TYPE_CHECKING:
    import onnx_ir as ir

    from splitops.models.formats.openvino import Layer, Output

_NAMES: Final[Mapping[str, str]] = {
    "Add": "Add",
    "Sub": "Subtract",
    "Mul": "Multiply",
    "Div": "Divide",
    "Min": "Minimum",
    "Max": "Maximum",
    "Equal": "Equal",
}
"""The layer types by ONNX operator."""
_BYTES: Final = frozenset({ELEMENT_TYPES["int8"], ELEMENT_TYPES["uint8"]})


def _inferred(operator: str, tensors: Sequence[AbstractTensor]) -> AbstractTensor:
    def computed() -> Numbers:
        if operator == "Equal":
            return apply(equal, numbers(tensors[0]), numbers(tensors[1]))
        if any(tensor.type is not INT64 for tensor in tensors):
            raise ValueError("only 64-bit integers are followed")
        return reduce(partial(apply, ARITHMETIC[operator]), map(numbers, tensors))

    return moved(_kind(operator) or tensors[0].type, reduce(broadcast, map(shape_of, tensors)), computed)


def _kind(operator: str) -> ElementType | None:
    """Return the type of the result; None is that of the inputs."""
    return BOOL if operator == "Equal" else None


def _infer_layer(operator: str, layer: Layer, inputs: Sequence[AbstractTensor]) -> AbstractTensor:
    if not _broadcasts_as_onnx(layer):
        raise ValueError("broadcasts in another way")
    return _inferred(operator, inputs)


def _infer_node(operator: str, node: OnnxNode) -> AbstractTensor:
    if "broadcast" in node.attributes or "axis" in node.attributes:
        raise ValueError("broadcasts as it did before opset 7")
    return _inferred(operator, node.tensors())


def _to_onnx(operator: str, builder: NodeWriter, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    types = {builder.type_of(source) for source in sources}
    if not types <= NUMBERS and operator != "Equal":
        names = ", ".join(sorted(map(str, types)))
        if types <= _BYTES and operator in ("Add", "Sub", "Mul"):
            raise ModelError(
                f"{layer} of {names} has two results on overflow: OpenVINO saturates when it runs and can "
                "wrap around when it folds constants. ONNX wraps around. Convert the inputs to int32"
            )
        raise ModelError(f"{layer} of {names} is not said to be the same in ONNX")
    if not _broadcasts_as_onnx(layer):
        raise ModelError(f"{layer} has auto_broadcast = {layer.attribute('auto_broadcast')!r}")
    if operator == "Div" and types <= SIZES and layer.attribute("m_pythondiv") != "false":
        return _rounded_down(builder, sources)
    return builder.op(operator, sources)


def _rounded_down(builder: NodeWriter, sources: Sequence[ir.Value]) -> ir.Value:
    """Divide integers: one less than towards zero where the two kinds of remainder differ."""
    kind = builder.type_of(sources[0])
    assert kind is not None
    same = builder.op("Equal", [builder.op("Mod", sources), builder.op("Mod", sources, {"fmod": 1})])
    return builder.op("Sub", [builder.op("Div", sources), builder.cast(builder.op("Not", [same]), kind)])


def _to_openvino(operator: str, layers: LayerWriter, node: ir.Node) -> Output:
    data: dict[str, object] = {"auto_broadcast": "numpy"}
    if operator == "Div":
        data["m_pythondiv"] = False  # towards zero, as ONNX divides integers
    return layers.layer(node, _NAMES[operator], node.inputs, data, kind=_kind(operator))


def _broadcasts_as_onnx(layer: Layer) -> bool:
    return layer.attribute("auto_broadcast") in (None, "numpy", "none")  # of equal shapes, all are the same


def _takes_node(node: ir.Node, graph: Reader, opset: int) -> bool:
    if len(node.inputs) != 2 or "broadcast" in node.attributes or "axis" in node.attributes:
        return False
    types = {None if value is None else graph.type_of(value) for value in node.inputs}
    return len(types) == 1 and types <= NUMBERS


ARITHMETIC_OF_SIZES: Final = tuple(
    Mover(
        onnx=onnx,
        openvino=openvino,
        role=Role.SUM if onnx == "Add" else None,
        takes_node=_takes_node,
        infer_layer=partial(_infer_layer, onnx),
        infer_node=partial(_infer_node, onnx),
        to_onnx=partial(_to_onnx, onnx),
        to_openvino=partial(_to_openvino, onnx),
    )
    for onnx, openvino in _NAMES.items()
)
