"""Rewrites that prevent wrong runtime optimisations, which other rewrites may have made possible."""

from __future__ import annotations

import onnx_ir as ir

from splitops.models.graph.editor import Editor
from splitops.models.quirks import RUNTIMES, Match, find


def prevent_fusion(node: ir.Node, editor: Editor) -> None:
    """Rewrite nodes that OpenVINO would fuse wrongly, so that their pattern no longer matches."""
    _prevent_matches(node, editor, "openvino", "OpenVINO fuses {} wrongly")


def set_equal_lengths(node: ir.Node, editor: Editor) -> None:
    """Set the lengths of Splits that onnxruntime would wrongly merge, as they look equal without lengths."""
    _prevent_matches(
        node, editor, "onnxruntime", "onnxruntime would merge it with another split of the same data"
    )


def _prevent_matches(node: ir.Node, editor: Editor, runtime: str, reason: str) -> None:
    # Each match is processed once, even if its node is visited again.
    for match in editor.analyse_once(_find_matches).pop((runtime, node), ()):
        if any(other.graph is None for other in match.path):
            continue  # the next pass matches the nodes that replace it
        before, where = editor.describe(match.node), editor.locate(match.node)
        after = match.rewrite(editor)
        if after is not None:
            editor.record(where, before, after, reason.format(match.quirk.name))


def _find_matches(editor: Editor) -> dict[tuple[str, ir.Node], list[Match]]:
    found: dict[tuple[str, ir.Node], list[Match]] = {}
    for match in (match for runtime in RUNTIMES for match in find(editor, runtime)):
        found.setdefault((match.quirk.runtime, match.node), []).append(match)
    return found
