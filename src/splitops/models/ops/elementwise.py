"""Elementwise operators, and other operators whose output has the shape of the data.

Neither dialect specifies the result of Maximum, Minimum, ReLU and Clamp for NaN, and runtimes differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import numpy as np

from splitops.models.abstract_values import AbstractTensor, Entry, Value
from splitops.models.ops.arithmetic import BROADCAST, add_broadcast, infer_broadcast
from splitops.models.ops.integer_math import apply, compute_remainder
from splitops.models.ops.operator import (
    Attribute,
    Fold,
    Operands,
    Operator,
    Role,
    Spelling,
    Unknown,
    as_flag,
    as_integer,
    as_name,
    infer_result,
)
from splitops.models.ops.shapes import broadcast
from splitops.models.ops.writing import BOOL, FLOATS, INT64, INTEGERS, LOGICAL, NUMBERS
from splitops.spec.elements.types import ElementType

_MAX_EXPONENT: Final = 64
_PAIR: Final = "data other"
COMPARED: Final = INTEGERS | FLOATS


def infer_same(operands: Operands, kind: ElementType | None = None) -> AbstractTensor:
    """Infer a result with the shape of the data. Its element type is ``kind``, or that of the data."""
    data = operands.get_tensor()
    return AbstractTensor(kind or data.type, data.shape)


def _make_operator(
    openvino: str,
    onnx: str | None = None,
    fold: Fold | None = None,
    *,
    inputs: str = "data",
    since: int = 7,
    types: frozenset[ElementType] = FLOATS,
    attributes: Mapping[str, tuple[Attribute, Attribute]] | None = None,
    versions: tuple[int, ...] = (1,),
    result: ElementType | None = None,
    identity_types: frozenset[ElementType] = frozenset(),
) -> Operator:
    """Build an operator with one or two inputs that means the same in both dialects.

    ``attributes`` maps operands to the attributes of the layer and the node.
    """
    pairs, is_binary = (attributes or {}).items(), inputs == _PAIR
    layer = BROADCAST if is_binary else {name: pair[0] for name, pair in pairs}
    return Operator(
        onnx=(Spelling(onnx or openvino, inputs, {name: pair[1] for name, pair in pairs}, since=since),),
        openvino=(Spelling(openvino, inputs, layer, versions=versions),),
        infer=partial(infer_pair if is_binary else infer_same, kind=result),
        fold=fold,
        result=result,
        types=types,
        converts=True,
        adapt_node=add_broadcast if is_binary else None,
        identity_types=identity_types,
    )


def infer_pair(operands: Operands, kind: ElementType | None = None) -> AbstractTensor:
    """Infer the result of two inputs that are broadcast as in NumPy."""
    return infer_broadcast(operands, "data", "other", kind=kind)


def _apply(operation: Callable[..., Any]) -> Fold:
    return lambda operands, *arrays: operation(*arrays)


def _round_once(operation: Callable[[Any], Any], *, exact: bool = False) -> Fold:
    """Return a function that folds ``operation`` in float64 and rounds the result once.

    ONNX runtimes round differently. For nodes, ``exact`` operations are therefore folded in the type of the
    data, and others only if the results are integers.
    """

    def fold(operands: Operands, data: Any) -> Any:
        if not operands.of_layer and exact:
            return operation(data)
        result = np.asarray(operation(data.astype(np.float64)))
        if not operands.of_layer and not (np.isfinite(result) & (result == np.floor(result))).all():
            raise Unknown("runtimes round in different ways")
        if data.dtype.kind != "f" and (result != np.floor(result)).any():
            raise ValueError("some layers round it, and some cut it off")
        return result.astype(data.dtype)

    return fold


def _fold_power(operands: Operands, data: Any, exponent: Any) -> Any:
    if data.dtype.kind == "f" and not operands.of_layer:
        return np.power(data, exponent).astype(data.dtype)
    if data.dtype.kind == "f":
        return np.power(data.astype(np.float64), exponent.astype(np.float64)).astype(data.dtype)
    if exponent.dtype.kind == "f" or ((exponent < 0) | (exponent > _MAX_EXPONENT)).any():
        raise ValueError("rounded in another way, or too large")
    return np.asarray(np.power(data.astype(object), exponent.astype(object))).astype(data.dtype)


def _fold_round(operands: Operands, data: Any) -> Any:
    if operands.get("mode", "half_to_even") == "half_to_even" or data.dtype.kind != "f":
        return np.round(data)
    wide = data.astype(np.float64)
    return np.copysign(np.floor(np.abs(wide) + 0.5), wide).astype(data.dtype)


def _fold_clip(operands: Operands, data: Any, *_: Any) -> Any:
    low, high = operands.get_array("min", -math.inf), operands.get_array("max", math.inf)
    if data.dtype.kind in "iu":
        low, high = _to_integer_bounds(low.item(), high.item(), np.iinfo(data.dtype))
    if np.any(low > high):
        raise Unknown("no number is between them")
    return np.minimum(np.maximum(data, low), high).astype(data.dtype)


def _to_integer_bounds(low: float, high: float, limits: np.iinfo[Any]) -> tuple[Any, Any]:
    """Convert bounds that may be fractions or infinite to exact integer bounds within ``limits``."""
    if low > limits.max or high < limits.min:
        raise Unknown("no number of the type is between them")
    low = limits.min if low <= limits.min else math.ceil(low)
    high = limits.max if high >= limits.max else math.floor(high)
    return limits.dtype.type(low), limits.dtype.type(high)


def _fold_modulo(operands: Operands, left: Any, right: Any) -> Any:
    if left.dtype.kind in "iu" and (right == 0).any():
        raise ZeroDivisionError
    return np.fmod(left, right) if operands["fmod"] else np.mod(left, right)


def _infer_modulo(operands: Operands) -> AbstractTensor:
    result = infer_pair(operands)

    def compute() -> Value:
        if result.type is not INT64:
            raise Unknown("only 64-bit integers are partly tracked")
        return apply(compute_remainder, operands.get_elements(), operands.get_elements("other"))

    return infer_result(operands.get_tensor(), result.shape, compute, result.type)


_AXIS: Final = {"axis": (Attribute(as_integer, 1), Attribute(as_integer, -1))}
_ALPHA: Final = {"alpha": (Attribute(float), Attribute(float, 1.0))}
_APPROXIMATE: Final = {
    "approximate": (
        Attribute({"erf": "none", "tanh": "tanh"}, "none", "approximation_mode"),
        Attribute({"none": "none", "tanh": "tanh"}, "none"),
    )
}
_erf: Final = np.vectorize(math.erf, otypes=[np.float64])

UNARY: Final = (
    _make_operator("Abs", fold=_apply(np.abs), types=NUMBERS),
    _make_operator("Acos", fold=_round_once(np.arccos)),
    _make_operator("Acosh", fold=_round_once(np.arccosh), since=9, versions=(4,)),
    _make_operator("Asin", fold=_round_once(np.arcsin)),
    _make_operator("Asinh", fold=_round_once(np.arcsinh), since=9, versions=(4,)),
    _make_operator("Atan", fold=_round_once(np.arctan)),
    _make_operator("Atanh", fold=_round_once(np.arctanh), since=9, versions=(4,)),
    _make_operator(
        "Ceiling", "Ceil", _round_once(np.ceil, exact=True), types=FLOATS | INTEGERS, identity_types=INTEGERS
    ),
    _make_operator("Cos", fold=_round_once(np.cos)),
    _make_operator("Cosh", fold=_round_once(np.cosh), since=9),
    _make_operator("Elu", attributes=_ALPHA),
    _make_operator("Erf", fold=_round_once(_erf), since=9),
    _make_operator("Exp", fold=_round_once(np.exp)),
    _make_operator(
        "Floor", fold=_round_once(np.floor, exact=True), types=FLOATS | INTEGERS, identity_types=INTEGERS
    ),
    _make_operator("Gelu", since=20, attributes=_APPROXIMATE, versions=(2, 7)),
    _make_operator("HSwish", "HardSwish", since=14, versions=(4,)),
    _make_operator("IsNaN", fold=_apply(np.isnan), since=9, versions=(10,), result=BOOL),
    _make_operator("Log", fold=_round_once(np.log)),
    _make_operator("LogicalNot", "Not", _apply(np.logical_not), since=1, types=LOGICAL),
    _make_operator("Mish", since=18, versions=(4,)),
    _make_operator("Negative", "Neg", _apply(np.negative), types=NUMBERS),
    _make_operator("ReLU", "Relu", lambda operands, data: np.maximum(data, np.zeros((), data.dtype))),
    _make_operator("Sigmoid", fold=_round_once(lambda data: 1 / (1 + np.exp(-data)))),
    _make_operator("Sign", fold=_apply(np.sign), since=9, types=NUMBERS),
    _make_operator("Sin", fold=_round_once(np.sin)),
    _make_operator("Sinh", fold=_round_once(np.sinh), since=9),
    _make_operator("SoftPlus", "Softplus", versions=(4,)),
    _make_operator("SoftSign", "Softsign", versions=(9,)),
    _make_operator("Sqrt", fold=_round_once(np.sqrt, exact=True)),
    _make_operator("Tan", fold=_round_once(np.tan)),
    _make_operator("Tanh", fold=_round_once(np.tanh)),
    _make_operator("SoftMax", "Softmax", since=13, attributes=_AXIS, versions=(1, 8)),
    _make_operator("LogSoftmax", since=13, attributes=_AXIS, versions=(5,)),
    _make_operator("BitwiseNot", since=18, types=INTEGERS, versions=(13,), fold=_apply(np.invert)),
)

_binary: Final = partial(_make_operator, inputs=_PAIR)
BINARY: Final = (
    _binary("Power", "Pow", _fold_power),
    _binary("Greater", fold=_apply(np.greater), types=COMPARED, result=BOOL),
    _binary(
        "GreaterEqual", "GreaterOrEqual", _apply(np.greater_equal), since=12, types=COMPARED, result=BOOL
    ),
    _binary("Less", fold=_apply(np.less), types=COMPARED, result=BOOL),
    _binary("LessEqual", "LessOrEqual", _apply(np.less_equal), since=12, types=COMPARED, result=BOOL),
    _binary("LogicalAnd", "And", _apply(np.logical_and), types=LOGICAL),
    _binary("LogicalOr", "Or", _apply(np.logical_or), types=LOGICAL),
    _binary("LogicalXor", "Xor", _apply(np.logical_xor), types=LOGICAL, versions=(2,)),
    _binary("BitwiseAnd", fold=_apply(np.bitwise_and), since=18, types=INTEGERS, versions=(13,)),
    _binary("BitwiseOr", fold=_apply(np.bitwise_or), since=18, types=INTEGERS, versions=(13,)),
    _binary("BitwiseXor", fold=_apply(np.bitwise_xor), since=18, types=INTEGERS, versions=(13,)),
)


def _make_layer_pair(name: str, fold: Fold | None = None, *, result: ElementType | None = None) -> Operator:
    """Build a binary operator that only OpenVINO has."""
    return Operator(
        openvino=(Spelling(name, _PAIR, BROADCAST),), infer=partial(infer_pair, kind=result), fold=fold
    )


def _infer_select(operands: Operands) -> AbstractTensor:
    result = infer_broadcast(operands, "condition", "data", "other", kind=operands.get_type())

    def choose() -> Value:
        condition, yes, no = (
            operands.get_elements(name).astype(object) for name in ("condition", "data", "other")
        )
        chosen = np.empty(np.broadcast_shapes(condition.shape, yes.shape, no.shape), object)
        chosen[...] = np.frompyfunc(_choose, 3, 1)(condition, yes, no)
        return chosen

    return infer_result(operands.get_tensor(), result.shape, choose)


def _choose(condition: Entry, yes: Entry, no: Entry) -> Entry:
    if condition is None:
        return yes if yes == no else None
    return yes if condition else no


def _infer_prelu(operands: Operands) -> AbstractTensor:
    shape = operands.get_shape()
    if len(operands.get_shape("slope")) == 1 and operands.of_layer:
        return AbstractTensor(operands.get_type(), shape)  # one slope per channel
    return AbstractTensor(operands.get_type(), broadcast(shape, operands.get_shape("slope")))


_LIMITS: Final = {"min": Attribute(float), "max": Attribute(float)}

OTHERS: Final = (
    Operator(
        onnx=(Spelling("Mod", "data other", {"fmod": Attribute(as_flag, default=False)}, since=10),),
        openvino=(
            Spelling("Mod", "data other", BROADCAST, fixed={"fmod": True}),
            Spelling("FloorMod", "data other", BROADCAST, fixed={"fmod": False}),
        ),
        infer=_infer_modulo,
        fold=_fold_modulo,
    ),
    Operator(
        onnx=(Spelling("Where", "condition data other", since=9),),
        openvino=(Spelling("Select", "condition data other", BROADCAST),),
        infer=_infer_select,
    ),
    Operator(
        onnx=(
            Spelling("Clip", "data min? max?", since=11),
            Spelling("Clip", attributes={"min": Attribute(float, None), "max": Attribute(float, None)}),
        ),
        openvino=(Spelling("Clamp", "data", _LIMITS),),
        infer=infer_same,
        fold=_fold_clip,
    ),
    Operator(
        onnx=(Spelling("Round", since=11),),
        openvino=(Spelling("Round", "data", {"mode": Attribute(as_name, "half_to_even")}),),
        infer=infer_same,
        fold=_fold_round,
    ),
    Operator(
        onnx=(Spelling("Identity"),),
        openvino=(Spelling("Identity"),),
        role=Role.IDENTITY,
        infer=lambda operands: operands.get_tensor(),
    ),
    Operator(
        onnx=(Spelling("PRelu", "data slope", since=9),),
        openvino=(Spelling("PReLU", "data slope"),),
        infer=_infer_prelu,
    ),
    _make_layer_pair("NotEqual", _apply(np.not_equal), result=BOOL),
    _make_layer_pair("SquaredDifference"),
    _make_layer_pair("BitwiseLeftShift", _apply(np.left_shift)),
    _make_layer_pair("BitwiseRightShift", _apply(np.right_shift)),
    Operator(
        openvino=(Spelling("FakeQuantize", "data low high out_low out_high", BROADCAST),),
        infer=lambda operands: infer_broadcast(operands, "data", "low", "high"),
    ),
)


def _make_unchanged(
    name: str, onnx: str | None = None, openvino: str | None = None, *, since: int = 1
) -> Operator:
    """Build an operator, given its inputs in ONNX and OpenVINO, that keeps the type and shape of its data."""
    return Operator(
        onnx=() if onnx is None else (Spelling(name, onnx, since=since),),
        openvino=() if openvino is None else (Spelling(name, openvino),),
        infer=infer_same,
    )


UNCHANGED: Final = (
    Operator(
        openvino=(
            Spelling("BatchNormInference", "data scale shift mean variance", since=5),
            Spelling("BatchNormInference", "scale shift data mean variance"),
        ),
        infer=infer_same,
    ),
    _make_unchanged("GRN", openvino="data"),
    _make_unchanged("GroupNormalization", "data scale shift", "data scale shift", since=18),
    _make_unchanged("HSigmoid", openvino="data"),
    _make_unchanged("HardSigmoid", openvino="data alpha beta"),
    _make_unchanged("LRN", openvino="data axes"),
    _make_unchanged("MVN", openvino="data axes?"),
    _make_unchanged("MeanVarianceNormalization", "data", since=9),
    _make_unchanged("NormalizeL2", openvino="data axes"),
    _make_unchanged("ReverseSequence", openvino="data lengths"),
    _make_unchanged("Roll", openvino="data shift axes"),
    _make_unchanged("Selu", openvino="data alpha gamma"),
    _make_unchanged("ShuffleChannels", openvino="data"),
    _make_unchanged("Swish", openvino="data beta?"),
    Operator(openvino=(Spelling("IsFinite"), Spelling("IsInf")), infer=partial(infer_same, kind=BOOL)),
)

ELEMENTWISE: Final = (*UNARY, *BINARY, *OTHERS, *UNCHANGED)
