"""Lengths of another form that can only mean one thing: a fix writes them, and a check says so."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from fix_helpers import parse

import splitops
from splitops.models.fix import fix, fix_with_report
from splitops.models.formats.openvino import Builder, OpenVINOModel

X = np.arange(10, dtype=np.float32).reshape(5, 2)
HELP = "it can only mean "


def model(
    lengths: str, *, axis: str = "5", given: str = "", body: str = "a, b = Split(x, k)", opset: int = 18
) -> onnx.ModelProto:
    outputs = "seq(float) s" if body.startswith("s ") else "float[A, 2] a, float[B, 2] b"
    return parse(f"(float[{axis}, 2] x{given}) => ({outputs}) <{lengths}> {{ {body} }}", opset)


def sequence(lengths: str, given: str = "") -> onnx.ModelProto:
    return model(lengths, given=given, body="s = SplitToSequence(x, k)")


def layer(
    operator: str, axis: Any, lengths: Any = None, *, open_: bool = False, run: str = ""
) -> OpenVINOModel:
    builder = Builder("m")
    ports = [builder.parameter("x", "f32", "?,2" if open_ else "5,2"), builder.const(np.array(axis))]
    if run:
        ports.append(builder.parameter("k", "i64", run))
    elif lengths is not None:
        ports.append(builder.const(np.array(lengths)))
    data = {"num_splits": 1} if operator == "Split" else {}
    for index, part in enumerate(builder.layer(operator, ports, data, outputs=1 if data else 2)):
        builder.result(part, "ab"[index])
    return builder.model()


ATTRIBUTE = "a, b = Split<split = [{}]>(x)"
CASES: dict[str, tuple[Any, str, list[int]]] = {
    **{
        f"{kind} at opset {opset}": (
            model(f"{kind}[2] k = {{2, 3}}", opset=opset),
            f"Split-{opset}(axis=0, split=[2, 3])",
            [2, 3],
        )
        for kind, opset in (("int32", 13), ("int32", 18), ("int8", 18), ("uint64", 18), ("float", 18))
    },
    "int32 in a run": (model("", given=", int32[2] k"), "Split-18(axis=0, split computed)", [2, 3]),
    "int32 and -1": (model("int32[2] k = {2, -1}"), "Split-18(axis=0, split=[2, 3])", [2, 3]),
    "-1": (model("int64[2] k = {-1, 1}"), "Split-18(axis=0, split=[4, 1])", [4, 1]),
    "-1 that is 0": (model("int64[2] k = {-1, 5}"), "Split-18(axis=0, split=[0, 5])", [0, 5]),
    "-1 of an open axis": (
        model("int64[2] k = {-1, 1}", axis="N"),
        "Split-18(axis=0, split computed)",
        [4, 1],
    ),
    "-1 of an open axis at opset 13": (
        model("int64[2] k = {1, -1}", axis="N", opset=13),
        "Split-13(axis=0, split computed)",
        [1, 4],
    ),
    **{
        f"-1 of an attribute at opset {opset}": (
            model("", body=ATTRIBUTE.format("2, -1"), opset=opset),
            f"Split-{opset}(axis=0, split=[2, 3])",
            [2, 3],
        )
        for opset in (2, 11)
    },
    "a row": (model("int64[1, 2] k = {2, 3}"), "Split-18(axis=0, split=[2, 3])", [2, 3]),
    "a column": (model("int64[2, 1] k = {2, 3}"), "Split-18(axis=0, split=[2, 3])", [2, 3]),
    "a row in a run": (model("", given=", int64[1, 2] k"), "Split-18(axis=0, split at run time)", [2, 3]),
    "a row of int32 in a run": (
        model("", given=", int32[1, 1, 2] k"),
        "Split-18(axis=0, split computed)",
        [2, 3],
    ),
    "a row of int32 with a -1 of an open axis": (
        model("int32[1, 2] k = {2, -1}", axis="N"),
        "Split-18(axis=0, split computed)",
        [2, 3],
    ),
    "a scalar that is a chunk": (model("int64 k = {3}"), "Split-18(axis=0, split=[3, 2])", [3, 2]),
    "a scalar that is a number": (model("int64 k = {2}"), "Split-18(axis=0, split=[3, 2])", [3, 2]),
    "a row of a sequence": (
        sequence("int64[1, 2] k = {2, 3}"),
        "SplitToSequence-11(axis=0, split=[2, 3])",
        [2, 3],
    ),
    "a -1 of a sequence": (
        sequence("int32[2] k = {2, -1}"),
        "SplitToSequence-11(axis=0, split=[2, 3])",
        [2, 3],
    ),
    "IR: a row": (
        layer("VariadicSplit", 0, [[2, 3]]),
        "VariadicSplit-1(axis=0, split_lengths=[2, 3])",
        [2, 3],
    ),
    "IR: a row with a -1 of an open axis": (
        layer("VariadicSplit", 0, [[2, -1]], open_=True),
        "VariadicSplit-1(axis=0, split_lengths=[2, -1])",
        [2, 3],
    ),
    "IR: a row in a run": (
        layer("VariadicSplit", 0, run="1,2"),
        "VariadicSplit-1(axis=0, split_lengths at run time)",
        [2, 3],
    ),
    "IR: floats": (
        layer("VariadicSplit", 0, [2.0, 3.0]),
        "VariadicSplit-1(axis=0, split_lengths=[2, 3])",
        [2, 3],
    ),
    "IR: a scalar": (layer("VariadicSplit", 0, 3), "VariadicSplit-1(axis=0, split_lengths=[3, 2])", [3, 2]),
    "IR: a list as the axis": (layer("Split", [0]), "Split-1(axis=0, num_splits=1)", [5]),
    "IR: a matrix as the axis": (
        layer("VariadicSplit", [[0]], [2, 3]),
        "VariadicSplit-1(axis=0, split_lengths=[2, 3])",
        [2, 3],
    ),
}


def feeds(given: Any) -> dict[str, Any]:
    """Inputs: the data, and the lengths where they are an input."""
    with splitops.session(fix(given, ()), "reference") as ready:
        made: dict[str, Any] = {"x": X}
        for one in ready.inputs:
            if one.name == "k":
                assert one.element_type is not None
                shape = tuple(size if isinstance(size, int) else 1 for size in one.shape or ())
                made["k"] = np.array([2, 3], one.element_type.numpy).reshape(shape)
        return made


@pytest.mark.parametrize("name", CASES)
def test_what_has_one_meaning_is_written(name: str) -> None:
    given, after, sizes = CASES[name]
    errors = [one for one in splitops.check(given) if str(one.severity) == "error"]
    assert errors
    assert all((one.fix or "").startswith(HELP) for one in errors), errors
    report = fix_with_report(given, ())
    (split,) = report.splits
    assert split.after == after
    assert [one for one in splitops.check(report.model) if str(one.severity) == "error"] == []
    made = splitops.run(report.model, feeds(given), engine="reference")
    parts = made["s"] if "s" in made else list(made.values())
    assert [len(part) for part in parts] == sizes
    np.testing.assert_array_equal(np.concatenate(parts), X)
    assert fix(report.model, ()) == report.model


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            model("", body=ATTRIBUTE.format("2, -1"), axis="N", opset=11),
            "convert the model to opset 13 or newer",
        ),
        (sequence("int64[2] k = {-1, 1}"), ""),
    ],
)
def test_a_remainder_that_cannot_be_written_says_why(given: onnx.ModelProto, words: str) -> None:
    if not words:
        given.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "N"
        words = "the size of the axis is not known, and SplitToSequence-11 cannot compute the lengths"
    (finding,) = (one for one in splitops.check(given) if one.runtime is None)
    assert finding.code == "lengths.negative"
    assert words in str(finding.fix)
    with pytest.raises(splitops.ModelError, match=words):
        fix(given, ())


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (model("int64[2] k = {-1, -1}"), "lengths.negative"),
        (model("int64[2] k = {-1, 9}"), "lengths.negative"),
        (model("int64[2] k = {-2, 7}"), "lengths.negative"),
        (model("int32[2] k = {2, 4}"), "lengths.dtype"),
        (model("float[2] k = {2.5, 2.5}"), "lengths.dtype"),
        (model("", given=", float[2] k"), "lengths.dtype"),
        (layer("VariadicSplit", 0, float("nan")), "lengths.dtype"),
        (layer("VariadicSplit", 0, float("inf")), "lengths.rank"),
        (layer("VariadicSplit", 0, [float("nan"), 2.0]), "lengths.dtype"),
        (layer("VariadicSplit", [[0.5]], [2, 3]), "axis.rank"),
        (model("int64 k = {1}"), "lengths.rank"),
        (model("int64 k = {2}", axis="N"), "lengths.rank"),
        (model("int64[2, 2] k = {1, 1, 1, 2}"), "lengths.rank"),
        (model("", given=", int64[P, Q] k"), "lengths.rank"),
        (model("int64[2] k = {-1, 1}", body="a, b = Split<axis = 7>(x, k)"), "lengths.negative"),
        (sequence("int64[1, 1] k = {2}"), "lengths.rank"),
        (
            onnx.parser.parse_model("""<ir_version: 9, opset_import: ["": 11, "own": 1]>
                g (float[5] x) => (float[A] a, float[B] b) { a, b = own.f<s = [2, -1]>(x) }
                <domain: "own", opset_import: ["": 11]> f <s> (x) => (a, b) {
                    a, b = Split<split: ints = @s>(x) }"""),
            "lengths.negative",
        ),
        (layer("VariadicSplit", 0, [[2, 3], [2, 3]]), "lengths.rank"),
        (layer("Split", [0, 1]), "axis.rank"),
    ],
)
def test_what_has_no_meaning_or_several_is_left(given: Any, code: str) -> None:
    found = [one for one in splitops.check(given) if one.code == code]
    assert [one.fix for one in found] == [None]
    report = fix_with_report(given, (), partial=True)
    assert code in {reason.code for split in report.unfixable for reason in split.reasons}


def test_a_remainder_of_a_function_is_what_each_call_leaves() -> None:
    given = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["": 18, "own": 1]>
        g (float[5] x, float[7] z) => (float[A] a, float[B] b, float[C] c, float[D] d) {
            a, b = own.f(x) c, d = own.f(z) }
        <domain: "own", opset_import: ["": 18]> f (x) => (a, b) {
            k = Constant<value_ints = [2, -1]>() a, b = Split(x, k) }""")
    made = fix(given, "onnxruntime")
    found = splitops.run(made, {"x": X[:, 0], "z": np.arange(7, dtype=np.float32)})
    assert [len(part) for part in found.values()] == [2, 3, 2, 5]


def test_a_remainder_of_an_open_axis_fails_where_nothing_is_left() -> None:
    made = fix(CASES["-1 of an open axis"][0], ())
    with pytest.raises(splitops.SplitError):
        splitops.run(made, {"x": X[:0]}, engine="reference")


def called_twice(first: str, second: str) -> onnx.ModelProto:
    """A function that splits 5 and 9 rows by the lengths that its callers give."""
    return parse(
        f"""(float[5, 2] x, float[9, 2] z) => (float[A, 2] a, float[B, 2] b, float[C, 2] c, float[D, 2] d)
        <{first}, {second}> {{ a, b = own.cut(x, k) c, d = own.cut(z, m) }}
        <opset_import: ["": 18], domain: "own"> cut (q, l) => (u, v) {{ u, v = Split<axis = 0>(q, l) }}"""
    )


@pytest.mark.parametrize("first", ["int32[2] k = {2, 3}", "float[2] k = {2, 3}", "int8[2] k = {2, 3}"])
@pytest.mark.parametrize("second", ["int64[2] m = {1, 8}", "int16[2] m = {1, 8}"])
def test_lengths_of_calls_are_written_for_each_of_them(first: str, second: str) -> None:
    given = called_twice(first, second)
    assert all(HELP not in (one.fix or "") for one in splitops.check(given))  # it differs
    fixed = fix(given)
    assert splitops.check(fixed) == []
    found = splitops.run(fixed, {"x": X, "z": np.zeros((9, 2), np.float32)})
    assert [len(found[name]) for name in "abcd"] == [2, 3, 1, 8]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("int64[2] k = {2, -1}", "int64[2] m = {-1, -1}"),  # the second has no meaning
        ("int64[2] k = {2, -1}", "int64[2] m = {-1, 8}"),
        ("int64 k = {3}", "int64[2] m = {1, 8}"),
        ("int64 k = {3}", "int64 m = {5}"),
        ("int64[1, 2] k = {2, 3}", "int64[2] m = {1, 8}"),
    ],
)
def test_calls_without_a_common_form_leave_the_split_as_it_is(first: str, second: str) -> None:
    given = called_twice(first, second)
    assert all(HELP not in (one.fix or "") for one in splitops.check(given))
    report = fix_with_report(given, "onnxruntime", partial=True)
    (split,) = report.unfixable
    assert split.after == split.before
    assert report.model.functions[0].SerializeToString() == given.functions[0].SerializeToString()
    reason = split.reasons[0].text
    assert reason.count("split has") <= 1, reason
