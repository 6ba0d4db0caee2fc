"""Passes of onnxruntime's optimiser that get something wrong around a split, a file each."""

from __future__ import annotations

from typing import Final

from splitops.models.quirks.onnxruntime.common_subexpression_elimination import (
    CONFLICTING_SPLITS,
    SplitKey,
    find,
    find_conflicting_splits,
    split_key,
)
from splitops.models.quirks.quirk import Quirk

QUIRKS: Final[tuple[Quirk, ...]] = (CONFLICTING_SPLITS,)

__all__ = ["QUIRKS", "SplitKey", "find", "find_conflicting_splits", "split_key"]
