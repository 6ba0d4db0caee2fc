"""One row of the table of movers, and what its functions read and write."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy.typing as npt

from splitops.models.abstract_values import AbstractTensor, AbstractValue, Entry
from splitops.models.movers.followed import entries, integers, shape_of
from splitops.spec.sizes.dims import Shape

if TYPE_CHECKING:
    import onnx_ir as ir

    from splitops.models.formats.openvino import Layer, Output
    from splitops.spec.elements.types import ElementType

ONNX_OPSET: Final = 14
"""The opset of the nodes that layers become: the first one whose Reshape can state OpenVINO's."""
EVERY_OPSET: Final = frozenset(f"opset{number}" for number in range(1, 100))


class Role(Enum):
    """What a node is to the rewrites, whatever its format calls it."""

    SPLIT = auto()
    SEQUENCE = auto()
    """A split whose parts are a sequence."""
    CONCAT = auto()
    SLICE = auto()
    GATHER = auto()
    IDENTITY = auto()
    RESHAPE = auto()
    """The same elements in the same order, in another shape: Squeeze, Unsqueeze and Flatten too."""
    TRANSPOSE = auto()
    SUM = auto()


@dataclass(frozen=True, slots=True)
class OnnxNode:
    """A node of the ONNX domain, as inference sees it: attributes are numbers and texts; None is unknown."""

    operator: str
    opset: int
    attributes: Mapping[str, Any]
    inputs: Sequence[AbstractValue]

    def has(self, index: int) -> bool:
        """Return whether anything is known of an input."""
        return index < len(self.inputs) and self.inputs[index] is not None

    def tensor(self, index: int = 0) -> AbstractTensor:
        """Return what is known of an input."""
        known = self.inputs[index] if index < len(self.inputs) else None
        if not isinstance(known, AbstractTensor):
            raise ValueError("nothing is known")
        return known

    def tensors(self) -> list[AbstractTensor]:
        """Return what is known of all inputs."""
        return [self.tensor(index) for index in range(len(self.inputs))]

    def shape(self, index: int = 0) -> Shape:
        """Return the shape of an input."""
        return shape_of(self.tensor(index))

    def entries(self, index: int) -> list[Entry]:
        """Return the numbers of an input, see :func:`~splitops.models.movers.followed.entries`."""
        return entries(self.tensor(index))

    def integers(self, index: int) -> list[int]:
        """Return the numbers of an input."""
        return integers(self.tensor(index))

    def entry(self, index: int) -> Entry:
        """Return the number of an input of one element."""
        known = self.inputs[index] if index < len(self.inputs) else None
        if isinstance(known, AbstractTensor) and known.elements is not None and known.elements.size == 1:
            found: Entry = known.elements.reshape(()).item()
            return found
        return None

    def given(self, name: str, index: int) -> list[int] | None:
        """Return integers that an attribute sets, or in later versions an input; None where neither does."""
        if name in self.attributes:
            return list(self.attributes[name])
        return self.integers(index) if len(self.inputs) > index and self.inputs[index] is not None else None


class Reader(Protocol):
    """What is known of the values of an ONNX graph."""

    def read_constant(self, value: ir.Value) -> npt.NDArray[Any] | None:
        """Return the value of a constant; None where it is computed when the model runs."""

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
        """Add a layer of one output that stands for a node's; of the type of the first input, or ``kind``."""

    def integers(self, values: int | Sequence[int], kind: ElementType | None = None) -> Output:
        """Add a constant, of int64 or ``kind``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mover:
    """An operator that moves data or computes sizes, and means the same in ONNX and OpenVINO.

    Its functions raise :class:`~splitops.errors.ModelError` without a place, which who calls adds; those that
    infer raise any ValueError, IndexError, TypeError, KeyError or OverflowError where too little is known, or
    where the inputs do not fit one another: the model fails there when it runs.

    Attributes:
        onnx: its name in ONNX, in every version.
        openvino: its layer type.
        role: what it is to the rewrites; None is nothing.
        versions: the operation sets of the layers that the functions cover.
        takes_layer: whether they cover what a layer of these versions declares.
        takes_node: whether a node of an opset can be written as a layer.
        infer_layer: what is known of the output of a layer, its numbers included.
        infer_node: what is known of the output of a node, its numbers included.
        to_onnx: write a layer as nodes, of :data:`ONNX_OPSET`.
        to_openvino: write a node of any opset as a layer.
    """

    onnx: str
    openvino: str
    role: Role | None = None
    versions: frozenset[str] = EVERY_OPSET
    takes_layer: Callable[[Layer], bool] = lambda layer: True
    takes_node: Callable[[ir.Node, Reader, int], bool] = lambda node, graph, opset: True
    infer_layer: Callable[[Layer, Sequence[AbstractTensor]], AbstractTensor]
    infer_node: Callable[[OnnxNode], AbstractTensor]
    to_onnx: Callable[[NodeWriter, Layer, Sequence[ir.Value]], ir.Value]
    to_openvino: Callable[[LayerWriter, ir.Node], Output]

    @property
    def opset(self) -> int:
        """The opset of the nodes that a layer becomes."""
        return ONNX_OPSET

    def covers(self, layer: Layer) -> bool:
        """Return whether a layer of this type is one that the functions cover."""
        return layer.version in self.versions and self.takes_layer(layer)
