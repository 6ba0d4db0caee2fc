"""Fixes for operators that the reference evaluator of onnx runs wrongly, in old versions or on some data.

onnx has separate implementations for some versions of an operator, but not for these. Identity is replaced
only to avoid a copy.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, Final

import numpy as np
from onnx import NodeProto, defs
from onnx.reference.op_run import OpRun

from splitops.models.ops.shapes import clamp

_FLATTENING: Final = frozenset({"Softmax", "LogSoftmax", "Hardmax"})
_ALONG_ONE_AXIS: Final = 13
"""The first opset in which these operators reduce one axis, not all axes from ``axis`` on."""


def with_defaults(node: NodeProto, opset: int, domain: str) -> NodeProto:
    """Return a node with the attribute defaults of its imported version. onnx would use the newest ones."""
    if not defs.has(node.op_type, domain):
        return node
    try:
        imported = defs.get_schema(node.op_type, opset, domain)
    except defs.SchemaError:
        return node
    newest = defs.get_schema(node.op_type, domain)
    given = {attribute.name for attribute in node.attribute}
    absent = [
        attribute.default_value
        for name, attribute in imported.attributes.items()
        if name not in given
        and attribute.default_value.type
        and not _has_default(newest.attributes.get(name), attribute)
    ]
    if not absent:
        return node
    complete = NodeProto()
    complete.CopyFrom(node)
    complete.attribute.extend(absent)
    return complete


def _has_default(one: Any, other: Any) -> bool:
    return one is not None and bool(one.default_value == other.default_value)


@cache
def flatten_to_rows(name: str, opset: int, newest: Any) -> Any:
    """Return ``newest``, or a subclass that flattens data to rows first if the operator does at ``opset``."""
    if name not in _FLATTENING or opset >= _ALONG_ONE_AXIS:
        return newest

    class Flattened(newest):  # type: ignore[misc]
        axis: Any

        def __init__(self, node: NodeProto, run_params: dict[str, Any]) -> None:
            super().__init__(node, run_params)
            self.first, self.axis = self.axis, 1

        def _run(self, data: Any, axis: int | None = None) -> tuple[Any, ...]:
            axis = self.first if axis is None else axis  # the attribute of a function call
            if not -data.ndim <= axis <= data.ndim:
                raise ValueError(f"axis = {axis} is out of range for data of rank {data.ndim}")
            (result,) = super()._run(_to_rows(data, axis))
            return (result.reshape(data.shape),)

    return Flattened


def _to_rows(data: Any, axis: int) -> Any:
    """Reshape data to a matrix: the axes before ``axis`` become rows, the others columns."""
    axis += data.ndim if axis < 0 else 0
    return data.reshape(math.prod(data.shape[:axis]), math.prod(data.shape[axis:]))


SLICE_WITH_STEPS: Final = 10
"""The first opset in which the bounds of Slice are inputs, with optional steps."""


class Slice(OpRun):
    """Slice since opset 10.

    With a negative step, ONNX clamps a start before the first position to the first position. NumPy's slices,
    which onnx's evaluator uses, are then empty.
    """

    def _run(
        self, data: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None, **_: Any
    ) -> tuple[Any, ...]:
        axes = range(len(starts)) if axes is None else axes
        steps = [1] * len(starts) if steps is None else steps
        index = [slice(None)] * data.ndim
        for axis, *bounds in zip(axes, starts, ends, steps, strict=True):
            index[axis] = clamp(data.shape[axis], slice(*map(int, bounds)))
        return (data[tuple(index)],)


class Concat(OpRun):
    """Concat that rejects an axis out of range. Some releases of onnx add axes to the data instead."""

    def _run(self, *tensors: Any, axis: int) -> tuple[Any, ...]:
        for tensor in tensors:
            if not -tensor.ndim <= axis < tensor.ndim:
                raise ValueError(f"axis {axis} is out of range for rank {tensor.ndim}")
        return (np.concatenate(tensors, axis),)


class Flatten(OpRun):
    """Flatten, including empty data, whose number of columns onnx's implementation cannot determine."""

    def _run(self, data: Any, axis: int = 1) -> tuple[Any, ...]:
        return (_to_rows(data, axis),)


class Identity(OpRun):
    """Identity without a copy."""

    def _run(self, data: Any) -> tuple[Any, ...]:
        return (data,)
