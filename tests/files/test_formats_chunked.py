"""zarr, against zarr-python in both directions, and what it and HDF5 make of plain arrays."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
import zarr

import splitops
from splitops.errors import FileError

ARRAY = np.random.default_rng(0).standard_normal((60, 50, 4)).astype(np.float32)


@pytest.mark.parametrize(
    ("chunks", "shards"), [((60, 50, 4), None), ((7, 11, 3), None), ((5, 5, 2), (20, 10, 4))]
)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_zarr(tmp_path, chunks, shards, axis):
    made = zarr.create_array(
        tmp_path / "x.zarr",
        shape=ARRAY.shape,
        dtype=ARRAY.dtype,
        chunks=chunks,
        shards=shards,
        attributes={"unit": "m"},
        dimension_names=["a", "b", "c"],
    )
    made[...] = ARRAY
    tensor = splitops.files.open(tmp_path / "x.zarr")[""]
    np.testing.assert_array_equal(np.asarray(tensor[3:40:7, 2]), ARRAY[3:40:7, 2])
    report = splitops.files.split(tmp_path / "x.zarr", tmp_path / "out", axis=axis, num_outputs=2)
    paths = [path for path, _ in report.files]
    assert [path.name for path in paths] == ["x.0.zarr", "x.1.zarr"]
    for path, want in zip(paths, np.split(ARRAY, 2, axis), strict=True):
        part = zarr.open(path, mode="r")
        np.testing.assert_array_equal(part[...], want)
        assert part.attrs["unit"] == "m"
        assert part.metadata.dimension_names == ("a", "b", "c")
        narrow = [None if shape is None else list(shape) for shape in (chunks, shards)]
        for shape in filter(None, narrow):
            shape[axis] = min(shape[axis], want.shape[axis])
        assert [part.chunks, part.shards] == [shape and tuple(shape) for shape in narrow]
    splitops.files.merge(paths, tmp_path / "y.zarr", axis=axis)
    merged = zarr.open(tmp_path / "y.zarr", mode="r")
    np.testing.assert_array_equal(merged[...], ARRAY)
    assert (merged.chunks, merged.shards, dict(merged.attrs)) == (chunks, shards, {"unit": "m"})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "x.zarr", "y.zarr"]


def test_arrays_of_a_zarr_group(tmp_path):
    group = zarr.open_group(tmp_path / "g.zarr", mode="w")
    group.create_array("a/b", data=np.arange(12).reshape(3, 4))
    group.create_array("c", data=np.arange(3.0))
    assert {name: t.shape for name, t in splitops.files.open(tmp_path / "g.zarr").items()} == {
        "a/b": (3, 4),
        "c": (3,),
    }
    to = splitops.files.get_format("npy")
    report = splitops.files.split(tmp_path / "g.zarr", tmp_path, tensor="a/b", axis=1, num_outputs=2, to=to)
    found = [np.load(path).tolist() for path, _ in report.files]
    assert found == [[[0, 1], [4, 5], [8, 9]], [[2, 3], [6, 7], [10, 11]]]


@pytest.mark.filterwarnings("ignore:Consolidated metadata")
@pytest.mark.parametrize("what", ["shape", "chunks"])
def test_a_group_that_describes_an_array_otherwise_than_the_array_itself(tmp_path, what):
    group = zarr.open_group(tmp_path / "g.zarr", mode="w")
    group.create_array("a", shape=(4, 6), chunks=(2, 3), dtype="f4")[:] = np.ones((4, 6))
    zarr.consolidate_metadata(tmp_path / "g.zarr")
    path = tmp_path / "g.zarr" / "a" / "zarr.json"
    description = json.loads(path.read_text())
    if what == "shape":
        description["shape"] = [4, 4]
    else:
        description["chunk_grid"]["configuration"]["chunk_shape"] = [2, 2]
    path.write_text(json.dumps(description))
    with pytest.raises(FileError, match=r"differ between its zarr\.json and the metadata of its group"):
        splitops.files.split(tmp_path / "g.zarr", tmp_path / "out", tensor="a", axis=1, num_outputs=2)
    assert not any((tmp_path / "out").glob("*"))


def test_a_zarr_whose_chunk_is_damaged_is_one_error(tmp_path):
    from zarr.codecs import BytesCodec, Crc32cCodec

    made = zarr.create_array(
        tmp_path / "x.zarr",
        shape=(8,),
        dtype="i4",
        chunks=(4,),
        serializer=BytesCodec(),
        compressors=[Crc32cCodec()],
    )
    made[...] = np.arange(8)
    chunk = tmp_path / "x.zarr" / "c" / "1"
    content = bytearray(chunk.read_bytes())
    content[0] ^= 1
    chunk.write_bytes(content)
    with pytest.raises(FileError, match="cannot read"):
        splitops.files.split(tmp_path / "x.zarr", tmp_path / "out", num_outputs=2)
    assert not (tmp_path / "out").exists()
    (tmp_path / "x.zarr" / "zarr.json").write_text("{")
    with pytest.raises(FileError, match=r"x\.zarr"):
        splitops.files.open(tmp_path / "x.zarr")


def test_chunked_formats_take_plain_arrays(tmp_path):
    np.save(tmp_path / "x.npy", ARRAY)
    for name in ("hdf5", "zarr"):
        to = splitops.files.get_format(name)
        report = splitops.files.split(tmp_path / "x.npy", tmp_path / name, axis=1, num_outputs=2, to=to)
        for (path, _), want in zip(report.files, np.split(ARRAY, 2, 1), strict=True):
            [tensor] = splitops.files.open(path).values()
            np.testing.assert_array_equal(np.asarray(tensor), want)


def test_an_error_while_a_part_is_encoded_leaves_nothing(tmp_path):
    np.save(tmp_path / "x.npy", ARRAY)
    to = splitops.files.get_format("zarr")
    plan = splitops.files.plan_split(tmp_path / "x.npy", tmp_path, axis=1, num_outputs=2, to=to)
    finish, *others = plan.finishes

    def stopped(paths):
        finish.complete(paths)
        raise ZeroDivisionError

    object.__setattr__(plan, "finishes", (finish._replace(complete=stopped), *others))
    with pytest.raises(ZeroDivisionError):
        plan.run()
    assert [path.name for path in tmp_path.iterdir()] == ["x.npy"]


def test_boxes_cover_any_shape():
    from splitops.files.boxes import iter_boxes

    for shape, chunk in itertools.product([(), (5,), (5, 0), (3, 4, 5)], [1, 2, 7]):
        hit = np.zeros(shape, int)
        for box in iter_boxes(shape, (chunk,) * len(shape)):
            hit[box] += 1
        assert (hit == 1).all()
