"""Legal forms wherever a site may stand, and whatever reads it; and what is refused, kept and reported."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
from legal_helpers import parse, proved

import splitops
from splitops.models.formats.openvino import Builder
from splitops.models.legalize import Fate, legalize

pytest.importorskip("onnxruntime")
FIVE = np.arange(5, dtype=np.float32)
FOUR_WAYS = "a, b, c, d = Split<num_outputs = 4>(x)"


def operators(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node if node.op_type != "Constant"]


@pytest.mark.parametrize("size", ["5", "N"])
@pytest.mark.parametrize("choice", [True, False])
def test_in_a_branch_that_reads_from_outside(size: str, choice: bool) -> None:
    model = parse(f"""(float[{size}] x, bool k) => (float[A] y) {{
        y = If(k) <
            then_branch = t () => (float[A] q) {{ {FOUR_WAYS} q = Concat<axis = 0>(b, a, d, c) }},
            else_branch = f () => (float[A] r) {{ r = Identity(x) }}>
    }}""")
    report = proved("onnxruntime", model, {"x": FIVE, "k": np.array(choice)}, wrong=choice)
    (site,) = report.restated
    assert site.where.graph == "If -> y.then_branch"


def test_in_a_loop_whose_state_it_splits() -> None:
    model = parse("""(float[N] x, int64 n) => (float[M] y) <bool go = {1}> {
        y = Loop(n, go, x) <body = b (int64 i, bool c, float[S] s) => (bool c1, float[T] t) {
            c1 = Identity(c)
            p, q, r, l = Split<num_outputs = 4>(s)
            t = Concat<axis = 0>(l, r, p, q)
        }>
    }""")
    report = proved("onnxruntime", model, {"x": FIVE, "n": np.array(3)})
    assert [site.code for site in report.sites] == ["onnxruntime.open-axis"]


def test_in_a_scan() -> None:
    model = parse("""(float[3, N] x) => (float[3, M] y) {
        y = Scan<num_scan_inputs = 1, body = b (float[N] s) => (float[T] t) {
            p, q, r, l = Split<num_outputs = 4>(s)
            t = Concat<axis = 0>(l, r, p, q)
        }>(x)
    }""")
    proved("onnxruntime", model, {"x": np.arange(15, dtype=np.float32).reshape(3, 5)})


def test_two_sites_of_the_same_data_are_told_apart() -> None:
    both = f"""(int8[5] x) => (seq(int8) s, int8[A] y) {{
        s = SplitToSequence(x)
        {FOUR_WAYS}
        y = Concat<axis = 0>(d, c, b, a)
    }}"""
    report = proved("onnxruntime", parse(both), {"x": FIVE.astype(np.int8)})
    assert [(site.before, site.code) for site in report.sites] == [
        ("SplitToSequence-11(axis=0, split=1)", "onnxruntime.sequence-type"),
        ("Split-18(axis=0, num_outputs=4)", "onnxruntime.ceil-negative-part"),
    ]


HALVE = """
    <domain: "own", opset_import: ["": 18]>
    quarters (x) => (y) { a, b, c, d = Split<num_outputs = 4>(x) y = Concat<axis = 0>(d, c, b, a) }"""


def test_in_a_function_that_is_called_with_several_sizes() -> None:
    text = "(float[5] x, float[8] z) => (float[A] p, float[B] q) { p = own.quarters(x) q = own.quarters(z) }"
    report = proved("onnxruntime", parse(text + HALVE), {"x": FIVE, "z": np.arange(8, dtype=np.float32)})
    (site,) = report.restated
    assert (site.where.graph, site.after) == ("function own.quarters", "Split-18(axis=0, split computed)")


def test_a_function_that_is_legal_in_every_call_stays() -> None:
    text = "(float[8] x, float[4] z) => (float[A] p, float[B] q) { p = own.quarters(x) q = own.quarters(z) }"
    model = parse(text + HALVE)
    report = legalize(model, "onnxruntime", report=True)
    assert [site.fate for site in report.sites] == [Fate.LEGAL]
    assert report.model == model


def test_a_number_that_each_caller_states_is_refused() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["": 18, "own": 1]>
        g (float[5] x) => (float[A] a) { a = own.first<n = 4>(x) }
        <domain: "own", opset_import: ["": 18]>
        first <n> (x) => (a) { a, b, c, d = Split<num_outputs: int = @n>(x) }""")
    with pytest.raises(
        splitops.ModelError, match=r"\[onnxruntime.ceil-negative-part\].*attribute 'n'"
    ) as caught:
        legalize(model, "onnxruntime")
    assert caught.value.where.graph == "function own.first"


# Sequences


TYPES = ["int8", "int16", "uint8", "uint16", "uint32", "uint64"]
READ = "p = SequenceAt(s, i) n = SequenceLength(s) w = ConcatFromSequence<axis = 0>(s)"


def extremes(kind: str, count: int) -> np.ndarray[Any, Any]:
    """Values at both ends of a type."""
    info = np.iinfo(kind)
    values = [info.min, info.max, info.max - 1, info.min + 1, 0, 1, info.max // 2, info.max // 2 + 1]
    return np.array(values[:count], kind)


@pytest.mark.parametrize("kind", TYPES)
def test_a_sequence_that_is_an_output(kind: str) -> None:
    model = parse(f"({kind}[5] x) => (seq({kind}) s) <int64 k = {{2}}> {{ s = SplitToSequence(x, k) }}")
    report = proved("onnxruntime", model, {"x": extremes(kind, 5)})
    assert operators(report.model) == ["Split", "SequenceConstruct"]


def test_a_sequence_of_elements_without_the_axis_that_is_an_output() -> None:
    model = parse("(uint8[2, 3] x) => (seq(uint8) s) { s = SplitToSequence<axis = 1, keepdims = 0>(x) }")
    report = proved("onnxruntime", model, {"x": np.arange(6, dtype=np.uint8).reshape(2, 3)})
    assert operators(report.model) == ["Split", *["Squeeze"] * 3, "SequenceConstruct"]


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("size", [3, 8])
def test_a_sequence_of_parts_whose_number_only_a_run_knows(kind: str, size: int) -> None:
    model = parse(
        f"({kind}[N] x, int64 i) => ({kind}[A] p, int64 n, {kind}[B] w) <int64 k = {{2}}> "
        f"{{ s = SplitToSequence(x, k) {READ} }}"
    )
    report = proved("onnxruntime", model, {"x": extremes(kind, size), "i": np.array(-1)})
    assert "Cast" in operators(report.model)


def test_such_a_sequence_that_the_caller_gets_is_refused() -> None:
    model = parse("(uint8[N] x) => (seq(uint8) s) { s = SplitToSequence(x) }")
    with pytest.raises(splitops.ModelError, match=r"\[onnxruntime.sequence-type\].*the caller reads them"):
        legalize(model, "onnxruntime")


@pytest.mark.parametrize("kind", TYPES)
def test_a_sequence_that_is_only_indexed_is_a_split(kind: str) -> None:
    model = parse(
        f"({kind}[5] x) => ({kind}[A] p, int64 n) <int64 k = {{2}}, int64 i = {{-1}}> "
        "{ s = SplitToSequence(x, k) p = SequenceAt(s, i) n = SequenceLength(s) }"
    )
    report = proved("onnxruntime", model, {"x": extremes(kind, 5)})
    assert operators(report.model) == ["Split"]


@pytest.mark.parametrize(("k", "position"), [(2, 0), (2, 1), (4, 1), (9, 0)])
@pytest.mark.parametrize("kind", ["int32", "int64"])
def test_openvino_slices_the_elements_of_chunks_that_only_a_run_knows(
    k: int, position: int, kind: str
) -> None:
    pytest.importorskip("openvino")
    model = parse(
        f"(float[N] x, {kind} k) => (float[A] y) <int64 i = {{{position}}}> "
        "{ s = SplitToSequence(x, k) y = SequenceAt(s, i) }"
    )
    proved("openvino", model, {"x": FIVE, "k": np.array(k, kind)})


def test_openvino_slices_the_elements_of_lengths_that_only_a_run_knows() -> None:
    pytest.importorskip("openvino")
    model = parse(
        "(float[N] x, int64[K] k) => (float[A] y, float[B] z) <int64 i = {1}, int64 j = {0}> "
        "{ s = SplitToSequence(x, k) y = SequenceAt(s, i) z = SequenceAt(s, j) }"
    )
    proved("openvino", model, {"x": FIVE, "k": np.array([1, 3, 1])})


# Strings and OpenVINO IR

LETTERS = np.array(list("abcde"))


@pytest.mark.parametrize("split", ["Split<num_outputs = 3>(x)", "Split(x, k)"])
@pytest.mark.parametrize("size", ["5", "N"])
def test_openvino_gathers_strings(split: str, size: str) -> None:
    pytest.importorskip("openvino")
    model = parse(
        f"(string[{size}] x) => (string[A] a, string[B] b, string[C] c) <int64[3] k = {{1, 3, 1}}> "
        f"{{ a, b, c = {split} }}"
    )
    proved("openvino", model, {"x": LETTERS})


def strings(lengths: list[int]) -> Any:
    builder = Builder("m")
    data = builder.parameter("x", "string", "2,5")
    ports = [data, builder.const(np.array(1)), builder.const(np.array(lengths))]
    for index, part in enumerate(builder.layer("VariadicSplit", ports, outputs=len(lengths))):
        builder.result(part, f"p{index}")
    return builder.model()


@pytest.mark.parametrize("lengths", [[2, 3], [0, -1, 1]])
def test_openvino_gathers_strings_of_ir(lengths: list[int]) -> None:
    pytest.importorskip("openvino")
    data = np.array([f"s{i}" for i in range(10)]).reshape(2, 5)
    report = proved("openvino", strings(lengths), {"x": data})
    assert [layer.type for layer in report.model.graph.layers if "Split" in layer.type] == []  # type: ignore[union-attr]


def test_ir_is_for_openvino() -> None:
    with pytest.raises(splitops.ModelError, match="reads ONNX models"):
        legalize(strings([5]), "onnxruntime")


# The call


def test_slices_beyond_32_bits_are_not_made_a_split_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen at small sizes: with the bound moved, each Slice names all of a second axis."""
    monkeypatch.setattr("splitops.models.legalize.onnx_forms._INT32_MAX", 4)
    monkeypatch.setattr("splitops.models.check.conditions._INT32_MAX", 4)
    for shape, axis in (([6], 0), ([6, 2], 0), ([2, 6], 1)):
        split = f"a, b = Split<axis = {axis}, num_outputs = 2>(x)"
        model = parse(f"(uint8{shape} x) => (uint8 a, uint8 b) {{ {split} }}")
        for output in model.graph.output:
            output.type.tensor_type.ClearField("shape")
        data = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
        report = proved("onnxruntime", model, {"x": data}, wrong=False)
        assert operators(report.model).count("Slice") == 2


def test_a_model_of_onnx_ir_gives_one() -> None:
    model = parse(f"(float[5] x) => (float[A] a, float[B] b, float[C] c, float[D] d) {{ {FOUR_WAYS} }}")
    given = ir.from_proto(model)
    made = legalize(given, "onnxruntime")
    assert isinstance(made, ir.Model)
    assert ir.to_proto(given) == ir.to_proto(ir.from_proto(model))
    assert len(made.graph[-1].inputs) == 2


def test_what_is_asked_for() -> None:
    model = parse("(float[6] x) => (float[A] a, float[B] b) { a, b = Split<num_outputs = 2>(x) }")
    assert legalize(model, "onnxruntime") == model
    for ask in (
        lambda: legalize(model, "onnxruntime", unbind="both"),
        lambda: legalize(model, "onnxruntime", on_illegal="drop"),  # type: ignore[call-overload]
        lambda: legalize(model, ["onnxruntime"]),  # type: ignore[call-overload]
        lambda: legalize(model, "caffe"),
    ):
        with pytest.raises(splitops.SplitError):
            ask()


def test_a_broken_rule_is_illegal_by_its_code() -> None:
    model = parse("(float[6] x) => (float[A] a, float[B] b) <int64[2] k = {2, 3}> { a, b = Split(x, k) }")
    with pytest.raises(splitops.ModelError, match=r"\[lengths.sum\]"):
        legalize(model, "onnxruntime")
    kept = legalize(model, "onnxruntime", on_illegal="keep", report=True)
    assert [site.code for site in kept.illegal] == ["lengths.sum"]
    assert kept.model == model


def test_a_missing_number_of_outputs_is_added() -> None:
    model = parse("(float[6] x) => (float[A] a, float[B] b) { a, b = Split(x) }")
    (site,) = legalize(model, "onnxruntime", report=True).sites
    assert (site.code, site.after) == ("lengths.missing", "Split-18(axis=0, num_outputs=2)")


@pytest.mark.parametrize(
    ("opset", "size", "attribute", "after"),
    [
        (13, "6", "num_outputs = 2", "Split-13(axis=0, 2 outputs)"),
        (13, "7", "num_outputs = 2", "Split-13(axis=0, split=[4, 3])"),
        (13, "N", "num_outputs = 2", "Split-13(axis=0, split computed)"),
        (13, "7", "split = [4, 3]", "Split-13(axis=0, split=[4, 3])"),
        (18, "N", "split = [4, 3]", "Split-18(axis=0, split=[4, 3])"),
    ],
)
def test_attributes_of_another_version_are_stated_as_the_opset_has_them(
    opset: int, size: str, attribute: str, after: str
) -> None:
    model = parse(f"(float[{size}] x) => (float[A] a, float[B] b) {{ a, b = Split<{attribute}>(x) }}", opset)
    report = legalize(model, "onnxruntime", report=True)
    (site,) = report.sites
    assert (site.code, site.after) == ("op.version", after)
    x = np.arange(6 if size == "6" else 7, dtype=np.float32)
    parts = splitops.run(report.model, {"x": x})
    assert [part.tolist() for part in parts.values()] == [x[:-3].tolist(), x[-3:].tolist()]


@pytest.mark.parametrize("attributes", ["num_outputs = 2, split = [3, 3]", "parts = 2"])
def test_attributes_that_no_version_has_are_illegal(attributes: str) -> None:
    model = parse(f"(float[6] x) => (float[A] a, float[B] b) {{ a, b = Split<{attributes}>(x) }}")
    with pytest.raises(splitops.ModelError, match=r"\[op.version\]"):
        legalize(model, "onnxruntime")


def test_an_unbind_is_stated_for_every_target_where_it_is_said_what_it_means() -> None:
    model = parse("""(float[2, 3] x) => (float[A] p) <int64 k = {1}, int64 i = {0}> {
        s = SplitToSequence<axis = 1, keepdims = 0>(x, k) p = SequenceAt(s, i) }""")
    data = {"x": np.arange(6, dtype=np.float32).reshape(2, 3)}
    assert legalize(model, "openvino") == model  # OpenVINO does as the text says
    for target in ("openvino", "onnxruntime"):
        made = legalize(model, target, unbind="as-pytorch")
        assert splitops.run(made, data)["p"].tolist() == [0, 3]
    with pytest.raises(splitops.ModelError, match="--unbind"):
        legalize(model, "onnxruntime")


def test_an_unbind_whose_chunks_only_a_run_knows_has_no_other_meaning() -> None:
    model = parse("""(float[2, 3] x, int64 k) => (seq(float) s) {
        s = SplitToSequence<axis = 1, keepdims = 0>(x, k) }""")
    legalize(model, "onnxruntime", unbind="as-written")
    with pytest.raises(splitops.ModelError, match="only the run knows"):
        legalize(model, "onnxruntime", unbind="as-pytorch")


def test_two_things_at_once_take_one_statement() -> None:
    model = parse("(float[5] x) => (float[A] a) { a, b = Split<num_outputs = 4>(x) }")
    report = proved("onnxruntime", model, {"x": FIVE})
    (site,) = report.restated
    assert {reason.code for reason in site.reasons} == {
        "onnxruntime.ceil-negative-part",
        "onnxruntime.fewer-outputs",
    }


def test_initializers_that_the_caller_can_replace_are_no_constants() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["": 18]>
        g (float[N] x, int64[2] k = {2, 3}) => (float[A] a, float[B] b) { a, b = Split(x, k) }""")
    assert legalize(model, "onnxruntime") == model
