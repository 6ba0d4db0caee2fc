"""Binding step: determine the axis of a split, and whether its parts keep that axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from splitops.errors import Rule, shown
from splitops.spec.sizes.dims import to_integer
from splitops.splitting.binding.facts import Fact
from splitops.splitting.binding.node import Node, format_shape


def find_axis(node: Node, data: Fact) -> int | None:
    """Return the axis, or None if it is unknown. It is in [0, rank) if the rank is known."""
    place = node.schema.axis
    axis = _read_attribute(node) if place.index is None else _read_input(node)
    if data.shape is None:
        return axis
    rank = len(data.shape)
    if rank == 0:
        raise node.make_error(
            Rule.AXIS_RANGE, "data has rank 0", "a split needs at least one axis", place, axis=axis
        )
    if axis is None:
        return None
    if not -rank <= axis < rank:
        raise node.make_error(
            Rule.AXIS_RANGE,
            f"axis = {shown(axis)}",
            f"it must be in [{-rank}, {rank - 1}] for data {format_shape(data.shape)}",
            place,
            axis=axis,
            shape=data.shape,
        )
    return axis % rank


def _read_attribute(node: Node) -> int | None:
    place = node.schema.axis
    value: Any = node.attributes.get(place.name, place.default)
    if isinstance(value, Fact):  # it is set, but unknown
        return None
    axis = to_integer(value)
    if axis is None:
        got = f"axis = {shown(value)}"
        raise node.make_error(Rule.AXIS_DTYPE, got, "it must be an integer", place, axis=value)
    return axis


def _read_input(node: Node) -> int | None:
    place = node.schema.axis
    fact = node.get_input(place)
    assert fact is not None
    if fact.type is not None and fact.type not in place.types:
        got = f"axis has element type {fact.type}"
        raise node.make_error(
            Rule.AXIS_DTYPE, got, "it must be of an integer type", place, type=str(fact.type)
        )
    if fact.shape is not None and (
        len(fact.shape) not in place.ranks or any(isinstance(dim, int) and dim != 1 for dim in fact.shape)
    ):
        raise node.make_error(
            Rule.AXIS_RANK,
            f"axis has shape {format_shape(fact.shape)}",
            "it must be a scalar" + (" or of shape [1]" if 1 in place.ranks else ""),
            place,
            shape=fact.shape,
        )
    value = fact.value[0] if isinstance(fact.value, tuple) else fact.value
    return None if value is None else int(value)


def read_keepdims(node: Node) -> bool | None:
    """Return whether the parts keep the axis if no lengths are set; None if that is unknown."""
    place = node.schema.keepdims
    if place is None:
        return True
    value: Any = node.attributes.get(place.name, place.default)
    if isinstance(value, Fact):
        return None
    keepdims = int(value) if isinstance(value, bool | np.bool_) else to_integer(value)
    if keepdims not in (0, 1):
        got = f"{place.name} = {shown(value)}"
        raise node.make_error(Rule.KEEPDIMS_VALUE, got, "it must be 0 or 1", place, **{place.name: value})
    return keepdims == 1
