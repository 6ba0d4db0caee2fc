"""Fixes of ONNX models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import onnx_ir as ir
from onnx import ModelProto

from splitops.errors import Where
from splitops.models.check.conditions import Surroundings
from splitops.models.check.targets import Target
from splitops.models.convert.onnx_to_onnx import finished
from splitops.models.fix.limits import most_outputs
from splitops.models.fix.onnx_forms import OnnxForms
from splitops.models.fix.report import FixReport, FixStatus, SplitReport, Unbind
from splitops.models.fix.rounds import Survey, fix_splits
from splitops.models.formats.onnx.storage import opened
from splitops.models.graph.onnx import known, owners_of
from splitops.models.graph.onnx_editor import OnnxEditor
from splitops.models.graph.onnx_model import copy_of, editable_copy, name_parts, unmark
from splitops.models.infer.onnx_walk import Upstream
from splitops.models.known import Known
from splitops.models.sites import Site


def fix_onnx(
    model: Any, targets: Sequence[Target], unbind: Unbind | None, where: Where, allow_links: bool
) -> FixReport:
    """Fix a path, ``onnx.ModelProto`` or ``onnx_ir.Model`` for some targets; unfixable splits stay."""
    proto = opened(model, allow_links=allow_links)
    edited, splits, _ = fix_nodes(proto, targets, unbind, where)
    runtimes = tuple(target.label for target in targets)
    if isinstance(model, ir.Model):
        name_parts(edited)
        unmark(edited)
        return FixReport(runtimes, edited, splits)
    return FixReport(runtimes, written(edited, proto, splits), splits)


def fix_nodes(
    proto: ModelProto,
    targets: Sequence[Target],
    unbind: Unbind | None,
    where: Where,
    *,
    repair: bool = True,
) -> tuple[ir.Model, tuple[SplitReport, ...], Survey]:
    """Fix a well-formed model for some targets; without ``repair``, splits that break a rule stay too.

    Returns:
        The nodes of the fixed model, what happened to every split, and the fixed model as it was looked at
        last.
    """
    edited, most = _editable(proto, where), most_outputs(targets)
    looks: list[Survey] = []

    def survey() -> Survey:
        looks[:] = [_survey(edited, where, unbind, most)]
        return looks[0]

    splits = fix_splits(survey, targets, unbind, repair=repair)
    return edited, splits, looks[0]


def _editable(proto: ModelProto, where: Where) -> ir.Model:
    edited = editable_copy(proto, where, name_unread=False)
    for _, owner in owners_of(edited):
        if "ai.onnx" in owner.opset_imports:
            owner.opset_imports[""] = owner.opset_imports.pop("ai.onnx")
    return edited


def written(edited: ir.Model, proto: ModelProto, splits: Iterable[SplitReport]) -> ModelProto:
    """Return the model that fixed nodes stand for; a copy of the original where no split was rewritten."""
    if all(split.status is not FixStatus.REWRITTEN for split in splits):
        return copy_of(proto)
    name_parts(edited)
    return finished(edited, proto)


def _survey(model: ir.Model, where: Where, unbind: Unbind | None, most: int | None) -> Survey:
    calls: dict[ir.Node, list[Site]] = {}

    def on_site(site: Site) -> None:
        calls.setdefault(site.node, []).append(site)

    # What a split proves of its own input is not known before it has run.
    found = Upstream(model, where, on_site).run()
    found.note()

    forms = OnnxForms(OnnxEditor(model, where), unbind, most)
    return Survey(calls, Surroundings.of(model), forms, _outputs, found.by_name)


def _outputs(node: ir.Node, path: str | None) -> Mapping[tuple[str | None, str], Known]:
    return {(path, value.name): known(value) for value in node.outputs if value.name}
