"""Legalisation of ONNX models: walk, restate what meets a limit, and walk again until nothing does."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import onnx_ir as ir
from onnx import ModelProto

from splitops.errors import ModelError, Where
from splitops.models.check.conditions import Surroundings
from splitops.models.check.fragment import may_be
from splitops.models.check.profiles import TARGETS, LegalForm, known_targets
from splitops.models.convert.onnx_to_onnx import finished
from splitops.models.formats.files import is_openvino
from splitops.models.formats.onnx import check_model
from splitops.models.formats.onnx.storage import as_proto, opened
from splitops.models.formats.reading import place_of
from splitops.models.graph.onnx import known, owners_of
from splitops.models.graph.onnx_editor import OnnxEditor
from splitops.models.graph.onnx_model import copy_of, editable_copy, name_parts
from splitops.models.infer.onnx_walk import Found, Upstream
from splitops.models.known import Known, SequenceOf, Tensor
from splitops.models.legalize.limits import meaning_of, obstacles
from splitops.models.legalize.onnx_forms import NoFormError, OnnxForms
from splitops.models.legalize.openvino_layers import legalize_openvino
from splitops.models.legalize.report import Fate, Legalization, Reason, SiteReport, Unbind
from splitops.models.sites import Site

if TYPE_CHECKING:
    from splitops.models.formats.files import AnyModel

__all__ = ["legalized", "repaired"]

_ROUNDS: Final = 8
"""One restatement can be what another one needs: all outputs declared before their lengths are stated."""


def legalized(
    model: AnyModel, target: str, *, unbind: str | Unbind | None = None, allow_links: bool = False
) -> Legalization:
    """Legalise a model for one runtime; illegal sites stay."""
    (runtime,) = known_targets(target)
    meaning = meaning_of(unbind)
    where = place_of(model)
    if is_openvino(model):
        return legalize_openvino(model, runtime, where, allow_links)
    proto = _proto(model, where, allow_links)
    edited = _editable(proto, where)
    sites = _Legalizing(edited, where, runtime, meaning).run()
    made: ModelProto | ir.Model = edited
    if not isinstance(model, ir.Model):
        made = _finished(edited, proto) if _changed(sites) else copy_of(proto)
    return Legalization(runtime, made, sites)


def repaired(
    model: AnyModel,
    targets: str | Iterable[str] = (),
    *,
    unbind: str | Unbind | None = None,
    allow_links: bool = False,
) -> tuple[ModelProto, tuple[SiteReport, ...]]:
    """Legalise an ONNX model for several runtimes in turn, as far as can be; return it and what was restated.

    Args:
        model: as in :func:`~splitops.models.legalize.legalize`.
        targets: the runtimes; none are all, and then a split stays one split.
        unbind: as there.
        allow_links: as there.

    Raises:
        ModelError: the model is OpenVINO IR, or not well formed.
    """
    runtimes, meaning = known_targets(targets), meaning_of(unbind)
    where = place_of(model)
    if is_openvino(model):
        raise ModelError("repairs are made to ONNX models; this is OpenVINO IR", where)
    proto = _proto(model, where, allow_links)
    edited = _editable(proto, where)
    sites = [
        site
        for runtime in runtimes or TARGETS
        for site in _Legalizing(edited, where, runtime, meaning, keep_splits=not runtimes).run()
    ]
    restated = tuple(site for site in sites if site.fate is Fate.RESTATED)
    return (_finished(edited, proto) if restated else copy_of(proto)), restated


def _proto(model: AnyModel, where: Where, allow_links: bool) -> ModelProto:
    if isinstance(model, str | os.PathLike):
        return opened(model, allow_links=allow_links)
    proto = as_proto(model)  # type: ignore[arg-type]
    check_model(proto, where)
    return proto


def _editable(proto: ModelProto, where: Where) -> ir.Model:
    edited = editable_copy(proto, where, name_unread=False)
    for _, owner in owners_of(edited):
        if "ai.onnx" in owner.opset_imports:
            owner.opset_imports[""] = owner.opset_imports.pop("ai.onnx")
    return edited


def _changed(sites: Iterable[SiteReport]) -> bool:
    return any(site.fate is Fate.RESTATED for site in sites)


def _finished(edited: ir.Model, proto: ModelProto) -> ModelProto:
    name_parts(edited)
    return finished(edited, proto)


@dataclass
class _Record:
    """What is found out about one site of the model that was given."""

    where: Where
    before: str
    after: str = ""
    met: dict[str, Reason] = field(default_factory=dict)
    left: list[Reason] = field(default_factory=list)
    costs: list[str] = field(default_factory=list)
    settled: bool = False
    """Whether nothing more is tried."""

    def report(self) -> SiteReport:
        if self.left:
            return SiteReport(
                self.where, Fate.ILLEGAL, self.before, self.after or self.before, tuple(self.left)
            )
        fate = Fate.RESTATED if self.after else Fate.LEGAL
        cost = "; ".join(dict.fromkeys(self.costs))
        return SiteReport(
            self.where, fate, self.before, self.after or self.before, tuple(self.met.values()), cost
        )


class _Legalizing:
    """One model that is legalised for one runtime."""

    def __init__(
        self,
        model: ir.Model,
        where: Where,
        target: str,
        unbind: Unbind | None,
        *,
        keep_splits: bool = False,
    ) -> None:
        self.model = model
        self.where = where
        self.target = target
        self.unbind = unbind
        self.keep_splits = keep_splits
        self.records: dict[ir.Node, _Record] = {}
        self.order: list[_Record] = []
        self.by_data: dict[ir.Value | None, _Record] = {}
        """Of sites that became others: what they split, which the others split now."""
        self.promised: dict[tuple[str | None, str], tuple[_Record, Known]] = {}
        """What was known of the outputs of the sites that the last round has restated."""

    def run(self) -> tuple[SiteReport, ...]:
        """Restate what is to be restated, and return what became of every site."""
        for _ in range(_ROUNDS):
            if not self._round():
                break
        return tuple(record.report() for record in self.order)

    def _round(self) -> bool:
        sites: dict[ir.Node, list[Site]] = {}

        def on_site(site: Site) -> None:
            sites.setdefault(site.node, []).append(site)

        found = Upstream(self.model, self.where, on_site).run()
        self._compare(found)
        found.note()
        surroundings = Surroundings.of(self.model)
        forms = OnnxForms(OnnxEditor(self.model, self.where), self.unbind)
        changed = False
        for node, seen in sites.items():
            record = self._record(node, seen[0], forms)
            if not record.settled:
                changed |= self._restate(node, seen, record, surroundings, forms)
        return changed

    def _compare(self, found: Found) -> None:
        """Hold what is known of the outputs of restated sites against what was known of them before."""
        for value, now in found.values.items() if self.promised else ():
            promise = self.promised.get((found.paths[value], value.name or ""))
            if promise is not None and not _agree(promise[1], now):
                record, before = promise
                raise ModelError(
                    f"{record.before} gave {value.name!r} as {before}, but {record.after} gives {now}",
                    record.where,
                )
        self.promised.clear()

    def _record(self, node: ir.Node, site: Site, forms: OnnxForms) -> _Record:
        if node in self.records:
            return self.records[node]
        data = node.inputs[0] if node.inputs else None
        record = self.by_data.get(data)
        if record is None:
            record = _Record(site.where, forms.describe(node))
            self.order.append(record)
        self.records[node] = record
        return record

    def _restate(
        self, node: ir.Node, sites: Sequence[Site], record: _Record, model: Surroundings, forms: OnnxForms
    ) -> bool:
        """Restate a site in the first form that applies of what it meets; whether one did."""
        found = obstacles(sites, model, self.target, self.unbind)
        for obstacle in found:
            data = node.inputs[0] if node.inputs else None
            reasons = []
            for form in obstacle.forms:
                if self.keep_splits and not form.keeps_split:
                    continue
                promised = [(sites[0].where.graph, value.name or "", known(value)) for value in node.outputs]
                try:
                    written = forms.write(form, node, sites[0])
                except NoFormError as error:
                    reasons.append(str(error))
                    continue
                if form is not LegalForm.MEANING:  # which may be another one
                    self.promised |= {(path, name): (record, what) for path, name, what in promised if name}
                record.met |= {one.reason.code: one.reason for one in found}
                record.after = written.text
                record.costs += [written.cost] if written.cost else []
                if node.graph is None:
                    self.by_data[data] = record
                return True
            words = "; ".join([obstacle.reason.text, *reasons])
            record.left.append(Reason(obstacle.reason.code, words))
            record.settled = True
            return False
        return False


def _agree(before: Known, now: Known) -> bool:
    """Return whether what is known of a value at two times may both be true."""
    if isinstance(before, SequenceOf) and isinstance(now, SequenceOf):
        if before.length == 0:
            return before.element.type is now.element.type
        before, now = before.element, now.element
    if not isinstance(before, Tensor) or not isinstance(now, Tensor):
        return isinstance(before, SequenceOf) is isinstance(now, SequenceOf) or None in (before, now)
    if None not in (before.type, now.type) and before.type is not now.type:
        return False
    return before.shape is None or now.shape is None or may_be(before.shape, now.shape)
