"""Infer the splits of a model for given inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import onnx_ir as ir

from splitops.errors import SplitError, Where
from splitops.models.abstract_values import AbstractTensor, AbstractValue
from splitops.models.formats.openvino.nodes import get_layer
from splitops.models.formats.walk import has_layers
from splitops.models.infer.interpreter import ShapeInterpreter
from splitops.models.split_nodes import SplitNode
from splitops.native import Plan
from splitops.spec.elements.types import element_type_of
from splitops.splitting.planning import plan_request

_MAX_LENGTHS: Final = 64
"""Maximum size of an integer input whose elements are used, since they may be the lengths of a split."""


def infer_splits(model: ir.Model, where: Where, inputs: Mapping[str, Any]) -> list[SplitNode]:
    """Infer the splits of a model from the types and shapes of ``inputs``, and from possible lengths in them.

    Only the elements of small integer arrays of rank 0 or 1 may be lengths.
    """
    return ShapeInterpreter(model, where, given=_make_abstract_inputs(model, inputs)).run().splits


def _make_abstract_inputs(model: ir.Model, inputs: Mapping[str, Any]) -> dict[ir.Value, AbstractValue]:
    """Return the abstract values of the NumPy arrays. Those that may be lengths include their elements."""
    values: dict[ir.Value, AbstractValue] = {}
    for names, value in _iter_inputs(model):
        array = next((inputs[name] for name in names if name in inputs), None)
        if isinstance(array, np.ndarray):
            small = array.dtype.kind in "iu" and array.ndim <= 1 and array.size <= _MAX_LENGTHS
            elements = array if small else None
            values[value] = AbstractTensor(element_type_of(array.dtype), array.shape, elements)
    return values


def _iter_inputs(model: ir.Model) -> Iterator[tuple[tuple[str, ...], ir.Value]]:
    """Yield each input of a model with its possible names."""
    if not has_layers(model):
        yield from (((value.name or "",), value) for value in model.graph.inputs)
        return
    for node in model.graph:
        if node.op_type == "Parameter":
            layer = get_layer(node)
            yield (*layer.outputs[0].names, layer.name), node.outputs[0]


def plan_split_node(split_node: SplitNode) -> Plan | None:
    """Plan a split. Return None if a size, the axis or the lengths are unknown, or the split is invalid."""
    binding = split_node.binding
    if binding is None or binding.axis is None or binding.division is None or binding.squeeze is None:
        return None
    if binding.data.shape is None or not all(isinstance(size, int) for size in binding.data.shape):
        return None
    try:
        return plan_request(binding.request())
    except SplitError:
        return None
