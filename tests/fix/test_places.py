"""Fixed forms wherever a split node may be, and whatever reads it; what is rejected, kept and reported."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
from click.testing import CliRunner
from fix_helpers import is_right, parse, proved

import splitops
from splitops.cli import cli
from splitops.models.check import Target
from splitops.models.check.limits import FIXES
from splitops.models.check.predicates import parse_condition
from splitops.models.fix import FixStatus, fix, fix_with_report
from splitops.models.fix.writing import FixWriter, RewriteResult
from splitops.models.formats.openvino import Builder
from splitops.spec import ELEMENT_TYPES

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
    (site,) = report.rewritten
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
    assert [site.code for site in report.splits] == ["onnxruntime.open-axis"]


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
    assert [(site.before, site.code) for site in report.splits] == [
        ("SplitToSequence-11(axis=0, split=1)", "onnxruntime.sequence-type"),
        ("Split-18(axis=0, num_outputs=4)", "onnxruntime.ceil-negative-part"),
    ]


HALVE = """
    <domain: "own", opset_import: ["": 18]>
    quarters (x) => (y) { a, b, c, d = Split<num_outputs = 4>(x) y = Concat<axis = 0>(d, c, b, a) }"""


def test_in_a_function_that_is_called_with_several_sizes() -> None:
    text = "(float[5] x, float[8] z) => (float[A] p, float[B] q) { p = own.quarters(x) q = own.quarters(z) }"
    report = proved("onnxruntime", parse(text + HALVE), {"x": FIVE, "z": np.arange(8, dtype=np.float32)})
    (site,) = report.rewritten
    assert (site.where.graph, site.after) == ("function own.quarters", "Split-18(axis=0, split computed)")


def test_a_function_that_is_legal_in_every_call_stays() -> None:
    text = "(float[8] x, float[4] z) => (float[A] p, float[B] q) { p = own.quarters(x) q = own.quarters(z) }"
    model = parse(text + HALVE)
    report = fix_with_report(model, "onnxruntime")
    assert [site.status for site in report.splits] == [FixStatus.UNCHANGED]
    assert report.model == model


def test_a_number_that_each_caller_states_is_rejected() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["": 18, "own": 1]>
        g (float[5] x) => (float[A] a) { a = own.first<n = 4>(x) }
        <domain: "own", opset_import: ["": 18]>
        first <n> (x) => (a) { a, b, c, d = Split<num_outputs: int = @n>(x) }""")
    with pytest.raises(
        splitops.ModelError, match=r"\[onnxruntime.ceil-negative-part\].*attribute 'n'"
    ) as caught:
        fix(model, "onnxruntime")
    assert caught.value.where.graph == "function own.first"


def in_function(opset: int, own: int, body: str, outputs: str = "a, b", more: str = "") -> onnx.ModelProto:
    """A model of one opset whose function, of another one, makes parts of float[6]."""
    types = ", ".join(f"float[{name.upper()}] {name}" for name in outputs.split(", "))
    return onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["": {opset}, "own": 1]>
        g (float[6] x) => ({types}) {{ {outputs} = own.f(x) }} {more}
        <domain: "own", opset_import: ["": {own}, "own": 1]>
        f (x) => ({outputs}) {{ {body} }}""")


EVEN, COUNTED = "a, b = Split<axis = 0>(x)", "a, b = Split<num_outputs = 2>(x)"
LENGTHS = "k = Constant<value_ints = [4, 2]>() a, b = Split(x, k)"
IN_BRANCHES = """
    c = Constant<value = bool {1}>()
    a, b = If(c) <then_branch = t () => (p, q) { p, q = Split(x) },
                  else_branch = e () => (r, s) { s, r = Split(x) }>"""
CALLED = """
    <domain: "own", opset_import: ["": 13]>
    inner (x) => (a, b) { a, b = Split(x) }"""
ELEMENT = "i = Constant<value = int64 {1}>() s = SplitToSequence<keepdims = 1>(x) a = SequenceAt(s, i)"


@pytest.mark.parametrize(
    ("model", "rejects", "ort_rejects"),
    [
        (in_function(18, 13, EVEN), True, True),
        (in_function(18, 11, EVEN), True, True),
        (in_function(13, 11, EVEN), True, False),
        (in_function(13, 18, COUNTED), True, True),
        (in_function(11, 18, COUNTED), True, True),
        (in_function(18, 11, "a, b = Split<split = [4, 2]>(x)"), True, True),
        (in_function(11, 13, LENGTHS), True, True),
        (in_function(18, 13, LENGTHS), True, False),
        (in_function(24, 23, ELEMENT, "a"), True, False),
        (in_function(18, 17, IN_BRANCHES), False, True),
        (in_function(18, 18, "a, b = own.inner(x)", more=CALLED), True, True),
    ],
)
def test_a_function_whose_opset_selects_another_version(
    model: onnx.ModelProto, rejects: bool, ort_rejects: bool
) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    feeds = {"x": np.arange(6, dtype=np.float32)}

    def is_rejected(model: onnx.ModelProto) -> tuple[bool, bool]:
        said = [False, False]
        try:
            onnx.checker.check_model(model)
        except onnx.checker.ValidationError:
            said[0] = True
        try:
            onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        except Exception:  # each reason has a class of its own
            said[1] = True
        return said[0], said[1]

    assert is_rejected(model) == (rejects, ort_rejects)
    found = [one for one in splitops.check(model) if one.code == "function.opset"]
    assert {str(one.severity) for one in found} == {"error"}
    expected = splitops.run(model, feeds, engine="reference")
    report = fix_with_report(model, "onnxruntime")
    reasons = [site.reasons[0].code for site in report.rewritten]
    assert reasons == ["function.opset"] * len(found)
    fixed: Any = report.model
    assert is_rejected(fixed) == (False, False)
    assert not splitops.check(fixed, "onnxruntime")
    made = onnxruntime.InferenceSession(fixed.SerializeToString()).run(None, feeds)
    for one, other in zip(made, expected.values(), strict=True):
        np.testing.assert_array_equal(one, other, strict=True)


@pytest.mark.parametrize("own", [13, 17])
def test_a_function_whose_opset_selects_the_same_versions_stays(own: int) -> None:
    model = in_function(15, own, EVEN)
    onnx.checker.check_model(model)
    assert not [one for one in splitops.check(model) if one.code == "function.opset"]
    assert fix(model) == model


def test_a_function_that_cannot_move_is_left_with_the_reason() -> None:
    model = in_function(13, 18, f"y = Col2Im(x, x, x) {COUNTED}")
    (left,) = fix_with_report(model, partial=True).unfixable
    assert left.before == "Split-18(axis=0, num_outputs=2)"
    assert "function.opset" in str(left)
    assert "cannot be converted to that opset: Col2Im-18 in it" in left.reasons[0].text
    assert fix(model, partial=True) == model
    with pytest.raises(splitops.ModelError, match=r"\[function.opset\]"):
        fix(model)


def test_other_operators_of_another_version_are_a_warning() -> None:
    model = in_function(18, 13, "a = Relu(x)", "a")
    with pytest.raises(onnx.checker.ValidationError):
        onnx.checker.check_model(model)
    (found,) = splitops.check(model)
    assert (found.code, str(found.severity)) == ("function.opset", "warning")
    assert "'Relu'" in found.message
    moved = splitops.convert(model, "onnx:18")
    onnx.checker.check_model(moved)
    assert not splitops.check(moved)


def results(model: Any, target: str, unbind: str | None = None) -> list[str]:
    """The form of each split in the fixed model, or why it is unfixable."""
    sites = fix_with_report(model, target, unbind=unbind, partial=True).splits
    return [site.after if site.status is not FixStatus.UNFIXABLE else site.reasons[0].text for site in sites]


# A site of a function is one for all calls, which may differ in what is known
FUNCTION = '<domain: "own", opset_import: ["": 18]>'
CALLED_APART = {
    "sizes": (
        """(float[7] x, float[9] z) => (float[A] a, float[B] b, float[C] c, float[D] d) {
            a, b = own.f(x) c, d = own.f(z) }
        <domain: "own", opset_import: ["": 13]> f (x) => (a, b) { a, b = Split<num_outputs = 2>(x) }""",
        ("onnxruntime", None),
        "Split-13(axis=0, split computed)",
    ),
    "axes": (
        f"""(float[4, 6] x, int64 k) => (float[A, B] a, float[C, D] b) {{
            a = own.f<ax = 0>(x, k) b = own.f<ax = 1>(x, k) }}
        {FUNCTION} f <ax> (x, k) => (a) {{
            i = Constant<value_int = 1>() s = SplitToSequence<axis: int = @ax>(x, k)
            a = SequenceAt(s, i) }}""",
        ("openvino", None),
        "its axis or the rank of its lengths is known only at run time",
    ),
    "chunks": (
        f"""(float[2, 3] x, float[2, 4] z) => (seq(float) a, seq(float) b)
        <int64 k = {{1}}, int64 l = {{2}}> {{ a = own.f(x, k) b = own.f(z, l) }}
        {FUNCTION} f (x, k) => (s) {{ s = SplitToSequence<axis = 1, keepdims = 0>(x, k) }}""",
        ("onnxruntime", "as-pytorch"),
        "the size of the chunks is known only at run time",
    ),
    "types": (
        f"""(uint8[N] x, int16[N] z) => (uint8[A, P] a, int16[B, Q] b) {{ a = own.f(x) b = own.f(z) }}
        {FUNCTION} f (x) => (a) {{
            s = SplitToSequence(x) a = ConcatFromSequence<axis = 0, new_axis = 1>(s) }}""",
        ("onnxruntime", None),
        "no element type of sequences can hold an unknown type",
    ),
    "attributes": (
        """(float[7] x) => (float[A] a, float[B] b) { a, b = own.f<n = 2>(x) }
        <domain: "own", opset_import: ["": 13]> f <n> (x) => (a, b) {
            a, b = Split<num_outputs: int = @n>(x) }""",
        ("onnxruntime", None),
        "num_outputs refers to attribute 'n' of the function, which each call may set",
    ),
    "numbers": (
        f"""(float[6] x) => (float[A] a) {{ a = own.f<n = 2>(x) }}
        {FUNCTION} f <n> (x) => (a) {{ a = Split<num_outputs: int = @n>(x) }}""",
        ("onnxruntime", None),
        "each call of the function may set a different number",
    ),
    "orders": (
        f"""(float[6, 1] x) => (float[A, B] y) <int64[2] k = {{0, 6}}> {{ y = own.f<o = [1, 0]>(x, k) }}
        {FUNCTION} f <o> (x, k) => (y) {{ a, b = Split(x, k) y = Transpose<perm: ints = @o>(a) }}""",
        ("openvino", None),
        "the order of the Transpose depends on the caller of the function",
    ),
}


@pytest.mark.parametrize("what", CALLED_APART)
def test_calls_that_differ(what: str) -> None:
    text, (target, unbind), words = CALLED_APART[what]
    opset = 13 if 'opset_import: ["": 13]' in text else 18
    model = parse(text, opset)
    (found,) = results(model, target, unbind)
    assert words in found
    if what == "sizes":
        feeds = {"x": np.arange(7, dtype=np.float32), "z": np.arange(9, dtype=np.float32)}
        found = splitops.run(fix(model, target), feeds)
        assert [len(part) for part in found.values()] == [4, 3, 5, 4]


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


def test_a_sequence_of_another_type_keeps_its_axis() -> None:
    model = parse(f"""(uint8[2, N] x, int64 i) => (uint8[A, B] p, int64 n, uint8[C, D] w) <int64 k = {{2}}> {{
        s = SplitToSequence<axis = 1>(x, k) {READ} }}""")
    proved("onnxruntime", model, {"x": extremes("uint8", 8).reshape(2, 4), "i": np.array(1)})


def test_such_a_sequence_that_the_caller_gets_is_rejected() -> None:
    model = parse("(uint8[N] x) => (seq(uint8) s) { s = SplitToSequence(x) }")
    with pytest.raises(splitops.ModelError, match=r"\[onnxruntime.sequence-type\].*the caller reads them"):
        fix(model, "onnxruntime")


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


UNBIND = """(float[2, 3] x{0}) => (float y) <{1}int64 i = {{0}}> {{
    s = SplitToSequence<axis = 1, keepdims = 0>(x, k) y = SequenceAt(s, i) }}"""
COMPUTED = UNBIND.format(", int64 k", "")


@pytest.mark.parametrize("target", ["openvino", "tensorrt"])
@pytest.mark.parametrize("model", [COMPUTED, UNBIND.format("", "int64 k = {1}, ")])
def test_an_unbind_is_sliced_as_it_is_meant(target: str, model: str) -> None:
    if target == "openvino" and model != COMPUTED:
        assert fix(parse(model), target) == parse(model)  # it does as the text says
        return
    (why,) = results(parse(model), target)
    assert "are ambiguous; splitops fix --unbind as-written keeps the axis" in why
    feeds = {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "k": np.array(1)}
    feeds = {name: feeds[name] for name in ("x", "k") if name == "x" or model == COMPUTED}
    found = fix(parse(model), target, unbind="as-written")
    assert "SplitToSequence" not in operators(found)
    assert splitops.run(found, feeds)["y"].tolist() == [[0], [3]]
    if model == COMPUTED:
        assert (
            "the size of the chunks is known only at run time"
            in results(parse(model), target, "as-pytorch")[0]
        )
    else:
        found = fix(parse(model), target, unbind="as-pytorch")
        assert splitops.run(found, feeds)["y"].tolist() == [0, 3]


REJECTED_SEQUENCES = {
    "SplitToSequence(x, k) y = SequenceAt(s, j)": ("openvino", "its sequence is used for more than its"),
    "SplitToSequence(x, u) y = SequenceAt(s, i)": (
        "openvino",
        "its axis or the rank of its lengths is known only at run time",
    ),
}


@pytest.mark.parametrize("text", REJECTED_SEQUENCES)
def test_sequences_that_cannot_be_sliced(text: str) -> None:
    target, words = REJECTED_SEQUENCES[text]
    inputs = "float[N] x, int64 k, int64[3] u, int64 j"
    model = parse(f"({inputs}) => (float[A] y) <int64 i = {{-1}}> {{ s = {text} }}")
    model.graph.input[2].type.tensor_type.ClearField("shape")
    (split,) = fix_with_report(model, target, partial=True).splits
    assert split.after == split.before
    assert any(words in reason.text for reason in (*split.reasons, *split.possible))


def test_a_position_from_the_end_is_sliced() -> None:
    pytest.importorskip("openvino")
    model = parse("""(float[N] x, int64 k) => (float[A] y) <int64 i = {-1}> {
        s = SplitToSequence(x, k) y = SequenceAt(s, i) }""")
    for size in (3, 4, 5):
        feeds = {"x": np.arange(size, dtype=np.float32), "k": np.array(2)}
        assert is_right("openvino", fix(model, "openvino"), model, feeds) is None


def test_a_sequence_of_too_many_parts_is_not_made_of_them() -> None:
    (why,) = results(parse("(uint8[5000] x) => (seq(uint8) s) { s = SplitToSequence(x) }"), "onnxruntime")
    assert "the caller reads them" in why


# Parts of Transposes that are empty

EMPTY = """({kind}[6, 1] x) => ({kind}[A, B] y, {kind}[C, D] z) {{
    k = Constant<value_ints = [0, 6]>() a, b = Split(x, k)
    y = Transpose(a) z = Transpose<perm = [1, 0]>(b) }}"""


def test_openvino_makes_empty_transposed_parts_anew() -> None:
    pytest.importorskip("openvino")
    data = np.arange(6, dtype=np.float32).reshape(6, 1)
    report = proved("openvino", parse(EMPTY.format(kind="float")), {"x": data})
    assert operators(report.model).count("Transpose") == 1


def test_only_onnx_transposes_of_empty_parts_are_made_anew() -> None:
    model = parse("""(float[6, 1] x) => (float[A, B] y, float z) <int64[2] k = {0, 6}> {
        a, b = Split(x, k) y = Transpose(a) z = own.Transpose(a) }""")
    made = fix(model, "openvino")
    assert [node.domain for node in made.graph.node if node.op_type == "Transpose"] == ["own"]


@pytest.mark.parametrize(("kind", "opset"), [("float", 7), ("bfloat16", 18), ("string", 18)])
def test_empty_tensors_that_an_opset_cannot_state(kind: str, opset: int) -> None:
    text = EMPTY.format(kind=kind)
    if opset < 13:
        text = text.replace(
            "k = Constant<value_ints = [0, 6]>() a, b = Split(x, k)", "a, b = Split<split = [0, 6]>(x)"
        )
    (why,) = results(parse(text, opset), "openvino")
    assert f"opset {opset} cannot create an empty tensor of" in why


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


def test_openvino_gathers_no_strings_below_opset_12() -> None:
    model = parse("(string[6] x) => (string[A] y, string[B] z) { y, z = Split(x) }", 11)
    (why,) = results(model, "openvino")
    assert "positions can be computed only in opset 12 or later" in why


def layers(
    kind: str,
    lengths: str | list[int],
    *,
    version: int = 11,
    transposed: bool = False,
    operator: str = "VariadicSplit",
) -> Any:
    """A model of IR that splits axis 0 of a parameter, or of a constant of uint4."""
    builder = Builder("m", version=version)
    four = ELEMENT_TYPES["uint4"]
    packed = kind == "uint4"
    data = (
        builder.const(np.arange(6).astype(four.numpy), four)
        if packed
        else builder.parameter("x", kind, "6,1")
    )
    given = [builder.parameter("k", "i64", "2") if lengths == "k" else builder.const(np.array(lengths))]
    ports = [data, builder.const(np.array(0)), *(given if operator == "VariadicSplit" else [])]
    for index, part in enumerate(builder.layer(operator, ports, outputs=2)):
        order = builder.const(np.array([1, 0]))
        builder.result(builder.layer("Transpose", [part, order])[0] if transposed else part, f"p{index}")
    return builder.model()


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (layers("string", "k"), "the sizes of its parts are known only at run time"),
        (layers("uint4", "k"), "the sizes of its parts are known only at run time"),
        (layers("string", [2, 4], version=10), "its ports define names of model outputs"),
        (layers("string", [0, 6], transposed=True), "an empty tensor of string cannot be written"),
        (layers("f32", [], operator="Split"), "OpenVINO IR has no rewrite 'num_outputs'"),
    ],
)
def test_layers_that_are_unfixable(model: Any, words: str) -> None:
    (why,) = results(model, "openvino")
    assert words in why


def test_ir_is_for_openvino(tmp_path: Path) -> None:
    with pytest.raises(splitops.ModelError, match="does not read OpenVINO IR"):
        fix(strings([5]), "onnxruntime")
    path = tmp_path / "m.xml"
    splitops.save(strings([5]), path)
    done = CliRunner().invoke(cli, ["fix", str(path), "--for", "onnxruntime"])
    assert done.exit_code == 1
    assert "onnxruntime does not read OpenVINO IR" in done.output


# The call


def test_slices_beyond_32_bits_are_not_made_a_split_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen at small sizes: with the bound moved, each Slice names all of a second axis."""
    monkeypatch.setattr("splitops.models.fix.writing.INT32_MAX", 4)
    target, above = Target.load("onnxruntime"), (parse_condition("size above 4"),)
    (limit,) = (limit for limit in target.limits if limit.code == "onnxruntime.size-32-bit")
    moved = replace(target, limits=(replace(limit, when=above),))
    monkeypatch.setattr("splitops.models.check.targets._load_packaged", lambda _: moved)
    for shape, axis in (([6], 0), ([6, 2], 0), ([2, 6], 1)):
        split = f"a, b = Split<axis = {axis}, num_outputs = 2>(x)"
        model = parse(f"(uint8{shape} x) => (uint8 a, uint8 b) {{ {split} }}")
        for output in model.graph.output:
            output.type.tensor_type.ClearField("shape")
        data = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
        report = proved("onnxruntime", model, {"x": data}, wrong=False)
        assert operators(report.model).count("Slice") == 2


def test_sizes_beyond_32_bits_of_which_only_a_run_knows_the_lengths_are_rejected() -> None:
    model = parse("(float[4294967300, 0] x, int64[2] k) => (float y, float z) { y, z = Split(x, k) }")
    (why,) = results(model, "onnxruntime")
    assert "its bounds cannot be written" in why


def test_lengths_are_stated_where_too_many_outputs_would_be_declared() -> None:
    model = parse("(float[10000] x) => (float[A] a) { a = Split<num_outputs = 5000>(x) }")
    assert results(model, "onnxruntime") == ["Split-18(axis=0, split=[2, 9998])"]


def test_the_default_domain_by_its_long_name() -> None:
    model = parse(f"(float[5] x) => (float[A] a, float[B] b, float[C] c, float[D] d) {{ {FOUR_WAYS} }}")
    model.opset_import[0].domain = "ai.onnx"
    assert [len(part) for part in splitops.run(fix(model, "onnxruntime"), {"x": FIVE}).values()] == [
        2,
        2,
        1,
        0,
    ]


def test_what_is_unfixable_stays_beside_what_is_rewritten() -> None:
    model = parse(f"""(float[6] x, float[5] z) => (float[A] p, float[B] q, float a) {{
        k = Constant<value_ints = [2, 3]>() p, q = Split(x, k) {FOUR_WAYS.replace("x", "z")} }}""")
    report = fix_with_report(model, "onnxruntime", partial=True)
    assert [site.status for site in report.splits] == [FixStatus.UNFIXABLE, FixStatus.REWRITTEN]
    assert repr(report) == "FixReport(onnxruntime: 2 splits, 1 rewritten, 1 unfixable)"
    unfixable, rewritten = str(report).splitlines()[1:]
    assert unfixable == (
        "  node 'Split -> p': Split-18: unfixable "
        "(split = [2, 3] sums to 5, but axis 0 of data (6,) has size 6 [lengths.sum])"
    )
    assert "Split-18(axis=0, num_outputs=4) -> Split-18(axis=0, split=[2, 2, 1, 0])" in rewritten
    assert str(fix_with_report(parse("(float x) => (float y) { y = Identity(x) }"), "onnxruntime")) == (
        "for onnxruntime:\n  The model has no split."
    )


@pytest.mark.parametrize("mistake", ["an axis", "a type", "a sequence"])
def test_a_form_that_gives_something_else_is_seen(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def written(self: FixWriter, node: ir.Node, site: Any) -> RewriteResult:
        if mistake == "an axis":
            node.attributes["axis"] = ir.AttrInt64("axis", 1)
        elif mistake == "a type":
            node.inputs[0].type = ir.TensorType(ir.DataType.INT32)  # type: ignore[union-attr]
        else:
            made = self.editor.make_builder(node).add("SequenceConstruct", list(node.inputs))
            self.editor.substitute(node, [made] * 2)
        return RewriteResult("something else")

    monkeypatch.setattr(FixWriter, "_write_axis", written)
    model = parse("(float[6, 6] x) => (float a, float b) { a, b = Split<num_outputs = 2>(x) }")
    for output in model.graph.output:
        output.type.Clear()
    with pytest.raises(splitops.ModelError, match=r"'a' changed from .* when .* became something else"):
        fix(model, "opencv")


def test_a_model_of_onnx_ir_gives_one() -> None:
    model = parse(f"(float[5] x) => (float[A] a, float[B] b, float[C] c, float[D] d) {{ {FOUR_WAYS} }}")
    given = ir.from_proto(model)
    made = fix(given, "onnxruntime")
    assert isinstance(made, ir.Model)
    assert ir.to_proto(given) == ir.to_proto(ir.from_proto(model))
    assert len(made.graph[-1].inputs) == 2


def test_what_is_asked_for() -> None:
    model = parse("(float[6] x) => (float[A] a, float[B] b) { a, b = Split<num_outputs = 2>(x) }")
    assert fix(model, "onnxruntime") == model
    for ask in (
        lambda: fix(model, "onnxruntime", unbind="both"),
        lambda: fix(model, 3),  # type: ignore[call-overload]
        lambda: fix(model, "caffe"),
    ):
        with pytest.raises(splitops.SplitError):
            ask()


def test_a_broken_rule_is_unfixable_by_its_code() -> None:
    model = parse("(float[6] x) => (float[A] a, float[B] b) <int64[2] k = {2, 3}> { a, b = Split(x, k) }")
    with pytest.raises(splitops.ModelError, match=r"\[lengths.sum\]"):
        fix(model, "onnxruntime")
    kept = fix_with_report(model, "onnxruntime", partial=True)
    assert [site.code for site in kept.unfixable] == ["lengths.sum"]
    assert kept.model == model


def test_a_missing_number_of_outputs_is_added() -> None:
    model = parse("(float[6] x) => (float[A] a, float[B] b) { a, b = Split(x) }")
    (site,) = fix_with_report(model, "onnxruntime").splits
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
    report = fix_with_report(model, "onnxruntime")
    (site,) = report.splits
    assert (site.code, site.after) == ("op.version", after)
    x = np.arange(6 if size == "6" else 7, dtype=np.float32)
    parts = splitops.run(report.model, {"x": x})
    assert [part.tolist() for part in parts.values()] == [x[:-3].tolist(), x[-3:].tolist()]


@pytest.mark.parametrize("attributes", ["num_outputs = 2, split = [3, 3]", "parts = 2"])
def test_attributes_that_no_version_has_are_unfixable(attributes: str) -> None:
    model = parse(f"(float[6] x) => (float[A] a, float[B] b) {{ a, b = Split<{attributes}>(x) }}")
    with pytest.raises(splitops.ModelError, match=r"\[op.version\]"):
        fix(model, "onnxruntime")


def test_an_unbind_is_rewritten_for_every_runtime_where_its_meaning_is_given() -> None:
    model = parse("""(float[2, 3] x) => (float[A] p) <int64 k = {1}, int64 i = {0}> {
        s = SplitToSequence<axis = 1, keepdims = 0>(x, k) p = SequenceAt(s, i) }""")
    data = {"x": np.arange(6, dtype=np.float32).reshape(2, 3)}
    assert fix(model, "openvino") == model  # OpenVINO does as the text says
    for target in ("openvino", "onnxruntime"):
        made = fix(model, target, unbind="as-pytorch")
        assert splitops.run(made, data)["p"].tolist() == [0, 3]
    with pytest.raises(splitops.ModelError, match="--unbind"):
        fix(model, "onnxruntime")


def test_an_unbind_whose_chunks_only_a_run_knows_has_no_other_meaning() -> None:
    model = parse("""(float[2, 3] x, int64 k) => (seq(float) s) {
        s = SplitToSequence<axis = 1, keepdims = 0>(x, k) }""")
    fix(model, "onnxruntime", unbind="as-written")
    with pytest.raises(splitops.ModelError, match="the size of the chunks is known only at run time"):
        fix(model, "onnxruntime", unbind="as-pytorch")


def test_two_things_at_once_take_one_statement() -> None:
    model = parse("(float[5] x) => (float[A] a) { a, b = Split<num_outputs = 4>(x) }")
    report = proved("onnxruntime", model, {"x": FIVE})
    (site,) = report.rewritten
    assert {reason.code for reason in site.reasons} == {
        "onnxruntime.ceil-negative-part",
        "onnxruntime.fewer-outputs",
    }


def test_initializers_that_the_caller_can_replace_are_no_constants() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["": 18]>
        g (float[N] x, int64[2] k = {2, 3}) => (float[A] a, float[B] b) { a, b = Split(x, k) }""")
    assert fix(model, "onnxruntime") == model


@pytest.mark.parametrize("rewrite", list(FIXES))
def test_a_user_may_name_every_rewrite_for_every_operator(rewrite: str, tmp_path: Path) -> None:
    target = tmp_path / "mine.toml"
    target.write_text(f"""
        name = "mine"
        formats = ["onnx", "openvino"]
        [[limits]]
        code = "all"
        when = ["not rank above 9"]
        message = "it runs no split"
        rewrites = ["{rewrite}"]""")
    for model in (
        parse("(float[6] x) => (float[A] a, float[B] b) { a, b = Split<num_outputs = 2>(x) }"),
        parse("(float[6] x) => (float[A] p) { s = SplitToSequence(x) p = ConcatFromSequence<axis = 0>(s) }"),
        layers("f32", [2, 4]),
    ):
        for unbind in (None, "as-written", "as-pytorch"):
            report = fix_with_report(model, target, unbind=unbind, partial=True)
            assert report.rewritten or report.unfixable
