"""One limit of a runtime: what it does with splits that are valid, or that it does not reject."""

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
    """What a runtime does."""

    ERROR = "error"
    """It rejects the model or fails when it runs."""
    WRONG = "wrong result"
    """It runs, and gives something else than the operator's definition says."""
    CRASH = "crash"
    """The process ends, or memory outside the data is read."""


class Repair(StrEnum):
    """The repairs of one node, the smallest change first."""

    AXIS = "axis"
    """The axis is set, if it is the default one."""
    EXPLICIT_OUTPUTS = "explicit outputs"
    """All outputs are declared and named, no absent input is named '', no keepdims beside 'split'."""
    VERSION = "version"
    """The node has the attributes of the version of its opset, not of another one."""
    NUM_OUTPUTS = "num_outputs"
    """The number of parts is that of the declared outputs."""
    UNBIND = "unbind"
    """The node says the one of two meanings that the user chooses."""
    OPEN = "open"
    """The lengths follow the size of an open axis as the user means it."""


class Cure(StrEnum):
    """What is written instead of the parts, or of the nodes that read them."""

    CONSTANTS = "constants"
    """A constant for each part of a constant."""
    EMPTY_TENSOR = "empty tensor"
    """A new empty tensor for each Transpose of an empty part."""


Fix: TypeAlias = Repair | Kind | Cure
FIXES: Final[Mapping[str, Fix]] = {str(fix): fix for fix in (*Repair, *Kind, *Cure)}
"""All fixes by the word of a target's file, the smallest change first."""
EXACT_FIELD: Final = re.compile(r"\{(count|size|axis|part)\}")
"""A field of :attr:`Limit.exact`, which is not a format string: one from outside could do far more."""
DEPENDS: Final = " (depends on the input)"
"""What is said of a limit that is not surely met."""
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
"""The rewrites of a limit that names none, by its first word that has some."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One limit of one runtime.

    Attributes:
        code: its name, which begins with the runtime's.
        operators: the operators that have it, such as ``"Split"``, ``"Split-1"`` or ``"openvino.Split"``;
            none stands for all.
        when: the conditions, all of which must be true of a split; none if there is a quirk.
        quirk: what its optimiser gets wrong around a split; None if there are conditions.
        outcome: what happens.
        message: the same in one sentence.
        message_with_sizes: the same with the numbers of a split, which are fields of the text: ``{count}``
            parts, the ``{size}`` of the ``{axis}``, and ``{part}``, the size of the first part.
        fix: what to do about it.
        rewrites: the rewrites that the runtime executes correctly, tried in this order; a split that has none
            is unfixable, see :mod:`splitops.models.fix`. A quirk has a cure instead.
        evidence: the case of splitops-compare that proves it; None where the runtime was not tested.
        source: where it is documented or visible.
        since: the first release that does so; None where the oldest one that was looked at does.
        until: the last release that does so; None where the newest one that was looked at does.
        tested_releases: the releases of the runtime that were asked the case, the oldest first.
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
        """Whether there is a fix: a form, or the cure of its quirk."""
        return bool(self.rewrites) or self.quirk is not None

    @property
    def max_outputs(self) -> int | None:
        """The most outputs that a Split may have, where that is the limit."""
        counts = (one for one in self.when if one.predicate.text == "more outputs than N" and not one.negated)
        return next((one.number for one in counts), None)

    def holds_in(self, release: str) -> bool:
        """Return whether a release of the runtime does so, as far as is known.

        Examples:
            >>> from splitops.models.check import LIMITS
            >>> fixed = next(limit for limit in LIMITS if limit.code == "onnxruntime.empty-name")
            >>> fixed.holds_in("1.31.1"), fixed.holds_in("1.32.0"), fixed.holds_in("1.31")
            (True, False, True)
        """
        asked = release_numbers(release)
        if self.since is not None and asked < release_numbers(self.since)[: len(asked)]:
            return False
        return self.until is None or asked <= release_numbers(self.until)[: len(asked)]

    @property
    def seen(self) -> str:
        """The releases in which it was seen, in words; empty where none could be looked at."""
        if not self.tested_releases:
            return ""
        first, last = self.since or self.tested_releases[0], self.until or self.tested_releases[-1]
        return first if first == last else f"{first} to {last}"

    def concerns(self, schema: OperatorSchema) -> bool:
        """Return whether an operator has it."""
        name = f"{schema.domain}.{schema.name}" if schema.domain else schema.name
        return (
            not self.operators or name in self.operators or f"{name}-{schema.since_version}" in self.operators
        )

    def met(self, split: SplitPredicates) -> Certainty:
        """Return whether a split of an operator that it concerns meets it."""
        certainty = Certainty.YES if self.when else Certainty.NO
        for one in self.when:
            certainty = min(certainty, one.met(split))
            if certainty is Certainty.NO:
                break
        return certainty

    def format_message(
        self, split_node: SplitNode | None = None, certainty: Certainty = Certainty.YES
    ) -> str:
        """Return the message, with the numbers of a split, its releases, and how well it is known."""
        text = self.message
        if self.message_with_sizes is not None and split_node is not None:
            numbers = SplitPredicates(split_node, ModelContext()).ceil_numbers
            text = (
                text
                if numbers is None
                else EXACT_FIELD.sub(lambda at: str(numbers[at[1]]), self.message_with_sizes)
            )
        text = text if self.since is None else f"{text} (from {self.since} on)"
        text = text if self.until is None else f"{text} (up to {self.until})"
        is_tested = self.evidence or self.quirk  # tests of their own show quirks
        text = text if is_tested or not self.source else f"{text} (documented, not tested)"
        return text if certainty is Certainty.YES else f"{text}{DEPENDS}"


def release_numbers(release: str) -> tuple[int, ...]:
    """Return what releases are ordered by: the first three numbers of one."""
    return tuple(int(part[:18]) for part in re.findall(r"\d+", release)[:3])
