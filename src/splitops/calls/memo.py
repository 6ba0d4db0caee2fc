"""What earlier calls on the arrays of other libraries meant; those on NumPy's are remembered by the core."""

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
"""Calls with more arguments or parts than this are not remembered."""


class Memo(dict[tuple[Any, ...], _Value]):
    """The results of earlier calls by what decides them; a full memo begins anew."""

    def __init__(self, most: int = 1024) -> None:
        self._most = most

    def keep(self, key: tuple[Any, ...], value: _Value) -> None:
        """Remember a result."""
        if len(self) >= self._most:
            self.clear()
        self[key] = value


_PLANS: Final[Memo[tuple[SplitPlan, OperatorSchema, Backend]]] = Memo()
"""With the schema and the backend, of which a key has the addresses."""
_SHAPE: Final = 4
"""Where a key has the shape of the data."""
_ONLY_INT: Final = frozenset({int})
_LISTS: Final = (list, tuple)


def find_plan(schema: OperatorSchema, backend: Backend, data: Any, arguments: Mapping[str, Any]) -> SplitPlan:
    """Return the plan of a call, made now or for an equal call before."""
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
        # Another thread may change lengths meanwhile: the plan is remembered by copies, of which it is made.
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
    """Return whether a plan is small and holds for all data of its type and shape."""
    exact = _ONLY_INT.issuperset(map(type, shape)) and plan.shape == shape
    # Of objects, the values tell the element type.
    return exact and len(plan.sizes) <= MAX_REMEMBERED and getattr(data.dtype, "kind", "") != "O"


def _call_key(
    schema: OperatorSchema, backend: Backend, data: Any, arguments: Mapping[str, Any]
) -> tuple[Any, ...] | None:
    """Return what a call is remembered by; None where an argument is anything but exact integers."""
    try:
        key: list[Any] = [id(schema), id(backend), type(data), data.dtype, backend.get_shape(data)]
    except (AttributeError, SplitError):  # of a tensor in a file, which no array can hold
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
        if not _ONLY_INT.issuperset(map(type, value)):  # True == 1 == 1.0, and all hash alike
            return None
        key.append(tuple(value))
    return tuple(key)


def remembering(
    name: str, domain: str, body: Callable[..., Any], names: Sequence[str], defaults: Mapping[str, Any]
) -> Callable[..., Any]:
    """Return an operator's function that does at once what an equal call before did.

    The data of equal calls have one type, element type and shape. Their arguments are the same integers,
    and lists and tuples of integers.

    ``body`` is the function, for all other calls; of its parameters, the data is the first.
    """
    plans: Memo[SplitPlan] = Memo()

    def remembered(*args: Any, copy: bool | None = None, out: Any = None, **named: Any) -> Any:
        try:
            data = args[0]
            backend = find_backend(type(data))
            # Version 2 of the format has no references: equal values are equal bytes, and True is not 1.
            key = backend, type(data), data.dtype, data.shape, dumps((args[1:], named), 2)
            plan = plans.get(key)
        except Exception:  # of anything that is not such a call
            return body(*args, copy=copy, out=out, **named)
        if plan is not None and backend is not None:
            if out is not None or copy:
                return run(plan, backend, data, copy, out)
            parts = backend.make_views(plan, data)
            return list(parts) if plan.sequence else parts
        parts = body(*args, copy=copy, out=out, **named)
        plan = learnt(data, key)
        if plan is not None:
            plans.keep(key, plan)
        return parts

    def learnt(data: Any, key: tuple[Any, ...]) -> SplitPlan | None:
        """Return the plan of the call; None where its key does not say all that decides it."""
        backend, shape, (positional, named) = key[0], key[3], loads(key[4])  # noqa: S302 - bytes of ours
        # What was not an integer and no list is bytes now, and lists are copies that no other thread changes.
        arguments = {**defaults, **dict(zip(names[1:], positional, strict=False)), **named}
        opset = arguments.pop("opset", None)
        if backend is None or not (opset is None or type(opset) is int):
            return None
        schema = find_schema(name, opset, domain)
        if _call_key(schema, backend, data, arguments) is None:
            return None
        plan = find_plan(schema, backend, data, arguments)
        return plan if _is_exact(shape, plan, data) else None

    return remembered
