"""The cases of a comparison: made from the rows, each from one record."""

from __future__ import annotations

from splitops.comparison.cases.building import SPECIALS
from splitops.comparison.cases.listing import (
    Listed,
    baseline_of,
    build,
    cases,
    find,
    generated,
    listed,
    named,
)

__all__ = ["SPECIALS", "Listed", "baseline_of", "build", "cases", "find", "generated", "listed", "named"]
