"""Edits of one OpenVINO graph: layers and edges that change, and what is known of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from splitops.dims import Dim
from splitops.dtypes import ELEMENT_TYPES, ElementType
from splitops.errors import Where
from splitops.models.convert.statement import describe_site, stated
from splitops.models.infer.knowledge import Tensor
from splitops.models.openvino_ir import Constant, Edge, Endpoint, Graph, Layer, Port
from splitops.models.openvino_ir.layers import SPLIT_FAMILY
from splitops.models.simplify.decisions import Cut, shortest
from splitops.models.simplify.report import Applied
from splitops.operators import schema
from splitops.operators.schema import SizeRule

__all__ = ["GraphEditor"]


class GraphEditor:
    """A graph that is being rewritten.

    Attributes:
        layers: the layers by id, in the order of the file.
        sources: the output port that feeds each input port.
        readers: the input ports that each output port feeds, in order.
        known: what is known of each output port.
        cuts: what each split does, of those that are known before the model runs.
        changes: what was rewritten.
    """

    def __init__(
        self,
        graph: Graph,
        known: Mapping[Endpoint, Tensor],
        cuts: Mapping[int, Cut],
        where: Where,
        version: int,
    ) -> None:
        self.layers = {layer.id: layer for layer in graph.layers}
        self.sources = dict(graph.producers)
        self.readers: dict[Endpoint, dict[Endpoint, None]] = {
            source: dict.fromkeys(targets) for source, targets in graph.consumers.items()
        }
        self.known = dict(known)
        self.cuts = dict(cuts)
        self.changes: list[Applied] = []
        self.version = version
        self.looks = 0
        self._graph = graph
        self._where = where
        self._next = max(self.layers, default=-1) + 1
        self.queue: dict[int, None] = dict.fromkeys(layer.id for layer in graph.order)

    def finished(self) -> Graph:
        """Return the graph as it is now.

        Raises:
            ModelError: it is not whole, which no rewrite makes it.
        """
        edges = tuple(Edge(source, target) for target, source in self.sources.items())
        return replace(self._graph, layers=tuple(self.layers.values()), edges=edges)

    # What stands in the graph

    def where(self, layer: Layer) -> Where:
        """Return the place of a layer."""
        return replace(self._where, node=layer.name)

    def inputs(self, layer: Layer) -> list[Endpoint]:
        """Return the output ports that feed a layer."""
        return [self.sources[Endpoint(layer.id, port.id)] for port in layer.inputs]

    def outputs(self, layer: Layer) -> list[Endpoint]:
        """Return the output ports of a layer."""
        return [Endpoint(layer.id, port.id) for port in layer.outputs]

    def is_read(self, end: Endpoint) -> bool:
        """Return whether anything reads an output port."""
        return bool(self.readers.get(end))

    def is_result(self, end: Endpoint) -> bool:
        """Return whether an output port is an output of the graph: its names are that output's."""
        return any(self.layers[reader.layer].type == "Result" for reader in self.readers.get(end, ()))

    def split_of(self, end: Endpoint) -> tuple[int, int] | None:
        """Return the split that gives a value, and the position of the part."""
        layer = self.layers[end.layer]
        if layer.type not in SPLIT_FAMILY or layer.id not in self.cuts:
            return None
        return layer.id, [port.id for port in layer.outputs].index(end.port)

    def describe(self, layer: Layer) -> str:
        """Write what a layer is in one line."""
        cut = self.cuts.get(layer.id)
        if cut is None:
            axis = layer.attribute("axis")
            return layer.type if axis is None else f"{layer.type}(axis={axis})"
        row = schema(layer.type, domain="openvino")
        return describe_site(row, cut.axis, cut.division, len(layer.outputs))

    # Changes

    def applied(self, rewrite: str, where: Where, before: str, after: str, reason: str) -> None:
        """Report a rewrite."""
        self.changes.append(Applied(rewrite, where, before, after, reason))

    def connect(self, target: Endpoint, source: Endpoint) -> None:
        """Let an input port read an output port."""
        before = self.sources.get(target)
        if before is not None:
            self.readers[before].pop(target)
            self.look_again(before.layer)
        self.sources[target] = source
        self.readers.setdefault(source, {})[target] = None
        self.look_again(source.layer)
        self.look_again(target.layer)

    def look_again(self, layer: int) -> None:
        """Put a layer into the queue."""
        if layer in self.layers:
            self.queue[layer] = None

    def replace(self, old: Endpoint, new: Endpoint) -> None:
        """Let all that reads an output port read another one, which is equal."""
        for target in list(self.readers.get(old, ())):
            self.connect(target, new)

    def set_inputs(self, layer: Layer, ends: Sequence[Endpoint]) -> None:
        """Give a layer other inputs, of the same element types; the ids of its output ports stay."""
        ports = tuple(self._port(port.id, end) for port, end in zip(layer.inputs, ends, strict=False))
        for port in layer.inputs[len(ends) :]:
            target = Endpoint(layer.id, port.id)
            self.readers[self.sources.pop(target)].pop(target)
        self.layers[layer.id] = replace(layer, inputs=ports)
        for port, end in zip(ports, ends, strict=True):
            self.connect(Endpoint(layer.id, port.id), end)

    def remove(self, layer: Layer) -> None:
        """Remove a layer that nobody reads, and the constants that it alone has read."""
        del self.layers[layer.id]
        self.queue.pop(layer.id, None)
        self.cuts.pop(layer.id, None)
        for port in layer.inputs:
            target = Endpoint(layer.id, port.id)
            source = self.sources.pop(target)
            self.readers[source].pop(target)
            origin = self.layers.get(source.layer)
            if origin is None:
                continue
            self.look_again(origin.id)
            if origin.type == "Const" and not any(map(self.is_read, self.outputs(origin))):
                self.remove(origin)

    def constant(
        self, array: npt.NDArray[Any], element_type: ElementType, name: str, names: tuple[str, ...] = ()
    ) -> Endpoint:
        """Add a constant."""
        port = Port(0, element_type.precision, tuple(array.shape), names)
        content = Constant.of(array, element_type)
        layer = Layer(self._next, name, "Const", "opset1", {}, (), (port,), content)
        self._next += 1
        self.layers[layer.id] = layer
        end = Endpoint(layer.id, 0)
        self.known[end] = Tensor(element_type, array.shape)
        return end

    def split(
        self,
        like: Layer,
        data: Endpoint,
        cut: Cut,
        sizes: Sequence[int],
        names: Sequence[tuple[str, ...]],
    ) -> Layer:
        """Add a split in the place of another one, stated as shortly as OpenVINO can.

        Args:
            like: the layer whose name and runtime information it takes over.
            data: what is split.
            cut: axis, rank and size.
            sizes: the parts.
            names: the tensor names of each.
        """
        row = schema("Split", domain="openvino")
        division = shortest(row, sizes, cut.size)
        if division.rule is SizeRule.EXPLICIT:
            row = schema("VariadicSplit", domain="openvino")
        attributes, facts = stated(row, cut.axis, division)
        int64 = ELEMENT_TYPES["int64"]
        ends = [data]
        for index, fact in enumerate(facts):
            if index and fact is not None:
                name = f"{like.name}/{row.inputs[index].name}"
                ends.append(self.constant(np.array(fact.value, np.int64), int64, name))
        kind = like.outputs[0].precision
        found = self.known.get(data, Tensor())
        shapes = [self._shape(found, cut.axis, size) for size in sizes]
        layer = Layer(
            self._next,
            like.name,
            row.name,
            "opset1",
            {name: str(value) for name, value in attributes.items()},
            tuple(self._port(index, end) for index, end in enumerate(ends)),
            tuple(
                Port(len(ends) + index, kind, _dims(shape), own)
                for index, (shape, own) in enumerate(zip(shapes, names, strict=True))
            ),
            children=like.children,
        )
        self._next += 1
        self.layers[layer.id] = layer
        for index, end in enumerate(ends):
            self.connect(Endpoint(layer.id, index), end)
        for end, shape in zip(self.outputs(layer), shapes, strict=True):
            self.known[end] = replace(found, shape=shape, value=None)
        self.cuts[layer.id] = Cut(cut.axis, cut.rank, cut.size, division, tuple(sizes))
        self.look_again(layer.id)
        return layer

    def _port(self, index: int, end: Endpoint) -> Port:
        port = self.layers[end.layer].output(end.port)
        assert port is not None
        return Port(index, port.precision, port.dims)

    @staticmethod
    def _shape(found: Tensor, axis: int, size: int) -> tuple[Dim, ...] | None:
        if found.shape is None:
            return None
        return (*found.shape[:axis], size, *found.shape[axis + 1 :])


def _dims(shape: tuple[Dim, ...] | None) -> tuple[int, ...]:
    return tuple(dim if isinstance(dim, int) else -1 for dim in shape or ())
