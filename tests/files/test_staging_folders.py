"""Staging folders that a stranger has planted or exchanges: nothing outside is read, written or removed."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import splitops
from command_line import runner
from splitops.cli import cli
from splitops.common import staging
from splitops.common.staging import StagingFolder
from splitops.errors import FileError
from splitops.files import engine, extent_tasks
from splitops.files.folder_run import FolderRun
from splitops.files.plan_types import fill_options

MEMORY = 4 << 20
ARRAY = np.random.default_rng(0).integers(0, 256, (600, 2000), np.uint8)


@pytest.fixture(autouse=True)
def _small_tasks(monkeypatch):
    monkeypatch.setattr(engine.split_into_tasks, "__defaults__", (100_000,))
    monkeypatch.setattr(engine, "_BLOCK", 10_000)
    monkeypatch.setattr(engine, "_PIECE", 10_000)


@pytest.fixture(params=["descriptors", "paths", "names"])
def way(request, monkeypatch):
    """How a folder is reached: by its descriptor, by paths as on macOS, or by names as on Windows."""
    if request.param != "descriptors":
        monkeypatch.setattr(staging, "_DESCRIPTORS", "/nowhere")
    if request.param == "names":
        monkeypatch.setattr(staging, "_FOLDERS_OPEN", False)
        monkeypatch.setattr(staging, "UNFOLLOWED", 0)
        monkeypatch.setattr(extent_tasks, "UNFOLLOWED", 0)
    return request.param


@pytest.fixture(params=["new", "existing"])
def place(request, tmp_path):
    """The folder that is written, and the staging folder of a run into it."""
    (tmp_path / "victim").write_bytes(b"of the user")
    (tmp_path / "home").mkdir()
    np.save(tmp_path / "x.npy", ARRAY)
    out = tmp_path / "out"
    if request.param == "new":
        return out, tmp_path / ".splitops-out-x.part"
    out.mkdir()
    return out, out / ".splitops-x.part"


def split(out: Path, **options) -> splitops.files.Report:
    source = out.parent / "x.npy"
    how = {"memory": MEMORY, "sync": False, **options}
    return splitops.files.split(source, out, axis=1, split=[500, 700, 800], **how)


def safe(folder: Path) -> bool:
    """Whether what is not of the run is as it was."""
    return (folder / "victim").read_bytes() == b"of the user" and not os.listdir(folder / "home")


def right(out: Path) -> bool:
    found = [np.load(out / f"x.{number}.npy") for number in range(3)]
    return np.array_equal(np.concatenate(found, 1), ARRAY)


def tree(folder: Path) -> dict[str, tuple[int, int]]:
    names = [folder, *folder.rglob("*")] if folder.is_dir() else [folder]
    return {str(path): (path.lstat().st_mode, path.lstat().st_size) for path in names}


def plant(path: Path, kind: str, folder: Path) -> None:
    """Put something in a place that leads out of the staging folder, or never ends."""
    match kind:
        case "link":
            path.symlink_to(folder / "victim")
        case "link to a folder":
            path.symlink_to(folder / "home")
        case "dangling link":
            path.symlink_to(folder / "home" / "new")
        case "hard link":
            path.hardlink_to(folder / "victim")
        case "pipe":
            os.mkfifo(path)
        case "socket":
            here = os.getcwd()
            os.chdir(path.parent)  # the names of sockets are short
            with socket.socket(socket.AF_UNIX) as listening:
                listening.bind(path.name)
            os.chdir(here)
        case "device":
            try:
                os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 5))
            except PermissionError:
                pytest.skip("only root makes devices")
        case "folder":
            path.mkdir()
        case "file":
            path.touch()


KINDS = ("link", "link to a folder", "dangling link", "hard link", "pipe", "socket", "device")


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("kind", [*KINDS, "folder"])
def test_a_planted_journal_is_rejected(place, way, kind, resume, tmp_path):
    out, hidden = place
    hidden.mkdir(0o700)
    plant(hidden / ".journal", kind, tmp_path)
    before = tree(hidden)
    for _ in range(2):
        with pytest.raises(
            FileError, match=r"part' was not left by a run of this user: '\.journal' in it is"
        ):
            split(out, resume=resume)
        assert tree(hidden) == before
        assert safe(tmp_path)


@pytest.mark.parametrize("size", [0, 1000, 1 << 29])
@pytest.mark.parametrize("begins_right", [False, True])
def test_a_planted_journal_without_lines_takes_no_memory(place, size, begins_right):
    out, hidden = place
    hidden.mkdir(0o700)
    with (hidden / ".journal").open("wb") as file:
        if begins_right:
            plan = splitops.files.plan_split(out.parent / "x.npy", out, axis=1, split=[500, 700, 800])
            run = FolderRun(plan, fill_options({"memory": MEMORY}))
            file.write(json.dumps(run.identity).encode() + b"\n")
        file.truncate(file.tell() + size)
    tracemalloc.start()
    try:
        split(out, resume=True)
        assert tracemalloc.get_traced_memory()[1] < 200 << 20
    finally:
        tracemalloc.stop()
    assert right(out)
    assert not hidden.exists()


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("kind", [*KINDS, "file"])
def test_a_staging_folder_that_is_none_is_rejected(place, way, kind, resume, tmp_path):
    out, hidden = place
    plant(hidden, kind, tmp_path)
    before = tree(hidden)
    with pytest.raises(FileError, match="was not left by a run of this user: it is"):
        split(out, resume=resume)
    assert tree(hidden) == before
    assert safe(tmp_path)


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702, 0o720])
def test_a_staging_folder_that_others_may_write_to_is_rejected(place, way, mode, resume, tmp_path):
    out, hidden = place
    hidden.mkdir()
    hidden.chmod(mode)
    with pytest.raises(FileError, match=f"its mode {mode:o} lets others write to it"):
        split(out, resume=resume)
    hidden.chmod(0o755)
    split(out, resume=resume)
    assert right(out)


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("whose", ["folder", "journal", "draft"])
def test_what_another_user_owns_is_rejected(place, way, whose, resume, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root gives files away")
    out, hidden = place
    (hidden / "files").mkdir(0o700, parents=True)
    (hidden / ".journal").touch()
    (hidden / "files" / "x.0.npy").touch()
    hidden.chmod(0o700)
    path = {"folder": hidden, "journal": hidden / ".journal", "draft": hidden / "files" / "x.0.npy"}[whose]
    os.chown(path, 12345, -1)
    if whose != "folder" and not resume:
        split(out)  # everything in it is removed first
        assert right(out)
        return
    with pytest.raises(FileError, match="user 12345"):
        split(out, resume=resume)
    assert path.lstat().st_uid == 12345


def test_a_file_system_without_owners_and_modes_is_no_stranger(place, tmp_path, monkeypatch):
    """As of a USB stick or a Windows share: every folder there looks open to all."""
    real = staging._read_rights
    monkeypatch.setattr(staging, "_read_rights", lambda found: (real(found)[0], 0o022))
    out, hidden = place
    hidden.mkdir(0o777)
    split(out, resume=True)
    assert right(out)
    assert not hidden.exists()


DRAFTS = (
    "files",
    "files/x.1.npy",
    "files/out",
    "files/out/x.1.npy",
    "x.1.npy",
    "before",
    "before/x.1.npy",
    ".cluster",
    ".source-0",
    "files/before",
)


@pytest.mark.parametrize("way", ["descriptors", "names"], indirect=True)
@pytest.mark.parametrize("name", DRAFTS)
@pytest.mark.parametrize("kind", KINDS)
def test_planted_drafts_are_never_written_through(place, way, kind, name, tmp_path):
    """A resumed run rejects a folder with one, whose journal is real. A plain run removes all."""
    out, hidden = place

    def stop(done: int, total: int) -> None:
        if done >= total / 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        split(out, progress=stop)
    path = hidden / name
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    plant(path, kind, tmp_path)
    before = tree(hidden)
    replaced = ("hard link", "link", "dangling link")  # as a run that was killed leaves them
    if name == "before/x.1.npy" and kind in replaced:
        split(out, resume=True)
    else:
        with pytest.raises(
            FileError, match=r"in it is a (link|second name of a file|pipe, socket or device)"
        ):
            split(out, resume=True)
        assert tree(hidden) == before
        assert safe(tmp_path)
        assert split(out).replaced == hidden
    assert safe(tmp_path)
    assert right(out)
    assert not hidden.exists()


_KILLED = """
import os, sys
from splitops import files
replace = os.replace
os.replace = lambda a, b: os._exit(9) if str(b).endswith("x.1.npy") else replace(a, b)
files.split("x.npy", "out", axis=0, num_outputs=2, overwrite=True)
"""


@pytest.mark.parametrize("kind", ["link", "dangling link", "file of another user"])
def test_a_killed_run_that_was_replacing_links_is_resumed(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.arange(400).reshape(20, 20))
    kept = tmp_path / "kept"
    if kind != "dangling link":
        kept.write_bytes(b"kept")
    out = tmp_path / "out"
    out.mkdir()
    for number in range(2):
        path = out / f"x.{number}.npy"
        if kind != "file of another user":
            path.symlink_to(kept)
        elif os.geteuid() == 0:
            path.write_bytes(b"old")
            os.chown(path, 12345, -1)
        else:
            pytest.skip("only root gives files away")
    assert subprocess.run([sys.executable, "-c", _KILLED], check=False).returncode == 9
    assert os.path.lexists(out / ".splitops-x.part" / "before" / "x.0.npy")
    splitops.files.split("x.npy", "out", axis=0, num_outputs=2, overwrite=True, resume=True)
    assert sorted(path.name for path in out.iterdir()) == ["x.0.npy", "x.1.npy"]
    assert not any(path.is_symlink() for path in out.iterdir())
    np.testing.assert_array_equal(np.load(out / "x.1.npy"), np.arange(200, 400).reshape(10, 20))
    assert kind == "dangling link" or kept.read_bytes() == b"kept"


@pytest.mark.parametrize("way", ["descriptors", "names"], indirect=True)
def test_a_link_to_a_folder_among_replaced_files_is_rejected(place, way, tmp_path):
    out, hidden = place
    (hidden / "before").mkdir(0o700, parents=True)
    hidden.chmod(0o700)
    (hidden / ".journal").touch()
    (hidden / "before" / "sub").symlink_to(tmp_path)
    with pytest.raises(FileError, match="'sub' in it is a link"):
        split(out, resume=True)


def test_a_folder_that_takes_its_place_meanwhile_is_not_written_to(place, tmp_path):
    """Somebody who may rename folders beside it puts a link there, again and again."""
    out, hidden = place
    if not Path("/proc/self/fd").is_dir():
        pytest.skip("no paths of descriptors")
    moved = []

    def exchange(done: int, total: int) -> None:
        if not moved:
            moved.append(hidden.rename(hidden.with_name("moved")))
            hidden.symlink_to(tmp_path / "home")

    split(out, progress=exchange, verify=True)
    assert safe(tmp_path)
    assert right(out)
    assert hidden.is_symlink()


def test_nothing_is_moved_into_a_folder_that_takes_the_place_of_the_one_around_it(place, tmp_path):
    """Somebody who may rename the folder that is written, or the one that gets it."""
    out, _ = place
    if not Path("/proc/self/fd").is_dir():
        pytest.skip("no paths of descriptors")
    shared = tmp_path / "shared"
    shared.mkdir()
    np.save(shared / "x.npy", ARRAY)
    (tmp_path / "home" / "x.0.npy").write_bytes(b"of the user")
    new = not out.exists()
    if not new:
        out.rename(shared / "out")
    exchanged, moved = (shared, tmp_path / "moved") if new else (shared / "out", shared / "moved")

    def exchange(done: int, total: int) -> None:
        if not moved.exists():
            exchanged.rename(moved)
            exchanged.symlink_to(tmp_path / "home")

    with pytest.raises(
        FileError, match=f"cannot write into '{exchanged}': it was replaced by another folder"
    ):
        split(shared / "out", progress=exchange, overwrite=True)
    assert {path.name: path.read_bytes() for path in (tmp_path / "home").iterdir()} == {
        "x.0.npy": b"of the user"
    }
    assert os.listdir(moved) == (["x.npy"] if new else [])


def test_nothing_is_moved_through_a_link_that_takes_the_place_of_a_new_folder(tmp_path):
    np.save(tmp_path / "x.npy", ARRAY)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "x.0.npy").write_bytes(b"of the user")

    def plant(done: int, total: int) -> None:
        if not (tmp_path / "out").is_symlink():
            (tmp_path / "out").symlink_to(tmp_path / "home")

    with pytest.raises(FileError, match=r"cannot write '.*out': a file with this name exists"):
        split(tmp_path / "out", progress=plant, overwrite=True)
    assert os.listdir(tmp_path / "home") == ["x.0.npy"]
    assert (tmp_path / "home" / "x.0.npy").read_bytes() == b"of the user"
    assert sorted(os.listdir(tmp_path)) == ["home", "out", "x.npy"]


@pytest.mark.parametrize("name", ["files", "files/x.0.npy", "files/out", "x.0.npy"])
@pytest.mark.parametrize("kind", ["link to a folder", "hard link"])
def test_what_cannot_be_removed_is_never_written_through(place, tmp_path, monkeypatch, name, kind):
    """As in a hidden folder that an archive has made read-only."""
    out, hidden = place
    hidden.mkdir(0o700)
    (hidden / name).parent.mkdir(exist_ok=True)
    for number in range(3):
        (tmp_path / "home" / f"x.{number}.npy").write_bytes(b"of the user")
    plant(hidden / name, kind, tmp_path)
    if os.geteuid() == 0:  # who may remove it all the same
        monkeypatch.setattr(staging, "_remove", lambda path: None)
    for folder in {hidden, (hidden / name).parent}:
        folder.chmod(0o500)
    with pytest.raises(FileError, match=r"'(files|x\.0\.npy)' in it cannot be removed\. Nothing was written"):
        split(out, overwrite=True)
    for folder in {hidden, (hidden / name).parent}:
        folder.chmod(0o700)
    assert (tmp_path / "victim").read_bytes() == b"of the user"
    assert {path.read_bytes() for path in (tmp_path / "home").iterdir()} == {b"of the user"}


@pytest.mark.parametrize("name", [".journal", "before", "files", ".cluster", ".source-0"])
@pytest.mark.parametrize("beside", [False, True])
def test_a_file_may_have_any_name_of_a_hidden_folder(place, tmp_path, name, beside):
    out, hidden = place
    if out.exists():
        (out / "x.0.npy").write_bytes(b"old")
    folder = tmp_path if beside else out
    seen = []

    def look(done: int, total: int) -> None:
        seen.append((hidden / ".journal").read_bytes().startswith(b'{"plan"'))

    split(out, checksums=folder / name, overwrite=True, progress=look, verify=True)
    assert all(seen)
    assert len((folder / name).read_text().splitlines()) == 3
    assert right(out)
    assert not hidden.exists()


def test_a_chunked_target_is_not_written_elsewhere_either(tmp_path):
    zarr = pytest.importorskip("zarr")
    zarr.create_array(tmp_path / "x.zarr", shape=ARRAY.shape, chunks=(60, 500), dtype="u1")[...] = ARRAY
    (tmp_path / "home").mkdir()
    hidden = tmp_path / ".splitops-out-x.part"

    def exchange(done: int, total: int) -> None:
        if not hidden.is_symlink():
            hidden.rename(tmp_path / "moved")
            hidden.symlink_to(tmp_path / "home")

    splitops.files.split(tmp_path / "x.zarr", tmp_path / "out", num_outputs=2, progress=exchange, verify=True)
    assert not os.listdir(tmp_path / "home")
    assert np.array_equal(zarr.open_array(tmp_path / "out" / "x.1.zarr", mode="r")[...], ARRAY[300:])


def test_nobody_else_may_enter_it(place, tmp_path):
    out, hidden = place
    modes = []
    before = os.umask(0)
    try:
        split(out, progress=lambda done, total: modes.append(stat.S_IMODE(hidden.stat().st_mode)))
        assert set(modes) == {0o700}
        assert stat.S_IMODE((out / "x.0.npy").stat().st_mode) == 0o666
        assert stat.S_IMODE(out.stat().st_mode) == (0o777 if hidden.parent == tmp_path else 0o755)
    finally:
        os.umask(before)


@pytest.mark.parametrize(
    "command", ["split", "merge", "max-size", "shard", "reshard", "merge ranks", "unfuse", "index"]
)
@pytest.mark.parametrize("options", [[], ["--resume"], ["--overwrite"]])
def test_every_command_that_writes_tensor_files_rejects_it(tmp_path, monkeypatch, command, options):
    safetensors = pytest.importorskip("safetensors.numpy")
    monkeypatch.chdir(tmp_path)
    Path("victim").write_bytes(b"of the user")
    Path("home").mkdir()
    Path("model").mkdir()
    np.save("x.npy", ARRAY)
    np.save("y.npy", ARRAY)
    safetensors.save_file({"a.weight": ARRAY, "b.weight": ARRAY}, "model/model.safetensors")
    Path("plan.toml").write_text('version = 1\n[[rule]]\nmatch = "*"\naxis = 0\n')
    Path("rules.toml").write_text(
        'version = 1\n[[rule]]\nfused = "a.weight"\nparts = ["c.weight", "d.weight"]\n'
    )
    shard = ["shard", "model", "--ranks", "2", "--plan", "plan.toml", "-o"]
    if command in ("reshard", "merge ranks"):
        assert runner().invoke(cli, [*shard, "ranks"]).exit_code == 0
    words = {
        "split": ["split", "x.npy", "--parts", "2", "-o", "out"],
        "merge": ["merge", "x.npy", "y.npy", "--axis", "0", "--out", "z.npy"],
        "max-size": ["split", "model", "--max-size", "1M", "-o", "out"],
        "shard": [*shard, "out"],
        "reshard": ["reshard", "ranks", "--ranks", "3", "-o", "out"],
        "merge ranks": ["merge", "ranks", "--out", "out"],
        "unfuse": ["unfuse", "model", "--plan", "rules.toml", "-o", "out"],
        "index": ["index", "model"],
    }[command]
    taken = []
    real = StagingFolder.open_locked.__func__
    monkeypatch.setattr(
        StagingFolder, "open_locked", classmethod(lambda cls, path: taken.append(path) or real(cls, path))
    )
    done = runner().invoke(cli, words)
    assert done.exit_code == 0, done.output
    shutil.rmtree("out", ignore_errors=True)
    Path("z.npy").unlink(missing_ok=True)
    [hidden] = taken
    hidden.mkdir(0o700)
    plant(hidden / ".journal", "link", tmp_path)
    done = runner().invoke(cli, [*words, *options])
    assert done.exit_code == 1
    assert len(done.stderr.splitlines()) == 1
    assert (
        "was not left by a run of this user: '.journal' in it is a link. Nothing was written" in done.stderr
    )
    assert safe(tmp_path)


def test_the_file_of_checksums_has_a_hidden_folder_of_its_own(tmp_path, monkeypatch):
    """It may be in another folder, where a folder of the same name may have been planted."""
    (tmp_path / "victim").write_bytes(b"of the user")
    (tmp_path / "home").mkdir()
    (tmp_path / "sums").mkdir()
    np.save(tmp_path / "x.npy", ARRAY)
    for name in (".splitops-x.part", ".splitops-out-x.part"):
        (tmp_path / "sums" / name).mkdir()
        (tmp_path / "sums" / name / "all").symlink_to(tmp_path / "victim")
    split(tmp_path / "out", checksums=tmp_path / "sums" / "all")
    assert safe(tmp_path)
    assert len((tmp_path / "sums" / "all").read_text().splitlines()) == 3
