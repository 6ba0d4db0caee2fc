"""onnxslim, a simplifier."""

from typing import Any

from splitops_compare.worker import CaseInput, catch_rejection

KIND = "simplifier"
PACKAGES = ("onnxslim", "onnx")
PRELOAD = ("onnx", "onnxslim")


def run(case: CaseInput) -> Any:
    """Return the simplified model."""
    import onnx
    import onnxslim

    with catch_rejection("simplify"):
        return onnxslim.slim(onnx.load(case.model))
