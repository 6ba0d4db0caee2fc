"""onnxsim, a simplifier."""

from typing import Any

from splitops_compare.worker import CaseInput, catch_rejection

KIND = "simplifier"
PACKAGES = ("onnxsim", "onnx")


def run(case: CaseInput) -> Any:
    """Simplify the model without the checks of onnxsim."""
    import onnx
    import onnxsim

    with catch_rejection("simplify"):
        simplified, _ = onnxsim.simplify(onnx.load(case.model))
    return simplified
