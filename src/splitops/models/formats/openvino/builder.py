"""Builds OpenVINO models in memory, layer by layer; the editor makes its layers here, too."""

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
        port = make_port(kind.precision, partial, (name,) if names is None else tuple(names))
        self._add(layer, [], [port], data)
        return Output(Endpoint(layer.id, 0), kind, partial)

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
        layer = self._next("Const", name)
        self._layers.append(make_const(layer.id, layer.name, Constant.of(array, kind)))
        return Output(Endpoint(layer.id, 0), kind, array.shape)

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
        known = [None] * len(names) if shapes is None else shapes
        ports = [make_port(kind.precision, shape, own) for shape, own in zip(known, names, strict=True)]
        layer = self._add(self._next(type, name, version), inputs, ports, data)
        ends = (Endpoint(layer.id, port.id) for port in layer.outputs)
        return tuple(Output(end, kind, shape) for end, shape in zip(ends, known, strict=True))

    def result(self, value: Output, name: str | None = None, *, names: Sequence[str] | None = None) -> None:
        """Add an output of the model.

        Without ``names``, its only name is the layer's.
        """
        layer = self._next("Result", name)
        own = (layer.name,) if names is None else tuple(names)
        attributes = {"output_names": join_names(own)} if own and self._version >= 11 else {}
        self._add(replace(layer, attributes=attributes), [value], [], None)

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
        outputs: Sequence[Port],
        data: Mapping[str, object] | None,
    ) -> Layer:
        sources = [make_port(value.element_type.precision, value.shape) for value in inputs]
        made = make_layer(layer, sources, outputs, data)
        self._layers.append(made)
        self._edges += [Edge(value.end, Endpoint(layer.id, index)) for index, value in enumerate(inputs)]
        return made


def _element_type(element_type: str | ElementType) -> ElementType:
    found = from_openvino(element_type) if isinstance(element_type, str) else element_type
    if found is None or found.openvino is None:
        raise ModelError(f"{element_type} is not an element type of OpenVINO")
    return found


def make_port(precision: str | None, shape: Shape | None, names: tuple[str, ...] = ()) -> Port:
    """Return a port; a size that is not a number is unknown in IR."""
    return Port(0, precision, tuple(size if isinstance(size, int) else -1 for size in shape or ()), names)


def make_layer(
    layer: Layer, sources: Sequence[Port], outputs: Sequence[Port], data: Mapping[str, object] | None
) -> Layer:
    """Return a layer with ports of consecutive ids, fed by the ports ``sources``, and with attributes."""
    inputs = tuple(Port(index, port.precision, port.dims) for index, port in enumerate(sources))
    made = tuple(replace(port, id=len(inputs) + index) for index, port in enumerate(outputs))
    texts = None if data is None else {name: _text(value) for name, value in data.items()}
    return replace(layer, inputs=inputs, outputs=made, data=texts)


def make_const(id_: int, name: str, constant: Constant, names: tuple[str, ...] = ()) -> Layer:
    """Return the layer of a constant."""
    port = make_port(constant.element_type.precision, constant.shape, names)
    return make_layer(Layer(id_, name, "Const", "opset1", constant=constant), (), (port,), {})


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
