"""Compare runtimes, compilers, converters and simplifiers with the specification of the split operators."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from splitops_compare.data import CompareError, ComparisonReport
    from splitops_compare.driver.comparison import compare

__all__ = ["CompareError", "ComparisonReport", "compare"]

# Imported on first use: splitops imports the command to list it, and onnx takes longer than all the rest.
_ON_DEMAND = {
    "CompareError": "splitops_compare.data",
    "ComparisonReport": "splitops_compare.data",
    "compare": "splitops_compare.driver.comparison",
}


def __getattr__(name: str) -> Any:
    if name not in _ON_DEMAND:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_ON_DEMAND[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
