"""Clear the declared sizes after a split that now accepts other sizes, and infer them again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import onnx_ir as ir

from splitops.errors import Where
from splitops.models.abstract_values import AbstractTensor
from splitops.models.formats.openvino.nodes import LayerNode, set_layer
from splitops.models.formats.walk import (
    AnyGraph,
    FunctionKey,
    index_functions,
    iter_owners,
    iter_subgraphs,
    make_function_key,
)
from splitops.models.graph.onnx import annotate, get_declared
from splitops.models.infer.declarations import to_shape
from splitops.models.infer.interpreter import ForwardInterpreter
from splitops.models.infer.layers import declare_shapes

_CLEARED: Final = "splitops.cleared"


def clear_sizes_after(model: ir.Model, node: ir.Node) -> None:
    """Mark as unknown the declared sizes of all values that depend on a split, including its outputs."""
    functions = index_functions(model)
    dependents: set[ir.Value] = set(node.outputs)
    count = 0
    while len(dependents) > count:  # repeat until nothing is added, since a loop reads its own outputs
        count = len(dependents)
        for _, owner in iter_owners(model):
            _grow(owner, dependents, functions)
    for value in dependents:
        _clear_sizes(value)


def _grow(graph: AnyGraph, dependents: set[ir.Value], functions: Mapping[FunctionKey, ir.Function]) -> bool:
    """Add to ``dependents`` the values of a graph that depend on them. Return whether the graph has any."""
    found = False
    for node in graph:
        reached = any(value in dependents for value in node.inputs)
        function = functions.get(make_function_key(node)) if functions else None
        if function is not None:
            dependents.update(function.inputs if reached else ())
            reached |= any(value in dependents for value in function.outputs)
        for _, inner in iter_subgraphs(node) if node.attributes.data else ():
            dependents.update(inner.inputs if reached else ())
            dependents.update(_list_parameters(inner) if reached else ())
            reached |= _grow(inner, dependents, functions)
        dependents.update(node.outputs if reached else ())
        found |= reached or any(value in dependents for value in node.outputs)
    return found


def _list_parameters(graph: ir.Graph) -> list[ir.Value]:
    """Return the inputs of a graph of OpenVINO IR, such as the body of a loop."""
    return [node.outputs[0] for node in graph if type(node) is LayerNode and node.op_type == "Parameter"]


def _clear_sizes(value: ir.Value) -> None:
    node = value.producer()
    if type(node) is LayerNode:
        layer = node.layer
        ports = [replace(port, dims=(-1,) * len(port.dims or ())) for port in layer.outputs]
        outputs = tuple(
            loose if node.outputs[index] is value else port
            for index, (port, loose) in enumerate(zip(layer.outputs, ports, strict=True))
        )
        data = layer.data
        if layer.type == "Parameter" and data is not None and "shape" in data:
            data = {**data, "shape": ",".join("?" * len(data["shape"].split(",")))}
        set_layer(node, replace(layer, outputs=outputs, data=data))
    elif value.shape is not None:
        value.shape = ir.Shape([None] * len(value.shape))
    else:
        return
    value.meta[_CLEARED] = True
    annotate(value, get_declared(value))


def declare_cleared(model: ir.Model, where: Where) -> None:
    """Declare the inferred shapes of the values that :func:`clear_sizes_after` has cleared."""
    values = ForwardInterpreter(model, where).run().values
    found = {value: known for value, known in values.items() if value.meta.get(_CLEARED)}
    if type(next(iter(model.graph), None)) is LayerNode:
        declare_shapes(model, found)
        return
    for value, known in found.items():
        if isinstance(known, AbstractTensor) and known.shape is not None and value.shape is not None:
            value.shape = to_shape(known.shape)
