"""Extract the part of an ONNX model that determines how a runtime executes the splits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto
from onnx.helper import make_tensor_value_info

from splitops.models.formats.onnx.structure import (
    index_functions,
    iter_nested_nodes,
    iter_nodes,
    sort_callees_first,
)
from splitops.models.formats.onnx.tensors import is_external
from splitops.models.formats.walk import FunctionKey, canonicalise, make_function_key
from splitops.models.running.onnx.evaluator import iter_reads
from splitops.spec.operators import FAMILY, SCHEMAS
from splitops.spec.operators.schemas import SourceKind

_ROWS: Final = [schema for schema in SCHEMAS if schema.domain == ""]
_COUNTING: Final = frozenset(schema.count_attribute for schema in _ROWS)
"""Names of the attributes that set the number of parts."""
_LENGTHS: Final = frozenset(
    one.name for schema in _ROWS for one in schema.lengths if one.kind is SourceKind.ATTRIBUTE
)
_MAKING_SEQUENCES: Final = frozenset(schema.name for schema in _ROWS if schema.gives_sequence)
_LARGE: Final = 1 << 12
"""Maximum bytes of an initializer that is kept, since it may be lengths. Larger ones become inputs."""
_NUMBERS: Final = frozenset({TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL})
"""Element types of shape computations."""


def is_split_node(node: NodeProto) -> bool:
    """Return whether a node is an ONNX operator of the split family."""
    return node.op_type in FAMILY[""] and not canonicalise(node.domain)


def extract_split_dependencies(model: ModelProto, *, sizes: bool = False) -> ModelProto | None:
    """Return the submodel that determines how a runtime executes the splits, or None if there are none.

    It computes the lengths of every split, and the data of splits with ``num_outputs`` or into sequences.
    With ``sizes``, or if the elimination of common subexpressions may merge splits, it computes the data of
    every split. Otherwise, values with a declared type and shape become inputs, except those of type int64,
    int32 or bool, which may be shapes.
    """
    splits = [node for node in iter_nodes(model) if is_split_node(node)]
    if not splits:
        return None
    functions = index_functions(model)
    holding: set[FunctionKey] = set()

    def has_split(node: NodeProto) -> bool:
        return any(
            is_split_node(one) or make_function_key(one) in holding for one in iter_nested_nodes([node])
        )

    holding.update(key for key in sort_callees_first(functions) if any(map(has_split, functions[key].node)))
    # The elimination of common subexpressions may merge splits without lengths if their data is the same.
    compared = len({len(node.output) for node in splits if not _has_lengths(node)}) > 1
    infos = () if compared or sizes else model.graph.value_info
    whole = {value.name for value in infos if _is_declared(value)}
    needed: set[str] = set()
    kept: list[NodeProto] = []
    for node in reversed(model.graph.node):
        holds = has_split(node)
        if holds or not needed.isdisjoint(node.output):
            kept.append(node)
            by_lengths = is_split_node(node) and not (sizes or compared or _is_data_dependent(node))
            needed.update({*(node.input[1:] if by_lengths else iter_reads(node))} - whole)
    return extract_submodel(model, kept[::-1])


def _has_lengths(node: NodeProto) -> bool:
    return any(node.input[1:]) or any(one.name in _LENGTHS for one in node.attribute)


def _is_data_dependent(node: NodeProto) -> bool:
    return node.op_type in _MAKING_SEQUENCES or any(one.name in _COUNTING for one in node.attribute)


def _is_declared(value: ValueInfoProto) -> bool:
    """Return whether a value has a declared type that shape computations do not use, and a complete shape."""
    tensor = value.type.tensor_type
    if tensor.elem_type in _NUMBERS or not tensor.elem_type or not tensor.HasField("shape"):
        return False
    return all(dim.HasField("dim_value") or dim.dim_param for dim in tensor.shape.dim)


def extract_submodel(model: ModelProto, nodes: Iterable[NodeProto]) -> ModelProto:
    """Return a model with only the given ``nodes`` of the main graph.

    Large or external initializers, and values that other nodes compute, become inputs.
    """
    source = model.graph
    part = ModelProto(ir_version=model.ir_version, opset_import=model.opset_import, functions=model.functions)
    graph = part.graph
    graph.node.extend(nodes)
    read = dict.fromkeys(name for node in graph.node for name in iter_reads(node))
    declared = {one.name: one for one in (*source.value_info, *source.output, *source.input)}
    defined = {name for node in graph.node for name in node.output}
    for tensor in source.initializer:
        if tensor.name in read and not is_external(tensor) and tensor.ByteSize() <= _LARGE:
            graph.initializer.append(tensor)
            defined.add(tensor.name)
        else:
            own = make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            declared.setdefault(tensor.name, own)
    inputs = {value.name for value in source.input}
    for name in read:
        if name in inputs or name not in defined:
            graph.input.append(declared.get(name) or ValueInfoProto(name=name))
    graph.output.extend(value for value in source.output if value.name in defined or value.name in read)
    return part
