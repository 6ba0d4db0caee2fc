"""The chunks of zarr 3, against zarr-python: those that are copied as they are, and those that are not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import zarr
from click.testing import CliRunner
from zarr.codecs import BytesCodec, Crc32cCodec, ShardingCodec, TransposeCodec, ZstdCodec

import splitops
from splitops.cli import cli
from splitops.errors import FileError
from splitops.files import chunk_tasks, folder_run
from splitops.files import chunks as by_chunks
from splitops.files.sources import LocalFolder

ARRAY = np.random.default_rng(0).integers(0, 1000, (12, 21, 5)).astype(np.int32)
CODINGS = {
    "plain": {"chunks": (5, 4, 5), "compressors": None},
    "compressed": {"chunks": (5, 4, 3)},
    "checked": {"chunks": (4, 4, 5), "compressors": [ZstdCodec(), Crc32cCodec()]},
    "sharded": {"shards": (4, 8, 6), "chunks": (2, 4, 3), "compressors": [Crc32cCodec()]},
    "sharded, unchecked": {
        "chunks": (4, 8, 6),
        "serializer": ShardingCodec(chunk_shape=(2, 4, 3), index_codecs=[BytesCodec()]),
        "compressors": None,
    },
    "big-endian": {"chunks": (12, 4, 5), "serializer": BytesCodec(endian="big")},
    "v2 keys": {"chunks": (12, 4, 5), "chunk_key_encoding": {"name": "v2", "separator": "."}},
    "one chunk": {"chunks": (12, 21, 5)},
}


def saved(path, array=ARRAY, **options):
    made = zarr.create_array(
        path, shape=array.shape, dtype=array.dtype, attributes={"unit": "K"}, fill_value=7, **options
    )
    made[...] = array
    return path


RECORDS = "splitops.chunks_before_split"


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("sizes", [(8, 8, 5), (3, 11, 7), (0, 21, 0)])
@pytest.mark.parametrize("coding", CODINGS)
def test_split_and_merge(tmp_path, coding, sizes):
    source = saved(tmp_path / "x.zarr", **CODINGS[coding])
    made = splitops.files.split(source, tmp_path / "parts", axis=1, split=list(sizes), verify=True)
    parts = [path for path, _ in made.files]
    assert [path.name for path in parts] == ["x.0.zarr", "x.1.zarr", "x.2.zarr"]
    for path, want in zip(parts, np.split(ARRAY, np.cumsum(sizes)[:-1], 1), strict=True):
        found = zarr.open_array(path, mode="r")
        np.testing.assert_array_equal(found[...], want)
        whole = zarr.open_array(source, mode="r")
        attributes = dict(found.attrs)
        record = attributes.pop(RECORDS, None)
        assert (found.fill_value, attributes) == (7, {"unit": "K"})
        if record is None:
            assert (found.chunks, found.shards) == (whole.chunks, whole.shards)
        else:
            levels = [list(shape) for shape in (whole.shards, whole.chunks) if shape]
            assert record == [{"axis": 1, "chunk_shapes": levels}]
            assert found.chunks[1] <= max(1, want.shape[1])
    splitops.files.merge(parts, tmp_path / "y.zarr", axis=1, verify=True)
    merged, original = files_in(tmp_path / "y.zarr"), files_in(source)
    assert json.loads(merged.pop("zarr.json")) == json.loads(original.pop("zarr.json"))
    if coding != "sharded":  # zarr-python may write the chunks of a shard in another order
        assert merged == original
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "y.zarr", mode="r")[...], ARRAY)


@pytest.mark.parametrize("coding", [n for n in CODINGS if n not in ("one chunk", "sharded, unchecked")])
def test_aligned_parts_are_copied_as_chunks(tmp_path, coding, monkeypatch):
    source = saved(tmp_path / "x.zarr", **CODINGS[coding])
    array = zarr.open_array(source, mode="r")
    monkeypatch.setattr(chunk_tasks._Sources, "read_elements", lambda *_: pytest.fail("a chunk was decoded"))
    step = (array.shards or array.chunks)[1]
    made = splitops.files.split(source, tmp_path, "SplitToSequence", axis=1, split=step, verify=True)
    parts = [path for path, _ in made.files]
    splitops.files.merge(parts, tmp_path / "y.zarr", axis=1, verify=True)
    assert {n: b for n, b in files_in(source).items() if n != "zarr.json"} == {
        n: b for n, b in files_in(tmp_path / "y.zarr").items() if n != "zarr.json"
    }


@pytest.mark.parametrize(
    ("options", "chunks", "shards"),
    [
        ({"chunks": (5, 16, 5), "compressors": None}, (5, 3, 5), None),
        (
            {"chunks": (5, 16, 5), "serializer": BytesCodec(endian="big"), "compressors": None},
            (5, 3, 5),
            None,
        ),
        ({"shards": (5, 16, 5), "chunks": (5, 8, 5), "compressors": None}, (5, 3, 5), (5, 3, 5)),
        ({"shards": (5, 16, 5), "chunks": (5, 2, 5), "compressors": None}, (5, 2, 5), (5, 4, 5)),
    ],
)
def test_a_part_narrower_than_a_chunk_is_stored_without_padding(tmp_path, options, chunks, shards):
    source = saved(tmp_path / "x.zarr", **options)
    files = splitops.files.split(source, tmp_path, axis=1, split=[3, 17, 1], verify=True).files
    parts = [path for path, _ in files]
    found = zarr.open_array(parts[0], mode="r")
    assert (found.chunks, found.shards) == (chunks, shards)
    if shards is None:
        assert (parts[0] / "c/0/0/0").stat().st_size == 5 * 3 * 5 * 4
    splitops.files.merge(parts, tmp_path / "y.zarr", axis=1, verify=True)
    assert files_in(tmp_path / "y.zarr") == files_in(source)


def test_parts_of_parts_are_merged_into_the_parts_that_they_were(tmp_path):
    source = saved(tmp_path / "x.zarr", chunks=(8, 16, 5))
    [(first, _), (last, _)] = splitops.files.split(source, tmp_path, axis=1, split=[7, 14]).files
    for axis, split in ((1, [2, 5]), (1, [0, 7]), (1, [7, 0]), (0, [3, 9]), (0, [8, 4])):
        files = splitops.files.split(first, tmp_path, axis=axis, split=split, overwrite=True).files
        splitops.files.merge([path for path, _ in files], tmp_path / "p.zarr", axis=axis, overwrite=True)
        assert files_in(tmp_path / "p.zarr") == files_in(first)
    splitops.files.merge([tmp_path / "p.zarr", last], tmp_path / "y.zarr", axis=1)
    assert files_in(tmp_path / "y.zarr") == files_in(source)


def test_narrow_parts_of_shards_in_shards(tmp_path):
    inner = ShardingCodec(chunk_shape=(2, 2), codecs=[BytesCodec()])
    outer = ShardingCodec(chunk_shape=(4, 4), codecs=[inner])
    source = tmp_path / "x.zarr"
    options = {"chunks": (8, 8), "dtype": "i4", "serializer": outer, "compressors": None}
    zarr.create_array(source, shape=(8, 16), **options)[...] = np.arange(128).reshape(8, 16)
    parts = [path for path, _ in splitops.files.split(source, tmp_path, axis=1, split=[1, 3, 12]).files]
    assert [zarr.open_array(path, mode="r").metadata.chunk_grid.chunk_shape for path in parts] == [
        (8, 1),
        (8, 4),
        (8, 8),
    ]
    splitops.files.merge(parts, tmp_path / "y.zarr", axis=1, verify=True)
    np.testing.assert_array_equal(
        zarr.open_array(tmp_path / "y.zarr", mode="r")[...], zarr.open_array(source)[...]
    )
    assert json.loads((tmp_path / "y.zarr/zarr.json").read_text()) == json.loads(
        (source / "zarr.json").read_text()
    )


def test_shards_behind_a_transposition_keep_their_shape(tmp_path):
    sharding = ShardingCodec(chunk_shape=(4, 4, 2))
    options = {"chunks": (4, 8, 4), "serializer": sharding, "filters": [TransposeCodec(order=(2, 1, 0))]}
    source = saved(tmp_path / "x.zarr", compressors=None, **options)
    parts = [path for path, _ in splitops.files.split(source, tmp_path, axis=1, split=[3, 18]).files]
    np.testing.assert_array_equal(zarr.open_array(parts[0], mode="r")[...], ARRAY[:, :3])
    splitops.files.merge(parts, tmp_path / "y.zarr", axis=1, verify=True)
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "y.zarr", mode="r")[...], ARRAY)


LIES = [
    {},
    [1],
    [{"axis": 1}],
    [{"axis": True, "chunk_shapes": [[5, 16, 5]]}],
    [{"axis": 3, "chunk_shapes": [[5, 16, 5]]}],
    [{"axis": 1, "chunk_shapes": [[5, 16]]}],
    [{"axis": 1, "chunk_shapes": [[5, 2, 5]]}],
    [{"axis": 1, "chunk_shapes": [[5, 16.0, 5]]}],
    [{"axis": 1, "chunk_shapes": [[6, 16, 5]]}],
    [{"axis": 1, "chunk_shapes": [[5, 16, 5], [5, 16, 5]]}],
    [{"axis": 1, "chunk_shapes": [[5, 1 << 62, 5]]}],
]


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_about_the_chunks_before_a_split_is_one_error(tmp_path, lie):
    source = saved(tmp_path / "x.zarr", chunks=(5, 16, 5))
    parts = [path for path, _ in splitops.files.split(source, tmp_path, axis=1, split=[3, 18]).files]
    described = json.loads((parts[0] / "zarr.json").read_text())
    described["attributes"][RECORDS] = lie
    (parts[0] / "zarr.json").write_text(json.dumps(described))
    with pytest.raises(
        FileError, match=r"x\.0\.zarr.*chunks_before_split does not match|bytes of memory are not enough"
    ):
        splitops.files.merge(parts, tmp_path / "y.zarr", axis=1)
    assert not (tmp_path / "y.zarr").exists()


@pytest.mark.parametrize("dtype", ["<i4", ">i4"])
def test_narrow_parts_of_zarr_2(tmp_path, dtype):
    options = {"chunks": (4, 16, 5), "zarr_format": 2}
    zarr.create_array(tmp_path / "x.zarr", shape=ARRAY.shape, dtype=dtype, **options)[...] = ARRAY
    files = splitops.files.split(tmp_path / "x.zarr", tmp_path, axis=1, split=[3, 18], verify=True).files
    parts = [path for path, _ in files]
    assert [zarr.open_array(path, mode="r").chunks for path in parts] == [(4, 3, 5), (4, 16, 5)]
    splitops.files.merge(parts, tmp_path / "y.zarr", axis=1, verify=True)
    merged = zarr.open_array(tmp_path / "y.zarr", mode="r")
    np.testing.assert_array_equal(merged[...], ARRAY)
    assert (merged.chunks, dict(merged.attrs)) == ((4, 16, 5), {})


def test_narrow_parts_and_arrays_of_zarr_2_are_merged(tmp_path):
    """A merge that goes through plain bytes restores the chunks, too."""
    options = {"chunks": (4, 16, 5), "zarr_format": 2}
    zarr.create_array(tmp_path / "x.zarr", shape=ARRAY.shape, dtype="i4", **options)[...] = ARRAY
    [(part, _), _] = splitops.files.split(tmp_path / "x.zarr", tmp_path, axis=1, split=[3, 18]).files
    splitops.files.merge([part, tmp_path / "x.zarr"], tmp_path / "y.zarr", axis=1)
    merged = zarr.open_array(tmp_path / "y.zarr", mode="r")
    np.testing.assert_array_equal(merged[...], np.concatenate([ARRAY[:, :3], ARRAY], 1))
    assert (merged.chunks, dict(merged.attrs)) == ((4, 16, 5), {})
    described = json.loads((part / "zarr.json").read_text())
    described["attributes"][RECORDS] = [{"axis": 1, "chunk_shapes": [[4, 1 << 40, 5]]}]
    (part / "zarr.json").write_text(json.dumps(described))
    with pytest.raises(FileError, match=r"x\.0\.zarr.*its chunks before the split had"):
        splitops.files.merge([part, tmp_path / "x.zarr"], tmp_path / "z.zarr", axis=1)


def test_other_chunks_are_coded_anew(tmp_path, monkeypatch):
    """The test above can fail: the same watch sees the chunks of parts that are not aligned."""
    source = saved(tmp_path / "x.zarr", **CODINGS["plain"])
    monkeypatch.setattr(chunk_tasks._Sources, "read_elements", lambda *_: pytest.fail("a chunk was decoded"))
    with pytest.raises(pytest.fail.Exception, match="was decoded"):
        splitops.files.split(source, tmp_path, axis=1, split=[3, 18])


def test_chunks_of_other_codings_are_merged(tmp_path):
    a = saved(tmp_path / "a.zarr", ARRAY[:8], **CODINGS["checked"])
    b = saved(tmp_path / "b.zarr", ARRAY[8:], **CODINGS["sharded"])
    splitops.files.merge([a, b], tmp_path / "y.zarr", verify=True)
    found = zarr.open_array(tmp_path / "y.zarr", mode="r")
    np.testing.assert_array_equal(found[...], ARRAY)
    assert found.chunks == (4, 4, 5)


def test_an_empty_axis_may_have_chunks_of_nothing(tmp_path):
    empty = zarr.create_array(tmp_path / "a.zarr", shape=(0, 5), dtype=np.int32, chunks=(0, 2))
    assert empty.chunks == (0, 2)
    made = splitops.files.split(tmp_path / "a.zarr", tmp_path / "parts", axis=1, num_outputs=2, verify=True)
    assert [zarr.open_array(path, mode="r").shape for path, _ in made.files] == [(0, 3), (0, 2)]
    b = saved(tmp_path / "b.zarr", ARRAY[:3, :5, 0], chunks=(1, 2))
    splitops.files.merge([tmp_path / "a.zarr", b], tmp_path / "y.zarr", axis=0, verify=True)
    found = zarr.open_array(tmp_path / "y.zarr", mode="r")
    np.testing.assert_array_equal(found[...], ARRAY[:3, :5, 0])
    assert found.chunks == (1, 2)


def test_chunks_that_are_not_stored_are_fill_values(tmp_path):
    source = tmp_path / "x.zarr"
    made = zarr.create_array(source, shape=(8, 8), chunks=(2, 2), dtype="f4", fill_value=3)
    made[2:4, 2:4] = 5
    parts = [path for path, _ in splitops.files.split(source, tmp_path, split=[4, 4], verify=True).files]
    assert sorted(files_in(parts[0])) == ["c/1/1", "zarr.json"]
    assert sorted(files_in(parts[1])) == ["zarr.json"]
    np.testing.assert_array_equal(zarr.open_array(parts[1], mode="r")[...], np.full((4, 8), 3))
    other = zarr.create_array(tmp_path / "o.zarr", shape=(2, 8), chunks=(2, 2), dtype="f4", fill_value=0)
    assert other.fill_value == 0
    splitops.files.merge([tmp_path / "o.zarr", parts[0]], tmp_path / "y.zarr")
    want = np.concatenate([np.zeros((2, 8)), made[:4]])
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "y.zarr", mode="r")[...], want)


def test_a_shard_may_lack_chunks(tmp_path):
    source = tmp_path / "x.zarr"
    options = {"shards": (4, 4), "chunks": (2, 2), "compressors": [Crc32cCodec()]}
    made = zarr.create_array(source, shape=(8, 4), dtype="f4", fill_value=3, **options)
    made[2:4, :2] = 5
    first, second = (path for path, _ in splitops.files.split(source, tmp_path, num_outputs=2).files)
    assert (first / "c/0/0").read_bytes() == (source / "c/0/0").read_bytes()
    np.testing.assert_array_equal(zarr.open_array(first, mode="r")[...], made[:4])
    np.testing.assert_array_equal(zarr.open_array(second, mode="r")[...], np.full((4, 4), 3))


def test_a_folder_has_no_bytes_of_its_own(tmp_path):
    source = LocalFolder(saved(tmp_path / "x.zarr", **CODINGS["plain"]))
    assert source.size == sum(map(len, files_in(tmp_path / "x.zarr").values()))
    assert source.find_local() is None
    with pytest.raises(FileError, match=r"x\.zarr' is a folder"):
        source.read(0, 1)


@pytest.mark.filterwarnings("ignore:The data type")
def test_items_of_many_fields_become_npy(tmp_path):
    """Its header is longer than version 1 of the format can say."""
    dtype = np.dtype([(f"{number:020}", "u1") for number in range(2000)])
    made = zarr.create_array(tmp_path / "x.zarr", shape=(4,), dtype=dtype, chunks=(2,))
    made[...] = np.arange(8000).astype("u1").view(dtype)
    to = splitops.files.get_format("npy")
    splitops.files.merge([tmp_path / "x.zarr"], tmp_path / "y.npy", to=to)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy", max_header_size=1 << 20), made[...])


def test_arrays_of_texts_are_left_alone(tmp_path):
    group = zarr.create_group(tmp_path / "g.zarr")
    group.create_array("a", data=np.arange(3))
    group.create_array("text", shape=(3,), dtype=str)
    assert list(splitops.files.open(tmp_path / "g.zarr")) == ["a"]


def test_groups(tmp_path):
    group = zarr.create_group(tmp_path / "g.zarr", attributes={"who": "us"})
    group.create_array("layer/w", shape=ARRAY.shape, dtype="i4", chunks=(4, 4, 5))[...] = ARRAY
    group.create_array("b", shape=(3,), dtype="f8", chunks=(2,))[...] = np.arange(3)
    group.create_array("s", shape=(), dtype="f8", chunks=())[...] = 4
    zarr.consolidate_metadata(tmp_path / "g.zarr")
    found = splitops.files.open(tmp_path / "g.zarr")
    assert {name: tensor.shape for name, tensor in found.items()} == {
        "layer/w": ARRAY.shape,
        "b": (3,),
        "s": (),
    }
    for keep in (False, True):
        made = splitops.files.split(
            tmp_path / "g.zarr",
            tmp_path / str(keep),
            tensor="layer/w",
            num_outputs=2,
            keep_other_tensors=keep,
        )
        paths = [path for path, _ in made.files]
        for path, want in zip(paths, np.split(ARRAY, 2), strict=True):
            part = zarr.open_group(path, mode="r")
            np.testing.assert_array_equal(part["layer/w"][...], want)
            assert dict(part.attrs) == {"who": "us"}
            assert ("b" in part, "s" in part) == (keep, keep)
            if keep:
                np.testing.assert_array_equal(part["b"][...], np.arange(3))
                assert part["s"][...] == 4
        splitops.files.merge(paths, tmp_path / f"{keep}.zarr", tensor="layer/w")
        np.testing.assert_array_equal(
            zarr.open_group(tmp_path / f"{keep}.zarr", mode="r")["layer/w"][...], ARRAY
        )


def test_reading_lazily_is_slicing(tmp_path):
    tensor = splitops.files.open(saved(tmp_path / "x.zarr", **CODINGS["sharded"]))[""]
    for key in (..., 3, (slice(2, 9, 3), 4), (..., slice(1, 3)), (1, 2, 3), (slice(4, 4),)):
        np.testing.assert_array_equal(np.asarray(tensor[key]), ARRAY[key])
    for part, want in zip(
        splitops.onnx.split(tensor, [10, 11], axis=1), np.split(ARRAY, [10], 1), strict=True
    ):
        np.testing.assert_array_equal(np.asarray(part), want)


@pytest.mark.parametrize("dtype", ["bool", "float16", "complex64", ">i4"])
def test_types(tmp_path, dtype):
    array = np.arange(24).astype(dtype).reshape(4, 6)
    saved(tmp_path / "x.zarr", array, chunks=(4, 4))
    made = splitops.files.split(tmp_path / "x.zarr", tmp_path, axis=1, split=[3, 3], verify=True)
    found = [zarr.open_array(path, mode="r")[...] for path, _ in made.files]
    np.testing.assert_array_equal(np.concatenate(found, 1), array)


def test_types_that_no_operator_takes_are_merged(tmp_path):
    array = np.arange(24).astype("i8").astype("M8[s]").reshape(4, 6)
    paths = [saved(tmp_path / f"{i}.zarr", array[i::2], chunks=(4, 4)) for i in range(2)]
    with pytest.raises(splitops.RuleError, match=r"type\.unsupported"):
        splitops.files.split(paths[0], tmp_path / "out", axis=1, split=[3, 3])
    splitops.files.merge(paths, tmp_path / "y.zarr", verify=True)
    want = np.concatenate([array[::2], array[1::2]])
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "y.zarr", mode="r")[...], want)


@pytest.mark.parametrize("coding", ["checked", "sharded"])
@pytest.mark.parametrize("aligned", [True, False])
def test_a_damaged_chunk_is_rejected(tmp_path, coding, aligned):
    source = saved(tmp_path / "x.zarr", **CODINGS[coding])
    chunk = source / "c/1/0/0"
    good = chunk.read_bytes()
    for at in (0, len(good) // 2, len(good) - 1):
        chunk.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        with pytest.raises(FileError, match=r"c/1/0/0|x\.zarr"):
            splitops.files.split(source, tmp_path / "out", split=[8, 4] if aligned else [7, 5])
        assert not (tmp_path / "out").exists()
    chunk.write_bytes(good[:-7])
    with pytest.raises(FileError):
        splitops.files.split(source, tmp_path / "out", split=[8, 4] if aligned else [7, 5])


def test_shards_in_shards_are_proved(tmp_path):
    inner = ShardingCodec(chunk_shape=(2, 2), codecs=[BytesCodec(), Crc32cCodec()])
    for location in ("start", "end"):
        source = tmp_path / f"{location}.zarr"
        outer = ShardingCodec(chunk_shape=(4, 4), codecs=[inner], index_location=location)
        made = zarr.create_array(
            source, shape=(8, 16), chunks=(8, 8), dtype="i4", serializer=outer, compressors=None
        )
        made[...] = np.arange(128).reshape(8, 16)
        files = splitops.files.split(source, tmp_path, axis=1, num_outputs=2).files
        assert (files[1][0] / "c/0/0").read_bytes() == (source / "c/0/1").read_bytes()
        shard = bytearray((source / "c/0/1").read_bytes())
        shard[300] ^= 1
        (source / "c/0/1").write_bytes(shard)
        with pytest.raises(FileError, match="CRC-32C"):
            splitops.files.split(source, tmp_path / "out", axis=1, num_outputs=2)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"zarr_format": 3, "node_type": "array", "shape": "x"}'])
def test_malformed_descriptions_are_one_error(tmp_path, content):
    (tmp_path / "x.zarr").mkdir()
    (tmp_path / "x.zarr/zarr.json").write_text(content)
    with pytest.raises(FileError, match=r"x\.zarr"):
        splitops.files.open(tmp_path / "x.zarr")


@pytest.mark.parametrize(
    ("content", "problem"),
    [(None, "no such file"), ("{", "is not an array or group"), ("[]", r"is not a JSON object: \[\]")],
)
def test_a_group_without_a_description_is_one_error(tmp_path, content, problem):
    """The root has a copy of it, which is believed."""
    group = zarr.create_group(tmp_path / "g.zarr")
    group.create_array("layer/w", data=np.arange(8), chunks=(4,))
    zarr.consolidate_metadata(tmp_path / "g.zarr")
    description = tmp_path / "g.zarr/layer/zarr.json"
    description.unlink() if content is None else description.write_text(content)
    with pytest.raises(FileError, match=rf"g\.zarr/layer.*{problem}"):
        splitops.files.split(tmp_path / "g.zarr", tmp_path / "out", num_outputs=2)
    assert not (tmp_path / "out").exists()


def test_arrays_of_zarr_2_become_arrays_of_zarr_3(tmp_path):
    made = zarr.create_array(
        tmp_path / "x.zarr", shape=ARRAY.shape, dtype="i4", chunks=(4, 4, 5), zarr_format=2
    )
    made[...] = ARRAY
    made.attrs["unit"] = "K"
    plan = splitops.files.plan_split(tmp_path / "x.zarr", tmp_path, num_outputs=2)
    assert not isinstance(plan.copies, by_chunks.ChunkCopies)
    for (path, _), want in zip(plan.run().files, np.split(ARRAY, 2), strict=True):
        part = zarr.open_array(path, mode="r")
        np.testing.assert_array_equal(part[...], want)
        assert (part.metadata.zarr_format, part.chunks, dict(part.attrs)) == (3, (4, 4, 5), {"unit": "K"})
    parts = [path for path, _ in plan.run(overwrite=True).files]
    splitops.files.merge([parts[0], tmp_path / "x.zarr"], tmp_path / "y.zarr")  # 3 and 2
    merged = zarr.open_array(tmp_path / "y.zarr", mode="r")
    np.testing.assert_array_equal(merged[...], np.concatenate([ARRAY[:6], ARRAY]))
    assert (merged.metadata.zarr_format, merged.chunks) == (3, (4, 4, 5))


def test_chunks_must_fit_into_the_memory(tmp_path):
    zarr.create_array(tmp_path / "x.zarr", shape=(1 << 12, 1 << 12), chunks=(1 << 12, 1 << 11), dtype="f4")
    with pytest.raises(FileError, match="at least 134217728 are needed"):
        splitops.files.split(tmp_path / "x.zarr", tmp_path, axis=1, num_outputs=2)
    splitops.files.split(tmp_path / "x.zarr", tmp_path, axis=1, num_outputs=2, memory=128 << 20)
    with pytest.raises(FileError, match="at least 134217728 are needed"):  # a narrow part reads whole chunks
        splitops.files.split(tmp_path / "x.zarr", tmp_path / "out", axis=1, split=[1, 1, 4094])


def test_a_lie_about_the_size_is_rejected(tmp_path):
    zarr.create_array(tmp_path / "x.zarr", shape=(1 << 50,), chunks=(1,), dtype="f4")
    with pytest.raises(FileError, match="chunks; the limit is"):
        splitops.files.split(tmp_path / "x.zarr", tmp_path / "out", num_outputs=2)
    assert not (tmp_path / "out").exists()


def test_targets_that_exist(tmp_path):
    source = saved(tmp_path / "x.zarr", **CODINGS["plain"])
    splitops.files.split(source, tmp_path, axis=1, num_outputs=2)
    (tmp_path / "x.0.zarr/more").write_text("x")
    with pytest.raises(FileError, match="already exists"):
        splitops.files.split(source, tmp_path, axis=1, num_outputs=2)
    splitops.files.split(source, tmp_path, axis=0, num_outputs=2, overwrite=True)
    assert not (tmp_path / "x.0.zarr/more").exists()
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "x.1.zarr", mode="r")[...], ARRAY[6:])
    before = files_in(tmp_path)
    (tmp_path / "z.0.zarr").write_text("a file")
    with pytest.raises(FileError, match="a file with this name exists"):
        splitops.files.split(source, tmp_path, num_outputs=2, prefix="z", overwrite=True)
    assert {n: b for n, b in files_in(tmp_path).items() if n != "z.0.zarr"} == before


@pytest.mark.parametrize("at", [1, 5])
def test_a_run_that_was_stopped_is_gone_on_with(tmp_path, monkeypatch, at):
    source = saved(tmp_path / "x.zarr", **CODINGS["checked"])
    monkeypatch.setattr(by_chunks, "TASK_BYTES", 700)
    reached = []

    class Killed(BaseException):
        pass

    real = chunk_tasks.ChunkTask.copy

    def stop(self, files, tick):
        reached.append(self)
        if len(reached) == at:
            raise Killed
        return real(self, files, tick)

    monkeypatch.setattr(chunk_tasks.ChunkTask, "copy", stop)
    with monkeypatch.context() as kept:
        kept.setattr("splitops.common.atomic_write.StagedFiles.clean", lambda _: None)  # as a kill leaves it
        with pytest.raises(Killed):
            splitops.files.split(source, tmp_path / "out", axis=1, split=[3, 18])
    count = len(reached) + 50
    reached[:] = reached * count
    report = splitops.files.split(source, tmp_path / "out", axis=1, split=[3, 18], resume=True, verify=True)
    assert (report.resumed > 0) == (at > 1)
    assert len(reached) > at * count
    for (path, _), want in zip(report.files, np.split(ARRAY, [3], 1), strict=True):
        np.testing.assert_array_equal(zarr.open_array(path, mode="r")[...], want)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["x.0.zarr", "x.1.zarr"]


def test_a_source_that_changes_meanwhile_is_rejected(tmp_path):
    source = saved(tmp_path / "x.zarr", **CODINGS["plain"])

    def change(done: int, total: int) -> None:
        (source / "c/0/0/0").write_bytes(bytes(401))

    with pytest.raises(FileError, match=r"has changed|cannot read"):
        splitops.files.split(source, tmp_path / "out", split=[5, 7], progress=change)
    assert not (tmp_path / "out").exists()


def test_what_does_not_read_back_is_rejected(tmp_path, monkeypatch):
    source = saved(tmp_path / "x.zarr", **CODINGS["plain"])
    real = folder_run.FolderRun._verify

    def damage(self, drafts, journal):
        chunk = drafts[1] / "c/0/0/0"
        chunk.write_bytes(bytes(len(chunk.read_bytes())))
        real(self, drafts, journal)

    monkeypatch.setattr(folder_run.FolderRun, "_verify", damage)
    for split in ([8, 13], [7, 14]):
        with pytest.raises(FileError, match="does not read back"):
            splitops.files.split(source, tmp_path / "out", axis=1, split=split, verify=True)


def test_command_line(tmp_path):
    source = saved(tmp_path / "x.zarr", **CODINGS["plain"])
    out = tmp_path / "parts.zarr"
    for arguments in (
        ["split", source, "--axis", "1", "--chunk", "8", "--out", out, "--verify"],
        [
            "merge",
            *(out / f"x.{index}.zarr" for index in range(3)),
            "--axis",
            "1",
            "--out",
            tmp_path / "y.zarr",
        ],
    ):
        result = CliRunner().invoke(cli, [str(argument) for argument in arguments])
        assert result.exit_code == 0, result.output
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "y.zarr", mode="r")[...], ARRAY)


def test_dry_run_and_progress(tmp_path):
    source = saved(tmp_path / "x.zarr", **CODINGS["plain"])
    plan = splitops.files.plan_split(source, tmp_path, axis=1, split=[8, 13])
    dry = plan.dry_run()
    assert (dry.bytes, dry.extents, dry.tasks) == (ARRAY.nbytes, 3 * 2 + 3 * 4, 2)
    seen = []
    plan.run(progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (ARRAY.nbytes, ARRAY.nbytes)
    assert all(before <= after for (before, _), (after, _) in pairwise(seen))


INTERRUPTED = """
import asyncio, os, signal, sys, threading
from zarr.storage import LocalStore
import splitops

signal.signal(signal.SIGINT, signal.default_int_handler)  # what begins in the background ignores it
cleaned, written = threading.Event(), threading.Event()
real = LocalStore.set

async def slow(self, key, *arguments):
    if "c/" in key and not written.is_set():
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.to_thread(cleaned.wait, 1)
    await real(self, key, *arguments)
    if "c/" in key:
        written.set()

LocalStore.set = slow
try:
    splitops.files.split(sys.argv[1], sys.argv[2], axis=1, split=[3, 18], to="zarr")
except KeyboardInterrupt:
    cleaned.set()
    assert written.wait(60)
    print("interrupted")
"""


@pytest.mark.parametrize("coding", ["zarr", "npy"])
def test_after_an_interrupt_nothing_more_is_written(tmp_path, coding):
    """The threads of zarr go on where its caller stops waiting for them."""
    source = tmp_path / f"x.{coding}"
    if coding == "zarr":
        saved(source, chunks=(5, 4, 3))
    else:
        np.save(source, ARRAY)
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, source, tmp_path / "out"],
        env=os.environ | {"PYTHONPATH": str(Path(splitops.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("interrupted\n", 0), done.stderr
    # Of plain bytes all tensors were copied, which stay for the next run.
    assert sorted(os.listdir(tmp_path)) == (["out", source.name] if coding == "npy" else [source.name])
    assert coding == "zarr" or os.listdir(tmp_path / "out") == [".splitops-x.part"]


def test_the_folders_of_a_chunk_are_flushed_before_it_is_recorded(tmp_path, monkeypatch):
    flushed = []
    open_for_sync = chunk_tasks.open_for_sync
    monkeypatch.setattr(
        chunk_tasks, "open_for_sync", lambda paths: (flushed.extend(paths), open_for_sync(paths))[1]
    )
    source = saved(tmp_path / "x.zarr", chunks=(12, 4, 5))
    splitops.files.split(source, tmp_path / "parts", axis=0, num_outputs=2)
    names = {str(path).partition(".zarr")[2] for path in flushed}
    assert {"", "/c", "/c/0", "/c/0/5", "/c/0/5/0"} <= names
    assert any(path.name == "parts" for path in flushed)
