"""OpenVINO models run: splits and data movers here, other layers by OpenVINO if it is installed."""

from __future__ import annotations

from splitops.models.running.openvino.evaluator import run

__all__ = ["run"]
