"""Builds OpenVINO models in memory, layer by layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from splitops.errors import ModelError
from splitops.models.formats.openvino.constants import Constant
from splitops.models.formats.openvino.model import (
    Edge,
    Endpoint,
    Graph,
    Layer,
    OpenVINOModel,
    Port,
    join_names,
)
from splitops.models.formats.openvino.shapes import format_shape, parse_shape
from splitops.spec.elements.types import ELEMENT_TYPES, ElementType, element_type_of, from_openvino
from splitops.spec.sizes.dims import Shape


@dataclass(frozen=True, slots=True)
class Output:
    """An output port of a layer that is being built; a shape of None is unknown."""

    end: Endpoint
    element_type: ElementType
    shape: Shape | None = None


class Builder:
    """Makes a model: every method adds a layer and returns its outputs, from which later layers take theirs.

    Examples:
        >>> import numpy as np
        >>> builder = Builder("thirds")
        >>> data = builder.parameter("data", "f32", (6, 12, 10, 24))
        >>> axis = builder.const(np.array(1))
        >>> parts = builder.layer("Split", [data, axis], {"num_splits": 3}, outputs=3)
        >>> for index, part in enumerate(parts):
        ...     builder.result(part, f"part{index}")
        >>> [str(layer) for layer in builder.model().graph.order][:2]
        ["Parameter layer 'data'", "Const layer 'Const_1'"]
    """

    def __init__(self, name: str = "model", *, version: int = 11) -> None:
        self._name = name
        self._version = version
        self._layers: list[Layer] = []
        self._edges: list[Edge] = []

    def parameter(
        self,
        name: str,
        element_type: str | ElementType,
        shape: str | Shape | None,
        *,
        names: Sequence[str] | None = None,
    ) -> Output:
        """Add an input of the model.

        The shape is exact, partial (as text: ``"2..6,?,4"``), or None for an unknown rank. Without
        ``names``, the only tensor name is the layer's.
        """
        kind = _element_type(element_type)
        layer = self._next("Parameter", name)
        partial = parse_shape(shape, layer.where) if isinstance(shape, str) else shape
        data = {"shape": format_shape(partial), "element_type": kind.openvino or ""}
        output = Output(Endpoint(layer.id, 0), kind, partial)
        tensor_names = (name,) if names is None else tuple(names)
        self._add(layer, [], [(output, tensor_names)], data)
        return output

    def const(
        self, value: npt.ArrayLike, element_type: str | ElementType | None = None, *, name: str | None = None
    ) -> Output:
        """Add a constant.

        An element type of None follows from the dtype, a name of None from the position.
        """
        array: npt.NDArray[Any] = np.asarray(value)
        kind = element_type_of(array.dtype) if element_type is None else _element_type(element_type)
        if kind is None or kind.openvino is None:
            raise ModelError(f"OpenVINO has no element type for dtype {array.dtype}")
        if kind is ELEMENT_TYPES["string"]:
            array = array.astype(object)
        constant = Constant.of(array, kind)
        layer = self._next("Const", name)
        output = Output(Endpoint(layer.id, 0), kind, array.shape)
        self._add(layer, [], [(output, ())], {}, constant=constant)
        return output

    def layer(
        self,
        type: str,
        inputs: Sequence[Output],
        data: Mapping[str, object] | None = None,
        *,
        outputs: int | Sequence[Sequence[str]] = 1,
        name: str | None = None,
        version: str = "opset1",
        element_type: str | ElementType | None = None,
        shapes: Sequence[Shape | None] | None = None,
    ) -> tuple[Output, ...]:
        """Add an operation.

        ``data`` are its attributes; ``outputs`` is the number of its ports, or the tensor names of each.
        Without an element type, they have that of the first input. Without shapes, theirs are unknown.
        """
        kind = inputs[0].element_type if element_type is None else _element_type(element_type)
        names = [()] * outputs if isinstance(outputs, int) else [tuple(own) for own in outputs]
        layer = self._next(type, name, version)
        made = [
            Output(
                Endpoint(layer.id, len(inputs) + index), kind, shapes[index] if shapes is not None else None
            )
            for index in range(len(names))
        ]
        text = None if data is None else {key: _text(value) for key, value in data.items()}
        self._add(layer, inputs, list(zip(made, names, strict=True)), text)
        return tuple(made)

    def result(self, value: Output, name: str | None = None, *, names: Sequence[str] | None = None) -> None:
        """Add an output of the model.

        Without ``names``, its only name is the layer's.
        """
        layer = self._next("Result", name)
        own = (layer.name,) if names is None else tuple(names)
        attributes = {"output_names": join_names(own)} if own and self._version >= 11 else {}
        self._add(layer, [value], [], None, attributes=attributes)

    def model(self) -> OpenVINOModel:
        """Return the model of all layers added so far."""
        graph = Graph(self._name, tuple(self._layers), tuple(self._edges))
        return OpenVINOModel(graph, self._version)

    def _next(self, type_: str, name: str | None, version: str = "opset1") -> Layer:
        id_ = len(self._layers)
        return Layer(id_, f"{type_}_{id_}" if name is None else name, type_, version)

    def _add(
        self,
        layer: Layer,
        inputs: Sequence[Output],
        outputs: Sequence[tuple[Output, tuple[str, ...]]],
        data: Mapping[str, str] | None,
        *,
        constant: Constant | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> None:
        taken = tuple(_port(index, value, ()) for index, value in enumerate(inputs))
        given = tuple(_port(value.end.port, value, names) for value, names in outputs)
        stated = replace(layer, data=data, inputs=taken, outputs=given, constant=constant)
        self._layers.append(replace(stated, attributes=attributes or {}))
        self._edges += [Edge(value.end, Endpoint(layer.id, index)) for index, value in enumerate(inputs)]


def _port(id_: int, value: Output, names: tuple[str, ...]) -> Port:
    dims = tuple(dim if isinstance(dim, int) else -1 for dim in value.shape or ())
    return Port(id_, value.element_type.precision, dims, names)


def _element_type(element_type: str | ElementType) -> ElementType:
    found = from_openvino(element_type) if isinstance(element_type, str) else element_type
    if found is None or found.openvino is None:
        raise ModelError(f"{element_type} is not an element type of OpenVINO")
    return found


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
