"""Layers that OpenVINO runs: connected regions of them become models of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from splitops.errors import Where
from splitops.models.engines.emptiness import EmptyTensorError, takes_empty_list
from splitops.models.engines.engine import Compiled, Engine, EngineError, Program
from splitops.models.engines.openvino_process import shapes_of
from splitops.models.formats.openvino.constants import Constant
from splitops.models.formats.openvino.model import Edge, Endpoint, Graph, Layer, OpenVINOModel, Port
from splitops.models.formats.openvino.shapes import format_shape
from splitops.models.formats.openvino.writer import to_bytes
from splitops.models.known import Tensor
from splitops.models.movers.evaluated import Value
from splitops.spec.elements.types import ElementType, element_type_of, from_openvino
from splitops.spec.sizes.dims import Shape

Sizes = Sequence[tuple[int, int]]
"""The axis and the size of each part of a split."""


@dataclass(frozen=True, slots=True)
class Given:
    """What goes into a region at one place.

    Attributes:
        type: its element type.
        shape: its shape, as far as it is known.
        constant: its value, where that is the same in every run.
    """

    type: ElementType
    shape: Shape | None
    constant: Constant | None = None


@dataclass(frozen=True, slots=True)
class Settled:
    """What is known of a graph before it runs, so that its regions are compiled once.

    Attributes:
        values: the type and shape of each output port.
        sizes: the parts of the splits that are left to the engine, by the ids of their layers.
    """

    values: Mapping[Endpoint, Tensor]
    sizes: Mapping[int, Sizes]


@dataclass(frozen=True, slots=True)
class Region:
    """A set of foreign layers with what goes in and out.

    Attributes:
        graph: the graph that they are of.
        layers: the layers in topological order.
        inputs: the output ports of other layers that they take.
        outputs: their own output ports that other layers take.
    """

    graph: Graph
    layers: Sequence[Layer]
    inputs: tuple[Endpoint, ...]
    outputs: tuple[Endpoint, ...]

    @classmethod
    def of(cls, graph: Graph, layers: Sequence[Layer], used: set[Endpoint]) -> Region:
        """Make the region of some layers; ``used`` are the output ports that are of use at all."""
        inside = {layer.id for layer in layers}
        inputs = [source for layer in layers for source in graph.sources(layer) if source.layer not in inside]
        outputs = [
            end
            for layer in layers
            for port in layer.outputs
            if (end := Endpoint(layer.id, port.id)) in used
            and any(target.layer not in inside for target in graph.consumers[end])
        ]
        return cls(graph, layers, tuple(dict.fromkeys(inputs)), tuple(outputs))

    def model(self, given: Mapping[Endpoint, Given]) -> OpenVINOModel:
        """Make a model of the region: constants stay constants, other inputs become Parameters."""
        ids = iter(
            range(max(self.graph.by_id) + 1, max(self.graph.by_id) + 2 + len(self.inputs) + len(self.outputs))
        )
        feeders = {end: _feeder(next(ids), given[end]) for end in self.inputs}
        results = [
            (Layer(next(ids), f"result{at}", "Result", "opset1", inputs=(Port(0),)), end)
            for at, end in enumerate(self.outputs)
        ]
        edges = []
        for layer in self.layers:
            for port in layer.inputs:
                target = Endpoint(layer.id, port.id)
                source = self.graph.producers[target]
                edges.append(Edge(Endpoint(feeders[source].id, 0) if source in feeders else source, target))
        edges += [Edge(end, Endpoint(layer.id, 0)) for layer, end in results]
        layers = (
            *feeders.values(),
            *(_anonymous(layer) for layer in self.layers),
            *(layer for layer, _ in results),
        )
        return OpenVINOModel(Graph("region", layers, tuple(edges)))


def _feeder(id_: int, given: Given) -> Layer:
    kind, shape = given.type, given.shape
    if given.constant is not None:
        port = Port(0, kind.precision, given.constant.shape)
        return Layer(id_, f"value{id_}", "Const", "opset1", {}, outputs=(port,), constant=given.constant)
    sizes = () if shape is None else tuple(size if isinstance(size, int) else -1 for size in shape)
    data = {"shape": format_shape(shape), "element_type": kind.openvino or ""}
    port = Port(0, kind.precision, sizes)
    return Layer(id_, f"value{id_}", "Parameter", "opset1", data, outputs=(port,))


def _anonymous(layer: Layer) -> Layer:
    """Return the layer without tensor names, which could repeat."""
    ports = tuple(Port(port.id, port.precision, port.dims) for port in layer.outputs)
    return replace(layer, outputs=ports)


class Runner:
    """Runs a region by an engine, as often as its graph is run.

    It is compiled now for what is settled, else for the shapes of the values; the engine is asked for then.
    """

    def __init__(
        self, region: Region, engine: Callable[[str], Engine], where: Where, settled: Settled | None
    ) -> None:
        self._region = region
        self._engine = engine
        self._where = replace(where, node=region.layers[0].name)
        self._kept: tuple[object, Compiled] | None = None
        self._lock = threading.Lock()
        self._settled = settled
        by_id = region.graph.by_id
        self._fed = [end for end in region.inputs if by_id[end.layer].constant is None]
        if settled is not None:
            self._kept = None, self._compiled({end: self._known(end, settled) for end in region.inputs})

    @property
    def programs(self) -> list[Compiled]:
        """What was compiled last."""
        return [] if self._kept is None else [self._kept[1]]

    def _known(self, end: Endpoint, settled: Settled) -> Given:
        known = settled.values[end]
        if known.type is None:
            maker = self._region.graph.by_id[end.layer]
            text = f"cannot be given the element type of {maker}, which only a run knows"
            raise EngineError("openvino", text, self._where)
        return Given(known.type, known.shape, self._region.graph.by_id[end.layer].constant)

    def run(self, values: Mapping[Endpoint, Value], *, again: bool) -> dict[Endpoint, Value]:
        """Run the region; ``again`` keeps what was compiled, for later values of the same types and shapes.

        Raises:
            EmptyTensorError: a layer is given a tensor without elements, and gives one that has some.
        """
        if self._settled is None and any(
            _is_empty(layer, values[end])
            for layer in self._region.layers
            for end in self._region.graph.sources(layer)
            if end in values
        ):
            return self._one_by_one(values)
        try:
            return self._run_whole(values, again=again)
        except EmptyTensorError:  # made by a layer inside
            if self._settled is not None:
                raise
            return self._one_by_one(values)

    def _run_whole(self, values: Mapping[Endpoint, Value], *, again: bool) -> dict[Endpoint, Value]:
        region = self._region
        compiled, fed = self._compiled_for(values, again=again)
        feeds = {f"value{at}": values[end].array for at, end in enumerate(fed)}
        arrays = compiled.run(feeds)
        kinds = [
            kind or element_type_of(array.dtype) for kind, array in zip(compiled.types, arrays, strict=True)
        ]
        found: dict[Endpoint, Value] = {}
        for end, array, kind in zip(region.outputs, arrays, kinds, strict=True):
            assert kind is not None
            found[end] = Value(array, kind)
        return found

    def _one_by_one(self, values: Mapping[Endpoint, Value]) -> dict[Endpoint, Value]:
        """Run each layer alone; OpenVINO runs none that is given, or gives, a tensor without elements."""
        graph = self._region.graph
        known = dict(values)
        for layer in self._region.layers:
            sources, ends = graph.sources(layer), (Endpoint(layer.id, port.id) for port in layer.outputs)
            used = tuple(end for end in ends if end in graph.consumers)
            region = Region(graph, [layer], tuple(dict.fromkeys(sources)), used)
            given = [known[end] for end in sources]
            if not any(_is_empty(layer, value) for value in given):
                runner = Runner(region, self._engine, self._where, None)
                try:
                    known.update(runner._run_whole(known, again=False))
                    continue
                except EmptyTensorError:
                    pass
            known.update(_of_nothing(region, layer, given, self._where))
        return {end: known[end] for end in self._region.outputs}

    def _compiled_for(
        self, values: Mapping[Endpoint, Value], *, again: bool
    ) -> tuple[Compiled, Sequence[Endpoint]]:
        """Return what is compiled for some values, and the inputs that are not constants."""
        if self._settled is not None:
            assert self._kept is not None
            return self._kept[1], self._fed
        by_id = self._region.graph.by_id
        given = {end: _given(values[end], by_id[end.layer].constant) for end in self._region.inputs}
        fed = [end for end in self._region.inputs if given[end].constant is None]
        # Constants are those of the graph, the same in every run of it.
        kind = [(given[end].type.name, given[end].shape) for end in fed]
        with self._lock:
            kept = self._kept
            if kept is None or kept[0] != kind:
                try:
                    kept = kind, self._compiled(given)
                except EngineError:
                    # Without the numbers, ranks may be open: OpenVINO's CPU rejects such layers.
                    known = {end: replace(given[end], constant=_as_sizes(values[end])) for end in fed}
                    if all(of.constant is None for of in known.values()):
                        raise
                    compiled = self._compiled({**given, **known})
                    return compiled, [end for end in fed if known[end].constant is None]
                self._kept = kept if again else None
        return kept[1], fed

    def _compiled(self, given: Mapping[Endpoint, Given]) -> Compiled:
        names = _listing(self._region.layers)
        engine = self._engine(names)
        document, weights = to_bytes(self._region.model(given))
        sizes = self._settled.sizes if self._settled is not None else {}
        program = Program(
            document,
            tuple(f"result{at}" for at in range(len(self._region.outputs))),
            self._where,
            binary=np.frombuffer(weights, np.uint8),
            what=names,
            sizes=[(layer.name, sizes[layer.id]) for layer in self._region.layers if layer.id in sizes],
        )
        return engine.compile(program)


def _is_empty(layer: Layer, value: Value) -> bool:
    """Return whether a value is a tensor without elements; an empty list is none where a layer takes it."""
    listed = value.element_type.integer and value.array.ndim == 1
    return value.array.size == 0 and not (listed and takes_empty_list(layer.type))


_OF_NOTHING: Final[Mapping[str, int]] = {
    "MatMul": 0,
    "ReduceL1": 0,
    "ReduceL2": 0,
    "ReduceLogicalAnd": 1,
    "ReduceLogicalOr": 0,
    "ReduceProd": 1,
    "ReduceSum": 0,
}
"""What layers give of no elements: the value of the empty sum or product that they are."""
_UNCHANGED: Final = frozenset(["Broadcast", "Interpolate", "Roll", "Tile"])
"""Layers that give their data as it is where they are given an empty list."""
_MOST_SIZES: Final = 64


def _of_nothing(region: Region, layer: Layer, values: Sequence[Value], where: Where) -> dict[Endpoint, Value]:
    """Return what a layer gives of tensors without elements: its shape is all of it where it has none, too.

    Raises:
        EmptyTensorError: it has elements, or nobody knows its shape.
    """
    sources = region.graph.sources(layer)
    given = {
        end: Given(value.element_type, value.array.shape, _as_sizes(value))
        for end, value in zip(sources, values, strict=True)
    }
    shapes = shapes_of(*to_bytes(region.model(given)), str(layer), where)
    found: dict[Endpoint, Value] = {}
    fill = _OF_NOTHING.get(layer.type) if values[0].array.size == 0 else None
    for end, (name, shape) in zip(region.outputs, shapes, strict=True):
        kind = from_openvino(name)
        sizes = () if shape is None else tuple(size for size in shape if size is not None)
        known = kind is not None and shape is not None and len(sizes) == len(shape)
        if layer.type in _UNCHANGED and shape == values[0].array.shape and kind is values[0].element_type:
            found[end] = values[0]
            continue
        if not known or (0 not in sizes and fill is None):
            text = ", ".join(str(value.array.shape) for value in values)
            raise EmptyTensorError.of({layer.name: f"({layer.type}) reads shapes {text}"}, where)
        assert kind is not None
        found[end] = Value(np.full(sizes, fill or 0, kind.numpy), kind)
    return found


def _as_sizes(value: Value) -> Constant | None:
    """Return a value as a constant, where it may be axes or sizes, so that shapes are inferred from it."""
    array = value.array
    if value.constant or (value.element_type.integer and array.ndim < 2 and array.size <= _MOST_SIZES):
        return Constant.of(array, value.element_type)
    return None


def _given(value: Value, stored: Constant | None) -> Given:
    constant = None
    if value.constant:
        constant = stored or Constant.of(value.array, value.element_type)
    return Given(value.element_type, value.array.shape, constant)


def _listing(layers: Sequence[Layer]) -> str:
    names = [str(layer) for layer in layers[:5]]
    return ", ".join(names) + (f" and {len(layers) - 5} more" if len(layers) > 5 else "")
