"""What a model says about the runtimes that it was fixed for, in its own metadata."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final, TypeVar
from xml.etree.ElementTree import Element, SubElement

import onnx_ir as ir
from onnx import ModelProto

from splitops.models.formats.openvino import OpenVINOModel

_KEY: Final = "splitops_fixed_for"
"""In ``metadata_props`` of ONNX, and in the ``rt_info`` of IR."""
AnyGraph = TypeVar("AnyGraph", bound="ModelProto | ir.Model | OpenVINOModel")


def runtimes_fixed_for(model: ModelProto | ir.Model | OpenVINOModel) -> tuple[str, ...]:
    """Return the runtimes that a model says it was fixed for."""
    if isinstance(model, OpenVINOModel):
        found = [
            entry.get("value", "")
            for info in model.graph.children
            if info.tag == "rt_info"
            for entry in info
            if entry.tag == _KEY
        ]
    elif isinstance(model, ir.Model):
        found = [model.metadata_props.get(_KEY, "")]
    else:
        found = [entry.value for entry in model.metadata_props if entry.key == _KEY]
    return tuple(dict.fromkeys(word.strip() for text in found for word in text.split(",") if word.strip()))


def record_fix(model: AnyGraph, runtimes: Iterable[str]) -> AnyGraph:
    """Return a model that says that it was fixed for some runtimes too; one of ONNX is changed in place."""
    told = ", ".join(dict.fromkeys([*runtimes_fixed_for(model), *runtimes]))
    if not told:
        return model
    if isinstance(model, OpenVINOModel):
        return model.with_graph(  # type: ignore[return-value]
            replace(model.graph, children=_with_entry(model.graph.children, told))
        )
    if isinstance(model, ir.Model):
        model.metadata_props[_KEY] = told
        return model
    assert isinstance(model, ModelProto)
    entry = next((entry for entry in model.metadata_props if entry.key == _KEY), None)
    if entry is None:
        entry = model.metadata_props.add(key=_KEY)
    entry.value = told
    return model


def _with_entry(children: tuple[Element, ...], text: str) -> tuple[Element, ...]:
    """Return the children of the XML of a graph with the entry."""
    kept = [child for child in children if child.tag != "rt_info"]
    made = Element("rt_info")
    for info in (child for child in children if child.tag == "rt_info"):
        made.extend(entry for entry in info if entry.tag != _KEY)
    SubElement(made, _KEY, value=text)
    return (*kept, made)
