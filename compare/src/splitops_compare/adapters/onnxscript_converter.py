"""The version converter of onnxscript, for opset 18 and later, and with its fallback for earlier opsets."""

from typing import Any

from splitops_compare.worker import CaseInput, NotApplicable, catch_rejection

KIND = "converter"
PACKAGES = ("onnxscript", "onnx-ir", "onnx")
PRELOAD = ("onnx", "onnx_ir", "onnxscript.version_converter")
SETTINGS = {"fallback": ("no", "yes")}
_STEPS = (18, 24)


def run(case: CaseInput) -> Any:
    """Convert the model to the next of opsets 18 and 24, in which split operators changed."""
    import onnx_ir as ir
    from onnxscript import version_converter

    model = ir.load(case.model)
    opset = model.opset_imports.get("", 0)
    fallback = case.setting["fallback"] == "yes"
    if opset < _STEPS[0] and not fallback:
        raise NotApplicable(f"it converts from opset {_STEPS[0]} or later, not from {opset}")
    target = next((step for step in _STEPS if step > opset), None)
    if target is None:
        raise NotApplicable(f"nothing changed after opset {opset}")
    with catch_rejection("convert"):
        version_converter.convert_version(model, target_version=target, fallback=fallback)
        if model.opset_imports.get("") != target:
            raise ValueError(f"the model is left at opset {model.opset_imports.get('')}")
    return ir.to_proto(model)
