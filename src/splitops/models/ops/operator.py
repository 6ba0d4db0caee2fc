"""Definitions of operators: what they compute, and how the versions of ONNX and OpenVINO write them.

A :class:`Spelling` defines how a dialect (ONNX or OpenVINO) sets the operands of an operator, starting with
one version: as inputs, as attributes, or to a fixed value. Operands have the same names in every dialect and
version. An :class:`Operator` has its spellings, and the functions that infer, fold and convert it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from splitops.common.integers import INT64_MAX, INT64_MIN
from splitops.errors import ModelError
from splitops.models.abstract_values import MAX_ELEMENTS, AbstractTensor, AbstractValue, Entry, Value
from splitops.spec.elements.types import ElementType, from_openvino
from splitops.spec.sizes.dims import Shape, to_exact

if TYPE_CHECKING:
    import onnx_ir as ir

    from splitops.models.ops.writing import NodeWriter, Reader

T = TypeVar("T")
_MAX_RANK: Final = 64


class Unknown(ModelError):  # noqa: N818 - the model may be valid
    """A node cannot be inferred: its operands are invalid, unsupported or not known well enough."""


class Role(Enum):
    """A kind of operator that rewrites look for. ONNX and OpenVINO have the same kinds, except SEQUENCE."""

    SPLIT = auto()
    SEQUENCE = auto()
    """A split that returns its parts as a sequence."""
    CONCAT = auto()
    SLICE = auto()
    GATHER = auto()
    IDENTITY = auto()
    RESHAPE = auto()
    """An operator that returns the same elements in another shape, such as Squeeze or Flatten."""
    TRANSPOSE = auto()
    SUM = auto()


# Readers of attributes, which are text in IR and numbers in ONNX


def as_integer(value: Any) -> int:
    """Convert an attribute to a 64-bit integer."""
    number = int(value)
    if not INT64_MIN <= number <= INT64_MAX:
        raise ValueError(f"{value!r} is not a 64-bit integer")
    return number


def as_integers(value: Any) -> list[int]:
    """Convert a sequence or comma-separated text to a list of 64-bit integers."""
    parts = [part for part in value.split(",") if part.strip()] if isinstance(value, str) else value
    return [as_integer(part) for part in parts]


def as_flag(value: Any) -> bool:
    """Convert 0, 1, true or false to a boolean."""
    text = str(value).strip().lower()
    if text not in ("true", "1", "false", "0"):
        raise ValueError(f"{value!r} is neither true nor false")
    return text in ("true", "1")


def as_name(value: Any) -> str:
    """Convert the name of a mode to lower case."""
    return str(value).lower()


def as_type(value: Any, find: Callable[[Any], ElementType | None] = from_openvino) -> ElementType:
    """Convert the name of an element type in OpenVINO IR, such as ``i64``, or another name with ``find``."""
    kind = find(value)
    if kind is None:
        raise ValueError(f"{value!r} is not an element type")
    return kind


REQUIRED: Final = object()


@dataclass(frozen=True, slots=True)
class Attribute:
    """An operand that is an attribute.

    Attributes:
        read: function that converts the attribute to the operand, or a mapping from text to operands.
        default: operand if the attribute is not set. None omits the operand, and ``REQUIRED`` is an error.
        name: name of the attribute, if it differs from that of the operand.
        write: function that converts the operand to the attribute. None inverts ``read`` if it is a mapping,
            and otherwise writes the operand unchanged.
    """

    read: Callable[[Any], Any] | Mapping[str, Any]
    default: Any = REQUIRED
    name: str | None = None
    write: Callable[[Any], Any] | None = None

    def read_from(self, attributes: Mapping[str, Any], operand: str) -> Any:
        """Read an operand from the attributes of a node.

        Raises:
            Unknown: a required attribute is absent, or its value is invalid.
        """
        name = self.name or operand
        text = attributes.get(name)
        if text is None:
            if self.default is REQUIRED:
                raise Unknown(f"no attribute {name!r}; it is required")
            return self.default
        if not callable(self.read):
            if str(text).lower() not in self.read:
                raise Unknown(f"{name} = {str(text).lower()!r}; supported: {', '.join(self.read)}")
            return self.read[str(text).lower()]
        try:
            return self.read(text)
        except (TypeError, ValueError, OverflowError) as error:  # another type of attribute, or invalid text
            raise Unknown(f"{name} = {text!r}") from error

    def to_attribute(self, value: Any) -> Any:
        """Convert an operand to the attribute. Return None if it is to be omitted or cannot be expressed."""
        if self.write is not None:
            return self.write(value)
        if callable(self.read):
            return value
        return next((name for name, meaning in self.read.items() if meaning == value), None)


@cache
def _parse_inputs(text: str) -> tuple[tuple[str, bool, bool], ...]:
    """Return the name of each input of a spelling, whether it is required, and whether it is repeated."""
    return tuple((name.rstrip("?*"), name[-1] not in "?*", name[-1] == "*") for name in text.split())


@dataclass(frozen=True, slots=True)
class Spelling:
    """How ONNX or OpenVINO writes an operator, starting with one version: its name, inputs and attributes.

    Attributes:
        name: name of the operator in the dialect.
        inputs: names of the operands that are inputs, in order. ``?`` marks an optional one, ``*`` a repeated
            one.
        attributes: attributes, keyed by operand.
        since: first opset or operation set for which this spelling is used.
        fixed: operands that nodes cannot set, with their values.
        demands: attributes that are not operands, with the default, which is their only supported value.
        versions: operation sets whose layers can be converted; None for ``since`` and all later ones.
    """

    name: str
    inputs: str = "data"
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    since: int = 1
    fixed: Mapping[str, Any] = field(default_factory=dict)
    demands: Mapping[str, Any] = field(default_factory=dict)
    versions: tuple[int, ...] | None = None

    def read(self, attributes: Mapping[str, Any], inputs: Sequence[T | None]) -> dict[str, Any]:
        """Return the operands of a node by name: fixed values, values of attributes, and inputs unchanged.

        Raises:
            Unknown: an input or a required attribute is missing, or one of them is not supported.
        """
        operands: dict[str, Any] = dict(self.fixed)
        declared = _parse_inputs(self.inputs)
        if declared and declared[-1][2]:
            operands[declared[-1][0]] = list(inputs)
        elif len(inputs) > len(declared) and any(value is not None for value in inputs[len(declared) :]):
            raise Unknown(f"{len(inputs)} inputs; the maximum is {len(declared)}")
        else:
            for at, (name, required, _) in enumerate(declared):
                value = inputs[at] if at < len(inputs) else None
                if value is not None:
                    operands[name] = value
                elif required:
                    raise Unknown(f"{len(inputs)} inputs; {name!r} is missing")
        for name, value in self.demands.items():
            if str(attributes.get(name, value)).lower() != str(value):
                raise Unknown(f"{name} = {attributes[name]!r}")
        for name, attribute in self.attributes.items():
            value = attribute.read_from(attributes, name)
            if value is not None:
                operands[name] = value
        return operands

    def write(
        self, operands: Mapping[str, Any], constant: Callable[[Any, str], T]
    ) -> tuple[list[T | None], dict[str, Any]]:
        """Return the inputs and attributes that set ``operands``.

        Args:
            operands: values, numbers and lists of numbers by name. None omits an operand.
            constant: function that creates an input from numbers and the name of their operand.

        Raises:
            Unknown: the version fixes an operand to another value.
        """
        for name, value in self.fixed.items():
            if operands.get(name, value) != value:
                raise Unknown(f"{self.name} of version {self.since} has no {name} = {operands[name]}")
        inputs: list[T | None] = []
        for name, _, repeated in _parse_inputs(self.inputs):
            value = operands.get(name)
            if repeated:
                inputs += value or []
            elif isinstance(value, int | float | Sequence | np.ndarray):
                inputs.append(constant(value, name))
            else:
                inputs.append(value)
        while inputs and inputs[-1] is None:
            inputs.pop()
        attributes = dict(self.demands)
        for name, attribute in self.attributes.items():
            if operands.get(name) is not None:
                value = attribute.to_attribute(operands[name])
                if value is not None:
                    attributes[attribute.name or name] = value
        return inputs, attributes

    def can_write(self, operands: Mapping[str, Any]) -> bool:
        """Return whether a node of this version can have all of ``operands``."""
        names = {name for name, _, _ in _parse_inputs(self.inputs)} | self.attributes.keys()
        return all(
            name in names or self.fixed.get(name, operands) == value for name, value in operands.items()
        ) and all(
            callable(attribute.read) or attribute.to_attribute(operands[name]) is not None
            for name, attribute in self.attributes.items()
            if name in operands
        )


class Operands:
    """Operands of one node, keyed by name: abstract values of inputs, and values of attributes.

    Attributes:
        of_layer: whether the node is an OpenVINO layer. The dialects differ in details of some operators.
    """

    __slots__ = ("_values", "of_layer")

    def __init__(self, values: Mapping[str, Any], *, of_layer: bool) -> None:
        self._values = values
        self.of_layer = of_layer

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def __getitem__(self, name: str) -> Any:
        """Return an operand: the value of an attribute, or the abstract value of an input."""
        if name not in self._values:
            raise Unknown(f"{name} is absent")
        return self._values[name]

    def get(self, name: str, default: Any = None) -> Any:
        """Return an operand, or ``default`` if it is absent."""
        return self._values.get(name, default)

    def get_tensor(self, name: str = "data") -> AbstractTensor:
        """Return the abstract tensor of an input."""
        tensor = self[name]
        if not isinstance(tensor, AbstractTensor):
            raise Unknown(f"{name} is not a tensor")
        return tensor

    def get_tensors(self, name: str = "values") -> list[AbstractTensor]:
        """Return the abstract tensors of a repeated input, which must consist of one or more tensors."""
        values: list[AbstractValue] = self[name]
        tensors = [value for value in values if isinstance(value, AbstractTensor)]
        if not tensors or len(tensors) < len(values):
            raise Unknown(f"{name} are not tensors")
        return tensors

    def get_shape(self, name: str = "data") -> Shape:
        """Return the shape of an input. Raise Unknown if its rank is unknown."""
        return get_shape(self.get_tensor(name))

    def get_type(self, name: str = "data") -> ElementType | None:
        """Return the element type of an input, or None if it is unknown."""
        return self.get_tensor(name).type

    def get_elements(self, name: str = "data") -> Value:
        """Return the elements of an input, which must be tracked. Each is a number, a Range or None."""
        return get_elements(self.get_tensor(name))

    def get_complete_elements(self, name: str = "data") -> Value:
        """Return the elements of an input. Raise Unknown if not all of them are known."""
        if not self.get_tensor(name).is_complete:
            raise Unknown(f"an element of {name} is unknown")
        return self.get_elements(name)

    def get_array(self, name: str = "data", default: Any = None) -> npt.NDArray[Any]:
        """Return an operand, or ``default``, as an array. All elements of an input must be known."""
        value = self._values.get(name, default)
        array = value.to_array() if isinstance(value, AbstractTensor) else np.asarray(value)
        assert array is not None, "only functions that fold call this, with inputs that are known"
        return array

    def get_entries(self, name: str) -> list[Entry]:
        """Return the elements of an attribute, or of a tensor of rank 0 or 1. Unknown elements are None."""
        value = self[name]
        if not isinstance(value, AbstractTensor):
            return list(value) if isinstance(value, Sequence) else [value]
        return get_entries(value)

    def get_integers(self, name: str, default: Sequence[int] | None = None) -> list[int]:
        """Return the integers of an attribute, or of a tensor of rank 0 or 1. All must be known.

        Return ``default``, if there is one, for an absent operand.
        """
        if default is not None and name not in self:
            return list(default)
        entries = self.get_entries(name)
        integers = [int(entry) for entry in entries if isinstance(entry, int)]
        if len(integers) < len(entries):
            raise Unknown(f"an element of {name} is unknown")
        return integers

    def get_entry(self, name: str) -> Entry:
        """Return an attribute, or the element of a one-element tensor.

        Return None if the element is unknown or the tensor is not known to have exactly one.
        """
        value = self[name]
        if not isinstance(value, AbstractTensor):
            return value  # type: ignore[no-any-return]  # the value of an attribute
        if value.elements is None or value.elements.size != 1:
            return None
        entry: Entry = value.elements.reshape(()).item()
        return entry

    def get_integer(self, name: str) -> int:
        """Return an attribute, or the element of a one-element tensor. It must be a known integer."""
        entry = self.get_entry(name)
        if not isinstance(entry, int):
            raise Unknown(f"{name} is unknown")
        return int(entry)


def get_shape(tensor: AbstractTensor) -> Shape:
    """Return the shape of a tensor. Raise Unknown if its rank is unknown."""
    if tensor.shape is None:
        raise Unknown("the rank is unknown")
    return tensor.shape


def reject_rounding(*arrays: npt.NDArray[Any]) -> None:
    """Raise Unknown for floats: runtimes fuse and reorder their sums and products, and round differently."""
    if any(array.dtype.kind == "f" for array in arrays):
        raise Unknown("runtimes fuse floating-point arithmetic, and round it differently")


def get_elements(tensor: AbstractTensor) -> Value:
    """Return the elements of a tensor. Raise Unknown if they are not tracked."""
    if tensor.elements is None:
        raise Unknown("the elements are not tracked")
    return tensor.elements


def get_entries(tensor: AbstractTensor) -> list[Entry]:
    """Return the elements of a tensor of rank 0 or 1, or one None for each if they are not tracked."""
    if tensor.elements is not None and tensor.elements.ndim <= 1:
        entries: list[Entry] = tensor.elements.reshape(-1).tolist()
        return entries
    shape = get_shape(tensor)
    count = shape[0] if len(shape) == 1 else 1 if not shape else None
    if not isinstance(count, int) or count > _MAX_RANK:
        raise Unknown("the number of elements is unknown")
    return [None] * count


def infer_result(
    data: AbstractTensor, shape: Shape | None, compute: Callable[[], Value], kind: ElementType | None = None
) -> AbstractTensor:
    """Return an abstract value computed from ``data``. Its type is ``kind``, or that of ``data``.

    ``compute`` returns the elements of the result. It is called only if those of ``data`` are tracked and the
    result is not known to be too large. The shape is then that of these elements. If ``compute`` raises
    ValueError, the elements are not tracked.
    """
    element_type = kind or data.type
    if data.elements is None:
        return AbstractTensor(element_type, shape)
    exact = to_exact(shape)
    if exact is not None and math.prod(exact) > MAX_ELEMENTS:
        return AbstractTensor(element_type, shape)
    try:
        value = compute()
    except ValueError:
        return AbstractTensor(element_type, shape)
    return AbstractTensor(element_type, tuple(value.shape), value)


Infer = Callable[[Operands], "AbstractTensor | Sequence[AbstractTensor]"]
Fold = Callable[..., Any]
Sources = Sequence["ir.Value"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """An operator: its spellings in both dialects, and how it is inferred, folded and converted.

    Attributes:
        onnx: spellings in ONNX, the newest first; empty if ONNX does not have the operator.
        openvino: spellings in OpenVINO, the newest first; empty if OpenVINO does not have the operator.
        role: kind of operator for rewrites, or None if no rewrite matches it.
        infer: function that infers the outputs from the operands. It may raise :class:`Unknown`.
        fold: function that computes the outputs from the operands and the arrays of all inputs. It may raise
            the ValueError, IndexError or ArithmeticError of NumPy for inputs that do not match.
        result: element type of the output, if it is always the same.
        types: element types of the inputs for which both dialects return the same; None for all.
        converts: whether a node and a layer mean the same, so that each can be converted to the other.
        adapt_layer: function that returns a layer's operands for ONNX, or adds nodes and returns the output.
        adapt_node: function that returns a node's operands for OpenVINO, or None to reject it.
        can_convert_node: function that returns whether a node with these operands means the same as a layer.
    """

    onnx: tuple[Spelling, ...] = ()
    openvino: tuple[Spelling, ...] = ()
    role: Role | None = None
    infer: Infer
    fold: Fold | None = None
    result: ElementType | None = None
    types: frozenset[ElementType] | None = None
    converts: bool = False
    adapt_layer: Callable[[NodeWriter, dict[str, Any]], dict[str, Any] | ir.Value] | None = None
    adapt_node: Callable[[Reader, dict[str, Any]], dict[str, Any] | None] | None = None
    can_convert_node: Callable[[Reader, dict[str, Any]], bool] | None = None
    identity_types: frozenset[ElementType] = frozenset()
    """Element types that the layer returns unchanged and the ONNX operator does not support."""
