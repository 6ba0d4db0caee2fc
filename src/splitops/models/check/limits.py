"""One limit of a runtime: what it does with splits that are valid, or that it does not reject."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from splitops.models.check.conditions import Condition, Surely, Surroundings, Vocabulary
from splitops.models.quirks import Quirk
from splitops.models.sites.site import Site
from splitops.spec.operators import OperatorSchema


class Outcome(StrEnum):
    """What a runtime does."""

    ERROR = "error"
    """It rejects the model or fails when it runs."""
    WRONG = "wrong result"
    """It runs, and gives something else than the operator's definition says."""
    CRASH = "crash"
    """The process ends, or memory outside the data is read."""


class FixForm(StrEnum):
    """The forms that a split can be rewritten to for a runtime, the smallest change first."""

    AXIS = "axis"
    """The axis, where it is the default one."""
    IN_FULL = "in full"
    """All outputs declared and named, no absent input that is named '', no keepdims beside 'split'."""
    VERSION = "version"
    """As the version of the opset has it, of a node with the attributes of another version."""
    NUMBER = "number"
    """The number of parts that the declared outputs say."""
    MEANING = "meaning"
    """The one of two readings that the user means."""
    OPEN = "open"
    """Lengths that follow the size of an open axis as the user means it, in the place of constants."""
    LENGTHS = "lengths"
    """The length of each part: constants, or computed by the graph where only a run knows the size."""
    PARTS = "parts"
    """A Split, whose parts are read in the place of a sequence."""
    SEQUENCE = "sequence"
    """A Split, of whose parts SequenceConstruct makes the sequence; SequenceEmpty where there are none."""
    TREE = "tree"
    """A tree of Splits, each with as many outputs as the runtime accepts."""
    SLICES = "slices"
    """A Slice for each part."""
    GATHERS = "gathers"
    """A Gather for each part."""
    CASTS = "casts"
    """A sequence of another element type, that holds every value, cast back where it is read."""
    CONSTANTS = "constants"
    """A constant for each part of a constant."""
    EMPTY = "empty"
    """What a Transpose gives of an empty part is made anew: there is nothing in it."""
    JOIN = "join"
    """The axis of the Concat behind it, counted from the front."""
    BOUNDS = "bounds"
    """A Slice that ends where it starts, in the place of one that ends before."""
    GATHER = "gather"
    """A Gather of the channels that the first convolution reads, in the place of the part."""
    KEPT_AXES = "kept axes"
    """A reduction that keeps its axes with size 1, and a Squeeze that drops them."""


EXACT_FIELD: Final = re.compile(r"\{(count|size|axis|part)\}")
"""A field of :attr:`Limit.exact`, which is not a format string: one from outside could do far more."""
DEPENDS: Final = " (depends on the input)"
"""What is said of a limit that is not surely met."""
USUAL_FORMS: Final = {
    "uneven": (FixForm.SLICES,),
    "more outputs than N": (FixForm.TREE, FixForm.SLICES),
    "operator missing": (FixForm.SLICES, FixForm.GATHERS),
    "sequence": (FixForm.PARTS, FixForm.SLICES),
    "num_outputs": (FixForm.LENGTHS,),
    "negative axis": (FixForm.AXIS,),
    "axis left out": (FixForm.AXIS,),
    "absent input named ''": (FixForm.IN_FULL,),
    "output left out": (FixForm.IN_FULL,),
}
"""The forms of a limit that names none, by its first word that has some."""


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
        exact: the same with the numbers of a split, which are fields of the text: ``{count}`` parts, the
            ``{size}`` of the ``{axis}``, and ``{part}``, the size of the first part.
        fix: what to do about it.
        forms: the forms that the runtime executes correctly, tried in this order; a split that has none is
            unfixable, see :mod:`splitops.models.fix`.
        case: the case of splitops-compare that proves it; None where the runtime was not tested.
        source: where it is documented or visible.
        since: the first release that does so; None where the oldest one that was looked at does.
        until: the last release that does so; None where the newest one that was looked at does.
        looked_at: the releases of the runtime that were asked the case, the oldest first.
    """

    code: str
    operators: tuple[str, ...] = ()
    when: tuple[Condition, ...] = ()
    quirk: Quirk | None = None
    outcome: Outcome = Outcome.ERROR
    message: str
    exact: str | None = None
    fix: str | None = None
    forms: tuple[FixForm, ...] = ()
    case: str | None = None
    source: str = ""
    since: str | None = None
    until: str | None = None
    looked_at: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Limit({self.code}: {self.message})"

    @property
    def runtime(self) -> str:
        """The name of the runtime, such as ``"onnxruntime"``."""
        return self.code.partition(".")[0]

    @property
    def most_outputs(self) -> int | None:
        """The most outputs that a Split may have, where that is the limit."""
        counts = (one for one in self.when if one.word.text == "more outputs than N" and not one.negated)
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
        if not self.looked_at:
            return ""
        first, last = self.since or self.looked_at[0], self.until or self.looked_at[-1]
        return first if first == last else f"{first} to {last}"

    def concerns(self, row: OperatorSchema) -> bool:
        """Return whether an operator has it."""
        name = f"{row.domain}.{row.name}" if row.domain else row.name
        return not self.operators or name in self.operators or f"{name}-{row.since_version}" in self.operators

    def met(self, split: Vocabulary) -> Surely:
        """Return whether a split of an operator that it concerns meets it."""
        surely = Surely.YES if self.when else Surely.NO
        for one in self.when:
            surely = min(surely, one.met(split))
            if surely is Surely.NO:
                break
        return surely

    def words(self, site: Site | None = None, surely: Surely = Surely.YES) -> str:
        """Return the message, with the numbers of a split, its releases, and how well it is known."""
        text = self.message
        if self.exact is not None and site is not None:
            numbers = Vocabulary(site, Surroundings()).ceil_numbers
            text = text if numbers is None else EXACT_FIELD.sub(lambda at: str(numbers[at[1]]), self.exact)
        text = text if self.since is None else f"{text} (from {self.since} on)"
        text = text if self.until is None else f"{text} (up to {self.until})"
        is_tested = self.case or self.quirk  # tests of their own show quirks
        text = text if is_tested or not self.source else f"{text} (documented, not tested)"
        return text if surely is Surely.YES else f"{text}{DEPENDS}"


def release_numbers(release: str) -> tuple[int, ...]:
    """Return what releases are ordered by: the first three numbers of one."""
    return tuple(int(part[:18]) for part in re.findall(r"\d+", release)[:3])
