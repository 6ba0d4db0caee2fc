"""Arithmetic and comparison of sizes, which are tracked even if they are only partly known.

It is the same for floating-point numbers, but these are tracked only if all are known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from splitops.errors import ModelError
from splitops.models.abstract_values import AbstractTensor, Entry, Value
from splitops.models.ops.integer_math import ARITHMETIC, apply, equal
from splitops.models.ops.operator import (
    Attribute,
    Operands,
    Operator,
    Role,
    Spelling,
    Unknown,
    as_flag,
    as_word,
    elements_of,
    infer_result,
    shape_of,
)
from splitops.models.ops.shapes import broadcast
from splitops.models.ops.writing import BOOL, INT64, NUMBERS, SIZES, NodeWriter, Reader, require
from splitops.spec.elements.types import ELEMENT_TYPES, ElementType

if TYPE_CHECKING:
    import onnx_ir as ir

    from splitops.models.formats.openvino import Layer

BROADCAST: Final = {"broadcast": Attribute(as_word, "numpy", "auto_broadcast")}
"""The attribute of layers. ONNX since opset 7 has one way."""
_BYTES: Final = frozenset({ELEMENT_TYPES["int8"], ELEMENT_TYPES["uint8"]})


def infer_broadcast(operands: Operands, *names: str, kind: ElementType | None = None) -> AbstractTensor:
    """Infer a result of some inputs, or of ``values``, that are broadcast as NumPy does."""
    if operands.get("broadcast", "numpy") not in ("numpy", "none"):  # of equal shapes, all are the same
        raise Unknown("not broadcast as NumPy does")
    tensors = [operands.tensor(name) for name in names] or operands.tensors()
    types = {tensor.type for tensor in tensors} - {None}
    if kind is None and len(types) == 1:
        kind = types.pop()
    return AbstractTensor(kind, reduce(broadcast, map(shape_of, tensors)))


def _infer(
    operation: Callable[[Entry, Entry], Entry], kind: ElementType | None, operands: Operands
) -> AbstractTensor:
    found, tensors = infer_broadcast(operands, kind=kind), operands.tensors()
    if found.type is None:
        return found

    def compute() -> Value:
        if kind is None and any(tensor.type is not INT64 for tensor in tensors):
            raise Unknown("only 64-bit integers are partly tracked")
        return reduce(partial(apply, operation), map(elements_of, tensors))

    return infer_result(tensors[0], found.shape, compute, found.type)


def divide(operands: Operands, left: Any, right: Any) -> Any:
    """Divide numbers: integers towards zero, or down if ``floors`` is set."""
    if left.dtype.kind == "f":
        return left / right
    if (right == 0).any():
        raise ZeroDivisionError
    down = left // right
    if operands["floors"]:
        return down
    return down + ((left % right != 0) & ((left < 0) != (right < 0))).astype(down.dtype)


def _adapt_layer(
    operator: str, writer: NodeWriter, layer: Layer, operands: dict[str, Any]
) -> dict[str, Any] | ir.Value:
    sources, stated = operands["values"], layer.get_attribute("auto_broadcast")
    require(stated in (None, "numpy", "none"), f"{layer} has auto_broadcast = {stated!r}")
    types = {writer.type_of(source) for source in sources}
    if not types <= NUMBERS and operator != "Equal":
        names = ", ".join(sorted(map(str, types)))
        if types <= _BYTES and operator in ("Add", "Sub", "Mul"):
            raise ModelError(
                f"{layer} of {names} has two results on overflow: OpenVINO saturates when it runs and can "
                "wrap around when it folds constants. ONNX wraps around. Convert the inputs to int32"
            )
        raise ModelError(f"{layer} of {names} is not said to be the same in ONNX")
    if operands.pop("floors", False) and types <= SIZES:
        return _divide_down(writer, sources)
    return operands


def _divide_down(writer: NodeWriter, sources: list[ir.Value]) -> ir.Value:
    """Divide integers: one less than towards zero where the two kinds of remainder differ."""
    kind = writer.type_of(sources[0])
    assert kind is not None
    same = writer.op("Equal", [writer.op("Mod", sources), writer.op("Mod", sources, {"fmod": 1})])
    return writer.op("Sub", [writer.op("Div", sources), writer.cast(writer.op("Not", [same]), kind)])


def add_broadcast(reader: Reader, operands: dict[str, Any]) -> dict[str, Any]:
    """Add the way in which nodes broadcast, which layers set."""
    return {**operands, "broadcast": "numpy"}


def _accepts_node(reader: Reader, node: ir.Node, operands: dict[str, Any]) -> bool:
    types = {None if value is None else reader.type_of(value) for value in node.inputs}
    return len(node.inputs) == 2 and len(types) == 1 and types <= NUMBERS


def _operator(onnx: str, openvino: str, fold: Callable[..., Any]) -> Operator:
    truth = BOOL if onnx == "Equal" else None
    towards_zero: Mapping[str, Any] = {"floors": False} if onnx == "Div" else {}
    legacy = {} if onnx in ("Min", "Max") else {"broadcast": 0}
    floors = {"floors": Attribute(as_flag, default=True, name="m_pythondiv")} if onnx == "Div" else {}
    return Operator(
        onnx=(
            Spelling(onnx, "values*", since=7, fixed=towards_zero),
            Spelling(onnx, "values*", fixed=towards_zero, demands=legacy),
        ),
        openvino=(Spelling(openvino, "values*", BROADCAST | floors),),
        role=Role.SUM if onnx == "Add" else None,
        infer=partial(_infer, equal if truth else ARITHMETIC[onnx], truth),
        fold=fold,
        result=truth,
        converts=True,
        adapt_layer=partial(_adapt_layer, onnx),
        adapt_node=add_broadcast,
        accepts_node=_accepts_node,
    )


def _reduce(operation: Callable[..., Any]) -> Callable[..., Any]:
    def fold(operands: Operands, *arrays: Any) -> Any:
        if arrays[0].dtype.kind == "f" and not operands.of_layer:
            raise Unknown("runtimes fuse what computes floating-point numbers, and round in other ways")
        return reduce(operation, arrays)

    return fold


ARITHMETIC_OF_SIZES: Final = (
    _operator("Add", "Add", _reduce(np.add)),
    _operator("Sub", "Subtract", _reduce(np.subtract)),
    _operator("Mul", "Multiply", _reduce(np.multiply)),
    _operator("Div", "Divide", divide),
    _operator("Min", "Minimum", _reduce(np.minimum)),
    _operator("Max", "Maximum", _reduce(np.maximum)),
    _operator("Equal", "Equal", _reduce(np.equal)),
)
