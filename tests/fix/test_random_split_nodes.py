"""Sites drawn at random: whatever is legal, or is made so, gives the specified bits on the runtime itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pytest
from fix_helpers import difference, is_right
from hypothesis import event, given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

import splitops
from splitops.errors import SplitError
from splitops.models.fix import fix_with_report

TYPES = ["float32", "int8", "uint16", "int32", "uint64", "bool", "float16"]


@dataclass(frozen=True)
class Drawn:
    """A model of one split node, and sizes of its axis to run it on."""

    model: onnx.ModelProto
    kind: str
    axis: int
    sizes: tuple[int, ...]

    def feeds(self, size: int) -> dict[str, Any]:
        shape = [2, 3]
        shape[self.axis] = size
        values = np.random.default_rng(size).integers(0, 256, shape)
        return {"x": values.astype(self.kind)}


@st.composite
def sites(draw: st.DrawFn, types: list[str]) -> Drawn:
    kind, axis, opset = (
        draw(st.sampled_from(types)),
        draw(st.sampled_from([0, 1])),
        draw(st.sampled_from([2, 11, 13, 18])),
    )
    size = draw(st.integers(0, 7))
    is_open = draw(st.booleans())
    shape: list[Any] = [2, 3]
    shape[axis] = "N" if is_open else size
    number = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    sequence = opset >= 11 and draw(st.booleans())
    node, constants = _sequence(draw, size) if sequence else _split(draw, size, opset)
    node.attribute.append(
        helper.make_attribute("axis", axis if opset < 11 else draw(st.sampled_from([axis, axis - 2])))
    )
    nodes, outputs = [node], []
    if sequence:
        nodes += _readers(draw)
        if draw(st.booleans()):
            outputs.append(helper.make_tensor_sequence_value_info("s", number, None))
        outputs += [
            helper.make_tensor_value_info(
                made.output[0], onnx.TensorProto.INT64 if made.op_type == "SequenceLength" else number, None
            )
            for made in nodes[1:]
        ]
        if not outputs:
            outputs.append(helper.make_tensor_sequence_value_info("s", number, None))
    else:
        outputs = [helper.make_tensor_value_info(name, number, None) for name in node.output if name]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", number, shape)], outputs, constants
    )
    graph.initializer.append(numpy_helper.from_array(np.array(0), "zero"))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    more = draw(st.tuples(st.integers(0, 9), st.integers(0, 9))) if is_open else ()
    return Drawn(model, kind, axis, (size, *more))


def _parts(draw: st.DrawFn, size: int) -> list[int]:
    """Lengths that add up to a size, some of them 0."""
    marks = sorted(draw(st.lists(st.integers(0, size), min_size=0, max_size=3)))
    return [end - begin for begin, end in zip([0, *marks], [*marks, size], strict=True)]


def _split(draw: st.DrawFn, size: int, opset: int) -> tuple[onnx.NodeProto, list[onnx.TensorProto]]:
    lengths = _parts(draw, size)
    stated = draw(st.booleans())
    count = len(lengths) if stated else draw(st.integers(1, 5))
    declared = draw(st.integers(1, count)) if opset >= 18 and not stated else count
    names = [f"y{index}" for index in range(declared)]
    for index in draw(st.lists(st.integers(0, declared - 1), max_size=declared - 1, unique=True)):
        names[index] = ""
    if not any(names):
        names[0] = "y0"
    inputs, attributes, constants = ["x"], {}, []
    if stated and opset >= 13:
        inputs.append("k")
        constants.append(numpy_helper.from_array(np.array(lengths), "k"))
    elif stated:
        attributes["split"] = lengths
    elif opset >= 18:
        attributes["num_outputs"] = count
        inputs += [""] * draw(st.integers(0, 1))
    return helper.make_node("Split", inputs, names, **attributes), constants


def _sequence(draw: st.DrawFn, size: int) -> tuple[onnx.NodeProto, list[onnx.TensorProto]]:
    form = draw(st.sampled_from(["none", "chunk", "lengths"]))
    keepdims = {"keepdims": draw(st.integers(0, 1))} if draw(st.booleans()) else {}
    if form == "none":
        return helper.make_node("SplitToSequence", ["x"], ["s"], **keepdims), []
    value = np.array(draw(st.integers(1, 4))) if form == "chunk" else np.array(_parts(draw, size))
    constant = numpy_helper.from_array(value.astype(draw(st.sampled_from([np.int32, np.int64]))), "k")
    return helper.make_node("SplitToSequence", ["x", "k"], ["s"], **keepdims), [constant]


def _readers(draw: st.DrawFn) -> list[onnx.NodeProto]:
    readers = {
        "at": helper.make_node("SequenceAt", ["s", "zero"], ["at"]),
        "n": helper.make_node("SequenceLength", ["s"], ["n"]),
    }
    return [readers[name] for name in draw(st.lists(st.sampled_from(sorted(readers)), unique=True))]


def hold(runtime: str, drawn: Drawn) -> None:
    """Fix a model, and compare the runtime with the specification on every size that the source accepts."""
    given_bytes = drawn.model.SerializeToString(deterministic=True)
    unbind = "as-written"
    report = fix_with_report(drawn.model, runtime, unbind=unbind, partial=True)
    assert drawn.model.SerializeToString(deterministic=True) == given_bytes, "the caller's model has changed"
    event(report.splits[0].status.value)
    if report.unfixable:
        assert report.model == drawn.model
        return
    for size in drawn.sizes:
        feeds = drawn.feeds(size)
        try:
            expected = splitops.run(drawn.model, feeds)
        except SplitError:
            continue
        assert difference(expected, splitops.run(report.model, feeds)) is None
        problem = is_right(runtime, report.model, drawn.model, feeds)
        assert problem is None, f"{problem}\n{report}\n{onnx.printer.to_text(report.model)}"


@settings(max_examples=30)
@given(drawn=sites(TYPES))
def test_onnxruntime(drawn: Drawn) -> None:
    pytest.importorskip("onnxruntime")
    hold("onnxruntime", drawn)


@settings(max_examples=12)
@given(drawn=sites(["float32", "int8", "bool", "float16"]))
def test_openvino(drawn: Drawn) -> None:
    pytest.importorskip("openvino")
    hold("openvino", drawn)
