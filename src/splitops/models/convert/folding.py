"""Constant folding in conversions: evaluate values that depend only on constants."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
from onnx import ModelProto, OperatorSetIdProto, ValueInfoProto

from splitops.errors import NOWHERE, SplitError, Where
from splitops.models.engines import is_installed, make_engine
from splitops.models.engines.engine import Program
from splitops.models.formats.openvino.constants import Constant
from splitops.models.formats.openvino.model import (
    Edge,
    Endpoint,
    Graph,
    Layer,
    OpenVINOModel,
    Port,
    remove_tensor_names,
)
from splitops.models.formats.openvino.splits import is_split_layer
from splitops.models.formats.openvino.writer import to_bytes
from splitops.models.formats.walk import iter_subgraphs
from splitops.models.graph.onnx import BY_CHANCE, find_elements
from splitops.models.running.onnx.model import Model
from splitops.spec.elements.types import element_type_of

_MAX_NODES: Final = 256
MAX_ELEMENTS: Final = 1 << 16
_KNOWN_AT_RUN_TIME: Final = frozenset(["Multinomial", "Parameter", "RandomUniform", "ReadValue"])


def fold_value(
    value: ir.Value, opset: int, where: Where = NOWHERE, *, limit: int = MAX_ELEMENTS
) -> npt.NDArray[Any] | None:
    """Evaluate a value from constants of at most ``limit`` elements. Return None if this is not possible."""
    content = find_elements(value, limit=limit)
    if content is not None:
        return content
    nodes = _find_producers(value, limit)
    if not nodes:
        return None
    model = ModelProto(ir_version=10, opset_import=[OperatorSetIdProto(version=opset)])
    model.graph.name = value.name or "folded"
    model.graph.output.append(ValueInfoProto(name=value.name))
    inside = {output for node in nodes for output in node.outputs}
    read = dict.fromkeys(source for node in nodes for source in node.inputs if source is not None)
    for source in read:
        if source not in inside:
            array = find_elements(source, limit=limit)
            assert array is not None
            tensor = ir.Tensor(array, name=source.name)
            model.graph.initializer.append(ir.serde.serialize_tensor(tensor))
    model.graph.node.extend(ir.serde.serialize_node(node) for node in nodes)
    try:
        (array,) = Model(model, where).run({}).values()
    except SplitError:
        return None  # it fails when the model runs, too
    elements: npt.NDArray[Any] = array
    return elements


def fold_layer(graph: Graph, layer: Layer) -> dict[Endpoint, Constant] | None:
    """Evaluate a layer from small constants with OpenVINO. Return its outputs, or None if this fails."""
    needed: dict[int, Layer] = {}
    stack = [layer]
    while stack:
        current = stack.pop()
        constant = current.constant
        large = constant is not None and math.prod(constant.shape) > MAX_ELEMENTS
        if large or len(needed) == _MAX_NODES or (current.type in _KNOWN_AT_RUN_TIME and constant is None):
            return None
        needed[current.id] = current
        stack += [graph.by_id[end.layer] for end in graph.get_sources(current) if end.layer not in needed]
    if not is_installed("openvino") or any(is_split_layer(one) for one in needed.values()):
        return None
    ends = [Endpoint(layer.id, port.id) for port in layer.outputs]
    first = max(graph.by_id) + 1
    results = [
        Layer(first + at, f"result{at}", "Result", "opset1", inputs=(Port(0),)) for at in range(len(ends))
    ]
    edges = [edge for edge in graph.edges if edge.target.layer in needed]
    edges += [Edge(end, Endpoint(result.id, 0)) for end, result in zip(ends, results, strict=True)]
    layers = [one for one in graph.layers if one.id in needed]
    model = OpenVINOModel(Graph("folded", (*map(remove_tensor_names, layers), *results), tuple(edges)))
    document, weights = to_bytes(model)
    program = Program(
        document, tuple(one.name for one in results), NOWHERE, binary=np.frombuffer(weights, np.uint8)
    )
    try:
        arrays = make_engine("openvino", {}).compile(program).run({})
    except SplitError:
        return None  # it fails when the model runs, too
    constants: dict[Endpoint, Constant] = {}
    for end, port, array in zip(ends, layer.outputs, arrays, strict=True):
        kind = element_type_of(array.dtype)
        if kind is None or kind.precision != port.precision:
            return None
        constants[end] = Constant.from_array(array, kind)
    return constants


def _find_producers(value: ir.Value, limit: int) -> list[ir.Node]:
    """Return the nodes that compute a value from constants of at most ``limit`` elements, in execution order.

    Return an empty list if the value has other sources, or if the nodes cannot be folded.
    """
    producers: dict[ir.Node, None] = {}
    opened: set[ir.Node] = set()
    stack: list[tuple[ir.Value, bool]] = [(value, False)]
    while stack:
        current, done = stack.pop()
        node = current.producer()
        if done:
            assert node is not None
            producers.setdefault(node)
        elif current is not value and find_elements(current, limit=limit) is not None:
            continue
        elif node is None:
            return []
        elif node not in opened:
            body = next(iter_subgraphs(node), None)  # it can read values that are not inputs of the node
            if node.graph is None or len(opened) == _MAX_NODES or node.op_type in BY_CHANCE or body:
                return []
            opened.add(node)
            stack.append((current, True))
            stack += [(source, False) for source in node.inputs if source is not None]
    return list(producers)
