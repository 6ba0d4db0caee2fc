"""The split layers of a model, as every model tool sees them."""

from __future__ import annotations

from collections.abc import Iterator

from splitops.errors import Where
from splitops.models.openvino_ir.layers import split_attributes, split_schema
from splitops.models.openvino_ir.model import Endpoint, Graph, Layer, OpenVINOModel
from splitops.models.site import SplitSite
from splitops.operators import FAMILY

__all__ = ["endpoint_name", "sites"]


def sites(model: OpenVINOModel) -> Iterator[SplitSite]:
    """Yield every Split and VariadicSplit, in topological order, those in the bodies of layers included.

    Each has its :class:`~splitops.models.openvino_ir.model.Layer` as ``node``; values are named by
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
