"""Models with what onnx-ir cannot hold, and with names that stand for two values, survive every rewrite."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import pytest
from onnx import ModelProto, TypeProto, helper

import splitops
from splitops.errors import ModelError
from splitops.models.convert import convert_with_report

SEQUENCE_OF_MAPS = helper.make_sequence_type_proto(
    helper.make_map_type_proto(7, helper.make_tensor_type_proto(1, None))
)
OPTIONAL_MAP = helper.make_optional_type_proto(
    helper.make_map_type_proto(8, helper.make_tensor_type_proto(1, [2]))
)


def classifier(kind: TypeProto, *, stated: bool = False) -> ModelProto:
    """A split in front of an operator of ai.onnx.ml whose output is not a tensor."""
    nodes = [
        helper.make_node("Split", ["x"], ["a", "b"], axis=1, num_outputs=2),
        helper.make_node("Concat", ["a", "b"], ["c"], axis=1),
        helper.make_node("ZipMap", ["c"], ["maps"], domain="ai.onnx.ml", classlabels_int64s=[0, 1, 2, 3]),
    ]
    values = [helper.make_value_info("maps", kind)]
    graph = helper.make_graph(
        nodes,
        "classifier",
        [helper.make_tensor_value_info("x", 1, ["n", 4])],
        [helper.make_tensor_value_info("c", 1, ["n", 4])] if stated else values,
        value_info=values if stated else [],
    )
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


@pytest.mark.parametrize("stated", [False, True])
@pytest.mark.parametrize("kind", [SEQUENCE_OF_MAPS, OPTIONAL_MAP], ids=["sequence", "optional"])
def test_types_that_onnx_ir_does_not_know_are_carried(kind: TypeProto, stated: bool) -> None:
    model = classifier(kind, stated=stated)
    results = [
        splitops.simplify(model),
        splitops.convert(model, to="onnx:11"),
        splitops.convert(model, to="onnx:21"),
        splitops.convert(model, splits_only=True),
        splitops.infer(model).model,
    ]
    for made in results:
        found = {info.name: info.type for info in (*made.graph.output, *made.graph.value_info)}
        assert found["maps"] == kind


def test_attributes_that_onnx_ir_cannot_read_are_kept() -> None:
    model = classifier(SEQUENCE_OF_MAPS)
    sparse = onnx.SparseTensorProto(dims=[2])
    model.graph.node.add(op_type="Constant", output=["s"]).attribute.add(
        name="sparse_value", type=onnx.AttributeProto.SPARSE_TENSOR, sparse_tensor=sparse
    )
    for made in (splitops.simplify(model, ["cancel-split-concat"]), splitops.fix(model, ())):
        (kept,) = (node for node in made.graph.node if list(node.output) == ["s"])
        assert kept.attribute[0].sparse_tensor == sparse
    (change,) = convert_with_report(model, to="onnx:11").rejections
    assert "Constant-13 cannot be converted to opset 11: onnx-ir cannot read its sparse_value" in str(change)


HIDING = {
    "an initializer": """g (float[2,4] x, bool c) => (float[a,b] y) <float[1] w = {1}> {
        v = Add(x, w)
        y = If(c) <
            then_branch = t () => (float[n,m] z) <float[1] w = {5}> {
                p, q = Split<axis = 1, num_outputs = 2>(v)
                r = Concat<axis = 1>(p, q)
                z = Add(r, w) },
            else_branch = e () => (float[n,m] z) { z = Add(v, w) }> }""",
    "an input": """g (float[2,4] x, bool c) => (float[2,4] y) <int64 n = {3}> {
        y = Loop(n, c, x) <body = b (int64 i, bool c, float[2,4] x) => (bool go, float[2,4] z) {
            go = Identity(c)
            p, q = Split<axis = 1, num_outputs = 2>(x)
            z = Concat<axis = 1>(q, p) }> }""",
    "a value that a rewrite reads": """g (float[2,4] x, bool c) => (float[a,b] y) {
        p, q = Split<axis = 1, num_outputs = 2>(x)
        y = If(c) <
            then_branch = t () => (float[n,m] z) <float[1] x = {5}> {
                r = Concat<axis = 1>(p, q)
                z = Add(r, x) },
            else_branch = e () => (float[n,m] z) { z = Neg(p) }> }""",
}


def assert_rewrites_are_equal(model: onnx.ModelProto) -> None:
    """Prove that what is made of a model of x [2, 4] and a condition is valid, and gives the same y."""
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    for condition in (True, False):
        feeds: dict[str, Any] = {"x": x, "c": np.array(condition)}
        wanted = splitops.run(model, feeds, engine="reference")["y"]
        for made in (splitops.simplify(model), splitops.convert(model, to="onnx:13")):
            onnx.checker.check_model(made)
            np.testing.assert_array_equal(splitops.run(made, feeds, engine="reference")["y"], wanted)


@pytest.mark.parametrize("name", HIDING)
def test_a_subgraph_may_hide_names_around_it(name: str) -> None:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 18]> {HIDING[name]}')
    onnx.checker.check_model(model)
    assert_rewrites_are_equal(model)


def test_a_branch_may_give_a_value_from_outside_as_it_is() -> None:
    """The checker of onnx, which rejects it, takes what was made of it; the name of one is hidden as well."""
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 18]>
        g (float[2,4] x, bool c) => (float[2,4] y) <int64 n = {3}, int64[2] all = {4, 0}> {
            y = Loop(n, c, x) <body = b (int64 i, bool c, float[2,4] x) => (bool go, float[2,4] z) {
                go = Not(c)
                p, q = Split<axis = 1>(x, all)
                s = Concat<axis = 1>(p)
                w = If(go) <then_branch = t () => (float[2,4] x) { s1 = Neg(x) },
                            else_branch = e () => (float[2,4] s) { x1 = Neg(s) }>
                z = Neg(w) }> }""")
    with pytest.raises(onnx.checker.ValidationError):
        onnx.checker.check_model(model)
    assert_rewrites_are_equal(model)


def test_an_output_that_hides_a_name_is_rejected() -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 18]>
        g (float[2] x, bool c) => (float[2] y) {
            a = Relu(x)
            y = If(c) <
                then_branch = t () => (float[2] z) { b = Neg(a) a = Neg(b) z = Abs(a) },
                else_branch = e () => (float[2] z) { z = Abs(a) }> }""")
    for use in (splitops.simplify, splitops.infer):
        with pytest.raises(ModelError, match="name 'a' is defined again"):
            use(model)
