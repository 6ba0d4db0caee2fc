"""onnx's ReferenceEvaluator with the split operators of splitops, and errors that name the node."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TypeProto,
    ValueInfoProto,
)
from onnx.helper import make_tensor_value_info
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpFunctionContextDependant, OpRun, RuntimeContextError
from onnx.reference.ops import load_op

from splitops.common.progress import track
from splitops.errors import ModelError, SplitError, Where, shown
from splitops.models.engines.profile_events import get_event_list, record_event
from splitops.models.formats.onnx.graphs import deserialize_model
from splitops.models.formats.onnx.structure import (
    check_model,
    index_functions,
    iter_nested_nodes,
    iter_subgraphs,
    iter_tensors,
    read_opset_imports,
)
from splitops.models.formats.onnx.tensors import load_external, read_tensor
from splitops.models.formats.onnx.types import to_type
from splitops.models.formats.walk import (
    FunctionKey,
    canonicalise,
    extend,
    make_function_key,
    make_function_path,
)
from splitops.models.infer.interpreter import infer_model
from splitops.models.running.onnx.control_flow import CONTROL_FLOW, FunctionCall
from splitops.models.running.onnx.legacy_ops import (
    SLICE_WITH_STEPS,
    Concat,
    Flatten,
    Identity,
    Slice,
    flatten_to_rows,
    with_defaults,
)
from splitops.models.running.onnx.openvino_ops import DOMAIN as OPENVINO
from splitops.models.running.onnx.openvino_ops import get_openvino_op
from splitops.onnx.reference import get_reference_ops, node_label
from splitops.spec.elements.types import element_type_of

_FAMILY: Final = {operator.__name__: operator for operator in get_reference_ops()}
_OWN: Final[Mapping[str, type[OpRun]]] = {"Concat": Concat, "Flatten": Flatten, "Identity": Identity}
_MAX_BODIES: Final = 10_000
"""Maximum number of function bodies with different attributes: nested calls can need exponentially many."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The location of a graph, and the functions that it can call.

    Attributes:
        where: model and graph path.
        functions: the model-local functions.
        bodies: cached evaluators of functions, by function and attributes.
    """

    where: Where
    functions: Mapping[FunctionKey, FunctionProto] = field(default_factory=dict)
    bodies: dict[tuple[FunctionKey, bytes], Evaluator] = field(default_factory=dict)

    def enter(self, step: str) -> Scope:
        """Return the scope of a subgraph of this scope's graph. ``step`` is added to the path in errors."""
        return replace(self, where=replace(self.where, graph=extend(self.where.graph, step)))


def make_model_evaluator(model: ModelProto, where: Where) -> Evaluator:
    """Make the evaluator of a model that :func:`~.structure.check_model` has checked."""
    return Evaluator(model.graph, read_opset_imports(model), scope=Scope(where, index_functions(model)))


def make_node_evaluator(node: NodeProto, opset: int) -> Evaluator:
    """Make the evaluator of a single node. ``opset`` is the opset version of its domain."""
    model = ModelProto(ir_version=10)
    model.opset_import.add(domain=node.domain, version=opset)
    model.graph.node.append(node)
    model.graph.input.extend(ValueInfoProto(name=name) for name in dict.fromkeys(node.input) if name)
    model.graph.output.extend(ValueInfoProto(name=name) for name in node.output if name)
    check_model(model)
    load_external(iter_tensors(model), Where(), None)
    return make_model_evaluator(model, Where())


def iter_reads(node: NodeProto) -> Iterator[str]:
    """Yield the names of the values that a node reads, including outer values that its bodies read."""
    yield from filter(None, node.input)
    for _, graph in iter_subgraphs(node):
        made = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
        for inner in graph.node:
            yield from (name for name in iter_reads(inner) if name not in made)
            made.update(inner.output)
        yield from (value.name for value in graph.output if value.name not in made)


@dataclass(frozen=True, slots=True)
class _Step:
    """An operator, with the facts about its node that every run needs."""

    operator: OpRun
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    dropped: tuple[str, ...]
    """Names of the values that are unused after this step."""
    needs_context: bool
    linked: bool
    constant: npt.NDArray[Any] | None
    """The output of a Constant that is the same in every run; otherwise None."""

    @classmethod
    def from_operator(cls, operator: OpRun, later: set[str]) -> _Step:
        """Make a step, and add the names of its inputs and outputs to ``later``, those of the later steps."""
        linked = bool(operator.has_linked_attribute)
        value = getattr(operator, "cst", None)
        constant = value if isinstance(value, np.ndarray) and not linked else None
        inputs, outputs = tuple(operator.input), tuple(operator.output)
        dropped = tuple({*iter_reads(operator.onnx_node), *outputs} - later)
        later.update(dropped)
        return cls(operator, inputs, outputs, dropped, operator.need_context(), linked, constant)


class Evaluator(ReferenceEvaluator):
    """Evaluates a graph, subgraph or function body.

    Differences from onnx's evaluator: split operators, Loop, Scan, SequenceMap, model-local functions and
    layers of OpenVINO are implemented by splitops, which also fixes the operators in :mod:`~.legacy_ops`.
    Outputs named ``""`` are absent. Initializers are checked and read-only. Errors contain the location of
    the node.
    """

    def __init__(
        self,
        proto: GraphProto | FunctionProto,
        opsets: Mapping[str, int] | None = None,
        *,
        scope: Scope,
    ) -> None:
        self.scope = scope
        known = read_opset_imports(proto) if isinstance(proto, FunctionProto) else dict(opsets or {})
        if "" in known:
            known["ai.onnx"] = known[""]
        self.known_opsets = known
        super().__init__(proto, opsets=None if isinstance(proto, FunctionProto) else known)

    def _init(self) -> None:
        initializers = {tensor.name: read_tensor(tensor, self.scope.where) for tensor in self.inits_}
        self.inits_ = []
        self.opsets_ = self.known_opsets
        super()._init()
        self.rt_inits_ = initializers
        # The initializers of a graph take precedence over outer values, but not over its inputs.
        inputs = frozenset(self.input_names_)
        self.own_inits = {name: value for name, value in initializers.items() if name not in inputs}
        later = {"", *self.output_names_}
        steps = [_Step.from_operator(operator, later) for operator in reversed(self.rt_nodes_)][::-1]
        self.own_inits |= {step.outputs[0]: step.constant for step in steps if step.constant is not None}
        self.steps = [step for step in steps if step.constant is None]

    def _load_impl(self, node: NodeProto, input_types: Any = None) -> Callable[..., OpRun]:
        """Return the factory of a node's implementation. Its errors are SplitErrors that name the node."""
        implementation = self._call_guarded(node, self._find_implementation, node, input_types)

        def make(node: NodeProto, run_params: dict[str, Any]) -> OpRun:
            # onnx's log function refers to the evaluator, which refers to the operator: avoid this cycle.
            own = {
                "evaluator_cls": self._make_evaluator_class(node),
                "where": self.scope.where,
                "log": _discard_log,
            }
            params = run_params | own
            domain = canonicalise(node.domain)
            opset = self.known_opsets.get(domain, 1)
            completed = self._call_guarded(node, with_defaults, node, opset, domain)
            made: OpRun = self._call_guarded(node, implementation, completed, params)
            if isinstance(constant := getattr(made, "cst", None), np.ndarray):
                constant.flags.writeable = False  # every run returns this array
            return made

        return make

    def _find_implementation(self, node: NodeProto, input_types: Any) -> Callable[..., OpRun]:
        domain, name, _ = key = make_function_key(node)
        if not domain and name in _FAMILY:
            return _FAMILY[name]
        if domain == OPENVINO and node.doc_string:
            return get_openvino_op(name)
        if key in self.scope.functions:
            return functools.partial(FunctionCall, body=self._get_function_body(node))
        if not domain and name in CONTROL_FLOW:
            return CONTROL_FLOW[name]
        if not domain and name == "Slice" and self.known_opsets[domain] >= SLICE_WITH_STEPS:
            return Slice
        if not domain and name in _OWN:
            return _OWN[name]
        if domain:
            implementation: Callable[..., OpRun] = super()._load_impl(node, input_types)
            return implementation
        details = {} if input_types is None else {"node": node, "input_types": input_types}
        try:
            found: Any = load_op(
                domain,
                name,
                self.known_opsets[domain],
                evaluator_cls=self._make_evaluator_class(node),
                **details,
            )
        except RuntimeContextError:
            # The function body of the operator depends on the input types, which are known at run time.
            return functools.partial(OpFunctionContextDependant, parent=self)
        made: Callable[..., OpRun] = flatten_to_rows(name, self.known_opsets[domain], found)
        return made

    def _make_evaluator_class(self, node: NodeProto) -> Any:
        """Return the factory for evaluators of a node's graphs, which onnx calls in attribute order."""
        steps = iter([attribute.name for attribute in node.attribute if attribute.HasField("g")])
        scope = self.scope

        def make(proto: GraphProto | FunctionProto, opsets: Any = None, **_: Any) -> Evaluator:
            label = node_label(node)
            step = f"{label}.{next(steps, '')}" if isinstance(proto, GraphProto) else label
            return Evaluator(proto, opsets, scope=scope.enter(step))

        return make

    def _get_function_body(self, node: NodeProto) -> Evaluator:
        key = make_function_key(node)
        function = self.scope.functions[key]
        attributes = {attribute.name: attribute for attribute in node.attribute}
        called = (
            key,
            b"".join(attributes[name].SerializeToString(deterministic=True) for name in sorted(attributes)),
        )
        if called not in self.scope.bodies:
            if len(self.scope.bodies) >= _MAX_BODIES:
                raise ModelError(f"functions are called with more than {_MAX_BODIES} sets of attributes")
            where = replace(self.scope.where, graph=make_function_path(function))
            self.scope.bodies[called] = Evaluator(
                _bind_function(function, attributes), scope=replace(self.scope, where=where)
            )
        return self.scope.bodies[called]

    def run(
        self,
        output_names: None,
        feed_inputs: dict[str, Any],
        attributes: dict[str, Any] | None = None,
        *_: Any,
        **__: Any,
    ) -> Any:
        """Evaluate the graph, and return its outputs. ``feed_inputs`` includes values of the outer graph."""
        results: dict[str, Any] = {**self.rt_inits_, **feed_inputs, **self.own_inits}
        results[""] = None  # the value of an absent input
        call = self._call_guarded if get_event_list() is None else self._call_timed
        for step in track(self.steps, "run"):
            operator, node = step.operator, step.operator.onnx_node
            arguments = [results[name] for name in step.inputs]
            linked = {"linked_attributes": attributes} if step.linked and attributes else {}
            context = {"context": results} if step.needs_context else {}
            outputs = call(node, operator.run, *arguments, **context, **linked)
            # strict=False: trailing outputs may be absent.
            results.update(zip(step.outputs, outputs, strict=False))
            results[""] = None
            missing = [name for name in step.outputs[len(outputs) :] if name]
            if missing:
                raise self._make_failure(node, f"did not return output {shown(missing[0])}")
            for name in step.dropped:
                results.pop(name, None)
        return [results[name] for name in self.output_names]

    def infer_output(self, output: int, feeds: Mapping[str, Any]) -> TypeProto:
        """Infer the type of the output with index ``output`` from ``feeds``, without evaluating the graph."""
        model = ModelProto(ir_version=10)
        for domain, version in self.known_opsets.items():
            if domain != "ai.onnx":
                model.opset_import.add(domain=domain, version=version)
        model.functions.extend(self.scope.functions.values())
        model.graph.CopyFrom(self.proto_)
        del model.graph.input[:]
        made = {name for node in model.graph.node for name in node.output}
        made.update(tensor.name for tensor in model.graph.initializer)
        for name, value in feeds.items():
            kind = element_type_of(value.dtype) if isinstance(value, np.ndarray) else None
            if name and name not in made and kind is not None and kind.onnx_number is not None:
                model.graph.input.append(make_tensor_value_info(name, kind.onnx_number, value.shape))
        declared: TypeProto = self.output_types[output]
        found = infer_model(deserialize_model(model)).index_by_name().get((None, self.output_names[output]))
        return to_type(found) or declared

    def _call_guarded(self, node: NodeProto, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function for a node. Add the node to SplitErrors; turn other exceptions into ModelErrors."""
        try:
            return function(*args, **kwargs)
        except SplitError as error:
            error.where = self._complete_place(error.where, node)
            raise
        except Exception as error:
            on = " on a sequence" if any(isinstance(one, list) for one in args) else ""
            raise self._make_failure(node, f"failed{on}: {_format_reason(error)}") from error

    def _call_timed(self, node: NodeProto, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run a node, and record its time. For calls and nodes with bodies, only inner nodes are recorded."""
        events = get_event_list()
        key = make_function_key(node)
        outer = key in self.scope.functions or any(True for _ in iter_subgraphs(node))
        if events is None or outer:
            return self._call_guarded(node, function, *args, **kwargs)
        with record_event(events, node.op_type, node_label(node)):
            return self._call_guarded(node, function, *args, **kwargs)

    def _complete_place(self, where: Where, node: NodeProto) -> Where:
        """Complete the location of an error, unless an inner graph has already done so."""
        if where.graph is not None:
            return where
        place = self.scope.where
        return replace(where, model=place.model, graph=place.graph, node=where.node or node_label(node))

    def _make_failure(self, node: NodeProto, problem: str) -> ModelError:
        where = replace(self.scope.where, node=node_label(node))
        return ModelError(f"operator {shown(node.op_type)} {problem}", where)


def _discard_log(*_: Any) -> None:
    """Ignore the log messages of onnx's evaluator."""


def _format_reason(error: BaseException) -> str:
    # OpRun wraps a TypeError or AttributeError: the original is the cause.
    error = error.__cause__ or error
    lines = str(error).strip().splitlines() or [""]
    kind = "out of memory" if isinstance(error, MemoryError) else type(error).__name__
    return f"{kind}: {lines[0][:300]}".removesuffix(": ")


def _bind_function(function: FunctionProto, given: Mapping[str, AttributeProto]) -> FunctionProto:
    """Return a copy of a function with references to attributes resolved by the call or by defaults.

    References to attributes that neither sets are removed.
    """
    defaults = {attribute.name: attribute for attribute in function.attribute_proto}
    unknown = given.keys() - defaults.keys() - set(function.attribute)
    if unknown:
        raise ModelError(f"function {shown(function.name)} has no attribute {shown(min(unknown))}")
    bound = FunctionProto()
    bound.CopyFrom(function)
    values = defaults | dict(given)
    for node in iter_nested_nodes(bound.node):
        _bind_attributes(node, values)
    return bound


def _bind_attributes(node: NodeProto, values: Mapping[str, AttributeProto]) -> None:
    for index in reversed(range(len(node.attribute))):
        attribute = node.attribute[index]
        if not attribute.ref_attr_name:
            continue
        value = values.get(attribute.ref_attr_name)
        if value is None:  # the call does not set it
            del node.attribute[index]
            continue
        name, expected = attribute.name, attribute.type
        if expected not in (AttributeProto.UNDEFINED, value.type):
            raise ModelError(
                f"attribute {shown(name)} does not have the type of {shown(value.name)}, to which it refers"
            )
        attribute.CopyFrom(value)
        attribute.name = name
