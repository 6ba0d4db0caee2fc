"""The GitHub action and the pre-commit hook: what they run here is what they run there."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest
from proofs import FOUR_WAYS, text

from splitops.cli import cli

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).parents[2]
GOOD = "(float[6] x) => (float[A] a, float[B] b) { a, b = Split<num_outputs = 2>(x) }"
BAD = f"(float[5] x) => {FOUR_WAYS}"
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
SPLITOPS = f'splitops() {{ {shlex.quote(sys.executable)} -m splitops "$@"; }}\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "models" / "more of them").mkdir(parents=True)
    onnx.save(text(GOOD)(), tmp_path / "models" / "good.onnx")
    onnx.save(text(BAD)(), tmp_path / "models" / "more of them" / "bad.onnx")
    return tmp_path


def checked(folder: Path, models: str, **inputs: str) -> subprocess.CompletedProcess[str]:
    """Run the last step of the action as GitHub does, with its inputs in the environment."""
    *_, step = ACTION["runs"]["steps"]
    given = {"models": models, **inputs}
    environment = {}
    for name, expression in step["env"].items():
        asked = re.fullmatch(r"\$\{\{ inputs\.([\w-]+) \}\}", expression)
        assert asked is not None
        environment[name] = given.get(asked[1], ACTION["inputs"][asked[1]].get("default", ""))
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", SPLITOPS + step["run"]],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_the_action_annotates_what_is_wrong(folder: Path) -> None:
    done = checked(folder, "models/**/*.onnx\n", **{"for": "onnxruntime"})
    assert done.returncode == 1, done.stderr
    error, notice = done.stdout.splitlines()
    path = "models/more of them/bad.onnx"
    assert error.startswith(f"::error file={path},title=Split-18 [onnxruntime.ceil-negative-part]::")
    assert notice.startswith(f"::notice file={path},title=Fix::splitops fix '{path}' --for onnxruntime -o ")


def test_the_action_passes_what_is_right(folder: Path) -> None:
    done = checked(folder, "models/good.onnx", **{"for": "onnxruntime, openvino"})
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_the_action_selects_and_ignores(folder: Path) -> None:
    given = {"for": "onnxruntime", "ignore": "onnxruntime.ceil-negative-part"}
    assert checked(folder, "models/**/bad.onnx", **given).returncode == 0
    assert (
        checked(folder, "models/**/bad.onnx", **{"for": "onnxruntime", "select": "lengths"}).returncode == 0
    )


def test_the_action_says_that_no_file_matches(folder: Path) -> None:
    done = checked(folder, "models/good.onnx\nnone/*.onnx")
    assert done.returncode == 2
    assert done.stdout == "::error title=splitops check::No file matches none/*.onnx\n"


def test_the_action_is_well_formed() -> None:
    assert ACTION["runs"]["using"] == "composite"
    assert {"name", "description", "inputs", "runs"} <= ACTION.keys()
    for step in ACTION["runs"]["steps"]:
        assert "uses" in step or step["shell"] == "bash"
        if "uses" in step:
            assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step["uses"])
        assert "${{" not in step.get("run", ""), "inputs go through the environment, never into the script"
    pinned = set(re.findall(r"setup-python@(\w+)", (ROOT / ".github" / "workflows" / "ci.yml").read_text()))
    assert pinned == set(re.findall(r"setup-python@(\w+)", (ROOT / "action.yml").read_text()))


def test_the_hook_checks_the_models_of_a_commit(folder: Path) -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert {"id", "name", "entry", "language", "files"} <= hook.keys()
    assert hook["language"] == "python"
    committed = ["README.md", "models/good.onnx", "models/more of them/bad.onnx", "onnx.py"]
    files = [name for name in committed if re.search(hook["files"], name)]
    assert files == committed[1:3]
    command, *arguments = shlex.split(hook["entry"])
    assert command == "splitops"
    assert arguments[0] in cli.list_commands(None)  # type: ignore[arg-type]

    def run(*names: str) -> Any:
        words = [sys.executable, "-m", command, *arguments, "--for", "onnxruntime", *names]
        return subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=300, check=False)

    assert run(*files[:1]).returncode == 0
    assert run(*files).returncode == 1
    assert "[1 of 1 fixable]" in run(*files).stdout
