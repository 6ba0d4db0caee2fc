"""The driver of a simplification: infer the model and apply rewrites until none applies, or 64 times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import onnx_ir as ir
from onnx import ModelProto

from splitops.errors import NOWHERE, Where
from splitops.models.formats.model import CheckedModel
from splitops.models.formats.openvino import OpenVINOModel
from splitops.models.formats.walk import has_layers
from splitops.models.graph.applied import Applied
from splitops.models.graph.editors import make_editor
from splitops.models.infer.interpreter import ForwardInterpreter
from splitops.models.simplify.registry import Rewriting
from splitops.models.simplify.report import Simplification

_MAX_ROUNDS: Final = 64
"""Maximum number of passes over a model. Two usually suffice."""
_ENDS: Final = frozenset({"Parameter", "Result", "Const"})
"""Layer types of OpenVINO IR that are not counted as nodes."""


def simplify_copy(
    model: CheckedModel,
    edited: ir.Model,
    rewrites: Sequence[Rewriting],
    options: Mapping[str, Any],
    kept_for: tuple[str, ...] = (),
) -> Simplification:
    """Apply rewrites to ``edited``, a copy of a model, and return the report with the written model."""
    before = count_nodes(edited)
    annotate_model(edited, model.where)
    changes = rewrite(edited, rewrites, options, model.where)
    result = model.write(edited, changed=bool(changes))
    return Simplification(result, changes, before, count_nodes(edited), kept_for)


def replace_model(found: Simplification, model: ModelProto | ir.Model | OpenVINOModel) -> Simplification:
    """Return the report with ``model``, a later version of the simplified model, and its number of nodes."""
    nodes = count_nodes(CheckedModel.read(model, weights=False).nodes)
    return replace(found, model=model, nodes_after=nodes)


def rewrite(
    model: ir.Model, rewrites: Sequence[Rewriting], options: Mapping[str, Any], where: Where
) -> tuple[Applied, ...]:
    """Apply rewrites to a model in place until none applies, or 64 times, and return the changes."""
    stages = [[r.make_pass(**options) for r in rewrites if r.final is final] for final in (False, True)]
    changes: list[Applied] = []
    first = stage = 0 if stages[0] else 1
    changed = False
    for _ in range(_MAX_ROUNDS):
        if changed:
            annotate_model(model, where)
        editor = make_editor(model, where)
        editor.run(stages[stage])
        changes += editor.changes
        changed = bool(editor.changes)
        if changed:
            stage = first
        elif stage == 0 and stages[1]:
            stage = 1
        else:
            break
    return tuple(changes)


def annotate_model(model: ir.Model, where: Where = NOWHERE) -> None:
    """Annotate every value of a well-formed model with its inferred type, shape and elements."""
    ForwardInterpreter(model, where).run().annotate()


class AnnotateInferredPass(ir.passes.InPlacePass):
    """Annotates the values of a model with inferred types, shapes and elements, for the passes that follow.

    Without it, a pass uses only declared types and shapes, and constants. The annotations are not saved with
    the model, and nothing else is changed. The model must be well formed.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Annotate the values. The result is marked as not modified."""
        annotate_model(model)
        return ir.passes.PassResult(model, modified=False)


def count_nodes(model: ir.Model) -> int:
    """Return the number of nodes in the main graph and its subgraphs.

    Functions are not counted, nor are the inputs, results and constants of OpenVINO IR.
    """
    ends: frozenset[str] = frozenset() if not has_layers(model) else _ENDS
    return sum(node.op_type not in ends for graph in model.graphs() for node in graph)
