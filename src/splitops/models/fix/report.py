"""What a fix did to each split of a model."""

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
    """What happened to a split."""

    UNCHANGED = "unchanged"
    """The runtimes execute it correctly as it is."""
    REWRITTEN = "rewritten"
    """It has another form now, which the runtimes execute correctly."""
    UNFIXABLE = "unfixable"
    """No form is known that the runtimes execute correctly. Rules that it broke may still be repaired."""


class Unbind(StrEnum):
    """What chunks of 1 with keepdims = 0 mean."""

    AS_WRITTEN = "as-written"
    """The parts keep the axis, as the specification says."""
    AS_PYTORCH = "as-pytorch"
    """They lose it, as PyTorch means it."""


@dataclass(frozen=True, slots=True)
class Reason:
    """One limit of a runtime that a split meets, or one rule that it breaks.

    Attributes:
        code: its code, such as ``"onnxruntime.ceil-empty-part"`` or ``"lengths.missing"``.
        text: what it says.
    """

    code: str
    text: str

    def __str__(self) -> str:
        return f"{self.text} [{self.code}]"


@dataclass(frozen=True, slots=True)
class SplitReport:
    """One split of the model that was given.

    Attributes:
        where: its place there; a split that stays one has the same place in the fixed model.
        status: what happened to it.
        before: its form before, for example ``"Split-18(axis=0, num_outputs=4)"``.
        after: its form now.
        reasons: the limits that it met; of an unfixable split, those that stay.
        cost: what the new form costs when the model runs; empty where it costs nothing.
        possible: the limits that it still meets for some inputs: no form avoids them.
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
        """The code of the first reason."""
        return self.reasons[0].code if self.reasons else None

    @property
    def error(self) -> SplitError:
        """What is raised where no unfixable split may stay."""
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
        """Return it as values for JSON."""
        return to_json_values(self)

    def __repr__(self) -> str:
        return f"SplitReport({self})"


@dataclass(frozen=True, slots=True)
class FixReport(ModelReport):
    """The report of :func:`~splitops.models.fix.fix`.

    Attributes:
        runtimes: what the model is for, such as ``"onnxruntime"`` or ``"onnxruntime==1.28"``; empty where
            only broken rules are repaired.
        model: the fixed model, of the kind that was given: an ``onnx.ModelProto`` (also for a path), an
            ``onnx_ir.Model``, or an ``OpenVINOModel``.
        splits: every split of the model that was given, in its order; one of a function once for all calls.
        findings: the errors that :func:`splitops.check` still finds in the fixed model for these runtimes,
            beside those of the unfixable splits.
        untested: the targets among the runtimes that were never run: their limits are only documented.
        keeps_data: whether the model names data in the files of the given one, which :meth:`save` keeps.
    """

    runtimes: tuple[str, ...]
    model: onnx.ModelProto | onnx_ir.Model | OpenVINOModel
    splits: tuple[SplitReport, ...]
    findings: tuple[Finding, ...] = ()
    untested: tuple[Target, ...] = ()
    keeps_data: bool = False

    @property
    def rewritten(self) -> tuple[SplitReport, ...]:
        """The splits that have another form now."""
        return tuple(split for split in self.splits if split.status is FixStatus.REWRITTEN)

    @property
    def unfixable(self) -> tuple[SplitReport, ...]:
        """The splits that stay wrong: they break a rule, or a runtime does not execute them correctly."""
        return tuple(split for split in self.splits if split.status is FixStatus.UNFIXABLE)

    @property
    def error(self) -> SplitError | None:
        """What is raised where nothing wrong may stay; None if a check finds no error."""
        for split in self.unfixable:
            return split.error
        for one in self.findings:
            operator = f"{one.operator} " if one.operator else ""
            return ModelError(f"{operator}[{one.code}]: {one.message}", one.where)
        return None

    @property
    def possible(self) -> tuple[SplitReport, ...]:
        """The splits that a runtime rejects or gets wrong for some inputs, whatever their form."""
        return tuple(split for split in self.splits if split.possible)

    def __str__(self) -> str:
        lines = [str(split) for split in self.splits] or ["The model has no split."]
        lines += map(str, self.findings)
        return "\n".join([f"for {self._runtimes()}:", *(f"  {line}" for line in lines)])

    def __repr__(self) -> str:
        counts = (
            f"{len(self.splits)} splits, {len(self.rewritten)} rewritten, {len(self.unfixable)} unfixable"
        )
        left = f", {count_of(len(self.findings), 'other error')}" if self.findings else ""
        return f"FixReport({self._runtimes()}: {counts}{left})"

    def _runtimes(self) -> str:
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
        title = f"for {self._runtimes()}" if self.runtimes else ""
        return format_html_table(title, ("node", "before", "result", "after", "why"), rows)
