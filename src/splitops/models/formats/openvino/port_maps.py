"""Port maps: what the layers with bodies, If, Loop and TensorIterator, say their bodies take and give.

A port map joins the ports of the layer to the Parameters and Results of a body; back edges carry a Result to
a Parameter of the next iteration.

Sources: the specifications of TensorIterator-1, Loop-5 and If-8,
https://docs.openvino.ai/2026/documentation/openvino-ir-format/operation-sets/operation-specs.html. Where they
leave ``start`` and ``end`` of slices open, only what OpenVINO's shape inference and CPU plugin count alike is
read. (Of slices of a part of the axis, the plugin counts these parts, but takes them from the axis' start.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar
from xml.etree.ElementTree import Element

from splitops.errors import ModelError, Where
from splitops.models.formats.openvino.model import Graph, Layer
from splitops.models.formats.openvino.shapes import parse_number

T = TypeVar("T")
BODIES_SINCE: Final = {"TensorIterator": 1, "Loop": 5, "If": 8}
"""The operation set that brought each layer with bodies."""
_MIN_INPUTS: Final = {"Loop": 2, "TensorIterator": 1}


@dataclass(frozen=True, slots=True)
class Slicing:
    """Consecutive parts of one size along an axis.

    Attributes:
        axis: the axis; negative ones count from the last.
        size: of each part.
        low: where the first part begins.
        high: where the last part ends, counted from the end: -1 is the end of the axis.
        reverse: whether the iterations go from the last part to the first.
    """

    axis: int
    size: int
    low: int
    high: int
    reverse: bool

    def parts(self, size: int, where: Where) -> int:
        """Return the number of parts of an axis, which has to consist of them."""
        stop = size + 1 + self.high
        if self.low > stop or (stop - self.low) % self.size:
            raise ModelError(
                f"[{self.low}, {stop}) of axis {self.axis} of size {size} does not consist of parts of "
                f"{self.size}",
                where,
            )
        return (stop - self.low) // self.size


@dataclass(frozen=True, slots=True)
class PortMapEntry:
    """One line of a port map.

    Attributes:
        port: the position of the port among the layer's inputs or outputs.
        inner: the id of the Parameter or Result.
        slicing: None for the whole value.
    """

    port: int
    inner: int
    slicing: Slicing | None


@dataclass(frozen=True, slots=True)
class PortMap:
    """A body's port map, proved whole.

    Attributes:
        body: the body.
        inputs: what Parameters take from outside.
        outputs: what each output port of the layer gives, in their order.
        carried: the Result whose value a Parameter takes in the next iteration.
        counter: the Parameter that takes the number of the iteration.
        condition: the Result that says whether there is a next iteration.
    """

    body: Graph
    inputs: tuple[PortMapEntry, ...]
    outputs: tuple[PortMapEntry, ...]
    carried: Mapping[int, int]
    counter: int | None
    condition: int | None


def read_if(layer: Layer, where: Where) -> Mapping[str, PortMap]:
    """Return the port maps of an If, by ``"then_body"`` and ``"else_body"``."""
    if not layer.inputs:
        raise ModelError(f"{layer} has no condition", where)
    found = {f"{branch}_body": _read(layer, f"{branch}_", where) for branch in ("then", "else")}
    for one in found.values():
        sliced = any(entry.slicing is not None for entry in one.inputs + one.outputs)
        if sliced or one.carried or one.counter is not None or one.condition is not None:
            raise ModelError(f"{layer} slices, counts or repeats, which an If does not", where)
    return found


def read_loop(layer: Layer, where: Where) -> PortMap:
    """Return the port map of a Loop or TensorIterator."""
    least = _MIN_INPUTS[layer.type]
    if len(layer.inputs) < least:
        raise ModelError(f"{layer} has {len(layer.inputs)} inputs, but it takes {least} at least", where)
    found = _read(layer, "", where)
    if layer.type == "Loop":
        if found.condition is None:
            raise ModelError(f"the port map of {layer} has no execution_condition", where)
    elif found.counter is not None or found.condition is not None:
        raise ModelError(f"{layer} has ports of a Loop", where)
    elif all(entry.slicing is None for entry in found.inputs):
        raise ModelError(f"{layer} slices no input, so nothing tells its iterations: not supported", where)
    return found


def _read(layer: Layer, prefix: str, where: Where) -> PortMap:
    body = _only(
        [graph for tag, graph in layer.bodies if tag == f"{prefix}body"], layer, f"{prefix}body", where
    )
    lines = _lines(layer, f"{prefix}port_map", {"input", "output"}, where)
    parameters = {inner.id for inner in body.layers_of_type("Parameter")}
    results = {inner.id for inner in body.layers_of_type("Result")}
    positions = {
        tag: {port.id: at for at, port in enumerate(ports)}
        for tag, ports in (("input", layer.inputs), ("output", layer.outputs))
    }
    inputs: list[PortMapEntry] = []
    outputs: list[PortMapEntry] = []
    purposes: dict[str, list[int]] = {"current_iteration": [], "execution_condition": []}
    for line in lines:
        taken = line.tag == "input"
        inner, purpose = _number(line, "internal_layer_id", where), line.get("purpose", "")
        if inner not in (parameters if taken else results):
            kind = "Parameter" if taken else "Result"
            raise ModelError(f"the port map of {layer} names layer {inner}, which is not a {kind}", where)
        if purpose:
            if purpose != ("current_iteration" if taken else "execution_condition"):
                raise ModelError(f"purpose = {purpose[:80]!r} in the port map of {layer}", where)
            purposes[purpose].append(inner)
        port = _number(line, "external_port_id", where)
        if port == -1 and purpose:
            continue
        position = positions[line.tag].get(port)
        if position is None:
            raise ModelError(f"the port map of {layer} names {line.tag} port {port}, which it lacks", where)
        entry = PortMapEntry(position, inner, _slicing(line, layer, where))
        (inputs if taken else outputs).append(entry)
    carried = {}
    for edge in _lines(layer, "back_edges", {"edge"}, where, needed=False):
        source, target = _number(edge, "from-layer", where), _number(edge, "to-layer", where)
        if source not in results or target in carried:
            raise ModelError(f"a back edge of {layer} goes from {source} to {target}", where)
        carried[target] = source
    counters, conditions = purposes.values()
    whole = {entry.inner for entry in inputs if entry.slicing is None}
    if sorted([*(entry.inner for entry in inputs), *counters]) != sorted(parameters) or len(counters) > 1:
        raise ModelError(f"the port map of {layer} does not feed each Parameter of its body once", where)
    if len(conditions) > 1 or not carried.keys() <= whole:
        raise ModelError(f"{layer} has two conditions, or a back edge to what is not a whole input", where)
    if sorted(entry.port for entry in outputs) != list(range(len(layer.outputs))):
        raise ModelError(f"the port map of {layer} does not give each of its outputs once", where)
    if any(entry.slicing and (entry.slicing.low, entry.slicing.high) != (0, -1) for entry in outputs):
        raise ModelError(f"an output of {layer} fills a part of its axis: not supported", where)
    outputs.sort(key=lambda entry: entry.port)
    return PortMap(
        body,
        tuple(inputs),
        tuple(outputs),
        carried,
        next(iter(counters), None),
        next(iter(conditions), None),
    )


def _slicing(line: Element, layer: Layer, where: Where) -> Slicing | None:
    if "axis" not in line.keys():  # noqa: SIM118 - an Element is not a mapping
        return None
    axis = _number(line, "axis", where)
    start, end, stride, size = (
        _number(line, name, where, default)
        for name, default in (("start", 0), ("end", -1), ("stride", 1), ("part_size", 1))
    )
    low, high = (start, end) if stride > 0 else (end, start)
    if stride == 0 or abs(stride) != size:
        raise ModelError(f"stride = {stride} and part_size = {size} of {layer}: not supported", where)
    if low < 0 or high >= 0:
        raise ModelError(
            f"start = {start} and end = {end} of a slice of {layer} have no one meaning: not supported", where
        )
    return Slicing(axis, size, low, high, stride < 0)


def _lines(
    layer: Layer, tag: str, kinds: set[str], where: Where, *, needed: bool = True
) -> tuple[Element, ...]:
    found = [child for child in layer.children if child.tag == tag]
    if not found and not needed:
        return ()
    section = _only(found, layer, tag, where)
    for child in section:
        if child.tag not in kinds:
            raise ModelError(f"<{tag}> of {layer} holds a <{child.tag[:80]}>", where)
    return tuple(section)


def _only(found: Sequence[T], layer: Layer, tag: str, where: Where) -> T:
    if len(found) != 1:
        raise ModelError(f"{layer} has {len(found)} <{tag}> sections, not one", where)
    return found[0]


def _number(element: Element, name: str, where: Where, default: int | None = None) -> int:
    text = element.get(name)
    if text is None and default is not None:
        return default
    if text is None:
        raise ModelError(f"a <{element.tag}> of a port map or back edge has no {name}", where)
    return parse_number(text, name, where)


def axis_of(axis: int, rank: int, where: Where) -> int:
    """Return an axis counted from the first."""
    if not -rank <= axis < rank:
        raise ModelError(f"axis = {axis} of a slice is not an axis of rank {rank}", where)
    return axis % rank
