"""The ways in which a row can be asked for a split, read from the row itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from splitops.comparison.cases.words import usual_opset
from splitops.comparison.records import Record
from splitops.spec.elements.types import ELEMENT_TYPES
from splitops.spec.operators import OperatorSchema
from splitops.spec.operators.schemas import Given, Source


def input_of_lengths(row: OperatorSchema) -> Source | None:
    """Return the input in which a row takes lengths; None where it has none."""
    return next((own for own in row.lengths if own.given is Given.INPUT), None)


def part_names(count: int) -> tuple[str, ...]:
    """Return the names of so many outputs."""
    return tuple(f"p{index}" for index in range(count))


def by_count(
    row: OperatorSchema, shape: Sequence[int], count: int, axis: int | None = None, **more: Any
) -> Record:
    """Ask for a number of parts, where the row declares it; of a sequence, for parts of one."""
    name = row.count_attribute
    return _record(row, shape, axis, {} if name is None else {name: count}, count, more)


def by_lengths(
    row: OperatorSchema,
    shape: Sequence[int],
    lengths: int | list[int],
    axis: int | None = None,
    *,
    constant: bool = True,
    **more: Any,
) -> Record:
    """Ask for parts of given lengths, or for chunks; constant ones are an attribute where it exists."""
    count = len(lengths) if isinstance(lengths, list) else 1
    first = row.lengths[0]
    if first.given is Given.ATTRIBUTE and constant:
        return _record(row, shape, axis, {first.name: lengths}, count, more)
    source = input_of_lengths(row)
    assert source is not None
    takes = row.types_of(row.inputs[row.input_index(source.name)])
    usual = "int64" if ELEMENT_TYPES["int64"] in takes else more.get("dtype", "float32")
    given = {"lengths": lengths, "lengths_dtype": usual, "constant": constant}
    return _record(row, shape, axis, {}, count, given | more)


def plain(row: OperatorSchema, **more: Any) -> Record:
    """Return what a runtime must do before anything else that it does with a row matters: 6 in two parts."""
    if row.count is not None:
        return by_count(row, (6,), 2, **more)
    return by_lengths(row, (6,), 3 if row.scalar_rule is not None else [2, 4], **more)


def _record(
    row: OperatorSchema,
    shape: Sequence[int],
    axis: int | None,
    attributes: Mapping[str, Any],
    count: int,
    more: Mapping[str, Any],
) -> Record:
    opset = usual_opset(row)
    fields: dict[str, Any] = {
        "format": "ir" if row.domain else "onnx",
        "operator": row.name,
        "version": row.since_version,
        "opset": None if opset == row.since_version else opset,
        "shape": tuple(shape),
        "axis": 0 if axis is None and row.axis.given is Given.INPUT else axis,
        "attributes": attributes,
        "outputs": ("s",) if row.gives_sequence else part_names(count),
    }
    return Record(**fields | dict(more))
