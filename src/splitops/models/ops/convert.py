"""Convert (Cast in ONNX), which converts the elements of a tensor to another type."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from splitops.errors import ModelError
from splitops.models.abstract_values import AbstractTensor, Entry, Value
from splitops.models.ops.element_conversion import convert, is_convertible
from splitops.models.ops.operator import (
    Attribute,
    Operands,
    Operator,
    Spelling,
    Unknown,
    as_flag,
    as_integer,
    as_name,
    as_type,
    infer_result,
)
from splitops.models.ops.writing import FLOATS, INTEGERS, LOGICAL, SIZES, NodeWriter, Reader
from splitops.spec.elements.types import ELEMENT_TYPES, ElementType, from_onnx

if TYPE_CHECKING:
    import onnx_ir as ir

_HALVES: Final = frozenset(ELEMENT_TYPES[name] for name in ("float16", "bfloat16"))
_TYPES: Final = INTEGERS | FLOATS | LOGICAL
_WITHIN_FLOAT32: Final = {kind for kind in _TYPES if kind.bits <= 16} | {ELEMENT_TYPES["float32"]}


def _infer(operands: Operands) -> AbstractTensor:
    data = operands.get_tensor()
    target = operands.get_type("like") if "like" in operands else operands["type"]

    if target is None:
        return AbstractTensor(None, data.shape)

    def compute() -> Value:
        elements = operands.get_elements()
        if not data.is_complete:
            # A partly known element is an integer that narrower types may not be able to represent.
            if target not in SIZES:
                raise Unknown("an element is unknown")
            limits = np.iinfo(target.numpy)
            return np.array([_convert_entry(limits, one) for one in elements.flat], object).reshape(
                elements.shape
            )
        if not operands.of_layer:
            with np.errstate(all="ignore"):
                return elements.astype(target.numpy)
        if data.type is None or not is_convertible(data.type, target):
            raise Unknown("not converted")
        return convert(elements.astype(data.type.numpy), data.type, target)

    return infer_result(data, data.shape, compute, target)


def _convert_entry(limits: np.iinfo[Any], entry: Entry) -> Entry:
    """Convert an element to an integer type, or return None if runtimes differ or it does not fit."""
    if isinstance(entry, float):
        entry = int(entry) if math.isfinite(entry) else None
    return None if isinstance(entry, int) and not limits.min <= entry <= limits.max else entry


def _is_same_conversion(source: ElementType | None, target: ElementType) -> bool:
    """Return whether ONNX and OpenVINO define the same conversion between two element types.

    OpenVINO converts to half precision via float32, and so rounds wider types twice.
    """
    if source is None or source is target:
        return source is target
    if target in _HALVES:
        return source in _WITHIN_FLOAT32
    return source in _TYPES and target in _TYPES


def _adapt_layer(writer: NodeWriter, operands: dict[str, Any]) -> ir.Value:
    source, target = writer.find_type(operands["data"]), operands["type"]
    if target.onnx_number is None or not _is_same_conversion(source, target):
        raise ModelError(f"Convert from {source} to {target} is not the same in ONNX")
    return writer.cast(operands["data"], target)


def _can_convert_node(reader: Reader, operands: dict[str, Any]) -> bool:
    return _is_same_conversion(reader.find_type(operands["data"]), operands["type"])


def _find_by_number(value: Any) -> ElementType | None:
    return from_onnx(as_integer(value))


def _find_by_name(value: Any) -> ElementType | None:
    return next((kind for kind in ELEMENT_TYPES.values() if kind.onnx == value), None)


_TO: Final = {
    "type": Attribute(partial(as_type, find=_find_by_number), name="to", write=lambda kind: kind.onnx_number)
}
_TO_NAME: Final = {
    "type": Attribute(partial(as_type, find=_find_by_name), name="to", write=lambda kind: kind.onnx)
}
_DESTINATION: Final = {"type": Attribute(as_type, name="destination_type", write=lambda kind: kind.openvino)}
_SATURATE: Final = {"saturate": Attribute(as_flag, default=True)}
_EXACT: Final = {"saturate": True, "round_mode": "up"}
CONVERT: Final = Operator(
    onnx=(
        Spelling("Cast", "data", _TO | _SATURATE | {"round_mode": Attribute(as_name, "up")}, since=24),
        Spelling("Cast", "data", _TO | _SATURATE, since=19, fixed={"round_mode": "up"}),
        Spelling("Cast", "data", _TO, since=6, fixed=_EXACT),
        Spelling("Cast", "data", _TO_NAME, fixed=_EXACT),
    ),
    openvino=(Spelling("Convert", "data", _DESTINATION, fixed=_EXACT),),
    infer=_infer,
    converts=True,
    adapt_layer=_adapt_layer,
    can_convert_node=_can_convert_node,
)

CONVERT_LIKE: Final = Operator(
    onnx=(Spelling("CastLike", "data like", since=15),),
    openvino=(Spelling("ConvertLike", "data like"),),
    infer=_infer,
)
