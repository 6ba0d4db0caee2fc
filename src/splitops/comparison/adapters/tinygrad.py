"""tinygrad's ONNX runner, on its CPU device."""

import os
from typing import Any

import numpy as np
import numpy.typing as npt

from splitops.comparison.worker import Question, rejecting, storage

PACKAGES = ("tinygrad",)
SETTINGS = {"device": ("CPU", "PYTHON")}
ADDRESS_SPACE = 16 << 30


def answer(case: Question) -> dict[str, Any]:
    """Run the model."""
    os.environ["CACHELEVEL"] = "0"  # kernels of an earlier run are not asked
    os.environ["DEV"] = case.setting["device"]
    from tinygrad.nn.onnx import OnnxRunner

    with rejecting("load"):
        runner = OnnxRunner(case.model)
    with rejecting("run"):
        outputs = runner({name: _tensor(array) for name, array in case.inputs.items()})
        return {name: _array(value) for name, value in outputs.items()}


def _tensor(array: npt.NDArray[Any]) -> Any:
    """Return an array as the runner takes it: of NumPy's own types, or a tensor of the others' bits."""
    from tinygrad import Tensor, dtypes

    if array.dtype.name != "bfloat16":
        return array
    return Tensor(array.view(np.uint16)).bitcast(dtypes.bfloat16)


def _array(value: Any) -> Any:
    from tinygrad import dtypes

    if isinstance(value, list | tuple):
        return [_array(part) for part in value]
    if value.dtype == dtypes.bfloat16:
        return value.bitcast(dtypes.uint16).numpy().view(storage("bfloat16"))
    return value.numpy()
