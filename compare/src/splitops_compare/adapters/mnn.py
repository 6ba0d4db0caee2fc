"""MNN: its converter and its runtime, on the CPU."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from splitops_compare.worker import CaseInput, NotApplicable, catch_rejection

PACKAGES = ("MNN",)
SETTINGS = {"threads": ("1", "4")}
ADDRESS_SPACE = 16 << 30
_TYPES = {"float32": "float", "int32": "int", "uint8": "uint8"}
"""Names in ``MNN.expr`` of the element types that ``MNN.expr.const`` supports."""
_NARROW = {"int64": np.int32, "float64": np.float32}
"""Types to which its converter narrows those that MNN lacks."""


def run(case: CaseInput) -> list[Any]:
    """Convert the model and run it. 64-bit inputs are narrowed, since the converter narrows the model."""
    import _tools
    import MNN

    target = Path(case.folder, "model.mnn")
    options = ["-f", "ONNX", "--modelFile", case.model, "--MNNModel", str(target), "--bizCode", "MNN"]
    inputs = [_make_tensor(name, array) for name, array in case.inputs.items()]
    with catch_rejection("load"):
        _tools.mnnconvert(["mnnconvert", *options])
        if not target.exists():
            raise RuntimeError("mnnconvert wrote no model")
        threads = int(case.setting["threads"])
        module = MNN.nn.load_module_from_file(
            str(target), list(case.inputs), list(case.outputs), thread_num=threads
        )
    with catch_rejection("run"):
        outputs = module.onForward(inputs)
        if len(outputs) != len(case.outputs):  # MNN only prints the error
            raise RuntimeError(f"it returned {len(outputs)} outputs, not {len(case.outputs)}")
        return [MNN.expr.convert(output, MNN.expr.NCHW).read().copy() for output in outputs]


def _make_tensor(name: str, array: npt.NDArray[Any]) -> Any:
    import MNN

    array = array.astype(_NARROW.get(array.dtype.name, array.dtype))
    if array.dtype.name not in _TYPES:
        raise NotApplicable(f"MNN.expr.const does not support {array.dtype.name} (input {name})")
    dtype = getattr(MNN.expr, _TYPES[array.dtype.name])
    return MNN.expr.const(array, list(array.shape), MNN.expr.NCHW, dtype)
