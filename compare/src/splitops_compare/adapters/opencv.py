"""The dnn module of OpenCV, with its automatic, classic or new engine."""

from importlib.metadata import PackageNotFoundError, version
from typing import Any

from splitops_compare.worker import CaseInput, NotApplicable, catch_rejection

PRELOAD = ("cv2",)
SETTINGS = {"engine": ("auto", "classic", "new")}


def read_versions() -> dict[str, str]:
    """Read the release of the installed package."""
    for name in ("opencv-python-headless", "opencv-python", "opencv-contrib-python"):
        try:
            return {"opencv": version(name)}
        except PackageNotFoundError:
            continue
    raise ImportError("opencv-python-headless is not installed")


def run(case: CaseInput) -> list[Any]:
    """Run the model on the inputs of the case, and return its outputs."""
    import cv2

    engine = getattr(cv2.dnn, f"ENGINE_{case.setting['engine'].upper()}", None)
    if engine is None and case.setting["engine"] != "auto":
        raise NotApplicable("this release has one engine")
    with catch_rejection("load"):
        net = cv2.dnn.readNetFromONNX(case.model, *(() if engine is None else (engine,)))
    with catch_rejection("run"):
        for name, value in case.inputs.items():
            net.setInput(value, name)
        outputs = net.forward(list(case.outputs))
        missing = [name for name, value in zip(case.outputs, outputs, strict=True) if value is None]
        if missing:
            raise ValueError(f"output {missing[0]!r} was not computed")
    return list(outputs)
