"""Slices and Gathers that together are a Split."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto
from simplify_helpers import operators, parse, simplified

from splitops.models.simplify import simplify_with_report

END = 9223372036854775807


def slices(
    bounds: list[tuple[int, int]],
    *,
    data: str = "float[4, 6] x",
    axis: int = 1,
    opset: int = 18,
    step: int = 1,
) -> ModelProto:
    """Make a model of Slices with negation behind each."""
    constants, nodes, outputs = [f"int64[1] ax = {{{axis}}}", f"int64[1] st = {{{step}}}"], [], []
    for index, (begin, end) in enumerate(bounds):
        if opset < 10:
            nodes.append(f"a{index} = Slice<axes = [{axis}], starts = [{begin}], ends = [{end}]>(x)")
        else:
            constants += [f"int64[1] b{index} = {{{begin}}}", f"int64[1] e{index} = {{{end}}}"]
            nodes.append(f"a{index} = Slice(x, b{index}, e{index}, ax, st)")
        nodes.append(f"y{index} = Neg(a{index})")
        outputs.append(f"float[A{index}, B{index}] y{index}")
    initializers = f"<{', '.join(constants)}>" if opset >= 10 else ""
    return parse(f"g ({data}) => ({', '.join(outputs)}) {initializers} {{ {' '.join(nodes)} }}", opset)


@pytest.mark.parametrize("opset", [2, 9, 10, 11, 13, 18])
@pytest.mark.parametrize(
    "bounds",
    [
        [(0, 2), (2, 4), (4, 6)],
        [(4, END), (0, 2), (2, -2)],
        [(-6, 1), (1, 100)],
        [(0, 3), (0, 3), (3, 6)],
    ],
)
def test_slices_of_a_whole_axis(opset: int, bounds: list[tuple[int, int]]) -> None:
    found = simplified(slices(bounds, opset=opset))
    assert operators(found.model) == ["Split"] + ["Neg"] * len(bounds)
    assert found.counts == {"replace-slices": 1}


def test_a_slice_that_overlaps_the_parts_stays() -> None:
    found = simplified(slices([(0, 3), (3, 6), (1, 4)]))
    assert sorted(operators(found.model)) == ["Neg", "Neg", "Neg", "Slice", "Split"]


@pytest.mark.parametrize(
    "bounds",
    [[(0, 2), (3, 6)], [(0, 3), (2, 6)], [(0, 2), (2, 5)], [(0, 0), (0, 5)], [(1, 3), (3, 6)]],
)
def test_slices_that_do_not_cover_the_axis_stay(bounds: list[tuple[int, int]]) -> None:
    assert not simplified(slices(bounds)).changes


def test_slices_of_a_dynamic_axis_stay() -> None:
    assert not simplified(slices([(0, 3), (3, 6)], data="float[4, N] x"), N=7).changes


def test_slices_of_spans_in_steps_stay() -> None:
    assert not simplified(slices([(0, 3), (3, 6)], step=2)).changes


def test_slices_stay_where_split_does_not_take_the_type() -> None:
    text = """g (int32[6] x) => (int32[3] y, int32[3] z) {
        y = Slice<axes = [0], starts = [0], ends = [3]>(x)
        z = Slice<axes = [0], starts = [3], ends = [6]>(x) }"""
    assert not simplified(parse(text, 1)).changes
    assert operators(simplified(parse(text, 2)).model) == ["Split"]


def test_slices_of_two_axes_stay() -> None:
    text = """g (float[6, 6] x) => (float[3, 3] y, float[3, 3] z)
        <int64[2] a = {0, 0}, int64[2] b = {3, 3}, int64[2] c = {6, 6}, int64[2] ax = {0, 1}> {
        y = Slice(x, a, b, ax) z = Slice(x, b, c, ax) }"""
    assert not simplified(parse(text)).changes


def test_slices_with_bounds_that_are_inputs_stay() -> None:
    text = """g (float[6] x, int64[1] m) => (float[A] y, float[B] z) <int64[1] a = {0}, int64[1] c = {6}> {
        y = Slice(x, a, m) z = Slice(x, m, c) }"""
    import numpy as np

    feeds = {"x": np.arange(6, dtype=np.float32), "m": np.array([2])}
    assert not simplified(parse(text), feeds=feeds).changes


def test_slices_in_different_graphs_stay() -> None:
    text = """g (float[6] x, bool c) => (float[3] y, float[3] z)
        <int64[1] a = {0}, int64[1] b = {3}, int64[1] d = {6}> {
        y = Slice(x, a, b)
        z = If(c) <then_branch = t () => (float[3] p) { p = Slice(x, b, d) },
                   else_branch = e () => (float[3] q) { q = Slice(x, b, d) }> }"""
    assert not simplified(parse(text)).changes


def test_the_split_stands_before_every_reader() -> None:
    text = """g (float[6] x) => (float[3] v, float[3] z)
        <int64[1] a = {0}, int64[1] b = {3}, int64[1] c = {6}> {
        r = Relu(x) late = Slice(r, b, c) v = Neg(late) early = Slice(r, a, b) z = Neg(early) }"""
    found = simplified(parse(text))
    assert operators(found.model) == ["Relu", "Split", "Neg", "Neg"]


# Slices of whole axes


def one_slice(
    data: str,
    output: str,
    starts: list[int],
    ends: list[int],
    axes: list[int],
    steps: list[int] | None = None,
) -> ModelProto:
    """Make a model of one Slice between two other nodes."""
    count = len(starts)
    numbers = {"s": starts, "e": ends, "a": axes, "t": steps or [1] * count}
    constants = ", ".join(
        f"int64[{count}] {name} = {{{', '.join(map(str, listed))}}}" for name, listed in numbers.items()
    )
    return parse(
        f"g ({data} x) => ({output} y) <{constants}> {{ r = Relu(x) p = Slice(r, s, e, a, t) y = Neg(p) }}"
    )


@pytest.mark.parametrize(
    ("starts", "ends", "axes", "steps"),
    [
        ([0], [6], [1], [1]),
        ([-9], [END], [-1], [1]),
        ([0, 0], [4, 9], [0, 1], [1, 1]),
        ([0, -6], [END, 6], [-2, -1], [1, 1]),
    ],
)
def test_a_slice_of_whole_axes_is_its_data(
    starts: list[int], ends: list[int], axes: list[int], steps: list[int]
) -> None:
    found = simplified(one_slice("float[4, 6]", "float[4, 6]", starts, ends, axes, steps))
    assert operators(found.model) == ["Relu", "Neg"]
    assert found.counts == {"remove-whole-slice": 1}


@pytest.mark.parametrize("opset", [1, 9])
def test_a_slice_by_attributes_of_a_whole_axis_is_its_data(opset: int) -> None:
    text = "g (float[4, 6] x) => (float[4, 6] y) { p = Slice<axes=[1], starts=[0], ends=[9]>(x) y = Relu(p) }"
    assert operators(simplified(parse(text, opset)).model) == ["Relu"]


def test_a_slice_of_a_whole_axis_of_one_position_in_any_step() -> None:
    built = one_slice("float[1, 6]", "float[1, 6]", [0], [-9], [0], [-1])
    assert operators(simplified(built).model) == ["Relu", "Neg"]


@pytest.mark.parametrize("size", [0, 1, 7])
def test_a_slice_to_the_end_of_any_axis_is_its_data(size: int) -> None:
    built = one_slice("float[N, 6]", "float[M, 6]", [0], [END], [0])
    assert operators(simplified(built, N=size).model) == ["Relu", "Neg"]


@pytest.mark.parametrize(
    ("starts", "ends", "steps"), [([0], [7], [1]), ([0], [END], [2]), ([0], [-1], [1]), ([-7], [END], [1])]
)
def test_a_slice_that_some_sizes_are_cut_by_stays(
    starts: list[int], ends: list[int], steps: list[int]
) -> None:
    assert not simplified(one_slice("float[N, 6]", "float[M, 6]", starts, ends, [0], steps), N=7).changes
    assert not simplified(one_slice("float[N, 6]", "float[M, 6]", starts, ends, [0], steps), N=8).changes


def test_a_slice_that_turns_an_axis_round_stays() -> None:
    built = one_slice("float[4, 6]", "float[4, 6]", [-1], [-9], [1], [-1])
    assert not simplified(built).changes


def test_a_slice_back_from_before_the_first_position_takes_this() -> None:
    """So it holds one position, of which a Slice that takes none is not whole once Slices are merged."""
    built = parse(
        """g (float[4, 4] x) => (float[?, ?] half, float[?, ?] y) <
             int64[1] two = {2}, int64[1] four = {4}, int64[1] axis = {1}, int64[1] none = {0},
             int64 first = {0}, int64[1] start = {-3}, int64[1] end = {-99}, int64[1] back = {-1}> {
             top, bottom = Split<axis = -2, num_outputs = 2>(x)
             half = Slice(top, two, four, axis)
             last = Slice(half, start, end, axis, back)
             p, q = Split<axis = 0, num_outputs = 2>(last)
             parts = SplitToSequence<axis = 0, keepdims = 0>(q)
             unread = SequenceAt(parts, first)
             y = Slice(q, none, none, axis) }""",
        18,
    )
    simplified(built)


def test_a_slice_of_an_axis_that_is_not_there_stays() -> None:
    text = """g (float[4] x) => (y) <int64[1] s = {0}, int64[1] e = {9}, int64[1] a = {1}> {
        y = Slice(x, s, e, a) }"""
    model = parse(text)

    assert not simplify_with_report(model).changes


def test_constants_that_many_slices_share_go_with_the_last_one() -> None:
    rows = " ".join(f"p{index} = Neg(v{index}) v{index + 1} = Slice(p{index}, s, e, s)" for index in range(9))
    text = f"""g (float[N] x) => (float[N] y) <int64[1] s = {{0}}, int64[1] e = {{{END}}}> {{
        v0 = Abs(x) {rows} y = Relu(v9) }}"""
    found = simplified(parse(text)).model
    assert operators(found) == ["Abs", *["Neg"] * 9, "Relu"]
    assert not found.graph.initializer
    text = text.replace("y = Relu(v9)", "z = Gather(v9, s) y = Relu(z)").replace("float[N] y", "float[1] y")
    assert [tensor.name for tensor in simplified(parse(text)).model.graph.initializer] == ["s"]


# Slices of Slices


def test_a_slice_of_a_slice_on_another_axis_is_one() -> None:
    text = """g (float[4, 6] x) => (float[2, 3] y)
        <int64[1] s = {1}, int64[1] e = {3}, int64[1] f = {9}, int64[1] a = {0}, int64[1] b = {1},
         int64[1] t = {2}> {
        p = Slice(x, s, e, a) q = Slice(p, s, f, b, t) y = Neg(q) }"""
    found = simplified(parse(text))
    assert operators(found.model) == ["Slice", "Neg"]
    assert found.counts == {"merge-slices": 1}


@pytest.mark.parametrize("size", [0, 2, 3, 9])
def test_slices_of_dynamic_axes_merge(size: int) -> None:
    text = """g (float[N, M] x) => (float[P, Q] y)
        <int64[1] s = {1}, int64[1] e = {-1}, int64[1] a = {0}, int64[1] b = {1}, int64[1] t = {-2}> {
        p = Slice(x, s, e, a) y = Slice(p, e, s, b, t) }"""
    assert operators(simplified(parse(text), N=size, M=5).model) == ["Slice"]


@pytest.mark.parametrize("inner", [(0, 5, 2), (1, 9, 1), (-4, -1, 1), (5, 0, -1), (3, 1, 1)])
@pytest.mark.parametrize("outer", [(0, 2, 1), (1, 9, 2), (-2, 9, 1), (9, -9, -1)])
def test_slices_of_the_same_axis_merge_where_one_can_say_both(
    inner: tuple[int, int, int], outer: tuple[int, int, int]
) -> None:
    names = ", ".join(
        f"int64[1] {name} = {{{number}}}" for name, number in zip("bcdefg", (*inner, *outer), strict=True)
    )
    text = f"""g (float[6, 4] x) => (float[P, 4] y) <{names}, int64[1] a = {{0}}> {{
        p = Slice(x, b, c, a, d) y = Slice(p, e, f, a, g) }}"""
    backwards = inner[2] * outer[2] < 0
    found = simplified(parse(text), ["merge-slices"])
    assert operators(found.model) == ["Slice"] * (2 if backwards else 1)


@pytest.mark.parametrize("size", [0, 1, 3, 4, 9])
@pytest.mark.parametrize(("end", "merges"), [(4, True), (END, True), (-1, False)])
def test_slices_of_the_same_dynamic_axis(size: int, end: int, merges: bool) -> None:
    text = f"""g (float[N] x) => (float[P] y)
        <int64[1] s = {{1}}, int64[1] e = {{4}}, int64[1] f = {{{end}}}, int64[1] a = {{0}}> {{
        p = Slice(x, s, f, a) y = Slice(p, s, e, a) }}"""
    assert operators(simplified(parse(text), N=size).model) == ["Slice"] * (1 if merges else 2)


def test_a_slice_that_several_slices_read() -> None:
    text = """g (float[4, 6] x) => (float[2, 3] y, float[2, 2] z)
        <int64[1] s = {0}, int64[1] m = {3}, int64[1] e = {9}, int64[1] a = {0}, int64[1] b = {1},
         int64[1] f = {2}> {
        p = Slice(x, s, f, a) y = Slice(p, s, m, b) q = Slice(p, f, e, b, f) z = Neg(q) }"""
    found = simplified(parse(text))
    assert operators(found.model) == ["Slice", "Slice", "Neg"]


def test_a_slice_that_others_read_stays() -> None:
    text = """g (float[4, 6] x) => (float[2, 3] y, float[2, 6] z)
        <int64[1] s = {0}, int64[1] m = {3}, int64[1] a = {0}, int64[1] b = {1}, int64[1] f = {2}> {
        p = Slice(x, s, f, a) y = Slice(p, s, m, b) z = Neg(p) }"""
    assert not simplified(parse(text)).changes


def test_a_slice_that_a_slice_reads_as_its_bounds_or_by_unknown_ones_stays() -> None:
    text = """g (int64[1] k, int64[6] x) => (int64[n] y, int64[m] z)
        <int64[1] s = {0}, int64[1] e = {1}, int64[1] f = {4}> {
        p = Slice(k, s, e) y = Slice(x, p, f) q = Slice(x, s, f) z = Slice(q, k, f) }"""
    model = parse(text)
    feeds = {"k": np.array([2]), "x": np.arange(6)}
    assert not simplified(model, ["merge-slices"], feeds=feeds).changes


def test_a_slice_that_is_an_output_or_read_in_a_subgraph_stays() -> None:
    constants = (
        """<int64[1] s = {0}, int64[1] m = {3}, int64[1] a = {0}, int64[1] b = {1}, int64[1] f = {2}>"""
    )
    output = f"""g (float[4, 6] x) => (float[2, 3] y, float[2, 6] p) {constants} {{
        p = Slice(x, s, f, a) y = Slice(p, s, m, b) }}"""
    assert not simplified(parse(output)).changes
    subgraph = f"""g (float[4, 6] x, bool c) => (float[2, 3] y) {constants} {{
        p = Slice(x, s, f, a)
        y = If(c) <then_branch = t () => (float[2, 3] q) {{ q = Slice(p, s, m, b) }},
                   else_branch = e () => (float[2, 3] r) {{ r = Slice(p, s, m, b) }}> }}"""
    assert not simplified(parse(subgraph)).changes


def test_the_focus_of_a_detector_is_four_slices() -> None:
    cuts, nodes = [], []
    for index, (row, column) in enumerate([(0, 0), (1, 0), (0, 1), (1, 1)]):
        nodes.append(f"p{index} = Slice(x, i{row}, e, h, t) q{index} = Slice(p{index}, i{column}, e, w, t)")
        cuts.append(f"q{index}")
    text = f"""g (float[1, 3, 8, 8] x) => (float[1, 12, 4, 4] y)
        <int64[1] i0 = {{0}}, int64[1] i1 = {{1}}, int64[1] e = {{{END}}}, int64[1] h = {{2}},
         int64[1] w = {{3}}, int64[1] t = {{2}}> {{
        {" ".join(nodes)} y = Concat<axis = 1>({", ".join(cuts)}) }}"""
    found = simplified(parse(text))
    assert operators(found.model) == ["Slice"] * 4 + ["Concat"]


# Slices in steps


def strided(
    starts: list[int], step: int, *, data: str = "float[4, 6]", axis: int = 1, opset: int = 18
) -> ModelProto:
    """Make a model of Slices in steps with a negation behind each."""
    names = ", ".join(f"int64[1] s{index} = {{{start}}}" for index, start in enumerate(starts))
    nodes = " ".join(
        f"p{index} = Slice(x, s{index}, e, a, t) y{index} = Neg(p{index})" for index in range(len(starts))
    )
    sizes = [
        ", ".join(f"{letter}{index}" for letter in "ABC"[: data.count(",") + 1])
        for index in range(len(starts))
    ]
    outputs = ", ".join(f"float[{found}] y{index}" for index, found in enumerate(sizes))
    return parse(
        f"""g ({data} x) => ({outputs})
        <{names}, int64[1] e = {{{END}}}, int64[1] a = {{{axis}}}, int64[1] t = {{{step}}}> {{ {nodes} }}""",
        opset,
    )


@pytest.mark.parametrize("opset", [10, 11, 13, 18])
@pytest.mark.parametrize(("starts", "step"), [([0, 1], 2), ([1, 0], 2), ([2, 0, 1], 3), ([0, -5], 2)])
def test_slices_in_steps_are_a_split(opset: int, starts: list[int], step: int) -> None:
    found = simplified(strided(starts, step, opset=opset))
    made = operators(found.model)
    assert sorted(made) == sorted(["Reshape", "Split", *["Squeeze", "Neg"] * step])
    assert found.counts == {"replace-strided-slices": 1}


@pytest.mark.parametrize("size", [0, 1, 3])
def test_slices_in_steps_behind_dynamic_axes(size: int) -> None:
    found = simplified(strided([0, 1], 2, data="float[N, M, 6]", axis=2), N=size, M=2)
    assert "Split" in operators(found.model)


@pytest.mark.parametrize("size", [1, 3])
def test_slices_in_steps_in_front_of_known_axes(size: int) -> None:
    found = simplified(strided([0, 1], 2, data="float[N, 6, 5]", axis=1), N=size)
    assert "Split" in operators(found.model)


@pytest.mark.parametrize(
    ("starts", "step", "data", "axis"),
    [
        ([0, 1], 2, "float[4, 5]", 1),  # does not divide
        ([0, 1], 3, "float[4, 6]", 1),  # one is missing
        ([0, 0], 2, "float[4, 6]", 1),  # one is there twice
        ([0, 1], 2, "float[4, N]", 1),  # an unknown size
        ([0, 1], 2, "float[6, N]", 0),  # behind it, an unknown size
        ([0, 1], 2, "float[6, 0]", 0),  # behind it, none
    ],
)
def test_other_slices_in_steps_stay(starts: list[int], step: int, data: str, axis: int) -> None:
    assert not simplified(strided(starts, step, data=data, axis=axis), N=6).changes


# Gathers


@pytest.mark.parametrize("opset", [2, 11, 13, 18])
def test_gathers_of_neighbours_over_a_whole_axis(opset: int) -> None:
    text = """g (float[4, 6] x) => (float[4, 2] y, float[4, 2] z, float[4, 2] w)
        <int64[2] a = {0, 1}, int32[2] b = {2, 3}, int64[2] c = {4, 5}> {
        y = Gather<axis = 1>(x, a) z = Gather<axis = 1>(x, b) w = Gather<axis = 1>(x, c) }"""
    assert operators(simplified(parse(text, opset)).model) == ["Split"]


def test_gathers_of_negative_positions() -> None:
    text = """g (float[6] x) => (float[3] y, float[3] z) <int64[3] a = {0, 1, 2}, int64[3] b = {-3, -2, -1}> {
        y = Gather(x, a) z = Gather<axis = -1>(x, b) }"""
    assert operators(simplified(parse(text)).model) == ["Split"]


@pytest.mark.parametrize("second", ["{5, 4, 3}", "{3, 4, 4}", "{2, 3, 4}"])
def test_gathers_of_other_positions_stay(second: str) -> None:
    text = f"""g (float[6] x) => (float[3] y, float[3] z) <int64[3] a = {{0, 1, 2}}, int64[3] b = {second}> {{
        y = Gather(x, a) z = Gather(x, b) }}"""
    assert not simplified(parse(text)).changes


SCALARS = """g (float[4, 3] x) => (float[4] y, float[4] z, float[4] w)
    <int64 a = {0}, int64 b = {1}, int64 c = {-1}> {
    y = Gather<axis = 1>(x, a) z = Gather<axis = 1>(x, b) w = Gather<axis = 1>(x, c) }"""


@pytest.mark.parametrize("opset", [11, 13, 18])
def test_gathers_of_single_positions_only_where_asked(opset: int) -> None:
    assert not simplified(parse(SCALARS, opset)).changes
    found = simplified(parse(SCALARS, opset), ["replace-scalar-gathers"])
    assert operators(found.model) == ["Split", "Squeeze", "Squeeze", "Squeeze"]


@pytest.mark.parametrize(
    "third",
    [
        "w = Relu(x)",
        "w = Gather<axis = 0>(x, c)",
        "w = Gather<axis = 1>(x, i)",
    ],
)
def test_gathers_of_single_positions_that_are_not_all_stay(third: str) -> None:
    text = f"""g (float[4, 3] x, int64 i) => (float[4] y, float[4] z, float[n, m] w)
        <int64 a = {{0}}, int64 b = {{1}}, int64 c = {{2}}> {{
        y = Gather<axis = 1>(x, a) z = Gather<axis = 1>(x, b) {third} }}"""
    model = parse(text)
    if "Gather" in third:
        model.graph.output[2].type.tensor_type.shape.dim.pop()
    assert not simplify_with_report(model, ["replace-scalar-gathers"]).changes


def test_a_gather_outside_its_axis_stays() -> None:
    text = """g (float[6] x) => (float[3] y, float[3] z) <int64[3] a = {0, 1, 2}, int64[3] b = {3, 4, 7}> {
        y = Gather(x, a) z = Gather(x, b) }"""
    assert not simplify_with_report(parse(text)).changes
