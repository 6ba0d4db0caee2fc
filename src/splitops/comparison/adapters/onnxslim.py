"""onnxslim, a simplifier."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from splitops.comparison.worker import Question, rejecting

NAME = "onnxslim"
KIND = "simplifier"
FORMATS = ("onnx",)
PRELOAD = ("onnx", "onnxslim")


def versions() -> dict[str, str]:
    """Return the release."""
    return {"onnxslim": version("onnxslim"), "onnx": version("onnx")}


def answer(case: Question) -> Path:
    """Simplify the model."""
    import onnx
    import onnxslim

    with rejecting("simplify"):
        made = onnxslim.slim(onnx.load(case.model))
    path = Path(case.folder, "slim.onnx")
    path.write_bytes(made.SerializeToString())
    return path
