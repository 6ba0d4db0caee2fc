"""Slices and Gathers that together are a Split."""

from __future__ import annotations

import pytest
from onnx import ModelProto
from simplify_helpers import operators, parse, simplified

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
    assert found.counts == {"slices": 1}


def test_a_slice_that_overlaps_the_parts_stays() -> None:
    found = simplified(slices([(0, 3), (3, 6), (1, 4)]))
    assert sorted(operators(found.model)) == ["Neg", "Neg", "Neg", "Slice", "Split"]


@pytest.mark.parametrize(
    "bounds",
    [[(0, 2), (3, 6)], [(0, 3), (2, 6)], [(0, 6)], [(0, 2), (2, 5)], [(0, 0), (0, 6)], [(1, 3), (3, 6)]],
)
def test_slices_that_do_not_cover_the_axis_stay(bounds: list[tuple[int, int]]) -> None:
    assert not simplified(slices(bounds)).changes


def test_slices_of_a_dynamic_axis_stay() -> None:
    assert not simplified(slices([(0, 3), (3, 6)], data="float[4, N] x"), N=7).changes


def test_slices_in_steps_stay() -> None:
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
    found = simplified(parse(SCALARS, opset), ["scalar-gathers"])
    assert operators(found.model) == ["Split", "Squeeze", "Squeeze", "Squeeze"]
