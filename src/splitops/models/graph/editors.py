"""Make the editor for a model of either format."""

from __future__ import annotations

import onnx_ir as ir

from splitops.errors import NOWHERE, Where
from splitops.models.formats.walk import has_layers
from splitops.models.graph.editor import Editor
from splitops.models.graph.onnx_editor import OnnxEditor
from splitops.models.graph.openvino_editor import OpenVINOEditor


def make_editor(nodes: ir.Model, where: Where = NOWHERE) -> Editor:
    """Return the editor for the format of a model whose values inference has annotated."""
    return OpenVINOEditor(nodes, where) if has_layers(nodes) else OnnxEditor(nodes, where)
