"""The names of the values, inputs and outputs of a model."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from splitops.models.formats.openvino.model import Layer, OpenVINOModel, Port


def port_name(layer: Layer, port: Port) -> str:
    """Return a name for the value of an output port: its least tensor name, else the layer's name and the
    port.
    """
    if port.names:
        return min(port.names)
    return layer.name if len(layer.outputs) == 1 else f"{layer.name}:{port.id}"


_SINK: Final = re.compile(r"/sink_port_\d+$")
"""What OpenVINO appends to the name of an output, for the layer."""


def input_names(model: OpenVINOModel) -> tuple[str, ...]:
    """Return the name of each input of a model: its layer's, unless all tensor names are others.

    Then it is the least tensor name. OpenVINO adds those of casts and the like that it leaves out.
    """
    return tuple(
        min(_names(layer.outputs), key=lambda name: (name != layer.name, name), default=layer.name)
        for layer in model.inputs
    )


def _names(ports: Sequence[Port]) -> Iterator[str]:
    return (name for port in ports for name in port.names)


def output_names(model: OpenVINOModel) -> tuple[str, ...]:
    """Return the name of each output of a model, unique in it.

    A Result has the names of its ``output_names``, where it has none those of the port that it takes. IR
    version 10 adds the name of the layer that gives the value, as OpenVINO does. Of several names it is the
    one that the Result is named after (``y`` of ``y/sink_port_0``), else the least, as OpenVINO's
    ``Output.any_name`` is. Where several outputs claim a name, a Result that is named after it comes first,
    then one that declares it itself. The others take their next name, then the one they are named after, then
    that of their layer, at last their first one with ``_1``, ``_2`` and so on behind it.
    """
    results = model.outputs
    own = [_SINK.sub("", layer.name) for layer in results]
    found = [_claims(model, layer) for layer in results]
    claims = [
        (*sorted(names, key=lambda name: (name != mine, name)), mine, layer.name)
        for names, mine, layer in zip(found, own, results, strict=True)
    ]
    taken: set[str] = set()
    names: dict[int, str] = {}
    for position in sorted(
        range(len(results)), key=lambda at: (own[at] not in found[at], not results[at].output_names)
    ):
        free = next((name for name in claims[position] if name not in taken), None)
        suffix = 0
        while free is None:
            suffix += 1
            name = f"{claims[position][0]}_{suffix}"
            free = None if name in taken else name
        taken.add(free)
        names[position] = free
    return tuple(names[position] for position in range(len(results)))


def _claims(model: OpenVINOModel, result: Layer) -> Collection[str]:
    if result.output_names:
        return result.output_names
    end = model.graph.sources(result)[0]
    layer = model.graph.by_id[end.layer]
    port = layer.output(end.port)
    assert port is not None
    names = set(port.names)
    if model.version == 10:
        names.add(layer.name if len(layer.outputs) == 1 else f"{layer.name}.{layer.outputs.index(port)}")
    return names
