"""What runtimes, compilers, converters and simplifiers do with the split family, held to what is decided.

:func:`splitops.compare` asks them.
"""

from __future__ import annotations

from splitops.comparison.records import CompareError, Report

__all__ = ["CompareError", "Report"]
