"""onnx's reference evaluator."""

from typing import Any

from splitops.comparison.worker import Question, rejecting

PACKAGES = ("onnx",)
PRELOAD = ("onnx.reference",)


def answer(case: Question) -> list[Any]:
    """Run the model."""
    from onnx.reference import ReferenceEvaluator

    with rejecting("load"):
        evaluator = ReferenceEvaluator(case.model)
    with rejecting("run"):
        return list(evaluator.run(list(case.outputs), dict(case.inputs)))
