"""The form of every rewrite: an onnx-ir pass that others can put into their own pipelines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx_ir as ir

from splitops.models.formats.walk import subgraphs
from splitops.models.graph.editor import Editor, Role
from splitops.models.graph.onnx_editor import OnnxEditor


class SplitPass(ir.passes.InPlacePass):
    """One rewrite, applied until it does not apply any more.

    Preconditions, proved: the model's nodes are in the order in which they run, and every value that is
    read is an input, an initializer or made by a node before. Postconditions: the same, proved; the graph has
    the inputs and outputs that it had, with their names, types and shapes; on every input that fits them, the
    outputs are bit for bit the same, and what failed fails.

    Args:
        name: the name of the rewrite.
        roots: the nodes at which it begins.
        rewrite: rewrites what begins at a node, or does nothing.
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
        """Prove the preconditions."""
        problem = check_order(model)
        if problem is not None:
            raise ir.passes.PreconditionError(problem)

    def ensures(self, model: ir.Model) -> None:
        """Prove the postconditions that can be proved without running the model."""
        problem = check_order(model)
        if problem is not None:
            raise ir.passes.PostconditionError(problem)


def check_order(model: ir.Model) -> str | None:
    """Return what a node reads too early; None where all is in order."""
    found = (_unordered(owner, set()) for owner in (model.graph, *model.functions.values()))
    return next(filter(None, found), None)


def _unordered(graph: Any, made: set[ir.Value]) -> str | None:
    # What a subgraph makes stays visible behind it: onnx-ir's values belong to one graph anyway.
    made.update(graph.inputs)
    if isinstance(graph, ir.Graph):
        made.update(graph.initializers.values())
    for node in graph:
        early = next((value for value in node.inputs if value is not None and value not in made), None)
        if early is not None:
            return f"node {node.name!r} reads {early.name!r} before it is made"
        made.update(node.outputs)
        for _, inner in subgraphs(node):
            if (problem := _unordered(inner, made)) is not None:
                return problem
    missing = next((value for value in graph.outputs if value not in made), None)
    return None if missing is None else f"output {missing.name!r} is made by no node"
