"""Generates random specs: listed specs with other types, ranks and axes, and specs with other sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any, Final

import numpy as np

from splitops.spec import ELEMENT_TYPES, SCHEMAS, OperatorSchema, SizeRule, SourceKind
from splitops_compare.cases.fusion_patterns import FUSION_PATTERNS
from splitops_compare.cases.invalid_specs import generate_invalid_specs
from splitops_compare.cases.spec_templates import find_lengths_input, make_part_names
from splitops_compare.cases.valid_specs import generate_sized_specs, generate_valid_specs
from splitops_compare.data import CaseSpec

SpecPair = tuple[CaseSpec, CaseSpec | None]
"""A spec and its valid baseline, which may be None if the spec itself is valid."""

_SIZES: Final = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 16, 17, 31, 32, 33)
_LARGE: Final = (2**31 - 1, 2**31, 2**32 + 4, 2**53 + 2)
"""Sizes that appear only if another axis is empty."""
_MAX_PARTS: Final = 9
_MAX_AXES: Final = 4
_SPECIALS_OF_ANY_TYPE: Final = (None, "absent", "constant-data", "elements", "unranked")


def generate_specs(seed: int) -> Iterator[SpecPair]:
    """Yield random specs without end, each with a baseline or None. About half of them break a rule."""
    random = Random(seed)  # noqa: S311 - not a secret
    listed: dict[OperatorSchema, tuple[list[CaseSpec], list[tuple[CaseSpec, CaseSpec]]]] = {}
    while True:
        schema = random.choice(SCHEMAS)
        if schema not in listed:
            listed[schema] = (
                [spec for spec in generate_valid_specs(schema) if spec.special not in FUSION_PATTERNS],
                [pair for pair in generate_invalid_specs(schema) if pair[0].shape],
            )
        valid, invalid = listed[schema]
        sized = _omit_output(random, schema, random.choice(list(_iter_sized(random, schema))))
        match random.randrange(4):
            case 0:
                yield _transform(random, schema, random.choice(valid))[0], None
            case 1:
                yield _transform(random, schema, sized)[0], None
            case 2 if schema.count_attribute not in sized.attributes:  # otherwise any size may be valid
                spec, baseline = _transform(random, schema, _lengthen_axis(sized), sized)
                yield spec, baseline
            case _:
                spec, baseline = _transform(random, schema, *random.choice(invalid))
                yield spec, baseline


def _iter_sized(random: Random, schema: OperatorSchema) -> Iterator[CaseSpec]:
    """Yield specs that split an axis of a random size into equal, empty and other parts."""
    size = random.choice(random.choice([_SIZES] * 7 + [_LARGE]))
    count = random.randint(1, _MAX_PARTS)
    candidates = [(0, size, 1, size - 1, size * part // count) for part in range(1, count)]
    bounds = [0, *sorted(min(max(random.choice(each), 0), size) for each in candidates), size]
    lengths = [end - begin for begin, end in pairwise(bounds)]
    remainder = list(lengths)
    remainder[random.randrange(count)] = -1
    min_chunk = max(1, -(-size // _MAX_PARTS))
    chunk = max(min_chunk, random.choice((size, size - 1, size + 1, size // 2, min_chunk)))
    even = size - size % count if schema.count_rule is SizeRule.EVEN else size
    all_lengths = [(size, lengths), (size, remainder)] * 2
    return generate_sized_specs(schema, [(even, count)], [(size, chunk)], all_lengths)


def _omit_output(random: Random, schema: OperatorSchema, spec: CaseSpec) -> CaseSpec:
    """Omit one of several outputs with a probability of 1/4, if the outputs of the operator are optional."""
    names = list(spec.outputs)
    if schema.domain or schema.gives_sequence or len(names) < 2 or random.randrange(4):
        return spec
    names[random.randrange(len(names))] = ""
    return replace(spec, outputs=tuple(names))


def _lengthen_axis(spec: CaseSpec) -> CaseSpec:
    axis = (spec.axis or 0) % len(spec.shape)
    return replace(spec, shape=tuple(size + (place == axis) for place, size in enumerate(spec.shape)))


def _transform(random: Random, schema: OperatorSchema, *specs: CaseSpec) -> list[CaseSpec]:
    """Change the axes, the element type and other fields of a spec and its baseline in the same way."""
    last = specs[-1]
    is_large = any(max(spec.shape, default=0) > max(_SIZES) * 2 and 0 not in spec.shape for spec in specs)
    count = random.randint(is_large, _MAX_AXES - max(len(spec.shape) for spec in specs))
    sizes = [random.randint(1, 3) for _ in range(count)]
    sizes[:is_large] = [0] * is_large
    position = random.randint(0, count)
    changes_dynamic, flips_axis = random.random() < 0.5, random.random() < 0.5
    dtype = random.choice(sorted(kind.name for kind in schema.types_of(schema.inputs[0])))
    shares_type = all(spec.lengths_dtype == spec.dtype != "int64" for spec in specs) and not is_large
    if last.special not in _SPECIALS_OF_ANY_TYPE or (last.lengths_dtype == last.dtype and not shares_type):
        dtype = last.dtype
    transformed = [
        replace(
            _add_axes(spec, sizes[:position], sizes[position:], flips_axis),
            dtype=dtype if spec.dtype == last.dtype else spec.dtype,
            lengths_dtype=dtype if shares_type else spec.lengths_dtype,
            dynamic=spec.dynamic ^ changes_dynamic,
        )
        for spec in specs
    ]
    return _vary_unset(random, schema, transformed)


def _vary_unset(random: Random, schema: OperatorSchema, specs: list[CaseSpec]) -> list[CaseSpec]:
    """Vary fields that have their default value in all specs: types, axis shape, keepdims, special."""
    options: dict[str, Sequence[Any]] = {}
    if schema.axis.kind is SourceKind.INPUT:
        ranks = schema.inputs[schema.input_index(schema.axis.name)].ranks
        options["axis_dtype"] = ("int64", "int32")
        options["axis_shape"] = ((), (1,)) if ranks is None or 1 in ranks else ((),)
        options["special"] = (None, None, "unranked", "constant-data")
    if len(specs) == 1:  # the spec is valid
        lengths, source = specs[0].lengths, find_lengths_input(schema)
        if lengths is not None and source is not None and np.max(lengths, initial=0) < min(_LARGE):
            types = schema.types_of(schema.inputs[schema.input_index(source.name)])
            options["lengths_dtype"] = [name for name in ("int64", "int32") if ELEMENT_TYPES[name] in types]
        if schema.keepdims is not None:
            options["attributes"] = ({}, {schema.keepdims.name: 0}, {schema.keepdims.name: 1})
    for name, values in options.items():
        if values and all(getattr(spec, name) == values[0] for spec in specs):
            value = random.choice(values)
            specs = [replace(spec, **{name: value}) for spec in specs]
    if schema.gives_sequence and len(specs) == 1 and specs[0].special is None:
        size, lengths = specs[0].shape[specs[0].axis or 0], specs[0].lengths
        parts = len(lengths) if isinstance(lengths, list) else -(-size // (lengths or 1))
        if parts and random.random() < 0.5:
            return [replace(specs[0], special="elements", outputs=make_part_names(min(parts, 2)))]
    return specs


def _add_axes(spec: CaseSpec, before: list[int], after: list[int], flips_axis: bool) -> CaseSpec:
    """Add axes before and after those of a spec. An axis that is out of range stays out of range.

    With ``flips_axis``, an axis in range is counted from the other end, unless its type is unsigned.
    """
    rank, axis = len(spec.shape), spec.axis
    if axis is not None or before:
        axis = axis or 0
        if -rank <= axis < rank:
            axis += len(before) if axis >= 0 else -len(after)
            if flips_axis and not spec.axis_dtype.startswith("u"):
                axis += (rank + len(before) + len(after)) * (1 if axis < 0 else -1)
        else:
            axis += (len(before) + len(after)) * (1 if axis > 0 else -1)
    return replace(spec, shape=(*before, *spec.shape, *after), axis=axis)
