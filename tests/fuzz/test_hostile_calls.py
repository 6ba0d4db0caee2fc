"""Arguments of any kind: the functions give what NumPy's slices give, or reject with one line."""

from __future__ import annotations

import array
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hostile import assert_one_line
from hypothesis import given, settings
from hypothesis import strategies as st

import splitops
from splitops import SplitError


class Index:
    """An integer by ``__index__`` alone."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


class OwnError(RuntimeError):
    """What an argument's own methods raise is the caller's."""


class Broken:
    """Raises whatever is asked of it."""

    def __index__(self) -> int:
        raise OwnError("no index")

    def __array__(self, *arguments: Any, **named: Any) -> Any:
        raise OwnError("no array")

    def __len__(self) -> int:
        raise OwnError("no length")

    def __iter__(self) -> Any:
        raise OwnError("no items")

    def __eq__(self, other: object) -> bool:
        raise OwnError("no equality")

    def __hash__(self) -> int:
        raise OwnError("no hash")

    def __repr__(self) -> str:
        raise OwnError("no text")


class Sub(np.ndarray):
    """A subclass of arrays."""


def one_of(*values: Any) -> st.SearchStrategy[Any]:
    """One of some values, which need not be hashable, equal to themselves, or of few digits."""
    return st.integers(0, len(values) - 1).map(values.__getitem__)


integers = st.one_of(
    st.integers(-4, 9), one_of(1 << 31, (1 << 63) - 1, 1 << 63, -(1 << 63), 1 << 64, 1 << 15000)
)
kinds = st.sampled_from(
    [
        int,
        Index,
        np.int8,
        np.uint64,
        np.int64,
        bool,
        float,
        np.float16,
        str,
        np.array,
        Decimal,
        Fraction,
        complex,
    ]
)


@st.composite
def numbers(draw: st.DrawFn) -> Any:
    value, kind = draw(integers), draw(kinds)
    try:
        with np.errstate(all="ignore"):
            return kind(value)
    except (OverflowError, ValueError):
        return value


strange = one_of(
    None,
    "",
    "1",
    b"\1",
    {},
    {1: 2},
    {1},
    object(),
    Broken(),
    float("nan"),
    float("inf"),
    ...,
    slice(2),
    1j,
    int,
)
containers = st.sampled_from(
    [
        list,
        tuple,
        lambda values: np.array(values),
        lambda values: np.array(values, object),
        lambda values: np.array([values]),
        lambda values: array.array("q", values),
        lambda values: memoryview(array.array("i", values)),
        lambda values: np.ma.array(values, mask=True),
        lambda values: np.array(values).view(Sub),
        lambda values: np.array(values, "M8[s]"),
        lambda values: iter(values),
        lambda values: dict.fromkeys(values, 0),
        lambda values: "".join(map(str, values)),
        lambda values: [values],
        lambda values: range(len(values)),
    ]
)


@st.composite
def lengths(draw: st.DrawFn) -> Any:
    values = draw(st.lists(st.one_of(st.integers(-1, 6), numbers()), max_size=4))
    try:
        return draw(containers)(values)
    except Exception:
        return values


@st.composite
def data(draw: st.DrawFn) -> Any:
    shape = draw(st.lists(st.integers(0, 7), max_size=3))
    dtype = draw(
        st.sampled_from(
            ["f4", "i8", "u1", "?", "c8", "S3", "U2", "O", "V5", "M8[s]", "f2", ">i4", "i4,f8", "g", "T"]
        )
    )
    found = np.zeros(shape, np.dtypes.StringDType() if dtype == "T" else dtype)
    if found.dtype.kind in "fiu" and found.size:
        found.reshape(-1)[:] = np.arange(found.size) % 100
    match draw(
        st.sampled_from(
            ["as it is"] * 4 + ["reversed", "transposed", "strided", "broadcast", "read-only", "list"]
        )
    ):
        case "reversed" if found.ndim:
            return found[::-1]
        case "transposed":
            return found.T
        case "strided" if found.ndim:
            return np.repeat(found, 2, -1)[..., ::2]
        case "broadcast":
            return np.broadcast_to(found, (2, *found.shape))
        case "read-only":
            found.flags.writeable = False
        case "list":
            return found.tolist()
    return found


arguments = st.one_of(integers, numbers(), lengths(), strange)
FUNCTIONS = {
    splitops.onnx.split: ("split", "axis", "num_outputs", "opset", "copy"),
    splitops.onnx.split_to_sequence: ("split", "axis", "keepdims", "opset", "copy"),
    splitops.openvino.split: ("axis", "num_splits", "opset", "copy"),
    splitops.openvino.variadic_split: ("axis", "split_lengths", "opset", "copy"),
    splitops.onnx.infer_split: ("split", "axis", "num_outputs", "opset"),
    splitops.onnx.infer_split_to_sequence: ("split", "axis", "keepdims", "opset"),
    splitops.openvino.infer_split: ("axis", "num_splits", "opset"),
    splitops.openvino.infer_variadic_split: ("axis", "split_lengths", "opset"),
}
NEEDED = {"num_splits": 2, "axis": 0, "split_lengths": [1, -1]}
SENSIBLE = {
    "axis": st.integers(-3, 2),
    "num_outputs": st.integers(1, 5),
    "num_splits": st.integers(1, 5),
    "opset": st.sampled_from([None, 1, 2, 11, 13, 18, 24, 28]),
    "copy": st.sampled_from([None, True, False]),
    "keepdims": st.integers(0, 1),
    "split": st.one_of(st.integers(1, 5), st.lists(st.integers(0, 4), max_size=4)),
    "split_lengths": st.lists(st.integers(-1, 4), max_size=4),
}


def called(function: Any, value: Any, named: dict[str, Any]) -> Any:
    """What a function gives; None where it rejects, in one line."""
    try:
        return function(value, **named)
    except SplitError as error:
        assert_one_line(error)
    except OwnError:
        pass
    return None


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(FUNCTIONS, key=lambda f: (f.__module__, f.__name__))), st.data())
def test_arguments_of_any_kind(function: Any, draw: Any) -> None:
    infers = function.__name__.startswith("infer")
    named = {}
    for name in FUNCTIONS[function]:
        choice = draw.draw(st.sampled_from(["sensible", "sensible", "absent", "absent", "any"]))
        if choice == "any":
            named[name] = draw.draw(arguments)
        elif choice == "sensible":
            named[name] = draw.draw(SENSIBLE[name])
        elif name in NEEDED and function.__module__.startswith("splitops.openvino"):
            named[name] = NEEDED[name]
    if infers:
        dims = st.one_of(
            st.none(),
            st.integers(0, 9),
            st.sampled_from(["N", "2*N"]),
            st.tuples(arguments, arguments),
            arguments,
        )
        value = draw.draw(st.one_of(st.lists(dims, max_size=3), st.none(), arguments))
    else:
        value = draw.draw(st.one_of(data(), data(), data(), arguments))
    parts = called(function, value, named)
    if parts is None or infers:
        return
    again = called(function, value, named)  # a call that is remembered
    whole = np.asanyarray(value)
    assert isinstance(parts, tuple | list)
    at, axis = 0, 0 if named.get("axis") is None else named["axis"]
    axis = (
        axis.__index__() if hasattr(axis, "__index__") else int(np.asarray(axis).reshape(()))
    ) % whole.ndim
    for part, other in zip(parts, again, strict=True):
        size = part.shape[axis] if part.ndim == whole.ndim else 1
        expected = whole[(slice(None),) * axis + (slice(at, at + size),)]
        if part.ndim < whole.ndim:
            expected = expected.squeeze(axis)
        assert part.shape == expected.shape
        assert part.dtype == other.dtype == whole.dtype
        assert part.tolist() == other.tolist() == expected.tolist()
        at += size
    assert at <= whole.shape[axis]
    if "num_outputs" not in named:
        assert at == whole.shape[axis]


@settings(max_examples=100, deadline=None)
@given(data(), st.data())
def test_buffers_of_any_kind(value: Any, draw: Any) -> None:
    """``out=`` is filled with what the call gives without it, or nothing is written."""
    count = draw.draw(st.integers(1, 4))
    parts = called(splitops.onnx.split, value, {"num_outputs": count})
    out: list[Any] = []
    for part in parts or []:
        made = np.empty(part.shape, part.dtype)
        choice = draw.draw(
            st.sampled_from(
                ["fits"] * 6 + ["transposed", "wider", "shape", "order", "read-only", "first", "any"]
            )
        )
        if choice == "transposed":
            made = np.empty(part.shape[::-1], part.dtype).T
        elif choice == "wider":
            made = np.empty(part.shape, "f8")
        elif choice == "shape":
            made = np.empty((*part.shape, 1), part.dtype)
        elif choice == "order":
            made = made.view(made.dtype.newbyteorder()) if part.dtype.kind in "iuf" else made
        elif choice == "read-only":
            made.flags.writeable = False
        elif choice == "first" and out:
            made = out[0]
        elif choice == "any":
            made = draw.draw(arguments)
        out.append(made)
    given_out = draw.draw(one_of(out, tuple(out), iter(out), out[:1], [*out, None], None, 3, Broken()))
    filled = called(splitops.onnx.split, value, {"num_outputs": count, "out": given_out})
    if filled is not None and parts is not None and given_out is not None:
        for part, target in zip(parts, filled, strict=True):
            assert part.tolist() == target.tolist()


@settings(max_examples=60, deadline=None)
@given(arguments, st.data())
def test_names_and_versions_of_any_kind(value: Any, draw: Any) -> None:
    name = draw.draw(one_of("Split", "SplitToSequence", "VariadicSplit", value))
    domain = draw.draw(one_of("", "openvino", "x", None, value))
    opset, other = draw.draw(arguments), draw.draw(arguments)
    shape = draw.draw(st.one_of(st.lists(integers, max_size=4), arguments))
    dtype = draw.draw(one_of("f4", "nonsense", None, value))
    axis, split = draw.draw(st.one_of(SENSIBLE["axis"], arguments)), draw.draw(arguments)
    for ask in (
        lambda: splitops.plan(name, shape=shape, dtype=dtype, axis=axis, split=split, domain=domain),
        lambda: splitops.schema(name, opset, domain),
        lambda: splitops.difference(name, opset, other, domain),
        lambda: splitops.history(name, domain),
    ):
        try:
            ask()
        except SplitError as error:
            assert_one_line(error)
        except OwnError:
            pass


HUGE = 1 << 15000  # more digits than Python writes
FOUND = {
    "a name of too many digits": lambda: splitops.history(HUGE),
    "a domain that has no truth value": lambda: splitops.history("Split", np.zeros(0)),
    "a dtype of too many digits": lambda: splitops.plan("Split", shape=[4], dtype=HUGE, num_outputs=2),
    "a bound of too many digits": lambda: splitops.onnx.infer_split([(0, HUGE)], axis=1, num_outputs=2),
    "a length beyond every float among floats": lambda: splitops.onnx.split(
        np.zeros(4), [2.0, HUGE], opset=1
    ),
    "a shape of rank 0": lambda: splitops.plan("Split", shape=np.array(4), num_outputs=2),
    "a partly known shape of rank 0": lambda: splitops.onnx.infer_split(np.array(4), num_outputs=2),
}


@pytest.mark.parametrize("call", FOUND.values(), ids=FOUND)
def test_what_was_found(call: Any) -> None:
    with pytest.raises(SplitError) as caught:
        call()
    assert_one_line(caught.value)


def test_an_error_of_no_tree_is_seen() -> None:
    with pytest.raises(ZeroDivisionError, match="division"):
        called(lambda value: value / 0, 1, {})
