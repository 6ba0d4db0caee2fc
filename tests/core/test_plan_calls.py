"""A plan that is called with one array takes a short cut past `Plan.__call__`: both give the same."""

from __future__ import annotations

import copy
import gc
import inspect
import pickle
import sys
from typing import Any

import numpy as np
import pytest
from entering import SHORT_CUT, entered

import splitops
from splitops import native
from splitops.splitting import Plan

PLANS = {
    "tuple": splitops.plan("Split", shape=(4, 6), axis=1, split=[1, 5]),
    "list": splitops.plan("SplitToSequence", shape=(4, 6), split=3),
    "squeezed": splitops.plan("SplitToSequence", shape=(4, 6), keepdims=0),
}
DATA = np.arange(24.0).reshape(4, 6)
plans = pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)


def assert_views(parts: Any, expected: Any) -> None:
    assert type(parts) is type(expected)
    assert len(parts) == len(expected)
    for part, other in zip(parts, expected, strict=True):
        assert type(part) is type(other)
        assert part.strides == other.strides
        assert np.shares_memory(part, other)
        np.testing.assert_array_equal(part, other)


@plans
def test_both_ways_give_the_same(plan: Plan) -> None:
    for data in (
        DATA,
        DATA.astype("i2"),
        np.asfortranarray(DATA),
        np.arange(48.0).reshape(8, 6)[::-2],
        np.broadcast_to(DATA[:1], (4, 6)),
        DATA.astype(object),
    ):
        for _ in range(2):
            assert_views(plan(data), Plan.__call__(plan, data))
            for part, expected in zip(plan(data, copy=True), plan(data), strict=True):
                np.testing.assert_array_equal(part, expected)
                assert not np.shares_memory(part, data)


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
@plans
def test_what_the_short_cut_does_not_take_goes_the_general_way(plan: Plan) -> None:
    plan(DATA)
    for data in (DATA.view(np.recarray), np.ma.array(DATA, mask=DATA > 7), np.matrix(DATA)):
        assert_views(plan(data), Plan.__call__(plan, data))
    for parts in (plan(DATA.tolist()), plan(data=DATA)):
        for part, expected in zip(parts, plan(DATA), strict=True):
            np.testing.assert_array_equal(part, expected)


@plans
def test_both_ways_reject_the_same(plan: Plan) -> None:
    for arguments, more in (
        ((DATA.T,), {}),
        ((DATA[:3],), {}),
        ((DATA[None],), {}),
        ((np.float64(1),), {}),
        ((None,), {}),
        ((), {}),
        ((DATA, True), {}),
        ((DATA,), {"axis": 1}),
        ((DATA,), {"copy": False, "out": []}),
    ):
        raised = []
        for call in (plan, lambda *a, plan=plan, **k: Plan.__call__(plan, *a, **k)):
            with pytest.raises((TypeError, splitops.SplitError)) as error:
                call(*arguments, **more)
            raised.append((error.type, str(error.value)))
        assert raised[0] == raised[1]


def test_a_plan_is_what_it_was() -> None:
    """Called or not: equality, hash, text, copies, pickles, and the signature that is shown."""
    fresh, used = (splitops.plan("SplitToSequence", shape=(4, 6), split=3) for _ in range(2))
    used(DATA)
    assert fresh == used
    assert hash(fresh) == hash(used)
    assert repr(fresh) == repr(used)
    for other in (copy.copy(used), copy.deepcopy(used), pickle.loads(pickle.dumps(used))):
        assert type(other) is Plan
        assert other == used
        assert_views(other(DATA), used(DATA))
    assert list(inspect.signature(used).parameters) == ["data", "copy", "out"]
    assert inspect.isfunction(Plan.__dict__["__call__"])
    with pytest.raises(AttributeError):
        used.axis = 1  # type: ignore[misc]


def test_a_plan_is_final() -> None:
    if not native.available:
        pytest.skip("the fallback is a class of Python")
    with pytest.raises(TypeError, match="not an acceptable base type"):
        type("More", (Plan,), {})


def call_it(plan: Plan) -> Any:
    return plan(DATA)


@pytest.mark.skipif(not SHORT_CUT, reason="there is no short cut")
@plans
def test_the_short_cut_enters_no_python(plan: Plan) -> None:
    plan(DATA)
    assert entered(lambda: call_it(plan)) == ["<lambda>", "call_it"]
    assert entered(lambda: plan(DATA, copy=True)) == ["<lambda>"]
    out = [np.empty_like(part) for part in plan(DATA)]
    assert entered(lambda: plan(DATA, out=out)) == ["<lambda>"]
    assert "call_plan" in entered(lambda: plan(DATA, copy=1))


def test_references_balance() -> None:
    plan = splitops.plan("SplitToSequence", shape=(4, 6), split=3)
    dtype = np.dtype([("a", ">i4"), ("b", "f8")])
    data = np.zeros((4, 6), dtype)
    plan(data)
    before = sys.getrefcount(data), sys.getrefcount(dtype), sys.getrefcount(plan)
    for _ in range(100):
        plan(data)
        with pytest.raises(splitops.ArrayError):
            plan(data.T)
    gc.collect()
    after = sys.getrefcount(data), sys.getrefcount(dtype), sys.getrefcount(plan)
    assert all(abs(b - a) < 5 for a, b in zip(before, after, strict=True)), (before, after)
