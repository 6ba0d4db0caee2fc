"""Write OpenVINO IR: an ``.xml`` that OpenVINO loads, and the ``.bin`` of its constants."""

from __future__ import annotations

import copy
import hashlib
import io
import os
import re
from pathlib import Path
from typing import BinaryIO, Final
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from splitops.common.atomic_write import StagedFiles
from splitops.errors import ModelError, Where, shown_path
from splitops.models.formats.openvino.constants import Constant, Weights
from splitops.models.formats.openvino.model import Graph, Layer, OpenVINOModel, Port, join_names

# Characters that XML does not allow, not even escaped.
_FORBIDDEN: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write(model: OpenVINOModel, path: str | os.PathLike[str]) -> None:
    """Write a model atomically to ``path`` and a ``.bin`` of the same name. The ``.bin`` is written first.

    Constants with equal bytes are written once.
    """
    path = Path(path)
    if path.suffix.lower() != ".xml":
        raise ModelError(f"{shown_path(path)} is not the name of an OpenVINO IR, which ends in .xml")
    with StagedFiles() as files:
        with files.open(path.with_suffix(".bin")) as weights:
            document = _serialize(model, weights)
        with files.open(path) as file:
            file.write(document)


def to_bytes(model: OpenVINOModel) -> tuple[bytes, bytes]:
    """Return the contents of the ``.xml`` and the ``.bin`` that :func:`write` writes."""
    weights = io.BytesIO()
    document = _serialize(model, weights)
    return document, weights.getvalue()


def _serialize(model: OpenVINOModel, weights: BinaryIO) -> bytes:
    root = Element("net", {"name": model.name, "version": str(model.version)})
    constants = _ConstantWriter(weights)
    _fill_graph(root, model.graph, constants)
    constants.finish()
    ElementTree.indent(root, "\t")
    text = ElementTree.tostring(root, encoding="unicode")
    found = _FORBIDDEN.search(text)
    if found:
        raise ModelError(f"a name or attribute has the character U+{ord(found[0]):04X}, which XML forbids")
    return f'<?xml version="1.0"?>\n{text}\n'.encode()


class _ConstantWriter:
    """Writes constants consecutively, and equal bytes only once."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._end = 0
        self._ranges: dict[tuple[Weights, int, int], int] = {}
        self._contents: dict[bytes, int] = {}

    def write(self, constant: Constant, where: Where) -> int:
        """Write a constant, unless its bytes were written before, and return their offset."""
        key = constant.weights, constant.offset, constant.size
        if key in self._ranges:
            return self._ranges[key]
        constant.check(where)
        content = constant.read_data(where)
        digest = hashlib.sha256(content).digest()
        offset = self._contents.get(digest)
        if offset is None:
            # Every offset is valid, but runtimes can map only constants at a multiple of the element's size.
            offset = self._end + -self._end % max(1, constant.element_type.bits // 8)
            self._file.write(bytes(offset - self._end))
            self._file.write(content)
            self._end = offset + constant.size
            self._contents[digest] = offset
        self._ranges[key] = offset
        return offset

    def finish(self) -> None:
        """Write one byte if all constants are empty: OpenVINO cannot read constants from an empty file."""
        if self._ranges and self._end == 0:
            self._file.write(b"\0")


def _fill_graph(element: Element, graph: Graph, constants: _ConstantWriter) -> None:
    for name, value in graph.attributes.items():
        element.set(name, value)
    layers = ElementTree.SubElement(element, "layers")
    for layer in graph.layers:
        layers.append(_make_layer_element(layer, constants))
    edges = ElementTree.SubElement(element, "edges")
    for source, target in graph.edges:
        ends = {
            "from-layer": source.layer,
            "from-port": source.port,
            "to-layer": target.layer,
            "to-port": target.port,
        }
        ElementTree.SubElement(edges, "edge", {name: str(value) for name, value in ends.items()})
    element.extend(copy.deepcopy(child) for child in graph.children)


def _make_layer_element(layer: Layer, constants: _ConstantWriter) -> Element:
    head = {"id": str(layer.id), "name": layer.name, "type": layer.type, "version": layer.version}
    element = Element("layer", head | dict(layer.attributes))
    data = None if layer.data is None else dict(layer.data)
    if layer.constant is not None:
        constant = layer.constant
        data = (data or {}) | {
            "element_type": constant.element_type.openvino or "",
            "shape": ", ".join(map(str, constant.shape)),
            "offset": str(constants.write(constant, layer.where)),
            "size": str(constant.size),
        }
    if data is not None:
        ElementTree.SubElement(element, "data", data).extend(
            copy.deepcopy(child) for child in layer.data_children
        )
    element.extend(copy.deepcopy(child) for child in layer.children)
    for tag, ports in (("input", layer.inputs), ("output", layer.outputs)):
        if ports:
            ElementTree.SubElement(element, tag).extend(map(_make_port_element, ports))
    for tag, body in layer.bodies:
        inner = ElementTree.SubElement(element, tag, {"name": body.name} if body.name else {})
        _fill_graph(inner, body, constants)
    return element


def _make_port_element(port: Port) -> Element:
    element = Element("port", {"id": str(port.id)})
    if port.precision is not None:
        element.set("precision", port.precision)
    if port.names:
        element.set("names", join_names(port.names))
    for name, value in port.attributes.items():
        element.set(name, value)
    for size in port.dims:
        ElementTree.SubElement(element, "dim").text = str(size)
    element.extend(copy.deepcopy(child) for child in port.children)
    return element
