"""The predicates that limits of runtimes use in ``when``.

Each is a method of :class:`SplitPredicates`. It returns whether it is true of a split node in its model. If
that depends on unknown sizes or values, it returns None, or False if a limit is to apply only to splits of
which it is certainly true. The method's name is the text in ``when``, its argument is the number or list
after that text, and its docstring is the description in the documentation. The limits are in the files of
the runtimes; see :mod:`splitops.models.check.targets`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from itertools import accumulate
from types import FunctionType
from typing import Any, Final

import onnx_ir as ir

from splitops.common.integers import INT32_MAX
from splitops.errors import Rule, RuleError, nearest, shown
from splitops.models.formats.openvino.nodes import LayerNode, get_layer
from splitops.models.formats.walk import canonicalise, has_layers
from splitops.models.quirks import SplitKey, find_conflicting_splits, split_key
from splitops.models.split_nodes import Origin, SplitNode
from splitops.spec.elements.types import ELEMENT_TYPES
from splitops.spec.operators.schemas import SourceKind
from splitops.spec.sizes.arithmetic import Division, compute_part_sizes
from splitops.spec.sizes.dims import Dim, Range, Shape
from splitops.spec.sizes.ranges import bound_part, hull
from splitops.spec.sizes.rules import SizeRule
from splitops.splitting.binding import Fact


class Certainty(IntEnum):
    """Whether a limit applies to a split."""

    NO = 0
    MAYBE = 1
    """It depends on unknown sizes or values."""
    YES = 2


@dataclass(frozen=True, slots=True)
class ModelContext:
    """Facts about the model that predicates of a split node need. They are empty for OpenVINO IR."""

    outputs: frozenset[str] = frozenset()
    conflicting: frozenset[SplitKey] = frozenset()
    opset: int | None = None

    @classmethod
    def from_model(cls, model: ir.Model) -> ModelContext:
        """Collect the facts about a well-formed model."""
        if has_layers(model):
            return cls()
        outputs = frozenset(value.name or "" for value in model.graph.outputs)
        opset = model.opset_imports.get("", model.opset_imports.get("ai.onnx"))
        return cls(outputs, find_conflicting_splits(model), opset)


def _find_order(node: ir.Node) -> tuple[int, ...] | None:
    """Return the order of a Transpose, or None if it is computed. Empty reverses the axes.

    An attribute that refers to the caller of a function counts as empty, so that the limit may hold.
    """
    if type(node) is LayerNode:
        maker = node.inputs[1].producer() if node.inputs[1] is not None else None
        constant = None if maker is None else get_layer(maker).constant
        return None if constant is None else tuple(constant.read_array(node.layer.where).reshape(-1).tolist())
    order = node.attributes.get("perm")
    return () if order is None or order.is_ref() else tuple(order.value)


class SplitPredicates:
    """Predicates of a split node: every method without a leading underscore.

    Their docstrings have two sentences: the predicate, and after ``Not:`` its opposite.
    """

    def __init__(self, split_node: SplitNode, model: ModelContext) -> None:
        self._split, self._model = split_node, model
        self._data = (split_node.facts[0] if split_node.facts else None) or Fact()
        self._lengths = split_node.lengths

    @cached_property
    def _ceil(self) -> Division | None:
        """The division by num_outputs, or None if the division is another one or unknown."""
        division = self._split.division
        return division if division is not None and division.rule is SizeRule.CEIL else None

    @cached_property
    def _parts(self) -> tuple[Shape | None, ...] | None:
        return None if self._split.inference is None else self._split.inference.parts

    @cached_property
    def _last(self) -> Dim | None:
        """The size of the last of num_outputs parts, even if it is not declared."""
        division, size = self._ceil, self._split.size
        return None if division is None or size is None else bound_part(division, size, division.count - 1)

    @property
    def _num_outputs(self) -> int:
        name = self._split.schema.count_attribute
        number = None if name is None else self._split.attributes.get(name)
        return number if isinstance(number, int) else 0

    @property
    def _place_of_lengths(self) -> int:
        """The position of the input with the lengths; 1 if the operator has none."""
        given = [source for source in self._split.schema.lengths if source.kind is SourceKind.INPUT]
        return self._split.schema.input_index(given[0].name) if given else 1

    @property
    def ceil_numbers(self) -> dict[str, int] | None:
        """The fields of :attr:`Limit.message_with_sizes` for parts of ceil(D / n).

        None for other divisions, or if D is unknown.
        """
        division, size = self._ceil, self._split.size
        if division is None or not isinstance(size, int):
            return None
        axis = self._split.attributes.get("axis", 0)
        return {"count": division.count, "size": size, "axis": axis, "part": -(-size // division.count)}

    def _iter_readers(self, index: int, operator: str) -> Iterator[ir.Node]:
        """Yield the ``operator`` nodes of the same graph that read output ``index`` as their first input."""
        node = self._split.node
        for use in () if node is None else node.outputs[index].uses():
            reader = use.node
            same_domain = canonicalise(reader.domain) == canonicalise(node.domain)
            if reader.graph is node.graph and same_domain and use.idx == 0 and reader.op_type == operator:
                yield reader

    # The operator and its data

    def operator_missing(self) -> bool:
        """The runtime does not have the operator. Not: The runtime has the operator."""
        return True

    def sequence(self) -> bool:
        """The operator returns a sequence. Not: The operator does not return a sequence."""
        return self._split.schema.gives_sequence

    def opset_above(self, number: int) -> bool:
        """The model imports an ONNX opset above N. Not: The model does not import an ONNX opset above N."""
        return self._model.opset is not None and self._model.opset > number

    def opset_below(self, number: int) -> bool:
        """The model imports an ONNX opset below N. Not: The model does not import an ONNX opset below N."""
        return self._model.opset is not None and self._model.opset < number

    def inside_a_body(self) -> bool:
        """The split is in a body of If, Loop or Scan, or in a function.

        Not: The split is in the main graph.
        """
        return self._split.where.graph is not None

    def types_in(self, types: frozenset[str]) -> bool:
        """The element type of the data is one of these.

        Not: The element type of the data is none of these.
        """
        return self._data.type is not None and self._data.type.name in types

    def types_not_in(self, types: frozenset[str]) -> bool | None:
        """The element type of the data is none of these.

        Not: The element type of the data is one of these.
        """
        return None if self._data.type is None else self._data.type.name not in types

    def packed_elements(self) -> bool:
        """The elements of the data are smaller than a byte.

        Not: The elements of the data are not smaller than a byte.
        """
        return self._data.type is not None and self._data.type.packed

    def parts_inside_bytes(self) -> bool | None:
        """A part begins inside a byte, or the sizes before the axis multiply to more than 1.

        Not: Each part begins at a whole byte, and the sizes before the axis multiply to at most 1.
        """
        axis, kind, parts = self._split.axis, self._data.type, self._parts
        if axis is None or kind is None or parts is None or None in parts:
            return None
        shapes = [tuple(size for size in part or () if isinstance(size, int)) for part in parts]
        if any(len(shape) != len(part or ()) for shape, part in zip(shapes, parts, strict=True)):
            return None
        begins = accumulate(math.prod(shape[axis:]) * kind.bits for shape in shapes[:-1])
        return math.prod(shapes[0][:axis]) > 1 or any(begin % 8 for begin in begins)

    def constant_data(self) -> bool:
        """The data is a constant. Not: The data is not a constant."""
        return self._split.origins[:1] == (Origin.MODEL,)

    def values_beyond_32_bits(self) -> bool | None:
        """A value of the data does not fit in an int32. Not: All values of the data fit in an int32."""
        value = self._data.value
        if not isinstance(value, tuple):
            return None
        # Unknown entries are sizes computed from shapes, which are far below 2^31.
        integers = [entry for entry in value if entry is not None]
        return any(not -INT32_MAX - 1 <= entry <= INT32_MAX or entry != int(entry) for entry in integers)

    def rank_above(self, number: int) -> bool | None:
        """The data has more than N axes. Not: The data has at most N axes."""
        return None if self._data.shape is None else len(self._data.shape) > number

    def rank_unknown(self) -> bool | None:
        """The model does not determine the number of axes of the data.

        Not: The model determines the number of axes of the data.
        """
        # The runtime may infer more about the data than splitops.
        return None if self._split.facts and self._data.shape is None else False

    # The axis

    def negative_axis(self) -> bool | None:
        """The axis is counted from the end. Not: The axis is counted from the front."""
        split_node, source = self._split, self._split.schema.axis
        if source.kind is SourceKind.ATTRIBUTE:
            axis = split_node.attributes.get(source.name, 0)
            return isinstance(axis, int) and axis < 0
        index = split_node.schema.input_index(source.name)
        fact = split_node.facts[index] if index < len(split_node.facts) else None
        value = None if fact is None else fact.value
        value = value[0] if isinstance(value, tuple) and len(value) == 1 else value
        return value < 0 if isinstance(value, int) else None

    def axis_left_out(self) -> bool:
        """The split does not set its axis. Not: The split sets its axis."""
        name = self._split.schema.axis.name
        given = name in self._split.attributes or name in self._split.references
        return self._split.schema.axis.kind is SourceKind.ATTRIBUTE and not given

    def axis_not_in(self, axes: frozenset[int]) -> bool | None:
        """The axis is none of these; negative ones are counted from the end.

        Not: The axis is one of these.
        """
        axis, shape = self._split.axis, self._data.shape
        if axis is None or shape is None:
            return False if axis in axes else None
        at = axis % len(shape)
        return axes.isdisjoint({at, at - len(shape)})

    def open_axis(self) -> bool:
        """The size of the axis is known only at run time.

        Not: The size of the axis is known before the run.
        """
        return not isinstance(self._split.size, int)

    def empty_axis(self) -> bool | None:
        """The size of the axis is 0. Not: The size of the axis is not 0."""
        return self._split.size == 0 if isinstance(self._split.size, int) else None

    def size_above(self, number: int) -> bool:
        """The axis has more than N elements; the lengths may imply it.

        Not: The axis has at most N elements.
        """
        return _is_above(self._split.implied_size, number)

    def declared_size_above(self, number: int) -> bool:
        """The declared size of the axis is above N. Not: The declared size of the axis is not above N."""
        return _is_above(self._split.size, number)

    # The lengths of the parts

    def uneven(self) -> bool | None:
        """The parts do not all have the same size. Not: All parts have the same size."""
        fact, division, size = self._lengths, self._split.division, self._split.size
        listed = fact is not None and (fact.shape != () or self._split.schema.scalar_rule is None)
        if (
            division is None and fact is not None and listed
        ):  # the lengths are unknown, or do not fit the data
            lengths = fact.value if isinstance(fact.value, tuple) else (None,)
            return None if None in lengths else len(set(lengths)) > 1
        if division is None:
            return False if self._split.binding is None else None
        match division.rule:
            case SizeRule.EVEN:
                return False
            case SizeRule.EXPLICIT:
                return len(set(division.lengths)) > 1
            case SizeRule.CHUNK if isinstance(size, int):
                return size > division.chunk and size % division.chunk != 0
            case SizeRule.REMAINDER if isinstance(size, int):
                return len(set(compute_part_sizes(division, size, len(division.lengths)))) > 1
            case SizeRule.CEIL if isinstance(size, int):
                # Later parts are never larger, so it is enough to compare the last with the first.
                return self._last != bound_part(division, size, 0)
        one = division.count == 1 or division.chunk == 1 or len(division.lengths) == 1
        return False if one else None

    def last_part_smaller(self) -> bool | None:
        """The last part is smaller, because num_outputs or a chunk does not divide the axis.

        Not: The last part is not smaller.
        """
        division = self._split.division
        smaller = division is not None and division.rule in (SizeRule.CEIL, SizeRule.CHUNK)
        return self.uneven() if smaller else False

    def last_part_smaller_by_more_than(self, number: int) -> bool | None:
        """The last of num_outputs parts is more than N elements smaller than the first.

        Not: The last of num_outputs parts is at most N elements smaller than the first.
        """
        division, size, last = self._ceil, self._split.size, self._last
        if division is None or not isinstance(size, int) or not isinstance(last, int):
            return self.last_part_smaller() if division is not None else False
        return -(-size // division.count) - last > number

    def last_part_empty(self) -> bool | None:
        """The last of num_outputs parts is empty. Not: The last of num_outputs parts is not empty."""
        last = self._last
        if last is None or isinstance(last, int):
            return last == 0
        # If the size has no upper bound, an empty part is possible only in theory.
        return None if last.lo == 0 and last.hi is not None else False

    def last_part_empty_at_run_time(self) -> bool | None:
        """It is known only at run time whether the last of num_outputs parts is empty.

        Not: It is known before the run whether the last of num_outputs parts is empty.
        """
        if self._ceil is None or self._num_outputs < 1:
            return False
        last = self._last
        is_open = last is None or (isinstance(last, Range) and last.lo == 0 and last.hi is None)
        return None if is_open else False

    def last_part_beyond_the_axis(self) -> bool:
        """Parts of ceil(D / n) reach beyond the axis before the last part begins.

        Not: Parts of ceil(D / n) do not reach beyond the axis before the last part begins.
        """
        numbers = self.ceil_numbers
        return numbers is not None and numbers["part"] * (numbers["count"] - 1) > numbers["size"]

    def empty_part(self) -> bool | None:
        """A part has size 0 on the axis. Not: No part has size 0 on the axis."""
        axis, division, parts = self._split.axis, self._split.division, self._parts
        if axis is None or parts is None:
            return False
        sizes = [None if part is None else part[axis] for part in parts]
        if 0 in sizes:
            return True
        if division is not None and division.rule is SizeRule.CEIL:
            empty = self.last_part_empty()
            return self.last_part_empty_at_run_time() if empty is False else empty
        least = hull(*sizes)
        given = division is None or division.rule is SizeRule.REMAINDER
        return None if given and isinstance(least, Range) and least.lo == 0 else False

    def empty_part_as_an_output(self) -> bool | None:
        """An empty part is an output of the model. Not: No empty part is an output of the model."""
        if self._split.inference is None:
            return False
        outputs, known = self._split.outputs, self._model.outputs
        parts = zip(outputs, self._parts or (), strict=False)
        if any(shape is not None and 0 in shape and name in known for name, shape in parts):
            return True
        return self.last_part_empty_at_run_time() if outputs[-1] in known else False

    def empty_part_transposed(self) -> bool:
        """A Transpose moves the axis of a part of size 0 past axes of size 1 only.

        Not: No Transpose moves the axis of a part of size 0 past axes of size 1 only.
        """
        return any(
            part is not None and (order := _find_order(reader)) is not None and _is_zero_moved(part, order)
            for index, part in enumerate((self._parts or ())[: len(self._split.outputs)])
            for reader in self._iter_readers(index, "Transpose")
        )

    def equal_parts(self) -> bool:
        """The axis is divided by a number of parts, not by a list of lengths.

        Not: The axis is not divided by a number of parts.
        """
        return self._split.division is not None and self._split.division.count > 0

    def lengths_given(self) -> bool:
        """The split sets lengths, and they are known.

        Not: The split does not set lengths, or they are not known.
        """
        return self._split.division is not None and bool(self._split.division.lengths)

    def length_above(self, number: int) -> bool:
        """A given length is larger than N. Not: No given length is larger than N."""
        return self._split.division is not None and any(
            length > number for length in self._split.division.lengths
        )

    def lengths_as_an_input(self) -> bool:
        """The lengths are an input of the split. Not: The lengths are not an input of the split."""
        return self._lengths is not None

    def lengths_at_run_time(self) -> bool:
        """The lengths are known only at run time. Not: The lengths are known before the run."""
        fact = self._lengths
        return fact is not None and (
            fact.value is None or (isinstance(fact.value, tuple) and None in fact.value)
        )

    def lengths_without_entries(self) -> bool:
        """The lengths are an empty constant. Not: The lengths are not an empty constant."""
        fact, at = self._lengths, self._place_of_lengths
        return fact is not None and fact.shape == (0,) and self._split.origins[at : at + 1] == (Origin.MODEL,)

    def negative_remainder(self) -> bool:
        """The other lengths of VariadicSplit leave less than 0 for the -1.

        Not: The other lengths of VariadicSplit leave at least 0 for the -1.
        """
        error = self._split.error
        return isinstance(error, RuleError) and error.rule is Rule.REMAINDER_NEGATIVE

    # Sequences

    def chunks(self) -> bool:
        """The split makes a sequence of chunks of one size.

        Not: The split does not make a sequence of chunks of one size.
        """
        return self._split.schema.gives_sequence and (self._lengths is None or self._lengths.shape == ())

    def number_of_parts_at_run_time(self) -> bool | None:
        """The split makes a sequence, and its chunk size or number of lengths is known only at run time.

        Not: The chunk size or the number of lengths of a sequence is known before the run.
        """
        fact = self._lengths
        if not self._split.schema.gives_sequence or fact is None:
            return False
        if fact.shape is None:
            return None
        return not isinstance(fact.shape[0], int) if fact.shape else fact.value is None

    def unbind(self) -> bool | None:
        """Keepdims = 0 is used with chunks of 1, as PyTorch exports a scripted unbind.

        Not: Keepdims = 0 is not used with chunks of 1.
        """
        fact = self._lengths
        if not self._split.may_be_unbind:
            return False
        return True if fact is not None and fact.shape == () and fact.value == 1 else None

    def squeezed_chunks(self) -> bool:
        """Keepdims = 0 is used with a chunk size above 1.

        Not: Keepdims = 0 is not used with a chunk size above 1.
        """
        fact, schema = self._lengths, self._split.schema
        if fact is None or schema.keepdims is None or self._split.attributes.get(schema.keepdims.name) != 0:
            return False
        return fact.shape == () and fact.value not in (None, 1)

    # Outputs and absent inputs

    def more_outputs_than(self, number: int) -> bool:
        """The split declares more than N outputs. Not: The split declares at most N outputs."""
        return len(self._split.outputs) > number

    def num_outputs(self) -> bool:
        """The split sets num_outputs or num_splits.

        Not: The split sets neither num_outputs nor num_splits.
        """
        return self._split.schema.count_attribute in self._split.attributes

    def num_outputs_above(self, number: int) -> bool:
        """num_outputs is more than N. Not: num_outputs is at most N."""
        return self._num_outputs > number

    def fewer_outputs_than_num_outputs(self) -> bool:
        """The split declares fewer outputs than num_outputs.

        Not: The split does not declare fewer outputs than num_outputs.
        """
        return self._num_outputs > len(self._split.outputs)

    def more_outputs_than_num_outputs(self) -> bool:
        """The split declares more outputs than num_outputs.

        Not: The split does not declare more outputs than num_outputs.
        """
        return 0 < self._num_outputs < len(self._split.outputs)

    def absent_input_named(self) -> bool:
        """The absent input of the lengths is named ''. Not: No absent input of the lengths is named ''."""
        at = self._place_of_lengths
        return self._split.inputs[at : at + 1] == ("",)

    def output_left_out(self) -> bool:
        """An output is named ''. Not: No output is named ''."""
        return "" in self._split.outputs

    def output_of_the_model(self) -> bool:
        """The sequence, or a part, is an output of the model.

        Not: Neither the sequence nor a part is an output of the model.
        """
        return any(name in self._model.outputs for name in self._split.outputs)

    def last_part_sliced(self) -> bool:
        """A Slice reads the last of num_outputs parts. Not: No Slice reads the last of num_outputs parts."""
        given = self._num_outputs == len(self._split.outputs)
        return given and next(self._iter_readers(self._num_outputs - 1, "Slice"), None) is not None

    def merged(self) -> bool:
        """Another Split of the same data declares another number of outputs, and neither declares lengths.

        Not: No other Split of the same data without lengths declares another number of outputs.
        """
        return split_key(self._split.where.graph, self._split.outputs) in self._model.conflicting


def _is_above(size: Dim | None, number: int) -> bool:
    """Return whether a size is certainly above ``number``."""
    return size is not None and (size if isinstance(size, int) else size.lo) > number


def _is_zero_moved(shape: Shape, order: tuple[int, ...]) -> bool:
    """Return whether a Transpose equals a Reshape whose 0 would copy another size of the data.

    OpenVINO replaces such a Transpose with a Reshape, in which 0 means the size of the data at that position.
    """
    order = order or tuple(reversed(range(len(shape))))
    if sorted(order) != list(range(len(shape))):
        return False
    kept = [axis for axis in order if shape[axis] != 1]
    return kept == sorted(kept) and any(shape[axis] == 0 != shape[at] for at, axis in enumerate(order))


@dataclass(frozen=True, slots=True)
class Predicate:
    """A predicate that conditions of limits use.

    Attributes:
        text: its text in ``when``, with ``N`` for a number or ``[...]`` for a list.
        meaning: its description, in which ``N`` is the number and ``these`` the list.
        opposite: the description of its negation.
        test: the method of :class:`SplitPredicates`.
        known: the allowed entries of the list; None if they are numbers.
    """

    text: str
    meaning: str
    opposite: str
    test: Callable[..., bool | None]
    known: frozenset[str] | None = None


def _make_predicate(name: str, test: Any) -> Predicate:
    """Make the predicate of a method: its text is the name, with ``N`` or ``[...]`` for the argument."""
    argument = test.__code__.co_varnames[1] if test.__code__.co_argcount > 1 else None
    suffix = {None: "", "number": " N"}.get(argument, " [...]")
    text = name.replace("_", " ").replace("num outputs", "num_outputs").replace("named", "named ''")
    known = frozenset(ELEMENT_TYPES) if argument == "types" else None
    meaning, opposite = (part.strip().removesuffix(".") for part in test.__doc__.split("Not:"))
    return Predicate(f"{text}{suffix}", meaning, opposite, test, known)


_METHODS: Final = {name: one for name, one in vars(SplitPredicates).items() if isinstance(one, FunctionType)}
PREDICATES: Final = {
    predicate.text: predicate
    for predicate in (_make_predicate(*each) for each in _METHODS.items() if not each[0].startswith("_"))
}
"""All predicates, keyed by their text."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A predicate with its number or list, possibly negated."""

    text: str
    predicate: Predicate
    argument: int | frozenset[int] | frozenset[str] | None = None
    negated: bool = False

    @property
    def number(self) -> int | None:
        """The integer after the predicate in ``when``, or None if its argument is a list or absent."""
        return self.argument if isinstance(self.argument, int) else None

    @property
    def description(self) -> str:
        """The condition in words, as a clause.

        Examples:
            >>> parse_condition("axis not in [1]").description
            'the axis is not 1'
            >>> parse_condition("not axis not in [-1, 1]").description
            'the axis is one of -1, 1'
            >>> parse_condition("not rank above 1").description
            'the data has at most 1 axis'
        """
        sentence = self.predicate.opposite if self.negated else self.predicate.meaning
        clause = sentence[:1].lower() + sentence[1:].partition(";")[0]
        if isinstance(self.argument, frozenset):
            entries = sorted(self.argument)
            if len(entries) == 1:
                clause = clause.replace("none of these", f"not {entries[0]}")
                return clause.replace("one of these", str(entries[0]))
            return clause.replace("these", ", ".join(map(str, entries)))
        if self.argument is None:
            return clause
        number = self.argument
        noun = "axis" if number == 1 else "axes"
        clause = clause.replace("N axes", f"{number} {noun}")
        clause = re.sub(r"\bN (\w+)s\b", rf"{number} \1{'' if number == 1 else 's'}", clause)
        return re.sub(r"\bN\b", str(number), clause)

    def evaluate(self, split: SplitPredicates) -> Certainty:
        """Return how certain it is that the condition is true of a split."""
        arguments = () if self.argument is None else (self.argument,)
        found = self.predicate.test(split, *arguments)
        if found is None:
            return Certainty.MAYBE
        return Certainty.YES if found is not self.negated else Certainty.NO


_WRITTEN: Final = re.compile(
    r"(?P<negated>not )?(?P<text>.*?)(?: (?P<number>[0-9]{1,18})| \[(?P<entries>.*)\])?"
)


def parse_condition(written: str) -> Condition:
    """Parse a condition: a predicate with its number or list, with ``not`` before it if it is negated.

    Examples:
        >>> parse_condition("more outputs than 4").number
        4
        >>> parse_condition("more output than 4")
        Traceback (most recent call last):
        ...
        ValueError: unknown condition 'more output than N'; did you mean 'more outputs than N'?
    """
    found = _WRITTEN.fullmatch(" ".join(written.split()))
    assert found is not None  # every text matches
    number, listed = found["number"], found["entries"]
    text = found["text"] + (" N" if number else "" if listed is None else " [...]")
    if text not in PREDICATES:
        near = nearest(text, PREDICATES)
        raise ValueError(f"unknown condition {shown(text)}{f'; did you mean {near!r}?' if near else ''}")
    predicate = PREDICATES[text]
    argument = int(number) if number else None if listed is None else _parse_entries(predicate, listed)
    return Condition(written, predicate, argument, bool(found["negated"]))


def _parse_entries(predicate: Predicate, listed: str) -> frozenset[str] | frozenset[int]:
    entries = [entry.strip() for entry in listed.split(",") if entry.strip()]
    if not entries:
        raise ValueError(f"the list of {predicate.text.removesuffix(' [...]')!r} is empty")
    for entry in entries:
        if predicate.known is None and re.fullmatch("-?[0-9]{1,18}", entry) is None:
            raise ValueError(f"{shown(entry)} is not a number")
        if predicate.known is not None and entry not in predicate.known:
            raise ValueError(f"unknown type {shown(entry)}: use {', '.join(sorted(predicate.known))}")
    return frozenset(entries) if predicate.known is not None else frozenset(map(int, entries))
