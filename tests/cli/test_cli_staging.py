"""Sets of files: whole or not at all, and names that stay where they belong."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splitops.cli._staging import StagedFolder, safe_names
from splitops.errors import ModelError


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def write(folder: StagedFolder, **files: bytes) -> None:
    for name, data in files.items():
        with folder.open(name) as file:
            file.write(data)


def fail_in(target: Path, failure: type[BaseException]) -> None:
    with StagedFolder(target) as folder:
        write(folder, a=b"new")
        assert any(target.glob(".splitops-*/a"))
        raise failure


def test_files_appear_together_and_replace(tmp_path):
    (tmp_path / "a").write_bytes(b"old")
    (tmp_path / "kept").write_bytes(b"kept")
    with StagedFolder(tmp_path) as folder:
        write(folder, a=b"new", b=b"too")
        assert (tmp_path / "a").read_bytes() == b"old"
    assert content(tmp_path) == {"a": b"new", "b": b"too", "kept": b"kept"}


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


def test_a_file_that_cannot_be_moved_puts_everything_back(tmp_path):
    (tmp_path / "a").write_bytes(b"old")
    (tmp_path / "c").mkdir()
    with pytest.raises(ModelError, match="in the way"), StagedFolder(tmp_path) as folder:
        write(folder, a=b"new", b=b"too", c=b"three")
    assert sorted(os.listdir(tmp_path)) == ["a", "c"]
    assert (tmp_path / "a").read_bytes() == b"old"


@pytest.mark.parametrize("at", range(6))
def test_a_move_that_fails_anywhere_puts_everything_back(tmp_path, monkeypatch, at):
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"old")
    replace, calls = os.replace, iter(range(100))

    def failing(source: Path, target: Path) -> None:
        if next(calls) == at:
            raise OSError(5, "Input/output error")
        replace(source, target)

    monkeypatch.setattr(os, "replace", failing)
    moves = 5  # a and b are moved away and replaced, c is new
    if at < moves:
        with pytest.raises(ModelError, match="input/output error"), StagedFolder(tmp_path) as folder:
            write(folder, a=b"new", b=b"new", c=b"new")
        assert content(tmp_path) == {"a": b"old", "b": b"old"}
    else:
        with StagedFolder(tmp_path) as folder:
            write(folder, a=b"new", b=b"new", c=b"new")
        assert content(tmp_path) == {"a": b"new", "b": b"new", "c": b"new"}


def test_an_interrupt_among_the_moves_waits_until_they_are_done(tmp_path, monkeypatch):
    replace = os.replace

    def interrupted(source: Path, target: Path) -> None:
        signal.raise_signal(signal.SIGINT)
        replace(source, target)

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt), StagedFolder(tmp_path) as folder:
        write(folder, a=b"new", b=b"new")
    assert content(tmp_path) == {"a": b"new", "b": b"new"}
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_link_is_replaced_and_not_followed(tmp_path):
    (tmp_path / "elsewhere").write_bytes(b"safe")
    out = tmp_path / "out"
    out.mkdir()
    (out / "a").symlink_to(tmp_path / "elsewhere")
    with StagedFolder(out) as folder:
        write(folder, a=b"new")
    assert (tmp_path / "elsewhere").read_bytes() == b"safe"
    assert not (out / "a").is_symlink()


@given(st.lists(st.text(), max_size=6))
def test_names_are_safe_and_differ(names):
    found = safe_names(names, [".npy"])
    files = [f"{name}.npy" for name in found]
    assert len({file.casefold() for file in files}) == len(names)
    for file in files:
        assert Path(file).name == file
        assert not file.startswith(".")
        assert not set(file) & set('/\\:\0<>"|?*\n')
        assert len(file.encode()) < 255


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["../../x"], ["_.._x"]),
        (["/etc/passwd", "..", "", "."], ["_etc_passwd", "_", "_-2", "_-3"]),
        (["C:\\x", "a\0b"], ["C__x", "a_b"]),
        (["y", "Y", "y"], ["y", "Y-2", "y-3"]),
        (["y-2", "y", "y"], ["y-2", "y", "y-3"]),
        (["CON", "nul.txt"], ["_CON", "_nul.txt"]),
        (["é", "e\u0301"], ["é", "é-2"]),
    ],
)
def test_names(names, expected):
    assert safe_names(names, [".npy"]) == expected
