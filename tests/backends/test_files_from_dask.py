"""Dask arrays split into zarr arrays: each chunk is computed once, and few of them live at a time."""

from __future__ import annotations

import os
import threading
import weakref

import numpy as np
import pytest

import splitops
from splitops.errors import FileError
from splitops.files import folder_run

da = pytest.importorskip("dask.array")
zarr = pytest.importorskip("zarr")

ARRAY = np.random.default_rng(0).integers(0, 1000, (40, 30)).astype(np.int32)


class Chunks:
    """A Dask array that knows how often each of its chunks was computed, and how many lived at a time."""

    def __init__(self, array: np.ndarray, chunks: tuple[int, ...]) -> None:
        self.array = da.map_blocks(
            self._chunk, array, chunks=da.core.normalize_chunks(chunks, array.shape), dtype=array.dtype
        )
        self.computed: list[tuple[int, ...]] = []
        self.most = 0
        self._live = 0
        self._lock = threading.Lock()

    def _chunk(self, array, block_info=None):
        location = block_info[None]["array-location"]
        chunk = array[tuple(slice(*place) for place in location)].copy()
        with self._lock:
            self.computed.append(tuple(begin for begin, _ in location))
            self._live += 1
            self.most = max(self.most, self._live)
        weakref.finalize(chunk, self._gone)
        return chunk

    def _gone(self) -> None:
        with self._lock:
            self._live -= 1


def parts_in(folder, prefix="part"):
    return [zarr.open_array(path, mode="r") for path in sorted(folder.glob(f"{prefix}.*.zarr"))]


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("sizes", [(10, 20), (7, 0, 5)], ids=["aligned", "not"])
def test_each_chunk_is_computed_once(tmp_path, axis, sizes):
    sizes = [*sizes, ARRAY.shape[axis] - sum(sizes)]
    source = Chunks(ARRAY, (10, 10))
    report = splitops.files.split(source.array, tmp_path / "out", axis=axis, split=sizes, verify=True)
    assert sorted(source.computed) == sorted({*source.computed})
    assert len(source.computed) == 12
    found = parts_in(tmp_path / "out")
    for part, want in zip(found, np.split(ARRAY, np.cumsum(sizes)[:-1], axis), strict=True):
        np.testing.assert_array_equal(part[...], want)
    assert found[0].chunks == ((10, 10) if sizes[0] == 10 else (7, 10) if axis == 0 else (10, 7))
    assert report.bytes == ARRAY.nbytes
    made = [path for path, _ in report.files]
    splitops.files.merge(made, tmp_path / "y.zarr", axis=axis)
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "y.zarr", mode="r")[...], ARRAY)


@pytest.mark.parametrize("sizes", [[500, 500], [333, 667]], ids=["aligned", "not"])
def test_few_chunks_live_at_a_time(tmp_path, sizes, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    source = Chunks(np.zeros((1000, 25_000), np.uint8), (50, 2500))
    splitops.files.split(source.array, tmp_path, split=sizes, memory=4 << 20, sync=False)  # for 8 threads
    assert len(source.computed) == 200
    assert source.most < 40


def test_irregular_chunks_and_other_operators(tmp_path):
    source = da.from_array(ARRAY, chunks=((3, 30, 7), (30,)))
    made = splitops.files.split(source, tmp_path, "VariadicSplit", axis=0, split_lengths=[5, -1], prefix="x")
    assert [path.name for path, _ in made.files] == ["x.0.zarr", "x.1.zarr"]
    for part, want in zip(parts_in(tmp_path, "x"), np.split(ARRAY, [5]), strict=True):
        np.testing.assert_array_equal(part[...], want)
    splitops.files.split(source, tmp_path, "SplitToSequence", axis=1, keepdims=0, prefix="row")
    np.testing.assert_array_equal(parts_in(tmp_path, "row")[3][...], ARRAY[:, 3])
    with pytest.raises(splitops.RuleError, match=r"lengths\.sum"):
        splitops.files.split(source, tmp_path, split=[1, 2])


def test_the_plan(tmp_path):
    source = da.from_array(ARRAY, chunks=(10, 10))
    plan = splitops.files.plan_split(source, tmp_path, axis=1, num_outputs=3)
    assert [(part.path.name, part.shape) for part in plan.parts] == [
        ("part.0.zarr", (40, 10)),
        ("part.1.zarr", (40, 10)),
        ("part.2.zarr", (40, 10)),
    ]
    assert (plan.dry_run().bytes, plan.dry_run().tasks) == (ARRAY.nbytes, 12)
    seen = []
    plan.run(progress=lambda done, total: seen.append((done, total)), verify=True)
    assert seen[-1] == (2 * ARRAY.nbytes, 2 * ARRAY.nbytes)
    assert seen == sorted(seen)
    with pytest.raises(FileError, match="already exists"):
        plan.run()
    plan.run(overwrite=True, sync=False)


@pytest.mark.parametrize("failure", [KeyboardInterrupt, ZeroDivisionError])
def test_after_an_error_nothing_is_left(tmp_path, failure):
    def progress(done: int, total: int) -> None:
        if done > total / 2:
            raise failure

    with pytest.raises(failure):
        splitops.files.split(
            da.from_array(ARRAY, chunks=(10, 10)), tmp_path / "out", num_outputs=2, progress=progress
        )
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_the_computation_is_its_own(tmp_path):
    source = da.from_array(ARRAY, chunks=(10, 10)).map_blocks(lambda chunk: 1 // 0, dtype=np.int32)
    with pytest.raises(ZeroDivisionError):
        splitops.files.split(source, tmp_path / "out", num_outputs=2)
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_is_one_error(tmp_path, monkeypatch):
    source = da.from_array(ARRAY, chunks=(10, 10))
    for options, problem in (
        ({"tensor": "x"}, "are for files, not for a Dask array"),
        ({"to": splitops.files.get_format("npy")}, "is written as zarr, not as npy"),
    ):
        with pytest.raises(FileError, match=problem):
            splitops.files.split(source, tmp_path / "out", num_outputs=2, **options)
    with pytest.raises(
        FileError,
        match="4194304 bytes of memory are not enough for the array, which has chunks of 2000000 bytes",
    ):
        splitops.files.split(
            da.zeros((4000, 1000), chunks=(2000, 1000), dtype="u1"), tmp_path, num_outputs=2, memory=4 << 20
        )
    with pytest.raises(FileError, match="not written from start to end"):
        splitops.files.split(source, "memory://out", num_outputs=2)
    with pytest.raises(FileError, match="100001 parts need 100001 files"):
        splitops.files.split(da.zeros(100_001, dtype="u1"), tmp_path / "out", num_outputs=100_001)
    with pytest.raises(FileError, match="unknown size"):
        splitops.files.split(source[source[:, 0] > 3], tmp_path / "out", num_outputs=2)
    with pytest.raises(splitops.RuleError, match=r"type\.unsupported"):
        splitops.files.split(source.astype("M8[s]"), tmp_path / "out", num_outputs=2)
    assert list(tmp_path.iterdir()) == []


def test_what_does_not_read_back_is_found_out(tmp_path, monkeypatch):
    real = folder_run.FolderRun._verify

    def damage(self, drafts, journal):
        zarr.open_array(drafts[1], mode="r+")[3, 3] = -1
        real(self, drafts, journal)

    monkeypatch.setattr(folder_run.FolderRun, "_verify", damage)
    with pytest.raises(FileError, match=r"'part\.1\.zarr' does not read back"):
        splitops.files.split(
            da.from_array(ARRAY, chunks=(10, 10)), tmp_path / "out", num_outputs=2, verify=True
        )
    assert list(tmp_path.iterdir()) == []


def test_on_a_cluster(tmp_path):
    distributed = pytest.importorskip("distributed")
    source = da.from_array(ARRAY, chunks=(10, 10))
    with distributed.LocalCluster(n_workers=2, processes=False, dashboard_address=":0") as cluster:
        splitops.files.split(source, tmp_path / "a", split=[13, 27], verify=True, cluster=cluster)
        with distributed.Client(cluster) as client:  # Dask computes with it, and so do we
            kept = client.persist(source)
            splitops.files.split(kept, tmp_path / "b", split=[13, 27], verify=True)
    for folder in ("a", "b"):
        for part, want in zip(parts_in(tmp_path / folder), np.split(ARRAY, [13]), strict=True):
            np.testing.assert_array_equal(part[...], want)
