"""What each rule says, in a sentence for those who do not know splitops."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from splitops.spec.operators import SCHEMAS

RULES: Final[Mapping[str, str]] = {
    "explicit": "Lengths that are given are at least 0 and sum to the size of the axis; parts may be empty.",
    "even": "Without lengths the parts are equal: their number divides the size of the axis.",
    "ceil": "With num_outputs = n an axis of size D has parts of ceil(D / n) as long as it lasts, then what "
    "is left, then parts of size 0: 5 into 4 gives 2, 2, 1, 0.",
    "chunk": "A scalar length s gives ceil(D / s) parts of s, of which the last one may be smaller.",
    "remainder": "The one length that is -1 takes what the others leave, which may be 0 but not less.",
    "axis.range": "The axis lies between -r and r - 1 for data of rank r, and data of rank 0 have none.",
    "axis.rank": "The axis is a scalar; VariadicSplit takes a tensor of shape [1] as well.",
    "axis.dtype": "The axis is of an integer type.",
    "lengths.sum": "The lengths sum to the size of the axis.",
    "lengths.negative": "No length is negative, but for the one -1 of VariadicSplit.",
    "lengths.rank": "The lengths are a 1-D tensor; SplitToSequence takes a scalar as well.",
    "lengths.dtype": "The lengths are of an integer type that the operator's version names.",
    "lengths.count": "There are as many lengths as outputs.",
    "lengths.value": "Lengths of a floating-point type are finite whole numbers.",
    "lengths.conflict": "Lengths and the number of parts, or lengths in two places, exclude each other.",
    "lengths.missing": "Either the lengths or the number of parts must be given.",
    "parts.divisible": "The number of parts divides the size of the axis.",
    "parts.count": "The number of parts is at least 1.",
    "chunk.positive": "A scalar length is at least 1.",
    "remainder.negative": "The other lengths leave at least 0 for the one that is -1.",
    "remainder.repeated": "At most one length is -1.",
    "keepdims.value": "keepdims is 0 or 1.",
    "type.unsupported": "The element type is one that the operator's version names.",
    "outputs.count": "There are as many outputs as parts; with num_outputs there may be fewer, never more.",
    "op.unknown": "The operator exists.",
    "op.version": "The attributes and inputs are those of the operator's version.",
}
"""The size rules and the rule codes. ``docs/semantics.md`` has them with their reasons."""


def rule_text(rule: str) -> str:
    """Return what a rule says; nothing where a report names one that is not known here."""
    return RULES.get(rule, "")


def source_of(operator: str) -> str:
    """Return where an operator's version is specified; nothing where it is not known here.

    Examples:
        >>> source_of("Split-18")
        'https://github.com/onnx/onnx/blob/main/docs/Changelog.md#Split-18'
    """
    return _SOURCES.get(operator, "")


_SOURCES: Final = {f"{row.domain}:{row}" if row.domain else str(row): row.source for row in SCHEMAS}
