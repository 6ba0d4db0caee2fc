"""The versions of ONNX operators as the schemas of the onnx package specify them, selected by opset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import onnx
from onnx import AttributeProto, NodeProto, helper

_OPTION: Final = onnx.defs.OpSchema.FormalParameterOption
_GRAPHS: Final = (AttributeProto.GRAPH, AttributeProto.GRAPHS)


@dataclass(frozen=True, slots=True)
class SchemaAttribute:
    """An attribute of an operator version. ``kind`` is the number of its ``AttributeProto`` type."""

    kind: int
    default: Any
    required: bool


@dataclass(frozen=True, slots=True)
class _Parameters:
    """The inputs or the outputs of an operator version: their number and the allowed types of each.

    ``single`` marks those that are neither optional nor variadic. ``variadic`` is True if the last one is.
    """

    min_count: int
    max_count: int
    types: tuple[frozenset[str], ...]
    single: tuple[bool, ...]
    variadic: bool

    def can_have(self, count: int) -> bool:
        return self.min_count <= count <= self.max_count

    def can_have_types(self, types: Sequence[str | None]) -> bool:
        """Return whether the values may have these ``types``; None is an unknown type."""
        if not self.can_have(len(types)):
            return False
        return all(written is None or written in self.get_types(index) for index, written in enumerate(types))

    def get_types(self, index: int) -> frozenset[str]:
        """Return the allowed types of the value at ``index``, or an empty set if there is no such value."""
        if index >= len(self.types) and not self.variadic:
            return frozenset()
        return self.types[min(index, len(self.types) - 1)]


@dataclass(frozen=True, slots=True)
class Version:
    """One version of an operator, from its schema in onnx."""

    schema: onnx.defs.OpSchema
    since: int
    deprecated: bool
    attributes: Mapping[str, SchemaAttribute]
    inputs: _Parameters
    outputs: _Parameters

    def can_have_types(self, inputs: Sequence[str | None], outputs: Sequence[str | None]) -> bool:
        """Return whether a node of this version may have values of these types; None is an unknown type."""
        return self.inputs.can_have_types(inputs) and self.outputs.can_have_types(outputs)

    def is_safe_to_infer(self, node: NodeProto) -> bool:
        """Return whether a node meets the conditions that onnx's shape inference assumes without a check.

        Return False for a node with subgraphs.
        """
        if not self.inputs.can_have(len(node.input)) or not self.outputs.can_have(len(node.output)):
            return False
        if any(single and not name for single, name in zip(self.inputs.single, node.input, strict=False)):
            return False
        given = {attribute.name: attribute for attribute in node.attribute}
        for name, expected in self.attributes.items():
            if name not in given:
                if expected.required:
                    return False
            elif expected.kind != given[name].type or given[name].ref_attr_name:
                return False
        return not any(attribute.type in _GRAPHS for attribute in given.values())


@cache
def find_version(op_type: str, opset: int, domain: str = "") -> Version | None:
    """Return the version of an operator at an opset, even if deprecated, or None if there is none."""
    try:
        schema: Any = onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError:
        return None
    attributes = {
        name: SchemaAttribute(int(found.type.value), _read_default(found.default_value), found.required)
        for name, found in schema.attributes.items()
    }
    inputs = _read_parameters(schema.min_input, schema.max_input, schema.inputs)
    outputs = _read_parameters(schema.min_output, schema.max_output, schema.outputs)
    return Version(schema, schema.since_version, schema.deprecated, attributes, inputs, outputs)


def _read_parameters(least: int, most: int, formal: Sequence[Any]) -> _Parameters:
    types = tuple(frozenset(parameter.types) for parameter in formal)
    options = [parameter.option for parameter in formal]
    single = tuple(option == _OPTION.Single for option in options)
    return _Parameters(least, most, types, single, options[-1:] == [_OPTION.Variadic])


def _read_default(attribute: AttributeProto) -> Any:
    return helper.get_attribute_value(attribute) if attribute.type else None


def find_since_version(op_type: str, opset: int) -> int | None:
    """Return the version number of an ai.onnx operator at an opset, or None if it is absent or deprecated."""
    version = find_version(op_type, opset)
    return None if version is None or version.deprecated else version.since
