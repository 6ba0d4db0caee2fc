"""What movers ask of the values of an ONNX graph."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt
import onnx_ir as ir

from splitops.models.graph import onnx as graph
from splitops.spec.elements.types import ElementType
from splitops.spec.sizes.dims import Shape


class ValueReader:
    """A :class:`~splitops.models.movers.mover.Reader` of values that carry what is known of them."""

    def numbers(self, value: ir.Value) -> npt.NDArray[Any] | None:
        """Return the value of a constant; None where it is computed when the model runs."""
        return graph.constant_array(value)

    def type_of(self, value: ir.Value) -> ElementType | None:
        """Return the element type."""
        return graph.type_of(value)

    def shape_of(self, value: ir.Value) -> Shape | None:
        """Return the shape."""
        return graph.shape_of(value)
