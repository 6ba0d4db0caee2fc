"""Backend for JAX: one ``lax.split`` for all parts, which works under jit, grad, vmap and shape polymorphism.

JAX arrays are immutable, so ``out=`` is not possible, and the compiler decides whether parts share memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import jax
import jax.export
import numpy as np
import numpy.typing as npt

from splitops.backends import Backend
from splitops.errors import ArrayError
from splitops.native import SplitPlan


class _Jax(Backend):
    name = "jax"
    symbols: tuple[type, ...] = (type(jax.export.symbolic_shape("n")[0]),)
    undecided = jax.core.InconclusiveDimensionOperation
    """JAX raises this for comparisons of symbolic sizes that have no single answer."""

    def get_shape(self, array: jax.Array) -> tuple[Any, ...]:
        return tuple(array.shape)

    def to_numpy(self, array: jax.Array) -> npt.NDArray[Any]:
        if isinstance(array, jax.core.Tracer):
            raise ArrayError(
                "axis or lengths are a traced JAX value, but JAX must know the shapes of the parts: "
                "pass Python integers, or make the argument static (static_argnames)"
            )
        return np.asarray(array)

    def make_views(self, plan: SplitPlan, array: jax.Array) -> tuple[jax.Array, ...]:
        sizes, axis = plan.sizes, plan.axis
        if not sizes:
            return ()
        end = plan.offsets[-1] + sizes[-1]
        if end != plan.shape[axis]:
            array = jax.lax.slice_in_dim(array, 0, end, axis=axis)
        parts = jax.lax.split(array, sizes, axis)
        return tuple(jax.lax.squeeze(part, (axis,)) for part in parts) if plan.squeeze else tuple(parts)

    def fill(self, plan: SplitPlan, array: jax.Array, out: Sequence[Any]) -> None:
        raise ArrayError("out= is not supported for JAX arrays, which are immutable: use copy=True")


BACKEND: Final[Backend] = _Jax()
