"""Proves that a node or call is a valid split, or says precisely why it is not.

What is known of each input comes in as a :class:`Fact`, so that running (everything known), inference and
checking (some of it known) share every rule.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from splitops.dims import Range, Shape, exact_integer
from splitops.dtypes import ElementType, element_type_of
from splitops.errors import NOWHERE, ModelError, Rule, RuleError, SplitError, Where, brief, rule_error, shown
from splitops.intervals import fitting, free_lengths
from splitops.operators.schema import (
    Attribute,
    AttributeType,
    Given,
    OperatorSchema,
    Option,
    Parameter,
    SizeRule,
    Source,
)
from splitops.planning import Division, SplitRequest, describe, violation

__all__ = ["Binding", "Fact", "bind", "exact_integer", "fact_of", "foreign_type"]

_INT64_MAX: Final = (1 << 63) - 1
_INT64_MIN: Final = -(1 << 63)
_MAX_UNKNOWN: Final = 1 << 16
"""More lengths of which none is known are not listed one by one."""

Number = int | float


@dataclass(frozen=True, slots=True)
class Fact:
    """What is known of one input.

    Attributes:
        type: its element type; None is unknown.
        shape: its shape; None where even the rank is unknown.
        value: the numbers in it, needed of axis and lengths alone: one number for a scalar, a tuple for a
            1-D tensor (an entry that is not known is None); None is unknown.
    """

    type: ElementType | None = None
    shape: Shape | None = None
    value: Number | tuple[Number | None, ...] | None = None


def fact_of(array: np.ndarray[Any, Any], *, value: bool) -> Fact:
    """Return what an array says of an input, its numbers included where asked (of rank 0 and 1)."""
    numbers: Any = None
    if value and np.ma.is_masked(array):
        return Fact(foreign_type(f"masked {array.dtype}"), array.shape)
    if value and array.ndim <= 1:
        numbers = array.tolist()
        if array.ndim:
            numbers = tuple(numbers)
    return Fact(element_type_of(array.dtype) or foreign_type(str(array.dtype)), array.shape, numbers)


def foreign_type(name: str) -> ElementType:
    """Return a type for a dtype that neither dialect has: no version takes it, and messages name it."""
    return ElementType(name, bits=0)


@dataclass(frozen=True, slots=True)
class Binding:
    """What is proved of one split: as much as the facts allow.

    Attributes:
        schema: the operator version.
        data: what is known of the tensor to split.
        axis: the split axis, in [0, rank) where the rank is known; None is unknown.
        division: how the axis is divided; None where the lengths are not known.
        lengths: the lengths as far as they are known, where ``division`` is None; None is unknown.
        squeeze: whether the parts lose the axis; None is unknown.
        outputs: number of declared outputs; None where none are declared.
        where: the place in a model.
        lengths_shape: the shape of the tensor of lengths; None where it is unknown or no tensor.
    """

    schema: OperatorSchema
    data: Fact
    axis: int | None
    division: Division | None
    lengths: tuple[int | None, ...] | None
    squeeze: bool | None
    outputs: int | None
    where: Where
    lengths_shape: Shape | None = None

    def request(self) -> SplitRequest:
        """Return the request of a binding of which everything is known."""
        shape = self.data.shape
        assert shape is not None
        if self.axis is None:
            got, expected = "axis has no value", "it must be an integer"
            raise rule_error(str(self.schema), Rule.AXIS_DTYPE, got, expected, where=self.where)
        if self.division is None:
            raise rule_error(
                str(self.schema),
                Rule.LENGTHS_DTYPE,
                f"{self.schema.lengths[-1].name} = {shown(list(self.lengths or ()))}",
                "each length must be an integer",
                where=self.where,
            )
        assert self.squeeze is not None
        sizes = tuple(dim for dim in shape if isinstance(dim, int))
        assert len(sizes) == len(shape)
        outputs = None if self.schema.gives_sequence else self.outputs
        return SplitRequest(self.schema, sizes, self.axis, self.division, self.squeeze, outputs, self.where)


def bind(
    schema: OperatorSchema,
    attributes: Mapping[str, Any],
    inputs: Sequence[Fact | None],
    *,
    outputs: int | None = None,
    where: Where | None = None,
) -> Binding:
    """Prove one split valid, as far as it is known.

    Args:
        schema: the operator version.
        attributes: the node's attributes by name: integers, or sequences of integers; a :class:`Fact` where
            one is given, but not all of it is known.
        inputs: what is known of each input, in the operator's order; None is an absent one.
        outputs: number of outputs that the node declares; None where nothing is declared.
        where: the place in a model, for messages.

    Raises:
        RuleError: the first rule that is broken, in the order of the inputs: ``op.version`` for
            attributes and inputs that this version does not have, ``type.unsupported``, ``axis.*``,
            ``keepdims.value``, ``lengths.*``, ``parts.*``, ``chunk.positive``, ``remainder.*``,
            ``outputs.count``.
        ModelError: the data input is absent.
    """
    return _Binder(schema, attributes, inputs, outputs, where or NOWHERE).bind()


class _Binder:
    """One call of :func:`bind`: its arguments, so that every check can name them."""

    def __init__(
        self,
        schema: OperatorSchema,
        attributes: Mapping[str, Any],
        inputs: Sequence[Fact | None],
        outputs: int | None,
        where: Where,
    ) -> None:
        self.schema = schema
        self.attributes = attributes
        self.inputs = inputs
        self.outputs = outputs
        self.where = where

    def bind(self) -> Binding:
        schema = self.schema
        self._check_names()
        data = self._input(schema.inputs[0].name)
        assert data is not None
        self._check_type(data)
        lengths, count = self._sources()
        axis = self._axis(data)
        keepdims = self._keepdims()
        squeeze = False if lengths is not None or keepdims == 1 else None if keepdims is None else True
        if schema.gives_sequence and self.outputs not in (None, 1):
            raise self._error(
                Rule.OUTPUTS_COUNT, f"{self.outputs} outputs are declared", "it gives one sequence"
            )
        partial: tuple[int | None, ...] | None = None
        lengths_shape: Shape | None = None
        division: Division | None
        subject: Source
        if lengths is not None:
            fact = self._lengths_fact(lengths, data)
            division, partial = self._lengths(lengths, fact)
            lengths_shape = fact.shape
            subject = lengths
        else:
            division = self._count(count)
            subject = count or Source(Given.ATTRIBUTE, "split")
        if data.shape is not None and (division is not None or partial is not None):
            self._check_size(division, partial, subject, data.shape, axis)
        return Binding(
            schema, data, axis, division, partial, squeeze, self.outputs, self.where, lengths_shape
        )

    # What the node has

    def _check_names(self) -> None:
        schema = self.schema
        for name in self.attributes:
            if schema.attribute(name) is None:
                raise self._error(
                    Rule.OPERATOR_VERSION,
                    f"attribute {shown(name)} is given",
                    f"{schema} has {_listing([a.name for a in schema.attributes], 'attribute')}",
                    attribute=name,
                )
        if any(fact is not None for fact in self.inputs[len(schema.inputs) :]):
            raise self._error(
                Rule.OPERATOR_VERSION,
                f"{len(self.inputs)} inputs are given",
                f"{schema} has {_listing([p.name for p in schema.inputs], 'input')}",
            )
        for parameter in schema.inputs:
            if parameter.option is Option.SINGLE and self._input(parameter.name) is None:
                raise self._absent(parameter)

    def _absent(self, parameter: Parameter) -> SplitError:
        source = Source(Given.INPUT, parameter.name)
        got, expected = f"{parameter.name} is absent", f"{self.schema} requires it"
        if source in self.schema.lengths:
            return self._error(Rule.LENGTHS_MISSING, got, expected, source=source)
        if source == self.schema.axis:
            return self._error(Rule.AXIS_DTYPE, got, expected, source=source)
        return ModelError(f"{self.schema}: {got}, but {expected}", replace(self.where, input=parameter.name))

    def _check_type(self, data: Fact) -> None:
        parameter = self.schema.inputs[0]
        taken = self.schema.types_of(parameter)
        if data.type is not None and data.type not in taken:
            raise self._error(
                Rule.TYPE_UNSUPPORTED,
                f"{parameter.name} has element type {data.type}",
                f"{self.schema} takes {', '.join(sorted(map(str, taken)))}",
                source=Source(Given.INPUT, parameter.name),
                type=str(data.type),
            )

    def _input(self, name: str) -> Fact | None:
        index = self.schema.input_index(name)
        return self.inputs[index] if index < len(self.inputs) else None

    def _parameter(self, name: str) -> Parameter:
        return self.schema.inputs[self.schema.input_index(name)]

    def _sources(self) -> tuple[Source | None, Source | None]:
        """Return where the lengths stand, if anywhere, and where the number of parts does."""
        schema = self.schema
        given = [source for source in schema.lengths if self._is_given(source)]
        if len(given) > 1:
            words = " and ".join(map(str, given))
            raise self._error(Rule.LENGTHS_CONFLICT, f"{words} are given", "only one of them may be")
        lengths = given[0] if given else None
        count = schema.count if schema.count is not None and self._is_given(schema.count) else None
        if schema.exclusive and lengths is not None and count is not None:
            raise self._error(
                Rule.LENGTHS_CONFLICT, f"both {lengths} and {count} are given", "exactly one must be"
            )
        if lengths is None and count is None and schema.default_chunk is None:
            sources = [*schema.lengths, *([schema.count] if schema.count else [])]
            raise self._error(
                Rule.LENGTHS_MISSING,
                f"no {' and no '.join(map(str, sources))} is given",
                "exactly one must be" if len(sources) > 1 else "it must be",
            )
        return lengths, count

    def _is_given(self, source: Source) -> bool:
        match source.given:
            case Given.ATTRIBUTE:
                return source.name in self.attributes
            case Given.INPUT:
                return self._input(source.name) is not None
            case Given.OUTPUTS:
                return self.outputs is not None

    # Axis and keepdims

    def _axis(self, data: Fact) -> int | None:
        source = self.schema.axis
        value: Any
        if source.given is Given.ATTRIBUTE:
            value = self.attributes.get(source.name, self.schema.default_axis)
            known = not isinstance(value, Fact)
            axis = exact_integer(value) if known else None
            if axis is None and known:
                raise self._error(
                    Rule.AXIS_DTYPE,
                    f"axis = {shown(value)}",
                    "it must be an integer",
                    source=source,
                    axis=value,
                )
        else:
            axis = self._axis_input(source)
        if data.shape is None:
            return axis
        rank = len(data.shape)
        if rank == 0:
            raise self._error(
                Rule.AXIS_RANGE, "data has rank 0", "there is no axis to split", source=source, axis=axis
            )
        if axis is None:
            return None
        if not -rank <= axis < rank:
            raise self._error(
                Rule.AXIS_RANGE,
                f"axis = {shown(axis)}",
                f"data {_write(data.shape)} takes an axis in [{-rank}, {rank - 1}]",
                source=source,
                axis=axis,
                shape=data.shape,
            )
        return axis % rank

    def _axis_input(self, source: Source) -> int | None:
        fact, parameter = self._input(source.name), self._parameter(source.name)
        assert fact is not None
        if fact.type is not None and fact.type not in self.schema.types_of(parameter):
            raise self._error(
                Rule.AXIS_DTYPE,
                f"axis has element type {fact.type}",
                "it must be of an integer type",
                source=source,
                type=str(fact.type),
            )
        ranks = parameter.ranks or ()
        if fact.shape is not None and (
            len(fact.shape) not in ranks or any(isinstance(dim, int) and dim != 1 for dim in fact.shape)
        ):
            raise self._error(
                Rule.AXIS_RANK,
                f"axis has shape {_write(fact.shape)}",
                "it must be a scalar" + (" or of shape [1]" if 1 in ranks else ""),
                source=source,
                shape=fact.shape,
            )
        value = fact.value[0] if isinstance(fact.value, tuple) else fact.value
        return None if value is None else int(value)

    def _keepdims(self) -> int | None:
        attribute = self.schema.attribute("keepdims")
        if attribute is None:
            return 1
        value = self.attributes.get("keepdims", attribute.default)
        if isinstance(value, Fact):
            return None
        keepdims = int(value) if isinstance(value, bool | np.bool_) else exact_integer(value)
        if keepdims not in (0, 1):
            source = Source(Given.ATTRIBUTE, "keepdims")
            raise self._error(
                Rule.KEEPDIMS_VALUE,
                f"keepdims = {shown(value)}",
                "it must be 0 or 1",
                source=source,
                keepdims=value,
            )
        return keepdims

    # Lengths and number of parts

    def _lengths(self, source: Source, fact: Fact) -> tuple[Division | None, tuple[int | None, ...] | None]:
        """Return the division that the lengths ask for, or the lengths as far as they are known."""
        if fact.value is None:
            return None, self._unknown_lengths(source, fact)
        if not isinstance(fact.value, tuple):
            return self._chunk(source, fact.value), None
        lengths = tuple(self._length(source, value) for value in fact.value)
        self._check_lengths(source, lengths)
        known = tuple(length for length in lengths if length is not None)
        if len(known) < len(lengths):
            return None, lengths
        rule = self.schema.lengths_rule
        if rule is SizeRule.REMAINDER and -1 not in known:
            rule = SizeRule.EXPLICIT
        return Division(rule, lengths=known), None

    def _unknown_lengths(self, source: Source, fact: Fact) -> tuple[None, ...] | None:
        """Return as many unknown lengths as there are, where that is known."""
        count: Any = None
        if fact.shape is not None and len(fact.shape) == 1:
            count = fact.shape[0]
        elif not self.schema.gives_sequence:
            count = self.outputs
        if not isinstance(count, int):
            return None
        self._check_length_count(source, count)
        return (None,) * count if count <= _MAX_UNKNOWN else None

    def _attribute_fact(self, source: Source) -> Fact:
        value = self.attributes[source.name]
        if isinstance(value, Fact):
            return value
        attribute = self.schema.attribute(source.name)
        assert attribute is not None
        assert attribute.type is AttributeType.INTS
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Sequence):
            raise self._error(
                Rule.LENGTHS_RANK,
                f"{source.name} = {shown(value)}",
                "it must be a list of integers",
                source=source,
            )
        integers = tuple(map(exact_integer, value))
        if None in integers:
            odd = value[integers.index(None)]
            raise self._error(
                Rule.LENGTHS_DTYPE,
                f"{source.name} has {shown(odd)} in it",
                "it must be a list of integers",
                source=source,
                value=odd,
            )
        return Fact(None, (len(integers),), integers)

    def _lengths_fact(self, source: Source, data: Fact) -> Fact:
        if source.given is Given.ATTRIBUTE:
            return self._attribute_fact(source)
        fact, parameter = self._input(source.name), self._parameter(source.name)
        assert fact is not None
        taken = self.schema.types_of(parameter)
        if parameter.type == self.schema.inputs[0].type and data.type is not None:
            taken = frozenset({data.type})  # one type name is one type
        if fact.type is not None and fact.type not in taken:
            raise self._error(
                Rule.LENGTHS_DTYPE,
                f"{source.name} has element type {fact.type}",
                f"it must be {' or '.join(sorted(map(str, taken)))}",
                source=source,
                type=str(fact.type),
            )
        ranks = parameter.ranks or ()
        if fact.shape is not None and len(fact.shape) not in ranks:
            raise self._error(
                Rule.LENGTHS_RANK,
                f"{source.name} has shape {_write(fact.shape)}",
                "it must be 1-D" + (" or a scalar" if 0 in ranks else ""),
                source=source,
                shape=fact.shape,
            )
        return fact

    def _length(self, source: Source, value: Number | None) -> int | None:
        """Return one length as an integer, without losing any of its value."""
        if value is None:
            return None
        exact = value == int(value) if isinstance(value, int) or math.isfinite(value) else False
        if not exact or not _INT64_MIN <= value <= _INT64_MAX:
            raise self._error(
                Rule.LENGTHS_VALUE,
                f"{source.name} has {shown(value)} in it",
                "each length must be a 64-bit integer",
                source=source,
                value=value,
            )
        return int(value)

    def _check_lengths(self, source: Source, lengths: tuple[int | None, ...]) -> None:
        minimum = self._minimum(source)
        for index, length in enumerate(lengths):
            if length is not None and length < minimum:
                raise self._error(
                    Rule.LENGTHS_NEGATIVE,
                    f"{source.name} = {brief(lengths)} has {length} at index {index}",
                    f"each length must be >= {minimum}",
                    source=source,
                    lengths=lengths,
                    index=index,
                )
        if lengths.count(-1) > 1:
            raise self._error(
                Rule.REMAINDER_REPEATED,
                f"{source.name} = {brief(lengths)} has {lengths.count(-1)} entries of -1",
                "only one may be",
                source=source,
                lengths=lengths,
            )
        self._check_length_count(source, len(lengths))

    def _minimum(self, source: Source) -> int:
        item: Attribute | Parameter | None
        if source.given is Given.ATTRIBUTE:
            item = self.schema.attribute(source.name)
        else:
            item = self._parameter(source.name)
        assert item is not None
        assert item.minimum is not None
        return item.minimum

    def _check_length_count(self, source: Source, count: int) -> None:
        if self.schema.gives_sequence:
            return
        if count == 0:
            raise self._error(
                Rule.LENGTHS_COUNT,
                f"{source.name} is empty",
                f"{self.schema} gives at least one part",
                source=source,
            )
        if self.outputs is not None and count != self.outputs:
            raise self._error(
                Rule.LENGTHS_COUNT,
                f"{source.name} has {count} lengths",
                f"{self.outputs} outputs are declared",
                source=source,
                count=count,
                outputs=self.outputs,
            )

    def _chunk(self, source: Source, value: Number) -> Division:
        chunk = self._length(source, value)
        assert chunk is not None
        if chunk < 1:
            raise self._error(
                Rule.CHUNK_POSITIVE,
                f"{source.name} = {chunk}",
                "a scalar must be >= 1",
                source=source,
                chunk=chunk,
            )
        return Division(SizeRule.CHUNK, chunk=chunk)

    def _count(self, source: Source | None) -> Division | None:
        schema = self.schema
        if source is None:
            assert schema.default_chunk is not None
            return Division(SizeRule.CHUNK, chunk=schema.default_chunk)
        assert schema.count_rule is not None
        if source.given is Given.OUTPUTS:
            assert self.outputs is not None
            if self.outputs < 1:
                raise self._error(
                    Rule.OUTPUTS_COUNT, f"{self.outputs} outputs are declared", "there must be at least one"
                )
            return Division(schema.count_rule, count=self.outputs)
        value = self.attributes[source.name]
        if isinstance(value, Fact):
            return None
        count = exact_integer(value)
        if count is None or not self._minimum(source) <= count <= _INT64_MAX:
            raise self._error(
                Rule.PARTS_COUNT,
                f"{source.name} = {shown(value)}",
                "it must be a 64-bit integer >= 1",
                source=source,
                count=value,
            )
        if self.outputs is not None and not 1 <= self.outputs <= count:
            raise self._error(
                Rule.OUTPUTS_COUNT,
                f"{self.outputs} outputs are declared",
                f"{source.name} = {count}",
                source=source,
                outputs=self.outputs,
                count=count,
            )
        return Division(schema.count_rule, count=count)

    def _check_size(
        self,
        division: Division | None,
        partial: tuple[int | None, ...] | None,
        subject: Source,
        shape: Shape,
        axis: int | None,
    ) -> None:
        """Prove that a size that the axis can have fits; of an unknown axis, that some axis has one."""
        lengths = partial if division is None else division.lengths
        least = free_lengths(partial) if division is None and partial is not None else division
        assert least is not None
        axes = range(len(shape)) if axis is None else (axis,)
        if not axes or any(fitting(least, shape[index]) is not None for index in axes):
            return
        size = shape[axes[-1]]
        largest = size if isinstance(size, int) else size.lo if size.hi is None else size.hi
        broken = violation(least, largest)
        assert broken is not None
        rule, text, got = broken.rule, describe(least, subject.name or "number of outputs"), broken.got
        if division is None:
            text = f"{subject.name} = {brief(lengths or ())}"
            if -1 not in (lengths or ()):
                rule, got = Rule.LENGTHS_SUM, f"sums to at least {sum(least.lengths) + 1}"
        if isinstance(size, Range):
            broken = replace(broken, expected="has no size that fits")
        place = f"axis {axis} of data {_write(shape)} {broken.expected}"
        raise self._error(
            rule,
            f"{text} {got}",
            place if axis is not None else f"no axis of data {_write(shape)} fits",
            source=subject,
            lengths=lengths,
            axis=axis,
            shape=shape,
            size=size,
        )

    def _error(
        self, rule: Rule, got: str, expected: str, *, source: Source | None = None, **values: Any
    ) -> RuleError:
        where = self.where
        if source is not None and source.given is Given.ATTRIBUTE:
            where = replace(where, attribute=source.name)
        elif source is not None and source.given is Given.INPUT:
            where = replace(where, input=source.name)
        return rule_error(str(self.schema), rule, got, expected, where=where, **values)


def _write(shape: Shape) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def _listing(names: Sequence[str], noun: str) -> str:
    if not names:
        return f"no {noun}"
    return f"the {noun}{'s' if len(names) > 1 else ''} {', '.join(names)}"
