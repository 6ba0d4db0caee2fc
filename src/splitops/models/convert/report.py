"""What a conversion did at every split node, and the model that came of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from typing import TYPE_CHECKING, Any

from splitops.common.notebooks import format_html_table
from splitops.errors import Rule, RuleError, SplitError, Where
from splitops.models.formats.files import ModelReport
from splitops.spec.operators import FAMILY

if TYPE_CHECKING:
    import onnx

    from splitops.models.formats.openvino import OpenVINOModel


class Status(StrEnum):
    """The result of a node."""

    KEPT = "kept"
    """It means the same in the target and is unchanged."""
    CONVERTED = "converted"
    """It is one node, stated in another way."""
    REWRITTEN = "rewritten"
    """Several nodes give the same values."""
    REJECTED = "rejected"
    """Nothing is known to give the same values."""


@dataclass(frozen=True, slots=True)
class Change:
    """One node: every split, and of the other nodes those that changed or were rejected.

    Attributes:
        where: its place in the model that was given.
        status: the result of it.
        before: what it declares, for example ``"Split-11(axis=0, split=[2, 3])"``.
        after: what it declares in the target; None where it is rejected.
        error: why it is rejected.
    """

    where: Where
    status: Status
    before: str
    after: str | None = None
    error: SplitError | None = None

    @property
    def is_split(self) -> bool:
        """Whether the node is one of the split family."""
        name = self.before.removeprefix("openvino ").partition("-")[0]
        return name in chain(*FAMILY.values())

    @property
    def rule(self) -> Rule | None:
        """The rule code of a rejection, where a rule of the family prevents it."""
        return self.error.rule if isinstance(self.error, RuleError) else None

    def __str__(self) -> str:
        place = f"{self.where}: " if str(self.where) else ""
        if self.error is not None:
            return f"{place}{self.before}: rejected: {self.error.message}"
        if self.status is Status.KEPT:
            return f"{place}{self.before}: kept"
        return f"{place}{self.before} -> {self.after} ({self.status})"

    def as_dict(self) -> dict[str, Any]:
        """Return it as values for JSON."""
        return {
            "status": self.status.value,
            "before": self.before,
            "after": self.after,
            "rule": None if self.rule is None else self.rule.value,
            "reason": None if self.error is None else self.error.message,
            "where": self.where.as_dict(),
        }

    def __repr__(self) -> str:
        return f"Change({self})"


class Conversion(ModelReport):
    """The report of :func:`~splitops.models.convert.convert`, and the model where it is complete.

    It is made of the report first, so that one call tells of *every* site that prevents a conversion,
    and :attr:`model` raises the first of them: a model that is not whole cannot be had by accident.

    Attributes:
        target: what was converted to, for example ``"onnx:11"``.
        changes: every split of the model in its order, and the other nodes that changed.
    """

    def __init__(
        self,
        target: str,
        changes: tuple[Change, ...],
        model: onnx.ModelProto | OpenVINOModel | None,
        problem: SplitError | None = None,
    ) -> None:
        self.target = target
        self.changes = changes
        self._model = model
        self._problem = problem

    @property
    def rejections(self) -> tuple[Change, ...]:
        """The nodes that cannot be converted."""
        return tuple(change for change in self.changes if change.status is Status.REJECTED)

    @property
    def problem(self) -> SplitError | None:
        """The first error that prevents the conversion; None where the model is complete."""
        return next((change.error for change in self.rejections if change.error), self._problem)

    @property
    def complete(self) -> bool:
        """Whether there is a model."""
        return self.problem is None

    @property
    def model(self) -> Any:
        """The converted model: an ``onnx.ModelProto``, or an ``OpenVINOModel`` where that is the target.

        Raises:
            RuleError: a split is rejected; the first one.
            ModelError: another node is, or the model cannot be written for another reason.
        """
        if self.problem is not None:
            raise self.problem
        return self._model

    def __str__(self) -> str:
        lines = [str(change) for change in self.changes] or ["no split in the model"]
        return "\n".join([f"to {self.target}:", *(f"  {line}" for line in lines)])

    def __repr__(self) -> str:
        state = "complete" if self.complete else f"{len(self.rejections)} rejected"
        return f"Conversion(target={self.target!r}, {len(self.changes)} changes, {state})"

    def _repr_html_(self) -> str:
        rows = [
            (str(c.where), c.before, str(c.status), c.after if c.error is None else c.error.message)
            for c in self.changes
        ]
        return format_html_table(f"to {self.target}", ("node", "before", "result", "after, or why not"), rows)
