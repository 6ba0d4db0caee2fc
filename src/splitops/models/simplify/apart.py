"""Splits that OpenVINO would fuse wrongly with the nodes around them, kept apart."""

from __future__ import annotations

from typing import Final

import onnx_ir as ir

from splitops.models.graph.editor import Editor, Role
from splitops.models.graph.fusions import Fused, find_fused, unfuse
from splitops.models.simplify.passes import SplitPass

_ROOTS: Final = frozenset({Role.SPLIT, Role.SLICE, Role.TRANSPOSE})


class KeptApartPass(SplitPass):
    """What OpenVINO would fuse wrongly is written so that it does not.

    The other rewrites make fewer nodes, of which it may know the pattern.
    """

    name = "kept-apart"
    roots = _ROOTS

    def __init__(self) -> None:
        super().__init__()
        self._editor: Editor | None = None
        self._found: dict[ir.Node, list[Fused]] = {}

    def rewrite(self, node: ir.Node, editor: Editor) -> None:
        """Rewrite each pattern that begins at a node."""
        for fused in self._at(node, editor):
            if any(other.graph is None for other in fused.path):
                continue  # the next round finds what is left of it
            before, where = editor.describe(fused.node), editor.where(fused.node)
            after = unfuse(editor, fused)
            if after is not None:
                editor.applied(self, where, before, after, f"OpenVINO fuses {fused.fusion} wrongly")

    def _at(self, node: ir.Node, editor: Editor) -> list[Fused]:
        if self._editor is not editor:
            self._editor, self._found = editor, {}
            for fused in find_fused(editor):
                self._found.setdefault(fused.node, []).append(fused)
        return self._found.pop(node, [])  # once: a split may be looked at again as the same node
