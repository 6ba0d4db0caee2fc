"""The values that a caller gives to a model, held against what the model declares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from onnx import GraphProto

from splitops.calls.node import read_only
from splitops.errors import ModelError, Where, shown
from splitops.models.running.declared import Declared, onnx_inputs
from splitops.spec.elements.types import element_type_of
from splitops.spec.sizes.dims import Shape

_Symbols = dict[str, tuple[int, str]]
"""The size of each symbolic dimension that is known so far, and the input that told."""


_PLAIN: Final = "biufc"
"""Kinds of dtypes whose arrays are taken as they are."""
_MAX_PROVED: Final = 256
"""How many sets of types and shapes a model remembers as its own."""


class Inputs:
    """The inputs of a model, and which of them may be left out.

    Args:
        graph: the main graph.
        ir_version: that of the model.

    Attributes:
        names: their names, in order.
        defaults: those that have a default.
        constants: those whose default a runtime takes for a constant: before IR version 4, every initializer
            had to be an input.
    """

    def __init__(self, graph: GraphProto, ir_version: int = 10) -> None:
        self._declared = {declared.name: declared for declared in onnx_inputs(graph)}
        self.defaults = frozenset(tensor.name for tensor in graph.initializer) & self._declared.keys()
        self.constants = self.defaults if ir_version < 4 else frozenset()
        self.names = tuple(self._declared)
        self._proved: set[tuple[object, ...]] = set()

    def check(self, inputs: Mapping[str, Any], where: Where) -> dict[str, Any]:
        """Return the values as an evaluator takes them.

        Nothing is converted from one element type to another, and arrays come back as read-only views: what
        is computed as a view of them is read-only too. An input with an initializer of its name may be left
        out, and an optional one is absent then.

        Args:
            inputs: arrays (or what NumPy makes arrays of) and, for sequences, lists of them.
            where: the place that errors name; its ``model``.

        Raises:
            ModelError: an input is unknown, missing, or has another element type, rank or size than declared;
                or two inputs give one symbolic dimension different sizes.
        """
        key = self._key(inputs)
        if key in self._proved:
            return {name: read_only(inputs[name]) for name in self.names}
        checked = self._checked(inputs, where)
        if key is not None and len(self._proved) < _MAX_PROVED:
            self._proved.add(key)
        return checked

    def _key(self, inputs: Mapping[str, Any]) -> tuple[object, ...] | None:
        """Return dtype and shape of every input; None where the proof is of more than these."""
        if type(inputs) is not dict or inputs.keys() != self._declared.keys():
            return None
        key: list[object] = []
        for name in self.names:
            value = inputs[name]
            if type(value) is not np.ndarray or value.dtype.kind not in _PLAIN or not value.dtype.isnative:
                return None
            key += value.dtype, value.shape
        return tuple(key)

    def _checked(self, inputs: Mapping[str, Any], where: Where) -> dict[str, Any]:
        if not isinstance(inputs, Mapping):
            raise ModelError(f"inputs are a {type(inputs).__name__}, but they must be arrays by name", where)
        for name in inputs:
            if name not in self._declared:
                known = ", ".join(map(shown, self.names[:8])) or "no inputs"
                raise ModelError(f"the model has no input {shown(str(name))}; it has {known}", where)
        symbols: _Symbols = {}
        checked: dict[str, Any] = {}
        for name, declared in self._declared.items():
            if name in inputs:
                checked[name] = _Check(name, where, symbols).value(inputs[name], declared)
            elif declared.optional:
                checked[name] = None
            elif declared.required:
                raise ModelError(f"input {shown(name)} is missing", replace(where, input=name))
        return checked


class _Check:
    """One input: its name, for the errors, and the symbolic dimensions known so far."""

    def __init__(self, name: str, where: Where, symbols: _Symbols) -> None:
        self.name = name
        self.where = where
        self.symbols = symbols

    def value(self, value: Any, declared: Declared) -> Any:
        if declared.kind == "other" or (value is None and declared.optional):
            return value
        if declared.kind != "sequence":
            return self.tensor(value, declared)
        if not isinstance(value, list | tuple):
            raise self.error(f"is a sequence, but {type(value).__name__} is given")
        # A symbol may have another size in each element.
        return [_Check(self.name, self.where, {}).tensor(item, declared) for item in value]

    def tensor(self, value: Any, declared: Declared) -> npt.NDArray[Any]:
        array = value if type(value) is np.ndarray else self.array(value)
        dtype, expected = array.dtype, declared.element_type
        if expected is not None and dtype != expected.numpy:
            found = element_type_of(dtype)
            if found is not expected:
                raise self.error(f"has element type {found or dtype}, but the model declares {expected}")
        if declared.shape is not None and array.shape != declared.shape:
            self.shape(array.shape, declared.shape)
        if dtype.kind == "O" and not all(isinstance(text, str | bytes) for text in array.flat):
            raise self.error("has objects in it that are not strings")
        try:
            return read_only(_native(array))
        except UnicodeDecodeError as error:
            raise self.error("has a string that is not UTF-8") from error

    def array(self, value: Any) -> npt.NDArray[Any]:
        try:
            array = np.asarray(value)
        except (ValueError, TypeError) as error:
            raise self.error(f"is not an array: {str(error)[:200]}") from error
        if np.ma.is_masked(value):
            raise self.error("is a masked array, whose mask a model would lose")
        return array

    def shape(self, shape: tuple[int, ...], declared: Shape) -> None:
        if len(shape) != len(declared):
            raise self.error(f"has shape {shape}, but the model declares rank {len(declared)}")
        for axis, (size, stated) in enumerate(zip(shape, declared, strict=True)):
            if isinstance(stated, int):
                if stated == size:
                    continue
                raise self.error(f"has shape {shape}, but the model declares size {stated} on axis {axis}")
            name = stated.name or ""
            known, source = self.symbols.setdefault(name, (size, self.name)) if name else (size, "")
            if known != size:
                raise self.error(
                    f"has size {size} on axis {axis}, but {shown(name)} is {known} in input {shown(source)}"
                )

    def error(self, problem: str) -> ModelError:
        return ModelError(f"input {shown(self.name)} {problem}", replace(self.where, input=self.name))


def _native(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return strings as objects and numbers in the machine's byte order, as onnx's operators expect them."""
    if array.dtype.kind == "S":
        return np.char.decode(array, "utf-8").astype(object)
    if array.dtype.kind in "UT":
        return array.astype(object)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
