"""What a builder writes, the editor of the same dialect reads."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from splitops.models.formats.openvino import Builder
from splitops.models.formats.openvino.nodes import to_nodes
from splitops.models.graph.editor import Editor
from splitops.models.graph.onnx import find_shape
from splitops.models.graph.onnx_editor import OnnxEditor
from splitops.models.graph.openvino_editor import OpenVINOEditor

DIALECTS = ["onnx:1", "onnx:5", "onnx:9", "onnx:10", "onnx:13", "onnx:18", "openvino"]


def edited(dialect: str) -> tuple[Editor, ir.Node]:
    """An editor of a model of one ReLU of shape (6, 4), and the node."""
    if dialect == "openvino":
        builder = Builder("relu")
        builder.result(*builder.layer("ReLU", [builder.parameter("x", "f32", (6, 4))], shapes=[(6, 4)]))
        nodes = to_nodes(builder.model())
        editor: Editor = OpenVINOEditor(nodes)
        return editor, next(node for node in nodes.graph if node.op_type == "ReLU")
    opset = dialect.removeprefix("onnx:")
    text = (
        f'<ir_version: 8, opset_import: ["": {opset}]> g (float[6, 4] x) => (float[6, 4] y) {{ y = Relu(x) }}'
    )
    model = ir.from_onnx_text(text)
    return OnnxEditor(model), model.graph[0]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_editor_reads_what_its_pen_writes(dialect: str) -> None:
    editor, node = edited(dialect)
    builder, data = editor.make_builder(node), node.inputs[0]
    assert data is not None
    written = {
        "slice": builder.slice(data, {0: slice(1, 4, 1)}),
        "gather": builder.gather(data, [2, 0], 1),
        "transpose": builder.transpose(data, [1, 0]),
        "concat": builder.concatenate([data, data], 1),
    }
    made = {name: value.producer() for name, value in written.items()}
    assert None not in made.values()
    assert editor.read_slices(made["slice"], 2) == {0: slice(1, 4, 1)}  # type: ignore[arg-type]
    axis, positions = editor.read_gather(made["gather"]) or (None, [])  # type: ignore[arg-type]
    assert (axis, list(positions)) == (1, [2, 0])
    assert editor.read_permutation(made["transpose"], 2) == [1, 0]  # type: ignore[arg-type]
    assert editor.find_axis(made["concat"]) == 1  # type: ignore[arg-type]
    shapes = {name: find_shape(value) for name, value in written.items()}
    assert shapes == {"slice": (3, 4), "gather": (6, 2), "transpose": (4, 6), "concat": (6, 8)}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_pen_writes_splits_that_its_editor_reads(dialect: str) -> None:
    editor, node = edited(dialect)
    data = node.inputs[0]
    assert data is not None
    for sizes in ([2, 4], [3, 3]):
        parts = editor.make_builder(node).split(data, 0, 6, sizes)
        split = parts[0].producer()
        assert split is not None
        cut = editor.read_split_facts(split)
        assert cut is not None
        assert (cut.axis, cut.sizes) == (0, tuple(sizes))
        assert [find_shape(part) for part in parts] == [(size, 4) for size in sizes]


def test_what_stands_for_a_node_keeps_its_name_metadata_and_documentation() -> None:
    editor, node = edited("onnx:13")
    node.name, node.doc_string = "act", "what it is for"
    node.metadata_props["namespace"] = "layer.0"
    made = editor.make_builder(node).add("Abs", list(node.inputs))
    editor.substitute(node, [made])
    maker = made.producer()
    assert maker is not None
    found = (maker.name, maker.doc_string, dict(maker.metadata_props), made.name)
    assert found == ("act", "what it is for", {"namespace": "layer.0"}, "y")
