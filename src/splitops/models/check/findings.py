"""Findings of a check: one :class:`Finding` for each broken rule and each limit that applies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from splitops.common.notebooks import format_html_table
from splitops.errors import NOWHERE, RuleError, SplitError, Where


class Severity(StrEnum):
    """How certain a fault is, and whether it concerns a requested runtime."""

    ERROR = "error"
    """The model is invalid, or does not work on a requested runtime."""
    WARNING = "warning"
    """The model may be invalid or may not work, or does not work on a runtime that was not requested."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One fault of a model, or one split that a runtime rejects or gets wrong.

    Attributes:
        code: code of a rule, such as ``"lengths.sum"``, or of a limit of a runtime, such as
            ``"onnxruntime.split-1"``; or one of ``splitops.models.check.codes.MODEL_CODES``, such as
            ``"model.invalid"`` for a model that cannot be read.
        severity: error or warning.
        operator: operator, usually with its version, for example ``"Split-18"``; empty if the fault is not in
            an operator.
        where: location in the model: graph path, node, input and attribute.
        message: description of the fault, in one line.
        values: the wrong values, keyed by name; for nodes that an optimiser gets wrong, their names.
        runtime: the runtime that rejects the split or gets it wrong; None for faults without a runtime.
        outcome: behaviour of the runtime: ``"error"``, ``"wrong result"`` or ``"crash"``.
        fix: instructions to fix it, or None.
        source: reference for the rule or limit, or empty.
    """

    code: str
    severity: Severity = Severity.ERROR
    operator: str = ""
    where: Where = NOWHERE
    message: str
    values: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    runtime: str | None = None
    outcome: str | None = None
    fix: str | None = None
    source: str = ""

    def __str__(self) -> str:
        place = str(self.where)
        fix = f"; fix: {self.fix}" if self.fix else ""
        operator = f"{self.operator} " if self.operator else ""
        return (
            f"{self.severity}: {operator}[{self.code}]: {self.message}{f' ({place})' if place else ''}{fix}"
        )

    def __repr__(self) -> str:
        return f"Finding({self})"

    def _repr_html_(self) -> str:
        rows = [(str(self.severity), self.code, str(self.where), self.message, self.fix or "")]
        return format_html_table("", ("", "code", "where", "what is wrong", "fix"), rows)


def make_finding(
    error: SplitError, *, severity: Severity = Severity.ERROR, fix: str | None = None, source: str = ""
) -> Finding:
    """Convert an error to a finding. ``fix`` and ``source`` are used only for a :class:`RuleError`."""
    if isinstance(error, RuleError):
        return Finding(
            code=str(error.rule),
            severity=severity,
            operator=error.operator,
            where=error.where,
            message=f"{error.got}, but {error.expected}",
            values=error.values,
            fix=fix,
            source=source,
        )
    return Finding(code="model.invalid", severity=severity, where=error.where, message=error.message)
