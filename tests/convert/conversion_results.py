"""The result of a case: the cell that docs/convert.md states of it, and its outputs, to be compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from conversion_cases import Case
from onnx import ModelProto, TensorProto

import splitops.models
from splitops.models.convert import Conversion, Status

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "convert.md"
RECENT_OPSET = min(26, onnx.defs.onnx_opset_version())
"""One that every operator is moved up to; onnx 1.19 ends with 24."""
BEGIN, END = "<!-- matrix: begin -->", "<!-- matrix: end -->"
"""Between them stands the matrix, which ``dev/benchmarks/conversion_matrix.py`` writes."""


def own_result(report: Conversion) -> str:
    """Return the cell of a report: its status, and of a rejection the rule code."""
    if report.complete:
        order = [Status.REWRITTEN, Status.CONVERTED, Status.KEPT]
        found = {change.status for change in report.changes}
        return next(status.value for status in order if status in found)
    rules = [change.rule.value for change in report.rejections if change.rule is not None]
    return f"rejected `{rules[0]}`" if rules else "rejected"


def runnable(model: Any) -> Any:
    """Return a model that onnx's evaluator runs: it does not read Cast's type by name, before opset 6."""
    if isinstance(model, ModelProto):
        for node in model.graph.node:
            for attribute in node.attribute:
                if node.op_type == "Cast" and attribute.s:
                    attribute.i = TensorProto.DataType.Value(attribute.s.decode())
                    attribute.type = onnx.AttributeProto.INT
                    attribute.ClearField("s")
    return model


def outputs(case: Case, model: Any) -> list[list[Any]]:
    """Return the outputs of a model on every input of a case."""
    model = runnable(model)
    return [list(splitops.models.run(model, feeds).values()) for feeds in case.feeds]


def equal(left: Any, right: Any) -> bool:
    """Return whether outputs are the same: lists, shapes, types and every element."""
    if isinstance(left, list) or isinstance(right, list):
        return type(left) is type(right) and len(left) == len(right) and all(map(equal, left, right))
    return left.dtype == right.dtype and np.array_equal(left, right)
