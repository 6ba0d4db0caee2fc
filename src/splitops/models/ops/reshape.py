"""Reshape and Flatten: the same elements in another shape."""

from __future__ import annotations

from typing import Any, Final

from splitops.errors import ModelError
from splitops.models.abstract_values import AbstractTensor
from splitops.models.ops.operator import (
    Attribute,
    Operands,
    Operator,
    Role,
    Spelling,
    Unknown,
    as_flag,
    as_integer,
    as_integers,
    get_elements,
    infer_result,
)
from splitops.models.ops.shapes import count_elements, resolve_reshape, to_size
from splitops.models.ops.writing import NodeWriter, as_int64
from splitops.spec.sizes.dims import Shape


def _infer(operands: Operands) -> AbstractTensor:
    data, pattern = operands.get_tensor(), operands.get_entries("shape")
    return reshape(data, resolve_reshape(data.shape, pattern, copies_zero=operands["copies_zero"]))


def reshape(data: AbstractTensor, shape: Shape) -> AbstractTensor:
    """Return the abstract tensor that has the elements of ``data`` in another shape."""
    exact = [size if isinstance(size, int) else -1 for size in shape]
    return infer_result(data, shape, lambda: get_elements(data).reshape(exact))


def _adapt_layer(writer: NodeWriter, operands: dict[str, Any]) -> dict[str, Any]:
    pattern = operands["shape"]
    shape, kind = writer.read_constant(pattern), writer.find_type(pattern)
    if kind is not None and not kind.integer:
        raise ModelError(f"the shape input of {writer.layer} is {kind}, but must be integers")
    if shape is not None and (shape < -1).any():
        raise ModelError(f"the shape input of {writer.layer} has a size below -1")
    # Without a 0, both settings mean the same, and every opset supports copying.
    if shape is not None and 0 not in shape:
        operands["copies_zero"] = True
    if not operands["copies_zero"] and shape is not None and -1 in shape:
        # Next to an empty axis, ONNX rejects a -1, which OpenVINO interprets as 1.
        return {**operands, "shape": [1 if size == -1 else int(size) for size in shape.reshape(-1)]}
    return {**operands, "shape": as_int64(writer, pattern)}


_ALLOWZERO: Final = Attribute(
    lambda value: not as_flag(value),
    default=True,
    name="allowzero",
    write=lambda copies: None if copies else 1,
)
_SPECIAL_ZERO: Final = Attribute(as_flag, default=False, name="special_zero")
_COPIES: Final = {"copies_zero": True}
RESHAPE: Final = Operator(
    onnx=(
        Spelling("Reshape", "data shape", {"copies_zero": _ALLOWZERO}, since=14),
        Spelling("Reshape", "data shape", since=5, fixed=_COPIES),
        Spelling("Reshape", "data", {"shape": Attribute(as_integers)}, fixed=_COPIES),
    ),
    openvino=(Spelling("Reshape", "data shape", {"copies_zero": _SPECIAL_ZERO}),),
    role=Role.RESHAPE,
    infer=_infer,
    converts=True,
    adapt_layer=_adapt_layer,
)


def _infer_flatten(operands: Operands) -> AbstractTensor:
    shape, axis = operands.get_shape(), operands["axis"]
    if not -len(shape) <= axis <= len(shape):
        raise Unknown(f"axis {axis} is not an axis of rank {len(shape)}")
    axis += len(shape) if axis < 0 else 0
    return reshape(
        operands.get_tensor(), (to_size(count_elements(shape[:axis])), to_size(count_elements(shape[axis:])))
    )


FLATTEN: Final = Operator(
    onnx=(Spelling("Flatten", attributes={"axis": Attribute(as_integer, 1)}),),
    role=Role.RESHAPE,
    infer=_infer_flatten,
)
