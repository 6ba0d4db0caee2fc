"""Declare inferred types and shapes in an ONNX model: in ``value_info``, and as the types of its outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onnx import ModelProto, NodeProto, TypeProto, ValueInfoProto

from splitops.models.abstract_values import AbstractTensor, AbstractValue, Opaque
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

    A declaration of the model is replaced if it is less precise or contradicts ``values``. Inputs of graphs
    are not changed: they belong to the caller. Unnamed ranges are left out, as ONNX cannot express them.
    """
    made = ModelProto()
    made.CopyFrom(model)
    made_types: dict[tuple[ElementType | None, Shape], TypeProto | None] = {}

    def find_type(path: str | None, name: str) -> TypeProto | None:
        """Return the type to declare, or None if the rank is unknown: the ONNX checker rejects that."""
        known = values.get((path, name))
        if not isinstance(known, AbstractTensor):
            return None if isinstance(known, Opaque) else to_type(known)
        if known.shape is None:
            return None
        key = known.type, known.shape  # equal values share a type
        if key not in made_types:
            made_types[key] = to_type(known)
        return made_types[key]

    for path, graph in iter_located_graphs(made):
        declared = {info.name for info in (*graph.input, *graph.output, *graph.value_info)}
        for info in (*graph.output, *graph.value_info):
            _merge_info(info, find_type(path, info.name))
        for name in _list_outputs(graph.node):
            if name not in declared:
                _add_type(graph.value_info, name, find_type(path, name))
    for function in made.functions if made.ir_version >= _FUNCTION_VALUES else ():
        path, declared = make_function_path(function), {info.name for info in function.value_info}
        for name in (*function.input, *_list_outputs(function.node)):
            if name not in declared:
                _add_type(function.value_info, name, find_type(path, name))
    return made


def _list_outputs(nodes: Sequence[NodeProto]) -> list[str]:
    return [name for node in nodes for name in node.output if name]


def _add_type(infos: object, name: str, found: TypeProto | None) -> None:
    # Protobuf returns a name that is not UTF-8 as bytes, but does not accept bytes.
    if found is not None and isinstance(name, str):
        infos.add(name=name).type.CopyFrom(found)  # type: ignore[attr-defined]


def _merge_info(info: ValueInfoProto, found: TypeProto | None) -> None:
    if found is None:
        return
    if info.type.WhichOneof("value") is None:
        info.type.CopyFrom(found)
    else:
        _merge_types(info.type, found)


def _merge_types(stated: TypeProto, found: TypeProto) -> None:
    kind = found.WhichOneof("value")
    if stated.WhichOneof("value") != kind:
        return
    if kind == "sequence_type":
        if stated.sequence_type.elem_type.WhichOneof("value") is None:
            stated.CopyFrom(found)
        else:
            _merge_types(stated.sequence_type.elem_type, found.sequence_type.elem_type)
        return
    old, new = stated.tensor_type, found.tensor_type
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
