"""The walk through a model: every node in order, subgraphs and model-local functions included."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import onnx_ir as ir

from splitops.common.progress import track
from splitops.errors import Where
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
from splitops.models.graph.onnx import annotate, declared
from splitops.models.graph.onnx_functions import Attributes, call_attributes, resolved, unknown_attributes
from splitops.models.graph.split_nodes import read_split_node
from splitops.models.infer.layers import get_value_before, infer_layer, openvino_says
from splitops.models.infer.onnx_loops import integers, scalar, stacked, widened, without_axis, without_value
from splitops.models.infer.onnx_nodes import NodeInference
from splitops.models.infer.onnx_reading import constant, make_abstract_tensor
from splitops.models.infer.splitting import OnSite, outputs_of, sizes_of_names, tightened
from splitops.spec.elements.types import from_onnx
from splitops.spec.operators import FAMILY
from splitops.spec.sizes.dims import UNKNOWN, Dim, Range, make_dim
from splitops.splitting.binding import Fact

_MAX_DEPTH: Final = 64
"""Graphs and functions inside one another; what is deeper is unknown, and functions are then walked alone."""
_ROUNDS: Final = 4
"""Rounds of a loop until what still changes is given up as unknown."""


@dataclass(slots=True)
class InferenceResult:
    """Everything that a walk has found out.

    Attributes:
        values: what is known of each value; of a function's, what holds for every call.
        paths: the path of the graph of each value; None is the main graph.
        sizes: symbols of the model whose sizes the splits that always run prove.
        keeps_types: whether values keep types that onnx-ir does not read.
    """

    values: dict[ir.Value, AbstractValue] = field(default_factory=dict)
    paths: dict[ir.Value, str | None] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    keeps_types: bool = False

    def declared(self, value: ir.Value) -> AbstractValue:
        """Return what the model declares of a value; one without a type is not asked for its meta."""
        if value.type is None and value.shape is None and not (self.keeps_types or type(value) is PortValue):
            return None
        return declared(value)

    def substitute_sizes(self) -> InferenceResult:
        """Return the same, with the sizes of symbols in the place of the symbols."""
        if not self.sizes:
            return self
        values = {value: substitute_sizes(each, self.sizes) for value, each in self.values.items()}
        return replace(self, values=values)

    def by_name(self) -> dict[tuple[str | None, str], AbstractValue]:
        """Return what is known by the path of the graph and the name of each value."""
        return {(self.paths[value], value.name or ""): known for value, known in self.values.items()}

    def annotate(self) -> None:
        """Note at every value of which something is known what that is."""
        for value, known in self.values.items():
            if known is not None:
                annotate(value, known)


@dataclass(slots=True)
class _Frame:
    """The values that the nodes of one graph see."""

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

    def output(self, value: ir.Value) -> AbstractValue:
        """Return what is known of an output; onnx-ir does not find one that was made outside its graph."""
        found = next((seen for seen in self.values if seen.name == value.name), None)
        if found is not None:
            return self.values[found]
        assert self.parent is not None  # no model is read in which an output is made nowhere
        return self.parent.output(value)


class ShapeInterpreter:
    """One walk through the nodes of one model; what ``on_site`` raises of a split node ends it.

    Splits of IR can be inferred as OpenVINO itself infers them. What is ``given`` is known of inputs,
    beside what the model declares of them.
    """

    def __init__(
        self,
        model: ir.Model,
        where: Where,
        on_site: OnSite,
        *,
        as_openvino: bool = False,
        given: Mapping[ir.Value, AbstractValue] | None = None,
    ) -> None:
        self.model = model
        self.as_openvino = as_openvino
        self.where = where
        self.on_site = on_site
        self.keeps_types = TYPE in model.meta
        self.found = InferenceResult(keeps_types=self.keeps_types)
        self.inference = NodeInference(get_unread_attributes(model))
        self.functions = index_functions(model)
        self.defaults = has_defaults(model)
        self.recording = True
        self.walked: set[str] = set()
        self.depth = 0
        self.given = given or {}
        self.budget = 0

    def run(self) -> InferenceResult:
        """Walk the main graph, then every function that it has not reached yet."""
        # Functions that call functions twice, and loops in loops, could otherwise take for ever. Once it is
        # used up, a graph is walked only where it has not been walked at all.
        self.budget = 20_000 + 16 * sum(1 for _ in iter_all_nodes(self.model))
        scope = _Frame(self.where, get_opset_imports(self.model.graph, self.model))
        for value in self.model.graph.inputs:
            self._set(scope, value, self.given.get(value))
        self._graph(scope, self.model.graph)
        for function in self.functions.values():
            if make_function_path(function) not in self.walked:
                self._function(
                    function, [None] * len(function.inputs), unknown_attributes(function), scope, True
                )
        return self.found

    def run_single_graph(self, graph: ir.Graph, given: Mapping[ir.Value, AbstractValue]) -> InferenceResult:
        """Walk one graph in the place of the model, and none inside it, with what is given of Parameters."""
        self.depth, self.given = _MAX_DEPTH, given  # as deep as a graph may be
        self._graph(_Frame(self.where, {}), graph)
        return self.found

    # Graphs

    def _graph(self, scope: _Frame, graph: ir.Graph) -> list[AbstractValue]:
        """Walk a graph whose inputs are known, and return its outputs."""
        for value in graph.initializers.values():
            if not (self.defaults and value.is_graph_input()):
                assert value.const_value is not None
                self._set(scope, value, make_abstract_tensor(value.const_value))
        self._nodes(scope, graph)
        return [scope.get(value) if value in scope.values else scope.output(value) for value in graph.outputs]

    def _nodes(self, scope: _Frame, nodes: Iterable[ir.Node]) -> None:
        for node in track(nodes, "infer"):
            self.budget -= 1
            outputs = self._node(scope, node)
            for value, known in zip(node.outputs, outputs, strict=True):
                if value.name != "":
                    self._set(scope, value, known)

    def _set(self, scope: _Frame, value: ir.Value, known: AbstractValue) -> None:
        if value.type is not None or value.shape is not None or self.keeps_types:
            stated = _claimed(value, scope)
            known = known if stated is None else meet(known, stated)
        scope.values[value] = known
        if self.recording:
            # A function's values hold for all of its calls together.
            if scope.function and value in self.found.values:
                known = join(self.found.values[value], known)
            self.found.values[value] = known
            self.found.paths[value] = scope.where.graph

    # Nodes

    def _node(self, scope: _Frame, node: ir.Node) -> Sequence[AbstractValue]:
        if type(node) is LayerNode:
            return self._layer(scope, node)
        domain = canonicalise(node.domain)
        inputs = [scope.get(value) for value in node.inputs]
        count = len(node.outputs)
        function = self.functions.get(make_function_key(node)) if self.functions else None
        if function is not None:
            return _filled(self._call(scope, node, function, inputs), count)
        if domain == "":
            rule = _RULES.get(node.op_type)
            if rule is not None:
                return _filled(rule(self, scope, node, inputs), count)
        for step, graph in iter_subgraphs(node) if node.attributes.data else ():
            self._body(scope, step, graph, [None] * len(graph.inputs))
        return self.inference.outputs(node, resolved(node, scope.attributes), scope.opsets, inputs)

    def _layer(self, scope: _Frame, node: LayerNode) -> Sequence[AbstractValue]:
        """Return what is known of the outputs of a layer: where nothing is, that they are tensors."""
        kind, where = node.op_type, scope.where
        if kind in ("Parameter", "Const"):
            place = Where(where.model, where.graph, node.name)
            return [self.given.get(node.outputs[0]) or get_value_before(node.layer, place)]
        inputs: list[AbstractValue] = [scope.get(value) for value in node.inputs]
        if kind in FAMILY[DOMAIN]:
            return [found or NOTHING for found in self._split(scope, node, inputs)]
        for step, graph in iter_subgraphs(node) if node.attributes.data else ():
            self._body(scope, step, graph, ())
        return infer_layer(node.layer, _tensors(inputs))

    def _split(self, scope: _Frame, node: ir.Node, inputs: list[AbstractValue]) -> Sequence[AbstractValue]:
        split_node = read_split_node(
            node,
            scope.opsets.get("", 1),
            Where(scope.where.model, scope.where.graph, label(node)),
            facts=[
                None if value is None or value.name == "" else _fact(known)
                for value, known in zip(node.inputs, inputs, strict=True)
            ],
            linked=scope.attributes,
            defaults=self.defaults,
            conditional=scope.conditional,
        )
        outputs = outputs_of(split_node, inputs)
        said = openvino_says(split_node, _tensors(inputs)) if self.as_openvino else None
        if said is not None:
            return said
        if self.recording:
            self.on_site(split_node)
        if split_node.inference is not None:
            data = tightened(split_node, inputs[0])
            if not scope.conditional and not scope.function:
                self.found.sizes.update(sizes_of_names(inputs[0], data))
            if data != inputs[0] and node.inputs[0] is not None:
                self._tighten(scope, node.inputs[0], data)
        return outputs

    def _tighten(self, scope: _Frame, value: ir.Value, data: AbstractValue) -> None:
        """Keep what a split proves of its input: of a value from outside the graph, inside it alone."""
        if value in scope.values:
            self._set(scope, value, data)
        else:
            scope.values[value] = data

    def _constant(self, scope: _Frame, node: ir.Node, inputs: list[AbstractValue]) -> Sequence[AbstractValue]:
        attributes = resolved(node, scope.attributes)
        found = constant(attributes)
        if found is None:  # a sparse tensor, strings, or what a caller of the function gives
            return self.inference.outputs(node, attributes, scope.opsets, [])
        return [found] * len(node.outputs)

    def _optional(self, scope: _Frame, node: ir.Node, inputs: list[AbstractValue]) -> Sequence[AbstractValue]:
        """Keep what is known of the element of an optional, which its type cannot say: names above all."""
        attributes = resolved(node, scope.attributes)
        found = self.inference.outputs(node, attributes, scope.opsets, inputs)[0]
        source = inputs[0] if inputs else None
        if node.op_type == "Optional":
            element = source if isinstance(source, AbstractTensor | AbstractSequence) else None
            return [replace(found, element=element) if isinstance(found, Opaque) else found]
        if isinstance(source, Opaque):
            return [found if source.element is None else meet(source.element, found)]
        return [found if source is None else source]

    # Subgraphs

    def _body(
        self,
        scope: _Frame,
        step: str,
        graph: ir.Graph,
        inputs: Sequence[AbstractValue],
        *,
        conditional: bool = True,
    ) -> list[AbstractValue]:
        """Walk a subgraph with what is known of its inputs, and return what is known of its outputs."""
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
        for value, known in zip(graph.inputs, _filled(inputs, len(graph.inputs)), strict=True):
            self._set(inner, value, known)
        self.depth += 1
        found = self._graph(inner, graph)
        self.depth -= 1
        return found

    def _may_enter(self, path: str) -> bool:
        """Return whether a graph is to be walked (again)."""
        spent = self.budget <= 0 and (path in self.walked or not self.recording)
        if self.depth >= _MAX_DEPTH or spent:
            return False
        if self.recording:
            self.walked.add(path)
        return True

    def _if(self, scope: _Frame, node: ir.Node, inputs: list[AbstractValue]) -> list[AbstractValue]:
        branches = [self._body(scope, step, graph, []) for step, graph in iter_subgraphs(node)]
        if len(branches) != 2 or len(branches[0]) != len(branches[1]):
            return []
        return [join(left, right) for left, right in zip(*branches, strict=True)]

    def _loop(self, scope: _Frame, node: ir.Node, inputs: list[AbstractValue]) -> list[AbstractValue]:
        graphs = list(iter_subgraphs(node))
        if len(graphs) != 1 or len(inputs) < 2:
            return []
        step, graph = graphs[0]
        number, condition = AbstractTensor(_INT64, ()), AbstractTensor(_BOOL, ())
        start = inputs[2:]

        def body(state: list[AbstractValue]) -> list[AbstractValue]:
            return self._body(scope, step, graph, [number, condition, *state])

        outputs = self._fixed_point(body, start, first=1)
        rounds = self._infer_trip_count(node, inputs, outputs)
        carried = [join(before, after) for before, after in zip(start, outputs[1:], strict=False)]
        if isinstance(rounds, int) and rounds > 0:
            carried = list(outputs[1 : 1 + len(start)])
        return [*carried, *(stacked(known, rounds, 0) for known in outputs[1 + len(start) :])]

    def _infer_trip_count(
        self, node: ir.Node, inputs: list[AbstractValue], outputs: list[AbstractValue]
    ) -> Dim:
        """Return the number of rounds of a loop."""
        most = scalar(inputs[0])
        if most is None:
            return UNKNOWN
        most = max(0, most)
        starts = node.inputs[1] is None or scalar(inputs[1]) == 1
        goes_on = bool(outputs) and scalar(outputs[0]) == 1
        return most if starts and goes_on else make_dim(0, most)

    def _scan(self, scope: _Frame, node: ir.Node, inputs: list[AbstractValue]) -> list[AbstractValue]:
        graphs = list(iter_subgraphs(node))
        attributes = node.attributes
        if len(graphs) != 1 or "num_scan_inputs" not in attributes:
            return []
        step, graph = graphs[0]
        scanned = attributes["num_scan_inputs"].as_int()
        states = len(inputs) - scanned
        if scope.opsets.get("", 0) < 9 or not 0 <= states <= len(inputs):
            self._body(scope, step, graph, [None] * len(graph.inputs))  # Scan-8 has a batch axis and lengths
            return []
        axes = integers(attributes, "scan_input_axes", scanned)
        slices = [without_axis(known, axis) for known, axis in zip(inputs[states:], axes, strict=False)]
        lengths = [length for _, length in slices if length is not None]
        rounds: Dim = next(
            (length for length in lengths if isinstance(length, int)), lengths[0] if lengths else UNKNOWN
        )

        def body(state: list[AbstractValue]) -> list[AbstractValue]:
            return self._body(scope, step, graph, [*state, *(known for known, _ in slices)])

        start = inputs[:states]
        outputs = self._fixed_point(body, start, first=0)
        axes = integers(attributes, "scan_output_axes", len(outputs) - states)
        carried = [join(before, after) for before, after in zip(start, outputs[:states], strict=False)]
        scans = [stacked(known, rounds, axis) for known, axis in zip(outputs[states:], axes, strict=False)]
        return [*carried, *scans]

    def _sequence_map(self, scope: _Frame, node: ir.Node, inputs: list[AbstractValue]) -> list[AbstractValue]:
        """Map what holds for every element: the body makes one element of each output."""
        graphs = list(iter_subgraphs(node))
        if len(graphs) != 1 or not inputs:
            return []
        elements = [
            without_value(_without_names(known.element)) if isinstance(known, AbstractSequence) else known
            for known in inputs
        ]
        made = self._body(scope, *graphs[0], elements)
        length = inputs[0].length if isinstance(inputs[0], AbstractSequence) else UNKNOWN
        return [
            AbstractSequence(replace(known, elements=None), length)
            if isinstance(known, AbstractTensor)
            else None
            for known in made
        ]

    def _fixed_point(
        self,
        body: Callable[[list[AbstractValue]], list[AbstractValue]],
        start: list[AbstractValue],
        *,
        first: int,
    ) -> list[AbstractValue]:
        """Walk a body until what goes into a round holds for every round; the last walk alone is recorded."""
        state = [without_value(known) for known in start]
        recording, self.recording = self.recording, False
        for number in range(_ROUNDS):
            after = _filled(body(state)[first : first + len(start)], len(start))
            joined = [without_value(join(a, b)) for a, b in zip(state, after, strict=True)]
            if joined == state:
                break
            state = [widened(a, b) for a, b in zip(state, joined, strict=True)] if number else joined
        else:
            state = [None] * len(start)
        self.recording = recording
        return body(state)

    # Functions

    def _call(
        self, scope: _Frame, node: ir.Node, function: ir.Function, inputs: list[AbstractValue]
    ) -> list[AbstractValue]:
        attributes = call_attributes(node, function, scope.attributes)
        return self._function(function, inputs, attributes, scope, scope.conditional)

    def _function(
        self,
        function: ir.Function,
        inputs: Sequence[AbstractValue],
        attributes: Attributes,
        caller: _Frame,
        conditional: bool,
    ) -> list[AbstractValue]:
        path = make_function_path(function)
        if not self._may_enter(path):
            return [None] * len(function.outputs)
        where = replace(self.where, graph=path)
        scope = _Frame(where, get_opset_imports(function), None, attributes, conditional, function=True)
        for value, known in zip(function.inputs, _filled(inputs, len(function.inputs)), strict=True):
            self._set(scope, value, known)
        self.depth += 1
        self._nodes(scope, function)
        self.depth -= 1
        return [scope.get(value) for value in function.outputs]


_RULES: Final[
    Mapping[str, Callable[[ShapeInterpreter, _Frame, ir.Node, list[AbstractValue]], Sequence[AbstractValue]]]
] = {
    **dict.fromkeys(FAMILY[""], ShapeInterpreter._split),
    "Constant": ShapeInterpreter._constant,
    "If": ShapeInterpreter._if,
    "Loop": ShapeInterpreter._loop,
    "Optional": ShapeInterpreter._optional,
    "OptionalGetElement": ShapeInterpreter._optional,
    "Scan": ShapeInterpreter._scan,
    "SequenceMap": ShapeInterpreter._sequence_map,
}
"""What the walk itself infers, by operator."""


class ForwardInterpreter(ShapeInterpreter):
    """A walk that tells of each value only what follows from the values before it.

    For what rewrites splits: what a split proves of its own input would prove that the split is not needed.
    """

    def _tighten(self, *_: object) -> None:
        pass


def _tensors(inputs: Sequence[AbstractValue]) -> list[AbstractTensor]:
    return [known if isinstance(known, AbstractTensor) else NOTHING for known in inputs]


def _fact(known: AbstractValue) -> Fact:
    return to_fact(known, value=True) if isinstance(known, AbstractTensor) else Fact()


def _filled(found: Sequence[AbstractValue], count: int) -> list[AbstractValue]:
    """Return as many as there are to be: nothing is known of those that are missing."""
    return [*found, *[None] * count][:count]


def _claimed(value: ir.Value, scope: _Frame) -> AbstractValue:
    """Return what a graph declares of a value.

    Names count in the main graph alone, and not in sequences: one may be another size in every round of a
    loop, call of a function and element of a sequence.
    """
    known = declared(value)
    return known if scope.where.graph is None and isinstance(known, AbstractTensor) else _without_names(known)


def _without_names(known: AbstractValue) -> AbstractValue:
    if isinstance(known, AbstractTensor) and known.shape is not None:
        shape = (size if isinstance(size, int) else Range(size.lo, size.hi) for size in known.shape)
        return replace(known, shape=tuple(shape))
    if isinstance(known, AbstractSequence):
        element = _without_names(known.element)
        assert isinstance(element, AbstractTensor)
        return AbstractSequence(element, known.length)
    return known


_INT64: Final = from_onnx(ir.DataType.INT64.value)
_BOOL: Final = from_onnx(ir.DataType.BOOL.value)
