"""Conversion between CPU tensors and NumPy arrays that share memory, for every dtype of splitops.

NumPy does not have bfloat16 and float8, so these are converted to integers of the same width.
"""

from __future__ import annotations

from typing import Any, Final

import numpy.typing as npt
import torch

_CODES: Final = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def to_numpy(tensor: torch.Tensor) -> npt.NDArray[Any]:
    """Convert a CPU tensor to an array that shares its memory, with the same shape, strides and bytes.

    bfloat16 and float8 become an integer type of the same width. A tensor that is lazily
    conjugated or negated is copied.
    """
    if tensor.requires_grad:
        tensor = tensor.detach()
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    if tensor.dtype in _WITHOUT_NUMPY:
        tensor = tensor.view(_CODES[tensor.itemsize])
    array: npt.NDArray[Any] = tensor.numpy()
    return array


def from_numpy(array: npt.NDArray[Any], dtype: torch.dtype) -> torch.Tensor:
    """Convert a writeable array with non-negative strides to a tensor that shares its memory.

    The array must have the dtype that :func:`to_numpy` returns for ``dtype``.
    """
    tensor = torch.from_numpy(array)
    return tensor if tensor.dtype is dtype else tensor.view(dtype)


def get_memory_layout(tensor: torch.Tensor) -> tuple[int, tuple[int, ...], tuple[int, ...], int]:
    """Return the address, shape, strides and item size of a tensor, the last two in bytes."""
    size = tensor.itemsize
    return tensor.data_ptr(), tuple(tensor.shape), tuple(step * size for step in tensor.stride()), size


_WITHOUT_NUMPY: Final = frozenset(
    dtype
    for name, dtype in vars(torch).items()
    if isinstance(dtype, torch.dtype) and name.startswith(("bfloat16", "float8"))
)
