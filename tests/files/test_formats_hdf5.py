"""HDF5: against h5py, in both directions."""

from __future__ import annotations

import h5py
import numpy as np
import pytest

import splitops
from splitops.errors import FileError
from splitops.files import chunk_tasks
from splitops.files.chunks import ChunkCopies

ARRAY = np.random.default_rng(0).integers(0, 1000, (12, 21, 5)).astype(np.int32)
STORAGES = {
    "contiguous": {},
    "chunked": {"chunks": (5, 4, 5)},
    "deflated": {"chunks": (12, 4, 3), "compression": "gzip", "shuffle": True},
    "checked": {"chunks": (12, 4, 3), "fletcher32": True},
    "growing": {"chunks": (5, 32, 5), "maxshape": (None, None, 5)},
    "big-endian": {"dtype": ">i4"},
}


def saved(path, **options):
    with h5py.File(path, "w") as file:
        file.attrs["who"] = "us"
        file.create_dataset("layer/w", data=ARRAY, **options).attrs["unit"] = "K"
        file["layer"].attrs["number"] = np.arange(3)
        file["layer/w"].attrs["itself"] = file["layer/w"].ref
    return path


def loaded(path, name="layer/w"):
    with h5py.File(path, "r") as file:
        return file[name][...]


@pytest.mark.parametrize("sizes", [(8, 8, 5), (3, 11, 7), (16, 5, 0)])
@pytest.mark.parametrize("storage", STORAGES)
def test_split_and_merge(tmp_path, storage, sizes):
    source = saved(tmp_path / "x.h5", **STORAGES[storage])
    made = splitops.files.split(
        source, tmp_path / "parts", axis=1, split=list(sizes), verify=True, memory=4 << 20
    )
    parts = [path for path, _ in made.files]
    for path, want in zip(parts, np.split(ARRAY, np.cumsum(sizes)[:-1], 1), strict=True):
        with h5py.File(path, "r") as file, h5py.File(source, "r") as whole:
            found, old = file["layer/w"], whole["layer/w"]
            np.testing.assert_array_equal(found[...], want)
            assert (found.dtype, dict(found.attrs), file.attrs["who"]) == (old.dtype, {"unit": "K"}, "us")
            assert list(file["layer"].attrs["number"]) == [0, 1, 2]
            if want.size:
                assert (found.compression, found.shuffle, found.fletcher32) == (
                    old.compression,
                    old.shuffle,
                    old.fletcher32,
                )
    splitops.files.merge(parts, tmp_path / "y.h5", axis=1, verify=True)
    np.testing.assert_array_equal(loaded(tmp_path / "y.h5"), ARRAY)
    with h5py.File(tmp_path / "y.h5", "r") as file, h5py.File(source, "r") as whole:
        assert file["layer/w"].chunks == whole["layer/w"].chunks
        assert file["layer/w"].maxshape == whole["layer/w"].maxshape


def test_contiguous_datasets_are_extents(tmp_path):
    plan = splitops.files.plan_split(saved(tmp_path / "x.h5"), tmp_path, axis=1, num_outputs=3)
    assert not isinstance(plan.copies, ChunkCopies)
    assert sum(extent.bytes for extent in plan.extents) == ARRAY.nbytes
    assert [target.size for target in plan.targets] == [size for _, size in plan.run().files]


def test_a_file_behind_a_user_block(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w", userblock_size=512) as file:
        file["w"] = ARRAY
    (path, _), _ = splitops.files.split(tmp_path / "x.h5", tmp_path, num_outputs=2).files
    np.testing.assert_array_equal(loaded(path, "w"), ARRAY[:6])


def test_the_same_request_is_the_same_file(tmp_path):
    source = saved(tmp_path / "x.h5")
    plans = [splitops.files.plan_split(source, tmp_path, num_outputs=2) for _ in range(2)]
    assert plans[0].targets == plans[1].targets


@pytest.mark.parametrize("storage", ["chunked", "deflated"])
def test_aligned_chunks_are_copied(tmp_path, storage, monkeypatch):
    source = saved(tmp_path / "x.h5", **STORAGES[storage])
    monkeypatch.setattr(chunk_tasks._Sources, "read_elements", lambda *_: pytest.fail("a chunk was decoded"))
    made = splitops.files.split(source, tmp_path, axis=1, split=[8, 13], verify=True)
    for (path, _), want in zip(made.files, np.split(ARRAY, [8], 1), strict=True):
        np.testing.assert_array_equal(loaded(path), want)
    with pytest.raises(pytest.fail.Exception, match="was decoded"):
        splitops.files.split(source, tmp_path / "out", axis=1, split=[7, 14])


def test_a_chunk_without_its_filters_stays_so(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        made = file.create_dataset("w", (4, 4), "i4", chunks=(2, 4), compression="gzip", fillvalue=9)
        made.id.write_direct_chunk((2, 0), np.arange(8, dtype="i4").tobytes(), 1)
    paths = [
        path
        for path, _ in splitops.files.split(tmp_path / "x.h5", tmp_path, num_outputs=2, verify=True).files
    ]
    np.testing.assert_array_equal(loaded(paths[0], "w"), np.full((2, 4), 9))
    np.testing.assert_array_equal(loaded(paths[1], "w"), np.arange(8).reshape(2, 4))


def mixed(path):
    with h5py.File(path, "w") as file:
        file["a"] = ARRAY
        file["scalar"] = 3.0
        file["none"] = np.zeros((0, 3))
        file.create_dataset("b", data=ARRAY[0], chunks=(4, 5))
        file.create_dataset("unwritten", (3, 2), "f8", fillvalue=2)
        file.create_dataset("odd", data=np.arange(4), dtype=h5py.h5t.STD_I32LE.copy())
        file.create_dataset("flags", data=np.arange(6) % 2 == 0)
    return path


@pytest.mark.parametrize("name", ["a", "b"])
def test_other_datasets_are_kept(tmp_path, name):
    source = mixed(tmp_path / "x.h5")
    found = {key: np.asarray(tensor) for key, tensor in splitops.files.open(source).items()}
    with h5py.File(source, "r") as file:
        assert set(found) == set(file)
        for key, array in found.items():
            np.testing.assert_array_equal(array, file[key][...])
            assert array.dtype == file[key].dtype
    made = splitops.files.split(
        source, tmp_path, tensor=name, num_outputs=2, axis=1, keep_other_tensors=True, verify=True
    )
    paths = [path for path, _ in made.files]
    size = -(-found[name].shape[1] // 2)
    for path, want in zip(paths, np.split(found[name], [size], 1), strict=True):
        for key in found:
            np.testing.assert_array_equal(loaded(path, key), want if key == name else found[key])
    splitops.files.merge(paths, tmp_path / "y.h5", axis=1, tensor=name)
    for key, array in found.items():
        np.testing.assert_array_equal(loaded(tmp_path / "y.h5", key), array)


def test_lazily_read_chunks(tmp_path):
    source = saved(tmp_path / "x.h5", **STORAGES["deflated"])
    tensor = splitops.files.open(source)["layer/w"]
    np.testing.assert_array_equal(np.asarray(tensor[3, 2:20:4]), ARRAY[3, 2:20:4])


@pytest.mark.parametrize("kind", ["link", "storage", "virtual"])
def test_what_is_in_other_files_is_rejected(tmp_path, kind):
    saved(tmp_path / "other.h5")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["a"] = ARRAY
        if kind == "link":
            file["group/b"] = h5py.ExternalLink("other.h5", "/layer/w")
        elif kind == "storage":
            file.create_dataset("b", (4,), "u1", external=[(str(tmp_path / "other.h5"), 0, 4)])
        else:
            layout = h5py.VirtualLayout(ARRAY.shape, "i4")
            layout[...] = h5py.VirtualSource(tmp_path / "other.h5", "layer/w", ARRAY.shape)
            file.create_virtual_dataset("b", layout)
    with pytest.raises(FileError, match=r"another file|other files"):
        splitops.files.split(tmp_path / "x.h5", tmp_path, tensor="a", num_outputs=2)


def test_what_is_no_array_is_left_alone(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["a"] = ARRAY
        file["text"] = "hello"
        file["same"] = h5py.SoftLink("/a")
        file["empty"] = h5py.Empty("f4")
    assert list(splitops.files.open(tmp_path / "x.h5")) == ["a"]
    splitops.files.split(tmp_path / "x.h5", tmp_path, num_outputs=2)
    with h5py.File(tmp_path / "y.h5", "w") as file:
        file["a"], file["b"], file["text"] = ARRAY, 1, "hello"
    with pytest.raises(FileError, match="'text'"):
        splitops.files.split(
            tmp_path / "y.h5", tmp_path / "out", tensor="a", num_outputs=2, keep_other_tensors=True
        )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("chunks", [None, (4, 21, 5)])
def test_soft_links_are_kept_with_other_datasets(tmp_path, chunks):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("a", data=ARRAY, chunks=chunks)
        file["b"], file["g/same"] = 1, h5py.SoftLink("/b")
    made = splitops.files.split(
        tmp_path / "x.h5", tmp_path, tensor="a", num_outputs=2, keep_other_tensors=True
    )
    for path, _ in made.files:
        with h5py.File(path, "r") as file:
            assert file["g"].get("same", getlink=True).path == "/b"
            assert file["g/same"][...] == 1
    with h5py.File(tmp_path / "x.h5", "a") as file:
        file["text"] = "hello"
    with pytest.raises(FileError, match=r"^'.*x\.h5' has datasets of types that cannot be copied: 'text'"):
        splitops.files.split(
            tmp_path / "x.h5", tmp_path / "out", tensor="a", num_outputs=2, keep_other_tensors=True
        )
    assert not (tmp_path / "out").exists()


def test_attributes_are_kept_but_for_references(tmp_path):
    pair = np.array((1, 2.5), [("x", "i4"), ("y", "f8")])
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["w"] = ARRAY
        given = file["w"].attrs
        given["text"], given["pair"] = "hello", pair
        ragged = np.array([np.arange(3), np.arange(2)], object)
        given.create("ragged", ragged, dtype=h5py.vlen_dtype(np.int32))
        given.create("none", [], (0,), h5py.vlen_dtype(h5py.ref_dtype))
        given["places"] = np.array((file["w"].ref, 1), [("at", h5py.ref_dtype), ("n", "i4")])
    (path, _), _ = splitops.files.split(tmp_path / "x.h5", tmp_path, num_outputs=2).files
    with h5py.File(path, "r") as file:
        found = dict(file["w"].attrs)
    assert found.keys() == {"text", "pair", "ragged"}
    assert (found["text"], found["pair"]) == ("hello", pair)
    assert [each.tolist() for each in found["ragged"]] == [[0, 1, 2], [0, 1]]


def test_a_dataset_beyond_the_end_is_rejected(tmp_path):
    source = tmp_path / "x.h5"
    with h5py.File(source, "w") as file:
        file["w"] = ARRAY
        at = file["w"].id.get_offset()
    content, stated = source.read_bytes(), at.to_bytes(8, "little") + ARRAY.nbytes.to_bytes(8, "little")
    assert content.count(stated) == 1
    source.write_bytes(content.replace(stated, (at + 8).to_bytes(8, "little") + stated[8:]))
    with pytest.raises(FileError, match=r"x\.h5.*(ends at byte|invalid dataset size)"):
        splitops.files.open(source)


def test_damaged_files_are_one_error(tmp_path):
    source = saved(tmp_path / "x.h5", **STORAGES["checked"])
    content = source.read_bytes()
    for damaged in (b"", b"nothing", content[: len(content) // 2], content[:100]):
        source.write_bytes(damaged)
        with pytest.raises(FileError, match=r"x\.h5"):
            splitops.files.open(source)
    with h5py.File(saved(source, **STORAGES["checked"]), "r") as file:
        at = file["layer/w"].id.get_chunk_info(3).byte_offset
    content = bytearray(source.read_bytes())
    content[at + 5] ^= 1
    source.write_bytes(content)
    with pytest.raises(FileError, match=r"cannot read .*x\.h5"):
        splitops.files.split(source, tmp_path / "out", axis=1, split=[8, 13])
    assert not (tmp_path / "out").exists()
    (tmp_path / "folder.h5").mkdir()
    with pytest.raises(FileError, match=r"is a directory|not a regular file"):
        splitops.files.open(tmp_path / "folder.h5")


def test_a_run_that_was_stopped_begins_again(tmp_path, monkeypatch):
    source = saved(tmp_path / "x.h5", **STORAGES["chunked"])

    class Killed(BaseException):
        pass

    def stop(done: int, total: int) -> None:
        if done > total // 2:
            raise Killed

    with monkeypatch.context() as kept:
        kept.setattr("splitops.common.atomic_write.StagedFiles.clean", lambda _: None)  # as a kill leaves it
        with pytest.raises(Killed):
            splitops.files.split(source, tmp_path / "out", axis=1, split=[3, 18], progress=stop)
    report = splitops.files.split(source, tmp_path / "out", axis=1, split=[3, 18], resume=True, verify=True)
    assert report.resumed == 0
    for (path, _), want in zip(report.files, np.split(ARRAY, [3], 1), strict=True):
        np.testing.assert_array_equal(loaded(path), want)
