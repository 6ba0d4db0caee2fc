"""What a NumPy user gets: each test says how one kind of array behaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from comparison import assert_restores, assert_same_array, assert_same_parts, cut, ramp

import splitops
from splitops import ArrayError
from splitops.errors import AxisError, TypeUnsupportedError
from splitops.onnx import split, split_to_sequence
from splitops.openvino import split as openvino_split
from splitops.openvino import variadic_split
from splitops.spec import ELEMENT_TYPES, element_type_of

DATA = ramp((6, 4), np.dtype("i4"))

# Views and copies


@pytest.mark.parametrize("copy", [None, False])
def test_parts_are_views(copy: bool | None) -> None:
    data = DATA.copy()
    first, second = split(data, [2, 4], copy=copy)
    assert np.shares_memory(first, data)
    assert np.shares_memory(second, data)
    first[0, 0] = -7
    data[2, 1] = -8
    assert (data[0, 0], second[0, 1]) == (-7, -8)


def test_copies_are_independent_contiguous_and_writable() -> None:
    data = DATA.copy()
    parts = split(data, [1, 3], axis=1, copy=True)
    data[...] = 0
    assert_same_parts(parts, cut(DATA, 1, (1, 3)))
    for part in parts:
        assert not np.shares_memory(part, data)
        assert part.flags.c_contiguous
        assert part.flags.writeable
        part[...] = 5
    assert not data.any()


def test_one_copy_is_not_another() -> None:
    first, second = split(DATA, num_outputs=2, copy=True)
    first[...] = -1
    assert_same_array(second, DATA[3:])


def test_a_view_keeps_the_data_alive() -> None:
    part = split(np.arange(100_000), [1, 99_999])[1]
    np.arange(100_000)  # may reuse freed memory
    assert part[0] == 1
    assert part[-1] == 99_999


def test_views_of_read_only_data_are_read_only() -> None:
    data = DATA.copy()
    data.flags.writeable = False
    for part in split(data, num_outputs=2):
        assert not part.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            part[...] = 0


def test_copies_of_read_only_data_are_writable() -> None:
    data = DATA.copy()
    data.flags.writeable = False
    assert all(part.flags.writeable for part in split(data, num_outputs=2, copy=True))


LAYOUTS = {
    "C": DATA,
    "Fortran": np.asfortranarray(DATA),
    "transposed": DATA.T.copy().T,
    "every second column": ramp((6, 8), np.dtype("i4"))[:, ::2],
    "negative strides": DATA[::-1, ::-1],
    "broadcast": np.broadcast_to(DATA[0], (6, 4)),
    "unaligned": np.frombuffer(b"x" + DATA.tobytes(), "u1")[1:].view("i4").reshape(6, 4),
    "big-endian": DATA.astype(">i4"),
}


@pytest.mark.parametrize("data", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("axis", [0, 1])
def test_every_layout_gives_views_of_its_own_strides_and_contiguous_copies(data: Any, axis: int) -> None:
    sizes = (2, 4) if axis == 0 else (1, 3)
    views, copies = split(data, sizes, axis=axis), split(data, sizes, axis=axis, copy=True)
    assert_same_parts(views, cut(data, axis, sizes))
    assert_same_parts(copies, cut(data, axis, sizes))
    for view, copy in zip(views, copies, strict=True):
        assert view.strides == data.strides
        assert np.shares_memory(view, data)
        assert copy.flags.c_contiguous
        assert copy.dtype.byteorder == data.dtype.byteorder


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 5)], ids=str)
@pytest.mark.parametrize("copy", [None, True])
def test_arrays_without_elements_split_like_any_other(shape: tuple[int, ...], copy: bool | None) -> None:
    data = np.empty(shape, "f4")
    axis = len(shape) - 1
    parts = split(data, num_outputs=2, axis=axis, copy=copy)
    size = shape[axis]
    assert [part.shape[axis] for part in parts] == [-(-size // 2), size // 2]
    assert_restores(parts, data, axis)


def test_a_squeezed_vector_gives_arrays_of_rank_0_that_are_views() -> None:
    data = np.arange(3)
    parts = split_to_sequence(data, keepdims=0)
    assert [type(part) for part in parts] == [np.ndarray] * 3
    assert [part.shape for part in parts] == [()] * 3
    parts[1][...] = 7
    assert data[1] == 7


def test_32_and_more_axes_are_split() -> None:
    data = np.zeros((1,) * 63 + (4,), "u1")
    assert [part.shape[-1] for part in split(data, [1, 3], axis=-1)] == [1, 3]
    assert [part.shape[-1] for part in split(data, [1, 3], axis=63, copy=True)] == [1, 3]


# Numbers, lists and other things than arrays


@pytest.mark.parametrize("scalar", [3, 2.5, True, "text", np.float32(3), np.array(3)], ids=repr)
def test_a_number_has_no_axis(scalar: Any) -> None:
    with pytest.raises(AxisError, match=r"axis\.range.*rank 0"):
        split(scalar, num_outputs=1)


def test_nested_lists_become_arrays() -> None:
    parts = split([[1, 2], [3, 4], [5, 6]], [1, 2])
    assert [part.tolist() for part in parts] == [[[1, 2]], [[3, 4], [5, 6]]]
    assert [part.dtype.kind for part in split(["a", "bc"], [1, 1])] == ["U", "U"]
    assert [part.tolist() for part in split((True, False), num_outputs=2)] == [[True], [False]]
    assert [part.tolist() for part in split([np.arange(2), np.arange(2)], [1, 1])] == [[[0, 1]], [[0, 1]]]


@pytest.mark.parametrize(
    "data",
    [[[1], [2, 3]], [2**70, 1], [1, None], [object()]],
    ids=["ragged", "beyond 64 bits", "None", "objects"],
)
def test_lists_without_an_element_type_are_rejected(data: Any) -> None:
    with pytest.raises(ArrayError, match="cannot convert data to an array"):
        split(data, num_outputs=1)


@pytest.mark.parametrize("data", [None, b"bytes", {1, 2}, {"a": 1}, object(), iter([1])], ids=type)
def test_what_no_library_knows_is_rejected(data: Any) -> None:
    with pytest.raises(ArrayError, match=type(data).__name__):
        split(data, num_outputs=1)


# Element types


@pytest.mark.parametrize("dtype", ["M8[s]", "m8[ns]", "i4,f4", "V3", "g", "G"])
def test_dtypes_that_neither_dialect_has_are_rejected_by_name(dtype: str) -> None:
    data = np.zeros(4, dtype)
    with pytest.raises(TypeUnsupportedError) as caught:
        split(data, num_outputs=2)
    assert caught.value.values["type"] == str(data.dtype)
    with pytest.raises(TypeUnsupportedError):
        openvino_split(data, 0, 2)
    assert element_type_of(data.dtype) is None


ML_DTYPES = [
    name
    for name, value in vars(ml_dtypes).items()
    if isinstance(value, type) and issubclass(value, np.generic)
]


@pytest.mark.parametrize("name", ML_DTYPES)
def test_types_of_ml_dtypes_are_taken_where_listed_and_rejected_elsewhere(name: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name))
    row = ELEMENT_TYPES.get(name)
    bits = ml_dtypes.iinfo(dtype).bits if "int" in name else ml_dtypes.finfo(dtype).bits
    data = ramp((4, 3), dtype, bits)
    calls = {
        "bfloat16" if name == "bfloat16" else None: lambda copy: split(data, [1, 3], copy=copy),
        row.openvino if row is not None else None: lambda copy: variadic_split(data, 0, [1, 3], copy=copy),
    }
    for listed, call in calls.items():
        for copy in (None, True):
            if listed is None:
                with pytest.raises(TypeUnsupportedError):
                    call(copy)
            else:
                assert_same_parts(call(copy), cut(data, 0, (1, 3)))


def test_ml_dtypes_are_found() -> None:
    assert {"bfloat16", "int4", "float4_e2m1fn", "float8_e4m3fn"} <= set(ML_DTYPES)


STRINGS = {
    "object": np.array(["a" * 40, "b", "", "ä"], object),
    "unicode": np.array(["a" * 40, "b", "", "ä"]),
    "bytes": np.array([b"a" * 40, b"b", b"", b"\xe4"]),
    "StringDType": np.array(["a" * 40, "b" * 50, "", "ä"], np.dtypes.StringDType()),
    "StringDType with missing": np.array(["a" * 40, None, "", "ä"], np.dtypes.StringDType(na_object=None)),
}


@pytest.mark.parametrize("data", STRINGS.values(), ids=STRINGS)
def test_strings_split_as_strings(data: Any) -> None:
    expected = data.tolist()
    views = split(data, [1, 3])
    assert [part.tolist() for part in views] == [expected[:1], expected[1:]]
    assert all(np.shares_memory(part, data) for part in views)
    assert [part.dtype for part in views] == [data.dtype] * 2
    source = data.copy()
    copies = split(source, [1, 3], copy=True)
    source[...] = "z" * 60  # a copy must own its text
    assert [part.tolist() for part in copies] == [expected[:1], expected[1:]]
    out = [np.empty(1, data.dtype), np.empty(3, data.dtype)]
    split(data, [1, 3], out=out)
    assert [part.tolist() for part in out] == [expected[:1], expected[1:]]


@pytest.mark.parametrize(
    ("values", "types"),
    [
        ([1, 2], "int"),
        (["a", 1], "int and str"),
        (["a", None], "NoneType and str"),
        ([True, 2.5], "bool and float"),
    ],
    ids=str,
)
def test_objects_that_are_no_strings_are_rejected_in_every_call(values: Any, types: str) -> None:
    strings = np.array(["a", b"b"], object)
    for copy in (None, True):
        for _ in range(3):  # what is remembered of the one must not let the other pass
            assert len(split(strings, [1, 1], copy=copy)) == 2
            with pytest.raises(TypeUnsupportedError, match=f"element type object of {types}, but"):
                split(np.array(values, object), [1, 1], copy=copy)
    hidden = np.ma.array(np.array(["a", 1], object), mask=[0, 1])
    assert split(hidden, [1, 1])[0].tolist() == ["a"]


def test_object_copies_hold_references_of_their_own() -> None:
    text = "text" * 10
    data = np.array([text, text], object)
    parts = split(data, num_outputs=2, copy=True)
    data[:] = None
    del data
    assert [part.item() for part in parts] == [text, text]


@pytest.mark.parametrize("dtype", ["c8", ">c16"])
def test_complex_numbers_keep_both_parts(dtype: str) -> None:
    data = (np.arange(4) - 2j * np.arange(4)).astype(dtype)
    assert_same_parts(split(data, [1, 3], copy=True), cut(data, 0, (1, 3)))
    with pytest.raises(TypeUnsupportedError):
        openvino_split(data, 0, 2)


# Subclasses


def masked() -> Any:
    return np.ma.array(np.arange(6), mask=[0, 1, 0, 0, 1, 0], fill_value=99)


def test_masks_are_split_with_their_data() -> None:
    data = masked()
    first, second = split(data, [2, 4])
    assert isinstance(first, np.ma.MaskedArray)
    assert first.mask.tolist() == [False, True]
    assert second.mask.tolist() == [False, False, True, False]
    assert second.fill_value == 99
    assert np.shares_memory(first.data, data.data)
    assert np.shares_memory(first.mask, data.mask)


def test_a_masked_copy_is_independent_in_data_and_mask() -> None:
    data = masked()
    first, second = split(data, [2, 4], copy=True)
    data[...] = 0
    data[2] = np.ma.masked
    assert first.mask.tolist() == [False, True]
    assert second.mask.tolist() == [False, False, True, False]
    assert second.compressed().tolist() == [2, 3, 5]
    assert not np.shares_memory(second.mask, data.mask)
    assert second.data.flags.c_contiguous


def test_a_squeezed_masked_array_keeps_its_masks() -> None:
    parts = split_to_sequence(masked(), keepdims=0)
    assert [part.shape for part in parts] == [()] * 6
    assert [bool(np.ma.getmaskarray(part)) for part in parts] == [False, True, False, False, True, False]


def test_out_of_masked_data_takes_masks_too() -> None:
    out = [np.ma.zeros(2, int), np.ma.zeros(4, int)]
    split(masked(), [2, 4], out=out)
    assert out[0].mask.tolist() == [False, True]
    assert out[1].compressed().tolist() == [2, 3, 5]


def test_data_without_a_mask_unmasks_the_out_buffers() -> None:
    out = [np.ma.masked_all(2, int), np.ma.masked_all(4, int)]
    split(np.arange(6), [2, 4], out=out)
    assert [buffer.tolist() for buffer in out] == [[0, 1], [2, 3, 4, 5]]


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
def test_a_matrix_gives_matrices() -> None:
    data = np.matrix(DATA)
    for copy in (None, True):
        parts = split(data, [1, 3], axis=1, copy=copy)
        assert [type(part) for part in parts] == [np.matrix] * 2
        assert [part.shape for part in parts] == [(6, 1), (6, 3)]


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("copy", [None, True])
def test_a_matrix_that_loses_an_axis_gives_plain_arrays(axis: int, copy: bool | None) -> None:
    data = np.matrix(DATA)
    parts = split_to_sequence(data, axis=axis, keepdims=0, copy=copy)
    assert_same_parts(parts, cut(DATA, axis, (1,) * DATA.shape[axis], squeeze=True))
    out = [np.empty_like(part) for part in parts]
    split_to_sequence(data, axis=axis, keepdims=0, out=out)
    assert_same_parts(out, parts)


class Tagged(np.ndarray):
    """A subclass that hands an attribute on, as unit libraries do."""

    tag: str | None = None

    def __array_finalize__(self, base: Any) -> None:
        self.tag = getattr(base, "tag", None)


def test_a_subclass_gives_parts_of_its_class_with_its_attributes() -> None:
    data = DATA.view(Tagged)
    data.tag = "metres"
    for copy in (None, True):
        parts = split(data, [2, 4], copy=copy)
        assert [(type(part), part.tag) for part in parts] == [(Tagged, "metres")] * 2
        assert [np.shares_memory(part, data) for part in parts] == [copy is None] * 2
    assert_restores([np.asarray(part) for part in split(data, [2, 4])], DATA, 0)


def test_views_of_a_memory_map_stay_on_the_file(tmp_path: Path) -> None:
    np.save(tmp_path / "data.npy", DATA)
    data = np.load(tmp_path / "data.npy", mmap_mode="r+")
    first, _ = split(data, [2, 4])
    assert isinstance(first, np.memmap)
    first[0, 0] = -7
    data.flush()
    assert np.load(tmp_path / "data.npy")[0, 0] == -7


def test_copies_of_a_memory_map_are_plain_arrays_in_memory(tmp_path: Path) -> None:
    np.save(tmp_path / "data.npy", DATA)
    data = np.load(tmp_path / "data.npy", mmap_mode="r")
    parts = split(data, [2, 4], copy=True)
    assert [type(part) for part in parts] == [np.ndarray] * 2
    assert_same_parts(parts, cut(DATA, 0, (2, 4)))
    assert all(part.flags.writeable for part in parts)
    assert not split(data, [2, 4])[0].flags.writeable


# Plans


def test_a_plan_runs_on_any_element_type_of_its_shape() -> None:
    plan = splitops.plan("Split", shape=(6, 4), axis=-1, num_outputs=3)
    for dtype in ("f4", ">i8", "U3", "?"):
        data = ramp((6, 4), np.dtype(dtype))
        assert_same_parts(plan(data), cut(data, 1, (2, 2, 0)))


@pytest.mark.parametrize("shape", [(4, 6), (6,), (6, 4, 1), (6, 5), ()], ids=str)
def test_a_plan_rejects_data_of_another_shape(shape: tuple[int, ...]) -> None:
    plan = splitops.plan("Split", shape=(6, 4), axis=0, num_outputs=2)
    with pytest.raises(ArrayError, match=r"data has shape .*, but the plan is for shape \(6, 4\)"):
        plan(np.zeros(shape))


def test_a_plan_of_a_sequence_gives_a_list() -> None:
    parts = splitops.plan("SplitToSequence", shape=(3,), split=2)(np.arange(3))
    assert isinstance(parts, list)
    assert isinstance(splitops.plan("Split", shape=(3,), num_outputs=2)(np.arange(3)), tuple)


@pytest.mark.parametrize("shape", [4, "44", ("4",), (2.5,), (-4,), (4, -4), (True,), (None,), None], ids=repr)
def test_a_plan_rejects_what_is_no_shape(shape: Any) -> None:
    with pytest.raises(ArrayError, match="shape"):
        splitops.plan("Split", shape=shape, num_outputs=2)


def test_a_plan_takes_numpys_integers_and_arrays_as_shape() -> None:
    expected = splitops.plan("Split", shape=(6, 4), axis=0, num_outputs=2)
    assert (
        splitops.plan("Split", shape=np.array([6, 4]), axis=np.int8(0), num_outputs=np.uint64(2)) == expected
    )
    assert splitops.plan("Split", shape=[np.int64(6), 4], num_outputs=2) == expected


def test_a_plan_checks_the_dtype_that_it_is_told() -> None:
    with pytest.raises(TypeUnsupportedError):
        splitops.plan("Split", shape=(4,), dtype="M8[s]", num_outputs=2)
    with pytest.raises(TypeUnsupportedError):
        splitops.plan("Split", shape=(4,), dtype=ml_dtypes.bfloat16, num_outputs=2, opset=11)
    with pytest.raises(ArrayError, match="nonsense"):
        splitops.plan("Split", shape=(4,), dtype="nonsense", num_outputs=2)
