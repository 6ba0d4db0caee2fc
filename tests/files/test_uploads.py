"""Targets at URLs, by fsspec's file system in memory: all of them are seen at once, or none."""

from __future__ import annotations

import errno
import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import fsspec
import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from fsspec.implementations.memory import MemoryFile
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load, save_file

import splitops
from splitops.cli import cli
from splitops.errors import FileError
from splitops.files import engine, uploads
from splitops.files.engine import CopyError

ARRAY = np.random.default_rng(0).integers(0, 1000, (100, 40)).astype(np.int32)
OUT = "memory://uploads/parts"
MEMORY = 4 << 20


@pytest.fixture
def files(monkeypatch, tmp_path):
    """A file system in memory, and parts of a size that makes many of them."""
    monkeypatch.setattr(uploads, "_PART", 1 << 10)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    found = fsspec.filesystem("memory")
    found.store.clear()
    yield found
    found.store.clear()


@pytest.fixture
def source(files):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.npy"
        np.save(path, ARRAY)
        yield path


def names(files) -> list[str]:
    return sorted(files.store)


@pytest.mark.parametrize("memory", [MEMORY, 64 << 20])
@pytest.mark.parametrize("axis", [0, 1])
def test_split_and_merge(files, source, axis, memory, monkeypatch):
    monkeypatch.setattr(
        uploads, "_group_windows", lambda sizes, _, real=uploads._group_windows: real(sizes, 3000)
    )
    sizes = [7, 0, ARRAY.shape[axis] - 7]
    seen = []
    report = splitops.files.split(
        source,
        OUT,
        axis=axis,
        split=sizes,
        memory=memory,
        verify=True,
        progress=lambda done, total: seen.append((done, total)),
    )
    parts = [f"{OUT}/x.{index}.npy" for index in range(3)]
    for path, want in zip(parts, np.split(ARRAY, [7, 7], axis), strict=True):
        np.testing.assert_array_equal(np.asarray(splitops.files.open(path)[""]), want)
        assert files.cat_file(path)[:6] == b"\x93NUMPY"
    assert [size for _, size in report.files] == [files.size(path) for path in parts]
    assert seen[-1][0] == seen[-1][1] == 2 * sum(size for _, size in report.files)
    splitops.files.merge(parts, "memory://uploads/y.npy", axis=axis)
    assert files.cat_file("/uploads/y.npy") == source.read_bytes()
    splitops.files.merge([path for path, _ in report.files], "memory://root.npy", axis=axis)
    assert files.cat_file("/root.npy") == source.read_bytes()


def test_all_parts_of_a_file_are_equally_long(files, source, monkeypatch):
    sent = {}
    real = MemoryFile.write

    def write(self, data):
        sent.setdefault(self.path, []).append(len(data))
        return real(self, data)

    monkeypatch.setattr(MemoryFile, "write", write)
    splitops.files.split(source, OUT, axis=1, split=[10, 30])
    for path, sizes in sent.items():
        assert {*sizes[:-1]} == {1 << 10}, path
        assert 0 < sizes[-1] <= 1 << 10
    assert sorted(len(sizes) for sizes in sent.values()) == [5, 12]


def test_nothing_is_seen_before_all_are_whole(files, source):
    def look(done: int, total: int) -> None:
        assert names(files) == []

    splitops.files.split(source, OUT, num_outputs=4, progress=look)
    assert len(names(files)) == 4


@pytest.mark.parametrize("failure", [KeyboardInterrupt, ZeroDivisionError])
@pytest.mark.parametrize("at", [0.0, 0.5, 1.0])
def test_after_an_error_nothing_is_left(files, source, failure, at, tmp_path):
    def progress(done: int, total: int) -> None:
        if done >= at * total:
            raise failure

    with pytest.raises(failure):
        splitops.files.split(source, OUT, num_outputs=4, progress=progress, verify=True)
    assert names(files) == []
    assert not list(tmp_path.glob("splitops-*"))


@pytest.mark.parametrize("step", ["write", "close", "commit"])
@pytest.mark.parametrize("which", [0, 2])
def test_a_server_that_rejects_is_one_error(files, source, monkeypatch, step, which):
    discarded = []
    real = getattr(MemoryFile, step)

    def reject(self, *args):
        if self.path.endswith(f"x.{which}.npy"):
            raise PermissionError(13, "Access Denied")
        return real(self, *args)

    monkeypatch.setattr(MemoryFile, step, reject)
    monkeypatch.setattr(MemoryFile, "discard", lambda self: discarded.append(self.path))
    with pytest.raises(FileError, match=rf"cannot write {OUT}/x\.{which}\.npy: access denied"):
        splitops.files.split(source, OUT, num_outputs=4)
    assert names(files) == []
    assert len(discarded) == (4 - which if step == "commit" else 4)


def test_targets_that_exist_are_rejected_and_replaced_on_request(files, source):
    files.pipe_file("/uploads/parts/x.1.npy", b"from before")
    plan = splitops.files.plan_split(source, OUT, num_outputs=2)
    assert plan.dry_run().exists == (Path(f"{OUT}/x.1.npy"),)
    with pytest.raises(FileError, match=rf"{OUT}/x\.1\.npy already exists"):
        plan.run()
    assert names(files) == ["/uploads/parts/x.1.npy"]
    plan.run(overwrite=True)
    np.testing.assert_array_equal(np.asarray(splitops.files.open(f"{OUT}/x.1.npy")[""]), ARRAY[50:])


def test_what_stood_there_before_is_never_removed(files, source, monkeypatch):
    """Of three files that are replaced, and one that was not there, the third cannot be completed."""
    for name in ("0", "1", "3"):
        files.pipe_file(f"/uploads/parts/x.{name}.npy", b"from before")
    real = MemoryFile.commit

    def reject(self):
        if self.path.endswith("x.3.npy"):
            raise PermissionError(13, "Access Denied")
        real(self)

    monkeypatch.setattr(MemoryFile, "commit", reject)
    with pytest.raises(FileError) as caught:
        splitops.files.split(source, OUT, num_outputs=4, overwrite=True)
    assert str(caught.value) == (
        f"cannot write {OUT}/x.3.npy: access denied. The run has already replaced {OUT}/x.0.npy, "
        f"{OUT}/x.1.npy, but not {OUT}/x.3.npy"
    )
    assert names(files) == [f"/uploads/parts/x.{index}.npy" for index in (0, 1, 3)]
    assert files.cat_file(f"{OUT}/x.3.npy") == b"from before"
    np.testing.assert_array_equal(np.asarray(splitops.files.open(f"{OUT}/x.1.npy")[""]), ARRAY[25:50])


def test_a_file_that_does_not_read_back_has_replaced_another_one(files, source, monkeypatch):
    files.pipe_file("/uploads/parts/x.1.npy", b"from before")
    real = MemoryFile.commit

    def damage(self):
        self.getbuffer()[-1] ^= 1
        real(self)

    monkeypatch.setattr(MemoryFile, "commit", damage)
    with pytest.raises(
        FileError, match=r"x\.0\.npy does not read back .*\. The run has already replaced [^,]*x\.1\.npy$"
    ):
        splitops.files.split(source, OUT, num_outputs=2, verify=True, overwrite=True)
    assert names(files) == ["/uploads/parts/x.1.npy"]


def test_resume_begins_and_says_that_all_is_there(files, source, monkeypatch):
    plan = splitops.files.plan_split(source, OUT, num_outputs=2)
    first = plan.run(resume=True, sha256=True)
    assert first.resumed == 0
    with monkeypatch.context() as patch:
        patch.setattr(MemoryFile, "commit", lambda self: pytest.fail("something was written"))
        again = splitops.files.plan_split(source, OUT, num_outputs=2).run(resume=True, sha256=True)
    assert (again.resumed, again.sha256, again.files) == (again.bytes, first.sha256, first.files)
    content = files.cat_file(f"{OUT}/x.1.npy")
    for other in (content[:-1], content[:-1] + b"!", content + b"!"):
        files.pipe_file("/uploads/parts/x.1.npy", other)
        with pytest.raises(FileError, match=r"x\.1\.npy already exists with other contents"):
            splitops.files.split(source, OUT, num_outputs=2, resume=True)
        assert files.cat_file(f"{OUT}/x.1.npy") == other


def test_a_target_that_appears_meanwhile_is_not_replaced(files, source):
    with pytest.raises(FileError, match="already exists"):
        splitops.files.split(
            source,
            OUT,
            num_outputs=2,
            progress=lambda done, total: files.pipe_file("/uploads/parts/x.1.npy", b"another's"),
        )
    assert names(files) == ["/uploads/parts/x.1.npy"]
    assert files.cat_file("/uploads/parts/x.1.npy") == b"another's"


def test_a_source_is_never_replaced(files, source):
    files.put_file(str(source), "/uploads/x.npy")
    for overwrite in (False, True):
        with pytest.raises(FileError, match=r"memory://uploads/x\.npy would replace a source"):
            splitops.files.merge(["memory://uploads/x.npy"], "memory://uploads/x.npy", overwrite=overwrite)
    assert files.cat_file("/uploads/x.npy") == source.read_bytes()


def test_a_source_that_changes_meanwhile_is_rejected(files, source):
    with pytest.raises(FileError, match="has changed while it was being read"):
        splitops.files.split(
            source, OUT, num_outputs=2, progress=lambda done, total: os.utime(source, ns=(0, 0))
        )
    assert names(files) == []


def test_bytes_that_do_not_read_back_are_found_out(files, source, monkeypatch):
    real = MemoryFile.commit

    def damage(self):
        self.getbuffer()[-1] ^= 1
        real(self)

    monkeypatch.setattr(MemoryFile, "commit", damage)
    with pytest.raises(FileError, match=r"x\.0\.npy does not read back .* CRC-32 [0-9a-f]{8}, not"):
        splitops.files.split(source, OUT, num_outputs=2, verify=True)
    assert names(files) == []


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (CopyError(True, 0, 0, errno.ENOSPC), "cannot write to .*: no space left on device"),
        (CopyError(False, 0, 200, errno.EIO), r"x\.npy' at byte 200 \(the array\): input/output error"),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "cannot write to .*: no space left on device"),
    ],
)
def test_a_disk_that_fails_meanwhile_is_one_error(files, source, monkeypatch, error, problem):
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(engine, "copy", fail)
    with pytest.raises(FileError, match=problem):
        splitops.files.split(source, OUT, num_outputs=2)
    assert names(files) == []


def test_what_cannot_be_is_one_error(files, source, tmp_path):
    with pytest.raises(FileError, match="not written from start to end"):
        splitops.files.plan_split(source, OUT, num_outputs=2, to=splitops.files.get_format("npz"))
    with pytest.raises(FileError, match="cannot read nothing://x"):
        splitops.files.split(source, "nothing://x", num_outputs=2)
    uploads._PART = 2 << 20  # the fixture puts it back
    with pytest.raises(FileError, match="not enough for parts of 2097152 bytes: at least 6291456 are needed"):
        splitops.files.split(source, OUT, num_outputs=2, memory=MEMORY)
    assert names(files) == []


def test_a_file_system_that_shows_half_a_file_is_rejected(source):
    class Careless(AbstractFileSystem):
        protocol = "careless"

        def _open(self, path, mode="rb", block_size=None, autocommit=True, **options):
            return AbstractBufferedFile(self, path, mode, block_size, autocommit)

        def exists(self, path, **options):
            return False

    fsspec.register_implementation("careless", Careless, clobber=True)
    with pytest.raises(FileError, match="has no commits, so incomplete files would be visible"):
        splitops.files.split(source, "careless://x", num_outputs=2)


def test_urls_of_this_machine_are_folders(tmp_path, source):
    report = splitops.files.split(source, f"file://{tmp_path}/out", num_outputs=2)
    assert [path for path, _ in report.files] == [tmp_path / "out/x.0.npy", tmp_path / "out/x.1.npy"]
    splitops.files.merge([path for path, _ in report.files], f"file://{tmp_path}/y.npy")
    assert (tmp_path / "y.npy").read_bytes() == source.read_bytes()


def test_safetensors_with_others_and_digests(files, tmp_path):
    save_file({"w": ARRAY, "b": np.arange(2000.0), "none": np.zeros((0, 3))}, tmp_path / "x.safetensors")
    source = tmp_path / "x.safetensors"
    plan = splitops.files.plan_split(source, OUT, tensor="w", axis=1, num_outputs=3, keep_other_tensors=True)
    report, here = (
        plan.run(sha256=True),
        splitops.files.plan_split(
            source, tmp_path / "here", tensor="w", axis=1, num_outputs=3, keep_other_tensors=True
        ).run(sha256=True),
    )
    assert report.sha256 == here.sha256
    for index, want in enumerate(np.array_split(ARRAY, [14, 28], 1)):
        found = load(files.cat_file(f"{OUT}/x.{index}.safetensors"))
        np.testing.assert_array_equal(found["w"], want)
        np.testing.assert_array_equal(found["b"], np.arange(2000.0))


def test_gguf_and_onnx(files, tmp_path):
    """What they are here they are there: byte by byte, model and data."""
    np.save(tmp_path / "x.npy", ARRAY)
    weights = onnx.numpy_helper.from_array(ARRAY, "w")
    graph = onnx.helper.make_graph([], "g", [], [], [weights])
    onnx.save(
        onnx.helper.make_model(graph),
        tmp_path / "x.onnx",
        save_as_external_data=True,
        location="x.data",
        size_threshold=0,
    )
    gguf = splitops.files.get_format("gguf")
    splitops.files.merge([tmp_path / "x.npy"], tmp_path / "x.gguf", to=gguf)
    for name in ("x.gguf", "x.onnx"):
        here = splitops.files.split(tmp_path / name, tmp_path / "here", num_outputs=2)
        splitops.files.split(tmp_path / name, OUT, num_outputs=2, verify=True)
        assert len(here.files) == (2 if name == "x.gguf" else 4)
        for path, _ in here.files:
            assert files.cat_file(f"{OUT}/{path.name}") == path.read_bytes(), path


def test_from_url_to_url(files, source, tmp_path):
    files.put_file(str(source), "/uploads/x.npy")
    splitops.files.split("memory://uploads/x.npy", OUT, axis=1, num_outputs=2, verify=True)
    np.testing.assert_array_equal(np.asarray(splitops.files.open(f"{OUT}/x.1.npy")[""]), ARRAY[:, 20:])


def test_the_command_line(files, source):
    arguments = ["split", str(source), "--axis", "1", "--parts", "2", "--out", OUT]
    result = CliRunner().invoke(cli, [*arguments, "--json"])
    assert result.exit_code == 0, result.output
    assert [part["file"] for part in json.loads(result.output)["parts"]] == [
        f"{OUT}/x.0.npy",
        f"{OUT}/x.1.npy",
    ]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 1
    assert f"{OUT}/x.0.npy already exists" in result.output
    result = CliRunner().invoke(cli, [*arguments, "--resume"])
    assert result.exit_code == 0
    assert "All bytes had been written before." in result.output
    result = CliRunner().invoke(cli, [*arguments, "--overwrite", "--sha256"])
    assert result.exit_code == 0, result.output
    assert f"{OUT}/x.1.npy" in result.output
    merge = ["merge", f"{OUT}/x.0.npy", f"{OUT}/x.1.npy", "--axis", "1", "--out", "memory://uploads/y.npy"]
    result = CliRunner().invoke(cli, merge)
    assert result.exit_code == 0, result.output
    assert "memory://uploads/y.npy (100, 40)" in result.output
    assert files.cat_file("/uploads/y.npy") == source.read_bytes()


def test_memory_is_bounded(tmp_path):
    """An array of 192 MiB, compressed too, goes to a server that keeps nothing but how much it got."""
    script = """
import gzip, sys
from pathlib import Path
import fsspec
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem
import splitops
sent = 0
class File(AbstractBufferedFile):
    def _initiate_upload(self):
        pass
    def _upload_chunk(self, final=False):
        global sent
        sent += self.buffer.tell()
        return True
    def commit(self):
        pass
    def discard(self):
        pass
class Sink(AbstractFileSystem):
    protocol = "sink"
    def _open(self, path, mode="rb", block_size=None, autocommit=True, **options):
        return File(self, path, mode, block_size, autocommit)
    def exists(self, path, **options):
        return False
fsspec.register_implementation("sink", Sink)
def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
before = peak()
for source in sys.argv[1:]:
    splitops.files.split(source, "sink://x", axis=1, num_outputs=3)
print((peak() - before) // 1024, sent)
"""
    path = tmp_path / "x.npy"
    np.lib.format.open_memmap(path, "w+", np.float32, (8192, 6144)).flush()
    with path.open("rb") as file, gzip.open(tmp_path / "x.npy.gz", "wb", 1) as packed:
        shutil.copyfileobj(file, packed, 1 << 20)
    done = subprocess.run(
        [sys.executable, "-c", script, str(path), str(tmp_path / "x.npy.gz")],
        env=os.environ
        | {
            "PYTHONPATH": str(Path(splitops.__file__).parents[1]),
            "TMPDIR": str(tmp_path),
            "OPENBLAS_NUM_THREADS": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    peak, sent = map(int, done.stdout.split())
    assert sent == 2 * (path.stat().st_size + 2 * 128)
    assert peak <= 64 + 64 < path.stat().st_size >> 20


@given(st.integers(0, 5 << 40))
def test_parts_are_as_s3_takes_them(size):
    windows = uploads.split_into_windows(size)
    assert len(windows) <= 10_000
    assert all(len(window) >= 5 << 20 for window in windows[:-1])
    assert sum(map(len, windows)) == size
    assert [window.start for window in windows[1:]] == [window.stop for window in windows[:-1]]
