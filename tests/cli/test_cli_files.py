"""``splitops merge`` and ``splitops inspect``, and what the commands on files share."""

from __future__ import annotations

import io
import json
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import splitops
from splitops.cli import cli


def test_merge_is_the_inverse_of_split(invoke, tmp_path):
    array = np.arange(60, dtype=np.float32).reshape(6, 10)
    save_file({"w": array, "b": np.zeros(3)}, tmp_path / "x.safetensors")
    split = [
        "--tensor",
        "w",
        "--axis",
        1,
        "--parts",
        4,
        "--keep-other-tensors",
        "--out",
        tmp_path / "o",
        "--json",
    ]
    stated = json.loads(invoke("split", tmp_path / "x.safetensors", *split).output)
    assert [part["tensor"] for part in stated["parts"]] == ["w"] * 4
    parts = [part["file"] for part in stated["parts"]]
    merged = invoke(
        "merge", *parts, "--tensor", "w", "--axis", 1, "--out", tmp_path / "y.safetensors", "--json"
    )
    assert json.loads(merged.output)["parts"][0]["shape"] == [6, 10]
    assert (tmp_path / "y.safetensors").read_bytes() == (tmp_path / "x.safetensors").read_bytes()
    again = invoke("merge", *parts, "--tensor", "w", "--axis", 1, "--out", tmp_path / "y.safetensors")
    assert (again.exit_code, "already exists" in again.stderr) == (1, True)


def test_another_format_is_written_on_request(invoke, tmp_path):
    np.save(tmp_path / "x.npy", np.arange(6.0))
    arguments = ["--parts", 2, "--to", "safetensors", "--out", tmp_path]
    assert invoke("split", tmp_path / "x.npy", *arguments).exit_code == 0
    assert load_file(tmp_path / "x.1.safetensors")["data"].tolist() == [3, 4, 5]
    assert invoke("split", tmp_path / "x.npy", "--parts", 2, "--to", "pickle").exit_code == 2


def test_raw_bytes(invoke, tmp_path):
    array = np.arange(24, dtype=np.int16).reshape(2, 3, 4)
    (tmp_path / "x.bin").write_bytes(b"head" + array.tobytes())
    split = ["--raw", "2,-1,4:int16@4", "--axis", 1, "--sizes", "1,2", "--out", tmp_path]
    assert invoke("split", tmp_path / "x.bin", *split).exit_code == 0
    parts = [tmp_path / "x.0.bin", tmp_path / "x.1.bin"]
    assert parts[1].read_bytes() == array[:, 1:].tobytes()
    merge = ["--raw", "2,-1,4:i16", "--axis", 1, "--out", tmp_path / "y.bin"]
    assert invoke("merge", *parts, *merge).exit_code == 0
    assert (tmp_path / "y.bin").read_bytes() == array.tobytes()
    for wrong in ("2,3:int16@x", "2,3", "2,-2:int16", "2,3:int99"):
        assert invoke("split", tmp_path / "x.bin", "--raw", wrong, "--parts", 2).exit_code == 2


def test_inspect_says_where_tensors_are(invoke, tmp_path):
    save_file({"w": np.zeros((2, 3)), "<b>&\x1b": np.zeros(3, np.int8)}, tmp_path / "x.safetensors")
    stated = json.loads(invoke("inspect", tmp_path / "x.safetensors", "--json").output)
    assert (stated["format"], stated["bytes"]) == ("safetensors", (tmp_path / "x.safetensors").stat().st_size)
    assert [tensor["shape"] for tensor in stated["tensors"]] == [[2, 3], [3]]
    assert stated["tensors"][1]["offset"] == stated["tensors"][0]["offset"] + 48
    shown = invoke("inspect", tmp_path / "x.safetensors", "--svg", tmp_path / "x.svg")
    assert "2 tensors" in shown.output
    assert "\x1b" not in shown.output
    texts = [
        text.text for text in ET.parse(tmp_path / "x.svg").getroot().iter("{http://www.w3.org/2000/svg}text")
    ]
    assert "w float64 (2, 3), 48 bytes" in texts[1]


def test_unknown_endings_are_one_line(invoke, tmp_path):
    (tmp_path / "x.pkl").write_bytes(b"\x80\x04N.")
    result = invoke("inspect", tmp_path / "x.pkl")
    assert (result.exit_code, len(result.stderr.splitlines())) == (1, 1)
    assert "does not end with one of .npy" in result.stderr


def test_many_parts_are_told_shortly(invoke, tmp_path):
    np.save(tmp_path / "x.npy", np.arange(40))
    text = invoke("split", tmp_path / "x.npy", "--chunk", 1, "--out", tmp_path).output
    assert "x.31.npy" in text
    assert f"... and 8 more, to {tmp_path}/x.39.npy" in text
    again = invoke("split", tmp_path / "x.npy", "--chunk", 20, "--prefix", "y", "--out", tmp_path)
    assert "more" not in again.output
    dry = invoke("split", tmp_path / "x.npy", "--chunk", 20, "--prefix", "y", "--out", tmp_path, "--dry-run")
    assert [line for line in dry.output.splitlines() if line.endswith(" already exists")] == [
        f"{tmp_path}/y.{number}.npy already exists" for number in range(2)
    ]


@pytest.fixture
def stopped(tmp_path, monkeypatch):
    """A run that was killed once everything was copied."""

    class Killed(BaseException):
        pass

    def stop(done: int, total: int) -> None:
        if done == total:
            raise Killed

    np.save(tmp_path / "x.npy", np.arange(40))
    with monkeypatch.context() as kept:
        kept.setattr("splitops.common.atomic_write.StagedFiles.clean", lambda _: None)
        with pytest.raises(Killed):
            splitops.files.split(tmp_path / "x.npy", tmp_path / "out", num_outputs=2, progress=stop)
    return "split", tmp_path / "x.npy", "--parts", 2, "--out", tmp_path / "out"


def test_what_a_stopped_run_has_left_is_replaced_and_told(invoke, tmp_path, stopped):
    result = invoke(*stopped)
    assert result.exit_code == 0
    assert result.stderr == (
        f"splitops: replaced {tmp_path}/.splitops-out-x.part, which an interrupted run had left\n"
    )


def test_a_stopped_run_is_gone_on_with_and_told(invoke, stopped):
    assert json.loads(invoke(*stopped, "--resume", "--json").output)["resumed"] == 320


def test_a_terminal_shows_how_far_files_are(invoke, tmp_path, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    np.save(tmp_path / "x.npy", np.arange(40))
    monkeypatch.setattr("sys.stderr", stream := Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("splitops.cli._progress.DELAY", 0.0)
    arguments = ["split", str(tmp_path / "x.npy"), "--parts", "2", "--out", str(tmp_path)]
    cli.main(arguments, standalone_mode=False)
    assert "320/320 bytes" in stream.getvalue()


def test_like_is_of_ranks_alone(invoke, tmp_path):
    np.save(tmp_path / "x.npy", np.arange(4))
    result = invoke("merge", tmp_path / "x.npy", "--files-like", tmp_path, "--out", tmp_path / "y.npy")
    assert (result.exit_code, "--files-like can be used only with a folder of ranks" in result.stderr) == (
        2,
        True,
    )
