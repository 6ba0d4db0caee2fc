"""One entry of the table of layers that are only written as nodes."""

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
    """How a layer of some operation sets is written as nodes of an opset, which move to the target."""

    layer: str
    versions: frozenset[str]
    write: Write
    opset: int = ONNX_OPSET
    types: frozenset[ElementType] | None = None
    """The element types of the first input for which both mean the same; None are all."""
    broadcasts: bool = False

    def to_onnx(self, builder: NodeWriter, layer: Layer, sources: Sequence[ir.Value]) -> Values:
        """Write a layer as nodes."""
        if self.types is not None:
            require_types(builder, layer, sources[:1], self.types)
        if self.broadcasts:
            require_broadcast(layer)
        made = self.write(builder, layer, sources)
        return made if isinstance(made, Sequence) else [made]


def to_opsets(*numbers: int) -> frozenset[str]:
    """Return operation sets as layers name them."""
    return frozenset(f"opset{number}" for number in numbers)
