"""What all tests share: Hypothesis profiles, and a report line that says which core moves the bytes."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, settings

from splitops import native
from splitops.binding import rows
from splitops.sizes import names

# A shared or busy machine must not fail a property for being slow.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("brief", settings.get_profile("default"), max_examples=25)
# The verdict on a mutant is the same every time, and nobody wants its smallest counterexample.
settings.register_profile(
    "mutants",
    settings.get_profile("brief"),
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
)
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "default")
settings.load_profile(PROFILE)


@pytest.fixture(autouse=PROFILE == "mutants")
def forgetful() -> None:
    """Begin with nothing remembered: what the code gave before it was changed would hide the change."""
    rows._ROWS.clear()
    names._read.cache_clear()


def pytest_report_header() -> str:
    return f"splitops native core: {'in use' if native.available else 'not in use'}"
