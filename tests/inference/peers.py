"""Holds what splitops infers against what onnx and OpenVINO infer."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
from onnx import ModelProto, TypeProto
from onnx.backend.test.case.node import collect_testcases

from splitops.models.abstract_values import Opaque
from splitops.models.formats.onnx.types import from_type
from splitops.models.infer import AbstractSequence, AbstractTensor
from splitops.spec.sizes.dims import UNKNOWN, Dim, Range


def backend_models() -> Iterator[tuple[str, ModelProto]]:
    """Every model of one node or a few that onnx's backend tests have."""
    root = Path(onnx.__file__).parent / "backend" / "test" / "data"
    for path in sorted(root.glob("*/*/model.onnx")):
        yield f"{path.parent.parent.name}/{path.parent.name}", onnx.load(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = collect_testcases(None)
    for case in cases:
        if case.model is not None:
            yield f"node/{case.name}", case.model


def onnx_says(model: ModelProto) -> dict[str, Any]:
    """What onnx's own inference knows of the main graph; symbols that it made up are unknown."""
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    graph = inferred.graph
    return {value.name: _known(value.type) for value in (*graph.value_info, *graph.output)}


def _known(proto: TypeProto) -> Any:
    return _without_made_up(from_type(proto))


def _without_made_up(known: Any) -> Any:
    if isinstance(known, AbstractSequence):
        # A name says nothing here: it may be another size in every element.
        shape = known.element.shape
        exact = None if shape is None else tuple(d if isinstance(d, int) else UNKNOWN for d in shape)
        return AbstractSequence(AbstractTensor(known.element.type, exact), known.length)
    if isinstance(known, AbstractTensor) and known.shape is not None:
        return AbstractTensor(known.type, tuple(UNKNOWN if _is_made_up(dim) else dim for dim in known.shape))
    return known


def _is_made_up(dim: Dim) -> bool:
    return isinstance(dim, Range) and dim.name is not None and dim.name.startswith("unk__")


def less_known(ours: Any, theirs: Any) -> str | None:
    """Why ours knows less than theirs, or None where it knows at least as much."""
    if theirs is None:
        return None
    if isinstance(theirs, AbstractSequence):
        if not isinstance(ours, AbstractSequence):
            return f"{theirs}, but ours is {ours}"
        return less_known(ours.element, theirs.element)
    if isinstance(theirs, Opaque) and isinstance(ours, Opaque):
        return None
    if not isinstance(ours, AbstractTensor):
        return f"{theirs}, but ours is {ours}"
    if theirs.type is not None and ours.type != theirs.type:
        return f"{theirs}, but ours is {ours}"
    if theirs.shape is None:
        return None
    if ours.shape is None or len(ours.shape) != len(theirs.shape):
        return f"{theirs}, but ours is {ours}"
    if any(_is_looser(a, b) for a, b in zip(ours.shape, theirs.shape, strict=True)):
        return f"{theirs}, but ours is {ours}"
    return None


def _is_looser(ours: Dim, theirs: Dim) -> bool:
    if isinstance(ours, int):
        return isinstance(theirs, int) and ours != theirs
    if isinstance(theirs, int):
        return True
    if theirs.name is not None and ours.name is None:
        return True
    if theirs.lo > ours.lo:
        return True
    return theirs.hi is not None and (ours.hi is None or ours.hi > theirs.hi)
