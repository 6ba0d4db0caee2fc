"""Binding step: check that the axis can have a size that the division accepts."""

from __future__ import annotations

from splitops.common.integers import INT64_MAX
from splitops.errors import Rule, RuleError, brief
from splitops.spec.operators.schemas import SourceKind
from splitops.spec.sizes.arithmetic import Division, describe, find_violation
from splitops.spec.sizes.dims import Dim, Range, Shape
from splitops.spec.sizes.ranges import find_valid_sizes, merge_unknown_lengths
from splitops.splitting.binding.compiled_schema import Operand
from splitops.splitting.binding.lengths import Lengths
from splitops.splitting.binding.node import Node, format_shape


def check_sizes(
    node: Node, division: Division | Lengths, subject: Operand, shape: Shape, axis: int | None
) -> None:
    """Check that the division accepts a size that the axis can have. An unknown axis may be any of ``shape``.

    ``division`` may be a list of lengths, some of them unknown. ``subject`` is the operand that sets it.
    """
    least = merge_unknown_lengths(division) if isinstance(division, tuple) else division
    sizes = shape if axis is None else (shape[axis],)
    if not any(_has_size(least, size) for size in sizes):
        raise _make_error(node, division, least, subject, shape, axis)


def _has_size(division: Division, axis: Dim) -> bool:
    """Return whether ``division`` accepts any size that an axis can have.

    If the size is not known exactly, the smallest accepted one must fit in int64.
    """
    found = find_valid_sizes(division, axis)
    least = found.lo if isinstance(found, Range) else found
    return least is not None and (isinstance(axis, int) or least <= INT64_MAX)


def _make_error(
    node: Node,
    division: Division | Lengths,
    least: Division,
    subject: Operand,
    shape: Shape,
    axis: int | None,
) -> RuleError:
    size = shape[-1 if axis is None else axis]
    largest = size if isinstance(size, int) else size.lo if size.hi is None else size.hi
    broken = find_violation(least, largest)
    assert broken is not None
    rule, got, expected = broken.rule, broken.got, broken.expected
    if isinstance(division, tuple):
        lengths = division
        text = f"{subject.name} = {brief(lengths)}"
        if -1 not in lengths:
            rule, got = Rule.LENGTHS_SUM, f"sums to at least {sum(least.lengths) + 1}"
    else:
        lengths = division.lengths
        outputs = subject.source.kind is SourceKind.OUTPUTS
        text = describe(least, "number of outputs" if outputs else subject.name)
    if isinstance(size, Range):
        expected = "has no size that fits"
    place = f"axis {axis} of data {format_shape(shape)} {expected}"
    return node.make_error(
        rule,
        f"{text} {got}",
        place if axis is not None else f"no axis of data {format_shape(shape)} fits",
        subject,
        lengths=lengths,
        axis=axis,
        shape=shape,
        size=size,
    )
