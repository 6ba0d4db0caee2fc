"""Conversions of OpenVINO IR: its splits stated anew, or the whole model as ONNX."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from splitops.errors import ModelError, Where
from splitops.models.convert.report import Conversion
from splitops.models.formats.openvino import OpenVINOModel, read
from splitops.models.sites.forms import Form, Target

__all__ = ["convert"]


def convert(model: Any, target: Target | None, form: Form, where: Where, allow_links: bool) -> Conversion:
    """Convert an OpenVINO model; a target of None keeps it OpenVINO's."""
    if isinstance(model, str | os.PathLike):
        model = read(Path(model), allow_links=allow_links)
    if not isinstance(model, OpenVINOModel):
        raise ModelError(f"a {type(model).__name__} is no model", where)
    where = Where(model=where.model or model.file)
    if target is None or target.domain:
        raise ModelError("an OpenVINO model can be converted to 'onnx:' with an opset alone", where)
    from splitops.models.convert.openvino_to_onnx import convert_ir

    return convert_ir(model, target, form, where)
