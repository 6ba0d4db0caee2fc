"""onnxoptimizer, with its default passes, or all passes that do not split the model itself."""

from typing import Any

from splitops_compare.worker import CaseInput, catch_rejection

KIND = "simplifier"
PACKAGES = ("onnxoptimizer", "onnx")
PRELOAD = ("onnx", "onnxoptimizer")
SETTINGS = {"passes": ("default", "all")}


def run(case: CaseInput) -> Any:
    """Return the optimised model."""
    import onnx
    import onnxoptimizer

    passes = None
    if case.setting["passes"] == "all":
        # The split_ passes return one half of the model.
        passes = [name for name in onnxoptimizer.get_available_passes() if not name.startswith("split_")]
    with catch_rejection("optimise"):
        return onnxoptimizer.optimize(onnx.load(case.model), passes)
