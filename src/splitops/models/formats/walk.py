"""Iterate over onnx-ir models of both formats: their graphs, functions and nodes, each with its path."""

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
"""A container of nodes: a graph, or the body of a function."""

MIN_IR_VERSION_OF_CONSTANTS: Final = 4
"""The first IR version in which an initializer need not also be an input of its graph."""

UNREAD_ATTRIBUTES: Final = "splitops.attributes"
"""Key in a model's ``meta`` for the attributes that onnx-ir cannot read: lists of protobufs, keyed by node.

They are not in the ``meta`` of each node, because each ``meta`` that is used costs two more objects.
"""
_ALIASES: Final = {"ai.onnx": ""}


def canonicalise(domain: str) -> str:
    """Replace a domain with its canonical name: ``"ai.onnx"`` becomes ``""``."""
    return _ALIASES.get(domain, domain)


def extend(path: str | None, step: str) -> str:
    """Append a ``step`` to a graph path. The ``path`` of the main graph is None."""
    return f"{path}/{step}" if path else step


def iter_subgraphs(node: ir.Node) -> Iterator[tuple[str, ir.Graph]]:
    """Yield the graphs in the attributes of a node, each after the last step of its graph path."""
    for attribute in node.attributes.data.values():
        kind = attribute.type
        if kind is ir.AttributeType.GRAPH and not attribute.is_ref():
            start = f"{node.name}/" if type(node) is LayerNode else f"{label(node)}."
            yield f"{start}{attribute.name}", attribute.as_graph()
        elif kind is ir.AttributeType.GRAPHS and not attribute.is_ref():
            for index, graph in enumerate(attribute.as_graphs()):
                yield f"{label(node)}.{attribute.name}[{index}]", graph


def iter_owners(model: ir.Model) -> Iterator[tuple[str | None, AnyGraph]]:
    """Yield the main graph (path None) and the functions of a model, each with its path."""
    yield None, model.graph
    for function in model.functions.values():
        yield make_function_path(function), function


def make_function_path(function: ir.Function | FunctionProto) -> str:
    """Return the graph path of a model-local function, such as ``"function my.domain.halve"``."""
    return f"function {function.domain}.{function.name}"


def make_function_key(item: ir.Node | ir.Function | NodeProto | FunctionProto) -> FunctionKey:
    """Return the key of a function, given the function or a node that calls it."""
    name = item.op_type if isinstance(item, ir.Node | NodeProto) else item.name
    return canonicalise(item.domain), name, item.overload


def index_functions(model: ir.Model) -> dict[FunctionKey, ir.Function]:
    """Return the model-local functions of a model, keyed by :data:`FunctionKey`."""
    return {make_function_key(function): function for function in model.functions.values()}


def get_opset_imports(owner: ir.Graph | ir.Function, model: ir.Model | None = None) -> dict[str, int]:
    """Return the opset of each domain that a function, or the main graph of ``model``, imports.

    A ``model`` without imports whose IR version is less than 3 has ONNX opset 1.
    """
    found = {canonicalise(domain): version for domain, version in owner.opset_imports.items()}
    if not found and model is not None and (model.ir_version or 0) < 3:
        found[""] = 1  # opset_import came with IR version 3
    return found


def has_layers(model: ir.Model) -> bool:
    """Return whether a model was read from OpenVINO IR, so that its nodes are layers."""
    return SOURCE in model.meta


def get_unread_attributes(model: ir.Model) -> Mapping[ir.Node, list[AttributeProto]]:
    """Return the attributes that onnx-ir cannot read, keyed by node."""
    found: Mapping[ir.Node, list[AttributeProto]] = model.meta.get(UNREAD_ATTRIBUTES, {})
    return found


def has_defaults(model: ir.Model) -> bool:
    """Return whether callers can override initializers that are also inputs.

    Before IR version 4, every initializer had to be an input, so such initializers are constants.
    """
    return model.ir_version is None or model.ir_version >= MIN_IR_VERSION_OF_CONSTANTS


def find_unknown_opset(model: ir.Model) -> tuple[int, int] | None:
    """Return the highest ONNX opset that a model or its functions import, and the newest one of onnx.

    Return None if the opset of the model is not newer.
    """
    newest = onnx_opset_version()
    owners = [(owner, model if path is None else None) for path, owner in iter_owners(model)]
    opset = max(get_opset_imports(*owner).get("", 0) for owner in owners)
    return (opset, newest) if opset > newest else None


def iter_graphs(owner: AnyGraph, path: str | None = None) -> Iterator[tuple[str | None, AnyGraph]]:
    """Yield a graph and the graphs inside it, each with its path. ``path`` is that of ``owner``."""
    yield path, owner
    for node in owner:
        if node.attributes.data:  # many nodes do not have attributes
            for step, graph in iter_subgraphs(node):
                yield from iter_graphs(graph, extend(path, step))


def iter_all_graphs(model: ir.Model) -> Iterator[tuple[str | None, AnyGraph]]:
    """Yield every graph and function of a model, subgraphs included, each with its path."""
    for path, owner in iter_owners(model):
        yield from iter_graphs(owner, path)


def iter_nodes(owner: Iterable[ir.Node], path: str | None = None) -> Iterator[tuple[str | None, ir.Node]]:
    """Yield every node with the path of its graph: each node of ``owner``, followed by those inside it."""
    for node in owner:
        yield path, node
        if node.attributes.data:
            for step, graph in iter_subgraphs(node):
                yield from iter_nodes(graph, extend(path, step))


def iter_located_nodes(model: ir.Model) -> Iterator[tuple[str | None, ir.Node, int]]:
    """Yield every node with the path of its graph and the ONNX opset that its model or function imports.

    The opset is 1 if none is imported. Each node is followed by the nodes of its subgraphs.
    """
    for start, owner in iter_owners(model):
        opset = get_opset_imports(owner, model if start is None else None).get("", 1)
        for path, node in iter_nodes(owner, start):
            yield path, node, opset


def iter_all_nodes(model: ir.Model) -> Iterator[ir.Node]:
    """Yield every node of a model. Each node is followed by the nodes of its subgraphs."""
    for _, node, _ in iter_located_nodes(model):
        yield node


def label(node: ir.Node) -> str:
    """Return the name of a node, or ``"Op -> output"`` with its first named output if it has no name."""
    if node.name:
        return node.name
    named = next((value.name for value in node.outputs if value.name), "")
    return f"{node.op_type} -> {named}"


class FreshNames:
    """Generates names that no value or node of a model has yet."""

    def __init__(self, model: ir.Model) -> None:
        self._taken: set[str] = {""}
        self._counts: dict[str, int] = {}  # the last suffix for each wish: many nodes may share one
        for _, graph in iter_all_graphs(model):
            self._add_names(graph.inputs)
            if isinstance(graph, ir.Graph):
                self._add_names(graph.initializers.values())
            for node in graph:
                self._taken.add(node.name or "")
                self._add_names(node.outputs)

    def _add_names(self, values: Iterable[ir.Value]) -> None:
        self._taken.update(value.name or "" for value in values)

    def make_name(self, wish: str) -> str:
        """Return ``wish``, with a number appended if the name is taken, and mark the name as taken."""
        name, count = wish, self._counts.get(wish, 0)
        while name in self._taken:
            count += 1
            name = f"{wish}_{count}"
        self._counts[wish] = count
        self._taken.add(name)
        return name


def make_stem(node: ir.Node) -> str:
    """Return the prefix for names of new nodes and values that replace a node."""
    return node.name or next((value.name for value in node.outputs if value.name), None) or node.op_type
