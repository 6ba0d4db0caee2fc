"""onnx's reference evaluator."""

from typing import Any

from splitops_compare.worker import CaseInput, catch_rejection

PACKAGES = ("onnx",)
PRELOAD = ("onnx.reference",)


def run(case: CaseInput) -> list[Any]:
    """Run the model on the inputs of the case, and return its outputs."""
    from onnx.reference import ReferenceEvaluator

    with catch_rejection("load"):
        evaluator = ReferenceEvaluator(case.model)
    with catch_rejection("run"):
        return list(evaluator.run(list(case.outputs), dict(case.inputs)))
