"""Reductions, which compute one element from all elements of the reduced axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from splitops.models.abstract_values import AbstractTensor
from splitops.models.ops.operator import (
    Attribute,
    Operands,
    Operator,
    Spelling,
    Unknown,
    as_flag,
    as_integer,
    as_integers,
)
from splitops.models.ops.shapes import normalise_axis, read_axes
from splitops.models.ops.writing import INT64
from splitops.spec.sizes.dims import UNKNOWN, Shape


def _get_axes(operands: Operands, rank: int) -> Sequence[int]:
    """Return the reduced axes as non-negative indices."""
    axes = read_axes(operands, rank, ())
    return axes if axes or operands["is_noop"] else range(rank)


def _reduce(shape: Shape, axes: Sequence[int], *, keep: bool) -> Shape:
    return tuple(1 if axis in axes else size for axis, size in enumerate(shape) if keep or axis not in axes)


def _infer(operands: Operands) -> AbstractTensor:
    shape, keep = operands.get_shape(), operands["keep"]
    axes = operands.get("axes")
    if isinstance(axes, AbstractTensor) and not axes.is_complete:
        return AbstractTensor(operands.get_type(), (UNKNOWN,) * len(shape) if keep else None)
    return AbstractTensor(operands.get_type(), _reduce(shape, _get_axes(operands, len(shape)), keep=keep))


def _fold_by(operation: Callable[..., Any]) -> Callable[..., Any]:
    def fold(operands: Operands, data: Any, *_: Any) -> Any:
        result = operation(data, axis=tuple(_get_axes(operands, data.ndim)), keepdims=operands["keep"])
        return np.asarray(result).astype(data.dtype)  # sums of integers wrap, and means lose the fraction

    return fold


def _compute_l2_norm(data: Any, **options: Any) -> Any:
    return np.sqrt(np.sum(np.square(data.astype(np.float64)), **options))


_KEEP: Final = {"keep": Attribute(as_flag, default=True, name="keepdims")}
_NOOP: Final = {"is_noop": Attribute(as_flag, default=False, name="noop_with_empty_axes")}
_LISTED: Final = {"axes": Attribute(as_integers, None)}
_IN_LAYERS: Final = {"keep": Attribute(as_flag, default=False, name="keep_dims")}


def _make_reduction(name: str, operation: Callable[..., Any] | None, *, onnx: bool = True) -> Operator:
    since = 13 if name == "ReduceSum" else 18
    spellings = (
        Spelling(name, "data axes?", _KEEP | _NOOP, since=since),
        Spelling(name, "data", _KEEP | _LISTED, fixed={"is_noop": False}),
    )
    return Operator(
        onnx=spellings if onnx else (),
        openvino=(Spelling(name, "data axes", _IN_LAYERS, fixed={"is_noop": True}),),
        infer=_infer,
        fold=None if operation is None else _fold_by(operation),
    )


def _infer_position(operands: Operands) -> AbstractTensor:
    shape = operands.get_shape()
    axis = normalise_axis(operands["axis"], len(shape))
    return AbstractTensor(INT64, _reduce(shape, [axis], keep=operands["keep"]))


def _find_position(operation: Callable[..., Any]) -> Callable[..., Any]:
    def fold(operands: Operands, data: Any) -> Any:
        axis = normalise_axis(operands["axis"], data.ndim)
        if operands["last"]:
            raise Unknown("the last of equal elements")
        return np.asarray(operation(data, axis=axis, keepdims=operands["keep"]), np.int64)

    return fold


def _make_arg_reduction(name: str, operation: Callable[..., Any]) -> Operator:
    attributes = {
        "axis": Attribute(as_integer, 0),
        "last": Attribute(as_flag, default=False, name="select_last_index"),
    }
    return Operator(
        onnx=(Spelling(name, "data", attributes | _KEEP),),
        infer=_infer_position,
        fold=_find_position(operation),
        result=INT64,
    )


REDUCTIONS: Final = (
    _make_reduction("ReduceL1", lambda data, **options: np.sum(np.abs(data), **options)),
    _make_reduction("ReduceL2", _compute_l2_norm),
    _make_reduction("ReduceLogSum", None),
    _make_reduction("ReduceLogSumExp", None),
    _make_reduction("ReduceLogicalAnd", np.all, onnx=False),
    _make_reduction("ReduceLogicalOr", np.any, onnx=False),
    _make_reduction("ReduceMax", np.max),
    _make_reduction("ReduceMean", np.mean),
    _make_reduction("ReduceMin", np.min),
    _make_reduction("ReduceProd", np.prod),
    _make_reduction("ReduceSum", np.sum),
    _make_reduction("ReduceSumSquare", None),
    _make_arg_reduction("ArgMax", np.argmax),
    _make_arg_reduction("ArgMin", np.argmin),
)
