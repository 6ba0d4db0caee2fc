"""The conditions under which runtimes mind a split site; :mod:`splitops.models.check.profiles` says which do.

Each takes a site and what it must know of the model around it, and says whether the limit is met there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

import onnx_ir as ir

from splitops.binding import Fact
from splitops.errors import Rule, RuleError
from splitops.models.check.merging import SiteKey, merged_sites, site_key
from splitops.models.formats.onnx.structure import canonical
from splitops.models.formats.openvino import OpenVINOModel, endpoint_name
from splitops.models.graph.onnx import all_graphs
from splitops.models.infer.splitting import Visit
from splitops.models.site import may_be_unbind
from splitops.sizes.dims import Dim, Shape
from splitops.sizes.ranges import part_range
from splitops.sizes.rules import SizeRule

__all__ = [
    "Condition",
    "Surely",
    "Surroundings",
    "any_sequence",
    "complex",
    "empty_ceil_part",
    "empty_lengths",
    "empty_name",
    "empty_open_part",
    "empty_transposed",
    "fewer_outputs",
    "large",
    "large_even",
    "merged",
    "more_outputs",
    "narrowed_values",
    "negative_remainder",
    "omitted_output",
    "open_chunks",
    "overshoots",
    "packed_constant",
    "runtime_lengths",
    "scalar_keepdims",
    "sequence_output",
    "sequence_type",
    "split_1",
    "split_1_lengths",
    "strings",
    "unbind",
    "uneven_negative_axis",
    "uneven_open_axis",
]

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
    """What a condition must know of the model around a site.

    Attributes:
        outputs: the names of the model's outputs.
        merged: the splits that onnxruntime takes for others.
        transposes: the orders of axes in which Transposes read a value, by the path of its graph and its
            name; an empty one reverses them.
    """

    outputs: frozenset[str] = frozenset()
    merged: frozenset[SiteKey] = frozenset()
    transposes: Orders = field(default_factory=dict)

    @classmethod
    def of(cls, model: ir.Model | OpenVINOModel) -> Surroundings:
        """Return what is to be known of a well-formed model."""
        if isinstance(model, OpenVINOModel):
            return cls(transposes=_transposes_of_ir(model))
        outputs = frozenset(value.name or "" for value in model.graph.outputs)
        return cls(outputs, merged_sites(model), _transposes(model))


def _transposes(model: ir.Model) -> Orders:
    found: dict[tuple[str | None, str], list[tuple[int, ...]]] = {}
    for path, graph in all_graphs(model):
        for node in graph:
            if node.op_type == "Transpose" and canonical(node.domain) == "" and node.inputs[0] is not None:
                order = node.attributes.get("perm")
                stated = () if order is None or order.is_ref() else tuple(order.value)
                found.setdefault((path, node.inputs[0].name or ""), []).append(stated)
    return found


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


Condition = Callable[[Visit, Surroundings], Surely]
"""From a site and the model around it to whether a limit is met there."""


def _surely(met: bool) -> Surely:
    return Surely.YES if met else Surely.NO


def _is_onnx(visit: Visit) -> bool:
    return visit.schema is not None and visit.schema.domain == ""


def _is_sequence(visit: Visit) -> bool:
    return _is_onnx(visit) and visit.schema is not None and visit.schema.gives_sequence


def _is_ir(visit: Visit) -> bool:
    return visit.schema is not None and visit.schema.domain == "openvino"


def _data(visit: Visit) -> Fact:
    return (visit.facts[0] if visit.facts else None) or Fact()


def _lengths(visit: Visit) -> Fact | None:
    return visit.facts[1] if len(visit.facts) > 1 else None


def _type_in(visit: Visit, *names: str) -> bool:
    kind = _data(visit).type
    return kind is not None and kind.name in names


def _axis_size(visit: Visit) -> Dim | None:
    binding = visit.binding
    if binding is None or binding.axis is None or binding.data.shape is None:
        return None
    return binding.data.shape[binding.axis]


def _at_least(size: Dim | None, bound: int) -> Surely:
    """Return whether a size reaches a bound; a size that nobody has bounded does not, without a hint."""
    if isinstance(size, int):
        return _surely(size >= bound)
    return Surely.YES if size is not None and size.lo >= bound else Surely.NO


def _is_ceil(visit: Visit) -> bool:
    binding = visit.binding
    return binding is not None and binding.division is not None and binding.division.rule is SizeRule.CEIL


def _ceil_parts(visit: Visit) -> list[Dim] | None:
    """Return the sizes of all parts that num_outputs asks for, declared or not; None where they are many."""
    binding, size = visit.binding, _axis_size(visit)
    if not _is_ceil(visit) or binding is None or binding.division is None or size is None:
        return None
    count = binding.division.count
    return [part_range(binding.division, size, index) for index in range(max(0, count - 1), count)]


def empty_ceil_part(visit: Visit, model: Surroundings) -> Surely:
    """The last of num_outputs parts is empty."""
    parts = _ceil_parts(visit)
    if parts is None:
        return Surely.NO
    last = parts[-1]
    if isinstance(last, int):
        return _surely(last == 0)
    if last.hi == 0:
        return Surely.YES
    # Of a size that nobody has bounded, an empty part is no more than a possibility of arithmetic.
    return Surely.MAYBE if last.lo == 0 and last.hi is not None else Surely.NO


def empty_open_part(visit: Visit, model: Surroundings) -> Surely:
    """num_outputs divides an axis of which only a run knows that no part is empty."""
    if not _is_onnx(visit) or not _is_ceil(visit) or _stated(visit) < 2:
        return Surely.NO
    parts = _ceil_parts(visit)
    if parts is None:
        return Surely.MAYBE
    last = parts[-1]
    return Surely.MAYBE if not isinstance(last, int) and last.lo == 0 and last.hi is None else Surely.NO


def merged(visit: Visit, model: Surroundings) -> Surely:
    """Another Split of the same data declares another number of outputs, and neither states lengths."""
    return _surely(site_key(visit.where.graph, visit.outputs) in model.merged)


def overshoots(visit: Visit, model: Surroundings) -> Surely:
    """Parts of ceil(D / n) reach beyond the axis before the last part begins."""
    size = _axis_size(visit)
    binding = visit.binding
    if not _is_ceil(visit) or binding is None or binding.division is None or not isinstance(size, int):
        return Surely.NO
    count = binding.division.count
    return _surely(-(-size // count) * (count - 1) > size)


def split_1(visit: Visit, model: Surroundings) -> Surely:
    """The version is Split-1."""
    return _surely(_is_onnx(visit) and str(visit.schema) == "Split-1")


def empty_name(visit: Visit, model: Surroundings) -> Surely:
    """num_outputs stands beside an input that is named ''."""
    row = visit.schema
    ceil = _is_onnx(visit) and row is not None and row.count_attribute in visit.attributes
    return _surely(ceil and len(visit.inputs) > 1 and visit.inputs[1] == "")


def omitted_output(visit: Visit, model: Surroundings) -> Surely:
    """An output is named ''."""
    return _surely(_is_onnx(visit) and "" in visit.outputs)


def fewer_outputs(visit: Visit, model: Surroundings) -> Surely:
    """Fewer outputs are declared than num_outputs says."""
    return _surely(_is_onnx(visit) and _stated(visit) > len(visit.outputs))


def more_outputs(visit: Visit, model: Surroundings) -> Surely:
    """More outputs are declared than num_outputs says."""
    return _surely(_is_onnx(visit) and 0 < _stated(visit) < len(visit.outputs))


def _stated(visit: Visit) -> int:
    name = None if visit.schema is None else visit.schema.count_attribute
    number = None if name is None else visit.attributes.get(name)
    return number if isinstance(number, int) else 0


def sequence_type(visit: Visit, model: Surroundings) -> Surely:
    """SplitToSequence has an element type that onnxruntime has no kernel for."""
    kinds = ("int8", "int16", "uint8", "uint16", "uint32", "uint64", "bfloat16")
    return _surely(_is_sequence(visit) and _type_in(visit, *kinds))


def complex(visit: Visit, model: Surroundings) -> Surely:
    """The data is complex."""
    return _surely(_is_onnx(visit) and _type_in(visit, "complex64", "complex128"))


def large(visit: Visit, model: Surroundings) -> Surely:
    """The axis has 2^31 elements or more, also where its lengths alone say so."""
    binding, inference = visit.binding, visit.inference
    if not _is_onnx(visit) or binding is None or binding.axis is None or inference is None:
        return Surely.NO
    return Surely.NO if inference.data is None else _at_least(inference.data[binding.axis], _INT32_MAX + 1)


def large_even(visit: Visit, model: Surroundings) -> Surely:
    """An axis of 2^31 elements or more is divided by a number."""
    binding = visit.binding
    counted = binding is not None and binding.division is not None and binding.division.count > 0
    return large(visit, model) if counted else Surely.NO


def unbind(visit: Visit, model: Surroundings) -> Surely:
    """Keepdims = 0 stands beside chunks of 1, as PyTorch exports a scripted unbind."""
    fact = _lengths(visit)
    if visit.schema is None or not may_be_unbind(visit.schema, visit.attributes, visit.facts):
        return Surely.NO
    return Surely.YES if fact is not None and fact.shape == () and fact.value == 1 else Surely.MAYBE


def scalar_keepdims(visit: Visit, model: Surroundings) -> Surely:
    """Keepdims = 0 stands beside chunks of more than 1."""
    fact, row = _lengths(visit), visit.schema
    if not _is_sequence(visit) or fact is None or row is None or row.keepdims is None:
        return Surely.NO
    if visit.attributes.get(row.keepdims.name) != 0:
        return Surely.NO
    return _surely(fact.shape == () and fact.value not in (None, 1))


def empty_lengths(visit: Visit, model: Surroundings) -> Surely:
    """The lengths are a constant without entries."""
    fact = _lengths(visit)
    constant = len(visit.constants) > 1 and visit.constants[1]
    return _surely(_is_sequence(visit) and fact is not None and fact.shape == (0,) and constant)


def negative_remainder(visit: Visit, model: Surroundings) -> Surely:
    """The -1 of VariadicSplit is left with less than 0."""
    error = visit.error
    return _surely(_is_ir(visit) and isinstance(error, RuleError) and error.rule is Rule.REMAINDER_NEGATIVE)


def narrowed_values(visit: Visit, model: Surroundings) -> Surely:
    """The data has 64-bit numbers, which may not fit 32 bits."""
    if _is_sequence(visit) or not _type_in(visit, "int64", "uint64", "float64"):
        return Surely.NO
    value = _data(visit).value
    if not isinstance(value, tuple):
        return Surely.MAYBE
    # Sizes that are computed from shapes stay far below 2^31.
    integers = [entry for entry in value if entry is not None]
    return _surely(any(abs(entry) > _INT32_MAX or entry != int(entry) for entry in integers))


def strings(visit: Visit, model: Surroundings) -> Surely:
    """The data is strings."""
    return _surely(_type_in(visit, "string") and not _is_sequence(visit))


def packed_constant(visit: Visit, model: Surroundings) -> Surely:
    """The data is a constant whose elements are smaller than a byte."""
    kind = _data(visit).type
    packed = kind is not None and kind.packed and bool(visit.constants) and visit.constants[0]
    return _surely(_is_ir(visit) and packed)


def uneven_open_axis(visit: Visit, model: Surroundings) -> Surely:
    """num_outputs divides an axis of unknown size."""
    if not _is_onnx(visit) or not _is_ceil(visit) or _stated(visit) < 2:
        return Surely.NO
    return Surely.NO if isinstance(_axis_size(visit), int) else Surely.MAYBE


def uneven_negative_axis(visit: Visit, model: Surroundings) -> Surely:
    """num_outputs leaves a smaller part of a negative axis."""
    size, axis = _axis_size(visit), visit.attributes.get("axis", 0)
    if not _is_ceil(visit) or not isinstance(axis, int) or axis >= 0 or not isinstance(size, int):
        return Surely.NO
    return _surely(size % _stated(visit) != 0)


def split_1_lengths(visit: Visit, model: Surroundings) -> Surely:
    """Split-1 takes lengths that are not equal as an input."""
    if str(visit.schema) != "Split-1" or not _is_onnx(visit):
        return Surely.NO
    fact = _lengths(visit)
    if fact is None:
        return Surely.NO
    if not isinstance(fact.value, tuple) or None in fact.value:
        return Surely.MAYBE
    return _surely(len(set(fact.value)) > 1)


def sequence_output(visit: Visit, model: Surroundings) -> Surely:
    """The sequence is an output of the model."""
    return _surely(_is_sequence(visit) and any(name in model.outputs for name in visit.outputs))


def empty_transposed(visit: Visit, model: Surroundings) -> Surely:
    """A part of size 0 is read by a Transpose that moves it past nothing but axes of size 1."""
    if _is_sequence(visit) or visit.inference is None:
        return Surely.NO
    parts = zip(visit.outputs, visit.inference.parts or (), strict=False)
    return _surely(
        any(
            part is not None and _moves_zero(part, order)
            for name, part in parts
            for order in model.transposes.get((visit.where.graph, name), ())
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


def open_chunks(visit: Visit, model: Surroundings) -> Surely:
    """A sequence of chunks is made of an axis of unknown size."""
    fact = _lengths(visit)
    if not _is_sequence(visit) or (fact is not None and fact.shape != ()):
        return Surely.NO
    return _surely(not isinstance(_axis_size(visit), int))


def runtime_lengths(visit: Visit, model: Surroundings) -> Surely:
    """A sequence is made by a chunk, or by a number of lengths, that only a run knows."""
    fact = _lengths(visit)
    if not _is_sequence(visit) or fact is None:
        return Surely.NO
    if fact.shape is None:
        return Surely.MAYBE
    return _surely(not isinstance(fact.shape[0], int) if fact.shape else fact.value is None)


def any_sequence(visit: Visit, model: Surroundings) -> Surely:
    """The operator gives a sequence."""
    return _surely(_is_sequence(visit))
