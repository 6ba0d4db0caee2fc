"""Conversion of ONNX models to layers without the openvino package, if OpenVINO has the same operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from splitops.errors import ModelError, Where
from splitops.models.convert.layer_op_builder import ValueReader
from splitops.models.formats.openvino import Builder, OpenVINOModel, Output
from splitops.models.formats.walk import label
from splitops.models.graph.onnx import find_shape, find_type, read_constant
from splitops.models.ops.conversion import can_convert_node, convert_node
from splitops.spec.elements.types import ElementType

_WITHOUT_LAYER: Final = frozenset({"Constant", "Identity"})
"""Operators without a layer. An Identity becomes its input, and a constant is added when it is first used."""


def find_unwritable(model: ir.Model, splits: set[ir.Node]) -> list[str]:
    """Return the operators, other than those of ``splits``, that :func:`write_model` does not support."""
    reader, opset = ValueReader(), model.graph.opset_imports.get("", 1)

    def is_writable(node: ir.Node) -> bool:
        return node.domain in ("", "ai.onnx") and (
            node.op_type in _WITHOUT_LAYER or can_convert_node(reader, node, opset)
        )

    nodes = (node for node in model.graph if node not in splits and not is_writable(node))
    return list(dict.fromkeys(node.op_type for node in nodes))


def write_model(model: ir.Model, opset: int, where: Where) -> OpenVINOModel:
    """Write a model as OpenVINO layers. :func:`find_unwritable` must return nothing for it."""
    return _ModelWriter(model, opset, where).write_model()


def declare_input(builder: Builder, value: ir.Value, where: Where) -> Output:
    """Add a Parameter for an input of a graph, and return its output."""
    kind = find_type(value)
    if kind is None or kind.openvino is None:
        raise ModelError(f"input {value.name!r} has element type {kind}, which OpenVINO lacks", where)
    return builder.parameter(value.name or "", kind, find_shape(value))


class _ModelWriter(ValueReader):
    def __init__(self, model: ir.Model, opset: int, where: Where) -> None:
        self.source = model
        self.opset = opset
        self.where = where
        self.builder = Builder(model.graph.name or "model")
        self.values: dict[ir.Value, Output] = {}

    def write_model(self) -> OpenVINOModel:
        graph = self.source.graph
        for value in graph.inputs:
            if value.is_initializer():
                continue  # OpenVINO has no defaults for inputs, so the default becomes a constant
            self.values[value] = declare_input(self.builder, value, self.where)
        for node in graph:
            self._write_node(node)
        for value in graph.outputs:
            self.builder.result(self.get_output(value), value.name or "", names=[value.name or ""])
        return self.builder.model()

    def get_output(self, value: ir.Value | None) -> Output:
        """Return the output of the layer that computes a value. A constant is added when it is first used."""
        if value is None:
            raise ModelError("a required input is absent", self.where)
        if value not in self.values:
            array = _find_constant(value)
            if array is None:
                raise ModelError(f"cannot read constant {value.name!r}", self.where)
            kind = self.find_type(value)
            if kind is not None and kind.openvino is None:
                problem = f"constant {value.name!r} has element type {kind}, which OpenVINO lacks"
                raise ModelError(problem, self.where)
            self.values[value] = self.builder.const(array, kind, name=value.name)
        return self.values[value]

    def add_integers(self, values: int | Sequence[int] | npt.NDArray[Any]) -> Output:
        """Add a constant of integers, which are int64 unless they are an array."""
        return self.builder.const(values if isinstance(values, np.ndarray) else np.array(values, np.int64))

    def _write_node(self, node: ir.Node) -> None:
        if node.op_type == "Constant":
            return  # added at its first use
        if node.domain == "openvino":
            data = {name: attribute.value for name, attribute in node.attributes.items()}
            outputs = self.add_layer(node, node.op_type, node.inputs, data, version=node.version or 1)
        elif node.op_type in _WITHOUT_LAYER:
            outputs = (self.get_output(node.inputs[0]),)
        else:
            outputs = convert_node(self, node, self.opset)
        for value, output in zip(node.outputs, outputs, strict=True):
            self.values[value] = output

    def add_layer(
        self,
        node: ir.Node,
        type_: str,
        inputs: Sequence[ir.Value | Output | None],
        data: Mapping[str, object],
        *,
        version: int,
        kind: ElementType | None = None,
    ) -> tuple[Output, ...]:
        """Add a layer for ``node``, and return its outputs, which have the names of the node's outputs."""
        outputs = [value if isinstance(value, Output) else self.get_output(value) for value in inputs]
        return self.builder.layer(
            type_,
            outputs,
            data or None,
            outputs=[[value.name] if value.name else [] for value in node.outputs],
            name=label(node),
            version=f"opset{version}",
            element_type=kind,
            shapes=[self.find_shape(value) for value in node.outputs],
        )


def _find_constant(value: ir.Value) -> Any:
    if value.is_graph_input() and value.is_initializer():
        tensor = value.const_value
        return None if tensor is None else tensor.numpy()
    return read_constant(value, limit=1 << 62)
