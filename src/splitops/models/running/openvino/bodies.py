"""Evaluates If, Loop and TensorIterator: which body runs, how often, and on what.

The bodies themselves are run by the caller, as the main graph is: their splits are proved like all others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from splitops.errors import ModelError, Where
from splitops.models.formats.openvino.model import Graph, Layer
from splitops.models.formats.openvino.splits import operation_set
from splitops.models.movers.evaluated import Value, prove_size
from splitops.models.running.openvino.port_maps import Entry, PortMap, Slicing, axis_of, read_if, read_loop
from splitops.spec.elements.types import ElementType
from splitops.spec.operators import FAMILY

RunBody = Callable[[str, Graph, Mapping[int, Value]], Mapping[int, Value]]
"""Runs the body of a tag: the value of each Parameter, by layer id, gives the value of each Result."""

BODIES_SINCE: Final = {"TensorIterator": 1, "Loop": 5, "If": 8}
"""The operation set that brought each layer with bodies."""

_SPLIT_NAMES: Final = frozenset(name.casefold() for name in FAMILY["openvino"])


def is_own(layer: Layer) -> bool:
    """Return whether a layer with bodies is evaluated here.

    A form that is not supported is an error where a split is in it; else it is left to OpenVINO.
    """
    number = operation_set(layer.version)
    if layer.type not in BODIES_SINCE or number is None or number < BODIES_SINCE[layer.type]:
        return False
    if holds_split(layer):
        return True
    try:
        _ = read_if(layer, layer.where) if layer.type == "If" else read_loop(layer, layer.where)
    except ModelError:
        return False
    return True


def holds_split(layer: Layer) -> bool:
    """Return whether a layer, or one in its bodies, is of the split family.

    Its spelling does not matter: OpenVINO finds an operation by any.
    """
    return layer.type.casefold() in _SPLIT_NAMES or any(
        holds_split(inner) for _, body in layer.bodies for inner in body.layers
    )


def evaluate(layer: Layer, inputs: Sequence[Value], run_body: RunBody, where: Where) -> list[Value]:
    """Evaluate a layer with bodies, one that :func:`is_own`; ``run_body`` runs one of them once."""
    if layer.type == "If":
        branches = read_if(layer, where)
        tag = "then_body" if _boolean(inputs[0], "the condition", where) else "else_body"
        branch = branches[tag]
        results = run_body(tag, branch.body, {entry.inner: inputs[entry.port] for entry in branch.inputs})
        return [results[entry.inner] for entry in branch.outputs]
    ports = read_loop(layer, where)
    if layer.type == "TensorIterator":
        return _repeat(ports, inputs, _iterations(ports, inputs, where), run_body, where)
    trips = _integer(inputs[0], "the trip count", where)
    if trips < -1:
        raise ModelError(f"the trip count is {trips}", where)
    going = _boolean(inputs[1], "the condition", where)
    return _repeat(ports, inputs, (None if trips == -1 else trips) if going else 0, run_body, where)


def _iterations(ports: PortMap, inputs: Sequence[Value], where: Where) -> int:
    """Return how often a TensorIterator runs its body: once for each part of each sliced input."""
    counts = {
        entry.slicing.count(inputs[entry.port], where) for entry in ports.inputs if entry.slicing is not None
    }
    if len(counts) != 1:
        raise ModelError(f"the inputs are sliced into different numbers of parts: {sorted(counts)}", where)
    return counts.pop()


def _repeat(
    ports: PortMap, inputs: Sequence[Value], trips: int | None, run_body: RunBody, where: Where
) -> list[Value]:
    """Run a body until the trips are over or its condition is false; no trips: until it is false."""
    state = {entry.inner: inputs[entry.port] for entry in ports.inputs if entry.slicing is None}
    sliced = [(entry, entry.slicing) for entry in ports.inputs if entry.slicing is not None]
    joined = {
        entry.port: _Joined(entry.slicing, where) for entry in ports.outputs if entry.slicing is not None
    }
    # Before the first iteration, the value of a Result is the one that its back edge replaces.
    carriers = Counter(ports.carried.values())
    results: Mapping[int, Value] = {
        source: state[target] for target, source in ports.carried.items() if carriers[source] == 1
    }
    for iteration in count():
        if iteration == trips:
            break
        fed = state | {
            entry.inner: slicing.part(inputs[entry.port], iteration, where) for entry, slicing in sliced
        }
        if ports.counter is not None:
            fed[ports.counter] = _counted(ports.body.by_id[ports.counter], iteration, where)
        results = run_body("body", ports.body, fed)
        for entry in ports.outputs:
            if entry.port in joined:
                joined[entry.port].append(results[entry.inner])
        if ports.condition is not None and not _boolean(
            results[ports.condition], "the condition of the body", where
        ):
            break
        state |= {target: results[source] for target, source in ports.carried.items()}
    return [
        joined[entry.port].value(ports.body.by_id[entry.inner])
        if entry.port in joined
        else _last(entry, results, where)
        for entry in ports.outputs
    ]


def _last(entry: Entry, results: Mapping[int, Value], where: Where) -> Value:
    if entry.inner not in results:
        raise ModelError(f"output {entry.port} is what the last iteration gives, but there is none", where)
    return results[entry.inner]


class _Joined:
    """The parts that the iterations give for an output, joined in a buffer that grows with them."""

    def __init__(self, slicing: Slicing, where: Where) -> None:
        self._slicing = slicing
        self._where = where
        self._element_type: ElementType | None = None
        self._buffer: npt.NDArray[Any] = np.empty(0)
        self._axis = 0
        self._filled = 0

    def append(self, part: Value) -> None:
        """Take the next part; its elements are copied, so that nothing larger stays alive behind a view."""
        slicing, shape = self._slicing, part.array.shape
        axis = axis_of(slicing.axis, len(shape), self._where)
        if shape[axis] != slicing.size:
            raise ModelError(
                f"an iteration gives {list(shape)}, but parts are of {slicing.size} on axis {axis}",
                self._where,
            )
        items = np.moveaxis(part.array, axis, 0)
        if self._element_type is None:
            self._element_type, self._axis = part.element_type, axis
            self._buffer = items[:0].copy()
        known = self._buffer.shape[1:]
        if part.element_type is not self._element_type or items.shape[1:] != known:
            raise ModelError(
                f"iterations give {self._element_type} {list(known)} and {part.element_type} "
                f"{list(items.shape[1:])} beside axis {self._axis}",
                self._where,
            )
        end = self._filled + slicing.size
        if end > len(self._buffer):
            # Old and new buffer stand side by side.
            prove_size((2 * end + self._filled, *known), part.element_type, self._where)
            larger = np.empty((2 * end, *known), self._buffer.dtype)
            larger[: self._filled] = self._buffer[: self._filled]
            self._buffer = larger
        self._buffer[self._filled : end] = items
        self._filled = end

    def value(self, result: Layer) -> Value:
        """Return all parts as one tensor; where there are none, the Result declares its type and shape."""
        if self._element_type is None:
            return self._nothing(result)
        whole = self._buffer[: self._filled]
        if self._slicing.reverse:
            parts = whole.reshape(-1, self._slicing.size, *whole.shape[1:]) if whole.size else whole
            whole = parts[::-1].reshape(whole.shape)
        return Value(np.moveaxis(whole, 0, self._axis), self._element_type)

    def _nothing(self, result: Layer) -> Value:
        port = result.inputs[0]
        if port.element_type is None or not port.dims:
            raise ModelError(f"there is no iteration, and {result} declares no type and shape", self._where)
        shape = [max(0, size) for size in port.dims]
        shape[axis_of(self._slicing.axis, len(shape), self._where)] = 0
        prove_size(shape, port.element_type, self._where)
        return Value(np.empty(shape, port.element_type.numpy), port.element_type)


def _counted(parameter: Layer, iteration: int, where: Where) -> Value:
    """Return the number of an iteration as the Parameter takes it: a scalar, or one element of shape [1]."""
    kind, shape = parameter.element_type(where), parameter.shape(where)
    if kind.name not in {"int32", "int64"} or (shape is not None and len(shape) > 1):
        raise ModelError(f"current_iteration is {kind} of shape {parameter.attribute('shape')!r}", where)
    if iteration > np.iinfo(kind.numpy).max:
        raise ModelError(f"iteration {iteration} does not fit {kind}", where)
    return Value(np.full((1,) * len(shape or ()), iteration, kind.numpy), kind)


def _integer(value: Value, what: str, where: Where) -> int:
    return int(_single(value, what, {"int32", "int64"}, where))


def _boolean(value: Value, what: str, where: Where) -> bool:
    return bool(_single(value, what, {"bool"}, where))


def _single(value: Value, what: str, kinds: set[str], where: Where) -> Any:
    if value.element_type.name not in kinds or value.array.size != 1 or value.array.ndim > 1:
        raise ModelError(
            f"{what} is {value.element_type} {list(value.array.shape)}, not one {' or '.join(sorted(kinds))}",
            where,
        )
    return value.array.item()
