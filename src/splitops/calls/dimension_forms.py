"""Partially known shapes as callers write them, and inference of one operator with such shapes.

A shape is a sequence of dimensions, or None if even the rank is unknown. A dimension is an integer, a name,
an interval ``(lo, hi)`` with ``hi`` None if it is unbounded, or None if it is unknown. Results have the same
form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from splitops.calls.arguments import bind_call
from splitops.common.integers import INT64_MAX
from splitops.errors import ArrayError, shown
from splitops.spec.operators.schemas import OperatorSchema
from splitops.spec.sizes.dims import UNKNOWN, Dim, Range, Shape, make_dim, to_entries, to_integer
from splitops.splitting.binding import Fact
from splitops.splitting.inference import Inference, infer_binding

DimensionForm = int | str | tuple[int, int | None] | None
ShapeForm = tuple[DimensionForm, ...] | None


def infer_call(
    schema: OperatorSchema,
    shape: Sequence[DimensionForm] | None,
    arguments: Mapping[str, Any],
    unknown: Sequence[str] = (),
) -> Inference:
    """Infer the outputs of one operator from the arguments of a call.

    ``unknown`` is as in :func:`~splitops.calls.arguments.bind_call`.
    """
    data = Fact(None, parse_shape_form(shape))
    return infer_binding(bind_call(schema, data, arguments, unknown))


def parse_shape_form(shape: Sequence[DimensionForm] | None) -> Shape | None:
    """Parse a shape as callers write it.

    Examples:
        >>> parse_shape_form([2, "N", (1, None), None])
        (2, Range(lo=0, hi=None, name='N'), Range(lo=1, hi=None, name=None), Range(lo=0, hi=None, name=None))
    """
    if shape is None:
        return None
    listed = to_entries(shape)
    if listed is None:
        raise ArrayError(f"shape = {shown(shape)}, but it must be a sequence of dimensions, or None")
    return tuple(map(_parse_dimension, listed))


def _parse_dimension(form: Any) -> Dim:
    if form is None:
        return UNKNOWN
    if isinstance(form, str) and form:
        return Range(name=form)
    size = to_integer(form)
    if size is not None and 0 <= size <= INT64_MAX:
        return size
    if isinstance(form, tuple | list) and len(form) == 2:
        lo, hi = to_integer(form[0]), to_integer(form[1])
        if lo is not None and 0 <= lo <= INT64_MAX and (form[1] is None or (hi is not None and lo <= hi)):
            return make_dim(lo, None if hi is not None and hi > INT64_MAX else hi)  # no size is larger
    raise ArrayError(
        f"a dimension is {shown(form)}, but it must be an integer >= 0, a name, an interval (lo, hi) or None"
    )


def to_dimension_form(dim: Dim) -> DimensionForm:
    """Convert a dimension to the form that callers use. A named dimension becomes its name.

    Examples:
        >>> [to_dimension_form(dim) for dim in (3, Range(name="N"), Range(1), Range())]
        [3, 'N', (1, None), None]
    """
    if isinstance(dim, int):
        return dim
    if dim.name is not None:
        return dim.name
    return None if dim == UNKNOWN else (dim.lo, dim.hi)


def to_shape_form(shape: Shape | None) -> ShapeForm:
    """Convert a shape to the form that callers use. An unknown rank stays None."""
    return None if shape is None else tuple(map(to_dimension_form, shape))
