"""Writes what a walk has found into an ONNX model: as ``value_info``, and into the types of its outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onnx import GraphProto, ModelProto, NodeProto, TypeProto, ValueInfoProto

from splitops.models.formats.onnx.structure import extend, function_path, subgraphs
from splitops.models.formats.onnx.types import to_type
from splitops.models.known import Known, Opaque, Tensor
from splitops.spec.elements.types import ElementType
from splitops.spec.sizes.dims import Shape

_FUNCTION_VALUES = 10
"""The first IR version in which functions have ``value_info``."""

Values = Mapping[tuple[str | None, str], Known]


def with_shapes(model: ModelProto, values: Values) -> ModelProto:
    """Return a copy of a model that declares the types and shapes of its values.

    What the model declares stays, unless it says less, or the opposite. Ranges without a name, which ONNX
    cannot write, are left out. Inputs of graphs are the caller's and stay as they are.
    """
    made = ModelProto()
    made.CopyFrom(model)
    types = _Types(values)
    _fill(made.graph, None, types)
    for function in made.functions:
        path = function_path(function)
        if made.ir_version >= _FUNCTION_VALUES:
            stated = {info.name: info for info in function.value_info}
            for name in (*function.input, *_outputs(function.node)):
                if name not in stated:
                    _add(function.value_info, name, types.of(path, name))
        for node in function.node:
            for step, graph in subgraphs(node):
                _fill(graph, extend(path, step), types)
    return made


class _Types:
    """The types to write of the values of a model; values that are alike share one."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._made: dict[tuple[ElementType | None, Shape], TypeProto | None] = {}

    def of(self, path: str | None, name: str) -> TypeProto | None:
        """Return the type of a value; the ONNX checker accepts no tensor of unknown rank."""
        known = self._values.get((path, name))
        if not isinstance(known, Tensor):
            return None if isinstance(known, Opaque) else to_type(known)
        if known.shape is None:
            return None
        key = known.type, known.shape
        if key not in self._made:
            self._made[key] = to_type(known)
        return self._made[key]


def _fill(graph: GraphProto, path: str | None, types: _Types) -> None:
    outputs = {value.name for value in graph.output}
    others = outputs | {value.name for value in graph.input}
    stated = {info.name for info in graph.value_info}
    for info in (*graph.output, *graph.value_info):
        _merge(info, types.of(path, info.name))
    for name in _outputs(graph.node):
        if name not in others and name not in stated:
            _add(graph.value_info, name, types.of(path, name))
    for node in graph.node:
        for step, inner in subgraphs(node):
            _fill(inner, extend(path, step), types)


def _outputs(nodes: Sequence[NodeProto]) -> list[str]:
    return [name for node in nodes for name in node.output if name]


def _add(infos: object, name: str, found: TypeProto | None) -> None:
    # Protobuf gives a name that is not text as bytes, and does not take it back.
    if found is not None and isinstance(name, str):
        infos.add(name=name).type.CopyFrom(found)  # type: ignore[attr-defined]


def _merge(info: ValueInfoProto, found: TypeProto | None) -> None:
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
