"""What a run gives and aliases an input or a constant is a read-only view that is its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx.parser
import pytest
from onnx import ModelProto, numpy_helper
from onnx.reference import ReferenceEvaluator

import splitops
from splitops.models.formats import openvino as openvino_ir
from splitops.onnx import get_reference_ops


def arrays_of(value: Any) -> Iterator[np.ndarray]:
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, list):
            yield from arrays_of(item)
        elif isinstance(item, np.ndarray):
            yield item


def model(body: str, opset: int = 18, outputs: str = "float a, float b") -> ModelProto:
    return onnx.parser.parse_model(f"""
        <ir_version: 9, opset_import: ["": {opset}]>
        g (float[6] x) => ({outputs}) {body}""")


def constant(name: str) -> Any:
    return numpy_helper.from_array(np.arange(6, dtype=np.float32), name)


def with_initializer() -> ModelProto:
    made = model("{ a, b = Split<num_outputs = 2>(w) }")
    made.graph.initializer.append(constant("w"))
    return made


def with_constant() -> ModelProto:
    made = model("{ w = Constant<value_float = 1.0>() a, b = Split<num_outputs = 2>(w) }")
    made.graph.node[0].attribute[0].CopyFrom(onnx.helper.make_attribute("value", constant("")))
    return made


def with_plain_constant() -> ModelProto:
    made = with_constant()
    made.graph.node[0].output[0] = "a"
    made.graph.node.pop(1)
    made.graph.output.pop(1)
    return made


def with_if() -> ModelProto:
    return model(
        "{ yes = Constant<value = bool {1}>()"
        "  a, b = If(yes) <then_branch = t () => (float c, float d) { c, d = Split<num_outputs = 2>(x) },"
        "                  else_branch = e () => (float c, float d) { c, d = Split<num_outputs = 2>(x) }> }"
    )


MODELS = {
    "split": lambda: model("{ a, b = Split<num_outputs = 2>(x) }"),
    "sequence": lambda: model("{ a = SplitToSequence(x) }", outputs="seq(float) a"),
    "reshaped": lambda: model(
        "{ s = Constant<value_ints = [2, 3]>() r = Reshape(x, s) a, b = Split<num_outputs = 2>(r) }"
    ),
    "if": with_if,
    "initializer": with_initializer,
    "constant": with_constant,
    "plain constant": with_plain_constant,
}


@pytest.mark.parametrize("name", MODELS)
def test_what_an_onnx_model_gives_cannot_change_its_inputs_or_constants(name):
    made = MODELS[name]()
    prepared = splitops.session(made, "reference")
    x = np.arange(6, dtype=np.float32)
    first = prepared.run({"x": x})
    assert x.flags.writeable
    found = list(arrays_of(list(first.values())))
    assert found
    before = [part.copy() for part in found]
    for part in found:
        with pytest.raises(ValueError, match="read-only"):
            part[...] = 99
        if name in {"initializer", "constant", "plain constant"}:
            with pytest.raises(ValueError, match="WRITEABLE"):
                part.flags.writeable = True
        np.array(part)[...] = 99
    again = list(arrays_of(list(prepared.run({"x": x}).values())))
    for part, expected in zip(again, before, strict=True):
        np.testing.assert_array_equal(part, expected)


def test_a_sequence_that_goes_through_has_read_only_elements():
    made = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["": 18]>
        g (seq(float[2]) s) => (float[2] a, seq(float[2]) t) {
            zero = Constant<value_int = 0>()
            a = SequenceAt(s, zero)
            t = SequenceInsert(s, a, zero) }""")
    given = [np.zeros(2, np.float32), np.ones(2, np.float32)]
    outputs = splitops.run(made, {"s": given}, engine="reference")
    assert all(array.flags.writeable for array in given)
    assert not outputs["a"].flags.writeable
    assert not any(array.flags.writeable for array in outputs["t"])


@pytest.mark.parametrize("source", ["input", "constant"])
def test_what_an_ir_gives_cannot_change_its_inputs_or_constants(source):
    builder = openvino_ir.Builder()
    data = builder.parameter("data", "f32", "6")
    if source == "constant":
        builder.result(data, "same")
        data = builder.const(np.arange(6, dtype=np.float32))
    parts = builder.layer("Split", [data, builder.const(0)], {"num_splits": 2}, outputs=2)
    for index, part in enumerate(parts):
        builder.result(part, f"part{index}")
    builder.result(data, "whole")
    given = np.arange(6, dtype=np.float32)
    outputs = splitops.run(builder.model(), {"data": given}, engine="reference")
    assert given.flags.writeable
    assert not any(array.flags.writeable for array in outputs.values())
    assert all(array is not given for array in outputs.values())


@pytest.mark.parametrize("operator", ["Split", "SplitToSequence"])
def test_parts_of_reference_ops_are_read_only(operator):
    body = "{ a, b = Split<num_outputs = 2>(x) }" if operator == "Split" else "{ a = SplitToSequence(x) }"
    outputs = "float a, float b" if operator == "Split" else "seq(float) a"
    evaluator = ReferenceEvaluator(model(body, outputs=outputs), new_ops=get_reference_ops())
    x = np.arange(6, dtype=np.float32)
    found = list(arrays_of(evaluator.run(None, {"x": x})))
    assert found
    assert not any(part.flags.writeable for part in found)
    assert x.flags.writeable
