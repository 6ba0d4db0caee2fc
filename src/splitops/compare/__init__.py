"""What runtimes, compilers, converters and simplifiers do with the split family, held to what is decided."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from splitops.compare.driver.comparing import compare
    from splitops.compare.records import CompareError, Report

__all__ = ["CompareError", "Report", "compare"]

# The driver needs models; whoever reads records or messages does not.
_ON_DEMAND = {
    "compare": "splitops.compare.driver.comparing",
    "CompareError": "splitops.compare.records",
    "Report": "splitops.compare.records",
}


def __getattr__(name: str) -> Any:
    if name not in _ON_DEMAND:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_ON_DEMAND[name]), name)


class _Package(ModuleType):
    """The package, which is called as a function: an import of a part of it takes that name."""

    def __call__(self, *arguments: Any, **named: Any) -> Report:
        found: Report = __getattr__("compare")(*arguments, **named)
        return found


sys.modules[__name__].__class__ = _Package
