"""What runtimes, compilers, converters and simplifiers do with the split family, held to what is decided."""

from __future__ import annotations

from splitops.comparison.driver.comparing import compare
from splitops.comparison.records import CompareError, Report

__all__ = ["CompareError", "Report", "compare"]
