"""The table of formats in docs/files.md: what it says of each command is what the command does."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from command_line import runner
from splitops.cli import cli
from splitops.files.formats import FORMATS, WRITTEN, get_format

PAGE = Path(__file__).parents[2] / "docs" / "files.md"
WORDS = {
    "npy 1, 2, 3": "npy",
    "GGUF 2 and 3": "gguf",
    "ONNX external data": "onnx",
    "OpenVINO IR": "openvino",
    "HDF5": "hdf5",
    "zarr 2 and 3": "zarr",
    "raw bytes": "raw",
}
LIBRARIES = {"openvino": "openvino", "hdf5": "h5py", "zarr": "zarr", "gguf": "gguf"}
ARRAY = np.arange(4096, dtype=np.float32).reshape(64, 64)
PLAN = {"version": 1, "rule": [{"match": "*", "axis": 0}]}


class Row(NamedTuple):
    """A line of the table."""

    suffixes: tuple[str, ...]
    read: str
    written: str
    by_size: str
    ranks: str


def table() -> dict[str, Row]:
    section = PAGE.read_text().split("\n## Formats\n")[1]
    found = {}
    for line in re.findall(r"^\| (?!format \|)(.+) \|$", section, re.MULTILINE):
        name, names, *cells = line.split(" | ")[:6]
        found[WORDS.get(name, name)] = Row(tuple(re.findall(r"`(\.[^`]+)`", names)), *cells)
        if name == "raw bytes":
            break
    return found


ROWS = table()


def run(*arguments: object) -> bool:
    """Whether a command ends well."""
    done = runner().invoke(cli, [str(argument) for argument in arguments], catch_exceptions=False)
    assert done.exit_code in (0, 1, 2), done.output
    return done.exit_code == 0


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A file of each format, made by splitops from one of .npy, or by OpenVINO."""
    folder = tmp_path_factory.mktemp("formats")
    np.save(folder / "w.npy", ARRAY)
    made = {"npy": folder / "w.npy"}
    for name in WRITTEN:
        try:
            __import__(LIBRARIES.get(name, "numpy"))
        except ImportError:
            continue
        if name != "npy" and run("split", made["npy"], "--parts", 1, "--to", name, "--out", folder / name):
            [made[name]] = (path for path in (folder / name).iterdir() if path.suffix != ".data")
    try:
        import openvino as ov
    except ImportError:
        return made
    constant = ov.opset13.constant(ARRAY)
    model = ov.Model([ov.opset13.relu(constant)], [])
    ov.save_model(model, folder / "w.xml", compress_to_fp16=False)
    return made | {"openvino": folder / "w.xml"}


def test_each_format_has_a_row_with_its_names() -> None:
    assert ROWS.keys() == {*FORMATS, *WRITTEN}
    for name, row in ROWS.items():
        if name in FORMATS and (name not in LIBRARIES or name == "openvino"):
            assert set(row.suffixes) == set(get_format(name).suffixes) | (
                {".safetensors.index.json"} if name == "safetensors" else set()
            )


@pytest.mark.parametrize("name", ROWS)
def test_what_the_table_says_of_a_format(files: dict[str, Path], tmp_path: Path, name: str) -> None:
    row = ROWS[name]
    assert (name in WRITTEN) is (row.written != "no")
    if name not in files:
        pytest.skip(f"{LIBRARIES.get(name)} is not installed")
    file, raw = files[name], ["--raw", "64,64:float32"] if name == "raw" else []
    parts = ["split", file, "--parts", 2, "--to", "npy", "--out", tmp_path / "parts", *raw]
    assert run(*parts) is (row.read == "yes")
    merged = ["merge", *sorted((tmp_path / "parts").iterdir()), "--out", tmp_path / "merged", "--to", name]
    assert run(*merged) is (row.written != "no")
    by_size = ["--max-size", "1MB", "--out"]
    said = row.by_size.split(", ")
    assert run("split", file, *by_size, tmp_path / "from", "--to", "safetensors", *raw) is ("from" in said)
    assert run("split", files["npy"], *by_size, tmp_path / "to", "--to", name) is ("to" in said)


@pytest.mark.parametrize("name", ROWS)
def test_what_the_table_says_of_ranks(files: dict[str, Path], tmp_path: Path, name: str) -> None:
    if name not in files:
        pytest.skip(f"{LIBRARIES.get(name)} is not installed")
    model = files[name]
    if name == "safetensors":
        model = tmp_path / "model"
        model.mkdir()
        (model / "model.safetensors").write_bytes(files[name].read_bytes())
    (tmp_path / "plan.json").write_text(json.dumps(PLAN))
    ranks = ["--plan", tmp_path / "plan.json", "--ranks", 2, "--out"]
    done = []
    if run("shard", model, *ranks, tmp_path / "ranks"):
        done.append("`shard`")
        if run("reshard", tmp_path / "ranks", *ranks, tmp_path / "again"):
            done.append("`reshard`")
    (tmp_path / "rename.json").write_text(
        json.dumps({"version": 1, "rule": [{"fused": "*", "parts": ["new.*"]}]})
    )
    if run("unfuse", model, "--plan", tmp_path / "rename.json", "--out", tmp_path / "unfused"):
        done.append("`unfuse`")
    assert ", ".join(done) == row_of(name)


def row_of(name: str) -> str:
    said = ROWS[name].ranks
    return "" if said == "no" else said
