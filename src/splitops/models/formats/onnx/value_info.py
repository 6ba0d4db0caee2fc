"""Declare inferred types and shapes in an ONNX model: in ``value_info``, and as the types of its outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onnx import ModelProto, NodeProto, TypeProto, ValueInfoProto

from splitops.models.abstract_values import AbstractTensor, AbstractValue, Opaque
from splitops.models.formats.onnx.storage import copy_proto
from splitops.models.formats.onnx.structure import iter_located_graphs
from splitops.models.formats.onnx.types import to_type
from splitops.models.formats.walk import make_function_path
from splitops.spec.elements.types import ElementType
from splitops.spec.sizes.dims import Shape

_FUNCTION_VALUES = 10
"""The first IR version in which functions have ``value_info``."""

Values = Mapping[tuple[str | None, str], AbstractValue]


def declare_values(model: ModelProto, values: Values) -> ModelProto:
    """Return a copy of a model that declares the types and shapes in ``values``.

    Missing types, shapes and dimensions of existing declarations are added. A different rank or a known size
    replaces the declared one. Inputs of graphs and existing declarations of functions are not changed.
    Tensors of unknown rank and, before IR version 10, values of functions are not declared. Unnamed ranges
    are left out, as ONNX cannot express them.
    """
    copy = copy_proto(model)
    types: dict[tuple[ElementType | None, Shape], TypeProto | None] = {}

    def find_type(path: str | None, name: str) -> TypeProto | None:
        """Return the type to declare, or None. ONNX's checker rejects a tensor type without a shape."""
        value = values.get((path, name))
        if not isinstance(value, AbstractTensor):
            return None if isinstance(value, Opaque) else to_type(value)
        if value.shape is None:
            return None
        key = value.type, value.shape  # equal values share a type
        if key not in types:
            types[key] = to_type(value)
        return types[key]

    for path, graph in iter_located_graphs(copy):
        declared = {info.name for info in (*graph.input, *graph.output, *graph.value_info)}
        for info in (*graph.output, *graph.value_info):
            _merge_info(info, find_type(path, info.name))
        for name in _list_outputs(graph.node):
            if name not in declared:
                _add_type(graph.value_info, name, find_type(path, name))
    for function in copy.functions if copy.ir_version >= _FUNCTION_VALUES else ():
        path, declared = make_function_path(function), {info.name for info in function.value_info}
        for name in (*function.input, *_list_outputs(function.node)):
            if name not in declared:
                _add_type(function.value_info, name, find_type(path, name))
    return copy


def _list_outputs(nodes: Sequence[NodeProto]) -> list[str]:
    return [name for node in nodes for name in node.output if name]


def _add_type(infos: object, name: str, inferred: TypeProto | None) -> None:
    # Protobuf returns a name that is not UTF-8 as bytes, but does not accept bytes.
    if inferred is not None and isinstance(name, str):
        infos.add(name=name).type.CopyFrom(inferred)  # type: ignore[attr-defined]


def _merge_info(info: ValueInfoProto, inferred: TypeProto | None) -> None:
    if inferred is None:
        return
    if info.type.WhichOneof("value") is None:
        info.type.CopyFrom(inferred)
    else:
        _merge_types(info.type, inferred)


def _merge_types(declared: TypeProto, inferred: TypeProto) -> None:
    kind = inferred.WhichOneof("value")
    if declared.WhichOneof("value") != kind:
        return
    if kind == "sequence_type":
        if declared.sequence_type.elem_type.WhichOneof("value") is None:
            declared.CopyFrom(inferred)
        else:
            _merge_types(declared.sequence_type.elem_type, inferred.sequence_type.elem_type)
        return
    old, new = declared.tensor_type, inferred.tensor_type
    if not old.elem_type:
        old.elem_type = new.elem_type
    if not new.HasField("shape"):
        return
    if not old.HasField("shape") or len(old.shape.dim) != len(new.shape.dim):
        old.shape.CopyFrom(new.shape)
        return
    for before, after in zip(old.shape.dim, new.shape.dim, strict=True):
        if after.HasField("dim_value") or not (before.HasField("dim_value") or before.dim_param):
            before.CopyFrom(after)
