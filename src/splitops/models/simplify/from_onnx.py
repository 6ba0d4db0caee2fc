"""Simplification of ONNX models."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx_ir as ir
from onnx import ModelProto

from splitops.errors import Where
from splitops.models.convert.onnx_graph import editable_copy
from splitops.models.onnx_model import check_model, read
from splitops.models.onnx_model.storage import as_proto
from splitops.models.simplify.knowledge import note_known
from splitops.models.simplify.onnx_editor import OnnxEditor
from splitops.models.simplify.registry import Rewriting
from splitops.models.simplify.report import Simplification
from splitops.models.simplify.rounds import apply_rewrites

__all__ = ["simplify_onnx"]


def simplify_onnx(
    model: Any, rewrites: Sequence[Rewriting], limit: int | None, where: Where
) -> Simplification:
    """Simplify a path, ``onnx.ModelProto`` or ``onnx_ir.Model``."""
    folder: Path | None = None
    if isinstance(model, str | os.PathLike):
        proto = read(model)
    else:
        proto, folder = as_proto(model)
        check_model(proto, where)
    edited = editable_copy(proto)
    if folder is not None:
        for graph in edited.graphs():
            ir.external_data.set_base_dir(graph, folder)
    before, current = _count(edited), proto
    note_known(edited, current, where)

    def edit(again: bool) -> OnnxEditor:
        nonlocal current
        if again:
            current = ir.serde.to_proto(edited)
            note_known(edited, current, where)
        return OnnxEditor(edited, where, current)

    changes = apply_rewrites(rewrites, limit, edit)
    result: ModelProto | ir.Model = edited
    if not isinstance(model, ir.Model):
        result = current if changes else _copy(proto)
        check_model(result, where)
    return Simplification(result, changes, before, _count(edited))


def _copy(proto: ModelProto) -> ModelProto:
    made = ModelProto()
    made.CopyFrom(proto)
    return made


def _count(model: ir.Model) -> int:
    return sum(len(graph) for graph in model.graphs())
