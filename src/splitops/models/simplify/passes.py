"""The onnx-ir pass that applies a rewrite, for use in any onnx-ir pipeline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx_ir as ir

from splitops.models.formats.walk import iter_subgraphs
from splitops.models.graph.editor import Editor, Role
from splitops.models.graph.onnx_editor import OnnxEditor


class SplitPass(ir.passes.InPlacePass):
    """A rewrite, applied until no node matches.

    The nodes must be in topological order: each input is an input of the graph, an initializer or the output
    of an earlier node. This is checked before and after the rewrite. The inputs and outputs of the graph keep
    their names, types and shapes. Unless changes of numerics are allowed, the outputs are bit-identical on
    every valid input. A model that failed still fails.

    Args:
        name: name of the rewrite.
        roots: roles of the nodes that are passed to ``rewrite``.
        rewrite: function that rewrites a node and the nodes around it if its pattern matches.
    """

    def __init__(self, name: str, roots: frozenset[Role], rewrite: Callable[[ir.Node, Editor], None]) -> None:
        super().__init__()
        self.name = name
        self.roots = roots
        self.rewrite = rewrite

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Apply the rewrite to all graphs and functions of a model."""
        editor = OnnxEditor(model)
        editor.run([self])
        return ir.passes.PassResult(model, modified=bool(editor.changes))

    def requires(self, model: ir.Model) -> None:
        """Raise a PreconditionError if the nodes are not in topological order."""
        problem = find_order_error(model)
        if problem is not None:
            raise ir.passes.PreconditionError(problem)

    def ensures(self, model: ir.Model) -> None:
        """Raise a PostconditionError if the nodes are not in topological order."""
        problem = find_order_error(model)
        if problem is not None:
            raise ir.passes.PostconditionError(problem)


def find_order_error(model: ir.Model) -> str | None:
    """Return an error message if a value is used before a node produces it, or None if the order is valid."""
    found = (_find_order_error(owner, set()) for owner in (model.graph, *model.functions.values()))
    return next(filter(None, found), None)


def _find_order_error(graph: Any, produced: set[ir.Value]) -> str | None:
    # Values of a subgraph may stay in the set: in onnx-ir, no other graph can use them.
    produced.update(graph.inputs)
    if isinstance(graph, ir.Graph):
        produced.update(graph.initializers.values())
    for node in graph:
        early = next((value for value in node.inputs if value is not None and value not in produced), None)
        if early is not None:
            return f"node {node.name!r} uses {early.name!r} before it is produced: sort the nodes"
        produced.update(node.outputs)
        for _, inner in iter_subgraphs(node):
            if (problem := _find_order_error(inner, produced)) is not None:
                return problem
    missing = next((value for value in graph.outputs if value not in produced), None)
    return (
        None
        if missing is None
        else f"output {missing.name!r} has no producer: add a node or an initializer for it"
    )
