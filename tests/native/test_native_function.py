"""What a function of the core remembers: exactly what it was asked, whoever asks, and never too much."""

from __future__ import annotations

import gc
import sys
import weakref
from typing import Any

import numpy as np
import pytest
from native_helpers import _core
from test_native_safety import in_threads

pytestmark = pytest.mark.skipif(_core is None, reason="the extension module is not built")


class Halves:
    """A function that splits an array in two; it counts what it is asked to do and to plan."""

    def __init__(self, names: tuple[str, ...] = ("data", "split", "axis")) -> None:
        self.planned: list[tuple[Any, ...]] = []
        self.called: list[tuple[Any, ...]] = []
        defaults = (None, 0, None, None)
        self.function = _core.Function(self.call, self.plan, (*names, "copy", "out"), defaults, 3)

    def call(self, *args: Any, **kwargs: Any) -> str:
        self.called.append((args, kwargs))
        return "called"

    def plan(self, data: Any, split: Any, axis: Any) -> Any:
        self.planned.append((split, axis))
        size = data.shape[0] // 2
        return _core.Plan(data.shape, 0, (0, size), (size, data.shape[0] - size))


def test_a_call_is_planned_once_and_told_from_every_other() -> None:
    halves = Halves()
    array = np.zeros((4, 6), "f4")
    calls: list[tuple[Any, ...]] = [
        (array, [1, 3], 0),
        (array, (1, 3), 0),
        (array, np.array([1, 3]), 0),
        (array, np.array([1, 3], "i4"), 0),
        (array, np.array([1, 3])[::-1], 0),
        (array, np.array(1), 0),
        (array, 1, 0),
        (array, np.array([1]), 0),
        (array, [1], 0),
        (array, [1, 3], None),
        (array, [1, 3], 1),
        (array, [1, 3, 0], None),
        (array.astype("f8"), [1, 3], 0),
        (array.astype(">f4"), [1, 3], 0),
        (array.T, [1, 3], 0),
    ]
    for count, call in enumerate(calls, 1):
        for _ in range(2):
            first, second = halves.function(*call)
            assert np.shares_memory(first, call[0])
            assert (first.shape[0], second.shape[0]) == (call[0].shape[0] // 2,) * 2
            assert len(halves.planned) == count
    for call in calls:
        halves.function(*call)
    assert len(halves.planned) == len(calls)
    assert not halves.called


def test_lengths_are_read_with_every_call() -> None:
    halves = Halves()
    lengths = np.array([1, 3])
    for value in (1, 2, 1, 2):
        lengths[0] = value
        halves.function(np.zeros(4), lengths)
    assert len(halves.planned) == 2


def test_what_cannot_be_told_apart_is_not_remembered() -> None:
    halves = Halves()
    array = np.zeros((4, 6), "f4")
    unaligned = np.ndarray((2,), "i8", np.zeros(24, "u1"), 1)
    calls: list[tuple[Any, ...]] = [
        (array, [True, 3], 0),
        (array, [1.0, 3], 0),
        (array, [np.int64(1), 3], 0),
        (array, np.int64(1), 0),
        (array, np.array([1.0, 3.0]), 0),
        (array, np.array([1, 3], "u1"), 0),
        (array, np.array([1, 3], ">i8"), 0),
        (array, np.array([[1, 3]]), 0),
        (array, np.ma.array([1, 3]), 0),
        (array, unaligned, 0),
        (array, [1, 3], False),
        (array, [1, 3], 1 << 70),
        (array, [1, 3], "0"),
        (array, [1] * 200, 0),
        (array, np.ones(200, int), 0),
        (array.view(np.recarray), [1, 3], 0),
        (array.tolist(), [1, 3], 0),
        (array.astype(object), [1, 3], 0),
        (),
        (array, [1, 3], 0, None),
    ]
    for count, call in enumerate(calls, 1):
        assert halves.function(*call) == "called"
        assert len(halves.called) == count
    for more in ({"axes": 0}, {"split": 1, "data": array}, {"copy": 1}, {"copy": np.True_}):
        assert halves.function(array, **more) == "called"
    assert not halves.planned


@pytest.mark.parametrize(("more", "words"), [([1], 3), (np.array([1]), 5)], ids=["list", "array"])
def test_arguments_that_are_too_many_are_not_remembered(more: Any, words: int) -> None:
    for count in range(80, 97):
        halves = Halves()
        for _ in range(2):
            halves.function(np.zeros(4), [1] * count, more)
        fits = 3 + 2 + count + words <= 96
        assert (len(halves.planned), len(halves.called)) == ((1, 0) if fits else (0, 2))


def test_plans_of_very_many_parts_are_not_remembered() -> None:
    planned = []

    def plan(data: Any, split: Any) -> Any:
        planned.append(split)
        return _core.Plan((5000,), 0, tuple(range(5000)), (1,) * 5000)

    function = _core.Function(print, plan, ("data", "split", "copy", "out"), (None, None), 2)
    for number in range(1, 3):
        assert [int(part[0]) for part in function(np.arange(5000), 1)] == list(range(5000))
        assert planned == [1] * number


def test_the_memory_is_bounded_and_right() -> None:
    halves = Halves()
    for _ in range(2):
        for i in range(2000):
            array = np.zeros(2 + i, "u1")
            assert len(halves.function(array, i)[0]) == array.size // 2
    assert len(halves.planned) > 3000


def test_errors_of_the_planner_are_the_caller_s_and_nothing_is_remembered() -> None:
    def reject(*values: Any) -> Any:
        if values[1] is None:
            return "no plan"
        raise LookupError(values[1])

    function = _core.Function(print, reject, ("data", "split", "copy", "out"), (None,) * 3, 2)
    for _ in range(2):
        with pytest.raises(LookupError):
            function(np.zeros(4), [1])
        with pytest.raises(TypeError, match="must return a Plan"):
            function(np.zeros(4))


def test_a_function_is_made_of_fitting_parameters() -> None:
    for names, defaults, positional in (
        (("data", "copy"), (), 1),
        (("data", "copy", "out"), (), 0),
        (("data", "copy", "out"), (), 4),
        (("data", "copy", "out"), (None,) * 4, 1),
    ):
        with pytest.raises(ValueError, match="the parameters must be"):
            _core.Function(print, print, names, defaults, positional)
    with pytest.raises(TypeError):
        _core.Function(print, print)


def test_a_weak_reference_to_a_function_ends_with_it() -> None:
    function = _core.Function(print, print, ("data", "copy", "out"), (None, None), 1)
    found = weakref.ref(function)
    assert found() is function
    del function
    assert found() is None


@pytest.mark.parametrize("method", ["copies", "copies_into", "fill"])
def test_methods_of_a_plan_take_what_they_say(method: str) -> None:
    plan = _core.Plan((4,), 0, (0, 1), (1, 3))
    for arguments in ((), (1, 2, 3)):
        with pytest.raises(TypeError, match=r"requires|argument"):
            getattr(plan, method)(*arguments)


def test_references_balance() -> None:
    halves = Halves()
    dtype = np.dtype([("balance", ">i4"), ("of", "f8")])
    array, lengths = np.zeros((4, 6), dtype), [2, 2]
    out = [np.zeros((2, 6), dtype), np.zeros((2, 6), dtype)]

    def use() -> None:
        halves.function(array, lengths)
        halves.function(array, lengths, copy=True)
        halves.function(array, lengths, out=out)
        halves.function(array, 1.5)
        halves.called.clear()

    use()
    gc.collect()
    before = [sys.getrefcount(x) for x in (array, dtype, lengths, out, None)]
    for _ in range(100):
        use()
    gc.collect()
    after = [sys.getrefcount(x) for x in (array, dtype, lengths, out, None)]
    assert all(abs(b - a) < 20 for a, b in zip(before, after, strict=True)), (before, after)


def test_many_threads_at_once() -> None:
    halves = Halves()

    def work(index: int) -> None:
        for i in range(3000):
            array = np.full(2 + i % 400, index, "u1")
            first, second = halves.function(array, [i % 7])
            assert len(first) == array.size // 2
            assert (second == index).all()

    in_threads(work)
