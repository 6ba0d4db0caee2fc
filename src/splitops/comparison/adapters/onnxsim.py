"""onnxsim, a simplifier."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from splitops.comparison.worker import Question, rejecting

NAME = "onnxsim"
KIND = "simplifier"
FORMATS = ("onnx",)


def versions() -> dict[str, str]:
    """Return the release."""
    return {"onnxsim": version("onnxsim"), "onnx": version("onnx")}


def answer(case: Question) -> Path:
    """Simplify the model, without runs that compare."""
    import onnx
    import onnxsim

    with rejecting("simplify"):
        made, _ = onnxsim.simplify(onnx.load(case.model))
    path = Path(case.folder, "simplified.onnx")
    path.write_bytes(made.SerializeToString())
    return path
