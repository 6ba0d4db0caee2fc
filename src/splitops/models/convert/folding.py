"""Numbers that follow from constants alone, computed when a model is converted."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy.typing as npt
import onnx_ir as ir
from onnx import ModelProto, OperatorSetIdProto, ValueInfoProto

from splitops.errors import NOWHERE, SplitError, Where
from splitops.models.formats.openvino.model import Endpoint, Graph, Layer
from splitops.models.graph.onnx import (
    BY_CHANCE,
    fixed_array,
    subgraphs,
)
from splitops.models.movers.evaluated import Value
from splitops.models.running.onnx.model import Model
from splitops.models.running.openvino.evaluator import Prepared
from splitops.models.running.openvino.foreign import Given, Region
from splitops.spec.elements.types import element_type_of

_MOST_NODES: Final = 256
MOST_ELEMENTS: Final = 1 << 16
_DECIDED_BY_A_RUN: Final = frozenset(["Multinomial", "Parameter", "RandomUniform", "ReadValue"])


def folded_array(
    value: ir.Value, opset: int, where: Where = NOWHERE, *, limit: int = MOST_ELEMENTS
) -> npt.NDArray[Any] | None:
    """Return the numbers of a value that nodes of a graph make of constants alone; else None."""
    content = fixed_array(value, limit=limit)
    if content is not None:
        return content
    nodes = _makers(value, limit)
    if not nodes:
        return None
    model = ModelProto(ir_version=10, opset_import=[OperatorSetIdProto(version=opset)])
    model.graph.name = value.name or "folded"
    model.graph.output.append(ValueInfoProto(name=value.name))
    inside = {output for node in nodes for output in node.outputs}
    read = dict.fromkeys(source for node in nodes for source in node.inputs if source is not None)
    for source in read:
        if source not in inside:
            array = fixed_array(source, limit=limit)
            assert array is not None
            tensor = ir.Tensor(array, name=source.name)
            model.graph.initializer.append(ir.serde.serialize_tensor(tensor))
    model.graph.node.extend(ir.serde.serialize_node(node) for node in nodes)
    try:
        (array,) = Model(model, where).run({}).values()
    except SplitError:
        return None  # it fails when the model runs, too
    found: npt.NDArray[Any] = array
    return found


def folded_layer(graph: Graph, layer: Layer) -> dict[Endpoint, Value] | None:
    """Return what a layer of OpenVINO gives of constants alone, as a run would; None: it reads others."""
    needed: dict[int, Layer] = {}
    stack = [layer]
    while stack:
        one = stack.pop()
        constant = one.constant
        large = constant is not None and math.prod(constant.shape) > MOST_ELEMENTS
        if large or len(needed) == _MOST_NODES or (one.type in _DECIDED_BY_A_RUN and constant is None):
            return None
        needed[one.id] = one
        stack += [graph.by_id[end.layer] for end in graph.sources(one) if end.layer not in needed]
    layers = [one for one in graph.order if one.id in needed and one.constant is None]
    ends = [Endpoint(layer.id, port.id) for port in layer.outputs]
    region = Region.of(graph, layers, set(ends) & graph.consumers.keys())
    given = {end: graph.by_id[end.layer].constant for end in region.inputs}
    model = region.model(
        {end: Given(one.element_type, one.shape, one) for end, one in given.items() if one is not None}
    )
    try:
        arrays = Prepared(model).run({}).values()
    except SplitError:
        return None  # it fails when the model runs, too
    ports = {port.id: port for port in layer.outputs}
    found: dict[Endpoint, Value] = {}
    for end, array in zip(region.outputs, arrays, strict=True):
        kind = element_type_of(array.dtype)
        if kind is None or kind.precision != ports[end.port].precision:
            return None
        found[end] = Value(array, kind)
    return found


def _makers(value: ir.Value, limit: int) -> list[ir.Node]:
    """Return the nodes that make a value of constants alone, in topological order; none where others do."""
    found: dict[ir.Node, None] = {}
    opened: set[ir.Node] = set()
    stack: list[tuple[ir.Value, bool]] = [(value, False)]
    while stack:
        current, done = stack.pop()
        node = current.producer()
        if done:
            assert node is not None
            found.setdefault(node)
        elif current is not value and fixed_array(current, limit=limit) is not None:
            continue
        elif node is None:
            return []
        elif node not in opened:
            held = next(subgraphs(node), None)  # a body reads values that are no inputs of its node
            if node.graph is None or len(opened) == _MOST_NODES or node.op_type in BY_CHANCE or held:
                return []
            opened.add(node)
            stack.append((current, True))
            stack += [(source, False) for source in node.inputs if source is not None]
    return list(found)
