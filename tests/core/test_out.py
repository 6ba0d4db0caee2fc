"""``out=``: what is filled, what is rejected, and that nothing is written when it is rejected."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import pytest
from comparison import assert_same_array, assert_same_parts, cut, ramp
from hypothesis import given
from hypothesis import strategies as st

import splitops
from splitops import ArrayError
from splitops.errors import LengthsError
from splitops.onnx import split, split_to_sequence

DATA = ramp((6, 4), np.dtype("i4"))
SIZES = (2, 4)


def buffers(dtype: str = "i4") -> list[np.ndarray]:
    return [np.full((size, 4), 77, dtype) for size in SIZES]


def assert_untouched(out: Any) -> None:
    for buffer in out:
        if isinstance(buffer, np.ndarray):
            assert (np.asarray(buffer) == 77).all()


@pytest.mark.parametrize("make", [tuple, list, deque, iter], ids=["tuple", "list", "deque", "iterator"])
def test_the_buffers_are_filled_and_returned(make: Any) -> None:
    out = buffers()
    got = split(DATA, SIZES, out=make(out))
    assert [part is buffer for part, buffer in zip(got, out, strict=True)] == [True, True]
    assert_same_parts(out, cut(DATA, 0, SIZES))


def test_the_rows_of_one_array_are_buffers() -> None:
    out = np.zeros((2, 3, 4), "i4")
    split(DATA, num_outputs=2, out=out)
    assert_same_array(out.reshape(6, 4), DATA)


def test_a_sequence_is_filled_as_a_list() -> None:
    out = [np.zeros(4, "i4") for _ in range(6)]
    got = split_to_sequence(DATA, keepdims=0, out=out)
    assert isinstance(got, list)
    assert_same_parts(out, list(DATA))


def test_buffers_of_any_layout_are_filled() -> None:
    out = [np.full((4, 2), 77, "i4").T, np.full((8, 8), 77, "i4")[::-2, 1::2]]
    split(DATA, SIZES, out=out)
    assert_same_parts([np.ascontiguousarray(part) for part in out], cut(DATA, 0, SIZES))
    base = out[1].base
    assert base is not None
    assert (base[::2] == 77).all()  # what lies between was not written
    assert (base[:, ::2] == 77).all()


def test_interleaved_columns_of_one_array_do_not_overlap() -> None:
    shared = np.zeros((3, 8), "i4")
    split(DATA, num_outputs=2, out=[shared[:, ::2], shared[:, 1::2]])
    assert_same_array(shared[:, ::2].copy(), DATA[:3])
    assert_same_array(shared[:, 1::2].copy(), DATA[3:])


def test_parts_of_the_memory_beside_the_data_do_not_overlap_it() -> None:
    shared = np.full((12, 4), 77, "i4")
    shared[::2] = DATA
    split(shared[::2], SIZES, out=[shared[1:5:2], shared[5::2]])
    assert_same_array(shared[1::2].copy(), DATA)
    assert_same_array(shared[::2].copy(), DATA)


def test_buffers_without_elements_may_be_one_array() -> None:
    empty = np.empty((0, 4), "i4")
    out = [empty, np.empty((6, 4), "i4"), empty]
    split(DATA, [0, 6, 0], out=out)
    assert_same_array(out[1], DATA)


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
def test_a_buffer_of_another_subclass_is_filled() -> None:
    out = [np.matrix(buffer) for buffer in buffers()]
    split(DATA, SIZES, out=out)
    assert_same_parts([np.asarray(part) for part in out], cut(DATA, 0, SIZES))


def read_only() -> np.ndarray:
    buffer = buffers()[1]
    buffer.flags.writeable = False
    return buffer


def sliding() -> np.ndarray:
    return np.lib.stride_tricks.as_strided(np.full(16, 77, "i4"), (4, 4), (8, 4))


REJECTED = {
    "one buffer too few": (lambda: buffers()[:1], "out has 1 arrays, but there are 2 parts"),
    "one buffer too many": (lambda: [*buffers(), buffers()[0]], "out has 3 arrays, but there are 2 parts"),
    "no buffers": (list, "out has 0 arrays"),
    "no sequence": (lambda: 3, "out is a int"),
    "no arrays": (lambda: [buffers()[0], [[0] * 4] * 4], r"out\[1\] is a list"),
    "None": (lambda: [None, buffers()[1]], r"out\[0\] is a NoneType"),
    "shape": (lambda: [buffers()[0], np.full((5, 4), 77, "i4")], r"out\[1\] has shape \(5, 4\)"),
    "transposed shape": (lambda: [buffers()[0], np.full((4, 4), 77, "i4")[:, :3]], r"out\[1\] has shape"),
    "rank": (lambda: [buffers()[0], np.full((1, 4, 4), 77, "i4")], r"out\[1\] has shape \(1, 4, 4\)"),
    "dtype": (lambda: [buffers()[0], buffers("f4")[1]], r"out\[1\] has .* dtype float32"),
    "wider dtype": (lambda: [buffers()[0], buffers("i8")[1]], r"out\[1\] has .* dtype int64"),
    "byte order": (lambda: [buffers()[0], buffers(">i4")[1]], r"out\[1\] has .* dtype >i4"),
    "read-only": (lambda: [buffers()[0], read_only()], r"out\[1\] is read-only"),
    "sliding window": (lambda: [buffers()[0], sliding()], r"elements of out\[1\] may share memory"),
    "hard mask": (
        lambda: [buffers()[0], np.ma.array(buffers()[1], mask=True, hard_mask=True)],
        r"out\[1\] has a hard mask",
    ),
}


@pytest.mark.parametrize(("make", "message"), REJECTED.values(), ids=REJECTED)
def test_buffers_that_do_not_fit_are_rejected_and_nothing_is_written(make: Any, message: str) -> None:
    out = make()
    with pytest.raises(ArrayError, match=message):
        split(DATA, SIZES, out=out)
    assert_untouched(out if isinstance(out, list) else [])


STRING_TYPES = [
    np.dtypes.StringDType(),
    np.dtypes.StringDType(na_object=None),
    np.dtypes.StringDType(na_object=float("nan")),
    np.dtypes.StringDType(coerce=False),
    np.dtype("U8"),
    np.dtype(object),
]


@pytest.mark.parametrize("dtype", STRING_TYPES, ids=repr)
@pytest.mark.parametrize("other", STRING_TYPES, ids=repr)
def test_string_types_that_differ_are_rejected(dtype: Any, other: Any) -> None:
    """A missing string would become the text of what stands for it."""
    data = np.array(["a", "b"], dtype)
    plan = splitops.plan("Split", shape=(2,), split=[1, 1])
    for _ in range(2):
        for function in (plan, lambda data, out: split(data, [1, 1], out=out)):
            out = [np.full(1, "untouched", other) for _ in range(2)]
            if dtype == other:
                function(data, out=out)
                assert [part.tolist() for part in out] == [["a"], ["b"]]
                continue
            with pytest.raises(ArrayError, match=r"out\[0\] has shape .* dtype"):
                function(data, out=out)
            assert [part[0][:5] for part in out] == ["untou"] * 2


@pytest.mark.parametrize("no", [False, np.False_, 0], ids=repr)
def test_out_without_copying_is_rejected(no: Any) -> None:
    plan = splitops.plan("Split", shape=(6, 4), split=[2, 4])
    for _ in range(2):
        for function in (plan, lambda data, **more: split(data, SIZES, **more)):
            out = buffers()
            with pytest.raises(ArrayError, match="copy=False forbids"):
                function(DATA, copy=no, out=out)
            assert_untouched(out)
        split(DATA, SIZES, copy=np.True_, out=buffers())


def test_a_broadcast_buffer_is_rejected() -> None:
    wide = np.full(4, 77, "i4")
    rows = np.lib.stride_tricks.as_strided(wide, (4, 4), (0, 4))
    out = [buffers()[0], rows]
    with pytest.raises(ArrayError, match=r"elements of out\[1\] may share memory with each other"):
        split(DATA, SIZES, out=out)
    assert_untouched(out)


def test_one_buffer_twice_is_rejected() -> None:
    buffer = np.full((3, 4), 77, "i4")
    with pytest.raises(ArrayError, match=r"out\[0\] overlaps out\[1\]"):
        split(DATA, num_outputs=2, out=[buffer, buffer])
    assert_untouched([buffer])


def test_buffers_that_overlap_in_one_element_are_rejected() -> None:
    shared = np.full(23, 77, "i4")
    out = [shared[:12].reshape(3, 4), shared[11:].reshape(3, 4)]
    with pytest.raises(ArrayError, match=r"out\[0\] overlaps out\[1\]"):
        split(DATA, num_outputs=2, out=out)
    assert_untouched([shared])


def test_buffers_of_the_data_itself_are_rejected() -> None:
    data = DATA.copy()
    for out in ([data[:2], buffers()[1]], [buffers()[0], data[2:]], [data[4:], data[:4]]):
        with pytest.raises(ArrayError, match=r"out\[\d\] overlaps data"):
            split(data, SIZES, out=out)
        assert_same_array(data, DATA)


def test_a_plain_buffer_would_lose_the_mask_and_is_rejected() -> None:
    out = buffers()
    with pytest.raises(ArrayError, match="its mask would be lost"):
        split(np.ma.array(DATA, mask=DATA % 2), SIZES, out=out)
    assert_untouched(out)


def test_a_broken_rule_writes_nothing() -> None:
    out = buffers()
    with pytest.raises(LengthsError):
        split(DATA, [2, 5], out=out)
    assert_untouched(out)


def test_out_beside_copy_false_contradicts_itself() -> None:
    out = buffers()
    with pytest.raises(ArrayError, match="copy=False"):
        split(DATA, SIZES, copy=False, out=out)
    assert_untouched(out)


def test_a_plan_fills_buffers_too() -> None:
    plan = splitops.plan("Split", shape=(6, 4), split=SIZES)
    out = buffers()
    plan(DATA, out=out)
    assert_same_parts(out, cut(DATA, 0, SIZES))
    with pytest.raises(ArrayError):
        plan(DATA, out=out[:1])


MANY = np.arange(4000, dtype="i4").reshape(1000, 4)

REJECTED_AMONG_MANY = {
    "shape": (lambda out: np.full((1, 5), 77, "i4"), r"out\[500\] has shape \(1, 5\) and dtype int32, but"),
    "dtype": (lambda out: np.full((1, 4), 77, "u4"), r"out\[500\] has shape \(1, 4\) and dtype uint32, but"),
    "read-only": (lambda out: np.broadcast_to(np.full((1, 4), 77, "i4"), (1, 4)), r"out\[500\] is read-only"),
    "masked": (
        lambda out: np.ma.array(np.full((1, 4), 77, "i4"), mask=[[1, 0, 0, 0]], hard_mask=True),
        r"out\[500\] has a hard mask",
    ),
    "list": (lambda out: [77] * 4, r"out\[500\] is a list, but it must be a numpy\.ndarray"),
    "overlapping": (lambda out: out[100], r"out\[100\] overlaps out\[500\]"),
    "the data": (lambda out: MANY[3:4], r"out\[500\] overlaps data"),
    "itself": (
        lambda out: np.lib.stride_tricks.as_strided(np.full(4, 77, "i4"), (1, 4), (16, 0)),
        r"elements of out\[500\] may share memory",
    ),
}


@pytest.mark.parametrize(("make", "message"), REJECTED_AMONG_MANY.values(), ids=REJECTED_AMONG_MANY)
@pytest.mark.parametrize("container", [list, tuple, iter])
def test_one_bad_buffer_among_many_is_named_and_nothing_is_written(
    make: Any, message: str, container: Any
) -> None:
    before = MANY.copy()
    plan = splitops.plan("Split", shape=(1000, 4), split=[1] * 1000)
    out: list[Any] = [np.full((1, 4), 77, "i4") for _ in range(1000)]
    out[500] = make(out)
    with pytest.raises(ArrayError, match=message):
        plan(MANY, out=container(out))
    assert_untouched(buffer for i, buffer in enumerate(out) if i != 500)
    assert_same_array(MANY, before)


def test_a_plan_fills_many_buffers_and_returns_them() -> None:
    for name, kind, arguments in (
        ("Split", tuple, {"split": [1] * 1000}),
        ("SplitToSequence", list, {"keepdims": 0}),
    ):
        plan = splitops.plan(name, shape=(1000, 4), **arguments)
        out = [np.full((4,) if kind is list else (1, 4), 77, "i4") for _ in range(1000)]
        for container in (list, tuple, deque, iter):
            got = plan(MANY, out=container(out))
            assert type(got) is kind
            assert all(part is buffer for part, buffer in zip(got, out, strict=True))
            np.testing.assert_array_equal(np.concatenate(out).reshape(1000, 4), MANY)
            for buffer in out:
                buffer[...] = 77
        with pytest.raises(ArrayError, match="copy=False"):
            plan(MANY, copy=False, out=out)
        with pytest.raises(ArrayError, match="data has shape"):
            plan(MANY[:999], out=out)
        assert_untouched(out)


@st.composite
def windows(draw: st.DrawFn) -> list[np.ndarray]:
    """Two buffers of 3 by 2 anywhere in one block of memory, with any strides that stay within it."""
    block = np.full(40, 77, "i4")
    found = []
    for _ in range(2):
        rows, columns = draw(st.integers(-8, 8)), draw(st.integers(-8, 8))
        reach = sorted(
            [2 * rows * (rows < 0) + columns * (columns < 0), 2 * rows * (rows > 0) + columns * (columns > 0)]
        )
        start = draw(st.integers(-reach[0], 39 - reach[1]))
        found.append(np.lib.stride_tricks.as_strided(block[start:], (3, 2), (4 * rows, 4 * columns)))
    return found


def addresses(array: np.ndarray) -> list[int]:
    """Where each element lies, counted out."""
    start = array.__array_interface__["data"][0]
    return [start + i * array.strides[0] + j * array.strides[1] for i in range(3) for j in range(2)]


@given(windows())
def test_whatever_their_strides_buffers_are_filled_or_rejected(out: list[np.ndarray]) -> None:
    """The rule: 'Nothing is ever read or written outside the data': a filled buffer holds its whole part."""
    data = ramp((6, 2), np.dtype("i4"))
    everywhere = [address for buffer in out for address in addresses(buffer)]
    overlapping = len(set(everywhere)) < len(everywhere)
    try:
        split(data, num_outputs=2, out=out)
    except ArrayError:
        assert_untouched(out)  # strides that could overlap may be rejected even where they do not
    else:
        assert not overlapping
        assert_same_parts([buffer.copy() for buffer in out], [data[:3], data[3:]])


@st.composite
def slicings(draw: st.DrawFn) -> list[np.ndarray]:
    """Two buffers of 3 by 2 cut out of one block by ordinary slices."""
    block = np.full((8, 8), 77, "i4")
    found = []
    for _ in range(2):
        step, stride = draw(st.sampled_from([1, 2, 3, -1, -2])), draw(st.sampled_from([1, 2, 4, -1, -3]))
        rows = block[draw(st.integers(0, 1)) :: abs(step)][:3][:: 1 if step > 0 else -1]
        found.append(rows[:, draw(st.integers(0, 3)) :: abs(stride)][:, :2][:, :: 1 if stride > 0 else -1])
    return found


@given(slicings())
def test_buffers_cut_out_by_slices_are_rejected_exactly_where_they_overlap(out: list[np.ndarray]) -> None:
    data = ramp((6, 2), np.dtype("i4"))
    if set(addresses(out[0])) & set(addresses(out[1])):
        with pytest.raises(ArrayError, match=r"out\[0\] overlaps out\[1\]"):
            split(data, num_outputs=2, out=out)
        assert_untouched(out)
    else:
        split(data, num_outputs=2, out=out)
        assert_same_parts([buffer.copy() for buffer in out], [data[:3], data[3:]])
