"""How the arguments of a call are read: integers of every kind, and nothing that only looks like one."""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np
import onnx.parser
import pytest
from comparison import assert_same_parts, cut

import splitops
from splitops import Rule, RuleError, SplitError
from splitops.onnx import split, split_to_sequence
from splitops.openvino import split as openvino_split
from splitops.openvino import variadic_split

DATA = np.arange(24.0, dtype="f4").reshape(6, 4)
INTEGERS = [int, np.int8, np.int64, np.uint8, np.uint64, np.array]


def code(function: Any, *arguments: Any, **named: Any) -> Rule:
    with pytest.raises(RuleError) as caught:
        function(*arguments, **named)
    assert "\n" not in str(caught.value)
    return caught.value.rule


# Integers of every kind


@pytest.mark.parametrize("integer", INTEGERS)
def test_numpys_integers_are_integers(integer: Any) -> None:
    expected = cut(DATA, 1, (1, 3))
    assert_same_parts(split(DATA, [integer(1), integer(3)], axis=integer(1)), expected)
    assert_same_parts(split(DATA, [integer(1), integer(3)], axis=integer(1), opset=11), expected)
    assert_same_parts(split(DATA, axis=integer(1), num_outputs=integer(2)), cut(DATA, 1, (2, 2)))
    assert_same_parts(split(DATA, axis=integer(1), num_outputs=integer(2), opset=13), cut(DATA, 1, (2, 2)))
    assert_same_parts(openvino_split(DATA, integer(1), integer(2)), cut(DATA, 1, (2, 2)))
    assert_same_parts(variadic_split(DATA, integer(1), [integer(1), integer(3)]), expected)
    assert_same_parts(split_to_sequence(DATA, keepdims=integer(0)), cut(DATA, 0, (1,) * 6, squeeze=True))


def test_a_scalar_chunk_is_an_int_or_of_the_types_of_the_input() -> None:
    for scalar in (4, np.int64(4), np.int32(4), np.array(4)):
        assert_same_parts(split_to_sequence(DATA, scalar), cut(DATA, 0, (4, 2)))
    assert code(split_to_sequence, DATA, np.uint8(4)) == "lengths.dtype"
    assert code(split_to_sequence, DATA, 4.0) == "lengths.dtype"


class Offering:
    """Offers its values to NumPy, and has nothing else."""

    def __init__(self, values: Any) -> None:
        self.values = np.asarray(values)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return self.values


class Rejecting:
    def __repr__(self) -> str:  # the name of the test must be the same in every process
        return "Rejecting()"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        raise RuntimeError("the values are elsewhere")


LENGTHS = {
    "list": [2, 4],
    "tuple": (2, 4),
    "range": range(2, 6, 2),
    "NumPy": np.array([2, 4]),
    "objects": np.array([2, 4], object),
    "NumPy's objects": np.array([np.int8(2), np.int64(4)], object),
    "array.array": array("q", [2, 4]),
    "memoryview": memoryview(np.array([2, 4])),
    "__array__": Offering([2, 4]),
}


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("opset", [2, 11, 13, 18])
def test_lengths_may_be_any_sequence_of_integers(lengths: Any, opset: int) -> None:
    assert_same_parts(split(DATA, lengths, opset=opset), cut(DATA, 0, (2, 4)))


def test_objects_that_offer_their_values_are_read_as_numpys_arrays() -> None:
    narrow = array("i", [2, 4])
    assert_same_parts(split_to_sequence(DATA, narrow), cut(DATA, 0, (2, 4)))
    assert_same_parts(variadic_split(DATA, Offering(0), memoryview(narrow)), cut(DATA, 0, (2, 4)))
    assert_same_parts(variadic_split(DATA, np.array(0, object), bytearray([2, 4])), cut(DATA, 0, (2, 4)))
    for lengths in (narrow, array("d", [2, 4]), memoryview(b"\2\4"), Offering([2.0, 4.0])):
        assert code(split, DATA, lengths) == "lengths.dtype"
    for lengths in (np.array([2, "4"], object), np.array([True, 5], object), np.array([2, None], object)):
        for opset in (11, 18):
            assert code(split, DATA, lengths, opset=opset) == "lengths.dtype"
    assert code(split, DATA, np.array([[2, 4]], object)) == "lengths.rank"
    assert code(split, DATA, range(2**64, 2**64 + 2)) == "lengths.value"
    expected = "cannot convert axis or lengths to an array: the values are elsewhere"
    with pytest.raises(SplitError, match=expected):
        split(DATA, Rejecting())


DATA_LIKE = {
    "array.array": array("i", [1, 2, 3]),
    "memoryview": memoryview(array("d", [1, 2, 3])),
    "read-only memoryview": memoryview(b"abc"),
    "bytearray": bytearray(b"abc"),
    "range": range(1, 10, 3),
    "__array__": Offering([1, 2, 3]),
    "strings": ["a", "bc", ""],
    "floats": [0.5, float("nan"), 3],
    "large": [2**63, 1, 2],
}


@pytest.mark.parametrize("data", DATA_LIKE.values(), ids=DATA_LIKE)
def test_data_may_be_whatever_numpy_takes_without_loss(data: Any) -> None:
    right = np.asarray(data)
    for copy in (None, True):
        assert_same_parts(split(data, [1, 2], copy=copy), cut(right, 0, (1, 2)))
    assert_same_parts(splitops.plan("Split", shape=(3,), split=[1, 2])(data), cut(right, 0, (1, 2)))


def test_parts_of_a_buffer_are_views_of_it() -> None:
    buffer = array("i", [1, 2, 3])
    split(buffer, [1, 2])[1][0] = 9
    assert buffer.tolist() == [1, 9, 3]
    assert not split(memoryview(b"abc"), [1, 2])[0].flags.writeable


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([2**53 + 1, 0.5, 1], "9007199254740993 would become 9007199254740992.0"),
        ([-1, 2**63 + 1, 0], "would become"),
        (["a", 1, 2], "1 would become '1'"),
        (["a", b"b", "c"], "would become"),
        (["a\0", "b", "c"], "would become 'a'"),
        ([1, None, 2], "no common element type"),
        ([[1], [1, 2], [3]], "cannot convert data to an array"),
        (range(2**64, 2**64 + 3), "object of int"),
        (Rejecting(), "cannot convert data to an array: the values are elsewhere"),
    ],
    ids=repr,
)
def test_what_numpy_would_change_is_rejected(data: Any, message: str) -> None:
    with pytest.raises(SplitError, match=message):
        split(data, [1, 2])


@pytest.mark.parametrize("opset", [18, np.int64(18), np.uint8(18)], ids=repr)
def test_an_opset_is_an_integer_of_any_kind(opset: Any) -> None:
    assert_same_parts(split(DATA, [2, 4], opset=opset), cut(DATA, 0, (2, 4)))
    assert str(splitops.schema("Split", opset)) == "Split-18"


# What only looks like an integer


@pytest.mark.parametrize(
    "axis", [True, np.True_, 0.0, np.float64(0), "0", [0], None.__class__, np.zeros((2, 2))], ids=repr
)
def test_onnx_rejects_an_axis_that_is_no_integer(axis: Any) -> None:
    assert code(split, DATA, [2, 4], axis=axis) == "axis.dtype"
    assert code(split_to_sequence, DATA, 2, axis=axis) == "axis.dtype"
    assert code(split, DATA, [2, 4], axis=axis, opset=2) == "axis.dtype"


@pytest.mark.parametrize("axis", [True, np.True_, 0.0, np.float64(0), "0", None], ids=repr)
def test_openvino_rejects_an_axis_that_is_no_integer(axis: Any) -> None:
    assert code(openvino_split, DATA, axis, 2) == "axis.dtype"
    assert code(variadic_split, DATA, axis, [2, 4]) == "axis.dtype"


@pytest.mark.parametrize("shape", [(2,), (1, 1), (0,)], ids=str)
def test_openvino_rejects_an_axis_of_other_ranks(shape: tuple[int, ...]) -> None:
    axis = np.zeros(shape, int)
    assert code(openvino_split, DATA, axis, 2) == "axis.rank"
    assert code(variadic_split, DATA, axis, [2, 4]) == "axis.rank"
    assert code(openvino_split, DATA, [0], 2) == "axis.rank"
    assert_same_parts(variadic_split(DATA, [0], [2, 4]), cut(DATA, 0, (2, 4)))


NO_LENGTHS = [
    [True, 5],
    [np.True_, 5],
    [2.0, 4.0],
    ["2", "4"],
    "24",
    b"24",
    {2, 4},
    {2: 4},
    np.array([2.0, 4.0]),
]


@pytest.mark.parametrize("lengths", NO_LENGTHS, ids=repr)
def test_lengths_that_are_no_integers_are_rejected(lengths: Any) -> None:
    assert code(split, DATA, lengths) == "lengths.dtype"
    assert code(split, DATA, lengths, opset=13) == "lengths.dtype"
    assert code(split_to_sequence, DATA, lengths) == "lengths.dtype"
    assert code(variadic_split, DATA, 0, lengths) == "lengths.dtype"
    assert code(split, DATA, lengths, opset=11) in ("lengths.dtype", "lengths.rank", "op.version")


@pytest.mark.parametrize(
    "lengths",
    [[1, None], [1, 2**70, 1.5], [1, [2, 3]], [object()]],
    ids=["None", "beyond 64 bits", "ragged", "object"],
)
def test_lengths_that_are_no_array_are_rejected_by_name(lengths: Any) -> None:
    for opset in (11, 13, 18):
        with pytest.raises(SplitError) as caught:
            split(DATA, lengths, opset=opset)
        assert "split" in str(caught.value)
        assert "data cannot" not in str(caught.value)


@pytest.mark.parametrize("count", [True, np.True_, 2.0, "2", [2], 0, -1, 2**63, np.zeros((2, 2))], ids=repr)
@pytest.mark.parametrize("opset", [2, 13, 18])
def test_a_number_of_parts_is_a_positive_integer(count: Any, opset: int) -> None:
    expected = (
        ("parts.count", "parts.divisible") if isinstance(count, int) and count > 2 else ("parts.count",)
    )
    assert code(split, DATA, num_outputs=count, opset=opset) in expected
    assert code(openvino_split, DATA, 0, count) == "parts.count"


@pytest.mark.parametrize("keepdims", [2, -1, 0.0, 1.0, "1", [1], np.zeros((2, 2))], ids=repr)
def test_keepdims_is_0_or_1(keepdims: Any) -> None:
    assert code(split_to_sequence, DATA, keepdims=keepdims) == "keepdims.value"


@pytest.mark.parametrize("no", [False, np.False_, 0])
def test_keepdims_takes_booleans(no: Any) -> None:
    assert split_to_sequence(DATA, keepdims=no)[0].shape == (4,)


@pytest.mark.parametrize("opset", [True, "18", 18.0, 0, -1], ids=repr)
def test_an_opset_that_is_none_is_rejected(opset: Any) -> None:
    assert code(split, DATA, [2, 4], opset=opset) == "op.version"
    assert code(splitops.schema, "Split", opset) == "op.version"


# Integers that do not fit


@pytest.mark.parametrize("beyond", [2**63, 2**64 - 1, 2**70, -(2**63) - 1, -(2**70)])
def test_lengths_beyond_64_bits_are_rejected(beyond: int) -> None:
    for function, arguments in ((split, ()), (split_to_sequence, ()), (variadic_split, (0,))):
        assert code(function, DATA, *arguments, [beyond, 6]) == "lengths.value"
    assert code(split, DATA, [beyond, 6], opset=11) == "lengths.value"
    assert code(split_to_sequence, DATA, beyond) == "lengths.value"


def test_unsigned_lengths_do_not_wrap_around() -> None:
    lengths = np.array([2**64 - 1, 2], "u8")
    assert code(variadic_split, DATA, 0, lengths) == "lengths.value"
    assert code(variadic_split, DATA, 0, np.array([2**63 - 1, 2**63 - 1, 8], "u8")) == "lengths.sum"


@pytest.mark.parametrize(
    "axis", [2**31, 2**32, 2**63, 2**70, -(2**32), -(2**70), np.uint64(2**64 - 1)], ids=repr
)
def test_an_axis_beyond_any_rank_is_out_of_range(axis: Any) -> None:
    assert code(split, DATA, [2, 4], axis=axis) == "axis.range"
    assert code(openvino_split, DATA, axis, 2) == "axis.range"


# Masked and missing arguments


def test_a_masked_length_or_axis_is_not_a_number() -> None:
    masked = np.ma.array([2, 4], mask=[0, 1])
    assert code(split, DATA, masked) == "lengths.dtype"
    assert code(variadic_split, DATA, np.ma.masked_array(0, mask=True), [2, 4]) == "axis.dtype"
    assert_same_parts(split(DATA, np.ma.array([2, 4])), cut(DATA, 0, (2, 4)))


def test_none_is_an_absent_argument() -> None:
    assert_same_parts(split(DATA, None, axis=None, num_outputs=2), cut(DATA, 0, (3, 3)))
    assert_same_parts(split_to_sequence(DATA, None, keepdims=None), cut(DATA, 0, (1,) * 6))
    assert code(split, DATA) == "lengths.missing"
    assert code(variadic_split, DATA, 0, None) == "lengths.missing"
    assert code(openvino_split, DATA, 0, None) == "lengths.missing"


@pytest.mark.parametrize(
    ("name", "argument"),
    [("Split", "input"), ("Split", "bogus"), ("SplitToSequence", "num_outputs"), ("VariadicSplit", "data")],
)
def test_an_argument_that_the_version_does_not_have_is_rejected_by_name(name: str, argument: str) -> None:
    with pytest.raises(RuleError) as caught:
        splitops.plan(name, shape=(4,), **{argument: 3})
    assert (caught.value.rule, caught.value.values["attribute"]) == ("op.version", argument)


def test_split_1_tells_the_attribute_from_the_input_by_the_numbers() -> None:
    for lengths in (
        [2, 4],
        [2.0, 4.0],
        [np.float32(2), np.float32(4)],
        np.array([2, 4], "f4"),
        np.array([2, 4]),
    ):
        assert_same_parts(split(DATA, lengths, opset=1), cut(DATA, 0, (2, 4)))
    assert code(split, DATA, np.array([2.0, 4.0]), opset=1) == "lengths.dtype"
    assert code(split, DATA, [2.5, 3.5], opset=1) == "lengths.value"


@pytest.mark.parametrize("value", [True, 2.0, "2", None, [2], np.bool_(True), np.array([1, 2])], ids=repr)
def test_integers_of_files_models_and_ranks_are_checked_in_the_same_way(tmp_path, value):
    np.save(tmp_path / "x.npy", np.zeros((4, 4)))
    np.savez(tmp_path / "x.npz", a=np.zeros((4, 4)))
    plan = splitops.files.plan_split(tmp_path / "x.npy", tmp_path / "parts", num_outputs=2)
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 13]> g (float[4] x) => (float[2] a, float[2] b) {a, b = Split(x)}'
    )
    rules = {"version": 1, "rule": [{"match": "*", "axis": 0}]}
    calls = {
        "memory": (lambda: plan.run(memory=value), lambda: plan.dry_run(memory=value)),
        "max_size": (lambda: splitops.files.plan_by_size(tmp_path / "x.npz", tmp_path, value, to="npz"),),
        "axis": (lambda: splitops.files.merge([tmp_path / "x.npy"], tmp_path / "y.npy", axis=value),),
        "ranks": (
            lambda: splitops.sharding.plan(tmp_path / "x.npz", rules, ranks=value),
            lambda: splitops.sharding.find_ranks(tmp_path / "x.npz", rules, ranks=[value]),
        ),
        "limit": () if value is None else (lambda: splitops.simplify(model, limit=value),),
        "max_iterations": () if value is None else (lambda: splitops.session(model, max_iterations=value),),
    }
    for name, each in calls.items():
        for call in each:
            with pytest.raises(SplitError, match=rf"^{name} = .* but it must be an integer"):
                call()
