"""onnx's version converter, from each version of Split to the next."""

from typing import Any

from splitops.comparison.worker import NotApplicable, Question, rejecting

KIND = "converter"
PACKAGES = ("onnx",)
PRELOAD = ("onnx.version_converter",)
_STEPS = (11, 13, 18, 24)


def answer(case: Question) -> Any:
    """Convert the model to the next opset in which an operator of the family changed."""
    import onnx
    from onnx.version_converter import convert_version

    model = onnx.load(case.model)
    opset = next(own.version for own in model.opset_import if own.domain == "")
    target = next((step for step in _STEPS if step > opset), None)
    if target is None:
        raise NotApplicable(f"nothing changed after opset {opset}")
    with rejecting("convert"):
        return convert_version(model, target)
