"""The words with which limits of runtimes say where they are met.

A function for each word takes a split node and what it must know of the model around it, and says whether
the word is true there: surely, maybe or no. Its docstring is what the documentation says of the word. Which
words a limit uses stands in the file of its runtime, see :mod:`splitops.models.check.targets`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from itertools import accumulate
from typing import Final, TypeVar

import onnx_ir as ir

from splitops.errors import Rule, RuleError, shown
from splitops.models.formats.onnx.structure import canonical
from splitops.models.formats.openvino import OpenVINOModel, endpoint_name
from splitops.models.graph.merging import SiteKey, merged_sites, site_key
from splitops.models.graph.onnx import all_graphs
from splitops.models.sites import Origin, Site
from splitops.spec.elements.types import ELEMENT_TYPES
from splitops.spec.operators.schemas import Given
from splitops.spec.sizes.arithmetic import Division
from splitops.spec.sizes.dims import Dim, Range, Shape
from splitops.spec.sizes.ranges import hull, part_range
from splitops.spec.sizes.rules import SizeRule
from splitops.splitting.binding import Fact

_INT32_MAX: Final = (1 << 31) - 1


class Surely(IntEnum):
    """Whether a limit is met."""

    NO = 0
    MAYBE = 1
    """It depends on sizes or values that are not known."""
    YES = 2


Orders = Mapping[tuple[str | None, str], Sequence[tuple[int, ...]]]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a condition must know of the model around a split node.

    Attributes:
        outputs: the names of the model's outputs.
        merged: the splits that onnxruntime merges with others.
        transposes: the orders of axes in which Transposes read a value, by the path of its graph and its
            name; an empty one reverses them.
        sliced: the values that a Slice reads, by the path of its graph and its name.
        opset: the operator set of ONNX that the model imports; None for OpenVINO IR.
    """

    outputs: frozenset[str] = frozenset()
    merged: frozenset[SiteKey] = frozenset()
    transposes: Orders = field(default_factory=dict)
    sliced: frozenset[tuple[str | None, str]] = frozenset()
    opset: int | None = None

    @classmethod
    def of(cls, model: ir.Model | OpenVINOModel) -> Surroundings:
        """Return what is to be known of a well-formed model."""
        if isinstance(model, OpenVINOModel):
            return cls(transposes=_transposes_of_ir(model))
        outputs = frozenset(value.name or "" for value in model.graph.outputs)
        sliced = frozenset(_sliced(model))
        opset = model.opset_imports.get("", model.opset_imports.get("ai.onnx"))
        return cls(outputs, merged_sites(model), _transposes(model), sliced, opset)


def _transposes(model: ir.Model) -> Orders:
    found: dict[tuple[str | None, str], list[tuple[int, ...]]] = {}
    for path, graph in all_graphs(model):
        for node in graph:
            if node.op_type == "Transpose" and canonical(node.domain) == "" and node.inputs[0] is not None:
                order = node.attributes.get("perm")
                stated = () if order is None or order.is_ref() else tuple(order.value)
                found.setdefault((path, node.inputs[0].name or ""), []).append(stated)
    return found


def _sliced(model: ir.Model) -> Iterator[tuple[str | None, str]]:
    for path, graph in all_graphs(model):
        for node in graph:
            if node.op_type == "Slice" and canonical(node.domain) == "" and node.inputs[0] is not None:
                yield path, node.inputs[0].name or ""


def _transposes_of_ir(model: OpenVINOModel) -> Orders:
    found: dict[tuple[str | None, str], list[tuple[int, ...]]] = {}
    for path, graph in model.graphs():
        for layer in graph.layers_of_type("Transpose"):
            data, axes = graph.sources(layer)
            constant = graph.by_id[axes.layer].constant
            if constant is not None:
                order = tuple(constant.array(layer.where).reshape(-1).tolist())
                found.setdefault((path, endpoint_name(graph, data)), []).append(order)
    return found


Met = Callable[[Site, Surroundings], Surely]
"""From a split node and the model around it to whether something is true there."""


@dataclass(frozen=True, slots=True)
class Word:
    """One word of the vocabulary.

    Attributes:
        text: how it is written; ``N`` stands for a number, ``[...]`` for a list.
        meaning: what it says of a split.
        test: whether it is true of a split; of a word with a number or list, that comes first.
        known: of a list, the entries that it may have; None where they are numbers.
    """

    text: str
    meaning: str
    test: Callable[..., Surely]
    known: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Condition:
    """A word of a limit, with its number or list.

    Attributes:
        text: what the limit says.
        word: the word.
        met: whether it is true of a split.
        number: the number; None where there is none.
    """

    text: str
    word: Word
    met: Met
    number: int | None = None


WORDS: Final[dict[str, Word]] = {}
"""The vocabulary."""
_WRITTEN: Final = re.compile(
    r"(?P<negated>not )?(?P<text>.*?)(?: (?P<number>[0-9]{1,18})| \[(?P<entries>.*)\])?"
)


def condition(written: str) -> Condition:
    """Read a word with its number or list; ``not`` in front says the opposite.

    Raises:
        ValueError: there is no such word, or its number or list is not right.

    Examples:
        >>> condition("more outputs than 4").number
        4
        >>> condition("more output than 4")
        Traceback (most recent call last):
        ...
        ValueError: there is no word 'more output than N'; did you mean 'more outputs than N'?
    """
    found = _WRITTEN.fullmatch(" ".join(written.split()))
    assert found is not None  # every text fits
    number, listed = found["number"], found["entries"]
    text = found["text"] + (" N" if number else "" if listed is None else " [...]")
    if text not in WORDS:
        import difflib

        near = difflib.get_close_matches(text, WORDS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"there is no word {shown(text)}{hint}")
    word = WORDS[text]
    met: Met = word.test
    if number is not None:
        met = partial(word.test, int(number))
    elif listed is not None:
        met = partial(word.test, _entries(word, listed))
    if found["negated"]:
        met = partial(_not, met)
    return Condition(written, word, met, None if number is None else int(number))


def _entries(word: Word, listed: str) -> frozenset[str] | frozenset[int]:
    entries = [entry.strip() for entry in listed.split(",") if entry.strip()]
    for entry in entries:
        if word.known is None and re.fullmatch("-?[0-9]{1,18}", entry) is None:
            raise ValueError(f"{shown(entry)} is not a number")
        if word.known is not None and entry not in word.known:
            raise ValueError(f"{shown(entry)} is none of {', '.join(sorted(word.known))}")
    return frozenset(entries) if word.known is not None else frozenset(map(int, entries))


def _not(met: Met, site: Site, model: Surroundings) -> Surely:
    return Surely(Surely.YES - met(site, model))


_Test = TypeVar("_Test", bound=Callable[..., Surely])


def _word(text: str, known: Iterable[str] | None = None) -> Callable[[_Test], _Test]:
    """Return a decorator that makes a function the test of a word."""

    def add(test: _Test) -> _Test:
        meaning = (test.__doc__ or "").removesuffix(".")
        WORDS[text] = Word(text, meaning, test, None if known is None else frozenset(known))
        return test

    return add


def _surely(met: bool) -> Surely:
    return Surely.YES if met else Surely.NO


def _data(site: Site) -> Fact:
    return (site.facts[0] if site.facts else None) or Fact()


def _division(site: Site) -> Division | None:
    return None if site.binding is None else site.binding.division


def _ceil(site: Site) -> Division | None:
    """Return the division of a split node, if it is one by num_outputs."""
    division = _division(site)
    return division if division is not None and division.rule is SizeRule.CEIL else None


def _axis_size(site: Site) -> Dim | None:
    binding = site.binding
    if binding is None or binding.axis is None or binding.data.shape is None:
        return None
    return binding.data.shape[binding.axis]


def _above(size: Dim | None, number: int) -> Surely:
    """Return whether a size is above a number; one that nobody has bounded is not, without a hint."""
    if isinstance(size, int):
        return _surely(size > number)
    return Surely.YES if size is not None and size.lo > number else Surely.NO


def _num_outputs(site: Site) -> int:
    name = site.schema.count_attribute
    number = None if name is None else site.attributes.get(name)
    return number if isinstance(number, int) else 0


def _last_ceil_part(site: Site) -> Dim | None:
    """Return the size of the last part that num_outputs asks for, declared or not."""
    division, size = _ceil(site), _axis_size(site)
    return None if division is None or size is None else part_range(division, size, division.count - 1)


def _place_of_lengths(site: Site) -> int:
    """Return the position of the input of the lengths."""
    given = [source for source in site.schema.lengths if source.given is Given.INPUT]
    return site.schema.input_index(given[0].name) if given else 1


def ceil_numbers(site: Site) -> dict[str, int] | None:
    """Return the numbers of parts of ceil(D / n); None for other parts, and if D is unknown."""
    division, size = _ceil(site), _axis_size(site)
    if division is None or not isinstance(size, int):
        return None
    axis = site.attributes.get("axis", 0)
    return {"count": division.count, "size": size, "axis": axis, "part": -(-size // division.count)}


# The operator and its data


@_word("operator missing")
def _operator_missing(site: Site, model: Surroundings) -> Surely:
    """The runtime does not have the operator."""
    return Surely.YES


@_word("sequence")
def _sequence(site: Site, model: Surroundings) -> Surely:
    """The operator returns a sequence."""
    return _surely(site.schema.gives_sequence)


@_word("opset above N")
def _opset_above(number: int, site: Site, model: Surroundings) -> Surely:
    """The model imports a newer opset of ONNX than N."""
    return _surely(model.opset is not None and model.opset > number)


@_word("opset below N")
def _opset_below(number: int, site: Site, model: Surroundings) -> Surely:
    """The model imports an older opset of ONNX than N."""
    return _surely(model.opset is not None and model.opset < number)


@_word("inside a body")
def _inside(site: Site, model: Surroundings) -> Surely:
    """The split is in a body of If, Loop or Scan, or in a function."""
    return _surely(site.where.graph is not None)


@_word("types in [...]", ELEMENT_TYPES)
def _types_in(kinds: frozenset[str], site: Site, model: Surroundings) -> Surely:
    """The element type of the data is one of these."""
    kind = _data(site).type
    return _surely(kind is not None and kind.name in kinds)


@_word("types not in [...]", ELEMENT_TYPES)
def _types_not_in(kinds: frozenset[str], site: Site, model: Surroundings) -> Surely:
    """The element type of the data is none of these."""
    kind = _data(site).type
    return Surely.MAYBE if kind is None else _surely(kind.name not in kinds)


@_word("packed elements")
def _packed(site: Site, model: Surroundings) -> Surely:
    """The elements of the data are smaller than a byte."""
    kind = _data(site).type
    return _surely(kind is not None and kind.packed)


@_word("parts inside bytes")
def _inside_bytes(site: Site, model: Surroundings) -> Surely:
    """A part is not a run of whole bytes."""
    axis = None if site.binding is None else site.binding.axis
    kind, parts = _data(site).type, site.inference.parts if site.inference is not None else None
    if axis is None or kind is None or parts is None or None in parts:
        return Surely.MAYBE
    shapes = [tuple(size for size in part or () if isinstance(size, int)) for part in parts]
    if any(len(shape) != len(part or ()) for shape, part in zip(shapes, parts, strict=True)):
        return Surely.MAYBE
    begins = accumulate(math.prod(shape[axis:]) * kind.bits for shape in shapes[:-1])
    return _surely(math.prod(shapes[0][:axis]) > 1 or any(begin % 8 for begin in begins))


@_word("constant data")
def _constant(site: Site, model: Surroundings) -> Surely:
    """The data is a constant."""
    return _surely(site.origins[:1] == (Origin.MODEL,))


@_word("values beyond 32 bits")
def _beyond_32_bits(site: Site, model: Surroundings) -> Surely:
    """A value of the data does not fit an integer of 32 bits."""
    value = _data(site).value
    if not isinstance(value, tuple):
        return Surely.MAYBE
    # Sizes that are computed from shapes stay far below 2^31.
    integers = [entry for entry in value if entry is not None]
    return _surely(any(abs(entry) > _INT32_MAX or entry != int(entry) for entry in integers))


@_word("rank above N")
def _rank_above(number: int, site: Site, model: Surroundings) -> Surely:
    """The data has more axes than N."""
    shape = _data(site).shape
    return Surely.MAYBE if shape is None else _surely(len(shape) > number)


@_word("rank unknown")
def _rank_unknown(site: Site, model: Surroundings) -> Surely:
    """The model does not say how many axes the data has."""
    # Inference may know less of the data than the runtime does.
    return Surely.MAYBE if site.facts and _data(site).shape is None else Surely.NO


# The axis


@_word("negative axis")
def _negative_axis(site: Site, model: Surroundings) -> Surely:
    """The axis is counted from the end."""
    source = site.schema.axis
    if source.given is Given.ATTRIBUTE:
        axis = site.attributes.get(source.name, 0)
        return _surely(isinstance(axis, int) and axis < 0)
    index = site.schema.input_index(source.name)
    fact = site.facts[index] if index < len(site.facts) else None
    value = None if fact is None else fact.value
    value = value[0] if isinstance(value, tuple) and len(value) == 1 else value
    return _surely(value < 0) if isinstance(value, int) else Surely.MAYBE


@_word("axis left out")
def _axis_left_out(site: Site, model: Surroundings) -> Surely:
    """The split does not set its axis."""
    name = site.schema.axis.name
    given = name in site.attributes or name in site.references
    return _surely(site.schema.axis.given is Given.ATTRIBUTE and not given)


@_word("axis not in [...]")
def _axis_not_in(axes: frozenset[int], site: Site, model: Surroundings) -> Surely:
    """The axis is none of these; negative ones are counted from the end."""
    axis, shape = None if site.binding is None else site.binding.axis, _data(site).shape
    if axis is None or shape is None:
        return Surely.NO if axis in axes else Surely.MAYBE
    at = axis % len(shape)
    return _surely(axes.isdisjoint({at, at - len(shape)}))


@_word("open axis")
def _open_axis(site: Site, model: Surroundings) -> Surely:
    """The size of the axis is only known in a run."""
    return _surely(not isinstance(_axis_size(site), int))


@_word("empty axis")
def _empty_axis(site: Site, model: Surroundings) -> Surely:
    """The size of the axis is 0."""
    size = _axis_size(site)
    return _surely(size == 0) if isinstance(size, int) else Surely.MAYBE


@_word("size above N")
def _size_above(number: int, site: Site, model: Surroundings) -> Surely:
    """The axis has more elements than N; the lengths may be what says so."""
    binding, inference = site.binding, site.inference
    if binding is None or binding.axis is None or inference is None or inference.data is None:
        return Surely.NO
    return _above(inference.data[binding.axis], number)


@_word("declared size above N")
def _declared_size_above(number: int, site: Site, model: Surroundings) -> Surely:
    """The axis has more elements than N, as the shape of the data says."""
    return _above(_axis_size(site), number)


# The lengths of the parts


@_word("uneven")
def _uneven(site: Site, model: Surroundings) -> Surely:
    """The parts do not all have the same size."""
    fact, division, size = site.lengths, _division(site), _axis_size(site)
    listed = fact is not None and (fact.shape != () or site.schema.scalar_rule is None)
    if division is None and fact is not None and listed:  # unknown, or not as the data needs them
        lengths = fact.value if isinstance(fact.value, tuple) else (None,)
        return Surely.MAYBE if None in lengths else _surely(len(set(lengths)) > 1)
    if division is None:
        return Surely.NO if site.binding is None else Surely.MAYBE
    match division.rule:
        case SizeRule.EVEN:
            return Surely.NO
        case SizeRule.EXPLICIT:
            return _surely(len(set(division.lengths)) > 1)
        case SizeRule.CHUNK if isinstance(size, int):
            return _surely(size > division.chunk and size % division.chunk != 0)
        case SizeRule.CEIL | SizeRule.REMAINDER if isinstance(size, int):
            count = division.count or len(division.lengths)
            return _surely(len({part_range(division, size, index) for index in range(count)}) > 1)
    one = division.count == 1 or division.chunk == 1 or len(division.lengths) == 1
    return Surely.NO if one else Surely.MAYBE


@_word("last part smaller")
def _last_part_smaller(site: Site, model: Surroundings) -> Surely:
    """num_outputs does not divide the axis, or a chunk does not."""
    division = _division(site)
    smaller = division is not None and division.rule in (SizeRule.CEIL, SizeRule.CHUNK)
    return _uneven(site, model) if smaller else Surely.NO


@_word("last part smaller by more than N")
def _last_part_smaller_by(number: int, site: Site, model: Surroundings) -> Surely:
    """The last of num_outputs parts has more than N elements of the axis less than the first."""
    division, size, last = _ceil(site), _axis_size(site), _last_ceil_part(site)
    if division is None or not isinstance(size, int) or not isinstance(last, int):
        return _last_part_smaller(site, model) if division is not None else Surely.NO
    return _surely(-(-size // division.count) - last > number)


@_word("last part empty")
def _last_part_empty(site: Site, model: Surroundings) -> Surely:
    """The last of num_outputs parts is empty."""
    last = _last_ceil_part(site)
    if last is None or isinstance(last, int):
        return _surely(last == 0)
    # Of a size that nobody has bounded, an empty part is no more than a possibility of arithmetic.
    return Surely.MAYBE if last.lo == 0 and last.hi is not None else Surely.NO


@_word("last part empty at run time")
def _last_part_empty_at_run_time(site: Site, model: Surroundings) -> Surely:
    """num_outputs divides an axis of which only a run knows that no part is empty."""
    if _ceil(site) is None or _num_outputs(site) < 1:
        return Surely.NO
    last = _last_ceil_part(site)
    is_open = last is None or (isinstance(last, Range) and last.lo == 0 and last.hi is None)
    return Surely.MAYBE if is_open else Surely.NO


@_word("last part beyond the axis")
def _beyond(site: Site, model: Surroundings) -> Surely:
    """Parts of ceil(D / n) reach beyond the axis before the last part begins."""
    division, size = _ceil(site), _axis_size(site)
    if division is None or not isinstance(size, int):
        return Surely.NO
    return _surely(-(-size // division.count) * (division.count - 1) > size)


@_word("empty part")
def _empty_part(site: Site, model: Surroundings) -> Surely:
    """A part has no elements of the axis."""
    axis, division = None if site.binding is None else site.binding.axis, _division(site)
    parts = None if site.inference is None else site.inference.parts
    if axis is None or parts is None:
        return Surely.NO
    sizes = [None if part is None else part[axis] for part in parts]
    if 0 in sizes:
        return Surely.YES
    if division is not None and division.rule is SizeRule.CEIL:
        return max(_last_part_empty(site, model), _last_part_empty_at_run_time(site, model))
    least = hull(*sizes)
    given = division is None or division.rule is SizeRule.REMAINDER
    return Surely.MAYBE if given and isinstance(least, Range) and least.lo == 0 else Surely.NO


@_word("empty part as an output")
def _empty_output(site: Site, model: Surroundings) -> Surely:
    """A part without elements is an output of the model."""
    if site.inference is None:
        return Surely.NO
    parts = zip(site.outputs, site.inference.parts or (), strict=False)
    if any(shape is not None and 0 in shape and name in model.outputs for name, shape in parts):
        return Surely.YES
    return _last_part_empty_at_run_time(site, model) if site.outputs[-1] in model.outputs else Surely.NO


@_word("empty part transposed")
def _empty_transposed(site: Site, model: Surroundings) -> Surely:
    """A part of size 0 is read by a Transpose that moves it past nothing but axes of size 1."""
    if site.inference is None:
        return Surely.NO
    parts = zip(site.outputs, site.inference.parts or (), strict=False)
    return _surely(
        any(
            part is not None and _moves_zero(part, order)
            for name, part in parts
            for order in model.transposes.get((site.where.graph, name), ())
        )
    )


def _moves_zero(shape: Shape, order: tuple[int, ...]) -> bool:
    """Return whether an order is that of a reshape, to a shape whose 0 means another size of the data.

    A reshape takes 0 for the size that the data has in its place.
    """
    order = order or tuple(reversed(range(len(shape))))
    if sorted(order) != list(range(len(shape))):
        return False
    kept = [axis for axis in order if shape[axis] != 1]
    return kept == sorted(kept) and any(shape[axis] == 0 != shape[at] for at, axis in enumerate(order))


@_word("equal parts")
def _equal_parts(site: Site, model: Surroundings) -> Surely:
    """A number of parts divides the axis, not a list of lengths."""
    division = _division(site)
    return _surely(division is not None and division.count > 0)


@_word("lengths given")
def _lengths_given(site: Site, model: Surroundings) -> Surely:
    """The length of each part is known."""
    division = _division(site)
    return _surely(division is not None and bool(division.lengths))


@_word("length above N")
def _length_above(number: int, site: Site, model: Surroundings) -> Surely:
    """A given length is larger than N."""
    division = _division(site)
    return _surely(division is not None and any(length > number for length in division.lengths))


@_word("lengths as an input")
def _lengths_as_input(site: Site, model: Surroundings) -> Surely:
    """The lengths are an input of the split."""
    return _surely(site.lengths is not None)


@_word("lengths at run time")
def _lengths_at_run_time(site: Site, model: Surroundings) -> Surely:
    """The lengths are only known in a run."""
    fact = site.lengths
    unknown = fact is not None and (
        fact.value is None or (isinstance(fact.value, tuple) and None in fact.value)
    )
    return _surely(unknown)


@_word("lengths without entries")
def _lengths_without_entries(site: Site, model: Surroundings) -> Surely:
    """The lengths are a constant without entries."""
    fact, at = site.lengths, _place_of_lengths(site)
    return _surely(fact is not None and fact.shape == (0,) and site.origins[at : at + 1] == (Origin.MODEL,))


@_word("negative remainder")
def _negative_remainder(site: Site, model: Surroundings) -> Surely:
    """The other lengths of VariadicSplit leave less than 0 for the -1."""
    error = site.error
    return _surely(isinstance(error, RuleError) and error.rule is Rule.REMAINDER_NEGATIVE)


# Sequences


@_word("chunks")
def _chunks(site: Site, model: Surroundings) -> Surely:
    """A sequence is made of chunks of one size."""
    fact = site.lengths
    return _surely(site.schema.gives_sequence and (fact is None or fact.shape == ()))


@_word("number of parts at run time")
def _number_at_run_time(site: Site, model: Surroundings) -> Surely:
    """A sequence is made by a chunk, or by a number of lengths, that only a run knows."""
    fact = site.lengths
    if not site.schema.gives_sequence or fact is None:
        return Surely.NO
    if fact.shape is None:
        return Surely.MAYBE
    return _surely(not isinstance(fact.shape[0], int) if fact.shape else fact.value is None)


@_word("unbind")
def _unbind(site: Site, model: Surroundings) -> Surely:
    """Keepdims = 0 is used with chunks of 1, as PyTorch exports a scripted unbind."""
    fact = site.lengths
    if not site.may_be_unbind:
        return Surely.NO
    return Surely.YES if fact is not None and fact.shape == () and fact.value == 1 else Surely.MAYBE


@_word("squeezed chunks")
def _squeezed_chunks(site: Site, model: Surroundings) -> Surely:
    """Keepdims = 0 is used with chunks of more than 1."""
    fact, row = site.lengths, site.schema
    if fact is None or row.keepdims is None or site.attributes.get(row.keepdims.name) != 0:
        return Surely.NO
    return _surely(fact.shape == () and fact.value not in (None, 1))


# Outputs and absent inputs


@_word("more outputs than N")
def _more_outputs_than(number: int, site: Site, model: Surroundings) -> Surely:
    """More outputs are declared than N."""
    return _surely(len(site.outputs) > number)


@_word("num_outputs")
def _has_num_outputs(site: Site, model: Surroundings) -> Surely:
    """The split sets num_outputs, or num_splits."""
    return _surely(site.schema.count_attribute in site.attributes)


@_word("num_outputs above N")
def _num_outputs_above(number: int, site: Site, model: Surroundings) -> Surely:
    """num_outputs is more than N."""
    return _surely(_num_outputs(site) > number)


@_word("fewer outputs than num_outputs")
def _fewer_outputs(site: Site, model: Surroundings) -> Surely:
    """Fewer outputs are declared than num_outputs says."""
    return _surely(_num_outputs(site) > len(site.outputs))


@_word("more outputs than num_outputs")
def _more_outputs(site: Site, model: Surroundings) -> Surely:
    """More outputs are declared than num_outputs says."""
    return _surely(0 < _num_outputs(site) < len(site.outputs))


@_word("absent input named ''")
def _absent_input(site: Site, model: Surroundings) -> Surely:
    """The absent input of the lengths is named ''."""
    at = _place_of_lengths(site)
    return _surely(site.inputs[at : at + 1] == ("",))


@_word("output left out")
def _output_left_out(site: Site, model: Surroundings) -> Surely:
    """An output is named ''."""
    return _surely("" in site.outputs)


@_word("output of the model")
def _output_of_model(site: Site, model: Surroundings) -> Surely:
    """The sequence, or a part, is an output of the model."""
    return _surely(any(name in model.outputs for name in site.outputs))


@_word("last part sliced")
def _last_part_sliced(site: Site, model: Surroundings) -> Surely:
    """A Slice reads the last of num_outputs parts."""
    met = (site.where.graph, site.outputs[-1]) in model.sliced
    return _surely(met and _num_outputs(site) == len(site.outputs))


@_word("merged")
def _merged(site: Site, model: Surroundings) -> Surely:
    """Another Split of the same data declares another number of outputs, and neither declares lengths."""
    return _surely(site_key(site.where.graph, site.outputs) in model.merged)
