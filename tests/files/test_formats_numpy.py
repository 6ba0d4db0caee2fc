"""npy, npz and raw files: against NumPy, in both directions."""

from __future__ import annotations

import errno
import io
import mmap
import os
import struct
import zipfile

import ml_dtypes
import numpy as np
import pytest

import splitops
from splitops.errors import FileError
from splitops.files.formats.npy import map_array
from splitops.files.formats.raw import RawFormat
from splitops.spec import ELEMENT_TYPES
from splitops.spec.elements.packing import pack, unpack

ARRAYS = {
    "row-major": np.arange(240).reshape(4, 6, 10),
    "Fortran": np.asfortranarray(np.arange(240.0).reshape(4, 6, 10)),
    "big-endian": np.arange(240, dtype=">i2").reshape(4, 6, 10),
    "structured": np.zeros((4, 6, 10), [("a", "<i4"), ("b", "u1")]),
    "vector": np.arange(240, dtype=np.uint8),
    "one row": np.arange(24).reshape(1, 24, 1),
    "empty": np.zeros((4, 0, 10), np.float32),
}


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("name", [name for name in ARRAYS if name != "structured"])
def test_a_merge_of_all_parts_has_the_bytes_of_the_original(tmp_path, name, axis):
    array = ARRAYS[name]
    axis = max(axis, -array.ndim) if axis < 0 else min(axis, array.ndim - 1)
    np.save(tmp_path / "x.npy", array)
    made = splitops.files.split(tmp_path / "x.npy", tmp_path / "parts", axis=axis, num_outputs=3, verify=True)
    parts = [path for path, _ in made.files]
    size = -(-array.shape[axis] // 3)
    for path, want in zip(parts, np.split(array, [size, 2 * size], axis), strict=True):
        np.testing.assert_array_equal(np.load(path), want)
    splitops.files.merge(parts, tmp_path / "y.npy", axis=axis, verify=True)
    assert (tmp_path / "y.npy").read_bytes() == (tmp_path / "x.npy").read_bytes()


def test_merging_nothing_is_rejected(tmp_path):
    with pytest.raises(FileError, match="no files to merge"):
        splitops.files.merge([], tmp_path / "y.npy")


def test_too_many_parts_are_too_many_files(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros(100_001, np.uint8))
    with pytest.raises(FileError, match="100001 parts need 100001 files; the limit is 100000"):
        splitops.files.split(tmp_path / "x.npy", tmp_path / "out", "SplitToSequence", split=1)
    assert not (tmp_path / "out").exists()


def test_a_file_for_each_of_many_parts(tmp_path):
    """More than the process may have open at first."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    np.save(tmp_path / "x.npy", np.arange(300, dtype=np.int16))
    others = [(tmp_path / "x.npy").open("rb") for _ in range(100)]  # what is open counts, too
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
    try:
        made = splitops.files.split(tmp_path / "x.npy", tmp_path, "SplitToSequence", split=1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for file in others:
            file.close()
    assert [np.load(path).tolist() for path, _ in made.files] == [[number] for number in range(300)]


def test_items_of_any_kind_are_merged(tmp_path):
    array = ARRAYS["structured"]
    array["b"] = np.arange(240).reshape(4, 6, 10)
    for index, part in enumerate((array[:, :2], array[:, 2:])):
        np.save(tmp_path / f"{index}.npy", part)
    splitops.files.merge([tmp_path / "0.npy", tmp_path / "1.npy"], tmp_path / "y.npy", axis=1)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), array)


@pytest.mark.parametrize(
    ("parts", "axis", "problem"),
    [
        ([np.zeros((2, 3)), np.zeros((2, 4))], 0, "they may differ along axis"),
        ([np.zeros((2, 3)), np.zeros((2, 3, 1))], 0, "they may differ along axis"),
        ([np.zeros((2, 3)), np.zeros((2, 3), np.float32)], 0, "has type"),
        ([np.zeros((2, 3)), np.zeros((2, 3), ">f8")], 0, "has type"),
        ([np.zeros((2, 3)), np.zeros((2, 3), order="F")], 0, "Fortran order"),
        ([np.zeros((2, 3))], 2, "rank 2"),
        ([np.zeros((2, 3))], -3, "rank 2"),
        ([np.zeros(())], 0, "rank 0"),
    ],
)
def test_parts_that_do_not_fit_are_rejected(tmp_path, parts, axis, problem):
    paths = []
    for index, part in enumerate(parts):
        np.save(tmp_path / f"{index}.npy", part)
        paths.append(tmp_path / f"{index}.npy")
    with pytest.raises(FileError, match=problem):
        splitops.files.merge(paths, tmp_path / "y.npy", axis=axis)
    assert not (tmp_path / "y.npy").exists()


def test_a_part_of_one_row_has_any_order(tmp_path):
    array = np.asfortranarray(np.arange(12).reshape(3, 4))
    np.save(tmp_path / "0.npy", np.asfortranarray(array[:2]))
    np.save(tmp_path / "1.npy", np.ascontiguousarray(array[2:]))
    splitops.files.merge([tmp_path / "0.npy", tmp_path / "1.npy"], tmp_path / "y.npy")
    found = np.load(tmp_path / "y.npy")
    np.testing.assert_array_equal(found, array)
    assert found.flags.f_contiguous


def test_reading_lazily_is_slicing(tmp_path):
    rng = np.random.default_rng(0)
    for name, array in ARRAYS.items():
        np.save(tmp_path / "x.npy", array)
        tensor = splitops.files.open(tmp_path / "x.npy")[""]
        assert (tensor.shape, tensor.dtype) == (array.shape, array.dtype)
        for _ in range(40):
            key = tuple(
                slice(*sorted(rng.integers(-size - 1, size + 2, 2).tolist()), int(rng.integers(1, 4)))
                if not size or rng.random() < 0.6
                else int(rng.integers(-size, size))
                for size in array.shape[: rng.integers(0, array.ndim + 1)]
            )
            key = (*key, ...) if rng.random() < 0.5 else key
            found = np.asarray(tensor[key])
            assert found.dtype == array.dtype, name
            np.testing.assert_array_equal(found, array[key], name)
        twice = tensor[..., 1:][..., ::2]
        np.testing.assert_array_equal(np.asarray(twice), array[..., 1:][..., ::2])


def test_lazy_tensors_are_split_lazily(tmp_path):
    array = ARRAYS["row-major"]
    np.save(tmp_path / "x.npy", array)
    tensor = splitops.files.open(tmp_path / "x.npy")[""]
    for part, want in zip(splitops.onnx.split(tensor, [1, 5], axis=1), np.split(array, [1], 1), strict=True):
        assert isinstance(part, splitops.files.LazyTensor)
        np.testing.assert_array_equal(np.asarray(part), want)
    first, *_ = splitops.openvino.split(tensor, 0, 4, copy=True)
    np.testing.assert_array_equal(first, array[:1])
    assert [p.shape for p in splitops.onnx.split_to_sequence(tensor, keepdims=0)] == [(6, 10)] * 4
    with pytest.raises(splitops.RuleError, match=r"lengths\.sum"):
        splitops.onnx.split(tensor, [1, 6], axis=1)


def test_what_a_lazy_tensor_is(tmp_path):
    np.savez(tmp_path / "x.npz", a=np.arange(6).reshape(2, 3), b=np.float32(1), lengths=np.array([1, 2]))
    found = splitops.files.open(tmp_path / "x.npz")
    assert repr(found) == "TensorFile('x.npz', npz, tensors [a, b, lengths])"
    assert found.metadata["methods"] == {"a": 0, "b": 0, "lengths": 0}
    assert (found["a"].name, len(found["a"])) == ("a", 2)
    with pytest.raises(TypeError, match="rank 0"):
        len(found["b"])
    parts = splitops.onnx.split(found["a"], found["lengths"], axis=1)
    assert [part.shape for part in parts] == [(2, 1), (2, 2)]


def test_lazy_tensors_are_no_buffers(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(4))
    tensor = splitops.files.open(tmp_path / "x.npy")[""]
    with pytest.raises(splitops.ArrayError, match="out="):
        splitops.onnx.split(tensor, num_outputs=2, out=[np.zeros(2, np.int64)] * 2)


@pytest.mark.parametrize("key", ["a", None, [0], np.array([True]), slice(None, None, -1), 1.0])
def test_other_indices_are_rejected(tmp_path, key):
    np.save(tmp_path / "x.npy", np.arange(4))
    tensor = splitops.files.open(tmp_path / "x.npy")[""]
    with pytest.raises(TypeError):
        tensor[key]
    with pytest.raises(IndexError):
        tensor[4]
    with pytest.raises(IndexError):
        tensor[0, 0]
    with pytest.raises(ValueError, match="copy"):
        np.asarray(tensor, copy=False)


def test_a_file_that_cannot_be_mapped_is_one_error(tmp_path, monkeypatch):
    def reject(*_: object, **__: object) -> None:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    np.save(tmp_path / "x.npy", np.arange(4))
    assert map_array(tmp_path / "x.npy").tolist() == [0, 1, 2, 3]
    monkeypatch.setattr(mmap, "mmap", reject)
    with pytest.raises(FileError, match=r"x\.npy': it cannot be mapped into memory: .*annot allocate memory"):
        map_array(tmp_path / "x.npy")


# npz


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("keep", [False, True])
def test_members_split_and_merge(tmp_path, save, keep):
    arrays = {name.replace(" ", "_"): array for name, array in ARRAYS.items()} | {"é/x": np.arange(3)}
    save(tmp_path / "x.npz", **arrays)
    made = splitops.files.split(
        tmp_path / "x.npz",
        tmp_path,
        tensor="Fortran",
        axis=2,
        num_outputs=4,
        keep_other_tensors=keep,
        verify=True,
    )
    paths = [path for path, _ in made.files]
    for path, want in zip(paths, np.split(arrays["Fortran"], [3, 6, 9], 2), strict=True):
        assert zipfile.ZipFile(path).testzip() is None
        with np.load(path) as found:
            assert sorted(found) == (sorted(arrays) if keep else ["Fortran"])
            for name, array in found.items():
                np.testing.assert_array_equal(array, want if name == "Fortran" else arrays[name])
    splitops.files.merge(paths, tmp_path / "y.npz", axis=2, tensor="Fortran", verify=True)
    if keep:
        assert (tmp_path / "y.npz").read_bytes() == (tmp_path / "x.npz").read_bytes()
    else:
        np.testing.assert_array_equal(np.load(tmp_path / "y.npz")["Fortran"], arrays["Fortran"])


def test_deflated_members_are_read_lazily(tmp_path):
    array = np.arange(600_000).reshape(3, 200_000)
    np.savez_compressed(tmp_path / "x.npz", a=array)
    tensor = splitops.files.open(tmp_path / "x.npz")["a"]
    np.testing.assert_array_equal(np.asarray(tensor[1:, 5:199_000:1000]), array[1:, 5:199_000:1000])


def archive(**members: bytes) -> bytearray:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as made:
        for name, content in members.items():
            made.writestr(f"{name}.npy", content)
    return bytearray(buffer.getvalue())


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


def damaged(data: bytearray, signature: bytes, offset: int, value: int, size: int = 4) -> bytes:
    at = data.index(signature) + offset
    data[at : at + size] = value.to_bytes(size, "little")
    return bytes(data)


def test_malformed_archives_are_one_error(tmp_path):
    good = npy(np.arange(4))
    cases = {
        "no zip": b"nothing",
        "truncated": bytes(archive(a=good)[:-10]),
        "pickled": bytes(archive(a=npy(np.array([{}])))),
        "no npy": bytes(archive(a=b"hello")),
        "encrypted": damaged(archive(a=good), b"PK\x01\x02", 8, 1, 2),
        "an unknown compression": damaged(archive(a=good), b"PK\x01\x02", 10, 99, 2),
        "a header elsewhere": damaged(archive(a=good), b"PK\x01\x02", 42, 7),
        "more bytes than there are": damaged(archive(a=good), b"PK\x01\x02", 20, 1 << 30),
    }
    twins = archive(a=good, b=good)
    cases["two of a name"] = bytes(twins.replace(b"b.npy", b"a.npy"))
    for content in cases.values():
        (tmp_path / "x.npz").write_bytes(content)
        with pytest.raises(FileError):
            splitops.files.open(tmp_path / "x.npz")


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        (16, 7, "cannot read .*x.npz:a.*: bad crc-32"),
        (20, 1000, "cannot read .*x.npz:a.*: bad crc-32"),
        (24, 400_129, "has bytes after its data"),
        (24, 0, "cannot read .*x.npz:a.*: bad crc-32"),
    ],
)
def test_a_deflated_member_that_lies_is_found_out(tmp_path, field, value, problem):
    np.savez_compressed(tmp_path / "x.npz", a=np.random.default_rng(0).integers(0, 9, 50_000))
    content = bytearray((tmp_path / "x.npz").read_bytes())
    (tmp_path / "x.npz").write_bytes(damaged(content, b"PK\x01\x02", field, value))
    with pytest.raises(FileError, match=problem):
        splitops.files.split(tmp_path / "x.npz", tmp_path / "out", num_outputs=2)
    assert not (tmp_path / "out").exists()


def test_a_damaged_deflated_member_is_found_out(tmp_path):
    np.savez_compressed(tmp_path / "x.npz", a=np.random.default_rng(0).integers(0, 9, 50_000))
    content = bytearray((tmp_path / "x.npz").read_bytes())
    content[60:160] = b"\xff" * 100
    (tmp_path / "x.npz").write_bytes(content)
    with pytest.raises(FileError, match=r"cannot read .*x\.npz:a'"):
        splitops.files.split(tmp_path / "x.npz", tmp_path / "out", num_outputs=2)
    assert not (tmp_path / "out").exists()


def test_a_member_over_another_is_rejected(tmp_path):
    np.savez_compressed(tmp_path / "x.npz", a=np.arange(9), b=np.arange(9))
    content = bytearray((tmp_path / "x.npz").read_bytes())
    [size] = struct.unpack_from("<I", content, content.index(b"PK\x01\x02") + 20)
    (tmp_path / "x.npz").write_bytes(damaged(content, b"PK\x01\x02", 20, size + 1))
    with pytest.raises(FileError, match="'b' overlaps another member"):
        splitops.files.open(tmp_path / "x.npz")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_archives_of_64_bits_are_those_of_numpy(tmp_path, save, monkeypatch):
    """Small ones stand for those of more than 2 GiB."""
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 1000)
    noise = np.random.default_rng(0).integers(0, 256, (40, 50), np.uint8)
    save(tmp_path / "x.npz", a=noise, b=np.arange(3), c=noise[::-1])
    made = splitops.files.split(
        tmp_path / "x.npz", tmp_path, tensor="a", num_outputs=2, keep_other_tensors=True
    )
    paths = [path for path, _ in made.files]
    splitops.files.merge(paths, tmp_path / "y.npz", tensor="a")
    assert (tmp_path / "y.npz").read_bytes() == (tmp_path / "x.npz").read_bytes()
    assert zipfile.ZipFile(paths[1]).testzip() is None
    np.testing.assert_array_equal(np.load(paths[1])["a"], noise[20:])


# raw


@pytest.mark.parametrize("name", ["float32", "bfloat16", "uint4", "uint3", "uint1", "float6_e2m3fn"])
def test_raw_bytes_split_and_merge(tmp_path, name):
    element_type = ELEMENT_TYPES[name]
    codes = np.arange(2 * 24 * 5).reshape(2, 24, 5) % (1 << min(element_type.bits, 6))
    array = codes.astype(np.uint8 if element_type.storage else element_type.numpy)
    (tmp_path / "x.bin").write_bytes(b"head" + pack(array, element_type) + b"tail")
    like = RawFormat((2, 24, 5), element_type, 4)
    operator = "VariadicSplit" if element_type.openvino else "Split"
    if element_type.onnx_number not in (1, 16) and not element_type.openvino:
        with pytest.raises(splitops.RuleError, match=r"type\.unsupported"):
            splitops.files.split(tmp_path / "x.bin", tmp_path, operator, axis=1, split=[8, 16], like=like)
        return
    lengths = "split_lengths" if operator == "VariadicSplit" else "split"
    made = splitops.files.split(
        tmp_path / "x.bin", tmp_path, operator, axis=1, like=like, **{lengths: [8, 16]}
    )
    paths = [path for path, _ in made.files]
    for path, want in zip(paths, np.split(array, [8], 1), strict=True):
        found = unpack(path.read_bytes(), element_type, want.shape)
        np.testing.assert_array_equal(found.view(np.uint8), want.view(np.uint8))
    splitops.files.merge(paths, tmp_path / "y.bin", axis=1, like=RawFormat((2, -1, 5), element_type))
    assert (tmp_path / "y.bin").read_bytes() == pack(array, element_type)


def test_a_cut_inside_of_a_packed_unit_is_rejected(tmp_path):
    (tmp_path / "x.bin").write_bytes(bytes(30))
    like = RawFormat((4, 15), ELEMENT_TYPES["uint4"])
    for arguments, problem in (
        ({"axis": 1, "split_lengths": [3, 12]}, "cannot be split along this axis"),
        ({"axis": 0, "split_lengths": [1, 3]}, "split at multiples of 2"),
    ):
        with pytest.raises(FileError, match=problem):
            splitops.files.split(tmp_path / "x.bin", tmp_path / "o", "VariadicSplit", like=like, **arguments)
    splitops.files.split(
        tmp_path / "x.bin", tmp_path / "o", "VariadicSplit", like=like, axis=0, split_lengths=[2, 2]
    )


@pytest.mark.parametrize(
    ("shape", "offset", "problem"),
    [
        ((4, 4), 0, "ends at byte 64"),
        ((3, 4), 1, "ends at byte 49"),
        ((-1, 5), 0, "no size for the -1"),
        ((-1, -1), 0, "no size for the -1"),
        ((-3, 4), 0, "-12 elements"),
        ((-3, -4), 0, "negative size"),
        ((-3, 0), 0, "negative size"),
        ((-3, -2, -1), 0, "negative size"),
    ],
)
def test_raw_shapes_that_do_not_fit_are_rejected(tmp_path, shape, offset, problem):
    (tmp_path / "x.bin").write_bytes(bytes(48))
    with pytest.raises(FileError, match=problem):
        splitops.files.open(tmp_path / "x.bin", RawFormat(shape, ELEMENT_TYPES["float32"], offset))


def test_lazy_raw_tensors_of_packed_types(tmp_path):
    codes = (np.arange(45) % 16).reshape(5, 9).astype(ml_dtypes.uint4)
    (tmp_path / "x.bin").write_bytes(pack(codes, ELEMENT_TYPES["uint4"]))
    tensor = splitops.files.open(tmp_path / "x.bin", RawFormat((5, 9), ELEMENT_TYPES["uint4"]))[""]
    for key in [(), (1,), (slice(1, 4), slice(2, 7)), (slice(None, None, 2), 3), (4, slice(8, 9))]:
        np.testing.assert_array_equal(np.asarray(tensor[key]).astype(int), codes[key].astype(int))


@pytest.mark.filterwarnings("ignore:Stored array in format")
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("name", ["名", "x" * 70 + "é", "x" * 71 + "日本", "x\x83名", "'\\名\n", "名" * 2000])
def test_names_of_fields_beyond_ascii(tmp_path, name, order):
    array = np.zeros((4, 3), [(name, "<i4"), ("b", "u1")], order)
    array[name] = np.arange(12).reshape(4, 3)
    doubled = np.asarray(np.concatenate([array, array]), order=order)
    np.save(tmp_path / "x.npy", array)
    np.savez(tmp_path / "x.npz", x=array)
    np.save(tmp_path / "wanted.npy", doubled)
    for source in (tmp_path / "x.npy", tmp_path / "x.npz"):
        splitops.files.merge([source, source], tmp_path / "y.npy", axis=0, overwrite=True)
        assert (tmp_path / "y.npy").read_bytes() == (tmp_path / "wanted.npy").read_bytes()
        splitops.files.merge([source, source], tmp_path / "y.npz", axis=0, overwrite=True)
        [made] = np.load(tmp_path / "y.npz").values()
        assert made.dtype == array.dtype
        np.testing.assert_array_equal(made, doubled)


@pytest.mark.parametrize(
    "text", [b"\xff", b"{'descr': '<i4', 'fortran_order': False, 'shape': (2,)", b"[" * 9000]
)
def test_malformed_headers_of_version_3(tmp_path, text):
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY\x03\x00" + len(text).to_bytes(4, "little") + text + bytes(8))
    with pytest.raises(FileError, match="the header is malformed"):
        splitops.files.open(tmp_path / "x.npy")


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_header_with_several_lines_ends_where_it_says(tmp_path, version):
    text = b"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}\n" + b" " * 20 + b"\n"
    head = b"\x93NUMPY" + bytes([version, 0]) + len(text).to_bytes(2 if version == 1 else 4, "little") + text
    (path := tmp_path / "x.npy").write_bytes(head + np.float32([1, 2]).tobytes())
    assert map_array(path).tolist() == np.load(path).tolist() == [1, 2]
    path.write_bytes(head[:-21] + b" " * 8)  # the "data" would be padding of the header
    with pytest.raises(FileError, match="the header is malformed"):
        map_array(path)
