"""splitops: the tensor split operators of ONNX and OpenVINO, exact, safe and fast.

- Arrays: ``splitops.onnx`` and ``splitops.openvino`` have the operators as functions. :func:`plan` prepares
  one for repeated use.
- Models: :func:`load`, :func:`save`, :func:`run`, :func:`infer`, :func:`check`, :func:`convert`, :func:`fix`,
  :func:`simplify`.
- Files: ``splitops.files`` splits and merges tensor files, ``splitops.sharding`` shards checkpoints.
- Specification: :func:`schema`, :func:`history`, :func:`difference`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from splitops import errors, onnx, openvino
from splitops.calls.functions import plan
from splitops.calls.hints import make_attribute_error
from splitops.common.progress import report_progress_to
from splitops.common.version import __version__
from splitops.errors import ArrayError, ModelError, Rule, RuleError, SplitError, Where
from splitops.native import Plan, get_num_threads, pool_limit, pool_statistics, release_pool, set_num_threads
from splitops.spec.operators import Difference, OperatorSchema, difference, history, schema

if TYPE_CHECKING:
    from splitops import files, sharding
    from splitops.models import load, run, save
    from splitops.models.check import check
    from splitops.models.convert import convert, convert_with_report
    from splitops.models.fix import fix, fix_with_report
    from splitops.models.infer import infer
    from splitops.models.sessions import Session, session
    from splitops.models.simplify import simplify, simplify_with_report

__all__ = [
    "ArrayError",
    "Difference",
    "ModelError",
    "OperatorSchema",
    "Plan",
    "Rule",
    "RuleError",
    "Session",
    "SplitError",
    "Where",
    "__version__",
    "check",
    "convert",
    "convert_with_report",
    "difference",
    "errors",
    "files",
    "fix",
    "fix_with_report",
    "get_num_threads",
    "history",
    "infer",
    "load",
    "onnx",
    "openvino",
    "plan",
    "pool_limit",
    "pool_statistics",
    "release_pool",
    "report_progress_to",
    "run",
    "save",
    "schema",
    "session",
    "set_num_threads",
    "sharding",
    "simplify",
    "simplify_with_report",
]

# Functions for models are imported on first use, since importing onnx takes longer than everything else.
_ON_DEMAND = {
    "check": "splitops.models.check",
    "convert": "splitops.models.convert",
    "convert_with_report": "splitops.models.convert",
    "infer": "splitops.models.infer",
    "fix": "splitops.models.fix",
    "fix_with_report": "splitops.models.fix",
    "load": "splitops.models",
    "run": "splitops.models",
    "Session": "splitops.models.sessions",
    "save": "splitops.models",
    "session": "splitops.models.sessions",
    "simplify": "splitops.models.simplify",
    "simplify_with_report": "splitops.models.simplify",
}


def _draw_plan(plan: Plan) -> str:
    from splitops.explain import explain, to_svg

    return to_svg(explain(plan))


Plan._repr_html_ = _draw_plan  # type: ignore[attr-defined]  # the compiled class does not declare it


def __getattr__(name: str) -> Any:
    if name in ("files", "sharding"):
        return import_module(f"splitops.{name}")
    if name not in _ON_DEMAND:
        raise make_attribute_error(__name__, name)
    value = globals()[name] = getattr(import_module(_ON_DEMAND[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
