"""Writes what a walk has found into the ports of an OpenVINO model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from splitops.models.formats.openvino.model import Endpoint, Graph, Layer, OpenVINOModel, Port
from splitops.models.known import Tensor

Values = Mapping[tuple[str | None, Endpoint], Tensor]


def with_shapes(model: OpenVINOModel, values: Values) -> OpenVINOModel:
    """Return the model with the dimensions of its ports stated: -1 where one is not exact.

    Ports cannot state intervals; those stay in the ``shape`` of Parameter layers, which are not changed.
    """
    return model.with_graph(_graph(model.graph, None, values))


def _graph(graph: Graph, path: str | None, values: Values) -> Graph:
    return replace(graph, layers=tuple(_layer(graph, layer, path, values) for layer in graph.layers))


def _layer(graph: Graph, layer: Layer, path: str | None, values: Values) -> Layer:
    sources = zip(layer.inputs, graph.sources(layer), strict=True)
    inputs = tuple(_port(port, values.get((path, source))) for port, source in sources)
    outputs = tuple(_port(port, values.get((path, Endpoint(layer.id, port.id)))) for port in layer.outputs)
    bodies = tuple(
        (tag, _graph(body, f"{layer.name}/{tag}" if path is None else f"{path}/{layer.name}/{tag}", values))
        for tag, body in layer.bodies
    )
    return replace(layer, inputs=inputs, outputs=outputs, bodies=bodies)


def _port(port: Port, known: Tensor | None) -> Port:
    if known is None or known.shape is None:
        return port
    precision = known.type.precision if known.type is not None and known.type.precision else port.precision
    dims = tuple(size if isinstance(size, int) else -1 for size in known.shape)
    return replace(port, dims=dims, precision=precision)
