"""The size rules: how operators divide an axis into parts."""

from __future__ import annotations

from enum import Enum


class SizeRule(Enum):
    """A rule that sets the sizes of the parts of an axis of size D."""

    EXPLICIT = "explicit"
    """The node sets all sizes. Their sum is D."""
    EVEN = "even"
    """n parts of D / n. n must divide D."""
    CEIL = "ceil"
    """n parts of ceil(D / n). The last ones may be smaller or empty."""
    CHUNK = "chunk"
    """Parts of one size, which the node sets. The last one may be smaller."""
    REMAINDER = "remainder"
    """The node sets all sizes except one, which is -1 and stands for the rest of D."""
