"""What all tests share: one Hypothesis profile, and a report line that says which core moves the bytes."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

from splitops import native

# A shared or busy machine must not fail a property for being slow.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("brief", settings.get_profile("default"), max_examples=25)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_report_header() -> str:
    return f"splitops native core: {'in use' if native.available else 'not in use'}"
