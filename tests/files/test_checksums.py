"""Checksums that a run keeps: as ``sha256sum`` reads them, and held against the files later."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import fsspec
import numpy as np
import pytest
import zarr
from click.testing import CliRunner
from safetensors.numpy import save_file

import splitops
from splitops import sharding
from splitops.cli import cli
from splitops.errors import FileError
from splitops.files.checksums import Checked, check

ARRAY = np.arange(240, dtype=np.int32).reshape(12, 20)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    np.save(tmp_path / "x.npy", ARRAY)
    return tmp_path / "x.npy"


def names(path: Path) -> list[str]:
    return [line.split(b"  ", 1)[1].decode() for line in path.read_bytes().splitlines()]


def sha256sum(path: Path) -> int:
    """What sha256sum itself says, in the folder of the checksums."""
    tool = shutil.which("sha256sum")
    if tool is None:
        pytest.skip("there is no sha256sum")
    done = subprocess.run(
        [tool, "--check", "--strict", path.name], cwd=path.parent, capture_output=True, check=False
    )
    return done.returncode


def test_checksums_are_those_of_sha256sum(source: Path, tmp_path: Path) -> None:
    sums = tmp_path / "sums" / "x.sha256"
    made = splitops.files.split(source, tmp_path / "out", num_outputs=3, checksums=sums)
    assert names(sums) == [f"../out/x.{index}.npy" for index in range(3)]
    assert sha256sum(sums) == 0
    assert [each.problem for each in check(sums, allow_links=True)] == [None] * 3
    path = made.files[1][0]
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    made.files[2][0].unlink()
    first, second, third = check(sums, allow_links=True)
    assert first == Checked("../out/x.0.npy")
    assert "its SHA-256 is " in str(second.problem)
    assert "x.2.npy" in str(third.problem)
    assert sha256sum(sums) == 1


def test_folders_have_a_line_for_each_file(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    save_file({"w": ARRAY}, model / "model.safetensors")
    plan = {"version": 1, "rule": [{"match": "w", "axis": 0}]}
    sharding.plan(model, plan, ranks=2).run(tmp_path / "ranks", checksums=tmp_path / "ranks.sha256")
    files = [path for path in sorted((tmp_path / "ranks").rglob("*")) if path.is_file()]
    assert sorted(names(tmp_path / "ranks.sha256")) == [str(path.relative_to(tmp_path)) for path in files]
    assert sha256sum(tmp_path / "ranks.sha256") == 0
    array = zarr.create_array(tmp_path / "x.zarr", shape=(12, 20), chunks=(4, 5), dtype="i4")
    array[...] = ARRAY
    splitops.files.split(tmp_path / "x.zarr", tmp_path, num_outputs=2, checksums=tmp_path / "zarr.sha256")
    assert len(names(tmp_path / "zarr.sha256")) == 2 * (1 + 2 * 4)
    assert sha256sum(tmp_path / "zarr.sha256") == 0


def test_they_appear_with_the_files_or_not_at_all(source: Path, tmp_path: Path) -> None:
    sums = tmp_path / "x.sha256"

    def stop(done: int, total: int) -> None:
        if done == total:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        splitops.files.split(source, tmp_path / "out", num_outputs=2, checksums=sums, progress=stop)
    assert sorted(os.listdir(tmp_path)) == [".splitops-out-x.part", "x.npy"]
    shutil.rmtree(tmp_path / ".splitops-out-x.part")
    sums.write_text("of another run")
    with pytest.raises(FileError, match=r"x\.sha256' already exists"):
        splitops.files.split(source, tmp_path / "out", num_outputs=2, checksums=sums)
    assert sorted(os.listdir(tmp_path)) == ["x.npy", "x.sha256"]
    for options in ({"overwrite": True}, {"resume": True}):
        splitops.files.split(source, tmp_path / "out", num_outputs=2, checksums=sums, **options)
        assert sha256sum(sums) == 0
    sums.write_text("of another run")
    with pytest.raises(FileError, match=r"x\.sha256' already exists"):
        splitops.files.split(source, tmp_path / "out", num_outputs=2, checksums=sums, resume=True)
    sums.unlink()
    splitops.files.split(source, tmp_path / "out", num_outputs=2, checksums=sums, resume=True)
    assert sha256sum(sums) == 0


def test_files_at_addresses(source: Path, tmp_path: Path) -> None:
    files = fsspec.filesystem("memory")
    sums = tmp_path / "x.sha256"
    splitops.files.split(source, "memory://sums", num_outputs=2, checksums=sums)
    assert names(sums) == ["memory://sums/x.0.npy", "memory://sums/x.1.npy"]
    assert [each.problem for each in check(sums)] == [None, None]
    files.pipe_file("/sums/x.1.npy", b"another")
    assert [each.problem is None for each in check(sums)] == [True, False]
    files.rm("/sums", recursive=True)


def test_names_are_escaped_as_sha256sum_does(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", ARRAY)
    sums = tmp_path / "x.sha256"
    splitops.files.split(tmp_path / "x.npy", tmp_path, num_outputs=1, prefix="a\nb\\c", checksums=sums)
    assert sums.read_bytes().startswith(b"\\")
    assert sha256sum(sums) == 0
    assert [each.name for each in check(sums)] == ["a\nb\\c.0.npy"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n\n",
        b"0" * 64,
        b"0" * 63 + b"  x",
        b"g" * 64 + b"  x",
        b"0" * 64 + b"  ",
        b"0" * 64 + b"  a\0b",
        b"\xff",
    ],
)
def test_what_is_no_file_of_checksums_is_one_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "sums").write_bytes(content)
    with pytest.raises(FileError, match=r"sums'(, line 1: .* is not a SHA-256| has no checksums)"):
        list(check(tmp_path / "sums"))
    with pytest.raises(FileError):
        list(check(tmp_path / "none"))


def test_what_is_not_a_regular_file_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "sums").write_text(f"{'0' * 64}  pipe\n{'0' * 64} *.\n")
    assert all(each.problem for each in check(tmp_path / "sums"))


def test_the_command_line(source: Path, tmp_path: Path) -> None:
    def run(*arguments: object) -> tuple[int, str]:
        result = CliRunner().invoke(cli, [str(argument) for argument in arguments])
        return result.exit_code, result.output

    sums = tmp_path / "x.sha256"
    split = ("split", source, "--parts", 2, "--out", tmp_path / "out", "--checksums", sums)
    assert run(*split)[0] == 0
    assert run(*split, "--resume")[0] == 0
    assert run("inspect", "--check", sums) == (0, f"{sums}: 2 files correct, 0 wrong\n")
    (tmp_path / "out" / "x.1.npy").write_bytes(b"another")
    code, said = run("inspect", "--check", sums)
    assert code == 1
    assert said.startswith("out/x.1.npy: its SHA-256 is ")
    code, said = run("inspect", "--check", sums, "--json")
    assert (code, json.loads(said)["differ"]) == (1, 1)
    assert run("inspect", "--check", sums, source)[0] == 2
    assert "Missing argument 'FILE'" in run("inspect")[1]
