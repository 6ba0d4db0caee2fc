"""The pictures of the splits of a report, each drawn once."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from urllib.parse import quote

from splitops.comparison.cases import request_of
from splitops.comparison.records import Record
from splitops.errors import SplitError
from splitops.explain import explain, to_svg
from splitops.native import SplitPlan
from splitops.spec.elements.types import ELEMENT_TYPES
from splitops.splitting.planning import plan_request

_PLAIN = " =:/,;()'.-_!*@&$+"
"""Characters that stand for themselves in an address of data, inside of double quotes."""

_NARROW = 360
"""The width of a picture on a phone."""


def planned(record: Record) -> SplitPlan | None:
    """Return the plan of a valid case; None where it is not a split alone."""
    if record.special is not None:
        return None
    try:
        return plan_request(replace(request_of(record), outputs=None))
    except (SplitError, ArithmeticError, LookupError, TypeError, ValueError):  # of a stranger's report
        return None


@dataclass(slots=True)
class Pictures:
    """The pictures that a page needs: equal splits share one."""

    drawn: dict[tuple[str, str], str] = field(default_factory=dict)

    def of(self, record: Record) -> tuple[str, str] | None:
        """Return the class of a record's picture, and what it shows in words; None where there is none."""
        found = planned(record)
        if found is None:
            return None
        layout = explain(found, ELEMENT_TYPES.get(record.dtype))
        name = self.drawn.setdefault((to_svg(layout), to_svg(layout, width=_NARROW)), f"p{len(self.drawn)}")
        sizes = ", ".join(map(str, found.sizes[:16])) + (", ..." if len(found.sizes) > 16 else "")
        words = f"Data {list(found.shape)} split along axis {found.axis} into parts of {sizes or 'nothing'}"
        return name, words

    def style(self) -> str:
        """Return the rules that hold the pictures, and those for a phone."""
        wide = "\n".join(_rule(name, picture) for (picture, _), name in self.drawn.items())
        narrow = "\n".join(_rule(name, picture) for (_, picture), name in self.drawn.items())
        return f"{wide}\n@media (max-width: 640px) {{\n{narrow}\n}}"


def _rule(name: str, picture: str) -> str:
    size = picture.partition('viewBox="0 0 ')[2].partition('"')[0].replace(" ", " / ")
    address = quote("".join(line.strip() for line in picture.splitlines()), safe=_PLAIN, errors="replace")
    return f'.{name} {{ aspect-ratio: {size}; background-image: url("data:image/svg+xml,{address}") }}'
