"""Conversions of ONNX models."""

from __future__ import annotations

from typing import Any

from splitops.errors import Where
from splitops.models.convert.onnx_to_onnx import convert_opset, model_opset
from splitops.models.convert.report import Conversion
from splitops.models.formats.onnx.storage import opened
from splitops.models.sites.forms import Form, Target

__all__ = ["convert"]


def convert(model: Any, target: Target | None, form: Form, where: Where, allow_links: bool) -> Conversion:
    """Convert an ONNX model; a target of None keeps its opset."""
    proto = opened(model, allow_links=allow_links)
    if target is not None and target.domain:
        from splitops.models.convert import onnx_to_openvino

        return onnx_to_openvino.convert(proto, target, form, where)
    opset = None if target is None else target.opset
    changes, converted, problem = convert_opset(proto, opset, form, where)
    name = f"onnx:{model_opset(proto)}" if target is None else str(target)
    return Conversion(name, changes, converted, problem)
