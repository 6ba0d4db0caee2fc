"""What splits that an engine evaluates do on given inputs, as inference knows it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import onnx_ir as ir

from splitops.errors import SplitError, Where
from splitops.models.graph.openvino import layer_of, source_of
from splitops.models.infer.walk import Walk
from splitops.models.known import Known, Tensor
from splitops.models.sites import Site
from splitops.native import Plan
from splitops.spec.elements.types import element_type_of
from splitops.splitting.planning import plan_request

_NUMBERS: Final = 64
"""Integers of an input that may be lengths."""


def predict(model: ir.Model, where: Where, inputs: Mapping[str, Any]) -> list[Site]:
    """Return the splits of a model, with what is known of them for inputs of these shapes."""
    sites: list[Site] = []
    Walk(model, where, sites.append, given=known_inputs(model, inputs)).run()
    return sites


def known_inputs(
    model: ir.Model, inputs: Mapping[str, Any], *, numbers: bool = True
) -> dict[ir.Value, Known]:
    """Return what arrays tell of the inputs of a model: shapes, and ``numbers`` that may be lengths."""
    found: dict[ir.Value, Known] = {}
    for names, value in _inputs_of(model):
        array = next((inputs[name] for name in names if name in inputs), None)
        if isinstance(array, np.ndarray):
            kept = array if numbers and may_be_lengths(array) else None
            found[value] = Tensor(element_type_of(array.dtype), array.shape, kept)
    return found


def _inputs_of(model: ir.Model) -> Iterator[tuple[tuple[str, ...], ir.Value]]:
    """Yield the inputs of a model with their names."""
    if source_of(model) is None:
        yield from (((value.name or "",), value) for value in model.graph.inputs)
        return
    for node in model.graph:
        if node.op_type == "Parameter":
            layer = layer_of(node)
            yield (*layer.outputs[0].names, layer.name), node.outputs[0]


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
