"""What means the same in two versions of an ONNX operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from onnx import AttributeProto, NodeProto, helper

from splitops.models.formats.onnx.schemas import SchemaAttribute, Version, find_version


def unchanged(
    node: NodeProto,
    inputs: Sequence[str | None],
    outputs: Sequence[str | None],
    old: int,
    new: int,
) -> bool:
    """Return whether a node, with types as schemas write them, says the same at both opsets."""
    before, after = find_version(node.op_type, old), find_version(node.op_type, new)
    if before is None or after is None:
        return False
    if before.since == after.since:
        return True
    older, newer = sorted((before, after), key=lambda version: version.since)
    if after.deprecated or _means_otherwise(node, older.since, newer.since):
        return False
    return _attributes_agree(node, before, after, older, newer) and after.can_have_types(inputs, outputs)


def _attributes_agree(
    node: NodeProto, before: Version, after: Version, older: Version, newer: Version
) -> bool:
    stated = {attribute.name: attribute for attribute in node.attribute}
    for name in {*before.attributes, *after.attributes, *stated}:
        was, becomes = before.attributes.get(name), after.attributes.get(name)
        if name in stated:
            if becomes is None:
                # What came later with a default that keeps the earlier behaviour can be left out again.
                if not (name in newer.attributes and _is_default(stated[name], newer.attributes[name])):
                    return False
            elif was is None or was.kind != becomes.kind:
                return False
        elif becomes is not None and becomes.required:
            return False
        elif was is not None and becomes is not None:
            if was.default != becomes.default:
                return False
        elif name in older.attributes and older.attributes[name].default is not None:
            return False  # its default was the meaning that a later version took away
    return True


def _is_default(stated: AttributeProto, attribute: SchemaAttribute) -> bool:
    if attribute.default is None or stated.ref_attr_name:
        return False
    return bool(helper.get_attribute_value(stated) == attribute.default)


def drop_defaults(node: NodeProto, opset: int, target: int) -> None:
    """Leave out stated defaults of attributes that the version at the target does not have."""
    before, after = find_version(node.op_type, opset), find_version(node.op_type, target)
    if before is None or after is None:
        return
    kept = [
        stated
        for stated in node.attribute
        if stated.name in after.attributes
        or stated.name not in before.attributes
        or not _is_default(stated, before.attributes[stated.name])
    ]
    if len(kept) < len(node.attribute):
        kept = [AttributeProto.FromString(stated.SerializeToString()) for stated in kept]
        del node.attribute[:]
        node.attribute.extend(kept)


# Changes of meaning


def _means_otherwise(node: NodeProto, older: int, newer: int) -> bool:
    """Return whether an equal form means something else on both sides of a change."""
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
"""Versions that changed what an equal form of some nodes means, which their schemas do not show."""

_OUTPUTS_CHANGED: Final[Mapping[str, tuple[int, ...]]] = {"BatchNormalization": (9, 14, 15)}
"""Versions that changed the outputs behind the first one, which are those of training."""
