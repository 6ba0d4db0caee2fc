"""Every operator but the split family: onnx's own inference, one node at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

import numpy as np
import onnx
from onnx import AttributeProto, NodeProto, TensorProto, TypeProto, defs, helper, shape_inference

from splitops.dims import UNKNOWN, Range, Shape
from splitops.dtypes import ELEMENT_TYPES
from splitops.models.infer.knowledge import Known, Tensor, meet_shapes
from splitops.models.infer.onnx_types import Names, from_type, to_type
from splitops.models.infer.shape_rules import concatenated, reshaped

__all__ = ["infer_node", "refined_shape"]

_MAX_FED: Final = 64
"""Longer value inputs are no shapes; a partly known one is not handed to onnx."""


def infer_node(node: NodeProto, opsets: Mapping[str, int], inputs: Sequence[Known]) -> list[Known]:
    """Return what onnx infers of a node's outputs: nothing where it cannot.

    Args:
        node: the node, without graphs in its attributes.
        opsets: the opset of each domain.
        inputs: what is known of its inputs.
    """
    nothing: list[Known] = [None] * len(node.output)
    schema = _schema(
        node.op_type, node.domain if node.domain != "ai.onnx" else "", opsets.get(node.domain, 0)
    )
    if schema is None or not _fits(schema, node):
        return nothing
    names = Names()
    types: dict[str, TypeProto] = {}
    whole: dict[str, TensorProto] = {}
    partial: dict[str, Tensor] = {}
    for name, known in zip(node.input, inputs, strict=True):
        if not name:
            continue
        types[name] = to_type(known, names) or TypeProto()
        if isinstance(known, Tensor) and known.value is not None:
            if known.is_whole and known.type is not None and known.value.dtype.kind in "iufb":
                whole[name] = onnx.numpy_helper.from_array(known.value.astype(known.type.numpy), name)
            elif known.type is not ELEMENT_TYPES["int64"]:
                continue  # partly known numbers are fed as shapes, which are int64
            elif known.value.ndim == 1 and 0 < known.value.size <= _MAX_FED:
                partial[name] = known
    if any(types[name].WhichOneof("value") is None for name in types):
        return nothing
    try:
        if partial and not node.domain and opsets.get("", 0) >= 4:
            found = _with_partial_values(node, opsets[""], types, whole, partial, names)
        else:
            imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
            found = shape_inference.infer_node_outputs(schema, node, types, whole, opset_imports=imports)
    except Exception:
        return nothing
    return [from_type(found[name], names) if name in found else None for name in node.output]


@cache
def _schema(name: str, domain: str, opset: int) -> defs.OpSchema | None:
    try:
        schema = defs.get_schema(name, opset, domain)
    except Exception:
        return None
    return None if schema.deprecated else schema


def _fits(schema: defs.OpSchema, node: NodeProto) -> bool:
    """Return whether a node has what its schema says: onnx's inference relies on it without looking."""
    if not schema.min_input <= len(node.input) <= schema.max_input:
        return False
    if not schema.min_output <= len(node.output) <= schema.max_output:
        return False
    single = defs.OpSchema.FormalParameterOption.Single
    for parameter, name in zip(schema.inputs, node.input, strict=False):
        if parameter.option == single and not name:
            return False
    stated = {attribute.name: attribute for attribute in node.attribute}
    for name, attribute in schema.attributes.items():
        if name in stated:
            if _type_number(attribute.type) != stated[name].type or stated[name].ref_attr_name:
                return False
        elif attribute.required:
            return False
    return not any(attribute.type in _GRAPHS for attribute in node.attribute)


def _type_number(kind: Any) -> int:
    number: int = kind.value
    return number


_GRAPHS: Final = (AttributeProto.GRAPH, AttributeProto.GRAPHS)


def _with_partial_values(
    node: NodeProto,
    opset: int,
    types: Mapping[str, TypeProto],
    whole: Mapping[str, TensorProto],
    partial: Mapping[str, Tensor],
    names: Names,
) -> dict[str, TypeProto]:
    """Infer a node in a model of its own, in which partly known values are shapes that onnx follows."""
    model = onnx.ModelProto(ir_version=8, opset_import=[helper.make_opsetid("", opset)])
    graph = model.graph
    graph.name = "node"
    for name, type_ in types.items():
        if name in whole:
            graph.initializer.add().CopyFrom(whole[name])
        elif name not in partial:
            graph.input.add(name=name).type.CopyFrom(type_)
    for index, (name, tensor) in enumerate(partial.items()):
        _feed(graph, f"\1{index}", name, tensor, names)
    graph.node.add().CopyFrom(node)
    for name in filter(None, node.output):
        graph.output.add(name=name)
    inferred = shape_inference.infer_shapes(model, data_prop=True)
    return {output.name: output.type for output in inferred.graph.output}


def _feed(graph: onnx.GraphProto, prefix: str, name: str, tensor: Tensor, names: Names) -> None:
    """Make a value out of the shape of an input, and out of constants where an entry is negative."""
    assert tensor.value is not None
    entries = tensor.value.tolist()
    runs: list[str] = []
    begin = 0
    for end in range(1, len(entries) + 1):
        if end < len(entries) and _is_constant(entries[end]) == _is_constant(entries[begin]):
            continue
        run, piece = f"{prefix}.{len(runs)}", entries[begin:end]
        if _is_constant(piece[0]):
            graph.initializer.add().CopyFrom(onnx.numpy_helper.from_array(np.array(piece, np.int64), run))
        else:
            sizes = tuple(entry if isinstance(entry, int | Range) else UNKNOWN for entry in piece)
            sizes = tuple(UNKNOWN if isinstance(size, Range) and size.lo < 0 else size for size in sizes)
            type_ = to_type(Tensor(_FLOAT, sizes), names)
            assert type_ is not None
            graph.input.add(name=f"{run}.shaped").type.CopyFrom(type_)
            graph.node.add(op_type="Shape", input=[f"{run}.shaped"], output=[run])
        runs.append(run)
        begin = end
    concat = graph.node.add(op_type="Concat", input=runs, output=[name])
    concat.attribute.add(name="axis", type=AttributeProto.INT, i=0)


def _is_constant(entry: object) -> bool:
    return isinstance(entry, int) and entry < 0


_FLOAT: Final = ELEMENT_TYPES["float32"]


def refined_shape(node: NodeProto, inputs: Sequence[Known], output: Tensor) -> Shape | None:
    """Return the shape of a node's output where more is known of it than onnx can tell."""
    tensors = [known if isinstance(known, Tensor) else Tensor() for known in inputs]
    attributes = {attribute.name: attribute.i for attribute in node.attribute}
    found: Shape | None = None
    try:
        if node.op_type == "Concat":
            shapes = [tensor.shape for tensor in tensors if tensor.shape is not None]
            if len(shapes) == len(tensors):
                found = concatenated(shapes, attributes.get("axis", 1))
        elif node.op_type == "Reshape" and len(tensors) > 1 and tensors[1].value is not None:
            entries = tensors[1].value.reshape(-1).tolist()
            found = reshaped(tensors[0].shape, entries, copies_zero=not attributes.get("allowzero", 0))
    except (ValueError, IndexError):
        return output.shape
    return meet_shapes(output.shape, found) if found is not None else output.shape
