"""onnx's checker, and its shape inference."""

from typing import Any

from splitops_compare.worker import CaseInput, catch_rejection

KIND = "inference"
PACKAGES = ("onnx",)
PRELOAD = ("onnx",)
SETTINGS = {"strict": ("yes", "no"), "data": ("no", "yes")}


def run(case: CaseInput) -> dict[str, Any]:
    """Check the model, and infer the dimensions of its outputs."""
    import onnx

    model = onnx.load(case.model)
    with catch_rejection("check"):
        onnx.checker.check_model(model)
    strict, data = case.setting["strict"] == "yes", case.setting["data"] == "yes"
    with catch_rejection("infer"):
        inferred = onnx.shape_inference.infer_shapes(model, strict_mode=strict, data_prop=data)
    return {value.name: _read_dims(value.type) for value in inferred.graph.output}


def _read_dims(kind: Any) -> list[int | str | None] | None:
    if not kind.HasField("tensor_type") or not kind.tensor_type.HasField("shape"):
        return None
    return [
        dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None
        for dim in kind.tensor_type.shape.dim
    ]
