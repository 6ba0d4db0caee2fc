"""The table entries for layers that are converted to nodes, but not back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from splitops.models.ops.writing import ONNX_OPSET, NodeWriter, Values, require_broadcast, require_types
from splitops.spec.elements.types import ElementType

if TYPE_CHECKING:
    import onnx_ir as ir

    from splitops.models.formats.openvino import Layer

Write = Callable[[Any, "Layer", Sequence["ir.Value"]], "ir.Value | Values"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerConverter:
    """Converter of one type of layer to nodes of ``opset``, which are then converted to the target."""

    layer: str
    versions: frozenset[str]
    write: Write
    opset: int = ONNX_OPSET
    types: frozenset[ElementType] | None = None
    """Element types of the first input for which layer and nodes return the same; None for all."""
    broadcasts: bool = False

    def to_onnx(self, builder: NodeWriter, layer: Layer, sources: Sequence[ir.Value]) -> Values:
        """Write a layer as nodes, and return the values of its outputs."""
        if self.types is not None:
            require_types(builder, sources[:1], self.types)
        if self.broadcasts:
            require_broadcast(layer)
        made = self.write(builder, layer, sources)
        return made if isinstance(made, Sequence) else [made]


def to_opsets(*numbers: int) -> frozenset[str]:
    """Return the names of operation sets, such as ``"opset1"``."""
    return frozenset(f"opset{number}" for number in numbers)
