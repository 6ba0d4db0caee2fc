"""Runs a model in its own runtime, without splitops: ONNX in onnxruntime, OpenVINO IR in OpenVINO.

The inputs count up from 0. It prints the outputs, or the error of the runtime.

    python examples/run_alone.py MODEL
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable

import numpy as np


def make(shape: Iterable[int], kind: str) -> np.ndarray:
    """Make an input that counts up; strings are made of the numbers."""
    numbers = np.arange(np.prod(list(shape))).reshape(shape)
    return np.char.add("label ", numbers.astype(str)) if "string" in kind else numbers.astype(np.float32)


def run(path: str) -> dict[str, np.ndarray]:
    """Run a model, and return its outputs by name."""
    if path.endswith(".onnx"):
        import onnxruntime

        onnxruntime.set_default_logger_severity(4)  # the error itself is printed below
        session = onnxruntime.InferenceSession(path)
        feeds = {one.name: make(one.shape, one.type) for one in session.get_inputs()}
        names = [one.name for one in session.get_outputs()]
        return dict(zip(names, session.run(names, feeds), strict=True))
    import openvino

    warnings.simplefilter("ignore")  # that strings are copied
    model = openvino.Core().compile_model(path, "CPU")
    found = model([make(one.shape, one.element_type.get_type_name()) for one in model.inputs])
    return {one.any_name: np.asarray(found[one]) for one in model.outputs}


if __name__ == "__main__":
    try:
        outputs = run(sys.argv[1])
    except Exception as error:
        sys.exit(f"{type(error).__name__}: {error}")
    for name, value in outputs.items():
        print(f"{name}: {value.tolist()}")
