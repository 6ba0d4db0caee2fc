"""Binding: check that a node or call is a valid split, and report the exact rule that it breaks.

Inputs are :class:`Fact` objects, which may be incomplete. Execution, for which everything is known, therefore
shares all rules with inference and checks. The schema is compiled once (:mod:`.compiled_schema`). The
modules of the steps, in order, are :mod:`.node`, :mod:`.count` (which argument sets the lengths or their
number), :mod:`.axis`, :mod:`.lengths`, :mod:`.sizes`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from splitops.common.json_values import record
from splitops.errors import NOWHERE, Rule, Where, rule_error, shown
from splitops.spec.operators.schemas import OperatorSchema, SourceKind
from splitops.spec.sizes.arithmetic import Division
from splitops.spec.sizes.dims import Range, Shape
from splitops.splitting.binding.axis import find_axis, read_keepdims
from splitops.splitting.binding.compiled_schema import compile_schema
from splitops.splitting.binding.count import find_sources, read_count
from splitops.splitting.binding.facts import Fact, make_fact, make_unknown_type
from splitops.splitting.binding.lengths import read_lengths
from splitops.splitting.binding.node import Node, read_data
from splitops.splitting.binding.sizes import check_sizes
from splitops.splitting.planning import SplitRequest

__all__ = ["Binding", "Fact", "bind", "make_fact", "make_unknown_type"]


@record
class Binding:
    """A valid split, some of whose properties may be unknown.

    Attributes:
        schema: operator version.
        data: facts about the tensor to split.
        axis: split axis, in [0, rank) if the rank is known; None if the axis is unknown.
        division: how the axis is divided; None if the lengths are unknown.
        lengths: lengths, with None for unknown ones; None if ``division`` is set, or if their number is
            unknown or too large to list them.
        squeeze: whether the parts lose the axis; None if that is unknown.
        outputs: number of outputs that the node declares, or None if that is not given.
        where: location in a model.
        lengths_shape: shape of the lengths, ``()`` for a chunk size; None if it is unknown or not set.
    """

    schema: OperatorSchema
    data: Fact
    axis: int | None
    division: Division | None
    lengths: tuple[int | None, ...] | None
    squeeze: bool | None
    outputs: int | None
    where: Where
    lengths_shape: Shape | None = None

    def request(self) -> SplitRequest:
        """Return the request for planning. The shape of the data and ``squeeze`` must be known.

        Raises:
            RuleError: the axis or the division is unknown.
        """
        if self.axis is None:
            got, expected = "axis has no value", "it must be an integer"
            raise rule_error(str(self.schema), Rule.AXIS_DTYPE, got, expected, where=self.where)
        if self.division is None:
            sources = [*self.schema.lengths, *filter(None, [self.schema.count])]
            operands = [source.name for source in sources if source.kind is not SourceKind.OUTPUTS]
            names = " or ".join(dict.fromkeys(operands))
            got, expected = f"{names} has no value", "it must be known"
            if self.lengths is not None:
                got, expected = (
                    f"{self.schema.lengths[-1].name} = {shown(list(self.lengths))}",
                    "each length must be an integer",
                )
            rule = Rule.LENGTHS_DTYPE if self.schema.lengths else Rule.PARTS_COUNT
            raise rule_error(str(self.schema), rule, got, expected, where=self.where)
        assert self.squeeze is not None
        shape: Any = self.data.shape
        assert Range not in map(type, shape)
        outputs = None if self.schema.gives_sequence else self.outputs
        return SplitRequest(self.schema, shape, self.axis, self.division, self.squeeze, outputs, self.where)


def bind(
    schema: OperatorSchema,
    attributes: Mapping[str, Any],
    inputs: Sequence[Fact | None],
    *,
    outputs: int | None = None,
    where: Where | None = None,
) -> Binding:
    """Check one split, some of whose properties may be unknown, and return its :class:`Binding`.

    Args:
        schema: operator version.
        attributes: the node's attributes by name: integers, or sequences of integers; a :class:`Fact` for one
            that is set, but not completely known.
        inputs: facts about each input, in the operator's order; None for an absent input.
        outputs: number of outputs that the node declares, or None.
        where: location in a model, for messages.

    Raises:
        RuleError: the first broken rule that is found. It may be ``op.version`` for attributes and inputs
            that this version does not have, ``type.unsupported``, ``axis.*``, ``keepdims.value``,
            ``lengths.*``, ``parts.*``, ``chunk.positive``, ``remainder.*``, ``outputs.count``.
        ModelError: the data input is absent.
    """
    compiled = compile_schema(schema)
    node = Node(compiled, attributes, inputs, outputs, where or NOWHERE)
    data = read_data(node)
    source, count = find_sources(node)
    axis = find_axis(node, data)
    keeps = read_keepdims(node)  # checked even if the lengths override it
    if compiled.sequence and outputs not in (None, 1):
        raise node.make_error(
            Rule.OUTPUTS_COUNT, f"{outputs} outputs are declared", "the operator returns one sequence"
        )
    if source is not None:
        keeps = True
        division, lengths, lengths_shape = read_lengths(node, source, data)
    else:
        division, lengths, lengths_shape = read_count(node, count), None, None
    asked = division or lengths
    if asked is not None and data.shape is not None:
        check_sizes(node, asked, source or count or compiled.lengths[0], data.shape, axis)
    squeeze = None if keeps is None else not keeps
    return Binding(schema, data, axis, division, lengths, squeeze, outputs, node.where, lengths_shape)
