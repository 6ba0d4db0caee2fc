"""onnx's checker, and its shape inference."""

from typing import Any

from splitops.comparison.worker import Question, rejecting

KIND = "inference"
PACKAGES = ("onnx",)
PRELOAD = ("onnx",)
SETTINGS = {"strict": ("yes", "no"), "data": ("no", "yes")}


def answer(case: Question) -> dict[str, Any]:
    """Check the model and infer the dimensions of its outputs, which it leaves open."""
    import onnx

    model = onnx.load(case.model)
    with rejecting("check"):
        onnx.checker.check_model(model)
    strict, data = case.setting["strict"] == "yes", case.setting["data"] == "yes"
    with rejecting("infer"):
        inferred = onnx.shape_inference.infer_shapes(model, strict_mode=strict, data_prop=data)
    return {value.name: _dims(value.type) for value in inferred.graph.output}


def _dims(kind: Any) -> list[int | str | None] | None:
    if not kind.HasField("tensor_type") or not kind.tensor_type.HasField("shape"):
        return None
    return [
        dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None
        for dim in kind.tensor_type.shape.dim
    ]
