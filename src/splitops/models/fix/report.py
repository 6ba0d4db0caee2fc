"""Reports of a fix, with the result for each split of a model."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from splitops.common.json_values import to_json_values
from splitops.common.notebooks import format_html_table
from splitops.errors import ModelError, SplitError, Where, count_of
from splitops.models.formats.files import ModelReport

if TYPE_CHECKING:
    import onnx
    import onnx_ir

    from splitops.models.check import Finding, Target
    from splitops.models.formats.openvino import OpenVINOModel


class FixStatus(StrEnum):
    """Whether a split needed a rewrite to run correctly, and whether one was found."""

    UNCHANGED = "unchanged"
    """The split was not changed. The runtimes execute it correctly, except for any ``possible`` reasons."""
    REWRITTEN = "rewritten"
    """The split or its declarations were changed so that the runtimes execute it correctly."""
    UNFIXABLE = "unfixable"
    """A rule violation was not repaired, or no known rewrite runs correctly. Other faults may be fixed."""


class Unbind(StrEnum):
    """Interpretations of SplitToSequence with chunks of 1 and keepdims = 0."""

    AS_WRITTEN = "as-written"
    """The parts keep the axis, as specified."""
    AS_PYTORCH = "as-pytorch"
    """The parts lose the axis, as in PyTorch."""


@dataclass(frozen=True, slots=True)
class Reason:
    """A limit of a runtime that applies to a split, a rule that it breaks, or another reason to change it.

    Attributes:
        code: code of the reason, such as ``"onnxruntime.ceil-empty-part"`` or ``"lengths.missing"``.
        text: its description.
    """

    code: str
    text: str

    def __str__(self) -> str:
        return f"{self.text} [{self.code}]"


@dataclass(frozen=True, slots=True)
class SplitReport:
    """One split of the source model, or another node that was or should have been changed.

    Attributes:
        where: its location in the source model.
        status: result of the fix.
        before: its description in the source, for example ``"Split-18(axis=0, num_outputs=4)"``.
        after: its description in the fixed model.
        reasons: the limits that applied and the rules that it broke; if unfixable, only the remaining ones.
        cost: additional cost at run time, or empty.
        possible: reasons that are left for some inputs only, such as limits that no rewrite avoids.
    """

    where: Where
    status: FixStatus
    before: str
    after: str
    reasons: tuple[Reason, ...] = ()
    cost: str = ""
    possible: tuple[Reason, ...] = ()

    @property
    def code(self) -> str | None:
        """The code of the first reason, or None if there are no reasons."""
        return self.reasons[0].code if self.reasons else None

    @property
    def error(self) -> SplitError:
        """An error with the remaining reasons of an unfixable split."""
        reasons = "; ".join(f"[{reason.code}]: {reason.text}" for reason in self.reasons)
        return ModelError(f"{self.before} {reasons}", self.where)

    def __str__(self) -> str:
        place = f"{self.where}: " if str(self.where) else ""
        why = f" ({'; '.join(map(str, self.reasons))})" if self.reasons else ""
        left = f"; left: {'; '.join(map(str, self.possible))}" if self.possible else ""
        if self.status is not FixStatus.REWRITTEN:
            return f"{place}{self.before}: {self.status}{why}{left}"
        cost = f"; costs {self.cost}" if self.cost else ""
        return f"{place}{self.before} -> {self.after}{why}{cost}{left}"

    def as_dict(self) -> dict[str, Any]:
        """Convert the report to JSON-serialisable values."""
        return to_json_values(self)

    def __repr__(self) -> str:
        return f"SplitReport({self})"


@dataclass(frozen=True, slots=True)
class FixReport(ModelReport):
    """The report of :func:`~splitops.models.fix.fix`.

    Attributes:
        runtimes: the targets of the fix, such as ``"onnxruntime"`` or ``"onnxruntime==1.28"``; empty if
            there were none.
        model: the fixed model, of the same type as the source: an ``onnx.ModelProto`` (also for a file), an
            ``onnx_ir.Model``, or an ``OpenVINOModel``.
        splits: every split of the source model in order, then other nodes that were or should have been
            changed. A split in a function appears once for all calls.
        findings: the errors that :func:`splitops.check` finds in the fixed model for these runtimes, except
            the reasons of the unfixable splits.
        untested: the targets that were not tested: their limits are only documented.
        keeps_data: whether the model refers to external data of the source, which :meth:`save` keeps.
    """

    runtimes: tuple[str, ...]
    model: onnx.ModelProto | onnx_ir.Model | OpenVINOModel
    splits: tuple[SplitReport, ...]
    findings: tuple[Finding, ...] = ()
    untested: tuple[Target, ...] = ()
    keeps_data: bool = False

    @property
    def rewritten(self) -> tuple[SplitReport, ...]:
        """The splits and other nodes that were rewritten, including those with corrected declarations."""
        return tuple(split for split in self.splits if split.status is FixStatus.REWRITTEN)

    @property
    def unfixable(self) -> tuple[SplitReport, ...]:
        """The splits that still break a rule, or that a runtime does not execute correctly."""
        return tuple(split for split in self.splits if split.status is FixStatus.UNFIXABLE)

    @property
    def error(self) -> SplitError | None:
        """The first error that is left, or None."""
        for split in self.unfixable:
            return split.error
        for one in self.findings:
            operator = f"{one.operator} " if one.operator else ""
            return ModelError(f"{operator}[{one.code}]: {one.message}", one.where)
        return None

    @property
    def possible(self) -> tuple[SplitReport, ...]:
        """The splits with reasons that are left for some inputs only; see :class:`SplitReport`."""
        return tuple(split for split in self.splits if split.possible)

    def __str__(self) -> str:
        lines = [str(split) for split in self.splits] or ["The model has no split."]
        lines += map(str, self.findings)
        return "\n".join([f"for {self._format_runtimes()}:", *(f"  {line}" for line in lines)])

    def __repr__(self) -> str:
        counts = (
            f"{len(self.splits)} splits, {len(self.rewritten)} rewritten, {len(self.unfixable)} unfixable"
        )
        left = f", {count_of(len(self.findings), 'other error')}" if self.findings else ""
        return f"FixReport({self._format_runtimes()}: {counts}{left})"

    def _format_runtimes(self) -> str:
        untested = {target.label for target in self.untested}
        names = (f"{name} (not tested)" if name in untested else name for name in self.runtimes)
        return ", ".join(names) or "no runtime"

    def _repr_html_(self) -> str:
        rows = [
            (str(s.where), s.before, str(s.status), s.after, "; ".join(map(str, (*s.reasons, *s.possible))))
            for s in self.splits
        ]
        rows += [
            (str(one.where), one.operator, "left", "", f"{one.message} [{one.code}]") for one in self.findings
        ]
        title = f"for {self._format_runtimes()}" if self.runtimes else ""
        return format_html_table(title, ("node", "before", "result", "after", "why"), rows)
