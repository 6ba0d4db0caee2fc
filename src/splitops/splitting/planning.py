"""Valid requests, and the sizes and offsets of their parts."""

from __future__ import annotations

from itertools import accumulate, islice
from typing import Final

from splitops.common.json_values import record
from splitops.errors import NOWHERE, ArrayError, Rule, RuleError, Where, rule_error, shown
from splitops.native import Plan
from splitops.spec.operators.schemas import OperatorSchema
from splitops.spec.sizes.arithmetic import Division, compute_part_sizes, count_parts

MAX_PARTS: Final = 1 << 24
"""Maximum number of parts of one split. Larger numbers raise ``parts.count``, to limit memory use."""


@record
class SplitRequest:
    """One valid split of one tensor, which binding passes to planning.

    Attributes:
        schema: operator version.
        shape: shape of the data.
        axis: split axis, in [0, rank).
        division: how the axis is divided.
        squeeze: whether the parts, which then have size 1, lose the axis.
        outputs: number of parts to return, counted from the first, or None for all.
        where: location in a model.
    """

    schema: OperatorSchema
    shape: tuple[int, ...]
    axis: int
    division: Division
    squeeze: bool = False
    outputs: int | None = None
    where: Where = NOWHERE


def plan_request(request: SplitRequest) -> Plan:
    """Compute the plan of a valid request.

    Raises:
        PartsError: the request has more than :data:`MAX_PARTS` parts (``parts.count``).
        ArrayError: a size of the shape does not fit into 64 bits.
    """
    size = request.shape[request.axis]
    count = count_parts(request.division, size)
    if request.outputs is not None:
        count = min(count, request.outputs)
    if count > MAX_PARTS:
        asked = f"axis {request.axis} of data {request.shape} would be split into {count} parts"
        raise make_parts_error(request.schema, asked, count, request.where)
    sizes = compute_part_sizes(request.division, size, count)
    offsets = tuple(islice(accumulate(sizes, initial=0), len(sizes)))
    sequence = request.schema.gives_sequence
    try:
        return Plan(request.shape, request.axis, offsets, sizes, request.squeeze, sequence)
    except ValueError as error:  # a size is too large for an array
        said = f"{request.schema}: data of shape {shown(request.shape)} cannot be split: {error}"
        raise ArrayError(said, request.where) from error


def make_parts_error(schema: OperatorSchema, asked: str, count: int, where: Where) -> RuleError:
    """Make the error for a split into more than :data:`MAX_PARTS` parts."""
    most = f"at most {MAX_PARTS} parts are allowed"
    return rule_error(str(schema), Rule.PARTS_COUNT, asked, most, where=where, count=count)
