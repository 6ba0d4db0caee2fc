"""Cached plans of calls. The native core, if it is available, caches calls on NumPy arrays itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from marshal import dumps, loads
from typing import Any, Final, TypeVar

import numpy as np

from splitops.backends import Backend, find_backend
from splitops.calls.execution import run
from splitops.calls.plan import plan_data
from splitops.errors import SplitError
from splitops.native import SplitPlan
from splitops.spec.operators import schema as find_schema
from splitops.spec.operators.schemas import OperatorSchema

_Value = TypeVar("_Value")
MAX_REMEMBERED: Final = 256
"""Maximum number of lengths, and of parts, of a call that is cached."""


class PlanCache(dict[tuple[Any, ...], _Value]):
    """Cache of plans, keyed by the arguments that determine them. It is cleared when it is full."""

    def __init__(self, most: int = 1024) -> None:
        self._most = most

    def keep(self, key: tuple[Any, ...], value: _Value) -> None:
        """Store a value, after clearing the cache if it is full."""
        if len(self) >= self._most:
            self.clear()
        self[key] = value


_PLANS: Final[PlanCache[tuple[SplitPlan, OperatorSchema, Backend]]] = PlanCache()
"""Plans by call. Each entry keeps its schema and backend alive, because the key contains their ids."""
_SHAPE: Final = 4
"""Position of the data's shape in a key."""
_ONLY_INT: Final = frozenset({int})
_LISTS: Final = (list, tuple)


def find_plan(schema: OperatorSchema, backend: Backend, data: Any, arguments: Mapping[str, Any]) -> SplitPlan:
    """Return the plan of a call, from the cache if possible."""
    key = _call_key(schema, backend, data, arguments)
    if key is not None:
        try:
            known = _PLANS.get(key)
        except TypeError:  # an element type or a symbolic size that cannot be hashed
            key = None
        else:
            if known is not None:
                return known[0]
    if key is not None:
        # Another thread may change the lengths, so the key and the plan are made from the same copies.
        arguments = {
            name: value.copy() if isinstance(value, list | np.ndarray) else value
            for name, value in arguments.items()
        }
        key = _call_key(schema, backend, data, arguments)
    plan = plan_data(schema, backend, data, arguments)
    if key is not None and _is_exact(key[_SHAPE], plan, data):
        _PLANS.keep(key, (plan, schema, backend))
    return plan


def _is_exact(shape: Any, plan: SplitPlan, data: Any) -> bool:
    """Return whether a plan is small and valid for all data of this type and shape."""
    exact = _ONLY_INT.issuperset(map(type, shape)) and plan.shape == shape
    # The element type of an object array depends on its values.
    return exact and len(plan.sizes) <= MAX_REMEMBERED and getattr(data.dtype, "kind", "") != "O"


def _call_key(
    schema: OperatorSchema, backend: Backend, data: Any, arguments: Mapping[str, Any]
) -> tuple[Any, ...] | None:
    """Return the cache key of a call, or None if the call cannot be cached.

    Each argument must be None, an integer, or a short list, tuple or array of integers. The dtype and the
    shape of the data must be known.
    """
    try:
        key: list[Any] = [id(schema), id(backend), type(data), data.dtype, backend.get_shape(data)]
    except (AttributeError, SplitError):  # a lazy tensor whose type NumPy does not have
        return None
    for value in arguments.values():
        if value is None or type(value) is int:
            key.append(value)
            continue
        if type(value) is np.ndarray and value.dtype.kind in "iu" and value.ndim <= 1:
            key += value.dtype, value.ndim
            value = value.reshape(-1).tolist()
        if not isinstance(value, _LISTS) or len(value) > MAX_REMEMBERED:
            return None
        if not _ONLY_INT.issuperset(map(type, value)):  # True == 1 == 1.0, with the same hash
            return None
        key.append(tuple(value))
    return tuple(key)


def cache_calls(
    name: str, domain: str, body: Callable[..., Any], names: Sequence[str], defaults: Mapping[str, Any]
) -> Callable[..., Any]:
    """Return a function that caches the plans of calls of ``body``, an operator's function.

    Calls are equal if their data have the same type, element type and shape, and their arguments are the same
    integers or lists of integers. Other calls run ``body``. ``names`` are its parameters, the data first,
    and ``defaults`` are the default values of the operator's arguments.
    """
    plans: PlanCache[SplitPlan] = PlanCache()

    def run_cached(*args: Any, copy: bool | None = None, out: Any = None, **named: Any) -> Any:
        try:
            data = args[0]
            backend = find_backend(type(data))
            # Version 2 of marshal has no references, so equal values have equal bytes; True differs from 1.
            key = backend, type(data), data.dtype, data.shape, dumps((args[1:], named), 2)
            plan = plans.get(key)
        except Exception:  # any other call
            return body(*args, copy=copy, out=out, **named)
        if plan is not None and backend is not None:
            if out is not None or copy:
                return run(plan, backend, data, copy, out)
            parts = backend.make_views(plan, data)
            return list(parts) if plan.sequence else parts
        parts = body(*args, copy=copy, out=out, **named)
        plan = find_call_plan(data, key)
        if plan is not None:
            plans.keep(key, plan)
        return parts

    def find_call_plan(data: Any, key: tuple[Any, ...]) -> SplitPlan | None:
        """Return the plan of the call, or None if its key does not determine it."""
        backend, shape, (positional, named) = key[0], key[3], loads(key[4])  # noqa: S302 - made above
        # Arguments of other types are bytes now. Lists are copies, which no other thread changes.
        arguments = {**defaults, **dict(zip(names[1:], positional, strict=False)), **named}
        opset = arguments.pop("opset", None)
        if backend is None or not (opset is None or type(opset) is int):
            return None
        schema = find_schema(name, opset, domain)
        if _call_key(schema, backend, data, arguments) is None:
            return None
        plan = find_plan(schema, backend, data, arguments)
        return plan if _is_exact(shape, plan, data) else None

    return run_cached
