"""Report of a conversion: the result of every split node, and the converted model."""

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
    """Whether a node was kept, changed or rejected by the conversion."""

    KEPT = "kept"
    """The node means the same at the target and is unchanged."""
    CONVERTED = "converted"
    """The node is still one node, with another operator, other inputs or other attributes."""
    REWRITTEN = "rewritten"
    """Other nodes compute the same values, or the sequence of a split is replaced."""
    REJECTED = "rejected"
    """splitops knows no nodes of the target that compute the same values."""


@dataclass(frozen=True, slots=True)
class Change:
    """Result for one node: a split, or another node that changed or was rejected.

    Attributes:
        where: location of the node in the source model.
        status: result of the conversion.
        before: description of the source node, for example ``"Split-11(axis=0, split=[2, 3])"``.
        after: description of the nodes at the target, or None if the node is rejected.
        error: reason for the rejection, or None.
    """

    where: Where
    status: Status
    before: str
    after: str | None = None
    error: SplitError | None = None

    @property
    def is_split(self) -> bool:
        """Whether the node is a split operator."""
        name = self.before.removeprefix("openvino ").partition("-")[0]
        return name in chain(*FAMILY.values())

    @property
    def rule(self) -> Rule | None:
        """Rule that caused the rejection, or None if there was no rejection or it had another reason."""
        return self.error.rule if isinstance(self.error, RuleError) else None

    def __str__(self) -> str:
        place = f"{self.where}: " if str(self.where) else ""
        if self.error is not None:
            return f"{place}{self.before}: rejected: {self.error.message}"
        if self.status is Status.KEPT:
            return f"{place}{self.before}: kept"
        return f"{place}{self.before} -> {self.after} ({self.status})"

    def as_dict(self) -> dict[str, Any]:
        """Return the change as JSON-serialisable values."""
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
    """Report of :func:`~splitops.models.convert.convert_with_report`, with the converted model.

    The report lists *every* rejected split and, if the target is ONNX, every other rejected node.
    :attr:`model` raises the first error, so that an incomplete model cannot be used by accident.

    Attributes:
        target: target of the conversion, for example ``"onnx:11"``.
        changes: results of all splits, of rejected nodes and, between opsets of ONNX, of other nodes that
            changed.
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
        """Entries of :attr:`changes` for the nodes that cannot be converted."""
        return tuple(change for change in self.changes if change.status is Status.REJECTED)

    @property
    def problem(self) -> SplitError | None:
        """First error that prevents the conversion, or None if the model is complete."""
        return next((change.error for change in self.rejections if change.error), self._problem)

    @property
    def complete(self) -> bool:
        """Whether the conversion succeeded, so that there is a model."""
        return self.problem is None

    @property
    def model(self) -> Any:
        """Converted model: an ``onnx.ModelProto``, or an ``OpenVINOModel`` if the target is OpenVINO.

        Raises:
            RuleError: the first problem violates a rule, such as a split that the target cannot express.
            ModelError: the first problem is another one.
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
