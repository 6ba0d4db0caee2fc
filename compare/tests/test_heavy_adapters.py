"""The adapters whose implementations are large: they say what they are, or that their peer is not here."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from splitops_compare import adapters, protocol, worker

HEAVY = ("iree", "mnn", "ncnn", "onnx2tf", "onnx2torch", "pnnx", "tinygrad", "tract", "tvm")
NODE = ("onnxruntime-node", "onnxruntime-web")
FOLDER = Path(next(iter(adapters.__path__)))

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed")

STUB = """
const Tensor = class { constructor(type, data, dims) { Object.assign(this, { type, data, dims }); } };
let model;
const session = {
  run: async (feeds, outputs) => {
    if (model === "trap") throw new WebAssembly.RuntimeError("unreachable");
    process.stdout.write("what an implementation prints\\n");
    return Object.fromEntries(outputs.map((name) => [name, feeds.data]));
  },
  release: async () => {},
};
const create = async (path) => {
  if (path === "broken") throw new Error("it cannot be read");
  model = path;
  return session;
};
module.exports = { Tensor, InferenceSession: { create }, env: { versions: { node: "9.9", web: "9.8" } } };
"""


def talk(command: list[str], messages: list[bytes], variables: Mapping[str, str]) -> tuple[list[Any], int]:
    """Say messages to an implementation, and return its replies and its exit status."""
    done = subprocess.run(
        command, input=b"".join(messages), capture_output=True, timeout=120, env={**os.environ, **variables}
    )
    return [protocol.parse_response(line) for line in done.stdout.splitlines()], done.returncode


def run_adapter(path: Path, *messages: bytes, **variables: str) -> tuple[list[Any], int]:
    command = (
        ["node", str(path)] if path.suffix == ".mjs" else [sys.executable, "-P", worker.__file__, str(path)]
    )
    return talk(command, [protocol.encode_start({}), *messages], variables)


def asked(data: Any, folder: Path, model: str = "model", dtype: str | None = None) -> bytes:
    tensor = worker.pack(data, str(folder), "input-0")
    question = {"message": "request", "id": 1, "model": model, "outputs": ["part"], "folder": str(folder)}
    given = tensor | ({} if dtype is None else {"dtype": dtype})
    return json.dumps(question | {"inputs": {"data": given}}).encode() + b"\n"


@pytest.mark.parametrize("name", HEAVY)
def test_an_adapter_starts_or_names_what_is_missing(name: str) -> None:
    (reply,), status = run_adapter(FOLDER / f"{name}.py")
    assert status == 0
    if reply["message"] == "absent":
        assert "No package metadata was found for" in reply["reason"]
    else:
        assert reply["name"] == name


@needs_node
@pytest.mark.parametrize("name", NODE)
def test_an_adapter_on_node_names_what_is_missing(name: str, tmp_path: Path) -> None:
    (reply,), status = run_adapter(FOLDER / f"{name}.mjs", NODE_PATH=str(tmp_path), HOME=str(tmp_path))
    assert (reply["message"], status) == ("absent", 0)
    assert name in reply["reason"]


@pytest.fixture
def modules(tmp_path: Path) -> str:
    """A folder with a package that has the interface of onnxruntime, and gives what it is given."""
    for name in NODE:
        package = tmp_path / "modules" / name
        package.mkdir(parents=True)
        (package / "index.js").write_text(STUB)
    return str(tmp_path / "modules")


@needs_node
@pytest.mark.parametrize("name", NODE)
def test_tensors_come_back_from_node_as_they_are(name: str, modules: str, tmp_path: Path) -> None:
    arrays = [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.array([[2**53 + 1, -(2**63)]]),
        np.array(True),
        np.array([1.5, -0.0], np.float16),
        np.array(["a", "b\nü"], object),
        np.zeros((0, 4), np.uint64),
        np.arange(1 << 19, dtype=np.int32),  # through a file
    ]
    questions = [asked(array, tmp_path) for array in arrays]
    (started, *replies), status = run_adapter(FOLDER / f"{name}.mjs", *questions, NODE_PATH=modules)
    assert status == 0
    assert started["versions"][name] == ("9.9" if name.endswith("node") else "9.8")
    for array, reply in zip(arrays, replies, strict=True):
        (got,) = protocol.parse_outcome(reply, tmp_path).values
        np.testing.assert_array_equal(got, array, strict=True)


@needs_node
def test_node_rejects_says_what_it_lacks_and_dies_of_a_trap(modules: str, tmp_path: Path) -> None:
    array = np.zeros(2, np.uint16)
    questions = [
        asked(array, tmp_path, "broken"),
        asked(array, tmp_path, dtype="bfloat16"),
        asked(array, tmp_path, "trap"),
    ]
    replies, status = run_adapter(FOLDER / "onnxruntime-web.mjs", *questions, NODE_PATH=modules)
    assert status == 70
    assert [reply.get("outcome") for reply in replies] == [None, "rejected", "not applicable"]
    assert (replies[1]["stage"], replies[1]["text"]) == ("load", "it cannot be read")


TOOL = """
from splitops_compare.worker import run_tool
KIND = "checker"
def read_versions():
    return {"tool": "1"}
def run(case):
    run_tool("load", "sh", "-c", case.model, folder=case.folder)
"""


@pytest.mark.parametrize(
    ("script", "outcome", "status"),
    [
        ("echo no message", "accepted", 0),
        ("echo why >&2; exit 3", "rejected", 0),
        ("kill -SEGV $$", None, -11),
    ],
)
def test_a_program_of_a_peer_stands_for_the_peer(
    script: str, outcome: str | None, status: int, tmp_path: Path
) -> None:
    adapter = tmp_path / "tool.py"
    adapter.write_text(TOOL)
    replies, found = run_adapter(adapter, asked(np.zeros(1), tmp_path, script))
    assert found == status
    assert [reply["outcome"] for reply in replies[1:]] == ([] if outcome is None else [outcome])
    if outcome == "rejected":
        assert replies[1]["text"] == "why"
