"""The walk through an ONNX model: every node in order, subgraphs and model-local functions included."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto

from splitops.elements.types import from_onnx
from splitops.errors import SplitError, Where
from splitops.models.formats.onnx.structure import (
    canonical,
    extend,
    function_key,
    function_path,
    functions_of,
    opset_imports,
    subgraphs,
)
from splitops.models.formats.onnx.tensors import is_external, tensor_array
from splitops.models.formats.onnx.types import from_type
from splitops.models.infer.onnx_functions import call_attributes, unknown_attributes, with_attributes
from splitops.models.infer.onnx_loops import (
    integers,
    scalar,
    stacked,
    widened,
    without_axis,
    without_value,
)
from splitops.models.infer.onnx_nodes import NodeInference
from splitops.models.infer.onnx_values import computed_value, constant_value
from splitops.models.infer.splitting import OnVisit, Visit, sizes_of_names, tightened, visit_site
from splitops.models.known import MAX_ELEMENTS, Known, SequenceOf, Tensor, join, meet
from splitops.onnx.reference import node_attributes, node_label
from splitops.operators import FAMILY, schema
from splitops.progress import counted
from splitops.sizes.dims import UNKNOWN, Dim, Range, dimension

__all__ = ["Found", "Upstream", "Walk"]

_MAX_DEPTH: Final = 64
"""Graphs and functions inside one another; what is deeper is unknown, and functions are then walked alone."""
_ROUNDS: Final = 4
"""Rounds of a loop until what still changes is given up as unknown."""


@dataclass(slots=True)
class Found:
    """Everything that a walk has found out.

    Attributes:
        values: what is known of each value, by the path of its graph (None is the main graph) and its name;
            of a function's, what holds for every call.
        sizes: symbols of the model whose sizes the splits that always run prove.
    """

    values: dict[tuple[str | None, str], Known] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Scope:
    """The values that the nodes of one graph see."""

    where: Where
    opsets: Mapping[str, int]
    parent: _Scope | None = None
    attributes: Mapping[str, Any] | None = None
    conditional: bool = False
    function: bool = False
    values: dict[str, Known] = field(default_factory=dict)
    constants: set[str] = field(default_factory=set)
    declared: dict[str, Known] = field(default_factory=dict)

    def get(self, name: str) -> Known:
        scope: _Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.parent
        return None

    def is_constant(self, name: str) -> bool:
        scope: _Scope | None = self
        while scope is not None:
            if name in scope.values:
                return name in scope.constants
            scope = scope.parent
        return False


class Walk:
    """One walk through one model."""

    def __init__(self, model: ModelProto, where: Where, on_visit: OnVisit) -> None:
        self.model = model
        self.where = where
        self.on_visit = on_visit
        self.functions = functions_of(model, where)
        self.found = Found()
        self.inference = NodeInference()
        self.recording = True
        self.walked: set[str] = set()
        self.depth = 0
        # Functions that call functions twice, and loops in loops, could otherwise take for ever. Once it is
        # used up, a graph is walked only where it has not been walked at all.
        self.budget = 20_000 + 16 * sum(1 for _ in _all_nodes(model))

    def run(self) -> Found:
        """Walk the main graph, then every function that it has not reached."""
        scope = _Scope(self.where, opset_imports(self.model, self.where))
        self._declare(scope, self.model.graph)
        for value in self.model.graph.input:
            self._set(scope, value.name, _declared(value, scope))
        self._graph(scope, self.model.graph)
        for function in self.functions.values():
            if function_path(function) not in self.walked:
                self._function(
                    function, [None] * len(function.input), unknown_attributes(function), scope, True
                )
        return self.found

    # Graphs

    def _graph(self, scope: _Scope, graph: GraphProto) -> list[Known]:
        """Walk a graph whose inputs are known, and return its outputs."""
        # The caller may replace the default of an input. Before IR version 4 every initializer had to be one.
        inputs = {value.name for value in graph.input} if self.model.ir_version >= 4 else set()
        for tensor in graph.initializer:
            if tensor.name not in inputs:
                self._set(scope, tensor.name, _initializer(tensor, scope.where))
                scope.constants.add(tensor.name)
        self._nodes(scope, graph.node)
        return [scope.get(value.name) for value in graph.output]

    def _nodes(self, scope: _Scope, nodes: Sequence[NodeProto]) -> None:
        for node in counted(nodes, "infer"):
            self.budget -= 1
            outputs = self._node(scope, node)
            for name, known in zip(node.output, outputs, strict=True):
                if name:
                    self._set(scope, name, known)

    def _declare(self, scope: _Scope, graph: GraphProto) -> None:
        for value in (*graph.value_info, *graph.output):
            scope.declared[value.name] = _declared(value, scope)

    def _set(self, scope: _Scope, name: str, known: Known) -> None:
        stated = scope.declared.get(name)
        if stated is not None:
            known = meet(known, stated)
        scope.values[name] = known
        if self.recording:
            key = scope.where.graph, name
            # A function's values hold for all of its calls together.
            known = (
                join(self.found.values[key], known) if scope.function and key in self.found.values else known
            )
            self.found.values[key] = known

    # Nodes

    def _node(self, scope: _Scope, node: NodeProto) -> list[Known]:
        domain = canonical(node.domain)
        inputs = [scope.get(name) if name else None for name in node.input]
        function = self.functions.get(function_key(node))
        if function is not None:
            outputs = self._call(scope, node, function, inputs)
            return [*outputs, *[None] * len(node.output)][: len(node.output)]
        if domain == "" and node.op_type in FAMILY[""]:
            return self._split(scope, node, inputs)
        if domain == "":
            control = {"If": self._if, "Loop": self._loop, "Scan": self._scan}.get(node.op_type)
            if control is not None:
                outputs = control(scope, node, inputs)
                return [*outputs, *[None] * len(node.output)][: len(node.output)]
            if node.op_type == "Constant":
                return self._constant(scope, node)
        if any(subgraphs(node)):
            for step, graph in subgraphs(node):
                self._body(scope, step, graph, [None] * len(graph.input))
            return [None] * len(node.output)
        whole = with_attributes(node, scope.attributes)
        outputs = self.inference.outputs(whole, scope.opsets, inputs)
        if domain == "" and len(outputs) == 1:
            value = computed_value(whole, scope.opsets.get("", 0), inputs, outputs[0])
            if value is not None and isinstance(outputs[0], Tensor):
                outputs[0] = replace(outputs[0], value=value, shape=tuple(value.shape))
        return outputs

    def _split(self, scope: _Scope, node: NodeProto, inputs: list[Known]) -> list[Known]:
        where = replace(scope.where, node=node_label(node))
        attributes: dict[str, Any] = {}
        row, error = None, None
        try:
            row = schema(node.op_type, scope.opsets.get("", 1), "")
            attributes = node_attributes(node, scope.attributes)
        except SplitError as found:
            found.where = where
            error = found
        visit = Visit(
            schema=row,
            operator=str(row) if row is not None else node.op_type,
            attributes=attributes,
            facts=(),
            inputs=tuple(node.input),
            outputs=tuple(node.output),
            where=where,
            conditional=scope.conditional,
            constants=tuple(scope.is_constant(name) for name in node.input),
            error=error,
            node=node,
        )
        visit, outputs = visit_site(visit, inputs)
        if self.recording:
            self.on_visit(visit)
        if visit.inference is not None:
            data = tightened(visit, inputs[0])
            if not scope.conditional and not scope.function:
                self.found.sizes.update(sizes_of_names(inputs[0], data))
            if data != inputs[0]:
                self._tighten(scope, node.input[0], data)
        return outputs

    def _tighten(self, scope: _Scope, name: str, data: Known) -> None:
        """Keep what a split proves of its input: of a value from outside the graph, inside it alone."""
        if name in scope.values:
            self._set(scope, name, data)
        else:
            scope.values[name] = data

    def _constant(self, scope: _Scope, node: NodeProto) -> list[Known]:
        whole = with_attributes(node, scope.attributes)
        value = constant_value(whole, scope.where)
        scope.constants.update(node.output)
        stated = whole.attribute[0] if len(whole.attribute) == 1 else None
        if stated is not None and stated.type == AttributeProto.TENSOR:
            # its data, which may be large, is not for onnx to read
            return [Tensor(from_onnx(stated.t.data_type), tuple(stated.t.dims), value)] * len(node.output)
        found = self.inference.outputs(whole, scope.opsets, [])
        return [replace(known, value=value) if isinstance(known, Tensor) else known for known in found]

    # Subgraphs

    def _body(
        self,
        scope: _Scope,
        step: str,
        graph: GraphProto,
        inputs: Sequence[Known],
        *,
        conditional: bool = True,
    ) -> list[Known]:
        """Walk a subgraph with what is known of its inputs, and return what is known of its outputs."""
        path = extend(scope.where.graph, step)
        if not self._may_enter(path):
            return [None] * len(graph.output)
        inner = _Scope(
            replace(scope.where, graph=path),
            scope.opsets,
            scope,
            scope.attributes,
            conditional or scope.conditional,
            scope.function,
        )
        self._declare(inner, graph)
        for value, known in zip(graph.input, [*inputs, *[None] * len(graph.input)], strict=False):
            self._set(inner, value.name, meet(known, _declared(value, inner)))
        with self._deeper():
            return self._graph(inner, graph)

    def _may_enter(self, path: str) -> bool:
        """Return whether a graph is to be walked (again)."""
        spent = self.budget <= 0 and (path in self.walked or not self.recording)
        if self.depth >= _MAX_DEPTH or spent:
            return False
        if self.recording:
            self.walked.add(path)
        return True

    @contextmanager
    def _deeper(self) -> Iterator[None]:
        self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1

    def _if(self, scope: _Scope, node: NodeProto, inputs: list[Known]) -> list[Known]:
        branches = [self._body(scope, step, graph, []) for step, graph in subgraphs(node)]
        if len(branches) != 2 or len(branches[0]) != len(branches[1]):
            return []
        return [join(left, right) for left, right in zip(*branches, strict=True)]

    def _loop(self, scope: _Scope, node: NodeProto, inputs: list[Known]) -> list[Known]:
        graphs = list(subgraphs(node))
        if len(graphs) != 1 or len(inputs) < 2:
            return []
        step, graph = graphs[0]
        number, condition = Tensor(_INT64, ()), Tensor(_BOOL, ())
        start = inputs[2:]

        def body(state: list[Known]) -> list[Known]:
            return self._body(scope, step, graph, [number, condition, *state])

        outputs = self._fixed_point(body, start, first=1)
        rounds = self._rounds(node, inputs, outputs)
        carried = [join(before, after) for before, after in zip(start, outputs[1:], strict=False)]
        if isinstance(rounds, int) and rounds > 0:
            carried = list(outputs[1 : 1 + len(start)])
        return [*carried, *(stacked(known, rounds, 0) for known in outputs[1 + len(start) :])]

    def _rounds(self, node: NodeProto, inputs: list[Known], outputs: list[Known]) -> Dim:
        """Return the number of rounds of a loop."""
        most = scalar(inputs[0]) if node.input[0] else None
        if most is None:
            return UNKNOWN
        most = max(0, most)
        starts = not node.input[1] or scalar(inputs[1]) == 1
        goes_on = bool(outputs) and scalar(outputs[0]) == 1
        return most if starts and goes_on else dimension(0, most)

    def _scan(self, scope: _Scope, node: NodeProto, inputs: list[Known]) -> list[Known]:
        graphs = list(subgraphs(node))
        attributes = {attribute.name: attribute for attribute in node.attribute}
        if len(graphs) != 1 or "num_scan_inputs" not in attributes:
            return []
        step, graph = graphs[0]
        scanned = attributes["num_scan_inputs"].i
        states = len(inputs) - scanned
        if scope.opsets.get("", 0) < 9 or not 0 <= states <= len(inputs):
            self._body(scope, step, graph, [None] * len(graph.input))  # Scan-8 has a batch axis and lengths
            return []
        axes = integers(attributes, "scan_input_axes", scanned)
        slices = [without_axis(known, axis) for known, axis in zip(inputs[states:], axes, strict=False)]
        lengths = [length for _, length in slices if length is not None]
        rounds: Dim = next(
            (length for length in lengths if isinstance(length, int)), lengths[0] if lengths else UNKNOWN
        )

        def body(state: list[Known]) -> list[Known]:
            return self._body(scope, step, graph, [*state, *(known for known, _ in slices)])

        start = inputs[:states]
        outputs = self._fixed_point(body, start, first=0)
        axes = integers(attributes, "scan_output_axes", len(outputs) - states)
        carried = [join(before, after) for before, after in zip(start, outputs[:states], strict=False)]
        scans = [stacked(known, rounds, axis) for known, axis in zip(outputs[states:], axes, strict=False)]
        return [*carried, *scans]

    def _fixed_point(
        self, body: Callable[[list[Known]], list[Known]], start: list[Known], *, first: int
    ) -> list[Known]:
        """Walk a body until what goes into a round holds for every round; the last walk alone is recorded."""
        state = [without_value(known) for known in start]
        with self._unrecorded():
            for number in range(_ROUNDS):
                after = body(state)[first : first + len(start)]
                after = [*after, *[None] * (len(start) - len(after))]
                joined = [without_value(join(a, b)) for a, b in zip(state, after, strict=True)]
                if joined == state:
                    break
                state = [widened(a, b) for a, b in zip(state, joined, strict=True)] if number else joined
            else:
                state = [None] * len(start)
        return body(state)

    @contextmanager
    def _unrecorded(self) -> Iterator[None]:
        before, self.recording = self.recording, False
        try:
            yield
        finally:
            self.recording = before

    # Functions

    def _call(
        self, scope: _Scope, node: NodeProto, function: FunctionProto, inputs: list[Known]
    ) -> list[Known]:
        try:
            attributes = call_attributes(node, function, scope.attributes)
        except SplitError:
            attributes = unknown_attributes(function)
        return self._function(function, inputs, attributes, scope, scope.conditional)

    def _function(
        self,
        function: FunctionProto,
        inputs: Sequence[Known],
        attributes: Mapping[str, Any],
        caller: _Scope,
        conditional: bool,
    ) -> list[Known]:
        path = function_path(function)
        if not self._may_enter(path):
            return [None] * len(function.output)
        where = replace(self.where, graph=path)
        scope = _Scope(where, opset_imports(function, where), None, attributes, conditional, function=True)
        for value in getattr(function, "value_info", ()):
            scope.declared[value.name] = _declared(value, scope)
        for name, known in zip(function.input, [*inputs, *[None] * len(function.input)], strict=False):
            self._set(scope, name, known)
        with self._deeper():
            self._nodes(scope, function.node)
        return [scope.get(name) for name in function.output]


class Upstream(Walk):
    """A walk that tells of each value only what follows from the values before it.

    For what rewrites splits: what a split proves of its own input would prove that the split is not needed.
    """

    def _tighten(self, *_: object) -> None:
        pass


def _all_nodes(model: ModelProto) -> Iterator[NodeProto]:
    pending: list[Sequence[NodeProto]] = [model.graph.node, *(function.node for function in model.functions)]
    while pending:
        for node in pending.pop():
            yield node
            pending.extend(graph.node for _, graph in subgraphs(node))


def _declared(value: ValueInfoProto, scope: _Scope) -> Known:
    """Return what a graph declares of a value.

    Names count in the main graph alone, and not in sequences: one may be another size in every round of a
    loop, call of a function and element of a sequence.
    """
    known = from_type(value.type)
    return known if scope.where.graph is None and isinstance(known, Tensor) else _without_names(known)


def _without_names(known: Known) -> Known:
    if isinstance(known, Tensor) and known.shape is not None:
        shape = (size if isinstance(size, int) else Range(size.lo, size.hi) for size in known.shape)
        return replace(known, shape=tuple(shape))
    if isinstance(known, SequenceOf):
        element = _without_names(known.element)
        assert isinstance(element, Tensor)
        return SequenceOf(element, known.length)
    return known


def _initializer(tensor: TensorProto, where: Where) -> Known:
    shape = tuple(tensor.dims)
    value = None
    if (
        math.prod(shape) <= MAX_ELEMENTS
        and not is_external(tensor)
        and tensor.data_type != TensorProto.STRING
    ):
        value = tensor_array(tensor, where)
    return Tensor(from_onnx(tensor.data_type), shape, value)


_INT64: Final = from_onnx(TensorProto.INT64)
_BOOL: Final = from_onnx(TensorProto.BOOL)
