"""Parse and apply the user's choice of how constant lengths follow the size of a dynamic axis."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from splitops.errors import ModelError, brief, shown
from splitops.models.check.baked import find_chunk, is_even
from splitops.spec.sizes.arithmetic import Division
from splitops.spec.sizes.rules import SizeRule

_REST: Final = re.compile(r"rest=(-?[0-9]{1,9})")


class OpenRule(StrEnum):
    """Rules by which the lengths follow the size of the axis."""

    EVEN = "even"
    """All parts have the same size."""
    REST = "rest"
    """One part is the rest of the axis."""
    CHUNK = "chunk"
    """All parts have the size of the first one, up to the end of the axis."""


@dataclass(frozen=True, slots=True)
class Opening:
    """The value of ``--open``.

    Attributes:
        rule: rule by which lengths follow the size of the axis.
        index: position of the part that is the rest (REST); negative positions count from the end.
    """

    rule: OpenRule
    index: int = 0

    def make_division(self, lengths: tuple[int, ...]) -> Division:
        """Return a division that accepts other sizes, too, and results in ``lengths`` for the size at export.

        With CHUNK, ``count`` is the number of parts. Those that do not begin before the end of the axis are
        empty.

        Raises:
            ModelError: the lengths do not follow the rule.
        """
        count = len(lengths)
        match self.rule:
            case OpenRule.EVEN:
                if not is_even(lengths):
                    raise ModelError(
                        f"the lengths {brief(lengths)} are not equal: --open even requires equal lengths"
                    )
                return Division(SizeRule.EVEN, count=count)
            case OpenRule.REST:
                if not -count <= self.index < count:
                    problem = f"a split into {count} parts has no part {self.index}"
                    hint = f": use --open rest=INDEX with 0 to {count - 1}" if count else ""
                    raise ModelError(f"{problem}{hint}")
                at = self.index % count
                return Division(SizeRule.REMAINDER, lengths=(*lengths[:at], -1, *lengths[at + 1 :]))
            case OpenRule.CHUNK:
                chunk = find_chunk(lengths)
                if chunk is None:
                    problem = f"the lengths {brief(lengths)} are not chunks of one size"
                    raise ModelError(f"{problem}, except for a smaller last one")
                return Division(SizeRule.CHUNK, chunk=chunk, count=count)


def parse_opening(text: str | None) -> Opening | None:
    """Parse the value of ``--open``, or return None if it is not set.

    Raises:
        ModelError: the value is invalid.

    Examples:
        >>> parse_opening("rest=-1")
        Opening(rule=<OpenRule.REST: 'rest'>, index=-1)
    """
    if text is None:
        return None
    if text in (OpenRule.EVEN, OpenRule.CHUNK):
        return Opening(OpenRule(text))
    found = _REST.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise ModelError(f"open = {shown(text)}: use 'even', 'chunk' or 'rest=INDEX', such as 'rest=0'")
    return Opening(OpenRule.REST, int(found[1]))
