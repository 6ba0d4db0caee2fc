"""Splits that OpenVINO would fuse wrongly with the nodes around them, kept apart."""

from __future__ import annotations

import onnx_ir as ir

from splitops.models.graph.editor import Editor
from splitops.models.graph.fusions import Fused, find_fused, unfuse


def kept_apart(node: ir.Node, editor: Editor) -> None:
    """What OpenVINO would fuse wrongly is written so that it does not.

    The other rewrites make fewer nodes, of which it may know the pattern.
    """
    # Once: a split may be looked at again as the same node.
    for fused in editor.once(_by_node).pop(node, ()):
        if any(other.graph is None for other in fused.path):
            continue  # the next round finds what is left of it
        before, where = editor.describe(fused.node), editor.where(fused.node)
        after = unfuse(editor, fused)
        if after is not None:
            editor.applied(where, before, after, f"OpenVINO fuses {fused.fusion} wrongly")


def _by_node(editor: Editor) -> dict[ir.Node, list[Fused]]:
    found: dict[ir.Node, list[Fused]] = {}
    for fused in find_fused(editor):
        found.setdefault(fused.node, []).append(fused)
    return found
