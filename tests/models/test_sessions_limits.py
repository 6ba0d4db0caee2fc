"""For each limit of each runtime: a session on it gives what is specified, or the rule that is broken."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import splitops
from splitops.models.check import LIMITS, Limit
from splitops.models.engines import is_installed
from splitops.models.engines.engine import EngineError

sys.path.insert(0, str(Path(__file__).parent.parent / "check"))
from proofs import PROOFS

RUN = [limit for limit in LIMITS if limit.runtime in ("onnxruntime", "openvino") and limit.evidence]
LARGE = ("onnxruntime.size-32-bit",)
"""Models whose input has 2^31 elements or more."""


def outcome(model: Any, inputs: dict[str, Any], engine: str) -> Any:
    try:
        return splitops.run(model, inputs, engine=engine)
    except splitops.RuleError as error:
        return error.rule
    except splitops.ModelError as error:
        return error


def same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, np.ndarray):
        return (one.dtype, one.shape) == (other.dtype, other.shape) and bool(np.array_equal(one, other))
    return bool(one == other)


@pytest.mark.parametrize(
    "limit", [limit for limit in RUN if limit.code not in LARGE], ids=lambda limit: limit.code
)
def test_a_session_gives_what_is_decided_where_the_runtime_does_not(limit: Limit) -> None:
    if not is_installed(limit.runtime):
        pytest.skip(f"{limit.runtime} is not installed")
    proof = PROOFS[limit.code]
    model = proof.model()
    expected = outcome(model, proof.inputs, "reference")
    named = outcome(model, proof.inputs, limit.runtime)
    assert isinstance(named, EngineError) or same(named, expected)
    assert same(outcome(model, proof.inputs, "auto"), expected)


def test_the_comparison_can_fail() -> None:
    one = np.arange(3, dtype=np.float32)
    assert same({"a": [one]}, {"a": [one.copy()]})
    for other in (one + 1, one[:2], one.astype(np.float64)):
        assert not same({"a": [one]}, {"a": [other]})
