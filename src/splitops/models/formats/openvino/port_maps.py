"""Read port maps, which connect an If, Loop or TensorIterator to its bodies.

A port map connects ports of the layer to the Parameters and Results of a body. The condition of an If and
the trip count and condition of a Loop need not be in it. Back edges carry a Result to a Parameter of the
next iteration.

Sources: the specifications of TensorIterator-1, Loop-5 and If-8,
https://docs.openvino.ai/2026/documentation/openvino-ir-format/operation-sets/operation-specs.html. They do
not define ``start`` and ``end`` of slices precisely: values on which OpenVINO's shape inference and CPU
plugin disagree are rejected. (If the slices cover only a part of the axis, the plugin runs the right
number of iterations, but starts at the beginning of the axis.)
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
"""The operation set that introduced each layer with bodies."""
_MIN_INPUTS: Final = {"Loop": 2, "TensorIterator": 1}


@dataclass(frozen=True, slots=True)
class Slicing:
    """Slices of equal size along an axis, one for each iteration.

    Attributes:
        axis: the axis; negative axes count from the last.
        size: size of each slice.
        low: index at which the slice nearest to the start of the axis begins.
        high: end of the slice nearest to the end, as a negative number; -1 is the end of the axis.
        reverse: whether the first iteration gets the last slice.
    """

    axis: int
    size: int
    low: int
    high: int
    reverse: bool

    def count_parts(self, size: int, where: Where) -> int:
        """Return the number of slices of an axis of ``size``. Raise ModelError if they do not fit exactly."""
        stop = size + 1 + self.high
        if self.low > stop or (stop - self.low) % self.size:
            raise ModelError(
                f"the range [{self.low}, {stop}) of axis {self.axis}, which has size {size}, cannot be "
                f"divided into slices of size {self.size}",
                where,
            )
        return (stop - self.low) // self.size


@dataclass(frozen=True, slots=True)
class PortMapEntry:
    """An entry of a port map: a port of the layer and a Parameter or Result of the body.

    Attributes:
        port: position of the port among the layer's inputs or outputs.
        inner: id of the Parameter or Result.
        slicing: slices of the value, one for each iteration, or None for the complete value.
    """

    port: int
    inner: int
    slicing: Slicing | None


@dataclass(frozen=True, slots=True)
class PortMap:
    """The checked port map of a body.

    Attributes:
        body: graph of the body.
        inputs: one entry for each Parameter that an input port feeds, in the order of the file.
        outputs: one entry for each output port of the layer, in order.
        carried: maps the id of a Parameter to that of the Result whose value it gets in the next iteration.
        counter: id of the Parameter that gets the number of the iteration, or None.
        condition: id of the Result that decides whether there is a next iteration, or None.
    """

    body: Graph
    inputs: tuple[PortMapEntry, ...]
    outputs: tuple[PortMapEntry, ...]
    carried: Mapping[int, int]
    counter: int | None
    condition: int | None


def read_if(layer: Layer, where: Where) -> Mapping[str, PortMap]:
    """Read the port maps of an If. The keys are ``"then_body"`` and ``"else_body"``."""
    if not layer.inputs:
        raise ModelError(f"{layer} has no condition", where)
    found = {f"{branch}_body": _read_port_map(layer, f"{branch}_", where) for branch in ("then", "else")}
    for port_map in found.values():
        sliced = any(entry.slicing is not None for entry in port_map.inputs + port_map.outputs)
        if sliced or port_map.carried or port_map.counter is not None or port_map.condition is not None:
            raise ModelError(f"the port map of {layer} slices, counts or repeats, which an If cannot", where)
    return found


def read_loop(layer: Layer, where: Where) -> PortMap:
    """Read the port map of a Loop or TensorIterator."""
    least = _MIN_INPUTS[layer.type]
    if len(layer.inputs) < least:
        count = len(layer.inputs)
        raise ModelError(f"{layer} has too few inputs: {count} instead of at least {least}", where)
    found = _read_port_map(layer, "", where)
    if layer.type == "Loop":
        if found.condition is None:
            raise ModelError(f"the port map of {layer} has no execution_condition", where)
    elif found.counter is not None or found.condition is not None:
        raise ModelError(f"the port map of {layer} has a purpose, which only a Loop supports", where)
    elif all(entry.slicing is None for entry in found.inputs):
        raise ModelError(f"{layer} slices no input, so its number of iterations is unknown", where)
    return found


def _read_port_map(layer: Layer, prefix: str, where: Where) -> PortMap:
    body = _get_only(
        [graph for tag, graph in layer.bodies if tag == f"{prefix}body"], layer, f"{prefix}body", where
    )
    lines = _read_section(layer, f"{prefix}port_map", {"input", "output"}, where)
    parameters = {inner.id for inner in body.list_layers("Parameter")}
    results = {inner.id for inner in body.list_layers("Result")}
    positions = {
        tag: {port.id: at for at, port in enumerate(ports)}
        for tag, ports in (("input", layer.inputs), ("output", layer.outputs))
    }
    inputs: list[PortMapEntry] = []
    outputs: list[PortMapEntry] = []
    purposes: dict[str, list[int]] = {"current_iteration": [], "execution_condition": []}
    for line in lines:
        is_input = line.tag == "input"
        inner, purpose = _read_number(line, "internal_layer_id", where), line.get("purpose", "")
        if inner not in (parameters if is_input else results):
            kind = "Parameter" if is_input else "Result"
            raise ModelError(f"the port map of {layer} names layer {inner}, which is not a {kind}", where)
        if purpose:
            if purpose != ("current_iteration" if is_input else "execution_condition"):
                problem = f"purpose = {purpose[:80]!r} for an {line.tag}, which is not supported"
                raise ModelError(f"the port map of {layer} has {problem}", where)
            purposes[purpose].append(inner)
        port = _read_number(line, "external_port_id", where)
        if port == -1 and purpose:
            continue
        position = positions[line.tag].get(port)
        if position is None:
            raise ModelError(f"the port map of {layer} names {line.tag} port {port}, which is missing", where)
        entry = PortMapEntry(position, inner, _read_slicing(line, layer, where))
        (inputs if is_input else outputs).append(entry)
    carried = {}
    for edge in _read_section(layer, "back_edges", {"edge"}, where, needed=False):
        source, target = _read_number(edge, "from-layer", where), _read_number(edge, "to-layer", where)
        if source not in results or target in carried:
            problem = "does not start at a Result, or is not the only one to its target"
            raise ModelError(f"the back edge of {layer} from {source} to {target} {problem}", where)
        carried[target] = source
    counters, conditions = purposes.values()
    whole = {entry.inner for entry in inputs if entry.slicing is None}
    if sorted([*(entry.inner for entry in inputs), *counters]) != sorted(parameters) or len(counters) > 1:
        raise ModelError(f"the port map of {layer} does not feed each Parameter of its body once", where)
    if len(conditions) > 1 or not carried.keys() <= whole:
        raise ModelError(f"{layer} has two conditions, or a back edge to a sliced or unset Parameter", where)
    if sorted(entry.port for entry in outputs) != list(range(len(layer.outputs))):
        raise ModelError(f"the port map of {layer} does not produce each of its outputs once", where)
    if any(entry.slicing and (entry.slicing.low, entry.slicing.high) != (0, -1) for entry in outputs):
        raise ModelError(f"an output of {layer} fills only a part of its axis, which is not supported", where)
    outputs.sort(key=lambda entry: entry.port)
    return PortMap(
        body,
        tuple(inputs),
        tuple(outputs),
        carried,
        next(iter(counters), None),
        next(iter(conditions), None),
    )


def _read_slicing(line: Element, layer: Layer, where: Where) -> Slicing | None:
    if "axis" not in line.keys():  # noqa: SIM118 - an Element is not a mapping
        return None
    axis = _read_number(line, "axis", where)
    start, end, stride, size = (
        _read_number(line, name, where, default)
        for name, default in (("start", 0), ("end", -1), ("stride", 1), ("part_size", 1))
    )
    low, high = (start, end) if stride > 0 else (end, start)
    if stride == 0 or abs(stride) != size:
        raise ModelError(
            f"stride = {stride} and part_size = {size} of {layer} are not supported: part_size must be "
            "positive and equal to the absolute value of stride",
            where,
        )
    if low < 0 or high >= 0:
        raise ModelError(
            f"start = {start} and end = {end} of a slice of {layer} are ambiguous, thus not supported", where
        )
    return Slicing(axis, size, low, high, stride < 0)


def _read_section(
    layer: Layer, tag: str, kinds: set[str], where: Where, *, needed: bool = True
) -> tuple[Element, ...]:
    found = [child for child in layer.children if child.tag == tag]
    if not found and not needed:
        return ()
    section = _get_only(found, layer, tag, where)
    for child in section:
        if child.tag not in kinds:
            raise ModelError(f"<{tag}> of {layer} contains a <{child.tag[:80]}>", where)
    return tuple(section)


def _get_only(found: Sequence[T], layer: Layer, tag: str, where: Where) -> T:
    if len(found) != 1:
        raise ModelError(f"{layer} has {len(found)} <{tag}> sections, not one", where)
    return found[0]


def _read_number(element: Element, name: str, where: Where, default: int | None = None) -> int:
    text = element.get(name)
    if text is None and default is not None:
        return default
    if text is None:
        raise ModelError(f"a <{element.tag}> of a port map or back edge has no {name}", where)
    return parse_number(text, name, where)


def normalise_axis(axis: int, rank: int, where: Where) -> int:
    """Return an axis as a non-negative index. Raise ModelError if ``rank`` dimensions do not have it."""
    if not -rank <= axis < rank:
        raise ModelError(f"axis = {axis} of a slice is not an axis of rank {rank}", where)
    return axis % rank
