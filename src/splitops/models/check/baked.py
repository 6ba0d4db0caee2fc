"""Baked lengths: constants on an axis whose size the model leaves open, so that only one size works.

Exporters write them, as they trace a model with one input.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

import onnx_ir as ir

from splitops.errors import Where, brief, shown
from splitops.models.abstract_values import AbstractTensor, AbstractValue
from splitops.models.formats.walk import has_layers
from splitops.models.graph.onnx import get_abstract_value
from splitops.models.infer.interpreter import ForwardInterpreter
from splitops.models.split_nodes import SplitNode
from splitops.spec.sizes import names
from splitops.spec.sizes.dims import Dim, Range
from splitops.spec.sizes.rules import SizeRule

CODE: Final = "lengths.baked"
_NO_SYMBOL: Final = re.compile(r"[-\s*/()+]")
"""What no symbol contains, see :mod:`splitops.spec.sizes.names`."""


class OpenSizes(NamedTuple):
    """The sizes that the inputs of a model leave open.

    Attributes:
        symbols: their names; one without a name is called by its input and axis.
        given: what a walk is told of the inputs, so that it follows sizes without names too.
    """

    symbols: frozenset[str]
    given: Mapping[ir.Value, AbstractValue]

    @classmethod
    def of(cls, model: ir.Model) -> OpenSizes:
        """Return the sizes that the inputs of the main graph leave open."""
        symbols: set[str] = set()
        given: dict[ir.Value, AbstractValue] = {}
        for value in _inputs(model):
            found = get_abstract_value(value)
            if not isinstance(found, AbstractTensor) or found.shape is None:
                continue
            shape = tuple(_named(size, value, axis) for axis, size in enumerate(found.shape))
            symbols |= {size.name for size in shape if isinstance(size, Range) and size.name}
            given[value] = AbstractTensor(found.type, shape)
        return cls(frozenset(symbols), given)

    def baked(self, split_node: SplitNode) -> str | None:
        """Return what is wrong with a split whose lengths are constants on an open axis; None: nothing is.

        The split must be one of a walk that was told what is ``given``.
        """
        lengths, size = baked_lengths(split_node), _axis_size(split_node)
        if lengths is None or not isinstance(size, Range) or size.name is None:
            return None
        if not names.find_symbols(size.name) & self.symbols:
            return None  # a size that an operator of the model makes: it may always be the same
        axis, data = split_node.bind().axis, shown(split_node.inputs[0]) if split_node.inputs else "the data"
        text = f"axis {axis} of {data} has the open size {size.name}, but the lengths {brief(lengths)} are"
        return f"{text} constants, which accept only the size {sum(lengths)}"


def baked_lengths(split_node: SplitNode) -> tuple[int, ...] | None:
    """Return the lengths of a split that are the same in every run; None where there are none such."""
    division = None if split_node.binding is None else split_node.binding.division
    return division.lengths if division is not None and division.rule is SizeRule.EXPLICIT else None


def find_baked(model: ir.Model, where: Where) -> list[tuple[SplitNode, str]]:
    """Return the splits of a model with baked lengths, each with what is wrong."""
    sizes = OpenSizes.of(model)
    found: list[tuple[SplitNode, str]] = []

    def on_site(split_node: SplitNode) -> None:
        text = sizes.baked(split_node)
        if text is not None:
            found.append((split_node, text))

    # What one split proves of a size must not hide the lengths of the next one.
    ForwardInterpreter(model, where, on_site, given=sizes.given).run()
    return found


def may_be_baked(split_node: SplitNode) -> bool:
    """Return whether a split has constant lengths on an axis of unknown size."""
    return baked_lengths(split_node) is not None and isinstance(_axis_size(split_node), Range)


def cures(split_node: SplitNode) -> str:
    """Return what to do about baked lengths: the values of ``--open`` that the split can have."""
    lengths = baked_lengths(split_node) or ()
    ways = ["even"] if is_even(lengths) else []
    ways += ["chunk"] if chunk_of(lengths) is not None else []
    last = len(lengths) - 1
    ways += [f"rest=0 to rest={last}" if last else "rest=0"] if lengths else []
    declare = f"declare sizes of the inputs with which the axis has the size {sum(lengths)}"
    others = f" (or {', or '.join(ways[1:])})" if ways[1:] else ""
    return f"splitops fix MODEL --open {ways[0]}{others}; or {declare}" if ways else declare


def is_even(lengths: tuple[int, ...]) -> bool:
    """Return whether lengths are equal."""
    return bool(lengths) and len(set(lengths)) == 1


def chunk_of(lengths: tuple[int, ...]) -> int | None:
    """Return the size of the chunks that lengths are, of which the last one may be smaller.

    Examples:
        >>> chunk_of((4, 4, 2)), chunk_of((4, 4)), chunk_of((2, 4)), chunk_of((3,))
        (4, 4, None, 3)
    """
    chunk = lengths[0] if lengths else 0
    regular = set(lengths[:-1]) <= {chunk} and 0 < lengths[-1] <= chunk if chunk else False
    return chunk if regular else None


def _axis_size(split_node: SplitNode) -> Dim | None:
    binding = split_node.binding
    if binding is None or binding.axis is None or binding.data.shape is None:
        return None
    return binding.data.shape[binding.axis]


def _inputs(model: ir.Model) -> list[ir.Value]:
    if not has_layers(model):
        return list(model.graph.inputs)
    return [node.outputs[0] for node in model.graph if node.op_type == "Parameter"]


def _named(size: Dim, value: ir.Value, axis: int) -> Dim:
    if isinstance(size, int) or size.name:
        return size
    return Range(size.lo, size.hi, f"{_NO_SYMBOL.sub('_', value.name or '')}[{axis}]")
