"""A model as every tool sees it: nodes, whatever its format."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import onnx_ir as ir
from onnx import ModelProto

from splitops.errors import NOWHERE, Where
from splitops.ground.reading import place_of
from splitops.models.formats import openvino
from splitops.models.formats.files import is_openvino
from splitops.models.formats.onnx import storage
from splitops.models.formats.openvino import OpenVINOModel
from splitops.models.graph.editor import Editor
from splitops.models.graph.onnx_editor import OnnxEditor
from splitops.models.graph.onnx_model import as_graph, copy_of, editable_copy, name_parts, unmark, written
from splitops.models.graph.openvino import from_nodes, source_of, to_nodes
from splitops.models.graph.openvino_editor import OpenVINOEditor


@dataclass(frozen=True)
class NodeModel:
    """A well-formed model: what the caller gave, and as its format has it, which is not changed.

    Protobuf and layers are what it is read from, and what a result is written as.
    """

    given: Any
    source: ModelProto | OpenVINOModel
    where: Where

    @classmethod
    def opened(cls, given: Any, *, weights: bool = True, allow_links: bool = False) -> NodeModel:
        """Read a model of a path, or prove one in memory; without ``weights``, external data stays unread."""
        where = place_of(given)
        if not is_openvino(given):
            return cls(given, storage.opened(given, weights=weights, allow_links=allow_links), where)
        source = openvino.opened(given, allow_links=allow_links)
        return cls(given, source, Where(where.model or source.file))

    @cached_property
    def nodes(self) -> ir.Model:
        """The model as nodes, for reading."""
        if isinstance(self.source, OpenVINOModel):
            return to_nodes(self.source)
        return as_graph(self.source, self.where)

    def editable(self, *, name_unread: bool = True) -> ir.Model:
        """Return nodes of their own for rewriting; of ONNX, see :func:`editable_copy`."""
        if isinstance(self.source, OpenVINOModel):
            return to_nodes(self.source)
        return editable_copy(self.source, self.where, name_unread=name_unread)

    def result(self, edited: ir.Model, *, changed: bool) -> ModelProto | ir.Model | OpenVINOModel:
        """Return what nodes for rewriting stand for now, of the kind that was given."""
        if isinstance(self.source, OpenVINOModel):
            return from_nodes(edited)
        if isinstance(self.given, ir.Model):
            name_parts(edited)
            unmark(edited)
            return edited
        if not changed:
            return copy_of(self.source)
        name_parts(edited)
        return written(edited, self.source)


def editor_of(nodes: ir.Model, where: Where = NOWHERE) -> Editor:
    """Return the editor for the nodes of a model; what is known of their values is noted there."""
    return OnnxEditor(nodes, where) if source_of(nodes) is None else OpenVINOEditor(nodes, where)
