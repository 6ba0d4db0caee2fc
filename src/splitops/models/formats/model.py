"""A model as every tool sees it: read and checked once, then the nodes of onnx-ir, whatever its format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import onnx_ir as ir
from onnx import ModelProto, TensorProto

from splitops.common.untrusted_files import make_location
from splitops.errors import ModelError, Where
from splitops.models.formats import openvino
from splitops.models.formats.files import is_openvino
from splitops.models.formats.onnx import storage
from splitops.models.formats.onnx.graphs import (
    copy_for_rewriting,
    copy_proto,
    deserialize_model,
    name_parts,
    serialize_model,
    unmark,
)
from splitops.models.formats.onnx.structure import check_model
from splitops.models.formats.onnx.value_info import Values, declare_values
from splitops.models.formats.openvino import OpenVINOModel
from splitops.models.formats.openvino.nodes import from_nodes, to_nodes

if TYPE_CHECKING:
    from splitops.models.formats.files import AnyModel, ModelInMemory


@dataclass(frozen=True)
class CheckedModel:
    """A well-formed model, which is not changed: tools read its nodes, or change a copy of them.

    Attributes:
        where: the model, for messages.
    """

    where: Where
    _source: ModelProto | OpenVINOModel
    _is_onnx_ir: bool = False
    _kept: Mapping[str, tuple[TensorProto, TensorProto]] = field(default_factory=dict)
    """Tensors that name their data in other files again when the model is written: :func:`keep_external`."""

    @classmethod
    def read(
        cls, model: AnyModel, *, weights: bool = True, allow_links: bool = False, keep_data: bool = False
    ) -> CheckedModel:
        """Read a model of a path, or check one in memory.

        Without ``weights``, large external data stays unread. With ``keep_data``, of the path of an ONNX
        model, what is written names external data where it is.
        """
        where, given = make_location(model), cast("Any", model)
        if is_openvino(model):
            source = openvino.opened(given, allow_links=allow_links)
            return cls(Where(where.model or source.file), source)
        kept: dict[str, tuple[TensorProto, TensorProto]] | None = {} if keep_data else None
        weights = weights and not keep_data
        proto = storage.opened(given, where, weights=weights, allow_links=allow_links, kept=kept)
        return cls(where, proto, isinstance(model, ir.Model), kept or {})

    @property
    def is_openvino(self) -> bool:
        """Whether it is OpenVINO IR; if not, it is ONNX."""
        return isinstance(self._source, OpenVINOModel)

    @property
    def proto(self) -> ModelProto:
        """An ONNX model for the tools of onnx itself, which read protobuf alone."""
        if isinstance(self._source, OpenVINOModel):
            raise ModelError("this is OpenVINO IR, not ONNX", self.where)
        return self._source

    @cached_property
    def nodes(self) -> ir.Model:
        """The model as nodes, for reading."""
        if isinstance(self._source, OpenVINOModel):
            return to_nodes(self._source)
        return deserialize_model(self._source, self.where)

    def copy(self, *, name_unread: bool = True) -> ir.Model:
        """Return a copy of the nodes for rewriting; of ONNX, see :func:`copy_for_rewriting`."""
        if isinstance(self._source, OpenVINOModel):
            return to_nodes(self._source)
        return copy_for_rewriting(self._source, self.where, name_unread=name_unread)

    def write(self, edited: ir.Model, *, changed: bool = True) -> ModelInMemory:
        """Return a rewritten copy, well formed, as the kind of model that was read."""
        if isinstance(self._source, OpenVINOModel):
            return from_nodes(edited)
        if self._is_onnx_ir:
            name_parts(edited)
            unmark(edited)
            return edited
        made = self.to_proto(edited) if changed else copy_proto(self._source)
        if changed:
            check_model(made, self.where)
        if self._kept:
            storage.keep_external(made, self._kept)
        return made

    def to_proto(self, edited: ir.Model) -> ModelProto:
        """Return a rewritten copy of an ONNX model in protobuf."""
        return serialize_model(edited, self.proto)

    def declare(self, values: Values) -> ModelProto | ir.Model:
        """Return a copy of an ONNX model that declares the types and shapes of values."""
        made = declare_values(self.proto, values)
        if not self._is_onnx_ir:
            return made
        nodes = deserialize_model(made, self.where)
        unmark(nodes)
        return nodes
