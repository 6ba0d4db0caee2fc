"""Makes specs of an operator version: with a number of parts, with lengths, or the simplest one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from splitops.spec import ELEMENT_TYPES, OperatorSchema, SourceKind, ValueSource
from splitops_compare.cases.names import choose_opset
from splitops_compare.data import CaseSpec


def find_lengths_input(schema: OperatorSchema) -> ValueSource | None:
    """Return the input for lengths, or None if the operator version does not have one."""
    return next((source for source in schema.lengths if source.kind is SourceKind.INPUT), None)


def make_part_names(count: int) -> tuple[str, ...]:
    """Return the names of ``count`` outputs."""
    return tuple(f"p{index}" for index in range(count))


def make_count_spec(
    schema: OperatorSchema, shape: Sequence[int], count: int, axis: int | None = None, **more: Any
) -> CaseSpec:
    """Make a spec without lengths or a chunk size.

    ``count`` is the number of outputs, unless the output is a sequence, and the count attribute, if any.
    """
    name = schema.count_attribute
    return _make_spec(schema, shape, axis, {} if name is None else {name: count}, count, more)


def make_lengths_spec(
    schema: OperatorSchema,
    shape: Sequence[int],
    lengths: int | list[int],
    axis: int | None = None,
    *,
    constant: bool = True,
    **more: Any,
) -> CaseSpec:
    """Make a spec with lengths or a chunk size: an attribute if constant and supported, or else an input."""
    count = len(lengths) if isinstance(lengths, list) else 1
    first = schema.lengths[0]
    if first.kind is SourceKind.ATTRIBUTE and constant:
        return _make_spec(schema, shape, axis, {first.name: lengths}, count, more)
    source = find_lengths_input(schema)
    assert source is not None
    types = schema.types_of(schema.inputs[schema.input_index(source.name)])
    dtype = "int64" if ELEMENT_TYPES["int64"] in types else more.get("dtype", "float32")
    fields = {"lengths": lengths, "lengths_dtype": dtype, "constant": constant}
    return _make_spec(schema, shape, axis, {}, count, fields | more)


def make_plain_spec(schema: OperatorSchema, **more: Any) -> CaseSpec:
    """Make the simplest valid spec of an operator version. It splits 6 elements into two parts."""
    if schema.count is not None:
        return make_count_spec(schema, (6,), 2, **more)
    return make_lengths_spec(schema, (6,), 3 if schema.scalar_rule is not None else [2, 4], **more)


def _make_spec(
    schema: OperatorSchema,
    shape: Sequence[int],
    axis: int | None,
    attributes: Mapping[str, Any],
    count: int,
    more: Mapping[str, Any],
) -> CaseSpec:
    opset = choose_opset(schema)
    fields: dict[str, Any] = {
        "format": "ir" if schema.domain else "onnx",
        "operator": schema.name,
        "version": schema.since_version,
        "opset": None if opset == schema.since_version else opset,
        "shape": tuple(shape),
        "axis": 0 if axis is None and schema.axis.kind is SourceKind.INPUT else axis,
        "attributes": attributes,
        "outputs": ("s",) if schema.gives_sequence else make_part_names(count),
    }
    return CaseSpec(**fields | dict(more))
