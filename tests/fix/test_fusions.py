"""What OpenVINO fuses wrongly around a split: foreseen, rewritten, never made, and never run."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from fix_helpers import difference, is_right, parse, proved
from fused_models import RIGHT, ROWS, WORDS, inside_branch, of_code, of_onnx

import splitops
from dev.neighbours.drawing import with_idle_nodes
from splitops.models.check import check
from splitops.models.formats.openvino import Builder
from splitops.models.quirks import graph_view

pytest.importorskip("openvino")
BOTH = pytest.mark.parametrize("ir", [False, True], ids=["onnx", "ir"])
CODES = pytest.mark.parametrize("code", ROWS)


def codes(model: Any) -> set[str]:
    return {finding.code for finding in check(model, "openvino")} & set(ROWS)


@CODES
def test_of_ir_it_is_foreseen_and_rewritten(code: str) -> None:
    model, feeds = of_code(code, ir=True)
    (finding,) = (finding for finding in check(model, "openvino") if finding.code == code)
    assert finding.severity == "error"
    assert len(finding.values["nodes"]) > 1
    report = proved("openvino", model, feeds)
    assert {reason.code for site in report.rewritten for reason in site.reasons} == {code}
    assert codes(report.model) == set()


@CODES
def test_it_is_foreseen_and_rewritten_in_a_branch(code: str) -> None:
    model, feeds = of_code(code, ir=False)
    inside = inside_branch(model)
    onnx.checker.check_model(inside)
    assert codes(inside) == {code}
    legal = splitops.fix(inside, "openvino")
    assert codes(legal) == set()
    given = {**feeds, "c": np.array(True)}
    assert is_right("openvino", legal, inside, given) is None


@pytest.mark.parametrize("word", WORDS)
def test_simplify_and_convert_never_make_one(word: str) -> None:
    model, feeds = of_onnx(word)
    wanted = splitops.run(model, feeds, engine="reference")
    for made in (splitops.simplify(model), splitops.convert(model, "openvino")):
        assert codes(made) == set()
        assert is_right("openvino", made, model, feeds) is None
        assert difference(wanted, splitops.run(made, feeds, engine="reference")) is None


def test_simplify_keeps_lengths_that_keep_a_split_apart() -> None:
    model, feeds = of_onnx("heads-of-unknown-size")
    legal = splitops.fix(model, "openvino")
    made = splitops.simplify_with_report(legal)
    assert not [change for change in made.changes if change.rewrite == "shorten-lengths"]
    assert codes(made.model) == set()
    assert is_right("openvino", made.model, model, feeds) is None


@pytest.mark.parametrize("word", RIGHT)
def test_what_is_fused_right_stays_as_it_is(word: str) -> None:
    model, feeds = of_onnx(word)
    assert is_right("openvino", model, model, feeds) is None
    assert codes(model) == set()
    assert splitops.fix(model, "openvino") == model


_RUN = """
import sys
import numpy as np, splitops
path, folder = sys.argv[1:]
for engine in ("auto", "openvino"):
    found = splitops.run(path, dict(np.load(f"{folder}/feeds.npz")), engine=engine)
    np.savez(f"{folder}/{engine}.npz", **found)
"""


@BOTH
@CODES
def test_a_run_is_right_and_comes_back(code: str, ir: bool, tmp_path: Path) -> None:
    model, feeds = of_code(code, ir=ir)
    path = tmp_path / ("m.xml" if ir else "m.onnx")
    splitops.save(model, path)
    np.savez(tmp_path / "feeds.npz", **feeds)
    subprocess.run([sys.executable, "-c", _RUN, str(path), str(tmp_path)], check=True, timeout=120)
    wanted = splitops.run(model, feeds, engine="reference")
    for engine in ("auto", "openvino"):
        assert difference(wanted, dict(np.load(tmp_path / f"{engine}.npz"))) is None


_RUN_ALL = """
import sys
from pathlib import Path
import numpy as np, splitops
for path in sorted(Path(sys.argv[1]).glob("*.onnx")):
    found = splitops.run(path, dict(np.load(path.with_suffix(".npz"))), engine="openvino")
    np.savez(path.with_suffix(".out.npz"), **found)
"""


def test_nodes_that_change_nothing_hide_no_pattern(tmp_path: Path) -> None:
    """OpenVINO drops them, and fuses what is left."""
    wanted: dict[str, Any] = {}
    for number, code in enumerate(ROWS):
        plain, feeds = of_code(code, ir=False)
        model = with_idle_nodes(plain, random.Random(number), 0.5)
        fixed = splitops.fix(model, "openvino")
        assert (codes(model), codes(fixed)) == ({code}, set())
        assert is_right("openvino", fixed, model, feeds) is None
        converted = splitops.convert(model, "openvino")
        assert codes(converted) == set()
        assert is_right("openvino", converted, model, feeds) is None
        splitops.save(model, tmp_path / f"{number}.onnx")
        np.savez(tmp_path / f"{number}.npz", **feeds)
        wanted[f"{number}.out.npz"] = splitops.run(model, feeds, engine="reference")
    subprocess.run([sys.executable, "-c", _RUN_ALL, str(tmp_path)], check=True, timeout=300)
    for name, expected in wanted.items():
        assert difference(expected, dict(np.load(tmp_path / name))) is None, name


def test_lengths_that_the_graph_computes_are_fused_too() -> None:
    """The size of the channels is open: a fix of the split alone leaves what OpenVINO finds out by itself."""
    model, feeds = of_onnx("convolved-twice")
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "channels"
    fixed = splitops.fix_with_report(model, "openvino")
    met = {reason.code for split in fixed.rewritten for reason in split.reasons}
    assert met == {"openvino.uneven-open-axis", "openvino.convolved-parts"}
    assert is_right("openvino", fixed.model, model, feeds) is None
    assert (
        difference(
            splitops.run(model, feeds, engine="openvino"), splitops.run(model, feeds, engine="reference")
        )
        is None
    )


@pytest.mark.parametrize(("axis", "shape"), [(2, "1,3,?,4"), (-2, "1,3,?,4"), (-1, "1,3,4,?")])
@pytest.mark.parametrize("joined", [2, 3])
def test_an_upsampling_of_unknown_size_in_ir_gets_lengths_that_its_graph_computes(
    axis: int, shape: str, joined: int
) -> None:
    builder = Builder()
    x, at = builder.parameter("x", "f32", shape), builder.const(np.array(axis))
    first, second = builder.layer("Split", [x, at], {"num_splits": 2}, outputs=2, name="cut")
    (whole,) = builder.layer("Concat", [first, first, second, second], {"axis": joined})
    builder.result(whole, "y")
    fixed = splitops.fix(builder.model(), "openvino")
    assert "VariadicSplit" in [layer.type for layer in fixed.graph.layers]
    session = splitops.session(fixed, "openvino")
    for size in (2, 4):
        sizes = [size if one == "?" else int(one) for one in shape.split(",")]
        data = np.arange(np.prod(sizes), dtype=np.float32).reshape(sizes)
        one, two = np.split(data, 2, axis)
        found = session.run({"x": data})["y"]
        np.testing.assert_array_equal(found, np.concatenate([one, one, two, two], joined))
    assert session.engine == "openvino"


def test_simplify_rewrites_an_upsampling_of_unknown_size_once() -> None:
    model, feeds = of_onnx("upsampled-from-the-end")
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "height"
    made = splitops.simplify_with_report(model)
    assert [change.rewrite for change in made.changes] == ["prevent-fusion"]
    assert is_right("openvino", made.model, model, feeds) is None
    again = splitops.simplify_with_report(made.model)
    assert not again.changes


_EMPTY = {
    "read": """(float[4, 6] x) => (float[4, 6] y, float[4, 0] z) <int64[2] s = {6, 0}> {
        a, b = Split<axis = 1>(x, s) y = Relu(a) z = Relu(b) }""",
    "an-output": """(float[4, 6] x) => (float[4, 6] y, float[4, 0] z) <int64[2] s = {6, 0}> {
        a, z = Split<axis = 1>(x, s) y = Relu(a) }""",
    "of-a-constant": """(float[4] x) => (float[4] y, float[1, 0] z)
        <int64[2] s = {4, 0}, float[4] w = {1, 2, 3, 4}, int64[1] at = {0}> {
        a, b = Split<axis = 0>(w, s) y = Add(x, a) z = Unsqueeze(b, at) }""",
    "of-a-shape": """(float[4, 6] x) => (int64[2] y, int64[1] z) <int64[2] s = {2, 0}> {
        shape = Shape(x) a, b = Split<axis = 0>(shape, s) y = Neg(a) z = Shape(b) }""",
    "in-a-branch": """(float[4, 6] x, bool c) => (float[4, n] y) <int64[2] s = {6, 0}> {
        a, b = Split<axis = 1>(x, s)
        y = If(c) <then_branch = t () => (float[4, 0] p) { p = Relu(b) },
                   else_branch = e () => (float[4, 6] q) { q = Relu(a) }> }""",
}


@pytest.mark.parametrize("opset", [8, 13, 18])
@pytest.mark.parametrize("word", _EMPTY)
def test_simplify_keeps_an_empty_part_right(word: str, opset: int) -> None:
    """OpenVINO reads an empty initializer or Constant of ONNX as a scalar."""
    text = _EMPTY[word]
    if opset < 13:
        text = text.replace("Split<axis = 1>(x, s)", "Split<axis = 1, split = [6, 0]>(x)")
        text = text.replace("Split<axis = 0>(w, s)", "Split<axis = 0, split = [4, 0]>(w)")
        text = text.replace("Split<axis = 0>(shape, s)", "Split<axis = 0, split = [2, 0]>(shape)")
        text = text.replace("Unsqueeze(b, at)", "Unsqueeze<axes = [0]>(b)")
    model = parse(text, opset)
    feeds: dict[str, Any] = {"x": np.arange(24, dtype=np.float32).reshape(4, 6) - 9}
    if word == "of-a-constant":
        feeds = {"x": np.arange(4, dtype=np.float32)}
    if word == "in-a-branch":
        feeds["c"] = np.array(True)
    assert is_right("openvino", model, model, feeds) is None
    report = splitops.simplify_with_report(model)
    assert bool(report.changes) is (opset > 8 or word in ("of-a-shape", "of-a-constant"))
    assert is_right("openvino", report.model, model, feeds) is None
    assert not splitops.simplify_with_report(report.model).changes


_ROTARY = """(float[2, 3, 5, 8] x, float[1, 1, 5, 8] c, float[1, 1, 5, 8] s) => (float[2, 3, 5, 8] y) {
    a, b = Split<axis = 3, num_outputs = 2>(x)
    n = Neg(b) r = Concat<axis = -1>(n, a) p = Mul(x, c) q = Mul(r, s) y = Add(p, q) }"""


@pytest.mark.parametrize("operator", ["Slice", "Identity"])
def test_each_node_of_a_row_that_changes_nothing_is_looked_at_once(
    operator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, declare = onnx.helper.make_node, onnx.helper.make_tensor_value_info
    given, numbers = ["b", "e", "a"] if operator == "Slice" else [], {"b": 0, "e": 9, "a": 1}
    row = [make(operator, [f"s{at}" if at else "x", *given], [f"s{at + 1}"]) for at in range(200)]
    read = [make("ReduceMean", [f"s{at + 1}"], [f"r{at}"], axes=[1], keepdims=0) for at in range(200)]
    held = [onnx.numpy_helper.from_array(np.array([number]), name) for name, number in numbers.items()]
    ends = [declare("s200", 1, [2, 1]), *(declare(f"r{at}", 1, [2]) for at in range(200))]
    graph = onnx.helper.make_graph([*row, *read], "g", [declare("x", 1, [2, 1])], ends, held)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8)
    asked: list[Any] = []
    asks = graph_view.GraphView.find_unchanged
    monkeypatch.setattr(
        graph_view.GraphView, "find_unchanged", lambda self, node: asked.append(node) or asks(self, node)
    )
    splitops.fix(model, "openvino")
    assert 0 < len(asked) <= 6 * len(row)


def test_thousands_of_nodes_that_change_nothing_are_seen_through() -> None:
    model = parse(_ROTARY)
    product = next(node for node in model.graph.node if node.op_type == "Mul" and "r" in node.input)
    product.input[0], at = "r2000", list(model.graph.node).index(product)
    for index in reversed(range(2000)):
        read = f"r{index}" if index else "r"
        model.graph.node.insert(at, onnx.helper.make_node("Identity", [read], [f"r{index + 1}"]))
    assert codes(model) == set()
