"""What each rule says, in a sentence for those who do not know splitops."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from typing import Final

from splitops.spec.operators import SCHEMAS

RULES: Final[Mapping[str, str]] = tomllib.loads(
    files(__package__).joinpath("rules.toml").read_text(encoding="utf-8")
)
"""By size rule and rule code."""


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
