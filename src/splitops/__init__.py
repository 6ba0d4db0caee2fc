"""splitops: the tensor split operators of ONNX and OpenVINO, exact, safe and fast.

``splitops.onnx`` and ``splitops.openvino`` hold the operators as functions on arrays, :func:`plan` binds one
for repeated use, :func:`schema`, :func:`history` and :func:`difference` give the specification as data.
"""

from __future__ import annotations

from splitops import errors, onnx, openvino
from splitops.calling import plan
from splitops.errors import ArrayError, ModelError, Rule, RuleError, SplitError, Where
from splitops.execute import Plan
from splitops.operators import Difference, OperatorSchema, difference, history, schema

__all__ = [
    "ArrayError",
    "Difference",
    "ModelError",
    "OperatorSchema",
    "Plan",
    "Rule",
    "RuleError",
    "SplitError",
    "Where",
    "__version__",
    "difference",
    "errors",
    "history",
    "onnx",
    "openvino",
    "plan",
    "schema",
]

__version__ = "0.1.0"
