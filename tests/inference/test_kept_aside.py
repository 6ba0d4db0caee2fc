"""What onnx-ir does not read, or reads otherwise, is known to inference all the same."""

from __future__ import annotations

import onnx_ir as ir
from onnx import FunctionProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

import splitops
from splitops.models.graph.onnx import is_constant

OPSET = helper.make_opsetid("", 18)


def value(name: str, shape: list[int | str | None] | None, kind: int = TensorProto.FLOAT) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def model_of(
    nodes: list[NodeProto],
    inputs: list[ValueInfoProto],
    outputs: list[ValueInfoProto],
    functions: list[FunctionProto] | None = None,
) -> ModelProto:
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    imports = [OPSET, helper.make_opsetid("my", 1)]
    return helper.make_model(graph, functions=functions or [], opset_imports=imports, ir_version=10)


def halves(data: str) -> NodeProto:
    return helper.make_node("Split", [data], ["a", "b"], num_outputs=2)


def test_attributes_that_onnx_ir_does_not_read_reach_onnx() -> None:
    numbers = helper.make_tensor("v", TensorProto.FLOAT, [2], [1.0, 2.0])
    places = helper.make_tensor("i", TensorProto.INT64, [2], [0, 3])
    sparse = helper.make_sparse_tensor(numbers, places, [6])
    constant = helper.make_node("Constant", [], ["c"], sparse_value=sparse)
    found = splitops.infer(model_of([constant, halves("x")], [value("x", [6])], [value("a", None)]))
    assert str(found["c"]) == "float32[6]"
    assert str(found["a"]) == "float32[3]"


def test_an_input_that_is_an_output_keeps_its_sizes() -> None:
    outputs = [value("x", ["n"]), value("a", None)]
    found = splitops.infer(model_of([halves("x")], [value("x", [6])], outputs))
    assert str(found["x"]) == "float32[6]"
    assert str(found["a"]) == "float32[3]"


def test_a_branch_may_give_a_value_from_outside() -> None:
    inner = helper.make_graph([], "then", [], [value("y", None)])
    other = helper.make_graph([helper.make_node("Neg", ["y"], ["z"])], "else", [], [value("z", None)])
    nodes = [
        helper.make_node("Relu", ["x"], ["y"]),
        helper.make_node("If", ["c"], ["o"], then_branch=inner, else_branch=other),
        halves("o"),
    ]
    inputs = [value("x", [6]), value("c", [], TensorProto.BOOL)]
    assert str(splitops.infer(model_of(nodes, inputs, [value("a", None)]))["a"]) == "float32[3]"


def test_what_a_function_states_of_its_inputs_is_known() -> None:
    body = helper.make_node("Split", ["p"], ["q", "r"], num_outputs=2)
    function = helper.make_function("my", "f", ["p"], ["q"], [body], [OPSET], [])
    function.value_info.add().CopyFrom(value("p", [8]))
    call = helper.make_node("f", ["x"], ["a"], domain="my")
    model = model_of([call], [value("x", [None])], [value("a", None)], [function])
    assert str(splitops.infer(model)["a"]) == "float32[4]"


def test_what_another_domain_calls_a_constant_is_none() -> None:
    nodes = [ir.node("Constant", [], {"value_int": 1}, domain=domain) for domain in ("", "ai.onnx", "my")]
    assert [is_constant(node.outputs[0]) for node in nodes] == [True, True, False]


def test_a_model_of_onnx_ir_stays_one() -> None:
    given = ir.from_proto(model_of([halves("x")], [value("x", [6])], [value("a", None)]))
    made = splitops.infer(given).model
    assert isinstance(made, ir.Model)
    assert [output.shape for output in made.graph.outputs] == [ir.Shape([3])]
    assert given.graph.outputs[0].shape is None
