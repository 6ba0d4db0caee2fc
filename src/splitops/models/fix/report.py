"""What legalisation made of each split of a model."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from splitops.errors import ModelError, SplitError, Where

if TYPE_CHECKING:
    import onnx
    import onnx_ir

    from splitops.models.formats.openvino import OpenVINOModel


class Fate(StrEnum):
    """What became of a site."""

    LEGAL = "legal"
    """The target gives the decided result as it stands."""
    RESTATED = "restated"
    """It is stated in another way, in which the target does."""
    ILLEGAL = "illegal"
    """It stands as it did: no form is known in which the target gives the decided result."""


class Unbind(StrEnum):
    """What chunks of 1 with keepdims = 0 are to mean."""

    AS_WRITTEN = "as-written"
    """The parts keep the axis, as the text says."""
    AS_PYTORCH = "as-pytorch"
    """They lose it, as PyTorch means it."""


@dataclass(frozen=True, slots=True)
class Reason:
    """One limit of the target that a site meets, or one rule that it breaks.

    Attributes:
        code: its code, such as ``"onnxruntime.ceil-empty-part"`` or ``"lengths.missing"``.
        text: what it says.
    """

    code: str
    text: str

    def __str__(self) -> str:
        return f"{self.text} [{self.code}]"


@dataclass(frozen=True, slots=True)
class SiteReport:
    """One split of the model that was given.

    Attributes:
        where: its place there; one that stays a split has the same place in the model that was made.
        fate: what became of it.
        before: what it stated, for example ``"Split-18(axis=0, num_outputs=4)"``.
        after: what stands there now.
        reasons: the limits that it met; of an illegal one, those that stay.
        cost: what the new statement costs when the model runs; empty where it costs nothing.
    """

    where: Where
    fate: Fate
    before: str
    after: str
    reasons: tuple[Reason, ...] = ()
    cost: str = ""

    @property
    def code(self) -> str | None:
        """The code of the first reason."""
        return self.reasons[0].code if self.reasons else None

    @property
    def error(self) -> SplitError:
        """What is raised where no illegal site may stay."""
        reasons = "; ".join(f"[{reason.code}]: {reason.text}" for reason in self.reasons)
        return ModelError(f"{self.before} {reasons}", self.where)

    def __str__(self) -> str:
        place = f"{self.where}: " if str(self.where) else ""
        why = f" ({'; '.join(map(str, self.reasons))})" if self.reasons else ""
        if self.fate is not Fate.RESTATED:
            return f"{place}{self.before}: {self.fate}{why}"
        cost = f"; costs {self.cost}" if self.cost else ""
        return f"{place}{self.before} -> {self.after}{why}{cost}"

    def as_dict(self) -> dict[str, Any]:
        """Return it as values for JSON."""
        return {
            "fate": self.fate.value,
            "before": self.before,
            "after": self.after,
            "reasons": [{"code": reason.code, "text": reason.text} for reason in self.reasons],
            "cost": self.cost,
            "where": self.where.as_dict(),
        }


@dataclass(frozen=True, slots=True)
class Legalization:
    """The report of :func:`~splitops.models.fix.legalize`.

    Attributes:
        target: the runtime that the model is for.
        model: the model with its legal sites, of the kind that was given: an ``onnx.ModelProto`` (also for a
            path), an ``onnx_ir.Model``, or an ``OpenVINOModel``.
        sites: every split of the model that was given, in its order; one of a function once for all calls.
    """

    target: str
    model: onnx.ModelProto | onnx_ir.Model | OpenVINOModel
    sites: tuple[SiteReport, ...]

    @property
    def restated(self) -> tuple[SiteReport, ...]:
        """The sites that are stated in another way."""
        return tuple(site for site in self.sites if site.fate is Fate.RESTATED)

    @property
    def illegal(self) -> tuple[SiteReport, ...]:
        """The sites at which the target does not give the decided result."""
        return tuple(site for site in self.sites if site.fate is Fate.ILLEGAL)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model, whole or not at all.

        Raises:
            ModelError: the ending is of the other format, or the file cannot be written.
        """
        from splitops.models.formats.files import save

        save(self.model, path)

    def __str__(self) -> str:
        lines = [str(site) for site in self.sites] or ["no split in the model"]
        return "\n".join([f"for {self.target}:", *(f"  {line}" for line in lines)])

    def __repr__(self) -> str:
        counts = f"{len(self.sites)} sites, {len(self.restated)} restated, {len(self.illegal)} illegal"
        return f"Legalization({self.target}: {counts})"
