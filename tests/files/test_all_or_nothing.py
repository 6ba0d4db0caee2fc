"""Runs that fail, are killed, go on: the same bytes, or nothing."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import splitops
from splitops.errors import FileError
from splitops.files import descriptors, engine, folder_run, journal, sources

MEMORY = 4 << 20


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.random.default_rng(0).integers(0, 256, (600, 2000), np.uint8))
    return path


@pytest.fixture(autouse=True)
def _small_tasks(monkeypatch):
    monkeypatch.setattr(engine.split_into_tasks, "__defaults__", (100_000,))
    monkeypatch.setattr(engine, "_BLOCK", 10_000)
    monkeypatch.setattr(engine, "_PIECE", 10_000)


def plan(source: Path, folder: Path) -> splitops.files.FilePlan:
    return splitops.files.plan_split(source, folder, axis=1, split=[500, 700, 800])


def expected(source: Path) -> list[bytes]:
    return [part.tobytes() for part in np.split(np.load(source), [500, 1200], 1)]


def found(folder: Path) -> list[bytes]:
    return [np.load(path).tobytes() for path in sorted(folder.glob("x.*.npy"))]


def staging(folder: Path) -> Path:
    return folder.parent / f".splitops-{folder.name}-x.part"


def drafts(folder: Path) -> Path:
    return staging(folder) / "files" / folder.name


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
        assert staging(folder).exists()
        assert not folder.exists() or (len(found(folder)) == 3 and point > steps - 8)
        plan(source, folder).run(resume=True, memory=MEMORY, verify=True)
        assert found(folder) == want, point
        assert {path.name for path in folder.iterdir()} == {"x.0.npy", "x.1.npy", "x.2.npy"}


def test_a_new_folder_appears_with_all_its_files(source, tmp_path):
    seen = []
    plan(source, tmp_path / "new" / "out").run(
        memory=MEMORY, progress=lambda done, total: seen.append((tmp_path / "new" / "out").exists())
    )
    assert len(seen) > 1
    assert not any(seen)
    assert found(tmp_path / "new" / "out") == expected(source)
    assert os.listdir(tmp_path / "new") == ["out"]


@pytest.mark.parametrize("name", ["other", "x.1.npy"])
def test_a_folder_that_appears_meanwhile_gets_the_files(source, tmp_path, name):
    """As of two runs that begin together; what is in it stays, and is not replaced."""
    folder = tmp_path / "out"

    def progress(done: int, total: int) -> None:
        folder.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"theirs")

    if name == "other":
        plan(source, folder).run(memory=MEMORY, progress=progress)
        assert found(folder) == expected(source)
    else:
        with pytest.raises(FileError, match="already exists"):
            plan(source, folder).run(memory=MEMORY, progress=progress)
        assert os.listdir(folder) == [name]
    assert (folder / name).read_bytes() == b"theirs"
    assert sorted(os.listdir(tmp_path)) == ["out", "x.npy"]


def test_a_run_of_one_task_has_the_sizes_and_bytes_of_any(source, tmp_path, monkeypatch):
    """Its files are not made in their full size first; an end that nobody writes is there."""
    monkeypatch.setattr(engine.split_into_tasks, "__defaults__", (engine.TASK_BYTES,))
    done = plan(source, tmp_path / "out")
    assert len(done.make_tasks(MEMORY)) == 1
    ended = replace(done, targets=(*done.targets[:2], replace(done.targets[2], size=600_000)))
    report = ended.run(memory=MEMORY, verify=True)
    assert [path.stat().st_size for path, _ in report.files] == [size for _, size in report.files]
    assert found(tmp_path / "out") == expected(source)
    assert (tmp_path / "out" / "x.2.npy").read_bytes()[480_128:] == bytes(600_000 - 480_128)


def test_files_that_cannot_all_be_open_are_opened_by_each_task(source, tmp_path, monkeypatch):
    monkeypatch.setattr(folder_run, "raise_file_limit", lambda _: False)
    plan(source, tmp_path / "out").run(memory=MEMORY, verify=True)
    assert found(tmp_path / "out") == expected(source)


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


def test_a_changed_source_is_rejected_and_nothing_is_lost(source, tmp_path):
    folder = tmp_path / "out"
    run(source, folder, 30)
    before = sorted(path.name for path in staging(folder).iterdir())
    os.utime(source, ns=(0, 0))
    with pytest.raises(FileError, match="sources have changed"):
        plan(source, folder).run(resume=True, memory=MEMORY)
    assert sorted(path.name for path in staging(folder).iterdir()) == before


def test_another_request_is_rejected(source, tmp_path):
    folder = tmp_path / "out"
    run(source, folder, 30)
    other = splitops.files.plan_split(source, folder, axis=1, split=[500, 701, 799])
    with pytest.raises(FileError, match="belongs to a run with other arguments"):
        other.run(resume=True, memory=MEMORY)


# --resume said at any time


def test_nothing_begun_yet_begins(source, tmp_path):
    report = plan(source, tmp_path / "out").run(resume=True, memory=MEMORY)
    assert (report.resumed, found(tmp_path / "out")) == (0, expected(source))


def test_all_done_already_writes_nothing(source, tmp_path, monkeypatch):
    folder = tmp_path / "out"
    first = plan(source, folder).run(memory=MEMORY, sha256=True)
    times = [path.stat().st_mtime_ns for path, _ in first.files]
    monkeypatch.setattr(engine, "copy", lambda *_, **__: pytest.fail("something was copied"))
    again = plan(source, folder).run(memory=MEMORY, resume=True, sha256=True)
    assert again == replace(first, resumed=first.bytes)
    assert [path.stat().st_mtime_ns for path, _ in first.files] == times
    assert sorted(os.listdir(folder)) == ["x.0.npy", "x.1.npy", "x.2.npy"]


@pytest.mark.parametrize("damage", ["byte", "header", "length", "missing"])
def test_other_bytes_are_not_taken_for_done(source, tmp_path, damage):
    folder = tmp_path / "out"
    plan(source, folder).run(memory=MEMORY)
    path = folder / "x.1.npy"
    content = bytearray(path.read_bytes())
    if damage == "length":
        content.append(0)
    else:
        content[-1 if damage == "byte" else 60] ^= 1
    path.write_bytes(content) if damage != "missing" else path.unlink()
    with pytest.raises(FileError, match=r"x\.[01]\.npy' already exists"):
        plan(source, folder).run(memory=MEMORY, resume=True)
    assert plan(source, folder).run(memory=MEMORY, resume=True, overwrite=True).resumed == 0
    assert found(folder) == expected(source)


def test_what_is_encoded_last_is_made_again_and_compared(tmp_path):
    np.savez_compressed(tmp_path / "x.npz", a=np.arange(24.0).reshape(4, 6))
    made = splitops.files.split(tmp_path / "x.npz", tmp_path / "out", num_outputs=2)
    again = splitops.files.split(tmp_path / "x.npz", tmp_path / "out", num_outputs=2, resume=True)
    assert again == replace(made, resumed=made.bytes)
    path = made.files[1][0]
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(FileError, match=r"x\.0\.npz' already exists"):
        splitops.files.split(tmp_path / "x.npz", tmp_path / "out", num_outputs=2, resume=True)
    assert sorted(os.listdir(tmp_path / "out")) == ["x.0.npz", "x.1.npz"]


# A journal and sources that lie


@pytest.mark.parametrize(
    "line",
    [
        {"kind": "of another release"},
        {"whole": True},
        {"whole": 1, "task": 0},
        {"task": 99, "crc32": ""},
        {"task": -1, "crc32": "00000000"},
        {"task": True, "crc32": "00000000"},
        {"task": "0", "crc32": "00000000"},
        {"task": 0, "crc32": "0"},
        {"task": 0, "crc32": "not hexadecimal digits!!"},
        {"task": 0, "crc32": ["00000000"]},
        {"task": 0, "crc32": None},
        {"task": 0},
        {"task": []},
        [],
        "[" * 100_000,
    ],
    ids=str,
)
def test_lines_that_no_run_writes_end_the_journal(source, tmp_path, line):
    folder = tmp_path / "out"
    run(source, folder, 40)
    path = staging(folder) / ".journal"
    lines = path.read_bytes().splitlines(keepends=True)
    text = line if isinstance(line, str) else json.dumps(line)
    path.write_bytes(b"".join(lines[:2]) + text.encode() + b"\n" + b"".join(lines[2:]))
    report = plan(source, folder).run(resume=True, memory=MEMORY, verify=True)
    assert 0 < report.resumed <= 200_000
    assert found(folder) == expected(source)


def test_a_source_whose_time_was_put_back_is_rejected(source, tmp_path):
    """As ``cp -p`` and ``rsync --inplace -t`` do: other bytes, and the time of the old ones."""
    folder = tmp_path / "out"
    run(source, folder, 30)
    before = source.stat()
    with source.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"!")
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(FileError, match="sources have changed"):
        plan(source, folder).run(resume=True, memory=MEMORY, verify=True)


@pytest.mark.parametrize("at", [60, 4])
def test_a_damaged_header_does_not_pass(source, tmp_path, monkeypatch, at):
    real = folder_run.FolderRun._copy

    def damaging(self, drafts, *arguments):
        real(self, drafts, *arguments)
        with drafts[1].open("r+b") as file:
            file.seek(at)
            file.write(b"!")

    monkeypatch.setattr(folder_run.FolderRun, "_copy", damaging)
    with pytest.raises(FileError, match=r"'x\.1\.npy' does not read back .* written, starting at byte 0"):
        plan(source, tmp_path / "out").run(memory=MEMORY, verify=True)


def test_a_hang_up_leaves_what_can_be_gone_on_with(source, tmp_path):
    """SIGHUP, as of a terminal that closes, kills like ``kill -KILL``."""
    folder = tmp_path / "out"
    child = os.fork()
    if not child:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        plan(source, folder).run(
            memory=MEMORY, progress=lambda done, total: done > 500_000 and os.kill(os.getpid(), signal.SIGHUP)
        )
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGHUP
    assert sorted(os.listdir(tmp_path)) == [staging(folder).name, "x.npy"]
    assert plan(source, folder).run(memory=MEMORY, resume=True).resumed > 0
    assert found(folder) == expected(source)


def test_work_that_would_be_cut_into_other_tasks_is_rejected(source, tmp_path, monkeypatch):
    """The journal counts tasks: those of another release may be other bytes."""
    folder = tmp_path / "out"
    run(source, folder, 30)
    monkeypatch.setattr(engine.split_into_tasks, "__defaults__", (120_000,))
    with pytest.raises(FileError, match="belongs to a run with other arguments"):
        plan(source, folder).run(resume=True, memory=MEMORY)


def test_two_runs_at_once_are_rejected(source, tmp_path):
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


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_torn_line_of_the_journal_is_ignored(source, tmp_path, end):
    folder = tmp_path / "out"
    run(source, folder, 40)
    path = staging(folder) / ".journal"
    lines = path.read_bytes().splitlines(keepends=True)
    assert len(lines) > 2
    assert all(json.loads(line) for line in lines)
    path.write_bytes(b"".join(lines[:-1]) + lines[-1][:-5] + end)
    report = plan(source, folder).run(resume=True, memory=MEMORY, verify=True)
    assert report.resumed > 0
    assert found(folder) == expected(source)


def test_parts_that_are_gone_are_copied_again(source, tmp_path):
    folder = tmp_path / "out"
    run(source, folder, 40)
    (drafts(folder) / "x.1.npy").unlink()
    assert plan(source, folder).run(resume=True, memory=MEMORY, verify=True).resumed == 0
    assert found(folder) == expected(source)


# Errors


def raising(failure: type[BaseException], at: float):
    """Return a listener that ends a run once a part of its work is done."""

    def progress(done: int, total: int) -> None:
        if done >= at * total:
            raise failure

    return progress


@pytest.mark.parametrize("failure", [ZeroDivisionError, BrokenPipeError])
@pytest.mark.parametrize("at", [0.0, 0.25, 0.5, 0.75, 1.0])
@pytest.mark.parametrize("resumed", [False, True])
def test_after_an_error_nothing_is_left(source, tmp_path, failure, at, resumed):
    if resumed:
        run(source, tmp_path / "out", 40)
    with pytest.raises(failure):
        plan(source, tmp_path / "out").run(
            memory=MEMORY, verify=True, resume=resumed, progress=raising(failure, at)
        )
    assert sorted(os.listdir(tmp_path)) == ["x.npy"]


# Interrupts


@pytest.mark.parametrize("failure", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("at", [0.0, 0.25, 0.5, 0.75, 1.0])
@pytest.mark.parametrize("existing", [False, True])
def test_after_an_interrupt_what_is_copied_stays_for_the_next_run(source, tmp_path, failure, at, existing):
    folder = tmp_path / "out"
    if existing:
        folder.mkdir()
        (folder / "x.1.npy").write_bytes(b"from before")
    with pytest.raises(failure) as caught:
        plan(source, folder).run(
            memory=MEMORY, verify=True, overwrite=existing, progress=raising(failure, at)
        )
    hidden = folder / ".splitops-x.part" if existing else staging(folder)
    assert hidden.is_dir()
    [note] = caught.value.__notes__
    assert 0 < note.done <= note.total == 1_200_000
    assert note.folder == hidden
    assert str(note).startswith(
        f"{note.done} of 1200000 bytes are kept in {str(hidden)!r}: a run with resume=True"
    )
    assert not existing or (folder / "x.1.npy").read_bytes() == b"from before"
    for again in (0.3, 0.6):  # what was kept survives further interrupts
        with pytest.raises(failure) as caught:
            plan(source, folder).run(
                memory=MEMORY, resume=True, overwrite=existing, progress=raising(failure, again)
            )
        kept = caught.value.__notes__[0].done
        assert kept >= note.done
        [note] = caught.value.__notes__
    report = plan(source, folder).run(memory=MEMORY, resume=True, verify=True, overwrite=existing)
    assert report.resumed == note.done
    assert found(folder) == expected(source)
    assert sorted(os.listdir(folder)) == ["x.0.npy", "x.1.npy", "x.2.npy"]
    assert sorted(os.listdir(tmp_path)) == ["out", "x.npy"]


def test_a_run_without_resume_starts_over_after_an_interrupt(source, tmp_path):
    folder = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        plan(source, folder).run(memory=MEMORY, progress=raising(KeyboardInterrupt, 0.5))
    report = plan(source, folder).run(memory=MEMORY)
    assert (report.resumed, report.replaced) == (0, staging(folder))
    assert found(folder) == expected(source)
    assert sorted(os.listdir(tmp_path)) == ["out", "x.npy"]


def test_an_interrupt_before_anything_is_copied_leaves_nothing(source, tmp_path, monkeypatch):
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(engine, "copy", interrupted)
    for resume in (False, True):
        with pytest.raises(KeyboardInterrupt) as caught:
            plan(source, tmp_path / "out").run(memory=MEMORY, resume=resume)
        [note] = caught.value.__notes__
        assert note == f"none of the {np.load(source).nbytes} bytes are kept"
        assert sorted(os.listdir(tmp_path)) == ["x.npy"]


@pytest.mark.parametrize("name", ["check", "clear", "lock"])
def test_an_interrupt_before_a_run_knows_what_was_left_keeps_it(source, tmp_path, monkeypatch, name):
    folder = tmp_path / "out"
    run(source, folder, 40)
    before = (staging(folder) / ".journal").read_bytes()

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(
            "splitops.common.staging.StagingFolder." + name,
            property(interrupted) if name == "lock" else interrupted,
        )
        with pytest.raises(KeyboardInterrupt):
            plan(source, folder).run(memory=MEMORY, resume=name != "clear")
    assert (staging(folder) / ".journal").read_bytes() == before
    assert plan(source, folder).run(memory=MEMORY, resume=True).resumed > 0
    assert found(folder) == expected(source)


@pytest.mark.parametrize("failure", [KeyboardInterrupt, ZeroDivisionError])
def test_what_cannot_be_resumed_leaves_nothing(tmp_path, failure):
    """Chunks of HDF5; a target at an address and a computed array are tested where these are."""
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("a", data=np.arange(4000.0).reshape(40, 100), chunks=(4, 10))
    with pytest.raises(failure) as caught:
        splitops.files.split(
            tmp_path / "x.h5", tmp_path / "out", axis=0, num_outputs=2, progress=raising(failure, 0.5)
        )
    notes = ["none of the 32000 bytes are kept"] if failure is KeyboardInterrupt else []
    assert getattr(caught.value, "__notes__", []) == notes
    assert sorted(os.listdir(tmp_path)) == ["x.h5"]


def test_a_source_that_shrinks_is_one_error(source, tmp_path):
    def progress(done: int, total: int) -> None:
        os.truncate(source, 500_000)

    with pytest.raises(FileError, match=r"cannot read .*x\.npy' at byte \d+ \(the array\): it ended early"):
        plan(source, tmp_path / "out").run(memory=MEMORY, progress=progress)
    assert sorted(os.listdir(tmp_path)) == ["x.npy"]


def test_a_lazy_tensor_whose_file_shrinks_is_one_error(source):
    tensor = splitops.files.open(source)[""]
    os.truncate(source, 500_000)
    with pytest.raises(FileError, match=r"x\.npy' ends at byte 500000, before its declared end"):
        np.asarray(tensor)


def test_a_lazy_tensor_that_cannot_be_read_is_one_error(source, monkeypatch):
    def unreadable(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    tensor = splitops.files.open(source)[""]
    monkeypatch.setattr(sources, "read_at", unreadable)
    with pytest.raises(FileError, match=r"cannot read .*x\.npy' at byte 128: input/output error"):
        np.asarray(tensor)


def test_a_draft_that_somebody_removes_is_one_error(source, tmp_path):
    def progress(done: int, total: int) -> None:
        (drafts(tmp_path / "out") / "x.1.npy").unlink(missing_ok=True)

    with pytest.raises(FileError, match=r"cannot write .*x\.1\.npy': no such file or directory"):
        plan(source, tmp_path / "out").run(memory=MEMORY, progress=progress)
    assert sorted(os.listdir(tmp_path)) == ["x.npy"]


def test_a_source_that_is_written_to_is_one_error(source, tmp_path):
    def progress(done: int, total: int) -> None:
        os.utime(source, ns=(0, 0))

    with pytest.raises(FileError, match="has changed while it was being read"):
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
    """A file size limit of the process stands for the disk: the system rejects in the middle of a write."""
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
    monkeypatch.setattr(descriptors, "sync_files", lambda files: errno.EIO)
    with pytest.raises(FileError, match="input/output error"):
        plan(source, tmp_path / "out").run(memory=MEMORY)
    assert sorted(os.listdir(tmp_path)) == ["x.npy"]


@pytest.mark.parametrize("save", [np.save, np.savez])
def test_whichever_sync_fails_it_is_one_error(tmp_path, monkeypatch, save):
    source = tmp_path / ("x.npy" if save is np.save else "x.npz")
    save(source, np.zeros((4, 6)))
    left = 0
    """Syncs until one fails."""

    def failing(real, failure):
        def sync(*arguments: object) -> object:
            nonlocal left
            left -= 1
            return real(*arguments) if left else failure()

        return sync

    def raised() -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(descriptors, "sync_files", failing(descriptors.sync_files, lambda: errno.EIO))
    monkeypatch.setattr(os, "fsync", failing(os.fsync, raised))
    monkeypatch.setattr(folder_run, "sync_folder", lambda folder: None)  # which not every system can
    splitops.files.split(source, tmp_path / "out", num_outputs=2)
    shutil.rmtree(tmp_path / "out")
    assert left <= -4
    for number in range(1, 1 - left):
        left = number
        with pytest.raises(FileError, match=r"cannot write .*input/output error"):
            splitops.files.split(source, tmp_path / "out", num_outputs=2)
        assert os.listdir(tmp_path) == [source.name]


def test_bytes_that_do_not_read_back_are_found_out(source, tmp_path, monkeypatch):
    checksums = engine.compute_checksums

    def damaged(task, targets, **options):
        os.pwrite(min(targets.values()), b"\x00\x01\x02\x03", 5000)
        return checksums(task, targets, **options)

    monkeypatch.setattr(engine, "compute_checksums", damaged)
    with pytest.raises(FileError, match=r"'x\.0\.npy' does not read back .* CRC-32 [0-9a-f]{8}, not"):
        plan(source, tmp_path / "out").run(memory=MEMORY, verify=True)
    assert sorted(os.listdir(tmp_path)) == ["x.npy"]


def test_what_cannot_be_read_back_is_one_error(source, tmp_path, monkeypatch):
    def unreadable(*_: object, **__: object) -> None:
        raise engine.CopyError(False, 1, 1234, errno.EIO)

    monkeypatch.setattr(engine, "compute_checksums", unreadable)
    with pytest.raises(FileError, match=r"cannot read 'x\.1\.npy' back at byte 1234: input/output error"):
        plan(source, tmp_path / "out").run(memory=MEMORY, verify=True)
    assert sorted(os.listdir(tmp_path)) == ["x.npy"]


def test_targets_that_exist_are_rejected_and_replaced_on_request(source, tmp_path):
    (tmp_path / "x.1.npy").write_bytes(b"from before")
    with pytest.raises(FileError, match=r"x\.1\.npy' already exists"):
        plan(source, tmp_path).run(memory=MEMORY)
    assert plan(source, tmp_path).dry_run().exists == (tmp_path / "x.1.npy",)
    plan(source, tmp_path).run(memory=MEMORY, overwrite=True)
    assert found(tmp_path) == expected(source)


def test_a_target_that_appears_meanwhile_is_not_replaced(source, tmp_path):
    def progress(done: int, total: int) -> None:
        (tmp_path / "x.1.npy").write_bytes(b"another's")

    with pytest.raises(FileError, match="already exists"):
        plan(source, tmp_path).run(memory=MEMORY, progress=progress)
    assert sorted(os.listdir(tmp_path)) == ["x.1.npy", "x.npy"]
    assert (tmp_path / "x.1.npy").read_bytes() == b"another's"


@pytest.fixture
def open_folder():
    """A folder that anyone may look into, and write to."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o777)
        yield Path(name)


@contextlib.contextmanager
def as_nobody():
    """Give root's rights up for a while: root may read and write anywhere."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_what_is_not_permitted_is_one_error(source, open_folder):
    path = Path(shutil.copy(source, open_folder / "x.npy"))
    plan(path, open_folder / "out").run(memory=MEMORY)  # what is imported late is imported now
    shutil.rmtree(open_folder / "out")
    (open_folder / "out").mkdir(mode=0o555)
    before = sorted(os.listdir(open_folder))
    with as_nobody(), pytest.raises(FileError, match=r"cannot write .*out.*: permission denied"):
        plan(path, open_folder / "out").run(memory=MEMORY)
    path.chmod(0)
    with as_nobody(), pytest.raises(FileError, match=r"cannot open .*x\.npy': permission denied"):
        plan(path, open_folder / "parts")
    assert sorted(os.listdir(open_folder)) == before
    assert not os.listdir(open_folder / "out")


def test_a_source_that_cannot_be_read_is_one_error(source, tmp_path, monkeypatch):
    def unreadable(*_: object, **__: object) -> None:
        raise engine.CopyError(False, 0, 1234, errno.EIO)

    monkeypatch.setattr(engine, "copy", unreadable)
    with pytest.raises(FileError, match=r"x\.npy' at byte 1234 \(the array\): input/output error"):
        plan(source, tmp_path / "out").run(memory=MEMORY)
    assert sorted(os.listdir(tmp_path)) == ["x.npy"]


def test_too_little_memory_is_one_error(source, tmp_path):
    with pytest.raises(FileError, match="memory"):
        plan(source, tmp_path / "out").run(memory=1 << 20)


FORMATS = ("npy", "npz", "safetensors", "gguf", "raw")


def big_file(folder: Path, name: str, like: Path) -> Path:
    """Make a file of 160 MiB of zeros, which the file system need not store."""
    contents = splitops.files.open(like).contents
    [array] = contents.tensors
    path = folder / f"big.{name}"
    if name == "npz":
        np.savez(path, x=np.load(like, mmap_mode="r"))
        return path
    if name == "raw":
        path.touch()
        os.truncate(path, array.size)
        return path
    form = splitops.files.get_format(name)
    [file] = form.lay_out([form.adapt(array._replace(name="x"))], contents, path.name).files
    with path.open("wb") as target:
        for offset, data in file.literals:
            target.seek(offset)
            target.write(data)
        target.truncate(file.size)
    return path


def test_memory_is_bounded(tmp_path):
    """Files of any format are split along both axes, and merged, in less memory than they have bytes."""
    script = """
import resource, shutil, sys
resource.setrlimit(resource.RLIMIT_AS, (500_000_000, 500_000_000))
import splitops
from splitops.spec.elements.types import ELEMENT_TYPES
from splitops.files.formats.raw import RawFormat
from pathlib import Path
def peak():  # not ru_maxrss, which begins with what the process that made this one has
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
before = peak()
for path in map(Path, sys.argv[1:]):
    folder = path.with_suffix(".parts")
    like = RawFormat((1536, -1), ELEMENT_TYPES["float32"]) if path.suffix == ".raw" else None
    options = {"memory": 8 << 20, "sync": False, "overwrite": True, "like": like}
    for axis in (0, 1):
        report = splitops.files.split(path, folder, axis=axis, num_outputs=7, **options)
    parts = [part for part, _ in report.files]
    splitops.files.merge(parts, folder / f"whole{path.suffix}", axis=1, **options)
    assert (folder / f"whole{path.suffix}").stat().st_size == path.stat().st_size
    shutil.rmtree(folder)
    print((peak() - before) >> 10)
"""
    like = tmp_path / "x.npy"
    np.lib.format.open_memmap(like, "w+", np.float32, (1536, 16384)).flush()
    paths = [big_file(tmp_path, name, like) for name in FORMATS]
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, paths)],
        env=os.environ | {"PYTHONPATH": str(Path(splitops.__file__).parents[1]), "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    peaks = dict(zip(FORMATS, map(int, done.stdout.split()), strict=True))
    assert all(peak <= 8 + 64 for peak in peaks.values()), peaks
    for path in paths:
        path.unlink()


@pytest.mark.parametrize("resume", [False, True])
def test_an_empty_sequence_is_a_folder_without_files(tmp_path, resume):
    np.save(tmp_path / "x.npy", np.zeros((0, 3)))
    report = splitops.files.split(
        tmp_path / "x.npy", tmp_path / "new" / "parts", "SplitToSequence", split=2, resume=resume
    )
    assert list(report.files) == []
    assert list((tmp_path / "new" / "parts").iterdir()) == []


def test_formats_are_given_by_name(source, tmp_path):
    parts = splitops.files.split(source, tmp_path, num_outputs=2, to="safetensors").files
    splitops.files.merge([path for path, _ in parts], tmp_path / "y.npy", to="npy")
    assert np.array_equal(np.load(tmp_path / "y.npy"), np.load(source))
    raw = splitops.files.plan_one_file(source, tmp_path / "any", to="safetensors").run().files
    assert splitops.files.plan_split(raw[0][0], tmp_path, like="safetensors", num_outputs=2).parts
    assert splitops.files.plan_by_size(source, tmp_path / "sized", 1 << 30, to="safetensors").parts
    for to in ("zip", "../npy", ""):
        with pytest.raises(FileError, match=r"unknown format '.*': use npy, npz"):
            splitops.files.plan_split(source, tmp_path, num_outputs=2, to=to)


@pytest.mark.parametrize("existing", [False, True])
def test_names_may_be_as_long_as_the_file_system_allows(tmp_path, existing):
    folder, prefix = tmp_path / ("\u00e9" * 120), "\u0915" * 80  # 240 bytes each
    np.save(tmp_path / "x.npy", np.arange(4))
    if existing:
        folder.mkdir()
    report = splitops.files.split(tmp_path / "x.npy", folder, num_outputs=2, prefix=prefix)
    assert sorted(os.listdir(folder)) == [f"{prefix}.0.npy", f"{prefix}.1.npy"]
    assert [path.name for path, _ in report.files] == [f"{prefix}.0.npy", f"{prefix}.1.npy"]
    assert sorted(os.listdir(tmp_path)) == sorted(["x.npy", folder.name])


@pytest.mark.parametrize(("home", "rejected"), [("in", True), ("other", False)])
def test_a_target_in_a_subfolder_is_compared_with_sources_by_its_whole_path(tmp_path, home, rejected):
    """A target ``in/x.npy`` replaces the source of this path, and ``other/x.npy`` does not."""
    (tmp_path / "in").mkdir()
    (tmp_path / "other").mkdir()
    np.save(tmp_path / "in" / "x.npy", np.arange(12.0))
    before = (tmp_path / "in" / "x.npy").read_bytes()
    plan = splitops.files.plan_split(tmp_path / "in" / "x.npy", tmp_path / "parts", axis=0, num_outputs=2)
    names = [f"{home}/x.npy", f"{home}/y.npy"]
    targets = tuple(replace(t, name=name) for t, name in zip(plan.targets, names, strict=True))
    moved = replace(plan, folder=tmp_path, targets=targets)
    if rejected:
        with pytest.raises(FileError, match="would replace a source: write to another folder"):
            moved.run(overwrite=True, sync=False)
    else:
        moved.run(overwrite=True, sync=False)
        assert np.load(tmp_path / home / "x.npy").tolist() == [0, 1, 2, 3, 4, 5]
    assert (tmp_path / "in" / "x.npy").read_bytes() == before
