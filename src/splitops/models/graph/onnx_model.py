"""ONNX models as onnx-ir graphs, and back: what onnx-ir cannot hold is kept aside meanwhile."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile
from typing import Any, Final

import onnx
import onnx_ir as ir
from onnx import AttributeProto, ModelProto, NodeProto, TypeProto, ValueInfoProto

from splitops.errors import NOWHERE, ModelError, Where
from splitops.models.formats.onnx.storage import unusable, written_by_onnx_ir
from splitops.models.formats.onnx.structure import function_path, located_graphs, nodes_of
from splitops.models.formats.onnx.tensors import folder_of
from splitops.models.graph.onnx import (
    ATTRIBUTES,
    INITIALIZERS_OF_THEIR_OWN,
    TYPE,
    Names,
    all_graphs,
    all_nodes,
    graphs_of,
    owners_of,
    subgraphs,
)

_ELEMENT_TYPES: Final = frozenset(kind.value for kind in ir.DataType)
_GRAPHS: Final = (AttributeProto.GRAPH, AttributeProto.GRAPHS)


def as_graph(model: ModelProto, where: Where = NOWHERE) -> ir.Model:
    """Return a well-formed model for reading. It shares the tensors of the protobuf."""
    try:
        return _read(model, where)
    except ModelError:
        own = copy_of(model)
        aside = [_take_unread(node) for node in nodes_of(own)]
        if not any(aside):
            raise
    made = _read(own, where)
    made.meta[ATTRIBUTES] = {node: kept for node, kept in zip(all_nodes(made), aside, strict=True) if kept}
    return made


def editable_copy(model: ModelProto, where: Where, *, name_unread: bool = True) -> ir.Model:
    """Return a copy of a well-formed model for rewriting, each name of which stands for one value.

    ``name_unread`` outputs of a Split that have no names: onnx-ir does not write those at the end of a node,
    but the lengths of a Split count them.
    """
    edited = _read(copy_of(model), where)  # onnx-ir renames tensors in the protobuf that it was made from
    if name_unread:
        name_parts(edited)
    for _, owner in owners_of(edited):
        if "ai.onnx" in owner.opset_imports:
            owner.opset_imports[""] = owner.opset_imports.pop("ai.onnx")
    names = Names(edited)
    _return_outer_values(edited, names)
    _rename_hidden(edited, names)
    return edited


def written(model: ir.Model, original: ModelProto) -> ModelProto:
    """Return a rewritten model as a proto, with what was kept aside of the original."""
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
    declared = {info.name for _, graph in located_graphs(original) for info in graph.value_info}
    for _, graph in located_graphs(proto):
        # onnx-ir declares types for initializers, which state their own.
        own = {tensor.name for tensor in graph.initializer} - declared
        kept = [info for info in graph.value_info if info.name not in own]
        if len(kept) < len(graph.value_info):
            del graph.value_info[:]
            graph.value_info.extend(kept)
    proto.training_info.extend(original.training_info)  # which onnx-ir does not keep
    proto.ir_version = max(original.ir_version, least_ir_version(proto))
    inputs = {value.name for value in proto.graph.input}
    if any(tensor.name not in inputs for tensor in proto.graph.initializer):
        proto.ir_version = max(proto.ir_version, INITIALIZERS_OF_THEIR_OWN)
    return proto


def least_ir_version(proto: ModelProto) -> int:
    """Return the first IR version that has the opset of a model."""
    imports = [entry for entry in proto.opset_import if entry.domain in ("", "ai.onnx")]
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


def copy_of(model: ModelProto) -> ModelProto:
    """Return a copy of a model."""
    made = ModelProto()
    made.CopyFrom(model)
    return made


def _read(model: ModelProto, where: Where) -> ir.Model:
    types: dict[tuple[str | None, str], TypeProto] = {}
    if any(not _is_read(info.type) for _, infos in _stated(model) for info in infos):
        model = copy_of(model)
        types = dict(_set_aside(model))
    try:
        made = ir.serde.from_proto(model)
    except Exception as error:  # SerdeError, and what its readers of attributes raise
        raise unusable("read", error, where) from error
    inputs = {(path, info.name): info for path, infos in _lost_inputs(model) for info in infos}
    if types:
        made.meta[TYPE] = True
    for path, graph in all_graphs(made) if types or inputs else ():
        for value in (*graph.inputs, *(value for node in graph for value in node.outputs)):
            key = path, value.name
            if key in types:
                value.meta[TYPE] = types[key]
            elif key in inputs and value.is_graph_input():
                ir.serde.deserialize_value_info_proto(inputs[key], value)
    return made


def _stated(model: ModelProto) -> Iterator[tuple[str | None, Iterable[ValueInfoProto]]]:
    """Yield the declared types of the values of each graph and function."""
    for path, graph in located_graphs(model):
        yield path, (*graph.input, *graph.output, *graph.value_info)
    for function in model.functions:
        yield function_path(function), function.value_info


def _set_aside(model: ModelProto) -> Iterator[tuple[tuple[str | None, str], TypeProto]]:
    """Take the types that onnx-ir does not read out of a model: maps, and whatever it does not know."""
    for path, infos in _stated(model):
        for info in infos:
            if not _is_read(info.type):
                kept = TypeProto()
                kept.CopyFrom(info.type)
                yield (path, info.name), kept
                info.ClearField("type")


def _is_read(proto: TypeProto) -> bool:
    kind = proto.WhichOneof("value")
    if kind == "tensor_type":
        return proto.tensor_type.elem_type in _ELEMENT_TYPES
    try:
        found = ir.serde.deserialize_type_proto_for_type(proto)
    except Exception:  # each kind of type fails in its own way
        return False
    return found is not None or kind in (None, "sparse_tensor_type")


def _lost_inputs(model: ModelProto) -> Iterator[tuple[str | None, Iterable[ValueInfoProto]]]:
    """Yield what onnx-ir loses of inputs: of those that are outputs, and of those of functions."""
    for path, graph in located_graphs(model):
        outputs = {info.name for info in graph.output}
        yield path, [info for info in graph.input if info.name in outputs and info.HasField("type")]
    for function in model.functions:
        inputs = set(function.input)
        yield function_path(function), [info for info in function.value_info if info.name in inputs]


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
    names = Names(model) if splits else None
    for node in splits:
        for value in takewhile(lambda value: not value.name, reversed(node.outputs)):
            assert names is not None
            value.name = names.fresh(f"{node.name or node.op_type}_unused")


def _return_outer_values(model: ir.Model, names: Names) -> None:
    """Give a subgraph whose output is a value from outside an Identity that makes it.

    onnx-ir does not link such an output to its value, so that a rewrite of one would forget the other.
    """

    def visit(graph: Any, outside: Mapping[str, ir.Value]) -> None:
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
            visit(one, visible)

    for _, owner in owners_of(model):
        visit(owner, {})


def _rename_hidden(model: ir.Model, names: Names) -> None:
    """Rename what hides a value outside its subgraph: a rewrite may need to read that in it."""

    def visit(graph: Any, outside: frozenset[str]) -> None:
        own = list(graph.inputs)
        if isinstance(graph, ir.Graph):
            own += [value for value in graph.initializers.values() if not value.is_graph_input()]
        for value in own:
            if value.name in outside:
                held = value.is_initializer()
                if held:
                    del graph.initializers[value.name]
                value.name = names.fresh(value.name)
                if held:
                    graph.register_initializer(value)
        inside = {value.name for value in own} | {value.name for node in graph for value in node.outputs}
        visible = outside | {name for name in inside if name}
        for node in graph:
            for _, inner in subgraphs(node):
                visit(inner, visible)

    for _, owner in owners_of(model):
        visit(owner, frozenset())
