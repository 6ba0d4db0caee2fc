"""``splitops index``: the index of safetensors files from their headers, and what it says of a folder."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

import splitops
from command_line import runner
from splitops.cli import cli
from splitops.errors import FileError
from splitops.files import plan_by_size, plan_index

INDEX = "model.safetensors.index.json"


def run(*arguments: object, code: int = 0) -> str:
    done = runner().invoke(cli, [str(argument) for argument in arguments], catch_exceptions=False)
    assert done.exit_code == code, done.output + done.stderr
    return " ".join((done.stdout + done.stderr).split())


def numbered(folder: Path, count: int = 3, stem: str = "model", word: str = "layer") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        tensors = {f"{word}.{number}.{name}": np.full((2, 3), number, np.float32) for name in ("a", "b")}
        save_file(tensors, folder / f"{stem}-{number + 1:05}-of-{count:05}.safetensors")
    return folder


@settings(deadline=None, max_examples=20)
@given(sizes=st.lists(st.integers(0, 400), min_size=2, max_size=9), max_size=st.integers(1, 900))
def test_the_index_is_the_one_that_a_split_writes(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], max_size: int
) -> None:
    folder = tmp_path_factory.mktemp("any")
    (folder / "one").mkdir()
    save_file(
        {f"ä.{i}": np.zeros(n, np.uint8) for i, n in enumerate(sizes)}, folder / "one/model.safetensors"
    )
    plan_by_size(folder / "one", folder / "x", max_size).run(sync=False)
    made = folder / "x" / INDEX
    if not made.exists():  # a single file
        return
    before = made.read_bytes()
    assert plan_index(folder / "x").paths == ()
    made.unlink()
    report = plan_index(folder / "x").run(verify=True)
    assert [path for path, _ in report.files] == [made]
    assert made.read_bytes() == before
    assert splitops.files.open(made).keys() == {f"ä.{i}" for i in range(len(sizes))}


def test_a_stale_index_says_why_and_is_replaced(tmp_path: Path) -> None:
    """As in repositories whose index is that of the model before quantisation."""
    folder = numbered(tmp_path / "m")
    run("index", folder)
    old = json.loads((folder / INDEX).read_text())
    assert old["metadata"] == {"total_size": 3 * 2 * 24}
    assert run("index", folder) == "The index agrees with the files."
    assert json.loads(run("index", folder, "--json"))["files"] == []
    name = "model-00002-of-00003.safetensors"
    stale = {
        "lists tensor 'lost' in": {"lost": name},
        "cannot open": {"lost": "model-00009-of-00009.safetensors"},
        "model.safetensors.index.json' lists 'model-00002-of-00003": {"layer.0.a": name},
    }
    for said, wrong in stale.items():
        (folder / INDEX).write_text(json.dumps({"weight_map": old["weight_map"] | wrong}))
        before = (folder / INDEX).read_bytes()
        failed = run("index", folder, code=1)
        assert said in failed
        assert "already exists. Pass --overwrite" in failed
        shown = run("index", folder, "--dry-run")
        assert f"warning: '{INDEX}' is stale: " in shown
        assert said in shown
        assert (folder / INDEX).read_bytes() == before
        run("index", folder, "--overwrite", "--verify")
        assert json.loads((folder / INDEX).read_text()) == old
    for wrong in (
        "{",
        '{"weight_map": {}}',
        json.dumps({"metadata": {"total_size": 1}} | old | {"metadata": {"total_size": 1}}),
    ):
        (folder / INDEX).write_text(wrong)
        [warning] = plan_index(folder).warnings
        assert "is stale" in warning
        plan_index(folder).run(overwrite=True)
        assert json.loads((folder / INDEX).read_text()) == old


def test_an_index_without_some_tensors_is_stale(tmp_path: Path) -> None:
    folder = numbered(tmp_path / "m")
    run("index", folder)
    found = json.loads((folder / INDEX).read_text())
    found["weight_map"] = {n: f for n, f in found["weight_map"].items() if not n.startswith("layer.2")}
    (folder / INDEX).write_text(json.dumps(found))
    [warning] = plan_index(folder).warnings
    assert "layer.2.a" in warning
    assert "layer.2.b" in warning


def test_tensors_in_two_files_are_named(tmp_path: Path) -> None:
    folder = numbered(tmp_path / "m")
    again = {"layer.0.b": np.zeros(3), "layer.1.a": np.zeros(3), "new": np.zeros(1)}
    save_file(again, folder / "model-00003-of-00003.safetensors")
    said = run("index", folder, code=1)
    one, other, third = (f"'model-0000{i}-of-00003.safetensors'" for i in (1, 2, 3))
    assert f"tensor 'layer.0.b' is in {one} and in {third}, tensor 'layer.1.a' is in {other} and in" in said
    assert not (folder / INDEX).exists()


def test_missing_numbers_are_named(tmp_path: Path) -> None:
    """As in a model whose 15 files are numbered as the first of 30, and are complete."""
    folder = numbered(tmp_path / "m", 30)
    for number in range(15, 30):
        (folder / f"model-{number + 1:05}-of-00030.safetensors").unlink()
    said = run("index", folder, code=1)
    assert "15 of 30 numbered files are missing: 'model-00016-of-00030.safetensors', 'model-00017" in said
    assert "'model-00023-of-00030.safetensors' and 7 more. If the model is complete" in said
    said = run("index", folder, "--allow-missing", "--sha256")
    digest = hashlib.sha256((folder / INDEX).read_bytes()).hexdigest()
    assert f"sha256 {digest}" in said
    assert json.loads(run("index", folder, "--allow-missing", "--json"))["sha256"] == []
    assert len(json.loads((folder / INDEX).read_text())["weight_map"]) == 30


def test_strays_are_named_and_can_be_included(tmp_path: Path) -> None:
    folder = numbered(tmp_path / "m")
    save_file({"mtp.a": np.zeros(4, np.float32)}, folder / "model-mtp-of-00005.safetensors")
    save_file({"layer.0.a": np.zeros(4, np.float32)}, folder / "model.safetensors")
    save_file({"layer.0.a": np.zeros(4, np.float16)}, folder / "model.fp16.safetensors")
    said = run("index", folder)
    assert "'model-mtp-of-00005.safetensors' is left out" in said
    assert "no file of the model has its tensor 'mtp.a'" in said
    assert "'model.safetensors' is left out" in said
    assert "fp16" not in said
    assert "is left out" in run("index", folder, "--strict", "--overwrite", code=1)
    run("index", folder, "--include", "*-mtp-*", "--overwrite")
    found = json.loads((folder / INDEX).read_text())
    assert found["weight_map"]["mtp.a"] == "model-mtp-of-00005.safetensors"
    assert found["metadata"] == {"total_size": 3 * 2 * 24 + 16}
    assert "matches 'x*'" in run("index", folder, "--include", "x*", code=1)
    assert "and in 'model.safetensors': move" in run(
        "index", folder, "--include", "model.safetensors", "--overwrite", code=1
    )


def test_two_sets_of_numbered_files(tmp_path: Path) -> None:
    folder = numbered(numbered(tmp_path / "m", 3), 2, word="other")
    assert "2 of 2 sets of numbered files are complete. Move those" in run("index", folder, code=1)
    (folder / "model-00001-of-00003.safetensors").unlink()
    said = run("index", folder)
    assert "'model-00002-of-00003.safetensors' is left out" in said
    assert set(json.loads((folder / INDEX).read_text())["weight_map"].values()) == {
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
    }


@pytest.mark.parametrize(("names", "index"), [(["a", "b"], "model"), (["weights"], "weights")])
def test_files_without_numbers(tmp_path: Path, names: list[str], index: str) -> None:
    for name in names:
        save_file({f"{name}.x": np.zeros(2)}, tmp_path / f"{name}.safetensors")
    run("index", tmp_path)
    found = json.loads((tmp_path / f"{index}.safetensors.index.json").read_text())
    assert found["weight_map"] == {f"{name}.x": f"{name}.safetensors" for name in names}


def test_numbers_that_cannot_be(tmp_path: Path) -> None:
    folder = numbered(tmp_path / "m", 2)
    for name in ("model-00000-of-00002.safetensors", "model-00003-of-00002.safetensors"):
        save_file({name: np.zeros(2)}, folder / name)
    assert len(plan_index(folder).warnings) == 2
    assert {part.tensor.split(".")[0] for part in plan_index(folder).parts} == {"layer"}


def test_folders_that_lie(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="is not a folder"):
        plan_index(tmp_path / "none")
    with pytest.raises(FileError, match="has no safetensors file"):
        plan_index(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"x")
    with pytest.raises(FileError, match="pickle"):
        plan_index(tmp_path)
    outside = tmp_path / "outside.safetensors"
    save_file({"x": np.zeros(2)}, outside)
    (tmp_path / "m").mkdir()
    os.symlink(outside, tmp_path / "m" / "model.safetensors")
    with pytest.raises(FileError, match="--allow-links"):
        plan_index(tmp_path / "m")
    assert len(plan_index(tmp_path / "m", allow_links=True).parts) == 1
    (tmp_path / "m" / "model.safetensors").unlink()
    (tmp_path / "m" / "model.safetensors").write_bytes(b"\xff" * 100)
    with pytest.raises(FileError, match="header"):
        plan_index(tmp_path / "m")
