"""SplitToSequence by what reads it: at every size rule, with known and dynamic axes."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, numpy_helper
from simplify_helpers import assert_equal, every_operator, operators, parse, simplified

from splitops.models.simplify import simplify_with_report

OPSETS = (11, 13, 18, 24)


def model(
    readers: str,
    outputs: str,
    *,
    data: str = "float[4, 6] x",
    state: str = "axis = 1",
    lengths: str = "",
    constants: str = "",
    opset: int = 18,
) -> ModelProto:
    constants = ", ".join(filter(None, [constants, lengths and f"{lengths}"]))
    initializers = f"<{constants}>" if constants else ""
    extra = ", split" if lengths else ""
    return parse(
        f"g ({data}) => ({outputs}) {initializers} {{ s = SplitToSequence<{state}>(x{extra}) {readers} }}",
        opset,
    )


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize(
    ("lengths", "count"),
    [
        ("", 6),
        ("int64[3] split = {1, 2, 3}", 3),
        ("int32[3] split = {1, 2, 3}", 3),
        ("int32 split = {4}", 2),
        ("int64 split = {7}", 1),
        ("int64[2] split = {0, 6}", 2),
    ],
)
def test_the_length_is_a_constant(opset: int, lengths: str, count: int) -> None:
    found = simplified(model("n = SequenceLength(s)", "int64 n", lengths=lengths, opset=opset))
    assert operators(found.model) == []
    assert numpy_helper.to_array(found.model.graph.node[0].attribute[0].t) == count


@pytest.mark.parametrize("size", [0, 5])
def test_the_length_of_a_dynamic_axis_is_its_size(size: int) -> None:
    built = model("n = SequenceLength(s)", "int64 n", data="float[N, 2] x", state="axis = 0")
    assert operators(simplified(built, N=size).model) == ["Shape", "Gather"]


@pytest.mark.parametrize(
    ("lengths", "size"), [("int64 split = {3}", 7), ("int32 split = {3}", 6), ("int64 split = {3}", 0)]
)
def test_the_length_of_a_dynamic_axis_in_chunks_stays(lengths: str, size: int) -> None:
    built = model("n = SequenceLength(s)", "int64 n", data="float[N, 2] x", state="axis = 0", lengths=lengths)
    assert not simplified(built, N=size).changes  # to compute it takes four nodes instead of two


def test_the_length_by_lengths_of_a_dynamic_axis_keeps_the_proof() -> None:
    built = model(
        "n = SequenceLength(s)",
        "int64 n",
        data="float[N] x",
        state="axis = 0",
        lengths="int64[2] split = {1, 3}",
    )
    found = simplified(built, bad=[{"N": 5}])
    assert operators(found.model) == ["Split"]


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("state", ["axis = 1", "axis = -1"])
@pytest.mark.parametrize("lengths", ["", "int64[3] split = {1, 2, 3}", "int32 split = {4}"])
def test_concatenated_again_is_the_data(opset: int, state: str, lengths: str) -> None:
    built = model(
        "y = ConcatFromSequence<axis = -1>(s)", "float[4, 6] y", state=state, lengths=lengths, opset=opset
    )
    assert operators(simplified(built).model) == ["Identity"]


@pytest.mark.parametrize("axis", [1, -2])
def test_squeezed_and_stacked_again_is_the_data(axis: int) -> None:
    built = model(
        f"y = ConcatFromSequence<axis = {axis}, new_axis = 1>(s)",
        "float[4, 6, 2] y",
        data="float[4, 6, 2] x",
        state="axis = 1, keepdims = 0",
    )
    assert operators(simplified(built).model) == ["Identity"]


@pytest.mark.parametrize(
    ("state", "reader", "shape"),
    [
        ("axis = 1, keepdims = 0", "ConcatFromSequence<axis = 0, new_axis = 1>(s)", "6, 4"),
        ("axis = 1, keepdims = 0", "ConcatFromSequence<axis = 0>(s)", "24"),
        ("axis = 1", "ConcatFromSequence<axis = 1, new_axis = 1>(s)", "4, 6, 1"),
    ],
)
def test_other_stackings_stay(state: str, reader: str, shape: str) -> None:
    assert not simplified(model(f"y = {reader}", f"float[{shape}] y", state=state)).changes


def test_a_sequence_that_is_read_as_a_position_stays() -> None:
    assert not simplify_with_report(model("y = SequenceAt(x, s)", "float[4, 1] y")).changes


def test_concatenated_on_an_axis_of_the_functions_caller_stays() -> None:
    text = """g (float[4, 6] x) => (float[4, 6] y) { y = own.f<a = 1>(x) }
        <domain: "own", opset_import: ["": 18]> f <a> (x) => (y) {
            s = SplitToSequence<axis = 1>(x) y = ConcatFromSequence<axis: int = @a>(s) }"""
    assert not simplified(parse(text)).changes


def test_concatenated_on_another_axis_is_a_split_and_a_concat() -> None:
    built = model("y = ConcatFromSequence<axis = 0>(s)", "float[8, 3] y", lengths="int64 split = {3}")
    assert operators(simplified(built).model) == ["Split", "Concat"]


def test_a_dynamic_axis_is_not_concatenated_as_it_may_have_no_elements() -> None:
    built = model("y = ConcatFromSequence<axis = 0>(s)", "float[M] y", data="float[N] x", state="axis = 0")
    assert not simplified(built, bad=[{"N": 0}]).changes


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize(("first", "second"), [(0, 5), (-1, 2), (-6, -1), (3, 3)])
def test_positions_of_single_elements(opset: int, keepdims: int, first: int, second: int) -> None:
    shape = "4, 1" if keepdims else "4"
    built = model(
        "y = SequenceAt(s, i) z = SequenceAt(s, j)",
        f"float[{shape}] y, float[{shape}] z",
        state=f"axis = 1, keepdims = {keepdims}",
        constants=f"int64 i = {{{first}}}, int32 j = {{{second}}}",
        opset=opset,
    )
    found = simplified(built)
    assert "SplitToSequence" not in operators(found.model)
    if not keepdims:
        assert operators(found.model) == ["Gather", "Gather"]


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("lengths", ["int64[3] split = {1, 2, 3}", "int32[3] split = {1, 2, 3}"])
def test_positions_of_parts(opset: int, lengths: str) -> None:
    built = model(
        "y = SequenceAt(s, i) z = SequenceAt(s, j)",
        "float[4, 3] y, float[4, 1] z",
        lengths=lengths,
        constants="int64 i = {-1}, int64 j = {0}",
        opset=opset,
    )
    assert operators(simplified(built).model)[0] == "Split"


@pytest.mark.parametrize("lengths", ["int64[3] split = {1, 2, 3}", "int64 split = {1}"])
def test_positions_that_follow_from_shapes(lengths: str) -> None:
    built = parse(
        f"""g (float[4, 6] x, float[1, 3] w) => (float[4, a] y) <{lengths}, int64 one = {{1}}> {{
            s = SplitToSequence<axis = 1>(x, split)
            shape = Shape<start = 1, end = 2>(w) size = Squeeze(shape) i = Sub(size, one)
            y = SequenceAt(s, i)
        }}""",
        18,
    )
    assert operators(simplified(built).model) == ["Slice"]


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("size", [3, 5])
def test_positions_of_a_dynamic_axis_fail_where_they_failed(keepdims: int, size: int) -> None:
    shape = "1, 2" if keepdims else "2"
    built = model(
        "y = SequenceAt(s, i) z = SequenceAt(s, j)",
        f"float[{shape}] y, float[{shape}] z",
        data="float[N, 2] x",
        state=f"axis = 0, keepdims = {keepdims}",
        constants="int64 i = {-1}, int64 j = {2}",
    )
    found = simplified(built, bad=[{"N": 2}, {"N": 0}], N=size)
    assert operators(found.model) == ["Gather", "Gather"]


def test_positions_by_lengths_of_a_dynamic_axis_keep_the_proof() -> None:
    built = model(
        "y = SequenceAt(s, i) n = SequenceLength(s)",
        "float[3] y, int64 n",
        data="float[N] x",
        state="axis = 0",
        lengths="int64[2] split = {1, 3}",
        constants="int64 i = {1}",
    )
    found = simplified(built, bad=[{"N": 5}])
    assert operators(found.model) == ["Split"]


def test_positions_of_chunks_of_a_dynamic_axis_stay() -> None:
    built = model(
        "y = SequenceAt(s, i)",
        "float[M] y",
        data="float[N] x",
        state="axis = 0",
        lengths="int64 split = {2}",
        constants="int64 i = {0}",
    )
    assert not simplified(built, bad=[{"N": 0}]).changes


def test_a_position_that_does_not_exist_stays() -> None:
    built = model("y = SequenceAt(s, i)", "float[4, 1] y", constants="int64 i = {6}")
    assert not simplified(built, bad=[{}]).changes


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize(("size", "position"), [(6, 5), (6, -6), (3, 0)])
@pytest.mark.parametrize("data", ["float[N, 2] x", "float[6, 2] x"])
def test_computed_positions_of_single_elements(keepdims: int, size: int, position: int, data: str) -> None:
    shape = "1, 2" if keepdims else "2"
    built = model(
        "y = SequenceAt(s, i)",
        f"float[{shape}] y",
        data=f"{data}, int64 i",
        state=f"axis = 0, keepdims = {keepdims}",
    )
    rows = size if "N" in data else 6
    array = np.arange(rows * 2, dtype=np.float32).reshape(rows, 2)
    found = simplified(built, feeds={"x": array, "i": np.array(position)})
    assert operators(found.model) == ["Reshape", "Gather"][1 - keepdims :]
    for outside in (rows, -rows - 1):
        assert_equal(built, found.model, {"x": array, "i": np.array(outside)})


def test_several_computed_positions_stay_where_that_is_more_nodes() -> None:
    readers = " ".join(f"y{index} = SequenceAt(s, i)" for index in range(2))
    outputs = ", ".join(f"float[1, 2] y{index}" for index in range(2))
    built = model(readers, outputs, data="float[6, 2] x, int64 i", state="axis = 0")
    assert not simplified(built, feeds={"x": np.ones((6, 2), np.float32), "i": np.array(3)}).changes


@pytest.mark.parametrize("data", ["float[4, 6] x, int64[1] i", "float[4, 6] x, int64[M] i"])
def test_a_computed_position_that_may_be_no_scalar_stays(data: str) -> None:
    built = model("y = SequenceAt(s, i)", "float[4, 1] y", data=data)
    assert not simplify_with_report(built).changes


def test_a_computed_position_of_longer_parts_stays() -> None:
    built = model(
        "y = SequenceAt(s, i)", "float[4, 2] y", data="float[4, 6] x, int64 i", lengths="int64 split = {2}"
    )
    feeds = {"x": np.ones((4, 6), np.float32), "i": np.array(2)}
    assert not simplified(built, feeds=feeds).changes


def test_an_overridable_position_is_read_when_the_model_runs() -> None:
    text = """g (float[4, 6] x, int64 i = {1}) => (float[4, 1] y) {
        s = SplitToSequence<axis = 1>(x) y = SequenceAt(s, i) }"""
    found = simplified(parse(text))
    assert operators(found.model) == ["Reshape", "Gather"]
    data = np.arange(24, dtype=np.float32).reshape(4, 6)
    assert_equal(parse(text), found.model, {"x": data, "i": np.array(-2)})


def test_positions_that_a_loop_counts() -> None:
    text = """g (float[N, 2] x) => (float[2] y) <int64 n = {3}, bool true = {1}, float[2] zero = {0, 0}> {
        s = SplitToSequence<axis = 0, keepdims = 0>(x)
        y = Loop(n, true, zero) <body = b (int64 i, bool c, float[2] sum) => (bool d, float[2] new) {
            d = Identity(c) row = SequenceAt(s, i) new = Add(sum, row) }> }"""
    found = simplified(parse(text), N=4, bad=[{"N": 2}])
    assert sorted(every_operator(found.model)) == ["Add", "Gather", "Identity", "Loop"]


def test_the_length_beside_readers_that_stay() -> None:
    built = model(
        "n = SequenceLength(s) t = SequenceInsert(s, w) y = SequenceAt(t, i)",
        "int64 n, float[4, 1] y",
        data="float[4, 6] x, float[4, 1] w",
        constants="int64 i = {6}",
    )
    found = simplified(built)
    assert operators(found.model) == ["SplitToSequence", "SequenceInsert", "SequenceAt"]


def test_a_sequence_that_is_an_output_stays() -> None:
    built = model("y = SequenceAt(s, i)", "seq(float[4, 1]) s, float[4, 1] y", constants="int64 i = {0}")
    assert not simplified(built).changes


def test_a_sequence_that_nobody_reads_goes() -> None:
    assert operators(simplified(model("y = Relu(x)", "float[4, 6] y")).model) == ["Relu"]


def test_a_sequence_that_nobody_reads_stays_where_it_could_fail() -> None:
    built = model(
        "y = Relu(x)", "float[N] y", data="float[N] x", state="axis = 0", lengths="int64[2] split = {1, 3}"
    )
    assert not simplified(built, bad=[{"N": 5}]).changes


def test_readers_in_a_subgraph() -> None:
    text = """g (float[4, 6] x, bool c) => (float[4, 2] y) <int64[3] split = {1, 2, 3}, int64 i = {1}> {
        s = SplitToSequence<axis = 1>(x, split)
        y = If(c) <then_branch = t () => (float[4, 2] p) { p = SequenceAt(s, i) },
                   else_branch = e () => (float[4, 2] q) { r = SequenceAt(s, i) q = Neg(r) }> }"""
    built = parse(text)
    found = simplified(built)
    assert "SplitToSequence" not in every_operator(found.model)


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4])
def test_the_length_of_a_sequence_that_is_put_together_is_computed(size: int) -> None:
    """Of chunks of two it takes four nodes, which are worth it where two readers give the data again."""
    text = """g (float[N] a, float[1] b) => (float[n] y, float[m] z, int64 k) <int64 two = {2}> {
        x = Concat<axis = 0>(a, b)
        s = SplitToSequence(x, two)
        joined = ConcatFromSequence<axis = 0>(s) y = Relu(joined)
        again = ConcatFromSequence<axis = 0>(s) z = Neg(again)
        k = SequenceLength(s) }"""
    found = simplified(parse(text), N=size)
    assert operators(found.model) == ["Concat", "Relu", "Neg", "Shape", "Gather", "Add", "Div"]
