"""Schemas compiled for binding: positions, types, ranks and bounds of operands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from splitops.spec.elements.types import ElementType
from splitops.spec.operators.schemas import Given, OperatorSchema, Option, Source


@dataclass(frozen=True, slots=True)
class Operand:
    """An attribute, input or number of outputs, and its valid values.

    Attributes:
        source: where the schema has it.
        name: its name.
        index: position of an input, otherwise None.
        default: value if the node does not set it.
        minimum: minimum of each integer.
        types: element types of an input.
        as_data: whether an input must have the element type of the data.
        ranks: ranks of an input.
    """

    source: Source
    name: str
    index: int | None = None
    default: int | None = None
    minimum: int | None = None
    types: frozenset[ElementType] = frozenset()
    as_data: bool = False
    ranks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One operator version, compiled for binding. Names are those of the schema.

    Attributes:
        data: the input that is split.
        inputs: the other inputs, by name.
        required: inputs that must not be absent.
        attributes: names of the attributes.
        outputs: name of the argument that sets the number of outputs in a call, or None if there is none.
        sequence: whether the parts are the elements of one sequence.
    """

    schema: OperatorSchema
    data: Operand
    inputs: dict[str, Operand]
    required: tuple[Operand, ...]
    attributes: frozenset[str]
    outputs: str | None
    axis: Operand
    lengths: tuple[Operand, ...]
    count: Operand | None
    keepdims: Operand | None
    sequence: bool


# Keyed by id: an entry keeps its schema alive, so the id is not reused.
_ROWS: Final[dict[int, Row]] = {}


def compile_row(schema: OperatorSchema) -> Row:
    """Compile a schema for binding, once."""
    row = _ROWS.get(id(schema))
    if row is None:
        row = _ROWS[id(schema)] = _compile(schema)
    return row


def _compile(schema: OperatorSchema) -> Row:
    inputs = {p.name: _make_operand(schema, Source(Given.INPUT, p.name)) for p in schema.inputs}
    required = tuple(inputs[p.name] for p in schema.inputs if p.option is Option.SINGLE)
    data = inputs.pop(schema.inputs[0].name)
    count = schema.count
    return Row(
        schema,
        data,
        inputs,
        required,
        frozenset(attribute.name for attribute in schema.attributes),
        count.name if count is not None and count.given is Given.OUTPUTS else None,
        _make_operand(schema, schema.axis),
        tuple(_make_operand(schema, source) for source in schema.lengths),
        None if count is None else _make_operand(schema, count),
        None if schema.keepdims is None else _make_operand(schema, schema.keepdims),
        schema.gives_sequence,
    )


def _make_operand(schema: OperatorSchema, source: Source) -> Operand:
    match source.given:
        case Given.ATTRIBUTE:
            attribute = schema.attribute(source.name)
            assert attribute is not None
            default = schema.default_axis if source == schema.axis else attribute.default
            return Operand(source, source.name, None, default, attribute.minimum)
        case Given.INPUT:
            index = schema.input_index(source.name)
            parameter = schema.inputs[index]
            return Operand(
                source,
                source.name,
                index,
                minimum=parameter.minimum,
                types=schema.types_of(parameter),
                as_data=index > 0 and parameter.type == schema.inputs[0].type,
                ranks=parameter.ranks or (),
            )
        case Given.OUTPUTS:
            return Operand(source, source.name, minimum=1)
