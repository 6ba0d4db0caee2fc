"""A row of the specification, compiled once into what binding asks of it: positions, types, ranks, bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from splitops.spec.elements.types import ElementType
from splitops.spec.operators.schemas import Given, OperatorSchema, Option, Source


@dataclass(frozen=True, slots=True)
class Operand:
    """An attribute, input or number of outputs, and its allowed values.

    Attributes:
        index: the position of an input; otherwise None.
        default: the value for a node that sets none.
        minimum: the least value that each integer may have.
        types: the element types of an input.
        as_data: whether an input is of the very type of the data: one type name is one type.
        ranks: the ranks of an input.
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
    """One operator version as binding reads it; the names are those of the schema.

    Attributes:
        data: the input that is split.
        inputs: the inputs beside it, by name.
        required: the inputs that must be there.
        attributes: the names of the attributes.
        outputs: the name by which a call says how many outputs are declared; None where it does not.
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


# By identity: a compiled row holds its schema, so that no other one gets its address.
_ROWS: Final[dict[int, Row]] = {}


def compile_row(schema: OperatorSchema) -> Row:
    """Return what binding needs of a row; it is compiled once."""
    row = _ROWS.get(id(schema))
    if row is None:
        row = _ROWS[id(schema)] = _compile(schema)
    return row


def _compile(schema: OperatorSchema) -> Row:
    inputs = {p.name: _operand(schema, Source(Given.INPUT, p.name)) for p in schema.inputs}
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
        _operand(schema, schema.axis),
        tuple(_operand(schema, source) for source in schema.lengths),
        None if count is None else _operand(schema, count),
        None if schema.keepdims is None else _operand(schema, schema.keepdims),
        schema.gives_sequence,
    )


def _operand(schema: OperatorSchema, source: Source) -> Operand:
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
