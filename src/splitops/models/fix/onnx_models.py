"""Legalisation of ONNX models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import onnx_ir as ir
from onnx import ModelProto

from splitops.errors import ModelError, Where
from splitops.ground.reading import place_of
from splitops.models.check.conditions import Surroundings
from splitops.models.check.profiles import TARGETS, known_targets
from splitops.models.convert.onnx_to_onnx import finished
from splitops.models.fix.limits import meaning_of
from splitops.models.fix.onnx_forms import OnnxForms
from splitops.models.fix.report import Fate, Legalization, SiteReport, Unbind
from splitops.models.fix.rounds import Survey, legalize_sites
from splitops.models.formats.files import is_openvino
from splitops.models.formats.onnx.storage import opened
from splitops.models.graph.onnx import known, owners_of
from splitops.models.graph.onnx_editor import OnnxEditor
from splitops.models.graph.onnx_model import copy_of, editable_copy, name_parts, unmark
from splitops.models.infer.onnx_walk import Upstream
from splitops.models.known import Known
from splitops.models.sites import Site


def legalize_onnx(
    model: Any, target: str, unbind: Unbind | None, where: Where, allow_links: bool
) -> Legalization:
    """Legalise a path, ``onnx.ModelProto`` or ``onnx_ir.Model``; illegal sites stay."""
    proto = opened(model, allow_links=allow_links)
    edited = _editable(proto, where)
    sites = legalize_sites(lambda: _survey(edited, where, unbind), target, unbind)
    if isinstance(model, ir.Model):
        name_parts(edited)
        unmark(edited)
        return Legalization(target, edited, sites)
    return Legalization(target, _finished(edited, proto, sites), sites)


def repaired(
    model: Any,
    targets: str | Iterable[str] = (),
    *,
    unbind: str | Unbind | None = None,
    allow_links: bool = False,
) -> tuple[ModelProto, tuple[SiteReport, ...]]:
    """Legalise an ONNX model for several runtimes in turn, as far as can be.

    Args:
        model: as in :func:`~splitops.models.fix.legalize`.
        targets: the runtimes; none are all, and then a split stays one split.
        unbind: as there.
        allow_links: as there.

    Returns:
        The model, and the sites that were restated.

    Raises:
        ModelError: the model is OpenVINO IR, or not well formed.
    """
    runtimes, meaning, where = known_targets(targets), meaning_of(unbind), place_of(model)
    if is_openvino(model):
        raise ModelError("repairs are made to ONNX models; this is OpenVINO IR", where)
    proto = opened(model, allow_links=allow_links)
    edited = _editable(proto, where)
    restated: list[SiteReport] = []
    for runtime in runtimes or TARGETS:
        sites = legalize_sites(
            lambda: _survey(edited, where, meaning), runtime, meaning, keep_splits=not runtimes
        )
        restated += [site for site in sites if site.fate is Fate.RESTATED]
    return _finished(edited, proto, restated), tuple(restated)


def _editable(proto: ModelProto, where: Where) -> ir.Model:
    edited = editable_copy(proto, where, name_unread=False)
    for _, owner in owners_of(edited):
        if "ai.onnx" in owner.opset_imports:
            owner.opset_imports[""] = owner.opset_imports.pop("ai.onnx")
    return edited


def _finished(edited: ir.Model, proto: ModelProto, sites: Iterable[SiteReport]) -> ModelProto:
    if all(site.fate is not Fate.RESTATED for site in sites):
        return copy_of(proto)
    name_parts(edited)
    return finished(edited, proto)


def _survey(model: ir.Model, where: Where, unbind: Unbind | None) -> Survey:
    calls: dict[ir.Node, list[Site]] = {}

    def on_site(site: Site) -> None:
        calls.setdefault(site.node, []).append(site)

    # What a split proves of its own input is not known before it has run.
    found = Upstream(model, where, on_site).run()
    found.note()

    forms = OnnxForms(OnnxEditor(model, where), unbind)
    return Survey(calls, Surroundings.of(model), forms, _outputs, found.by_name)


def _outputs(node: ir.Node, site: Site) -> Mapping[tuple[str | None, str], Known]:
    return {(site.where.graph, value.name): known(value) for value in node.outputs if value.name}
