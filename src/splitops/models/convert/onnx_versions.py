"""Comparison of the meaning of a node in two versions of its ONNX operator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from onnx import AttributeProto, NodeProto, TensorProto, TypeProto, helper

from splitops.models.formats.onnx.schemas import SchemaAttribute, Version, find_version


def is_unchanged(node: NodeProto, types: Mapping[str, TypeProto], old: int, new: int) -> bool:
    """Return whether a node means the same at both opsets. ``types`` are those of its inputs and outputs."""
    before, after = find_version(node.op_type, old), find_version(node.op_type, new)
    if before is None or after is None:
        return False
    if before.since == after.since:
        return True
    older, newer = sorted((before, after), key=lambda version: version.since)
    if after.deprecated or _has_changed_meaning(node, older.since, newer.since):
        return False
    same = _have_same_attributes(node, before, after, older, newer)
    return same and after.can_have_types(*format_types(node, types))


def format_types(node: NodeProto, types: Mapping[str, TypeProto]) -> list[list[str | None]]:
    """Return the types of the inputs and of the outputs of a node, as in schemas; None if not fully known."""
    return [[_format_type(types.get(name)) for name in names] for names in (node.input, node.output)]


def _format_type(proto: TypeProto | None) -> str | None:
    if proto is None:
        return None
    match proto.WhichOneof("value"):
        case "tensor_type":
            number = proto.tensor_type.elem_type
            return f"tensor({TensorProto.DataType.Name(number).lower()})" if number else None
        case "sequence_type":
            inner = _format_type(proto.sequence_type.elem_type)
            return inner and f"seq({inner})"
        case "optional_type":
            inner = _format_type(proto.optional_type.elem_type)
            return inner and f"optional({inner})"
    return None


def _have_same_attributes(
    node: NodeProto, before: Version, after: Version, older: Version, newer: Version
) -> bool:
    present = {attribute.name: attribute for attribute in node.attribute}
    for name in {*before.attributes, *after.attributes, *present}:
        was, becomes = before.attributes.get(name), after.attributes.get(name)
        if name in present:
            if becomes is None:
                # A newer attribute with the default that keeps the older behaviour can be removed again.
                if not (name in newer.attributes and _is_default(present[name], newer.attributes[name])):
                    return False
            elif was is None or was.kind != becomes.kind:
                return False
        elif becomes is not None and becomes.required:
            return False
        elif was is not None and becomes is not None:
            if was.default != becomes.default:
                return False
        elif name in older.attributes and older.attributes[name].default is not None:
            return False  # the newer version has no equivalent of its default
    return True


def _is_default(attribute: AttributeProto, declared: SchemaAttribute) -> bool:
    if declared.default is None or attribute.ref_attr_name:
        return False
    return bool(helper.get_attribute_value(attribute) == declared.default)


def drop_defaults(node: NodeProto, opset: int, target: int) -> None:
    """Remove attributes that are set to their default and that the version at ``target`` does not have."""
    before, after = find_version(node.op_type, opset), find_version(node.op_type, target)
    if before is None or after is None:
        return
    kept = [
        attribute
        for attribute in node.attribute
        if attribute.name in after.attributes
        or attribute.name not in before.attributes
        or not _is_default(attribute, before.attributes[attribute.name])
    ]
    if len(kept) < len(node.attribute):
        kept = [AttributeProto.FromString(attribute.SerializeToString()) for attribute in kept]
        del node.attribute[:]
        node.attribute.extend(kept)


# Changes of meaning


def _has_changed_meaning(node: NodeProto, older: int, newer: int) -> bool:
    """Return whether a version after ``older`` and up to ``newer`` changed the meaning of the node."""
    changes = _MEANING_CHANGED.get(node.op_type, ())
    if sum(1 for name in node.output if name) > 1:
        changes += _OUTPUTS_CHANGED.get(node.op_type, ())
    return any(older < version <= newer for version in changes)


_MEANING_CHANGED: Final[Mapping[str, tuple[int, ...]]] = {
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax"), (13,)),
    **dict.fromkeys(("Max", "Mean", "Min", "Sum"), (8,)),
    "PRelu": (7,),
    "Dropout": (7, 12),
    "BatchNormalization": (7,),
    "RoiAlign": (16,),
    "Resize": (11, 13, 18, 19),
    "GroupNormalization": (21,),
    "GridSample": (20,),
    "Upsample": (9, 10),
    "Attention": (24,),
    "Scan": (9,),
}
"""Versions that changed how the same inputs and attributes are interpreted. Schemas do not show this."""

_OUTPUTS_CHANGED: Final[Mapping[str, tuple[int, ...]]] = {"BatchNormalization": (9, 14, 15)}
"""Versions that changed the outputs after the first one, which are used for training."""
