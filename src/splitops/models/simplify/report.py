"""What a simplification did, and the model that came of it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from splitops.errors import Where

if TYPE_CHECKING:
    import onnx
    import onnx_ir

    from splitops.models.formats.openvino import OpenVINOModel

__all__ = ["Applied", "Simplification"]


@dataclass(frozen=True, slots=True)
class Applied:
    """One rewrite at one place.

    Attributes:
        rewrite: the name of the rewrite, for example ``"split-concat"``.
        where: the place of its node in the model that was given.
        before: what stood there, for example ``"Split-13(axis=0, split=[2, 3])"``.
        after: what stands there now.
        reason: why it is the same.
    """

    rewrite: str
    where: Where
    before: str
    after: str
    reason: str

    def __str__(self) -> str:
        place = f"{self.where}: " if str(self.where) else ""
        return f"{place}{self.before} -> {self.after} [{self.rewrite}]: {self.reason}"

    def as_dict(self) -> dict[str, Any]:
        """Return it as values for JSON."""
        return {
            "rewrite": self.rewrite,
            "before": self.before,
            "after": self.after,
            "reason": self.reason,
            "where": self.where.as_dict(),
        }


@dataclass(frozen=True, slots=True)
class Simplification:
    """The report of :func:`~splitops.models.simplify.simplify`.

    Attributes:
        model: the simplified model, of the kind that was given: an ``onnx.ModelProto`` (also for a path), an
            ``onnx_ir.Model``, or an ``OpenVINOModel``.
        changes: every rewrite that was applied, in the order in which they were.
        nodes_before: the number of nodes of the model that was given, in all its graphs and functions.
        nodes_after: that of the simplified one.
    """

    model: onnx.ModelProto | onnx_ir.Model | OpenVINOModel
    changes: tuple[Applied, ...]
    nodes_before: int
    nodes_after: int

    @property
    def counts(self) -> Mapping[str, int]:
        """How often each rewrite was applied, of those that were."""
        return Counter(change.rewrite for change in self.changes)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model, whole or not at all.

        Raises:
            ModelError: the ending is of the other format, or the file cannot be written.
        """
        from splitops.models import save

        save(self.model, path)

    def __str__(self) -> str:
        lines = [str(change) for change in self.changes] or ["nothing to simplify"]
        head = f"{self.nodes_before} nodes -> {self.nodes_after}:"
        return "\n".join([head, *(f"  {line}" for line in lines)])

    def __repr__(self) -> str:
        return f"Simplification({len(self.changes)} changes, {self.nodes_before} -> {self.nodes_after} nodes)"
