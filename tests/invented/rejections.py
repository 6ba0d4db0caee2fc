"""What the steps assert of an error."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from splitops import RuleError


def rejects(rule: str, call: Callable[[], object]) -> None:
    """Assert that a call breaks a rule."""
    with pytest.raises(RuleError) as caught:
        call()
    assert str(caught.value.rule) == rule
