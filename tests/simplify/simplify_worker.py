"""Runs models with onnxruntime, in a process of its own: some of the edge cases end it.

Reads pickled (model, inputs, optimized) from stdin and answers with a pickled outcome each, until stdin ends.
"""

from __future__ import annotations

import pickle
import sys
from typing import Any, BinaryIO


def send(pipe: BinaryIO, value: Any) -> None:
    pipe.write(pickle.dumps(value))
    pipe.flush()


def outcome(model: bytes, inputs: dict[str, Any], optimized: bool) -> tuple[str, Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    if not optimized:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
        return "outputs", dict(zip(names, session.run(None, inputs), strict=True))
    except Exception as error:
        kind = "unsupported" if type(error).__name__ == "NotImplemented" else "error"
        return kind, f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    while True:
        try:
            request = pickle.load(sys.stdin.buffer)
        except EOFError:
            break
        send(sys.stdout.buffer, outcome(*request))
