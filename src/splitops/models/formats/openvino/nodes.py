"""Convert OpenVINO models to onnx-ir graphs and back, so that the same tools work on both formats.

Each layer is a node of the domain ``openvino`` that keeps its :class:`Layer`. Each output port is a value
that keeps its :class:`Port`. The edges are the inputs of the nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import is_
from typing import Final

import onnx_ir as ir

from splitops.models.formats.openvino.model import Edge, Endpoint, Graph, Layer, OpenVINOModel, Port
from splitops.models.formats.openvino.names import make_output_names, make_port_name

DOMAIN: Final = "openvino"
SOURCE: Final = "splitops.source"
"""Key in the ``meta`` of a model: the OpenVINO model from which it was converted."""


class PortValue(ir.Value):
    """An onnx-ir value for the output of a layer at ``port``."""

    __slots__ = ("port",)

    port: Port


class LayerNode(ir.Node):
    """The node of a layer. Its inputs are the edges to the layer, and its graph attributes are the bodies."""

    __slots__ = ("layer",)

    def __init__(self, layer: Layer, inputs: Sequence[ir.Value], names: Sequence[str]) -> None:
        bodies = [ir.AttrGraph(tag, _to_graph(body)) for tag, body in layer.bodies] if layer.bodies else ()
        outputs = []
        for name, port in zip(names, layer.outputs, strict=True):
            outputs.append(value := PortValue(name=name))
            value.port = port
        super().__init__(DOMAIN, layer.type, inputs, bodies, outputs=outputs, name=layer.name)
        self.layer = layer


def get_layer(node: ir.Node) -> Layer:
    """Return the layer of a node. An edit changes the inputs of the node, but not the layer's input ports."""
    assert type(node) is LayerNode
    return node.layer


def get_port(value: ir.Value) -> Port:
    """Return the output port that a value represents."""
    assert type(value) is PortValue
    return value.port


def set_layer(node: ir.Node, layer: Layer) -> None:
    """Replace the layer of a node with another one that has the same number of outputs."""
    assert type(node) is LayerNode
    node.layer = layer
    node.name = layer.name
    for value, port in zip(node.outputs, layer.outputs, strict=True):
        assert type(value) is PortValue
        value.port = port


def to_nodes(model: OpenVINOModel) -> ir.Model:
    """Convert a model to onnx-ir, with the nodes in topological order."""
    converted = ir.Model(_to_graph(model.graph), ir_version=model.version)
    converted.meta[SOURCE] = model
    return converted


def _to_graph(graph: Graph) -> ir.Graph:
    values: dict[tuple[int, int], ir.Value] = {}
    producers = graph.producers
    nodes: list[ir.Node] = []
    for layer in graph.order:
        id_ = layer.id
        inputs = [values[producers[id_, port.id]] for port in layer.inputs]  # type: ignore[index]
        ports = layer.outputs
        node = LayerNode(layer, inputs, [make_port_name(layer, port) for port in ports])
        values.update(zip([(id_, port.id) for port in ports], node.outputs, strict=True))
        nodes.append(node)
    return ir.Graph([], [], nodes=nodes, name=graph.name)


def get_source(model: ir.Model) -> OpenVINOModel:
    """Return the OpenVINO model from which ``model`` was converted."""
    source: OpenVINOModel = model.meta[SOURCE]
    return source


def get_output_values(model: ir.Model) -> dict[str, ir.Value]:
    """Return the value of each output of a model, in order, keyed by the name of the output in the source."""
    source = get_source(model)
    values = {get_layer(node).id: node.inputs[0] for node in model.graph if node.op_type == "Result"}
    named = zip(make_output_names(source), source.outputs, strict=True)
    return {name: value for name, layer in named if (value := values[layer.id]) is not None}


def from_nodes(model: ir.Model) -> OpenVINOModel:
    """Convert an edited model back to OpenVINO. Layers keep their order and ids; new layers come last."""
    original = get_source(model)
    return original.with_graph(_from_graph(model.graph, original.graph))


def _from_graph(nodes: ir.Graph, original: Graph) -> Graph:
    layers: dict[int, Layer] = {}
    sources: dict[Endpoint, Endpoint] = {}
    ends: dict[ir.Value, Endpoint] = {}
    for node in nodes:
        layer = get_layer(node)
        ends.update((value, Endpoint(layer.id, get_port(value).id)) for value in node.outputs)
        ports = []
        # A node may have fewer inputs than its layer had. A port with the same source keeps its declaration.
        for port, value in zip(layer.inputs, node.inputs, strict=False):
            assert value is not None
            target = Endpoint(layer.id, port.id)
            sources[target] = ends[value]
            fed = original.producers.get(target) == ends[value]
            ports.append(port if fed else Port(port.id, get_port(value).precision, get_port(value).dims))
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
