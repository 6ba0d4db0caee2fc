"""What a row of the table of layers is, and how its functions read a layer and write nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from splitops.errors import ModelError
from splitops.models.abstract_values import AbstractTensor
from splitops.models.movers.followed import shape_of
from splitops.models.movers.mover import ONNX_OPSET, LayerWriter, NodeWriter, Reader
from splitops.models.movers.shapes import broadcast
from splitops.spec.elements.types import ELEMENT_TYPES, ElementType

if TYPE_CHECKING:
    import onnx_ir as ir

    from splitops.models.formats.openvino import Layer, Output

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
"""What stands for the outputs of a layer; None for one that nobody reads."""

Write = Callable[[Any, "Layer", Sequence["ir.Value"]], "ir.Value | Values"]
Infer = Callable[["Layer", Sequence[AbstractTensor]], AbstractTensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerForm:
    """How a layer of some operation sets is written as nodes of an opset, which move to the target."""

    layer: str
    versions: frozenset[str]
    write: Write
    infer_layer: Infer | None = None
    """What is known of its output; None is what the file declares of it."""
    opset: int = ONNX_OPSET
    types: frozenset[ElementType] | None = None
    """The element types of the first input for which both say the same; None are all."""
    broadcasts: bool = False

    def to_onnx(self, builder: NodeWriter, layer: Layer, sources: Sequence[ir.Value]) -> Values:
        """Write a layer as nodes."""
        if self.types is not None:
            check_types(builder, layer, sources[:1], self.types)
        if self.broadcasts:
            check_broadcast(layer)
        made = self.write(builder, layer, sources)
        return made if isinstance(made, Sequence) else [made]


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute that a layer and an operator both have, each by its name."""

    layer: str
    node: str
    read: Callable[[str], Any] | Mapping[str, str | int]
    """What makes a number of its text, or the words of OpenVINO with those of ONNX."""
    layer_default: str | None = None
    """Its text where a layer does not state it; None where it must."""
    node_default: str | int | float | None = None
    """Its value where a node does not state it; None where it must."""

    def of_layer(self, layer: Layer) -> Any:
        """Return the value that a node is to state for a layer."""
        if isinstance(self.read, Mapping):
            return layer.read_enum(self.layer, self.read, self.layer_default)
        stated = layer.attribute(self.layer) or self.layer_default
        try:
            return self.read(stated or "")
        except ValueError as error:
            raise ModelError(f"{layer} has {self.layer} = {stated!r}, which ONNX cannot say") from error

    def of_node(self, node: ir.Node) -> Any:
        """Return the value that a layer is to state for a node; None where it cannot."""
        stated = node.attributes.get(self.node)
        value = self.node_default if stated is None else stated.value
        if not isinstance(self.read, Mapping):
            return value
        return next((word for word, said in self.read.items() if said == value), None)


@dataclass(frozen=True, slots=True)
class Shared:
    """A layer and an operator of the same inputs, attributes and values: the row says both directions."""

    layer: str
    onnx: str
    since: int
    """The version of the operator from which on its text is that of the layer."""
    versions: frozenset[str]
    types: frozenset[ElementType]
    attributes: tuple[Attribute, ...] = ()
    inputs: int = 1
    broadcasts: bool = False
    gives: ElementType | None = None
    """The element type of the output; None is that of the first input."""
    whole: frozenset[ElementType] = frozenset()
    """The element types that the layer returns as they are, which the operator does not take."""

    @property
    def opset(self) -> int:
        """The opset of the node that a layer becomes."""
        return max(self.since, ONNX_OPSET)

    def to_onnx(self, builder: NodeWriter, layer: Layer, sources: Sequence[ir.Value]) -> Values:
        """Write a layer as a node."""
        prove(len(sources) == self.inputs, f"{layer} has {len(sources)} inputs")
        check_types(builder, layer, sources, self.types)
        if self.broadcasts:
            check_broadcast(layer)
        if builder.type_of(sources[0]) in self.whole:
            return [builder.op("Identity", sources)]
        attributes = {attribute.node: attribute.of_layer(layer) for attribute in self.attributes}
        return [builder.op(self.onnx, sources, attributes)]

    def infer_layer(self, layer: Layer, inputs: Sequence[AbstractTensor]) -> AbstractTensor:
        """Return what is known of the output of a layer, see :func:`same` and :func:`broadcasted`."""
        if len(inputs) != self.inputs:
            raise ValueError(f"{len(inputs)} inputs")
        return (broadcasted if self.broadcasts else same)(layer, inputs, self.gives)

    def takes_node(self, node: ir.Node, graph: Reader, opset: int) -> bool:
        """Return whether a node of an opset can be written as a layer."""
        if opset < self.since or len(node.inputs) != self.inputs or len(node.outputs) != 1:
            return False
        types = self.types - self.whole
        if any(value is None or graph.type_of(value) not in types for value in node.inputs):
            return False
        known = {attribute.node for attribute in self.attributes}
        return node.attributes.keys() <= known and all(
            attribute.of_node(node) is not None for attribute in self.attributes
        )

    def to_openvino(self, layers: LayerWriter, node: ir.Node) -> Output:
        """Write a node that the row takes as a layer."""
        data = {attribute.layer: attribute.of_node(node) for attribute in self.attributes}
        if self.broadcasts:
            data["auto_broadcast"] = "numpy"
        version = max(self.versions, key=lambda name: int(name.removeprefix("opset")))
        return layers.layer(node, self.layer, node.inputs, data or None, version=version, kind=self.gives)


def opsets(*numbers: int) -> frozenset[str]:
    """Return operation sets as layers name them."""
    return frozenset(f"opset{number}" for number in numbers)


# What is known of its output


def same(layer: Layer, inputs: Sequence[AbstractTensor], kind: ElementType | None = None) -> AbstractTensor:
    """Return a tensor of the shape of the first input, and of its element type or another."""
    return AbstractTensor(kind or inputs[0].type, inputs[0].shape)


def broadcasted(
    layer: Layer, inputs: Sequence[AbstractTensor], kind: ElementType | None = None
) -> AbstractTensor:
    """Return a tensor of the shape that all inputs have together, of the first one's type or another."""
    if layer.attribute("auto_broadcast") not in (None, "numpy"):
        raise ValueError("not broadcast as NumPy does")
    return AbstractTensor(kind or inputs[0].type, reduce(broadcast, map(shape_of, inputs)))


# What a layer sets


def prove(holds: bool, reason: str) -> None:
    """Reject a layer for a reason, unless something holds."""
    if not holds:
        raise ModelError(reason)


def check_types(
    builder: Reader, layer: Layer, sources: Iterable[ir.Value], types: frozenset[ElementType]
) -> None:
    """Reject a layer of other element types."""
    for source in sources:
        kind = builder.type_of(source)
        prove(kind in types, f"{layer} of {kind} is not said to be the same in ONNX")


def check_broadcast(layer: Layer) -> None:
    """Reject what ONNX does not broadcast alike. Equal shapes need none, pdpd of the last axes is."""
    stated, axis = layer.attribute("auto_broadcast"), layer.attribute("axis")
    alike = stated in (None, "numpy", "none") or (stated == "pdpd" and axis in (None, "-1"))
    prove(alike, f"{layer} has auto_broadcast = {stated!r}")


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
    prove(len(axes) == 1, f"{layer} has {len(axes)} axes")
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
