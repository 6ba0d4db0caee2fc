"""What an operator is spelled like in each dialect, and once what it means.

A :class:`Spelling` is how a dialect sets the operands of an operator from one version on: which of them are
inputs, which are attributes, and which the version does not let choose. Tools know operands by their names,
whatever the dialect and version. An :class:`Operator` has its spellings and its meaning.
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

from splitops.errors import ModelError
from splitops.models.abstract_values import MAX_ELEMENTS, AbstractTensor, AbstractValue, Entry, Value
from splitops.spec.elements.types import ElementType
from splitops.spec.sizes.dims import Shape

if TYPE_CHECKING:
    import onnx_ir as ir

    from splitops.models.formats.openvino import Layer
    from splitops.models.ops.writing import NodeWriter, Reader

T = TypeVar("T")
_MAX_RANK: Final = 64


class Unknown(ModelError):  # noqa: N818 - it is no fault of the model
    """Too little is known of a node, or its operands do not fit one another: then it fails when it runs."""


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


# How attributes are read: IR has them as text, ONNX as numbers


def as_integer(value: Any) -> int:
    """Read a 64-bit integer."""
    number = int(value)
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError(f"{value!r} is not a 64-bit integer")
    return number


def as_integers(value: Any) -> list[int]:
    """Read a list of 64-bit integers."""
    parts = [part for part in value.split(",") if part.strip()] if isinstance(value, str) else value
    return [as_integer(part) for part in parts]


def as_number(value: Any) -> float:
    """Read a number."""
    return float(value)


def as_flag(value: Any) -> bool:
    """Read 0, 1, true or false."""
    word = str(value).strip().lower()
    if word not in ("true", "1", "false", "0"):
        raise ValueError(f"{value!r} is neither true nor false")
    return word in ("true", "1")


def as_name(value: Any) -> str:
    """Read a word, in small letters."""
    return str(value).lower()


REQUIRED: Final = object()


@dataclass(frozen=True, slots=True)
class Attribute:
    """An operand that is an attribute.

    Attributes:
        read: make its value of a number or text; a mapping has the value of each word.
        default: its value if a node does not set it. None leaves the operand out.
        name: of the attribute, if it is not that of the operand.
        write: make a number or text of its value.
    """

    read: Callable[[Any], Any] | Mapping[str, Any]
    default: Any = REQUIRED
    name: str | None = None
    write: Callable[[Any], Any] | None = None

    def read_from(self, attributes: Mapping[str, Any], operand: str) -> Any:
        """Return the value that some attributes set.

        Raises:
            Unknown: they set none, though they must, or another kind of value.
        """
        name = self.name or operand
        text = attributes.get(name)
        if text is None:
            if self.default is REQUIRED:
                raise Unknown(f"{name} = None")
            return self.default
        if not callable(self.read):
            if str(text).lower() not in self.read:
                raise Unknown(f"{name} = {str(text).lower()!r}; supported: {', '.join(self.read)}")
            return self.read[str(text).lower()]
        try:
            return self.read(text)
        except (TypeError, ValueError, OverflowError) as error:  # another kind of attribute, or other text
            raise Unknown(f"{name} = {text!r}") from error

    def to_attribute(self, value: Any) -> Any:
        """Return a value as an attribute has it; None if it has no such value."""
        if self.write is not None:
            return self.write(value)
        if callable(self.read):
            return value
        return next((word for word, meant in self.read.items() if meant == value), None)


@cache
def _parse_inputs(text: str) -> tuple[tuple[str, bool, bool], ...]:
    """Return the name of each input, whether it must be there, and whether it is repeated."""
    return tuple((name.rstrip("?*"), name[-1] not in "?*", name[-1] == "*") for name in text.split())


@dataclass(frozen=True, slots=True)
class Spelling:
    """How a dialect sets the operands of an operator from one version on.

    Attributes:
        name: its name in the dialect.
        inputs: the operands that are inputs, in their order. ``?`` marks one that may be absent, ``*`` one
            that is repeated.
        attributes: the operands that are attributes.
        since: the first opset or operation set.
        fixed: the operands that the version does not let choose.
        demands: attributes that have no operand, with the one value that is covered, which is the default.
        versions: the operation sets that can be converted; None are all from ``since`` on.
    """

    name: str
    inputs: str = "data"
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    since: int = 1
    fixed: Mapping[str, Any] = field(default_factory=dict)
    demands: Mapping[str, Any] = field(default_factory=dict)
    versions: tuple[int, ...] | None = None

    def read(self, attributes: Mapping[str, Any], inputs: Sequence[T | None]) -> dict[str, Any]:
        """Return the operands of a node by name: values of attributes, and inputs as they are.

        Raises:
            Unknown: the node has other inputs or attributes.
        """
        found: dict[str, Any] = dict(self.fixed)
        declared = _parse_inputs(self.inputs)
        if declared and declared[-1][2]:
            found[declared[-1][0]] = list(inputs)
        elif len(inputs) > len(declared) and any(value is not None for value in inputs[len(declared) :]):
            raise Unknown(f"{len(inputs)} inputs")
        else:
            for at, (name, required, _) in enumerate(declared):
                value = inputs[at] if at < len(inputs) else None
                if value is not None:
                    found[name] = value
                elif required:
                    raise Unknown(f"{len(inputs)} inputs and no {name}")
        for name, value in self.demands.items():
            if str(attributes.get(name, value)).lower() != str(value):
                raise Unknown(f"{name} = {attributes[name]!r}")
        for name, attribute in self.attributes.items():
            value = attribute.read_from(attributes, name)
            if value is not None:
                found[name] = value
        return found

    def write(
        self, operands: Mapping[str, Any], constant: Callable[[Any, str], T]
    ) -> tuple[list[T | None], dict[str, Any]]:
        """Return the inputs and attributes that set some operands.

        Args:
            operands: values, numbers and lists of numbers by name. Those that are None are left out.
            constant: make an input of numbers and the name of their operand.

        Raises:
            Unknown: the version cannot set an operand so.
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
        """Return whether the version has a form for every operand that is set."""
        names = {name for name, _, _ in _parse_inputs(self.inputs)} | self.attributes.keys()
        return all(
            name in names or self.fixed.get(name, operands) == value for name, value in operands.items()
        ) and all(
            callable(attribute.read) or attribute.to_attribute(operands[name]) is not None
            for name, attribute in self.attributes.items()
            if name in operands
        )


class Operands:
    """What is inferred of the operands of one node, by their names: tensors, and values of attributes.

    Attributes:
        of_layer: whether the node is a layer of OpenVINO, for the few meanings that differ.
    """

    __slots__ = ("_values", "of_layer")

    def __init__(self, values: Mapping[str, Any], *, of_layer: bool) -> None:
        self._values = values
        self.of_layer = of_layer

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def __getitem__(self, name: str) -> Any:
        """Return the value of an attribute."""
        if name not in self._values:
            raise Unknown(f"{name} is absent")
        return self._values[name]

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of an attribute, or a default if it is absent."""
        return self._values.get(name, default)

    def get_tensor(self, name: str = "data") -> AbstractTensor:
        """Return the abstract tensor of an input."""
        found = self[name]
        if not isinstance(found, AbstractTensor):
            raise Unknown(f"{name} is not a tensor")
        return found

    def get_tensors(self, name: str = "values") -> list[AbstractTensor]:
        """Return the abstract tensors of an input that is repeated: at least one."""
        found: list[AbstractValue] = self[name]
        tensors = [value for value in found if isinstance(value, AbstractTensor)]
        if not tensors or len(tensors) < len(found):
            raise Unknown(f"{name} are not tensors")
        return tensors

    def get_shape(self, name: str = "data") -> Shape:
        """Return the shape of an input, of known rank."""
        return get_shape(self.get_tensor(name))

    def get_type(self, name: str = "data") -> ElementType | None:
        """Return the element type of an input."""
        return self.get_tensor(name).type

    def get_elements(self, name: str = "data") -> Value:
        """Return the elements of an input, some of them unknown."""
        return get_elements(self.get_tensor(name))

    def get_complete_elements(self, name: str = "data") -> Value:
        """Return the elements of an input that are all known."""
        if not self.get_tensor(name).is_complete:
            raise Unknown(f"an element of {name} is unknown")
        return self.get_elements(name)

    def get_array(self, name: str = "data", default: Any = None) -> npt.NDArray[Any]:
        """Return the elements of an input in its own type, or an attribute. All are known."""
        found = self._values.get(name, default)
        if not isinstance(found, AbstractTensor):
            return np.asarray(found)
        if found.type is None:
            raise Unknown(f"the type of {name} is unknown")
        return self.get_complete_elements(name).astype(found.type.numpy, copy=False)

    def get_entries(self, name: str) -> list[Entry]:
        """Return the elements of a tensor of rank 0 or 1, or of an attribute.

        If they are not tracked, only their number is known.
        """
        found = self[name]
        if not isinstance(found, AbstractTensor):
            return list(found) if isinstance(found, Sequence) else [found]
        return get_entries(found)

    def get_integers(self, name: str) -> list[int]:
        """Return the elements of a tensor of rank 0 or 1, or of an attribute, that are all known."""
        found = self.get_entries(name)
        known = [int(entry) for entry in found if isinstance(entry, int)]
        if len(known) < len(found):
            raise Unknown(f"an element of {name} is unknown")
        return known

    def get_entry(self, name: str) -> Entry:
        """Return the only element of a tensor, or an attribute."""
        found = self[name]
        if not isinstance(found, AbstractTensor):
            return found  # type: ignore[no-any-return]  # the value of an attribute
        if found.elements is None or found.elements.size != 1:
            return None
        entry: Entry = found.elements.reshape(()).item()
        return entry

    def get_integer(self, name: str) -> int:
        """Return the only element of a tensor, or an attribute, that is known."""
        found = self.get_entry(name)
        if not isinstance(found, int):
            raise Unknown(f"{name} is unknown")
        return int(found)


def get_shape(tensor: AbstractTensor) -> Shape:
    """Return the shape of a tensor of known rank."""
    if tensor.shape is None:
        raise Unknown("the rank is unknown")
    return tensor.shape


def get_elements(tensor: AbstractTensor) -> Value:
    """Return the elements of a tensor, some of them unknown."""
    if tensor.elements is None:
        raise Unknown("the elements are not tracked")
    return tensor.elements


def get_entries(tensor: AbstractTensor) -> list[Entry]:
    """Return the elements of a tensor of rank 0 or 1. If they are not tracked, only their number is known."""
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
    """Infer a result of ``data``: its element type, its shape and, if computable, its elements.

    ``compute`` may raise the ValueError that NumPy raises of arrays that do not fit one another.
    """
    element_type = kind or data.type
    if data.elements is None:
        return AbstractTensor(element_type, shape)
    exact = [size for size in shape or () if isinstance(size, int)]
    if shape is not None and len(exact) == len(shape) and math.prod(exact) > MAX_ELEMENTS:
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
    """An operator of which tools know what it means.

    Attributes:
        onnx: its spellings in ONNX, the newest first; none if ONNX does not have it.
        openvino: its spellings in OpenVINO.
        role: what it is to the rewrites.
        infer: what is known of its outputs, from its operands. It raises :class:`Unknown`.
        fold: compute its outputs from its operands and the arrays of its inputs, if all elements are known.
            It may raise the ValueError, IndexError or ArithmeticError that NumPy raises of misfits.
        result: the element type of the output, if it is always the same one.
        types: the element types of all inputs for which both dialects mean the same; None are all.
        converts: whether a node and a layer mean the same, so that each is written as the other.
        adapt_layer: change the operands of a layer for ONNX, or write its nodes.
        adapt_node: change the operands of a node for OpenVINO; None if it cannot be a layer.
        accepts_node: whether a node of such values means the same as a layer.
    """

    onnx: tuple[Spelling, ...] = ()
    openvino: tuple[Spelling, ...] = ()
    role: Role | None = None
    infer: Infer
    fold: Fold | None = None
    result: ElementType | None = None
    types: frozenset[ElementType] | None = None
    converts: bool = False
    adapt_layer: Callable[[NodeWriter, Layer, dict[str, Any]], dict[str, Any] | ir.Value] | None = None
    adapt_node: Callable[[Reader, dict[str, Any]], dict[str, Any] | None] | None = None
    can_convert_node: Callable[[Reader, ir.Node, dict[str, Any]], bool] | None = None
    whole: frozenset[ElementType] = frozenset()
    """Element types that the layer returns unchanged, and of which ONNX does not have the operator."""
