"""onnx2torch: converts the model to a PyTorch module, and runs it."""

from typing import Any

import numpy as np
import numpy.typing as npt

from splitops_compare.worker import CaseInput, NotApplicable, catch_rejection, get_storage_dtype

PACKAGES = ("onnx2torch", "torch", "onnx")


def run(case: CaseInput) -> list[Any]:
    """Convert the model and run it."""
    if "string" in case.types.values():
        raise NotApplicable("PyTorch has no tensors of strings")
    import onnx2torch

    inputs = [_make_tensor(array) for array in case.inputs.values()]
    with catch_rejection("load"):
        module = onnx2torch.convert(case.model)
    with catch_rejection("run"):
        outputs = module(*inputs)
    return [_make_array(outputs)] if len(case.outputs) == 1 else [_make_array(part) for part in outputs]


def _make_tensor(array: npt.NDArray[Any]) -> Any:
    import torch

    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array.copy())


def _make_array(value: Any) -> Any:
    import torch

    if isinstance(value, list | tuple):
        return [_make_array(part) for part in value]
    if value.dtype == torch.bfloat16:
        return value.contiguous().view(torch.int16).numpy().view(get_storage_dtype("bfloat16"))
    return value.numpy()
