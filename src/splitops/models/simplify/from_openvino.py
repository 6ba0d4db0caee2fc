"""Simplification of OpenVINO IR, with the decisions that the ONNX passes take."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from splitops.errors import ModelError, Where
from splitops.models.infer.knowledge import Tensor
from splitops.models.infer.openvino_walk import walk_openvino
from splitops.models.infer.splitting import Visit
from splitops.models.openvino_ir import Endpoint, Graph, Layer, OpenVINOModel, read
from splitops.models.simplify import openvino_rewrites
from splitops.models.simplify.decisions import Cut, cut_of
from splitops.models.simplify.openvino_editor import GraphEditor
from splitops.models.simplify.registry import DEFAULT_LIMIT, Rewriting
from splitops.models.simplify.report import Applied, Simplification

__all__ = ["simplify_openvino"]

OpenVINORewrite = Callable[[GraphEditor, Layer], None]

_REWRITES: Final[Mapping[str, OpenVINORewrite]] = MappingProxyType(
    {
        "whole-part": openvino_rewrites.whole_part,
        "concat-split": openvino_rewrites.concat_split,
        "split-concat": openvino_rewrites.split_concat,
        "nested-splits": openvino_rewrites.nested_splits,
        "unused-parts": openvino_rewrites.unused_parts,
        "shortest-form": openvino_rewrites.shortest_form,
    }
)


def simplify_openvino(
    model: Any, rewrites: Sequence[Rewriting], limit: int | None, where: Where
) -> Simplification:
    """Simplify a path or :class:`OpenVINOModel`."""
    if isinstance(model, str | os.PathLike):
        model = read(Path(model))
    if not isinstance(model, OpenVINOModel):
        raise ModelError(f"a {type(model).__name__} is no model", where)
    where = Where(model=where.model or model.file)
    return _Simplifier(model, rewrites, DEFAULT_LIMIT if limit is None else limit, where).run()


class _Simplifier:
    def __init__(self, model: OpenVINOModel, rewrites: Sequence[Rewriting], limit: int, where: Where) -> None:
        self.model = model
        self.where = where
        self.changes: list[Applied] = []
        names = {row.name for row in rewrites}
        self.rewrites = [_REWRITES[name] for name in _REWRITES if name in names]
        if "fold-constants" in names:
            self.rewrites.insert(
                0, lambda editor, layer: openvino_rewrites.fold_constants(editor, layer, limit)
            )
        self.cuts: dict[tuple[str | None, int], Cut] = {}
        self.known: dict[tuple[str | None, Endpoint], Tensor] = {}

    def run(self) -> Simplification:
        self.known = walk_openvino(self.model, self.where, self._visited).values
        graph = self._graph(None, self.model.graph)
        before = _count(self.model)
        after = self.model.with_graph(graph) if self.changes else self.model
        return Simplification(after, tuple(self.changes), before, _count(after))

    def _visited(self, visit: Visit) -> None:
        # What a split proves of its own input is not in its binding: it would prove the split needless.
        cut = None if visit.binding is None else cut_of(visit.binding)
        if cut is not None and isinstance(visit.node, Layer):
            self.cuts[visit.where.graph, visit.node.id] = cut

    def _graph(self, path: str | None, graph: Graph) -> Graph:
        layers = tuple(self._bodies(path, layer) for layer in graph.layers)
        if any(new is not old for new, old in zip(layers, graph.layers, strict=True)):
            graph = replace(graph, layers=layers)
        known = {end: found for (at, end), found in self.known.items() if at == path}
        cuts = {layer: cut for (at, layer), cut in self.cuts.items() if at == path}
        editor = GraphEditor(graph, known, cuts, replace(self.where, graph=path), self.model.version)
        done = -1
        while len(editor.changes) > done:
            # Once more over all layers: one that lost a reader may have become the only one of its data.
            done = len(editor.changes)
            editor.queue.update(dict.fromkeys(editor.layers))
            self._drain(editor)
        self.changes += editor.changes
        return editor.finished() if editor.changes else graph

    def _drain(self, editor: GraphEditor) -> None:
        while editor.queue:
            layer_id = next(iter(editor.queue))
            del editor.queue[layer_id]
            for rewrite in self.rewrites:
                layer = editor.layers.get(layer_id)
                if layer is not None:
                    editor.looks += 1
                    rewrite(editor, layer)

    def _bodies(self, path: str | None, layer: Layer) -> Layer:
        if not layer.bodies:
            return layer
        bodies = []
        for tag, body in layer.bodies:
            inner = f"{layer.name}/{tag}"
            bodies.append((tag, self._graph(inner if path is None else f"{path}/{inner}", body)))
        if all(new is old for (_, new), (_, old) in zip(bodies, layer.bodies, strict=True)):
            return layer
        return replace(layer, bodies=tuple(bodies))


def _count(model: OpenVINOModel) -> int:
    kept = ("Parameter", "Result", "Const")
    return sum(layer.type not in kept for _, graph in model.graphs() for layer in graph.layers)
