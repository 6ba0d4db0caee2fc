"""The codes that a check reports, and where each is explained."""

from __future__ import annotations

from typing import Final

from splitops.errors import Rule
from splitops.models.check.profiles import LIMITS

MODEL_CODES: Final = (
    "model.invalid",
    "stated.shape",
    "stated.type",
    "onnxruntime.empty-tensor",
    "openvino.empty-tensor",
)
"""Codes of what is wrong with a model or one of its runs, not with one of its splits."""
CODES: Final = (*map(str, Rule), *MODEL_CODES, *(limit.code for limit in LIMITS))
"""Every code."""
_LIMITS: Final = frozenset(limit.code for limit in LIMITS)


def matches(code: str, pattern: str) -> bool:
    """Return whether a code is the pattern, or in the group that the pattern names.

    Examples:
        >>> matches("lengths.sum", "lengths"), matches("lengths.sum", "lengths.s")
        (True, False)
    """
    return code == pattern or code.startswith(f"{pattern}.")


def page_of(code: str) -> str:
    """Return the place in the documentation that explains a code, relative to the site.

    Examples:
        >>> page_of("lengths.sum"), page_of("openvino.string")
        ('errors.html#lengths-sum', 'runtime-errors.html#openvino-string')
    """
    page = "runtime-errors" if code in _LIMITS else "errors"
    return f"{page}.html#{code.replace('.', '-')}"
