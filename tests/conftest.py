"""What all tests share: Hypothesis profiles, and a report line that says which core moves the bytes."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, settings

from splitops import native
from splitops.binding import rows
from splitops.sizes import names

# A shared or busy machine must not fail a property for being slow.
settings.register_profile("random", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# A change is judged by the same examples each time; "random" and fuzzing look for others.
settings.register_profile("default", settings.get_profile("random"), derandomize=True)
settings.register_profile("brief", settings.get_profile("default"), max_examples=25)
# Nobody wants the smallest counterexample of a mutant.
settings.register_profile(
    "mutants",
    settings.get_profile("brief"),
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
