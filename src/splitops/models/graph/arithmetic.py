"""Lengths that a graph computes when it runs.

These are the size rules as arithmetic of 1-D int64 tensors. The tests hold what such a graph computes against
:mod:`splitops.spec.sizes.arithmetic` for every size of an interval.
"""

from __future__ import annotations

from itertools import pairwise
from typing import assert_never

import onnx_ir as ir

from splitops.models.graph.onnx import Tape
from splitops.spec.sizes.arithmetic import Division
from splitops.spec.sizes.rules import SizeRule


def lengths_of_size(division: Division, size: ir.Value, tape: Tape) -> ir.Value:
    """Compute the lengths of a division from the size of the axis.

    Args:
        division: what is to be computed.
        size: the size of the axis, of shape [1].
        tape: writes the nodes.

    Returns:
        All lengths, of shape [n].
    """
    count, integers = division.count, tape.integers
    match division.rule:
        case SizeRule.CEIL:
            chunk = _ceil_chunk(count, size, tape)
            starts = tape.op("Mul", [chunk, integers(range(count))])
            left = tape.op("Max", [tape.op("Sub", [size, starts]), integers([0])])
            return tape.op("Min", [left, chunk])
        case SizeRule.EVEN:
            # Where count does not divide the size, the lengths do not add up: still an error.
            part = tape.op("Div", [size, integers([count])])
            return tape.op("Mul", [part, integers([1] * count)])
        case SizeRule.REMAINDER:
            given = [max(length, 0) for length in division.lengths]
            marks = integers([int(length < 0) for length in division.lengths])
            rest = tape.op("Sub", [size, integers([sum(given)])])
            return tape.op("Add", [integers(given), tape.op("Mul", [marks, rest])])
        case SizeRule.EXPLICIT | SizeRule.CHUNK:
            raise NotImplementedError(
                "explicit lengths are set, and the number of chunks depends on the size"
            )
        case _:
            assert_never(division.rule)


def resolved_lengths(lengths: ir.Value, size: ir.Value, tape: Tape) -> ir.Value:
    """Compute lengths in which a -1, if there is one, is what the others leave of the size."""
    marks = tape.op("Cast", [tape.op("Equal", [lengths, tape.integers([-1])])], {"to": _INT64})
    # With one -1, the sum of the others is the sum of all + 1.
    rest = tape.op("Sub", [size, tape.op("ReduceSum", [lengths], {"keepdims": 1})])
    return tape.op("Add", [lengths, tape.op("Mul", [marks, rest])])


def uniform_bounds(count: int, parts: int, size: ir.Value, tape: Tape) -> list[tuple[ir.Value, ir.Value]]:
    """Compute begin and end of the first parts of the EVEN and CEIL rules; they may lie behind the end."""
    chunk = _ceil_chunk(count, size, tape)
    return list(pairwise(tape.op("Mul", [chunk, tape.integers([index])]) for index in range(parts + 1)))


def _ceil_chunk(count: int, size: ir.Value, tape: Tape) -> ir.Value:
    return tape.op("Div", [tape.op("Add", [size, tape.integers([count - 1])]), tape.integers([count])])


_INT64 = ir.DataType.INT64.value
