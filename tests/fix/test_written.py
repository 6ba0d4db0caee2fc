"""What a fix leaves: after exit 0 a check finds no error, and before that every error is listed."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from click.testing import Result
from fix_helpers import parse
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

import splitops
from command_line import printed, runner
from splitops.cli import cli
from splitops.models.check import Target
from splitops.models.fix import FixStatus, fix, fix_with_report
from splitops.models.formats.openvino import Builder, OpenVINOModel
from splitops_compare.cases import list_cases
from splitops_compare.cases.models import make_model

PAIR = "a, b = Split(x, k)"


def run(*arguments: Any) -> Result:
    return runner().invoke(cli, [str(argument) for argument in arguments])


def declared(values: str, outputs: str = "float[2, 2] y") -> onnx.ModelProto:
    return parse(f"(float[5, 2] x) => ({outputs}) <int64[2] k = {{2, 3}}, {values}> {{ {PAIR} y = Relu(a) }}")


def of_ir(precision: str = "FP32", dims: tuple[int, ...] = (2, 2)) -> OpenVINOModel:
    """A VariadicSplit whose first port declares what it is not; the Result behind it reads that."""
    from dataclasses import replace

    builder = Builder("m")
    ports = [
        builder.parameter("x", "f32", "5,2"),
        builder.const(np.array(0)),
        builder.const(np.array([2, 3])),
    ]
    for index, part in enumerate(builder.layer("VariadicSplit", ports, outputs=2)):
        builder.result(builder.layer("Relu", [part])[0], f"p{index}")
    model = builder.model()
    layers = []
    for layer in model.graph.layers:
        if layer.type == "VariadicSplit":
            wrong = replace(layer.outputs[0], precision=precision, dims=dims)
            layer = replace(layer, outputs=(wrong, *layer.outputs[1:]))
        layers.append(layer)
    return model.with_graph(replace(model.graph, layers=tuple(layers)))


DECLARED = {
    "a type": declared("float16[2, 2] a"),
    "a size": declared("float[4, 2] a"),
    "a rank": declared("float[2] a"),
    "a type and what is computed of it": declared("float16[2, 2] a", "float16[2, 2] y"),
    "an output of the model": parse(
        f"(float[5, 2] x) => (int32[2, 2] a, float[9, 2] b) <int64[2] k = {{2, 3}}> {{ {PAIR} }}"
    ),
    "the type of a sequence": parse("""(float[6] x) => (seq(float16) s, int64 n) {
        s = SplitToSequence(x) n = SequenceLength(s) }"""),
    "the size of the elements of a sequence": parse("""(float[6] x) => (seq(float[5]) s, int64 n) {
        s = SplitToSequence(x) n = SequenceLength(s) }"""),
    "a sequence as a tensor": parse("(float[6] x) => (float[6] s) { s = SplitToSequence(x) }"),
    "a part as a sequence": parse(
        "(float[6] x) => (seq(float[3]) a, float[3] b) { a, b = Split<num_outputs = 2>(x) }"
    ),
    "a part in a branch": parse("""(float[6] x, bool c) => (float[3] y) {
        y = If(c) <then_branch = t () => (float[3] p) <float16[9] q> { p, q = Split<num_outputs = 2>(x) },
                   else_branch = e () => (float[3] r) { r, u = Split<num_outputs = 2>(x) }> }"""),
    "a type in IR": of_ir("I32"),
    "a size in IR": of_ir(dims=(4, 2)),
    "a part that is rewritten": parse("""(float[5] x) => (float16[2] a, float[9] b, float[1] c, float[0] d) {
        a, b, c, d = Split<num_outputs = 4>(x) }"""),
}
LEFT = {
    "data": parse("""(float[6, 2] x) => (float a, float b) <int64 k = {3}> {
        s = SplitToSequence(x, k) a, b = Split<num_outputs = 2>(s) }"""),
    "lengths": parse("""(float[6, 2] x, int64[4] l) => (float a, float b) <int64 k = {2}> {
        s = SplitToSequence(l, k) a, b = Split(x, s) }"""),
    "data of a sequence": parse("""(float[6, 2] x) => (seq(float) t) <int64 k = {3}> {
        s = SplitToSequence(x, k) t = SplitToSequence(s, k) }"""),
    "another node": parse("""(float[6, 2] x) => (float y) <int64 k = {3}> {
        s = SplitToSequence(x, k) y = Relu(s) }"""),
    "a node in a branch": parse("""(float[6, 2] x, bool c) => (float y) <int64 k = {3}> {
        s = SplitToSequence(x, k)
        y = If(c) <then_branch = t () => (float p) { p = Relu(s) },
                   else_branch = e () => (float q) { q = SequenceAt(s, k) }> }"""),
    "the version of the format": parse(
        "(float[6] x) => (float a, float b) { a, b = Split<num_outputs=2>(x) }", ir=99
    ),
    "two faults of one split": parse("""(float[5] x) => (float a, float b) <int64[3] k = {2, 3, 4}> {
        a, b = Split<axis = 3>(x, k) }"""),
    "a fault beside one with a repair": parse(
        "(float[5] x) => (float a, float b) { a, b = Split<axis = 3>(x) }"
    ),
}


def errors(model: Any, runtime: str) -> list[tuple[str, str | None]]:
    found = splitops.check(model, runtime)
    return [(one.code, one.where.node) for one in found if str(one.severity) == "error"]


def written(model: Any, folder: Path) -> Path:
    path = folder / ("m.xml" if isinstance(model, OpenVINOModel) else "m.onnx")
    if isinstance(model, onnx.ModelProto):
        path.write_bytes(model.SerializeToString())
    else:
        splitops.save(model, path)
    return path


@pytest.mark.parametrize("name", DECLARED)
def test_wrong_declarations_are_repaired(name: str, tmp_path: Path) -> None:
    model = DECLARED[name]
    runtime = "openvino" if isinstance(model, OpenVINOModel) else "onnxruntime"
    path, before = written(model, tmp_path), splitops.check(model, runtime)
    assert {one.code for one in before} & {"declared.type", "declared.shape"}
    out = path.with_stem("fixed")
    done = run("fix", path, "--for", runtime, "-o", out)
    assert done.exit_code == 0, printed(done)
    assert "[declared." in printed(done)
    assert splitops.check(out, runtime) == []
    report = fix_with_report(model, runtime)
    assert FixStatus.UNFIXABLE not in {split.status for split in report.splits}
    assert fix(report.model, runtime) == report.model


def test_a_model_of_onnx_ir_is_repaired_too() -> None:
    made = fix(ir.from_proto(DECLARED["a type"]), "onnxruntime")
    assert isinstance(made, ir.Model)
    assert splitops.check(made, "onnxruntime") == []


def test_what_is_computed_of_a_wrong_part_is_declared_right() -> None:
    made = fix(DECLARED["a type and what is computed of it"], "onnxruntime")
    assert made.graph.output[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    onnx.checker.check_model(made, full_check=True)


@pytest.mark.parametrize("name", LEFT)
def test_every_error_that_is_left_is_listed(name: str, tmp_path: Path) -> None:
    model = LEFT[name]
    path, out = written(model, tmp_path), tmp_path / "fixed.onnx"
    expected = errors(path, "onnxruntime")
    assert expected
    done = run("fix", path, "--for", "onnxruntime", "-o", out)
    assert (done.exit_code, out.exists()) == (1, False), printed(done)
    assert "Nothing was written" in printed(done)
    for code, node in expected:
        assert f"[{code}]" in printed(done)
        assert str(node or "the model") in printed(done)
    with pytest.raises(splitops.ModelError, match="|".join(code for code, _ in expected)):
        fix(path, "onnxruntime")
    report = fix_with_report(path, "onnxruntime", partial=True)
    assert report.error is not None
    list_cases = [(reason.code, split.where.node) for split in report.unfixable for reason in split.reasons]
    list_cases += [(one.code, one.where.node) for one in report.findings]
    assert sorted(list_cases, key=str) == sorted(expected, key=str)
    data = json.loads(run("fix", path, "--for", "onnxruntime", "--json").stdout)
    assert len(data["findings"]) == len(report.findings)
    done = run("check", path, "--for", "onnxruntime")
    assert "splitops fix" not in printed(done) or "--partial" in printed(done)


@pytest.mark.parametrize("content", [b"", b"no model", b"\x08\x09\x12\xff"])
def test_a_broken_file_is_an_error_of_a_fix_too(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    assert (run("check", path).exit_code, run("fix", path).exit_code) == (1, 1)


# Targets that nobody ran

HALVES = "(float[6] x) => (float[A] a, float[B] b) { a, b = Split<num_outputs = 2>(x) }"
LINE = ": none of the documented limits (1 in total) applies; TensorRT was not tested.\n"


@pytest.mark.parametrize("command", ["check", "fix"])
def test_a_target_that_was_never_run_says_so(command: str, tmp_path: Path) -> None:
    path = written(parse(HALVES), tmp_path)
    done = run(command, path, "--for", "tensorrt")
    assert done.exit_code == 0
    assert printed(done).endswith(LINE)
    assert "not tested" not in printed(run(command, path, "--for", "onnxruntime"))
    assert json.loads(run(command, path, "--for", "tensorrt", "--json").stdout)["untested"] == ["tensorrt"]
    assert json.loads(run(command, path, "--for", "onnxruntime", "--json").stdout)["untested"] == []


@pytest.mark.parametrize("name", ["coreml", "dml", "nnapi", "qnn", "webnn", "onnxruntime==99.1", "npu.toml"])
def test_every_target_without_a_run_says_so(name: str, tmp_path: Path) -> None:
    path, limits = written(parse(HALVES), tmp_path), tmp_path / "npu.toml"
    limits.write_text('title = "NPU 3"\n[[limits]]\ncode = "large"\nwhen = "rank above 4"\n')
    named = limits if name == "npu.toml" else name
    output = printed(run("check", path, "--for", named))
    assert "none of the " in output
    assert output.endswith("was not tested.\n")
    report = fix_with_report(path, str(named))
    assert [target.label for target in report.untested] == [name.removesuffix(".toml")]


def test_a_limit_that_is_met_is_not_said_to_be_unmet(tmp_path: Path) -> None:
    model = "(float[6] x) => (seq(float) s) { s = SplitToSequence(x) }"
    path = written(parse(model), tmp_path)
    for command in ("check", "fix"):
        output = printed(run(command, path, "--for", "tensorrt"))
        assert "TensorRT was not tested." in output
        assert "none of the" not in output
    hidden = printed(run("check", path, "--for", "tensorrt", "--ignore", "tensorrt"))
    assert hidden.endswith("No problems found (1 split checked): TensorRT was not tested.\n")


def test_other_formats_of_a_check_name_untested_targets(tmp_path: Path) -> None:
    path = written(parse(HALVES), tmp_path)
    sarif = json.loads(run("check", path, "--for", "qnn", "--output-format", "sarif").stdout)
    assert sarif["runs"][0]["properties"] == {"untested": ["qnn"]}
    lines = printed(run("check", path, "--for", "tensorrt", "--output-format", "github")).splitlines()
    assert lines == [f"::notice file={path},title=Not tested::{LINE[2:-2]}"]


# Limits without forms


def test_a_limit_without_forms_says_how_to_allow_one(tmp_path: Path) -> None:
    path, limits = written(parse(HALVES), tmp_path), tmp_path / "npu.toml"
    text = '[[limits]]\ncode = "axis"\nwhen = "axis not in [1]"\n'
    limits.write_text(text)
    done = run("fix", path, "--for", limits)
    assert done.exit_code == 1
    assert "npu rejects a split if the axis is not 1; the limit has no rewrites" in printed(done)
    assert 'such as rewrites = ["slices"]' in printed(done)
    limits.write_text(text + 'rewrites = ["slices"]\n')
    assert run("fix", path, "--for", limits).exit_code == 0


def test_a_report_says_what_is_left_and_what_was_not_tested() -> None:
    report = fix_with_report(LEFT["another node"], "qnn", partial=True)
    assert repr(report) == "FixReport(qnn (not tested): 1 splits, 0 rewritten, 0 unfixable, 1 other error)"
    assert str(report).startswith("for qnn (not tested):\n")
    assert "[model.invalid]: 's' is a sequence, but Relu requires a tensor" in str(report)
    assert "Relu requires a tensor" in report._repr_html_()


# All listed cases, as they are and damaged


def left_unsaid(model: Any, target: str | tuple[()]) -> list[str]:
    """Errors that a check finds in what a fix makes, and that its report does not list."""
    report = fix_with_report(model, target, partial=True)
    found = [one for one in splitops.check(report.model, target) if str(one.severity) == "error"]
    assert (report.error is None) is (found == []), f"{report}, and {found}"
    list_cases = {reason.code for split in report.unfixable for reason in split.reasons}
    list_cases |= {one.code for one in report.findings}
    return [str(one) for one in found if one.code not in list_cases]


@pytest.mark.parametrize(
    "target", ["onnxruntime", "onnx", "opencv", "openvino", "tensorrt", "coreml", "npu.toml", ""]
)
def test_a_check_finds_no_error_in_what_a_fix_writes(target: str, tmp_path: Path) -> None:
    limits = tmp_path / "npu.toml"
    limits.write_text(
        '[[limits]]\ncode = "even"\nwhen = "not uneven"\n'
        '[[limits]]\ncode = "two"\nwhen = "more outputs than 2"\n'
    )
    named: Any = str(limits) if target == "npu.toml" else target or ()
    formats = Target.load(named).formats if named else ("onnx", "openvino")
    count = 0
    for name, case in list_cases().items():
        model = make_model(case.spec)
        if ("openvino" if isinstance(model, OpenVINOModel) else "onnx") not in formats:
            continue
        count += 1
        assert left_unsaid(model, named) == [], name
    assert count > 100


def test_a_check_finds_no_error_in_what_a_fix_makes_of_damaged_models() -> None:
    random = Random(7)
    models = [
        m for m in (make_model(case.spec) for case in list_cases().values()) if isinstance(m, onnx.ModelProto)
    ]
    fixed = 0
    for _ in range(1200):
        content = bytearray(random.choice(models).SerializeToString())
        content[random.randrange(len(content))] = random.randrange(256)
        try:
            model = onnx.ModelProto.FromString(bytes(content))
            assert left_unsaid(model, "onnxruntime") == []
        except (splitops.SplitError, DecodeError, UnicodeDecodeError):
            continue  # no model, which a check says as well
        fixed += 1
    assert fixed > 100


# Wrong declarations of parts that get another form


@pytest.mark.parametrize("declared", ["int32[A]", "float[2]", "int64[4]"])
@pytest.mark.parametrize(
    ("split", "opset", "is_sliced", "axis"),
    [
        ("a, b, c = Split<split = [0, 3, 1]>(x)", 2, True, "4"),
        ("a, b, c = Split<split = [0, 3, 1]>(x)", 2, True, "N"),
        ("a, b, c = Split<split = [-1, 3, 1]>(x)", 2, True, "4"),  # broken, and then Slices
        ("a, b, c = Split<axis = -1>(x, k)", 18, True, "4"),
        ("a, b, c = Split<axis = -1>(x, k)", 18, True, "N"),
        ("a, b, c = Split<axis = -1>(x, k)", 18, False, "N"),
    ],
)
def test_wrong_declarations_of_parts_in_another_form(
    declared: str, split: str, opset: int, is_sliced: bool, axis: str, tmp_path: Path
) -> None:
    source = parse(
        f"(float[{axis}] x) => (float[A] a, {declared} b, float[C] c) "
        f"<int64[3] k = {{0, 3, 1}}> {{ {split} }}",
        opset,
    )
    limits = tmp_path / "npu.toml"
    limits.write_text('[[limits]]\ncode = "c"\nwhen = "uneven"\nrewrites = ["slices"]\n')
    named: Any = limits if is_sliced else ()
    report = fix_with_report(source, named)
    assert left_unsaid(source, named) == []
    assert not [one for one in splitops.check(report.model, named) if one.code.startswith("stated")]
    onnx.checker.check_model(report.model, full_check=True)
    assert "output 'b' declared as float32[3" in report.splits[0].after
    assert report.splits[0].reasons[-1].code in ("declared.type", "declared.shape")
