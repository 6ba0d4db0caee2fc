"""Infer the values of a model by visiting its nodes in order, with subgraphs and model-local functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

import onnx_ir as ir

from splitops.common.progress import track
from splitops.errors import NOWHERE, Where
from splitops.models.abstract_values import (
    NOTHING,
    AbstractSequence,
    AbstractTensor,
    AbstractValue,
    Opaque,
    join,
    meet,
    substitute_sizes,
    to_fact,
)
from splitops.models.formats.onnx.graphs import TYPE
from splitops.models.formats.openvino.nodes import DOMAIN, LayerNode, PortValue
from splitops.models.formats.walk import (
    canonicalise,
    extend,
    get_opset_imports,
    get_unread_attributes,
    has_defaults,
    index_functions,
    iter_all_nodes,
    iter_subgraphs,
    label,
    make_function_key,
    make_function_path,
)
from splitops.models.graph.onnx import annotate, get_declared
from splitops.models.graph.onnx_functions import Attributes, make_references, resolve_attributes, resolve_call
from splitops.models.graph.split_nodes import read_split_node
from splitops.models.infer.layers import get_initial_value, infer_as_openvino, infer_layer
from splitops.models.infer.onnx_loops import drop_axis, drop_elements, find_scalar, read_ints, stack, widen
from splitops.models.infer.onnx_nodes import NodeInference
from splitops.models.infer.onnx_reading import infer_constant, make_abstract_tensor
from splitops.models.infer.splitting import find_symbol_sizes, infer_outputs, tighten
from splitops.models.split_nodes import SplitNode
from splitops.spec.elements.types import from_onnx
from splitops.spec.operators import FAMILY
from splitops.spec.sizes.dims import UNKNOWN, Dim, Range, make_dim
from splitops.splitting.binding import Fact

_Values: TypeAlias = Sequence[AbstractValue]
_MAX_DEPTH: Final = 64
"""Maximum depth of nested graphs and calls. The values of deeper graphs are unknown."""
_ROUNDS: Final = 4
"""Number of inferences of a loop body after which the loop state becomes unknown if it still changes."""


@dataclass(slots=True)
class InferenceResult:
    """The abstract values of a model, as inferred by :class:`ShapeInterpreter`.

    Attributes:
        values: abstract value of each value. In a function, it holds for every call.
        splits: every split node in the order of inference; one of a function appears once for each call that
            is entered. With ``as_openvino``, only those that OpenVINO rejects.
        paths: path of the graph of each value; None is the main graph.
        sizes: sizes of the model's symbols, as implied by the splits that every run executes.
        keeps_types: whether values keep types that onnx-ir cannot represent.
        is_complete: False if a split implies more about its own input; see :class:`ForwardInterpreter`.
    """

    values: dict[ir.Value, AbstractValue] = field(default_factory=dict)
    splits: list[SplitNode] = field(default_factory=list)
    paths: dict[ir.Value, str | None] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    keeps_types: bool = False
    is_complete: bool = True

    def get_declared(self, value: ir.Value) -> AbstractValue:
        """Return the declared type and shape of a value. This is fast if there is none."""
        if value.type is None and value.shape is None and not (self.keeps_types or type(value) is PortValue):
            return None
        return get_declared(value)

    def substitute_sizes(self) -> InferenceResult:
        """Return the result with the symbols in :attr:`sizes` replaced by their sizes."""
        if not self.sizes:
            return self
        values = {value: substitute_sizes(each, self.sizes) for value, each in self.values.items()}
        return replace(self, values=values)

    def index_by_name(self) -> dict[tuple[str | None, str], AbstractValue]:
        """Return the abstract values, keyed by graph path (None for the main graph) and value name."""
        return {(self.paths[value], value.name or ""): known for value, known in self.values.items()}

    def annotate(self) -> None:
        """Annotate each value of the model whose type or shape is known with its abstract value."""
        for value, known in self.values.items():
            if known is not None:
                annotate(value, known)


@dataclass(slots=True)
class _Frame:
    """The abstract values that are visible in one graph."""

    where: Where
    opsets: Mapping[str, int]
    parent: _Frame | None = None
    attributes: Attributes | None = None
    conditional: bool = False
    function: bool = False
    values: dict[ir.Value, AbstractValue] = field(default_factory=dict)

    def get(self, value: ir.Value | None) -> AbstractValue:
        scope: _Frame | None = self
        while scope is not None and value is not None:
            if value in scope.values:
                return scope.values[value]
            scope = scope.parent
        return None

    def get_output(self, value: ir.Value) -> AbstractValue:
        """Find a graph output's abstract value by name, since onnx-ir may not link it to an outer value."""
        found = next((seen for seen in self.values if seen.name == value.name), None)
        if found is not None:
            return self.values[found]
        assert self.parent is not None  # every output of a checked model has a producer
        return self.parent.get_output(value)


class ShapeInterpreter:
    """Infers the values of a model.

    With ``as_openvino``, splits of IR are inferred as OpenVINO infers them, and the result lists only those
    that OpenVINO rejects. ``given`` has abstract values of inputs, which refine their declarations.
    """

    def __init__(
        self,
        model: ir.Model,
        where: Where,
        *,
        as_openvino: bool = False,
        given: Mapping[ir.Value, AbstractValue] | None = None,
    ) -> None:
        self.model = model
        self.as_openvino = as_openvino
        self.where = where
        self.keeps_types = TYPE in model.meta
        self.found = InferenceResult(keeps_types=self.keeps_types)
        self.inference = NodeInference(get_unread_attributes(model))
        self.functions = index_functions(model)
        self.defaults = has_defaults(model)
        self.recording = True
        self.visited: set[str] = set()
        self.depth = 0
        self.given = given or {}
        self.budget = 0

    def run(self) -> InferenceResult:
        """Infer the main graph, then every function that it does not call."""
        # Nested calls and loops can take exponential time. When the budget is used up, a graph is visited
        # only if it has not been visited yet.
        self.budget = 20_000 + 16 * sum(1 for _ in iter_all_nodes(self.model))
        scope = _Frame(self.where, get_opset_imports(self.model.graph, self.model))
        for value in self.model.graph.inputs:
            self._set(scope, value, self.given.get(value))
        self._infer_graph(scope, self.model.graph)
        for function in self.functions.values():
            if make_function_path(function) not in self.visited:
                self._infer_function(function, [None] * len(function.inputs), make_references(function), True)
        return self.found

    def run_single_graph(self, graph: ir.Graph, given: Mapping[ir.Value, AbstractValue]) -> InferenceResult:
        """Infer one graph without its subgraphs, from the abstract values of its Parameters."""
        self.depth, self.given = _MAX_DEPTH, given  # the depth prevents visits of subgraphs
        self._infer_graph(_Frame(self.where, {}), graph)
        return self.found

    # Graphs

    def _infer_graph(self, scope: _Frame, graph: ir.Graph) -> list[AbstractValue]:
        """Infer the values of a graph whose inputs are already set, and return those of its outputs."""
        for value in graph.initializers.values():
            if not (self.defaults and value.is_graph_input()):
                assert value.const_value is not None
                self._set(scope, value, make_abstract_tensor(value.const_value))
        self._infer_nodes(scope, graph)
        return [scope.get(v) if v in scope.values else scope.get_output(v) for v in graph.outputs]

    def _infer_nodes(self, scope: _Frame, nodes: Iterable[ir.Node]) -> None:
        for node in track(nodes, "infer"):
            self.budget -= 1
            outputs = self._infer_node(scope, node)
            for value, known in zip(node.outputs, outputs, strict=True):
                if value.name != "":
                    self._set(scope, value, known)

    def _set(self, scope: _Frame, value: ir.Value, inferred: AbstractValue) -> None:
        if value.type is not None or value.shape is not None or self.keeps_types:
            declared = _get_declared(value, scope)
            inferred = inferred if declared is None else meet(inferred, declared)
        scope.values[value] = inferred
        if self.recording:
            # The values of a function must hold for all of its calls.
            if scope.function and value in self.found.values:
                inferred = join(self.found.values[value], inferred)
            self.found.values[value] = inferred
            self.found.paths[value] = scope.where.graph

    # Nodes

    def _infer_node(self, scope: _Frame, node: ir.Node) -> _Values:
        if type(node) is LayerNode:
            return self._infer_layer(scope, node)
        domain = canonicalise(node.domain)
        inputs = [scope.get(value) for value in node.inputs]
        count = len(node.outputs)
        function = self.functions.get(make_function_key(node)) if self.functions else None
        if function is not None:
            attributes = resolve_call(node, function, scope.attributes)
            return _pad(self._infer_function(function, inputs, attributes, scope.conditional), count)
        if domain == "":
            rule = _RULES.get(node.op_type)
            if rule is not None:
                return _pad(rule(self, scope, node, inputs), count)
        for step, graph in iter_subgraphs(node) if node.attributes.data else ():
            self._infer_body(scope, step, graph, [None] * len(graph.inputs))
        attributes = resolve_attributes(node, scope.attributes)
        return self.inference.infer_outputs(node, attributes, scope.opsets, inputs)

    def _infer_layer(self, scope: _Frame, node: LayerNode) -> _Values:
        """Infer the outputs of a layer. They are tensors, even if nothing else is known."""
        kind, where = node.op_type, scope.where
        if kind in ("Parameter", "Const"):
            place = Where(where.model, where.graph, node.name)
            return [self.given.get(node.outputs[0]) or get_initial_value(node.layer, place)]
        inputs: list[AbstractValue] = [scope.get(value) for value in node.inputs]
        if kind in FAMILY[DOMAIN]:
            return [found or NOTHING for found in self._infer_split(scope, node, inputs)]
        for step, graph in iter_subgraphs(node) if node.attributes.data else ():
            self._infer_body(scope, step, graph, ())
        return infer_layer(node.layer, _to_tensors(inputs))

    def _infer_split(self, scope: _Frame, node: ir.Node, inputs: _Values) -> _Values:
        split_node = read_split_node(
            node,
            scope.opsets.get("", 1),
            Where(scope.where.model, scope.where.graph, label(node)),
            facts=[
                None if value is None or value.name == "" else _to_fact(known)
                for value, known in zip(node.inputs, inputs, strict=True)
            ],
            linked=scope.attributes,
            defaults=self.defaults,
            conditional=scope.conditional,
        )
        outputs = infer_outputs(split_node, inputs)
        loose = infer_as_openvino(split_node, _to_tensors(inputs)) if self.as_openvino else None
        if loose is not None:
            return loose
        if self.recording:
            self.found.splits.append(split_node)
        if split_node.inference is not None:
            data = tighten(split_node, inputs[0])
            if not scope.conditional and not scope.function:
                self.found.sizes.update(find_symbol_sizes(inputs[0], data))
            if data != inputs[0] and node.inputs[0] is not None:
                self._tighten(scope, node.inputs[0], data)
        return outputs

    def _tighten(self, scope: _Frame, value: ir.Value, data: AbstractValue) -> None:
        """Refine the abstract input of a split. A value of an outer graph is refined only in this graph."""
        if value in scope.values:
            self._set(scope, value, data)
        else:
            scope.values[value] = data

    def _infer_constant(self, scope: _Frame, node: ir.Node, inputs: _Values) -> _Values:
        attributes = resolve_attributes(node, scope.attributes)
        found = infer_constant(attributes)
        if found is None:  # a sparse tensor, strings, or an attribute of the function
            return self.inference.infer_outputs(node, attributes, scope.opsets, [])
        return [found] * len(node.outputs)

    def _infer_optional(self, scope: _Frame, node: ir.Node, inputs: _Values) -> _Values:
        """Infer Optional or OptionalGetElement. Keep the abstract value of the element, not only its type."""
        attributes = resolve_attributes(node, scope.attributes)
        inferred = self.inference.infer_outputs(node, attributes, scope.opsets, inputs)[0]
        source = inputs[0] if inputs else None
        if node.op_type == "Optional":
            element = source if isinstance(source, AbstractTensor | AbstractSequence) else None
            return [replace(inferred, element=element) if isinstance(inferred, Opaque) else inferred]
        if isinstance(source, Opaque):
            return [inferred if source.element is None else meet(source.element, inferred)]
        return [inferred if source is None else source]

    # Subgraphs

    def _infer_body(
        self, scope: _Frame, step: str, graph: ir.Graph, inputs: _Values, *, conditional: bool = True
    ) -> list[AbstractValue]:
        """Infer the outputs of a subgraph from its abstract inputs. ``step`` is added to the graph path."""
        path = extend(scope.where.graph, step)
        if not self._may_enter(path):
            return [None] * len(graph.outputs)
        inner = _Frame(
            replace(scope.where, graph=path),
            scope.opsets,
            scope,
            scope.attributes,
            conditional or scope.conditional,
            scope.function,
        )
        for value, known in zip(graph.inputs, _pad(inputs, len(graph.inputs)), strict=True):
            self._set(inner, value, known)
        self.depth += 1
        found = self._infer_graph(inner, graph)
        self.depth -= 1
        return found

    def _may_enter(self, path: str) -> bool:
        """Return whether to visit a graph, possibly again, and record the visit."""
        spent = self.budget <= 0 and (path in self.visited or not self.recording)
        if self.depth >= _MAX_DEPTH or spent:
            return False
        if self.recording:
            self.visited.add(path)
        return True

    def _infer_if(self, scope: _Frame, node: ir.Node, inputs: _Values) -> _Values:
        branches = [self._infer_body(scope, step, graph, []) for step, graph in iter_subgraphs(node)]
        if len(branches) != 2 or len(branches[0]) != len(branches[1]):
            return []
        return [join(left, right) for left, right in zip(*branches, strict=True)]

    def _infer_loop(self, scope: _Frame, node: ir.Node, inputs: _Values) -> _Values:
        graphs = list(iter_subgraphs(node))
        if len(graphs) != 1 or len(inputs) < 2:
            return []
        step, graph = graphs[0]
        number, condition = AbstractTensor(_INT64, ()), AbstractTensor(_BOOL, ())
        start = inputs[2:]

        def run_body(state: list[AbstractValue]) -> list[AbstractValue]:
            return self._infer_body(scope, step, graph, [number, condition, *state])

        outputs = self._compute_fixed_point(run_body, start, first=1)
        rounds = self._infer_trip_count(node, inputs, outputs)
        carried = [join(before, after) for before, after in zip(start, outputs[1:], strict=False)]
        if isinstance(rounds, int) and rounds > 0:
            carried = list(outputs[1 : 1 + len(start)])
        return [*carried, *(stack(known, rounds, 0) for known in outputs[1 + len(start) :])]

    def _infer_trip_count(self, node: ir.Node, inputs: _Values, outputs: _Values) -> Dim:
        """Return the number of iterations of a loop, as an interval if it is not exact."""
        limit = find_scalar(inputs[0])
        if limit is None:
            return UNKNOWN
        limit = max(0, limit)
        starts = node.inputs[1] is None or find_scalar(inputs[1]) == 1
        continues = bool(outputs) and find_scalar(outputs[0]) == 1
        return limit if starts and continues else make_dim(0, limit)

    def _infer_scan(self, scope: _Frame, node: ir.Node, inputs: _Values) -> _Values:
        graphs = list(iter_subgraphs(node))
        attributes = node.attributes
        if len(graphs) != 1 or "num_scan_inputs" not in attributes:
            return []
        step, graph = graphs[0]
        scanned = attributes["num_scan_inputs"].as_int()
        states = len(inputs) - scanned
        if scope.opsets.get("", 0) < 9 or not 0 <= states <= len(inputs):
            # Scan-8 has a batch axis and lengths.
            self._infer_body(scope, step, graph, [None] * len(graph.inputs))
            return []
        axes = read_ints(attributes, "scan_input_axes", scanned)
        slices = [drop_axis(known, axis) for known, axis in zip(inputs[states:], axes, strict=False)]
        lengths = [length for _, length in slices if length is not None]
        rounds: Dim = next(
            (length for length in lengths if isinstance(length, int)), lengths[0] if lengths else UNKNOWN
        )

        def run_body(state: list[AbstractValue]) -> list[AbstractValue]:
            return self._infer_body(scope, step, graph, [*state, *(known for known, _ in slices)])

        start = inputs[:states]
        outputs = self._compute_fixed_point(run_body, start, first=0)
        axes = read_ints(attributes, "scan_output_axes", len(outputs) - states)
        carried = [join(before, after) for before, after in zip(start, outputs[:states], strict=False)]
        scans = [stack(known, rounds, axis) for known, axis in zip(outputs[states:], axes, strict=False)]
        return [*carried, *scans]

    def _infer_sequence_map(self, scope: _Frame, node: ir.Node, inputs: _Values) -> _Values:
        """Infer the body for an arbitrary element, and return sequences of its outputs."""
        graphs = list(iter_subgraphs(node))
        if len(graphs) != 1 or not inputs:
            return []
        elements = [
            drop_elements(_drop_names(known.element)) if isinstance(known, AbstractSequence) else known
            for known in inputs
        ]
        outputs = self._infer_body(scope, *graphs[0], elements)
        length = inputs[0].length if isinstance(inputs[0], AbstractSequence) else UNKNOWN
        return [
            AbstractSequence(replace(known, elements=None), length)
            if isinstance(known, AbstractTensor)
            else None
            for known in outputs
        ]

    def _compute_fixed_point(
        self, body: Callable[[list[AbstractValue]], list[AbstractValue]], start: _Values, *, first: int
    ) -> list[AbstractValue]:
        """Infer a body until its state holds for every iteration. Record and return only the last result.

        ``start`` is the initial state, and ``first`` the index of the first output that is part of the state.
        """
        state = [drop_elements(known) for known in start]
        recording, self.recording = self.recording, False
        for number in range(_ROUNDS):
            after = _pad(body(state)[first : first + len(start)], len(start))
            joined = [drop_elements(join(a, b)) for a, b in zip(state, after, strict=True)]
            if joined == state:
                break
            state = [widen(a, b) for a, b in zip(state, joined, strict=True)] if number else joined
        else:
            state = [None] * len(start)
        self.recording = recording
        return body(state)

    # Functions

    def _infer_function(
        self, function: ir.Function, inputs: _Values, attributes: Attributes, conditional: bool
    ) -> list[AbstractValue]:
        path = make_function_path(function)
        if not self._may_enter(path):
            return [None] * len(function.outputs)
        where = replace(self.where, graph=path)
        scope = _Frame(where, get_opset_imports(function), None, attributes, conditional, function=True)
        for value, known in zip(function.inputs, _pad(inputs, len(function.inputs)), strict=True):
            self._set(scope, value, known)
        self.depth += 1
        self._infer_nodes(scope, function)
        self.depth -= 1
        return [scope.get(value) for value in function.outputs]


_RULES: Final[Mapping[str, Callable[[ShapeInterpreter, _Frame, ir.Node, _Values], _Values]]] = {
    **dict.fromkeys(FAMILY[""], ShapeInterpreter._infer_split),
    "Constant": ShapeInterpreter._infer_constant,
    "If": ShapeInterpreter._infer_if,
    "Loop": ShapeInterpreter._infer_loop,
    "Optional": ShapeInterpreter._infer_optional,
    "OptionalGetElement": ShapeInterpreter._infer_optional,
    "Scan": ShapeInterpreter._infer_scan,
    "SequenceMap": ShapeInterpreter._infer_sequence_map,
}
"""Methods for the operators that the interpreter infers itself."""


class ForwardInterpreter(ShapeInterpreter):
    """Infers each value only from the values before it.

    Rewrites of splits need it: facts that a split implies for its own input would make the split seem
    unnecessary.
    """

    def _tighten(self, *_: object) -> None:
        self.found.is_complete = False


def infer_model(
    model: ir.Model, where: Where = NOWHERE, *, given: Mapping[ir.Value, AbstractValue] | None = None
) -> InferenceResult:
    """Infer the values of a model, with the sizes that its splits imply for symbols and for their own input.

    ``given`` has abstract values of inputs, which refine their declarations.
    """
    return ShapeInterpreter(model, where, given=given).run().substitute_sizes()


def _to_tensors(inputs: _Values) -> list[AbstractTensor]:
    return [known if isinstance(known, AbstractTensor) else NOTHING for known in inputs]


def _to_fact(known: AbstractValue) -> Fact:
    return to_fact(known, value=True) if isinstance(known, AbstractTensor) else Fact()


def _pad(found: _Values, count: int) -> list[AbstractValue]:
    """Return the first ``count`` values, padded with None for unknown ones."""
    return [*found, *[None] * count][:count]


def _get_declared(value: ir.Value, scope: _Frame) -> AbstractValue:
    """Return the declared type and shape of a value. Only tensors of the main graph keep symbols.

    Elsewhere, a symbol may have another size in each loop iteration, function call or sequence element.
    """
    known = get_declared(value)
    return known if scope.where.graph is None and isinstance(known, AbstractTensor) else _drop_names(known)


def _drop_names(value: AbstractValue) -> AbstractValue:
    if isinstance(value, AbstractTensor) and value.shape is not None:
        shape = (size if isinstance(size, int) else Range(size.lo, size.hi) for size in value.shape)
        return replace(value, shape=tuple(shape))
    if isinstance(value, AbstractSequence):
        element = _drop_names(value.element)
        assert isinstance(element, AbstractTensor)
        return AbstractSequence(element, value.length)
    return value


_INT64: Final = from_onnx(ir.DataType.INT64.value)
_BOOL: Final = from_onnx(ir.DataType.BOOL.value)
