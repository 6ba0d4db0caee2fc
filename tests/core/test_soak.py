"""A soak sees what grows, and does not take noise or a step for growth."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from dev.soak.level import LIMITS, trend  # noqa: E402

LIMIT = LIMITS["resident bytes"]


def noise(count: int, size: float) -> list[float]:
    rng = Random(7)
    return [1000 + rng.uniform(-size, size) for _ in range(count)]


def test_what_stays_level_is_level() -> None:
    warming_up = [500 + 25 * number for number in range(20)]
    assert abs(trend(warming_up + noise(40, 20)).growth) < LIMIT
    assert trend([7] * 60).growth == 0
    step = noise(50, 1) + [value + 100 for value in noise(10, 1)]
    assert trend(step).growth < LIMIT


@pytest.mark.parametrize("size", [0, 20])
def test_what_grows_is_seen_under_noise(size: float) -> None:
    growing = [value + number for number, value in enumerate(noise(60, size))]
    assert trend(growing).growth > LIMIT
    assert trend(growing).slope == pytest.approx(1, rel=0.2)


def test_one_more_file_a_round_is_growth() -> None:
    assert trend(list(range(10, 40))).growth > LIMITS["files"]


def test_few_samples_are_no_proof() -> None:
    with pytest.raises(ValueError, match="too few"):
        trend([1] * 8)


@pytest.mark.parametrize(("actions", "status"), [(("errors",), 0), (("errors", "leak"), 1)])
def test_a_leak_fails_a_soak(actions: tuple[str, ...], status: int) -> None:
    command = [sys.executable, "-m", "dev.soak", "0", *actions, "--rounds", "12", "--calls", "50"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == status, done.stdout + done.stderr
    assert ("allocated bytes grow by" in done.stdout) == (status == 1)
