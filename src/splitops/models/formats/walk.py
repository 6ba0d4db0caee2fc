"""Walks over onnx-ir models of both formats: their graphs, functions and nodes, each with its path."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias

import onnx_ir as ir
from onnx import AttributeProto, FunctionProto, NodeProto
from onnx.defs import onnx_opset_version

from splitops.models.formats.openvino.nodes import SOURCE, LayerNode

FunctionKey: TypeAlias = tuple[str, str, str]
"""Domain, name and overload of a model-local function."""
AnyGraph: TypeAlias = ir.Graph | ir.Function
"""What has nodes: a graph, or the body of a function."""

INITIALIZERS_OF_THEIR_OWN: Final = 4
"""The first IR version in which an initializer need not be an input as well."""

UNREAD_ATTRIBUTES: Final = "splitops.attributes"
"""Where models keep the attributes that onnx-ir does not read, in protobuf, by node.

Not with the nodes: the ``meta`` of a node or value is two objects that stay.
"""
_ALIASES: Final = {"ai.onnx": ""}


def canonical(domain: str) -> str:
    """Return the domain's one name."""
    return _ALIASES.get(domain, domain)


def extend(path: str | None, step: str) -> str:
    """Return the path of a graph inside the graph of a path."""
    return f"{path}/{step}" if path else step


def subgraphs(node: ir.Node) -> Iterator[tuple[str, ir.Graph]]:
    """Yield the graphs of a node's attributes, each with the last step of its path."""
    for attribute in node.attributes.data.values():
        kind = attribute.type
        if kind is ir.AttributeType.GRAPH and not attribute.is_ref():
            start = f"{node.name}/" if type(node) is LayerNode else f"{label(node)}."
            yield f"{start}{attribute.name}", attribute.as_graph()
        elif kind is ir.AttributeType.GRAPHS and not attribute.is_ref():
            for index, graph in enumerate(attribute.as_graphs()):
                yield f"{label(node)}.{attribute.name}[{index}]", graph


def owners_of(model: ir.Model) -> Iterator[tuple[str | None, AnyGraph]]:
    """Yield the main graph and the functions of a model, each with its path."""
    yield None, model.graph
    for function in model.functions.values():
        yield function_path(function), function


def function_path(function: ir.Function | FunctionProto) -> str:
    """Return the graph path of a model-local function."""
    return f"function {function.domain}.{function.name}"


def function_key(item: ir.Node | ir.Function | NodeProto | FunctionProto) -> FunctionKey:
    """Return what a function is called by: the same for a function and for a node that calls it."""
    name = item.op_type if isinstance(item, ir.Node | NodeProto) else item.name
    return canonical(item.domain), name, item.overload


def functions_of(model: ir.Model) -> dict[FunctionKey, ir.Function]:
    """Return the model-local functions by key."""
    return {function_key(function): function for function in model.functions.values()}


def opset_imports(owner: ir.Graph | ir.Function, model: ir.Model | None = None) -> dict[str, int]:
    """Return the opset of each domain that a function, or the main graph of a model, imports."""
    found = {canonical(domain): version for domain, version in owner.opset_imports.items()}
    if not found and model is not None and (model.ir_version or 0) < 3:
        found[""] = 1  # opset_import came with IR version 3
    return found


def has_layers(model: ir.Model) -> bool:
    """Return whether the nodes of a model are layers of OpenVINO IR."""
    return SOURCE in model.meta


def unread_attributes(model: ir.Model) -> Mapping[ir.Node, list[AttributeProto]]:
    """Return the attributes of nodes that onnx-ir does not read."""
    found: Mapping[ir.Node, list[AttributeProto]] = model.meta.get(UNREAD_ATTRIBUTES, {})
    return found


def has_defaults(model: ir.Model) -> bool:
    """Return whether callers can replace initializers that are inputs: all had to be before IR version 4."""
    return model.ir_version is None or model.ir_version >= INITIALIZERS_OF_THEIR_OWN


def unknown_opset(model: ir.Model) -> tuple[int, int] | None:
    """Return the opset that a model imports and the newest of the installed onnx, if it is newer."""
    newest = onnx_opset_version()
    imports = (opset_imports(owner, model if path is None else None) for path, owner in owners_of(model))
    opset = max(found.get("", 0) for found in imports)
    return (opset, newest) if opset > newest else None


def graphs_of(owner: AnyGraph, path: str | None = None) -> Iterator[tuple[str | None, AnyGraph]]:
    """Yield a graph and the graphs inside it, each with its path as the split nodes of models name it."""
    yield path, owner
    for node in owner:
        if node.attributes.data:  # many nodes have none
            for step, graph in subgraphs(node):
                yield from graphs_of(graph, extend(path, step))


def all_graphs(model: ir.Model) -> Iterator[tuple[str | None, AnyGraph]]:
    """Yield every graph and function of a model with its path."""
    for path, owner in owners_of(model):
        yield from graphs_of(owner, path)


def nodes_of(owner: Iterable[ir.Node], path: str | None = None) -> Iterator[tuple[str | None, ir.Node]]:
    """Yield every node of a graph with the path of its graph, those inside a node behind it."""
    for node in owner:
        yield path, node
        if node.attributes.data:
            for step, graph in subgraphs(node):
                yield from nodes_of(graph, extend(path, step))


def located_nodes(model: ir.Model) -> Iterator[tuple[str | None, ir.Node, int]]:
    """Yield every node with the path of its graph and the opset of ONNX that is imported there.

    Nodes of subgraphs come behind the node that they belong to.
    """
    for start, owner in owners_of(model):
        opset = opset_imports(owner, model if start is None else None).get("", 1)
        for path, node in nodes_of(owner, start):
            yield path, node, opset


def all_nodes(model: ir.Model) -> Iterator[ir.Node]:
    """Yield every node, those of subgraphs behind the node that they belong to."""
    for _, node, _ in located_nodes(model):
        yield node


def label(node: ir.Node) -> str:
    """Return the node's name; of an unnamed node, its operator and first output."""
    if node.name:
        return node.name
    named = next((value.name for value in node.outputs if value.name), "")
    return f"{node.op_type} -> {named}"


class FreshNames:
    """Names that no value and no node of a model has yet."""

    def __init__(self, model: ir.Model) -> None:
        self._taken: set[str] = {""}
        self._counts: dict[str, int] = {}  # a wish may be common
        for _, graph in all_graphs(model):
            self._take(graph.inputs)
            if isinstance(graph, ir.Graph):
                self._take(graph.initializers.values())
            for node in graph:
                self._taken.add(node.name or "")
                self._take(node.outputs)

    def _take(self, values: Iterable[ir.Value]) -> None:
        self._taken.update(value.name or "" for value in values)

    def fresh(self, wish: str) -> str:
        """Return the wished name, or one like it that is free."""
        name, count = wish, self._counts.get(wish, 0)
        while name in self._taken:
            count += 1
            name = f"{wish}_{count}"
        self._counts[wish] = count
        self._taken.add(name)
        return name


def stem(node: ir.Node) -> str:
    """Return how the names of what is made for a node begin."""
    return node.name or next((value.name for value in node.outputs if value.name), None) or node.op_type
