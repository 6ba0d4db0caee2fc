"""Runs that fail, are killed, go on: the same bytes, or nothing."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import splitops
from splitops.errors import FileError
from splitops.files import copying, engine, journal

MEMORY = 4 << 20


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.random.default_rng(0).integers(0, 256, (600, 2000), np.uint8))
    return path


@pytest.fixture(autouse=True)
def _small_tasks(monkeypatch):
    monkeypatch.setattr(engine.tasks, "__defaults__", (100_000,))
    monkeypatch.setattr(engine, "_BLOCK", 10_000)


def plan(source: Path, folder: Path) -> splitops.files.FilePlan:
    return splitops.files.plan_split(source, folder, axis=1, split=[500, 700, 800])


def expected(source: Path) -> list[bytes]:
    return [part.tobytes() for part in np.split(np.load(source), [500, 1200], 1)]


def found(folder: Path) -> list[bytes]:
    return [np.load(path).tobytes() for path in sorted(folder.glob("x.*.npy"))]


def staging(folder: Path) -> Path:
    return folder / ".splitops-x.part"


POINTS = 50


class Steps:
    """Kills the process at a step: before or after a call that changes what is on the disk."""

    def __init__(self, kill_at: int) -> None:
        self.kill_at = kill_at
        self.done = 0

    def step(self) -> None:
        self.done += 1
        if self.done == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, function):
        def call(*args, **kwargs):
            self.step()
            result = function(*args, **kwargs)
            self.step()
            return result

        return call


def run(source: Path, folder: Path, kill_at: int) -> int:
    """Run in a process of its own that is killed at a step; return the number of steps if it is not."""
    steps = Steps(kill_at)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(engine, "copy", steps.around(engine.copy))
                patch.setattr(journal.Journal, "_add", steps.around(journal.Journal._add))
                patch.setattr(os, "replace", steps.around(os.replace))
                patch.setattr(os, "pwrite", steps.around(os.pwrite))
                plan(source, folder).run(memory=MEMORY, verify=True)
            os.write(writing, str(steps.done).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) == bool(kill_at)
    return int(text or 0)


def test_a_run_killed_at_any_of_50_points_goes_on(source, tmp_path):
    want = expected(source)
    steps = run(source, tmp_path / "whole", 0)
    assert found(tmp_path / "whole") == want
    assert steps > POINTS
    for point in np.linspace(1, steps, POINTS).astype(int).tolist():
        folder = tmp_path / f"out{point}"
        run(source, folder, point)
        left = {path.name for path in folder.iterdir()}
        published = {name for name in left if name.startswith("x.")}
        assert left - published == {staging(folder).name}
        assert not published or point > steps - 8
        plan(source, folder).run(resume=True, memory=MEMORY, verify=True)
        assert found(folder) == want, point
        assert {path.name for path in folder.iterdir()} == {"x.0.npy", "x.1.npy", "x.2.npy"}


def test_going_on_does_not_copy_again(source, tmp_path):
    folder = tmp_path / "out"
    run(source, folder, 40)
    copied = []
    report = plan(source, folder).run(
        resume=True, memory=MEMORY, progress=lambda done, total: copied.append(done)
    )
    assert 0 < report.resumed < report.bytes == 1_200_000
    assert found(folder) == expected(source)


def test_a_run_without_resume_replaces_what_was_left(source, tmp_path):
    folder = tmp_path / "out"
    run(source, folder, 30)
    report = plan(source, folder).run(memory=MEMORY)
    assert (report.replaced, report.resumed) == (staging(folder), 0)
    assert found(folder) == expected(source)


def test_a_changed_source_is_refused_and_nothing_is_lost(source, tmp_path):
    folder = tmp_path / "out"
    run(source, folder, 30)
    before = sorted(path.name for path in staging(folder).iterdir())
    os.utime(source, ns=(0, 0))
    with pytest.raises(FileError, match="sources have changed"):
        plan(source, folder).run(resume=True, memory=MEMORY)
    assert sorted(path.name for path in staging(folder).iterdir()) == before


def test_another_request_is_refused(source, tmp_path):
    folder = tmp_path / "out"
    run(source, folder, 30)
    other = splitops.files.plan_split(source, folder, axis=1, split=[500, 701, 799])
    with pytest.raises(FileError, match="another request"):
        other.run(resume=True, memory=MEMORY)
    with pytest.raises(FileError, match="nothing to go on"):
        plan(source, tmp_path / "elsewhere").run(resume=True)


def test_two_runs_at_once_are_refused(source, tmp_path):
    folder = tmp_path / "out"
    caught = []

    def progress(done: int, total: int) -> None:
        if done and not caught:
            for resume in (False, True):
                with pytest.raises(FileError, match="another run") as error:
                    plan(source, folder).run(resume=resume, memory=MEMORY)
                caught.append(error)

    plan(source, folder).run(memory=MEMORY, progress=progress)
    assert len(caught) == 2
    assert found(folder) == expected(source)


def test_a_torn_line_of_the_journal_is_ignored(source, tmp_path):
    folder = tmp_path / "out"
    run(source, folder, 40)
    path = staging(folder) / journal.FILE_NAME
    lines = path.read_bytes().splitlines(keepends=True)
    assert len(lines) > 2
    assert all(json.loads(line) for line in lines)
    path.write_bytes(b"".join(lines[:-1]) + lines[-1][:-5])
    report = plan(source, folder).run(resume=True, memory=MEMORY, verify=True)
    assert report.resumed > 0
    assert found(folder) == expected(source)


def test_parts_that_are_gone_are_copied_again(source, tmp_path):
    folder = tmp_path / "out"
    run(source, folder, 40)
    (staging(folder) / "x.1.npy").unlink()
    assert plan(source, folder).run(resume=True, memory=MEMORY, verify=True).resumed == 0
    assert found(folder) == expected(source)


# Errors


@pytest.mark.parametrize("failure", [KeyboardInterrupt, SystemExit, ZeroDivisionError])
@pytest.mark.parametrize("at", [0.0, 0.5, 1.0, 1.5, 2.0])
def test_after_an_error_nothing_is_left(source, tmp_path, failure, at):
    def progress(done: int, total: int) -> None:
        if done >= at * total / 2:
            raise failure

    with pytest.raises(failure):
        plan(source, tmp_path / "out").run(memory=MEMORY, verify=True, progress=progress)
    assert sorted(os.listdir(tmp_path)) == ["x.npy"]


def test_a_source_that_shrinks_is_one_error(source, tmp_path):
    def progress(done: int, total: int) -> None:
        os.truncate(source, 500_000)

    with pytest.raises(FileError, match=r"cannot read .*x\.npy' at byte \d+ \(the array\): it ended early"):
        plan(source, tmp_path / "out").run(memory=MEMORY, progress=progress)
    assert sorted(os.listdir(tmp_path)) == ["x.npy"]


def test_a_source_that_is_written_to_is_one_error(source, tmp_path):
    def progress(done: int, total: int) -> None:
        os.utime(source, ns=(0, 0))

    with pytest.raises(FileError, match="changed while it was read"):
        plan(source, tmp_path / "out").run(memory=MEMORY, progress=progress)
    assert sorted(os.listdir(tmp_path)) == ["x.npy"]


@pytest.mark.parametrize("name", ["posix_fallocate", "pwrite", "ftruncate"])
def test_a_full_disk_is_one_error(source, tmp_path, monkeypatch, name):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, name, full)
    with pytest.raises(FileError, match=r"cannot write .*x\.0\.npy': no space left on device"):
        plan(source, tmp_path / "out").run(memory=MEMORY)
    assert sorted(os.listdir(tmp_path)) == ["x.npy"]


def test_a_disk_that_fills_up_meanwhile_is_one_error(source, tmp_path, monkeypatch):
    """A file size limit of the process stands for the disk: the system refuses in the middle of a write."""
    code = """
import resource, signal, sys, os
import splitops
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
os.posix_fallocate = lambda *_: None
os.ftruncate = lambda *_: None
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
try:
    splitops.files.split(sys.argv[1], sys.argv[2], axis=1, split=[500, 700, 800])
except splitops.errors.FileError as error:
    print(error)
"""
    path = str(Path(splitops.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", code, str(source), str(tmp_path / "out")],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "cannot write" in done.stdout, done.stderr
    assert "file too large" in done.stdout
    assert sorted(os.listdir(tmp_path)) == ["x.npy"]


def test_a_sync_that_fails_is_one_error(source, tmp_path, monkeypatch):
    monkeypatch.setattr(copying, "sync_files", lambda files: errno.EIO)
    with pytest.raises(FileError, match="input/output error"):
        plan(source, tmp_path / "out").run(memory=MEMORY)
    assert sorted(os.listdir(tmp_path)) == ["x.npy"]


def test_bytes_that_do_not_read_back_are_found_out(source, tmp_path, monkeypatch):
    checksums = engine.checksums

    def damaged(task, targets, **options):
        os.pwrite(min(targets.values()), b"\x00\x01\x02\x03", 5000)
        return checksums(task, targets, **options)

    monkeypatch.setattr(engine, "checksums", damaged)
    with pytest.raises(FileError, match=r"'x\.0\.npy' does not read back .* CRC-32 [0-9a-f]{8}, not"):
        plan(source, tmp_path / "out").run(memory=MEMORY, verify=True)
    assert sorted(os.listdir(tmp_path)) == ["x.npy"]


def test_targets_that_exist_are_refused_and_replaced_on_request(source, tmp_path):
    (tmp_path / "x.1.npy").write_bytes(b"from before")
    with pytest.raises(FileError, match=r"x\.1\.npy' exists already"):
        plan(source, tmp_path).run(memory=MEMORY)
    assert plan(source, tmp_path).dry_run().exists == (tmp_path / "x.1.npy",)
    plan(source, tmp_path).run(memory=MEMORY, overwrite=True)
    assert found(tmp_path) == expected(source)


def test_a_target_that_appears_meanwhile_is_not_replaced(source, tmp_path):
    def progress(done: int, total: int) -> None:
        (tmp_path / "x.1.npy").write_bytes(b"another's")

    with pytest.raises(FileError, match="exists already"):
        plan(source, tmp_path).run(memory=MEMORY, progress=progress)
    assert sorted(os.listdir(tmp_path)) == ["x.1.npy", "x.npy"]
    assert (tmp_path / "x.1.npy").read_bytes() == b"another's"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_one_error(source, tmp_path):
    (tmp_path / "out").mkdir(mode=0o500)
    with pytest.raises(FileError, match="permission denied"):
        plan(source, tmp_path / "out").run(memory=MEMORY)


def test_too_little_memory_is_one_error(source, tmp_path):
    with pytest.raises(FileError, match="memory"):
        plan(source, tmp_path / "out").run(memory=1 << 20)


def test_memory_is_bounded(tmp_path):
    """A file of 1 GiB is split along both axes, and merged, by a process that may have 500 MB in all."""
    script = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (500_000_000, 500_000_000))
import splitops
from pathlib import Path
def peak():  # not ru_maxrss, which begins with what the process that made this one has
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
before = peak()
source, folder = Path(sys.argv[1]), Path(sys.argv[2])
for axis in (0, 1):
    report = splitops.files.split(source, folder, axis=axis, num_outputs=7, sync=False, overwrite=True)
splitops.files.merge([path for path, _ in report.files], folder / "y.npy", axis=1, sync=False)
print((peak() - before) // 1024)
"""
    path = tmp_path / "x.npy"
    np.lib.format.open_memmap(path, "w+", np.float32, (16384, 16384)).flush()
    done = subprocess.run(
        [sys.executable, "-c", script, str(path), str(tmp_path / "out")],
        env=os.environ | {"PYTHONPATH": str(Path(splitops.__file__).parents[1]), "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) <= 64 + 64
    for name in ("x.npy", "out/y.npy"):
        (tmp_path / name).unlink()
