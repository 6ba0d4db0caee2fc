"""Check that an ONNX model is well formed, and iterate over its graphs, nodes and tensors in protobuf."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from typing import Final

from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto

from splitops.errors import ModelError, Where, count_of, shown
from splitops.models.formats.onnx.schemas import find_version
from splitops.models.formats.onnx.tensors import check_tensor, is_external, require_text
from splitops.models.formats.walk import (
    FunctionKey,
    canonicalise,
    extend,
    make_function_key,
    make_function_path,
)
from splitops.onnx.reference import node_label

_MAX_INLINED: Final = 1 << 16
"""Number of nodes that any model may have after runtimes have inlined its functions."""
_INLINED_PER_NODE: Final = 4
"""Additional inlined nodes allowed for each node of the model, so that work is linear in the file size."""

_MAX_DEPTH: Final = 64
"""Maximum nesting of graphs.

Files never reach it, because protobuf's parser allows 100 nested messages, and each graph needs three.
"""
_MAX_OPSET: Final = (1 << 31) - 1
"""Maximum opset: the onnx package stores versions in 32 bits."""

_Scopes = tuple[AbstractSet[str], ...]
"""The names that are visible, one set per graph, from the main graph inwards."""


def check_model(model: ModelProto, where: Where | None = None) -> list[TensorProto]:
    """Check that a model is well formed, and return the attribute tensors whose data is in another file.

    Every name is defined before it is used, and only once in its graph. Every domain is imported at one
    opset. Every initializer, and every tensor in an attribute of a node or function, has exactly the data for
    its type and shape, or refers to another file, which is not read. No function calls itself, directly or
    not, and graphs are nested at most 64 deep.
    """
    where = where or Where()
    if not model.HasField("graph"):
        raise ModelError("this is not an ONNX model: it has no graph", where)
    opsets = read_opset_imports(model, where)
    functions = index_functions(model, where)
    external: list[TensorProto] = []
    _GraphCheck(opsets, functions, where, external).check_graph(model.graph, (), 0)
    for function in functions.values():
        place = replace(where, graph=make_function_path(function))
        check = _GraphCheck(read_opset_imports(function, place), functions, place, external, function)
        check.check_function(function)
    sort_callees_first(functions, where)
    return external


def read_opset_imports(owner: ModelProto | FunctionProto, where: Where | None = None) -> dict[str, int]:
    """Check and return the opset of each domain that a model or function imports. ``ai.onnx`` is ``""``.

    A model without imports whose IR version is less than 3 has ONNX opset 1.
    """
    found: dict[str, int] = {}
    for entry in owner.opset_import:
        require_text(entry.domain, "domain", where)
        domain = canonicalise(entry.domain)
        if not 1 <= entry.version <= _MAX_OPSET:
            version = entry.version
            raise ModelError(f"domain {shown(domain)} is imported at the invalid opset {version}", where)
        if found.setdefault(domain, entry.version) != entry.version:
            raise ModelError(
                f"domain {shown(domain)} is imported at opset {found[domain]} and at {entry.version}", where
            )
    if not found and isinstance(owner, ModelProto) and owner.ir_version < 3:
        found[""] = 1  # opset_import came with IR version 3
    return found


def index_functions(model: ModelProto, where: Where | None = None) -> dict[FunctionKey, FunctionProto]:
    """Return a model's functions, keyed by :data:`FunctionKey`. Raise ModelError if one is defined twice."""
    found: dict[FunctionKey, FunctionProto] = {}
    for function in model.functions:
        if found.setdefault(make_function_key(function), function) is not function:
            domain = shown(function.domain)
            raise ModelError(f"function {shown(function.name)} of domain {domain} is defined twice", where)
    return found


def iter_subgraphs(node: NodeProto) -> Iterator[tuple[str, GraphProto]]:
    """Yield the graphs in the attributes of a node, each with the last step of its path."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield f"{node_label(node)}.{attribute.name}", attribute.g
        if attribute.graphs:  # the test is faster than iteration, and usually false
            for index, graph in enumerate(attribute.graphs):
                yield f"{node_label(node)}.{attribute.name}[{index}]", graph


def iter_nodes(model: ModelProto) -> Iterator[NodeProto]:
    """Yield every node of a model, including those of subgraphs and functions."""
    for owner in (model.graph, *model.functions):
        yield from iter_nested_nodes(owner.node)


def iter_nested_nodes(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """Yield each of the ``nodes``, followed by the nodes of its subgraphs."""
    for node in nodes:
        yield node
        for _, graph in iter_subgraphs(node):
            yield from iter_nested_nodes(graph.node)


def iter_located_graphs(model: ModelProto) -> Iterator[tuple[str | None, GraphProto]]:
    """Yield the main graph (path None) and every subgraph, including those of functions, with its path."""
    yield None, model.graph
    yield from _iter_inner(None, model.graph.node)
    for function in model.functions:
        yield from _iter_inner(make_function_path(function), function.node)


def _iter_inner(path: str | None, nodes: Sequence[NodeProto]) -> Iterator[tuple[str | None, GraphProto]]:
    for node in nodes:
        for step, graph in iter_subgraphs(node):
            inner = extend(path, step)
            yield inner, graph
            yield from _iter_inner(inner, graph.node)


def iter_tensors(model: ModelProto) -> Iterator[TensorProto]:
    """Yield the tensors of a model: initializers, and tensors in attributes of nodes and functions."""
    for _, graph in iter_located_graphs(model):
        yield from graph.initializer
    for owner in (*iter_nodes(model), *model.functions):
        for attribute in owner.attribute if isinstance(owner, NodeProto) else owner.attribute_proto:
            yield from _get_attribute_tensors(attribute)


def _get_attribute_tensors(attribute: AttributeProto) -> Sequence[TensorProto]:
    return [attribute.t, *attribute.tensors] if attribute.HasField("t") else attribute.tensors


def _is_visible(name: str, scopes: _Scopes) -> bool:
    for scope in scopes:  # noqa: SIM110 - called for every name, and a generator is much slower
        if name in scope:
            return True
    return False


class _GraphCheck:
    """Checks a graph or function, including subgraphs. Adds external attribute tensors to ``external``."""

    def __init__(
        self,
        opsets: Mapping[str, int],
        functions: Mapping[FunctionKey, FunctionProto],
        where: Where,
        external: list[TensorProto],
        function: FunctionProto | None = None,
    ) -> None:
        self.opsets = opsets
        self.functions = functions
        self.where = where
        self.external = external
        self.parameters: frozenset[str] | None = None
        if function is not None:
            names = [*function.attribute, *(default.name for default in function.attribute_proto)]
            self.parameters = frozenset(names)

    def check_graph(self, graph: GraphProto, outer: _Scopes, depth: int) -> None:
        if depth > _MAX_DEPTH:
            raise ModelError(f"graphs are nested more than {_MAX_DEPTH} deep", self.where)
        if graph.sparse_initializer:
            raise ModelError("sparse initializers are not supported", self.where)
        require_text(graph.name, "name", self.where)
        names: set[str] = set()
        # Inputs and initializers may shadow names outside of the graph: the meaning is unambiguous.
        for value in graph.input:
            self._define(value.name, "an input", names, ())
        defaults: set[str] = set()
        for tensor in graph.initializer:
            self._define(tensor.name, "an initializer", defaults, ())
            check_tensor(tensor, self.where)
        names |= defaults  # an initializer with the name of an input is its default
        self._check_nodes(graph.node, names, outer, depth)
        self._check_outputs([value.name for value in graph.output], (*outer, names))

    def check_function(self, function: FunctionProto) -> None:
        for default in function.attribute_proto:
            require_text(default.name, "a function's attribute", self.where)
            where = replace(self.where, attribute=default.name[:80])
            if default.HasField("g") or default.graphs:
                raise ModelError("a graph as the default of a function's attribute is not supported", where)
            self._check_tensors(default, where)
        names: set[str] = set()
        for name in function.input:
            self._define(name, "an input", names, ())
        self._check_nodes(function.node, names, (), 0)
        self._check_outputs(function.output, (names,))

    def _check_nodes(self, nodes: Sequence[NodeProto], names: set[str], outer: _Scopes, depth: int) -> None:
        visible = (*outer, names)
        for index, node in enumerate(nodes):
            self._check_operator(node)
            for name in node.input:
                if name and not _is_visible(name, visible):
                    raise ModelError(self._describe_missing_input(name, nodes[index:]), self._locate(node))
            self._check_attributes(node, visible, depth)
            for name in node.output:
                if name:
                    self._define(name, node, names, outer)

    def _locate(self, node: NodeProto) -> Where:
        return replace(self.where, node=node_label(node)[:120])

    def _check_operator(self, node: NodeProto) -> None:
        for text in (node.name, node.op_type, node.domain, node.doc_string):
            require_text(text, "a node's text", self.where)
        if not node.op_type:
            raise ModelError("a node has no operator", self._locate(node))
        if make_function_key(node) in self.functions:
            return
        domain = canonicalise(node.domain)
        if domain not in self.opsets:
            name, of = shown(node.op_type), shown(node.domain)
            what = f"operator {name} is in domain {of}, but no opset of this domain is imported"
            raise ModelError(what, self._locate(node))
        version = find_version(node.op_type, self.opsets[domain]) if domain == "" else None
        if version is not None:
            self._check_count(node, "input", len(node.input), version.inputs.min_count)
            self._check_count(node, "output", len(node.output), version.outputs.min_count)

    def _check_count(self, node: NodeProto, what: str, count: int, least: int) -> None:
        """Reject a ``count`` below ``least``. The maximum is not checked: a newer onnx may raise it."""
        if count < least:
            raise ModelError(
                f"{node.op_type} has {count_of(count, what)}; the minimum is {least}",
                self._locate(node),
            )

    def _describe_missing_input(self, name: str, later: Sequence[NodeProto]) -> str:
        producer = next((node for node in later if name in node.output), None)
        if producer is None:
            return f"input {shown(name)} is not produced by any node"
        if producer is later[0]:
            return f"input {shown(name)} is the node's own output: a cycle"
        return (
            f"input {shown(name)} is produced by node {shown(node_label(producer))}, which comes later: "
            "nodes form a cycle or are not in topological order"
        )

    def _check_attributes(self, node: NodeProto, visible: _Scopes, depth: int) -> None:
        seen: set[str] = set()
        for attribute in node.attribute:
            name, reference = attribute.name, attribute.ref_attr_name
            if not name or name in seen or not isinstance(name, str):
                problem = "appears twice" if name in seen else "is not valid UTF-8" if name else "has no name"
                raise self._make_attribute_error(node, attribute, f"{shown(name)} {problem}")
            seen.add(name)
            if reference and reference not in (self.parameters or ()):
                what = f"refers to {shown(reference)}, which is not an attribute of an enclosing function"
                raise self._make_attribute_error(node, attribute, what)
            if not reference and attribute.type == AttributeProto.UNDEFINED:
                raise self._make_attribute_error(node, attribute, f"{shown(name)} has no type")
            self._check_tensors(attribute, replace(self._locate(node), attribute=name[:80]))
        around = self.where
        for step, graph in iter_subgraphs(node):
            self.where = replace(around, graph=extend(around.graph, step))
            self.check_graph(graph, visible, depth + 1)
        self.where = around

    def _check_tensors(self, attribute: AttributeProto, where: Where) -> None:
        for tensor in _get_attribute_tensors(attribute):
            check_tensor(tensor, where)
            if is_external(tensor):
                self.external.append(tensor)

    def _make_attribute_error(self, node: NodeProto, attribute: AttributeProto, what: str) -> ModelError:
        name: object = attribute.name  # bytes if it is not UTF-8
        place = name[:80] if isinstance(name, str) else shown(name)
        return ModelError(f"attribute {what}", replace(self._locate(node), attribute=place))

    def _define(self, name: str, what: str | NodeProto, names: set[str], outer: _Scopes) -> None:
        """Check that a name is new, and add it to ``names``. ``what`` describes or produces the value."""
        require_text(name, "name", self.where)
        if name and name not in names and not _is_visible(name, outer):
            names.add(name)
            return
        if isinstance(what, NodeProto):
            what = f"an output of node {shown(node_label(what))}"
        if not name:
            raise ModelError(f"{what} has no name", self.where)
        raise ModelError(f"name {shown(name)} is defined again, as {what}", self.where)

    def _check_outputs(self, outputs: Sequence[str], scopes: _Scopes) -> None:
        seen: set[str] = set()
        for name in outputs:
            if not _is_visible(name, scopes):
                raise ModelError(f"output {shown(name)} is not produced by any node", self.where)
            if name in seen:
                raise ModelError(f"output {shown(name)} appears twice", self.where)
            seen.add(name)


def sort_callees_first(
    functions: Mapping[FunctionKey, FunctionProto], where: Where | None = None
) -> list[FunctionKey]:
    """Return the keys of ``functions``, callees before callers. Raise ModelError if one calls itself."""
    callees = {key: _list_callees(function, functions) for key, function in functions.items()}
    try:
        return list(TopologicalSorter(callees).static_order())
    except CycleError as error:
        domain, name, _ = error.args[1][0]
        raise ModelError(f"function {shown(name)} of domain {shown(domain)} calls itself", where) from None


def _list_callees(function: FunctionProto, functions: Collection[FunctionKey]) -> list[FunctionKey]:
    keys = dict.fromkeys(map(make_function_key, iter_nested_nodes(function.node)))
    return [key for key in keys if key in functions]


def count_inlined_nodes(model: ModelProto) -> int:
    """Return the number of nodes after all calls of functions are inlined, plus the number of calls."""
    return _sum_over_calls(model, iter_nested_nodes, lambda _: 1)


def find_inlining_problem(model: ModelProto) -> str | None:
    """Return a message if a model has too many nodes after its functions are inlined, and None otherwise."""
    if not model.functions:
        return None
    written = sum(1 for _ in iter_nodes(model))
    most, count = _MAX_INLINED + _INLINED_PER_NODE * written, count_inlined_nodes(model)
    if count <= most:
        return None
    return f"the model has {count} nodes once its functions are inlined, more than {most}"


def count_certain_calls(model: ModelProto) -> int:
    """Count the function calls that every run makes: those outside of subgraphs, including nested calls."""
    keys = index_functions(model).keys()
    return _sum_over_calls(model, lambda nodes: nodes, lambda node: int(make_function_key(node) in keys))


def _sum_over_calls(
    model: ModelProto,
    among: Callable[[Iterable[NodeProto]], Iterable[NodeProto]],
    of: Callable[[NodeProto], int],
) -> int:
    """Sum ``of(node)`` over ``among(nodes)`` of the main graph and, for each call, of the function's body."""
    functions = index_functions(model)
    totals: dict[FunctionKey, int] = {}

    def count(nodes: Iterable[NodeProto]) -> int:
        return sum(of(node) + totals.get(make_function_key(node), 0) for node in among(nodes))

    for key in sort_callees_first(functions):
        totals[key] = count(functions[key].node)
    return count(model.graph.node)
