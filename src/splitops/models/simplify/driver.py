"""The rounds in which rewrites are applied to a model, and what is noted of its values before each."""

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
"""Two are the rule."""
_ENDS: Final = frozenset({"Parameter", "Result", "Const"})
"""Layers of IR that do nothing."""


def simplify_copy(
    model: CheckedModel,
    edited: ir.Model,
    rewrites: Sequence[Rewriting],
    options: Mapping[str, Any],
    kept_for: tuple[str, ...] = (),
) -> Simplification:
    """Apply rewrites to the copy of a model, and write it."""
    before = count_nodes(edited)
    annotate_model(edited, model.where)
    changes = rewrite(edited, rewrites, options, model.where)
    result = model.write(edited, changed=bool(changes))
    return Simplification(result, changes, before, count_nodes(edited), kept_for)


def with_model(found: Simplification, model: ModelProto | ir.Model | OpenVINOModel) -> Simplification:
    """Return a report with a model that was made of the simplified one, such as one that was fixed."""
    nodes = count_nodes(CheckedModel.read(model, weights=False).nodes)
    return replace(found, model=model, nodes_after=nodes)


def rewrite(
    model: ir.Model, rewrites: Sequence[Rewriting], options: Mapping[str, Any], where: Where
) -> tuple[Applied, ...]:
    """Apply rewrites to nodes until none applies, and return what was rewritten."""
    stages = [[row.make_pass(**options) for row in rewrites if row.final is final] for final in (False, True)]
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
    """Note at every value of a well-formed model what is known of it."""
    ForwardInterpreter(model, where, lambda site: None).run().annotate()


class AnnotateInferredPass(ir.passes.InPlacePass):
    """Infers the model and notes what is known of its values, so that the passes behind it can do more.

    Without it, a pass knows what the model declares: types, shapes and constants. Nothing of what is noted is
    written with the model.

    Precondition: the model is well formed. Postcondition: the model is as it was.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Note what is known."""
        annotate_model(model)
        return ir.passes.PassResult(model, modified=False)


def count_nodes(model: ir.Model) -> int:
    """Return the number of nodes in all graphs of a model."""
    ends: frozenset[str] = frozenset() if not has_layers(model) else _ENDS
    return sum(node.op_type not in ends for graph in model.graphs() for node in graph)
