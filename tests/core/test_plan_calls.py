"""A plan that is called with one array takes a short cut past `Plan.__call__`: both give the same."""

from __future__ import annotations

import copy
import gc
import inspect
import pickle
import sys
from typing import Any, Generic, TypeVar

import numpy as np
import pytest
from entering import SHORT_CUT, entered

import splitops
from splitops import native
from splitops.execute import Plan

PLANS = {
    "tuple": splitops.plan("Split", shape=(4, 6), axis=1, split=[1, 5]),
    "list": splitops.plan("SplitToSequence", shape=(4, 6), split=3),
    "squeezed": splitops.plan("SplitToSequence", shape=(4, 6), keepdims=0),
}
DATA = np.arange(24.0).reshape(4, 6)
T = TypeVar("T")
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
def test_both_ways_refuse_the_same(plan: Plan) -> None:
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


def test_a_subclass_calls_what_it_overrides() -> None:
    class Same(Plan):
        pass

    class Counting(Plan):
        def __call__(self, data: Any, **more: Any) -> Any:
            return [len(super().__call__(data, **more))]

    arguments = ((4, 6), 1, (0, 1), (1, 5))
    for _ in range(2):
        assert_views(Same(*arguments)(DATA), PLANS["tuple"](DATA))
    counting = Counting(*arguments)
    assert counting(DATA) == [2]
    assert counting(DATA) == [2]


def test_a_subclass_has_other_bases() -> None:
    tags = []

    class Tagged:
        def __init_subclass__(cls, *, tag: int, **kwargs: Any) -> None:
            super().__init_subclass__(**kwargs)
            tags.append(tag)

    class Both(Plan, Generic[T], Tagged, tag=3):
        pass

    assert tags == [3]
    assert Both.__parameters__ == (T,)  # type: ignore[attr-defined]
    assert_views(Both[int]((4, 6), 1, (0, 1), (1, 5))(DATA), PLANS["tuple"](DATA))


def test_assigning_a_call_to_the_class_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = splitops.plan("Split", shape=(4, 6), split=[2, 2])
    plan(DATA)
    monkeypatch.setattr(Plan, "__call__", lambda self, data: "mine")
    assert plan(DATA) == "mine"
    monkeypatch.undo()
    assert_views(plan(DATA), (DATA[:2], DATA[2:]))
    Plan.__init_subclass__()  # as it was
    assert_views(plan(DATA), (DATA[:2], DATA[2:]))
    monkeypatch.delattr(Plan, "__call__")
    with pytest.raises(TypeError, match="'Plan' object is not callable"):
        plan(DATA)
    monkeypatch.undo()
    assert_views(plan(DATA), (DATA[:2], DATA[2:]))
    Plan.__init_subclass__()
    assert_views(plan(DATA), (DATA[:2], DATA[2:]))


def call_it(plan: Plan) -> Any:
    return plan(DATA)


@pytest.mark.skipif(not SHORT_CUT, reason="there is no short cut")
@plans
def test_the_short_cut_enters_no_python(plan: Plan) -> None:
    plan(DATA)
    assert entered(lambda: call_it(plan)) == ["<lambda>", "call_it"]
    assert "__call__" in entered(lambda: plan(DATA, copy=True))


def test_a_class_without_a_call_is_refused() -> None:
    with pytest.raises(TypeError, match="NotCalled has no __call__"):
        type("NotCalled", (native.Called,), {})


def test_what_does_the_calls_may_be_anything() -> None:
    class Echo(native.Called):
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return args, kwargs

    class Deaf(Echo):
        __call__ = None  # type: ignore[assignment]

    echo = Echo()
    splitter = native.Splitter((4, 6), 0, (0, 2), (2, 2), False)
    before = sys.getrefcount(splitter)
    args, keywords = (2, 3), {"a": 4, "b": 5}
    assert echo._call is None
    assert echo(DATA) == ((DATA,), {})
    for call in (splitter, None, 7, splitter):
        echo._call = call
        assert echo(DATA.T, 1, copy=True)[1] == {"copy": True}
        assert echo(*args, **keywords) == (args, keywords)
        assert echo() == ((), {})
        if SHORT_CUT and call is splitter:
            assert_views(echo(DATA), (DATA[:2], DATA[2:]))
    deaf = Deaf()
    deaf._call = splitter
    with pytest.raises(TypeError):
        deaf(DATA)
    del echo, deaf, call
    gc.collect()
    assert sys.getrefcount(splitter) == before


def test_references_balance() -> None:
    plan = splitops.plan("SplitToSequence", shape=(4, 6), split=3)
    dtype = np.dtype([("a", ">i4"), ("b", "f8")])
    data = np.zeros((4, 6), dtype)
    plan(data)
    before = sys.getrefcount(data), sys.getrefcount(dtype), sys.getrefcount(plan.splitter())
    for _ in range(100):
        plan(data)
        with pytest.raises(splitops.ArrayError):
            plan(data.T)
    gc.collect()
    after = sys.getrefcount(data), sys.getrefcount(dtype), sys.getrefcount(plan.splitter())
    assert all(abs(b - a) < 5 for a, b in zip(before, after, strict=True)), (before, after)
