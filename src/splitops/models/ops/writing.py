"""What writes nodes and layers, and what converters require of a layer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from splitops.errors import ModelError
from splitops.spec.elements.types import ELEMENT_TYPES, ElementType
from splitops.spec.sizes.dims import Shape

if TYPE_CHECKING:
    import onnx_ir as ir

    from splitops.models.formats.openvino import Layer, Output

ONNX_OPSET: Final = 14
"""The opset of the nodes that layers become: the first one whose Reshape can set OpenVINO's."""
BOOL, INT32, INT64 = (ELEMENT_TYPES[name] for name in ("bool", "int32", "int64"))
FLOATS: Final = frozenset(ELEMENT_TYPES[name] for name in ("float16", "bfloat16", "float32", "float64"))
SIZES: Final = frozenset({INT32, INT64})
"""The integers of which both dialects say that they wrap; of narrower ones OpenVINO says nothing."""
NUMBERS: Final = FLOATS | SIZES
INTEGERS: Final = frozenset(
    ELEMENT_TYPES[f"{sign}int{bits}"] for sign in ("", "u") for bits in (8, 16, 32, 64)
)
LOGICAL: Final = frozenset({BOOL})

T = TypeVar("T")

Values = Sequence["ir.Value | None"]
"""The outputs of a layer; None for one that is unused."""


class Reader(Protocol):
    """What is inferred of the values of an ONNX graph."""

    def read_constant(self, value: ir.Value) -> npt.NDArray[Any] | None:
        """Return the elements of a constant, or None if they are computed when the model runs."""

    def type_of(self, value: ir.Value) -> ElementType | None:
        """Return the element type."""

    def shape_of(self, value: ir.Value) -> Shape | None:
        """Return the shape."""


class NodeWriter(Reader, Protocol):
    """Writes ONNX nodes."""

    def op(
        self, operator: str, inputs: Sequence[ir.Value | None], attributes: dict[str, Any] | None = None
    ) -> ir.Value:
        """Add a node of one output."""

    def cast(self, value: ir.Value, element_type: ElementType) -> ir.Value:
        """Add a Cast."""

    def integers(self, values: Sequence[int], /) -> ir.Value:
        """Add a 1-D constant of int64."""

    def constant(self, array: npt.NDArray[Any], /) -> ir.Value:
        """Add a constant."""


class LayerWriter(Reader, Protocol):
    """Writes OpenVINO layers."""

    def layer(
        self,
        node: ir.Node,
        type_: str,
        inputs: Sequence[ir.Value | Output | None],
        data: Mapping[str, object] | None = None,
        *,
        version: str = "opset1",
        kind: ElementType | None = None,
    ) -> Output:
        """Add a layer of one output in place of a node: of the type of the first input, or ``kind``."""

    def integers(self, values: int | Sequence[int], kind: ElementType | None = None) -> Output:
        """Add a constant, of int64 or ``kind``."""


# What a layer sets


def require(holds: bool, reason: str) -> None:
    """Reject a layer for a reason, unless something holds."""
    if not holds:
        raise ModelError(reason)


def require_types(
    builder: Reader, layer: Layer, sources: Iterable[ir.Value], types: frozenset[ElementType]
) -> None:
    """Reject a layer of other element types."""
    for source in sources:
        kind = builder.type_of(source)
        require(kind in types, f"{layer} of {kind} is not said to be the same in ONNX")


def require_broadcast(layer: Layer) -> None:
    """Reject what ONNX does not broadcast alike. Equal shapes need none, pdpd of the last axes is."""
    stated, axis = layer.get_attribute("auto_broadcast"), layer.get_attribute("axis")
    alike = stated in (None, "numpy", "none") or (stated == "pdpd" and axis in (None, "-1"))
    require(alike, f"{layer} has auto_broadcast = {stated!r}")


# What is known of its inputs


def must_know(found: T | None, what: str) -> T:
    """Return what is known, or reject a layer of which it is not."""
    if found is None:
        raise ModelError(f"{what} is not known")
    return found


def constant(builder: Reader, layer: Layer, value: ir.Value, name: str) -> npt.NDArray[Any]:
    """Return the numbers of an input that ONNX needs to be constant."""
    found = builder.read_constant(value)
    if found is None:
        verb = "are" if name in ("axes", "sizes", "steps") else "is"
        raise ModelError(f"the {name} of {layer} {verb} computed when the model runs. ONNX needs a constant")
    return found


def axes_of(builder: Reader, layer: Layer, value: ir.Value, name: str = "axes") -> list[int]:
    """Return the integers of an input that ONNX needs to be constant."""
    return [int(axis) for axis in constant(builder, layer, value, name).reshape(-1)]


def axis_input(builder: Reader, layer: Layer, value: ir.Value) -> int:
    """Return the axis that ONNX needs to be constant."""
    axes = axes_of(builder, layer, value, "axis")
    require(len(axes) == 1, f"{layer} has {len(axes)} axes")
    return axes[0]


def rank_of(builder: Reader, layer: Layer, value: ir.Value) -> int:
    """Return the rank of an input."""
    return len(must_know(builder.shape_of(value), f"the rank of what {layer} takes"))


def length_of(builder: Reader, value: ir.Value, what: str) -> int:
    """Return how many numbers a 1-D input has."""
    shape = must_know(builder.shape_of(value), what)
    return must_know(shape[0] if isinstance(shape[0], int) else None, what)


def scalar(builder: NodeWriter, number: float, like: ir.Value) -> ir.Value:
    """Add a constant of the type of a value."""
    return builder.constant(np.array(number, must_know(builder.type_of(like), "the element type").numpy))


def as_int64(builder: NodeWriter, value: ir.Value) -> ir.Value:
    """Return integers as ONNX takes sizes and positions."""
    return value if builder.type_of(value) is INT64 else builder.cast(value, INT64)


def as_positions(builder: NodeWriter, value: ir.Value) -> ir.Value:
    """Return integers as ONNX takes positions."""
    return value if builder.type_of(value) in SIZES else builder.cast(value, INT64)
