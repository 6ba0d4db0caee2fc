"""Convert the division of an axis to the attributes and inputs of a split node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from splitops.errors import brief
from splitops.spec.elements.types import ELEMENT_TYPES
from splitops.spec.operators import OperatorSchema
from splitops.spec.operators.schemas import Option, SourceKind
from splitops.spec.sizes.arithmetic import Division
from splitops.spec.sizes.rules import SizeRule
from splitops.splitting.binding import Fact

_INT64: Final = ELEMENT_TYPES["int64"]
T = TypeVar("T")


def make_operand_facts(
    schema: OperatorSchema, axis: int, division: Division | None, *, squeeze: bool | None = False
) -> tuple[dict[str, Any], list[Fact | None]]:
    """Return the attributes and constant inputs that set an axis and a division in an operator version.

    The inputs are in the operator's order. The data and absent inputs are None. If ``division`` is None, no
    lengths are set; otherwise, absent optional inputs at the end are left out. ``squeeze`` sets
    ``keepdims = 0`` if the operator has it.

    Examples:
        >>> from splitops.spec.operators import schema
        >>> division = Division(SizeRule.EXPLICIT, lengths=(2, 3))
        >>> attributes, inputs = make_operand_facts(schema("Split", 13), 1, division)
        >>> attributes, inputs[1].value
        ({'axis': 1}, (2, 3))
    """
    attributes: dict[str, Any] = {}
    inputs: list[Fact | None] = [None] * len(schema.inputs)
    if schema.axis.kind is SourceKind.ATTRIBUTE:
        attributes[schema.axis.name] = axis
    else:
        inputs[schema.input_index(schema.axis.name)] = Fact(_INT64, (), axis)
    if schema.keepdims is not None and squeeze:
        attributes[schema.keepdims.name] = 0
    if division is None:
        return attributes, inputs
    match division.rule:
        case SizeRule.EXPLICIT | SizeRule.REMAINDER:
            source = schema.lengths[0]
            if source.kind is SourceKind.ATTRIBUTE:
                attributes[source.name] = division.lengths
            else:
                fact = Fact(_INT64, (len(division.lengths),), division.lengths)
                inputs[schema.input_index(source.name)] = fact
        case SizeRule.EVEN | SizeRule.CEIL:
            if schema.count is not None and schema.count.kind is SourceKind.ATTRIBUTE:
                attributes[schema.count.name] = division.count
        case SizeRule.CHUNK:
            if division.chunk != schema.default_chunk or not squeeze:
                inputs[schema.input_index(schema.lengths[0].name)] = Fact(_INT64, (), division.chunk)
    while inputs and inputs[-1] is None and schema.inputs[len(inputs) - 1].option is Option.OPTIONAL:
        inputs.pop()
    return attributes, inputs


def make_operands(
    schema: OperatorSchema,
    axis: int,
    division: Division | None,
    data: T,
    constant: Callable[[npt.NDArray[Any], str], T],
    *,
    squeeze: bool | None = False,
) -> tuple[dict[str, Any], list[T | None]]:
    """Return the attributes and inputs of a split node; see :func:`make_operand_facts`.

    ``data`` is the first input. ``constant`` creates each other input that is not absent, from its elements
    and its parameter name.
    """
    attributes, facts = make_operand_facts(schema, axis, division, squeeze=squeeze)
    inputs: list[T | None] = [
        None if fact is None else constant(np.array(fact.value, np.int64), parameter.name)
        for parameter, fact in zip(schema.inputs, facts, strict=False)
    ]
    inputs[0] = data
    return attributes, inputs


def describe(
    schema: OperatorSchema,
    axis: int | None,
    division: Division | None,
    outputs: int,
    *,
    squeeze: bool | None = False,
) -> str:
    """Return a one-line description of a split node, for messages and reports.

    Examples:
        >>> from splitops.spec.operators import schema
        >>> describe(schema("Split", 13), 1, Division(SizeRule.EXPLICIT, lengths=(2, 3)), 2)
        'Split-13(axis=1, split=[2, 3])'
    """
    words = [f"axis={'?' if axis is None else axis}"]
    if division is None:
        words.append(f"{schema.lengths[0].name if schema.lengths else 'split'} at run time")
    elif division.rule in (SizeRule.EXPLICIT, SizeRule.REMAINDER):
        words.append(f"{schema.lengths[0].name}={brief(division.lengths)}")
    elif division.rule is SizeRule.CHUNK:
        words.append(f"{schema.lengths[0].name}={division.chunk}")
    elif schema.count is not None and schema.count.kind is SourceKind.ATTRIBUTE:
        words.append(f"{schema.count.name}={division.count}")
    else:
        words.append(f"{outputs} outputs")
    if squeeze and schema.keepdims is not None:
        words.append(f"{schema.keepdims.name}=0")
    return f"{schema}({', '.join(words)})"
