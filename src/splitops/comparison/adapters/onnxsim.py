"""onnxsim, a simplifier."""

from typing import Any

from splitops.comparison.worker import Question, rejecting

KIND = "simplifier"
PACKAGES = ("onnxsim", "onnx")


def answer(case: Question) -> Any:
    """Simplify the model, without runs that compare."""
    import onnx
    import onnxsim

    with rejecting("simplify"):
        made, _ = onnxsim.simplify(onnx.load(case.model))
    return made
