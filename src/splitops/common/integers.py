"""Limits of the integer types that files and models use."""

from __future__ import annotations

from typing import Final

INT32_MAX: Final = (1 << 31) - 1
INT64_MIN: Final = -(1 << 63)
INT64_MAX: Final = (1 << 63) - 1
