"""Fixes of OpenVINO IR, for OpenVINO."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import onnx_ir as ir

from splitops.errors import ModelError, Where
from splitops.models.check.conditions import Surroundings
from splitops.models.fix.openvino_forms import OpenVINOForms
from splitops.models.fix.report import FixReport
from splitops.models.fix.rounds import Survey, fix_splits
from splitops.models.formats.openvino import OpenVINOModel, opened, output_names
from splitops.models.graph.openvino import from_nodes, graphs_inside, layer_of, note_found, to_nodes
from splitops.models.graph.openvino_editor import OpenVINOEditor
from splitops.models.infer.openvino_walk import OpenVINOFound, walk_openvino
from splitops.models.known import Known
from splitops.models.sites import Site

_Results = Mapping[tuple[str | None, str], Known]


def fix_openvino(model: Any, runtimes: Sequence[str], where: Where, allow_links: bool) -> FixReport:
    """Fix a path or :class:`OpenVINOModel`; unfixable splits stay.

    Raises:
        ModelError: a runtime does not read OpenVINO IR.
    """
    for runtime in runtimes:
        if runtime != "openvino":
            raise ModelError(
                f"{runtime} reads ONNX models; this is OpenVINO IR, which can be converted", where
            )
    given = opened(model, allow_links=allow_links)
    nodes = to_nodes(given)
    where = replace(where, model=where.model or given.file)
    splits = fix_splits(lambda: _survey(nodes, from_nodes(nodes, given), where), runtimes, None)
    return FixReport(tuple(runtimes), from_nodes(nodes, given), splits)


def _survey(nodes: ir.Model, model: OpenVINOModel, where: Where) -> Survey:
    by_layer = {
        (path, layer_of(node).id): node for path, graph in graphs_inside(nodes.graph) for node in graph
    }
    calls: dict[ir.Node, list[Site]] = {}

    def on_site(site: Site) -> None:
        calls.setdefault(by_layer[site.where.graph, site.node.id], []).append(site)

    # What a split proves of its own input is not known before it has run.
    found = walk_openvino(model, where, on_site, tighten=False)
    note_found(nodes.graph, found)
    results = _results(model, found)
    forms = OpenVINOForms(OpenVINOEditor(nodes, where))
    return Survey(calls, Surroundings.of(model), forms, lambda node, path: results, lambda: results)


def _results(model: OpenVINOModel, found: OpenVINOFound) -> _Results:
    """Return what is known of the outputs of a model: names inside it go with the layers."""
    ends = [model.graph.sources(layer)[0] for layer in model.outputs]
    return {(None, name): found[None, end] for name, end in zip(output_names(model), ends, strict=True)}
