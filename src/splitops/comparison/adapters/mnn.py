"""MNN: its converter and its runtime, on the CPU."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from splitops.comparison.worker import NotApplicable, Question, rejecting

PACKAGES = ("MNN",)
SETTINGS = {"threads": ("1", "4")}
ADDRESS_SPACE = 16 << 30
_TYPES = {"float32": "float", "int32": "int", "uint8": "uint8"}
"""The tensors that ``MNN.expr.const`` makes."""
_NARROW = {"int64": np.int32, "float64": np.float32}
"""What its converter makes of the types of models that it does not have."""


def answer(case: Question) -> list[Any]:
    """Convert the model and run it; 64-bit inputs are narrowed as the converter does with the model."""
    import _tools
    import MNN

    target = Path(case.folder, "model.mnn")
    options = ["-f", "ONNX", "--modelFile", case.model, "--MNNModel", str(target), "--bizCode", "MNN"]
    inputs = [_tensor(name, array) for name, array in case.inputs.items()]
    with rejecting("load"):
        _tools.mnnconvert(["mnnconvert", *options])
        if not target.exists():
            raise RuntimeError("mnnconvert makes no model")
        threads = int(case.setting["threads"])
        module = MNN.nn.load_module_from_file(
            str(target), list(case.inputs), list(case.outputs), thread_num=threads
        )
    with rejecting("run"):
        outputs = module.onForward(inputs)
        if len(outputs) != len(case.outputs):  # it says what is wrong on its terminal alone
            raise RuntimeError(f"it gives {len(outputs)} outputs, not {len(case.outputs)}")
        return [MNN.expr.convert(output, MNN.expr.NCHW).read().copy() for output in outputs]


def _tensor(name: str, array: npt.NDArray[Any]) -> Any:
    import MNN

    array = array.astype(_NARROW.get(array.dtype.name, array.dtype))
    if array.dtype.name not in _TYPES:
        raise NotApplicable(f"MNN.expr.const takes no {array.dtype.name} (input {name})")
    dtype = getattr(MNN.expr, _TYPES[array.dtype.name])
    return MNN.expr.const(array, list(array.shape), MNN.expr.NCHW, dtype)
