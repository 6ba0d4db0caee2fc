"""Writes what a walk has found into an ONNX model: as ``value_info``, and into the types of its outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onnx import GraphProto, ModelProto, NodeProto, TypeProto, ValueInfoProto

from splitops.models.formats.onnx.structure import extend, function_path, subgraphs
from splitops.models.formats.onnx.types import to_type
from splitops.models.known import Known, Opaque, Tensor

_FUNCTION_VALUES = 10
"""The first IR version in which functions have ``value_info``."""

Values = Mapping[tuple[str | None, str], Known]


def with_shapes(model: ModelProto, values: Values) -> ModelProto:
    """Return a copy of a model that states the types and shapes of its values.

    What the model states stays, unless it says less, or the opposite. Ranges without a name, which ONNX
    cannot write, are left out. Inputs of graphs are the caller's and stay as they are.
    """
    made = ModelProto()
    made.CopyFrom(model)
    _fill(made.graph, None, values)
    for function in made.functions:
        path = function_path(function)
        if made.ir_version >= _FUNCTION_VALUES:
            stated = {info.name: info for info in function.value_info}
            for name in (*function.input, *_outputs(function.node)):
                if name not in stated:
                    _add(function.value_info, name, values.get((path, name)))
        for node in function.node:
            for step, graph in subgraphs(node):
                _fill(graph, extend(path, step), values)
    return made


def _fill(graph: GraphProto, path: str | None, values: Values) -> None:
    outputs = {value.name for value in graph.output}
    others = outputs | {value.name for value in graph.input}
    stated = {info.name for info in graph.value_info}
    for info in (*graph.output, *graph.value_info):
        _merge(info, values.get((path, info.name)))
    for name in _outputs(graph.node):
        if name not in others and name not in stated:
            _add(graph.value_info, name, values.get((path, name)))
    for node in graph.node:
        for step, inner in subgraphs(node):
            _fill(inner, extend(path, step), values)


def _outputs(nodes: Sequence[NodeProto]) -> list[str]:
    return [name for node in nodes for name in node.output if name]


def _add(infos: object, name: str, known: Known) -> None:
    found = _writable(known)
    # Protobuf gives a name that is no text as bytes, and does not take it back.
    if found is not None and isinstance(name, str):
        infos.add(name=name).type.CopyFrom(found)  # type: ignore[attr-defined]


def _writable(known: Known) -> TypeProto | None:
    """Return a type to write; the ONNX checker takes no tensor of unknown rank."""
    if isinstance(known, Opaque) or (isinstance(known, Tensor) and known.shape is None):
        return None
    return to_type(known)


def _merge(info: ValueInfoProto, known: Known) -> None:
    found = _writable(known)
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
