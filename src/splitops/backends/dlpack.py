"""Arrays that have nothing but DLPack: on the CPU, their memory is split as a NumPy array.

Such a type has no namespace to slice it by, so that the parts are NumPy arrays on the producer's memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from splitops.backends import Backend
from splitops.backends.numpy import BACKEND as NUMPY
from splitops.errors import ArrayError
from splitops.native import SplitPlan
from splitops.spec.elements.types import ElementType

_CPU: Final = 1
"""``kDLCPU``."""


class _DLPack(Backend):
    name = "DLPack"

    def shape(self, array: Any) -> tuple[int, ...]:
        return self.numbers(array).shape

    def element_type(self, array: Any) -> ElementType | None:
        return NUMPY.element_type(self.numbers(array))

    def dtype_name(self, array: Any) -> str:
        return NUMPY.dtype_name(self.numbers(array))

    def numbers(self, array: Any) -> npt.NDArray[Any]:
        device, _ = array.__dlpack_device__()
        if device != _CPU:
            raise ArrayError(
                f"data is a {type(array).__name__} on a device of DLPack type {int(device)}: hand it to the "
                "library that should split it, such as torch.from_dlpack or cupy.from_dlpack"
            )
        try:
            return np.from_dlpack(array)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            text = f"NumPy cannot take the {type(array).__name__} through DLPack: {error}"
            raise ArrayError(text) from error

    def views(self, plan: SplitPlan, array: Any) -> tuple[Any, ...]:
        return NUMPY.views(plan, self.numbers(array))

    def copies(self, plan: SplitPlan, array: Any) -> tuple[Any, ...]:
        return NUMPY.copies(plan, self.numbers(array))

    def fill(self, plan: SplitPlan, array: Any, out: Sequence[Any]) -> None:
        NUMPY.fill(plan, self.numbers(array), out)


BACKEND: Final[Backend] = _DLPack()
