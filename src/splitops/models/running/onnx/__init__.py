"""ONNX models run by onnx's reference evaluator, with the split family ours everywhere."""

from __future__ import annotations

from splitops.models.running.onnx.model import Model, load, run

__all__ = ["Model", "load", "run"]
