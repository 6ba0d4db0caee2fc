"""Build OpenVINO models in memory, layer by layer. The graph editor makes its layers with these functions."""

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
    """An output port of a layer that a :class:`Builder` has added. A shape of None is an unknown rank."""

    end: Endpoint
    element_type: ElementType
    shape: Shape | None = None


class Builder:
    """Builds a model: its methods add layers and return their outputs, which later layers use as inputs.

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
        """Add an input to the model.

        The shape is exact, partial (as text: ``"2..6,?,4"``), or None for an unknown rank. ``names`` are
        the tensor names of the input, by default only ``name``.
        """
        kind = _parse_element_type(element_type)
        layer = self._begin_layer("Parameter", name)
        partial = parse_shape(shape, layer.where) if isinstance(shape, str) else shape
        data = {"shape": format_shape(partial), "element_type": kind.openvino or ""}
        port = make_port(kind.precision, partial, (name,) if names is None else tuple(names))
        self._add_layer(layer, [], [port], data)
        return Output(Endpoint(layer.id, 0), kind, partial)

    def const(
        self, value: npt.ArrayLike, element_type: str | ElementType | None = None, *, name: str | None = None
    ) -> Output:
        """Add a constant.

        By default, the element type is that of the dtype, and the name contains the id of the layer.
        """
        array: npt.NDArray[Any] = np.asarray(value)
        kind = element_type_of(array.dtype) if element_type is None else _parse_element_type(element_type)
        if kind is None or kind.openvino is None:
            raise ModelError(f"OpenVINO has no element type for dtype {array.dtype}")
        if kind is ELEMENT_TYPES["string"]:
            array = array.astype(object)
        layer = self._begin_layer("Const", name)
        self._layers.append(make_const(layer.id, layer.name, Constant.from_array(array, kind)))
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

        ``data`` contains its attributes. ``outputs`` is the number of output ports, or their tensor names.
        By default, the outputs have the element type of the first input and unknown shapes.
        """
        kind = inputs[0].element_type if element_type is None else _parse_element_type(element_type)
        names = [()] * outputs if isinstance(outputs, int) else [tuple(own) for own in outputs]
        known = [None] * len(names) if shapes is None else shapes
        ports = [make_port(kind.precision, shape, own) for shape, own in zip(known, names, strict=True)]
        layer = self._add_layer(self._begin_layer(type, name, version), inputs, ports, data)
        ends = (Endpoint(layer.id, port.id) for port in layer.outputs)
        return tuple(Output(end, kind, shape) for end, shape in zip(ends, known, strict=True))

    def result(self, value: Output, name: str | None = None, *, names: Sequence[str] | None = None) -> None:
        """Make ``value`` an output of the model.

        In IR version 11, its tensor names are ``names``, by default only the name of the Result layer.
        """
        layer = self._begin_layer("Result", name)
        tensor_names = (layer.name,) if names is None else tuple(names)
        declares = tensor_names and self._version >= 11
        attributes = {"output_names": join_names(tensor_names)} if declares else {}
        self._add_layer(replace(layer, attributes=attributes), [value], [], None)

    def model(self) -> OpenVINOModel:
        """Return a model of the layers that were added so far."""
        graph = Graph(self._name, tuple(self._layers), tuple(self._edges))
        return OpenVINOModel(graph, self._version)

    def _begin_layer(self, type_: str, name: str | None, version: str = "opset1") -> Layer:
        id_ = len(self._layers)
        return Layer(id_, f"{type_}_{id_}" if name is None else name, type_, version)

    def _add_layer(
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


def _parse_element_type(element_type: str | ElementType) -> ElementType:
    found = from_openvino(element_type) if isinstance(element_type, str) else element_type
    if found is None or found.openvino is None:
        raise ModelError(f"{element_type} is not an element type of OpenVINO")
    return found


def make_port(precision: str | None, shape: Shape | None, names: tuple[str, ...] = ()) -> Port:
    """Return a port with id 0. Ports cannot declare ranges, so any size that is not an integer is unknown."""
    return Port(0, precision, tuple(size if isinstance(size, int) else -1 for size in shape or ()), names)


def make_layer(
    layer: Layer, sources: Sequence[Port], outputs: Sequence[Port], data: Mapping[str, object] | None
) -> Layer:
    """Return ``layer`` with the attributes ``data``, and with ports that are numbered consecutively.

    Its inputs declare the types and shapes of ``sources``, the ports that they read.
    """
    inputs = tuple(Port(index, port.precision, port.dims) for index, port in enumerate(sources))
    made = tuple(replace(port, id=len(inputs) + index) for index, port in enumerate(outputs))
    texts = None if data is None else {name: _format_attribute(value) for name, value in data.items()}
    return replace(layer, inputs=inputs, outputs=made, data=texts)


def make_const(id_: int, name: str, constant: Constant, names: tuple[str, ...] = ()) -> Layer:
    """Return a ``Const`` layer with the value ``constant``. ``names`` are its tensor names."""
    port = make_port(constant.element_type.precision, constant.shape, names)
    return make_layer(Layer(id_, name, "Const", "opset1", constant=constant), (), (port,), {})


def _format_attribute(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
