"""The optimizer of onnxscript."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from splitops.comparison.worker import Question, rejecting

NAME = "onnxscript-optimizer"
KIND = "simplifier"
FORMATS = ("onnx",)
PRELOAD = ("onnx", "onnxscript.optimizer")


def versions() -> dict[str, str]:
    """Return the release."""
    return {name: version(name) for name in ("onnxscript", "onnx-ir", "onnx")}


def answer(case: Question) -> Path:
    """Optimise the model."""
    import onnx
    from onnxscript import optimizer

    with rejecting("optimise"):
        made = optimizer.optimize(onnx.load(case.model))
    path = Path(case.folder, "optimised.onnx")
    path.write_bytes(made.SerializeToString())
    return path
