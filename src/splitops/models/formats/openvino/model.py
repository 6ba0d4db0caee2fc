"""OpenVINO IR in memory: a graph of layers whose ports are connected by edges.

Every object is immutable, and every :class:`Graph` is checked when it is made. Tools change a model with
``dataclasses.replace``. Parts that splitops does not interpret, such as runtime information, attributes and
layers of other operators, are kept unchanged, so that a rewritten model loses nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, NamedTuple
from xml.etree.ElementTree import Element

from splitops.errors import ModelError, Where, count_of
from splitops.models.abstract_values import AbstractTensor
from splitops.models.formats.openvino.constants import Constant
from splitops.models.formats.openvino.shapes import parse_shape
from splitops.spec.elements.types import ElementType, from_openvino, from_precision
from splitops.spec.sizes.dims import UNKNOWN, Shape


class Endpoint(NamedTuple):
    """One end of an edge: the ids of a layer and of its port."""

    layer: int
    port: int


class Edge(NamedTuple):
    """An edge from an output port to an input port."""

    source: Endpoint
    target: Endpoint


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output port.

    Attributes:
        id: number of the port, unique in its layer. Inputs and outputs are counted together.
        precision: declared element type, for example ``"FP32"``, or None if it is not declared.
        dims: declared dimensions, with -1 for an unknown one. ``()`` is a scalar *or* an unknown rank: the
            file does not distinguish them.
        names: tensor names, in the order of the file.
        attributes: other XML attributes.
        children: other XML children, for example runtime information.
    """

    id: int
    precision: str | None = None
    dims: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    attributes: Mapping[str, str] = field(default_factory=dict)
    children: tuple[Element, ...] = ()

    @property
    def element_type(self) -> ElementType | None:
        """The element type, or None if the precision is undeclared or unknown."""
        return from_precision(self.precision) if self.precision else None

    @property
    def declared_tensor(self) -> AbstractTensor:
        """The declared type and shape. Without dimensions, the rank is unknown."""
        shape = tuple(size if size >= 0 else UNKNOWN for size in self.dims) if self.dims else None
        return AbstractTensor(self.element_type, shape)


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer: one operation of a graph.

    Attributes:
        id: number of the layer, unique in its graph.
        name: name of the layer. OpenVINO does not keep names unique.
        type: operation, for example ``"VariadicSplit"``; constants are ``"Const"``.
        version: operation set, for example ``"opset1"``.
        data: attributes of the operation as text, or None if the layer does not have ``<data>``.
        inputs: input ports, in order.
        outputs: output ports, in order.
        constant: value of a ``Const`` layer.
        bodies: tag, such as ``"then_body"``, and graph of each body (of an If, Loop or TensorIterator).
        attributes: other XML attributes, for example ``output_names``.
        data_children: XML children of ``<data>``.
        children: other XML children, for example ``<rt_info>`` and ``<port_map>``.
    """

    id: int
    name: str
    type: str
    version: str
    data: Mapping[str, str] | None = None
    inputs: tuple[Port, ...] = ()
    outputs: tuple[Port, ...] = ()
    constant: Constant | None = None
    bodies: tuple[tuple[str, Graph], ...] = ()
    attributes: Mapping[str, str] = field(default_factory=dict)
    data_children: tuple[Element, ...] = ()
    children: tuple[Element, ...] = ()

    def __repr__(self) -> str:
        return f"Layer({self.name!r}, {self.type} of {self.version})"

    def __str__(self) -> str:
        return f"{self.type} layer {self.name!r}"

    @property
    def where(self) -> Where:
        """The location of the layer, for messages."""
        return Where(node=self.name)

    def get_attribute(self, name: str) -> str | None:
        """Return an attribute of the operation as text, or None if it is not set."""
        return None if self.data is None else self.data.get(name)

    def read_string(self, name: str, default: str | None = None) -> str:
        """Return an attribute in lower case. If it is not set, return ``default`` or raise ModelError."""
        text = self.get_attribute(name)
        if text is None and default is None:
            raise ModelError(f"{self} has no {name}")
        return default or "" if text is None else text.lower()

    def read_enum(
        self, name: str, words: Collection[str] | Mapping[str, Any], default: str | None = None
    ) -> Any:
        """Return an attribute in lower case, or the value for it if ``words`` is a mapping.

        Raise ModelError if the attribute is not in ``words``, or if it is not set and has no ``default``.
        """
        text = self.read_string(name, default)
        if text not in words:
            raise ModelError(f"{self} has {name} = {text!r}; supported: {', '.join(words)}")
        return words[text] if isinstance(words, Mapping) else text

    def read_boolean(self, name: str, *, default: bool | None = None) -> bool:
        """Return a boolean attribute: ``true``, ``1``, ``false`` or ``0``."""
        text = self.read_string(name, None if default is None else str(default).lower()).strip()
        if text not in ("true", "1", "false", "0"):
            raise ModelError(f"{self} has {name} = {text!r}, which is neither true nor false")
        return text in ("true", "1")

    def read_integers(self, name: str, default: Sequence[int] | None = None) -> list[int]:
        """Return an attribute as integers. If it is not set, return ``default``, by default an empty list."""
        text = self.get_attribute(name)
        if text is None and default is not None:
            return list(default)
        try:
            return [int(part) for part in (text or "").split(",") if part.strip()]
        except ValueError as error:
            raise ModelError(f"{self} has {name} = {text!r}, which is not a list of integers") from error

    def read_number(self, name: str, default: float | None = None) -> float:
        """Return an attribute as a float. If it is not set, return ``default`` or raise ModelError."""
        text = self.get_attribute(name)
        if text is None and default is not None:
            return default
        try:
            return float(text or "")
        except ValueError as error:
            raise ModelError(f"{self} has {name} = {text!r}, which is not a number") from error

    def find_output(self, port: int) -> Port | None:
        """Return the output port with the id ``port``, or None if there is none."""
        index = port - self.outputs[0].id if self.outputs else 0
        if 0 <= index < len(self.outputs) and self.outputs[index].id == port:  # ids are usually consecutive
            return self.outputs[index]
        return next((found for found in self.outputs if found.id == port), None)

    @property
    def output_names(self) -> tuple[str, ...]:
        """The tensor names that a Result declares for the model's output (IR version 11)."""
        return split_names(self.attributes.get("output_names", ""))

    @property
    def has_dynamic_type(self) -> bool:
        """Whether the element type of a Parameter is dynamic."""
        return self.get_attribute("element_type") in {"dynamic", "undefined"}

    def read_element_type(self, where: Where) -> ElementType:
        """Return the ``element_type`` attribute of a Parameter or Const. Raise ModelError if invalid."""
        text = self.get_attribute("element_type")
        found = from_openvino(text) if text is not None else None
        if found is None:
            raise ModelError(f"{self} has element_type = {text!r}, which is not an element type", where)
        return found

    def read_shape(self, where: Where) -> Shape | None:
        """Return the ``shape`` attribute of a Parameter or Const, or None for an unknown rank."""
        text = self.get_attribute("shape")
        if text is None:
            raise ModelError(f"{self} has no shape", where)
        return parse_shape(text, where)


@dataclass(frozen=True)
class Graph:
    """Checked layers and edges: every id is unique, every edge connects existing ports, every input port has
    one edge, and no layer depends on itself.

    Attributes:
        name: name of the network or body.
        layers: layers in the order of the file. The Parameters are the inputs of the model in this order.
        edges: edges in the order of the file.
        attributes: other attributes of the XML element.
        children: other XML children, for example ``<rt_info>``.
    """

    name: str = ""
    layers: tuple[Layer, ...] = ()
    edges: tuple[Edge, ...] = ()
    attributes: Mapping[str, str] = field(default_factory=dict)
    children: tuple[Element, ...] = ()

    def __repr__(self) -> str:
        return f"Graph({self.name!r}, {count_of(len(self.layers), 'layer')})"

    def __post_init__(self) -> None:
        self._check_layers()
        self._check_edges()
        _ = self.order

    @cached_property
    def by_id(self) -> Mapping[int, Layer]:
        """The layers, keyed by id."""
        return {layer.id: layer for layer in self.layers}

    @cached_property
    def producers(self) -> Mapping[Endpoint, Endpoint]:
        """The output port that feeds each input port."""
        return {edge.target: edge.source for edge in self.edges}

    @cached_property
    def consumers(self) -> Mapping[Endpoint, tuple[Endpoint, ...]]:
        """The input ports that each output port feeds, in the order of the edges; unused ports are absent."""
        found: dict[Endpoint, list[Endpoint]] = {}
        for edge in self.edges:
            found.setdefault(edge.source, []).append(edge.target)
        return {source: tuple(targets) for source, targets in found.items()}

    @cached_property
    def live_ids(self) -> frozenset[int]:
        """The ids of the layers that a Result depends on."""
        needed: set[int] = set()
        stack = [layer.id for layer in self.list_layers("Result")]
        while stack:
            id_ = stack.pop()
            if id_ not in needed:
                needed.add(id_)
                stack += [source.layer for source in self.get_sources(self.by_id[id_])]
        return frozenset(needed)

    def drop_unused(self) -> Graph:
        """Return a graph without the layers on which no Result depends. All Parameters are kept."""
        kept = self.live_ids | {layer.id for layer in self.list_layers("Parameter")}
        layers = tuple(layer for layer in self.layers if layer.id in kept)
        edges = tuple(edge for edge in self.edges if edge.target.layer in kept)
        return replace(self, layers=layers, edges=edges)

    def get_sources(self, layer: Layer) -> tuple[Endpoint, ...]:
        """Return the output ports that feed a layer, in the order of its input ports."""
        return tuple(self.producers[Endpoint(layer.id, port.id)] for port in layer.inputs)

    def list_layers(self, *types: str) -> tuple[Layer, ...]:
        """Return the layers of the given ``types``, in the order of the file."""
        return tuple(layer for layer in self.layers if layer.type in types)

    @cached_property
    def order(self) -> tuple[Layer, ...]:
        """The layers in the order of the file, except that the sources of a layer come before it."""
        placed: set[int] = set()
        order: list[Layer] = []
        entered: set[int] = set()
        for root in self.layers:
            stack = [root]
            while stack:
                layer = stack[-1]
                if layer.id in placed:
                    stack.pop()
                    continue
                missing = [source.layer for source in self.get_sources(layer) if source.layer not in placed]
                if not missing:
                    placed.add(layer.id)
                    order.append(layer)
                    stack.pop()
                elif layer.id in entered:
                    raise ModelError(f"{layer} depends on its own output", layer.where)
                else:
                    entered.add(layer.id)
                    stack += [self.by_id[id_] for id_ in reversed(missing)]
        return tuple(order)

    def _check_layers(self) -> None:
        seen: dict[int, Layer] = {}
        for layer in self.layers:
            if layer.id in seen:
                raise ModelError(f"{layer} and {seen[layer.id]} have the same id {layer.id}", layer.where)
            seen[layer.id] = layer
            ports: set[int] = set()
            for port in layer.inputs + layer.outputs:
                if port.id in ports:
                    raise ModelError(f"{layer} has two ports with id {port.id}", layer.where)
                ports.add(port.id)
            if layer.type == "Const" and layer.constant is None:
                raise ModelError(f"{layer} has no value", layer.where)
            inputs, outputs = _PORTS_OF.get(layer.type, (len(layer.inputs), len(layer.outputs)))
            if (len(layer.inputs), len(layer.outputs)) != (inputs, outputs):
                raise ModelError(
                    f"{layer} has {len(layer.inputs)} input and {len(layer.outputs)} output ports, "
                    f"but it requires {inputs} and {outputs}",
                    layer.where,
                )

    def _check_edges(self) -> None:
        inputs = {Endpoint(layer.id, port.id) for layer in self.layers for port in layer.inputs}
        outputs = {Endpoint(layer.id, port.id) for layer in self.layers for port in layer.outputs}
        fed: set[Endpoint] = set()
        for edge in self.edges:
            for end, kind, ports in ((edge.source, "output", outputs), (edge.target, "input", inputs)):
                if end.layer not in self.by_id:
                    raise ModelError(f"an edge ends at layer {end.layer}, which does not exist")
                if end not in ports:
                    layer = self.by_id[end.layer]
                    raise ModelError(
                        f"an edge ends at {kind} port {end.port}, which {layer} does not have", layer.where
                    )
            if edge.target in fed:
                layer = self.by_id[edge.target.layer]
                raise ModelError(f"input port {edge.target.port} of {layer} has two edges", layer.where)
            fed.add(edge.target)
        for end in sorted(inputs - fed):
            layer = self.by_id[end.layer]
            raise ModelError(f"input port {end.port} of {layer} has no edge", layer.where)


_PORTS_OF: Final = {"Parameter": (0, 1), "Const": (0, 1), "Result": (1, 0)}
"""The numbers of input and output ports that layers of these types must have."""


def remove_tensor_names(layer: Layer) -> Layer:
    """Return a copy of a layer without tensor names, which need not be unique in a file."""
    ports = tuple(replace(port, names=()) for port in layer.outputs)
    kept = {name: text for name, text in layer.attributes.items() if name != "output_names"}
    return replace(layer, outputs=ports, attributes=kept)


def _list_input_names(layer: Layer) -> set[str]:
    return {layer.name, *(name for port in layer.outputs for name in port.names)}


@dataclass(frozen=True)
class OpenVINOModel:
    """An OpenVINO model. Each of its inputs has a name that no other input has.

    Attributes:
        graph: main graph.
        version: IR version, 10 or 11.
        file: path of the file from which it was read, or None if it was made in memory.
    """

    graph: Graph
    version: int = 11
    file: str | None = None

    def __post_init__(self) -> None:
        names = [_list_input_names(layer) for layer in self.inputs]
        count = Counter(name for own in names for name in own)
        for layer, own in zip(self.inputs, names, strict=True):
            if not any(count[name] == 1 for name in own):
                raise ModelError(
                    f"two inputs are named {layer.name!r}, and no other name distinguishes them", layer.where
                )

    def with_graph(self, graph: Graph) -> OpenVINOModel:
        """Return a copy of the model with another main graph."""
        return replace(self, graph=graph)

    @property
    def name(self) -> str:
        """The name of the network, which is that of the main graph."""
        return self.graph.name

    @property
    def inputs(self) -> tuple[Layer, ...]:
        """The Parameter layers, in the order of the model's inputs."""
        return self.graph.list_layers("Parameter")

    @property
    def outputs(self) -> tuple[Layer, ...]:
        """The Result layers, in the order of the model's outputs."""
        return self.graph.list_layers("Result")

    def iter_graphs(self) -> Iterator[tuple[str | None, Graph]]:
        """Yield the main graph (path None) and all bodies, each with its path."""
        yield from _iter_graphs(None, self.graph)


def _iter_graphs(path: str | None, graph: Graph) -> Iterator[tuple[str | None, Graph]]:
    yield path, graph
    for layer in graph.order:
        for tag, body in layer.bodies:
            inner = f"{layer.name}/{tag}"
            yield from _iter_graphs(inner if path is None else f"{path}/{inner}", body)


def split_names(text: str) -> tuple[str, ...]:
    r"""Parse a list of tensor names, which are separated by commas. A comma in a name is written ``\,``.

    Examples:
        >>> split_names(r"a,b\,x")
        ('a', 'b,x')
    """
    if "\\," not in text:
        return tuple(name for name in text.split(",") if name)
    names = text.replace("\\,", "\0").split(",")
    return tuple(name.replace("\0", ",") for name in names if name)


def join_names(names: tuple[str, ...]) -> str:
    r"""Format a list of tensor names: the inverse of :func:`split_names`.

    Examples:
        >>> print(join_names(("a", "b,x")))
        a,b\,x
    """
    return ",".join(name.replace(",", "\\,") for name in names)
