"""Read OpenVINO IR, versions 10 and 11, without the openvino package."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final
from xml.etree.ElementTree import Element

from splitops.common.documents import MAX_RANK
from splitops.common.integers import INT32_MAX
from splitops.common.untrusted_files import DataFolder, make_location, read_bounded
from splitops.errors import ModelError, Where
from splitops.models.formats.openvino.constants import Constant, Weights
from splitops.models.formats.openvino.document import MAX_BYTES, parse
from splitops.models.formats.openvino.model import (
    Edge,
    Endpoint,
    Graph,
    Layer,
    OpenVINOModel,
    Port,
    split_names,
)
from splitops.models.formats.openvino.shapes import parse_integer, parse_number

VERSIONS: Final = (10, 11)
"""The IR versions that are read and written."""


class SingleLayerError(ModelError):
    """The XML is a single ``<layer>``, not a model.

    Attributes:
        element: XML element of the layer.
    """

    def __init__(self, element: Element, where: Where) -> None:
        super().__init__("the XML is a <layer>, not the <net> of OpenVINO IR", where)
        self.element = element


def read(path: str | os.PathLike[str], *, allow_links: bool = False) -> OpenVINOModel:
    """Read a model, and check its edges, ports, shapes and byte ranges of constants. Errors name the layer.

    The ``.bin`` in the same folder may be missing if every constant is empty. It stays open, and a constant
    is read when it is needed: do not change the file while the model is in use. With ``allow_links``, the
    ``.bin`` may be a link that leads out of the folder.
    """
    where = make_location(path)
    content = read_bounded(Path(path), limit=MAX_BYTES, where=where)
    folder, name = DataFolder(Path(path).parent, allow_links), Path(path).with_suffix(".bin").name
    folder.resolve(name, where)  # a runtime opens it even if no constant has bytes
    return _Reader(where, partial(folder.open, name, where)).read(parse(content, where))


def open_model(model: str | os.PathLike[str] | OpenVINOModel, *, allow_links: bool = False) -> OpenVINOModel:
    """Read the model at a path; return a model in memory unchanged."""
    return model if isinstance(model, OpenVINOModel) else read(model, allow_links=allow_links)


def from_bytes(xml: bytes, weights: bytes = b"") -> OpenVINOModel:
    """Read a model from the contents of its two files."""
    where = Where()
    return _Reader(where, weights).read(parse(xml, where))


class _Reader:
    """Reads one model. Its weights are opened at the first constant that is not empty."""

    def __init__(self, where: Where, weights: Callable[[], BinaryIO] | bytes) -> None:
        self._where = where
        self._source = weights
        self._weights = Weights(weights) if isinstance(weights, bytes) else None

    def read(self, root: Element) -> OpenVINOModel:
        if root.tag == "layer":
            raise SingleLayerError(root, self._where)
        if root.tag != "net":
            raise ModelError(f"the XML is a <{root.tag[:80]}>, not the <net> of OpenVINO IR", self._where)
        version = _read_integer(root, "version", "net", self._where)
        if version not in VERSIONS:
            raise ModelError(f"IR version {version} is not supported; versions 10 and 11 are", self._where)
        graph = self._read_graph(root, self._where)
        try:
            return OpenVINOModel(graph, version, self._where.model)
        except ModelError as error:
            raise self._relocate_error(error, self._where) from None

    def _read_graph(self, element: Element, where: Where) -> Graph:
        items = _read_items(element, "layers", "layer", where)
        layers = tuple(self._read_layer(child, where) for child in items)
        edges = tuple(_read_edge(child, where) for child in _read_items(element, "edges", "edge", where))
        attributes = {key: value for key, value in element.items() if key not in {"name", "version"}}
        children = tuple(child for child in element if child.tag not in {"layers", "edges"})
        try:
            return Graph(element.get("name", ""), layers, edges, attributes, children)
        except ModelError as error:
            raise self._relocate_error(error, where) from None

    @staticmethod
    def _relocate_error(error: ModelError, where: Where) -> ModelError:
        return ModelError(error.message, replace(where, node=error.where.node))

    def _read_layer(self, element: Element, graph: Where) -> Layer:
        name, kind = element.get("name"), element.get("type")
        if name is None or kind is None:
            raise ModelError(
                f"layer {element.get('id', '?')[:80]!r} has no {'name' if name is None else 'type'}", graph
            )
        where = replace(graph, node=name)
        data: Element | None = None
        ports: dict[str, tuple[Port, ...]] = {}
        bodies: list[tuple[str, Graph]] = []
        children: list[Element] = []
        for child in element:
            if child.tag in {"data", "input", "output"}:
                if child.tag in ports or (child.tag == "data" and data is not None):
                    raise ModelError(f"the layer has two <{child.tag}>", where)
                if child.tag == "data":
                    data = child
                else:
                    _check_children(child, "port", where)
                    ports[child.tag] = tuple(_read_port(port, where) for port in child)
            elif child.find("layers") is not None:
                path = f"{name}/{child.tag}"
                inner = Where(graph.model, f"{graph.graph}/{path}" if graph.graph else path)
                bodies.append((child.tag, self._read_graph(child, inner)))
            else:
                children.append(child)
        known = {"id", "name", "type", "version"}
        layer = Layer(
            id=_read_integer(element, "id", "layer", where, minimum=0),
            name=name,
            type=kind,
            version=element.get("version", "opset1"),
            data=None if data is None else dict(data.attrib),
            inputs=ports.get("input", ()),
            outputs=ports.get("output", ()),
            bodies=tuple(bodies),
            attributes={key: value for key, value in element.items() if key not in known},
            data_children=() if data is None else tuple(data),
            children=tuple(children),
        )
        if kind == "Parameter":
            if not layer.has_dynamic_type:
                layer.read_element_type(where)
            layer.read_shape(where)
        if kind == "Const":
            return replace(layer, constant=self._read_constant(layer, where))
        return layer

    def _read_constant(self, layer: Layer, where: Where) -> Constant:
        element_type = layer.read_element_type(where)
        shape = layer.read_shape(where)
        exact = tuple(dim for dim in shape or () if isinstance(dim, int))
        if shape is None or len(exact) != len(shape):
            raise ModelError(f"shape = {layer.get_attribute('shape')!r} of a constant is not static", where)
        offset, size = (_read_number(layer, name, where) for name in ("offset", "size"))
        if self._weights is None and size > 0:
            assert not isinstance(self._source, bytes)
            try:
                self._weights = Weights(self._source())
            except ModelError as error:
                raise ModelError(f"the constant needs its bytes, but {error.message}", where) from error
        constant = Constant(element_type, exact, self._weights or Weights(b""), offset, size)
        if size == 0:
            constant = replace(constant, weights=Weights(b""), offset=0)
        constant.check(where)
        return constant


def _read_number(layer: Layer, name: str, where: Where) -> int:
    text = layer.get_attribute(name)
    if text is None:
        raise ModelError(f"the constant has no {name}", where)
    return parse_number(text, name, where, minimum=0)


def _read_port(element: Element, where: Where) -> Port:
    dims: list[int] = []
    children: list[Element] = []
    for child in element:
        if child.tag == "dim":
            dims.append(parse_integer(child.text or "", "a dim", where, minimum=-1))
        else:
            children.append(child)
    if len(dims) > MAX_RANK:
        raise ModelError(f"a port has more than {MAX_RANK} dimensions", where)
    known = {"id", "precision", "names"}
    return Port(
        id=_read_integer(element, "id", "port", where, minimum=0),
        precision=element.get("precision"),
        dims=tuple(dims),
        names=split_names(element.get("names", "")),
        attributes={key: value for key, value in element.items() if key not in known},
        children=tuple(children),
    )


def _read_edge(element: Element, where: Where) -> Edge:
    ends = [
        Endpoint(
            *(_read_integer(element, f"{end}-{what}", "edge", where, minimum=0) for what in ("layer", "port"))
        )
        for end in ("from", "to")
    ]
    return Edge(ends[0], ends[1])


def _read_items(element: Element, tag: str, item: str, where: Where) -> tuple[Element, ...]:
    found = element.findall(tag)
    if len(found) != 1:
        raise ModelError(f"<{element.tag}> has {len(found)} <{tag}> sections, not one", where)
    _check_children(found[0], item, where)
    return tuple(found[0])


def _check_children(element: Element, item: str, where: Where) -> None:
    """Check that the tag of all children is ``item``: others would be lost when the model is written."""
    for child in element:
        if child.tag != item:
            raise ModelError(
                f"<{element.tag}> has a <{child.tag[:80]}>, but only <{item}> is supported there", where
            )


def _read_integer(element: Element, name: str, what: str, where: Where, *, minimum: int | None = None) -> int:
    text = element.get(name)
    if text is None:
        raise ModelError(f"a <{what}> has no {name}", where)
    value = parse_number(text, name, where, minimum=minimum)
    if value > INT32_MAX:
        raise ModelError(f"{name} = {value} of a <{what}> is more than {INT32_MAX}", where)
    return value
