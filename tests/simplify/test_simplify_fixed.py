"""What a fix wrote for a runtime stays, and what is simplified for a runtime is executed by it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import Result
from simplify_helpers import operators, parse

import splitops
from command_line import printed, runner
from splitops.cli import cli
from splitops.models.check import check
from splitops.models.formats.model import CheckedModel
from splitops.models.formats.openvino import Builder
from splitops.models.graph.provenance import read_fixed_runtimes, record_fix
from splitops.models.simplify import REWRITES, simplify_with_report

NPU = """
name = "npu"
title = "The NPU"
[[limits]]
code = "even-only"
when = "uneven"
[[limits]]
code = "three-outputs"
when = "more outputs than 3"
[[limits]]
code = "no-strings"
when = ["types in [string]"]
rewrites = []
"""
UNEVEN = (
    "g (float[5] x) => (float[3] y, float[2] z) { a, b = Split<num_outputs = 2>(x) y = Relu(a) z = Relu(b) }"
)
SIX = """g (float[6] x) => (float[1] y, float[1] z) {
    a, b, c, d, e, f = Split<num_outputs = 6>(x) p = Add(a, b) q = Add(c, d) r = Add(e, f)
    y = Add(p, q) z = Relu(r) }"""
SLICES = """g (float[5] x) => (float[3] y, float[2] z)
    <int64[1] zero = {0}, int64[1] three = {3}, int64[1] five = {5}> {
    a = Slice(x, zero, three) b = Slice(x, three, five) y = Relu(a) z = Relu(b) }"""


def run(*arguments: Any) -> Result:
    return runner().invoke(cli, [str(argument) for argument in arguments])


@pytest.fixture
def npu(tmp_path: Path) -> Path:
    path = tmp_path / "npu.toml"
    path.write_text(NPU)
    return path


def layers() -> Any:
    builder = Builder("m")
    places = [
        builder.parameter("x", "f32", (5,)),
        builder.const(np.array(0)),
        builder.const(np.array([3, 2])),
    ]
    for index, part in enumerate(builder.layer("VariadicSplit", places, outputs=2)):
        builder.result(builder.layer("ReLU", [part])[0], f"y{index}")
    return builder.model()


@pytest.mark.parametrize("text", [UNEVEN, SIX])
def test_what_a_fix_wrote_stays(text: str, npu: Path) -> None:
    fixed = splitops.fix(parse(text, 18), npu)
    assert read_fixed_runtimes(CheckedModel.read(fixed).nodes) == ("npu",)
    found = simplify_with_report(fixed)
    assert found.kept_for == ("npu",)
    assert operators(found.model) == operators(fixed)
    assert not [finding for finding in check(found.model, npu) if finding.runtime == "npu"]
    # Whoever names a rewrite gets it.
    assert simplify_with_report(fixed, [name for name, row in REWRITES.items() if row.undoes_fixes]).changes


def test_slices_of_a_model_that_was_not_fixed_are_merged() -> None:
    found = simplify_with_report(parse(SLICES, 18))
    assert found.kept_for == ()
    assert "replace-slices" in found.counts


def test_a_model_that_needed_no_fix_says_nothing(npu: Path) -> None:
    even = parse("g (float[6] x) => (float[3] y, float[3] z) { y, z = Split<num_outputs = 2>(x) }", 18)
    assert read_fixed_runtimes(CheckedModel.read(splitops.fix(even, npu)).nodes) == ()


@pytest.mark.parametrize("text", [UNEVEN, SIX, SLICES])
@pytest.mark.parametrize("fixed_before", [False, True])
def test_simplify_for_a_runtime_writes_what_it_executes(
    text: str, npu: Path, tmp_path: Path, *, fixed_before: bool
) -> None:
    path, out = tmp_path / "m.onnx", tmp_path / "o.onnx"
    model = parse(text, 18)
    splitops.save(splitops.fix(model, npu) if fixed_before else model, path)
    result = run("simplify", path, "--for", npu, "-o", out)
    assert result.exit_code == 0, printed(result)
    made = splitops.load(out)
    assert not [finding for finding in check(made, npu) if finding.runtime == "npu"]
    x = np.arange(model.graph.input[0].type.tensor_type.shape.dim[0].dim_value, dtype=np.float32)
    wanted, found = (splitops.run(one, {"x": x}) for one in (model, made))
    for name, part in wanted.items():
        np.testing.assert_array_equal(found[name], part, strict=True)


def test_nothing_is_written_for_a_runtime_that_cannot_run_it(npu: Path, tmp_path: Path) -> None:
    path, out = tmp_path / "m.onnx", tmp_path / "o.onnx"
    onnx.save(
        parse("g (string[6] x) => (string[3] y, string[3] z) { y, z = Split<num_outputs = 2>(x) }", 18), path
    )
    result = run("simplify", path, "--for", npu, "-o", out)
    assert (result.exit_code, out.exists()) == (1, False)
    assert "Nothing was written." in printed(result)
    assert "npu.no-strings" in printed(result)


def test_ir_says_what_it_was_fixed_for(npu: Path, tmp_path: Path) -> None:
    target = tmp_path / "ov.toml"
    target.write_text(NPU.replace('name = "npu"', 'name = "npu"\nformats = ["openvino"]'))
    path = tmp_path / "m.xml"
    splitops.save(splitops.fix(layers(), target), path)
    assert '<splitops_fixed_for value="npu"' in path.read_text().replace(" />", "/>")
    fixed = splitops.load(path)
    assert read_fixed_runtimes(CheckedModel.read(fixed).nodes) == ("npu",)
    found = simplify_with_report(fixed)
    assert (found.kept_for, found.changes) == (("npu",), ())
    result = json.loads(run("simplify", path, "--for", target, "--json").stdout)
    assert (result["runtimes"], len(result["fixed"])) == (["npu"], 1)
    if pytest.importorskip("openvino"):
        x = np.arange(5, dtype=np.float32)
        assert len(splitops.run(fixed, {"x": x}, engine="openvino")["y0"]) == 3


def test_records_of_several_fixes_add_up() -> None:
    import onnx_ir as ir

    for model in (parse(UNEVEN, 18), ir.from_proto(parse(UNEVEN, 18)), layers()):
        checked = CheckedModel.read(model)
        edited = checked.copy()
        for runtimes in (["a"], ["b", "a"], []):
            record_fix(edited, runtimes)
        assert read_fixed_runtimes(CheckedModel.read(checked.write(edited)).nodes) == ("a", "b")


def test_the_help_says_what_is_left_to_others(tmp_path: Path) -> None:
    text = " ".join(printed(run("simplify", "--help")).split())
    assert "onnxslim simplifies complete ONNX models" in text
    path = tmp_path / "m.onnx"
    onnx.save(parse("g (float[6] x) => (float[6] y) { y = Relu(x) }", 18), path)
    assert "Only splits and the nodes around them are simplified" in printed(run("simplify", path))
