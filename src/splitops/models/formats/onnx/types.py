"""Convert between ONNX types in protobuf and abstract values."""

from __future__ import annotations

from onnx import TensorShapeProto, TypeProto

from splitops.models.abstract_values import AbstractSequence, AbstractTensor, AbstractValue, Opaque
from splitops.spec.elements.types import from_onnx
from splitops.spec.sizes.dims import UNKNOWN, Dim, Range, Shape


class SizeNames:
    """Names sizes for one call of onnx's shape inference, so that its result can be mapped back to ranges."""

    def __init__(self) -> None:
        self.sizes: dict[str, Dim] = {}

    def to_name(self, size: Range) -> str:
        """Return the name of a size: its own, or a generated one."""
        name = size.name if size.name is not None else f"\0{len(self.sizes)}"
        self.sizes[name] = size
        return name

    def from_name(self, name: str) -> Dim:
        """Return the size with this name, or :data:`UNKNOWN` if onnx has made the name up."""
        return self.sizes.get(name, UNKNOWN)


def from_type(proto: TypeProto, names: SizeNames | None = None) -> AbstractValue:
    """Convert an ONNX type, or return None if it is unset. ``names`` maps dimension names back to sizes."""
    match proto.WhichOneof("value"):
        case "tensor_type":
            tensor = proto.tensor_type
            shape = _read_shape(tensor.shape, names) if tensor.HasField("shape") else None
            return AbstractTensor(from_onnx(tensor.elem_type), shape)
        case "sequence_type":
            element = from_type(proto.sequence_type.elem_type, names)
            return AbstractSequence(element) if isinstance(element, AbstractTensor) else _make_opaque(proto)
        case None:
            return None
        case _:
            return _make_opaque(proto)


def _make_opaque(proto: TypeProto) -> Opaque:
    return Opaque(proto.SerializeToString(deterministic=True))


def _read_shape(shape: TensorShapeProto, names: SizeNames | None) -> Shape:
    return tuple(_read_dimension(dim, names) for dim in shape.dim)


def _read_dimension(dim: TensorShapeProto.Dimension, names: SizeNames | None) -> Dim:
    if dim.HasField("dim_value"):
        return dim.dim_value if dim.dim_value >= 0 else UNKNOWN
    name: object = dim.dim_param
    if not isinstance(name, str) or not any(map(str.isalnum, name)):
        return UNKNOWN  # a name such as '?', or one that is not UTF-8, which protobuf returns as bytes
    return Range(name=name) if names is None else names.from_name(name)


def to_type(value: AbstractValue, names: SizeNames | None = None) -> TypeProto | None:
    """Convert an abstract value to an ONNX type.

    Return None if ``value`` is None, or if its element type is unknown or not in ONNX. Unnamed ranges with
    bounds get a name from ``names``. Without ``names``, they become unknown dimensions.
    """
    if isinstance(value, Opaque):
        proto: TypeProto = TypeProto.FromString(value.type)
        return proto
    if isinstance(value, AbstractSequence):
        element = to_type(value.element, names)
        return None if element is None else TypeProto(sequence_type=TypeProto.Sequence(elem_type=element))
    if not isinstance(value, AbstractTensor) or value.type is None or value.type.onnx_number is None:
        return None
    tensor = TypeProto.Tensor(elem_type=value.type.onnx_number)
    if value.shape is not None:
        tensor.shape.CopyFrom(TensorShapeProto())
        for size in value.shape:
            dim = tensor.shape.dim.add()
            if isinstance(size, int):
                dim.dim_value = size
            elif names is not None and size != UNKNOWN:
                dim.dim_param = names.to_name(size)
            elif size.name is not None:
                dim.dim_param = size.name
    return TypeProto(tensor_type=tensor)
