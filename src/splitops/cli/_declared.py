"""A model ready to run, and what it says of its inputs, in one form for ONNX and OpenVINO IR."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from splitops.dtypes import ElementType, from_onnx
from splitops.errors import Where
from splitops.models import is_openvino
from splitops.models.site import SplitSite

if TYPE_CHECKING:
    from onnx import TypeProto

__all__ = ["Declared", "Runnable", "open_model"]


@dataclass(frozen=True, slots=True)
class Declared:
    """One input of a model.

    Attributes:
        name: the name that the model's run takes.
        aliases: other names of it.
        element_type: its element type; None where it is not declared.
        shape: its dimensions, a symbol or range as text; None where the rank is not declared.
        kind: ``"tensor"``, ``"sequence"`` or ``"optional"``.
        required: whether it must be given.
    """

    name: str
    aliases: tuple[str, ...] = ()
    element_type: ElementType | None = None
    shape: tuple[int | str, ...] | None = None
    kind: str = "tensor"
    required: bool = True

    @property
    def static_shape(self) -> tuple[int, ...] | None:
        """The shape, where every dimension is a number."""
        if self.shape is None:
            return None
        sizes = tuple(dim for dim in self.shape if isinstance(dim, int))
        return sizes if len(sizes) == len(self.shape) else None

    def __str__(self) -> str:
        shape = "any shape" if self.shape is None else f"({', '.join(map(str, self.shape))})"
        text = f"{self.element_type or 'any type'} {shape}"
        return text if self.kind == "tensor" else f"{self.kind} of {text}"


@dataclass(frozen=True, slots=True)
class Runnable:
    """A model that was read and proved.

    Attributes:
        inputs: its inputs in order.
        sites: its split operators.
        run: from arrays by input name to outputs by name.
    """

    inputs: tuple[Declared, ...]
    sites: Callable[[], Iterator[SplitSite]]
    run: Callable[[Mapping[str, Any]], dict[str, Any]]


def open_model(path: Path) -> Runnable:
    """Read a model.

    Raises:
        ModelError: the file is missing, malformed or unsafe, or has another ending than .onnx and .xml.
    """
    return _open_openvino(path) if is_openvino(path) else _open_onnx(path)


def _open_onnx(path: Path) -> Runnable:
    from splitops.models import onnx_model

    model = onnx_model.load(path)
    graph = model.proto.graph
    defaults = {tensor.name for tensor in graph.initializer}
    inputs = tuple(_of_type(value.name, value.type, value.name not in defaults) for value in graph.input)
    return Runnable(inputs, partial(onnx_model.split_sites, model.proto, model.where), model.run)


def _of_type(name: str, declared: TypeProto, required: bool) -> Declared:
    kind = "tensor"
    if declared.HasField("optional_type"):
        kind, declared, required = "optional", declared.optional_type.elem_type, False
    if declared.HasField("sequence_type"):
        kind, declared = "sequence", declared.sequence_type.elem_type
    tensor = declared.tensor_type
    shape: tuple[int | str, ...] | None = None
    if tensor.HasField("shape"):
        shape = tuple(
            dim.dim_value if dim.HasField("dim_value") else dim.dim_param or "?" for dim in tensor.shape.dim
        )
    return Declared(name, (), from_onnx(tensor.elem_type), shape, kind, required)


def _open_openvino(path: Path) -> Runnable:
    from splitops.models import openvino_ir

    model = openvino_ir.read(path)
    where = Where(model=path.name)
    inputs = []
    for name, layer in zip(openvino_ir.input_names(model), model.inputs, strict=True):
        dims = layer.shape(where)
        shape = None if dims is None else tuple(dim if isinstance(dim, int) else str(dim) for dim in dims)
        aliases = dict.fromkeys((*layer.outputs[0].names, layer.name))
        aliases.pop(name, None)
        inputs.append(
            Declared(name, tuple(aliases), None if layer.takes_any_type else layer.element_type(where), shape)
        )
    return Runnable(tuple(inputs), partial(openvino_ir.sites, model), partial(openvino_ir.run, model))
