"""OpenCV's dnn, with its engine of today or the one before."""

from importlib.metadata import PackageNotFoundError, version
from typing import Any

from splitops.comparison.worker import NotApplicable, Question, rejecting

PRELOAD = ("cv2",)
SETTINGS = {"engine": ("auto", "classic", "new")}


def versions() -> dict[str, str]:
    """Return the release."""
    for name in ("opencv-python-headless", "opencv-python", "opencv-contrib-python"):
        try:
            return {"opencv": version(name)}
        except PackageNotFoundError:
            continue
    raise ImportError("opencv-python-headless is not installed")


def answer(case: Question) -> list[Any]:
    """Run the model."""
    import cv2

    engine = getattr(cv2.dnn, f"ENGINE_{case.setting['engine'].upper()}", None)
    if engine is None and case.setting["engine"] != "auto":
        raise NotApplicable("this release has one engine")
    with rejecting("load"):
        net = cv2.dnn.readNetFromONNX(case.model, *(() if engine is None else (engine,)))
    with rejecting("run"):
        for name, value in case.inputs.items():
            net.setInput(value, name)
        found = net.forward(list(case.outputs))
        lacking = [name for name, value in zip(case.outputs, found, strict=True) if value is None]
        if lacking:
            raise ValueError(f"output {lacking[0]!r} is not an array")
    return list(found)
