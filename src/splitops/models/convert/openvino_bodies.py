"""Conversion of the layers with bodies, If, Loop and TensorIterator, to ONNX nodes with subgraphs.

A Parameter with the same value in every iteration does not become an input of the subgraph, which uses the
outer value instead. If an input is sliced, the body itself slices it by the iteration number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import numpy as np
import onnx_ir as ir

from splitops.common.integers import INT64_MAX, INT64_MIN
from splitops.errors import ModelError, Where
from splitops.models.abstract_values import AbstractTensor, may_be
from splitops.models.convert.layer_op_builder import LayerOpBuilder
from splitops.models.formats.openvino import Graph, Layer
from splitops.models.formats.openvino.nodes import LayerNode
from splitops.models.formats.openvino.port_maps import PortMap, Slicing, normalise_axis, read_if, read_loop
from splitops.models.graph.onnx import annotate, get_abstract_value
from splitops.models.graph.op_builder import annotate_like, replace_sizes
from splitops.models.ops.writing import BOOL, INT32, INT64, SIZES, Values, as_int64, get_rank
from splitops.spec.sizes.dims import UNKNOWN, to_exact
from splitops.splitting.inference import join_shapes

_MAX_INITIAL: Final = 4096
"""Maximum number of elements of an unused initial value. Larger ones are replaced with a single element."""


class GraphWriter(Protocol):
    """The methods of an ONNX graph writer that the conversion of layers with bodies uses."""

    @property
    def graph(self) -> ir.Graph:
        """The ONNX graph that is written."""

    def make_body_writer(self, layer: Layer, tag: str) -> GraphWriter:
        """Return the writer of a new subgraph for the body in the XML element ``tag`` of a layer."""

    def make_builder(self, node: LayerNode) -> LayerOpBuilder:
        """Return a builder of nodes that replace ``node`` in the graph."""

    def add_input(self, name: str, what: AbstractTensor, where: Where) -> ir.Value:
        """Add an input with the type and shape of ``what`` to the graph."""

    def place(self, builder: LayerOpBuilder, values: Values, where: Where) -> Values:
        """Append the nodes of a builder, converted to the target, and return the converted ``values``."""

    def write(self, graph: Graph, given: Mapping[int, ir.Value]) -> Mapping[int, ir.Value]:
        """Write a body from the values of its Parameters. Return those of its Results. Keys are layer ids."""


def write_bodies(node: LayerNode, sources: Sequence[ir.Value], scope: GraphWriter, where: Where) -> Values:
    """Write a layer with bodies in the graph of ``scope``, and return the values of its outputs."""
    if node.op_type == "If":
        return _write_if(node, sources, scope, where)
    return _Loop(node, sources, scope, where).write()


def _write_if(node: LayerNode, sources: Sequence[ir.Value], scope: GraphWriter, where: Where) -> Values:
    layer = node.layer
    branches = read_if(layer, where)
    _check_single(sources[0], "the condition", {BOOL}, where)
    builder, graphs, tensors = scope.make_builder(node), {}, []
    for tag, branch in branches.items():
        inner = scope.make_body_writer(layer, tag)
        results = inner.write(branch.body, {entry.inner: sources[entry.port] for entry in branch.inputs})
        values = [results[entry.inner] for entry in branch.outputs]
        _finish(inner, inner.make_builder(node), values, where)
        graphs[tag.replace("body", "branch")] = inner.graph
        tensors.append([_get_tensor(value) for value in values])
    if [tensor.type for tensor in tensors[0]] != [tensor.type for tensor in tensors[1]]:
        raise ModelError(f"the bodies of {layer} return different element types", where)
    outputs: list[ir.Value] = []
    if layer.outputs:
        outputs = builder.add_node("If", [sources[0]], graphs, outputs=len(layer.outputs))
        for value, *either in zip(outputs, *tensors, strict=True):
            annotate(value, _join(*either))
    return scope.place(builder, outputs, where)


class _Loop:
    """Writes a Loop or a TensorIterator as an ONNX Loop."""

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
        self.body_writer = scope.make_body_writer(layer, "body")
        self.iteration = self._add_input("iteration", AbstractTensor(INT64, ()))
        self.going = self._add_input("going", AbstractTensor(BOOL, ()))

    def write(self) -> Values:
        ports, where = self.ports, self.where
        trips, going = self._make_bounds()
        before = self.body_writer.make_builder(self.node)
        given: dict[int, ir.Value] = {}
        for entry in ports.inputs:
            outer = self.sources[entry.port]
            if entry.inner in ports.carried:
                parameter = ports.body.by_id[entry.inner]
                given[entry.inner] = self._add_input(parameter.name, self._infer_carried(parameter, outer))
            else:
                given[entry.inner] = (
                    outer if entry.slicing is None else self._take_part(before, outer, entry.slicing, trips)
                )
        if ports.counter is not None:
            given[ports.counter] = self._make_counter(before, ports.body.by_id[ports.counter])
        placed = self.body_writer.place(before, list(given.values()), where)
        given = {key: value for key, value in zip(given, placed, strict=True) if value is not None}
        results = self.body_writer.write(ports.body, given)
        return self._write_loop(trips, going, given, results)

    def _write_loop(
        self,
        trips: ir.Value | None,
        going: ir.Value | None,
        given: Mapping[int, ir.Value],
        results: Mapping[int, ir.Value],
    ) -> Values:
        """Write the outputs of the body, the Loop, and the nodes that compute the outputs of the layer."""
        ports, after = self.ports, self.body_writer.make_builder(self.node)
        initial = {entry.inner: self.sources[entry.port] for entry in ports.inputs}
        states = [(initial[target], source) for target, source in ports.carried.items()]
        for target, source in ports.carried.items():
            self._check_back_edge(given[target], results[source], target)
        of_last: set[int] = set()
        for entry in ports.outputs:
            if entry.slicing is None and all(entry.inner != source for _, source in states):
                what = _get_tensor(results[entry.inner])
                self._add_input("before", what)
                states.append((self._make_initial(what), entry.inner))
                of_last.add(entry.inner)
        needs_flag = bool(of_last) and not self._has_iteration(trips, going)
        if needs_flag:
            self._add_input("before", AbstractTensor(BOOL, ()))
        condition = self.going if ports.condition is None else results[ports.condition]
        condition = self._make_condition(after, condition, "the condition of the body")
        scans = [
            (entry.slicing, results[entry.inner]) for entry in ports.outputs if entry.slicing is not None
        ]
        parts = [self._make_scan_output(after, slicing, part) for slicing, part in scans]
        ran = [after.add_constant(np.array(True))] if needs_flag else []
        not_yet = [self.builder.add_constant(np.array(False))] if needs_flag else []
        values = [condition, *(results[source] for _, source in states), *ran, *parts]
        _finish(self.body_writer, after, values, self.where)
        loop_outputs = self.builder.add_node(
            "Loop",
            [trips, going, *(value for value, _ in states), *not_yet],
            {"body": self.body_writer.graph},
            outputs=len(values) - 1,
        )
        for value, (before, source) in zip(loop_outputs, states, strict=False):
            annotate(value, _join(_get_tensor(before), _get_tensor(results[source])))
        final = list(zip(states, loop_outputs, strict=False))
        last = {source: value for (_, source), value in reversed(final)}
        if needs_flag:
            last |= {source: self._gather_last(last[source], loop_outputs[len(states)]) for source in of_last}
        stacked = iter(loop_outputs[len(states) + needs_flag :])
        outputs = [
            last[entry.inner]
            if entry.slicing is None
            else self._concatenate(next(stacked), results[entry.inner], entry.slicing)
            for entry in ports.outputs
        ]
        return self.scope.place(self.builder, outputs, self.where)

    def _gather_last(self, value: ir.Value, ran: ir.Value) -> ir.Value:
        """Add a Gather that returns a final value, but fails if there was no iteration (``ran`` is false)."""
        absent = self.builder.cast(self.builder.add("Not", [ran]), INT64)
        last = self.builder.add("Gather", [self.builder.unsqueeze(value, 0), absent], {"axis": 0})
        annotate(last, get_abstract_value(value))
        return last

    def _add_input(self, hint: str, what: AbstractTensor) -> ir.Value:
        return self.body_writer.add_input(self.builder.make_name(hint), what, self.where)

    # Trip count and condition

    def _make_bounds(self) -> tuple[ir.Value | None, ir.Value | None]:
        """Return the trip count and the initial condition of the Loop. Either is None if it is not needed."""
        if self.layer.type == "TensorIterator":
            sliced = [
                (self.sources[entry.port], entry.slicing)
                for entry in self.ports.inputs
                if entry.slicing is not None
            ]
            counts = {found for value, slicing in sliced if (found := self._infer_count(value, slicing))}
            if len(counts) > 1:
                parts = sorted(counts)
                raise ModelError(
                    f"the inputs are sliced into different numbers of parts: {parts}", self.where
                )
            return self._make_count(*sliced[0]), None
        trips, going = self.sources[:2]
        _check_single(trips, "the trip count", SIZES, self.where)
        going = self._make_condition(self.builder, going, "the condition")
        constant = self.builder.read_constant(trips)
        if constant is not None and constant.size == 1:
            number = int(constant.item())
            if number < -1:
                raise ModelError(f"the trip count is {number}, but must be at least -1")
            return None if number == -1 else as_int64(self.builder, trips), going
        trips = as_int64(self.builder, trips)
        zero, endless = (self.builder.add_constant(np.array(number)) for number in (0, INT64_MAX))
        return self.builder.add("Where", [self.builder.add("Less", [trips, zero]), endless, trips]), going

    def _has_iteration(self, trips: ir.Value | None, going: ir.Value | None) -> bool:
        """Return whether constants guarantee that there is at least one iteration."""
        limits = [value for value in (trips, going) if value is not None]
        return all(
            (found := self.builder.read_constant(value)) is not None and found.all() for value in limits
        )

    def _make_condition(self, builder: LayerOpBuilder, value: ir.Value, what: str) -> ir.Value:
        _check_single(value, what, {BOOL}, self.where)
        return value if _get_tensor(value).shape == () else builder.add("Squeeze", [value])

    def _infer_count(self, value: ir.Value, slicing: Slicing) -> int | None:
        shape = _get_tensor(value).shape
        size = None if shape is None else shape[normalise_axis(slicing.axis, len(shape), self.where)]
        return slicing.count_parts(size, self.where) if isinstance(size, int) else None

    def _make_count(self, value: ir.Value, slicing: Slicing) -> ir.Value:
        """Return the number of parts of a sliced value, as a value of shape [1]."""
        builder, count = self.builder, self._infer_count(value, slicing)
        if count is not None:
            return builder.add_ints([count])
        size = builder.add_size(value, builder.add_ints([self._get_axis(value, slicing)]))
        if unused := slicing.low - 1 - slicing.high:
            size = builder.add("Sub", [size, builder.add_ints([unused])])
        return size if slicing.size == 1 else builder.add("Div", [size, builder.add_ints([slicing.size])])

    # Inputs of an iteration

    def _get_axis(self, value: ir.Value, slicing: Slicing) -> int:
        if slicing.axis >= 0:
            return slicing.axis
        return normalise_axis(slicing.axis, get_rank(self.builder, value), self.where)

    def _take_part(
        self, builder: LayerOpBuilder, value: ir.Value, slicing: Slicing, trips: ir.Value | None
    ) -> ir.Value:
        """Return the part of a value for the current iteration.

        Gather fails in an iteration without a part. Reshape fails if the size of the axis is not a multiple
        of the part size, or if the inputs of a TensorIterator have different numbers of parts.
        """
        axis, outer = self._get_axis(value, slicing), self.builder
        parts, single = value, slicing.size == 1
        if slicing.low or slicing.high != -1:
            parts = outer.slice_axis(value, axis, slicing.low, slicing.high + 1 or INT64_MAX)
        same = self.layer.type == "Loop" or self._infer_count(value, slicing) is not None
        if not (single and same) and trips is not None:
            count = self._make_count(value, slicing) if same else trips
            middle = [count] if single else [count, outer.add_ints([slicing.size])]
            parts = _reshape_axes(outer, parts, axis, axis + 1, middle)
        if slicing.reverse:
            bounds = [outer.add_ints([number]) for number in (-1, INT64_MIN, axis, -1)]
            parts = outer.add("Slice", [parts, *bounds])
        at = builder.unsqueeze(self.iteration, 0) if single else self.iteration
        part = builder.add("Gather", [parts, at], {"axis": axis})
        annotate_like(part, value, {axis: slicing.size})
        return part

    def _make_counter(self, builder: LayerOpBuilder, parameter: Layer) -> ir.Value:
        """Return the iteration number with the element type and rank of a Parameter."""
        kind, shape = parameter.read_element_type(self.where), parameter.read_shape(self.where) or ()
        if kind not in SIZES or len(shape) > 1:
            raise ModelError(
                f"current_iteration is {kind} of shape {parameter.get_attribute('shape')!r}, "
                "but must be one int32 or int64 number",
                self.where,
            )
        value = builder.cast(self.iteration, INT32) if kind is INT32 else self.iteration
        if shape:
            value = builder.unsqueeze(value, 0)
        return value

    def _infer_carried(self, parameter: Layer, initial: ir.Value) -> AbstractTensor:
        """Return the type and shape of a Parameter in all iterations. The initial value must match them."""
        first = _get_tensor(initial)
        kind = first.type if parameter.has_dynamic_type else parameter.read_element_type(self.where)
        declared = AbstractTensor(kind, parameter.read_shape(self.where))
        if kind is not first.type or not may_be(first.shape, declared.shape):
            raise ModelError(f"{parameter} declares {declared}, but the first value is {first}", self.where)
        return declared

    def _check_back_edge(self, given: ir.Value, result: ir.Value, target: int) -> None:
        declared, carried = _get_tensor(given), _get_tensor(result)
        if declared.type is not carried.type or not may_be(carried.shape, declared.shape):
            parameter = self.ports.body.by_id[target]
            raise ModelError(f"{parameter} declares {declared}, but its back edge has {carried}", self.where)

    # Outputs of iterations

    def _make_initial(self, what: AbstractTensor) -> ir.Value:
        """Return an initial value for a state that every iteration sets and none reads."""
        assert what.type is not None
        shape = tuple(size if isinstance(size, int) else 1 for size in what.shape or ())
        shape = shape if np.prod(shape, dtype=float) <= _MAX_INITIAL else (1,) * len(shape)
        return self.builder.add_constant(np.zeros(shape, what.type.numpy))

    def _make_scan_output(self, builder: LayerOpBuilder, slicing: Slicing, part: ir.Value) -> ir.Value:
        """Return the scan output for one part of a sliced output. A part of size 1 loses the axis."""
        axis, shape = self._get_axis(part, slicing), _get_tensor(part).shape
        if slicing.size == 1:
            return builder.squeeze(part, axis)
        size = None if shape is None else shape[axis]
        if size == slicing.size:
            return part
        if isinstance(size, int):
            problem = (
                f"{self.layer} joins parts of size {size} on axis {axis}, but declares size {slicing.size}"
            )
            raise ModelError(problem, self.where)
        made = _reshape_axes(builder, part, axis, axis + 1, [builder.add_ints([slicing.size])])
        annotate_like(made, part, {axis: slicing.size})
        return made

    def _concatenate(self, stacked: ir.Value, part: ir.Value, slicing: Slicing) -> ir.Value:
        """Return an output of the layer from its parts, which are stacked on a new first axis."""
        builder, axis = self.builder, self._get_axis(part, slicing)
        what, single = _get_tensor(part), slicing.size == 1
        shape = replace_sizes(part, {axis: None}) if single else what.shape
        annotate(stacked, AbstractTensor(what.type, None if shape is None else (UNKNOWN, *shape)))
        if slicing.reverse:
            bounds = [builder.add_ints([number]) for number in (-1, INT64_MIN, 0, -1)]
            stacked = builder.add("Slice", [stacked, *bounds])
            annotate(stacked, AbstractTensor(what.type, None if shape is None else (UNKNOWN, *shape)))
        if axis:
            count = get_rank(builder, part) + (not single)
            order = [*range(1, axis + 1), 0, *range(axis + 1, count)]
            stacked = builder.add("Transpose", [stacked], {"perm": order})
        if single:
            return stacked
        pattern = None if shape is None else to_exact([*shape[:axis], -1, *shape[axis + 1 :]])
        if shape is not None and pattern is not None and 0 not in shape:
            return builder.add("Reshape", [stacked, builder.add_ints(pattern)])
        sizes = builder.add("Shape", [stacked])
        joined = builder.add(
            "Mul", [builder.add("Gather", [sizes, builder.add_ints([at])]) for at in (axis, axis + 1)]
        )
        return _reshape_axes(builder, stacked, axis, axis + 2, [joined])


def _reshape_axes(
    builder: LayerOpBuilder, value: ir.Value, first: int, end: int, sizes: Sequence[ir.Value]
) -> ir.Value:
    """Reshape a value: ``sizes`` replace the sizes of the axes from ``first`` to ``end`` (exclusive)."""
    shape, known_shape = builder.add("Shape", [value]), _get_tensor(value).shape
    before = [builder.slice_axis(shape, 0, 0, first)] if first else []
    after = builder.slice_axis(shape, 0, end, INT64_MAX)
    pattern = builder.add("Concat", [*before, *sizes, after], {"axis": 0})
    # A 0 in a pattern copies the size at its own position, which is wrong if an axis has moved.
    keeps_positions = len(sizes) == end - first or (
        known_shape and all(isinstance(size, int) and size for size in known_shape[end:])
    )
    return builder.add("Reshape", [value, pattern], {} if keeps_positions else {"allowzero": 1})


def _finish(inner: GraphWriter, builder: LayerOpBuilder, values: Sequence[ir.Value], where: Where) -> None:
    """Set the outputs of a graph. Outer and repeated values are copied by an Identity, as ONNX requires."""
    producers = [value.producer() for value in values]
    values = [
        value
        if producer is not None
        and (producer.graph is inner.graph or producer in builder.nodes)
        and value not in values[:index]
        else _make_copy(builder, value)
        for index, (value, producer) in enumerate(zip(values, producers, strict=True))
    ]
    for value in inner.place(builder, values, where):
        assert value is not None
        what = _get_tensor(value)
        if what.type is None or what.type.onnx_number is None:
            raise ModelError(f"the element type of {value.name!r} is unknown", where)
        _declare(value, what)
        inner.graph.outputs.append(value)


def _make_copy(builder: LayerOpBuilder, value: ir.Value) -> ir.Value:
    made = builder.add("Identity", [value])
    annotate(made, get_abstract_value(value))
    return made


def _declare(value: ir.Value, what: AbstractTensor) -> None:
    assert what.type is not None
    assert what.type.onnx_number is not None
    value.type = ir.TensorType(ir.DataType(what.type.onnx_number))
    if what.shape is not None:
        value.shape = ir.Shape([size if isinstance(size, int) else None for size in what.shape])


def _join(one: AbstractTensor, other: AbstractTensor) -> AbstractTensor:
    """Return the type and the smallest shape that contain two tensors of the same element type."""
    return AbstractTensor(one.type, join_shapes([one.shape, other.shape]))


def _get_tensor(value: ir.Value) -> AbstractTensor:
    found = get_abstract_value(value)
    return found if isinstance(found, AbstractTensor) else AbstractTensor()


def _check_single(value: ir.Value, what: str, kinds: frozenset[object] | set[object], where: Where) -> None:
    fact = _get_tensor(value)
    single = fact.shape is None or (len(fact.shape) <= 1 and may_be(fact.shape, (1,) * len(fact.shape)))
    if fact.type not in kinds or not single:
        raise ModelError(f"{what} is {fact}, but must be one {' or '.join(sorted(map(str, kinds)))}", where)
