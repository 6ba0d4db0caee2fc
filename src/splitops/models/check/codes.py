"""The codes of findings, and the documentation page that explains each of them."""

from __future__ import annotations

from functools import cache
from typing import Final

from splitops.errors import Rule
from splitops.models.check.targets import list_limits, list_target_names

MODEL_CODES: Final = (
    "model.invalid",
    "function.opset",
    "lengths.baked",
    "declared.shape",
    "declared.type",
    "onnxruntime.empty-tensor",
    "openvino.empty-tensor",
)
"""Codes of faults that are neither a rule of the operators nor a limit in the file of a target."""


@cache
def list_codes() -> tuple[str, ...]:
    """Return all codes that have an explanation. The codes of users' own targets have none."""
    return (*map(str, Rule), *MODEL_CODES, *(limit.code for limit in list_limits()))


def is_explained(code: str) -> bool:
    """Return whether the code of a finding has an explanation. The codes of users' own targets have none."""
    return code in MODEL_CODES or code in tuple(Rule) or code.partition(".")[0] in list_target_names()


def is_in_group(code: str, pattern: str) -> bool:
    """Return whether a code equals ``pattern``, or is in the group with this name.

    Examples:
        >>> is_in_group("lengths.sum", "lengths"), is_in_group("lengths.sum", "lengths.s")
        (True, False)
    """
    return code == pattern or code.startswith(f"{pattern}.")


def get_page(code: str) -> str:
    """Return the URL of the explanation of a code, relative to the documentation site.

    Examples:
        >>> get_page("lengths.sum"), get_page("openvino.string")
        ('errors.html#lengths-sum', 'runtime-errors.html#openvino-string')
    """
    of_limit = code not in MODEL_CODES and code.partition(".")[0] in list_target_names()
    page = "runtime-errors" if of_limit else "errors"
    return f"{page}.html#{code.replace('.', '-')}"
