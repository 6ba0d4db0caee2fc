"""Constant lengths on an axis that the model leaves open: found, and computed from the axis as is chosen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import Result
from fix_helpers import on, parse

import splitops
from command_line import printed, runner
from splitops.cli import cli
from splitops.errors import ModelError, SplitError
from splitops.models.check import check
from splitops.models.engines import is_installed
from splitops.models.fix import FixReport, FixStatus, fix, fix_with_report
from splitops.models.formats.openvino import Builder
from splitops.models.verify import TrialVerdict, verify

NEEDS_RUNTIMES = pytest.mark.skipif(
    not (is_installed("onnxruntime") and is_installed("openvino")), reason="it runs both runtimes"
)

HALVES = """(float[N,4] x) => (float[2,4] a, float[2,4] b) <int64[2] k = {2, 2}> {
    a, b = Split<axis = 0>(x, k) }"""
CHUNKS = """(float[N,4] x) => (float[3,4] a, float[3,4] b, float[1,4] c) <int64[3] k = {3, 3, 1}> {
    a, b, c = Split<axis = 0>(x, k) }"""
PLAIN = """(float[N,4] x) => (float[1,4] a, float[4,4] b) <int64[2] k = {1, 4}> {
    a, b = Split<axis = 0>(x, k) }"""
ATTRIBUTE = "(float[N,4] x) => (float[2,4] a, float[2,4] b) { a, b = Split<axis = 0, split = [2, 2]>(x) }"
IN_BRANCH = """(float[N,4] x, bool c) => (float[r,4] y) {
    z = Relu(x)
    y = If(c) <
        then_branch = t () => (float[2,4] p) {
            k = Constant<value_ints = [2, 2]>() p, q = Split<axis = 0>(z, k) },
        else_branch = e () => (float[e,4] s) { s = Identity(z) }> }"""
IN_FUNCTION = """<ir_version: 10, opset_import: ["": 18, "my": 1]>
    g (float[N,4] x) => (float[2,4] y) { y = my.half(x) }
    <domain: "my", opset_import: ["": 18]>
    half (x) => (p) { k = Constant<value_ints = [2, 2]>() p, q = Split<axis = 0>(x, k) }"""
SEQUENCE = """(float[N,4] x) => (seq(float[r,4]) s) <int64[2] k = {2, 2}> {
    s = SplitToSequence<axis = 0>(x, k) }"""


def run(*arguments: Any) -> Result:
    return runner().invoke(cli, [str(argument) for argument in arguments])


def baked(model: Any) -> list[splitops.Finding]:
    return [finding for finding in check(model) if finding.code == "lengths.baked"]


def rows(size: int) -> dict[str, Any]:
    return {"x": np.arange(size * 4, dtype=np.float32).reshape(size, 4)}


def sizes_of(model: Any, size: int) -> list[int] | None:
    """The sizes of the parts; None where the model rejects the size."""
    try:
        return [len(part) for part in splitops.run(model, rows(size), engine="reference").values()]
    except SplitError:
        return None


def layers(*lengths: int, rows: int = -1) -> Any:
    """The same of OpenVINO, behind a layer that keeps the shape."""
    builder = Builder("m")
    data = builder.layer("ReLU", [builder.parameter("x", "f32", (rows, 4))])[0]
    places = [data, builder.const(np.array(0)), builder.const(np.array(lengths))]
    for index, part in enumerate(builder.layer("VariadicSplit", places, outputs=len(lengths))):
        builder.result(builder.layer("Sigmoid", [part])[0], f"y{index}")
    return builder.model()


@pytest.mark.parametrize(
    ("model", "size", "operator"),
    [
        (parse(HALVES), 4, "Split-18"),
        (parse(HALVES.replace("float[N,4] x", "float[?,4] x")), 4, "Split-18"),
        (parse(HALVES.replace("Split<axis = 0>(x", "Split<axis = -2>(x")), 4, "Split-18"),
        (parse(PLAIN), 5, "Split-18"),
        (parse(ATTRIBUTE, opset=11), 4, "Split-11"),
        (parse(ATTRIBUTE, opset=2), 4, "Split-2"),
        (parse(IN_BRANCH), 4, "Split-18"),
        (
            parse(
                "(float[B,N,2] x) => (float[B,2] a, float[B,4] b) <int64[2] k = {2, 4}> "
                "{ f = Flatten(x)  a, b = Split<axis = 1>(f, k) }"
            ),
            6,
            "Split-18",
        ),
        (onnx.parser.parse_model(IN_FUNCTION), 4, "Split-18"),
        (parse(SEQUENCE), 4, "SplitToSequence-11"),
        (layers(1, 2, 4), 7, "VariadicSplit-1"),
    ],
)
def test_lengths_of_one_size_are_found_where_the_axis_is_open(model: Any, size: int, operator: str) -> None:
    (finding,) = baked(model)
    assert finding.operator == operator
    assert str(finding.severity) == "warning"
    assert finding.message.endswith(f"which accept only the size {size}")
    assert finding.fix is not None
    assert "splitops fix MODEL --open" in finding.fix
    assert "rest=0" in finding.fix


def test_each_split_of_one_open_size_is_found() -> None:
    model = parse("""(float[N,4] x) => (float[2,4] a, float[2,4] b, float[1,4] c, float[3,4] d)
        <int64[2] k = {2, 2}, int64[2] l = {1, 3}> { a, b = Split(x, k)  c, d = Split(x, l) }""")
    assert len(baked(model)) == 2


@pytest.mark.parametrize(
    "model",
    [
        parse(HALVES.replace("float[N,4] x", "float[4,4] x")),
        parse("(float[N,4] x) => (float[M,2] a, float[M,2] b) <int64[2] k = {2, 2}> "
              "{ a, b = Split<axis = 1>(x, k) }"),
        # How many numbers are not 0 no input says: it may always be as many.
        parse("(float[N] x) => (int64[1,2] a, int64[1,2] b) <int64[2] k = {2, 2}> "
              "{ i = NonZero(x)  a, b = Split<axis = 1>(i, k) }"),
        parse("(float[N,4] x, int64[2] k) => (float[a,4] y, float[b,4] z) { y, z = Split(x, k) }"),
        parse("(float[N,4] x, int64[2] k) => (float[a,4] y, float[b,4] z) <int64[2] k = {2, 2}> "
              "{ y, z = Split(x, k) }"),
        parse("(float[N,4] x) => (float[a,4] y, float[b,4] z) { y, z = Split<num_outputs = 2>(x) }"),
        layers(1, -1, 4),
        layers(1, 2, 4, rows=7),
    ],
)  # fmt: skip
def test_other_lengths_are_not_baked(model: Any) -> None:
    assert baked(model) == []
    report = fix_with_report(model, (), open="rest=0")
    assert not report.rewritten


@NEEDS_RUNTIMES
@pytest.mark.parametrize("ir", [False, True])
@pytest.mark.parametrize(
    ("text", "lengths", "way", "wanted"),
    [
        (HALVES, (2, 2), "even", {0: [0, 0], 3: None, 4: [2, 2], 5: None, 6: [3, 3]}),
        (HALVES, (2, 2), "rest=0", {1: None, 2: [0, 2], 4: [2, 2], 9: [7, 2]}),
        (PLAIN, (1, 4), "rest=-1", {0: None, 1: [1, 0], 5: [1, 4], 9: [1, 8]}),
        (CHUNKS, (3, 3, 1), "chunk", {0: [0, 0, 0], 4: [3, 1, 0], 7: [3, 3, 1], 9: [3, 3, 3], 10: None}),
    ],
)
def test_lengths_follow_the_axis_as_is_chosen(
    text: str, lengths: tuple[int, ...], way: str, wanted: dict[int, list[int] | None], *, ir: bool
) -> None:
    model = layers(*lengths) if ir else parse(text)
    runtime = "openvino" if ir else "onnxruntime"
    report = fix_with_report(model, runtime, open=way)
    (split,) = report.splits
    assert (split.status, split.code) == (FixStatus.REWRITTEN, "lengths.baked")
    assert {size: sizes_of(report.model, size) for size in wanted} == wanted
    assert baked(report.model) == []
    for size, parts in wanted.items():
        kind, found = on(runtime, report.model, rows(size))
        if parts is None:  # in OpenVINO, a -1 for which too little is left reads foreign memory
            assert kind != "outputs", (size, found)
        else:
            assert (kind, [len(part) for part in found.values()]) == ("outputs", parts)


@NEEDS_RUNTIMES
@pytest.mark.parametrize("opset", [13, 17, 18, 21])
def test_every_opset_with_lengths_as_an_input_computes_them(opset: int) -> None:
    for way in ("even", "rest=1", "chunk"):
        model = fix(parse(HALVES, opset=opset, ir=10), (), open=way)
        onnx.checker.check_model(model, full_check=True)
        assert sizes_of(model, 4) == [2, 2]
        assert verify(parse(HALVES, opset=opset, ir=10), model, "onnxruntime", opened=True).holds


def test_older_opsets_divide_evenly_and_say_what_to_do_for_the_rest() -> None:
    model = parse(ATTRIBUTE, opset=11)
    even = fix(model, (), open="even")
    assert (sizes_of(even, 6), sizes_of(even, 5)) == ([3, 3], None)
    with pytest.raises(ModelError, match="splitops convert MODEL --to onnx:13 -o FILE"):
        fix(model, (), open="rest=0")


@pytest.mark.parametrize(
    ("way", "reason"),
    [
        ("even", "the lengths [1, 4] are not equal"),
        ("chunk", "the lengths [1, 4] are not chunks of one size"),
        ("rest=2", "a split into 2 parts has no part 2: use --open rest=INDEX with 0 to 1"),
        ("rest=-3", "a split into 2 parts has no part -3"),
    ],
)
def test_lengths_that_do_not_follow_the_rule_stay(way: str, reason: str) -> None:
    for model in (parse(PLAIN), layers(1, 4)):
        report = fix_with_report(model, (), open=way, partial=True)
        (split,) = report.unfixable
        assert reason in str(split)
        with pytest.raises(ModelError, match=r"lengths\.baked"):
            fix(model, (), open=way)


@pytest.mark.parametrize("way", ["", "odd", "rest", "rest=", "rest=x", "rest=1.5", "EVEN"])
def test_another_word_is_rejected(way: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="use 'even', 'chunk' or 'rest=INDEX'"):
        fix(parse(HALVES), (), open=way)
    path = tmp_path / "m.onnx"
    onnx.save(parse(HALVES), path)
    result = run("fix", path, "--open", way)
    assert result.exit_code == 2
    assert "Invalid value for '--open'" in printed(result)


@NEEDS_RUNTIMES
def test_what_is_declared_behind_the_split_follows() -> None:
    model = parse("""(float[N,4] x, bool c) => (float[2,4] y, float[4,2] z, float[N,4] same, float[2,4] w)
        <int64[2] k = {2, 2}> {
        a, b = Split<axis = 0>(x, k)
        y = Relu(a)  z = Transpose(b)  same = Relu(x)
        w = If(c) < then_branch = t () => (float[2,4] p) { p = Neg(a) },
                    else_branch = e () => (float[2,4] q) { q = Neg(b) } > }""")
    fixed = fix(model, (), open="rest=1")
    shapes = {
        output.name: [dim.dim_value or dim.dim_param or "?" for dim in output.type.tensor_type.shape.dim]
        for output in fixed.graph.output
    }
    assert shapes["z"][0] == 4
    assert shapes["z"][1] != 2
    assert shapes["same"] == ["N", 4]
    assert 2 not in (*shapes["y"], *shapes["w"])
    onnx.checker.check_model(fixed, full_check=True)
    for size in (2, 4, 7):
        kind, found = on("onnxruntime", fixed, rows(size) | {"c": np.array(False)})
        assert (kind, found["w"].shape) == ("outputs", (size - 2, 4))


@NEEDS_RUNTIMES
def test_splits_of_subgraphs_functions_and_sequences_are_opened() -> None:
    for model in (parse(IN_BRANCH), onnx.parser.parse_model(IN_FUNCTION), parse(SEQUENCE)):
        for way in ("even", "rest=0", "chunk"):
            report = fix_with_report(model, "onnxruntime", open=way)
            assert [split.status for split in report.splits] == [FixStatus.REWRITTEN]
            found = verify(model, report.model, "onnxruntime", opened=True)
            assert found.holds, found.failures
            same = [trial.sizes["N"] for trial in found.trials if trial.verdict is TrialVerdict.SAME]
            assert len(same) >= 3


def test_a_function_whose_calls_split_by_other_lengths_stays() -> None:
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 11, "my": 1]>
        g (float[N,4] x) => (float[2,4] y, float[1,4] z) {
            y = my.part<lengths = [2, 2]>(x)  z = my.part<lengths = [1, 3]>(x) }
        <domain: "my", opset_import: ["": 11]>
        part <lengths>(x) => (p) { p, q = Split<split : ints = @lengths>(x) }""")
    assert len(baked(model)) == 1
    with pytest.raises(ModelError, match="each call of the function may have other lengths"):
        fix(model, (), open="rest=0")


@NEEDS_RUNTIMES
def test_the_command_verifies_sizes_that_the_source_rejects(tmp_path: Path) -> None:
    for path, model in ((tmp_path / "m.onnx", parse(CHUNKS)), (tmp_path / "m.xml", layers(3, 3, 1))):
        splitops.save(model, path)
        fixed = path.with_stem("fixed")
        result = run("fix", path, "--open", "chunk", "--verify", "-o", fixed, "--json")
        assert result.exit_code == 0, printed(result)
        (checks,) = json.loads(result.stdout)["verified"]
        same = {
            next(iter(trial["sizes"].values()))
            for trial in checks["trials"]
            if trial["verdict"] in ("identical", "rounded")  # OpenVINO's Sigmoid is not NumPy's
        }
        assert {7, 6, 3} <= same
        assert "lengths.baked" in printed(run("check", path))
        assert "lengths.baked" not in printed(run("check", fixed))


def test_a_fix_without_a_choice_leaves_the_lengths_and_says_so(tmp_path: Path) -> None:
    for model, path in ((parse(HALVES), tmp_path / "m.onnx"), (layers(2, 2), tmp_path / "m.xml")):
        report: FixReport = fix_with_report(model)
        assert not report.rewritten
        (split,) = report.possible
        assert [reason.code for reason in split.possible] == ["lengths.baked"]
        assert not fix_with_report(model, open="even").possible
        splitops.save(model, path)
        result = run("fix", path)
        assert result.exit_code == 0
        assert "No problems found" not in printed(result)
        assert "splitops fix MODEL --open even (or chunk, or rest=0 to rest=1)" in printed(result)


def test_the_command_that_writes_the_model_has_the_choice(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    splitops.save(parse(HALVES), path)
    shown = printed(run("fix", path, "--open", "rest=1")).replace("\n", " ")
    assert f"Write it: splitops fix {path} --open rest=1 -o " in shown
