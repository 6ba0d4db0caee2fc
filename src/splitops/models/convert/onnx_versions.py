"""Versions of ONNX operators: which one an opset selects, and what means the same in two of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import onnx
from onnx import AttributeProto, NodeProto, helper

__all__ = ["Version", "drop_defaults", "since_version", "unchanged", "version_of"]

_VARIADIC: Final = onnx.defs.OpSchema.FormalParameterOption.Variadic


@dataclass(frozen=True, slots=True)
class _Attribute:
    kind: int
    default: Any
    required: bool


@dataclass(frozen=True, slots=True)
class _Parameters:
    """The inputs or the outputs of a version: how many there may be, and the types of each."""

    least: int
    most: int
    types: tuple[frozenset[str], ...]
    variadic: bool

    def take(self, types: Sequence[str | None]) -> bool:
        """Return whether values of these types (None: not known) can stand here."""
        if not self.least <= len(types) <= self.most:
            return False
        for index, written in enumerate(types):
            if index >= len(self.types) and not self.variadic:
                return False
            if written is not None and written not in self.types[min(index, len(self.types) - 1)]:
                return False
        return True


@dataclass(frozen=True, slots=True)
class Version:
    """One version of an operator of ai.onnx, as its schema states it."""

    since: int
    deprecated: bool
    attributes: Mapping[str, _Attribute]
    inputs: _Parameters
    outputs: _Parameters

    def takes(self, inputs: Sequence[str | None], outputs: Sequence[str | None]) -> bool:
        """Return whether a node with values of these types (None: not known) can be of it."""
        return self.inputs.take(inputs) and self.outputs.take(outputs)


@cache
def version_of(op_type: str, opset: int) -> Version | None:
    """Return the version of an operator that an opset selects, withdrawn ones too; None where it has none."""
    try:
        schema: Any = onnx.defs.get_schema(op_type, opset, "")
    except onnx.defs.SchemaError:
        return None
    attributes = {
        name: _Attribute(int(found.type.value), _value(found.default_value), found.required)
        for name, found in schema.attributes.items()
    }
    inputs = _parameters(schema.min_input, schema.max_input, schema.inputs)
    outputs = _parameters(schema.min_output, schema.max_output, schema.outputs)
    return Version(schema.since_version, schema.deprecated, attributes, inputs, outputs)


def _parameters(least: int, most: int, formal: Sequence[Any]) -> _Parameters:
    types = tuple(frozenset(parameter.types) for parameter in formal)
    return _Parameters(least, most, types, bool(formal) and formal[-1].option == _VARIADIC)


def _value(attribute: AttributeProto) -> Any:
    return helper.get_attribute_value(attribute) if attribute.type else None


def since_version(op_type: str, opset: int) -> int | None:
    """Return the version of an operator of ai.onnx that an opset selects; None where it has none."""
    version = version_of(op_type, opset)
    return None if version is None or version.deprecated else version.since


def unchanged(
    node: NodeProto,
    inputs: Sequence[str | None],
    outputs: Sequence[str | None],
    old: int,
    new: int,
) -> bool:
    """Return whether a node says the same at both opsets.

    Args:
        node: the node.
        inputs: the types of its inputs, as schemas write them; None is not known.
        outputs: those of its outputs.
        old: the opset that it is written for.
        new: the other opset.
    """
    before, after = version_of(node.op_type, old), version_of(node.op_type, new)
    if before is None or after is None:
        return False
    if before.since == after.since:
        return True
    older, newer = sorted((before, after), key=lambda version: version.since)
    if after.deprecated or _means_otherwise(node, older.since, newer.since):
        return False
    return _attributes_agree(node, before, after, older, newer) and after.takes(inputs, outputs)


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


def _is_default(stated: AttributeProto, attribute: _Attribute) -> bool:
    if attribute.default is None or stated.ref_attr_name:
        return False
    return bool(helper.get_attribute_value(stated) == attribute.default)


def drop_defaults(node: NodeProto, opset: int, target: int) -> None:
    """Leave out stated defaults of attributes that the version at the target does not have."""
    before, after = version_of(node.op_type, opset), version_of(node.op_type, target)
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
    """Return whether an equal statement means something else on both sides of a change."""
    for version, concerns in _MEANING_CHANGED.get(node.op_type, {}).items():
        if older < version <= newer and concerns(node):
            return True
    return False


def _always(node: NodeProto) -> bool:
    return True


def _several_outputs(node: NodeProto) -> bool:
    """One output is the same in every version; more are those of training, which changed."""
    return sum(1 for name in node.output if name) > 1


def _at(
    *versions: int, where: Callable[[NodeProto], bool] = _always
) -> dict[int, Callable[[NodeProto], bool]]:
    return dict.fromkeys(versions, where)


def _each(names: Iterable[str], *versions: int) -> dict[str, dict[int, Callable[[NodeProto], bool]]]:
    return {name: _at(*versions) for name in names}


_MEANING_CHANGED: Final[Mapping[str, Mapping[int, Callable[[NodeProto], bool]]]] = {
    **_each(("Softmax", "LogSoftmax", "Hardmax"), 13),
    **_each(("Max", "Mean", "Min", "Sum"), 8),
    **_each(("PRelu",), 7),
    "Dropout": _at(7, 12),
    "BatchNormalization": _at(7) | _at(9, 14, 15, where=_several_outputs),
    "RoiAlign": _at(16),
    "Resize": _at(11, 13, 18, 19),
    "GroupNormalization": _at(21),
    "GridSample": _at(20),
    "Upsample": _at(9, 10),
    "Attention": _at(24),
    "Scan": _at(9),
}
"""Versions that changed what an equal statement of some nodes means, which their schemas do not show."""
