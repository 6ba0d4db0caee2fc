"""Comparison of two versions of an operator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

from splitops.common.notebooks import format_html_table
from splitops.errors import count_of
from splitops.spec.operators.schemas import (
    Attribute,
    OperatorSchema,
    Parameter,
    TypeConstraint,
    describe_item,
)


@dataclass(frozen=True, slots=True)
class VersionChange:
    """A change between two versions of an operator.

    Attributes:
        kind: ``"attribute"``, ``"input"``, ``"output"``, ``"type"`` or ``"rule"``.
        name: name of the attribute, input, output or type, or the subject of the rule.
        before: old value, or None if there was none.
        after: new value, or None if there is none.
        text: the change as text.
    """

    kind: str
    name: str
    before: Any
    after: Any
    text: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: {self.text}"


@dataclass(frozen=True, slots=True)
class Difference:
    """The changes between two versions, in the order attributes, inputs, outputs, types, rules."""

    old: OperatorSchema
    new: OperatorSchema
    changes: tuple[VersionChange, ...]

    def __str__(self) -> str:
        lines = [f"{self.old} -> {self.new}", *(f"  {change}" for change in self.changes)]
        return "\n".join(lines if self.changes else [*lines, "  nothing"])

    def __repr__(self) -> str:
        return f"Difference({self.old} -> {self.new}: {count_of(len(self.changes), 'change')})"

    def _repr_html_(self) -> str:
        rows = [(change.kind, change.name, change.text) for change in self.changes]
        return format_html_table(f"{self.old} -> {self.new}", ("", "name", "change"), rows)


# Schema fields that define the behaviour of an operator, with the names that users see.
_RULES = {
    "axis": "axis from",
    "default_axis": "default axis",
    "lengths": "lengths from",
    "lengths_rule": "size rule of lengths",
    "scalar_rule": "size rule of a scalar",
    "count": "number of parts from",
    "count_rule": "size rule of a number of parts",
    "default_chunk": "default chunk",
    "exclusive": "lengths and number of parts exclude each other",
    "keepdims": "whether parts keep the axis from",
    "category": "category",
    "shape_inference": "shape inference",
    "support_level": "support level",
    "deprecated": "deprecated",
}


def compare(old: OperatorSchema, new: OperatorSchema) -> Difference:
    """Return the changes from the version ``old`` to the version ``new`` of an operator."""
    changes = (
        *_compare_named("attribute", old.attributes, new.attributes),
        *_compare_named("input", old.inputs, new.inputs),
        *_compare_outputs(old.outputs, new.outputs),
        *_compare_types(old.type_constraints, new.type_constraints),
        *_compare_rules(old, new),
    )
    return Difference(old, new, changes)


def _compare_named(
    kind: str, old: Sequence[Attribute | Parameter], new: Sequence[Attribute | Parameter]
) -> Iterator[VersionChange]:
    before = {item.name: item for item in old}
    after = {item.name: item for item in new}
    for name in dict.fromkeys([*before, *after]):
        if name not in after:
            yield VersionChange(kind, name, before[name], None, "is removed")
        elif name not in before:
            text = f"is new ({after[name].type}, {describe_item(after[name])})"
            yield VersionChange(kind, name, None, after[name], text)
        elif before[name] != after[name]:
            yield VersionChange(
                kind, name, before[name], after[name], _describe_fields(before[name], after[name])
            )


def _compare_outputs(old: Sequence[Parameter], new: Sequence[Parameter]) -> Iterator[VersionChange]:
    # Outputs are compared by position, since their names do not matter. Split-1 calls them "outputs...".
    for before, after in zip(old, new, strict=True):
        if before != after:
            yield VersionChange("output", after.name, before, after, _describe_fields(before, after))


def _compare_types(old: Sequence[TypeConstraint], new: Sequence[TypeConstraint]) -> Iterator[VersionChange]:
    before = {constraint.name: constraint for constraint in old}
    for constraint in new:
        known = before.pop(constraint.name, None)
        if known is None:
            text = f"is new ({', '.join(sorted(map(str, constraint.types)))})"
            yield VersionChange("type", constraint.name, None, constraint, text)
        elif known.types != constraint.types:
            parts = (("adds", constraint.types - known.types), ("drops", known.types - constraint.types))
            text = "; ".join(f"{verb} {', '.join(sorted(map(str, types)))}" for verb, types in parts if types)
            yield VersionChange("type", constraint.name, known, constraint, text)
    for name, constraint in before.items():
        yield VersionChange("type", name, constraint, None, "is removed")


def _compare_rules(old: OperatorSchema, new: OperatorSchema) -> Iterator[VersionChange]:
    for field, words in _RULES.items():
        before, after = getattr(old, field), getattr(new, field)
        if before != after:
            text = f"{_format_value(before)} -> {_format_value(after)}"
            yield VersionChange("rule", words, before, after, text)
    for note in (*old.notes, *new.notes):
        if note not in old.notes:
            yield VersionChange("rule", "note", None, note, note)
        elif note not in new.notes:
            yield VersionChange("rule", "note", note, None, f"no longer: {note}")


def _describe_fields(before: Attribute | Parameter, after: Attribute | Parameter) -> str:
    changed = []
    for field in fields(after):
        old, new = getattr(before, field.name), getattr(after, field.name)
        if old != new:
            changed.append(f"{field.name} {_format_value(old)} -> {_format_value(new)}")
    return ", ".join(changed)


def _format_value(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return " or ".join(map(_format_value, value)) or "nowhere"
    return str(getattr(value, "value", value))
