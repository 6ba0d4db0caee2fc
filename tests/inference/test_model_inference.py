"""Inference in whole models: what it says, that every run of the model agrees, and what it writes."""

from __future__ import annotations

import contextlib
import random
import time
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import splitops
from splitops.errors import LengthsError, RuleError, SplitError
from splitops.models.check import check
from splitops.models.formats.openvino import Builder, OpenVINOModel, from_bytes, to_bytes
from splitops.models.infer import AbstractSequence, AbstractTensor, InferredModel, infer
from splitops.spec.sizes import names as symbols
from splitops.spec.sizes.dims import Dim, Range


def parse(body: str, *, opset: int = 18, functions: str = "") -> onnx.ModelProto:
    extra = ', "my": 1' if functions else ""
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": {opset}{extra}]> {body} {functions}')


def says(inferred: InferredModel, *names: str) -> list[str]:
    return [str(inferred[name]) for name in names]


SHAPE_CHAIN = """g (float[2, 12] w) => (float[A, B] r) {
    s = Shape(w)
    d, e = Split<axis = 0, num_outputs = 2>(s)
    t = Concat<axis = 0>(e, d)
    r = Reshape(w, t)
}"""
HEADS = """g (float[B, S, 768] x) => (float[b, s, h, k] y) <int64[2] tail = {12, -1}> {
    shape = Shape(x)
    b, s, c = Split<num_outputs = 3>(shape)
    target = Concat<axis = 0>(b, s, tail)
    y = Reshape(x, target)
}"""
QKV = """g (float[N, S, 2304] x) => (float[a, b, c] y) {
    q, k, v = Split<axis = 2, num_outputs = 3>(x)
    kt = Transpose<perm = [0, 2, 1]>(k)
    scores = MatMul(q, kt)
    weights = Softmax(scores)
    y = MatMul(weights, v)
}"""
HALVES = """g (float[N, 6] x) => (float[A, B] y) {
    u, v = Split<num_outputs = 2>(x)
    ru = Relu(u)
    y = Concat<axis = 0>(ru, v)
}"""
CONTROL = """g (float[N, 6] x, bool c) => (float[A, B] y, float[C, D] z, seq(float[p, q]) parts) {
    k = Constant<value = int64 {3}>()
    y = If(c) <
        then_branch = t () => (float[P, Q] a) { a, b0 = Split<axis = 1, num_outputs = 2>(x) },
        else_branch = e () => (float[R, T] b) {
            lens = Constant<value = int64[2] {3, 3}>()
            b, b1 = Split<axis = 1>(x, lens) }>
    z = Loop(k, , x) <
        body = body (int64 i, bool cc, float[U, V] u) => (bool co, float[W, X] o) {
            co = Identity(cc)
            o = Concat<axis = 0>(u, u)
        }>
    parts = SplitToSequence<axis = 1>(x, k)
}"""
GROWING = """g (int64 n, float[4, 6] x) => (float[C, D] z, float[E, F, G] all) {
    true = Constant<value = bool {1}>()
    z, all = Loop(n, true, x) <
        body = body (int64 i, bool cc, float[U, V] u) => (bool co, float[W, X] o, float[Y, Z] half) {
            co = Identity(cc)
            o = Concat<axis = 0>(u, u)
            half, _h = Split<axis = 1, num_outputs = 2>(x)
        }>
}"""
SCAN = """g (float[3] s, float[T, 4, 3] xs) => (float[A] last, float[B, C, D] ys) {
    last, ys = Scan(s, xs) <
        num_scan_inputs = 1,
        body = body (float[P] before, float[Q, R] x) => (float[U] after, float[V, W] y) {
            after = Identity(before)
            y, y1 = Split<axis = 0, num_outputs = 2>(x)
        }>
}"""
EXPLICIT = """g (float[N, 4] x, float[M, N] other) => (float[A, B] a, float[C, D] b, float[E, F] t)
    <int64[2] k = {2, 3}> {
    a, b = Split(x, k)
    t = Transpose(other)
}"""

RUNS: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "shape chain": (SHAPE_CHAIN, [{}]),
    "heads": (HEADS, [{"B": 2, "S": 3}, {"B": 1, "S": 1}]),
    "qkv": (QKV, [{"N": 1, "S": 2}, {"N": 2, "S": 1}]),
    "halves": (HALVES, [{"N": 5}, {"N": 4}, {"N": 0}, {"N": 1}]),
    "control": (CONTROL, [{"N": 2, "c": True}, {"N": 3, "c": False}, {"N": 0, "c": True}]),
    "growing": (GROWING, [{"n": 1}, {"n": 3}]),
    "scan": (SCAN, [{"T": 1}, {"T": 5}]),
    "explicit": (EXPLICIT, [{"N": 5, "M": 1}, {"N": 5, "M": 3}]),
}


@pytest.mark.parametrize("name", RUNS)
def test_every_run_lies_inside_what_is_inferred(name: str) -> None:
    """Every value of the main graph is made an output, and held against what is known of it."""
    body, cases = RUNS[name]
    held_against_runs(parse(body), cases)


def test_an_absent_input_that_must_be_there_says_nothing() -> None:
    model = parse("g (float[4] x) => (float y) { y = Add( , x) }")
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    model.graph.output[0].type.tensor_type.ClearField("shape")
    assert str(infer(model)["y"]) == "float32[...]"


def test_what_a_proved_size_says_nothing_of_stays_as_it_is() -> None:
    model = parse("""g (float[N] x, float[3] w, optional(float[3]) o) => (float[A] a, float[B] b, bool c)
        <int64[2] k = {2, 4}> {
        a, b = Split(x, k) z = Relu(w) p = Identity(o) c = OptionalHasElement(p) y = Relu(x) }""")
    model.graph.input[1].type.tensor_type.ClearField("shape")
    inferred = infer(model)
    shapes = {name: str(inferred[name]) for name in "yzp"}
    assert shapes == {"y": "float32[6]", "z": "float32[...]", "p": "no tensor"}


def test_sizes_that_exclude_one_another_are_those_of_the_first() -> None:
    builder = Builder("m")
    left, right = builder.parameter("x", "f32", "2..3"), builder.parameter("y", "f32", "5..6")
    (made,) = builder.layer("Add", [left, right], {"auto_broadcast": "numpy"})
    builder.result(made, "z")
    assert str(infer(builder.model())["z"]) == "float32[2..3]"


def held_against_runs(model: onnx.ModelProto, cases: list[dict[str, Any]]) -> None:
    inferred = infer(model)
    exposed = onnx.ModelProto()
    exposed.CopyFrom(model)
    outputs = {value.name for value in model.graph.output}
    for node in model.graph.node:
        exposed.graph.output.extend(
            onnx.ValueInfoProto(name=value) for value in node.output if value not in outputs
        )
    for sizes in cases:
        inputs = {value.name: concrete(value, sizes) for value in model.graph.input}
        ran = splitops.run(exposed, inputs, engine="reference")
        assert ran
        for value, array in ran.items():
            assert_inside(array, inferred[value], sizes, value)


FOLLOWED = """g (float[N, 6] x, float[2, 9] table, float[1, 6] row) => (float[A, B] zeros)
    <int64[1] zero = {0}, int64[1] one = {1}, int64[1] last = {-1}, int64[1] end = {9223372036854775807},
     int64 first = {0}, int64 step = {1}, int64 three = {3}, float number = {2}, float[2] off_on = {0, 1},
     int64[2] where = {0, 1}, int64[2] no_pads = {0, 0}, int64[1] empty = {0}> {
    shape = Shape(x)
    n = Gather(shape, zero)
    count = Squeeze(n)
    zeros = ConstantOfShape(shape)
    full = Expand(number, shape)
    repeats = Concat<axis = 0>(n, one)
    tiled = Tile(row, repeats)
    whole = Slice(x, zero, n, zero)
    to_the_end = Slice(x, zero, end, zero)
    rest = Slice(x, one, end, zero)
    but_last = Slice(x, zero, last, zero)
    few = Slice(table, zero, n, one)
    numbers = Range(first, count, step)
    every_third = Range(first, count, three)
    pads = Concat<axis = 0>(no_pads, n, empty)
    padded = Pad(x, pads)
    hot = OneHot(where, count, off_on)
    top, at = TopK<axis = 1>(table, n)
}"""


@pytest.mark.parametrize("opset", [11, 12, 13, 18])
def test_followed_sizes_are_used_in_every_opset(opset: int) -> None:
    model = parse(FOLLOWED, opset=opset)
    inferred = infer(model)
    found = {name: str(inferred[name]).partition("[")[2][:-1] for name in outputs_of(model)}
    assert found == {
        "shape": "2",
        "n": "1",
        "count": "",
        "zeros": "N, 6",
        "full": "N, 6",
        "repeats": "2",
        "tiled": "N, 6",
        "whole": "N, 6",
        "to_the_end": "N, 6",
        "rest": "?, 6",  # N - 1, but 0 where N is 0
        "but_last": "?, 6",
        "few": "2, 0..9",
        "numbers": "N",
        "every_third": "ceil(N/3)",
        "pads": "4",
        "padded": "2*N, 6",
        "hot": "2, N",
        "top": "2, N",
        "at": "2, N",
    }
    held_against_runs(model, [{"N": size} for size in (1, 2, 5, 9)])


def outputs_of(model: onnx.ModelProto) -> list[str]:
    return [name for node in model.graph.node for name in node.output]


@pytest.mark.parametrize("opset", [12, 13, 15, 16, 18])
@pytest.mark.parametrize("operator", ["LessOrEqual", "GreaterOrEqual"])
def test_comparisons_that_are_functions_have_a_shape(operator: str, opset: int) -> None:
    model = parse(
        f"g (float[N, 1, 3] x, float[4, 1] y) => (bool[A, B, C] z) {{ z = {operator}(x, y) }}", opset=opset
    )
    assert says(infer(model), "z") == ["bool[N, 4, 3]"]
    held_against_runs(model, [{"N": 2}])


def test_sizes_that_are_chosen_are_followed() -> None:
    """As PyTorch writes expand(-1, ...): a size is never -1."""
    model = parse("""g (float[N, 1] x, float[1, 6] y) => (float[A, B] z)
        <int64[2] minus = {-1, -1}, int64[2] ones = {1, 1}, int64[1] six = {6}> {
            n = Shape<start = 0, end = 1>(x)
            sizes = Concat<axis = 0>(n, six)
            kept = Equal(sizes, minus)
            target = Where(kept, ones, sizes)
            z = Expand(y, target)
        }""")
    assert says(infer(model), "z") == ["float32[N, 6]"]
    held_against_runs(model, [{"N": 3}, {"N": 0}])


COUNTED = """g (float[N, M] x, float[K] free) => (float[A] zero, float[B] same, float[C] rest)
    <int64[1] five = {5}, int64[1] two = {2}, int64[1] three = {3}, int64[1] far = {600}, float[600] row,
     float[K] part> {
    n = Shape<start = 0, end = 1>(x)
    none = Sub(n, n)
    zero = ConstantOfShape(none)
    equal = Equal(n, n)
    chosen = Where(equal, two, three)
    same = ConstantOfShape(chosen)
    unknown = Equal(five, n)
    ratio = Div(two, n)
    k = Shape(free)
    first = Constant<value = int64[1] {0}>()
    part = Slice(row, first, k)
    cut = Shape(part)
    others = Sub(far, cut)
    all = Add(others, cut)
    rest = ConstantOfShape(others)
    whole = Concat<axis = 0>(rest, part)
    again = ConstantOfShape(all)
}"""


def test_symbols_that_cancel_leave_numbers() -> None:
    model = parse(COUNTED)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros(600, np.float32), "row"))
    inferred = infer(model)
    assert says(inferred, "zero", "same", "part", "rest", "whole", "again") == [
        "float32[0]",
        "float32[2]",
        "float32[K]",
        "float32[-K + 600]",
        "float32[600]",
        "float32[600]",
    ]
    for name in ("unknown", "ratio"):
        known = inferred[name]
        assert isinstance(known, AbstractTensor)
        assert known.elements is None or known.elements.tolist() == [None]
    held_against_runs(model, [{"N": 5, "M": 1, "K": 4}, {"N": 3, "M": 0, "K": 0}])


def test_sizes_that_broadcast_are_as_tight_as_what_is_known() -> None:
    """A size above 1 is that of the result; onnx itself does not infer this operator."""
    model = parse("""g (float[N] n, float[M] m, float[K] k, float[2] two, float[3] three)
        => (bool[A] nm, bool[B] nk, bool[C] kn) {
            n2 = Concat<axis = 0>(n, two)
            m3 = Concat<axis = 0>(m, three)
            nm = LessOrEqual(n2, m3)
            nk = LessOrEqual(n2, k)
            kn = LessOrEqual(k, n2)
        }""")
    inferred = infer(model)
    assert says(inferred, "nk", "kn") == ["bool[N + 2]", "bool[N + 2]"]
    (size,) = inferred["nm"].shape  # type: ignore[union-attr]
    assert isinstance(size, Range)
    assert size.lo == 3
    held_against_runs(model, [{"N": 2, "M": 1, "K": 1}, {"N": 1, "M": 0, "K": 3}])


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ("m = Shape(y)  t = Concat<axis = 0>(m, minus)  z = Reshape(x, t)", "float32[M, ?]"),
        ("t = Concat<axis = 0>(two, minus)  z = Reshape(w, t)", "float32[2, ?]"),
        ("t = Concat<axis = 0>(two, minus)  z = Reshape(e, t)", "float32[2, ?]"),
        ("z = Slice(x, half, two)", "float32[?, 6]"),
        ("n = Shape<start = 0, end = 1>(x)  z = Gather(pair, n)", "int64[1]"),
        ("z = Gather(pair, two)", "int64[1]"),
        ("s = SequenceEmpty()  z = ConcatFromSequence<axis = 0>(s)", "float32[...]"),
        ("z = Cast<to = 99>(x)", "None"),
        ("z = LessOrEqual(pair, triple)", "bool[...]"),
        ("z = Resize(x, , scale)", "float32[...]"),
        ("z = Resize(x)", "float32[...]"),
        ("z = Flatten<axis = 3>(x)", "float32[...]"),
        ("z = Squeeze(two, none)", "int64[1]"),
        ("z = Unsqueeze(two, many)", "int64[...]"),
        ("z = Div(triple, zeros)", "int64[3]"),
        ("z = Mod(triple, zeros)", "int64[3]"),
    ],
)
def test_what_cannot_be_said_is_left_open(nodes: str, expected: str) -> None:
    model = parse(f"""g (float[N, 6] x, float[M] y, float[N, M] w, float[N, 0] e) => (float o)
        <int64[1] minus = {{-1}}, int64[1] two = {{2}}, int64[2] pair = {{5, 6}},
         int64[3] triple = {{5, 6, 7}}, float[1] half = {{0.5}}, float[3] scale = {{1, 2, 1}},
         int64[0] none = {{}}, int64[3] zeros = {{0, 0, 0}}, int64[70] many = {{{str([*range(70)])[1:-1]}}}>
        {{ o = Constant<value_float = 1.0>()  {nodes} }}""")
    known = infer(model)["z"]
    assert str(known) == expected
    elements = getattr(known, "elements", None)
    assert elements is None or set(elements.flat) == {None}


def test_an_unsqueeze_without_axes_is_left_open() -> None:
    assert says(infer(parse("g (float[2] x) => (float o) { o = Unsqueeze(x) }", opset=11)), "o") == [
        "float32[]"
    ]


def test_a_sequence_that_is_put_together_is_what_it_was_cut_from() -> None:
    model = parse("""g (float[N, 6] x) => (float[A, B] y)
        <int64 chunk = {2}> {
            parts = SplitToSequence(x, chunk)
            y = ConcatFromSequence<axis = 0>(parts)
            rows = SplitToSequence<keepdims = 0>(x)
            stacked = ConcatFromSequence<axis = 0, new_axis = 1>(rows)
            cut = SplitToSequence<axis = -1>(x, chunk)
            other = ConcatFromSequence<axis = 0>(cut)
        }""")
    inferred = infer(model)
    assert says(inferred, "y", "stacked", "other") == ["float32[N, 6]", "float32[N, 6]", "float32[3*N, 2]"]
    held_against_runs(model, [{"N": 5}, {"N": 4}, {"N": 1}])


@pytest.mark.parametrize("axis", [0, 1])
def test_what_does_not_fit_a_sequence_put_together_is_found(axis: int) -> None:
    """The sizes of the sequence are known, those of its data are not."""
    model = parse(f"""g (float[N, M] x) => (float[A, B] a, float[C, D] b)
        <int64[2] lengths = {{2, 3}}, int64[2] wrong = {{2, 4}}> {{
            parts = SplitToSequence<axis = {axis}>(x, lengths)
            y = ConcatFromSequence<axis = {axis}>(parts)
            a, b = Split<axis = {axis}>(y, wrong)
        }}""")
    (found,) = (finding for finding in check(model) if finding.code == "lengths.sum")
    assert found.values["lengths"] == (2, 4)


def concrete(value: onnx.ValueInfoProto, sizes: dict[str, Any]) -> np.ndarray[Any, Any]:
    tensor = value.type.tensor_type
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    if value.name in sizes:
        return np.array(sizes[value.name], dtype)
    shape = [dim.dim_value if dim.HasField("dim_value") else sizes[dim.dim_param] for dim in tensor.shape.dim]
    return np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)


def assert_inside(array: Any, known: Any, sizes: dict[str, Any], name: str) -> None:
    if isinstance(array, list):
        assert isinstance(known, AbstractSequence)
        assert_size(len(array), known.length, sizes, name)
        for element in array:
            assert_inside(element, known.element, sizes, name)
        return
    assert isinstance(known, AbstractTensor), name
    assert known.type is None or known.type.numpy == array.dtype
    if known.shape is not None:
        assert len(known.shape) == array.ndim, name
        for size, dim in zip(array.shape, known.shape, strict=True):
            assert_size(size, dim, sizes, name)
    if known.elements is not None:
        for entry, number in zip(
            known.elements.reshape(-1).tolist(), array.reshape(-1).tolist(), strict=True
        ):
            if isinstance(entry, Range):
                assert_size(number, entry, sizes, name)
            else:
                assert entry is None or entry == number, name


def assert_size(size: int, dim: Dim, sizes: dict[str, Any], name: str) -> None:
    if isinstance(dim, int):
        assert size == dim, name
        return
    assert dim.lo <= size, name
    assert dim.hi is None or size <= dim.hi, name
    value = symbols.evaluate(dim.name, sizes) if dim.name else None
    assert value is None or value == size, f"{name}: {dim.name} is {value}, but the size is {size}"


def test_what_is_known() -> None:
    assert says(infer(parse(SHAPE_CHAIN)), "t", "r") == ["int64[2]", "float32[12, 2]"]
    assert says(infer(parse(HEADS)), "y") == ["float32[B, S, 12, 64]"]
    assert says(infer(parse(QKV)), "q", "scores", "y") == [
        "float32[N, S, 768]",
        "float32[N, S, S]",
        "float32[N, S, 768]",
    ]
    assert says(infer(parse(HALVES)), "u", "v", "y") == [
        "float32[ceil(N/2), 6]",
        "float32[N - ceil(N/2), 6]",
        "float32[N, 6]",
    ]
    assert says(infer(parse(CONTROL)), "y", "z", "parts") == [
        "float32[N, 3]",
        "float32[C, 6]",
        "2 x float32[N, 3]",
    ]
    assert says(infer(parse(GROWING)), "z", "all") == ["float32[C, 6]", "float32[E, 4, 3]"]
    assert says(infer(parse(SCAN)), "last", "ys") == ["float32[3]", "float32[T, 2, 3]"]


def test_an_unknown_choice_is_known_where_both_sides_are_the_same() -> None:
    model = parse("""g (float[N, M] x) => (float[A, B] y)
        <int64[2] fives = {5, 5}, int64[2] yes = {4, 5}, int64[2] no = {2, 5}> {
            s = Shape(x)
            fits = Equal(s, fives)
            target = Where(fits, yes, no)
            y = ConstantOfShape(target)
        }""")
    assert says(infer(model), "y") == ["float32[A, 5]"]
    held_against_runs(model, [{"N": 5, "M": 5}, {"N": 3, "M": 4}])


def test_parts_of_a_shape_of_unknown_lengths_are_of_unknown_numbers() -> None:
    model = parse("""g (float[2, 12] w, int64[2] lengths) => (int64[A] a, int64[B] b) {
        s = Shape(w)
        a, b = Split(s, lengths)
    }""")
    inferred = infer(model)
    assert says(inferred, "s", "a", "b") == ["int64[2]", "int64[A]", "int64[B]"]
    assert [getattr(inferred[name], "elements", None) is None for name in "sab"] == [False, True, True]


def test_the_sizes_of_more_dimensions_than_are_followed_are_unknown() -> None:
    inferred = infer(parse(f"g (float[{', '.join(['2'] * 4097)}] x) => (int64 n) {{ n = Size(x) }}"))
    assert says(inferred, "n") == ["int64[]"]
    assert getattr(inferred["n"], "elements", None) is None


def test_numbers_that_onnx_fails_to_compute_are_unknown() -> None:
    model = parse("""g (float[2] x) => (int64[A] y, int64[B] z)
        <int64[2] data = {4, 5}, int64[2, 1] far = {2, 7}, int64[2, 1] near = {1, 0}> {
            y = GatherND(data, far)
            z = GatherND(data, near)
        }""")
    inferred = infer(model)
    assert says(inferred, "y", "z") == ["int64[2]", "int64[2]"]
    assert [getattr(inferred[name], "elements", None) is None for name in "yz"] == [True, False]


def test_an_optional_input_that_is_left_out_is_none() -> None:
    model = parse("g (float[2] x) => (float[A] y) <int64[2] sizes = {4, 5}> "
        "{ total = ReduceSum(sizes)  y = ConstantOfShape(total) }")  # fmt: skip
    model.graph.node[0].input.append("")
    assert says(infer(model), "y") == ["float32[9]"]


def test_what_comes_out_of_a_loop_that_certainly_runs_is_of_its_last_round() -> None:
    body = """body = b (int64 i, bool c, float[Q] s) => (bool go, float[R] t, float[3] out) {
        go = Identity(yes)
        t = Constant<value = float[3] {1, 2, 3}>()
        out = Identity(t)
    }"""
    found = {}
    for rounds in (0, 2):
        model = parse(f"""g (float[2] x) => (float[A] y, float[B, C] all)
            <int64 n = {{{rounds}}}, bool yes = {{1}}> {{ y, all = Loop(n, yes, x) <{body}> }}""")
        found[rounds] = says(infer(model), "y", "all")
        held_against_runs(model, [{}])
    assert found == {0: ["float32[A]", "float32[0, 3]"], 2: ["float32[3]", "float32[2, 3]"]}


def test_what_grows_from_round_to_round_is_given_up() -> None:
    """Sequences too; and where changes come round after round, the whole value."""
    model = parse("""g (int64 n, bool c, float[2] x0) => (float[A] x, seq(float[B]) s) <int64 one = {1}> {
        s0 = SplitToSequence(x0, one)
        x, s = Loop(n, c, x0, s0) <body = b (int64 i, bool go, float[Q] x1, seq(float[P]) s1)
            => (bool on, float[R] x2, seq(float[S]) s2) {
                on = Identity(go)
                x2 = Concat<axis = 0>(x1, x1)
                s2 = SplitToSequence(x2, one) }>
    }""")
    assert says(infer(model), "s") == ["? x float32[1]"]
    held_against_runs(model, [{"n": 0, "c": 1}, {"n": 3, "c": 1}])

    def named(letter: str) -> str:
        return ", ".join(f"{letter}{index}" for index in range(8))

    def typed(letter: str) -> str:
        return ", ".join(f"float[{letter.upper()}{index}] {letter}{index}" for index in range(8))

    shifts = "".join(f"b{index} = Identity(a{min(index + 1, 7)})  " for index in range(8))
    inputs = ", ".join(f"float[{2 + (index == 7)}] x{index}" for index in range(8))
    late = parse(f"""g (int64 n, bool c, {inputs}) => (float[A] y0) {{
        {named("y")} = Loop(n, c, {named("x")})
            <body = t (int64 i, bool go, {typed("a")}) => (bool on, {typed("b")})
                {{ on = Identity(go)  {shifts} }}>
    }}""")
    assert says(infer(late), "y1", "y6", "y7") == ["float32[?]"] * 3
    held_against_runs(late, [{"n": rounds, "c": 1} for rounds in (0, 1, 6, 9)])


@pytest.mark.parametrize(
    "node",
    [
        "y = If(c) <then_branch = t () => (float[P] a) { a = Identity(x) }>",
        "y = Loop(n, c, x) <body = t (int64 i, bool d) => (bool e) { e = Identity(d) }, "
        "other = u () => (float[P] b) { b = Relu(x) }>",
        "y = Loop(n, c, x)",
    ],
)
def test_of_control_flow_without_its_graphs_nothing_is_known(node: str) -> None:
    assert says(infer(parse(f"g (int64 n, bool c, float[6] x) => (float[A] y) {{ {node} }}")), "y") == [
        "float32[A]"
    ]


def test_an_axis_that_a_scanned_input_does_not_have_tells_nothing() -> None:
    model = parse("""g (float[T, 2] x, float[2] start) => (float[A] last, float[B, C] all) {
        last, all = Scan(start, x) <num_scan_inputs = 1, scan_input_axes = [5],
            body = b (s, e) => (t, o) { t = Relu(s)  o = Relu(e) }>
    }""")
    assert says(infer(model), "last", "all") == ["float32[2]", "float32[B, C]"]


def test_what_joins_a_sequence_that_is_unknown_is_unknown() -> None:
    model = parse(
        """g (float[2] x) => (float[A] y) { s = Strange(x)  y = ConcatFromSequence<axis = 0>(s) }"""
    )
    assert says(infer(model), "s", "y") == ["None", "float32[A]"]


def test_text_that_protobuf_does_not_write_leaves_a_node_unknown() -> None:
    model = parse("g (float[2] x) => (float[A] y) { z = Elu<alpha = 0.5>(x)  y = Relu(z) }")
    model.graph.node[0].attribute[0].doc_string = "QQQQ"
    content = model.SerializeToString().replace(b"QQQQ", b"QQ\xffQ")
    assert says(infer(onnx.ModelProto.FromString(content)), "x", "z") == ["float32[2]", "None"]


def test_a_sequence_output_without_an_element_type_gets_one() -> None:
    model = parse("g (float[4] x) => (seq(float[A]) s) { s = SplitToSequence(x) }")
    model.graph.output[0].type.sequence_type.ClearField("elem_type")
    inferred = infer(model)
    element = inferred.model.graph.output[0].type.sequence_type.elem_type.tensor_type
    assert (element.elem_type, element.shape.dim[0].dim_value) == (onnx.TensorProto.FLOAT, 1)
    (value,) = (value for value in inferred.values if value.name == "s")
    assert (str(value.after), value.is_new) == ("4 x float32[1]", True)


def test_a_value_that_is_not_there_is_a_key_error() -> None:
    with pytest.raises(KeyError, match="nothing"):
        infer(parse("g (float[2] x) => (float[2] y) { y = Relu(x) }"))["nothing"]


def test_a_split_tells_of_its_input_and_of_its_symbol() -> None:
    inferred = infer(parse(EXPLICIT))
    assert says(inferred, "x", "other", "t") == ["float32[5, 4]", "float32[M, 5]", "float32[5, M]"]


def test_a_branch_tells_nothing_of_what_is_outside() -> None:
    model = parse("""g (float[N] x, bool c) => (float[A] y, float[B] z) {
        y = If(c) <
            then_branch = t () => (float[P] a) {
                k = Constant<value = int64[2] {2, 3}>()
                a, b = Split(x, k) },
            else_branch = e () => (float[Q] d) { d = Identity(x) }>
        z = Relu(x)
    }""")
    assert says(infer(model), "x", "z", "y") == ["float32[N]", "float32[N]", "float32[A]"]


FUNCTION = """<domain: "my", opset_import: ["": 18]>
    halve <n> (x) => (a, b) { a, b = Split <axis = 1, num_outputs: int = @n> (x) }"""


def test_functions_with_the_attributes_of_their_calls() -> None:
    model = parse(
        "g (float[N, 6] x) => (float[A, B] a, float[C, D] c) "
        "{ a, b = my.halve<n = 2>(x)  c, d = my.halve<n = 4>(x) }",
        functions=FUNCTION,
    )
    inferred = infer(model)
    assert says(inferred, "a", "c", "d") == ["float32[N, 3]", "float32[N, 2]", "float32[N, 2]"]
    inside = {value.name: str(value.after) for value in inferred.values if value.graph == "function my.halve"}
    assert inside == {"x": "float32[N, 6]", "a": "float32[N, 2..3]", "b": "float32[N, 2..3]"}
    onnx.checker.check_model(inferred.model)


def test_attributes_that_no_call_gives_are_unknown() -> None:
    """A function that nothing calls is walked too."""
    function = """<domain: "my", opset_import: ["": 18]> f <k, p> (x) => (y) {
        c = Constant<value_int: int = @k>()
        t = Transpose<perm: ints = @p>(x)
        y = Add(t, c) }"""
    inferred = infer(parse("g (float[6] x) => (float[A] y) { y = Relu(x) }", functions=function))
    inside = {value.name: str(value.after) for value in inferred.values if value.graph == "function my.f"}
    assert inside == {"x": "None", "c": "None", "t": "None", "y": "None"}


def test_the_graphs_inside_functions_are_written() -> None:
    function = """<domain: "my", opset_import: ["": 18]> f (c, x) => (y) {
        y = If(c) <then_branch = t () => (a) { a, b = Split<num_outputs = 2>(x) },
                   else_branch = e () => (d) { d = Identity(x) }> }"""
    model = parse("g (bool c, float[6] x) => (float[A] y) { y = my.f(c, x) }", functions=function)
    made = infer(model).model
    (node,) = made.functions[0].node
    sizes = [attribute.g.output[0].type.tensor_type.shape.dim[0].dim_value for attribute in node.attribute]
    assert sizes == [3, 6]
    onnx.checker.check_model(made)


def test_functions_that_call_functions_do_not_take_for_ever() -> None:
    deep = "".join(
        f'<domain: "my", opset_import: ["": 18, "my": 1]> f{i} (x) => (y) '
        f"{{ a = my.f{i + 1}(x)  y = my.f{i + 1}(a) }}"
        for i in range(40)
    )
    last = '<domain: "my", opset_import: ["": 18]> f40 (x) => (y) { y = Relu(x) }'
    model = parse("g (float[6] x) => (float[A] y) { y = my.f0(x) }", functions=deep + last)
    begin = time.monotonic()
    assert str(infer(model)["y"]) in ("float32[6]", "float32[A]")
    assert time.monotonic() - begin < 30


def test_loops_in_loops_do_not_take_for_ever() -> None:
    body = "y30 = Concat<axis = 0>(x30, x30)"
    for depth in reversed(range(30)):
        body = (
            f"y{depth} = Loop(n, , x{depth}) <body = b{depth} (int64 i{depth}, bool c{depth}, "
            f"float[P] x{depth + 1}) => (bool d{depth}, float[Q] y{depth + 1}) "
            f"{{ d{depth} = Identity(c{depth}) {body} }}>"
        )
    model = parse(f"g (int64 n, float[6] x0) => (float[A] y0) {{ {body} }}")
    begin = time.monotonic()
    assert str(infer(model)["y0"]) == "float32[A]"
    assert time.monotonic() - begin < 30


def test_a_long_chain_of_functions_is_walked_to_its_end() -> None:
    chain = "".join(
        f'<domain: "my", opset_import: ["": 18, "my": 1]> f{i} (x) => (y) {{ y = my.f{i + 1}(x) }}'
        for i in range(400)
    )
    last = '<domain: "my", opset_import: ["": 18]> f400 (x) => (y) { y, z = Split<num_outputs = 1>(x) }'
    model = parse("g (float[6] x) => (float[A] y) { y = my.f0(x) }", functions=chain + last)
    found = [finding for finding in check(model) if finding.runtime is None]
    assert [(finding.code, finding.where.graph) for finding in found] == [
        ("outputs.count", "function my.f400")
    ]


@pytest.mark.parametrize("name", RUNS)
def test_the_written_model_passes_the_checker_and_says_it_again(name: str) -> None:
    first = infer(parse(RUNS[name][0]))
    onnx.checker.check_model(first.model)
    again = infer(first.model)
    assert [(v.graph, v.name, str(v.after)) for v in again.values] == [
        (v.graph, v.name, str(v.after)) for v in first.values
    ]
    stated = {info.name for info in first.model.graph.value_info}
    outputs = {value.name for value in first.model.graph.output}
    assert stated | outputs >= {name for node in first.model.graph.node for name in node.output}


def test_the_given_model_is_not_changed() -> None:
    model = parse(HALVES)
    before = model.SerializeToString(deterministic=True)
    infer(model)
    assert model.SerializeToString(deterministic=True) == before


def test_unknown_operators_leave_unknowns_and_the_walk_goes_on() -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 18, "other": 1]>
        g (float[6] x) => (a, float[B] b) {
            y = other.Strange(x)
            a, c = Split<num_outputs = 2>(y)
            b = Relu(x)
        }""")
    assert says(infer(model), "y", "a", "b") == ["None", "?[...]", "float32[6]"]


def test_what_aborts_onnx_is_an_error_here() -> None:
    model = parse("g (float[6] x) => (float[A] a, float[B] b) { a, b = Split<num_outputs = 1>(x) }")
    with pytest.raises(RuleError, match=r"outputs\.count"):
        infer(model)


def test_errors_name_the_place() -> None:
    model = parse(
        "g (float[2, 3] x, float[6] y) => (float[A] a, float[B] b) { k = Shape(x)  a, b = Split(y, k) }"
    )
    with pytest.raises(LengthsError, match=r"lengths\.sum.*node 'Split -> a'"):
        infer(model)


def test_large_sizes_are_exact() -> None:
    model = parse("g (float[4294967300] x) => (float[A] a, float[B] b) { a, b = Split<num_outputs = 2>(x) }")
    assert says(infer(model), "a", "b") == ["float32[2147483650]"] * 2


# OpenVINO IR


def openvino_chain(shape: str) -> OpenVINOModel:
    builder = Builder("chain")
    x = builder.parameter("x", "f32", shape)
    zero = builder.const(np.array(0))
    first, rest = builder.layer("VariadicSplit", [x, zero, builder.const(np.array([2, -1]))], outputs=2)
    (relu,) = builder.layer("ReLU", [rest])
    (joined,) = builder.layer("Concat", [first, relu], {"axis": 0})
    (of,) = builder.layer("ShapeOf", [joined], {"output_type": "i64"}, version="opset3")
    head, tail = builder.layer("Split", [of, zero], {"num_splits": 2}, outputs=2)
    (swapped,) = builder.layer("Concat", [tail, head], {"axis": 0})
    (reshaped,) = builder.layer("Reshape", [joined, swapped], {"special_zero": "false"})
    halves = builder.layer("Split", [reshaped, builder.const(np.array(0))], {"num_splits": 2}, outputs=2)
    for name, port in {"rest": rest, "joined": joined, "reshaped": reshaped, "half": halves[0]}.items():
        builder.result(port, name)
    return builder.model()


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ("5..9,4", ["float32[3..7, 4]", "float32[5..9, 4]", "float32[4, 5..9]", "float32[2, 5..9]"]),
        ("?,4", ["float32[?, 4]", "float32[2.., 4]", "float32[4, 2..]", "float32[2, 2..]"]),
        ("..6,4", ["float32[0..4, 4]", "float32[2..6, 4]", "float32[4, 2..6]", "float32[2, 2..6]"]),
        ("6,4", ["float32[4, 4]", "float32[6, 4]", "float32[4, 6]", "float32[2, 6]"]),
    ],
)
def test_intervals_go_through_openvino_models(shape: str, expected: list[str]) -> None:
    inferred = infer(openvino_chain(shape))
    assert says(inferred, "rest", "joined", "reshaped", "half") == expected
    pytest.importorskip("openvino")  # which runs ReLU
    for rows in (5, 6):
        inputs = {"x": np.zeros((rows, 4), np.float32)}
        if shape[0] not in (str(rows), "?", ".") and ".." not in shape:
            continue
        ran = splitops.run(openvino_chain(shape), inputs, engine="reference")
        for name in ("rest", "joined", "reshaped", "half"):
            assert_inside(ran[name], inferred[name], {}, name)


def test_the_written_openvino_model_loads_and_states_its_shapes() -> None:
    openvino = pytest.importorskip("openvino")
    inferred = infer(openvino_chain("6,4"))
    xml, weights = to_bytes(inferred.model)
    model = openvino.Core().read_model(xml, openvino.Tensor(np.frombuffer(weights, np.uint8)))
    assert [list(output.get_partial_shape().to_shape()) for output in model.outputs] == [
        [4, 4],
        [6, 4],
        [4, 6],
        [2, 6],
    ]
    again = infer(inferred.model)
    assert says(again, "rest", "half") == ["float32[4, 4]", "float32[2, 6]"]


def test_unknown_rank_axis_and_lengths() -> None:
    builder = Builder("m")
    x = builder.parameter("x", "f32", None)
    y = builder.parameter("y", "f32", "7,6")
    axis = builder.parameter("axis", "i64", "")
    lengths = builder.parameter("lengths", "i64", "2")
    zero = builder.const(np.array(0))
    for name, ports in {
        "rank": builder.layer("VariadicSplit", [x, zero, lengths], outputs=2),
        "axis": builder.layer("Split", [y, axis], {"num_splits": 3}, outputs=3),
        "lengths": builder.layer("VariadicSplit", [y, zero, lengths], outputs=2),
    }.items():
        builder.result(ports[0], f"of_{name}")
    inferred = infer(builder.model())
    assert says(inferred, "of_rank", "of_axis", "of_lengths") == [
        "float32[...]",
        "float32[7, 2]",
        "float32[0..7, 6]",
    ]


def test_what_does_not_broadcast_as_numpy_does_is_not_followed() -> None:
    builder = Builder("m")
    x, y = builder.parameter("x", "i64", "2,3"), builder.parameter("y", "i64", "2")
    for operator in ("Add", "Maximum", "Power"):
        (made,) = builder.layer(operator, [x, y], {"auto_broadcast": "pdpd"})
        builder.result(made, operator)
    (made,) = builder.layer("Broadcast", [x, y], {"mode": "pdpd"}, version="opset1")
    builder.result(made, "Broadcast")
    assert says(infer(builder.model()), "Add", "Maximum", "Power", "Broadcast") == ["int64[...]"] * 4


ELEMENTWISE_LAYERS: list[tuple[str, int, list[str], list[str]]] = [
    *((name, 13, ["i32", "i32"], ["?,3", "2,1,3"]) for name in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")),
    ("BitwiseNot", 13, ["i32"], ["?,3"]),
    ("LogicalXor", 1, ["boolean", "boolean"], ["?,3", "2,1,3"]),
    ("Greater", 1, ["f32", "f32"], ["?,3", "2,1,3"]),
    ("SquaredDifference", 1, ["f32", "f32"], ["?,3", "2,1,3"]),
    ("Select", 1, ["boolean", "f32", "f32"], ["3", "?,1", "2,1,1"]),
    ("FakeQuantize", 1, ["f32"] * 5, ["?,3", *["1"] * 4]),
    ("PReLU", 1, ["f32", "f32"], ["?,3", "3"]),
    ("ConvertLike", 1, ["f32", "i32"], ["?,3", "7"]),
    ("Identity", 16, ["f32"], ["?,3"]),
    ("SoftMax", 8, ["f32"], ["?,3"]),
    *((name, 10, ["f32"], ["?,3"]) for name in ("IsNaN", "IsInf", "IsFinite")),
]


@pytest.mark.parametrize(("layer", "opset", "types", "shapes"), ELEMENTWISE_LAYERS)
def test_elementwise_layers_have_the_types_and_shapes_that_openvino_infers(
    layer: str, opset: int, types: list[str], shapes: list[str]
) -> None:
    openvino = pytest.importorskip("openvino")
    builder = Builder("m")
    given = zip(types, shapes, strict=True)
    inputs = [builder.parameter(f"x{index}", *port) for index, port in enumerate(given)]
    data = {"FakeQuantize": {"levels": 4}, "SoftMax": {"axis": 1}}.get(layer)
    (made,) = builder.layer(layer, inputs, data, version=f"opset{opset}")
    builder.result(made, "y")
    xml, weights = to_bytes(builder.model())
    (theirs,) = openvino.Core().read_model(xml, openvino.Tensor(np.frombuffer(weights, np.uint8))).outputs
    sizes = (size.to_string() for size in theirs.get_partial_shape())
    kind = {"boolean": "bool", "i32": "int32", "f32": "float32"}[theirs.get_element_type().get_type_name()]
    assert says(infer(builder.model()), "y") == [f"{kind}[{', '.join(sizes)}]"]


def test_a_transpose_in_an_unknown_order_keeps_the_rank() -> None:
    builder = Builder("m")
    x, order = builder.parameter("x", "f32", "2,3"), builder.parameter("order", "i64", "2")
    (made,) = builder.layer("Transpose", [x, order])
    builder.result(made, "y")
    assert says(infer(builder.model()), "y") == ["float32[?, ?]"]


# Damaged models


def test_damaged_onnx_models_give_errors_of_ours_or_none() -> None:
    contents = [parse(body).SerializeToString() for body, _ in RUNS.values()]
    chance = random.Random(5)
    inferred = 0
    for _ in range(1500):
        content = bytearray(chance.choice(contents))
        for _ in range(chance.randint(1, 3)):
            content[chance.randrange(len(content))] = chance.randrange(256)
        model = onnx.ModelProto()
        try:
            model.ParseFromString(bytes(content))
        except Exception:  # protobuf's answer
            continue
        check(model)
        with contextlib.suppress(SplitError):
            infer(model).model.SerializeToString()
            splitops.fix(model, "onnxruntime", partial=True)
            inferred += 1
    assert inferred > 50


def test_damaged_openvino_models_give_errors_of_ours_or_none() -> None:
    xml, weights = to_bytes(openvino_chain("5..9,4"))
    chance = random.Random(6)
    inferred = 0
    for _ in range(400):
        content, constants = bytearray(xml), bytearray(weights)
        if chance.random() < 0.5:
            constants[chance.randrange(len(constants))] = chance.randrange(256)
        else:
            digits = [at for at, byte in enumerate(content) if chr(byte).isdigit()]
            content[chance.choice(digits)] = ord(chance.choice("0123456789-"))
        with contextlib.suppress(SplitError):
            model = from_bytes(bytes(content), bytes(constants))
            check(model)
            to_bytes(infer(model).model)
            inferred += 1
    assert inferred > 50


def test_types_follow_from_schemas_where_onnx_infers_nothing() -> None:
    """An input of which nothing is known ends onnx's own inference of the node."""
    model = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["": 18, "my": 1]>
        g (float x, int64 z) => (float a) {
            u = my.Foreign(x)
            a = Add(x, u)
            b = Cast<to = 7>(u)
            c = ArgMax(u)
            d = ReduceSum(x, u)
            e = OneHot(u, u, x)
            h = Shape(u)
            k = Equal(u, u)
            n = NonZero(u)
            r = Range(z, u, u)
            o = Concat<axis = 0>(u, z)
            w = Add(u, u)
            bad = Add(x, z) }""")
    found = splitops.infer(model)
    types = {"a": "float32", "b": "int64", "c": "int64", "d": "float32", "e": "float32", "h": "int64"}
    types |= {"k": "bool", "n": "int64", "r": "int64", "o": "int64"}
    assert {name: str(found[name].type) for name in types} == types
    assert found["w"] is None
    assert getattr(found["bad"], "type", None) is None
