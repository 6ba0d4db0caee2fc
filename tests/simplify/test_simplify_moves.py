"""Splits behind Reshapes and Transposes, and Reshapes and Transposes in a row."""

from __future__ import annotations

import math

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from simplify_helpers import assert_equal, assert_valid, operators, parse, simplified

from splitops.models.simplify import simplify_with_report
from splitops.models.simplify.factors import Factored, Permute, find_moves
from splitops.spec.sizes.dims import Range

MOVES = ["hoist-splits", "merge-reshapes"]


def packed(batch: str = "5", opset: int = 18) -> onnx.ModelProto:
    """Make a model of PyTorch's packed projection of attention, divided into three."""
    outputs = ", ".join(f"float[4, {batch}, 4] {name}" for name in "qkv")
    front, back = ("<axes = [0]>(r)", "<axes = [3]>(t)") if opset < 13 else ("(r, front)", "(t, back)")
    return parse(
        f"""g (float[4, {batch}, 12] x) => ({outputs})
        <int64[4] shape = {{4, {-1 if batch == "N" else batch}, 3, 4}}, int64 a = {{0}}, int64 b = {{1}},
         int64 c = {{-1}}, int64[1] front = {{0}}, int64[1] back = {{3}}> {{
        n = Neg(x) r = Reshape(n, shape) u = Unsqueeze{front}
        t = Transpose<perm = [3, 1, 2, 0, 4]>(u) s = Squeeze{back}
        v0 = Gather(s, c) q0 = Gather(s, a) k0 = Gather(s, b) q = Relu(q0) k = Relu(k0) v = Relu(v0) }}""",
        opset,
    )


@pytest.mark.parametrize("opset", [11, 13, 18])
@pytest.mark.parametrize("batch", ["5", "N"])
def test_a_packed_projection_is_one_split(opset: int, batch: str) -> None:
    found = simplified(packed(batch, opset), MOVES, N=3)
    assert operators(found.model) == ["Neg", "Split", "Relu", "Relu", "Relu"]
    assert found.counts["hoist-splits"] == 1


def test_a_packed_projection_that_something_else_reads_stays() -> None:
    model = packed()
    model.graph.node.append(helper.make_node("Abs", ["s"], ["w"]))
    model.graph.output.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [3, 4, 5, 4]))
    assert not simplified(model, ["hoist-splits"]).changes


def test_a_packed_projection_of_which_a_part_is_not_read_stays() -> None:
    model = packed()
    del model.graph.node[5]
    del model.graph.node[-1], model.graph.output[-1]
    assert not simplify_with_report(model, ["hoist-splits"]).changes


def test_a_split_of_what_is_no_axis_in_front_stays() -> None:
    text = """g (float[5, 24] x) => (float[2, 5, 6] a, float[2, 6, 5] b) <int64[3] shape = {5, 2, 12}> {
        n = Neg(x) r = Reshape(n, shape) t = Transpose<perm = [1, 0, 2]>(r)
        p, q = Split<axis = 2, num_outputs = 2>(t)
        a = Relu(p) u = Transpose<perm = [0, 2, 1]>(q) b = Relu(u) }"""
    assert not simplified(parse(text), MOVES).changes


@pytest.mark.parametrize(
    ("nodes", "outputs"),
    [
        ("r = Reshape(x, whole) p, q = Split(r, none) a = Neg(p) b = Neg(q)", "float[0, 6] a, float[4, 6] b"),
        (
            "u = Reshape(x, k) r = Reshape(u, whole) p, q = Split(r, half) a = Neg(p) b = Neg(q)",
            "float[2, 6] a, float[2, 6] b",
        ),
        (
            "r = Reshape(x, whole) t = Transpose(r) p, q = Split(t, third) a = Neg(p) b = Neg(q) c = Neg(r)",
            "float[2, 4] a, float[4, 4] b, float[4, 6] c",
        ),
        (
            "r = Reshape(x, whole) a = Gather(r, i0) b = Gather(r, i1) c = Gather(r, i2) d = Neg(r)",
            "float[6] a, float[6] b, float[6] c, float[4, 6] d",
        ),
        (
            "r = Reshape(x, whole) a = Gather(r, i0) b = Gather(r, i1) c = Gather(r, i2)"
            " d = Gather<axis = 1>(r, i2)",
            "float[6] a, float[6] b, float[6] c, float[4] d",
        ),
    ],
    ids=["an empty part", "no rank in front", "read between", "another reader", "another axis"],
)
def test_other_splits_behind_moves_stay(nodes: str, outputs: str) -> None:
    text = f"""g (float[24] x, int64[M] k) => ({outputs})
        <int64[2] whole = {{4, 6}}, int64[2] none = {{0, 4}}, int64[2] half = {{2, 2}},
         int64[2] third = {{2, 4}}, int64 i0 = {{0}}, int64 i1 = {{1}}, int64 i2 = {{2}}> {{ {nodes} }}"""
    feeds = {"x": np.arange(24, dtype=np.float32), "k": np.array([2, 12])}
    assert not simplified(parse(text), MOVES, feeds=feeds).changes


def test_what_moves_the_whole_and_a_part_moves_it_once() -> None:
    text = """g (float[5, 24] x) => (float[5, 12] a, float[12, 5] b)
        <int64[3] shape = {5, 2, 12}, int64[1] o = {0}> {
        n = Neg(x) r = Reshape(n, shape) t = Transpose<perm = [1, 0, 2]>(r) p, q = Split<num_outputs = 2>(t)
        p0 = Squeeze(p, o) a = Relu(p0)
        q0 = Squeeze(q, o) q1 = Transpose<perm = [1, 0]>(q0) b = Relu(q1) }"""
    made = operators(simplified(parse(text), MOVES).model)
    assert sorted(made) == ["Neg", "Relu", "Relu", "Split", "Transpose"]


@pytest.mark.parametrize(
    ("lengths", "front"), [([2, 4], [8, 16]), ([1, 2, 3], [4, 8, 12]), ([3, 3], [12, 12]), ([4, 2], [16, 8])]
)
def test_lengths_are_of_the_axis_in_front(lengths: list[int], front: list[int]) -> None:
    parts, count = range(len(lengths)), len(lengths)
    declared = ", ".join(f"float[5, {size}, 4] y{part}" for part, size in zip(parts, lengths, strict=True))
    text = f"""g (float[5, 24] x) => ({declared})
        <int64[3] shape = {{5, 6, 4}}, int64[{count}] split = {{{", ".join(map(str, lengths))}}}> {{
        r = Reshape(x, shape) t = Transpose<perm = [1, 0, 2]>(r)
        {", ".join(f"p{part}" for part in parts)} = Split<axis = 0>(t, split)
        {" ".join(f"y{part} = Transpose<perm = [1, 0, 2]>(p{part})" for part in parts)} }}"""
    model = simplified(parse(text), ["hoist-splits"]).model
    assert operators(model) == ["Split", *["Reshape"] * count]
    split = model.graph.node[0]
    lengths_now = next((t for t in model.graph.initializer if t.name in split.input), None)
    made = [24 // count] * count if lengths_now is None else numpy_helper.to_array(lengths_now).tolist()
    assert made == front


@pytest.mark.parametrize(
    "nodes",
    [
        "p = Transpose<perm = [1, 0, 2]>(x) q = Transpose<perm = [1, 0, 2]>(p)",
        "p = Reshape(x, flat) q = Reshape(p, whole)",
        "p = Flatten<axis = 0>(x) r = Unsqueeze(p, one) q = Reshape(r, whole)",
    ],
)
def test_moves_that_undo_each_other_go(nodes: str) -> None:
    text = f"""g (float[2, 3, 4] x) => (float[2, 3, 4] y)
        <int64[1] flat = {{-1}}, int64[3] whole = {{2, 3, 4}}, int64[1] one = {{1}}> {{
        {nodes} y = Neg(q) }}"""
    assert operators(simplified(parse(text), MOVES).model) == ["Neg"]


@pytest.mark.parametrize(
    ("nodes", "shape", "left"),
    [
        ("p = Reshape(x, a) t = Transpose<perm = [1, 0, 2]>(p) y = Reshape(t, b)", "4, 2, 3", ["Transpose"]),
        (
            "p = Reshape(x, a) t = Transpose<perm = [1, 0, 2]>(p) q = Reshape(t, b)"
            " y = Transpose<perm = [1, 2, 0]>(q)",
            "2, 3, 4",
            ["Identity"],
        ),
        (
            "p = Unsqueeze(x, c) t = Transpose<perm = [3, 0, 1, 2]>(p) y = Squeeze(t, d)",
            "4, 2, 3",
            ["Transpose"],
        ),
    ],
)
def test_moves_in_a_row_are_fewer(nodes: str, shape: str, left: list[str]) -> None:
    text = f"""g (float[2, 3, 4] x) => (float[{shape}] y)
        <int64[3] a = {{6, 4, 1}}, int64[3] b = {{4, 2, 3}}, int64[1] c = {{0}}, int64[1] d = {{1}}> {{
        {nodes} }}"""
    assert operators(simplified(parse(text), MOVES).model) == left


@pytest.mark.parametrize("size", [0, 1, 3])
def test_moves_of_an_axis_of_a_named_size(size: int) -> None:
    text = """g (float[N, 6] x) => (float[2, 3, N] y)
        <int64[3] a = {-1, 2, 3}, int64[3] p = {0, 6, 1}, int64[2] q = {0, 6}> {
        r = Reshape(x, p) s = Reshape(r, q) t = Reshape(s, a) y = Transpose<perm = [1, 2, 0]>(t) }"""
    found = simplified(parse(text), MOVES, N=size)
    assert operators(found.model) == ["Reshape", "Transpose"]


def test_a_reshape_that_could_fail_stays() -> None:
    text = """g (float[N, 6] x) => (float[P, 4] z) <int64[2] a = {-1, 4}, int64[2] b = {0, 4}> {
        p = Reshape(x, a) q = Reshape(p, b) z = Neg(q) }"""
    assert "Reshape" in operators(simplified(parse(text), MOVES, bad=[{"N": 3}], N=4).model)


def test_a_reshape_that_only_one_size_allows_stays() -> None:
    text = "g (float[4, N] x) => (float[4] y) <int64[1] a = {4}> { r = Reshape(x, a) y = Neg(r) }"
    assert not simplified(parse(text), MOVES, bad=[{"N": 2}], N=1).changes


def test_reshapes_by_attributes_in_a_row_are_fewer() -> None:
    model = parse(
        """g (float[4, 6] x) => (float[A, B] y) {
            r = Reshape<shape = [24]>(x) s = Reshape<shape = [2, 12]>(r) y = Neg(s) }""",
        4,
    )
    found = simplified(model).model
    assert operators(found) == ["Reshape", "Neg"]
    assert list(found.graph.node[0].attribute[0].ints) == [2, 12]


def test_a_reshape_by_an_input_stays() -> None:
    text = """g (float[2, 3] x, int64[2] s) => (float[2, 3] y) <int64[2] a = {2, 3}> {
        p = Reshape(x, s) y = Reshape(p, a) }"""
    feeds = {"x": np.zeros((2, 3), np.float32), "s": np.array([3, 2])}
    assert not simplified(parse(text), MOVES, feeds=feeds).changes


def test_moves_that_others_read_stay() -> None:
    text = """g (float[2, 3] x) => (float[2, 3] y, float[3, 2] z) {
        p = Transpose<perm = [1, 0]>(x) y = Transpose<perm = [1, 0]>(p) z = Neg(p) }"""
    assert not simplified(parse(text), MOVES).changes


@pytest.mark.parametrize("depth", [40])
def test_a_long_row_of_moves(depth: int) -> None:
    rows = " ".join(f"p{index + 1} = Transpose<perm = [1, 2, 0]>(p{index})" for index in range(depth))
    text = f"g (float[2, 3, 4] x) => (float[A, B, C] y) {{ p0 = Neg(x) {rows} y = Relu(p{depth}) }}"
    assert operators(simplified(parse(text), MOVES).model) == ["Neg", "Transpose", "Relu"]


# The arithmetic, against NumPy


@st.composite
def rows(draw: st.DrawFn) -> tuple[tuple[int, ...], list[list[int]]]:
    """Draw a shape, and Reshapes (as shapes) and Transposes (as orders) that fit one another."""
    shape = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=4)))
    steps: list[list[int]] = []
    now = list(shape)
    for _ in range(draw(st.integers(1, 5))):
        if now and draw(st.booleans()):
            order = draw(st.permutations(range(len(now))))
            now = [now[axis] for axis in order]
            steps.append(["permute", *order])  # type: ignore[list-item]
        else:
            left, now = math.prod(now), []
            while left > 1 and len(now) < 4:
                now.append(draw(st.sampled_from([size for size in (1, 2, 3, 4, 6, 12) if left % size == 0])))
                left //= now[-1]
            now += [left] if left > 1 or draw(st.booleans()) else []
            steps.append(["regroup", *now])  # type: ignore[list-item]
    return shape, steps


@settings(max_examples=80)
@given(rows())
def test_fewer_moves_move_the_same(drawn: tuple[tuple[int, ...], list[list[int]]]) -> None:
    shape, steps = drawn
    data = np.arange(math.prod(shape)).reshape(shape)
    expected, factored = data, Factored(shape)
    for kind, *numbers in steps:
        if kind == "permute":
            expected = expected.transpose(numbers)
            assert factored.permute(numbers)
        elif factored.reshape(tuple(numbers)):
            expected = expected.reshape(numbers)
        else:
            break
    fewer = find_moves(factored.source, factored.axes)
    assert fewer is not None
    assert len(fewer) <= 3
    found = data
    for move in fewer:
        found = found.transpose(move.order) if isinstance(move, Permute) else found.reshape(move.pattern)
        assert isinstance(move, Permute) or found.shape == move.shape
    assert found.shape == expected.shape
    assert (found == expected).all()


def test_no_pattern_says_two_sizes_that_are_not_known() -> None:
    factored = Factored((Range(name="N"), 6, Range(name="M")))
    assert factored.permute([2, 1, 0])
    assert factored.reshape((Range(name="M"), 2, 3, Range(name="N")))
    assert find_moves(factored.source, factored.axes) is None
    factored = Factored((Range(name="N"), 0))
    assert factored.permute([1, 0])
    assert not factored.reshape((0, 1, Range(name="N")))


@st.composite
def models(draw: st.DrawFn) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Draw a model of moves, a split behind them, and moves behind the parts."""
    shape, steps = draw(rows())
    nodes, constants = [helper.make_node("Neg", ["x"], ["v0"])], []
    data = np.zeros(shape)

    def step(value: str, array: np.ndarray, kind: object, numbers: list[int]) -> tuple[str, np.ndarray]:
        made = f"v{len(nodes)}"
        if kind == "permute":
            nodes.append(helper.make_node("Transpose", [value], [made], perm=numbers))
            return made, array.transpose(numbers)
        constants.append(numpy_helper.from_array(np.array(numbers, np.int64), f"c{made}"))
        nodes.append(helper.make_node("Reshape", [value, f"c{made}"], [made]))
        return made, array.reshape(numbers)

    value = "v0"
    for kind, *numbers in steps:
        value, data = step(value, data, kind, numbers)
    ends: list[tuple[str, np.ndarray]] = []
    axes = [axis for axis, size in enumerate(data.shape) if size > 1]
    if axes:
        axis = draw(st.sampled_from(axes))
        size = data.shape[axis]
        if draw(st.booleans()):
            for at in draw(st.permutations(range(size))):
                constants.append(numpy_helper.from_array(np.array(at, np.int64), f"at{at}"))
                nodes.append(helper.make_node("Gather", [value, f"at{at}"], [f"p{at}"], axis=axis))
                ends.append((f"p{at}", data.take(at, axis)))
        else:
            first = draw(st.integers(1, size - 1))
            constants.append(numpy_helper.from_array(np.array([first, size - first], np.int64), "lengths"))
            nodes.append(helper.make_node("Split", [value, "lengths"], ["p0", "p1"], axis=axis))
            ends += zip(("p0", "p1"), np.split(data, [first], axis), strict=True)
    ends = ends or [(value, data)]
    outputs = []
    for index, (end, array) in enumerate(ends):
        for _ in range(draw(st.integers(0, 2))):
            if draw(st.booleans()):
                end, array = step(end, array, "regroup", [*array.shape[::-1], 1])
            elif array.ndim:
                end, array = step(end, array, "permute", draw(st.permutations(range(array.ndim))))
        nodes.append(helper.make_node("Relu", [end], [f"y{index}"]))
        outputs.append(helper.make_tensor_value_info(f"y{index}", TensorProto.FLOAT, array.shape))
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    graph = helper.make_graph(nodes, "random", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return model, {"x": -np.arange(math.prod(shape), dtype=np.float32).reshape(shape)}


@settings(max_examples=40)
@given(models(), st.booleans())
def test_random_models_give_the_same(
    drawn: tuple[onnx.ModelProto, dict[str, np.ndarray]], every: bool
) -> None:
    model, feeds = drawn
    found = simplify_with_report(model, None if every else MOVES)
    assert_valid(model, found.model)
    assert_equal(model, found.model, feeds)
    assert found.nodes_after <= found.nodes_before
    assert not simplify_with_report(found.model, None if every else MOVES).changes
