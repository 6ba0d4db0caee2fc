"""Convert functions to the opset of their model if their own opset selects another version of a split."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

import onnx_ir as ir

from splitops.models.check.onnx_form import OTHER_VERSION, describe_other_version, iter_other_versions
from splitops.models.convert.onnx_to_onnx import ModelConversion
from splitops.models.convert.report import Change
from splitops.models.fix.report import FixStatus, Reason, SplitReport
from splitops.models.formats.model import CheckedModel
from splitops.models.formats.walk import get_opset_imports, has_layers, iter_owners, label
from splitops.models.graph.split_nodes import is_split
from splitops.models.infer.interpreter import ForwardInterpreter
from splitops.models.split_nodes.styles import SplitStyle

_Place = tuple[str | None, str | None]


class ConvertedFunctions:
    """An editable copy of a model, in which some functions have been converted to the model's opset.

    Those are the functions whose own opset selects another version of a split. A function with a node that
    cannot be converted is unchanged.
    """

    def __init__(self, model: CheckedModel) -> None:
        self._befores: dict[_Place, str] = {}
        self._reasons: dict[_Place, Reason] = {}
        stuck: dict[str, str] = {}
        while True:
            self.edited = model.copy(name_unread=False)
            found = [] if has_layers(self.edited) else list(iter_other_versions(self.edited))
            splits = [one for one in found if is_split(one.node)]
            for one in splits:
                words, why = describe_other_version(one), stuck.get(one.function)
                words += f"; the function cannot be converted to that opset: {why}" if why else ""
                self._reasons[one.path, label(one.node)] = Reason(OTHER_VERSION, words)
            paths = {one.function for one in splits} - stuck.keys()
            if not paths:
                return
            changes = _convert(self.edited, model, paths)
            again: dict[str, str] = {}
            for change in changes:
                of = (path for path in paths if f"{change.where.graph}/".startswith(f"{path}/"))
                if change.error is not None:
                    again |= dict.fromkeys(of, f"{change.before} in it: {change.error.message}")
            if not again:
                self._befores = {(one.where.graph, one.where.node): one.before for one in changes}
                return
            stuck |= again

    def add_reasons(self, splits: Iterable[SplitReport]) -> tuple[SplitReport, ...]:
        """Return the reports, with those of splits in these functions marked as rewritten or unfixable."""
        return tuple(map(self._add_reason, splits))

    def _add_reason(self, split: SplitReport) -> SplitReport:
        place = split.where.graph, split.where.node
        why, before = self._reasons.get(place), self._befores.get(place)
        if why is None:
            return split
        unfixable = before is None or split.status is FixStatus.UNFIXABLE
        return replace(
            split,
            status=FixStatus.UNFIXABLE if unfixable else FixStatus.REWRITTEN,
            before=before or split.before,
            reasons=split.reasons if before is not None and unfixable else (why, *split.reasons),
        )


def _convert(edited: ir.Model, model: CheckedModel, paths: AbstractSet[str]) -> Sequence[Change]:
    ForwardInterpreter(edited, model.where).run().annotate()
    opset = get_opset_imports(edited.graph, edited)[""]
    converting = ModelConversion(edited, model.where)
    for path, owner in iter_owners(edited):
        if path in paths:
            converting.convert_graph(owner, get_opset_imports(owner)[""], opset, SplitStyle.SAME)
            owner.opset_imports[""] = opset
    return converting.changes
