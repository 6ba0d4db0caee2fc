"""Models for OpenVINO, written so that it fuses nothing wrongly: see :mod:`splitops.models.graph.fusions`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import onnx_ir as ir

from splitops.errors import Where
from splitops.models.formats.openvino import OpenVINOModel
from splitops.models.graph.editor import Editor
from splitops.models.graph.fusions import find_fused, may_be_fused_in, unfuse
from splitops.models.graph.onnx_editor import OnnxEditor
from splitops.models.graph.openvino import from_nodes, layers_may_be_fused, to_nodes
from splitops.models.graph.openvino_editor import OpenVINOEditor
from splitops.models.simplify.knowledge import note_known, note_known_openvino

_ROUNDS: Final = 4
"""A split that is rewritten may have been part of another pattern."""


def keep_apart(model: ir.Model, where: Where) -> bool:
    """Rewrite what OpenVINO would fuse wrongly in an ONNX model with what is known of it noted.

    Returns:
        Whether anything was.
    """
    if not may_be_fused_in(model):
        return False
    return _rewritten(lambda: OnnxEditor(model, where), lambda: note_known(model, where))


def kept_apart(model: OpenVINOModel, where: Where) -> OpenVINOModel:
    """Return a model of OpenVINO with nothing that it would fuse wrongly."""
    if not layers_may_be_fused(model):
        return model
    nodes = to_nodes(model)

    def note() -> None:
        note_known_openvino(nodes, from_nodes(nodes, model), where)

    note()
    changed = _rewritten(lambda: OpenVINOEditor(nodes, where), note)
    return from_nodes(nodes, model) if changed else model


def _rewritten(edit: Callable[[], Editor], note: Callable[[], None]) -> bool:
    changed = False
    for _ in range(_ROUNDS):
        editor = edit()
        found = find_fused(editor)
        done = [
            unfuse(editor, fused) is not None
            for fused in found
            if all(node.graph is not None for node in fused.path)
        ]
        if not any(done):
            break
        changed = True
        note()
    return changed
