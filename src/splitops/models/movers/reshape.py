"""Reshape: the same elements in another shape."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from splitops.errors import ModelError
from splitops.models.abstract_values import AbstractTensor, Entry
from splitops.models.movers.followed import entries, moved, numbers
from splitops.models.movers.form import as_int64, prove
from splitops.models.movers.mover import LayerWriter, Mover, NodeWriter, OnnxNode, Role
from splitops.models.movers.shapes import reshaped

if TYPE_CHECKING:
    import onnx_ir as ir

    from splitops.models.formats.openvino import Layer, Output

_INT64_MAX: Final = (1 << 63) - 1


def resolve_pattern(shape: tuple[int, ...], pattern: Sequence[int], *, copies_zero: bool) -> list[int]:
    """Return the shape that OpenVINO gives data of an exact shape.

    Unlike :func:`~splitops.models.movers.shapes.reshaped` it says what a pattern lacks, and what -1 is among
    no elements.
    """
    result: list[int] = []
    known, rest = 1, list(shape)
    for index, size in enumerate(pattern):
        if size == 0 and copies_zero:
            if index >= len(rest):
                raise ModelError(
                    f"pattern {pattern} copies dimension {index} of a tensor of rank {len(rest)}"
                )
            result.append(shape[index])
            rest[index] = 1
        elif size < -1:
            raise ModelError(f"pattern {pattern} has the negative size {size}")
        else:
            result.append(size)
            known *= size if size >= 0 else 1
    misfit = ModelError(f"pattern {pattern} does not fit shape {list(shape)}")
    if pattern.count(-1) > 1:
        raise ModelError(f"pattern {pattern} has two -1")
    if -1 in pattern:
        left = math.prod(rest)
        # Nothing can be divided among no elements: OpenVINO takes 1.
        if known == 0 and left == 0:
            result[pattern.index(-1)] = 1
        elif known == 0 or left % known:
            raise misfit
        else:
            result[pattern.index(-1)] = left // known
    if math.prod(result) != math.prod(shape) or max(result, default=0) > _INT64_MAX:
        raise misfit
    return result


def _inferred(data: AbstractTensor, target: Sequence[Entry], *, copies_zero: bool) -> AbstractTensor:
    shape = reshaped(data.shape, target, copies_zero=copies_zero)
    exact = [size if isinstance(size, int) else -1 for size in shape]
    return moved(data.type, shape, lambda: numbers(data).reshape(exact))


def _infer_layer(layer: Layer, inputs: Sequence[AbstractTensor]) -> AbstractTensor:
    data, pattern = inputs
    copies_zero = (layer.attribute("special_zero") or "").lower() in ("true", "1")
    return _inferred(data, entries(pattern), copies_zero=copies_zero)


def _infer_node(node: OnnxNode) -> AbstractTensor:
    target = node.entries(1) if node.has(1) else list(node.attributes["shape"])
    data = node.inputs[0]
    data = data if isinstance(data, AbstractTensor) else AbstractTensor()
    return _inferred(data, target, copies_zero=not node.attributes.get("allowzero", 0))


def _to_onnx(builder: NodeWriter, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    data, pattern = sources
    special, shape = layer.boolean("special_zero", default=False), builder.read_constant(pattern)
    kind = builder.type_of(pattern)
    prove(kind is None or kind.integer, f"the pattern of {layer} is {kind}, not integers")
    prove(shape is None or bool((shape >= -1).all()), f"the pattern of {layer} has a negative size")
    # Without a 0 in it, both ways to read one are the same, and only the older one is in every opset.
    keeps = special or (shape is not None and 0 not in shape)
    attributes = {} if keeps else {"allowzero": 1}
    if not keeps and shape is not None and -1 in shape:
        # ONNX takes no -1 beside an empty axis, where OpenVINO takes it for 1.
        sizes = [1 if size == -1 else int(size) for size in shape]
        return builder.op("Reshape", [data, builder.integers(sizes)], attributes)
    return builder.op("Reshape", [data, as_int64(builder, pattern)], attributes)


def _to_openvino(layers: LayerWriter, node: ir.Node) -> Output:
    allow, attribute = node.attributes.get("allowzero"), node.attributes.get("shape")
    shape: Any = node.inputs[1] if attribute is None else layers.integers(attribute.value)
    data = {"special_zero": not (allow is not None and allow.value)}
    return layers.layer(node, "Reshape", [node.inputs[0], shape], data)


RESHAPE: Final = Mover(
    onnx="Reshape",
    openvino="Reshape",
    role=Role.RESHAPE,
    infer_layer=_infer_layer,
    infer_node=_infer_node,
    to_onnx=_to_onnx,
    to_openvino=_to_openvino,
)
