"""ONNX graphs of splits and operators that both dialects share, written without OpenVINO."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import onnx_ir as ir

from splitops.errors import ModelError, Where
from splitops.models.convert.layer_op_builder import ValueReader
from splitops.models.formats.openvino import Builder, OpenVINOModel, Output
from splitops.models.formats.walk import label
from splitops.models.graph.onnx import find_shape, find_type, read_constant
from splitops.models.ops.conversion import can_convert_node, convert_node
from splitops.spec.elements.types import ElementType

_SAME: Final = frozenset({"Constant", "Identity"})
"""What needs no layer: its output is its input, or a constant where it is read."""


def unwritable(model: ir.Model, own: set[ir.Node]) -> list[str]:
    """Return the operators of a model that cannot be written here, each once; its own splits can."""
    found: dict[str, None] = {}
    opset = model.graph.opset_imports.get("", 1)
    for node in model.graph:
        if node not in own and not _is_writable(node, opset):
            found[node.op_type] = None
    return list(found)


def _is_writable(node: ir.Node, opset: int) -> bool:
    if node.domain not in ("", "ai.onnx"):
        return False
    if node.op_type in _SAME:
        return True
    return can_convert_node(ValueReader(), node, opset)


def written_model(model: ir.Model, opset: int, where: Where) -> OpenVINOModel:
    """Write a model of which nothing is :func:`unwritable`."""
    return _Writing(model, opset, where).model()


def declare_input(builder: Builder, value: ir.Value, where: Where) -> Output:
    """Add the Parameter of an input of a graph."""
    kind = find_type(value)
    if kind is None or kind.openvino is None:
        raise ModelError(f"input {value.name!r} is of {kind}, which OpenVINO lacks", where)
    return builder.parameter(value.name or "", kind, find_shape(value))


class _Writing(ValueReader):
    def __init__(self, model: ir.Model, opset: int, where: Where) -> None:
        self.source = model
        self.opset = opset
        self.where = where
        self.builder = Builder(model.graph.name or "model")
        self.values: dict[ir.Value, Output] = {}

    def model(self) -> OpenVINOModel:
        graph = self.source.graph
        for value in graph.inputs:
            if value.is_initializer():
                continue  # OpenVINO's models have no defaults: the default is the value
            self.values[value] = declare_input(self.builder, value, self.where)
        for node in graph:
            self._node(node)
        for value in graph.outputs:
            self.builder.result(self.value(value), value.name or "", names=[value.name or ""])
        return self.builder.model()

    def value(self, value: ir.Value | None) -> Output:
        """Return what stands for a value."""
        if value is None:
            raise ModelError("an input that must be there is absent", self.where)
        if value not in self.values:
            array = _initial(value)
            if array is None:
                raise ModelError(f"value {value.name!r} is not known", self.where)
            self.values[value] = self._const(array, self.type_of(value), value.name)
        return self.values[value]

    def _const(self, array: Any, kind: ElementType | None, name: str | None = None) -> Output:
        if kind is not None and kind.openvino is None:
            raise ModelError(f"constant {name!r} has element type {kind}, which OpenVINO lacks", self.where)
        return self.builder.const(array, kind, name=name)

    def integers(self, values: int | Sequence[int], kind: ElementType | None = None) -> Output:
        """Add a constant, of int64 or another type."""
        return self.builder.const(np.array(values, np.int64 if kind is None else kind.numpy))

    def _node(self, node: ir.Node) -> None:
        if node.op_type == "Constant":
            return  # written where it is read
        if node.domain == "openvino":
            data = {name: attribute.value for name, attribute in node.attributes.items()}
            made = self.layers(
                node, node.op_type, node.inputs, data or None, version=f"opset{node.version or 1}"
            )
        elif node.op_type in _SAME:
            made = (self.value(node.inputs[0]),)
        else:
            made = (convert_node(self, node, self.opset),)
        for value, output in zip(node.outputs, made, strict=True):
            self.values[value] = output

    def layer(
        self,
        node: ir.Node,
        type_: str,
        inputs: Sequence[ir.Value | Output | None],
        data: Mapping[str, object] | None = None,
        *,
        version: str = "opset1",
        kind: ElementType | None = None,
    ) -> Output:
        """Add a layer of one output, which has the name of the node's."""
        return self.layers(node, type_, inputs, data, version=version, kind=kind)[0]

    def layers(
        self,
        node: ir.Node,
        type_: str,
        inputs: Sequence[ir.Value | Output | None],
        data: Mapping[str, object] | None = None,
        *,
        version: str,
        kind: ElementType | None = None,
    ) -> tuple[Output, ...]:
        """Add a layer whose outputs have the names of the node's."""
        taken = [value if isinstance(value, Output) else self.value(value) for value in inputs]
        return self.builder.layer(
            type_,
            taken,
            data,
            outputs=[[value.name] if value.name else [] for value in node.outputs],
            name=label(node),
            version=version,
            element_type=kind,
            shapes=[self.shape_of(value) for value in node.outputs],
        )


def _initial(value: ir.Value) -> Any:
    if value.is_graph_input() and value.is_initializer():
        tensor = value.const_value
        return None if tensor is None else tensor.numpy()
    return read_constant(value, limit=1 << 62)
