"""Builder of the ONNX nodes that replace one OpenVINO layer."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir

from splitops.models.abstract_values import AbstractTensor
from splitops.models.convert.folding import MAX_ELEMENTS, fold_value
from splitops.models.formats.openvino.nodes import LayerNode
from splitops.models.formats.walk import FreshNames
from splitops.models.graph import onnx as nodes
from splitops.models.graph.onnx import annotate, find_shape, find_type, read_constant
from splitops.models.graph.op_builder import OnnxOpBuilder
from splitops.spec.elements.types import ElementType, from_onnx_name

_ANY_SIZE: Final = 1 << 62


class ValueReader:
    """A :class:`~splitops.models.ops.writing.Reader` of values annotated with inferred types and shapes."""

    find_type = staticmethod(find_type)
    find_shape = staticmethod(find_shape)

    def read_constant(self, value: ir.Value) -> npt.NDArray[Any] | None:
        """Return the elements of a value, or None if it is not constant or they are not available."""
        return read_constant(value)


class LayerOpBuilder(OnnxOpBuilder, ValueReader):
    """Adds ONNX nodes that replace the layer of ``node``, and annotates their outputs with element types."""

    def __init__(self, opset: int, names: FreshNames, graph: ir.Graph, node: LayerNode) -> None:
        super().__init__(opset, names, node.name or "")
        self.layer = node.layer
        self._graph = graph
        self._node = node

    def read_constant(self, value: ir.Value) -> npt.NDArray[Any] | None:
        """Return the elements of a value that depends only on small constants, or None for other values."""
        constant = super().read_constant(value)
        return self._fold(value, MAX_ELEMENTS) if constant is None else constant

    def _fold(self, value: ir.Value, limit: int) -> npt.NDArray[Any] | None:
        return fold_value(value, self._graph.opset_imports[""], limit=limit) if value.producer() else None

    def append_node(self, node: ir.Node) -> None:
        """Add a node, and annotate its outputs with their element types."""
        super().append_node(node)
        for value, kind in zip(node.outputs, _list_output_types(node.op_type, self.opset), strict=False):
            if isinstance(kind, int):
                source = node.inputs[kind] if kind < len(node.inputs) else None
                kind = None if source is None else self.find_type(source)
            annotate(value, AbstractTensor(kind))

    def add_weights(self, array: npt.NDArray[Any], like: ir.Value) -> ir.Value:
        """Add ``array`` as an initializer with the element type of ``like``, and return its value."""
        kind = self.find_type(like)
        assert kind is not None
        assert kind.onnx_number is not None
        tensor = ir.Tensor(np.ascontiguousarray(array), dtype=ir.DataType(kind.onnx_number))
        return nodes.add_initializer(self._graph, tensor, self.make_name("weights"))

    def read_weights(self, value: ir.Value) -> npt.NDArray[Any] | None:
        """Return the elements of a value that depends only on constants (of any size), or None otherwise."""
        constant = read_constant(value, limit=_ANY_SIZE)
        return self._fold(value, _ANY_SIZE) if constant is None else constant

    def has_consumers(self, output: int) -> bool:
        """Return whether the layer's output with index ``output`` is used."""
        return bool(self._node.outputs[output].uses())


@cache
def _list_output_types(operator: str, opset: int) -> tuple[ElementType | int | None, ...]:
    """Return the fixed type of each output, the index of an input with the same type, or None if unknown."""
    schema = onnx.defs.get_schema(operator, opset, "")
    fixed = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
    inputs = [parameter.type_str for parameter in schema.inputs]

    def find_source(name: str) -> ElementType | int | None:
        if name in inputs:
            return inputs.index(name)
        allowed = fixed.get(name, [name])
        return from_onnx_name(allowed[0]) if len(allowed) == 1 else None

    return tuple(find_source(parameter.type_str) for parameter in schema.outputs)
