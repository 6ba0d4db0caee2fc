"""Slice with steps: onnx takes NumPy slices for it, where a start before the first position takes nothing."""

from __future__ import annotations

from typing import Any, Final

from onnx.reference.op_run import OpRun

from splitops.models.movers.shapes import clamped

SLICE_WITH_STEPS: Final = 10
"""The opset in which the bounds became inputs, and steps came to them."""


class Slice(OpRun):
    """Slice from opset 10 on."""

    def _run(
        self, data: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None, **_: Any
    ) -> tuple[Any, ...]:
        axes = range(len(starts)) if axes is None else axes
        steps = [1] * len(starts) if steps is None else steps
        index = [slice(None)] * data.ndim
        for axis, *bounds in zip(axes, starts, ends, steps, strict=True):
            index[axis] = clamped(data.shape[axis], slice(*map(int, bounds)))
        return (data[tuple(index)],)
