"""OpenVINO models as onnx-ir graphs, so that what rewrites one format rewrites the other.

Each layer is a node of the domain ``openvino`` that carries the :class:`Layer` it stands for, each output
port a value that carries its :class:`Port`. The inputs of the nodes are the edges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Final

import onnx_ir as ir

from splitops.models.formats.openvino.model import Edge, Endpoint, Graph, Layer, OpenVINOModel, Port
from splitops.models.formats.openvino.sites import endpoint_name
from splitops.models.graph.fusions import grows, may_be_fused
from splitops.models.graph.onnx import note
from splitops.models.known import Known
from splitops.spec.sizes.dims import Shape

DOMAIN: Final = "openvino"
_NEGATIVES: Final = frozenset({"Negative", "Multiply", "Subtract"})
_PARTING: Final = frozenset({"Slice", "Split", "VariadicSplit"})
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


ShapeOf = Callable[[str | None, str], Shape | None]
"""The shape of a value, by the path of its graph and its name; None where it is not known."""


def layers_may_be_fused(model: OpenVINOModel, shape_of: ShapeOf = lambda *_: None) -> bool:
    """Return whether anything in a model looks like what OpenVINO fuses wrongly with a split.

    Args:
        model: the model.
        shape_of: the shapes that are known of its values: they tell most patterns from those that are right.
    """

    def makers(graph: Graph, layer: Layer) -> list[Layer | None]:
        return [graph.by_id[source.layer] for source in graph.sources(layer)]

    return any(
        may_be_fused(
            graph.layers, attrgetter("type"), partial(makers, graph), _Harmless(graph, path, shape_of)
        )
        for path, graph in model.graphs()
    )


class _Harmless:
    """Tells by sizes which rotary embeddings and Slices OpenVINO gets right."""

    def __init__(self, graph: Graph, path: str | None, shape_of: ShapeOf) -> None:
        self.graph = graph
        self._path = path
        self._shape_of = shape_of

    def __call__(self, layer: Layer) -> bool:
        if layer.type == "Slice":
            shape = self._shape(Endpoint(layer.id, layer.outputs[0].id))
            return shape is not None and 0 not in shape  # one that ends before it starts is empty
        return layer.type == "Concat" and self._turns_whole_rows(layer)

    def _shape(self, end: Endpoint) -> Shape | None:
        return self._shape_of(self._path, endpoint_name(self.graph, end))

    def _turns_whole_rows(self, join: Layer) -> bool:
        """Return whether a Concat is one of two halves, and is multiplied with tables of whole rows only."""
        graph, ends = self.graph, self.graph.sources(join)
        first = graph.by_id[ends[0].layer]
        if len(ends) != 2 or first.type not in _NEGATIVES:
            return False
        halves = [end for end in (*graph.sources(first), ends[1]) if graph.by_id[end.layer].type in _PARTING]
        data = {graph.sources(graph.by_id[end.layer])[0] for end in halves}
        shape = self._shape(next(iter(data))) if len(data) == 1 and len(halves) == 2 else None
        sizes = {made[-1] if (made := self._shape(end)) else None for end in halves}
        half = next(iter(sizes)) if len(sizes) == 1 else None
        if not shape or not isinstance(half, int) or shape[-1] != 2 * half:
            return False
        (source,) = data
        for product in self._readers(join, "Multiply"):
            for total in self._readers(product, "Add"):
                summands = [graph.by_id[end.layer] for end in graph.sources(total)]
                tables = [
                    end
                    for summand in summands
                    for end in (graph.sources(summand) if summand.type == "Multiply" else ())
                    if end != source and end.layer != join.id
                ]
                for table in tables:  # as RoPEFusion reads them: see _rotated in fusions
                    found = self._shape(table)
                    if not found or found[-1] != shape[-1] or grows(shape, found):
                        return False
        return True

    def _readers(self, layer: Layer, kind: str) -> Iterator[Layer]:
        for port in layer.outputs:
            for target in self.graph.consumers.get(Endpoint(layer.id, port.id), ()):
                reader = self.graph.by_id[target.layer]
                if reader.type == kind:
                    yield reader


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
