"""tinygrad's ONNX runner, on its CPU device or in pure Python."""

import os
from typing import Any

import numpy as np
import numpy.typing as npt

from splitops_compare.worker import CaseInput, catch_rejection, get_storage_dtype

PACKAGES = ("tinygrad",)
SETTINGS = {"device": ("CPU", "PYTHON")}
ADDRESS_SPACE = 16 << 30


def run(case: CaseInput) -> dict[str, Any]:
    """Run the model on the inputs of the case, and return its outputs."""
    os.environ["CACHELEVEL"] = "0"  # disables the cache of kernels from earlier runs
    os.environ["DEV"] = case.setting["device"]
    from tinygrad.nn.onnx import OnnxRunner

    with catch_rejection("load"):
        runner = OnnxRunner(case.model)
    with catch_rejection("run"):
        outputs = runner({name: _make_tensor(array) for name, array in case.inputs.items()})
        return {name: _make_array(value) for name, value in outputs.items()}


def _make_tensor(array: npt.NDArray[Any]) -> Any:
    """Convert an array to an input of the runner: only bfloat16 becomes a tensor, with the same bits."""
    from tinygrad import Tensor, dtypes

    if array.dtype.name != "bfloat16":
        return array
    return Tensor(array.view(np.uint16)).bitcast(dtypes.bfloat16)


def _make_array(value: Any) -> Any:
    from tinygrad import dtypes

    if isinstance(value, list | tuple):
        return [_make_array(part) for part in value]
    if value.dtype == dtypes.bfloat16:
        return value.bitcast(dtypes.uint16).numpy().view(get_storage_dtype("bfloat16"))
    return value.numpy()
