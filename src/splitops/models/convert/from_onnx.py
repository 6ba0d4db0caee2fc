"""Conversions of ONNX models."""

from __future__ import annotations

import os
from typing import Any

import onnx_ir as ir
from onnx import ModelProto

from splitops.errors import ModelError, Where
from splitops.models.convert.forms import Form, Target
from splitops.models.convert.onnx_to_onnx import convert_opset, model_opset
from splitops.models.convert.report import Conversion
from splitops.models.onnx_model import check_model, read

__all__ = ["convert"]


def convert(model: Any, target: Target | None, form: Form, where: Where) -> Conversion:
    """Convert an ONNX model; a target of None keeps its opset."""
    proto = _proto(model, where)
    if target is not None and target.domain:
        from splitops.models.convert import onnx_to_openvino

        return onnx_to_openvino.convert(proto, form, where)
    opset = None if target is None else target.opset
    changes, converted, problem = convert_opset(proto, opset, form, where)
    name = f"onnx:{model_opset(proto)}" if target is None else str(target)
    return Conversion(name, changes, converted, problem)


def _proto(model: Any, where: Where) -> ModelProto:
    if isinstance(model, str | os.PathLike):
        return read(model)
    proto = ir.serde.to_proto(model) if isinstance(model, ir.Model) else model
    if not isinstance(proto, ModelProto):
        raise ModelError(f"a {type(model).__name__} is no model", where)
    check_model(proto, where)
    return proto
