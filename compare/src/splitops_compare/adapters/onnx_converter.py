"""onnx's version converter, to the next opset from 11 on in which an operator of the split family changed."""

from typing import Any

from splitops_compare.worker import CaseInput, NotApplicable, catch_rejection

KIND = "converter"
PACKAGES = ("onnx",)
PRELOAD = ("onnx.version_converter",)
_STEPS = (11, 13, 18, 24)


def run(case: CaseInput) -> Any:
    """Convert the model to the next of opsets 11, 13, 18 and 24, in which split operators changed."""
    import onnx
    from onnx.version_converter import convert_version

    model = onnx.load(case.model)
    opset = next(entry.version for entry in model.opset_import if entry.domain == "")
    target = next((step for step in _STEPS if step > opset), None)
    if target is None:
        raise NotApplicable(f"nothing changed after opset {opset}")
    with catch_rejection("convert"):
        return convert_version(model, target)
