"""Backend for arrays in CPU memory that only support DLPack. They are split as NumPy arrays.

Their library may not be able to slice them, so the parts are NumPy arrays. Views share the memory of the
data.
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
"""The device type ``kDLCPU``."""


class _DLPack(Backend):
    name = "DLPack"

    def get_shape(self, array: Any) -> tuple[int, ...]:
        return self.to_numpy(array).shape

    def get_element_type(self, array: Any) -> ElementType | None:
        return NUMPY.get_element_type(self.to_numpy(array))

    def get_dtype_name(self, array: Any) -> str:
        return NUMPY.get_dtype_name(self.to_numpy(array))

    def to_numpy(self, array: Any) -> npt.NDArray[Any]:
        device, _ = array.__dlpack_device__()
        if device != _CPU:
            raise ArrayError(
                f"data is a {type(array).__name__} on a device of DLPack type {int(device)}: convert it "
                "first, for example with torch.from_dlpack or cupy.from_dlpack"
            )
        try:
            return np.from_dlpack(array)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            text = f"NumPy cannot import the {type(array).__name__} by DLPack: {error}"
            raise ArrayError(text) from error

    def make_views(self, plan: SplitPlan, array: Any) -> tuple[Any, ...]:
        return NUMPY.make_views(plan, self.to_numpy(array))

    def make_copies(self, plan: SplitPlan, array: Any) -> tuple[Any, ...]:
        return NUMPY.make_copies(plan, self.to_numpy(array))

    def fill(self, plan: SplitPlan, array: Any, out: Sequence[Any]) -> None:
        NUMPY.fill(plan, self.to_numpy(array), out)


BACKEND: Final[Backend] = _DLPack()
