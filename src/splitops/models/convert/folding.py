"""Numbers that follow from constants alone, computed when a model is converted."""

from __future__ import annotations

from typing import Final

import onnx_ir as ir
from onnx import ModelProto, OperatorSetIdProto, ValueInfoProto

from splitops.errors import SplitError, Where
from splitops.models.graph.onnx import Names, constant_array, remove_if_unused
from splitops.models.running.onnx.model import Model

_MOST_NODES: Final = 256
_MOST_ELEMENTS: Final = 1 << 16
_BY_CHANCE: Final = frozenset(
    ["Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"]
)


def folded(value: ir.Value, graph: ir.Graph, opset: int, names: Names, where: Where) -> ir.Value | None:
    """Return a new initializer in the place of a value that follows from constants alone; else None.

    Args:
        value: what a node of the graph gives.
        graph: the graph, which loses the nodes that nobody reads any more if ``value`` is not read.
        opset: its operation set.
        names: its names.
        where: the place for errors.
    """
    nodes = _makers(value)
    if not nodes:
        return None
    model = ModelProto(ir_version=10, opset_import=[OperatorSetIdProto(version=opset)])
    model.graph.name = value.name or "folded"
    model.graph.output.append(ValueInfoProto(name=value.name))
    read = {source for node in nodes for source in node.inputs if source is not None}
    for source in sorted((one for one in read if one.is_initializer()), key=lambda one: one.name or ""):
        assert source.const_value is not None
        model.graph.initializer.append(ir.serde.serialize_tensor(source.const_value))
        model.graph.initializer[-1].name = source.name or ""
    model.graph.node.extend(ir.serde.serialize_node(node) for node in nodes)
    try:
        (array,) = Model.of(model, where).run({}).values()
    except SplitError:
        return None  # it fails when the model runs, too
    tensor = ir.Tensor(array, name=names.fresh(value.name or "folded"))
    made = ir.Value(
        name=tensor.name, type=ir.TensorType(tensor.dtype), shape=tensor.shape, const_value=tensor
    )
    graph.register_initializer(made)
    return made


def remove_unread(value: ir.Value) -> None:
    """Remove the nodes that make a value which nobody reads any more, as far as they are for it alone."""
    for node in reversed(_makers(value)):
        sources = [source for source in dict.fromkeys(node.inputs) if source is not None]
        if node.graph is None or any(one.uses() or one.is_graph_output() for one in node.outputs):
            continue
        node.graph.remove(node, safe=True)
        for source in sources:
            remove_if_unused(source)


def _makers(value: ir.Value) -> list[ir.Node]:
    """Return the nodes that make a value of constants alone, in topological order; none where others do."""
    found: dict[ir.Node, None] = {}
    opened: set[ir.Node] = set()
    stack: list[tuple[ir.Value, bool]] = [(value, False)]
    while stack:
        current, done = stack.pop()
        node = current.producer()
        if node is None:
            if constant_array(current, limit=_MOST_ELEMENTS) is None:
                return []
        elif done:
            found.setdefault(node)
        elif node not in opened:
            if len(opened) == _MOST_NODES or node.op_type in _BY_CHANCE:
                return []
            opened.add(node)
            stack.append((current, True))
            stack += [(source, False) for source in node.inputs if source is not None]
    return list(found)
