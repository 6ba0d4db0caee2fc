"""Find all independent faults of one split, for tools that repair models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from splitops.errors import ModelError, Rule, RuleError, SplitError, Where
from splitops.spec.operators.schemas import OperatorSchema, SourceKind, ValueSource
from splitops.splitting.binding import Fact, bind
from splitops.splitting.inference import infer_binding

_LAST: Final = frozenset({Rule.LENGTHS_SUM, Rule.PARTS_DIVISIBLE, Rule.REMAINDER_NEGATIVE})
"""Rules that can only be checked if everything else is valid."""
_COUNTS: Final = frozenset({Rule.LENGTHS_MISSING, Rule.OUTPUTS_COUNT})
_SETTLED: Final = frozenset({Rule.OPERATOR_VERSION, Rule.OUTPUTS_COUNT})
_NUMBERS: Final = frozenset({Rule.LENGTHS_NEGATIVE, Rule.LENGTHS_VALUE, Rule.REMAINDER_REPEATED})
_FOLLOWING: Final = (
    (_COUNTS, _SETTLED),
    (_LAST, frozenset({Rule.OPERATOR_VERSION})),  # a removed attribute may have set the lengths
    (_LAST, _NUMBERS),  # a sum without one of its lengths means nothing
)
"""Pairs of sets of rules. Once a rule of the second set is broken, those of the first are not reported."""
_TYPES: Final = frozenset({Rule.TYPE_UNSUPPORTED, Rule.LENGTHS_DTYPE, Rule.AXIS_DTYPE})


def find_faults(
    schema: OperatorSchema,
    attributes: Mapping[str, Any],
    inputs: Sequence[Fact | None],
    *,
    outputs: int | None = None,
    where: Where | None = None,
    first: SplitError | None = None,
) -> list[SplitError]:
    """Find everything that is wrong with one split. The arguments are those of :func:`bind`.

    When a fault is found, its cause is removed or made unknown, so that only independent faults follow.
    ``first`` is the error of the split if the caller has bound it already.

    Returns:
        The errors, beginning with the one that :func:`bind` or inference raises; empty if the split is valid.

    Examples:
        >>> from splitops.spec.operators import schema
        >>> lengths = Fact(None, (3,), (2, -1, 9))
        >>> found = find_faults(schema("Split", 18), {"axis": 4}, [Fact(None, (5,)), lengths], outputs=2)
        >>> [str(error.rule) for error in found]
        ['axis.range', 'lengths.negative', 'lengths.count']
    """
    given = _Arguments(schema, dict(attributes), list(inputs), outputs, where)
    found: dict[tuple[object, ...], SplitError] = {}
    for error in given.iter_faults(frozenset(), first):
        found.setdefault((getattr(error, "rule", None), error.message), error)
    return list(found.values())


@dataclass(slots=True)
class _Arguments:
    """The arguments of a split, without those in which a fault was found."""

    schema: OperatorSchema
    attributes: dict[str, Any]
    inputs: list[Fact | None]
    outputs: int | None
    where: Where | None

    def iter_faults(self, before: frozenset[Rule], error: SplitError | None = None) -> Iterator[SplitError]:
        """Yield the remaining faults, ``error`` first if it is known already.

        ``before`` are the rules that were already found to be broken.
        """
        error = error or self._find_error()
        if not isinstance(error, RuleError):
            yield from () if error is None else (error,)  # the data input is absent
            return
        rule = error.rule
        if not any(rule in rules and before & causes for rules, causes in _FOLLOWING):
            yield error
        if rule in before and rule is not Rule.OPERATOR_VERSION:
            return  # removing its cause had no effect
        for rest in () if rule in _LAST else self._remove_cause(error):
            yield from rest.iter_faults(before | {rule})

    def _find_error(self) -> SplitError | None:
        try:
            infer_binding(
                bind(self.schema, self.attributes, self.inputs, outputs=self.outputs, where=self.where)
            )
        except (RuleError, ModelError) as error:
            return error
        return None

    def _remove_cause(self, error: RuleError) -> Iterator[_Arguments]:
        """Yield the arguments without the cause of an error. If several conflict, leave out one at a time."""
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
                given_as = SourceKind.ATTRIBUTE if input_ is None else SourceKind.INPUT
                source = ValueSource(given_as, attribute or input_ or "")
                yield self._with(source, self._hide_invalid_lengths(source, error))
            case rule if rule in _TYPES and input_ is not None:
                source = ValueSource(SourceKind.INPUT, input_)
                yield self._with(source, replace(self._get_fact(source), type=None))
            case _ if attribute is not None:
                yield self._with(ValueSource(SourceKind.ATTRIBUTE, attribute), Fact())
            case _ if input_ is not None:
                yield self._with(ValueSource(SourceKind.INPUT, input_), Fact())

    def _has(self, source: ValueSource) -> bool:
        if source.kind is SourceKind.INPUT:
            index = self.schema.input_index(source.name)
            return index < len(self.inputs) and self.inputs[index] is not None
        return source.kind is SourceKind.ATTRIBUTE and source.name in self.attributes

    def _get_fact(self, source: ValueSource) -> Fact:
        """Return the facts about an input, or about lengths in an attribute."""
        if source.kind is SourceKind.INPUT:
            return self.inputs[self.schema.input_index(source.name)] or Fact()
        value = tuple(self.attributes[source.name])
        return Fact(None, (len(value),), value)

    def _without_source(self, source: ValueSource) -> _Arguments:
        if source.kind is SourceKind.INPUT:
            return self._with(source, None)
        return replace(
            self, attributes={name: value for name, value in self.attributes.items() if name != source.name}
        )

    def _with(self, source: ValueSource, fact: Fact | None) -> _Arguments:
        if source.kind is SourceKind.ATTRIBUTE:
            return replace(self, attributes={**self.attributes, source.name: fact})
        index = self.schema.input_index(source.name)
        inputs = [*self.inputs, *[None] * (index + 1 - len(self.inputs))]
        inputs[index] = fact
        return replace(self, inputs=inputs)

    def _hide_invalid_lengths(self, source: ValueSource, error: RuleError) -> Fact:
        """Return the facts about lengths, with those unknown that break the rule of ``error``.

        For ``lengths.value``, only the first such length becomes unknown.
        """
        fact = self._get_fact(source)
        if not isinstance(fact.value, tuple):
            return replace(fact, value=None)
        match error.rule:
            case Rule.LENGTHS_VALUE:
                # Only the first such length. `in` compares by identity first: NaN does not equal itself.
                at = next(at for at, one in enumerate(fact.value) if one in (error.values["value"],))
                return replace(fact, value=(*fact.value[:at], None, *fact.value[at + 1 :]))
            case Rule.REMAINDER_REPEATED:
                least = 0
            case _:
                least = _get_minimum(self.schema, source)
        return replace(
            fact, value=tuple(None if one is not None and one < least else one for one in fact.value)
        )


def _get_minimum(schema: OperatorSchema, source: ValueSource) -> int:
    """Return the smallest length in ``source`` that an operator accepts."""
    if source.kind is SourceKind.INPUT:
        return schema.inputs[schema.input_index(source.name)].minimum or 0
    attribute = schema.attribute(source.name)
    return 0 if attribute is None else attribute.minimum or 0
