"""What lengths on an axis of open size mean: how they follow the size, as the user chooses."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from splitops.errors import ModelError, brief, shown
from splitops.models.check.baked import chunk_of, is_even
from splitops.models.fix.driver import NotApplicableError
from splitops.spec.sizes.arithmetic import Division
from splitops.spec.sizes.rules import SizeRule

_REST: Final = re.compile(r"rest=(-?[0-9]{1,9})")


class OpenRule(StrEnum):
    """How lengths follow the size of the axis."""

    EVEN = "even"
    """All parts have the same size."""
    REST = "rest"
    """One part takes what the others leave."""
    CHUNK = "chunk"
    """All parts have the size of the first one, as long as the axis lasts."""


@dataclass(frozen=True, slots=True)
class Opening:
    """What a user chooses with ``--open``.

    Attributes:
        rule: how lengths follow the size of the axis.
        index: the part that takes what the others leave (REST), a negative one counted from the end.
    """

    rule: OpenRule
    index: int = 0

    def division(self, lengths: tuple[int, ...]) -> Division:
        """Return how an axis of any size is divided so that the baked size has the baked lengths.

        With CHUNK, ``count`` is the number of parts: those that begin behind the end of the axis are empty.

        Raises:
            NotApplicableError: the lengths do not follow the rule.
        """
        count = len(lengths)
        match self.rule:
            case OpenRule.EVEN:
                if not is_even(lengths):
                    raise NotApplicableError(
                        f"the lengths {brief(lengths)} are not equal: --open even needs equal ones"
                    )
                return Division(SizeRule.EVEN, count=count)
            case OpenRule.REST:
                if not -count <= self.index < count:
                    told = f"a split into {count} parts has no part {self.index}"
                    raise NotApplicableError(
                        f"{told}: --open rest=INDEX takes 0 to {count - 1}" if count else told
                    )
                at = self.index % count
                return Division(SizeRule.REMAINDER, lengths=(*lengths[:at], -1, *lengths[at + 1 :]))
            case OpenRule.CHUNK:
                chunk = chunk_of(lengths)
                if chunk is None:
                    told = f"the lengths {brief(lengths)} are not chunks of one size"
                    raise NotApplicableError(f"{told}, of which the last one may be smaller")
                return Division(SizeRule.CHUNK, chunk=chunk, count=count)


def opening_of(text: str | None) -> Opening | None:
    """Read what a user chooses.

    Raises:
        ModelError: it is none of the ways.

    Examples:
        >>> opening_of("rest=-1")
        Opening(rule=<OpenRule.REST: 'rest'>, index=-1)
    """
    if text is None:
        return None
    if text in (OpenRule.EVEN, OpenRule.CHUNK):
        return Opening(OpenRule(text))
    found = _REST.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise ModelError(f"open is {shown(text)}, not 'even', 'chunk' or 'rest=INDEX', such as 'rest=0'")
    return Opening(OpenRule.REST, int(found[1]))
