"""Every field of text in a model, filled with bytes that are none: protobuf reads them, and gives bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from onnx import helper

import splitops

Step = tuple[str, int | None]
MARK, NO_TEXT = b"\x01\x02\x03\x04", b"\xff\xfe\xfd\xfc"
TEXT = """
    <ir_version: 10, opset_import: ["": 18, "f": 1], producer_name: "p", producer_version: "1", domain: "d",
     model_version: 1, doc_string: "doc", metadata_props: ["key": "value"]>
    g (float[N, 4] x, bool c) => (float[A, B] a, float[A, 2] b)
      <float[2] w = {1, 2}, int64[2] lengths = {2, 2}> {
      u, v = Split<axis = 1>(x, lengths)
      q = f.two<k: int = 1>(u)
      b = Identity(v)
      a = If(c) <then_branch = yes () => (float[A, B] t) { t = Add(q, w) },
                 else_branch = no () => (float[A, B] e) { e = Sub(u, outside) }>
    }
    <domain: "f", opset_import: ["": 18], doc_string: "doc">
    two <k>(i) => (o) {
      s = SplitToSequence<axis = 1, keepdims: int = @k>(i)
      o = ConcatFromSequence<axis = 1>(s)
    }"""


def model(folder: Path) -> onnx.ModelProto:
    """Return a model that has each field of text that a split can meet, and external data in a folder."""
    made = onnx.parser.parse_model(TEXT)
    graph, function, split = made.graph, made.functions[0], made.graph.node[0]
    outside = graph.initializer.add(
        name="outside", data_type=onnx.TensorProto.FLOAT, dims=[2], data_location=1
    )
    for key, value in {"location": "outside.bin", "offset": "0", "length": "8"}.items():
        outside.external_data.add(key=key, value=value)
    (folder / "outside.bin").write_bytes(bytes(8))
    described: tuple[Any, ...] = (graph, split, split.attribute[0], graph.input[0], graph.initializer[0])
    for item in described:
        item.doc_string = "doc"
    for item in (graph, split, graph.initializer[0]):
        item.metadata_props.add(key="key", value="value")
    graph.input[0].type.denotation = "TENSOR"
    graph.input[0].type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
    quantized = graph.quantization_annotation.add(tensor_name="x")
    quantized.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="w")
    graph.value_info.append(helper.make_tensor_value_info("u", onnx.TensorProto.FLOAT, ["N", 2]))
    function.attribute_proto.append(helper.make_attribute("other", "text"))
    function.value_info.append(helper.make_tensor_value_info("o", onnx.TensorProto.FLOAT, ["N", 2]))
    return made


def texts(message: Message, path: tuple[Step, ...] = ()) -> Iterator[tuple[Step, ...]]:
    """Yield where a message has text."""
    for field, found in message.ListFields():
        several = not isinstance(found, str | bytes | int | float | Message)
        for index, item in enumerate(found) if several else ((None, found),):
            step = (*path, (field.name, index))
            if isinstance(item, Message):
                yield from texts(item, step)
            elif field.type == FieldDescriptor.TYPE_STRING:
                yield step


def broken(model: onnx.ModelProto, path: tuple[Step, ...]) -> bytes:
    """Return the model with bytes that are not text at a place."""
    item: Any = model
    for name, index in path[:-1]:
        item = getattr(item, name) if index is None else getattr(item, name)[index]
    name, index = path[-1]
    if index is None:
        setattr(item, name, MARK.decode())
    else:
        getattr(item, name)[index] = MARK.decode()
    return model.SerializeToString().replace(MARK, NO_TEXT)


ACTIONS: dict[str, Callable[[Path], object]] = {
    "run": lambda path: splitops.run(path, {"x": np.zeros((2, 4), np.float32), "c": np.array(True)}),
    "check": splitops.check,
    "infer": splitops.infer,
    "simplify": lambda path: splitops.simplify(path).SerializeToString(),
    "convert to opset 20": lambda path: splitops.convert(path, 20).SerializeToString(),
    "convert to OpenVINO": lambda path: splitops.convert(path, "openvino"),
    "fix": lambda path: splitops.fix(path, "onnxruntime"),
    "files": splitops.files.open,
}


def rejects(action: str, path: Path) -> bool:
    """Return whether an action rejects a model, in one line; a traceback of another kind is our fault."""
    problem = None
    try:
        ACTIONS[action](path)
    except splitops.SplitError as error:
        problem = str(error)
    assert problem is None or len(problem.splitlines()) == 1
    return problem is not None


@pytest.mark.parametrize("action", ACTIONS)
def test_bytes_that_are_no_text_are_taken_or_rejected(tmp_path: Path, action: str) -> None:
    if "OpenVINO" in action:
        pytest.importorskip("openvino")  # which moves what is not a split
    path, rejected = tmp_path / "model.onnx", set()
    path.write_bytes(model(tmp_path).SerializeToString())
    assert not rejects(action, path)
    for place in texts(model(tmp_path)):
        path.write_bytes(broken(model(tmp_path), place))
        if rejects(action, path):
            rejected.add(".".join(name if index is None else f"{name}[{index}]" for name, index in place))
    meant = {
        "graph.node[0].op_type",
        "opset_import[1].domain",
        "graph.node[3].attribute[0].g.name",
        "graph.initializer[2].external_data[0].value",
    }
    if action == "check":  # says what it finds
        assert not rejected
    else:
        assert rejected >= meant
    if action == "run":  # what only describes a model may be anything
        assert rejected.isdisjoint({"graph.doc_string", "graph.metadata_props[0].value", "producer_name"})
