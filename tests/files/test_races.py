"""Processes that write to one folder at the same time: no file is lost, and the files are all of one run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import splitops
from splitops.common import staging
from splitops.common.atomic_write import StagedFiles
from splitops.common.staging import StagingFolder
from splitops.errors import FileError

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
def test_processes_that_write_to_one_folder_lose_no_file(tmp_path):
    """The soak does the same for longer."""
    command = [sys.executable, "-m", "dev.soak.races", str(tmp_path), "7", "30"]
    path = os.pathsep.join([str(ROOT), str(Path(splitops.__file__).parents[1])])
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "'another run is writing to'" in done.stdout


def test_who_does_not_get_the_lock_changes_nothing(tmp_path):
    hidden = tmp_path / ".splitops-x.part"
    first = StagingFolder.open_locked(hidden)
    first.lock.write(b"a journal")
    first.lock.flush()
    (hidden / "draft").write_bytes(b"at work")
    for _ in range(2):
        with pytest.raises(splitops.ModelError, match="another run is writing to"):
            StagingFolder.open_locked(hidden)
        assert (hidden / ".journal").read_bytes() == b"a journal"
        assert (hidden / "draft").read_bytes() == b"at work"
    first.remove()
    assert not hidden.exists()


@pytest.mark.parametrize("when", ["before it is opened", "before it is locked"])
def test_a_folder_that_its_run_removes_meanwhile_is_made_again(tmp_path, monkeypatch, when):
    hidden = tmp_path / ".splitops-x.part"
    ended = [StagingFolder.open_locked(hidden)]
    name = "_open" if when == "before it is opened" else "_take_lock"
    real = getattr(StagingFolder, name)

    def late(self):
        if ended:
            ended.pop().remove()
        return real(self)

    monkeypatch.setattr(StagingFolder, name, late)
    found = StagingFolder.open_locked(hidden)
    assert not ended
    assert os.listdir(hidden) == [".journal"]
    assert os.path.samestat(os.lstat(hidden), os.stat(found.root))
    found.remove()


def test_a_lock_that_is_removed_while_one_waits_for_it_is_none(tmp_path, monkeypatch):
    hidden = tmp_path / ".splitops-x.part"
    ended = [StagingFolder.open_locked(hidden)]
    real = staging._lock

    def late(descriptor, folder):
        if ended:
            ended.pop().remove()
        real(descriptor, folder)

    monkeypatch.setattr(staging, "_lock", late)
    found = StagingFolder.open_locked(hidden)
    assert os.path.samestat(os.lstat(hidden / ".journal"), os.fstat(found.lock.fileno()))
    found.remove()


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_run_that_ends_while_another_begins(tmp_path, monkeypatch, overwrite):
    """The second one has seen no folder, and then locks the hidden folder in the folder of the first."""
    np.save(tmp_path / "x.npy", np.arange(12))
    plan = splitops.files.plan_split(tmp_path / "x.npy", tmp_path / "out", split=[4, 8])
    first = splitops.files.plan_split(tmp_path / "x.npy", tmp_path / "out", split=[5, 7])
    real, begun, taken = StagedFiles.open_staging, [], []

    def late(self, folder, name):
        if not begun:
            begun.append(True)
            first.run(sync=False)
        taken.append(folder)
        return real(self, folder, name)

    monkeypatch.setattr(StagedFiles, "open_staging", late)
    if overwrite:
        plan.run(sync=False, overwrite=True)
        assert len(np.load(tmp_path / "out" / "x.0.npy")) == 4
    else:
        with pytest.raises(FileError, match="already exists"):
            plan.run(sync=False)
        assert len(np.load(tmp_path / "out" / "x.0.npy")) == 5
    assert taken == [tmp_path, tmp_path, tmp_path / "out"]
    assert sorted(os.listdir(tmp_path)) == ["out", "x.npy"]
    assert sorted(os.listdir(tmp_path / "out")) == ["x.0.npy", "x.1.npy"]


def test_a_folder_that_appears_among_the_moves_gets_the_files(tmp_path, monkeypatch):
    np.save(tmp_path / "x.npy", np.arange(12))
    real = os.replace

    def late(source, target):
        if os.path.realpath(target) == str(tmp_path / "out") and not (tmp_path / "out").exists():
            (tmp_path / "out").mkdir()
            (tmp_path / "out" / "other").touch()
        real(source, target)

    monkeypatch.setattr(os, "replace", late)
    splitops.files.split(tmp_path / "x.npy", tmp_path / "out", num_outputs=2)
    assert sorted(os.listdir(tmp_path / "out")) == ["other", "x.0.npy", "x.1.npy"]
    assert sorted(os.listdir(tmp_path)) == ["out", "x.npy"]


def test_a_draft_that_is_gone_costs_no_file_that_was_there(tmp_path):
    """What is in the place of a file that was not moved is not removed."""
    for name in "ab":
        (tmp_path / name).write_bytes(b"old")
    files = StagedFiles()
    drafts = [files.place(tmp_path / name) for name in "ab"]
    drafts[0].write_bytes(b"new")
    with pytest.raises(splitops.ModelError, match="no such file"), files:
        pass
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"old", "b": b"old"}
