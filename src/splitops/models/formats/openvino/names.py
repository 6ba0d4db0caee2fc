"""Make the names of the values, inputs and outputs of a model."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from splitops.models.formats.openvino.model import Layer, OpenVINOModel, Port


def make_port_name(layer: Layer, port: Port) -> str:
    """Return a name for an output port: its alphabetically first tensor name, if it has one.

    Otherwise, the name is ``layer`` or, if the layer has several outputs, ``layer:port``.
    """
    if port.names:
        return min(port.names)
    return layer.name if len(layer.outputs) == 1 else f"{layer.name}:{port.id}"


_SINK: Final = re.compile(r"/sink_port_\d+$")
"""The suffix that OpenVINO appends to the name of an output to make the name of its Result."""


def make_input_names(model: OpenVINOModel) -> tuple[str, ...]:
    """Return the name of each input.

    It is the name of the layer if this is also a tensor name, or if there are no tensor names. Otherwise, it
    is the alphabetically first tensor name. (OpenVINO adds the names of casts and other layers that it
    removes.)
    """
    return tuple(
        min(_iter_names(layer.outputs), key=lambda name: (name != layer.name, name), default=layer.name)
        for layer in model.inputs
    )


def _iter_names(ports: Sequence[Port]) -> Iterator[str]:
    return (name for port in ports for name in port.names)


def make_output_names(model: OpenVINOModel) -> tuple[str, ...]:
    """Return the name of each output of a model, unique in the model.

    The candidates of a Result are its ``output_names`` or, without these, the tensor names of the port that
    it reads and, in IR version 10, the name of the producer (``y`` or ``y.1``). The candidate after which the
    Result is named (``y`` for ``y/sink_port_0``) comes first. The others follow in alphabetical order, as
    in OpenVINO's ``any_name``, and last the name of the Result, without and with ``/sink_port_0``. If outputs
    share a candidate, it goes to a Result that is named after it, or else to one with ``output_names``. The
    others get their next candidate or, if all are taken, their first one with ``_1``, ``_2``, ... appended.
    """
    results = model.outputs
    bases = [_SINK.sub("", layer.name) for layer in results]
    candidates = [_list_claims(model, layer) for layer in results]
    claims = [
        (*sorted(names, key=lambda name: (name != base, name)), base, layer.name)
        for names, base, layer in zip(candidates, bases, results, strict=True)
    ]
    used: set[str] = set()
    names: dict[int, str] = {}
    for position in sorted(
        range(len(results)), key=lambda at: (bases[at] not in candidates[at], not results[at].output_names)
    ):
        free = next((name for name in claims[position] if name not in used), None)
        suffix = 0
        while free is None:
            suffix += 1
            name = f"{claims[position][0]}_{suffix}"
            free = None if name in used else name
        used.add(free)
        names[position] = free
    return tuple(names[position] for position in range(len(results)))


def _list_claims(model: OpenVINOModel, result: Layer) -> Collection[str]:
    if result.output_names:
        return result.output_names
    end = model.graph.get_sources(result)[0]
    layer = model.graph.by_id[end.layer]
    port = layer.find_output(end.port)
    assert port is not None
    names = set(port.names)
    if model.version == 10:
        names.add(layer.name if len(layer.outputs) == 1 else f"{layer.name}.{layer.outputs.index(port)}")
    return names
