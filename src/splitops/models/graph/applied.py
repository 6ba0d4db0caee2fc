"""The record of an applied rewrite, for reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from splitops.common.json_values import to_json_values
from splitops.errors import Where


@dataclass(frozen=True, slots=True)
class Applied:
    """An applied rewrite.

    Attributes:
        rewrite: name of the rewrite, for example ``"cancel-split-concat"``.
        where: location of its node in the original model.
        before: description of the replaced node, for example ``"Split-13(axis=0, split=[2, 3])"``.
        after: description of the replacement.
        reason: why both are equivalent.
    """

    rewrite: str
    where: Where
    before: str
    after: str
    reason: str

    def __repr__(self) -> str:
        return f"Applied({self})"

    def __str__(self) -> str:
        place = f"{self.where}: " if str(self.where) else ""
        return f"{place}{self.before} -> {self.after} [{self.rewrite}]: {self.reason}"

    def as_dict(self) -> dict[str, Any]:
        """Return the record as JSON-serialisable values."""
        return to_json_values(self)
