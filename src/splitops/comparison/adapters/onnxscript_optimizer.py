"""The optimizer of onnxscript."""

from typing import Any

from splitops.comparison.worker import Question, rejecting

KIND = "simplifier"
PACKAGES = ("onnxscript", "onnx-ir", "onnx")
PRELOAD = ("onnx", "onnxscript.optimizer")


def answer(case: Question) -> Any:
    """Optimise the model."""
    import onnx
    from onnxscript import optimizer

    with rejecting("optimise"):
        return optimizer.optimize(onnx.load(case.model))
