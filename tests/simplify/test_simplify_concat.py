"""Split and Concat that undo each other, and those that only look so."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from onnx import TensorProto, helper
from simplify_helpers import operators, parse, simplified

from splitops.models.simplify import simplify, simplify_with_report

OPSETS = (3, 4, 8, 11, 13, 18)


@pytest.mark.parametrize("opset", OPSETS)
def test_all_parts_concatenated_are_the_data(opset: int) -> None:
    state = "num_outputs = 3, " if opset >= 18 else ""
    text = f"""g (float[4, 6] x) => (float[4, 6] y) {{
        a, b, c = Split<{state}axis = 1>(x) d = Concat<axis = 1>(a, b, c) y = Relu(d) }}"""
    found = simplified(parse(text, opset))
    assert operators(found.model) == ["Relu"]
    assert found.counts == {"cancel-split-concat": 1}


@pytest.mark.parametrize(
    "nodes",
    [
        "a, b = Split<axis = 1>(x) d = Concat(a, b) y = Relu(d)",
        "a, b = Split<axis = 1>(x) c = Concat(b, a) y = Concat<axis = 1>(c, a)",
    ],
)
def test_a_concat_that_states_no_axis_stays(nodes: str) -> None:
    assert not simplified(parse(f"g (float[4, 6] x) => (float[4, n] y) {{ {nodes} }}", 3)).changes


def test_negative_axes_are_the_same_axis() -> None:
    text = """g (float[4, 6] x) => (float[4, 6] y) {
        a, b = Split<axis = -1>(x) d = Concat<axis = 1>(a, b) y = Relu(d) }"""
    assert operators(simplified(parse(text, 13)).model) == ["Relu"]


def test_the_output_keeps_its_name() -> None:
    text = (
        "g (float[6] x) => (float[6] y) { r = Relu(x) a, b = Split<axis = 0>(r) y = Concat<axis = 0>(a, b) }"
    )
    found = simplified(parse(text, 13))
    assert operators(found.model) == ["Relu"]
    assert found.model.graph.node[0].output == ["y"]


def test_other_readers_keep_the_split() -> None:
    text = """g (float[6] x) => (float[6] y, float[3] z) {
        a, b = Split<axis = 0>(x) c = Concat<axis = 0>(a, b) y = Relu(c) z = Relu(b) }"""
    assert operators(simplified(parse(text, 13)).model) == ["Slice", "Relu", "Relu"]


def test_empty_parts_may_be_missing() -> None:
    text = """g (float[6] x) => (float[6] y) <int64[3] s = {2, 0, 4}> {
        a, b, c = Split<axis = 0>(x, s) d = Concat<axis = 0>(a, c) y = Relu(d) }"""
    assert operators(simplified(parse(text)).model) == ["Relu"]


def test_behind_identity() -> None:
    text = """g (float[6] x) => (float[6] y) {
        a, b = Split<axis = 0>(x) c = Identity(a) d = Concat<axis = 0>(c, b) y = Relu(d) }"""
    assert operators(simplified(parse(text, 13)).model) == ["Relu"]


@pytest.mark.parametrize(
    "concat",
    ["Concat<axis = 0>(b, a)", "Concat<axis = 0>(a, a)", "Concat<axis = 1>(a, b)", "Concat<axis = 0>(a, w)"],
)
def test_other_concatenations_stay(concat: str) -> None:
    shape = "2, 8" if "axis = 1" in concat else "4, 4"
    text = f"""g (float[4, 4] x, float[2, 4] w) => (float[{shape}] y) {{
        a, b = Split<axis = 0>(x) c = {concat} y = Relu(c) }}"""
    found = simplified(parse(text, 13))
    assert "Concat" in operators(found.model)
    assert "cancel-split-concat" not in found.counts


def test_a_dynamic_axis_by_lengths_becomes_one_part_that_proves_it() -> None:
    text = """g (float[N] x) => (float[M] y) <int64[2] s = {1, 3}> {
        a, b = Split<axis = 0>(x, s) c = Concat<axis = 0>(a, b) y = Relu(c) }"""
    found = simplified(parse(text), bad=[{"N": 5}])
    assert operators(found.model) == ["Split", "Relu"]


def test_even_parts_of_a_dynamic_axis_stay() -> None:
    text = """g (float[N] x) => (float[M] y) {
        a, b = Split<axis = 0>(x) c = Concat<axis = 0>(a, b) y = Relu(c) }"""
    assert not simplified(parse(text, 13), bad=[{"N": 5}]).changes


def test_a_number_of_parts_of_a_dynamic_axis_goes() -> None:
    text = """g (float[N] x) => (float[M] y) {
        a, b = Split<axis = 0, num_outputs = 2>(x) c = Concat<axis = 0>(a, b) y = Relu(c) }"""
    for size in (4, 5):
        assert operators(simplified(parse(text), N=size).model) == ["Relu"]


def test_all_parts_among_others() -> None:
    text = """g (float[4, 6] x, float[4, 1] w) => (float[4, 8] y) {
        a, b = Split<axis = 1>(x) c = Concat<axis = 1>(w, a, b, w) y = Relu(c) }"""
    found = simplified(parse(text, 13))
    assert operators(found.model) == ["Concat", "Relu"]
    assert list(found.model.graph.node[0].input) == ["w", "x", "w"]


def test_the_same_parts_twice() -> None:
    text = """g (float[6] x) => (float[12] y) {
        a, b = Split<axis = 0>(x) c = Concat<axis = 0>(a, b, a, b) y = Relu(c) }"""
    found = simplified(parse(text, 13))
    assert operators(found.model) == ["Concat", "Relu"]
    assert list(found.model.graph.node[0].input) == ["x", "x"]


@pytest.mark.parametrize("opset", [2, 4, 11, 13, 18])
def test_neighbouring_parts_merge(opset: int) -> None:
    state = "num_outputs = 4, " if opset >= 18 else ""
    text = f"""g (float[4, 8] x, float[4, 2] w) => (float[4, 6] y, float[4, 2] z, float[4, 2] v) {{
        a, b, c, d = Split<{state}axis = 1>(x) e = Concat<axis = 1>(b, c, w)
        y = Relu(e) z = Relu(a) v = Relu(d) }}"""
    found = simplified(parse(text, opset))
    assert operators(found.model) == ["Split", "Concat", "Relu", "Relu", "Relu"]
    assert len(found.model.graph.node[0].output) == 3
    assert len(found.model.graph.node[1].input) == 2
    assert found.counts == {"cancel-split-concat": 1}


def test_neighbouring_parts_alone_need_no_concat() -> None:
    text = """g (float[8] x) => (float[4] y, float[2] z, float[2] v) {
        a, b, c, d = Split<axis = 0>(x) y = Concat<axis = 0>(b, c) z = Relu(a) v = Relu(d) }"""
    assert operators(simplified(parse(text, 13)).model) == ["Split", "Relu", "Relu"]


def test_neighbouring_parts_that_others_read_stay() -> None:
    text = """g (float[8] x) => (float[4] y, float[2] z, float[2] v, float[2] u) {
        a, b, c, d = Split<axis = 0>(x) y = Concat<axis = 0>(b, c) z = Relu(a) v = Relu(d) u = Relu(b) }"""
    assert not simplified(parse(text, 13)).changes


def test_neighbouring_parts_that_are_outputs_stay() -> None:
    text = """g (float[8] x) => (float[4] y, float[2] a, float[2] b, float[2] c, float[2] d) {
        a, b, c, d = Split<axis = 0>(x) y = Concat<axis = 0>(b, c) }"""
    assert not simplified(parse(text, 13)).changes


def test_neighbouring_parts_of_two_splits() -> None:
    text = """g (float[6] x, float[6] w) => (float[8] y, float[2] z, float[2] v) {
        a, b, c = Split<axis = 0>(x) d, e, f = Split<axis = 0>(w)
        y = Concat<axis = 0>(a, b, d, e) z = Relu(c) v = Relu(f) }"""
    found = simplified(parse(text, 13))
    assert found.counts == {"cancel-split-concat": 2}
    assert [len(node.output) for node in found.model.graph.node[:2]] == [2, 2]


# cancel-concat-split


@pytest.mark.parametrize("opset", [2, 4, 11, 13, 18])
def test_what_was_concatenated_is_not_split(opset: int) -> None:
    state = "num_outputs = 2, " if opset >= 18 else ""
    text = f"""g (float[4, 3] x, float[4, 3] w) => (float[4, 3] y, float[4, 3] z) {{
        c = Concat<axis = 1>(x, w) a, b = Split<{state}axis = 1>(c) y = Relu(a) z = Relu(b) }}"""
    found = simplified(parse(text, opset))
    assert operators(found.model) == ["Relu", "Relu"]
    assert found.counts == {"cancel-concat-split": 1}


def test_equal_dynamic_parts() -> None:
    text = """g (float[N, 2] x, float[N, 2] w) => (float[N, 2] y, float[N, 2] z) {
        c = Concat<axis = 0>(x, w) a, b = Split<axis = 0>(c) y = Relu(a) z = Relu(b) }"""
    assert operators(simplified(parse(text, 13)).model) == ["Relu", "Relu"]


@pytest.mark.parametrize("other", ["M", "K"])
def test_sizes_that_may_differ_stay(other: str) -> None:
    text = f"""g (float[N, 2] x, float[{other}, 2] w) => (float[A, 2] y, float[B, 2] z) {{
        c = Concat<axis = 0>(x, w) a, b = Split<axis = 0>(c) y = Relu(a) z = Relu(b) }}"""
    assert not simplified(parse(text, 13), bad=[{"N": 2, other: 3}], N=2, **{other: 4}).changes


def test_a_concat_that_could_fail_stays() -> None:
    text = """g (float[N, 2] x, float[M, 2] w) => (float[N, 2] y, float[M, 2] z) {
        c = Concat<axis = 1>(x, w) y, z = Split<axis = 1>(c) }"""
    assert not simplified(parse(text, 13), bad=[{"N": 2, "M": 3}]).changes


def test_a_concat_that_could_fail_but_stays_for_others() -> None:
    text = """g (float[N, 2] x, float[M, 2] w) => (float[N, 2] y, float[M, 2] z, float[K, 4] v) {
        c = Concat<axis = 1>(x, w) a, b = Split<axis = 1>(c) y = Relu(a) z = Relu(b) v = Relu(c) }"""
    found = simplified(parse(text, 13), bad=[{"N": 2, "M": 3}])
    assert operators(found.model) == ["Concat", "Relu", "Relu", "Relu"]


@pytest.mark.parametrize("others", ["", "v = Neg(c)"])
def test_pieces_of_unknown_rank_stay(others: str) -> None:
    text = f"""g (float[4] x, int64[M] k) => (float[2] y, float[4] z{", float[6] v" if others else ""})
        <int64[2] s = {{2, 4}}, float[2] w = {{1, 2}}> {{
        p = Reshape(x, k) c = Concat<axis = 0>(w, p) a, b = Split(c, s)
        y = Neg(a) z = Neg(b) {others} }}"""
    for size in (4, 2):
        feeds = {"x": np.arange(4, dtype=np.float32), "k": np.array([size, *([2] if size == 2 else [])])}
        model = parse(text)
        model.graph.value_info.append(helper.make_tensor_value_info("c", TensorProto.FLOAT, ["K"]))
        assert not simplified(model, feeds=feeds).changes


@pytest.mark.parametrize(("axis", "sizes"), [(1, (1, 5)), (0, (2, 2))])
def test_other_boundaries_stay(axis: int, sizes: tuple[int, int]) -> None:
    shapes = [("4", str(size)) if axis else (str(size), "6") for size in sizes]
    first, second = (", ".join(shape) for shape in shapes)
    text = f"""g (float[4, 3] x, float[4, 3] w) => (float[{first}] y, float[{second}] z)
        <int64[2] s = {{{sizes[0]}, {sizes[1]}}}> {{
        c = Concat<axis = 1>(x, w) a, b = Split<axis = {axis}>(c, s) y = Relu(a) z = Relu(b) }}"""
    found = simplified(parse(text))
    assert "cancel-concat-split" not in found.counts


def test_coarser_boundaries_take_a_concat_of_their_own() -> None:
    text = """g (float[1] x, float[2] w, float[3] v) => (float[3] y, float[3] z) {
        c = Concat<axis = 0>(x, w, v) a, b = Split<axis = 0>(c) y = Relu(a) z = Relu(b) }"""
    found = simplified(parse(text, 13))
    assert operators(found.model) == ["Concat", "Relu", "Relu"]


def test_two_concats_are_not_less_than_one_and_a_split() -> None:
    text = """g (float[1] x, float[2] w, float[3] v) => (float[3] y, float[6] z) <int64[2] s = {3, 6}> {
        c = Concat<axis = 0>(x, w, v, v) a, b = Split<axis = 0>(c, s) y = Relu(a) z = Relu(b) }"""
    assert not simplified(parse(text)).changes


def test_a_concat_that_is_an_output_stays() -> None:
    text = """g (float[3] x, float[3] w) => (float[6] c, float[3] y, float[3] z) {
        c = Concat<axis = 0>(x, w) a, b = Split<axis = 0>(c) y = Relu(a) z = Relu(b) }"""
    assert operators(simplified(parse(text, 13)).model) == ["Concat", "Relu", "Relu"]


# Concats of Concats, and of one value


@pytest.mark.parametrize("opset", [4, 11, 18])
def test_a_concat_of_one_value_is_the_value(opset: int) -> None:
    text = "g (float[N, 6] x) => (float[N, 6] y) { p = Concat<axis = 1>(x) y = Neg(p) }"
    found = simplified(parse(text, opset))
    assert operators(found.model) == ["Neg"]
    assert found.counts == {"remove-single-concat": 1}


def test_a_concat_of_one_value_on_an_axis_that_is_not_there_stays() -> None:
    model = parse("g (float[6] x) => (y) { y = Concat<axis = 1>(x) }")
    assert not simplify_with_report(model).changes


@pytest.mark.parametrize("outer", [1, -1])
def test_a_concat_of_concats_is_one(outer: int) -> None:
    text = f"""g (float[4, 1] a, float[4, 2] b, float[N, 3] c) => (float[4, 9] y) {{
        p = Concat<axis = 1>(a, b) q = Concat<axis = -1>(b, c) r = Neg(a)
        y = Concat<axis = {outer}>(p, r, q) }}"""
    found = simplified(parse(text), bad=[{"N": 3}])
    assert operators(found.model) == ["Neg", "Concat"]
    assert list(found.model.graph.node[1].input) == ["a", "b", "r", "b", "c"]


def test_concats_in_a_row_are_one() -> None:
    depth = 40
    rows = " ".join(f"p{index + 1} = Concat<axis = 0>(p{index}, x)" for index in range(depth))
    text = f"g (float[1, 2] x) => (float[M, 2] y) {{ p0 = Neg(x) {rows} y = Relu(p{depth}) }}"
    found = simplified(parse(text))
    assert operators(found.model) == ["Neg", "Concat", "Relu"]
    assert found.counts == {"merge-concats": 1}


@pytest.mark.parametrize(
    ("nodes", "outputs"),
    [
        ("p = Concat<axis = 0>(a, a) y = Concat<axis = 1>(p, p)", "float[8, 4] y"),
        ("p = Concat<axis = 1>(a, a) y = Concat<axis = 1>(p, p)", "float[4, 8] y"),
        ("p = Concat<axis = 1>(a, a) y = Concat<axis = 1>(p, a) z = Neg(p)", "float[4, 6] y, float[4, 4] z"),
        ("p = Concat<axis = 1>(a, a) y = Concat<axis = 1>(p, a)", "float[4, 6] y, float[4, 4] p"),
    ],
)
def test_other_concats_of_concats_stay(nodes: str, outputs: str) -> None:
    assert not simplified(parse(f"g (float[4, 2] a) => ({outputs}) {{ {nodes} }}")).changes


def test_a_concat_that_a_subgraph_concatenates_stays() -> None:
    text = """g (float[4, 2] a, bool c) => (float[4, 6] y) { p = Concat<axis = 1>(a, a)
        y = If(c) <then_branch = t () => (float[4, 6] q) { q = Concat<axis = 1>(p, a) },
                   else_branch = e () => (float[4, 6] r) { r = Concat<axis = 1>(a, a, a) }> }"""
    assert not simplified(parse(text)).changes


def test_all_concats_of_a_split_are_rewritten_at_once() -> None:
    """One by one, each made a Split of all parts again: 2,000 parts in pairs took 42 s."""
    text = """g (float[8, 2] x) => (float[2, 2] s, float[2, 2] t, float[3, 2] u) {
        a, b, c, d, e, f, k, l = Split<num_outputs = 8>(x)
        ab = Concat<axis = 0>(a, b) cd = Concat<axis = 0>(c, d) fkl = Concat<axis = 0>(f, k, l)
        s = Relu(ab) t = Relu(cd) u = Relu(fkl) }"""
    found = simplified(parse(text))
    assert operators(found.model) == ["Split", "Relu", "Relu", "Relu"]
    assert simplify_with_report(parse(text), ["cancel-split-concat"]).counts == {"cancel-split-concat": 1}


@pytest.mark.parametrize("kind", ["whole", "reversed", "runs", "constant", "chain"])
def test_thousands_of_parts_take_linear_time(kind: str) -> None:
    """Count steps, not seconds: four times the parts take about four times the calls."""

    def calls(count: int) -> int:
        names = [f"o{index}" for index in range(count)]
        nodes, inits = [helper.make_node("Split", ["x"], names, num_outputs=count)], []
        if kind in ("constant", "chain"):
            ends = names
            if kind == "chain":
                nodes += [helper.make_node("Split", [name], [f"{name}s"], num_outputs=1) for name in names]
                ends = [f"{name}s" for name in names]
            outputs = [helper.make_tensor_value_info(name, 1, None) for name in ends]
        else:
            read = {
                "whole": names,
                "reversed": names[::-1],
                "runs": [name for at in range(0, count - 3, 4) for name in (names[at], names[at + 1], "z")],
            }[kind]
            nodes.append(helper.make_node("Concat", read, ["y"], axis=0))
            outputs = [helper.make_tensor_value_info("y", 1, None)]
            inits.append(helper.make_tensor("z", 1, [1], [0.0]))
        inputs = [helper.make_tensor_value_info("x", 1, [count])]
        if kind == "constant":
            inputs = []
            inits.append(helper.make_tensor("x", 1, [count], [1.0] * count))
        graph = helper.make_graph(nodes, "g", inputs, outputs, inits)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
        seen = 0

        def count_call(*_: object) -> None:
            nonlocal seen
            seen += 1

        sys.setprofile(count_call)
        try:
            simplify(model)
        finally:
            sys.setprofile(None)
        return seen

    calls(8)  # what is read once
    assert calls(1600) < 6 * calls(400)
