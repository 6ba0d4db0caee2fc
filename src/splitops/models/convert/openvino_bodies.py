"""The layers with bodies, If, Loop and TensorIterator, as nodes with graphs inside.

A Parameter that takes the same value in every iteration becomes no input of the graph: its nodes read the
value of the graph around them. A part of a value is taken in the body, by the number of the iteration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import numpy as np
import onnx_ir as ir

from splitops.errors import ModelError, Where
from splitops.models.abstract_values import AbstractTensor, may_be
from splitops.models.convert.layer_op_builder import LayerOpBuilder
from splitops.models.formats.openvino import Graph, Layer
from splitops.models.formats.openvino.nodes import LayerNode
from splitops.models.formats.openvino.port_maps import PortMap, Slicing, normalise_axis, read_if, read_loop
from splitops.models.graph.onnx import annotate, get_abstract_value
from splitops.models.graph.op_builder import annotate_like, shape_like
from splitops.models.ops.writing import BOOL, INT32, INT64, SIZES, Values, as_int64, rank_of, require
from splitops.spec.sizes.dims import UNKNOWN
from splitops.splitting.inference import join_shapes

_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1
_MAX_INITIAL: Final = 4096
"""Elements of a value that no iteration reads, which only has the shape of what the last one gives."""


class GraphWriter(Protocol):
    """A graph that is being written, as the layers with bodies in it see it."""

    @property
    def graph(self) -> ir.Graph:
        """The graph."""

    def inner(self, layer: Layer, tag: str) -> GraphWriter:
        """Return a new graph inside it, for the body of a tag."""

    def make_builder(self, node: LayerNode) -> LayerOpBuilder:
        """Return a builder for nodes of the graph."""

    def input(self, name: str, what: AbstractTensor, where: Where) -> ir.Value:
        """Add an input to the graph."""

    def place(self, builder: LayerOpBuilder, values: Values, where: Where) -> Values:
        """Append the nodes of a builder; return what stands for some of its values at the target."""

    def write(self, graph: Graph, given: Mapping[int, ir.Value]) -> Mapping[int, ir.Value]:
        """Write the layers of a body, whose Parameters have these values; return that of each Result."""


def write_bodies(node: LayerNode, sources: Sequence[ir.Value], scope: GraphWriter, where: Where) -> Values:
    """Write a layer with bodies in a graph; return what stands for its outputs."""
    if node.op_type == "If":
        return _write_if(node, sources, scope, where)
    return _Loop(node, sources, scope, where).write()


def _write_if(node: LayerNode, sources: Sequence[ir.Value], scope: GraphWriter, where: Where) -> Values:
    layer = node.layer
    branches = read_if(layer, where)
    _check_single(sources[0], "the condition", {BOOL}, where)
    builder, graphs, given = scope.make_builder(node), {}, []
    for tag, branch in branches.items():
        inner = scope.inner(layer, tag)
        results = inner.write(branch.body, {entry.inner: sources[entry.port] for entry in branch.inputs})
        values = [results[entry.inner] for entry in branch.outputs]
        _give(inner, inner.make_builder(node), values, where)
        graphs[tag.replace("body", "branch")] = inner.graph
        given.append([_tensor(value) for value in values])
    if [one.type for one in given[0]] != [one.type for one in given[1]]:
        raise ModelError(f"the bodies of {layer} give values of different types", where)
    made: list[ir.Value] = []
    if layer.outputs:
        made = builder.multi("If", [sources[0]], graphs, outputs=len(layer.outputs))
        for value, one, other in zip(made, *given, strict=True):
            annotate(value, _join(one, other))
    return scope.place(builder, made, where)


class _Loop:
    """Writes a Loop or a TensorIterator as a Loop."""

    def __init__(
        self, node: LayerNode, sources: Sequence[ir.Value], scope: GraphWriter, where: Where
    ) -> None:
        self.node = node
        self.layer = layer = node.layer
        self.sources = sources
        self.scope = scope
        self.where = where
        self.ports: PortMap = read_loop(layer, where)
        self.builder = scope.make_builder(node)
        self.inner = scope.inner(layer, "body")
        self.iteration = self._input("iteration", AbstractTensor(INT64, ()))
        self.going = self._input("going", AbstractTensor(BOOL, ()))

    def write(self) -> Values:
        ports, where = self.ports, self.where
        trips, going = self._bounds()
        before = self.inner.make_builder(self.node)
        given: dict[int, ir.Value] = {}
        for entry in ports.inputs:
            outer = self.sources[entry.port]
            if entry.inner in ports.carried:
                parameter = ports.body.by_id[entry.inner]
                given[entry.inner] = self._input(parameter.name, self._carried(parameter, outer))
            else:
                given[entry.inner] = (
                    outer if entry.slicing is None else self._part(before, outer, entry.slicing, trips)
                )
        if ports.counter is not None:
            given[ports.counter] = self._counter(before, ports.body.by_id[ports.counter])
        placed = self.inner.place(before, list(given.values()), where)
        given = {key: value for key, value in zip(given, placed, strict=True) if value is not None}
        results = self.inner.write(ports.body, given)
        return self._joined(trips, going, given, results)

    def _joined(
        self,
        trips: ir.Value | None,
        going: ir.Value | None,
        given: Mapping[int, ir.Value],
        results: Mapping[int, ir.Value],
    ) -> Values:
        """Write what the body gives, the Loop itself, and what makes the outputs of its values."""
        ports, after = self.ports, self.inner.make_builder(self.node)
        initial = {entry.inner: self.sources[entry.port] for entry in ports.inputs}
        states = [(initial[target], source) for target, source in ports.carried.items()]
        for target, source in ports.carried.items():
            self._check_back_edge(given[target], results[source], target)
        of_last: set[int] = set()
        for entry in ports.outputs:
            if entry.slicing is None and all(entry.inner != source for _, source in states):
                what = _tensor(results[entry.inner])
                self._input("before", what)
                states.append((self._unread(what), entry.inner))
                of_last.add(entry.inner)
        asks = bool(of_last) and not self._iterates(trips, going)
        if asks:
            self._input("before", AbstractTensor(BOOL, ()))
        condition = self.going if ports.condition is None else results[ports.condition]
        condition = self._condition(after, condition, "the condition of the body")
        scans = [
            (entry.slicing, results[entry.inner]) for entry in ports.outputs if entry.slicing is not None
        ]
        parts = [self._scanned(after, slicing, part) for slicing, part in scans]
        ran = [after.constant(np.array(True))] if asks else []
        not_yet = [self.builder.constant(np.array(False))] if asks else []
        values = [condition, *(results[source] for _, source in states), *ran, *parts]
        _give(self.inner, after, values, self.where)
        made = self.builder.multi(
            "Loop",
            [trips, going, *(value for value, _ in states), *not_yet],
            {"body": self.inner.graph},
            outputs=len(values) - 1,
        )
        for value, (before, source) in zip(made, states, strict=False):
            annotate(value, _join(_tensor(before), _tensor(results[source])))
        last = {source: value for (_, source), value in reversed(list(zip(states, made, strict=False)))}
        if asks:
            last |= {source: self._last(last[source], made[len(states)]) for source in of_last}
        stacked = iter(made[len(states) + asks :])
        found = [
            last[entry.inner]
            if entry.slicing is None
            else self._whole(next(stacked), results[entry.inner], entry.slicing)
            for entry in ports.outputs
        ]
        return self.scope.place(self.builder, found, self.where)

    def _last(self, value: ir.Value, ran: ir.Value) -> ir.Value:
        """Return what the last iteration gives; without an iteration, Gather fails."""
        absent = self.builder.cast(self.builder.op("Not", [ran]), INT64)
        found = self.builder.op("Gather", [self.builder.unsqueeze(value, 0), absent], {"axis": 0})
        annotate(found, get_abstract_value(value))
        return found

    def _input(self, hint: str, what: AbstractTensor) -> ir.Value:
        return self.inner.input(self.builder.name(hint), what, self.where)

    # How often

    def _bounds(self) -> tuple[ir.Value | None, ir.Value | None]:
        """Return the number of iterations and the first condition; None does not end the loop."""
        if self.layer.type == "TensorIterator":
            sliced = [
                (self.sources[entry.port], entry.slicing)
                for entry in self.ports.inputs
                if entry.slicing is not None
            ]
            counts = {found for value, slicing in sliced if (found := self._known_count(value, slicing))}
            if len(counts) > 1:
                parts = sorted(counts)
                raise ModelError(
                    f"the inputs are sliced into different numbers of parts: {parts}", self.where
                )
            return self._count(*sliced[0]), None
        trips, going = self.sources[:2]
        _check_single(trips, "the trip count", SIZES, self.where)
        going = self._condition(self.builder, going, "the condition")
        stated = self.builder.read_constant(trips)
        if stated is not None and stated.size == 1:
            number = int(stated.item())
            require(number >= -1, f"the trip count is {number}")
            return None if number == -1 else as_int64(self.builder, trips), going
        trips = as_int64(self.builder, trips)
        zero, endless = (self.builder.constant(np.array(number)) for number in (0, _INT64_MAX))
        return self.builder.op("Where", [self.builder.op("Less", [trips, zero]), endless, trips]), going

    def _iterates(self, trips: ir.Value | None, going: ir.Value | None) -> bool:
        """Return whether there certainly is an iteration."""
        limits = [value for value in (trips, going) if value is not None]
        return all(
            (found := self.builder.read_constant(value)) is not None and found.all() for value in limits
        )

    def _condition(self, builder: LayerOpBuilder, value: ir.Value, what: str) -> ir.Value:
        _check_single(value, what, {BOOL}, self.where)
        return value if _tensor(value).shape == () else builder.op("Squeeze", [value])

    def _known_count(self, value: ir.Value, slicing: Slicing) -> int | None:
        shape = _tensor(value).shape
        size = None if shape is None else shape[normalise_axis(slicing.axis, len(shape), self.where)]
        return slicing.count_parts(size, self.where) if isinstance(size, int) else None

    def _count(self, value: ir.Value, slicing: Slicing) -> ir.Value:
        """Return the number of parts of a value, of shape [1]."""
        builder, stated = self.builder, self._known_count(value, slicing)
        if stated is not None:
            return builder.integers([stated])
        size = builder.size(value, builder.integers([self._axis(value, slicing)]))
        if unused := slicing.low - 1 - slicing.high:
            size = builder.op("Sub", [size, builder.integers([unused])])
        return size if slicing.size == 1 else builder.op("Div", [size, builder.integers([slicing.size])])

    # What an iteration takes

    def _axis(self, value: ir.Value, slicing: Slicing) -> int:
        if slicing.axis >= 0:
            return slicing.axis
        return normalise_axis(slicing.axis, rank_of(self.builder, self.layer, value), self.where)

    def _part(
        self, builder: LayerOpBuilder, value: ir.Value, slicing: Slicing, trips: ir.Value | None
    ) -> ir.Value:
        """Return the part of a value for the iteration.

        Gather fails in an iteration without a part. Reshape fails on an axis that does not consist of parts,
        or in a TensorIterator not of as many as the first one.
        """
        axis, outer = self._axis(value, slicing), self.builder
        parts, single = value, slicing.size == 1
        if slicing.low or slicing.high != -1:
            parts = outer.part(value, axis, slicing.low, slicing.high + 1 or _INT64_MAX)
        same = self.layer.type == "Loop" or self._known_count(value, slicing) is not None
        if not (single and same) and trips is not None:
            count = self._count(value, slicing) if same else trips
            middle = [count] if single else [count, outer.integers([slicing.size])]
            parts = _regroup(outer, parts, axis, axis + 1, middle)
        if slicing.reverse:
            bounds = [outer.integers([number]) for number in (-1, _INT64_MIN, axis, -1)]
            parts = outer.op("Slice", [parts, *bounds])
        at = builder.unsqueeze(self.iteration, 0) if single else self.iteration
        part = builder.op("Gather", [parts, at], {"axis": axis})
        annotate_like(part, value, {axis: slicing.size})
        return part

    def _counter(self, builder: LayerOpBuilder, parameter: Layer) -> ir.Value:
        """Return the number of the iteration as a Parameter takes it."""
        kind, shape = parameter.read_element_type(self.where), parameter.read_shape(self.where) or ()
        if kind not in SIZES or len(shape) > 1:
            raise ModelError(
                f"current_iteration is {kind} of shape {parameter.get_attribute('shape')!r}", self.where
            )
        value = builder.cast(self.iteration, INT32) if kind is INT32 else self.iteration
        if shape:
            value = builder.unsqueeze(value, 0)
        return value

    def _carried(self, parameter: Layer, initial: ir.Value) -> AbstractTensor:
        """Return what is known of what a Parameter takes in all iterations."""
        first = _tensor(initial)
        kind = first.type if parameter.has_dynamic_type else parameter.read_element_type(self.where)
        found = AbstractTensor(kind, parameter.read_shape(self.where))
        if kind is not first.type or not may_be(first.shape, found.shape):
            raise ModelError(f"{parameter} takes {found}, but the first value is {first}", self.where)
        return found

    def _check_back_edge(self, given: ir.Value, result: ir.Value, target: int) -> None:
        taken, carried = _tensor(given), _tensor(result)
        if taken.type is not carried.type or not may_be(carried.shape, taken.shape):
            parameter = self.ports.body.by_id[target]
            raise ModelError(f"{parameter} takes {taken}, but its back edge carries {carried}", self.where)

    # What the iterations give

    def _unread(self, what: AbstractTensor) -> ir.Value:
        """Return a first value for what every iteration gives and none reads."""
        assert what.type is not None
        shape = tuple(size if isinstance(size, int) else 1 for size in what.shape or ())
        shape = shape if np.prod(shape, dtype=float) <= _MAX_INITIAL else (1,) * len(shape)
        return self.builder.constant(np.zeros(shape, what.type.numpy))

    def _scanned(self, builder: LayerOpBuilder, slicing: Slicing, part: ir.Value) -> ir.Value:
        """Return what an iteration gives of an output; of one element along the axis, without the axis."""
        axis, shape = self._axis(part, slicing), _tensor(part).shape
        if slicing.size == 1:
            return builder.squeeze(part, axis)
        size = None if shape is None else shape[axis]
        if size == slicing.size:
            return part
        if isinstance(size, int):
            problem = f"{self.layer} joins parts of {size} on axis {axis}, not of {slicing.size}"
            raise ModelError(problem, self.where)
        made = _regroup(builder, part, axis, axis + 1, [builder.integers([slicing.size])])
        annotate_like(made, part, {axis: slicing.size})
        return made

    def _whole(self, stacked: ir.Value, part: ir.Value, slicing: Slicing) -> ir.Value:
        """Return an output of its parts, which lie along a new first axis."""
        builder, axis = self.builder, self._axis(part, slicing)
        what, single = _tensor(part), slicing.size == 1
        shape = shape_like(part, {axis: None}) if single else what.shape
        annotate(stacked, AbstractTensor(what.type, None if shape is None else (UNKNOWN, *shape)))
        if slicing.reverse:
            bounds = [builder.integers([number]) for number in (-1, _INT64_MIN, 0, -1)]
            stacked = builder.op("Slice", [stacked, *bounds])
            annotate(stacked, AbstractTensor(what.type, None if shape is None else (UNKNOWN, *shape)))
        if axis:
            count = rank_of(builder, self.layer, part) + (not single)
            order = [*range(1, axis + 1), 0, *range(axis + 1, count)]
            stacked = builder.op("Transpose", [stacked], {"perm": order})
        if single:
            return stacked
        if shape is not None and 0 not in shape:
            known_sizes = [-1 if at == axis else size for at, size in enumerate(shape)]
            if all(isinstance(size, int) for size in known_sizes):
                return builder.op("Reshape", [stacked, builder.constant(np.array(known_sizes, np.int64))])
        sizes = builder.op("Shape", [stacked])
        joined = builder.op(
            "Mul", [builder.op("Gather", [sizes, builder.integers([at])]) for at in (axis, axis + 1)]
        )
        return _regroup(builder, stacked, axis, axis + 2, [joined])


def _regroup(
    builder: LayerOpBuilder, value: ir.Value, first: int, end: int, sizes: Sequence[ir.Value]
) -> ir.Value:
    """Reshape a value to other sizes in the place of those of some axes."""
    shape, known_shape = builder.op("Shape", [value]), _tensor(value).shape
    before = [builder.part(shape, 0, 0, first)] if first else []
    pattern = builder.op("Concat", [*before, *sizes, builder.part(shape, 0, end, _INT64_MAX)], {"axis": 0})
    # A 0 in a pattern is the size at its own position, which is right unless an axis has moved.
    keeps_positions = len(sizes) == end - first or (
        known_shape and all(isinstance(size, int) and size for size in known_shape[end:])
    )
    return builder.op("Reshape", [value, pattern], {} if keeps_positions else {"allowzero": 1})


def _give(inner: GraphWriter, builder: LayerOpBuilder, values: Sequence[ir.Value], where: Where) -> None:
    """Make values the outputs of a graph: each is to be made by a node of it, and an output once."""
    own = [value.producer() for value in values]
    values = [
        value
        if producer is not None
        and (producer.graph is inner.graph or producer in builder.nodes)
        and value not in values[:index]
        else _same(builder, value)
        for index, (value, producer) in enumerate(zip(values, own, strict=True))
    ]
    for value in inner.place(builder, values, where):
        assert value is not None
        what = _tensor(value)
        if what.type is None or what.type.onnx_number is None:
            raise ModelError(f"the element type of {value.name!r} is not known", where)
        _declare(value, what)
        inner.graph.outputs.append(value)


def _same(builder: LayerOpBuilder, value: ir.Value) -> ir.Value:
    made = builder.op("Identity", [value])
    annotate(made, get_abstract_value(value))
    return made


def _declare(value: ir.Value, what: AbstractTensor) -> None:
    """Let a value declare what is known of it."""
    assert what.type is not None
    assert what.type.onnx_number is not None
    value.type = ir.TensorType(ir.DataType(what.type.onnx_number))
    if what.shape is not None:
        value.shape = ir.Shape([size if isinstance(size, int) else None for size in what.shape])


def _join(one: AbstractTensor, other: AbstractTensor) -> AbstractTensor:
    """Return what is known of a value that is one of two."""
    return AbstractTensor(one.type, join_shapes([one.shape, other.shape]))


def _tensor(value: ir.Value) -> AbstractTensor:
    found = get_abstract_value(value)
    return found if isinstance(found, AbstractTensor) else AbstractTensor()


def _check_single(value: ir.Value, what: str, kinds: frozenset[object] | set[object], where: Where) -> None:
    found = _tensor(value)
    single = found.shape is None or (len(found.shape) <= 1 and may_be(found.shape, (1,) * len(found.shape)))
    if found.type not in kinds or not single:
        raise ModelError(f"{what} is {found}, not one {' or '.join(sorted(map(str, kinds)))}", where)
