"""Runs models on one runtime, in a process of its own: what a runtime does with a bad model may end it.

``python runtime_worker.py RUNTIME`` reads pickled (path of a model, inputs) from its standard input, and
answers each with ``("outputs", outputs by name)`` or ``("error", text)``, until the input ends.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, BinaryIO, Final

import numpy as np


def send(pipe: BinaryIO, value: Any) -> None:
    pipe.write(pickle.dumps(value))
    pipe.flush()


def _onnxruntime(path: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
    onnxruntime: Any = import_module("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, dict(inputs)), strict=True))


def _openvino(path: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
    openvino: Any = import_module("openvino")
    compiled = openvino.Core().compile_model(path, "CPU")
    # What nothing reads, such as the data of an empty part, is not an input of the compiled model.
    names = {name for port in compiled.inputs for name in port.names}
    feeds = {name: _fed(openvino, array) for name, array in inputs.items() if name in names}
    results = compiled(feeds)
    return {
        min(port.names, default=str(index)): np.array(results[port])
        for index, port in enumerate(compiled.outputs)
    }


def _opencv(path: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
    cv2: Any = import_module("cv2")
    import onnx

    net = cv2.dnn.readNetFromONNX(path)
    for name, array in inputs.items():
        net.setInput(array, name)
    names = [output.name for output in onnx.load(path).graph.output]
    return dict(zip(names, net.forward(names), strict=True))


def _fed(openvino: Any, array: np.ndarray[Any, Any]) -> Any:
    """OpenVINO takes strings as its own tensors alone."""
    return openvino.Tensor(array.astype(str)) if array.dtype.kind in "OUS" else array


RUNNERS: Final[dict[str, Callable[[str, Mapping[str, Any]], dict[str, Any]]]] = {
    "onnxruntime": _onnxruntime,
    "openvino": _openvino,
    "opencv": _opencv,
}
"""What runs a model, by the name of its runtime."""


def _serve(runtime: str) -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a runtime prints is not an answer
    while True:
        try:
            path, inputs = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer: tuple[str, Any] = "outputs", RUNNERS[runtime](path, inputs)
        except Exception as error:  # each runtime has its own
            answer = "error", f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"
        send(answers, answer)


if __name__ == "__main__":
    _serve(sys.argv[1])
