"""``tasks.py demo``: each step says what it shows, and shows it."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import splitops

pytest.importorskip("onnxruntime")
pytest.importorskip("openvino")
ROOT = Path(__file__).parents[2]


def loaded(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = loaded(ROOT / "tasks.py")
    monkeypatch.setattr(made, "python", lambda *_: Path(sys.executable))  # makes no environment
    return made


def test_the_demo_shows_the_point(tasks: Any, capfd: pytest.CaptureFixture[str]) -> None:
    tasks.demo()
    printed = capfd.readouterr()
    said = [
        "Fix: splitops fix examples/models/quarters.onnx --for onnxruntime -o",
        "1 split rewritten for onnxruntime",
        "a: [[0.0, 1.0], [2.0, 3.0]]",
        "validation: ['label 0', 'label 1']",
        "1 split rewritten for openvino",
        "validation: ['label 3', 'label 4']",
        "Splits",
        "(array([0, 1, 2]), array([3, 4, 5]), array([6]))",
        "VariadicSplit-1: examples/data/feature_split_x.npy (5, 12)",
    ]
    places = [printed.out.find(words) for words in said]
    assert -1 not in places, said[places.index(-1)]
    assert places == sorted(places)
    assert "num_outputs" in printed.err or "exceeds the remaining size" in printed.err  # below 1.32
    assert "Warning" not in printed.err
    for step in tasks.DEMO:
        assert step.sentence.endswith(".")
        assert f"\n{step.sentence}\n$ " in printed.out


def test_an_environment_grows_and_says_so_in_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    made = loaded(ROOT / "tasks.py")
    commands: list[list[str]] = []

    def record(command: list[str], **_: Any) -> Any:
        commands.append(command)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(made.venv, "create", lambda folder, **_: Path(folder).mkdir(exist_ok=True))
    monkeypatch.setattr(made.subprocess, "run", record)

    def install(*arguments: Any) -> str:
        """Return the extras that pip was called for, and check that one line says so."""
        commands.clear()
        made.python(tmp_path / "env", *arguments)
        lines = capfd.readouterr().out.splitlines()
        assert len(lines) == len(commands) <= 1
        if not commands:
            return ""
        assert "-qq" in commands[0]
        extras = commands[0][-1].removeprefix("./")
        assert lines == [f"Installing ./{extras} into env, once. This takes a minute or two."]
        return extras

    assert install("onnxruntime,openvino") == "[onnxruntime,openvino]"
    assert install("onnxruntime,openvino") == ""
    assert install("openvino") == ""
    assert install("test,openvino") == "[onnxruntime,openvino,test]"
    assert install("onnxruntime,test") == ""
    assert install("test", "tests/runtimes.txt", "build-dir=other") == "[onnxruntime,openvino,test]"
    monkeypatch.setattr(made.subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, 1))
    with pytest.raises(SystemExit):
        made.python(tmp_path / "env", "lint", "tests/runtimes.txt", "build-dir=other")
    monkeypatch.setattr(made.subprocess, "run", record)
    capfd.readouterr()
    assert install("lint", "tests/runtimes.txt", "build-dir=other") == "[lint,onnxruntime,openvino,test]"


def test_a_step_that_ends_otherwise_ends_the_demo(tasks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "DEMO", (tasks.Step("It fails.", "python -c 'raise SystemExit(3)'"),))
    with pytest.raises(SystemExit, match="The exit code is 3, not 0"):
        tasks.demo()


def test_the_shipped_models_are_made_by_their_script(tmp_path: Path) -> None:
    loaded(ROOT / "examples" / "make_rejected.py").main(tmp_path)
    shipped = ROOT / "examples" / "models"
    assert onnx.load(tmp_path / "models" / "quarters.onnx") == onnx.load(shipped / "quarters.onnx")
    for name in ("labels.xml", "labels.bin"):
        assert (tmp_path / "models" / name).read_bytes() == (shipped / name).read_bytes()
    labels = np.array([f"label {number}" for number in range(6)])
    parts = splitops.run(shipped / "labels.xml", {"labels": labels})
    assert [part.tolist() for part in parts.values()] == [
        ["label 0", "label 1", "label 2"],
        ["label 3", "label 4"],
        ["label 5"],
    ]
