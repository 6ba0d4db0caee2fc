"""The table entries for layers that are converted to nodes, but not back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from inspect import signature
from typing import TYPE_CHECKING

from splitops.errors import ModelError
from splitops.models.ops.writing import ONNX_OPSET, NodeWriter, Values, require_broadcast, require_types
from splitops.spec.elements.types import ElementType

if TYPE_CHECKING:
    import onnx_ir as ir


_get_signature = cache(signature)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerConverter:
    """Converter of one type of layer to nodes of ``opset``, which are then converted to the target."""

    layer: str
    write: Callable[..., ir.Value | Values]
    """Function that writes the nodes, given their builder and each input of the layer."""
    versions: tuple[int, ...] = (1,)
    opset: int = ONNX_OPSET
    types: frozenset[ElementType] | None = None
    """Element types of the first input for which layer and nodes return the same; None for all."""
    broadcasts: bool = False

    def to_onnx(self, builder: NodeWriter, sources: Sequence[ir.Value]) -> Values:
        """Write a layer as nodes, and return the values of its outputs."""
        if self.types is not None:
            require_types(builder, sources[:1], self.types)
        if self.broadcasts:
            require_broadcast(builder)
        try:
            _get_signature(self.write).bind(builder, *sources)
        except TypeError as error:  # another number of inputs
            raise ModelError(f"{builder.layer} does not match its specification: {error}") from error
        made = self.write(builder, *sources)
        return made if isinstance(made, Sequence) else [made]
