"""Read and write the metadata that lists the runtimes that a model was fixed for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final
from xml.etree.ElementTree import Element, SubElement

import onnx_ir as ir

from splitops.models.formats.openvino.nodes import SOURCE, get_source
from splitops.models.formats.walk import has_layers

_KEY: Final = "splitops_fixed_for"
"""Key in ``metadata_props`` of an ONNX model and in ``rt_info`` of an OpenVINO IR."""


def read_fixed_runtimes(model: ir.Model) -> tuple[str, ...]:
    """Return the names of the runtimes that a model was fixed for."""
    found = [model.metadata_props.get(_KEY, "")]
    if has_layers(model):
        infos = (info for info in get_source(model).graph.children if info.tag == "rt_info")
        found = [entry.get("value", "") for info in infos for entry in info if entry.tag == _KEY]
    return tuple(dict.fromkeys(name.strip() for text in found for name in text.split(",") if name.strip()))


def record_fix(model: ir.Model, runtimes: Iterable[str]) -> None:
    """Add ``runtimes`` to the list of those that a model was fixed for."""
    names = ", ".join(dict.fromkeys([*read_fixed_runtimes(model), *runtimes]))
    if not names:
        return
    if not has_layers(model):
        model.metadata_props[_KEY] = names
        return
    source, made = get_source(model), Element("rt_info")
    kept = [child for child in source.graph.children if child.tag != "rt_info"]
    for info in (child for child in source.graph.children if child.tag == "rt_info"):
        made.extend(entry for entry in info if entry.tag != _KEY)
    SubElement(made, _KEY, value=names)
    model.meta[SOURCE] = source.with_graph(replace(source.graph, children=(*kept, made)))
