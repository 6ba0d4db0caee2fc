"""The arrays that a model of OpenVINO IR is given, checked against its Parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from splitops.calls.node import read_only
from splitops.errors import ModelError, Where
from splitops.models.formats.openvino.model import Endpoint, OpenVINOModel
from splitops.models.formats.openvino.shapes import format_shape, matches
from splitops.models.movers.evaluated import Value
from splitops.models.running.declared import Declared, openvino_inputs
from splitops.spec.elements.types import ElementType, element_type_of


class Inputs:
    """The inputs of a model.

    Args:
        model: the model.
        where: its place.

    Raises:
        ModelError: a Parameter declares no element type or shape.
    """

    def __init__(self, model: OpenVINOModel, where: Where) -> None:
        self._where = where
        declared = openvino_inputs(model, where)
        self._names = [each.name for each in declared]
        self._parameters = [
            _Parameter(Endpoint(layer.id, layer.outputs[0].id), each, replace(where, node=layer.name))
            for layer, each in zip(model.inputs, declared, strict=True)
        ]
        by_tensor: dict[str, list[_Parameter]] = {}
        by_layer: dict[str, list[_Parameter]] = {}
        for layer, parameter in zip(model.inputs, self._parameters, strict=True):
            by_layer.setdefault(layer.name, []).append(parameter)
            for name in layer.outputs[0].names:
                by_tensor.setdefault(name, []).append(parameter)
        self._named = by_layer | by_tensor

    def check(self, inputs: Mapping[str, npt.ArrayLike]) -> dict[Endpoint, Value]:
        """Return the value of every Parameter, a read-only view.

        Raises:
            ModelError: an input is unknown, missing, given twice, or has another type or shape.
        """
        if not isinstance(inputs, Mapping):
            raise ModelError(
                f"inputs are a {type(inputs).__name__}, not a mapping of names to arrays", self._where
            )
        values: dict[Endpoint, Value] = {}
        for name, array in inputs.items():
            found = self._named.get(name)
            if found is None:
                raise ModelError(f"the model has no input {name!r}; its inputs are {self}", self._where)
            if len(found) > 1:
                raise ModelError(f"{len(found)} inputs of the model are named {name!r}", self._where)
            if found[0].end in values:
                raise ModelError(f"input {name!r} is given twice, by two of its names", self._where)
            values[found[0].end] = found[0].value(name, array)
        if len(values) < len(self._parameters):
            pairs = zip(self._names, self._parameters, strict=True)
            missing = ", ".join(repr(name) for name, parameter in pairs if parameter.end not in values)
            raise ModelError(f"input {missing} is missing; the inputs are {self}", self._where)
        return values

    def __str__(self) -> str:
        return ", ".join(map(repr, self._names)) or "none"


class _Parameter(NamedTuple):
    """A Parameter: its output port, what it declares, and its place."""

    end: Endpoint
    declared: Declared
    where: Where

    def value(self, name: str, given: npt.ArrayLike) -> Value:
        if np.ma.is_masked(given):
            raise ModelError(f"input {name!r} is masked, which a tensor cannot say", self.where)
        try:
            array = np.asarray(given)
        except (ValueError, TypeError, OverflowError) as error:
            raise ModelError(f"input {name!r} is not an array: {str(error)[:200]}", self.where) from error
        kind = self.declared.element_type or _type_of(array, self.where)
        # Every view of it, the outputs too, is read-only then.
        return Value(read_only(self._checked(name, array, kind)), kind)

    def _checked(self, name: str, array: npt.NDArray[Any], kind: ElementType) -> npt.NDArray[Any]:
        expected = kind.numpy
        if kind.bits == 0:
            fits = array.dtype.kind in "OUST"
        else:
            fits = array.dtype == expected or element_type_of(array.dtype) is kind
        if not fits:
            raise ModelError(
                f"input {name!r} has dtype {array.dtype}, but the model takes {kind.openvino}, "
                f"which is {expected}",
                self.where,
            )
        shape = self.declared.shape
        if array.shape != shape and not matches(array.shape, shape):
            raise ModelError(
                f"input {name!r} has shape {list(array.shape)}, but the model takes [{format_shape(shape)}]",
                self.where,
            )
        limit = (1 << kind.bits) - 1
        if kind.storage is not None and array.size and int(array.max()) > limit:
            raise ModelError(f"input {name!r} has the code {array.max()}, more than {limit}", self.where)
        if kind.bits == 0:
            return _texts(name, array, self.where)
        return array if array.dtype == expected else array.astype(expected)


def _type_of(array: npt.NDArray[Any], where: Where) -> ElementType:
    found = element_type_of(array.dtype)
    if found is None or found.openvino is None:
        raise ModelError(f"OpenVINO has no element type for dtype {array.dtype}", where)
    return found


def _texts(name: str, array: npt.NDArray[Any], where: Where) -> npt.NDArray[Any]:
    """Return strings of any kind as an array of str."""
    if array.dtype == object and all(isinstance(value, str) for value in array.flat):
        return array
    texts = np.empty(array.shape, object)
    for index, value in enumerate(array.reshape(-1).tolist()):
        if not isinstance(value, str | bytes):
            raise ModelError(f"input {name!r} holds a {type(value).__name__}, not strings alone", where)
        try:
            texts.reshape(-1)[index] = value.decode() if isinstance(value, bytes) else value
        except UnicodeDecodeError as error:
            raise ModelError(f"input {name!r} holds bytes that are not UTF-8: {error}", where) from error
    return texts
