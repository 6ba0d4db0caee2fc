"""OpenVINO models as onnx-ir graphs, so that what reads and rewrites one format does so to the other.

Each layer is a node of the domain ``openvino`` that knows the :class:`Layer` it stands for, each output port
a value that knows its :class:`Port`. The inputs of the nodes are the edges.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import is_
from typing import Final

import onnx_ir as ir

from splitops.models.formats.openvino.model import Edge, Endpoint, Graph, Layer, OpenVINOModel, Port
from splitops.models.formats.openvino.names import output_names, port_name

DOMAIN: Final = "openvino"
SOURCE: Final = "splitops.source"
"""Where a model keeps the OpenVINO model that its nodes were made of."""


class PortValue(ir.Value):
    """The value of an output port."""

    __slots__ = ("port",)

    port: Port


class LayerNode(ir.Node):
    """The node of a layer; its inputs are the layer's edges, and its graphs the layer's bodies."""

    __slots__ = ("layer",)

    def __init__(self, layer: Layer, inputs: Sequence[ir.Value], names: Sequence[str]) -> None:
        bodies = [ir.AttrGraph(tag, _to_graph(body)) for tag, body in layer.bodies] if layer.bodies else ()
        outputs = []
        for name, port in zip(names, layer.outputs, strict=True):
            outputs.append(value := PortValue(name=name))
            value.port = port
        super().__init__(DOMAIN, layer.type, inputs, bodies, outputs=outputs, name=layer.name)
        self.layer = layer


def layer_of(node: ir.Node) -> Layer:
    """Return the layer that a node stands for; its edges are the node's inputs."""
    assert type(node) is LayerNode
    return node.layer


def port_of(value: ir.Value) -> Port:
    """Return the port that a value stands for."""
    assert type(value) is PortValue
    return value.port


def set_layer(node: ir.Node, layer: Layer) -> None:
    """Let a node stand for another layer."""
    assert type(node) is LayerNode
    node.layer = layer
    node.name = layer.name
    for value, port in zip(node.outputs, layer.outputs, strict=True):
        assert type(value) is PortValue
        value.port = port


def to_nodes(model: OpenVINOModel) -> ir.Model:
    """Return a model as a graph of nodes in topological order."""
    made = ir.Model(_to_graph(model.graph), ir_version=model.version)
    made.meta[SOURCE] = model
    return made


def _to_graph(graph: Graph) -> ir.Graph:
    values: dict[tuple[int, int], ir.Value] = {}
    producers = graph.producers
    nodes: list[ir.Node] = []
    for layer in graph.order:
        id_ = layer.id
        inputs = [values[producers[id_, port.id]] for port in layer.inputs]  # type: ignore[index]
        ports = layer.outputs
        node = LayerNode(layer, inputs, [port_name(layer, port) for port in ports])
        values.update(zip([(id_, port.id) for port in ports], node.outputs, strict=True))
        nodes.append(node)
    return ir.Graph([], [], nodes=nodes, name=graph.name)


def source_of(model: ir.Model) -> OpenVINOModel:
    """Return the model that layers were made nodes of."""
    source: OpenVINOModel = model.meta[SOURCE]
    return source


def output_values(model: ir.Model) -> dict[str, ir.Value]:
    """Return the value of each output of a model by its name, which no rewrite changes, in their order."""
    source = source_of(model)
    given = {layer_of(node).id: node.inputs[0] for node in model.graph if node.op_type == "Result"}
    found = {name: given[layer.id] for name, layer in zip(output_names(source), source.outputs, strict=True)}
    return {name: value for name, value in found.items() if value is not None}


def from_nodes(model: ir.Model) -> OpenVINOModel:
    """Return the model that nodes stand for now; its layers keep their order and ids, new ones come last."""
    original = source_of(model)
    return original.with_graph(_from_graph(model.graph, original.graph))


def _from_graph(nodes: ir.Graph, original: Graph) -> Graph:
    layers: dict[int, Layer] = {}
    sources: dict[Endpoint, Endpoint] = {}
    ends: dict[ir.Value, Endpoint] = {}
    for node in nodes:
        layer = layer_of(node)
        ends.update((value, Endpoint(layer.id, port_of(value).id)) for value in node.outputs)
        ports = []
        # A node may read less than its layer did; a port that is fed as it was declares what it did.
        for port, value in zip(layer.inputs, node.inputs, strict=False):
            assert value is not None
            target = Endpoint(layer.id, port.id)
            sources[target] = ends[value]
            fed = original.producers.get(target) == ends[value]
            ports.append(port if fed else Port(port.id, port_of(value).precision, port_of(value).dims))
        bodies = tuple(
            (tag, _from_graph(node.attributes[tag].as_graph(), body)) for tag, body in layer.bodies
        )
        changed = tuple(ports) != layer.inputs or any(
            new is not old for (_, new), (_, old) in zip(bodies, layer.bodies, strict=True)
        )
        layers[layer.id] = replace(layer, inputs=tuple(ports), bodies=bodies) if changed else layer
    order = dict.fromkeys(layer.id for layer in original.layers if layer.id in layers) | layers
    made = tuple(layers[id_] for id_ in order)
    edges = original.edges
    if sources != original.producers:
        targets = dict.fromkeys(edge.target for edge in edges if edge.target in sources) | sources
        edges = tuple(Edge(sources[target], target) for target in targets)
    elif len(made) == len(original.layers) and all(map(is_, made, original.layers)):
        return original
    return replace(original, layers=made, edges=edges)
