"""onnx's ReferenceEvaluator with the split family ours everywhere, and errors that say where."""

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
from splitops.models.formats.onnx.structure import (
    check_model,
    functions_of,
    model_tensors,
    nodes_inside,
    opset_imports,
    subgraphs,
)
from splitops.models.formats.onnx.tensors import load_external, tensor_array
from splitops.models.formats.walk import FunctionKey, canonical, extend, function_key, function_path
from splitops.models.infer.onnx_types import types_of_values
from splitops.models.running.onnx.control_flow import CONTROL_FLOW, FunctionCall
from splitops.models.running.onnx.legacy_ops import (
    SLICE_WITH_STEPS,
    Flatten,
    Identity,
    Slice,
    flatten_to_rows,
    with_defaults,
)
from splitops.models.running.onnx.openvino_ops import DOMAIN as OPENVINO
from splitops.models.running.onnx.openvino_ops import openvino_op
from splitops.onnx.reference import get_reference_ops, node_label
from splitops.spec.elements.types import element_type_of

_FAMILY: Final = {operator.__name__: operator for operator in get_reference_ops()}
_OWN: Final[Mapping[str, type[OpRun]]] = {"Flatten": Flatten, "Identity": Identity}
_MAX_BODIES: Final = 10_000
"""Functions times different attributes: calls inside calls can ask for exponentially many."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Where a graph is, and what of the model it can reach.

    Attributes:
        where: model and graph path.
        functions: the model-local functions.
        bodies: evaluators of functions that were called already, by function and attributes.
    """

    where: Where
    functions: Mapping[FunctionKey, FunctionProto] = field(default_factory=dict)
    bodies: dict[tuple[FunctionKey, bytes], Evaluator] = field(default_factory=dict)

    def inside(self, step: str) -> Scope:
        """Return the scope of a graph inside this one."""
        return replace(self, where=replace(self.where, graph=extend(self.where.graph, step)))


def model_evaluator(model: ModelProto, where: Where) -> Evaluator:
    """Make the evaluator of a model that :func:`~.structure.check_model` has checked."""
    return Evaluator(model.graph, opset_imports(model), scope=Scope(where, functions_of(model)))


def node_evaluator(node: NodeProto, opset: int) -> Evaluator:
    """Make the evaluator of a single node."""
    model = ModelProto(ir_version=10)
    model.opset_import.add(domain=node.domain, version=opset)
    model.graph.node.append(node)
    model.graph.input.extend(ValueInfoProto(name=name) for name in dict.fromkeys(node.input) if name)
    model.graph.output.extend(ValueInfoProto(name=name) for name in node.output if name)
    check_model(model)
    load_external(model_tensors(model), Where(), None)
    return model_evaluator(model, Where())


def reads(node: NodeProto) -> Iterator[str]:
    """Yield the names of the values that a node reads, including those that its graphs read around them."""
    yield from filter(None, node.input)
    for _, graph in subgraphs(node):
        made = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
        for inner in graph.node:
            yield from (name for name in reads(inner) if name not in made)
            made.update(inner.output)
        yield from (value.name for value in graph.output if value.name not in made)


@dataclass(frozen=True, slots=True)
class _Step:
    """An operator, and what every run asks of its node."""

    operator: OpRun
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    dropped: tuple[str, ...]
    """The values that nothing needs after it."""
    needs_context: bool
    linked: bool
    constant: npt.NDArray[Any] | None
    """What it gives in every run; None where a run decides."""

    @classmethod
    def of(cls, operator: OpRun, later: set[str]) -> _Step:
        """Make a step; ``later`` are the values that steps after it need, and this one adds its own."""
        linked = bool(operator.has_linked_attribute)
        value = getattr(operator, "cst", None)
        constant = value if isinstance(value, np.ndarray) and not linked else None
        inputs, outputs = tuple(operator.input), tuple(operator.output)
        dropped = tuple({*reads(operator.onnx_node), *outputs} - later)
        later.update(dropped)
        return cls(operator, inputs, outputs, dropped, operator.need_context(), linked, constant)


class Evaluator(ReferenceEvaluator):
    """Evaluates a graph, subgraph or function body.

    Against onnx's own: the split family, Loop, Scan, SequenceMap and model-local functions are ours; an
    output named ``""`` stays absent; initializers are proved and read-only; errors carry the place.
    """

    def __init__(
        self,
        proto: GraphProto | FunctionProto,
        opsets: Mapping[str, int] | None = None,
        *,
        scope: Scope,
    ) -> None:
        self.scope = scope
        known = opset_imports(proto) if isinstance(proto, FunctionProto) else dict(opsets or {})
        if "" in known:
            known["ai.onnx"] = known[""]
        self.known_opsets = known
        super().__init__(proto, opsets=None if isinstance(proto, FunctionProto) else known)

    def _init(self) -> None:
        initializers = {tensor.name: tensor_array(tensor, self.scope.where) for tensor in self.inits_}
        self.inits_ = []
        self.opsets_ = self.known_opsets
        super()._init()
        self.rt_inits_ = initializers
        # A graph's own initializers go before the values around it, but not before its inputs.
        inputs = frozenset(self.input_names_)
        self.own_inits = {name: value for name, value in initializers.items() if name not in inputs}
        later = {"", *self.output_names_}
        steps = [_Step.of(operator, later) for operator in reversed(self.rt_nodes_)][::-1]
        self.own_inits |= {step.outputs[0]: step.constant for step in steps if step.constant is not None}
        self.steps = [step for step in steps if step.constant is None]

    def _load_impl(self, node: NodeProto, input_types: Any = None) -> Callable[..., OpRun]:
        """Return what makes the node's implementation; every failure of it becomes a ModelError."""
        implementation = self._guarded(node, self._implementation, node, input_types)

        def make(node: NodeProto, run_params: dict[str, Any]) -> OpRun:
            # The log of onnx holds the evaluator, which holds the operator: a circle outlives a session.
            own = {"evaluator_cls": self._evaluator_class(node), "where": self.scope.where, "log": _no_log}
            params = run_params | own
            domain = canonical(node.domain)
            opset = self.known_opsets.get(domain, 1)
            stated = self._guarded(node, with_defaults, node, opset, domain)
            made: OpRun = self._guarded(node, implementation, stated, params)
            if isinstance(constant := getattr(made, "cst", None), np.ndarray):
                constant.flags.writeable = False  # this very array is the value in every run
            return made

        return make

    def _implementation(self, node: NodeProto, input_types: Any) -> Callable[..., OpRun]:
        domain, name, _ = key = function_key(node)
        if not domain and name in _FAMILY:
            return _FAMILY[name]
        if domain == OPENVINO and node.doc_string:
            return openvino_op(name)
        if key in self.scope.functions:
            return functools.partial(FunctionCall, body=self._function_body(node))
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
                domain, name, self.known_opsets[domain], evaluator_cls=self._evaluator_class(node), **details
            )
        except RuntimeContextError:
            # Its definition depends on the input types, which are known when it runs.
            return functools.partial(OpFunctionContextDependant, parent=self)
        made: Callable[..., OpRun] = flatten_to_rows(name, self.known_opsets[domain], found)
        return made

    def _evaluator_class(self, node: NodeProto) -> Any:
        """Return what onnx makes the evaluators of a node's graphs with: in the order of its attributes."""
        steps = iter([attribute.name for attribute in node.attribute if attribute.HasField("g")])
        scope = self.scope

        def make(proto: GraphProto | FunctionProto, opsets: Any = None, **_: Any) -> Evaluator:
            label = node_label(node)
            step = f"{label}.{next(steps, '')}" if isinstance(proto, GraphProto) else label
            return Evaluator(proto, opsets, scope=scope.inside(step))

        return make

    def _function_body(self, node: NodeProto) -> Evaluator:
        key = function_key(node)
        function = self.scope.functions[key]
        attributes = {attribute.name: attribute for attribute in node.attribute}
        called = (
            key,
            b"".join(attributes[name].SerializeToString(deterministic=True) for name in sorted(attributes)),
        )
        if called not in self.scope.bodies:
            if len(self.scope.bodies) >= _MAX_BODIES:
                raise ModelError(f"functions are called with more than {_MAX_BODIES} sets of attributes")
            where = replace(self.scope.where, graph=function_path(function))
            self.scope.bodies[called] = Evaluator(
                _bound(function, attributes), scope=replace(self.scope, where=where)
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
        """Evaluate the graph."""
        results: dict[str, Any] = {**self.rt_inits_, **feed_inputs, **self.own_inits}
        results[""] = None  # an absent input
        call = self._guarded if get_event_list() is None else self._timed
        for step in track(self.steps, "run"):
            operator, node = step.operator, step.operator.onnx_node
            arguments = [results[name] for name in step.inputs]
            linked = {"linked_attributes": attributes} if step.linked and attributes else {}
            context = {"context": results} if step.needs_context else {}
            outputs = call(node, operator.run, *arguments, **context, **linked)
            # strict=False: a node may leave out trailing outputs.
            results.update(zip(step.outputs, outputs, strict=False))
            results[""] = None
            missing = [name for name in step.outputs[len(outputs) :] if name]
            if missing:
                raise self._failure(node, f"gave no output {shown(missing[0])}")
            for name in step.dropped:
                results.pop(name, None)
        return [results[name] for name in self.output_names]

    def output_type(self, output: int, feeds: Mapping[str, Any]) -> TypeProto:
        """Return what is known of an output, had the graph been evaluated with these values."""
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
        return types_of_values(model).get((None, self.output_names[output]), declared)

    def _guarded(self, node: NodeProto, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call what belongs to a node: our errors get their place, every other one becomes a ModelError."""
        try:
            return function(*args, **kwargs)
        except SplitError as error:
            error.where = self._completed(error.where, node)
            raise
        except Exception as error:
            on = " on a sequence" if any(isinstance(one, list) for one in args) else ""
            raise self._failure(node, f"failed{on}: {_reason(error)}") from error

    def _timed(self, node: NodeProto, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call what belongs to a node and record its time; what is inside others is recorded by itself."""
        events = get_event_list()
        key = function_key(node)
        outer = key in self.scope.functions or any(True for _ in subgraphs(node))
        if events is None or outer:
            return self._guarded(node, function, *args, **kwargs)
        with record_event(events, node.op_type, node_label(node)):
            return self._guarded(node, function, *args, **kwargs)

    def _completed(self, where: Where, node: NodeProto) -> Where:
        """Fill in what an error does not know yet; the innermost graph does so first."""
        if where.graph is not None:
            return where
        place = self.scope.where
        return replace(where, model=place.model, graph=place.graph, node=where.node or node_label(node))

    def _failure(self, node: NodeProto, problem: str) -> ModelError:
        where = replace(self.scope.where, node=node_label(node))
        return ModelError(f"operator {shown(node.op_type)} {problem}", where)


def _no_log(*_: Any) -> None:
    """Print nothing, as an evaluator that is not verbose does."""


def _reason(error: BaseException) -> str:
    # OpRun rewords a TypeError or AttributeError, and keeps the first one as the cause.
    error = error.__cause__ or error
    lines = str(error).strip().splitlines() or [""]
    kind = "the memory is too small" if isinstance(error, MemoryError) else type(error).__name__
    return f"{kind}: {lines[0][:300]}".removesuffix(": ")


def _bound(function: FunctionProto, given: Mapping[str, AttributeProto]) -> FunctionProto:
    """Return a function with the caller's attributes, or their defaults, where its nodes refer to them."""
    defaults = {attribute.name: attribute for attribute in function.attribute_proto}
    unknown = given.keys() - defaults.keys() - set(function.attribute)
    if unknown:
        raise ModelError(f"function {shown(function.name)} has no attribute {shown(min(unknown))}")
    bound = FunctionProto()
    bound.CopyFrom(function)
    values = defaults | dict(given)
    for node in nodes_inside(bound.node):
        _bind_attributes(node, values)
    return bound


def _bind_attributes(node: NodeProto, values: Mapping[str, AttributeProto]) -> None:
    for index in reversed(range(len(node.attribute))):
        attribute = node.attribute[index]
        if not attribute.ref_attr_name:
            continue
        value = values.get(attribute.ref_attr_name)
        if value is None:  # the caller leaves it out, so this node does too
            del node.attribute[index]
            continue
        name, expected = attribute.name, attribute.type
        if expected not in (AttributeProto.UNDEFINED, value.type):
            raise ModelError(f"attribute {shown(name)} is not of the type of {shown(value.name)}, its source")
        attribute.CopyFrom(value)
        attribute.name = name
