"""An invalid split never gives values, whatever is around it: an optimiser may remove it with its checks."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import splitops
from splitops.errors import RuleError
from splitops.models.engines import is_installed
from splitops.models.engines.engine import EngineError
from splitops.models.formats.openvino import Builder, OpenVINOModel

sys.path.insert(0, str(Path(__file__).parent.parent))
from body_models import Body, fill, port, reread, slices

SIZES = range(10)
RUNTIMES = [
    pytest.param(name, marks=pytest.mark.skipif(not is_installed(name), reason=f"no {name}"))
    for name in ("onnxruntime", "openvino")
]
needs_openvino = pytest.mark.skipif(not is_installed("openvino"), reason="no OpenVINO")

# What splits `y` into `a` and `b`, and the lengths that a run brings.
SPLITS = {
    "lengths": "two = Constant<value_ints = [2, 3]>() a, b = Split(y, two)",
    "halves": "a, b = Split(y)",
    "lengths of the run": "a, b = Split(y, l)",
}
# What makes `z` of them.
NEIGHBOURS = {
    "all parts joined": "z = Concat<axis = 0>(a, b)",
    "sizes": "p = Shape(a) q = Shape(b) j = Concat<axis = 0>(p, q) z = Cast<to = 1>(j)",
    "one part unused": "z = Relu(a)",
    "the sum of all": "c = Concat<axis = 0>(a, b) z = ReduceSum(c)",
    "moved": "c = Transpose(a) d = Transpose(b) z = Concat<axis = 0>(c, d)",
}
PLACES = {
    "the main graph": "y = Neg(x) {inside}",
    "a branch": """
        z = If(k) <then_branch = t () => (float[m] z) {{ y = Neg(x) {inside} }},
                   else_branch = e () => (float[o] f) {{ f = Neg(x) }}>""",
    "a loop": """
        w = Loop(n, , x) <
            body = s (int64 i, bool g, float[u] v) => (bool on, float[u] v2, float[m] z) {{
                on = Identity(g) v2 = Identity(v) y = Neg(v) {inside} }}>""",
    "a scan": """
        last, w = Scan<
            num_scan_inputs = 1,
            body = s (float[u] v, float[4] r) => (float[u] v2, float[m] z) {{
                v2 = Identity(v) t = ReduceSum<keepdims = 0>(r) o = Mul(v, t) y = Neg(o) {inside} }}
        >(x, rows)""",
}


def outcome(ready: Any, feeds: dict[str, Any]) -> Any:
    try:
        found = ready.run(feeds)
        return {name: (array.shape, array.tolist()) for name, array in found.items()}
    except RuleError as error:
        return str(error.rule)
    except splitops.SplitError as error:
        return error


def agrees(model: Any, engine: str, feeds: list[dict[str, Any]]) -> None:
    """Hold an engine against the reference; a named one may reject, but never gives what it does not."""
    expected = splitops.session(model, "reference")
    for name in ("auto", engine):
        try:
            ready = splitops.session(model, name)
        except EngineError:
            assert name != "auto"
            continue
        codes = set()
        for given in feeds:
            right, found = outcome(expected, given), outcome(ready, given)
            if isinstance(found, EngineError) and name != "auto":
                assert isinstance(right, str)
                continue
            assert found == right, (name, given)
            codes.add(isinstance(right, str))
        assert codes == {True, False} or name != "auto"


def lengths_for(split: str, size: int) -> list[list[int]]:
    if split != "lengths of the run":
        return [[0, 0]]
    return [[2, 3], [size, 0], [-1, size + 1], [size, size]]


def onnx_model(split: str, neighbours: str, place: str, *, in_function: bool = False) -> onnx.ModelProto:
    inside = f"{SPLITS[split]} {NEIGHBOURS[neighbours]}"
    body = PLACES[place].format(inside=inside)
    output = "float[c, m] w" if place in ("a loop", "a scan") else "float[m] z"
    if neighbours == "the sum of all":
        body = body.replace("float[m] z", "float[1] z")
    inputs = "float[N] x, int64[2] l, bool k, int64 n, float[R, 4] rows"
    function = ""
    if in_function:
        inner = body
        body = f"{output.split()[-1]} = my.f(x, l, k, n, rows)"
        function = f"""<domain: "my", opset_import: ["": 13]>
            f (x, l, k, n, rows) => ({output.split()[-1]}) {{ {inner} }}"""
    body = body.replace("w = Loop", "left, w = Loop") if place == "a loop" else body
    if in_function and place == "a loop":
        function = function.replace("w = Loop", "left, w = Loop")
    imports = '"": 13, "my": 1' if in_function else '"": 13'
    return onnx.parser.parse_model(
        f"<ir_version: 8, opset_import: [{imports}]> g ({inputs}) => ({output}) {{ {body} }} {function}"
    )


def onnx_feeds(split: str) -> list[dict[str, Any]]:
    return [
        {
            "x": np.arange(size, dtype=np.float32) + 1,
            "l": np.array(lengths),
            "k": np.array(True),
            "n": np.array(2),
            "rows": np.full((2, 4), 0.25, np.float32),
        }
        for size in SIZES
        for lengths in lengths_for(split, size)
    ]


@pytest.mark.parametrize("engine", RUNTIMES)
@pytest.mark.parametrize("neighbours", NEIGHBOURS)
@pytest.mark.parametrize("split", SPLITS)
def test_onnx(split: str, neighbours: str, engine: str) -> None:
    agrees(onnx_model(split, neighbours, "the main graph"), engine, onnx_feeds(split))


@pytest.mark.parametrize("engine", RUNTIMES)
@pytest.mark.parametrize("place", ["a branch", "a loop", "a scan"])
@pytest.mark.parametrize("split", SPLITS)
def test_onnx_in_bodies(split: str, place: str, engine: str) -> None:
    agrees(onnx_model(split, "all parts joined", place), engine, onnx_feeds(split))


@pytest.mark.parametrize("engine", RUNTIMES)
@pytest.mark.parametrize("place", PLACES)
def test_onnx_in_functions(place: str, engine: str) -> None:
    agrees(onnx_model("lengths", "sizes", place, in_function=True), engine, onnx_feeds("lengths"))


# OpenVINO IR


def ir_parts(builder: Builder, x: Any, split: str, lengths: Any) -> Any:
    axis = builder.const(np.array(0))
    if split == "halves":
        return builder.layer("Split", [x, axis], {"num_splits": 2}, outputs=2, name="cut")
    sizes = {"lengths": [2, 3], "rest": [3, -1]}.get(split)
    stated = lengths if sizes is None else builder.const(np.array(sizes))
    return builder.layer("VariadicSplit", [x, axis, stated], outputs=2, name="cut")


def joined(builder: Builder, parts: Any, neighbours: str) -> Any:
    a, b = parts
    if neighbours == "sizes":
        shapes = [
            builder.layer("ShapeOf", [part], {"output_type": "i64"}, version="opset3", element_type="i64")[0]
            for part in parts
        ]
        return builder.layer("Concat", shapes, {"axis": 0})[0]
    if neighbours == "one part unused":
        return builder.layer("ReLU", [a])[0]
    (whole,) = builder.layer("Concat", [a, b], {"axis": 0})
    if neighbours == "the sum of all":
        return builder.layer("ReduceSum", [whole, builder.const(np.array([0]))], {"keep_dims": "true"})[0]
    if neighbours == "moved":
        return builder.layer("Transpose", [whole, builder.const(np.array([0]))])[0]
    return whole


IR_SPLITS = ("lengths", "rest", "halves", "lengths of the run")


def ir_feeds(split: str) -> list[dict[str, Any]]:
    return [
        {"x": np.arange(size, dtype=np.float32) + 1, "l": np.array(lengths)}
        for size in SIZES
        for lengths in [*lengths_for(split, size), *([[7, -1]] if split == "lengths of the run" else [])]
    ]


@needs_openvino
@pytest.mark.parametrize("neighbours", NEIGHBOURS)
@pytest.mark.parametrize("split", IR_SPLITS)
def test_ir(split: str, neighbours: str) -> None:
    builder = Builder("g")
    x, lengths = builder.parameter("x", "f32", "?"), builder.parameter("l", "i64", (2,))
    (y,) = builder.layer("ReLU", [x])
    builder.result(joined(builder, ir_parts(builder, y, split, lengths), neighbours), "z")
    agrees(builder.model(), "openvino", ir_feeds(split))


@needs_openvino
@pytest.mark.parametrize(
    "lengths", [[2**63 - 1, 5], [2**31 - 1, 2**31 - 1, 6], [2**31 - 1, 2**31 - 1, 7, -1]]
)
def test_lengths_that_sum_to_more_than_any_axis(lengths: list[int]) -> None:
    builder = Builder("g")
    x = builder.parameter("x", "f32", "?")
    ports = [x, builder.const(np.array(0)), builder.const(np.array(lengths))]
    parts = builder.layer("VariadicSplit", ports, outputs=len(lengths))
    builder.result(builder.layer("Concat", parts, {"axis": 0})[0], "z")
    for engine in ("reference", "auto"):
        with pytest.raises(RuleError):
            splitops.session(builder.model(), engine).run({"x": np.zeros(4, np.float32)})


def ir_in_a_body(kind: str, split: str, neighbours: str) -> OpenVINOModel:
    builder = Builder("g")
    x, lengths = builder.parameter("x", "f32", "?"), builder.parameter("l", "i64", (2,))
    if kind == "If":
        gate = [builder.const(np.array(True)), x, lengths]
        (made,) = builder.layer("If", gate, version="opset8", name="holder", element_type="f32")
        ports, out = (port(1), port(2)), port(3)
    else:
        rows = builder.const(np.zeros((2, 1), np.float32))
        (made,) = builder.layer("TensorIterator", [rows, x, lengths], name="holder", element_type="f32")
        ports, out = (port(1), port(2)), slices(3)
    builder.result(made, "z")
    bodies = {}
    for prefix in ("then_", "else_") if kind == "If" else ("",):
        body = Body()
        if kind != "If":
            body.takes("row", "f32", "1,1", slices(0))
        inner, wanted = body.takes("x", "f32", "?", ports[0]), body.takes("l", "i64", "2", ports[1])
        whole = joined(body.builder, ir_parts(body.builder, inner, split, wanted), neighbours)
        if kind != "If":
            (whole,) = body.builder.layer("Unsqueeze", [whole, body.builder.const(np.array([0]))])
        body.gives("z", whole, out)
        bodies[prefix] = body
    return reread(fill(builder.model(), "holder", bodies))


@needs_openvino
@pytest.mark.parametrize("kind", ["If", "TensorIterator"])
@pytest.mark.parametrize("split", IR_SPLITS)
def test_ir_in_bodies(split: str, kind: str) -> None:
    agrees(ir_in_a_body(kind, split, "all parts joined"), "openvino", ir_feeds(split))


def test_the_comparison_can_fail() -> None:
    model = onnx_model("halves", "all parts joined", "the main graph")
    only_valid = [{**feeds, "x": np.zeros(4, np.float32)} for feeds in onnx_feeds("halves")]
    with pytest.raises(AssertionError):
        agrees(model, "auto", only_valid)
