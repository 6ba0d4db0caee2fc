"""The codes that a check reports, and where each is explained."""

from __future__ import annotations

from functools import cache
from typing import Final

from splitops.errors import Rule
from splitops.models.check.targets import every_limit, names

MODEL_CODES: Final = (
    "model.invalid",
    "function.opset",
    "lengths.baked",
    "declared.shape",
    "declared.type",
    "onnxruntime.empty-tensor",
    "openvino.empty-tensor",
)
"""Codes of what is wrong with a model or one of its runs, not with one of its splits."""


@cache
def every_code() -> tuple[str, ...]:
    """Return every code that is explained: not those of targets that users write."""
    return (*map(str, Rule), *MODEL_CODES, *(limit.code for limit in every_limit()))


def is_explained(code: str) -> bool:
    """Return whether a code is one of :func:`every_code`."""
    return code in MODEL_CODES or code in tuple(Rule) or code.partition(".")[0] in names()


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
    of_limit = code not in MODEL_CODES and code.partition(".")[0] in names()
    page = "runtime-errors" if of_limit else "errors"
    return f"{page}.html#{code.replace('.', '-')}"
