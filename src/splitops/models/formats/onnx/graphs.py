"""Convert ONNX models between protobuf and onnx-ir; the metadata keeps parts that onnx-ir cannot read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile
from typing import Final

import onnx
import onnx_ir as ir
from onnx import AttributeProto, ModelProto, NodeProto, TypeProto, ValueInfoProto

from splitops.errors import NOWHERE, Where
from splitops.models.formats.onnx.storage import copy_proto, make_onnx_ir_error, serialize_with_onnx_ir
from splitops.models.formats.onnx.structure import iter_located_graphs, iter_nodes
from splitops.models.formats.onnx.tensors import find_folder
from splitops.models.formats.walk import (
    MIN_IR_VERSION_OF_CONSTANTS,
    UNREAD_ATTRIBUTES,
    AnyGraph,
    FreshNames,
    get_unread_attributes,
    iter_all_graphs,
    iter_all_nodes,
    iter_graphs,
    iter_owners,
    iter_subgraphs,
    make_function_path,
)

TYPE: Final = "splitops.type"
"""Key in the ``meta`` of values whose type onnx-ir cannot read: the type in protobuf.

In the ``meta`` of a model with such values, it is True.
"""
_ELEMENT_TYPES: Final = frozenset(kind.value for kind in ir.DataType)
_GRAPHS: Final = (AttributeProto.GRAPH, AttributeProto.GRAPHS)
_Types = dict[tuple[str | None, str], TypeProto]
"""Types of values in protobuf, keyed by graph path (None for the main graph) and name."""


def deserialize_model(model: ModelProto, where: Where = NOWHERE, *, copy: bool = False) -> ir.Model:
    """Convert a well-formed model to onnx-ir. To edit the result, set ``copy``.

    Otherwise, the result may share the tensors of ``model``, and onnx-ir renames these with their values.
    """
    source = copy_proto(model) if copy else model
    unread: _Types = {}
    lost: dict[tuple[str | None, str], ValueInfoProto] = {}
    for path, infos, inputs in _iter_declared(model):
        unread |= {(path, info.name): info.type for info in infos if not _can_deserialize_type(info.type)}
        lost |= {(path, info.name): info for info in inputs}
    if unread:
        source = source if copy else copy_proto(model)
        for path, infos, _ in _iter_declared(source):
            for info in infos:
                if (path, info.name) in unread:
                    info.ClearField("type")
    converted = _from_proto(source, where)
    if unread:
        converted.meta[TYPE] = True
    for path, graph in iter_all_graphs(converted) if unread or lost else ():
        for value in (*graph.inputs, *(value for node in graph for value in node.outputs)):
            key = path, value.name or ""
            if key in unread:
                value.meta[TYPE] = unread[key]
            elif key in lost and value.is_graph_input():
                ir.serde.deserialize_value_info_proto(lost[key], value)
    return converted


def copy_for_rewriting(model: ModelProto, where: Where, *, name_unread: bool = True) -> ir.Model:
    """Convert a copy of a well-formed model to onnx-ir, for editing. No name shadows another one.

    A subgraph output that is a value from outside of the subgraph becomes the output of an Identity. With
    ``name_unread``, unnamed outputs at the end of a Split are named. Without names, onnx-ir would not write
    them, and the Split would have more lengths than outputs.
    """
    edited = deserialize_model(model, where, copy=True)
    if name_unread:
        name_parts(edited)
    names = FreshNames(edited)
    for _, owner in iter_owners(edited):
        if "ai.onnx" in owner.opset_imports:
            owner.opset_imports[""] = owner.opset_imports.pop("ai.onnx")
        _return_outer_values(owner, {}, names)
        _rename_shadowing(owner, frozenset(), names)
    return edited


def serialize_model(model: ir.Model, original: ModelProto) -> ModelProto:
    """Convert an edited model to protobuf, with the parts of the original that onnx-ir cannot read.

    The IR version of ``model`` is raised to the one that it needs.
    """
    name_parts(model)
    owners = [value for value in model.graph.initializers.values() if not value.is_graph_input()]
    least = (compute_min_ir_version(model), MIN_IR_VERSION_OF_CONSTANTS if owners else 0)
    model.ir_version = max(original.ir_version, *least)
    proto = serialize_with_onnx_ir(model)
    protos = dict(iter_located_graphs(proto))
    for path, graph in iter_graphs(model.graph) if TYPE in model.meta else ():
        infos: dict[str, ValueInfoProto] = {}
        for info in (*protos[path].input, *protos[path].output):
            infos[info.name] = info
        for value in (*graph.inputs, *(value for node in graph for value in node.outputs)):
            if TYPE in value.meta and value.name:
                info = infos.get(value.name) or protos[path].value_info.add(name=value.name)
                info.type.CopyFrom(value.meta[TYPE])
    unread = get_unread_attributes(model)
    for node, written in zip(iter_all_nodes(model), iter_nodes(proto), strict=True) if unread else ():
        written.attribute.extend(unread.get(node, ()))
    declared = {info.name for _, graph in iter_located_graphs(original) for info in graph.value_info}
    for graph in protos.values():
        # onnx-ir adds value_info for initializers, which have a type already.
        own = {tensor.name for tensor in graph.initializer} - declared
        kept = [info for info in graph.value_info if info.name not in own]
        if len(kept) < len(graph.value_info):
            del graph.value_info[:]
            graph.value_info.extend(kept)
    proto.training_info.extend(original.training_info)  # onnx-ir drops it
    return proto


def compute_min_ir_version(model: ir.Model) -> int:
    """Return the first IR version that supports the ONNX opset of a model's main graph.

    Return 0 if the graph imports no ONNX opset, and 3 for an opset that onnx does not know.
    """
    imports = [
        onnx.helper.make_opsetid("", version)
        for domain, version in model.graph.opset_imports.items()
        if domain in ("", "ai.onnx")
    ]
    return int(onnx.helper.find_min_ir_version_for(imports, ignore_unknown=True)) if imports else 0


def unmark_locations(model: ir.Model) -> None:
    """Replace initializers' locations from :func:`mark_external` with onnx-ir's folder and relative path."""
    for graph in model.graphs():
        for value in graph.initializers.values():
            tensor = value.const_value
            if isinstance(tensor, ir.ExternalTensor):
                folder, location = find_folder(os.fspath(tensor.location))
                value.const_value = ir.ExternalTensor(
                    location,
                    tensor.offset,
                    tensor.length,
                    tensor.dtype,
                    shape=tensor.shape,
                    name=tensor.name,
                    base_dir=folder.path if folder else tensor.base_dir,
                )


def _from_proto(model: ModelProto, where: Where) -> ir.Model:
    try:
        return ir.serde.from_proto(model)
    except Exception as error:  # SerdeError, or any error from reading an attribute
        readable = copy_proto(model)
        removed = [_take_unread(node) for node in iter_nodes(readable)]
        if not any(removed):
            raise make_onnx_ir_error("read", error, where) from error
    converted = _from_proto(readable, where)
    converted.meta[UNREAD_ATTRIBUTES] = {
        node: kept for node, kept in zip(iter_all_nodes(converted), removed, strict=True) if kept
    }
    return converted


def _iter_declared(
    model: ModelProto,
) -> Iterator[tuple[str | None, Iterable[ValueInfoProto], Iterable[ValueInfoProto]]]:
    """Yield the path of each graph and function, its type declarations, and those that onnx-ir loses.

    It loses the types of graph inputs that are also outputs, and of the inputs of functions.
    """
    for path, graph in iter_located_graphs(model):
        outputs = {info.name for info in graph.output}
        lost = [info for info in graph.input if info.name in outputs and info.HasField("type")]
        yield path, (*graph.input, *graph.output, *graph.value_info), lost
    for function in model.functions:
        inputs = set(function.input)
        lost = [info for info in function.value_info if info.name in inputs]
        yield make_function_path(function), function.value_info, lost


def _can_deserialize_type(proto: TypeProto) -> bool:
    kind = proto.WhichOneof("value")
    if kind == "tensor_type":
        return proto.tensor_type.elem_type in _ELEMENT_TYPES
    try:
        found = ir.serde.deserialize_type_proto_for_type(proto)
    except Exception:  # each kind of type fails in its own way
        return False
    return found is not None or kind in (None, "sparse_tensor_type")


def _take_unread(node: NodeProto) -> list[AttributeProto]:
    """Remove from a node the attributes that onnx-ir cannot read, and return them."""
    unread = [
        index
        for index, attribute in enumerate(node.attribute)
        if attribute.type not in _GRAPHS and not _can_deserialize_attribute(attribute)
    ]
    return [node.attribute.pop(index) for index in reversed(unread)][::-1]


def _can_deserialize_attribute(attribute: AttributeProto) -> bool:
    try:
        ir.serde.deserialize_attribute(attribute)
    except Exception:  # each kind of attribute fails in its own way
        return False
    return True


def name_parts(model: ir.Model) -> None:
    """Name the unnamed outputs at the end of Splits, which onnx-ir would not write."""
    splits = [node for node in iter_all_nodes(model) if node.op_type == "Split" and not node.outputs[-1].name]
    if not splits:
        return
    names = FreshNames(model)
    for node in splits:
        for value in takewhile(lambda value: not value.name, reversed(node.outputs)):
            value.name = names.make_name(f"{node.name or node.op_type}_unused")


def _return_outer_values(graph: AnyGraph, outside: Mapping[str, ir.Value], names: FreshNames) -> None:
    """Insert an Identity before each output of a subgraph that is a value from outside of the subgraph.

    onnx-ir does not link such an output to that value, so a rewrite of the value would miss the output.
    """
    values = [*graph.inputs, *(value for node in graph for value in node.outputs)]
    if isinstance(graph, ir.Graph):
        values += graph.initializers.values()
        for index, value in enumerate(graph.outputs):
            source = outside.get(value.name or "")
            if source is not None and value not in values:
                output = ir.Value(name=names.make_name(value.name or ""), type=value.type, shape=value.shape)
                graph.append(ir.Node("", "Identity", [source], outputs=[output], name=""))
                graph.outputs[index] = output
    inner = [subgraph for node in graph for _, subgraph in iter_subgraphs(node)]
    visible = {**outside, **{value.name: value for value in values if value.name}} if inner else {}
    for subgraph in inner:
        _return_outer_values(subgraph, visible, names)


def _rename_shadowing(graph: AnyGraph, outside: frozenset[str], names: FreshNames) -> None:
    """Rename inputs and initializers that shadow an outer value: a rewrite may use the outer one inside."""
    values = list(graph.inputs)
    if isinstance(graph, ir.Graph):
        values += [value for value in graph.initializers.values() if not value.is_graph_input()]
    for value in values:
        if value.name in outside:
            holder = value.graph if value.is_initializer() else None
            if holder is not None:
                del holder.initializers[value.name]
            value.name = names.make_name(value.name)
            if holder is not None:
                holder.register_initializer(value)
    inside = {value.name for value in values} | {value.name for node in graph for value in node.outputs}
    visible = outside | {name for name in inside if name}
    for node in graph:
        for _, inner in iter_subgraphs(node):
            _rename_shadowing(inner, visible, names)
