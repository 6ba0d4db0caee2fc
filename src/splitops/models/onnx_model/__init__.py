"""ONNX models: reading, running, writing, and finding their split operators. Needs onnx."""

from __future__ import annotations

from splitops.models.onnx_model.running import Model, load, run
from splitops.models.onnx_model.sites import split_sites
from splitops.models.onnx_model.storage import read, write
from splitops.models.onnx_model.structure import check_model

__all__ = ["Model", "check_model", "load", "read", "run", "split_sites", "write"]
