"""Plans for calls, with exact sizes or with sizes that a library keeps symbolic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from splitops.backends import Backend
from splitops.calls.arguments import bind_call, make_data_fact
from splitops.calls.symbolic import hide_symbols, is_exact, plan_symbolic, specialise
from splitops.errors import ArrayError, shown
from splitops.native import Plan, SplitPlan
from splitops.spec.operators import schema as find_schema
from splitops.spec.operators.schemas import OperatorSchema
from splitops.spec.sizes.dims import to_entries, to_integer
from splitops.splitting.binding import Fact, make_fact
from splitops.splitting.planning import plan_request


def plan_arguments(
    name: str,
    shape: Sequence[int],
    dtype: Any,
    opset: int | None,
    domain: str | None,
    arguments: Mapping[str, Any],
) -> Plan:
    """Return the plan for the arguments of a call of :func:`splitops.plan`."""
    schema = find_schema(name, opset, domain)
    element_type = None
    if dtype is not None:
        try:
            element_type = make_fact(np.empty(0, dtype), value=False).type
        except Exception as error:  # NumPy raises many kinds of errors
            raise ArrayError(f"dtype = {shown(dtype)}, but it must be a dtype of NumPy") from error
    fact = Fact(element_type, _check_shape(shape))
    return plan_request(bind_call(schema, fact, arguments).request())


def _check_shape(shape: Sequence[int]) -> tuple[int, ...]:
    listed = to_entries(shape)
    sizes = (None,) if listed is None else tuple(map(to_integer, listed))
    known = tuple(size for size in sizes if size is not None and 0 <= size < 1 << 63)
    if len(known) < len(sizes):
        raise ArrayError(f"shape = {shown(shape)}, but it must be a sequence of 64-bit integers >= 0")
    return known


def plan_array(schema: OperatorSchema, data: np.ndarray[Any, Any], arguments: Mapping[str, Any]) -> Plan:
    """Plan a call of the operator version ``schema`` on a NumPy array."""
    return plan_request(bind_call(schema, make_data_fact(data), arguments).request())


def plan_data(schema: OperatorSchema, backend: Backend, data: Any, arguments: Mapping[str, Any]) -> SplitPlan:
    """Plan a call on an array of any library. While the library traces, the array may have symbolic sizes."""
    shape = backend.get_shape(data)
    known, lengths = hide_symbols(schema, arguments, backend.symbols)
    binding = bind_call(schema, make_data_fact(data), known)
    if lengths is None and (is_exact(shape) or binding.division is None):
        return plan_request(binding.request())
    try:
        symbolic = plan_symbolic(binding, shape, lengths)
    except getattr(backend, "undecided", ()) as error:
        text = (
            f"{schema}: {backend.name} cannot infer the sizes of the parts of the symbolic shape "
            f"{shown(shape)}: add constraints, use a size such as 3*n that determines them, or pass lengths"
        )
        raise ArrayError(text) from error
    if symbolic is not None:
        return symbolic
    # A rule is broken: binding the concrete sizes raises the error.
    try:
        sizes = tuple(size if size is None else int(size) for size in shape)
        exact = {name: specialise(value, backend.symbols) for name, value in arguments.items()}
    except Exception as error:  # the library has no concrete sizes
        text = f"{schema}: not every size of the symbolic shape {shown(shape)} can be split in this way"
        raise ArrayError(text) from error
    bind_call(schema, make_data_fact(data, sizes), exact)
    raise AssertionError(f"{schema}: symbolic and exact sizes disagree")
