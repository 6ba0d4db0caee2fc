"""All faults of one split that do not follow from one another, for those who mend a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from splitops.errors import ModelError, Rule, RuleError, SplitError, Where
from splitops.spec.operators.schemas import Given, OperatorSchema, Source
from splitops.splitting.binding import Fact, bind
from splitops.splitting.inference import infer_binding

_LAST: Final = frozenset({Rule.LENGTHS_SUM, Rule.PARTS_DIVISIBLE, Rule.REMAINDER_NEGATIVE})
"""Rules that are checked last, of what nothing else is wrong with."""
_COUNTS: Final = frozenset({Rule.LENGTHS_MISSING, Rule.OUTPUTS_COUNT})
_SETTLED: Final = frozenset({Rule.OPERATOR_VERSION, Rule.OUTPUTS_COUNT})
_NUMBERS: Final = frozenset({Rule.LENGTHS_NEGATIVE, Rule.LENGTHS_VALUE, Rule.REMAINDER_REPEATED})
_FOLLOWING: Final = (
    (_COUNTS, _SETTLED),
    (_LAST, frozenset({Rule.OPERATOR_VERSION})),  # what is left out may have said how to divide
    (_LAST, _NUMBERS),  # without one of the lengths, a sum means nothing
)
"""Rules that are broken only because others are: what breaks those is left out."""
_TYPES: Final = frozenset({Rule.TYPE_UNSUPPORTED, Rule.LENGTHS_DTYPE, Rule.AXIS_DTYPE})


def find_faults(
    schema: OperatorSchema,
    attributes: Mapping[str, Any],
    inputs: Sequence[Fact | None],
    *,
    outputs: int | None = None,
    where: Where | None = None,
) -> list[SplitError]:
    """Find everything that is wrong with one split: the arguments are those of :func:`bind`.

    Each fault is taken for unknown once it is found, so that only what else is wrong is found after it.

    Returns:
        The errors, the first of which is what :func:`bind` raises; empty if the split is valid.

    Examples:
        >>> from splitops.spec.operators import schema
        >>> lengths = Fact(None, (3,), (2, -1, 9))
        >>> found = find_faults(schema("Split", 18), {"axis": 4}, [Fact(None, (5,)), lengths], outputs=2)
        >>> [str(error.rule) for error in found]
        ['axis.range', 'lengths.negative', 'lengths.count']
    """
    given = _Given(schema, dict(attributes), list(inputs), outputs, where)
    found: dict[tuple[object, ...], SplitError] = {}
    for error in given.faults(frozenset()):
        found.setdefault((getattr(error, "rule", None), error.message), error)
    return list(found.values())


@dataclass(slots=True)
class _Given:
    """What a split is given, as far as no fault was found in it."""

    schema: OperatorSchema
    attributes: dict[str, Any]
    inputs: list[Fact | None]
    outputs: int | None
    where: Where | None

    def faults(self, before: frozenset[Rule]) -> Iterator[SplitError]:
        """Yield the faults that are left; some rules were found to be broken before."""
        try:
            infer_binding(
                bind(self.schema, self.attributes, self.inputs, outputs=self.outputs, where=self.where)
            )
        except RuleError as error:
            rule = error.rule
            if not any(rule in rules and before & causes for rules, causes in _FOLLOWING):
                yield error
            if rule in before and rule is not Rule.OPERATOR_VERSION:
                return  # it was not to be left out
            for rest in () if rule in _LAST else self._without(error):
                yield from rest.faults(before | {rule})
        except ModelError as error:  # there is no data
            yield error

    def _without(self, error: RuleError) -> Iterator[_Given]:
        """Yield what is given without a fault; without one or the other of two that exclude each other."""
        attribute, input_ = error.where.attribute, error.where.input
        match error.rule:
            case Rule.LENGTHS_CONFLICT:
                sources = [*self.schema.lengths, *filter(None, [self.schema.count])]
                given = [source for source in sources if self._has(source)]
                yield from (self._without_source(source) for source in given)
            case Rule.LENGTHS_MISSING:
                sources = [*filter(None, [self.schema.count]), *self.schema.lengths]
                yield self._with(sources[-1], Fact())
            case Rule.OPERATOR_VERSION:
                names = {one.name for one in self.schema.attributes}
                known = {name: value for name, value in self.attributes.items() if name in names}
                yield replace(self, attributes=known, inputs=self.inputs[: len(self.schema.inputs)])
            case Rule.LENGTHS_COUNT | Rule.OUTPUTS_COUNT:
                yield replace(self, outputs=None)
            case rule if rule in _NUMBERS:
                given_as = Given.ATTRIBUTE if input_ is None else Given.INPUT
                source = Source(given_as, attribute or input_ or "")
                yield self._with(source, self._without_numbers(source, error))
            case rule if rule in _TYPES and input_ is not None:
                source = Source(Given.INPUT, input_)
                yield self._with(source, replace(self._fact(source), type=None))
            case _ if attribute is not None:
                yield self._with(Source(Given.ATTRIBUTE, attribute), Fact())
            case _ if input_ is not None:
                yield self._with(Source(Given.INPUT, input_), Fact())

    def _has(self, source: Source) -> bool:
        if source.given is Given.INPUT:
            index = self.schema.input_index(source.name)
            return index < len(self.inputs) and self.inputs[index] is not None
        return source.given is Given.ATTRIBUTE and source.name in self.attributes

    def _fact(self, source: Source) -> Fact:
        """Return what is known of lengths."""
        if source.given is Given.INPUT:
            return self.inputs[self.schema.input_index(source.name)] or Fact()
        value = tuple(self.attributes[source.name])
        return Fact(None, (len(value),), value)

    def _without_source(self, source: Source) -> _Given:
        if source.given is Given.INPUT:
            return self._with(source, None)
        return replace(
            self, attributes={name: value for name, value in self.attributes.items() if name != source.name}
        )

    def _with(self, source: Source, fact: Fact | None) -> _Given:
        if source.given is Given.ATTRIBUTE:
            return replace(self, attributes={**self.attributes, source.name: fact})
        index = self.schema.input_index(source.name)
        inputs = [*self.inputs, *[None] * (index + 1 - len(self.inputs))]
        inputs[index] = fact
        return replace(self, inputs=inputs)

    def _without_numbers(self, source: Source, error: RuleError) -> Fact:
        """Return lengths in which those that break a rule are unknown."""
        fact = self._fact(source)
        if not isinstance(fact.value, tuple):
            return replace(fact, value=None)
        match error.rule:
            case Rule.LENGTHS_VALUE:
                # The first of them; NaN is not equal to itself.
                at = next(at for at, one in enumerate(fact.value) if one in (error.values["value"],))
                return replace(fact, value=(*fact.value[:at], None, *fact.value[at + 1 :]))
            case Rule.REMAINDER_REPEATED:
                least = 0
            case _:
                least = _minimum(self.schema, source)
        return replace(
            fact, value=tuple(None if one is not None and one < least else one for one in fact.value)
        )


def _minimum(schema: OperatorSchema, source: Source) -> int:
    """Return the least length that an operator takes."""
    if source.given is Given.INPUT:
        return schema.inputs[schema.input_index(source.name)].minimum or 0
    attribute = schema.attribute(source.name)
    return 0 if attribute is None else attribute.minimum or 0
