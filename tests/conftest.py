"""What all tests share: Hypothesis profiles, and a report line that says which core moves the bytes."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

from splitops import native

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
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_report_header() -> str:
    return f"splitops native core: {'in use' if native.available else 'not in use'}"
