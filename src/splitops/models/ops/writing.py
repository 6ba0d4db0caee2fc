"""Protocols for writers of nodes and layers, and helpers that converters share."""

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
"""Minimum opset of the nodes to which layers are converted: the first in which Reshape has ``allowzero``."""
BOOL, INT32, INT64 = (ELEMENT_TYPES[name] for name in ("bool", "int32", "int64"))
FLOATS: Final = frozenset(ELEMENT_TYPES[name] for name in ("float16", "bfloat16", "float32", "float64"))
SIZES: Final = frozenset({INT32, INT64})
"""Integer types that wrap around in ONNX and OpenVINO. OpenVINO does not specify this for narrower types."""
NUMBERS: Final = FLOATS | SIZES
INTEGERS: Final = frozenset(
    ELEMENT_TYPES[f"{sign}int{bits}"] for sign in ("", "u") for bits in (8, 16, 32, 64)
)
LOGICAL: Final = frozenset({BOOL})

T = TypeVar("T")

Values = Sequence["ir.Value | None"]
"""The outputs of a layer. Unused ones may be None."""


class Reader(Protocol):
    """Reads the constants and the inferred types and shapes of an ONNX graph."""

    def read_constant(self, value: ir.Value) -> npt.NDArray[Any] | None:
        """Return the elements of a value, or None if it is not constant or they are not available."""

    def find_type(self, value: ir.Value) -> ElementType | None:
        """Return the element type, or None if it is unknown."""

    def find_shape(self, value: ir.Value) -> Shape | None:
        """Return the shape, or None if the rank is unknown."""


class NodeWriter(Reader, Protocol):
    """The methods with which converters of layers add ONNX nodes."""

    @property
    def layer(self) -> Layer:
        """The layer that is converted."""

    def add(
        self, operator: str, inputs: Sequence[ir.Value | None], attributes: dict[str, Any] | None = None
    ) -> ir.Value:
        """Add a node, and return its only output."""

    def cast(self, value: ir.Value, element_type: ElementType) -> ir.Value:
        """Add a Cast, and return its output."""

    def add_ints(self, values: Sequence[int], /) -> ir.Value:
        """Add a 1-D int64 constant with these elements."""

    def add_constant(self, array: npt.NDArray[Any], /) -> ir.Value:
        """Add a constant with the type, shape and elements of ``array``."""


class LayerWriter(Reader, Protocol):
    """The methods with which converters of nodes add OpenVINO layers."""

    def add_layer(
        self,
        node: ir.Node,
        type_: str,
        inputs: Sequence[ir.Value | Output | None],
        data: Mapping[str, object],
        *,
        version: int,
        kind: ElementType | None = None,
    ) -> tuple[Output, ...]:
        """Add a layer for ``node``. The type of its outputs is ``kind`` or that of the first input."""

    def add_integers(self, values: int | Sequence[int] | npt.NDArray[Any]) -> Output:
        """Add a constant of integers, which are int64 unless they are an array."""


# Attributes of a layer


def require(builder: NodeWriter, holds: bool, reason: str) -> None:
    """Raise ModelError for the layer unless ``holds`` is true. ``reason`` is the predicate of the message."""
    if not holds:
        raise ModelError(f"{builder.layer} {reason}")


def require_types(builder: NodeWriter, sources: Iterable[ir.Value], types: frozenset[ElementType]) -> None:
    """Raise ModelError unless the element types of all ``sources`` of a layer are among ``types``."""
    for kind in map(builder.find_type, sources):
        require(builder, kind in types, f"of {kind} is not specified to be the same in ONNX")


def require_broadcast(builder: NodeWriter) -> None:
    """Raise ModelError if ONNX would broadcast the inputs of a layer differently."""
    # "none" requires equal shapes, and "pdpd" with axis -1 aligns the last axes, as NumPy and ONNX do.
    mode, axis = builder.layer.get_attribute("auto_broadcast"), builder.layer.get_attribute("axis")
    same = mode in (None, "numpy", "none") or (mode == "pdpd" and axis in (None, "-1"))
    require(builder, same, f"has auto_broadcast = {mode!r}, which ONNX cannot express")


# Inputs of a layer


def unwrap(fact: T | None, what: str) -> T:
    """Return an inferred type, shape or size. If it is None, raise ModelError ("``what`` is unknown")."""
    if fact is None:
        raise ModelError(f"{what} is unknown")
    return fact


def require_constant(builder: NodeWriter, value: ir.Value, name: str) -> npt.NDArray[Any]:
    """Return the elements of the input ``name``, which must be constant because ONNX requires it."""
    constant = builder.read_constant(value)
    if constant is None:
        verb = "are" if name in ("axes", "sizes", "steps") else "is"
        raise ModelError(
            f"the {name} of {builder.layer} {verb} computed when the model runs. ONNX needs a constant"
        )
    return constant


def read_integers(builder: NodeWriter, value: ir.Value, name: str = "axes") -> list[int]:
    """Return the integers in an input, which must be a constant."""
    return [int(axis) for axis in require_constant(builder, value, name).reshape(-1)]


def read_axis(builder: NodeWriter, value: ir.Value) -> int:
    """Return the axis in an input, which must be a constant with one element."""
    axes = read_integers(builder, value, "axis")
    require(builder, len(axes) == 1, f"has {len(axes)} axes, not 1")
    return axes[0]


def get_rank(builder: NodeWriter, value: ir.Value) -> int:
    """Return the rank of an input. Raise ModelError if it is unknown."""
    return len(unwrap(builder.find_shape(value), f"the rank of an input of {builder.layer}"))


def get_length(builder: Reader, value: ir.Value, what: str) -> int:
    """Return the length of a 1-D input. If it is not known, raise ModelError ("``what`` is unknown")."""
    shape = unwrap(builder.find_shape(value), what)
    return unwrap(shape[0] if len(shape) == 1 and isinstance(shape[0], int) else None, what)


def add_scalar(builder: NodeWriter, number: float, like: ir.Value) -> ir.Value:
    """Add a scalar constant with the element type of ``like``."""
    return builder.add_constant(np.array(number, unwrap(builder.find_type(like), "the element type").numpy))


def as_int64(builder: NodeWriter, value: ir.Value) -> ir.Value:
    """Cast integers to int64, as ONNX requires for sizes."""
    return value if builder.find_type(value) is INT64 else builder.cast(value, INT64)


def as_positions(builder: NodeWriter, value: ir.Value) -> ir.Value:
    """Cast integers to int64 unless they are int32, which ONNX accepts for positions, too."""
    return value if builder.find_type(value) in SIZES else builder.cast(value, INT64)
