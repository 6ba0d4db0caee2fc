"""Versions of ONNX operators, as their schemas state them, and which one an opset selects."""

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
    """An attribute that a version has."""

    kind: int
    default: Any
    required: bool


@dataclass(frozen=True, slots=True)
class _Parameters:
    """The inputs or the outputs of a version: how many there may be, the types of each, and which must be."""

    least: int
    most: int
    types: tuple[frozenset[str], ...]
    single: tuple[bool, ...]
    variadic: bool

    def has(self, count: int) -> bool:
        """Return whether there may be so many."""
        return self.least <= count <= self.most

    def take(self, types: Sequence[str | None]) -> bool:
        """Return whether values of these types (None: not known) can be here."""
        if not self.has(len(types)):
            return False
        return all(written is None or written in self.types_at(index) for index, written in enumerate(types))

    def types_at(self, index: int) -> frozenset[str]:
        """Return the types of which the value at a position may be; there are none behind the last one."""
        if index >= len(self.types) and not self.variadic:
            return frozenset()
        return self.types[min(index, len(self.types) - 1)]


@dataclass(frozen=True, slots=True)
class Version:
    """One version of an operator, as its schema has it."""

    schema: onnx.defs.OpSchema
    since: int
    deprecated: bool
    attributes: Mapping[str, SchemaAttribute]
    inputs: _Parameters
    outputs: _Parameters

    def takes(self, inputs: Sequence[str | None], outputs: Sequence[str | None]) -> bool:
        """Return whether a node with values of these types (None: not known) can be of it."""
        return self.inputs.take(inputs) and self.outputs.take(outputs)

    def fits(self, node: NodeProto) -> bool:
        """Return whether a node has what onnx's inference relies on without looking."""
        if not self.inputs.has(len(node.input)) or not self.outputs.has(len(node.output)):
            return False
        if any(single and not name for single, name in zip(self.inputs.single, node.input, strict=False)):
            return False
        stated = {attribute.name: attribute for attribute in node.attribute}
        for name, known in self.attributes.items():
            if name not in stated:
                if known.required:
                    return False
            elif known.kind != stated[name].type or stated[name].ref_attr_name:
                return False
        return not any(attribute.type in _GRAPHS for attribute in stated.values())


@cache
def version_of(op_type: str, opset: int, domain: str = "") -> Version | None:
    """Return the version of an operator that an opset selects, withdrawn ones too; None where it has none."""
    try:
        schema: Any = onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError:
        return None
    attributes = {
        name: SchemaAttribute(int(found.type.value), _value(found.default_value), found.required)
        for name, found in schema.attributes.items()
    }
    inputs = _parameters(schema.min_input, schema.max_input, schema.inputs)
    outputs = _parameters(schema.min_output, schema.max_output, schema.outputs)
    return Version(schema, schema.since_version, schema.deprecated, attributes, inputs, outputs)


def _parameters(least: int, most: int, formal: Sequence[Any]) -> _Parameters:
    types = tuple(frozenset(parameter.types) for parameter in formal)
    options = [parameter.option for parameter in formal]
    single = tuple(option == _OPTION.Single for option in options)
    return _Parameters(least, most, types, single, options[-1:] == [_OPTION.Variadic])


def _value(attribute: AttributeProto) -> Any:
    return helper.get_attribute_value(attribute) if attribute.type else None


def since_version(op_type: str, opset: int) -> int | None:
    """Return the version of an operator of ai.onnx that an opset selects; None where it has none."""
    version = version_of(op_type, opset)
    return None if version is None or version.deprecated else version.since
