"""The other operators of an ONNX model, moved from one opset to another node by node.

A node whose statement means the same in both versions stays; every other one goes through onnx's own
version converter, alone and version by version, so that one operator which it cannot convert does not keep
the rest of the model from moving.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import onnx
import onnx_ir as ir
from onnx import AttributeProto, ModelProto, NodeProto, TypeProto, helper

from splitops.errors import ModelError, Where
from splitops.models.convert.onnx_graph import (
    Names,
    Tape,
    constant_array,
    known,
    replace_node,
    shape_of,
)
from splitops.models.infer.onnx_types import to_type

__all__ = ["move_node", "since_version"]

_MOST_EMBEDDED: Final = 1 << 12
"""Constants up to this many elements are shown to onnx's converter, which reads axes and the like."""

_INT64_MAX: Final = (1 << 63) - 1

_UNDEFINED_BEFORE: Final[Mapping[str, int]] = {"AveragePool": 7}
"""Versions before which an operator's text leaves values open that the later one defines."""

_ALONG_AXIS: Final = frozenset({"Softmax", "LogSoftmax", "Hardmax"})

_MEANING_CHANGED: Final[Mapping[str, frozenset[int]]] = {
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax"), frozenset({13})),
    **dict.fromkeys(("Max", "Mean", "Min", "Sum"), frozenset({8})),
    "PRelu": frozenset({7}),
    "Dropout": frozenset({7, 12}),
    "BatchNormalization": frozenset({7, 9, 14, 15}),
    "RoiAlign": frozenset({16}),
    "Resize": frozenset({11, 13, 18, 19}),
    "GroupNormalization": frozenset({21}),
    "Upsample": frozenset({9, 10}),
    "Attention": frozenset({24}),
    "Scan": frozenset({9}),
}
"""Versions that changed what an equal statement means, which their schemas do not show."""


def since_version(op_type: str, opset: int) -> int | None:
    """Return the version of an operator of ai.onnx that an opset selects; None where it has none."""
    try:
        schema = onnx.defs.get_schema(op_type, opset, "")
    except onnx.defs.SchemaError:
        return None
    return None if schema.deprecated else schema.since_version


def move_node(node: ir.Node, old: int, new: int, names: Names, where: Where) -> Sequence[str] | None:
    """Move one node from an opset to another.

    Returns:
        The operators that it became; None where it stays as it is.

    Raises:
        ModelError: nothing is known that says the same at the other opset.
    """
    before, after = since_version(node.op_type, old), since_version(node.op_type, new)
    if before is None:
        raise ModelError(f"opset {old} has no operator {node.op_type}", where)
    if before == after:
        return None
    if not _nonnegative_axes(node, before, after or 0):
        raise _unmovable(node, before, after, new, "an axis is negative, of an unknown rank", where)
    if node.op_type in _UNDEFINED_BEFORE and (after or 0) < _UNDEFINED_BEFORE[node.op_type] <= before:
        raise _unmovable(node, before, after, new, "its text does not say what padding counts for", where)
    proto = ir.serde.serialize_node(node)
    types = {
        value.name: kind
        for value in (*node.inputs, *node.outputs)
        if value is not None and value.name and (kind := to_type(known(value))) is not None
    }
    if after is not None and _unchanged(proto, types, old, new):
        _drop_new_attributes(node, new)
        return None
    if node.op_type == "Constant" and (folded := _folded_constant(node)):
        node.attributes.clear()
        node.attributes["value"] = folded
        return ["Constant"]
    if node.op_type == "Shape" and new < 15:
        return _sliced_shape(node, new, names)
    if node.op_type in _ALONG_AXIS and before >= 13 > new:
        # onnx's converter leaves the axis as it is, but before version 13 all axes behind it count as one.
        if (rewritten := _along_last_axis(node, new, names)) is None:
            raise _unmovable(node, before, after, new, "neither axis nor rank is known", where)
        return rewritten
    if any(a.HasField("g") or a.graphs for a in proto.attribute) or any(
        a.ref_attr_name for a in proto.attribute
    ):
        raise _unmovable(node, before, after, new, "it has a body or an attribute of its caller", where)
    try:
        moved = _adapt(_small_model(node, proto, types, old), old, new)
    except _NoAdapterError as error:
        raise _unmovable(node, before, after, new, str(error), where) from error
    replacement, outputs = _spliced(node, moved, names)
    replace_node(node, replacement, outputs)
    return [made.op_type for made in replacement]


def _unmovable(
    node: ir.Node, before: int, after: int | None, opset: int, reason: str, where: Where
) -> ModelError:
    name = node.op_type
    version = f"opset {opset} has no {name}" if after is None else f"it is {name}-{after} there"
    return ModelError(
        f"{node.op_type}-{before} cannot be moved to opset {opset}: {version}, and {reason}", where
    )


class _NoAdapterError(Exception):
    """onnx's version converter cannot convert an operator."""


# Statements that mean the same


def _unchanged(node: NodeProto, types: Mapping[str, TypeProto], old: int, new: int) -> bool:
    """Return whether the node says the same at both opsets."""
    try:
        before = onnx.defs.get_schema(node.op_type, old, node.domain)
        after = onnx.defs.get_schema(node.op_type, new, node.domain)
    except onnx.defs.SchemaError:
        return False
    if before.since_version == after.since_version:
        return True
    low, high = sorted((before.since_version, after.since_version))
    if after.deprecated or any(low < version <= high for version in _MEANING_CHANGED.get(node.op_type, ())):
        return False
    older, newer = (before, after) if before.since_version == low else (after, before)
    return (
        _attributes_agree(node, before, after, older, newer)
        and _counts_agree(len(node.input), after.min_input, after.max_input)
        and _counts_agree(len(node.output), after.min_output, after.max_output)
        and _types_agree(node.input, after.inputs, types)
        and _types_agree(node.output, after.outputs, types)
    )


def _attributes_agree(node: NodeProto, before: Any, after: Any, older: Any, newer: Any) -> bool:
    stated = {attribute.name: attribute for attribute in node.attribute}
    for name in {*before.attributes, *after.attributes, *stated}:
        was, becomes = before.attributes.get(name), after.attributes.get(name)
        if name in stated:
            if becomes is None:
                # What came later with a default that keeps the earlier behaviour can be left out again.
                if not (name in newer.attributes and _is_default(stated[name], newer.attributes[name])):
                    return False
            elif was is None or was.type != becomes.type:
                return False
        elif becomes is not None and becomes.required:
            return False
        elif was is not None and becomes is not None:
            if was.default_value.SerializeToString() != becomes.default_value.SerializeToString():
                return False
        elif name in older.attributes and older.attributes[name].default_value.type:
            return False  # its default was the meaning that a later version took away
    return True


def _is_default(attribute: AttributeProto, schema: Any) -> bool:
    default = schema.default_value
    return bool(default.type and helper.get_attribute_value(attribute) == helper.get_attribute_value(default))


def _drop_new_attributes(node: ir.Node, opset: int) -> None:
    known = onnx.defs.get_schema(node.op_type, opset, "").attributes
    for name in [name for name in node.attributes if name not in known]:
        del node.attributes[name]


def _counts_agree(count: int, least: int, most: int) -> bool:
    return least <= count <= most


def _types_agree(names: Sequence[str], parameters: Sequence[Any], types: Mapping[str, TypeProto]) -> bool:
    for index, name in enumerate(names):
        parameter = parameters[min(index, len(parameters) - 1)]
        if index >= len(parameters) and parameter.option != onnx.defs.OpSchema.FormalParameterOption.Variadic:
            return False
        written = _written_type(types[name]) if name in types else None
        if written is not None and written not in parameter.types:
            return False
    return True


def _written_type(proto: TypeProto) -> str | None:
    """Return a type as schemas write it; None where it is not known in full."""
    match proto.WhichOneof("value"):
        case "tensor_type":
            number = proto.tensor_type.elem_type
            return f"tensor({onnx.TensorProto.DataType.Name(number).lower()})" if number else None
        case "sequence_type":
            inner = _written_type(proto.sequence_type.elem_type)
            return inner and f"seq({inner})"
        case "optional_type":
            inner = _written_type(proto.optional_type.elem_type)
            return inner and f"optional({inner})"
    return None


def _nonnegative_axes(node: ir.Node, before: int, after: int) -> bool:
    """Count axes from the front: before opset 11, few operators say what a negative one means.

    Returns:
        Whether none is negative any more, where that matters.
    """
    if not before >= 11 > after:
        return True
    # What adds axes counts them in its output.
    counted = node.outputs[0] if node.op_type in ("OneHot", "Unsqueeze") else next(iter(node.inputs), None)
    shape = None if counted is None else shape_of(counted)
    for name in ("axis", "axes"):
        attribute = node.attributes.get(name)
        if attribute is None or attribute.is_ref():
            continue
        single = attribute.type == ir.AttributeType.INT
        axes = [attribute.as_int()] if single else list(attribute.as_ints())
        if min(axes, default=0) >= 0:
            continue
        if shape is None:
            return False
        axes = [axis + len(shape) if axis < 0 else axis for axis in axes]
        node.attributes[name] = ir.AttrInt64(name, axes[0]) if single else ir.AttrInt64s(name, axes)
    return True


def _folded_constant(node: ir.Node) -> ir.Attr | None:
    """Return the value of a Constant as a tensor, the only form before opset 12."""
    if any(attribute.is_ref() for attribute in node.attributes.values()) or "value" in node.attributes:
        return None
    array = constant_array(node.outputs[0])
    return None if array is None or array.dtype.kind == "S" else ir.AttrTensor("value", ir.tensor(array))


def _sliced_shape(node: ir.Node, opset: int, names: Names) -> list[str]:
    """Write the start and end of a Shape, which it states from opset 15 on, as a Slice."""
    bounds = {name: node.attributes[name].as_int() for name in ("start", "end") if name in node.attributes}
    begin, end = bounds.get("start", 0), bounds.get("end", _INT64_MAX)
    tape = Tape(opset, names, node.name or node.outputs[0].name or "shape")
    shape = tape.op("Shape", [node.inputs[0]])
    if opset >= 10:
        part = tape.slice(shape, 0, tape.integers([begin]), tape.integers([end]))
    else:
        part = tape.op("Slice", [shape], {"axes": [0], "starts": [begin], "ends": [end]})
    replace_node(node, tape.nodes, [part])
    return ["Shape", "Slice"]


def _along_last_axis(node: ir.Node, opset: int, names: Names) -> list[str] | None:
    """Write a Softmax along one axis with one that takes all axes behind it too: along the last one.

    Returns:
        The operators; None where the axis or the rank is not known.
    """
    data, stated = node.inputs[0], node.attributes.get("axis")
    shape = None if data is None else shape_of(data)
    if shape is None or (stated is not None and stated.is_ref()):
        return None
    last = len(shape) - 1
    axis = (-1 if stated is None else stated.as_int()) % max(len(shape), 1)
    if axis >= last:
        node.attributes["axis"] = ir.AttrInt64("axis", max(last, 0))
        return [node.op_type]
    order = list(range(len(shape)))
    order[axis], order[last] = last, axis
    tape = Tape(opset, names, node.name or node.outputs[0].name or node.op_type)
    turned = tape.op("Transpose", [data], {"perm": order})
    made = tape.op(node.op_type, [turned], {"axis": last})
    back = tape.op("Transpose", [made], {"perm": order})
    replace_node(node, tape.nodes, [back])
    return ["Transpose", node.op_type, "Transpose"]


# onnx's version converter, for one node


def _small_model(node: ir.Node, proto: NodeProto, types: Mapping[str, TypeProto], opset: int) -> ModelProto:
    """Return a model of one node, with its constants at hand."""
    graph = helper.make_graph([proto], "node", [], [])
    for value in dict.fromkeys(value for value in node.inputs if value is not None and value.name):
        array = constant_array(value, limit=_MOST_EMBEDDED)
        if array is not None and array.dtype.kind in "biuf":
            graph.initializer.append(onnx.numpy_helper.from_array(array, value.name))
        else:
            graph.input.add(name=value.name, type=types.get(value.name or ""))
    for value in node.outputs:
        if value.name:
            graph.output.add(name=value.name, type=types.get(value.name))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def _adapt(model: ModelProto, old: int, new: int) -> ModelProto:
    """Convert a small model version by version."""
    step = 1 if new > old else -1
    for opset in range(old, new, step):
        types = {
            value.name: value.type
            for value in (*model.graph.input, *model.graph.output, *model.graph.value_info)
            if value.HasField("type")
        }
        if all(_unchanged(node, types, opset, opset + step) for node in model.graph.node):
            model.opset_import[0].version = opset + step
            continue
        try:
            model = onnx.version_converter.convert_version(model, opset + step)
            model = onnx.shape_inference.infer_shapes(model)
        except Exception as error:
            text = str(error).strip() or type(error).__name__
            reason = text.splitlines()[-1].rpartition("failed: ")[2]
            raise _NoAdapterError(f"onnx's converter says: {reason[:200]}") from error
    return model


def _spliced(node: ir.Node, moved: ModelProto, names: Names) -> tuple[list[ir.Node], list[ir.Value | None]]:
    """Return the nodes of a small model, reading the values that the node reads."""
    values: dict[str, ir.Value | None] = {
        value.name: value for value in node.inputs if value is not None and value.name
    }
    values[""] = None
    own = {value.name for value in node.outputs if value.name}
    base = node.name or node.op_type
    nodes: list[ir.Node] = []
    for tensor in moved.graph.initializer:
        if tensor.name not in values:
            made = ir.Value(name=names.fresh(f"{base}_const"))
            array = np.asarray(onnx.numpy_helper.to_array(tensor))
            attributes = ir.convenience.convert_attributes({"value": ir.tensor(array)})
            nodes.append(ir.Node("", "Constant", [], attributes, outputs=[made]))
            values[tensor.name] = made
    for proto in moved.graph.node:
        outputs = [ir.Value(name=names.fresh(f"{base}_moved") if name else "") for name in proto.output]
        inputs = [values[name] for name in proto.input]
        attributes = [ir.serde.deserialize_attribute(attribute) for attribute in proto.attribute]
        name = proto.name or names.fresh(f"{base}/{proto.op_type}")
        nodes.append(ir.Node("", proto.op_type, inputs, attributes, outputs=outputs, name=name))
        values.update(zip(proto.output, outputs, strict=True))
    results = [values[value.name] if value.name in own else None for value in node.outputs]
    return nodes, results
