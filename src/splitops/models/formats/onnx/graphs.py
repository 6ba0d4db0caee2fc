"""ONNX models between protobuf and onnx-ir: what onnx-ir does not hold is kept in its metadata."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile
from typing import Final

import onnx
import onnx_ir as ir
from onnx import AttributeProto, ModelProto, NodeProto, TypeProto, ValueInfoProto

from splitops.errors import NOWHERE, Where
from splitops.models.formats.onnx.storage import unusable, written_by_onnx_ir
from splitops.models.formats.onnx.structure import located_graphs, nodes_of
from splitops.models.formats.onnx.tensors import folder_of
from splitops.models.formats.walk import (
    INITIALIZERS_OF_THEIR_OWN,
    UNREAD_ATTRIBUTES,
    AnyGraph,
    FreshNames,
    all_graphs,
    all_nodes,
    function_path,
    graphs_of,
    owners_of,
    subgraphs,
    unread_attributes,
)

TYPE: Final = "splitops.type"
"""Where values keep a type that onnx-ir does not read, in protobuf; models with such values have it too."""
_ELEMENT_TYPES: Final = frozenset(kind.value for kind in ir.DataType)
_GRAPHS: Final = (AttributeProto.GRAPH, AttributeProto.GRAPHS)
_Types = dict[tuple[str | None, str], TypeProto]
"""Types of values in protobuf, by the path of their graph and their name."""


def deserialize_model(model: ModelProto, where: Where = NOWHERE, *, copy: bool = False) -> ir.Model:
    """Return a well-formed model for reading, or a ``copy`` to change. It shares the tensors of the protobuf.

    onnx-ir renames tensors in the protobuf that it was made from.
    """
    own = copy_proto(model) if copy else model
    unread: _Types = {}
    lost: dict[tuple[str | None, str], ValueInfoProto] = {}
    for path, infos, inputs in _iter_declared(model):
        unread |= {(path, info.name): info.type for info in infos if not _is_read(info.type)}
        lost |= {(path, info.name): info for info in inputs}
    if unread:
        own = own if copy else copy_proto(model)
        for path, infos, _ in _iter_declared(own):
            for info in infos:
                if (path, info.name) in unread:
                    info.ClearField("type")
    made = _from_proto(own, where)
    if unread:
        made.meta[TYPE] = True
    for path, graph in all_graphs(made) if unread or lost else ():
        for value in (*graph.inputs, *(value for node in graph for value in node.outputs)):
            key = path, value.name or ""
            if key in unread:
                value.meta[TYPE] = unread[key]
            elif key in lost and value.is_graph_input():
                ir.serde.deserialize_value_info_proto(lost[key], value)
    return made


def copy_for_rewriting(model: ModelProto, where: Where, *, name_unread: bool = True) -> ir.Model:
    """Return a copy of a well-formed model for rewriting, each name of which stands for one value.

    ``name_unread`` outputs of a Split that have no names: onnx-ir does not write those at the end of a node,
    but the lengths of a Split count them.
    """
    edited = deserialize_model(model, where, copy=True)
    if name_unread:
        name_parts(edited)
    names = FreshNames(edited)
    for _, owner in owners_of(edited):
        if "ai.onnx" in owner.opset_imports:
            owner.opset_imports[""] = owner.opset_imports.pop("ai.onnx")
        _return_outer_values(owner, {}, names)
        _rename_shadowing(owner, frozenset(), names)
    return edited


def serialize_model(model: ir.Model, original: ModelProto) -> ModelProto:
    """Return a rewritten model in protobuf, with what onnx-ir did not read of the original.

    The model gets the IR version that it needs.
    """
    name_parts(model)
    owners = [value for value in model.graph.initializers.values() if not value.is_graph_input()]
    least = (min_ir_version(model), INITIALIZERS_OF_THEIR_OWN if owners else 0)
    model.ir_version = max(original.ir_version, *least)
    proto = written_by_onnx_ir(model)
    protos = dict(located_graphs(proto))
    for path, graph in graphs_of(model.graph) if TYPE in model.meta else ():
        infos: dict[str, ValueInfoProto] = {}
        for info in (*protos[path].input, *protos[path].output):
            infos[info.name] = info
        for value in (*graph.inputs, *(value for node in graph for value in node.outputs)):
            if TYPE in value.meta and value.name:
                info = infos.get(value.name) or protos[path].value_info.add(name=value.name)
                info.type.CopyFrom(value.meta[TYPE])
    unread = unread_attributes(model)
    for node, written in zip(all_nodes(model), nodes_of(proto), strict=True) if unread else ():
        written.attribute.extend(unread.get(node, ()))
    declared = {info.name for _, graph in located_graphs(original) for info in graph.value_info}
    for graph in protos.values():
        # onnx-ir declares types for initializers, which state their own.
        own = {tensor.name for tensor in graph.initializer} - declared
        kept = [info for info in graph.value_info if info.name not in own]
        if len(kept) < len(graph.value_info):
            del graph.value_info[:]
            graph.value_info.extend(kept)
    proto.training_info.extend(original.training_info)  # which onnx-ir does not keep
    return proto


def min_ir_version(model: ir.Model) -> int:
    """Return the first IR version that has the opset of a model."""
    imports = [
        onnx.helper.make_opsetid("", version)
        for domain, version in model.graph.opset_imports.items()
        if domain in ("", "ai.onnx")
    ]
    return int(onnx.helper.find_min_ir_version_for(imports, ignore_unknown=True)) if imports else 0


def unmark(model: ir.Model) -> None:
    """Let external data name its folder as onnx-ir does."""
    for graph in model.graphs():
        for value in graph.initializers.values():
            tensor = value.const_value
            if isinstance(tensor, ir.ExternalTensor):
                folder, location = folder_of(os.fspath(tensor.location))
                value.const_value = ir.ExternalTensor(
                    location,
                    tensor.offset,
                    tensor.length,
                    tensor.dtype,
                    shape=tensor.shape,
                    name=tensor.name,
                    base_dir=folder.path if folder else tensor.base_dir,
                )


def copy_proto(model: ModelProto) -> ModelProto:
    """Return a copy of a model."""
    made = ModelProto()
    made.CopyFrom(model)
    return made


def _from_proto(model: ModelProto, where: Where) -> ir.Model:
    try:
        return ir.serde.from_proto(model)
    except Exception as error:  # SerdeError, and what its readers of attributes raise
        own = copy_proto(model)
        aside = [_take_unread(node) for node in nodes_of(own)]
        if not any(aside):
            raise unusable("read", error, where) from error
    made = _from_proto(own, where)
    made.meta[UNREAD_ATTRIBUTES] = {
        node: kept for node, kept in zip(all_nodes(made), aside, strict=True) if kept
    }
    return made


def _iter_declared(
    model: ModelProto,
) -> Iterator[tuple[str | None, Iterable[ValueInfoProto], Iterable[ValueInfoProto]]]:
    """Yield the declared types of each graph and function, and those of inputs that onnx-ir loses.

    It loses those of inputs that are outputs too, and those of the inputs of functions.
    """
    for path, graph in located_graphs(model):
        outputs = {info.name for info in graph.output}
        lost = [info for info in graph.input if info.name in outputs and info.HasField("type")]
        yield path, (*graph.input, *graph.output, *graph.value_info), lost
    for function in model.functions:
        inputs = set(function.input)
        lost = [info for info in function.value_info if info.name in inputs]
        yield function_path(function), function.value_info, lost


def _is_read(proto: TypeProto) -> bool:
    kind = proto.WhichOneof("value")
    if kind == "tensor_type":
        return proto.tensor_type.elem_type in _ELEMENT_TYPES
    try:
        found = ir.serde.deserialize_type_proto_for_type(proto)
    except Exception:  # each kind of type fails in its own way
        return False
    return found is not None or kind in (None, "sparse_tensor_type")


def _take_unread(node: NodeProto) -> list[AttributeProto]:
    """Take the attributes that onnx-ir does not read out of a node."""
    unread = [
        index
        for index, attribute in enumerate(node.attribute)
        if attribute.type not in _GRAPHS and not _is_attribute_read(attribute)
    ]
    return [node.attribute.pop(index) for index in reversed(unread)][::-1]


def _is_attribute_read(attribute: AttributeProto) -> bool:
    try:
        ir.serde.deserialize_attribute(attribute)
    except Exception:  # each kind of attribute fails in its own way
        return False
    return True


def name_parts(model: ir.Model) -> None:
    """Name the outputs at the end of a Split that have no names: onnx-ir does not write such outputs."""
    splits = [node for node in all_nodes(model) if node.op_type == "Split" and not node.outputs[-1].name]
    if not splits:
        return
    names = FreshNames(model)
    for node in splits:
        for value in takewhile(lambda value: not value.name, reversed(node.outputs)):
            value.name = names.fresh(f"{node.name or node.op_type}_unused")


def _return_outer_values(graph: AnyGraph, outside: Mapping[str, ir.Value], names: FreshNames) -> None:
    """Give subgraphs whose output is a value from outside an Identity that makes it.

    onnx-ir does not link such an output to its value, so that a rewrite of one would forget the other.
    """
    own = [*graph.inputs, *(value for node in graph for value in node.outputs)]
    if isinstance(graph, ir.Graph):
        own += graph.initializers.values()
        for index, value in enumerate(graph.outputs):
            source = outside.get(value.name or "")
            if source is not None and value not in own:
                made = ir.Value(name=names.fresh(value.name or ""), type=value.type, shape=value.shape)
                graph.append(ir.Node("", "Identity", [source], outputs=[made], name=""))
                graph.outputs[index] = made
    inner = [one for node in graph for _, one in subgraphs(node)]
    visible = {**outside, **{value.name: value for value in own if value.name}} if inner else {}
    for one in inner:
        _return_outer_values(one, visible, names)


def _rename_shadowing(graph: AnyGraph, outside: frozenset[str], names: FreshNames) -> None:
    """Rename what shadows a value outside its subgraph: a rewrite may need to read that in it."""
    own = list(graph.inputs)
    if isinstance(graph, ir.Graph):
        own += [value for value in graph.initializers.values() if not value.is_graph_input()]
    for value in own:
        if value.name in outside:
            holder = value.graph if value.is_initializer() else None
            if holder is not None:
                del holder.initializers[value.name]
            value.name = names.fresh(value.name)
            if holder is not None:
                holder.register_initializer(value)
    inside = {value.name for value in own} | {value.name for node in graph for value in node.outputs}
    visible = outside | {name for name in inside if name}
    for node in graph:
        for _, inner in subgraphs(node):
            _rename_shadowing(inner, visible, names)
