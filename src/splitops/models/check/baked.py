"""Find baked lengths: constant lengths of a split on an axis of dynamic size, so that only one size works.

Exporters write such lengths when they trace a model with a single input.
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
"""A character that symbols cannot contain; see :mod:`splitops.spec.sizes.names`."""


class OpenSizes(NamedTuple):
    """The dynamic sizes of a model's inputs.

    Attributes:
        symbols: names of the dynamic sizes. A size without a name gets one from its input and axis.
        given: abstract values of the inputs for inference, with a name for each dynamic size.
    """

    symbols: frozenset[str]
    given: Mapping[ir.Value, AbstractValue]

    @classmethod
    def from_model(cls, model: ir.Model) -> OpenSizes:
        """Collect the dynamic sizes of the inputs of the main graph."""
        symbols: set[str] = set()
        given: dict[ir.Value, AbstractValue] = {}
        for value in _list_inputs(model):
            found = get_abstract_value(value)
            if not isinstance(found, AbstractTensor) or found.shape is None:
                continue
            shape = tuple(_name_dim(size, value, axis) for axis, size in enumerate(found.shape))
            symbols |= {size.name for size in shape if isinstance(size, Range) and size.name}
            given[value] = AbstractTensor(found.type, shape)
        return cls(frozenset(symbols), given)

    def describe_baked(self, split_node: SplitNode) -> str | None:
        """Return a message if a split has constant lengths on a dynamic axis, so that only one size works.

        Otherwise return None. ``split_node`` must come from inference that started with :attr:`given`.
        """
        lengths, size = find_baked_lengths(split_node), split_node.size
        if lengths is None or not isinstance(size, Range) or size.name is None:
            return None
        if not names.find_symbols(size.name) & self.symbols:
            return None  # the model computes this size, possibly always the same one
        data = shown(split_node.inputs[0]) if split_node.inputs else "the data"
        text = f"axis {split_node.axis} of {data} has the dynamic size {size.name}, but the lengths"
        return f"{text} {brief(lengths)} are constants, which accept only the size {sum(lengths)}"


def find_baked_lengths(split_node: SplitNode) -> tuple[int, ...] | None:
    """Return the lengths of a split if they are constant and do not contain -1, otherwise None."""
    division = split_node.division
    return division.lengths if division is not None and division.rule is SizeRule.EXPLICIT else None


def find_baked_splits(model: ir.Model, where: Where) -> list[tuple[SplitNode, str]]:
    """Return the splits with baked lengths, each with its message."""
    sizes = OpenSizes.from_model(model)
    # Forward inference: a size that one split implies must not hide the baked lengths of the next.
    splits = ForwardInterpreter(model, where, given=sizes.given).run().splits
    found = ((split_node, sizes.describe_baked(split_node)) for split_node in splits)
    return [(split_node, text) for split_node, text in found if text is not None]


def may_be_baked(split_node: SplitNode) -> bool:
    """Return whether a split has constant lengths on an axis of unknown size."""
    return find_baked_lengths(split_node) is not None and isinstance(split_node.size, Range)


def describe_cures(split_node: SplitNode) -> str:
    """Return advice on baked lengths: the ``--open`` values that suit them, and the axis size to declare."""
    lengths = find_baked_lengths(split_node) or ()
    ways = ["even"] if is_even(lengths) else []
    ways += ["chunk"] if find_chunk(lengths) is not None else []
    last = len(lengths) - 1
    ways += [f"rest=0 to rest={last}" if last else "rest=0"] if lengths else []
    declare = f"declare input sizes for which the axis has the size {sum(lengths)}"
    others = f" (or {', or '.join(ways[1:])})" if ways[1:] else ""
    return f"splitops fix MODEL --open {ways[0]}{others}; or {declare}" if ways else declare


def is_even(lengths: tuple[int, ...]) -> bool:
    """Return whether there are lengths and all are equal."""
    return bool(lengths) and len(set(lengths)) == 1


def find_chunk(lengths: tuple[int, ...]) -> int | None:
    """Return the chunk size if all lengths are equal, except that the last may be smaller; otherwise None.

    No length may be 0.

    Examples:
        >>> find_chunk((4, 4, 2)), find_chunk((4, 4)), find_chunk((2, 4)), find_chunk((3,))
        (4, 4, None, 3)
    """
    chunk = lengths[0] if lengths else 0
    regular = set(lengths[:-1]) <= {chunk} and 0 < lengths[-1] <= chunk if chunk else False
    return chunk if regular else None


def _list_inputs(model: ir.Model) -> list[ir.Value]:
    if not has_layers(model):
        return list(model.graph.inputs)
    return [node.outputs[0] for node in model.graph if node.op_type == "Parameter"]


def _name_dim(size: Dim, value: ir.Value, axis: int) -> Dim:
    if isinstance(size, int) or size.name:
        return size
    return Range(size.lo, size.hi, f"{_NO_SYMBOL.sub('_', value.name or '')}[{axis}]")
