"""The model class that all tools share: an ONNX or OpenVINO model, checked once and converted to onnx-ir."""

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
    deserialize_model,
    name_parts,
    serialize_model,
    unmark_locations,
)
from splitops.models.formats.onnx.structure import check_model
from splitops.models.formats.onnx.value_info import Values, declare_values
from splitops.models.formats.openvino import OpenVINOModel
from splitops.models.formats.openvino.nodes import from_nodes, to_nodes

if TYPE_CHECKING:
    from splitops.models.formats.files import AnyModel, ModelInMemory


@dataclass(frozen=True)
class CheckedModel:
    """A well-formed model of either format. It is never changed: tools edit a :meth:`copy`.

    Attributes:
        where: location of the model, for messages.
    """

    where: Where
    _source: ModelProto | OpenVINOModel
    _is_onnx_ir: bool = False
    _kept: Mapping[str, tuple[TensorProto, TensorProto]] = field(default_factory=dict)
    """Tensors that :meth:`write` replaces with references if unchanged; see :func:`keep_external`."""

    @classmethod
    def read(
        cls, model: AnyModel, *, weights: bool = True, allow_links: bool = False, keep_data: bool = False
    ) -> CheckedModel:
        """Read the model at a path, or check a model in memory.

        The options apply only to models at a path. Without ``weights``, with ``keep_data``, or if the model
        exceeds 2 GB, ONNX initializers of more than 32 KiB in other files are not read. With ``keep_data``,
        :meth:`write` returns a model that still refers to these files. ``allow_links``: see :func:`load`.
        """
        where, given = make_location(model), cast("Any", model)
        if is_openvino(model):
            source = openvino.open_model(given, allow_links=allow_links)
            return cls(Where(where.model or source.file), source)
        kept: dict[str, tuple[TensorProto, TensorProto]] | None = {} if keep_data else None
        weights = weights and not keep_data
        proto = storage.open_model(given, where, weights=weights, allow_links=allow_links, kept=kept)
        return cls(where, proto, isinstance(model, ir.Model), kept or {})

    @property
    def is_openvino(self) -> bool:
        """Whether the model is OpenVINO IR, not ONNX."""
        return isinstance(self._source, OpenVINOModel)

    @property
    def proto(self) -> ModelProto:
        """The ONNX model as protobuf, for functions of onnx. Raises ModelError for OpenVINO IR."""
        if isinstance(self._source, OpenVINOModel):
            raise ModelError("this is OpenVINO IR, not ONNX", self.where)
        return self._source

    @cached_property
    def nodes(self) -> ir.Model:
        """The model as an onnx-ir model, which must not be changed."""
        if isinstance(self._source, OpenVINOModel):
            return to_nodes(self._source)
        return deserialize_model(self._source, self.where)

    def copy(self, *, name_unread: bool = True) -> ir.Model:
        """Return a copy as an onnx-ir model, for editing. ``name_unread``: see :func:`copy_for_rewriting`."""
        if isinstance(self._source, OpenVINOModel):
            return to_nodes(self._source)
        return copy_for_rewriting(self._source, self.where, name_unread=name_unread)

    def write(self, edited: ir.Model, *, changed: bool = True) -> ModelInMemory:
        """Convert an ``edited`` :meth:`copy` to the type of the model that was read.

        An ONNX protobuf is checked again or, if nothing was ``changed``, copied from the source. For an
        onnx-ir model, ``edited`` itself is returned.
        """
        if isinstance(self._source, OpenVINOModel):
            return from_nodes(edited)
        if self._is_onnx_ir:
            name_parts(edited)
            unmark_locations(edited)
            return edited
        proto = self.to_proto(edited) if changed else storage.copy_proto(self._source)
        if changed:
            check_model(proto, self.where)
        if self._kept:
            storage.keep_external(proto, self._kept)
        return proto

    def to_proto(self, edited: ir.Model) -> ModelProto:
        """Convert an edited copy of an ONNX model to protobuf."""
        return serialize_model(edited, self.proto)

    def declare(self, values: Values) -> ModelProto | ir.Model:
        """Return a copy of an ONNX model that declares the types and shapes in ``values``."""
        proto = declare_values(self.proto, values)
        if not self._is_onnx_ir:
            return proto
        nodes = deserialize_model(proto, self.where)
        unmark_locations(nodes)
        return nodes
