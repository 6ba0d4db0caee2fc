"""Schemas compiled for binding: positions, types, ranks and bounds of operands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from splitops.spec.elements.types import ElementType
from splitops.spec.operators.schemas import OperatorSchema, Option, SourceKind, ValueSource


@dataclass(frozen=True, slots=True)
class Operand:
    """An attribute, an input or the number of outputs of an operator, and its valid values.

    Attributes:
        source: where a node sets it.
        name: its name, as in ``source``.
        index: position of an input, otherwise None.
        default: value if the node does not set it.
        minimum: minimum of each integer.
        types: permitted element types of an input.
        as_data: whether an input must have the element type of the data.
        ranks: permitted ranks of an input; empty if any rank is permitted.
    """

    source: ValueSource
    name: str
    index: int | None = None
    default: int | None = None
    minimum: int | None = None
    types: frozenset[ElementType] = frozenset()
    as_data: bool = False
    ranks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class CompiledSchema:
    """One operator version, compiled for binding. The attributes not listed are the schema
    and its axis, lengths, count and ``keepdims`` as operands.

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
_ROWS: Final[dict[int, CompiledSchema]] = {}


def compile_schema(schema: OperatorSchema) -> CompiledSchema:
    """Return the :class:`CompiledSchema` of a schema. Each schema is compiled only once."""
    compiled = _ROWS.get(id(schema))
    if compiled is None:
        compiled = _ROWS[id(schema)] = _compile(schema)
    return compiled


def _compile(schema: OperatorSchema) -> CompiledSchema:
    inputs = {p.name: _make_operand(schema, ValueSource(SourceKind.INPUT, p.name)) for p in schema.inputs}
    required = tuple(inputs[p.name] for p in schema.inputs if p.option is Option.SINGLE)
    data = inputs.pop(schema.inputs[0].name)
    count = schema.count
    return CompiledSchema(
        schema,
        data,
        inputs,
        required,
        frozenset(attribute.name for attribute in schema.attributes),
        count.name if count is not None and count.kind is SourceKind.OUTPUTS else None,
        _make_operand(schema, schema.axis),
        tuple(_make_operand(schema, source) for source in schema.lengths),
        None if count is None else _make_operand(schema, count),
        None if schema.keepdims is None else _make_operand(schema, schema.keepdims),
        schema.gives_sequence,
    )


def _make_operand(schema: OperatorSchema, source: ValueSource) -> Operand:
    match source.kind:
        case SourceKind.ATTRIBUTE:
            attribute = schema.attribute(source.name)
            assert attribute is not None
            default = schema.default_axis if source == schema.axis else attribute.default
            return Operand(source, source.name, None, default, attribute.minimum)
        case SourceKind.INPUT:
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
        case SourceKind.OUTPUTS:
            return Operand(source, source.name, minimum=1)
