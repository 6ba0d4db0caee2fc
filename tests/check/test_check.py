"""What the checker finds: every rule, in every kind of graph, all of it and never a crash."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from proofs import PROOFS, ir_split, text

import splitops
from splitops.errors import Rule
from splitops.models.check import Finding, Severity, check, to_json, to_sarif
from splitops.models.fix import fix_with_report
from splitops.models.formats.openvino import Builder, OpenVINOModel


def split(
    body: str, *, shape: str = "6", kind: str = "float", opset: int = 18, lengths: str = ""
) -> Callable[[], onnx.ModelProto]:
    return text(
        f"({kind}[{shape}] x) => ({kind}[A] a, {kind}[B] b) <{lengths}> {{ a, b = {body} }}",
        opset,
        ir=10 if opset > 20 else 8,
    )


def sequence(body: str, *, lengths: str = "", opset: int = 18) -> Callable[[], onnx.ModelProto]:
    return text(f"(float[6] x) => (seq(float) s) <{lengths}> {{ s = {body} }}", opset)


def variadic(axis: Any, lengths: Any, outputs: int, kind: str = "f32") -> Callable[[], OpenVINOModel]:
    def build() -> OpenVINOModel:
        builder = Builder("m")
        ports = [
            builder.parameter("x", kind, "6"),
            builder.const(np.array(axis)),
            builder.const(np.array(lengths)),
        ]
        for part in builder.layer("VariadicSplit", ports, outputs=outputs):
            builder.result(part)
        return builder.model()

    return build


def even(axis: Any, count: int, outputs: int) -> Callable[[], OpenVINOModel]:
    def build() -> OpenVINOModel:
        builder = Builder("m")
        ports = [builder.parameter("x", "f32", "6"), builder.const(np.array(axis))]
        for part in builder.layer("Split", ports, {"num_splits": count}, outputs=outputs):
            builder.result(part)
        return builder.model()

    return build


BROKEN: dict[Rule, list[Callable[[], Any]]] = {
    Rule.AXIS_RANGE: [split("Split<axis = 1, num_outputs = 2>(x)"), variadic(1, [6], 1)],
    Rule.AXIS_RANK: [even([0], 2, 2), variadic([0, 0], [6], 1)],
    Rule.AXIS_DTYPE: [even(0.0, 2, 2)],
    Rule.LENGTHS_SUM: [split("Split(x, k)", lengths="int64[2] k = {2, 3}"), variadic(0, [1, 2], 2)],
    Rule.LENGTHS_NEGATIVE: [split("Split(x, k)", lengths="int64[2] k = {7, -1}"), variadic(0, [8, -2], 2)],
    Rule.LENGTHS_RANK: [split("Split(x, k)", lengths="int64[1, 2] k = {2, 4}")],
    Rule.LENGTHS_DTYPE: [split("Split(x, k)", lengths="int32[2] k = {2, 4}")],
    Rule.LENGTHS_COUNT: [split("Split(x, k)", lengths="int64[1] k = {6}"), variadic(0, [2, 4], 3)],
    Rule.LENGTHS_VALUE: [split("Split(x, k)", lengths="float[2] k = {2.5, 3.5}", opset=1)],
    Rule.LENGTHS_CONFLICT: [split("Split<num_outputs = 2>(x, k)", lengths="int64[2] k = {2, 4}")],
    Rule.LENGTHS_MISSING: [split("Split(x)")],
    Rule.PARTS_DIVISIBLE: [split("Split(x)", shape="7", opset=13), even(0, 4, 4)],
    Rule.PARTS_COUNT: [split("Split<num_outputs = 0>(x)"), even(0, 0, 1)],
    Rule.CHUNK_POSITIVE: [sequence("SplitToSequence(x, k)", lengths="int64 k = {0}")],
    Rule.REMAINDER_NEGATIVE: [variadic(0, [-1, 8], 2)],
    Rule.REMAINDER_REPEATED: [variadic(0, [-1, -1], 2)],
    Rule.KEEPDIMS_VALUE: [sequence("SplitToSequence<keepdims = 2>(x)")],
    Rule.TYPE_UNSUPPORTED: [
        split("Split(x)", kind="bfloat16", opset=11),
        split("Split(x)", kind="int32", opset=1),
    ],
    Rule.OUTPUTS_COUNT: [split("Split<num_outputs = 1>(x)"), even(0, 2, 3)],
    Rule.OPERATOR_VERSION: [
        sequence("SplitToSequence(x)", opset=9),
        split("Split<split = [2, 4]>(x)", opset=13),
        split("Split<num_outputs = 2>(x)", opset=13),
    ],
}


@pytest.mark.parametrize(
    ("rule", "build"), [(rule, build) for rule, builds in BROKEN.items() for build in builds]
)
def test_every_rule_is_found_in_models(rule: Rule, build: Callable[[], Any]) -> None:
    model = build()
    found = [finding for finding in check(model) if finding.runtime is None]
    assert [finding.code for finding in found] == [str(rule)]
    assert found[0].severity is Severity.ERROR
    assert found[0].operator
    assert found[0].where.node
    assert found[0].message in str(found[0])


def test_no_rule_is_left_out() -> None:
    # No model can ask for an operator that is not of the family: it is not a split node then.
    assert set(BROKEN) == set(Rule) - {Rule.OPERATOR_UNKNOWN}


def test_everything_is_collected() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["": 18]>
        g (float[6] x, float[7] y, bool c) => (float[A] a, float[B] b, float[C] z) <int64[2] k = {2, 3}> {
            a, b = Split(x)
            d, e = Split(x, k)
            z = If(c) <
                then_branch = t () => (float[C] t0) { t0, t1 = Split(y, k) },
                else_branch = f () => (float[C] f0) { f0, f1 = Split<num_outputs = 1>(y) }>
        }""")
    found = [finding for finding in check(model) if finding.runtime is None]
    assert [(finding.code, finding.where.graph) for finding in found] == [
        ("lengths.missing", None),
        ("lengths.sum", None),
        ("lengths.sum", "If -> z.then_branch"),
        ("outputs.count", "If -> z.else_branch"),
    ]
    # A branch may be what keeps the sizes out that do not fit; a wrong number of outputs is wrong anyway.
    assert [str(finding.severity) for finding in found] == ["error", "error", "warning", "error"]


def test_functions_are_checked_for_each_of_their_calls() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 18, "my": 1]>
        g (float[6] x, float[7] y) => (float[A] a, float[B] b) {
            a, _a = my.halve <n = 2> (x)
            b, _b = my.halve <n = 0> (y)
        }
        <domain: "my", opset_import: ["": 18]>
        halve <n> (x) => (a, b) { a, b = Split <num_outputs: int = @n> (x) }""")
    found = [finding for finding in check(model) if finding.runtime is None]
    assert [(finding.code, finding.where.graph) for finding in found] == [
        ("parts.count", "function my.halve")
    ]


def test_more_outputs_than_parts_are_made_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("inference", "planning"):
        monkeypatch.setattr(f"splitops.splitting.{module}.MAX_PARTS", 1)
    model = split("Split<num_outputs = 2>(x)")()
    (found,) = [finding for finding in check(model) if finding.runtime is None]
    assert (found.code, found.severity) == ("parts.count", Severity.ERROR)
    assert "at most 1 parts are allowed" in found.message
    assert splitops.simplify(model).graph.node == model.graph.node


def test_of_calls_the_one_that_surely_fails_is_reported() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 18, "my": 1]>
        g (float[6] x, bool k) => (float[A] a, float[B] b) {
            b = If(k) <
                then_branch = t () => (float[C] c) { c = my.f(x) },
                else_branch = e () => (float[D] d) { d = Identity(x) }>
            a = my.f(x)
        }
        <domain: "my", opset_import: ["": 18]>
        f (x) => (a) { k = Constant<value_ints = [2, 3]>() a, b = Split(x, k) }""")
    (found,) = check(model)
    assert (found.code, found.severity) == ("lengths.sum", Severity.ERROR)


def test_a_function_that_nobody_calls_is_checked_too() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 18, "my": 1]>
        g (float[6] x) => (float[6] a) { a = Identity(x) }
        <domain: "my", opset_import: ["": 18]>
        bad (x) => (a, b) { a, b = Split(x) }""")
    assert [finding.code for finding in check(model, "onnxruntime")] == ["lengths.missing"]


def test_values_that_are_computed_are_known() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["": 18]>
        g (float[6] x, float[2, 3] w) => (float[A] a, float[B] b) { k = Shape(w)  a, b = Split(x, k) }""")
    (finding,) = check(model)
    assert finding.code == "lengths.sum"
    assert finding.values["lengths"] == (2, 3)


def test_what_the_model_states_of_its_outputs_is_held_against_what_they_are() -> None:
    model = text("(float[6] x) => (float[4] a, int64[3] b) { a, b = Split<num_outputs = 2>(x) }")()
    assert [finding.code for finding in check(model)] == ["declared.shape", "declared.type"]
    model = text("(float[6] x) => (float[2, 2] a, float[3] b) { a, b = Split<num_outputs = 2>(x) }")()
    (found,) = check(model)
    assert found.message == "output 'a' is declared as float32[2, 2], but it is float32[3]"


def test_every_wrong_output_of_a_split_is_reported() -> None:
    model = text("(float[6] x) => (float[4] a, float[5] b) { a, b = Split<num_outputs = 2>(x) }")()
    found = check(model)
    assert [finding.code for finding in found] == ["declared.shape", "declared.shape"]
    assert [finding.message.split("'")[1] for finding in found] == ["a", "b"]


@pytest.mark.parametrize("version", [0, -1, 2**40])
def test_an_ir_version_that_cannot_be(version: int) -> None:
    model = split("Split<num_outputs = 2>(x)")()
    assert check(model) == []
    model.ir_version = version
    (found,) = check(model)
    assert (found.code, str(found.severity)) == ("model.invalid", "error")
    assert f"ir_version = {version} is not one of" in found.message


def test_a_split_in_one_of_several_graphs_of_an_attribute() -> None:
    model = text("(float[4] x) => (float[4] y) { y = Identity(x) }")()
    model.opset_import.add(domain="own", version=1)
    split_ = onnx.helper.make_node("Split", ["x"], ["a", "b"])
    graphs = [onnx.helper.make_graph(nodes, name, [], []) for nodes, name in (([], "f"), ([split_], "g"))]
    model.graph.node[0].CopyFrom(onnx.helper.make_node("op", ["x"], ["y"], domain="own", bodies=graphs))
    (found,) = check(model)
    assert (found.code, found.where.graph) == ("lengths.missing", "op -> y.bodies[1]")


def test_a_sequence_behind_the_last_input_of_an_operator() -> None:
    model = text("(float[6] x) => (float[6] y) { s = SplitToSequence(x) y = Relu(x, s) }")()
    assert "model.invalid" in [finding.code for finding in check(model)]


def test_an_opset_that_onnx_does_not_have_yet() -> None:
    newest = onnx.defs.onnx_opset_version()
    assert check(split("Split<num_outputs = 2>(x)", opset=newest)()) == []
    (found,) = check(split("Split<num_outputs = 2>(x)", opset=newest + 1)())
    assert (found.code, str(found.severity)) == ("model.invalid", "warning")
    assert f"opset {newest + 1} is newer" in found.message


def test_a_sequence_is_read_where_its_operator_takes_one() -> None:
    body = "(float[7] x, bool c) => (float[A] y) {{ s = SplitToSequence(x) y = If(c) < {} > }}"
    branches = (
        "then_branch = t () => (float[A] p) {{ p = {}(s) }}, "
        "else_branch = f () => (float[B] q) {{ q = ConcatFromSequence<axis = 0>(s) }}"
    )
    assert check(text(body.format(branches.format("ConcatFromSequence<axis = 0>")))(), "onnxruntime") == []
    (found,) = check(text(body.format(branches.format("Concat<axis = 0>")))(), "onnxruntime")
    assert (found.code, str(found.severity), found.operator) == ("model.invalid", "error", "Concat-13")
    assert (found.where.graph, found.where.node) == ("If -> y.then_branch", "Concat -> p")
    assert found.message == "'s' is a sequence, but Concat requires a tensor"
    assert found.fix is not None
    assert "ConcatFromSequence" in found.fix


@pytest.mark.parametrize(
    ("reader", "words"),
    [
        ("y = SequenceAt(p, i)", "'p' is a tensor, but SequenceAt requires a sequence"),
        ("y = SequenceLength(x)", "'x' is a tensor, but SequenceLength requires a sequence"),
        (
            "y = ConcatFromSequence<axis = 0>(q)",
            "'q' is a tensor, but ConcatFromSequence requires a sequence",
        ),
        (
            "t = SequenceInsert(p, q) y = Identity(x)",
            "'p' is a tensor, but SequenceInsert requires a sequence",
        ),
        ("t = SequenceConstruct(p, q) y = SequenceAt(i, i)", "'i' is a tensor, but SequenceAt requires a"),
        ("t = SequenceConstruct(p, q) y = Relu(t)", "'t' is a sequence, but Relu requires a tensor"),
        (
            "t = SequenceConstruct(p, q) y, z = Split<num_outputs = 2>(t)",
            "'t' is a sequence, but Split",
        ),
    ],
)
def test_tensors_and_sequences_are_read_where_operators_take_them(reader: str, words: str) -> None:
    body = f"(float[6] x, int64 i) => (float[A] y) {{ p, q = Split<num_outputs = 2>(x) {reader} }}"
    for found in (check(text(body)()), fix_with_report(text(body)(), "onnxruntime", partial=True)):
        assert words in str(found)


@pytest.mark.parametrize(
    "reader",
    [
        "t = SequenceConstruct(p, q) y = SequenceAt(t, i)",
        "t = SequenceConstruct(p, q) u = Identity(t) v = SequenceErase(u) y = ConcatFromSequence<axis=0>(v)",
        "t = SequenceEmpty() u = SequenceInsert(t, p) y = SequenceAt(u, i)",
        "t = Optional(p) y = OptionalGetElement(t)",
    ],
)
def test_sequences_that_are_read_rightly(reader: str) -> None:
    body = f"(float[6] x, int64 i) => (float[A] y) {{ p, q = Split<num_outputs = 2>(x) {reader} }}"
    assert check(text(body)(), "onnxruntime") == []


def test_negative_sizes_are_reported_wherever_they_are_stated() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 18, "my": 1]>
        g (float[N] x, bool c, seq(float[K]) s) => (float[M] y) {
            y = If(c) <
                then_branch = t () => (float[A] p) { p = Identity(x) },
                else_branch = f () => (float[B] r) { r = my.same(x) }>
        }
        <domain: "my", opset_import: ["": 18]>
        same (a) => (b) <float[C] a> { b = Identity(a) }""")
    assert check(model) == []
    else_branch = model.graph.node[0].attribute[1].g
    sequence_type = model.graph.input[2].type.sequence_type.elem_type
    info = model.functions[0].value_info.add(name="a", type=model.graph.input[0].type)
    types = (model.graph.input[0].type, sequence_type, else_branch.output[0].type, info.type)
    for type_ in types:
        type_.tensor_type.shape.dim[0].dim_value = -1
    assert [(finding.code, str(finding.severity), finding.where.graph) for finding in check(model)] == [
        ("model.invalid", "warning", None),
        ("model.invalid", "warning", None),
        ("model.invalid", "warning", "If -> y.else_branch"),
        ("model.invalid", "warning", "function my.same"),
    ]


@pytest.mark.parametrize(
    ("body", "codes"),
    [
        ("(float[6] x) => (float[A] y) <int64 k = {2}>", []),
        ("(float[N] x) => (float[A] y) <int64[2] k = {2, 4}>", ["lengths.baked"]),
        ("(float[6] x, int64[2] k) => (float[A] y)", []),
        ("(float[N] x) => (float[A] y) <int64 k = {2}>", ["openvino.sequence-open-axis"]),
        ("(float[6] x, int64 k) => (float[A] y)", ["openvino.sequence-runtime-lengths"]),
        ("(float[6] x, int64[K] k) => (float[A] y)", ["openvino.sequence-runtime-lengths"]),
    ],
)
def test_sequences_that_openvino_does_not_take(body: str, codes: list[str]) -> None:
    """Each is what OpenVINO 2026.4 says of the model; the rows are proved one by one."""
    model = text(f"{body} {{ s = SplitToSequence(x, k)  y = ConcatFromSequence<axis = 0>(s) }}")()
    assert [finding.code for finding in check(model, "openvino")] == codes


@pytest.mark.parametrize(
    ("shape", "axis", "order", "wrong"),
    [
        ("1,5,2", 1, (1, 0, 2), True),
        ("1,5,2", 1, (1, 2, 0), True),
        ("2,5,1", 1, (0, 2, 1), True),
        ("5,1,1", 0, (2, 1, 0), True),
        ("5,1,?", 0, (1, 0, 2), True),
        ("1,5,2", 0, (0, 2, 1), False),  # two axes change places: no reshape
        ("5,1,1", 0, (0, 2, 1), False),  # the empty axis stays where it is
        ("5,1,2", 0, (0, 1, 2), False),
        ("?,?,?", 0, (1, 0, 2), False),
    ],
)
def test_empty_parts_that_openvino_transposes(
    shape: str, axis: int, order: tuple[int, ...], wrong: bool
) -> None:
    """As OpenVINO 2026.4 does of parts by the lengths 0 and -1."""
    model = ir_split(shape, [0, -1], order, axis)()
    assert [finding.code for finding in check(model, "openvino")] == ["openvino.empty-transposed"] * wrong


def test_empty_parts_that_are_transposed_in_onnx_models_too() -> None:
    model = text("""(float[6, 1] x) => (float[A, B] y, float[C, D] z) <int64[2] k = {0, 6}> {
        a, b = Split(x, k)
        y = Transpose(a)
        z = Transpose<perm = [1, 0]>(b)
    }""")()
    assert [finding.code for finding in check(model, "openvino")] == ["openvino.empty-transposed"]


def test_a_transpose_of_an_empty_part_by_no_order_is_no_reshape() -> None:
    model = text("""(float[6, 1] x) => (float[A, B] y, float[C, D] z) <int64[2] k = {0, 6}> {
        a, z = Split(x, k) y = Transpose<perm = [0, 0]>(a) }""")()
    assert "openvino.empty-transposed" not in [finding.code for finding in check(model, "openvino")]


def test_packed_parts_of_open_sizes_may_begin_inside_a_byte() -> None:
    builder = Builder("m")
    ports = [builder.parameter("x", "nf4", "4,?"), builder.const(np.array(0))]
    for part in builder.layer("Split", ports, {"num_splits": 2}, outputs=2):
        builder.result(part)
    (found,) = check(builder.model(), "openvino")
    assert (found.code, found.severity) == ("openvino.packed-parts", Severity.WARNING)
    assert found.message.endswith("(depends on the input)")


def test_a_single_string_is_one_target() -> None:
    model = PROOFS["openvino.ceil-empty-part"].model()
    assert check(model, "onnxruntime") == check(model, ["onnxruntime"])
    for ask in (check, splitops.fix):
        with pytest.raises(splitops.SplitError, match="unknown runtime 'o'"):
            ask(model, "o")


def test_targets() -> None:
    model = PROOFS["openvino.ceil-empty-part"].model()
    every = check(model)
    assert {finding.runtime for finding in every} == {"onnxruntime", "onnx", "openvino", "opencv"}
    assert {finding.severity for finding in every} == {Severity.WARNING}
    (one,) = check(model, ["onnxruntime"])
    assert one.severity is Severity.ERROR
    assert check(model, ["tensorrt"]) == []
    with pytest.raises(splitops.SplitError, match="unknown runtime"):
        check(model, ["nonesuch"])


@pytest.mark.parametrize("content", [b"", b"\x08\x07garbage", b"<net", b"\xff" * 100])
@pytest.mark.parametrize("name", ["m.onnx", "m.xml"])
def test_a_file_that_is_no_model_is_one_finding(content: bytes, name: str, tmp_path: Any) -> None:
    (tmp_path / name).write_bytes(content)
    (finding,) = check(tmp_path / name)
    assert finding.code == "model.invalid"
    assert finding.where.model == str(tmp_path / name)


def test_a_file_that_is_not_there_is_one_finding(tmp_path: Any) -> None:
    assert [finding.code for finding in check(tmp_path / "none.onnx")] == ["model.invalid"]


def test_damaged_models_never_crash_the_checker() -> None:
    """Every byte of a model may be wrong: the answer is findings, not an exception of another kind."""
    whole = [build() for builds in BROKEN.values() for build in builds]
    contents = [model.SerializeToString() for model in whole if isinstance(model, onnx.ModelProto)]
    random_bytes = random.Random(7)
    parsed = 0
    for _ in range(2500):
        content = bytearray(random_bytes.choice(contents))
        for _ in range(random_bytes.randint(1, 4)):
            content[random_bytes.randrange(len(content))] = random_bytes.randrange(256)
        model = onnx.ModelProto()
        try:
            model.ParseFromString(bytes(content))
        except Exception:
            continue
        parsed += 1
        assert all(isinstance(finding, Finding) for finding in check(model))
    assert parsed > 100


def test_fewer_output_ports_than_parts_are_reported() -> None:
    (found,) = check(even(0, 3, 2)())
    assert (found.code, str(found.severity)) == ("outputs.count", "warning")
    assert "2 output ports are declared, but num_splits = 3" in found.message
    assert check(even(0, 3, 3)()) == []


# Lone layers


DOCUMENTED = """
<layer id="1" type="Split">
    <data num_splits="3" />
    <input>
        <port id="0"> <dim>6</dim> <dim>12</dim> <dim>10</dim> <dim>24</dim> </port>
        <port id="1"> </port>
    </input>
    <output>
        <port id="2"> <dim>6</dim> <dim>4</dim> <dim>10</dim> <dim>24</dim> </port>
        <port id="3"> <dim>6</dim> <dim>4</dim> <dim>10</dim> <dim>24</dim> </port>
        <port id="4"> <dim>6</dim> <dim>4</dim> <dim>10</dim> <dim>24</dim> </port>
    </output>
</layer>"""


def test_the_documented_layers_are_right() -> None:
    assert check(DOCUMENTED) == []
    lengths = "<port id='2'><dim>3</dim></port></input>"
    variadic = DOCUMENTED.replace('type="Split"', 'type="VariadicSplit"').replace("</input>", lengths)
    first, second, third = (
        "<dim>6</dim> <dim>4</dim>",
        "<dim>1</dim> <dim>12</dim>",
        "<dim>2</dim> <dim>12</dim>",
    )
    for part in (second, third, "<dim>3</dim> <dim>12</dim>"):
        variadic = variadic.replace(first, part, 1)
    assert check(variadic) == []


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ('num_splits="3"', 'num_splits="4"', "outputs.count"),
        ('num_splits="3"', 'num_splits="0"', "parts.count"),
        ('num_splits="3"', 'splits="3"', "lengths.missing"),
        ('num_splits="3"', 'num_splits="x"', "model.invalid"),
        ("<dim>4</dim>", "<dim>5</dim>", "declared.shape"),
        ('type="Split"', 'type="Relu"', "model.invalid"),
        ("</layer>", "", "model.invalid"),
        ("</output>", "<port/>" * 65536 + "</output>", "model.invalid"),
        ("</output>", f"<port>{'<dim>1</dim>' * 65}</port></output>", "model.invalid"),
    ],
)
def test_a_lone_layer_that_is_wrong(old: str, new: str, code: str) -> None:
    found = check(DOCUMENTED.replace(old, new))
    assert code in [finding.code for finding in found], found


VARIADIC = DOCUMENTED.replace('type="Split"', 'type="VariadicSplit"').replace(
    "</input>", "<port id='2'><dim>3</dim></port></input>"
)


@pytest.mark.parametrize(
    ("layer", "code", "message"),
    [
        (
            DOCUMENTED.replace('id="0"', 'id="0" precision="FP32"').replace(
                'id="4"', 'id="4" precision="I32"'
            ),
            "declared.type",
            "output 2 is int32, but the data is float32",
        ),
        (
            VARIADIC.replace("<dim>4</dim>", "<dim>3</dim>"),
            "lengths.sum",
            "the declared outputs do not add up to the data (6, 12, 10, 24) on any axis",
        ),
    ],
)
def test_a_lone_layer_whose_ports_contradict(layer: str, code: str, message: str) -> None:
    (found,) = check(layer)
    assert (found.code, found.message) == (code, message)


def test_a_lone_layer_of_data_without_sizes_contradicts_nothing() -> None:
    sizes = "<dim>6</dim> <dim>12</dim> <dim>10</dim> <dim>24</dim>"
    assert check(DOCUMENTED.replace(sizes, "", 1)) == []


def test_a_lone_layer_in_a_file(tmp_path: Any) -> None:
    path = tmp_path / "layer.xml"
    path.write_text(DOCUMENTED.replace('num_splits="3"', 'num_splits="2"'))
    (finding,) = check(path)
    assert (finding.code, finding.where.model) == ("outputs.count", str(path))


# Reports


def test_reports() -> None:
    model = split("Split(x, k)", lengths="int64[2] k = {2, 3}")()
    found = check(model)
    (entry,) = json.loads(json.dumps(to_json(found)))
    assert entry["code"] == "lengths.sum"
    assert entry["values"]["lengths"] == [2, 3]
    assert entry["where"] == {"node": "Split -> a", "input": "split"}
    log = json.loads(json.dumps(to_sarif(found, "1.2.3")))
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    (result,) = run["results"]
    assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"] == "lengths.sum"
    assert result["level"] == "error"
    assert result["locations"][0]["logicalLocations"][0]["fullyQualifiedName"] == "Split -> a"


def test_values_of_findings_are_plain_json() -> None:
    open_axis = text("(float[N] x) => (float[A] a) { a = Split<axis = 3, num_outputs = 1>(x) }")()
    (entry,) = to_json(check(open_axis))
    assert entry["values"] == {"axis": 3, "shape": ["N"]}
    entry = to_json(check(split("Split(x, k)", lengths="float[2] k = {2.5, 3.5}", opset=1)()))[0]
    assert (entry["code"], entry["values"]) == ("lengths.value", {"value": "2.5"})


def test_a_fix_stands_in_the_text_of_sarif() -> None:
    (run,) = to_sarif(check(split("Split(x)")()), "1.2.3")["runs"]
    assert run["results"][0]["message"]["text"].endswith(
        ". Fix: add num_outputs = the number of declared outputs"
    )


def test_lengths_of_no_entries_are_known_whoever_gives_them() -> None:
    model = text("(float[6] x, int64[0] k) => (seq(float) s) { s = SplitToSequence(x, k) }")()
    assert "lengths.sum" in {finding.code for finding in check(model)}


LENGTHS = (
    "(float[5, 2] x) => (float[A, 2] a, float[B, 2] b) <int64[{}] k = {{{}}}> {{ a, b = Split<{}>(x, k) }}"
)


@pytest.mark.parametrize(
    ("build", "codes"),
    [
        (text(LENGTHS.format(2, "2, -3", "axis = 7")), ["axis.range", "lengths.negative"]),
        (text(LENGTHS.format(3, "2, 3, 9", "axis = 0")), ["lengths.count", "lengths.sum"]),
        (
            text(LENGTHS.format(3, "2, 3, 9", "axis = 7, num_outputs = 2")),
            ["lengths.conflict", "axis.range", "lengths.count", "lengths.sum"],
        ),
        (
            text(LENGTHS.format(2, "2, 3", "axis = 7, num_outputs = 0")),
            ["lengths.conflict", "axis.range", "parts.count"],
        ),
        (split("Split<axis = 7>(x)"), ["lengths.missing", "axis.range"]),
        (split("Split<axis = 7, num_outputs = 1>(x)"), ["axis.range", "outputs.count"]),
        (
            split("Split<axis = 7, split = [2, 3, 4]>(x)"),
            ["op.version", "axis.range", "lengths.count", "lengths.sum"],
        ),
        (split("Split<axis = 7, num_outputs = 0>(x)", opset=13), ["op.version", "axis.range", "parts.count"]),
        (split("Split<axis = 0, num_outputs = 4>(x)", opset=13), ["op.version"]),
        (
            split("Split<axis = 7, split = [-2, 8, 1]>(x)", opset=11),
            ["axis.range", "lengths.negative", "lengths.count"],
        ),
        (
            split("Split<axis = 3>(x, k)", lengths="int32[2] k = {2, -3}"),
            ["axis.range", "lengths.dtype", "lengths.negative"],
        ),
        (
            sequence("SplitToSequence<axis = 4, keepdims = 3>(x, k)", lengths="int64 k = {-1}"),
            ["axis.range", "keepdims.value", "chunk.positive"],
        ),
        (variadic(4, [-1, -1, 3], 2), ["axis.range", "remainder.repeated", "lengths.count"]),
        (even([3], 0, 2), ["axis.rank", "parts.count"]),
    ],
)
def test_all_independent_faults_of_one_split_are_found(build: Callable[[], Any], codes: list[str]) -> None:
    model = build()
    assert [one.code for one in check(model) if one.runtime is None] == codes
    with pytest.raises(splitops.SplitError):
        splitops.infer(model)


def test_a_split_with_very_many_foreign_attributes_is_checked_at_once() -> None:
    model = split("Split<axis = 7>(x)", opset=13)()
    model.graph.node[0].attribute.extend(onnx.helper.make_attribute(f"a{at}", at) for at in range(20_000))
    found = [one.code for one in check(model) if one.runtime is None]
    assert found == ["op.version", "axis.range"]


def test_a_lone_layer_has_all_its_faults() -> None:
    layer = """<layer name="s" type="Split" version="opset1"><data num_splits="0"/>
        <input><port precision="FP32"><dim>4</dim></port><port precision="FP32"/></input></layer>"""
    assert [one.code for one in check(layer)] == ["axis.dtype", "parts.count"]


@pytest.mark.parametrize("number", [2**40, 2**62 - 1, 2**62])
@pytest.mark.parametrize("size", ["4", "0", str(2**62), "N"])
def test_a_huge_number_of_parts_is_counted(number: int, size: str) -> None:
    """Run in a process of its own: a loop over 2^62 parts is not left by an exception."""
    script = f"""
import onnx.parser, splitops
from splitops.models.check.targets import list_target_names
text = '<ir_version: 8, opset_import: ["": 18]> g (float[{size}] x) => (float[A] a, float[B] b)'
model = onnx.parser.parse_model(text + '{{ a, b = Split<num_outputs = {number}>(x) }}')
splitops.check(model, list_target_names())
splitops.fix(model, "openvino", partial=True)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert not done.returncode, done.stderr


@pytest.mark.parametrize(
    ("size", "number", "uneven"), [(4, 3, True), (4, 2**62, True), (0, 2**62, False), (6, 3, False)]
)
def test_uneven_parts_are_told_by_two_of_them(size: int, number: int, uneven: bool) -> None:
    from splitops.models.check.predicates import ModelContext, SplitPredicates
    from splitops.models.split_nodes import SplitNode
    from splitops.spec.operators import schema
    from splitops.splitting.binding import Fact

    site = SplitNode(
        schema=schema("Split", 18),
        attributes={"num_outputs": number},
        facts=(Fact(shape=(size,)),),
        outputs=("a",),
    )
    assert SplitPredicates(site, ModelContext()).uneven() is uneven


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("(float[6] x, int64 i) => (float[6] y) { y = SequenceAt(x, i) }", "'x' is a tensor"),
        (
            "(float[6] x) => (float[6] y) { y = ConcatFromSequence<axis = 0>(x) }",
            "'x' is a tensor",
        ),
        (
            "(float[6] x) => (int64 y) { a, b = Split<num_outputs = 2>(x) y = SequenceLength(a) }",
            "'a' is a tensor",
        ),
        (
            "(float[6] x) => (seq(float[6]) y) { y = SequenceInsert(x, x) }",
            "'x' is a tensor",
        ),
        (
            "(seq(float[6]) x) => (float[3] a, float[3] b) { a, b = Split<num_outputs = 2>(x) }",
            "'x' is a sequence",
        ),
        (
            "(float[6] x, seq(int64[2]) s) => (float[3] a, float[3] b) { a, b = Split(x, s) }",
            "'s' is a sequence",
        ),
        (
            "(seq(float[6]) x) => (seq(float[3]) a) { a = SplitToSequence(x) }",
            "'x' is a sequence",
        ),
    ],
)
def test_tensors_read_as_sequences_and_sequences_as_tensors(body: str, message: str) -> None:
    found = [finding for finding in check(text(body, 18)()) if finding.code == "model.invalid"]
    assert [finding.message.startswith(message) for finding in found] == [True]
