"""The ONNX nodes that stand for one OpenVINO layer, in the order in which they are made."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir

from splitops.models.abstract_values import AbstractTensor
from splitops.models.convert.folding import MAX_ELEMENTS, folded_array
from splitops.models.formats.walk import FreshNames
from splitops.models.graph import onnx as nodes
from splitops.models.graph.onnx import annotate, read_constant
from splitops.models.graph.op_builder import OnnxOpBuilder
from splitops.spec.elements.types import ElementType, from_onnx_name
from splitops.spec.sizes.dims import Shape

_ANY_SIZE: Final = 1 << 62


class ValueReader:
    """A :class:`~splitops.models.ops.writing.Reader` of values that carry what is known of them."""

    def read_constant(self, value: ir.Value) -> npt.NDArray[Any] | None:
        """Return the value of a constant; None where it is computed when the model runs."""
        return read_constant(value)

    def type_of(self, value: ir.Value) -> ElementType | None:
        """Return the element type."""
        return nodes.find_type(value)

    def shape_of(self, value: ir.Value) -> Shape | None:
        """Return the shape."""
        return nodes.find_shape(value)


class LayerOpBuilder(OnnxOpBuilder, ValueReader):
    """Writes the nodes of one layer, whose node it is; their element types are noted."""

    def __init__(self, opset: int, names: FreshNames, graph: ir.Graph, node: ir.Node) -> None:
        super().__init__(opset, names, node.name or "")
        self._graph = graph
        self._node = node

    def read_constant(self, value: ir.Value) -> npt.NDArray[Any] | None:
        """Return the value of a constant, or of what follows from constants alone; else None."""
        found = super().read_constant(value)
        return self._folded(value, MAX_ELEMENTS) if found is None else found

    def _folded(self, value: ir.Value, limit: int) -> npt.NDArray[Any] | None:
        return folded_array(value, self._graph.opset_imports[""], limit=limit) if value.producer() else None

    def append_node(self, node: ir.Node) -> None:
        """Add a node, and note the element types of its outputs."""
        super().append_node(node)
        for value, told in zip(node.outputs, _output_types(node.op_type, self.opset), strict=False):
            if isinstance(told, int):
                source = node.inputs[told] if told < len(node.inputs) else None
                told = None if source is None else self.type_of(source)
            annotate(value, AbstractTensor(told))

    def initializer(self, array: npt.NDArray[Any], like: ir.Value) -> ir.Value:
        """Add an initializer that has the element type of a value."""
        kind = self.type_of(like)
        assert kind is not None
        assert kind.onnx_number is not None
        tensor = ir.Tensor(np.ascontiguousarray(array), dtype=ir.DataType(kind.onnx_number))
        return nodes.add_initializer(self._graph, tensor, self.make_name("weights"))

    def stored(self, value: ir.Value) -> npt.NDArray[Any] | None:
        """Return a constant of any size, or what follows from constants alone; else None."""
        found = read_constant(value, limit=_ANY_SIZE)
        return self._folded(value, _ANY_SIZE) if found is None else found

    def has_consumers(self, output: int) -> bool:
        """Return whether anybody reads an output of the layer."""
        return bool(self._node.outputs[output].uses())


@cache
def _output_types(operator: str, opset: int) -> tuple[ElementType | int | None, ...]:
    """Return the type of each output of an operator: one that it always has, or the input that has it too."""
    schema = onnx.defs.get_schema(operator, opset, "")
    fixed = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
    inputs = [parameter.type_str for parameter in schema.inputs]

    def told(name: str) -> ElementType | int | None:
        if name in inputs:
            return inputs.index(name)
        allowed = fixed.get(name, [name])
        return from_onnx_name(allowed[0]) if len(allowed) == 1 else None

    return tuple(told(parameter.type_str) for parameter in schema.outputs)
