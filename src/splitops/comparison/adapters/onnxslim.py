"""onnxslim, a simplifier."""

from typing import Any

from splitops.comparison.worker import Question, rejecting

KIND = "simplifier"
PACKAGES = ("onnxslim", "onnx")
PRELOAD = ("onnx", "onnxslim")


def answer(case: Question) -> Any:
    """Simplify the model."""
    import onnx
    import onnxslim

    with rejecting("simplify"):
        return onnxslim.slim(onnx.load(case.model))
