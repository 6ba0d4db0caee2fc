"""Read, check and write ONNX models. Needs onnx."""

from __future__ import annotations

from splitops.models.formats.onnx.storage import read, write
from splitops.models.formats.onnx.structure import check_model

__all__ = ["check_model", "read", "write"]
