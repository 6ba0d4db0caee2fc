"""Sources at URLs, by fsspec's file system in memory: only the ranges that are needed are read."""

from __future__ import annotations

import io
from pathlib import Path

import fsspec
import numpy as np
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save

import splitops
from splitops.errors import FileError
from splitops.files.extents import Extent, cover_byte_ranges
from splitops.files.sources import LocalFile
from splitops.files.urls import RemoteFile

ARRAY = np.arange(4_000, dtype=np.float32).reshape(100, 40)


@pytest.fixture
def remote(monkeypatch):
    """Put files at URLs; ``read`` counts the bytes that are read of them."""
    files = fsspec.filesystem("memory")
    read = []
    real = MemoryFileSystem.cat_file

    def counted(self, path, start=None, end=None, **options):
        data = real(self, path, start, end, **options)
        read.append(len(data))
        return data

    monkeypatch.setattr(MemoryFileSystem, "cat_file", counted)
    yield files, read
    files.rm("/b", recursive=True)


def put(files, name, content: bytes) -> str:
    files.pipe_file(f"/b/{name}", content)
    return f"memory://b/{name}"


def npy(tmp_path, array) -> bytes:
    np.save(tmp_path / "local.npy", array)
    content = (tmp_path / "local.npy").read_bytes()
    (tmp_path / "local.npy").unlink()
    return content


@pytest.mark.parametrize("axis", [0, 1])
def test_split_and_merge(tmp_path, remote, axis):
    files, read = remote
    content = npy(tmp_path, ARRAY)
    source = put(files, "x.npy", content)
    made = splitops.files.split(source, tmp_path, axis=axis, num_outputs=2, verify=True)
    assert ARRAY.nbytes <= sum(read) <= ARRAY.nbytes + 11_000
    for (path, _), want in zip(made.files, np.split(ARRAY, 2, axis), strict=True):
        np.testing.assert_array_equal(np.load(path), want)
    parts = [put(files, path.name, path.read_bytes()) for path, _ in made.files]
    splitops.files.merge(parts, tmp_path / "y.npy", axis=axis)
    assert (tmp_path / "y.npy").read_bytes() == content
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.0.npy", "x.1.npy", "y.npy"]


def test_other_tensors_are_not_read(tmp_path, remote):
    files, read = remote
    source = put(files, "x.safetensors", save({"w": ARRAY, "big": np.zeros(1_000_000)}))
    splitops.files.split(source, tmp_path, tensor="w", num_outputs=2)
    assert sum(read) < ARRAY.nbytes + 2_000
    read.clear()
    np.testing.assert_array_equal(np.asarray(splitops.files.open(source)["w"][3]), ARRAY[3])
    assert sum(read) < 2_000


@pytest.mark.parametrize("saved", [np.savez, np.savez_compressed])
def test_npz(tmp_path, remote, saved):
    files, _ = remote
    saved(tmp_path / "x.npz", a=ARRAY)
    source = put(files, "x.npz", (tmp_path / "x.npz").read_bytes())
    made = splitops.files.split(source, tmp_path / "out", num_outputs=2)
    np.testing.assert_array_equal(np.load(made.files[1][0])["a"], ARRAY[50:])


def test_what_cannot_be_read_is_one_error(tmp_path, remote):
    files, _ = remote
    for url, problem in {
        "memory://b/none.npy": "cannot read memory://b/none.npy",
        put(files, "x.npy", b"no array"): "x.npy",
        put(files, "x.h5", b"x"): "hdf5 files cannot be read from a URL; only npy, npz, safetensors",
        put(files, "folder.npy/x", b"x").removesuffix("/x"): r"folder\.npy is not a file, or the server",
        "nothing://b/x.npy": "cannot read nothing://b/x.npy",
    }.items():
        with pytest.raises(FileError, match=problem):
            splitops.files.open(url)


def test_a_server_that_sends_too_little_is_one_error(tmp_path, remote, monkeypatch):
    files, _ = remote
    source = put(files, "x.npy", npy(tmp_path, ARRAY))
    tensor = splitops.files.open(source)[""]
    real = MemoryFileSystem.cat_file
    monkeypatch.setattr(MemoryFileSystem, "cat_file", lambda *args, **kwargs: real(*args, **kwargs)[:-1])
    with pytest.raises(FileError, match=r"x\.npy ends at byte 16127, before its declared end"):
        np.asarray(tensor)


def test_a_password_is_not_shown(tmp_path):
    (tmp_path / "x.npy").write_bytes(npy(tmp_path, ARRAY))
    for source, out in (
        ("ftp://me:secret@127.0.0.1:1/x.npy", tmp_path),
        (tmp_path / "x.npy", "ftp://me:secret@127.0.0.1:1/o"),
    ):
        with pytest.raises(FileError, match=r"ftp://\.\.\.@127\.0\.0\.1") as caught:
            splitops.files.split(source, out, num_outputs=2)
        assert "secret" not in str(caught.value)


def test_a_source_that_changes_meanwhile_is_rejected(tmp_path, remote):
    files, _ = remote
    content = npy(tmp_path, ARRAY)
    plan = splitops.files.plan_split(put(files, "x.npy", content), tmp_path / "out", num_outputs=2)
    with pytest.raises(FileError, match="has changed"):
        plan.run(progress=lambda done, total: put(files, "x.npy", content[::-1]))
    assert not (tmp_path / "out").exists()


def test_a_source_is_copied_where_it_is_needed(tmp_path, remote):
    files, _ = remote
    content = npy(tmp_path, ARRAY)
    (tmp_path / "x.npy").write_bytes(content)
    for source in (LocalFile(tmp_path / "x.npy"), RemoteFile(put(files, "x.npy", content))):
        made = io.BytesIO()
        source.copy_to(made, [(10, 20), (16_000, 16_128)])
        assert made.getvalue() == bytes(10) + content[10:20] + bytes(15_980) + content[16_000:]


def test_urls_may_be_paths(tmp_path):
    np.save(tmp_path / "x.npy", ARRAY)
    for url in (f"file://{tmp_path}/x.npy", Path(f"file://{tmp_path}/x.npy")):
        np.testing.assert_array_equal(np.asarray(splitops.files.open(url)[""]), ARRAY)


@given(
    st.lists(
        st.builds(
            lambda offset, run, gap, runs: Extent(0, offset, run + gap, 0, 0, run, run, runs),
            st.integers(0, 200),
            st.integers(1, 20),
            st.integers(0, 60),
            st.integers(1, 6),
        ),
        max_size=5,
    )
)
def test_stretches_hold_all_bytes_and_at_most_twice_as_many(extents):
    needed = {
        extent.offset + row * extent.stride + at
        for extent in extents
        for row in range(extent.runs)
        for at in range(extent.run)
    }
    read = [at for begin, end in cover_byte_ranges(extents) for at in range(begin, end)]
    assert needed <= set(read)
    assert len(read) == len(set(read)) <= 2 * sum(extent.bytes for extent in extents)
