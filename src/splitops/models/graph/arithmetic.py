"""Add nodes that compute the lengths of splits to ONNX graphs.

The size rules are expressed as arithmetic of 1-D int64 tensors. Tests compare the results with
:mod:`splitops.spec.sizes.arithmetic` for every size of an interval.
"""

from __future__ import annotations

from itertools import pairwise
from typing import assert_never

import onnx_ir as ir

from splitops.models.graph.op_builder import OnnxOpBuilder
from splitops.spec.sizes.arithmetic import Division
from splitops.spec.sizes.rules import SizeRule


def compute_lengths(division: Division, size: ir.Value, builder: OnnxOpBuilder) -> ir.Value:
    """Add nodes that compute the lengths of a division. ``size`` is the size of the axis, with shape [1]."""
    count, integers = division.count, builder.add_ints
    match division.rule:
        case SizeRule.CEIL:
            chunk = _compute_ceil_chunk(count, size, builder)
            starts = builder.add("Mul", [chunk, integers(range(count))])
            remaining = builder.add("Max", [builder.add("Sub", [size, starts]), integers([0])])
            return builder.add("Min", [remaining, chunk])
        case SizeRule.EVEN:
            # If count does not divide the size, the lengths do not add up, so that the Split fails.
            part = builder.add("Div", [size, integers([count])])
            return builder.add("Mul", [part, integers([1] * count)])
        case SizeRule.REMAINDER:
            given = [max(length, 0) for length in division.lengths]
            marks = integers([int(length < 0) for length in division.lengths])
            rest = builder.add("Sub", [size, integers([sum(given)])])
            return builder.add("Add", [integers(given), builder.add("Mul", [marks, rest])])
        case SizeRule.CHUNK:
            # If the axis is longer than count chunks, the lengths do not add up, so that the Split fails.
            starts = integers([index * division.chunk for index in range(count)])
            remaining = builder.add("Max", [builder.add("Sub", [size, starts]), integers([0])])
            return builder.add("Min", [remaining, integers([division.chunk])])
        case SizeRule.EXPLICIT:
            raise NotImplementedError("explicit lengths are set")
        case _:
            assert_never(division.rule)


def resolve_lengths(lengths: ir.Value, size: ir.Value, builder: OnnxOpBuilder) -> ir.Value:
    """Add nodes that replace a -1 in ``lengths``, if there is one, with the rest of ``size``."""
    marks = builder.add("Cast", [builder.add("Equal", [lengths, builder.add_ints([-1])])], {"to": _INT64})
    # With one -1, the sum of the other lengths is 1 more than the sum of all.
    rest = builder.add("Sub", [size, builder.add("ReduceSum", [lengths], {"keepdims": 1})])
    return builder.add("Add", [lengths, builder.add("Mul", [marks, rest])])


def compute_uniform_bounds(
    count: int, parts: int, size: ir.Value, builder: OnnxOpBuilder
) -> list[tuple[ir.Value, ir.Value]]:
    """Add nodes that compute the beginning and end of the first ``parts`` of ``count`` uniform parts.

    Bounds may be past the end of the axis.
    """
    chunk = _compute_ceil_chunk(count, size, builder)
    return list(
        pairwise(builder.add("Mul", [chunk, builder.add_ints([index])]) for index in range(parts + 1))
    )


def _compute_ceil_chunk(count: int, size: ir.Value, builder: OnnxOpBuilder) -> ir.Value:
    return builder.add(
        "Div", [builder.add("Add", [size, builder.add_ints([count - 1])]), builder.add_ints([count])]
    )


_INT64 = ir.DataType.INT64.value
