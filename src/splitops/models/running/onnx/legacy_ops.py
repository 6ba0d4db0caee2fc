"""Operators that onnx's reference evaluator runs with another result than their version has.

Its implementations carry the opset in their names where onnx knows of a difference; of these it does not.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, Final

from onnx import NodeProto, defs
from onnx.reference.op_run import OpRun

from splitops.models.ops.shapes import clamped

_FLATTENING: Final = frozenset({"Softmax", "LogSoftmax", "Hardmax"})
_ALONG_ONE_AXIS: Final = 13
"""The opset from which they work along one axis; before, along all axes from one on."""


def with_defaults(node: NodeProto, opset: int, domain: str) -> NodeProto:
    """State the defaults of the version that the graph imports, where onnx would take the newest ones."""
    if not defs.has(node.op_type, domain):
        return node
    try:
        imported = defs.get_schema(node.op_type, opset, domain)
    except defs.SchemaError:
        return node
    newest = defs.get_schema(node.op_type, domain)
    stated = {attribute.name for attribute in node.attribute}
    absent = [
        attribute.default_value
        for name, attribute in imported.attributes.items()
        if name not in stated
        and attribute.default_value.type
        and not _same_default(newest.attributes.get(name), attribute)
    ]
    if not absent:
        return node
    complete = NodeProto()
    complete.CopyFrom(node)
    complete.attribute.extend(absent)
    return complete


def _same_default(one: Any, other: Any) -> bool:
    return one is not None and bool(one.default_value == other.default_value)


@cache
def flatten_to_rows(name: str, opset: int, newest: Any) -> Any:
    """Return an implementation that flattens the data to rows first, where this version does so."""
    if name not in _FLATTENING or opset >= _ALONG_ONE_AXIS:
        return newest

    class Flattened(newest):  # type: ignore[misc]
        axis: Any

        def __init__(self, node: NodeProto, run_params: dict[str, Any]) -> None:
            super().__init__(node, run_params)
            self.first, self.axis = self.axis, 1

        def _run(self, data: Any, axis: int | None = None) -> tuple[Any, ...]:
            axis = self.first if axis is None else axis  # a function gives its own
            if not -data.ndim <= axis <= data.ndim:
                raise ValueError(f"axis = {axis} is not one of data with rank {data.ndim}")
            (result,) = super()._run(_rows(data, axis))
            return (result.reshape(data.shape),)

    return Flattened


def _rows(data: Any, axis: int) -> Any:
    """Return data as a matrix: the axes before one are its rows, the others its columns."""
    axis += data.ndim if axis < 0 else 0
    return data.reshape(math.prod(data.shape[:axis]), math.prod(data.shape[axis:]))


SLICE_WITH_STEPS: Final = 10
"""The opset in which the bounds became inputs, and steps came to them."""


class Slice(OpRun):
    """Slice from opset 10 on: a start before the first position takes nothing, unlike in NumPy's slices."""

    def _run(
        self, data: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None, **_: Any
    ) -> tuple[Any, ...]:
        axes = range(len(starts)) if axes is None else axes
        steps = [1] * len(starts) if steps is None else steps
        index = [slice(None)] * data.ndim
        for axis, *bounds in zip(axes, starts, ends, steps, strict=True):
            index[axis] = clamped(data.shape[axis], slice(*map(int, bounds)))
        return (data[tuple(index)],)


class Flatten(OpRun):
    """Flatten of data without elements too, of which onnx's cannot tell the number of columns."""

    def _run(self, data: Any, axis: int = 1) -> tuple[Any, ...]:
        return (_rows(data, axis),)


class Identity(OpRun):
    """Identity, without the copy that onnx's makes."""

    def _run(self, data: Any) -> tuple[Any, ...]:
        return (data,)
