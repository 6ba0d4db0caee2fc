"""Simplification of ONNX models."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import onnx_ir as ir
from onnx import ModelProto

from splitops.errors import Where
from splitops.models.onnx_model import check_model, read
from splitops.models.onnx_model.storage import as_proto
from splitops.models.simplify.onnx_editor import Editor
from splitops.models.simplify.onnx_knowledge import note_known
from splitops.models.simplify.registry import Rewriting
from splitops.models.simplify.report import Applied, Simplification

__all__ = ["simplify_onnx"]

_MOST_ROUNDS: Final = 64
"""Each round ends with nothing left to rewrite; the next one only knows more. Two are the rule."""


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
    # onnx-ir names the tensors of a proto that it reads: they must not be the caller's.
    edited = ir.serde.from_proto(_copy(proto))
    if folder is not None:
        for graph in edited.graphs():
            ir.external_data.set_base_dir(graph, folder)
    before = _count(edited)
    passes = [_pass(row, limit) for row in rewrites]
    changes: list[Applied] = []
    known = proto
    for _ in range(_MOST_ROUNDS):
        note_known(edited, known, where)
        editor = Editor(edited, where)
        editor.run(passes)
        changes += editor.changes
        if not editor.changes:
            break
        known = ir.serde.to_proto(edited)  # a simpler model may tell more of its shapes
    result: ModelProto | ir.Model = edited
    if not isinstance(model, ir.Model):
        result = known if changes else _copy(proto)
        check_model(result, where)
    return Simplification(result, tuple(changes), before, _count(edited))


def _copy(proto: ModelProto) -> ModelProto:
    made = ModelProto()
    made.CopyFrom(proto)
    return made


def _pass(row: Rewriting, limit: int | None) -> Any:
    limited = row.name == "fold-constants" and limit is not None
    return row.make_pass(limit=limit) if limited else row.make_pass()


def _count(model: ir.Model) -> int:
    return sum(len(graph) for graph in model.graphs())
