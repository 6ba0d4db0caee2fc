"""What splits that an engine evaluates do on given inputs, as inference knows it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
from onnx import ModelProto, numpy_helper

from splitops.errors import SplitError, Where
from splitops.models.formats.openvino import OpenVINOModel
from splitops.models.formats.openvino.constants import Constant
from splitops.models.formats.openvino.model import Layer
from splitops.models.formats.openvino.shapes import format_shape
from splitops.models.graph.onnx_model import as_graph
from splitops.models.graph.openvino import to_nodes
from splitops.models.infer.walk import Walk
from splitops.models.sessions.cones import cone_of_sites
from splitops.models.sites import Site
from splitops.native import Plan
from splitops.spec.elements.types import element_type_of
from splitops.splitting.planning import plan_request

_NUMBERS: Final = 64
"""Integers of an input that may be lengths."""


def predict_onnx(model: ModelProto, where: Where, inputs: Mapping[str, Any]) -> Iterator[Site]:
    """Yield the splits of a model, with what is known of them for inputs of these shapes."""
    cone = cone_of_sites(model, sizes=True)
    if cone is None:
        return
    with_inputs(cone, inputs)
    sites: list[Site] = []
    Walk(as_graph(cone, where), where, sites.append).run()
    yield from sites


def with_inputs(model: ModelProto, inputs: Mapping[str, Any], *, numbers: bool = True) -> None:
    """Give the inputs of a model the shapes of arrays, and ``numbers`` that may be lengths as constants."""
    for value in list(model.graph.input):
        array = inputs.get(value.name)
        if not isinstance(array, np.ndarray) or not value.type.HasField("tensor_type"):
            continue
        if numbers and may_be_lengths(array):
            model.graph.input.remove(value)
            model.graph.initializer.append(numpy_helper.from_array(array, value.name))
            continue
        shape = value.type.tensor_type.shape
        shape.Clear()
        for size in array.shape:
            shape.dim.add(dim_value=size)


def predict_ir(model: OpenVINOModel, where: Where, inputs: Mapping[str, Any]) -> Iterator[Site]:
    """Yield the splits of a model, with what is known of them for inputs of these shapes."""
    given = {name: value for name, value in inputs.items() if isinstance(value, np.ndarray)}
    layers = tuple(_fixed(layer, given) for layer in model.graph.layers)
    sites: list[Site] = []
    fixed = model.with_graph(replace(model.graph, layers=layers))
    Walk(to_nodes(fixed), where, sites.append).run()
    yield from sites


def _fixed(layer: Layer, inputs: Mapping[str, Any]) -> Layer:
    names = (*layer.outputs[0].names, layer.name) if layer.type == "Parameter" else ()
    array = next((inputs[name] for name in names if name in inputs), None)
    if array is None:
        return layer
    kind = element_type_of(array.dtype)
    if may_be_lengths(array) and kind is not None:
        return replace(layer, type="Const", constant=Constant.of(array, kind))
    return replace(layer, data={**(layer.data or {}), "shape": format_shape(array.shape)})


def may_be_lengths(array: np.ndarray[Any, Any]) -> bool:
    """Return whether an input may be lengths: few integers."""
    return array.dtype.kind in "iu" and array.ndim <= 1 and array.size <= _NUMBERS


def plan_of(site: Site) -> Plan | None:
    """Return what a split does; None where inference does not know it all."""
    binding = site.binding
    if binding is None or binding.axis is None or binding.division is None or binding.squeeze is None:
        return None
    if binding.data.shape is None or not all(isinstance(size, int) for size in binding.data.shape):
        return None
    try:
        return plan_request(binding.request())
    except SplitError:
        return None
