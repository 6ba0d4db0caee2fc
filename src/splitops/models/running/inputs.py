"""The values that a caller gives to a model, held against what the model declares."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from splitops.calls.node import read_only
from splitops.errors import ModelError, Where, shown
from splitops.models.running.input_specs import InputSpec
from splitops.spec.elements.types import element_type_of

K = TypeVar("K", bound=Hashable)

_PLAIN: Final = "biufc"
"""Kinds of dtypes whose arrays are taken as they are."""
_MAX_PROVED: Final = 256
"""How many sets of types and shapes a model remembers as its own."""


class Inputs(Generic[K]):
    """The inputs of a model, by what its evaluator knows each by."""

    def __init__(self, declared: Sequence[tuple[K, InputSpec]]) -> None:
        self._declared = declared
        self._keys = {each.name: key for key, each in declared}
        self._named: dict[str, list[K]] = {}
        for key, each in declared:
            for name in (each.name, *each.aliases):
                self._named.setdefault(name, []).append(key)
        coded = any(each.element_type and each.element_type.storage for _, each in declared)
        self._remembers = not coded and len(self._keys) == len(declared)
        self._proved: set[tuple[object, ...]] = set()

    def check(self, inputs: Mapping[str, Any], where: Where) -> dict[K, Any]:
        """Return the values as an evaluator takes them, proved to be what the model declares.

        Nothing is converted from one element type to another, and arrays come back as read-only views: what
        is computed as a view of them is read-only too. An input with a default may be left out, and an
        optional one is None then.
        """
        known = self._known(inputs)
        if known in self._proved:
            return {key: read_only(inputs[name]) for name, key in self._keys.items()}
        checked = self._checked(inputs, where)
        if known is not None and len(self._proved) < _MAX_PROVED:
            self._proved.add(known)
        return checked

    def _known(self, inputs: Mapping[str, Any]) -> tuple[object, ...] | None:
        """Return dtype and shape of every input; None where the proof is of more than these."""
        if not self._remembers or type(inputs) is not dict or inputs.keys() != self._keys.keys():
            return None
        known: list[object] = []
        for name in self._keys:
            value = inputs[name]
            if type(value) is not np.ndarray or value.dtype.kind not in _PLAIN or not value.dtype.isnative:
                return None
            known += value.dtype, value.shape
        return tuple(known)

    def _checked(self, inputs: Mapping[str, Any], where: Where) -> dict[K, Any]:
        if not isinstance(inputs, Mapping):
            raise ModelError(f"inputs are a {type(inputs).__name__}, not a mapping of names to arrays", where)
        given: dict[K, str] = {}
        for name in inputs:
            keys = self._named.get(name, [])
            if not keys:
                names = ", ".join(shown(each.name) for _, each in self._declared[:8]) or "none"
                raise ModelError(f"the model has no input {shown(str(name))}; its inputs are {names}", where)
            if len(keys) > 1:
                raise ModelError(f"{len(keys)} inputs of the model are named {shown(name)}", where)
            if keys[0] in given:
                raise ModelError(f"input {shown(name)} is given twice, by two of its names", where)
            given[keys[0]] = name
        symbols: dict[str, tuple[int, str]] = {}
        checked: dict[K, Any] = {}
        for key, declared in self._declared:
            place = replace(where, input=declared.name)
            if key in given:
                checked[key] = _value(inputs[given[key]], declared, place, symbols)
            elif declared.optional:
                checked[key] = None
            elif declared.required:
                raise ModelError(f"input {shown(declared.name)} is missing", place)
        return checked


def _value(value: Any, declared: InputSpec, where: Where, symbols: dict[str, tuple[int, str]]) -> Any:
    """Return an input; ``symbols`` are the sizes that are known so far, and the inputs that told them."""
    if declared.kind == "other" or (value is None and declared.optional):
        return value
    if declared.kind != "sequence":
        return _tensor(value, declared, where, symbols)
    if not isinstance(value, list | tuple):
        raise ModelError(
            f"input {shown(declared.name)} is a sequence, but {type(value).__name__} is given", where
        )
    # A symbol may have another size in each element.
    return [_tensor(item, declared, where, {}) for item in value]


def _tensor(
    value: Any, declared: InputSpec, where: Where, symbols: dict[str, tuple[int, str]]
) -> npt.NDArray[Any]:
    name = shown(declared.name)
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, OverflowError) as error:
        raise ModelError(f"input {name} is not an array: {str(error)[:200]}", where) from error
    if np.ma.is_masked(value):
        raise ModelError(f"input {name} is a masked array, whose mask a model would lose", where)
    declared.accept(array.dtype, array.shape, where)
    for axis, (size, dim) in enumerate(zip(array.shape, declared.shape or (), strict=False)):
        if isinstance(dim, int) or not dim.name:
            continue
        known, source = symbols.setdefault(dim.name, (size, declared.name))
        if known != size:
            raise ModelError(
                f"input {name} has size {size} on axis {axis}, but {shown(dim.name)} is {known} in input "
                f"{shown(source)}",
                where,
            )
    kind = declared.element_type or element_type_of(array.dtype)
    if kind is not None and kind.bits == 0:
        return read_only(_texts(array, name, where))
    if kind is not None and kind.storage and array.size and array.max() >= 1 << kind.bits:
        raise ModelError(f"input {name} has the code {array.max()}, more than {(1 << kind.bits) - 1}", where)
    # Operators expect the machine's byte order.
    return read_only(array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("=")))


def _texts(array: npt.NDArray[Any], name: str, where: Where) -> npt.NDArray[Any]:
    """Return strings of any kind as an array of str."""
    if array.dtype == object and all(isinstance(text, str) for text in array.flat):
        return array
    texts = np.empty(array.size, object)
    for index, text in enumerate(array.reshape(-1).tolist()):
        if not isinstance(text, str | bytes):
            raise ModelError(f"input {name} has an element of type {type(text).__name__}, not str", where)
        try:
            texts[index] = text.decode() if isinstance(text, bytes) else text
        except UnicodeDecodeError as error:
            raise ModelError(f"input {name} has a string that is not UTF-8: {error}", where) from error
    return texts.reshape(array.shape)
