"""onnx2torch: the model made a module of PyTorch, and run there."""

from typing import Any

import numpy as np
import numpy.typing as npt

from splitops.comparison.worker import NotApplicable, Question, rejecting, storage

PACKAGES = ("onnx2torch", "torch", "onnx")


def answer(case: Question) -> list[Any]:
    """Convert the model and run it."""
    if "string" in case.types.values():
        raise NotApplicable("PyTorch has no tensors of strings")
    import onnx2torch

    inputs = [_tensor(array) for array in case.inputs.values()]
    with rejecting("load"):
        module = onnx2torch.convert(case.model)
    with rejecting("run"):
        found = module(*inputs)
    return [_array(found)] if len(case.outputs) == 1 else [_array(part) for part in found]


def _tensor(array: npt.NDArray[Any]) -> Any:
    import torch

    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array.copy())


def _array(value: Any) -> Any:
    import torch

    if isinstance(value, list | tuple):
        return [_array(part) for part in value]
    if value.dtype == torch.bfloat16:
        return value.contiguous().view(torch.int16).numpy().view(storage("bfloat16"))
    return value.numpy()
