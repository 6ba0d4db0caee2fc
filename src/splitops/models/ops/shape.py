"""Shape (ShapeOf in OpenVINO), which returns the sizes of a tensor, and Size, which multiplies them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from splitops.models.abstract_values import AbstractTensor, make_shape_value
from splitops.models.ops.operator import Attribute, Operands, Operator, Spelling, as_integer, as_type
from splitops.models.ops.shapes import count_elements
from splitops.models.ops.writing import INT64, SIZES, NodeWriter
from splitops.spec.elements.types import ElementType
from splitops.spec.sizes.dims import UNKNOWN

if TYPE_CHECKING:
    import onnx_ir as ir


def _infer(operands: Operands) -> AbstractTensor:
    kind, sizes = operands["type"], make_shape_value(operands.get_tensor().shape)
    if sizes is None:
        return AbstractTensor(kind, (UNKNOWN,))
    sizes = sizes[operands.get("start") : operands.get("end")]
    if all(isinstance(entry, int) for entry in sizes.tolist()):
        sizes = sizes.astype(kind.numpy)
    return AbstractTensor(kind, tuple(sizes.shape), sizes)


def _adapt_layer(writer: NodeWriter, operands: dict[str, Any]) -> dict[str, Any] | ir.Value:
    if operands["type"] is INT64:
        return operands
    return writer.cast(writer.add("Shape", [operands["data"]]), operands["type"])


def _read_size_type(value: Any) -> ElementType:
    kind = as_type(value)
    if kind not in SIZES:
        raise ValueError(f"{value!r} is neither i32 nor i64")
    return kind


_BOUNDS: Final = {name: Attribute(as_integer, None) for name in ("start", "end")}
_TYPE: Final = {"type": Attribute(_read_size_type, INT64, "output_type", lambda kind: kind.openvino)}
SHAPE: Final = Operator(
    onnx=(
        Spelling("Shape", "data", _BOUNDS, since=15, fixed={"type": INT64}),
        Spelling("Shape", fixed={"type": INT64}),
    ),
    openvino=(Spelling("ShapeOf", "data", _TYPE, since=3), Spelling("ShapeOf", fixed={"type": INT64})),
    infer=_infer,
    converts=True,
    adapt_layer=_adapt_layer,
)

SIZE: Final = Operator(
    onnx=(Spelling("Size"),),
    infer=lambda operands: AbstractTensor(
        INT64, (), np.asarray(count_elements(operands.get_shape()), object)
    ),
)
