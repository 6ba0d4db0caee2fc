"""Simplification of ONNX models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir as ir
from onnx import ModelProto

from splitops.errors import Where
from splitops.models.formats.onnx import check_model
from splitops.models.formats.onnx.storage import opened
from splitops.models.graph.applied import Applied
from splitops.models.graph.onnx_editor import OnnxEditor
from splitops.models.graph.onnx_model import copy_of, editable_copy, unmark, written
from splitops.models.simplify.knowledge import note_known
from splitops.models.simplify.registry import Rewriting, apply_rewrites
from splitops.models.simplify.report import Simplification


def simplify_onnx(
    model: Any, rewrites: Sequence[Rewriting], options: Mapping[str, Any], where: Where, allow_links: bool
) -> Simplification:
    """Simplify a path, ``onnx.ModelProto`` or ``onnx_ir.Model``."""
    proto = opened(model, allow_links=allow_links)
    edited = editable_copy(proto, where)
    before = _count(edited)
    note_known(edited, where)
    changes = rewrite_onnx(edited, rewrites, options, where)
    result: ModelProto | ir.Model = edited
    if isinstance(model, ir.Model):
        unmark(edited)
    else:
        result = written(edited) if changes else copy_of(proto)
        check_model(result, where)
    return Simplification(result, changes, before, _count(edited))


def rewrite_onnx(
    model: ir.Model, rewrites: Sequence[Rewriting], options: Mapping[str, Any], where: Where
) -> tuple[Applied, ...]:
    """Apply rewrites to a model with what is known of it noted, and return what was rewritten."""

    def edit(again: bool) -> OnnxEditor:
        if again:
            note_known(model, where)
        return OnnxEditor(model, where)

    return apply_rewrites(rewrites, options, edit)


def _count(model: ir.Model) -> int:
    return sum(len(graph) for graph in model.graphs())
