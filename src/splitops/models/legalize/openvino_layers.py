"""Legalisation of OpenVINO IR for OpenVINO."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from splitops.errors import ModelError, Where
from splitops.models.check.conditions import Surroundings
from splitops.models.formats.openvino import OpenVINOModel, read
from splitops.models.infer.openvino_walk import walk_openvino
from splitops.models.legalize.limits import obstacles
from splitops.models.legalize.report import Fate, Legalization, SiteReport
from splitops.models.sites import Site

__all__ = ["legalize_openvino"]


def legalize_openvino(model: Any, target: str, where: Where, allow_links: bool) -> Legalization:
    """Legalise a path or :class:`OpenVINOModel`.

    Raises:
        ModelError: the target does not read OpenVINO IR.
    """
    if target != "openvino":
        raise ModelError(f"{target} reads ONNX models; this is OpenVINO IR, which can be converted", where)
    if isinstance(model, str | os.PathLike):
        model = read(Path(model), allow_links=allow_links)
    if not isinstance(model, OpenVINOModel):
        raise ModelError(f"a {type(model).__name__} is no model", where)
    where = replace(where, model=where.model or model.file)
    sites: list[Site] = []
    walk_openvino(model, where, sites.append)
    surroundings = Surroundings.of(model)
    return Legalization(target, model, tuple(_report(site, surroundings, target) for site in sites))


def _report(site: Site, model: Surroundings, target: str) -> SiteReport:
    reasons = tuple(obstacle.reason for obstacle in obstacles([site], model, target, None))
    fate = Fate.ILLEGAL if reasons else Fate.LEGAL
    return SiteReport(site.where, fate, str(site), str(site), reasons)
