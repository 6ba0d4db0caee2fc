"""onnxruntime on the CPU."""

from typing import Any

from splitops_compare.worker import CaseInput, NotApplicable, catch_rejection

PACKAGES = ("onnxruntime",)
PRELOAD = ("onnxruntime",)
SETTINGS = {"optimisation": ("all", "none"), "threads": ("all", "1")}


def run(case: CaseInput) -> list[Any]:
    """Run the model on the inputs of the case, and return its outputs."""
    import onnxruntime as ort

    ort.set_default_logger_severity(4)
    options = ort.SessionOptions()
    if case.setting["optimisation"] == "none":
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    if case.setting["threads"] == "1":
        options.intra_op_num_threads = options.inter_op_num_threads = 1
    with catch_rejection("load"):
        session = ort.InferenceSession(case.model, options, providers=["CPUExecutionProvider"])
    if "bfloat16" in case.types.values():
        raise NotApplicable("its Python package does not accept bfloat16 arrays")
    with catch_rejection("run"):
        return list(session.run(case.outputs, dict(case.inputs)))
