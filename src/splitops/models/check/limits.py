"""Limits of runtimes: valid splits that they reject or get wrong, and invalid ones that they accept."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from splitops.models.check.predicates import Certainty, Condition, ModelContext, SplitPredicates
from splitops.models.quirks import Quirk
from splitops.models.split_nodes.split_node import SplitNode
from splitops.models.split_nodes.ways import Kind
from splitops.spec.operators import OperatorSchema


class Outcome(StrEnum):
    """Behaviour of a runtime when a limit applies."""

    ERROR = "error"
    """The runtime rejects the model, or the run fails."""
    WRONG = "wrong result"
    """The run succeeds, but the results differ from the operator's specification."""
    CRASH = "crash"
    """The process crashes, or reads memory outside the data."""


class Repair(StrEnum):
    """Fixes that change a split node but leave it a single split, from the smallest change to the largest."""

    AXIS = "axis"
    """Set the axis as a non-negative attribute."""
    EXPLICIT_OUTPUTS = "explicit outputs"
    """Declare and name all outputs. Remove inputs that are named '', and keepdims if 'split' is set."""
    VERSION = "version"
    """Use the attributes of the node's version, not of another version."""
    NUM_OUTPUTS = "num_outputs"
    """Set the number of parts to the number of outputs."""
    UNBIND = "unbind"
    """Rewrite an ambiguous unbind with the meaning that the user has chosen."""
    OPEN = "open"
    """Make constant lengths follow the size of a dynamic axis, as the user has chosen."""


class Cure(StrEnum):
    """Fixes that replace the nodes that read parts of a split, or the parts: the split is then removed."""

    CONSTANTS = "constants"
    """Replace each part of a constant with a constant."""
    EMPTY_TENSOR = "empty tensor"
    """Replace each Transpose of an empty part with an empty tensor."""


Fix: TypeAlias = Repair | Kind | Cure
FIXES: Final[Mapping[str, Fix]] = {str(fix): fix for fix in (*Repair, *Kind, *Cure)}
"""Fixes, keyed by their name in target files, the smallest change first."""
SIZE_FIELD: Final = re.compile(r"\{(count|size|axis|part)\}")
"""A field of :attr:`Limit.message_with_sizes`. ``str.format`` would let users' files access attributes."""
DEPENDS: Final = " (depends on the input)"
"""Suffix of the message if it is not certain that the limit applies."""
USUAL_REWRITES: Final[Mapping[str, tuple[Fix, ...]]] = {
    "uneven": (Kind.SLICES,),
    "more outputs than N": (Kind.TREE, Kind.SLICES),
    "operator missing": (Kind.SLICES, Kind.GATHERS),
    "sequence": (Kind.PARTS, Kind.SLICES),
    "num_outputs": (Kind.NODE,),
    "negative axis": (Repair.AXIS,),
    "axis left out": (Repair.AXIS,),
    "absent input named ''": (Repair.EXPLICIT_OUTPUTS,),
    "output left out": (Repair.EXPLICIT_OUTPUTS,),
}
"""The default rewrites for a limit, keyed by condition.

The first condition of the limit that is listed here and not negated decides.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One limit of one runtime.

    Attributes:
        code: its code, such as ``"onnxruntime.split-1"``; it begins with the runtime.
        operators: the affected operators, such as ``"Split"``, ``"Split-1"`` or ``"openvino.Split"``; empty
            if all are affected.
        when: conditions on a split; the limit applies if all are true. Empty if there is a quirk.
        quirk: the nodes around a split that the optimiser gets wrong; None if there are conditions.
        outcome: behaviour of the runtime.
        message: the limit in one sentence.
        message_with_sizes: the message with the fields ``{count}`` (number of parts), ``{size}`` and
            ``{axis}`` of a split, and ``{part}``, the size of its first part.
        fix: instructions for a fix by hand.
        rewrites: the rewrites that the runtime executes correctly, tried in this order. A limit without
            rewrites and without a quirk cannot be fixed; see :mod:`splitops.models.fix`.
        evidence: the splitops-compare case that is the evidence; None if the limit was not tested, or if the
            tests of its quirk are the evidence.
        source: reference to documentation or source code.
        since: the first affected release; None if it is the oldest tested one.
        until: the last affected release; None if it is the newest tested one.
        tested_releases: the tested releases of the runtime, the oldest first.
    """

    code: str
    operators: tuple[str, ...] = ()
    when: tuple[Condition, ...] = ()
    quirk: Quirk | None = None
    outcome: Outcome = Outcome.ERROR
    message: str
    message_with_sizes: str | None = None
    fix: str | None = None
    rewrites: tuple[Fix, ...] = ()
    evidence: str | None = None
    source: str = ""
    since: str | None = None
    until: str | None = None
    tested_releases: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Limit({self.code}: {self.message})"

    @property
    def runtime(self) -> str:
        """The name of the runtime, such as ``"onnxruntime"``."""
        return self.code.partition(".")[0]

    @property
    def is_fixable(self) -> bool:
        """Whether a fix is known: a rewrite of the split, or of the nodes of the quirk."""
        return bool(self.rewrites) or self.quirk is not None

    @property
    def max_outputs(self) -> int | None:
        """Maximum number of outputs of a Split; None if the limit does not depend on it."""
        counts = (one for one in self.when if one.predicate.text == "more outputs than N" and not one.negated)
        return next((one.number for one in counts), None)

    def holds_in(self, release: str) -> bool:
        """Return whether a release of the runtime is affected, judged by the tested releases.

        Examples:
            >>> from splitops.models.check import LIMITS
            >>> fixed = next(limit for limit in LIMITS if limit.code == "onnxruntime.empty-name")
            >>> fixed.holds_in("1.31.1"), fixed.holds_in("1.32.0"), fixed.holds_in("1.31")
            (True, False, True)
        """
        asked = parse_release(release)
        if self.since is not None and asked < parse_release(self.since)[: len(asked)]:
            return False
        return self.until is None or asked <= parse_release(self.until)[: len(asked)]

    @property
    def seen(self) -> str:
        """The affected releases as text, such as ``"1.25.0 to 1.31.0"``; empty if no release was tested."""
        if not self.tested_releases:
            return ""
        first, last = self.since or self.tested_releases[0], self.until or self.tested_releases[-1]
        return first if first == last else f"{first} to {last}"

    def concerns(self, schema: OperatorSchema) -> bool:
        """Return whether the limit affects the operator version ``schema``. Its conditions are ignored."""
        name = f"{schema.domain}.{schema.name}" if schema.domain else schema.name
        return (
            not self.operators or name in self.operators or f"{name}-{schema.since_version}" in self.operators
        )

    def evaluate(self, split: SplitPredicates) -> Certainty:
        """Return how certain it is that a split of an affected operator meets all conditions.

        For a limit without conditions, which has a quirk, return NO.
        """
        certainty = Certainty.YES if self.when else Certainty.NO
        for one in self.when:
            certainty = min(certainty, one.evaluate(split))
            if certainty is Certainty.NO:
                break
        return certainty

    def format_message(
        self, split_node: SplitNode | None = None, certainty: Certainty = Certainty.YES
    ) -> str:
        """Return the message with the sizes of ``split_node``, the affected releases and any caveats."""
        text = self.message
        if self.message_with_sizes is not None and split_node is not None:
            numbers = SplitPredicates(split_node, ModelContext()).ceil_numbers
            text = (
                text
                if numbers is None
                else SIZE_FIELD.sub(lambda at: str(numbers[at[1]]), self.message_with_sizes)
            )
        text = text if self.since is None else f"{text} (from {self.since} on)"
        text = text if self.until is None else f"{text} (up to {self.until})"
        is_tested = self.evidence or self.quirk  # the tests of a quirk are its evidence
        text = text if is_tested or not self.source else f"{text} (documented, not tested)"
        return text if certainty is Certainty.YES else f"{text}{DEPENDS}"


def parse_release(release: str) -> tuple[int, ...]:
    """Return the sort key of a release: its first three numbers."""
    return tuple(int(part[:18]) for part in re.findall(r"\d+", release)[:3])
