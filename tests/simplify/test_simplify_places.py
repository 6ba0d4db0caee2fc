"""Rewrites wherever a split can be, and everything around it that must survive."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
from onnx import helper
from simplify_helpers import (
    assert_equal,
    assert_valid,
    every_operator,
    inferable,
    operators,
    parse,
    random_feeds,
    simplified,
)

from splitops.models.graph import onnx_editor
from splitops.models.simplify import simplify, simplify_with_report

BRANCHES = """g (float[4, 6] x, bool c) => (float[4, 6] y) {
    y = If(c)
        <then_branch = t () => (float[4, 6] p) { a, b = Split<axis = 1>(x) p = Concat<axis = 1>(a, b) },
         else_branch = e () => (float[4, 6] q) {
            n = Neg(x) d, f = Split<axis = 1>(n) q = Concat<axis = 1>(d, f) }> }"""


@pytest.mark.parametrize("opset", [11, 13])
@pytest.mark.parametrize("choice", [True, False])
def test_branches(opset: int, choice: bool) -> None:
    model = parse(BRANCHES, opset)
    feeds = random_feeds(model.graph) | {"c": np.array(choice)}
    found = simplified(model, feeds=feeds)
    # A branch cannot give what its outer graph has but through an Identity.
    assert every_operator(found.model) == ["If", "Identity", "Neg"]
    assert [change.where.graph for change in found.changes] == ["If -> y.then_branch", "If -> y.else_branch"]


def test_a_part_of_the_outer_graph_that_a_branch_concatenates() -> None:
    text = """g (float[4, 6] x, bool c) => (float[4, 6] y) {
        a, b = Split<axis = 1>(x)
        y = If(c)
            <then_branch = t () => (float[4, 6] p) { p = Concat<axis = 1>(a, b) },
             else_branch = e () => (float[4, 6] q) { r = Concat<axis = 1>(a, b) q = Neg(r) }> }"""
    found = simplified(parse(text, 13))
    assert every_operator(found.model) == ["If", "Identity", "Neg"]


def test_a_split_in_a_branch_does_not_join_the_outer_one() -> None:
    text = """g (float[8] x, bool c) => (float[4] z, float[2] y) {
        z, b = Split<axis = 0>(x)
        y = If(c)
            <then_branch = t () => (float[2] p) { p0, p1 = Split<axis = 0>(b) p = Add(p0, p1) },
             else_branch = e () => (float[2] q) { q0, q1 = Split<axis = 0>(b) q = Sub(q0, q1) }> }"""
    assert not simplified(parse(text, 13)).changes


@pytest.mark.parametrize("opset", [11, 13, 18])
def test_a_loop_body(opset: int) -> None:
    state = "num_outputs = 2, " if opset >= 18 else ""
    text = f"""g (int64 n, float[4, 6] x) => (float[4, 6] y) <bool go = {{1}}> {{
        y = Loop(n, go, x) <body = b (int64 i, bool k, float[4, 6] v) => (bool m, float[4, 6] w) {{
            m = Identity(k)
            a, c = Split<{state}axis = 1>(v) d = Concat<axis = 1>(a, c) w = Add(d, x) }}> }}"""
    model = parse(text, opset)
    found = simplified(model, feeds=random_feeds(model.graph) | {"n": np.array(3)})
    assert every_operator(found.model) == ["Loop", "Identity", "Add"]


def test_a_scan_body() -> None:
    text = """g (float[3, 4] x) => (float[3, 4] y) {
        y = Scan<num_scan_inputs = 1, body = b (float[4] v) => (float[4] w) {
            a, c = Split<axis = 0>(v) w = Concat<axis = 0>(a, c) }>(x) }"""
    found = simplified(parse(text, 13))
    assert every_operator(found.model) == ["Scan", "Identity"]


FUNCTION = """
    <domain: "own", opset_import: ["": 13]> halves (v) => (w, h) {
        s = Constant<value_ints = [3, 3]>()
        a, b = Split<axis = 1>(v, s)
        w = Concat<axis = 1>(a, b)
        h = Identity(b) }"""


def with_function(size: str) -> onnx.ModelProto:
    graph = f"g (float[4, {size}] x) => (float[4, M] y, float[4, K] z) {{ y, z = own.halves(x) }}"
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 13, "own": 1]> {graph} {FUNCTION}')


def test_a_function_body() -> None:
    found = simplified(with_function("6"))
    assert found.counts["cancel-split-concat"] == found.counts["remove-unused-parts"] == 1
    assert sorted(every_operator(found.model)) == ["Identity", "Identity", "Slice", "halves"]
    assert {change.where.graph for change in found.changes} == {"function own.halves"}


def test_a_function_body_whose_callers_may_be_wrong_stays() -> None:
    assert not simplified(with_function("N"), N=6, bad=[{"N": 7}]).changes


def test_a_function_that_takes_the_axis_from_its_caller_stays() -> None:
    text = """<ir_version: 8, opset_import: ["": 13, "own": 1]>
        g (float[4, 4] x) => (float[4, 4] y) { y = own.same<a = 1>(x) }
        <domain: "own", opset_import: ["": 13]> same <a> (v) => (w) {
            p, q = Split<axis: int = @a>(v) w = Concat<axis = 1>(p, q) }"""
    assert not simplified(onnx.parser.parse_model(text)).changes


def test_names_metadata_and_documentation_survive() -> None:
    model = parse(
        """g (float[4, 6] x) => (float[4, 6] y) {
        a, b = Split<axis = 1>(x) c = Concat<axis = 1>(a, b) y = Relu(c) }""",
        13,
    )
    helper.set_model_props(model, {"author": "somebody"})
    model.doc_string, model.producer_name, model.graph.doc_string = "about", "maker", "graph"
    model.graph.node[2].name, model.graph.node[2].doc_string = "last", "the last one"
    model.graph.node[2].metadata_props.add(key="k", value="v")
    after = simplified(model).model
    assert (after.doc_string, after.producer_name, after.graph.doc_string) == ("about", "maker", "graph")
    assert (after.graph.node[0].name, after.graph.node[0].doc_string) == ("last", "the last one")
    assert after.graph.node[0].metadata_props[0].value == "v"
    assert after.ir_version == model.ir_version


def test_stated_types_of_kept_values_survive() -> None:
    model = parse(
        """g (float[8] x) => (float[2] p, float[2] q, float[4] r) {
        a, b = Split<axis = 0>(x) c, d = Split<axis = 0>(a) p = Neg(c) q = Neg(d) r = Neg(b) }""",
        13,
    )
    model.graph.value_info.append(helper.make_tensor_value_info("c", onnx.TensorProto.FLOAT, [2]))
    after = simplified(model).model
    assert [(info.name, info.type) for info in after.graph.value_info if info.name == "c"] == [
        ("c", model.graph.value_info[0].type)
    ]


def test_names_that_are_taken_are_not_taken_again() -> None:
    text = """g (float[6] x, float[1] splitops_constant, float[1] s_slice)
        => (float[2] y, float[1] z, float[1] w) {
        [s] a, b, c = Split<axis = 0>(x) y = Relu(b) z = Neg(splitops_constant) w = Neg(s_slice) }"""
    after = simplified(parse(text, 13)).model
    onnx.checker.check_model(after, full_check=True)


def test_operators_of_other_domains_are_not_ours() -> None:
    text = (
        """g (float[6] x) => (float[6] y) { a, b = own.Split<axis = 0>(x) y = own.Concat<axis = 0>(a, b) }"""
    )
    model = parse(text, 13)
    assert not simplify_with_report(model).changes


def test_old_models_whose_initializers_are_inputs_get_constants() -> None:
    model = parse(
        "g (float[6] x) => (float[2] y) { a, b, c = Split<axis = 0>(x) y = Relu(b) }", 10, ir_version=3
    )
    found = simplified(model)
    assert not found.model.graph.initializer
    assert operators(found.model) == ["Slice", "Relu"]


def test_an_invalid_split_stays_as_it_is() -> None:
    model = parse(
        "g (float[7] x) => (float[A] y) { a, b = Split<axis = 0>(x) y = Concat<axis = 0>(a, b) }", 13
    )
    found = simplify_with_report(model)
    assert not found.changes
    assert_equal(model, found.model, random_feeds(model.graph))


HALVES = "Constant<value = float[4] {1, 2, 3, 4}>() a, b = Split<num_outputs = 2>(k)"


def test_constants_of_a_branch_are_folded_there() -> None:
    model = parse(f"""g (bool c) => (float[n] y) {{
        y = If(c) <
            then_branch = t () => (float[n] z) {{ k = {HALVES} z = Neg(a) }},
            else_branch = e () => (float[n] w) {{ w = Constant<value = float[2] {{5, 6}}>() }}> }}""")
    assert every_operator(simplified(model).model) == ["If", "Neg"]


@pytest.mark.parametrize(
    ("text", "opset"),
    [
        (
            """g (float[6] x) => (float[A] y, float[B] z) { y, z = own.f<e = 3>(x) }
            <domain: "own", opset_import: ["": 9]> f <e> (x) => (y, z) {
                y = Slice<starts = [0], ends: ints = @e>(x) z = Slice<starts = [3], ends = [6]>(x) }""",
            9,
        ),
        (
            """g (float[6] x) => (float[A] y, float[B] z)
            <int64[1] s = {0}, int64[2] e = {3, 4}, int64[1] t = {3}, int64[1] u = {6}> {
                y = Slice(x, s, e) z = Slice(x, t, u) }""",
            18,
        ),
        (
            "g (float[4] x) => (float[A] a, float[B] b) { i = Identity( , ) a, b = Split<num_outputs=2>(i) }",
            18,
        ),
        ("g (float[4] x) => (float[A] a, float[B] b) { k = Constant() a, b = Split(x, k) }", 18),
        (
            """g (float[2,4] x, int64[M] k) => (float[A,B] a, float[C,D] b) {
                w = Constant<value = float[4,2] {1, 2, 3, 4, 5, 6, 7, 8}>()
                q = Reshape(x, k) p = MatMul(q, w) a, b = Split<axis = 1, num_outputs = 2>(p) }""",
            18,
        ),
        (
            """g (float[4] x) => (float[A] a, float[B] b, float[C] c, float[D] d, float[E] e) {
                r = RandomNormal<shape = [6]>() q = RandomNormal<shape = [6]>()
                a, b = Split(r) c, d, e = Split(q) }""",
            13,
        ),
        (
            """g (float[4, 4] x) => (float[4, 4] y) { y = own.same<a = 1>(x) }
            <domain: "own", opset_import: ["": 13]> same <a> (v) => (w) {
                p, q = Split<axis = 1>(v) w = Concat<axis: int = @a>(p, q) }""",
            13,
        ),
        (
            """g (float[2, 2] x) => (float[A, B] y, float[C, D] z) { y, z = own.f<t = 0>(x) }
            <domain: "own", opset_import: ["": 13]> f <t> (x) => (y, z) {
                w = Constant<value = float[2, 2] {1, 2, 3, 4}>()
                v = Gemm<transB: int = @t>(x, w) y, z = Split<axis = 1>(v) }""",
            13,
        ),
        (
            """g (float[2, 2] x) => (float[A, B] y, float[C, D] z) <float[2, 2] w = {1, 2, 3, 4}> {
                v = own.MatMul(x, w) y, z = Split<axis = 1>(v) }""",
            13,
        ),
        (
            """g (float[6] x) => (float[A] y, float[B] z)
            <float[1] s = {0}, float[1] e = {3}, int64[1] t = {3}, int64[1] u = {6}> {
                y = Slice(x, s, e) z = Slice(x, t, u) }""",
            13,
        ),
    ],
    ids=[
        *("a caller's bounds", "bounds of two axes", "nothing", "no value", "no rank", "random"),
        *("a caller's axis", "a caller's transpose", "another domain", "bounds that are floats"),
    ],
)
def test_what_is_not_known_or_cannot_be_stays(text: str, opset: int) -> None:
    model = parse(text, opset)
    assert every_operator(simplify(model, allow=["numerics"])) == every_operator(model)


def test_ai_onnx_is_the_same_domain() -> None:
    model = parse(
        "g (float[6] x) => (float[6] y) { a, b = Split<axis = 0>(x) c = Concat<axis = 0>(a, b) y = Relu(c) }",
        13,
    )
    for node in model.graph.node:
        node.domain = "ai.onnx"
    model.opset_import[0].domain = "ai.onnx"
    after = simplify(model)
    assert [node.op_type for node in after.graph.node] == ["Relu"]
    assert_equal(model, after, random_feeds(model.graph))
    if inferable(model):  # below 1.23, onnx's checker does not know the name
        assert_valid(after, after)


def test_what_was_made_for_a_node_goes_with_it_however_long_the_way() -> None:
    model = parse(
        "g (float[8] x) => (float[8] y) { a, b = Split<axis = 0>(x) y = Concat<axis = 0>(a, b) }", 13
    )
    model.graph.node[1].input[0] = "a2000"
    for index in reversed(range(2000)):
        read = f"a{index}" if index else "a"
        model.graph.node.insert(1, helper.make_node("Identity", [read], [f"a{index + 1}"]))
    assert every_operator(simplify(model)) == ["Identity"]


def test_readers_of_many_parts_go_with_few_looks_at_the_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[ir.Value] = []
    ask = onnx_editor.has_consumers
    monkeypatch.setattr(onnx_editor, "has_consumers", lambda value: looks.append(value) or ask(value))
    count = 200
    names = [f"a{index}" for index in range(count)]
    model = parse("g (float[400] x) => (float[2] y) { y = Identity(x) }", 13)
    split = helper.make_node("Split", ["x"], names, axis=0)
    relus = [helper.make_node("Relu", [name], [f"r{name}"]) for name in names[:-1]]
    last = helper.make_node("Identity", [names[-1]], ["y"])
    del model.graph.node[:]
    model.graph.node.extend([split, *relus, last])
    editor = onnx_editor.OnnxEditor(ir.from_proto(model))
    for node in [node for node in editor.model.graph if node.op_type == "Relu"]:
        editor.remove(node)
    assert [node.op_type for node in editor.model.graph] == ["Split", "Identity"]
    assert count <= len(looks) <= 3 * count
