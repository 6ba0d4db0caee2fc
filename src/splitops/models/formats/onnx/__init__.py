"""ONNX models: reading, running, writing, and finding their split operators. Needs onnx."""

from __future__ import annotations

from splitops.models.formats.onnx.sites import split_sites
from splitops.models.formats.onnx.storage import read, write
from splitops.models.formats.onnx.structure import check_model

__all__ = ["check_model", "read", "split_sites", "write"]
