"""onnxoptimizer, with the passes that it takes unasked or with all of them."""

from typing import Any

from splitops.comparison.worker import Question, rejecting

KIND = "simplifier"
PACKAGES = ("onnxoptimizer", "onnx")
PRELOAD = ("onnx", "onnxoptimizer")
SETTINGS = {"passes": ("default", "all")}


def answer(case: Question) -> Any:
    """Optimise the model."""
    import onnx
    import onnxoptimizer

    passes = None
    if case.setting["passes"] == "all":
        # The two that cut a model in halves give no whole model.
        passes = [name for name in onnxoptimizer.get_available_passes() if not name.startswith("split_")]
    with rejecting("optimise"):
        return onnxoptimizer.optimize(onnx.load(case.model), passes)
