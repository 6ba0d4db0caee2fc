"""The fix driver: rewrite splits that break a rule or meet a limit, pass by pass, until nothing changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import onnx_ir as ir

from splitops.errors import ModelError, SplitError, Where
from splitops.models.abstract_values import AbstractSequence, AbstractTensor, AbstractValue, may_be
from splitops.models.check.baked import OpenSizes
from splitops.models.check.checking import describe_match, find_quirks
from splitops.models.check.limits import Limit, Repair
from splitops.models.check.predicates import ModelContext
from splitops.models.check.targets import Target
from splitops.models.fix.limits import CHOICES, Issue, find_issues, find_max_outputs
from splitops.models.fix.opening import Opening
from splitops.models.fix.report import FixStatus, Reason, SplitReport, Unbind
from splitops.models.fix.writing import FixWriter
from splitops.models.formats.openvino.nodes import get_output_values
from splitops.models.formats.walk import has_layers
from splitops.models.graph.editors import make_editor
from splitops.models.graph.onnx import get_abstract_value
from splitops.models.infer.interpreter import ForwardInterpreter, InferenceResult
from splitops.models.quirks import Match, Quirk
from splitops.models.split_nodes import SplitNode

_ROUNDS: Final = 8
"""Maximum number of passes: a rewrite may create a Split that must be rewritten again."""

ValueName = tuple[str | None, str]
"""The path of the graph of a value, and the name of the value."""


@dataclass(frozen=True)
class ModelSnapshot:
    """A model at the beginning of a pass."""

    inferred: InferenceResult
    """The values and the splits of the model, as forward inference finds them."""
    context: ModelContext
    """The facts about the model that conditions of limits need."""
    writer: FixWriter
    results: Mapping[ValueName, AbstractValue] | None = None
    """The abstract values of the model outputs for OpenVINO IR, in which the names of other values change."""
    describe_baked: Callable[[SplitNode], str | None] | None = None
    """Returns a message if a split has constant lengths on a dynamic axis. None if such lengths are kept."""
    is_current: bool = True
    """Whether the model has the declarations from which ``inferred`` was inferred, and no others."""

    @classmethod
    def take(
        cls,
        model: ir.Model,
        where: Where,
        targets: Sequence[Target],
        unbind: Unbind | None = None,
        opening: Opening | None = None,
        repair_declarations: Callable[[InferenceResult], bool] = lambda _: False,
    ) -> ModelSnapshot:
        """Infer a model's types and shapes, annotate its values, and return the snapshot for one pass.

        ``repair_declarations`` corrects the declarations of the model, and returns whether it did.
        """
        sizes = None if opening is None else OpenSizes.from_model(model)
        # Forward inference: a size that a split implies for its own input may be wrong before it has run.
        inferred = ForwardInterpreter(model, where, given=None if sizes is None else sizes.given).run()
        is_repaired = repair_declarations(inferred)
        inferred.annotate()
        outputs = get_output_values(model).items() if has_layers(model) else None
        return cls(
            inferred,
            ModelContext.from_model(model),
            FixWriter(make_editor(model, where), unbind, find_max_outputs(targets), opening),
            None if outputs is None else {(None, name): get_abstract_value(value) for name, value in outputs},
            None if sizes is None else sizes.describe_baked,
            is_current=not is_repaired and sizes is None,
        )

    @cached_property
    def calls(self) -> Mapping[ir.Node, Sequence[SplitNode]]:
        """The splits by node: one for each call of the function around it."""
        calls: dict[ir.Node, list[SplitNode]] = {}
        for split_node in self.inferred.splits:
            calls.setdefault(split_node.node, []).append(split_node)
        return calls

    def get_kept_values(self, node: ir.Node, path: str | None) -> Mapping[ValueName, AbstractValue]:
        """Return the abstract values that a rewrite of a node in the graph ``path`` must keep."""
        if self.results is not None:
            return self.results
        return {(path, value.name): get_abstract_value(value) for value in node.outputs if value.name}

    def get_values(self) -> Mapping[ValueName, AbstractValue]:
        """Return all abstract values that :meth:`get_kept_values` may return."""
        return self.inferred.index_by_name() if self.results is None else self.results


@dataclass(eq=False)
class _Record:
    """The state of one split node of the source model, or of another node that an optimiser gets wrong."""

    where: Where
    before: str
    after: str = ""
    met: dict[str, Reason] = field(default_factory=dict)
    left: tuple[Reason, ...] = ()
    possible: dict[str, Reason] = field(default_factory=dict)
    costs: list[str] = field(default_factory=list)

    def report(self) -> SplitReport:
        after = self.after or self.before
        possible = tuple(self.possible.values())
        if self.left:
            return SplitReport(self.where, FixStatus.UNFIXABLE, self.before, after, self.left, "", possible)
        status = FixStatus.REWRITTEN if self.after else FixStatus.UNCHANGED
        cost = "; ".join(dict.fromkeys(self.costs))
        return SplitReport(self.where, status, self.before, after, tuple(self.met.values()), cost, possible)


def fix_splits(
    look: Callable[[], ModelSnapshot],
    targets: Sequence[Target],
    unbind: Unbind | None,
    *,
    repair: bool = True,
) -> tuple[tuple[SplitReport, ...], ModelSnapshot]:
    """Rewrite splits to which a limit applies or, with ``repair``, that break a rule.

    ``look`` returns the snapshot for the next pass. Return the reports of the splits and the last snapshot.
    """
    rounds = _FixDriver(targets, unbind, repair)
    for _ in range(_ROUNDS):
        last = look()
        if not rounds.run_pass(last):
            break
    else:
        last = look()
        rounds.give_up(last)
    return tuple(record.report() for record in rounds.order), last


class _FixDriver:
    def __init__(self, targets: Sequence[Target], unbind: Unbind | None, repair: bool) -> None:
        self.targets = targets
        self.unbind = unbind
        self.repair = repair
        self.order: list[_Record] = []
        self._records: dict[ir.Node, _Record] = {}
        self._of_data: dict[ir.Value | None, _Record] = {}
        """The records of rewritten split nodes, keyed by data input. The new nodes read the same input."""
        self._of_tree: set[ir.Node] = set()
        """New splits, several of which together replace one split."""
        self._cured: set[tuple[_Record, Quirk]] = set()
        self._promised: dict[ValueName, tuple[_Record, AbstractValue]] = {}
        """For each value that the last pass must have kept, the record of the split and the former value."""

    def run_pass(self, now: ModelSnapshot) -> bool:
        """Run one pass. Return whether another pass must run."""
        self._check_outputs(now)
        changed = False
        # Make all records before the first rewrite: other splits of the same data need their own.
        records = [self._get_record(node, calls[0]) for node, calls in now.calls.items()]
        for (node, calls), record in zip(now.calls.items(), records, strict=True):
            if record.left:
                continue
            found = self._find_issues(calls, now, record)
            if found:
                changed |= self._rewrite(node, calls[0], record, found, now)
        return changed or self._rewrite_quirks(now)

    def _rewrite_quirks(self, now: ModelSnapshot) -> bool:
        """Rewrite nodes that an optimiser would get wrong. Return whether anything was rewritten."""
        editor, changed = now.writer.editor, False
        for limit, match in find_quirks(editor, self.targets):
            if any(node.graph is None for node in match.path):
                continue  # this pass has already removed one of its nodes
            record = self._records.get(match.node)
            if record is None:
                record = _Record(editor.locate(match.node), editor.describe(match.node))
                self._records[match.node] = record
                self.order.append(record)
            if not record.left:
                changed |= self._rewrite_quirk(limit, match, record, now)
        return changed

    def _rewrite_quirk(self, limit: Limit, match: Match, record: _Record, now: ModelSnapshot) -> bool:
        editor, data = now.writer.editor, match.node.inputs[0]
        reason = Reason(limit.code, describe_match(limit, match))
        before = now.get_kept_values(match.last, editor.locate(match.last).graph)
        after = None if (record, match.quirk) in self._cured else match.rewrite(editor)
        if after is None:
            record.left = (reason,)
            return False
        self._cured.add((record, match.quirk))
        self._promised |= {name: (record, known) for name, known in before.items()}
        record.met[limit.code] = reason
        record.after = after
        if match.node.graph is None:
            self._of_data[data] = record
        return True

    def give_up(self, now: ModelSnapshot) -> None:
        """Mark splits that still have issues as unfixable: fixes for different runtimes conflict."""
        for node, calls in now.calls.items():
            record = self._get_record(node, calls[0])
            found = self._find_issues(calls, now, record)
            if found:
                record.left = tuple(issue.reason for issue in found)

    def _find_issues(self, calls: Sequence[SplitNode], now: ModelSnapshot, record: _Record) -> list[Issue]:
        """Return the issues of a split. Uncertain ones without a rewrite are only recorded as possible."""
        found = find_issues(
            calls, now.context, self.targets, self.unbind, repair=self.repair, to_open=now.describe_baked
        )
        record.possible |= {one.reason.code: one.reason for one in found if not (one.certain or one.rewrites)}
        return [one for one in found if one.certain or one.reason.code not in record.possible]

    def _check_outputs(self, now: ModelSnapshot) -> None:
        """Raise ModelError if the inferred type or shape of a rewritten output contradicts the former one."""
        found = now.get_values() if self._promised else {}
        for name, (record, before) in self._promised.items():
            after = found.get(name)
            if name in found and not _may_agree(before, after):
                change = f"when {record.before} became {record.after}"
                words = f"output {name[1]!r} changed from {before} to {after} {change}"
                raise ModelError(words, record.where)
        self._promised.clear()

    def _get_record(self, node: ir.Node, split_node: SplitNode) -> _Record:
        if node not in self._records:
            record = self._of_data.get(node.inputs[0] if node.inputs else None)
            if record is None:
                record = _Record(split_node.where, str(split_node))
                self.order.append(record)
            self._records[node] = record
        return self._records[node]

    def _rewrite(
        self,
        node: ir.Node,
        split_node: SplitNode,
        record: _Record,
        issues: Sequence[Issue],
        now: ModelSnapshot,
    ) -> bool:
        """Apply the first possible rewrite for the first issue. Return whether another pass must run."""
        first, data = issues[0], node.inputs[0] if node.inputs else None
        before = now.get_kept_values(node, split_node.where.graph)
        against: list[str] = []
        for rewrite in first.rewrites:
            try:
                written = now.writer.write(rewrite, node)
            except SplitError as error:
                against.append(error.message)
                continue
            # A choice of the user may change the outputs. Those of an invalid split are not inferred.
            if rewrite not in CHOICES and split_node.error is None:
                self._promised |= {name: (record, known) for name, known in before.items()}
            record.met |= {issue.reason.code: issue.reason for issue in issues}
            record.after = f"{record.after}, {written.text}" if node in self._of_tree else written.text
            self._of_tree.update(written.splits)
            self._records |= dict.fromkeys(written.splits, record)
            record.costs += [written.cost] if written.cost else []
            if node.graph is None:
                self._of_data[data] = record
            return True
        words = "; ".join(dict.fromkeys([first.reason.text, *against]))
        if not first.certain and Repair.UNBIND not in first.rewrites:
            record.possible[first.reason.code] = Reason(first.reason.code, words)
            return True  # the next pass tries the other issues
        others = [issue.reason for issue in issues[1:] if issue.certain]
        record.left = (Reason(first.reason.code, words), *others)
        return False


def _may_agree(before: AbstractValue, now: AbstractValue) -> bool:
    """Return whether two abstract values may describe the same value."""
    if isinstance(before, AbstractSequence) and isinstance(now, AbstractSequence):
        if before.length == 0:
            return before.element.type is now.element.type
        before, now = before.element, now.element
    if not isinstance(before, AbstractTensor) or not isinstance(now, AbstractTensor):
        is_same_kind = isinstance(before, AbstractSequence) is isinstance(now, AbstractSequence)
        return is_same_kind or None in (before, now)
    if None not in (before.type, now.type) and before.type is not now.type:
        return False
    return may_be(before.shape, now.shape)
