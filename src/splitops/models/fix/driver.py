"""Rounds over a model: each split node that meets a limit is rewritten, until none does, or none can be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

import onnx_ir as ir

from splitops.errors import ModelError, Where
from splitops.models.abstract_values import AbstractSequence, AbstractTensor, AbstractValue, may_be
from splitops.models.check.checking import describe_match, find_quirks
from splitops.models.check.limits import Fix, Limit, Repair
from splitops.models.check.predicates import ModelContext
from splitops.models.check.targets import Target
from splitops.models.fix.limits import CHOICES, Issue, find_issues
from splitops.models.fix.report import FixStatus, Reason, SplitReport, Unbind
from splitops.models.graph.editor import Editor
from splitops.models.quirks import Match, Quirk
from splitops.models.split_nodes import SplitNode

_ROUNDS: Final = 8
"""One rewrite can be what another one needs: what a sequence was made of is a Split of its own."""

ValueName = tuple[str | None, str]
"""A value by the path of its graph and its name."""


class NotApplicableError(Exception):
    """A form does not apply to a split node. The message says why."""


class RewriteResult(NamedTuple):
    """What is in the place of a split node now, and what it costs when the model runs."""

    text: str
    cost: str = ""
    splits: Sequence[ir.Node] = ()
    """The splits that are there now, where they are several."""


class RewriteWriter(Protocol):
    """Writes forms into a model of one format."""

    @property
    def editor(self) -> Editor:
        """The model, with what is known of its values noted."""

    def write(self, form: Fix, node: ir.Node, split_node: SplitNode) -> RewriteResult:
        """Write a split node in a form.

        Raises:
            NotApplicableError: the form does not apply; what the split node gives has not changed.
        """


@dataclass(frozen=True, slots=True)
class ModelSnapshot:
    """A model as it is at the beginning of a round."""

    calls: Mapping[ir.Node, Sequence[SplitNode]]
    """Each split node by its node: one for every call of a function around it."""
    context: ModelContext
    """What the conditions of limits ask of the model."""
    forms: RewriteWriter
    gives: Callable[[ir.Node, str | None], Mapping[ValueName, AbstractValue]]
    """From a node and the path of its graph: what is known of the values that its place must keep."""
    known: Callable[[], Mapping[ValueName, AbstractValue]]
    to_open: Callable[[SplitNode], str | None] | None = None
    """What is wrong with constant lengths on an open axis, if the user has chosen what they mean."""


@dataclass(eq=False)
class _Record:
    """What is found out about one split node of the model that was given."""

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
    """Rewrite what meets a limit, or with ``repair`` breaks a rule; return the last look too."""
    rounds = _FixDriver(targets, unbind, repair)
    for _ in range(_ROUNDS):
        last = look()
        if not rounds.one(last):
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
        """Of split nodes that became others: what they split, which the others split now."""
        self._of_tree: set[ir.Node] = set()
        """Splits that are several in the place of one."""
        self._cured: set[tuple[_Record, Quirk]] = set()
        self._promised: dict[ValueName, tuple[_Record, AbstractValue]] = {}
        """What was known of the outputs of the split nodes that the last round has rewritten."""

    def one(self, now: ModelSnapshot) -> bool:
        """Rewrite what can be rewritten now; whether anything was."""
        self._compare(now)
        changed = False
        # Before any is rewritten: another split node of the same data has a record of its own.
        records = [self._record(node, calls[0]) for node, calls in now.calls.items()]
        for (node, calls), record in zip(now.calls.items(), records, strict=True):
            if record.left:
                continue
            found = self._find_issues(calls, now, record)
            if found:
                changed |= self._rewrite(node, calls[0], record, found, now)
        return changed or self._cure_all(now)

    def _cure_all(self, now: ModelSnapshot) -> bool:
        """Cure what the optimisers get wrong, splits and the nodes around them; whether anything was."""
        editor, changed = now.forms.editor, False
        for limit, match in find_quirks(editor, self.targets):
            if any(node.graph is None for node in match.path):
                continue  # what was rewritten before it in this round
            record = self._records.get(match.node)
            if record is None:
                record = _Record(editor.where(match.node), editor.describe(match.node))
                self._records[match.node] = record
                self.order.append(record)
            if not record.left:
                changed |= self._cure(limit, match, record, now)
        return changed

    def _cure(self, limit: Limit, match: Match, record: _Record, now: ModelSnapshot) -> bool:
        editor, data = now.forms.editor, match.node.inputs[0]
        reason = Reason(limit.code, describe_match(limit, match))
        before = now.gives(match.last, editor.where(match.last).graph)
        after = None if (record, match.quirk) in self._cured else match.cure(editor)
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
        """Mark the splits whose forms for one runtime all meet a limit of another."""
        for node, calls in now.calls.items():
            record = self._record(node, calls[0])
            found = self._find_issues(calls, now, record)
            if found:
                record.left = tuple(obstacle.reason for obstacle in found)

    def _find_issues(self, calls: Sequence[SplitNode], now: ModelSnapshot, record: _Record) -> list[Issue]:
        """Return what prevents a split, and note what has no form and depends on the input."""
        found = find_issues(
            calls, now.context, self.targets, self.unbind, repair=self.repair, to_open=now.to_open
        )
        record.possible |= {one.reason.code: one.reason for one in found if not (one.certain or one.forms)}
        return [one for one in found if one.certain or one.reason.code not in record.possible]

    def _compare(self, now: ModelSnapshot) -> None:
        """Compare what is known of rewritten outputs with what was known before."""
        found = now.known() if self._promised else {}
        for name, (record, before) in self._promised.items():
            after = found.get(name)
            if name in found and not _agree(before, after):
                words = f"{record.before} gave {name[1]!r} as {before}, but {record.after} gives {after}"
                raise ModelError(words, record.where)
        self._promised.clear()

    def _record(self, node: ir.Node, split_node: SplitNode) -> _Record:
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
        found: Sequence[Issue],
        now: ModelSnapshot,
    ) -> bool:
        """Write a split node in the first form that applies, of its most serious limit."""
        first, data = found[0], node.inputs[0] if node.inputs else None
        before = now.gives(node, split_node.where.graph)
        against: list[str] = []
        for form in first.forms:
            try:
                written = now.forms.write(form, node, split_node)
            except NotApplicableError as error:
                against.append(str(error))
                continue
            # A choice may be another one, and of a broken split nothing is known but what is declared.
            if form not in CHOICES and split_node.error is None:
                self._promised |= {name: (record, known) for name, known in before.items()}
            record.met |= {obstacle.reason.code: obstacle.reason for obstacle in found}
            record.after = f"{record.after}, {written.text}" if node in self._of_tree else written.text
            self._of_tree.update(written.splits)
            self._records |= dict.fromkeys(written.splits, record)
            record.costs += [written.cost] if written.cost else []
            if node.graph is None:
                self._of_data[data] = record
            return True
        words = "; ".join(dict.fromkeys([first.reason.text, *against]))
        if not first.certain and Repair.UNBIND not in first.forms:
            record.possible[first.reason.code] = Reason(first.reason.code, words)
            return True  # the others have a turn
        others = [obstacle.reason for obstacle in found[1:] if obstacle.certain]
        record.left = (Reason(first.reason.code, words), *others)
        return False


def _agree(before: AbstractValue, now: AbstractValue) -> bool:
    """Return whether what is known of a value at two times may both be true."""
    if isinstance(before, AbstractSequence) and isinstance(now, AbstractSequence):
        if before.length == 0:
            return before.element.type is now.element.type
        before, now = before.element, now.element
    if not isinstance(before, AbstractTensor) or not isinstance(now, AbstractTensor):
        return isinstance(before, AbstractSequence) is isinstance(now, AbstractSequence) or None in (
            before,
            now,
        )
    if None not in (before.type, now.type) and before.type is not now.type:
        return False
    return may_be(before.shape, now.shape)
