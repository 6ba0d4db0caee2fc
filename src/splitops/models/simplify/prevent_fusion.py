"""Quirks of optimisers, cured: the other rewrites make fewer nodes, whose pattern one of them may know."""

from __future__ import annotations

import onnx_ir as ir

from splitops.models.graph.editor import Editor
from splitops.models.quirks import RUNTIMES, Match, find


def prevent_fusion(node: ir.Node, editor: Editor) -> None:
    """What OpenVINO would fuse wrongly is written so that it does not."""
    _cure(node, editor, "openvino", "OpenVINO fuses {} wrongly")


def set_equal_lengths(node: ir.Node, editor: Editor) -> None:
    """Splits that onnxruntime takes for one another, as they state no lengths, state them."""
    _cure(node, editor, "onnxruntime", "onnxruntime takes it for another split of the same data")


def _cure(node: ir.Node, editor: Editor, runtime: str, reason: str) -> None:
    # Once: a split may be visited again as the same node.
    for match in editor.cached_analysis(_find_all).pop((runtime, node), ()):
        if any(other.graph is None for other in match.path):
            continue  # the next round finds what is left of it
        before, where = editor.describe(match.node), editor.where(match.node)
        after = match.cure(editor)
        if after is not None:
            editor.applied(where, before, after, reason.format(match.quirk.name))


def _find_all(editor: Editor) -> dict[tuple[str, ir.Node], list[Match]]:
    found: dict[tuple[str, ir.Node], list[Match]] = {}
    for match in (match for runtime in RUNTIMES for match in find(editor, runtime)):
        found.setdefault((match.quirk.runtime, match.node), []).append(match)
    return found
