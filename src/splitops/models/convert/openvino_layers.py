"""ONNX graphs of splits and data movers, written as OpenVINO layers without OpenVINO."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import onnx_ir as ir

from splitops.elements.types import ELEMENT_TYPES, ElementType, from_onnx
from splitops.errors import ModelError, Where
from splitops.models.convert.elements import same_conversion
from splitops.models.formats.openvino import Builder, OpenVINOModel, Output
from splitops.models.graph.onnx import constant_array, label, shape_of, type_of

__all__ = ["unwritable", "written_model"]

_ARITHMETIC: Final[Mapping[str, str]] = {
    "Add": "Add",
    "Sub": "Subtract",
    "Mul": "Multiply",
    "Div": "Divide",
    "Min": "Minimum",
    "Max": "Maximum",
    "Equal": "Equal",
}
"""Of sizes only: on other numbers the dialects differ in overflow and rounding."""


def unwritable(model: ir.Model, own: set[ir.Node]) -> list[str]:
    """Return the operators of a model that cannot be written here, each once.

    Args:
        model: the model, its splits stated in domain openvino already.
        own: the nodes that were made for the splits.
    """
    found: dict[str, None] = {}
    for node in model.graph:
        if node in own:
            continue
        if node.domain not in ("", "ai.onnx") or node.op_type not in _WRITERS or not _is_plain(node):
            found[node.op_type] = None
    return list(found)


def _is_plain(node: ir.Node) -> bool:
    if node.op_type == "Cast":
        source, target = _cast_types(node)
        return source is not None and target is not None and same_conversion(source, target)
    if node.op_type in ("Shape", "Gather", "Concat"):
        return not {"start", "end"} & node.attributes.keys()
    return True


def written_model(model: ir.Model, opset: int, where: Where) -> OpenVINOModel:
    """Write a model of which nothing is :func:`unwritable`.

    Raises:
        ModelError: OpenVINO has no such element type, or a value is absent that must be there.
    """
    return _Writing(model, opset, where).model()


class _Writing:
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
            kind = type_of(value)
            if kind is None or kind.openvino is None:
                raise ModelError(f"input {value.name!r} is of {kind}, which OpenVINO lacks", self.where)
            self.values[value] = self.builder.parameter(value.name or "", kind, shape_of(value))
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
            self.values[value] = self._const(array, type_of(value), value.name)
        return self.values[value]

    def _const(self, array: Any, kind: ElementType | None, name: str | None = None) -> Output:
        if kind is not None and kind.openvino is None:
            raise ModelError(f"constant {name!r} has element type {kind}, which OpenVINO lacks", self.where)
        return self.builder.const(array, kind, name=name)

    def integers(self, values: Sequence[int]) -> Output:
        return self.builder.const(np.array(values, np.int64))

    def _node(self, node: ir.Node) -> None:
        if node.op_type == "Constant":
            return  # written where it is read
        if node.domain == "openvino":
            data = {name: attribute.value for name, attribute in node.attributes.items()}
            made: Sequence[Output] = self.layer(
                node, node.op_type, list(node.inputs), data or None, version=f"opset{node.version}"
            )
        elif node.op_type in _ARITHMETIC:
            auto: dict[str, object] = {"auto_broadcast": "numpy"}
            if node.op_type == "Div":
                auto["m_pythondiv"] = False  # towards zero, as ONNX divides integers
            kind = ELEMENT_TYPES["bool"] if node.op_type == "Equal" else None
            made = self.layer(node, _ARITHMETIC[node.op_type], list(node.inputs), auto, kind=kind)
        else:
            made = [_OWN_WRITERS[node.op_type](self, node)]
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
            shapes=[shape_of(value) for value in node.outputs],
        )


def _initial(value: ir.Value) -> Any:
    if value.is_graph_input() and value.is_initializer():
        tensor = value.const_value
        return None if tensor is None else tensor.numpy()
    return constant_array(value, limit=1 << 62)


def _identity(writing: _Writing, node: ir.Node) -> Output:
    return writing.value(node.inputs[0])


def _concat(writing: _Writing, node: ir.Node) -> Output:
    axis = node.attributes.get("axis")
    data = {"axis": 1 if axis is None else axis.value}  # 1 is the default of Concat-1, which alone has one
    return writing.layer(node, "Concat", list(node.inputs), data)[0]


def _reshape(writing: _Writing, node: ir.Node) -> Output:
    allow = node.attributes.get("allowzero")
    attribute = node.attributes.get("shape")
    shape: Any = node.inputs[1] if attribute is None else writing.integers(attribute.value)
    data = {"special_zero": not (allow is not None and allow.value)}
    return writing.layer(node, "Reshape", [node.inputs[0], shape], data)[0]


def _axes(writing: _Writing, node: ir.Node) -> Output:
    attribute = node.attributes.get("axes")
    inputs: list[Any] = [value for value in node.inputs if value is not None]
    if attribute is not None:
        inputs.append(writing.integers(attribute.value))
    return writing.layer(node, node.op_type, inputs)[0]


def _transpose(writing: _Writing, node: ir.Node) -> Output:
    perm = node.attributes.get("perm")
    order = writing.integers(() if perm is None else perm.value)
    return writing.layer(node, "Transpose", [node.inputs[0], order])[0]


def _shape(writing: _Writing, node: ir.Node) -> Output:
    data = {"output_type": "i64"}
    return writing.layer(
        node, "ShapeOf", list(node.inputs), data, version="opset3", kind=ELEMENT_TYPES["int64"]
    )[0]


def _gather(writing: _Writing, node: ir.Node) -> Output:
    attribute = node.attributes.get("axis")
    axis = writing.builder.const(np.array(0 if attribute is None else attribute.value, np.int64))
    data = {"batch_dims": 0}
    return writing.layer(node, "Gather", [*node.inputs[:2], axis], data, version="opset8")[0]


def _cast_types(node: ir.Node) -> tuple[ElementType | None, ElementType | None]:
    to = node.attributes["to"].value
    number = ir.DataType[to].value if isinstance(to, str) else to
    source = node.inputs[0]
    return (None if source is None else type_of(source)), from_onnx(number)


def _cast(writing: _Writing, node: ir.Node) -> Output:
    _, target = _cast_types(node)
    assert target is not None
    data = {"destination_type": target.openvino}
    return writing.layer(node, "Convert", list(node.inputs), data, kind=target)[0]


def _reduce_sum(writing: _Writing, node: ir.Node) -> Output:
    inputs = [node.inputs[0], writing.integers([0])]
    return writing.layer(node, "ReduceSum", inputs, {"keep_dims": True})[0]


_WRITERS: Final[Mapping[str, Callable[[_Writing, ir.Node], Output]]] = {
    "Constant": _identity,
    "Identity": _identity,
    "Concat": _concat,
    "Reshape": _reshape,
    "Squeeze": _axes,
    "Unsqueeze": _axes,
    "Transpose": _transpose,
    "Shape": _shape,
    "Gather": _gather,
    "Cast": _cast,
}
_OWN_WRITERS: Final = {**_WRITERS, "ReduceSum": _reduce_sum}
