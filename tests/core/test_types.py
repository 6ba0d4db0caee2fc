"""What a type checker infers of public functions: arrays and models keep their types, without a union."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

import splitops

USED = """
from pathlib import Path
from typing import Any, assert_type
import numpy as np, numpy.typing as npt, onnx, onnx_ir
import splitops
from splitops.models.convert import Conversion
from splitops.models.fix import FixReport
from splitops.models.formats.openvino import OpenVINOModel
from splitops.models.simplify import Simplification

class Tensor: ...

tensor, array = Tensor(), np.zeros((4, 6), np.float32)
assert_type(splitops.onnx.split(tensor, [2, 2]), tuple[Tensor, ...])
assert_type(splitops.onnx.split_to_sequence(tensor, 2), list[Tensor])
assert_type(splitops.openvino.split(tensor, 0, 2), tuple[Tensor, ...])
assert_type(splitops.openvino.variadic_split(tensor, 0, [1, -1]), tuple[Tensor, ...])
assert_type(splitops.onnx.split([1, 2, 3], [1, 2]), tuple[npt.NDArray[Any], ...])
first: npt.NDArray[np.float32] = splitops.onnx.split(array, num_outputs=2)[0]
plan: splitops.Plan = splitops.plan("Split", shape=(4, 6), num_outputs=2)
assert_type(plan.sizes, tuple[int, ...])

def proto(model: onnx.ModelProto) -> None:
    assert_type(splitops.fix(model), onnx.ModelProto)
    assert_type(splitops.simplify(model), onnx.ModelProto)
    assert_type(splitops.fix_with_report(model), FixReport)
    assert_type(splitops.simplify_with_report(model), Simplification)
    assert_type(splitops.convert(model, 13), onnx.ModelProto)
    assert_type(splitops.convert(model, to="openvino"), OpenVINOModel)
    assert_type(splitops.convert_with_report(model, to="openvino"), Conversion)

def other(model: onnx_ir.Model, ir: OpenVINOModel) -> None:
    assert_type(splitops.fix(model), onnx_ir.Model)
    assert_type(splitops.fix(ir), OpenVINOModel)

for path in ("m.onnx", Path("m.xml")):
    splitops.fix(path).graph
    splitops.simplify(path).graph
    splitops.load(path).graph
"""


def check_types(text: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    (tmp_path / "used.py").write_text(text)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), "used.py"]
    environment = {"MYPYPATH": str(Path(splitops.__file__).parents[1]), "PATH": ""}
    return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)


@pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="mypy is not installed")
def test_a_type_checker_keeps_the_types_of_arrays_and_models(tmp_path: Path) -> None:
    done = check_types(USED, tmp_path)
    assert done.stdout.startswith("Success"), done.stdout + done.stderr
    wrong = USED + "assert_type(splitops.onnx.split(tensor, [2, 2]), list[Tensor])\n"
    done = check_types(wrong, tmp_path)
    assert "is not" in done.stdout or "assert-type" in done.stdout
    assert done.returncode == 1
