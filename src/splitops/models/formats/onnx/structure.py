"""The form of an ONNX model: one walk that proves what everything after it relies on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from typing import Final

from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto

from splitops.errors import ModelError, Where, count_of, shown
from splitops.models.formats.onnx.schemas import version_of
from splitops.models.formats.onnx.tensors import check_tensor, is_external, require_text
from splitops.models.formats.walk import FunctionKey, canonical, extend, function_key, function_path
from splitops.onnx.reference import node_label

_MAX_INLINED: Final = 1 << 16
"""Nodes that a model may have once its functions are inlined, as runtimes do it, whatever it has before."""
_INLINED_PER_NODE: Final = 4
"""Further ones for each node that it has before: the work stays linear in the size of its file."""

_MAX_DEPTH: Final = 64
"""Graphs inside graphs. Protobuf's own parser stops at 100 nested messages, three for each graph."""
_MAX_OPSET: Final = (1 << 31) - 1
"""onnx itself counts versions in 32 bits."""

_Scopes = tuple[AbstractSet[str], ...]
"""The names that are visible, from the main graph inwards."""


def check_model(model: ModelProto, where: Where | None = None) -> list[TensorProto]:
    """Prove that a model is well formed.

    Every name is defined once and before it is read, every domain is imported once, every tensor has exactly
    its data, no function calls itself, and nothing is nested without end.

    Returned are the tensors of node attributes whose data is in another file.
    """
    where = where or Where()
    if not model.HasField("graph"):
        raise ModelError("this is not an ONNX model: it has no graph", where)
    opsets = opset_imports(model, where)
    functions = functions_of(model, where)
    external: list[TensorProto] = []
    _GraphCheck(opsets, functions, where, external).graph(model.graph, (), 0)
    for function in functions.values():
        place = replace(where, graph=function_path(function))
        _GraphCheck(opset_imports(function, place), functions, place, external, function).function(function)
    callees_first(functions, where)
    return external


def opset_imports(owner: ModelProto | FunctionProto, where: Where | None = None) -> dict[str, int]:
    """Return the opset of each domain that a model or function imports; ``"ai.onnx"`` is ``""``."""
    found: dict[str, int] = {}
    for entry in owner.opset_import:
        require_text(entry.domain, "domain", where)
        domain = canonical(entry.domain)
        if not 1 <= entry.version <= _MAX_OPSET:
            version = entry.version
            raise ModelError(f"domain {shown(domain)} is imported at opset {version}, which cannot be", where)
        if found.setdefault(domain, entry.version) != entry.version:
            raise ModelError(
                f"domain {shown(domain)} is imported at opset {found[domain]} and at {entry.version}", where
            )
    if not found and isinstance(owner, ModelProto) and owner.ir_version < 3:
        found[""] = 1  # opset_import came with IR version 3
    return found


def functions_of(model: ModelProto, where: Where | None = None) -> dict[FunctionKey, FunctionProto]:
    """Return the model-local functions by key."""
    found: dict[FunctionKey, FunctionProto] = {}
    for function in model.functions:
        if found.setdefault(function_key(function), function) is not function:
            domain = shown(function.domain)
            raise ModelError(f"function {shown(function.name)} of domain {domain} is defined twice", where)
    return found


def subgraphs(node: NodeProto) -> Iterator[tuple[str, GraphProto]]:
    """Yield the graphs of a node's attributes, each with the last step of its path."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield f"{node_label(node)}.{attribute.name}", attribute.g
        if attribute.graphs:  # asking is quicker than iterating, and hardly any has some
            for index, graph in enumerate(attribute.graphs):
                yield f"{node_label(node)}.{attribute.name}[{index}]", graph


def nodes_of(model: ModelProto) -> Iterator[NodeProto]:
    """Yield every node of a model: of its graph, of the graphs inside it, and of its functions."""
    for owner in (model.graph, *model.functions):
        yield from nodes_inside(owner.node)


def nodes_inside(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """Yield nodes, and behind each those of the graphs inside it."""
    for node in nodes:
        yield node
        for _, graph in subgraphs(node):
            yield from nodes_inside(graph.node)


def located_graphs(model: ModelProto) -> Iterator[tuple[str | None, GraphProto]]:
    """Yield the main graph and every subgraph, those of functions included, each with its path."""
    yield None, model.graph
    yield from _inner_graphs(None, model.graph.node)
    for function in model.functions:
        yield from _inner_graphs(function_path(function), function.node)


def _inner_graphs(path: str | None, nodes: Sequence[NodeProto]) -> Iterator[tuple[str | None, GraphProto]]:
    for node in nodes:
        for step, graph in subgraphs(node):
            inner = extend(path, step)
            yield inner, graph
            yield from _inner_graphs(inner, graph.node)


def model_tensors(model: ModelProto) -> Iterator[TensorProto]:
    """Yield the tensors of a model: the initializers and those of node attributes."""
    for _, graph in located_graphs(model):
        yield from graph.initializer
    for node in nodes_of(model):
        for attribute in node.attribute:
            yield from _attribute_tensors(attribute)


def _attribute_tensors(attribute: AttributeProto) -> Sequence[TensorProto]:
    return [attribute.t, *attribute.tensors] if attribute.HasField("t") else attribute.tensors


def _visible(name: str, scopes: _Scopes) -> bool:
    for scope in scopes:  # noqa: SIM110 - of every name: a generator would take most of the time
        if name in scope:
            return True
    return False


class _GraphCheck:
    """The walk through one graph or function body and everything inside it."""

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

    def graph(self, graph: GraphProto, outer: _Scopes, depth: int) -> None:
        if depth > _MAX_DEPTH:
            raise ModelError(f"graphs are nested more than {_MAX_DEPTH} deep", self.where)
        if graph.sparse_initializer:
            raise ModelError("sparse initializers are not supported", self.where)
        require_text(graph.name, "name", self.where)
        names: set[str] = set()
        # Inputs and initializers may hide names around the graph: there is one way to read that.
        for value in graph.input:
            self._define(value.name, "an input", names, ())
        defaults: set[str] = set()
        for tensor in graph.initializer:
            self._define(tensor.name, "an initializer", defaults, ())
            check_tensor(tensor, self.where)
        names |= defaults  # an initializer with the name of an input is its default
        self._body(graph.node, names, outer, depth)
        self._outputs([value.name for value in graph.output], (*outer, names))

    def function(self, function: FunctionProto) -> None:
        names: set[str] = set()
        for name in function.input:
            self._define(name, "an input", names, ())
        self._body(function.node, names, (), 0)
        self._outputs(function.output, (names,))

    def _body(self, nodes: Sequence[NodeProto], names: set[str], outer: _Scopes, depth: int) -> None:
        visible = (*outer, names)
        for index, node in enumerate(nodes):
            self._check_operator(node)
            for name in node.input:
                if name and not _visible(name, visible):
                    raise ModelError(self._missing(name, nodes[index:]), self._at(node))
            self._attributes(node, visible, depth)
            for name in node.output:
                if name:
                    self._define(name, node, names, outer)

    def _at(self, node: NodeProto) -> Where:
        return replace(self.where, node=node_label(node)[:120])

    def _check_operator(self, node: NodeProto) -> None:
        for text in (node.name, node.op_type, node.domain, node.doc_string):
            require_text(text, "a node's", self.where)
        if not node.op_type:
            raise ModelError("a node has no operator", self._at(node))
        if function_key(node) in self.functions:
            return
        domain = canonical(node.domain)
        if domain not in self.opsets:
            name, of = shown(node.op_type), shown(node.domain)
            what = f"operator {name} is of domain {of}, of which no opset is imported"
            raise ModelError(what, self._at(node))
        version = version_of(node.op_type, self.opsets[domain]) if domain == "" else None
        if version is not None:
            self._check_count(node, "input", len(node.input), version.inputs.least)
            self._check_count(node, "output", len(node.output), version.outputs.least)

    def _check_count(self, node: NodeProto, what: str, count: int, least: int) -> None:
        """Reject too few; a release of onnx that is not known here may allow more."""
        if count < least:
            raise ModelError(
                f"{node.op_type} declares {count_of(count, what)}, but it has at least {least}",
                self._at(node),
            )

    def _missing(self, name: str, later: Sequence[NodeProto]) -> str:
        maker = next((node for node in later if name in node.output), None)
        if maker is None:
            return f"input {shown(name)} is made by no node"
        if maker is later[0]:
            return f"input {shown(name)} is the node's own output: a cycle"
        return (
            f"input {shown(name)} is made by node {shown(node_label(maker))}, which comes later: "
            "nodes form a cycle or are not in topological order"
        )

    def _attributes(self, node: NodeProto, visible: _Scopes, depth: int) -> None:
        seen: set[str] = set()
        for attribute in node.attribute:
            name, reference = attribute.name, attribute.ref_attr_name
            if not name or name in seen or not isinstance(name, str):
                problem = "appears twice" if name in seen else "is not text" if name else "has no name"
                raise self._wrong(node, attribute, f"{shown(name)} {problem}")
            seen.add(name)
            if reference and reference not in (self.parameters or ()):
                what = f"refers to {shown(reference)}, which no function around it has"
                raise self._wrong(node, attribute, what)
            if not reference and attribute.type == AttributeProto.UNDEFINED:
                raise self._wrong(node, attribute, f"{shown(name)} has no type")
            for tensor in _attribute_tensors(attribute):
                check_tensor(tensor, replace(self._at(node), attribute=name[:80]))
                if is_external(tensor):
                    self.external.append(tensor)
        around = self.where
        for step, graph in subgraphs(node):
            self.where = replace(around, graph=extend(around.graph, step))
            self.graph(graph, visible, depth + 1)
        self.where = around

    def _wrong(self, node: NodeProto, attribute: AttributeProto, what: str) -> ModelError:
        name: object = attribute.name  # bytes where it is not text, which no place has
        place = name[:80] if isinstance(name, str) else shown(name)
        return ModelError(f"attribute {what}", replace(self._at(node), attribute=place))

    def _define(self, name: str, what: str | NodeProto, names: set[str], outer: _Scopes) -> None:
        """Define a name: of the item that is described, or of an output of a node."""
        require_text(name, "name", self.where)
        if name and name not in names and not _visible(name, outer):
            names.add(name)
            return
        if isinstance(what, NodeProto):
            what = f"an output of node {shown(node_label(what))}"
        if not name:
            raise ModelError(f"{what} has no name", self.where)
        raise ModelError(f"name {shown(name)} is defined again, as {what}", self.where)

    def _outputs(self, outputs: Sequence[str], scopes: _Scopes) -> None:
        seen: set[str] = set()
        for name in outputs:
            if not _visible(name, scopes):
                raise ModelError(f"output {shown(name)} is made by no node", self.where)
            if name in seen:
                raise ModelError(f"output {shown(name)} appears twice", self.where)
            seen.add(name)


def callees_first(
    functions: Mapping[FunctionKey, FunctionProto], where: Where | None = None
) -> list[FunctionKey]:
    """Return the functions in an order in which each comes behind those that it calls."""
    calls = TopologicalSorter({key: _called(function, functions) for key, function in functions.items()})
    try:
        return list(calls.static_order())
    except CycleError as error:
        domain, name, _ = error.args[1][0]
        raise ModelError(f"function {shown(name)} of domain {shown(domain)} calls itself", where) from None


def _called(function: FunctionProto, functions: Mapping[FunctionKey, FunctionProto]) -> list[FunctionKey]:
    keys = dict.fromkeys(map(function_key, nodes_inside(function.node)))
    return [key for key in keys if key in functions]


def inlined_nodes(model: ModelProto) -> int:
    """Return how many nodes a model has with its functions in the place of their calls."""
    return _with_callees(model, nodes_inside, lambda _: 1)


def too_many_inlined(model: ModelProto) -> str | None:
    """Return why the functions of a model are not put in the place of their calls; None where they can be."""
    if not model.functions:
        return None
    written = sum(
        1 for nodes in (model.graph.node, *(f.node for f in model.functions)) for _ in nodes_inside(nodes)
    )
    most, count = _MAX_INLINED + _INLINED_PER_NODE * written, inlined_nodes(model)
    if count <= most:
        return None
    return f"the model has {count} nodes once its functions are inlined, more than {most}"


def certain_calls(model: ModelProto) -> int:
    """Return how many calls of functions every run makes: those outside of subgraphs."""
    keys = functions_of(model).keys()
    return _with_callees(model, lambda nodes: nodes, lambda node: int(function_key(node) in keys))


def _with_callees(
    model: ModelProto,
    among: Callable[[Iterable[NodeProto]], Iterable[NodeProto]],
    of: Callable[[NodeProto], int],
) -> int:
    """Return a number of each node, summed over the main graph and over every call of a function."""
    functions = functions_of(model)
    known: dict[FunctionKey, int] = {}

    def count(nodes: Iterable[NodeProto]) -> int:
        return sum(of(node) + known.get(function_key(node), 0) for node in among(nodes))

    for key in callees_first(functions):
        known[key] = count(functions[key].node)
    return count(model.graph.node)
