"""The size rules, as a closed set."""

from __future__ import annotations

from enum import Enum


class SizeRule(Enum):
    """How the sizes of the parts follow from the size D of the split axis. A closed set."""

    EXPLICIT = "explicit"
    """Sizes are given; their sum is D."""
    EVEN = "even"
    """n parts of D / n; n divides D."""
    CEIL = "ceil"
    """n parts of ceil(D / n), the last ones smaller or empty."""
    CHUNK = "chunk"
    """As many parts of a given size as it takes, the last one smaller."""
    REMAINDER = "remainder"
    """Sizes are given but one, which takes what is left of D."""
