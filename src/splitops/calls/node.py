"""Execution of single split operators, each given as a node of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from splitops.calls.execution import call_plan
from splitops.calls.plan_cache import MAX_REMEMBERED, PlanCache
from splitops.errors import Where
from splitops.native import Plan
from splitops.spec.elements.types import ElementType
from splitops.spec.operators.schemas import OperatorSchema
from splitops.splitting.binding import Fact, bind, make_fact
from splitops.splitting.planning import SplitRequest, plan_request

_T = TypeVar("_T")


def read_only(value: _T) -> _T:
    """Return a read-only view of an array, and of every array in a list. Other values are returned unchanged.

    Callers then cannot change shared data by accident; ``np.array(view)`` makes a private copy.

    Examples:
        >>> import numpy as np
        >>> data = np.zeros(2)
        >>> read_only(data).flags.writeable, data.flags.writeable
        (False, True)
    """
    if isinstance(value, list):
        return [read_only(item) for item in value]  # type: ignore[return-value]
    if not isinstance(value, np.ndarray):
        return value
    view = value.view()
    view.setflags(write=False)
    return view


class NodeSplit:
    """Runs a split node of a model. Small plans are cached by dtypes, shapes, axis and lengths.

    ``attributes`` are integers or sequences of integers. ``outputs`` is the number of outputs that the node
    declares, or None.
    """

    def __init__(
        self,
        schema: OperatorSchema,
        attributes: Mapping[str, Any],
        *,
        outputs: int | None = None,
        where: Where | None = None,
    ) -> None:
        self._schema, self._attributes = schema, attributes
        self._outputs, self._where = outputs, where
        self._known: PlanCache[tuple[SplitRequest, Plan]] = PlanCache(64)

    def __call__(
        self,
        inputs: Sequence[npt.NDArray[Any] | None],
        types: Sequence[ElementType | None] | None = None,
    ) -> tuple[npt.NDArray[Any], ...]:
        """Split the data; see :func:`evaluate`."""
        key = _make_key(inputs) if types is None else None
        found = self._known.get(key) if key is not None else None
        if found is None:
            request = self._bind(inputs, types)
            found = request, plan_request(request)
            if key is not None and len(found[1].sizes) <= MAX_REMEMBERED:
                self._known.keep(key, found)
        request, plan = found
        observer = _OBSERVER.get()
        if observer is not None:
            observer(request, plan)
        return tuple(call_plan(plan, inputs[0]))

    def _bind(
        self, inputs: Sequence[npt.NDArray[Any] | None], types: Sequence[ElementType | None] | None
    ) -> SplitRequest:
        facts: list[Fact | None] = []
        for index, array in enumerate(inputs):
            fact = None if array is None else make_fact(array, value=index > 0)
            stated = types[index] if types is not None and index < len(types) else None
            if fact is not None and stated is not None:
                fact = replace(fact, type=stated)
            facts.append(fact)
        return bind(self._schema, self._attributes, facts, outputs=self._outputs, where=self._where).request()


def _make_key(inputs: Sequence[npt.NDArray[Any] | None]) -> tuple[Any, ...] | None:
    """Return the cache key of a call, or None if it cannot be cached.

    The key has the dtypes and shapes of all inputs, and the values of all inputs except the data.
    """
    key: list[Any] = []
    for index, array in enumerate(inputs):
        if array is None:
            key.append(None)
            continue
        if type(array) is not np.ndarray or array.dtype.kind in "OT":
            return None  # the element type of an object array depends on its values
        key += array.dtype, array.shape
        if index:
            if array.size > MAX_REMEMBERED:
                return None
            key.append(array.tobytes())
    return tuple(key)


def evaluate(
    schema: OperatorSchema,
    attributes: Mapping[str, Any],
    inputs: Sequence[npt.NDArray[Any] | None],
    *,
    outputs: int | None = None,
    where: Where | None = None,
    types: Sequence[ElementType | None] | None = None,
) -> tuple[npt.NDArray[Any], ...]:
    """Run one split operator, given as a node of a model.

    ``types`` are element types that dtypes cannot express, such as OpenVINO's nf4 in uint8. The parts are
    views: one per output, or per element of the sequence.

    Examples:
        >>> import numpy as np
        >>> from splitops.spec.operators import schema
        >>> parts = evaluate(schema("Split", 11), {"split": [1, 2]}, [np.arange(3.0)], outputs=2)
        >>> [part.tolist() for part in parts]
        [[0.0], [1.0, 2.0]]
    """
    return NodeSplit(schema, attributes, outputs=outputs, where=where)(inputs, types)


Observer = Callable[[SplitRequest, Plan], None]
_OBSERVER: Final[ContextVar[Observer | None]] = ContextVar("observer", default=None)


@contextmanager
def observe_splits(observer: Observer) -> Iterator[None]:
    """Call ``observer`` with the request and the plan of every split in the block, before the data is split.

    Only splits by :class:`NodeSplit` in the same context are observed. In a nested block, only the inner
    observer is called.
    """
    token = _OBSERVER.set(observer)
    try:
        yield
    finally:
        _OBSERVER.reset(token)
