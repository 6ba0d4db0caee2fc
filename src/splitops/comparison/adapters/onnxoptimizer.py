"""onnxoptimizer, with the passes that it takes unasked or with all of them."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from splitops.comparison.worker import Question, rejecting

NAME = "onnxoptimizer"
KIND = "simplifier"
FORMATS = ("onnx",)
PRELOAD = ("onnx", "onnxoptimizer")
SETTINGS = {"passes": ("default", "all")}


def versions() -> dict[str, str]:
    """Return the release."""
    return {"onnxoptimizer": version("onnxoptimizer"), "onnx": version("onnx")}


def answer(case: Question) -> Path:
    """Optimise the model."""
    import onnx
    import onnxoptimizer

    passes = None
    if case.setting["passes"] == "all":
        # The two that cut a model in halves give no whole model.
        passes = [name for name in onnxoptimizer.get_available_passes() if not name.startswith("split_")]
    with rejecting("optimise"):
        made = onnxoptimizer.optimize(onnx.load(case.model), passes)
    path = Path(case.folder, "optimised.onnx")
    path.write_bytes(made.SerializeToString())
    return path
