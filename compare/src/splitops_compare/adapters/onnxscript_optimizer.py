"""The optimizer of onnxscript."""

from typing import Any

from splitops_compare.worker import CaseInput, catch_rejection

KIND = "simplifier"
PACKAGES = ("onnxscript", "onnx-ir", "onnx")
PRELOAD = ("onnx", "onnxscript.optimizer")


def run(case: CaseInput) -> Any:
    """Return the optimised model."""
    import onnx
    from onnxscript import optimizer

    with catch_rejection("optimise"):
        return optimizer.optimize(onnx.load(case.model))
