"""OpenVINO models as onnx-ir graphs, so that what rewrites one format rewrites the other.

Each layer is a node of the domain ``openvino`` that carries the :class:`Layer` it stands for, each output
port a value that carries its :class:`Port`. The inputs of the nodes are the edges.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import onnx_ir as ir

from splitops.errors import NOWHERE, SplitError
from splitops.models.formats.openvino.model import Edge, Endpoint, Graph, Layer, OpenVINOModel, Port
from splitops.models.formats.openvino.sites import endpoint_name
from splitops.models.graph.around import NAMES, FactOf, may_be_fused, only_number
from splitops.models.graph.onnx import note
from splitops.models.known import Known, Tensor
from splitops.spec.sizes.dims import UNKNOWN

DOMAIN: Final = "openvino"
_NUMBER: Final = 8
"""No number has more bytes."""
_LAYER: Final = "splitops.layer"
_PORT: Final = "splitops.port"


def layer_of(node: ir.Node) -> Layer:
    """Return the layer that a node stands for; its edges are the node's inputs."""
    layer: Layer = node.meta[_LAYER]
    return layer


def port_of(value: ir.Value) -> Port:
    """Return the port that a value stands for."""
    port: Port = value.meta[_PORT]
    return port


def restate(node: ir.Node, layer: Layer) -> None:
    """Let a node stand for another layer."""
    node.meta[_LAYER] = layer
    node.name = layer.name
    for value, port in zip(node.outputs, layer.outputs, strict=True):
        value.meta[_PORT] = port


def make_node(layer: Layer, inputs: list[ir.Value], names: list[str]) -> ir.Node:
    """Return a node for a layer.

    Args:
        layer: the layer.
        inputs: what feeds its input ports.
        names: a name for the value of each output port.
    """
    outputs = []
    for name, port in zip(names, layer.outputs, strict=True):
        outputs.append(ir.Value(name=name))
        outputs[-1].meta[_PORT] = port
    bodies = [ir.AttrGraph(tag, _to_graph(body)) for tag, body in layer.bodies]
    node = ir.Node(DOMAIN, layer.type, inputs, bodies, outputs=outputs, name=layer.name)
    node.meta[_LAYER] = layer
    return node


def to_nodes(model: OpenVINOModel) -> ir.Model:
    """Return a model as a graph of nodes in topological order."""
    return ir.Model(_to_graph(model.graph), ir_version=model.version)


def _to_graph(graph: Graph) -> ir.Graph:
    values: dict[Endpoint, ir.Value] = {}
    nodes = []
    for layer in graph.order:
        ends = [Endpoint(layer.id, port.id) for port in layer.outputs]
        inputs = [values[source] for source in graph.sources(layer)]
        node = make_node(layer, inputs, [endpoint_name(graph, end) for end in ends])
        values.update(zip(ends, node.outputs, strict=True))
        nodes.append(node)
    return ir.Graph([], [], nodes=nodes, name=graph.name)


def graphs_inside(graph: ir.Graph, path: str | None = None) -> Iterator[tuple[str | None, ir.Graph]]:
    """Yield a graph and those inside its nodes, each with its path as the split nodes of models name it."""
    yield path, graph
    for node in graph:
        for tag, attribute in node.attributes.items():
            inner = f"{node.name}/{tag}"
            yield from graphs_inside(attribute.as_graph(), inner if path is None else f"{path}/{inner}")


def layers_may_be_fused(model: OpenVINOModel, facts: FactOf = lambda *_: None) -> bool:
    """Return whether anything in a model looks like what OpenVINO fuses wrongly with a split.

    Args:
        model: the model.
        facts: what is known of its values: the sizes tell most patterns from those that are right.
    """
    return any(may_be_fused(graph.layers, _Layers(graph, path, facts)) for path, graph in model.graphs())


class _Layers:
    """What is around the layers of a graph."""

    def __init__(self, graph: Graph, path: str | None, facts: FactOf) -> None:
        self._graph = graph
        self._path = path
        self._facts = facts
        self._sources: dict[int, Sequence[Endpoint]] = {}

    def name(self, node: Layer) -> str:
        return NAMES.get(node.type, node.type)

    def sources(self, node: Layer) -> Sequence[Endpoint]:
        if node.id not in self._sources:
            self._sources[node.id] = self._graph.sources(node)
        return self._sources[node.id]

    def maker(self, value: Endpoint) -> Layer:
        return self._graph.by_id[value.layer]

    def readers(self, node: Layer) -> Iterator[Layer]:
        for port in node.outputs:
            for target in self._graph.consumers.get(Endpoint(node.id, port.id), ()):
                yield self._graph.by_id[target.layer]

    def fact(self, value: Endpoint) -> Known:
        found = self._facts(self._path, endpoint_name(self._graph, value))
        if found is not None:
            return found
        port = self._graph.by_id[value.layer].output(value.port)
        dims = () if port is None else tuple(UNKNOWN if dim < 0 else dim for dim in port.dims)
        return Tensor(None if port is None else port.element_type, dims or None)

    def number(self, value: Endpoint) -> float | None:
        constant = self._graph.by_id[value.layer].constant
        try:
            return (
                None if constant is None or constant.size > _NUMBER else only_number(constant.array(NOWHERE))
            )
        except SplitError:
            return None

    def keeps_places(self, node: Layer) -> bool:
        return True

    def outputs(self, node: Layer) -> Sequence[Endpoint]:
        return [Endpoint(node.id, port.id) for port in node.outputs]


def note_found(graph: ir.Graph, found: Mapping[tuple[str | None, Endpoint], Known]) -> None:
    """Note at every value of a graph what is known of it, by graph path and port."""
    for path, inner in graphs_inside(graph):
        for node in inner:
            for value in node.outputs:
                note(value, found[path, Endpoint(layer_of(node).id, port_of(value).id)])


def from_nodes(model: ir.Model, original: OpenVINOModel) -> OpenVINOModel:
    """Return the model that nodes stand for now.

    Args:
        model: the nodes.
        original: the model that they were made of; its layers keep their order and ids, new ones come last.
    """
    return original.with_graph(_from_graph(model.graph, original.graph))


def _from_graph(nodes: ir.Graph, original: Graph) -> Graph:
    ends = {
        output: Endpoint(layer_of(node).id, port.id)
        for node in nodes
        for output, port in zip(node.outputs, layer_of(node).outputs, strict=True)
    }
    layers: dict[int, Layer] = {}
    sources: dict[Endpoint, Endpoint] = {}
    for node in nodes:
        layer = layer_of(node)
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
    targets = dict.fromkeys(edge.target for edge in original.edges if edge.target in sources) | sources
    made = tuple(layers[id_] for id_ in order)
    edges = tuple(Edge(sources[target], target) for target in targets)
    unchanged = edges == original.edges and all(
        new is old for new, old in zip(made, original.layers, strict=False)
    )
    return (
        original
        if unchanged and len(made) == len(original.layers)
        else replace(original, layers=made, edges=edges)
    )
