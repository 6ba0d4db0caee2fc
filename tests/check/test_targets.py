"""Targets: those of the package, releases of one, and files that a user writes."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from click.testing import CliRunner

import splitops
from scripts import script
from splitops.cli import cli
from splitops.models.check import Target, check
from splitops.models.check.predicates import PREDICATES
from splitops.models.check.targets import list_target_names
from splitops.models.fix import FixStatus, fix, fix_with_report
from splitops.models.formats.openvino import Builder, OpenVINOModel

NPU = Path(__file__).with_name("npu.toml")
SIX = "(float[A] a, float[B] b, float[C] c, float[D] d, float[E] e, float[F] f)"
FIVE = "(float[A] a, float[B] b, float[C] c, float[D] d, float[E] e)"


def parse(body: str, opset: int = 18) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> g {body}')


def operators(model: Any) -> Counter[str]:
    return Counter(node.op_type for node in model.graph.node)


def bits(model: Any, feeds: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [(part.dtype, part.shape, part.tobytes()) for part in splitops.run(model, feeds).values()]


FIXED = {
    "an uneven split becomes Slices": (
        "(float[7] x) => (float[A] a, float[B] b) { a, b = Split<num_outputs = 2>(x) }",
        (7,),
        {"Slice": 2},
        "npu.even-only",
    ),
    "six outputs become a tree": (
        f"(float[12] x) => {SIX} {{ a, b, c, d, e, f = Split<num_outputs = 6>(x) }}",
        (12,),
        {"Split": 4},
        "npu.four-outputs",
    ),
    "five outputs become a tree, of which the uneven one becomes Slices": (
        f"(float[10] x) => {FIVE} {{ a, b, c, d, e = Split<num_outputs = 5>(x) }}",
        (10,),
        {"Split": 2, "Slice": 3},
        "npu.four-outputs",
    ),
    "a sequence becomes a Split": (
        "(float[6] x) => (float[A] a, float[B] b) { "
        "s = SplitToSequence(x, l) i = Constant<value_int = 0>() j = Constant<value_int = 1>() "
        "a = SequenceAt(s, i) b = SequenceAt(s, j) }",
        (6,),
        {"Split": 1},
        "npu.no-sequences",
    ),
    "a negative axis is counted from the front": (
        "(float[2, 6] x) => (float[A, B] a, float[C, D] b) { a, b = Split<axis = -1, num_outputs = 2>(x) }",
        (2, 6),
        {"Split": 1},
        "npu.front-axis",
    ),
}


@pytest.mark.parametrize("name", FIXED)
def test_a_file_alone_says_what_a_device_accepts(name: str) -> None:
    body, shape, expected, code = FIXED[name]
    model = parse(body)
    if "SplitToSequence" in body:
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(3), "l"))
    found = check(model, NPU)
    assert [(one.code, str(one.severity), one.runtime) for one in found] == [(code, "error", "npu")]
    report = fix_with_report(model, NPU)
    assert report.runtimes == ("npu",)
    assert code in {reason.code for split in report.rewritten for reason in split.reasons}
    assert len([split for split in report.splits if split.status is FixStatus.REWRITTEN]) == 1
    assert check(report.model, NPU) == []
    done = operators(report.model)
    assert {name: done[name] for name in ("Split", "Slice", "SplitToSequence") if done[name]} == expected
    onnx.checker.check_model(report.model)
    feeds = {"x": np.arange(np.prod(shape), dtype=np.float32).reshape(shape)}
    assert bits(report.model, feeds) == bits(model, feeds)


@pytest.mark.parametrize("size", [0, 1, 6, 7])
def test_an_open_axis_may_be_uneven_and_becomes_slices(size: int) -> None:
    model = parse("(float[N] x) => (float[A] a, float[B] b) { a, b = Split<num_outputs = 2>(x) }")
    (found,) = check(model, NPU)
    assert (found.code, str(found.severity)) == ("npu.even-only", "warning")
    fixed = fix(model, NPU)
    assert operators(fixed)["Split"] == 0
    feeds = {"x": np.arange(size, dtype=np.float32)}
    assert bits(fixed, feeds) == bits(model, feeds)


def layer(size: int, *lengths: int) -> OpenVINOModel:
    builder = Builder("m")
    data = builder.parameter("x", "f32", f"{size}")
    ports = [data, builder.const(np.array(0)), builder.const(np.array(lengths))]
    for index, part in enumerate(builder.layer("VariadicSplit", ports, outputs=len(lengths))):
        builder.result(part, f"p{index}")
    return builder.model()


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [((3, 4), {"Slice": 2}), ((2, 2, 2, 2, 2, 2), {"Split": 4}), ((1, 2, 3, 4, 5), {"Slice": 5})],
)
def test_openvino_ir_for_a_device(lengths: tuple[int, ...], expected: dict[str, int]) -> None:
    model = layer(sum(lengths), *lengths)
    assert {one.code for one in check(model, NPU)} <= {"npu.even-only", "npu.four-outputs"}
    fixed = fix(model, NPU)
    assert isinstance(fixed, OpenVINOModel)
    assert check(fixed, NPU) == []
    done = Counter(one.type for one in fixed.graph.layers)
    assert {kind: done[kind] for kind in ("Split", "VariadicSplit", "Slice") if done[kind]} == expected
    feeds = {"x": np.arange(sum(lengths), dtype=np.float32)}
    assert bits(fixed, feeds) == bits(model, feeds)


@pytest.mark.parametrize("form", ["slices", "gathers"])
@pytest.mark.parametrize("ir", [False, True])
def test_a_device_without_split(form: str, ir: bool, tmp_path: Path) -> None:
    path = tmp_path / "bare.toml"
    path.write_text(f'[[limits]]\ncode = "no-split"\nwhen = "operator missing"\nrewrites = ["{form}"]\n')
    onnx_model = parse("(float[7] x) => (float[A] a, float[B] b) { a, b = Split<num_outputs = 2>(x) }")
    model: Any = layer(7, 4, 3) if ir else onnx_model
    fixed: Any = fix(model, path)
    kinds = {one.type for one in fixed.graph.layers} if ir else set(operators(fixed))
    assert kinds & {"Split", "VariadicSplit", "Slice", "Gather"} == {form.removesuffix("s").capitalize()}
    feeds = {"x": np.arange(7, dtype=np.float32)}
    assert bits(fixed, feeds) == bits(model, feeds)


@pytest.mark.parametrize("form", ["parts", "sequence"])
def test_a_form_of_sequences_is_none_of_a_split(form: str, tmp_path: Path) -> None:
    path = tmp_path / "bare.toml"
    path.write_text(f'[[limits]]\ncode = "no-split"\nwhen = "operator missing"\nrewrites = ["{form}"]\n')
    model = parse("(float[7] x) => (float[A] a, float[B] b) { a, b = Split<num_outputs = 2>(x) }")
    with pytest.raises(splitops.ModelError, match=r"\[bare.no-split\].* Split-18 does not return a sequence"):
        fix(model, path)


# Releases


def test_a_release_has_the_limits_that_it_has() -> None:
    empty = parse("(float[6] x) => (float[A] a, float[B] b, float[C] c, float[D] d) "
                  "{ a, b, c, d = Split<num_outputs = 4>(x) }")  # fmt: skip
    for named, expected in {
        "onnxruntime": 1,
        "onnxruntime==1.28": 1,
        "onnxruntime==1.31": 1,
        "onnxruntime==1.31.1": 1,
        "onnxruntime==1.32": 0,
        "onnxruntime==1.40": 0,
    }.items():
        assert len(check(empty, named)) == expected, named
    assert fix_with_report(empty, "onnxruntime==1.28").runtimes == ("onnxruntime==1.28",)
    found = check(empty, ["onnxruntime==1.28", Target.load("openvino"), NPU])
    assert sorted({one.code for one in found}) == [
        "npu.even-only",
        "onnxruntime.ceil-empty-part",
        "openvino.ceil-empty-part",
    ]


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("onnxruntim", "unknown runtime 'onnxruntim'; did you mean 'onnxruntime'?"),
        ("abacus", "unknown runtime 'abacus'; use onnxruntime, onnx, "),
        ("onnxruntime==1.20", "onnxruntime 1.20 was not tested: the oldest tested release is 1.24"),
        ("onnxruntime==new", "'new' is not a release of onnxruntime, such as onnxruntime==1.2"),
        (3, "unknown runtime 3"),
    ],
)
def test_what_is_no_target_is_said(named: Any, message: str) -> None:
    with pytest.raises(splitops.ArrayError) as caught:
        Target.load(named)
    assert str(caught.value).startswith(message)


# Files that are wrong

LIMIT = '[[limits]]\ncode = "a"\n'


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("[[limits]\n", 1, "invalid TOML: "),
        ('name = "npu"\n', 1, "there is no table [[limits]]: a target needs at least one"),
        ('\nname = "NPU"\n' + LIMIT, 2, "name = 'NPU': use lowercase letters, digits and '-'"),
        ('name = "onnx"\n' + LIMIT, 1, "'onnx' is the name of a built-in target: use another name"),
        ("titel = 3\n" + LIMIT, 1, "unknown key 'titel': use one of name, title, "),
        ("title = 3\n" + LIMIT, 1, "title = 3 is not a string in quotes"),
        ('formats = ["tflite"]\n' + LIMIT, 1, "formats = ('tflite',): use onnx, openvino"),
        (LIMIT, 1, "limit 'a' must have either 'when' or 'quirk'"),
        (LIMIT + "when = []\n", 3, "'when' is empty: set at least one condition"),
        (LIMIT + "when = 4\n", 3, "when = 4 is not a string in quotes or a list in brackets"),
        (LIMIT + "when = [4]\n", 3, "when: 4 is not a string in quotes"),
        (LIMIT + 'when = "unven"\n', 3, "unknown condition 'unven'; did you mean 'uneven'?"),
        (
            LIMIT + 'when = "uneven"\n' + LIMIT + '\n when = "size over 4"\n',
            7,
            "unknown condition 'size over N'",
        ),
        (LIMIT + 'when = "uneven"\n' + LIMIT + 'when = "uneven"\n', 5, "two limits have the code 'npu.a'"),
        (LIMIT + 'when = "uneven"\nform = []\n', 4, "unknown key 'form': use one of code, "),
        (
            LIMIT + 'when = "uneven"\nrewrites = ["slice"]\n',
            4,
            "rewrites = 'slice': use axis, explicit outputs, ",
        ),
        (LIMIT + 'when = "uneven"\noutcome = "bad"\n', 4, "outcome = 'bad': use error, wrong result"),
        (
            LIMIT + 'when = "uneven"\noperators = ["Cut"]\n',
            4,
            "unknown operator 'Cut': use Split, Split-1",
        ),
        (
            LIMIT + 'when = "uneven"\nmessage_with_sizes = "{n} parts"\n',
            4,
            "message_with_sizes: unknown field '",
        ),
        *(
            (
                LIMIT + f'when = "uneven"\nmessage_with_sizes = "{field} parts"\n',
                4,
                "message_with_sizes: unknown field '",
            )
            for field in (
                "{count[0]}",
                "{count:>3000000000}",
                "{count.__add__}",
                "{count!r}",
                "{count:{size}}",
                "{}",
                "{0}",
                "{{count}}",
                "{count",
                "count}",
                "{ count }",
            )
        ),
        (LIMIT + 'quirk = "joined"\n', 3, "quirk = 'joined': use squeezed-parts"),
        ('[[limits]]\nwhen = "uneven"\n', 1, "code = '': use lowercase letters"),
    ],
)
def test_a_wrong_file_is_one_error_with_the_line(text: str, line: int, message: str, tmp_path: Path) -> None:
    path = tmp_path / "npu.toml"
    path.write_text(text)
    with pytest.raises(splitops.ModelError) as caught:
        Target.load(path)
    told = str(caught.value)
    assert told.startswith(f"{str(path)!r}, line {line}: {message}"), told
    done = CliRunner().invoke(cli, ["targets", str(path)])
    assert done.exit_code == 2
    assert f"line {line}: {message[:20]}" in done.output


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(splitops.ModelError, match=r"none\.toml"):
        Target.load(tmp_path / "none.toml")


# The commands


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "m.onnx"
    onnx.save(parse(f"(float[12] x) => {SIX} {{ a, b, c, d, e, f = Split<num_outputs = 6>(x) }}"), path)
    return path


def test_the_commands_take_a_file_and_a_release(model: Path) -> None:
    words = ["--for", str(NPU), "--for", "onnxruntime==1.28"]
    done = CliRunner().invoke(cli, ["check", str(model), *words])
    assert done.exit_code == 1
    assert "[npu.four-outputs] (npu: error)" in done.output
    assert "splitops rule npu" not in done.output, "nothing more is known of it"
    assert f"splitops fix {model} --for {NPU} --for onnxruntime==1.28 -o" in done.output.replace("\n", " ")
    fixed = model.with_name("fixed.onnx")
    done = CliRunner().invoke(cli, ["fix", str(model), *words, "-o", str(fixed)])
    assert done.exit_code == 0, done.output
    text = done.output.replace("\n", " ")
    assert "1 split rewritten for npu, onnxruntime 1.28. No split left to fix." in text
    assert CliRunner().invoke(cli, ["check", str(fixed), *words]).exit_code == 0


def test_codes_of_a_file_are_selected_and_ignored(model: Path) -> None:
    words = ["check", str(model), "--for", str(NPU)]
    assert CliRunner().invoke(cli, [*words, "--ignore", "npu.four-outputs"]).exit_code == 0
    assert CliRunner().invoke(cli, [*words, "--select", "npu"]).exit_code == 1
    assert CliRunner().invoke(cli, [*words, "--select", "npv"]).exit_code == 2


def test_targets_are_listed_with_their_releases_and_evidence() -> None:
    done = CliRunner().invoke(cli, ["targets"])
    assert done.exit_code == 0
    assert all(name in done.output for name in list_target_names())
    one = CliRunner().invoke(cli, ["targets", "onnxruntime==1.32", "--json"])
    (found,) = json.loads(one.output)
    assert found["release"] == "1.32"
    limits = {limit["code"]: limit for limit in found["limits"]}
    assert "onnxruntime.ceil-empty-part" not in limits
    assert limits["onnxruntime.ceil-negative-part"]["evidence"]
    assert limits["onnxruntime.ceil-negative-part"]["when"] == ["last part beyond the axis"]
    own = CliRunner().invoke(cli, ["targets", str(NPU)])
    assert "The NPU: 4 limits" in own.output
    assert "npu.four-outputs" in own.output


def test_the_page_has_every_word() -> None:
    made = script("dev/pages/targets")
    page = made.PAGE.read_text()
    assert page == made.page(page), "run dev/pages/targets.py"
    assert all(f"`{text}`" in page for text in PREDICATES)
