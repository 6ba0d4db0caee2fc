"""What runtimes make of splits is thought of where they are written: the specification does not tell it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import ModelProto
from onnx.helper import printable_node

import splitops
from splitops.errors import RuleError
from splitops.models.check import check
from splitops.models.convert import convert, convert_with_report
from splitops.models.engines import is_installed
from splitops.models.fix import fix, fix_with_report
from splitops.models.formats.openvino import Builder, OpenVINOModel
from splitops.models.simplify import simplify

SIZES = (0, 4, 8, 12)


def parsed(body: str, opset: int) -> ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> g {body}')


def pair(first: str, second: str, opset: int, size: str = "N", state: str = "") -> ModelProto:
    """Two splits of one input, into 2 and 4 parts, which other nodes read."""
    return parsed(
        f"(float[{size}] x) => (float[A] p, float[B] q, float[C] r) {state} "
        f"{{ a, b = Split{first} c, d, e, f = Split{second} p = Relu(a) q = Relu(c) r = Relu(f) }}",
        opset,
    )


def ir(shape: str, *splits: list[int] | int) -> OpenVINOModel:
    """A model of VariadicSplits (lengths) and Splits (a number) of one input."""
    builder = Builder("m")
    data = builder.parameter("x", "f32", shape)
    for number, split in enumerate(splits):
        ports = [data, builder.const(np.array(0))]
        if isinstance(split, int):
            parts = builder.layer("Split", ports, {"num_splits": split}, outputs=split)
        else:
            lengths = builder.const(np.array(split))
            parts = builder.layer("VariadicSplit", [*ports, lengths], outputs=len(split))
        for index, part in enumerate(parts):
            again = builder.layer("Concat", [part], {"axis": 0})[0]
            builder.result(again, f"p{number}_{index}")
    return builder.model()


def outputs(model: Any, size: int) -> list[list[float]]:
    found = splitops.run(model, {"x": np.arange(size, dtype=np.float32)}, engine="reference")
    return [part.tolist() for part in found.values()]


@pytest.mark.parametrize("opset", [1, 2, 9, 10, 11, 12, 13, 18])
@pytest.mark.parametrize("lengths", [[-1, 0], [-1, 2, 0], [1, -1, 0], [-1, 0, 0], [0, -1], [2, -1, 0, 1]])
def test_a_remainder_before_empty_parts(lengths: list[int], opset: int) -> None:
    model = ir("?", lengths)
    converted = convert(model, to=f"onnx:{opset}")
    for size in (3, 5):
        assert outputs(converted, size) == outputs(model, size)


def test_a_known_remainder_is_lengths() -> None:
    converted = convert(ir("1", [-1, 0, 0]), to="onnx:18")
    (node,) = [node for node in converted.graph.node if node.op_type == "Split"]
    assert "num_outputs" not in {attribute.name for attribute in node.attribute}
    assert len(node.input) == 2


def codes(model: ModelProto) -> set[str]:
    return {finding.code for finding in check(model, ["onnxruntime"])}


@pytest.mark.parametrize(
    ("source", "target", "sizes"),
    [
        (pair("<num_outputs = 2>(x)", "<num_outputs = 4>(x)", 18, "8"), "onnx:13", (8,)),
        (pair("<num_outputs = 2>(x)", "<num_outputs = 4>(x)", 18, "8"), "onnx:11", (8,)),
        (pair("<axis = 0>(x)", "<axis = 0>(x)", 11), "onnx:13", SIZES),
        (pair("<axis = 0>(x)", "<axis = 0>(x)", 11, "8"), "onnx:12", (8,)),
        (ir("8", 2, 4), "onnx:11", (8,)),
        (ir("?", 2, 4), "onnx:13", SIZES),
        (ir("?", 2, 4), "onnx:11", SIZES),
    ],
)
def test_no_conversion_makes_splits_that_are_taken_for_one_another(
    source: Any, target: str, sizes: tuple[int, ...]
) -> None:
    converted = convert(source, to=target)
    assert "onnxruntime.merged" not in codes(converted)
    for size in sizes:
        assert outputs(converted, size) == outputs(source, size)


def test_splits_of_what_is_computed_alike_are_found() -> None:
    body = "(float[8] x) => (float[A] p, float[B] q) {{ y = Relu(x) z = {}(x) {} p = Relu(b) q = Relu(d) }}"
    splits = "a, b = Split(y) c, d, e, f = Split(z)"
    assert "onnxruntime.merged" in codes(parsed(body.format("Relu", splits), 13))
    assert "onnxruntime.merged" not in codes(parsed(body.format("Neg", splits), 13))
    same = "a, b = Split(y) c, d = Split(z)"
    assert "onnxruntime.merged" not in codes(parsed(body.format("Relu", same), 13))


def test_a_function_is_seen_in_the_place_of_its_call() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["": 13, "own": 1]>
        g (float[8] x) => (float[A] p, float[B] q) { a, b = Split(x) p = Relu(b) q = own.last(x) }
        <domain: "own", opset_import: ["": 13]> last (x) => (q) { c, d, e, f = Split(x) q = Relu(d) }""")
    assert "onnxruntime.merged" in codes(model)


def test_branches_are_optimised_apart() -> None:
    model = parsed(
        """(float[8] x, bool c) => (float[A] p, float[B] q) { a, b = Split(x) p = Relu(b)
        q = If(c) <then_branch = t () => (float[B] u) { d, e, f, g = Split(x) u = Relu(e) },
                   else_branch = s () => (float[B] v) { v = Relu(x) }> }""",
        13,
    )
    assert "onnxruntime.merged" not in codes(model)


@pytest.mark.parametrize(("size", "opset"), [("8", 11), ("8", 13), ("N", 13)])
def test_fix_sets_their_lengths(size: str, opset: int) -> None:
    model = pair("(x)", "(x)", opset, size)
    assert "onnxruntime.merged" in codes(model)
    repaired = fix(model, "onnxruntime")
    onnx.checker.check_model(repaired)
    assert "onnxruntime.merged" not in codes(repaired)
    assert outputs(repaired, 8) == outputs(model, 8)


@pytest.mark.parametrize("size", ["8", "N"])
def test_parts_that_are_not_declared_keep_no_splits_apart(size: str) -> None:
    model = pair("<num_outputs = 4>(x)", "<num_outputs = 4>(x)", 18, size)
    assert "onnxruntime.merged" in codes(model)
    for safe in (fix(model, "onnxruntime"), convert(model, splits_only=True), convert(model, "onnx:20")):
        assert "onnxruntime.merged" not in codes(safe)
        assert outputs(safe, 8) == outputs(model, 8)
    apart = pair("<num_outputs = 3>(x)", "<num_outputs = 4>(x)", 18, size)
    assert "onnxruntime.merged" not in codes(apart)


@pytest.mark.parametrize("opset", [11, 13])
def test_simplify_keeps_lengths_that_keep_splits_apart(opset: int) -> None:
    model = convert(pair("<num_outputs = 2>(x)", "<num_outputs = 4>(x)", 18, "8"), to=f"onnx:{opset}")
    simple = simplify(model)
    assert "onnxruntime.merged" not in codes(simple)
    assert outputs(simple, 8) == outputs(model, 8)
    assert simplify(simple) == simple


def test_simplify_states_lengths_of_splits_that_it_brings_together() -> None:
    model = parsed(
        """(float[8] x) => (float[A] p, float[B] q) {
        s, t = Split(x) y = Concat<axis = 0>(s, t) a, b = Split(x) c, d, e, f = Split(y)
        p = Concat<axis = 0>(b, a) q = Concat<axis = 0>(f, e, d, c) }""",
        13,
    )
    simple = simplify(model)
    assert "onnxruntime.merged" not in codes(simple)
    assert outputs(simple, 8) == outputs(model, 8)


@pytest.mark.parametrize("opset", [2, 11, 13])
def test_equal_parts_of_an_open_axis_run_where_they_ran(opset: int) -> None:
    body = "(float[N] x) => (float[A] a, float[B] b, float[C] c) { a, b, c = Split(x) }"
    model = parsed(body, opset)
    converted = convert(model, to="onnx:18")
    assert not codes(converted), "no num_outputs that onnxruntime may reject"
    for size in (0, 3, 9):
        assert outputs(converted, size) == outputs(model, size)
    with pytest.raises(RuleError):
        outputs(converted, 4)


UNBIND = """(float[2, 3] x) => (seq(float) s) <int64 k = {1}> {
    s = SplitToSequence<axis = 1, keepdims = 0>(x, k) }"""
READ = """(float[2, 3] x) => (float[A, B] p, int64 n) <int64 k = {1}, int64 i = {0}> {
    s = SplitToSequence<axis = 1, keepdims = 0>(x, k) p = SequenceAt(s, i) n = SequenceLength(s) }"""


@pytest.mark.parametrize("body", [UNBIND, READ])
def test_an_unbind_is_never_rewritten_unasked(body: str) -> None:
    model = parsed(body, 13)
    assert simplify(model) == model
    for made in (convert(model, to="onnx:18"), convert(model, splits_only=True, style="lengths")):
        assert list(map(printable_node, made.graph.node)) == list(map(printable_node, model.graph.node))
    for target in ("onnx:10", "openvino"):
        rejection = convert_with_report(model, to=target).rejections[0]
        assert "as-written" in str(rejection)
        assert "as-pytorch" in str(rejection)
    (finding,) = check(model, ["onnxruntime"])
    assert finding.code == "onnxruntime.unbind"
    assert "as-written" in str(finding.fix)
    assert "as-pytorch" in str(finding.fix)
    assert fix(model, "onnxruntime", partial=True) == model


@pytest.mark.parametrize(("meaning", "shape"), [("as-written", (2, 1)), ("as-pytorch", (2,))])
def test_an_unbind_is_repaired_as_it_is_meant(meaning: str, shape: tuple[int, ...]) -> None:
    repaired = fix_with_report(parsed(UNBIND, 13), "onnxruntime", unbind=meaning)
    assert [site.code for site in repaired.rewritten] == ["onnxruntime.unbind"]
    (parts,) = splitops.run(repaired.model, {"x": np.zeros((2, 3), np.float32)}, engine="reference").values()
    assert [part.shape for part in parts] == [shape] * 3
    assert not codes(repaired.model)


def test_chunks_of_more_lose_the_keepdims_that_they_do_not_obey() -> None:
    model = parsed(UNBIND.replace("{1}", "{2}"), 13)
    assert codes(model) == {"onnxruntime.scalar-keepdims"}
    assert not codes(fix(model, "onnxruntime"))


def test_a_length_takes_no_more_nodes_where_the_sequence_stays() -> None:
    body = "(float[N] x) => (seq(float) s, int64 n) { s = SplitToSequence(x) n = SequenceLength(s) }"
    model = parsed(body, 13)
    assert simplify(model) == model
    gone = parsed(body.replace("seq(float) s, ", ""), 13)
    assert "SplitToSequence" not in {node.op_type for node in simplify(gone).graph.node}


def test_parts_without_a_name_at_the_end_stay() -> None:
    model = parsed("(float[6] x) => (float[A] a) <int64[2] k = {2, 4}> { a, b = Split(x, k) }", 13)
    model.graph.node[0].output[1] = ""
    for made in (convert(model, to="onnx:18"), convert(model, to="onnx:11"), simplify(model)):
        assert outputs(made, 6) == outputs(model, 6) == [[0.0, 1.0]]


def test_an_axis_of_the_caller_is_that_of_computed_lengths() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["": 13, "my": 1]>
        g (float[2, N] x) => (float[a, b] p, float[c, d] q) { p, q = my.halve<axis = 1>(x) }
        <domain: "my", opset_import: ["": 13]>
        halve <axis> (v) => (a, b) { a, b = Split<axis: int = @axis>(v) }""")
    data = np.arange(12, dtype=np.float32).reshape(2, 6)
    before, after = (
        splitops.run(m, {"x": data}, engine="reference") for m in (model, convert(model, to="onnx:18"))
    )
    assert all(np.array_equal(before[name], after[name]) for name in before)
    assert after["q"].shape == (2, 3)


@pytest.mark.parametrize("body", ["p = Relu(a)", "p = Concat<axis = 0>(a, b)"])
def test_declared_parts_are_not_taken_for_all_parts(body: str) -> None:
    outputs_of = "a, b" if "b)" in body else "a"
    for size in ("6", "N"):
        text = f"(float[{size}] x) => (float[A] p) {{ {outputs_of} = Split<num_outputs = 3>(x) {body} }}"
        model = parsed(text, 18)
        assert outputs(simplify(model), 6) == outputs(model, 6)


def test_counts_of_one_input_are_stated_in_one_way_at_once() -> None:
    """A negative axis hides that two splits would be taken for one another until it is set anew."""
    given = parsed("""(float[2, 0] x) => (float[A, B] p, float[C, D] q, float[E, F] r) {
        a, b = Split<axis = 1, split = [0, 0]>(x)
        c = Split<axis = -1>(x)
        d, e, f = Split<axis = -1>(x)
        p = Neg(b) q = Neg(c) r = Neg(e) }""", 1)  # fmt: skip
    once = splitops.convert(given, splits_only=True, style="count")
    assert splitops.convert(once, splits_only=True, style="count") == once


@pytest.mark.skipif(not is_installed("openvino"), reason="openvino is not installed")
@pytest.mark.parametrize("kind", [np.float32, np.int64, np.bool_, np.float16])
@pytest.mark.parametrize("place", ["initializer", "constant", "subgraph"])
def test_openvino_reads_empty_constants_as_empty(place: str, kind: Any) -> None:
    """It reads an empty tensor of a serialised model as a scalar, which would broadcast here."""
    empty = onnx.numpy_helper.from_array(np.zeros(0, kind), "empty")
    kind_name = onnx.TensorProto.DataType.Name(empty.data_type).lower()
    constant = onnx.helper.make_node("Constant", [], ["empty"], value=empty)
    body = "{ parts, rest = Split <num_outputs = 2> (x)  y = Where(c, empty, parts) }"
    if place == "subgraph":
        body = f"""{{ parts, rest = Split <num_outputs = 2> (x)
            y = If(d) <then_branch = t () => ({kind_name}[n] z) {{ z = Where(c, empty, parts) }},
                       else_branch = e () => ({kind_name}[m] w) {{ w = Where(c, parts, empty) }}> }}"""
    model = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["": 18]>
        g ({kind_name}[2] x, bool[1] c, bool d) => ({kind_name}[k] y) {body}""")
    if place == "initializer":
        model.graph.initializer.append(empty)
    else:
        inner = model.graph.node[1].attribute[0].g if place == "subgraph" else model.graph
        inner.node.insert(0, constant)
        if place == "subgraph":
            model.graph.node[1].attribute[1].g.node.insert(0, constant)
    feeds = {"x": np.ones(2, kind), "c": np.array([True]), "d": np.array(True)}
    assert splitops.run(model, feeds, engine="reference")["y"].shape == (0,)
    assert splitops.run(model, feeds, engine="openvino")["y"].shape == (0,)
    converted = splitops.convert(model, to="openvino")
    assert splitops.run(converted, feeds, engine="openvino")["y"].shape == (0,)
