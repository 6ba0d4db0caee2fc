"""Check the input values of a run against the declared inputs."""

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
"""Kinds of dtypes whose arrays need no conversion."""
_MAX_CACHED: Final = 256
"""Maximum number of valid combinations of dtypes and shapes that are cached."""


class Inputs(Generic[K]):
    """The inputs of a model, each with its key in the evaluator or engine."""

    def __init__(self, declared: Sequence[tuple[K, InputSpec]]) -> None:
        self._declared = declared
        self._keys = {each.name: key for key, each in declared}
        self._named: dict[str, list[K]] = {}
        for key, each in declared:
            for name in (each.name, *each.aliases):
                self._named.setdefault(name, []).append(key)
        coded = any(each.element_type and each.element_type.storage for _, each in declared)
        self._remembers = not coded and len(self._keys) == len(declared)
        self._valid: set[tuple[object, ...]] = set()

    def check(self, inputs: Mapping[str, Any], where: Where) -> dict[K, Any]:
        """Check input values and return them, keyed as the evaluator or engine expects.

        Element types are not converted. Arrays are returned as read-only views or copies, so that views that
        the model returns are read-only, too. Inputs with a default may be absent; absent optional inputs
        are None.

        Raises:
            ModelError: ``inputs`` is not a mapping, or an input is unknown, missing, ambiguous or does not
                match its declaration.
        """
        known = self._make_key(inputs)
        if known in self._valid:
            return {key: read_only(inputs[name]) for name, key in self._keys.items()}
        checked = self._check_values(inputs, where)
        if known is not None and len(self._valid) < _MAX_CACHED:
            self._valid.add(known)
        return checked

    def _make_key(self, inputs: Mapping[str, Any]) -> tuple[object, ...] | None:
        """Return the dtypes and shapes as a cache key, or None if inputs must be checked each time."""
        if not self._remembers or type(inputs) is not dict or inputs.keys() != self._keys.keys():
            return None
        known: list[object] = []
        for name in self._keys:
            value = inputs[name]
            if type(value) is not np.ndarray or value.dtype.kind not in _PLAIN or not value.dtype.isnative:
                return None
            known += value.dtype, value.shape
        return tuple(known)

    def _check_values(self, inputs: Mapping[str, Any], where: Where) -> dict[K, Any]:
        if not isinstance(inputs, Mapping):
            raise ModelError(
                f"inputs have type {type(inputs).__name__}, not a mapping of names to arrays", where
            )
        given: dict[K, str] = {}
        for name in inputs:
            keys = self._named.get(name, [])
            if not keys:
                names = ", ".join(shown(each.name) for _, each in self._declared[:8]) or "none"
                raise ModelError(f"the model has no input {shown(str(name))}: its inputs are {names}", where)
            if len(keys) > 1:
                raise ModelError(f"{len(keys)} inputs of the model are named {shown(name)}", where)
            if keys[0] in given:
                raise ModelError(f"input {shown(name)} is passed twice, under two of its names", where)
            given[keys[0]] = name
        symbols: dict[str, tuple[int, str]] = {}
        checked: dict[K, Any] = {}
        for key, declared in self._declared:
            place = replace(where, input=declared.name)
            if key in given:
                checked[key] = _check_value(inputs[given[key]], declared, place, symbols)
            elif declared.optional:
                checked[key] = None
            elif declared.required:
                raise ModelError(f"input {shown(declared.name)} is missing", place)
        return checked


def _check_value(value: Any, declared: InputSpec, where: Where, symbols: dict[str, tuple[int, str]]) -> Any:
    """Check and return a value. ``symbols`` maps each symbol to its size and the first input that has it."""
    if declared.kind == "other" or (value is None and declared.optional):
        return value
    if declared.kind != "sequence":
        return _check_tensor(value, declared, where, symbols)
    if not isinstance(value, list | tuple):
        raise ModelError(
            f"input {shown(declared.name)} is a sequence, but its value has type {type(value).__name__}",
            where,
        )
    # A symbolic size may differ from one element to the next.
    return [_check_tensor(item, declared, where, {}) for item in value]


def _check_tensor(
    value: Any, declared: InputSpec, where: Where, symbols: dict[str, tuple[int, str]]
) -> npt.NDArray[Any]:
    name = shown(declared.name)
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, OverflowError) as error:
        raise ModelError(f"input {name} is not an array: {str(error)[:200]}", where) from error
    if np.ma.is_masked(value):
        raise ModelError(f"input {name} is a masked array: models do not support masks", where)
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
        return read_only(_to_texts(array, name, where))
    if kind is not None and kind.storage and array.size and array.max() >= 1 << kind.bits:
        raise ModelError(f"input {name} has the code {array.max()}, more than {(1 << kind.bits) - 1}", where)
    # Operators expect the machine's byte order.
    return read_only(array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("=")))


def _to_texts(array: npt.NDArray[Any], name: str, where: Where) -> npt.NDArray[Any]:
    """Convert strings of any dtype to an array of str objects."""
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
