"""One limit of a runtime: what it does with splits that are valid, or that it does not reject."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from splitops.models.check.conditions import Condition, Surely, Surroundings, Vocabulary
from splitops.models.quirks import Quirk
from splitops.models.sites.site import Site
from splitops.models.sites.ways import Kind
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
    IN_FULL = "in full"
    """All outputs are declared and named, no absent input is named '', no keepdims beside 'split'."""
    VERSION = "version"
    """The node has the attributes of the version of its opset, not of another one."""
    NUMBER = "number"
    """The number of parts is that of the declared outputs."""
    MEANING = "meaning"
    """The node says the one of two meanings that the user chooses."""
    OPEN = "open"
    """The lengths follow the size of an open axis as the user means it."""


class Cure(StrEnum):
    """What is written instead of the parts, or of the nodes that read them."""

    CONSTANTS = "constants"
    """A constant for each part of a constant."""
    EMPTY = "empty"
    """A new empty tensor for each Transpose of an empty part."""


Fix: TypeAlias = Repair | Kind | Cure
FIXES: Final[Mapping[str, Fix]] = {str(fix): fix for fix in (*Repair, *Kind, *Cure)}
"""All fixes by the word of a target's file, the smallest change first."""
EXACT_FIELD: Final = re.compile(r"\{(count|size|axis|part)\}")
"""A field of :attr:`Limit.exact`, which is not a format string: one from outside could do far more."""
DEPENDS: Final = " (depends on the input)"
"""What is said of a limit that is not surely met."""
USUAL_FORMS: Final[Mapping[str, tuple[Fix, ...]]] = {
    "uneven": (Kind.SLICES,),
    "more outputs than N": (Kind.TREE, Kind.SLICES),
    "operator missing": (Kind.SLICES, Kind.GATHERS),
    "sequence": (Kind.PARTS, Kind.SLICES),
    "num_outputs": (Kind.NODE,),
    "negative axis": (Repair.AXIS,),
    "axis left out": (Repair.AXIS,),
    "absent input named ''": (Repair.IN_FULL,),
    "output left out": (Repair.IN_FULL,),
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
            unfixable, see :mod:`splitops.models.fix`. A quirk has a cure instead.
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
    forms: tuple[Fix, ...] = ()
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
    def is_fixable(self) -> bool:
        """Whether there is a fix: a form, or the cure of its quirk."""
        return bool(self.forms) or self.quirk is not None

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
