"""The declared inputs of a model, in one form for ONNX and OpenVINO IR."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from splitops.errors import ModelError, Where, shown
from splitops.models.abstract_values import NOTHING, AbstractSequence, AbstractTensor
from splitops.models.formats.openvino import OpenVINOModel, make_input_names
from splitops.models.formats.openvino.shapes import is_match
from splitops.spec.elements.types import ElementType, element_type_of, is_builtin
from splitops.spec.sizes.dims import Shape

if TYPE_CHECKING:
    from onnx import GraphProto, TypeProto


@dataclass(frozen=True, slots=True)
class InputSpec:
    """A declared input of a model.

    Attributes:
        name: name of the input.
        aliases: other names that callers may use.
        element_type: element type of the tensor, or of the tensors in a sequence; None if it is not declared.
        shape: shape of the tensor, or of each tensor in a sequence; None if the rank is not declared.
        kind: ``"tensor"``, ``"sequence"``, ``"optional"`` for a tensor that may be absent, or ``"other"`` for
            types that are not checked.
        required: whether callers must pass it.
        optional: whether callers may pass None.
    """

    name: str
    aliases: tuple[str, ...] = ()
    element_type: ElementType | None = None
    shape: Shape | None = None
    kind: str = "tensor"
    required: bool = True
    optional: bool = False

    @property
    def static_shape(self) -> tuple[int, ...] | None:
        """The shape, or None if a dimension is dynamic or the rank is not declared."""
        if self.shape is None:
            return None
        sizes = tuple(dim for dim in self.shape if isinstance(dim, int))
        return sizes if len(sizes) == len(self.shape) else None

    def get_dtype(self, stored: np.dtype[Any]) -> np.dtype[Any]:
        """Return the dtype with which to read an array that a .npy file stores with dtype ``stored``.

        If .npy does not support the element type, raw or unsigned items of its size and in native byte order
        are read as its elements.
        """
        element_type = self.element_type
        if element_type is None or element_type.bits == 0 or _has_own_npy_type(element_type):
            return stored
        own = element_type.numpy
        raw = stored.kind in "Vu" and stored.itemsize == own.itemsize and stored.isnative
        return own if raw else stored

    def accept(self, dtype: np.dtype[Any], shape: tuple[int, ...], where: Where | None = None) -> None:
        """Raise ModelError if the dtype or the shape of an array does not match the declaration."""
        expected = self.element_type
        if expected is not None and dtype != expected.numpy and element_type_of(dtype) is not expected:
            found = f"input {shown(self.name)} has element type {element_type_of(dtype) or dtype}"
            codes = f", whose codes are {expected.numpy}" if expected.storage else ""
            raise ModelError(f"{found}, but the model declares {expected}{codes}", where)
        if not is_match(shape, self.shape):
            raise ModelError(
                f"input {shown(self.name)} has shape {shown(shape)}, but the model declares {self}", where
            )

    def __str__(self) -> str:
        shape = "any shape" if self.shape is None else f"({', '.join(map(str, self.shape))})"
        text = f"{self.element_type or 'any type'} {shape}"
        return f"{self.kind} of {text}" if self.kind in ("sequence", "optional") else text


def _has_own_npy_type(element_type: ElementType) -> bool:
    own = is_builtin(element_type.numpy) and element_type.numpy.kind in "biufc"
    return own and element_type_of(element_type.numpy) is element_type


def read_onnx_inputs(graph: GraphProto) -> tuple[InputSpec, ...]:
    """Return the declared inputs of the main graph of an ONNX model."""
    defaults = {tensor.name for tensor in graph.initializer}
    return tuple(_make_input(value.name, value.type, value.name not in defaults) for value in graph.input)


def _make_input(name: str, declared: TypeProto, required: bool) -> InputSpec:
    from splitops.models.formats.onnx.types import from_type

    optional = declared.HasField("optional_type")
    known = from_type(declared.optional_type.elem_type if optional else declared)
    if isinstance(known, AbstractSequence):
        kind, element = "sequence", known.element
    elif isinstance(known, AbstractTensor):
        kind, element = "optional" if optional else "tensor", known
    else:
        kind, element = "other", NOTHING
    return InputSpec(name, (), element.type, element.shape, kind, required and not optional, optional)


def read_openvino_inputs(model: OpenVINOModel, where: Where) -> tuple[InputSpec, ...]:
    """Return the declared inputs of a model in OpenVINO IR, which are its Parameters."""
    specs = []
    tensors = {name for layer in model.inputs for name in layer.outputs[0].names}
    for name, layer in zip(make_input_names(model), model.inputs, strict=True):
        where = replace(where, node=layer.name)
        aliases = dict.fromkeys((*layer.outputs[0].names, layer.name))
        if layer.name in tensors and layer.name not in layer.outputs[0].names:
            del aliases[layer.name]  # if both exist, the name refers to the tensor
        aliases.pop(name, None)
        kind = None if layer.has_dynamic_type else layer.read_element_type(where)
        specs.append(InputSpec(name, tuple(aliases), kind, layer.read_shape(where)))
    return tuple(specs)
