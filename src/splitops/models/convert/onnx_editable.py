"""ONNX models as onnx-ir graphs for rewriting, and back: what onnx-ir cannot hold is kept aside meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import onnx_ir as ir
from onnx import GraphProto, ModelProto, TypeProto, ValueInfoProto

from splitops.errors import ModelError, Where
from splitops.models.formats.onnx.structure import located_graphs
from splitops.models.graph.onnx import Names, graphs_of

__all__ = ["editable_copy", "written"]

_TYPE: Final = "splitops.type"


def editable_copy(model: ModelProto, where: Where) -> ir.Model:
    """Return a copy of a well-formed model for rewriting, each name of which stands for one value.

    onnx-ir does not write outputs without a name at the end of a node. Those of a Split are parts that its
    lengths count: they get names.

    Raises:
        ModelError: onnx-ir cannot read it.
    """
    own = ModelProto()
    own.CopyFrom(model)  # onnx-ir renames tensors in the protobuf that it was made from
    types = dict(_set_aside(own))
    try:
        edited = ir.serde.from_proto(own)
    except Exception as error:  # SerdeError, and what its readers of attributes raise
        reason = str(error.__cause__ or error).strip().splitlines() or [type(error).__name__]
        raise ModelError(f"onnx-ir cannot read the model: {reason[0][:200]}", where) from error
    for path, graph in graphs_of(edited.graph):
        for value in (*graph.inputs, *(value for node in graph for value in node.outputs)):
            if (path, value.name) in types:
                value.meta[_TYPE] = types[path, value.name]
    names = Names(edited)
    _name_parts(edited, names)
    _rename_hidden(edited, names)
    return edited


def written(model: ir.Model) -> ModelProto:
    """Return a rewritten model as a proto, with what was kept aside."""
    proto = ir.serde.to_proto(model)
    protos = dict(located_graphs(proto))
    for path, graph in graphs_of(model.graph):
        stated: dict[str, ValueInfoProto] = {}
        for info in (*protos[path].input, *protos[path].output):
            stated[info.name] = info
        for value in (*graph.inputs, *(value for node in graph for value in node.outputs)):
            if _TYPE in value.meta and value.name:
                info = stated.get(value.name) or protos[path].value_info.add(name=value.name)
                info.type.CopyFrom(value.meta[_TYPE])
    return proto


def _set_aside(model: ModelProto) -> Iterator[tuple[tuple[str | None, str], TypeProto]]:
    """Take the types that onnx-ir does not read out of a model: maps, and whatever it does not know."""
    for path, graph in located_graphs(model):
        for info in _infos(graph):
            if not _is_read(info.type):
                kept = TypeProto()
                kept.CopyFrom(info.type)
                yield (path, info.name), kept
                info.ClearField("type")


def _infos(graph: GraphProto) -> Iterator[ValueInfoProto]:
    yield from graph.input
    yield from graph.output
    yield from graph.value_info


def _is_read(proto: TypeProto) -> bool:
    kind = proto.WhichOneof("value")
    try:
        found = ir.serde.deserialize_type_proto_for_type(proto)
    except Exception:  # each kind of type fails in its own way
        return False
    return found is not None or kind in (None, "tensor_type", "sparse_tensor_type")


def _name_parts(model: ir.Model, names: Names) -> None:
    for owner in (model.graph, *model.functions.values()):
        for _, graph in graphs_of(owner):
            for node in graph:
                if node.op_type != "Split":
                    continue
                for value in reversed(node.outputs):
                    if value.name:
                        break
                    value.name = names.fresh(f"{node.name or node.op_type}_unused")


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
            for attribute in node.attributes.values():
                if attribute.is_ref():
                    continue
                if attribute.type == ir.AttributeType.GRAPH:
                    visit(attribute.as_graph(), visible)
                elif attribute.type == ir.AttributeType.GRAPHS:
                    for inner in attribute.as_graphs():
                        visit(inner, visible)

    for owner in (model.graph, *model.functions.values()):
        visit(owner, frozenset())
