"""Compute lengths of splits in ONNX graphs.

The size rules are written as arithmetic of 1-D int64 tensors. Tests compare the results with
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
    """Compute all lengths of a division, of shape [n], from the size of the axis, of shape [1]."""
    count, integers = division.count, builder.integers
    match division.rule:
        case SizeRule.CEIL:
            chunk = _compute_ceil_chunk(count, size, builder)
            starts = builder.op("Mul", [chunk, integers(range(count))])
            left = builder.op("Max", [builder.op("Sub", [size, starts]), integers([0])])
            return builder.op("Min", [left, chunk])
        case SizeRule.EVEN:
            # If count does not divide the size, the lengths do not add up, which is an error, too.
            part = builder.op("Div", [size, integers([count])])
            return builder.op("Mul", [part, integers([1] * count)])
        case SizeRule.REMAINDER:
            given = [max(length, 0) for length in division.lengths]
            marks = integers([int(length < 0) for length in division.lengths])
            rest = builder.op("Sub", [size, integers([sum(given)])])
            return builder.op("Add", [integers(given), builder.op("Mul", [marks, rest])])
        case SizeRule.CHUNK:
            # If the axis is longer than count chunks, the lengths do not add up.
            starts = integers([index * division.chunk for index in range(count)])
            left = builder.op("Max", [builder.op("Sub", [size, starts]), integers([0])])
            return builder.op("Min", [left, integers([division.chunk])])
        case SizeRule.EXPLICIT:
            raise NotImplementedError("explicit lengths are set")
        case _:
            assert_never(division.rule)


def resolve_lengths(lengths: ir.Value, size: ir.Value, builder: OnnxOpBuilder) -> ir.Value:
    """Replace a -1 in lengths, if there is one, by the rest of ``size``."""
    marks = builder.op("Cast", [builder.op("Equal", [lengths, builder.integers([-1])])], {"to": _INT64})
    # With one -1, the sum of the other lengths is the sum of all lengths + 1.
    rest = builder.op("Sub", [size, builder.op("ReduceSum", [lengths], {"keepdims": 1})])
    return builder.op("Add", [lengths, builder.op("Mul", [marks, rest])])


def compute_uniform_bounds(
    count: int, parts: int, size: ir.Value, builder: OnnxOpBuilder
) -> list[tuple[ir.Value, ir.Value]]:
    """Compute begin and end of the first ``parts`` of ``count`` uniform parts; they may be past the end."""
    chunk = _compute_ceil_chunk(count, size, builder)
    return list(pairwise(builder.op("Mul", [chunk, builder.integers([index])]) for index in range(parts + 1)))


def _compute_ceil_chunk(count: int, size: ir.Value, builder: OnnxOpBuilder) -> ir.Value:
    return builder.op(
        "Div", [builder.op("Add", [size, builder.integers([count - 1])]), builder.integers([count])]
    )


_INT64 = ir.DataType.INT64.value
