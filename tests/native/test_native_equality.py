"""The compiled core against the NumPy fallback: every dtype size, layout, axis and cut."""

from __future__ import annotations

import gc
import pickle
import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from native_helpers import IMPLEMENTATIONS, _core, arrays, assert_same, cuts, fallback, filled

needs_core = pytest.mark.skipif(_core is None, reason="the extension module is not built")
examples = settings(max_examples=300, deadline=None)


def test_the_comparison_sees_a_difference() -> None:
    a = np.arange(4)
    assert_same((a,), (a.copy(),))
    for other in (a + 1, a.reshape(2, 2), a.astype(">i8"), a.astype("u8")):
        with pytest.raises(AssertionError):
            assert_same((a,), (other,))
    with pytest.raises(AssertionError):
        assert_same((a,), (a, a))


@needs_core
@examples
@given(st.data())
def test_views(data: Any) -> None:
    array = data.draw(arrays())
    cut = data.draw(cuts(array))
    got, expected = _core.views(array, *cut), fallback.views(array, *cut)
    assert_same(got, expected)
    for g, e in zip(got, expected, strict=True):
        assert g.strides == e.strides
        assert g.flags.writeable == e.flags.writeable == array.flags.writeable
        assert g.flags.aligned == e.flags.aligned
        assert g.flags.c_contiguous == e.flags.c_contiguous
        assert g.flags.f_contiguous == e.flags.f_contiguous
        assert g.dtype is array.dtype
        if e.size:
            assert g.ctypes.data == e.ctypes.data
            assert g.base is e.base


@needs_core
def test_views_of_a_structure_that_ends_unaligned() -> None:
    """NumPy makes none, and takes one from a pickle."""
    dtype = np.dtype([("a", "i4"), ("b", "i2")])
    make, arguments, state = dtype.__reduce__()
    made = make(*arguments)
    made.__setstate__((*state[:6], 4, *state[7:]))
    assert (made.itemsize, made.alignment) == (6, 4)
    array = np.zeros((4, 6), made)
    array["a"] = np.arange(24).reshape(4, 6)
    for got, expected in zip(
        _core.views(array, 1, (0, 1), (1, 5), False),
        fallback.views(array, 1, (0, 1), (1, 5), False),
        strict=True,
    ):
        assert got["a"].tolist() == expected["a"].tolist()
        assert (got.strides, got.flags.aligned) == (expected.strides, expected.flags.aligned)


@needs_core
@examples
@given(st.data(), st.booleans())
def test_copies(data: Any, separate: bool) -> None:
    array = data.draw(arrays())
    cut = data.draw(cuts(array))
    got = _core.copies(array, *cut, separate=separate)
    assert_same(got, fallback.copies(array, *cut))
    for g in got:
        assert g.flags.c_contiguous
        assert g.flags.writeable
        assert g.ctypes.data % 64 == 0 or g.size == 0
        assert not np.may_share_memory(g, array)


@needs_core
@examples
@given(st.data())
def test_copies_into_strided_buffers(data: Any) -> None:
    array = data.draw(arrays())
    cut = data.draw(cuts(array))
    axis, _, sizes, squeeze = cut
    results = []
    layouts = []
    for size in sizes:
        shape = [*array.shape[:axis], *([] if squeeze else [size]), *array.shape[axis + 1 :]]
        steps = [data.draw(st.sampled_from([1, 1, 1, 2, -1])) for _ in shape]
        order = data.draw(st.one_of(st.just(range(len(shape))), st.permutations(range(len(shape)))))
        layouts.append((shape, steps, list(order), data.draw(st.integers(0, 7))))
    for implementation in (_core, fallback):
        out, buffers = [], []
        for shape, steps, order, shift in layouts:
            # A larger poisoned buffer: what lies between and around the elements must stay as it was.
            full = [shape[i] * abs(steps[i]) + 1 for i in order]
            count = int(np.prod(full)) * array.dtype.itemsize
            buffer = np.full(count + 16, 0xA5, np.uint8)
            padded = np.ndarray(full, array.dtype, buffer, offset=shift)
            back = padded.transpose(np.argsort(order)) if order else padded
            keys = tuple(slice(0, n * abs(s), abs(s)) for n, s in zip(shape, steps, strict=True))
            target = back[(*keys, ...)]
            out.append(target[(*(slice(None, None, -1 if s < 0 else 1) for s in steps), ...)])
            buffers.append(buffer)
        implementation.copies_into(array, *cut, out)
        results.append(tuple(buffers))
    assert_same(*results)


@needs_core
@examples
@given(st.data())
def test_a_plan_is_used_again(data: Any) -> None:
    array = data.draw(arrays())
    cut = data.draw(cuts(array))
    plan = _core.Plan(array.shape, *cut)
    assert_same(plan(array), fallback.views(array, *cut))
    copies = plan.copies(array)
    assert_same(copies, fallback.copies(array, *cut))
    for part in copies:
        part[...] = np.zeros((), part.dtype)
    plan.copies_into(array, copies)
    assert_same(copies, fallback.copies(array, *cut))
    for part in copies:
        part[...] = np.zeros((), part.dtype)
    if plan.fill(array, copies) is not None:
        assert_same(copies, fallback.copies(array, *cut))


@needs_core
@given(st.data())
def test_plans_are_the_same_in_both(data: Any) -> None:
    array = data.draw(arrays())
    cut = data.draw(cuts(array))
    sequence = data.draw(st.booleans())
    one, other = (made.Plan(array.shape, *cut, sequence) for made in (_core, fallback))
    names = ("shape", "axis", "offsets", "sizes", "squeeze", "sequence", "shapes")
    assert [getattr(one, name) for name in names] == [getattr(other, name) for name in names]
    assert one == other
    assert hash(one) == hash(other)
    assert repr(one) == repr(other)
    for plan in (one, other):
        with pytest.raises(AttributeError):
            plan.axis = 0
        with pytest.raises(AttributeError):
            plan.more = 0


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("dtype", ["f4", object])
def test_a_plan_gives_a_tuple_or_a_list(implementation: Any, dtype: Any) -> None:
    array = np.arange(6).astype(dtype)
    for container, more in ((tuple, {}), (tuple, {"sequence": False}), (list, {"sequence": True})):
        plan = implementation.Plan((6,), 0, (0, 2), (2, 4), False, **more)
        out = [np.zeros(2, dtype), np.zeros(4, dtype)]
        made = [plan.views(array), plan.copies(array)]
        if implementation is not fallback:
            made += [plan.fill(array, out), plan.fill(array, tuple(out))]
            assert made[-1][0] is out[0]
        for parts in made:
            assert type(parts) is container
            assert_same(tuple(parts), (array[:2], array[2:]))
    with pytest.raises(TypeError):
        implementation.Plan((6,), 0, (0,), (6,), False, sequence=1)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_parts_keep_their_data_alive(implementation: Any) -> None:
    for make in (implementation.views, implementation.copies):
        parts = make(np.arange(2000).reshape(2, 1000), 0, (0, 1), (1, 1), True)
        np.testing.assert_array_equal(parts[1], np.arange(1000, 2000))
        second = parts[1]
        del parts
        np.testing.assert_array_equal(second, np.arange(1000, 2000))


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_a_copied_part_can_be_locked_and_unlocked(implementation: Any) -> None:
    (part,) = implementation.copies(np.arange(4), 0, (0,), (4,), False)
    part.flags.writeable = False
    part.flags.writeable = True
    part[0] = 7


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("squeeze", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.filterwarnings("ignore:Setting the shape:DeprecationWarning")
def test_equal_parts_are_arrays_as_any(implementation: Any, squeeze: bool, axis: int) -> None:
    """The core makes a part like the one before it: what NumPy does with either must be the same."""
    array = np.arange(36.0).reshape(6, 6)
    expected = [np.take(array, i, axis) if squeeze else np.take(array, [i], axis) for i in range(6)]
    for make in (implementation.views, implementation.copies):
        parts = make(array, axis, tuple(range(6)), (1,) * 6, squeeze)
        for part, other in zip(parts, expected, strict=True):
            assert weakref.ref(part)() is part
            assert memoryview(part).shape == part.shape
            np.testing.assert_array_equal(pickle.loads(pickle.dumps(part)), other)
            part.shape = (1, 3, 2, 1) if part.flags.c_contiguous else (1, *part.shape)
            np.testing.assert_array_equal(part.ravel(), other.ravel())
        last = parts[-1]
        del parts, part
        gc.collect()
        np.testing.assert_array_equal(last.ravel(), expected[-1].ravel())


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("squeeze", [False, True])
def test_equal_parts_of_an_unaligned_array_may_differ(implementation: Any, squeeze: bool) -> None:
    array = np.ndarray((2, 4), "f8", np.zeros(96, np.uint8), 4, (48, 12))
    parts = implementation.views(array, 1, (0, 1, 2, 3), (1, 1, 1, 1), squeeze)
    expected = [array[:, i] if squeeze else array[:, i : i + 1] for i in range(4)]
    assert [part.flags.aligned for part in parts] == [part.flags.aligned for part in expected]
    assert {part.flags.aligned for part in expected} == {False, True}


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("dtype", ["V0", [("a", "V0")]])
def test_elements_of_no_bytes(implementation: Any, dtype: str) -> None:
    array = np.ndarray((4, 2), dtype)
    for make in (implementation.views, implementation.copies):
        parts = make(array, 0, (0, 3), (3, 1), False)
        assert [p.shape for p in parts] == [(3, 2), (1, 2)]
        assert [p.dtype for p in parts] == [array.dtype] * 2
        assert make(array[:, 0], 0, (1,), (1,), True)[0].shape == ()


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_overlapping_and_repeated_parts(implementation: Any) -> None:
    array = filled((6, 5), np.dtype("f4"))
    parts = implementation.copies(array, 0, (0, 2, 2, 0), (6, 3, 3, 0), False)
    assert_same(parts, (array, array[2:5], array[2:5], array[:0]))
