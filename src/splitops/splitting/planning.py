"""From a proved request to the sizes and offsets of the parts."""

from __future__ import annotations

from itertools import accumulate, islice
from typing import Final

from splitops.errors import NOWHERE, ArrayError, Rule, RuleError, Where, rule_error, shown
from splitops.ground.records import record
from splitops.native import Plan
from splitops.spec.operators.schemas import OperatorSchema
from splitops.spec.sizes.arithmetic import Division, part_count, part_sizes

MAX_PARTS: Final = 1 << 24
"""The most parts that one call makes; more is ``parts.count`` instead of exhausted memory."""


@record
class SplitRequest:
    """One split of one tensor, proved valid: what binding gives to planning.

    Attributes:
        schema: the operator version that asked.
        shape: shape of the data.
        axis: the split axis, in [0, rank).
        division: how its size is divided.
        squeeze: whether the parts, of size 1, lose the axis.
        outputs: how many parts are wanted, counted from the first; None is all.
        where: the place in a model.
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
        PartsError: ``parts.count`` where the request asks for more than :data:`MAX_PARTS` parts.
        ArrayError: a size of the shape does not fit into 64 bits.
    """
    size = request.shape[request.axis]
    count = part_count(request.division, size)
    if request.outputs is not None:
        count = min(count, request.outputs)
    if count > MAX_PARTS:
        asked = f"axis {request.axis} of data {request.shape} would be split into {count} parts"
        raise too_many_parts(request.schema, asked, count, request.where)
    sizes = part_sizes(request.division, size, count)
    offsets = tuple(islice(accumulate(sizes, initial=0), len(sizes)))
    sequence = request.schema.gives_sequence
    try:
        return Plan(request.shape, request.axis, offsets, sizes, request.squeeze, sequence)
    except ValueError as error:  # a size that no array can have
        said = f"{request.schema}: data of shape {shown(request.shape)} cannot be split: {error}"
        raise ArrayError(said, request.where) from error


def too_many_parts(schema: OperatorSchema, asked: str, count: int, where: Where) -> RuleError:
    """Return the error of a split into more parts than are made at once."""
    most = f"at most {MAX_PARTS} parts are made at once"
    return rule_error(str(schema), Rule.PARTS_COUNT, asked, most, where=where, count=count)
