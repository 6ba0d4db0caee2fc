"""The conditions under which runtimes fail at a split node; :mod:`splitops.models.check.profiles` says which.

Each takes a split node and what it must know of the model around it, and says whether the limit is met there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import accumulate
from typing import Final

import onnx_ir as ir

from splitops.errors import Rule, RuleError
from splitops.models.formats.onnx.structure import canonical
from splitops.models.formats.openvino import OpenVINOModel, endpoint_name
from splitops.models.graph.merging import SiteKey, merged_sites, site_key
from splitops.models.graph.onnx import all_graphs
from splitops.models.sites import Origin, Site
from splitops.spec.sizes.arithmetic import Division
from splitops.spec.sizes.dims import Dim, Range, Shape
from splitops.spec.sizes.ranges import part_range
from splitops.spec.sizes.rules import SizeRule
from splitops.splitting.binding import Fact

_INT32_MAX: Final = (1 << 31) - 1


class Surely(Enum):
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
        merged: the splits that onnxruntime takes for others.
        transposes: the orders of axes in which Transposes read a value, by the path of its graph and its
            name; an empty one reverses them.
        sliced: the values that a Slice reads, by the path of its graph and its name.
    """

    outputs: frozenset[str] = frozenset()
    merged: frozenset[SiteKey] = frozenset()
    transposes: Orders = field(default_factory=dict)
    sliced: frozenset[tuple[str | None, str]] = frozenset()

    @classmethod
    def of(cls, model: ir.Model | OpenVINOModel) -> Surroundings:
        """Return what is to be known of a well-formed model."""
        if isinstance(model, OpenVINOModel):
            return cls(transposes=_transposes_of_ir(model))
        outputs = frozenset(value.name or "" for value in model.graph.outputs)
        return cls(outputs, merged_sites(model), _transposes(model), frozenset(_sliced(model)))


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


Condition = Callable[[Site, Surroundings], Surely]
"""From a split node and the model around it to whether a limit is met there."""


def _surely(met: bool) -> Surely:
    return Surely.YES if met else Surely.NO


def _is_onnx(site: Site) -> bool:
    return site.schema.domain == ""


def _is_sequence(site: Site) -> bool:
    return _is_onnx(site) and site.schema.gives_sequence


def _is_ir(site: Site) -> bool:
    return site.schema.domain == "openvino"


def _data(site: Site) -> Fact:
    return (site.facts[0] if site.facts else None) or Fact()


def _type_in(site: Site, *names: str) -> bool:
    kind = _data(site).type
    return kind is not None and kind.name in names


def _axis_size(site: Site) -> Dim | None:
    binding = site.binding
    if binding is None or binding.axis is None or binding.data.shape is None:
        return None
    return binding.data.shape[binding.axis]


def _at_least(size: Dim | None, bound: int) -> Surely:
    """Return whether a size reaches a bound; a size that nobody has bounded does not, without a hint."""
    if isinstance(size, int):
        return _surely(size >= bound)
    return Surely.YES if size is not None and size.lo >= bound else Surely.NO


def _ceil(site: Site) -> Division | None:
    """Return the division of a split node, if it is one by num_outputs."""
    division = None if site.binding is None else site.binding.division
    return division if division is not None and division.rule is SizeRule.CEIL else None


def _last_ceil_part(site: Site) -> Dim | None:
    """Return the size of the last part that num_outputs asks for, declared or not."""
    division, size = _ceil(site), _axis_size(site)
    return None if division is None or size is None else part_range(division, size, division.count - 1)


def empty_ceil_part(site: Site, model: Surroundings) -> Surely:
    """The last of num_outputs parts is empty."""
    last = _last_ceil_part(site)
    if last is None or isinstance(last, int):
        return _surely(last == 0)
    # Of a size that nobody has bounded, an empty part is no more than a possibility of arithmetic.
    return Surely.MAYBE if last.lo == 0 and last.hi is not None else Surely.NO


def empty_divided_part(site: Site, model: Surroundings) -> Surely:
    """The last of num_outputs parts is empty, and not all of them are."""
    return Surely.NO if _axis_size(site) == 0 else empty_ceil_part(site, model)


def empty_open_part(site: Site, model: Surroundings) -> Surely:
    """num_outputs divides an axis of which only a run knows that no part is empty."""
    if not _is_onnx(site) or _ceil(site) is None or _stated(site) < 1:
        return Surely.NO
    last = _last_ceil_part(site)
    is_open = last is None or (isinstance(last, Range) and last.lo == 0 and last.hi is None)
    return Surely.MAYBE if is_open else Surely.NO


def exactly_empty_part(site: Site, model: Surroundings) -> Surely:
    """The last of num_outputs parts is empty, and those before it fill the axis."""
    return Surely.NO if overshoots(site, model) is Surely.YES else empty_ceil_part(site, model)


def open_halves(site: Site, model: Surroundings) -> Surely:
    """An axis of which only a run knows that no part is empty is divided by 1 or 2."""
    return empty_open_part(site, model) if _stated(site) < 3 else Surely.NO


def open_overshoot(site: Site, model: Surroundings) -> Surely:
    """Only a run knows whether parts of ceil(D / n) reach beyond the axis before the last part begins."""
    return empty_open_part(site, model) if _stated(site) > 2 else Surely.NO


def merged(site: Site, model: Surroundings) -> Surely:
    """Another Split of the same data declares another number of outputs, and neither declares lengths."""
    return _surely(site_key(site.where.graph, site.outputs) in model.merged)


def overshoots(site: Site, model: Surroundings) -> Surely:
    """Parts of ceil(D / n) reach beyond the axis before the last part begins."""
    division, size = _ceil(site), _axis_size(site)
    if division is None or not isinstance(size, int):
        return Surely.NO
    return _surely(-(-size // division.count) * (division.count - 1) > size)


def ceil_numbers(site: Site) -> dict[str, int] | None:
    """Return the numbers of parts of ceil(D / n); None for other parts, and if D is unknown."""
    division, size = _ceil(site), _axis_size(site)
    if division is None or not isinstance(size, int):
        return None
    axis = site.attributes.get("axis", 0)
    return {"count": division.count, "size": size, "axis": axis, "part": -(-size // division.count)}


def sliced_overshoot(site: Site, model: Surroundings) -> Surely:
    """A Slice reads the last part, and parts of ceil(D / n) reach beyond the axis before it begins."""
    met = (site.where.graph, site.outputs[-1]) in model.sliced and _stated(site) == len(site.outputs)
    return overshoots(site, model) if met else Surely.NO


def split_1(site: Site, model: Surroundings) -> Surely:
    """The version is Split-1."""
    return _surely(_is_onnx(site) and str(site.schema) == "Split-1")


def empty_name(site: Site, model: Surroundings) -> Surely:
    """num_outputs is used with an input that is named ''."""
    ceil = site.schema.count_attribute in site.attributes
    return named_nothing(site, model) if ceil else Surely.NO


def named_nothing(site: Site, model: Surroundings) -> Surely:
    """An absent input of a Split is named ''."""
    return _surely(_is_onnx(site) and not _is_sequence(site) and site.inputs[1:2] == ("",))


def omitted_output(site: Site, model: Surroundings) -> Surely:
    """An output is named ''."""
    return _surely(_is_onnx(site) and "" in site.outputs)


def fewer_outputs(site: Site, model: Surroundings) -> Surely:
    """Fewer outputs are declared than num_outputs says."""
    return _surely(_is_onnx(site) and _stated(site) > len(site.outputs))


def more_outputs(site: Site, model: Surroundings) -> Surely:
    """More outputs are declared than num_outputs says."""
    return _surely(_is_onnx(site) and 0 < _stated(site) < len(site.outputs))


def _stated(site: Site) -> int:
    name = site.schema.count_attribute
    number = None if name is None else site.attributes.get(name)
    return number if isinstance(number, int) else 0


def sequence_type(site: Site, model: Surroundings) -> Surely:
    """SplitToSequence has an element type that onnxruntime has no kernel for."""
    kinds = ("int8", "int16", "uint8", "uint16", "uint32", "uint64", "bfloat16")
    return _surely(_is_sequence(site) and _type_in(site, *kinds))


def complex(site: Site, model: Surroundings) -> Surely:
    """The data is complex."""
    return _surely(_is_onnx(site) and _type_in(site, "complex64", "complex128"))


def large(site: Site, model: Surroundings) -> Surely:
    """The axis has 2^31 elements or more, also where its lengths alone say so."""
    binding, inference = site.binding, site.inference
    if not _is_onnx(site) or binding is None or binding.axis is None or inference is None:
        return Surely.NO
    return Surely.NO if inference.data is None else _at_least(inference.data[binding.axis], _INT32_MAX + 1)


def large_lengths(site: Site, model: Surroundings) -> Surely:
    """Lengths of a Split are set of an axis that the data says to have 2^31 elements or more."""
    if not _stated_lengths(site) or not _is_onnx(site) or _is_sequence(site):
        return Surely.NO
    return _at_least(_axis_size(site), _INT32_MAX + 1)


def large_stated(site: Site, model: Surroundings) -> Surely:
    """A given length is 2^31 or more."""
    return _surely(any(length > _INT32_MAX for length in _stated_lengths(site)))


def _stated_lengths(site: Site) -> tuple[int, ...]:
    """Return the length of each part where the split node declares them; nothing where they are not known."""
    division = None if site.binding is None else site.binding.division
    return () if division is None else division.lengths


def large_even(site: Site, model: Surroundings) -> Surely:
    """An axis of 2^31 elements or more is divided by a number."""
    binding = site.binding
    counted = binding is not None and binding.division is not None and binding.division.count > 0
    return large(site, model) if counted else Surely.NO


def unbind(site: Site, model: Surroundings) -> Surely:
    """Keepdims = 0 is used with chunks of 1, as PyTorch exports a scripted unbind."""
    fact = site.lengths
    if not site.may_be_unbind:
        return Surely.NO
    return Surely.YES if fact is not None and fact.shape == () and fact.value == 1 else Surely.MAYBE


def scalar_keepdims(site: Site, model: Surroundings) -> Surely:
    """Keepdims = 0 is used with chunks of more than 1."""
    fact, row = site.lengths, site.schema
    if not _is_sequence(site) or fact is None or row.keepdims is None:
        return Surely.NO
    if site.attributes.get(row.keepdims.name) != 0:
        return Surely.NO
    return _surely(fact.shape == () and fact.value not in (None, 1))


def empty_lengths(site: Site, model: Surroundings) -> Surely:
    """The lengths are a constant without entries."""
    fact = site.lengths
    constant = site.origins[1:2] == (Origin.MODEL,)
    return _surely(_is_sequence(site) and fact is not None and fact.shape == (0,) and constant)


def negative_remainder(site: Site, model: Surroundings) -> Surely:
    """The -1 of VariadicSplit is left with less than 0."""
    error = site.error
    return _surely(_is_ir(site) and isinstance(error, RuleError) and error.rule is Rule.REMAINDER_NEGATIVE)


def narrowed_values(site: Site, model: Surroundings) -> Surely:
    """The data has 64-bit numbers, which may not fit 32 bits."""
    if _is_sequence(site) or not _type_in(site, "int64", "uint64", "float64"):
        return Surely.NO
    value = _data(site).value
    if not isinstance(value, tuple):
        return Surely.MAYBE
    # Sizes that are computed from shapes stay far below 2^31.
    integers = [entry for entry in value if entry is not None]
    return _surely(any(abs(entry) > _INT32_MAX or entry != int(entry) for entry in integers))


def narrowed_integers(site: Site, model: Surroundings) -> Surely:
    """The data has 64-bit integers, which may not fit 32 bits."""
    return narrowed_values(site, model) if _type_in(site, "int64", "uint64") else Surely.NO


def default_axis(site: Site, model: Surroundings) -> Surely:
    """A Split of more than one axis leaves its axis to the default."""
    stated = site.schema.axis.name in site.attributes or site.schema.axis.name in site.references
    if not _is_onnx(site) or _is_sequence(site) or stated:
        return Surely.NO
    shape = _data(site).shape
    return Surely.MAYBE if shape is None else _surely(len(shape) > 1)


def empty_output(site: Site, model: Surroundings) -> Surely:
    """A part of size 0 is an output of the model."""
    if _is_sequence(site) or site.inference is None:
        return Surely.NO
    parts = zip(site.outputs, site.inference.parts or (), strict=False)
    if any(shape is not None and 0 in shape and name in model.outputs for name, shape in parts):
        return Surely.YES
    return empty_open_part(site, model) if site.outputs[-1] in model.outputs else Surely.NO


def strings(site: Site, model: Surroundings) -> Surely:
    """The data is strings."""
    return _surely(_type_in(site, "string"))


def packed_constant(site: Site, model: Surroundings) -> Surely:
    """The data is a constant whose elements are smaller than a byte."""
    kind = _data(site).type
    packed = kind is not None and kind.packed and site.origins[:1] == (Origin.MODEL,)
    return _surely(_is_ir(site) and packed)


def packed_parts(site: Site, model: Surroundings) -> Surely:
    """A part of a run's data, of element types that are moved by whole bytes, is not a run of whole bytes."""
    if not _is_ir(site) or not _type_in(site, "nf4", "float4_e2m1fn", "uint2") or len(site.outputs) < 2:
        return Surely.NO
    if site.origins[:1] == (Origin.MODEL,):
        return Surely.NO  # another limit
    axis = None if site.binding is None else site.binding.axis
    kind, parts = _data(site).type, site.inference.parts if site.inference is not None else None
    if axis is None or kind is None or parts is None or None in parts:
        return Surely.MAYBE
    shapes = [tuple(size for size in part or () if isinstance(size, int)) for part in parts]
    if any(len(shape) != len(part or ()) for shape, part in zip(shapes, parts, strict=True)):
        return Surely.MAYBE
    begins = accumulate(math.prod(shape[axis:]) * kind.bits for shape in shapes[:-1])
    return _surely(math.prod(shapes[0][:axis]) > 1 or any(begin % 8 for begin in begins))


def packed_unknown(site: Site, model: Surroundings) -> Surely:
    """The data has elements of 1, 3 or 6 bits."""
    constant = site.origins[:1] == (Origin.MODEL,)
    return _surely(_is_ir(site) and _type_in(site, "uint1", "uint3", "uint6") and not constant)


def unranked(site: Site, model: Surroundings) -> Surely:
    """Nobody says how many axes the data has."""
    # Inference may know less of the data than OpenVINO does.
    return Surely.MAYBE if _is_ir(site) and site.facts and _data(site).shape is None else Surely.NO


def half(site: Site, model: Surroundings) -> Surely:
    """The data is float16."""
    return _surely(_is_onnx(site) and not _is_sequence(site) and _type_in(site, "float16"))


def uneven_open_axis(site: Site, model: Surroundings) -> Surely:
    """num_outputs divides an axis of unknown size."""
    if not _is_onnx(site) or _ceil(site) is None or _stated(site) < 2:
        return Surely.NO
    return Surely.NO if isinstance(_axis_size(site), int) else Surely.MAYBE


def uneven_negative_axis(site: Site, model: Surroundings) -> Surely:
    """num_outputs leaves a smaller part of a negative axis."""
    size, axis = _axis_size(site), site.attributes.get("axis", 0)
    if _ceil(site) is None or not isinstance(axis, int) or axis >= 0 or not isinstance(size, int):
        return Surely.NO
    return _surely(size % _stated(site) != 0)


def split_1_input(site: Site, model: Surroundings) -> Surely:
    """Split-1 takes lengths as an input."""
    return _surely(_is_onnx(site) and str(site.schema) == "Split-1" and site.lengths is not None)


def split_1_lengths(site: Site, model: Surroundings) -> Surely:
    """Split-1 takes lengths that are not equal as an input."""
    if str(site.schema) != "Split-1" or not _is_onnx(site):
        return Surely.NO
    fact = site.lengths
    if fact is None:
        return Surely.NO
    if not isinstance(fact.value, tuple) or None in fact.value:
        return Surely.MAYBE
    return _surely(len(set(fact.value)) > 1)


def sequence_output(site: Site, model: Surroundings) -> Surely:
    """The sequence is an output of the model."""
    return _surely(_is_sequence(site) and any(name in model.outputs for name in site.outputs))


def empty_transposed(site: Site, model: Surroundings) -> Surely:
    """A part of size 0 is read by a Transpose that moves it past nothing but axes of size 1."""
    if _is_sequence(site) or site.inference is None:
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


def open_chunks(site: Site, model: Surroundings) -> Surely:
    """A sequence of chunks is made of an axis of unknown size."""
    fact = site.lengths
    if not _is_sequence(site) or (fact is not None and fact.shape != ()):
        return Surely.NO
    return _surely(not isinstance(_axis_size(site), int))


def runtime_lengths(site: Site, model: Surroundings) -> Surely:
    """A sequence is made by a chunk, or by a number of lengths, that only a run knows."""
    fact = site.lengths
    if not _is_sequence(site) or fact is None:
        return Surely.NO
    if fact.shape is None:
        return Surely.MAYBE
    return _surely(not isinstance(fact.shape[0], int) if fact.shape else fact.value is None)


def any_sequence(site: Site, model: Surroundings) -> Surely:
    """The operator gives a sequence."""
    return _surely(_is_sequence(site))
