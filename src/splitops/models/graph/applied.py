"""One rewrite of a graph, for reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from splitops.common.json_values import to_json_values
from splitops.errors import Where


@dataclass(frozen=True, slots=True)
class Applied:
    """One rewrite at one place.

    Attributes:
        rewrite: the name of the rewrite, for example ``"split-concat"``.
        where: the place of its node in the model that was given.
        before: what was there, for example ``"Split-13(axis=0, split=[2, 3])"``.
        after: what is there now.
        reason: why it is the same.
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
        """Return it as values for JSON."""
        return to_json_values(self)
