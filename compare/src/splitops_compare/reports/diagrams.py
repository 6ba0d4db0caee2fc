"""The diagrams of the splits in a report, each stored once."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final
from urllib.parse import quote

from splitops.errors import SplitError
from splitops.explain import explain, to_svg
from splitops.spec import ELEMENT_TYPES
from splitops.splitting import SplitPlan, plan_request
from splitops_compare.cases import make_request
from splitops_compare.data import CaseSpec

_SAFE: Final = " =:/,;()'.-_!*@&$+"
"""Characters that a data URL in double quotes may contain."""
_NARROW: Final = 360
"""Width of a diagram on a phone."""


def find_plan(spec: CaseSpec) -> SplitPlan | None:
    """Return the plan of the split of a spec, or None if the spec is special, malformed or invalid."""
    if spec.special is not None:
        return None
    try:
        return plan_request(replace(make_request(spec), outputs=None))
    except (SplitError, ArithmeticError, LookupError, TypeError, ValueError):  # a report may have any spec
        return None


@dataclass(slots=True)
class DiagramCache:
    """The diagrams of a page. Equal splits share one.

    Attributes:
        names: CSS class of each pair of a wide and a narrow diagram, which are SVG.
    """

    names: dict[tuple[str, str], str] = field(default_factory=dict)

    def find_diagram(self, spec: CaseSpec) -> tuple[str, str] | None:
        """Return the CSS class and the description of the diagram of a spec, or None if it has no plan."""
        plan = find_plan(spec)
        if plan is None:
            return None
        layout = explain(plan, ELEMENT_TYPES.get(spec.dtype))
        name = self.names.setdefault((to_svg(layout), to_svg(layout, width=_NARROW)), f"p{len(self.names)}")
        sizes = ", ".join(map(str, plan.sizes[:16])) + (", ..." if len(plan.sizes) > 16 else "")
        return (
            name,
            f"Data {list(plan.shape)} split along axis {plan.axis} into parts of {sizes or 'nothing'}",
        )

    def make_style(self) -> str:
        """Make the CSS rules of the wide diagrams, and those of the narrow ones for a phone."""
        wide = "\n".join(_format_rule(name, diagram) for (diagram, _), name in self.names.items())
        narrow = "\n".join(_format_rule(name, diagram) for (_, diagram), name in self.names.items())
        return f"{wide}\n@media (max-width: 640px) {{\n{narrow}\n}}"


def _format_rule(name: str, diagram: str) -> str:
    size = diagram.partition('viewBox="0 0 ')[2].partition('"')[0].replace(" ", " / ")
    address = quote("".join(line.strip() for line in diagram.splitlines()), safe=_SAFE, errors="replace")
    return f'.{name} {{ aspect-ratio: {size}; background-image: url("data:image/svg+xml,{address}") }}'
