"""Sets of files: whole and all together, or not at all."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import pytest

from splitops.common.atomic_write import StagedFiles, write_atomically
from splitops.common.staging import make_staging_path
from splitops.errors import ModelError


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def write(files: StagedFiles, folder: Path, **contents: bytes) -> None:
    for name, data in contents.items():
        with files.open(folder / name) as file:
            file.write(data)


def fail_in(target: Path, failure: type[BaseException]) -> None:
    with StagedFiles(make_folders=True) as files, files.open(target / "a") as file:
        file.write(b"new")
        assert any(target.glob(".splitops-*/files/a"))
        raise failure


def test_files_appear_together_and_replace(tmp_path):
    (tmp_path / "a").write_bytes(b"old")
    (tmp_path / "kept").write_bytes(b"kept")
    with StagedFiles() as files:
        write(files, tmp_path, a=b"new", b=b"too")
        assert (tmp_path / "a").read_bytes() == b"old"
    assert content(tmp_path) == {"a": b"new", "b": b"too", "kept": b"kept"}


def test_a_set_may_lie_in_several_folders(tmp_path):
    for name in ("x", "y"):
        (tmp_path / name).mkdir()
    with StagedFiles() as files:
        write(files, tmp_path / "x", a=b"x")
        write(files, tmp_path / "y", a=b"y")
    assert content(tmp_path / "x") == {"a": b"x"}
    assert content(tmp_path / "y") == {"a": b"y"}


def test_a_new_folder_is_put_back_with_the_files(tmp_path):
    """The file behind it cannot be moved: a folder is in its way."""
    files = StagedFiles()
    (files.place_new(tmp_path / "new", ["a"]) / "a").write_bytes(b"a")
    files.place(tmp_path / "last").write_bytes(b"b")
    (tmp_path / "last").mkdir()
    with pytest.raises(ModelError, match="a folder with this name exists"), files:
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["last"]


def test_a_file_beside_the_others_of_a_new_folder_goes_with_it(tmp_path):
    for name in ("new", "there"):
        with StagedFiles() as files:
            draft = files.place_new(tmp_path / name, ["a"])
            (draft / "a").write_bytes(b"a")
            files.place(tmp_path / name / "sums").write_bytes(b"b")
            if name == "there":
                (tmp_path / name).mkdir()
        assert sorted(path.name for path in (tmp_path / name).iterdir()) == ["a", "sums"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "there"]


@pytest.mark.parametrize("blocked", [False, True])
def test_folders_in_a_new_folder_that_appears_are_moved_as_folders(tmp_path, blocked):
    """They replace folders of their names, and are put back where a later file cannot be moved."""
    old = tmp_path / "new" / "b.zarr"
    files = StagedFiles()
    draft = files.place_new(tmp_path / "new", ["a.zarr", "b.zarr"])
    files.place(tmp_path / "last").touch()
    (draft / "a.zarr").mkdir()
    (draft / "b.zarr").mkdir()
    old.mkdir(parents=True)
    (old / "old").touch()
    if blocked:
        (tmp_path / "last").mkdir()
    with pytest.raises(ModelError, match="last") if blocked else nullcontext(), files:
        pass
    assert [path.name for path in old.iterdir()] == ["old"] * blocked
    assert (tmp_path / "new" / "a.zarr").exists() != blocked
    assert {path.name for path in tmp_path.iterdir()} == {"new", "last"}


@pytest.mark.parametrize("name", ["n" * 255, "\u6570" * 85], ids=["ascii", "wide"])
def test_the_hidden_folder_of_a_long_name_has_a_shorter_one(tmp_path, name):
    assert make_staging_path(tmp_path, name) != make_staging_path(tmp_path, name + "n")
    with StagedFiles() as files:
        files.open_staging(tmp_path, name)
        write(files, tmp_path, a=b"new")
    assert content(tmp_path) == {"a": b"new"}


@pytest.mark.parametrize("failure", [KeyboardInterrupt, SystemExit, ZeroDivisionError, OSError])
def test_a_failure_changes_nothing(tmp_path, failure):
    (tmp_path / "a").write_bytes(b"old")
    with pytest.raises(ModelError if failure is OSError else failure):
        fail_in(tmp_path, failure)
    assert content(tmp_path) == {"a": b"old"}


def test_folders_made_for_it_go_with_it(tmp_path):
    with pytest.raises(ZeroDivisionError):
        fail_in(tmp_path / "x" / "y", ZeroDivisionError)
    assert not os.listdir(tmp_path)


def test_folders_made_for_it_stay_with_what_is_written(tmp_path):
    with StagedFiles(make_folders=True) as files:
        write(files, tmp_path / "x" / "y", a=b"new")
    assert content(tmp_path / "x" / "y") == {"a": b"new"}


def test_a_missing_folder_is_named(tmp_path):
    path = tmp_path / "no" / "a.onnx"
    with pytest.raises(ModelError) as caught:
        write_atomically(path, b"new")
    assert (
        caught.value.message == f"cannot write {str(path)!r}: the folder {str(path.parent)!r} does not exist"
    )


def test_a_folder_in_the_way_puts_everything_back(tmp_path):
    (tmp_path / "a").write_bytes(b"old")
    files = StagedFiles()
    write(files, tmp_path, a=b"new", b=b"too", c=b"three")
    (tmp_path / "c").mkdir()
    with pytest.raises(ModelError, match="with this name exists"), files:
        pass
    assert sorted(os.listdir(tmp_path)) == ["a", "c"]
    assert (tmp_path / "a").read_bytes() == b"old"
    with pytest.raises(ModelError, match="with this name exists"):
        write_atomically(tmp_path / "c", b"known before a byte is written")


@pytest.mark.parametrize("links", [True, False])
@pytest.mark.parametrize("at", range(5))
def test_a_move_that_fails_anywhere_puts_everything_back(tmp_path, monkeypatch, at, links):
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"old")
    replace, calls = os.replace, iter(range(100))

    def failing(source: Path, target: Path) -> None:
        if next(calls) == at:
            raise OSError(errno.EIO, "Input/output error")
        replace(source, target)

    def rejecting(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "replace", failing)
    if not links:  # then a and b are moved away before they are replaced; c is new
        monkeypatch.setattr(os, "link", rejecting)
    if at < (3 if links else 5):
        with pytest.raises(ModelError, match="input/output error"), StagedFiles() as files:
            write(files, tmp_path, a=b"new", b=b"new", c=b"new")
        assert content(tmp_path) == {"a": b"old", "b": b"old"}
    else:
        with StagedFiles() as files:
            write(files, tmp_path, a=b"new", b=b"new", c=b"new")
        assert content(tmp_path) == {"a": b"new", "b": b"new", "c": b"new"}


def test_an_interrupt_among_the_moves_puts_everything_back(tmp_path, monkeypatch):
    """As one that the handler of a program around Python raises."""
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"old")
    replace, calls = os.replace, iter(range(100))

    def interrupted(source: Path, target: Path) -> None:
        if next(calls) == 1:
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt), StagedFiles() as files:
        write(files, tmp_path, a=b"new", b=b"new")
    assert content(tmp_path) == {"a": b"old", "b": b"old"}


def test_a_folder_is_put_back_with_the_files_beside_it(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "old").write_bytes(b"old")
    files = StagedFiles()
    folder = files.place(tmp_path / "a", folder=True)
    folder.mkdir()
    (folder / "new").write_bytes(b"new")
    write(files, tmp_path, b=b"new")
    (tmp_path / "b").mkdir()
    with pytest.raises(ModelError, match="with this name exists"), files:
        pass
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]
    assert content(tmp_path / "a") == {"old": b"old"}


def test_a_pipe_of_the_caller_is_not_the_file(tmp_path):
    with pytest.raises(BrokenPipeError), StagedFiles() as files, files.open(tmp_path / "a"):
        raise BrokenPipeError
    assert not os.listdir(tmp_path)


def test_a_thread_that_no_signal_reaches_writes_as_well(tmp_path):
    with ThreadPoolExecutor() as pool:
        pool.submit(write_atomically, tmp_path / "a", b"new").result()
    assert content(tmp_path) == {"a": b"new"}


def test_what_cannot_be_put_back_is_kept_and_named(tmp_path, monkeypatch):
    (tmp_path / "a").write_bytes(b"old")
    replace, calls = os.replace, iter(range(100))

    def failing(source: Path, target: Path) -> None:
        if next(calls) > 0:
            raise OSError(errno.EIO, "Input/output error")
        replace(source, target)

    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises(ModelError, match="are kept in ") as caught, StagedFiles() as files:
        write(files, tmp_path, a=b"new", b=b"new")
    kept = Path(caught.value.message.rsplit("'", 2)[1])
    assert content(kept) == {"a": b"old"}


def test_a_file_alone_is_replaced_in_one_step(tmp_path, monkeypatch):
    (tmp_path / "a").write_bytes(b"old")
    moves = []
    replace = os.replace
    monkeypatch.setattr(
        os, "replace", lambda *paths: (moves.append([*map(os.path.realpath, paths)]), replace(*paths))
    )
    write_atomically(tmp_path / "a", b"new")
    assert [target for _, target in moves] == [str(tmp_path / "a")]
    assert content(tmp_path) == {"a": b"new"}


INTERRUPTED = """
import os, signal, sys
from pathlib import Path
from splitops.common.atomic_write import StagedFiles

signal.signal(signal.SIGINT, signal.default_int_handler)  # what begins in the background ignores it
replace, folder = os.replace, Path(sys.argv[1])

def interrupted(source, target):
    signal.raise_signal(signal.SIGINT)
    replace(source, target)

os.replace = interrupted
try:
    with StagedFiles() as files:
        for name in "ab":
            with files.open(folder / name) as file:
                file.write(b"new")
except KeyboardInterrupt:
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    print("interrupted")
"""


def test_an_interrupt_among_the_moves_waits_until_they_are_done(tmp_path):
    command = [sys.executable, "-c", INTERRUPTED, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert (done.stdout, done.stderr) == ("interrupted\n", "")
    assert content(tmp_path) == {"a": b"new", "b": b"new"}


EVERYWHERE = """
import contextlib, signal, sys
from splitops.common import signals

signal.signal(signal.SIGINT, signal.default_int_handler)
places = {signals.__file__, contextlib.__file__}
numbers = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
handlers = [signal.getsignal(number) for number in numbers]

def interrupt(at, fails):
    def lines(frame, event, _):
        nonlocal at
        at -= event == "line"
        if event == "line" and at == 0:
            sys.settrace(None)
            signal.raise_signal(signal.SIGINT)
        return lines
    sys.settrace(lambda frame, *_: lines if frame.f_code.co_filename in places else None)
    try:
        with signals.defer_signals():
            if fails:
                raise ValueError
    except KeyboardInterrupt:
        return True
    except ValueError:
        pass
    finally:
        sys.settrace(None)
    return at <= 0

for fails in (False, True):
    count = 0
    while interrupt(count + 1, fails):
        count += 1
        assert [signal.getsignal(number) for number in numbers] == handlers, count
    assert count > 20
"""


def test_an_interrupt_anywhere_arrives_and_leaves_the_handlers():
    done = subprocess.run([sys.executable, "-c", EVERYWHERE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_link_is_replaced_and_not_followed(tmp_path):
    (tmp_path / "elsewhere").write_bytes(b"safe")
    (tmp_path / "a").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "b").symlink_to(tmp_path / "nowhere")
    with StagedFiles() as files:
        write(files, tmp_path, a=b"new", b=b"new")
    assert content(tmp_path) == {"a": b"new", "b": b"new", "elsewhere": b"safe"}
    assert not (tmp_path / "a").is_symlink()


def test_many_files_are_on_the_disk_before_any_takes_its_place(tmp_path, monkeypatch):
    steps = []
    fsync, sync, replace = os.fsync, os.sync, os.replace
    monkeypatch.setattr(os, "fsync", lambda file: (steps.append("one"), fsync(file)))
    monkeypatch.setattr(os, "sync", lambda: (steps.append("all"), sync()))
    monkeypatch.setattr(os, "replace", lambda *paths: (steps.append("move"), replace(*paths)))
    with StagedFiles() as files:
        write(files, tmp_path, **{f"part{index}": b"new" for index in range(66)})
    assert steps == ["one"] * 64 + ["all"] + ["move"] * 66


def test_the_longest_name_that_a_folder_takes(tmp_path):
    write_atomically(tmp_path / ("n" * 255), b"new")
    assert content(tmp_path) == {"n" * 255: b"new"}
