"""Simplification of OpenVINO IR."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import onnx_ir as ir

from splitops.errors import Where
from splitops.models.formats.openvino import OpenVINOModel, opened
from splitops.models.graph.applied import Applied
from splitops.models.graph.openvino import from_nodes, note_found, to_nodes
from splitops.models.graph.openvino_editor import OpenVINOEditor
from splitops.models.infer.openvino_walk import walk_openvino
from splitops.models.simplify.registry import Rewriting, apply_rewrites
from splitops.models.simplify.report import Simplification


def simplify_openvino(
    model: Any, rewrites: Sequence[Rewriting], options: Mapping[str, Any], where: Where, allow_links: bool
) -> Simplification:
    """Simplify a path or :class:`OpenVINOModel`."""
    model = opened(model, allow_links=allow_links)
    made, changes = rewrite_openvino(
        model, rewrites, options, replace(where, model=where.model or model.file)
    )
    return Simplification(made, changes, _count(model), _count(made))


def rewrite_openvino(
    model: OpenVINOModel, rewrites: Sequence[Rewriting], options: Mapping[str, Any], where: Where
) -> tuple[OpenVINOModel, tuple[Applied, ...]]:
    """Return a model with rewrites applied, and what was rewritten."""
    nodes, current = to_nodes(model), model
    _note(nodes, current, where)

    def edit(again: bool) -> OpenVINOEditor:
        nonlocal current
        if again:
            current = from_nodes(nodes, model)
            _note(nodes, current, where)
        return OpenVINOEditor(nodes, where)

    changes = apply_rewrites(rewrites, options, edit)
    return current, changes


def _note(nodes: ir.Model, model: OpenVINOModel, where: Where) -> None:
    """Note at every value of the nodes of a model what is known of it."""
    note_found(nodes.graph, walk_openvino(model, where, lambda site: None, tighten=False))


def _count(model: OpenVINOModel) -> int:
    kept = ("Parameter", "Result", "Const")
    return sum(layer.type not in kept for _, graph in model.graphs() for layer in graph.layers)
