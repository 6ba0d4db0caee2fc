"""What earlier calls on the arrays of other libraries meant; those on NumPy's are remembered by the core."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from splitops.backends import Backend
from splitops.calls.plan import plan_data
from splitops.errors import SplitError
from splitops.native import SplitPlan
from splitops.spec.operators.schemas import OperatorSchema

_PLANS: Final[dict[tuple[Any, ...], tuple[SplitPlan, Backend]]] = {}
"""With the backend, of which a key has the address."""
_MAX_PLANS: Final = 1024
_MAX_REMEMBERED: Final = 256
"""Calls with more arguments or parts than this are not remembered."""
_SHAPE: Final = 4
"""Where a key has the shape of the data."""
_ONLY_INT: Final = frozenset({int})


def find_plan(schema: OperatorSchema, backend: Backend, data: Any, arguments: Mapping[str, Any]) -> SplitPlan:
    """Return the plan of a call, made now or for an equal call before."""
    key = _call_key(schema, backend, data, arguments)
    known = _PLANS.get(key) if key is not None else None
    if known is not None:
        return known[0]
    if key is not None:
        # Another thread may change lengths meanwhile: the plan is remembered by copies, of which it is made.
        arguments = {name: _copied(value) for name, value in arguments.items()}
        key = _call_key(schema, backend, data, arguments)
    plan = plan_data(schema, backend, data, arguments)
    if key is not None and len(plan.sizes) <= _MAX_REMEMBERED and plan.shape == key[_SHAPE]:
        if len(_PLANS) >= _MAX_PLANS:
            _PLANS.clear()
        _PLANS[key] = plan, backend
    return plan


def _copied(value: Any) -> Any:
    return value.copy() if isinstance(value, list | np.ndarray) else value


def _call_key(
    schema: OperatorSchema, backend: Backend, data: Any, arguments: Mapping[str, Any]
) -> tuple[Any, ...] | None:
    """Return what a call is remembered by; None where an argument is anything but exact integers."""
    try:
        dtype = getattr(data, "dtype", None)
    except SplitError:  # of a tensor in a file, which no array can hold
        return None
    if dtype is None or type(dtype).__hash__ is None or getattr(dtype, "kind", "") == "O":
        return None  # of objects, the values tell the element type
    key: list[Any] = [schema, id(backend), type(data), dtype]
    for value in (backend.shape(data), *arguments.values()):
        if value is None or type(value) is int:
            key.append(value)
            continue
        if type(value) is np.ndarray and value.dtype.kind in "iu" and value.ndim <= 1:
            key += value.dtype, value.ndim
            value = value.reshape(-1).tolist()
        if not isinstance(value, list | tuple) or len(value) > _MAX_REMEMBERED:
            return None
        if not _ONLY_INT.issuperset(map(type, value)):  # True == 1 == 1.0, and all hash alike
            return None
        key.append(tuple(value))
    return tuple(key)
