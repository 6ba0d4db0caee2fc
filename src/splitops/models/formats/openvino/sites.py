"""The split layers of a model, as every model tool sees them."""

from __future__ import annotations

from collections.abc import Iterator

from splitops.errors import Where
from splitops.models.formats.openvino.model import Endpoint, Graph, Layer, OpenVINOModel
from splitops.models.formats.openvino.splits import split_attributes, split_schema
from splitops.models.site import SplitSite
from splitops.operators import FAMILY

__all__ = ["endpoint_name", "input_names", "output_names", "sites"]


def sites(model: OpenVINOModel) -> Iterator[SplitSite]:
    """Yield every Split and VariadicSplit, in topological order, those in the bodies of layers included.

    Each has its :class:`~splitops.models.formats.openvino.model.Layer` as ``node``; values are named by
    :func:`endpoint_name`.

    Raises:
        ModelError: an attribute is not an integer, or a version is not an operation set.
    """
    for path, graph in model.graphs():
        for layer in graph.order:
            if layer.type in FAMILY["openvino"]:
                yield _site(model, path, graph, layer)


def _site(model: OpenVINOModel, path: str | None, graph: Graph, layer: Layer) -> SplitSite:
    where = Where(model.file, path, layer.name)
    outputs = (Endpoint(layer.id, port.id) for port in layer.outputs)
    return SplitSite(
        schema=split_schema(layer, where),
        attributes=split_attributes(layer, where),
        inputs=tuple(endpoint_name(graph, end) for end in graph.sources(layer)),
        outputs=tuple(endpoint_name(graph, end) if end in graph.consumers else "" for end in outputs),
        where=where,
        node=layer,
    )


def endpoint_name(graph: Graph, end: Endpoint) -> str:
    """Return a name for the value of an output port: its least tensor name, else the layer's name and the
    port.
    """
    layer = graph.by_id[end.layer]
    port = layer.output(end.port)
    if port is not None and port.names:
        return min(port.names)
    return layer.name if len(layer.outputs) == 1 else f"{layer.name}:{end.port}"


def input_names(model: OpenVINOModel) -> tuple[str, ...]:
    """Return the name of each input of a model: its least tensor name, else the name of its layer."""
    return tuple(
        min((name for port in layer.outputs for name in port.names), default=layer.name)
        for layer in model.inputs
    )


def output_names(model: OpenVINOModel) -> tuple[str, ...]:
    """Return the name of each output of a model, unique in it.

    It is OpenVINO's own (``Output.any_name``): the least of the Result's ``output_names``, where it has none
    the least tensor name of the port that it takes, where that has none the name of the Result layer. IR
    version 10 adds the name of the layer that gives the value, as OpenVINO does. Where several outputs
    claim a name, a Result that states it itself comes first; the other ones take their next name, at last
    the name with ``_1``, ``_2`` and so on behind it.
    """
    results = model.outputs
    claims = [(*_claims(model, layer), layer.name) for layer in results]
    taken: set[str] = set()
    names: dict[int, str] = {}
    for position in sorted(range(len(results)), key=lambda at: not results[at].output_names):
        free = next((name for name in claims[position] if name not in taken), None)
        suffix = 0
        while free is None:
            suffix += 1
            name = f"{claims[position][0]}_{suffix}"
            free = None if name in taken else name
        taken.add(free)
        names[position] = free
    return tuple(names[position] for position in range(len(results)))


def _claims(model: OpenVINOModel, result: Layer) -> list[str]:
    if result.output_names:
        return sorted(result.output_names)
    end = model.graph.sources(result)[0]
    layer = model.graph.by_id[end.layer]
    port = layer.output(end.port)
    assert port is not None
    names = set(port.names)
    if model.version == 10:
        names.add(layer.name if len(layer.outputs) == 1 else f"{layer.name}.{layer.outputs.index(port)}")
    return sorted(names)
