"""The doors of the public functions: wrong kinds of arguments, files that change, loops without an end."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest
from click.testing import CliRunner
from onnx import ModelProto, TensorProto

import splitops
from splitops.cli import cli
from splitops.errors import ModelError, SplitError
from splitops.models.formats import openvino as openvino_ir


def split_model(opset: int = 18) -> ModelProto:
    return onnx.parser.parse_model(f"""
        <ir_version: 9, opset_import: ["": {opset}]>
        g (float[6] x) => (float[3] a, float[3] b) {{ a, b = Split<num_outputs = 2>(x) }}""")


def ir_model() -> openvino_ir.OpenVINOModel:
    builder = openvino_ir.Builder()
    weights = builder.const(np.arange(3 * 4096, dtype=np.float32))
    parts = builder.layer("Split", [weights, builder.const(0)], {"num_splits": 3}, outputs=3)
    for index, part in enumerate(parts):
        builder.result(part, f"part{index}")
    return builder.model()


WRONG: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("load", (split_model(),), {}),
    ("load", (None,), {}),
    ("save", (None, "x.onnx"), {}),
    ("save", (split_model(), None), {}),
    ("save", (split_model(), 3), {}),
    ("save", (ir_model(), b"bytes.xml"), {}),
    ("run", (split_model(), None), {}),
    ("run", (split_model(), [np.zeros(6, np.float32)]), {}),
    ("run", (None, {}), {}),
    ("run", (split_model(), {"x": np.zeros(6, np.float32)}), {"max_iterations": "many"}),
    ("infer", (None,), {}),
    ("infer", (split_model().graph,), {}),
    ("check", (split_model(), 3), {}),
    ("convert", (None, "onnx:13"), {}),
    ("convert", (split_model(), 13.0), {}),
    ("convert", (split_model(), True), {}),
    ("convert", (split_model(), b"onnx:13"), {}),
    ("convert", (split_model(), 0), {}),
    ("convert", (split_model(),), {"splits_only": True, "style": "none such"}),
    ("simplify", (None,), {}),
    ("simplify", (split_model(), 3), {}),
    ("simplify", (split_model(),), {"limit": "1 MiB"}),
]


@pytest.mark.parametrize(
    ("function", "args", "options"), WRONG, ids=[f"{w[0]}{i}" for i, w in enumerate(WRONG)]
)
def test_a_wrong_kind_of_argument_is_one_clear_error(function, args, options):
    with pytest.raises(SplitError):
        getattr(splitops, function)(*args, **options)


def test_check_finds_what_is_no_model():
    assert [finding.code for finding in splitops.check(None)] == ["model.invalid"]


def test_load_says_what_it_takes():
    with pytest.raises(ModelError, match="load requires a path, not a ModelProto"):
        splitops.load(split_model())


def test_an_opset_alone_is_a_target():
    assert splitops.convert(split_model(), 13) == splitops.convert(split_model(), "onnx:13")


@pytest.mark.parametrize("report", [splitops.infer, splitops.simplify_with_report])
def test_a_report_is_saved_as_its_model(tmp_path, report):
    made = report(split_model())
    splitops.save(made, tmp_path / "m.onnx")
    assert splitops.load(tmp_path / "m.onnx") == made.model
    with pytest.raises(ModelError, match=r"pass its \.model"):
        splitops.run(made, {})


def test_a_rejection_raises_without_a_report_alone():
    counted = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["": 18]>
        g (float[N] x) => (float[n] a, float[m] b) { a, b = Split<num_outputs = 2>(x) }""")
    report = splitops.convert_with_report(counted, 1)
    assert not report.complete
    with pytest.raises(SplitError) as caught:
        splitops.convert(counted, 1)
    assert str(caught.value) == str(report.problem)


LOOP = onnx.parser.parse_model("""
    <ir_version: 9, opset_import: ["": 18]>
    g (float[2] x, bool go) => (float[2] y) {
        none = Constant<value_int = 9223372036854775807>()
        y = Loop(none, go, x) <body = b (int64 i, bool on, float[2] v) => (bool still, float[2] w) {
            still = Identity(on)
            w = Identity(v) }> }""")


def test_a_loop_without_an_end_ends():
    feeds = {"x": np.zeros(2, np.float32), "go": np.array(True)}
    with pytest.raises(
        ModelError, match="loops and functions run more than 100 times: set a higher limit with"
    ):
        splitops.run(LOOP, feeds, max_iterations=100)
    assert splitops.run(LOOP, feeds | {"go": np.array(False)}, max_iterations=0)["y"].shape == (2,)


def doubling(levels: int) -> ModelProto:
    """Return a model whose function calls another one twice, and so on: 2^levels nodes."""
    inner = ["Neg", *(f"d.f{level}" for level in range(levels))]
    functions = [
        f"""<domain: "d", opset_import: ["": 18, "d": 1]> f{level} (x) => (y)
        {{ t = {inner[level]}(x) y = {inner[level]}(t) }}"""
        for level in range(levels)
    ]
    return onnx.parser.parse_model(
        f"""<ir_version: 9, opset_import: ["": 18, "d": 1]> g (float[4] x) => (float[2] a, float[2] b)
        {{ h = d.f{levels - 1}(x) a, b = Split<num_outputs = 2>(h) }}"""
        + "".join(functions)
    )


@pytest.mark.parametrize("engine", ["auto", "reference"])
def test_calls_of_functions_count_as_bodies(engine: str) -> None:
    model, feeds = doubling(4), {"x": np.ones(4, np.float32)}
    assert splitops.run(model, feeds, engine=engine, max_iterations=15)["a"].tolist() == [1, 1]
    with pytest.raises(
        ModelError, match="functions are called 15 times, more than 14: set a higher limit with"
    ):
        splitops.run(model, feeds, engine=engine, max_iterations=14)


@pytest.mark.parametrize("levels", [24, 40, 100])
def test_more_calls_than_bodies_is_an_error_at_once(levels: int) -> None:
    with pytest.raises(ModelError, match=f"functions are called {2**levels - 1} times, more than 4194304"):
        splitops.run(doubling(levels), {"x": np.ones(4, np.float32)})


def test_functions_that_inline_to_a_bomb_are_not_inlined() -> None:
    with pytest.raises(ModelError, match="has 262144 nodes once its functions are inlined, more than"):
        splitops.convert(doubling(17), "openvino")


def test_calls_in_a_branch_that_is_not_taken_are_not_counted() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["": 18, "d": 1]>
        g (bool c, float[4] x) => (float[4] y) {
            y = If (c) <then_branch = t () => (float[4] u) { u = d.f(x) },
                        else_branch = e () => (float[4] v) { v = Identity(x) }> }
        <domain: "d", opset_import: ["": 18]> f (x) => (y) { y = Neg(x) }""")
    feeds = {"x": np.ones(4, np.float32)}
    assert splitops.run(model, feeds | {"c": np.array(False)}, max_iterations=0)["y"].tolist() == [1, 1, 1, 1]
    with pytest.raises(ModelError, match="loops and functions run more than 0 times"):
        splitops.run(model, feeds | {"c": np.array(True)}, max_iterations=0)


def test_the_command_line_bounds_loops_too(tmp_path):
    splitops.save(LOOP, tmp_path / "loop.onnx")
    np.save(tmp_path / "go.npy", np.array(True))
    arguments = ["run", str(tmp_path / "loop.onnx"), "--input", "x=ramp", "--input", f"go={tmp_path}/go.npy"]
    endless = CliRunner().invoke(cli, [*arguments, "--max-iterations", "100"])
    assert endless.exit_code == 1
    assert re.search(r"more than 100 times: set a higher limit .*--max-iterations", endless.output)
    np.save(tmp_path / "go.npy", np.array(False))
    assert CliRunner().invoke(cli, [*arguments, "--max-iterations", "0"]).exit_code == 0


def test_the_bound_is_of_one_run_of_all_loops():
    made = ModelProto()
    made.CopyFrom(LOOP)
    made.graph.node[0].attribute[0].i = 60
    second = made.graph.node.add()
    second.CopyFrom(made.graph.node[1])
    second.input[2], second.output[0] = "y", "z"
    made.graph.output[0].name = "z"
    feeds = {"x": np.zeros(2, np.float32), "go": np.array(True)}
    prepared = splitops.session(made, "reference", max_iterations=120)
    for _ in range(2):
        prepared.run(feeds)
    with pytest.raises(ModelError, match="more than 119"):
        splitops.run(made, feeds, engine="reference", max_iterations=119)


TRUNCATED = """
import sys
import numpy as np
import splitops
from splitops.errors import ModelError
path, data = sys.argv[1:]
model = splitops.load(path)
open(data, "r+b").truncate(10)
try:
    splitops.run(model, {})
except ModelError as error:
    print(error)
"""


def test_a_bin_that_is_cut_short_in_use_is_an_error(tmp_path):
    splitops.save(ir_model(), tmp_path / "m.xml")
    command = [sys.executable, "-c", TRUNCATED, str(tmp_path / "m.xml"), str(tmp_path / "m.bin")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "m.bin': it ends at byte " in done.stdout


def with_external_data() -> ModelProto:
    made = split_model()
    made.graph.input.pop()
    tensor = TensorProto(name="x", data_type=TensorProto.FLOAT, dims=[6], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="x.bin")
    made.graph.initializer.append(tensor)
    return made


def test_external_data_that_is_cut_short_in_use_changes_nothing(tmp_path):
    (tmp_path / "m.onnx").write_bytes(with_external_data().SerializeToString())
    (tmp_path / "x.bin").write_bytes(np.arange(6, dtype=np.float32).tobytes())
    prepared = splitops.session(tmp_path / "m.onnx", "reference")
    os.truncate(tmp_path / "x.bin", 0)
    assert prepared.run({})["b"].tolist() == [3, 4, 5]


def test_a_place_is_the_path_as_it_was_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("deep").mkdir()
    made = split_model()
    made.graph.node[0].attribute[0].i = 0
    Path("deep/m.onnx").write_bytes(made.SerializeToString())
    with pytest.raises(SplitError, match=r"model 'deep/m\.onnx'"):
        splitops.run("deep/m.onnx", {"x": np.zeros(6, np.float32)})
    with pytest.raises(ModelError, match=r"cannot open 'deep/none\.onnx'"):
        splitops.load("deep/none.onnx")


def ir_split(path: Path, count: int, size: int, *, variadic: bool = False) -> None:
    """Write an IR whose Split has so many parts, two of them declared, or whose lengths are so many."""
    data, lengths = f"<dim>{size}</dim>", f"<dim>{count}</dim>"
    kind, given = ("VariadicSplit", "") if variadic else ("Split", f'<data num_splits="{count}"/>')
    extra = (
        f'''<layer id="9" name="k" type="Parameter" version="opset1">
        <data shape="{count}" element_type="i64"/><output>
        <port id="0" precision="I64">{lengths}</port></output></layer>'''
        if variadic
        else ""
    )
    port = f'<port id="2">{lengths}</port>' if variadic else ""
    edge = '<edge from-layer="9" from-port="0" to-layer="2" to-port="2"/>' if variadic else ""
    results = "".join(
        f'''<layer id="{at}" name="r{at}" type="Result" version="opset1">
        <input><port id="0">{data}</port></input></layer>'''
        for at in (3, 4)
    )
    path.write_text(f'''<?xml version="1.0"?><net name="m" version="11"><layers>
        <layer id="0" name="x" type="Parameter" version="opset1"><data shape="{size}" element_type="f32"/>
        <output><port id="0" precision="FP32">{data}</port></output></layer>
        <layer id="1" name="axis" type="Const" version="opset1">
        <data element_type="i64" shape="" offset="0" size="8"/>
        <output><port id="0" precision="I64"/></output></layer>{extra}
        <layer id="2" name="s" type="{kind}" version="opset1">{given}
        <input><port id="0">{data}</port><port id="1"/>{port}</input>
        <output><port id="3" precision="FP32">{data}</port>
        <port id="4" precision="FP32">{data}</port></output></layer>{results}</layers><edges>
        <edge from-layer="0" from-port="0" to-layer="2" to-port="0"/>
        <edge from-layer="1" from-port="0" to-layer="2" to-port="1"/>{edge}
        <edge from-layer="2" from-port="3" to-layer="3" to-port="0"/>
        <edge from-layer="2" from-port="4" to-layer="4" to-port="0"/></edges></net>''')
    path.with_suffix(".bin").write_bytes(bytes(8))


HUGE = 1 << 62
HUGE_SPLITS = {
    "few": f"(float[4] x) => (float[2] a, float[2] b) {{ a, b = Split<num_outputs = {HUGE}>(x) }}",
    "open": f"(float[N] x) => (float[A] a, float[B] b) {{ a, b = Split<num_outputs = {HUGE}>(x) }}",
    "many": f"(float[{HUGE}] x) => (float[A] a, float[B] b) {{ a, b = Split<num_outputs = {HUGE}>(x) }}",
    "chunks": f"""(float[{HUGE >> 2}] x) => (float[A] a) <int64 c = {{1}}, int64 i = {{3}}> {{
        s = SplitToSequence(x, c) a = SequenceAt(s, i) }}""",
    "sequence": f"(float[{HUGE >> 2}] x) => (seq(float[A]) s) {{ s = SplitToSequence(x) }}",
}
HUGE_LAYERS = {
    "layer": (HUGE, 4, False),
    "fitting layer": (HUGE, HUGE, False),
    "open layer": (HUGE, -1, False),
    "lengths": (HUGE, 4, True),
}
ON_MODELS = (
    *(["check"], ["check", "--for", "openvino"], ["fix", "-o", "made"], ["simplify"], ["infer"], ["inspect"]),
    *(["fix", "--open", "even", "-o", "made"], ["fix", "--for", "openvino", "--partial", "-o", "made"]),
    *(["convert", "--to", "openvino"], ["convert", "--to", "onnx:13"], ["run"]),
)


@pytest.mark.parametrize("name", [*HUGE_SPLITS, *HUGE_LAYERS])
def test_huge_numbers_of_parts_end_every_command_soon(name: str, tmp_path: Path) -> None:
    if name in HUGE_SPLITS:
        path = tmp_path / "m.onnx"
        text = f'<ir_version: 9, opset_import: ["": 18]> g {HUGE_SPLITS[name]}'
        path.write_bytes(onnx.parser.parse_model(text).SerializeToString())
    else:
        count, size, variadic = HUGE_LAYERS[name]
        ir_split(path := tmp_path / "m.xml", count, size, variadic=variadic)
    for first, *options in ON_MODELS:
        made = [str(tmp_path / f"made{path.suffix}") if one == "made" else one for one in options]
        began = time.monotonic()
        result = CliRunner().invoke(cli, [first, str(path), *made])
        assert isinstance(result.exception, SystemExit | None), (first, options, result.exception)
        assert time.monotonic() - began < 10, (first, options)


@pytest.mark.parametrize(
    "options",
    [
        ["--shape", "4", "--parts", str(HUGE)],
        ["--shape", str(HUGE), "--parts", str(HUGE), "--json"],
        ["--shape", str(HUGE >> 2), "--chunk", "1"],
        ["--shape", "4,5", "--parts", str(HUGE), "--op", "openvino"],
        ["--shape", "4", "--parts", "9" * 26],
    ],
)
def test_huge_numbers_of_parts_are_explained_by_one_line(options: list[str]) -> None:
    began = time.monotonic()
    result = CliRunner().invoke(cli, ["explain", *options])
    assert isinstance(result.exception, SystemExit)
    assert result.exit_code in (1, 2)
    assert time.monotonic() - began < 10


HAND_WRITTEN = {
    "nothing": "<layers/><edges/>",
    "an input alone": """<layers><layer id="0" name="x" type="Parameter" version="opset1">
        <data shape="2" element_type="f32"/><output><port id="0" precision="FP32"><dim>2</dim></port></output>
        </layer></layers><edges/>""",
    "no layers": "<edges/>",
    "an input that is the result": """<layers><layer id="0" name="x" type="Parameter" version="opset1">
        <data shape="2" element_type="f32"/><output><port id="0" precision="FP32"><dim>2</dim></port></output>
        </layer><layer id="1" name="r" type="Result" version="opset1"><input><port id="0"><dim>2</dim></port>
        </input></layer></layers>
        <edges><edge from-layer="0" from-port="0" to-layer="1" to-port="0"/></edges>""",
}


@pytest.mark.parametrize("name", HAND_WRITTEN)
def test_models_without_layers_that_compute_are_one_line_or_a_result(name: str, tmp_path: Path) -> None:
    path = tmp_path / "m.xml"
    path.write_text(f'<?xml version="1.0"?><net name="m" version="11">{HAND_WRITTEN[name]}</net>')
    path.with_suffix(".bin").write_bytes(b"")
    for first, *options in ON_MODELS:
        made = [str(tmp_path / "made.xml") if one == "made" else one for one in options]
        result = CliRunner().invoke(cli, [first, str(path), *made])
        assert isinstance(result.exception, SystemExit | None), (first, options, result.exception)
        said = [line for line in result.output.splitlines() if line.startswith("splitops:")]
        assert len(said) <= 1
