"""Rewrites of one Split by its parts: what goes, what must stay, at every opset where the form changes."""

from __future__ import annotations

import pytest
from simplify_helpers import operators, parse, simplified

OPSETS = (2, 8, 10, 11, 13, 18)


def lengths(opset: int, values: tuple[int, ...]) -> tuple[str, str, str]:
    """Return how an opset declares lengths: initializers, the attribute, the input."""
    numbers = ", ".join(map(str, values))
    if opset < 13:
        return "", f", split = [{numbers}]", ""
    return f"<int64[{len(values)}] sizes = {{{numbers}}}>", "", ", sizes"


def split(opset: int, outputs: str, data: str, axis: int, values: tuple[int, ...]) -> tuple[str, str]:
    """Return initializers and the text of a Split with lengths."""
    initializers, attribute, extra = lengths(opset, values)
    return initializers, f"{outputs} = Split<axis = {axis}{attribute}>({data}{extra})"


# remove-whole-part


@pytest.mark.parametrize("opset", OPSETS)
def test_one_part_is_the_data(opset: int) -> None:
    initializers, node = split(opset, "a", "x", 1, (6,))
    found = simplified(
        parse(f"g (float[4, 6] x) => (float[4, 6] y) {initializers} {{ {node} y = Relu(a) }}", opset)
    )
    assert operators(found.model) == ["Relu"]
    assert found.counts == {"remove-whole-part": 1}
    assert found.model.graph.node[0].input == ["x"]
    assert not found.model.graph.initializer


@pytest.mark.parametrize("opset", OPSETS)
def test_all_parts_but_one_are_empty(opset: int) -> None:
    initializers, node = split(opset, "a, b, c", "x", 1, (0, 6, 0))
    found = simplified(
        parse(f"g (float[4, 6] x) => (float[4, 6] y) {initializers} {{ {node} y = Relu(b) }}", opset)
    )
    assert operators(found.model) == ["Relu"]


def test_one_part_that_is_an_output_keeps_its_name() -> None:
    found = simplified(parse("g (float[4] x) => (float[4] y) { r = Relu(x) y = Split<axis = 0>(r) }", 13))
    assert operators(found.model) == ["Relu"]
    assert found.model.graph.node[0].output == ["y"]


def test_one_part_of_an_input_that_is_an_output_becomes_identity() -> None:
    found = simplified(parse("g (float[4] x) => (float[4] y) { y = Split<axis = 0>(x) }", 13))
    assert operators(found.model) == ["Identity"]


def test_one_part_of_another_output_becomes_identity() -> None:
    text = "g (float[4] x) => (float[4] r, float[4] y) { r = Relu(x) y = Split<axis = 0>(r) }"
    assert operators(simplified(parse(text, 13)).model) == ["Relu", "Identity"]


def test_one_part_of_given_length_proves_a_dynamic_axis_and_stays() -> None:
    text = (
        "g (float[N] x) => (float[M] y) <int64[1] sizes = {4}> { a = Split<axis = 0>(x, sizes) y = Relu(a) }"
    )
    found = simplified(parse(text), bad=[{"N": 5}])
    assert not found.changes


def test_one_part_by_number_of_a_dynamic_axis_goes() -> None:
    text = "g (float[N] x) => (float[N] y) { a = Split<axis = 0, num_outputs = 1>(x) y = Relu(a) }"
    assert operators(simplified(parse(text)).model) == ["Relu"]


def test_two_filled_parts_stay() -> None:
    text = "g (float[4] x) => (float[2] y, float[2] z) { a, b = Split<axis = 0>(x) y = Relu(a) z = Relu(b) }"
    assert not simplified(parse(text, 13)).changes


# remove-unused-parts


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("axis", [1, -1])
def test_a_single_part_is_a_slice(opset: int, axis: int) -> None:
    initializers, node = split(opset, "a, b, c", "x", axis, (1, 2, 3))
    found = simplified(
        parse(f"g (float[4, 6] x) => (float[4, 2] y) {initializers} {{ {node} y = Relu(b) }}", opset)
    )
    assert operators(found.model) == ["Slice", "Relu"]
    slice_ = found.model.graph.node[0]
    assert len(slice_.input) == (1 if opset < 10 else 4)
    assert {attribute.name for attribute in slice_.attribute} == (
        {"axes", "starts", "ends"} if opset < 10 else set()
    )


def test_a_single_part_that_is_an_output_is_a_slice_of_its_name() -> None:
    found = simplified(parse("g (float[6] x) => (float[2] y) { a, y, c = Split<axis = 0>(x) }", 13))
    assert operators(found.model) == ["Slice"]
    assert found.model.graph.node[0].output == ["y"]


def test_a_single_part_of_a_dynamic_axis_stays_to_prove_it() -> None:
    text = """g (float[N] x) => (float[2] y) <int64[2] sizes = {2, 2}> {
        a, b = Split<axis = 0>(x, sizes) y = Relu(b) }"""
    assert not simplified(parse(text), bad=[{"N": 5}]).changes


def test_even_parts_of_a_dynamic_axis_stay_to_prove_it() -> None:
    text = "g (float[N] x) => (float[M] y) { a, b = Split<axis = 0>(x) y = Relu(b) }"
    assert not simplified(parse(text, 13), bad=[{"N": 5}]).changes


@pytest.mark.parametrize("opset", OPSETS)
def test_unused_neighbours_become_one_part(opset: int) -> None:
    initializers, node = split(opset, "a, b, c, d, e", "x", 0, (1, 2, 3, 0, 4))
    text = f"g (float[10] x) => (float[1] y, float[4] z) {initializers} {{ {node} y = Relu(a) z = Relu(e) }}"
    found = simplified(parse(text, opset))
    assert len(found.model.graph.node[0].output) == 3
    assert found.model.graph.node[0].output[0] == "a"


def test_empty_unused_parts_go_from_a_dynamic_axis_and_the_proof_stays() -> None:
    text = """g (float[N] x) => (float[1] y, float[3] z) <int64[4] sizes = {1, 0, 0, 3}> {
        a, b, c, d = Split<axis = 0>(x, sizes) y = Relu(a) z = Relu(d) }"""
    found = simplified(parse(text), bad=[{"N": 5}])
    assert len(found.model.graph.node[0].output) == 2
    assert "split=[1, 3]" in found.changes[0].after


def test_a_single_unused_part_between_others_stays() -> None:
    text = (
        "g (float[6] x) => (float[2] y, float[2] z) { a, b, c = Split<axis = 0>(x) y = Relu(a) z = Relu(c) }"
    )
    assert not simplified(parse(text, 13)).changes


def test_fewer_outputs_than_parts_stay() -> None:
    text = "g (float[6] x) => (float[2] y) { y, b = Split<axis = 0, num_outputs = 3>(x) }"
    assert not simplified(parse(text)).changes


def test_a_split_of_which_nothing_is_read_goes() -> None:
    text = "g (float[6] x) => (float[6] y) { a, b, c = Split<axis = 0>(x) y = Relu(x) }"
    assert operators(simplified(parse(text, 13)).model) == ["Relu"]


def test_a_split_of_which_nothing_is_read_stays_where_it_could_fail() -> None:
    text = "g (float[N] x) => (float[N] y) { a, b = Split<axis = 0>(x) y = Relu(x) }"
    assert not simplified(parse(text, 13), bad=[{"N": 5}]).changes


def test_a_part_that_only_a_subgraph_reads_is_read() -> None:
    text = """g (float[6] x, bool c) => (float[2] y, float[2] z) {
        a, b, d = Split<axis = 0>(x)
        y = If(c) <then_branch = t () => (float[2] p) { p = Relu(b) },
                   else_branch = e () => (float[2] q) { q = Neg(b) }>
        z = Relu(d) }"""
    model = parse(text, 13)
    assert not simplified(model, ["remove-unused-parts"]).changes


# fold-empty-parts


def test_an_empty_part_that_is_read_is_a_constant() -> None:
    text = """g (float[4, 6] x) => (float[4, 2] y, float[4, 0] z, float[4, 4] w)
        <int64[3] sizes = {2, 0, 4}> {
        a, b, c = Split<axis = 1>(x, sizes) y = Relu(a) z = Relu(b) w = Relu(c) }"""
    found = simplified(parse(text))
    assert found.counts == {"fold-empty-parts": 1, "remove-unused-parts": 1}
    assert len(next(node for node in found.model.graph.node if node.op_type == "Split").output) == 2


def test_an_empty_part_of_unknown_shape_stays() -> None:
    text = """g (float[N, 6] x) => (float[N, 2] y, float[N, 0] z, float[N, 4] w)
        <int64[3] sizes = {2, 0, 4}> {
        a, b, c = Split<axis = 1>(x, sizes) y = Relu(a) z = Relu(b) w = Relu(c) }"""
    assert not simplified(parse(text)).changes


@pytest.mark.parametrize("kind", ["string", "float16", "bool", "int64"])
def test_empty_parts_of_other_types(kind: str) -> None:
    text = f"""g ({kind}[6] x) => ({kind}[2] y, {kind}[0] z, {kind}[4] w) <int64[3] sizes = {{2, 0, 4}}> {{
        y, z, w = Split<axis = 0>(x, sizes) }}"""
    assert bool(simplified(parse(text)).changes) is (kind != "string")


# merge-splits


@pytest.mark.parametrize("opset", OPSETS)
def test_a_split_of_a_part_joins_the_outer_one(opset: int) -> None:
    first, outer = split(opset, "a, b", "x", 1, (2, 4))
    second, inner = split(opset, "c, d", "b", 1 if opset < 11 else -1, (1, 3))
    initializers = f"{first[:-1]}, {second.replace('sizes', 'inner')[1:]}" if first else ""
    inner = inner.replace(", sizes)", ", inner)")
    text = f"""g (float[4, 6] x) => (float[4, 2] p, float[4, 1] q, float[4, 3] r) {initializers} {{
        {outer} {inner} p = Relu(a) q = Relu(c) r = Relu(d) }}"""
    found = simplified(parse(text, opset))
    assert operators(found.model) == ["Split", "Relu", "Relu", "Relu"]
    assert found.counts == {"merge-splits": 1}


def test_a_split_of_a_part_on_another_axis_stays() -> None:
    text = """g (float[4, 6] x) => (float[4, 3] p, float[2, 3] q, float[2, 3] r) {
        p, b = Split<axis = 1>(x) q, r = Split<axis = 0>(b) }"""
    assert not simplified(parse(text, 13)).changes


def test_a_split_of_a_part_that_others_read_stays() -> None:
    text = """g (float[8] x) => (float[4] p, float[4] o, float[2] q, float[2] r) {
        p, b = Split<axis = 0>(x) o = Relu(b) q, r = Split<axis = 0>(b) }"""
    assert not simplified(parse(text, 13)).changes


def test_a_split_of_a_part_that_is_an_output_stays() -> None:
    text = """g (float[8] x) => (float[4] p, float[4] b, float[2] q, float[2] r) {
        p, b = Split<axis = 0>(x) q, r = Split<axis = 0>(b) }"""
    assert not simplified(parse(text, 13)).changes


def test_a_nested_split_of_a_dynamic_axis_keeps_the_proof() -> None:
    text = """g (float[N] x) => (float[2] p, float[1] q, float[1] r)
        <int64[2] s = {2, 2}, int64[2] t = {1, 1}> {
        p, b = Split<axis = 0>(x, s) q, r = Split<axis = 0>(b, t) }"""
    found = simplified(parse(text), bad=[{"N": 5}])
    assert operators(found.model) == ["Split"]


def test_a_nested_split_behind_identity() -> None:
    text = """g (float[8] x) => (float[4] p, float[2] q, float[2] r) {
        p, b = Split<axis = 0>(x) c = Identity(b) q, r = Split<axis = 0>(c) }"""
    assert operators(simplified(parse(text, 13)).model) == ["Split"]


def test_a_sequence_of_a_part_of_nested_splits_stays_a_sequence() -> None:
    text = """g (float[4] x) => (float[1] p, float[1] q, seq(float[1]) r) <int64[1] one = {1}> {
        a, b = Split<axis = 0>(x) p, c = Split<axis = 0>(a) s, q = Split<axis = 0>(b)
        r = SplitToSequence<axis = 0>(s, one) }"""
    found = simplified(parse(text, 13))
    assert operators(found.model) == ["Split", "SplitToSequence"]


# shorten-lengths


@pytest.mark.parametrize(
    ("opset", "inputs", "attributes"),
    [(2, 1, {"axis"}), (11, 1, {"axis"}), (13, 1, {"axis"}), (18, 1, {"axis", "num_outputs"})],
)
def test_equal_lengths_are_not_stated(opset: int, inputs: int, attributes: set[str]) -> None:
    initializers, node = split(opset, "y, z", "x", 0, (3, 3))
    found = simplified(
        parse(f"g (float[6] x) => (float[3] y, float[3] z) {initializers} {{ {node} }}", opset)
    )
    made = found.model.graph.node[0]
    assert len(made.input) == inputs
    assert {attribute.name for attribute in made.attribute} == attributes


@pytest.mark.parametrize(
    ("sizes", "short"), [((2, 2, 1), True), ((1, 2, 2), False), ((3, 2, 0), False), ((2, 3, 0), False)]
)
def test_uneven_lengths_are_stated_unless_the_ceil_rule_gives_them(
    sizes: tuple[int, ...], short: bool
) -> None:
    initializers, node = split(18, "a, b, c", "x", 0, sizes)
    outputs = ", ".join(f"float[{size}] {name}" for size, name in zip(sizes, "abc", strict=True))
    text = f"g (float[5] x) => ({outputs}) {initializers} {{ {node} }}"
    found = simplified(parse(text), ["shorten-lengths"])
    assert bool(found.changes) is short


def test_uneven_lengths_are_stated_before_the_ceil_rule() -> None:
    text = """g (float[5] x) => (float[2] a, float[2] b, float[1] c) <int64[3] sizes = {2, 2, 1}> {
        a, b, c = Split<axis = 0>(x, sizes) }"""
    assert not simplified(parse(text, 13)).changes
    assert simplified(parse(text, 18)).counts == {"shorten-lengths": 1}


def test_equal_lengths_of_a_dynamic_axis_are_stated() -> None:
    text = """g (float[N] x) => (float[3] y, float[3] z) <int64[2] sizes = {3, 3}> {
        y, z = Split<axis = 0>(x, sizes) }"""
    assert not simplified(parse(text), bad=[{"N": 8}], N=6).changes


# set-equal-lengths


@pytest.mark.parametrize(
    ("size", "bad", "stated"),
    [("N", [{"N": 4}], 2), ("6", [], 2), ("4", [{}], 1)],
    ids=["any", "6", "invalid"],
)
def test_splits_that_onnxruntime_takes_for_one_another_state_lengths_once(
    size: str, bad: list[dict[str, int]], stated: int
) -> None:
    text = f"""g (float[{size}] x) => (float[A] p, float[B] q) {{
        a, b = Split(x) c, d, e = Split(x) p = Relu(b) q = Relu(d) }}"""
    found = simplified(parse(text, 13), ["set-equal-lengths"], bad=bad, N=6)
    assert found.counts == {"set-equal-lengths": stated}
    assert sum(len(node.input) == 2 for node in found.model.graph.node if node.op_type == "Split") == stated
