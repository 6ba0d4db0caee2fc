"""Arithmetic and comparison of sizes, which are tracked even if they are only partly known.

Except in comparisons, elements of other types than int64 are tracked only if all are known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from splitops.errors import ModelError
from splitops.models.abstract_values import AbstractTensor, Entry, Value
from splitops.models.ops.integer_math import add, apply, choose, compare_equal, divide, multiply, subtract
from splitops.models.ops.operator import (
    Attribute,
    Operands,
    Operator,
    Role,
    Spelling,
    Unknown,
    as_flag,
    as_name,
    get_elements,
    get_shape,
    infer_result,
    reject_rounding,
)
from splitops.models.ops.shapes import broadcast
from splitops.models.ops.writing import BOOL, INT64, NUMBERS, SIZES, NodeWriter, Reader, require
from splitops.spec.elements.types import ELEMENT_TYPES, ElementType

if TYPE_CHECKING:
    import onnx_ir as ir

BROADCAST: Final = {"broadcast": Attribute(as_name, "numpy", "auto_broadcast")}
"""How a layer broadcasts its inputs. Since opset 7, ONNX always broadcasts as NumPy does."""
_BYTES: Final = frozenset({ELEMENT_TYPES["int8"], ELEMENT_TYPES["uint8"]})


def infer_broadcast(operands: Operands, *names: str, kind: ElementType | None = None) -> AbstractTensor:
    """Infer the type and shape of a result whose inputs are broadcast as in NumPy.

    ``names`` are the operands that are inputs, by default ``values``. ``kind`` replaces their element type.
    """
    if operands.get("broadcast", "numpy") not in ("numpy", "none"):  # "none" requires equal shapes
        raise Unknown("not broadcast as NumPy does")
    tensors = [operands.get_tensor(name) for name in names] or operands.get_tensors()
    types = {tensor.type for tensor in tensors} - {None}
    if kind is None and len(types) == 1:
        kind = types.pop()
    return AbstractTensor(kind, reduce(broadcast, map(get_shape, tensors)))


def _infer(
    operation: Callable[[Entry, Entry], Entry], kind: ElementType | None, operands: Operands
) -> AbstractTensor:
    result, tensors = infer_broadcast(operands, kind=kind), operands.get_tensors()
    if result.type is None:
        return result

    def compute() -> Value:
        if kind is None and any(tensor.type is not INT64 for tensor in tensors):
            raise Unknown("only 64-bit integers are partly tracked")
        return reduce(partial(apply, operation), map(get_elements, tensors))

    return infer_result(tensors[0], result.shape, compute, result.type)


def _fold_division(operands: Operands, left: Any, right: Any) -> Any:
    """Divide two arrays. Integer quotients are rounded towards zero, or down with the operand ``floors``."""
    if left.dtype.kind == "f":
        return left / right
    if (right == 0).any():
        raise ZeroDivisionError
    down = left // right
    if operands["floors"]:
        return down
    return down + ((left % right != 0) & ((left < 0) != (right < 0))).astype(down.dtype)


def _adapt_layer(operator: str, writer: NodeWriter, operands: dict[str, Any]) -> dict[str, Any] | ir.Value:
    sources, mode = operands["values"], writer.layer.get_attribute("auto_broadcast")
    same = mode in (None, "numpy", "none")
    require(writer, same, f"has auto_broadcast = {mode!r}, which ONNX cannot express")
    types = {writer.find_type(source) for source in sources}
    if not types <= NUMBERS and operator != "Equal":
        names = ", ".join(sorted(map(str, types)))
        if types <= _BYTES and operator in ("Add", "Sub", "Mul"):
            raise ModelError(
                f"{writer.layer} of {names} has two results on overflow: OpenVINO saturates when it runs and "
                "can wrap around when it folds constants. ONNX wraps around. Convert the inputs to int32"
            )
        raise ModelError(f"{writer.layer} of {names} is not specified to be the same in ONNX")
    if operands.pop("floors", False) and types <= SIZES:
        return _divide_down(writer, sources)
    return operands


def _divide_down(writer: NodeWriter, sources: list[ir.Value]) -> ir.Value:
    """Write a division of integers that rounds down: subtract 1 if Python's remainder differs from C's."""
    kind = writer.find_type(sources[0])
    assert kind is not None
    same = writer.add("Equal", [writer.add("Mod", sources), writer.add("Mod", sources, {"fmod": 1})])
    return writer.add("Sub", [writer.add("Div", sources), writer.cast(writer.add("Not", [same]), kind)])


def add_broadcast(reader: Reader, operands: dict[str, Any]) -> dict[str, Any]:
    """Return the operands of a node with the operand ``broadcast`` added, which only layers set."""
    return {**operands, "broadcast": "numpy"}


def _can_convert_node(reader: Reader, operands: dict[str, Any]) -> bool:
    values = operands["values"]
    types = {None if value is None else reader.find_type(value) for value in values}
    return len(values) == 2 and len(types) == 1 and types <= NUMBERS


def _make_operator(
    onnx: str,
    openvino: str,
    operation: Callable[[Entry, Entry], Entry],
    fold: Callable[..., Any],
    result: ElementType | None = None,
) -> Operator:
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
        infer=partial(_infer, operation, result),
        fold=fold,
        result=result,
        converts=True,
        adapt_layer=partial(_adapt_layer, onnx),
        adapt_node=add_broadcast,
        can_convert_node=_can_convert_node,
    )


def _reduce(operation: Callable[..., Any]) -> Callable[..., Any]:
    def fold(operands: Operands, *arrays: Any) -> Any:
        if not operands.of_layer:
            reject_rounding(*arrays)
        return reduce(operation, arrays)

    return fold


ARITHMETIC_OF_SIZES: Final = (
    _make_operator("Add", "Add", add, _reduce(np.add)),
    _make_operator("Sub", "Subtract", subtract, _reduce(np.subtract)),
    _make_operator("Mul", "Multiply", multiply, _reduce(np.multiply)),
    _make_operator("Div", "Divide", divide, _fold_division),
    _make_operator("Min", "Minimum", partial(choose, min), _reduce(np.minimum)),
    _make_operator("Max", "Maximum", partial(choose, max), _reduce(np.maximum)),
    _make_operator("Equal", "Equal", compare_equal, _reduce(np.equal), BOOL),
)
