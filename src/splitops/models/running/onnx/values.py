"""The values that a caller gives to a model, held against what the model declares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import GraphProto, TypeProto, ValueInfoProto

from splitops.calls.node import read_only
from splitops.elements.types import element_type_of, from_onnx
from splitops.errors import ModelError, Where, shown

__all__ = ["check_inputs"]


def check_inputs(graph: GraphProto, inputs: Mapping[str, Any], where: Where) -> dict[str, Any]:
    """Return the inputs as the evaluator takes them.

    Nothing is converted from one element type to another, and arrays come back as read-only views: what is
    computed as a view of them is read-only too. An input with an initializer of its name may be
    left out, and an optional one is absent then.

    Args:
        graph: the main graph.
        inputs: arrays (or what NumPy makes arrays of) and, for sequences, lists of them.
        where: the place that errors name; its ``model``.

    Raises:
        ModelError: an input is unknown, missing, or has another element type, rank or size than declared; or
            two inputs give one symbolic dimension different sizes.
    """
    if not isinstance(inputs, Mapping):
        raise ModelError(f"inputs are a {type(inputs).__name__}, but they must be arrays by name", where)
    declared = {value.name: value for value in graph.input}
    defaults = {tensor.name for tensor in graph.initializer}
    for name in inputs:
        if name not in declared:
            known = ", ".join(map(shown, list(declared)[:8])) or "no inputs"
            raise ModelError(f"the model has no input {shown(str(name))}; it has {known}", where)
    symbols: dict[str, tuple[int, str]] = {}
    checked: dict[str, Any] = {}
    for name, value in declared.items():
        place = replace(where, input=name)
        if name in inputs:
            checked[name] = _Check(value, place, symbols).value(inputs[name], value.type)
        elif value.type.HasField("optional_type"):
            checked[name] = None
        elif name not in defaults:
            raise ModelError(f"input {shown(name)} is missing", place)
    return checked


class _Check:
    """One input: its name, for the errors, and the symbolic dimensions known so far."""

    def __init__(self, declared: ValueInfoProto, where: Where, symbols: dict[str, tuple[int, str]]) -> None:
        self.declared = declared
        self.name = declared.name
        self.where = where
        self.symbols = symbols

    def value(self, value: Any, declared: TypeProto) -> Any:
        match declared.WhichOneof("value"):
            case "tensor_type":
                return self.tensor(value, declared.tensor_type)
            case "sequence_type":
                if not isinstance(value, list | tuple):
                    raise self.error(f"is a sequence, but {type(value).__name__} is given")
                # A symbol may have another size in each element.
                elements = [_Check(self.declared, self.where, {}) for _ in value]
                element_type = declared.sequence_type.elem_type
                return [check.value(item, element_type) for check, item in zip(elements, value, strict=True)]
            case "optional_type":
                return None if value is None else self.value(value, declared.optional_type.elem_type)
            case _:
                return value

    def tensor(self, value: Any, declared: TypeProto.Tensor) -> npt.NDArray[Any]:
        try:
            array = np.asarray(value)
        except (ValueError, TypeError) as error:
            raise self.error(f"is no array: {str(error)[:200]}") from error
        if np.ma.is_masked(value):
            raise self.error("is a masked array, whose mask a model would lose")
        found = element_type_of(array.dtype)
        expected = from_onnx(declared.elem_type)
        if expected is not None and found is not expected:
            raise self.error(f"has element type {found or array.dtype}, but the model declares {expected}")
        if declared.HasField("shape"):
            self.shape(array.shape, declared)
        if array.dtype == object and not all(isinstance(text, str | bytes) for text in array.flat):
            raise self.error("has objects in it that are no strings")
        try:
            return read_only(_native(array))
        except UnicodeDecodeError as error:
            raise self.error("has a string that is not UTF-8") from error

    def shape(self, shape: tuple[int, ...], declared: TypeProto.Tensor) -> None:
        dims = declared.shape.dim
        if len(shape) != len(dims):
            raise self.error(f"has shape {shape}, but the model declares rank {len(dims)}")
        for axis, (size, dim) in enumerate(zip(shape, dims, strict=True)):
            if dim.HasField("dim_value") and dim.dim_value != size:
                expected = dim.dim_value
                raise self.error(f"has shape {shape}, but the model declares size {expected} on axis {axis}")
            if dim.dim_param:
                known, source = self.symbols.setdefault(dim.dim_param, (size, self.name))
                if known != size:
                    raise self.error(
                        f"has size {size} on axis {axis}, but {shown(dim.dim_param)} "
                        f"is {known} in input {shown(source)}"
                    )

    def error(self, problem: str) -> ModelError:
        return ModelError(f"input {shown(self.name)} {problem}", self.where)


def _native(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return strings as objects and numbers in the machine's byte order, as onnx's operators expect them."""
    if array.dtype.kind == "S":
        return np.char.decode(array, "utf-8").astype(object)
    if array.dtype.kind in "UT":
        return array.astype(object)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
