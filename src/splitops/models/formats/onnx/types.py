"""Between what inference knows and ONNX's types: reading declared ones, writing found ones."""

from __future__ import annotations

from onnx import TensorShapeProto, TypeProto

from splitops.models.abstract_values import AbstractSequence, AbstractTensor, AbstractValue, Opaque
from splitops.spec.elements.types import from_onnx
from splitops.spec.sizes.dims import UNKNOWN, Dim, Range, Shape


class SizeNames:
    """Names for sizes in one exchange with onnx, so that ranges without a name survive it too."""

    def __init__(self) -> None:
        self.sizes: dict[str, Dim] = {}

    def give(self, size: Range) -> str:
        """Return the name under which a size goes out."""
        name = size.name if size.name is not None else f"\0{len(self.sizes)}"
        self.sizes[name] = size
        return name

    def take(self, name: str) -> Dim:
        """Return the size that comes back; a name that onnx has made up says nothing."""
        return self.sizes.get(name, UNKNOWN)


def from_type(proto: TypeProto, names: SizeNames | None = None) -> AbstractValue:
    """Read an ONNX type: of a model, or what comes back from an exchange."""
    match proto.WhichOneof("value"):
        case "tensor_type":
            tensor = proto.tensor_type
            shape = _shape(tensor.shape, names) if tensor.HasField("shape") else None
            return AbstractTensor(from_onnx(tensor.elem_type), shape)
        case "sequence_type":
            element = from_type(proto.sequence_type.elem_type, names)
            return AbstractSequence(element) if isinstance(element, AbstractTensor) else _opaque(proto)
        case None:
            return None
        case _:
            return _opaque(proto)


def _opaque(proto: TypeProto) -> Opaque:
    return Opaque(proto.SerializeToString(deterministic=True))


def _shape(shape: TensorShapeProto, names: SizeNames | None) -> Shape:
    return tuple(_dimension(dim, names) for dim in shape.dim)


def _dimension(dim: TensorShapeProto.Dimension, names: SizeNames | None) -> Dim:
    if dim.HasField("dim_value"):
        return dim.dim_value if dim.dim_value >= 0 else UNKNOWN
    name: object = dim.dim_param
    if not isinstance(name, str) or not any(map(str.isalnum, name)):
        return UNKNOWN  # '?' names no size; protobuf gives bytes that are not text as bytes
    return Range(name=name) if names is None else names.take(name)


def to_type(known: AbstractValue, names: SizeNames | None = None) -> TypeProto | None:
    """Write an ONNX type; None where not even the element type is known.

    Outside of an exchange, only names that models may have are written.
    """
    if isinstance(known, Opaque):
        found: TypeProto = TypeProto.FromString(known.type)
        return found
    if isinstance(known, AbstractSequence):
        element = to_type(known.element, names)
        return None if element is None else TypeProto(sequence_type=TypeProto.Sequence(elem_type=element))
    if not isinstance(known, AbstractTensor) or known.type is None or known.type.onnx_number is None:
        return None
    tensor = TypeProto.Tensor(elem_type=known.type.onnx_number)
    if known.shape is not None:
        tensor.shape.CopyFrom(TensorShapeProto())
        for size in known.shape:
            dim = tensor.shape.dim.add()
            if isinstance(size, int):
                dim.dim_value = size
            elif names is not None and size != UNKNOWN:
                dim.dim_param = names.give(size)
            elif size.name is not None:
                dim.dim_param = size.name
    return TypeProto(tensor_type=tensor)
