"""Operators that read, write, count and order elements by their positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from splitops.models.abstract_values import MAX_ELEMENTS, AbstractTensor, Value
from splitops.models.ops.elementwise import infer_same
from splitops.models.ops.operator import (
    Attribute,
    Operands,
    Operator,
    Spelling,
    Unknown,
    as_flag,
    as_integer,
    as_name,
    as_type,
    infer_result,
    reject_rounding,
)
from splitops.models.ops.shapes import count_elements, normalise_axis, to_size
from splitops.models.ops.writing import INT32, INT64
from splitops.spec.sizes.dims import Dim, Shape, make_dim

_AXIS: Final = {"axis": Attribute(as_integer)}
_FIRST: Final = {"axis": Attribute(as_integer, 0)}
_LAST: Final = {"axis": Attribute(as_integer, -1)}


def _find_bound(*sizes: Dim | None) -> int | None:
    """Return the smallest upper bound of ``sizes``, or None if all are unbounded."""
    bounds = [size if isinstance(size, int) else size.hi for size in sizes if size is not None]
    return min((bound for bound in bounds if bound is not None), default=None)


def _replace_size(shape: Shape, axis: int, size: Dim) -> Shape:
    return (*shape[:axis], size, *shape[axis + 1 :])


# Operators that compute positions


def _infer_one_hot(operands: Operands) -> AbstractTensor:
    shape, depth = operands.get_shape(), operands.get_entry("depth")
    axis = normalise_axis(operands["axis"], len(shape) + 1)
    depth = int(depth) if isinstance(depth, float) and abs(depth) < 1 << 62 else depth
    return AbstractTensor(operands.get_type("values"), (*shape[:axis], to_size(depth), *shape[axis:]))


def _fold_one_hot(operands: Operands, indices: Any, depth: Any, *values: Any) -> Any:
    count, axis = int(depth.reshape(())), normalise_axis(operands["axis"], indices.ndim + 1)
    off, on = values[0] if len(values) == 1 else (values[1], values[0])
    if count > MAX_ELEMENTS:
        raise Unknown("no indices, but many classes")
    if not operands.of_layer:
        indices = np.where((indices >= -count) & (indices < 0), indices + count, indices)
    elif operands.get("negative") != "ignore_negative":
        raise Unknown("counted in another way")
    return np.moveaxis(np.where(indices[..., None] == np.arange(count), on, off), -1, axis)


def _infer_top_k(operands: Operands) -> list[AbstractTensor]:
    shape = operands.get_shape()
    axis = normalise_axis(operands["axis"], len(shape))
    result = _replace_size(shape, axis, to_size(operands.get_entry("k")))
    return [AbstractTensor(operands.get_type(), result), AbstractTensor(operands.get("type", INT64), result)]


def _fold_top_k(operands: Operands, data: Any, *_: Any) -> Any:
    axis, count = normalise_axis(operands["axis"], data.ndim), int(operands.get_array("k").reshape(()))
    order = operands.get("sort", "value")
    if np.isnan(data).any() or not 0 < count <= data.shape[axis] or not operands.get("sorted", True):
        raise Unknown("NaN, or an invalid number of elements")
    if order == "none" and count > 1:
        raise Unknown("their order is not specified")
    ranks = np.unique(data, return_inverse=True)[1].reshape(data.shape)
    positions = np.argsort(-ranks if operands["largest"] else ranks, axis, kind="stable")
    positions = positions.take(range(count), axis)
    if order == "index":
        positions = np.sort(positions, axis)
    kind = operands.get("type", INT64)
    return np.take_along_axis(data, positions, axis), positions.astype(kind.numpy)


def _infer_compress(operands: Operands) -> AbstractTensor:
    """Infer the output of a Compress, which keeps the positions at which a condition is true."""
    data, condition, axis = operands.get_tensor(), operands.get_tensor("condition"), operands.get("axis")
    if axis is not None:
        axis = normalise_axis(axis, len(operands.get_shape()))
    size: Dim | None = None
    if data.shape is not None:
        size = to_size(count_elements(data.shape)) if axis is None else data.shape[axis]
    if condition.is_complete:  # runtimes ignore conditions after the last element
        kept = operands.get_elements("condition").reshape(-1)[: size if isinstance(size, int) else None]
        count: Dim = int(np.count_nonzero(kept))
    else:
        count = make_dim(0, _find_bound(size, condition.shape[0] if condition.shape else None))

    def take() -> Value:
        chosen = operands.get_elements() if axis is not None else operands.get_elements().reshape(-1)
        flags = operands.get_complete_elements("condition").reshape(-1)
        return np.compress(flags[: chosen.shape[axis or 0]], chosen, axis or 0)

    shape = (count,) if axis is None else _replace_size(operands.get_shape(), axis, count)
    return infer_result(data, shape, take)


def _infer_non_zero(operands: Operands) -> AbstractTensor:
    """Infer the positions of the nonzero elements, with one row per axis."""
    shape, kind = operands.get_shape(), operands.get("type", INT64)
    if operands.get_tensor().is_complete:
        rows = np.array(np.nonzero(np.atleast_1d(operands.get_elements())), kind.numpy)
        return AbstractTensor(kind, tuple(rows.shape), rows)
    return AbstractTensor(
        kind, (max(1, len(shape)), make_dim(0, _find_bound(to_size(count_elements(shape)))))
    )


def _infer_unique(operands: Operands) -> list[AbstractTensor]:
    """Infer the unique elements, their first positions, the inverse positions, and the counts."""
    shape = operands.get_shape()
    axis = normalise_axis(operands.get_integer("axis"), len(shape)) if "axis" in operands else None
    size = to_size(count_elements(shape)) if axis is None else shape[axis]
    elements = operands.get_tensor().elements if operands.get_tensor().is_complete else None
    if elements is not None and not np.any(elements != elements):  # each NaN may be unique
        count: Dim = np.unique(elements, axis=axis).shape[axis or 0]
    else:
        count = make_dim(min(1, size if isinstance(size, int) else size.lo), _find_bound(size))
    unique = (count,) if axis is None else _replace_size(shape, axis, count)
    kind, counts = operands.get("type", INT64), operands.get("count_type", INT64)
    types, shapes = (operands.get_type(), kind, kind, counts), (unique, (count,), (size,), (count,))
    return [AbstractTensor(*pair) for pair in zip(types, shapes, strict=True)]


# Elements at positions


def _locate(operands: Operands, indices: Any, size: Any) -> Any:
    """Return indices as non-negative positions. Raise Unknown if one is outside the axis.

    Negative indices of layers raise Unknown, too.
    """
    if ((indices < (0 if operands.of_layer else -size)) | (indices >= size)).any():
        raise Unknown("positions outside the axis, or negative ones")
    return np.where(indices < 0, indices + size, indices)


def _get_axis(operands: Operands, data: Any) -> int:
    return normalise_axis(int(operands.get_array("axis").reshape(())), data.ndim)


def _trim(array: Any, axis: int, indices: Any) -> Any:
    """Trim an array to the sizes of ``indices`` on all axes except ``axis``."""
    return array[tuple(slice(None if at == axis else size) for at, size in enumerate(indices.shape))]


def _fold_gather_elements(operands: Operands, data: Any, indices: Any) -> Any:
    axis = _get_axis(operands, data)
    return np.take_along_axis(
        _trim(data, axis, indices), _locate(operands, indices, data.shape[axis]).astype(np.int64), axis
    )


def _infer_gather_nd(operands: Operands) -> AbstractTensor:
    shape, indices, batches = operands.get_shape(), operands.get_shape("indices"), operands["batches"]
    width = indices[-1] if indices else None
    if not isinstance(width, int) or not 0 <= batches < len(indices) or batches + width > len(shape):
        raise Unknown("the length of a position is unknown")
    batch: Sequence[Dim] = indices[:batches]
    if batches > 1 and operands.get("joins_batches", False):
        batch = (to_size(count_elements(tuple(batch))),)
    return AbstractTensor(operands.get_type(), (*batch, *indices[batches:-1], *shape[batches + width :]))


def _fold_gather_nd(operands: Operands, data: Any, indices: Any) -> Any:
    if operands["batches"]:
        raise Unknown("batches")
    sizes = np.array(data.shape[: indices.shape[-1]])
    return data[tuple(np.moveaxis(_locate(operands, indices, sizes).astype(np.int64), -1, 0))]


def _fold_scatter(operands: Operands, data: Any, indices: Any, updates: Any, *_: Any) -> Any:
    result, axis = _copy_data(operands, data), _get_axis(operands, data)
    keys: tuple[Any, ...] = (*[slice(None)] * axis, _locate(operands, indices, data.shape[axis]))
    result[keys] = updates
    return result


def _fold_scatter_elements(operands: Operands, data: Any, indices: Any, updates: Any, *_: Any) -> Any:
    result, axis = _copy_data(operands, data), _get_axis(operands, data)
    positions = _locate(operands, indices, data.shape[axis]).astype(np.int64)
    np.put_along_axis(_trim(result, axis, indices), positions, updates, axis)
    return result


def _fold_scatter_nd(operands: Operands, data: Any, indices: Any, updates: Any) -> Any:
    result, sizes = _copy_data(operands, data), np.array(data.shape[: indices.shape[-1]])
    result[tuple(np.moveaxis(_locate(operands, indices, sizes).astype(np.int64), -1, 0))] = updates
    return result


def _copy_data(operands: Operands, data: Any) -> Any:
    if operands.get("reduction", "none") != "none":
        raise Unknown("elements are combined")
    return data.copy()


def _fold_cum_sum(operands: Operands, data: Any, axis: Any) -> Any:
    reject_rounding(data)
    if operands["exclusive"] or operands["reverse"]:
        raise Unknown("another sum")
    return np.cumsum(data, normalise_axis(int(axis.reshape(())), data.ndim)).astype(data.dtype)


def _fold_trilu(operands: Operands, data: Any, *_: Any) -> Any:
    offset = int(operands.get_array("k", 0).reshape(()))
    return np.triu(data, offset) if operands["upper"] else np.tril(data, offset)


def _infer_eye(operands: Operands) -> AbstractTensor:
    sizes = tuple(to_size(operands.get_entry(name)) for name in ("rows", "columns"))
    return AbstractTensor(operands["type"], sizes)


def _fold_eye(operands: Operands, rows: Any, columns: Any, shift: Any) -> Any:
    return np.eye(*(int(one.reshape(())) for one in (rows, columns, shift)), dtype=operands["type"].numpy)


_REDUCTION: Final = {"reduction": Attribute(as_name, "none")}
_FLAGS: Final = {name: Attribute(as_flag, default=False) for name in ("exclusive", "reverse")}
_UNIQUE: Final = {
    "type": Attribute(as_type, INT64, "index_element_type"),
    "count_type": Attribute(as_type, INT64, "count_element_type"),
}
_NEGATIVE: Final = {"negative": Attribute(as_name, "ignore_negative", "negative_indices_mode")}
_BATCHES: Final = {"batches": Attribute(as_integer, 0, "batch_dims")}
_ORDER: Final = {
    "axis": Attribute(as_integer),
    "largest": Attribute({"max": True, "min": False}, name="mode"),
    "sort": Attribute(as_name),
    "type": Attribute(as_type, INT32, "index_element_type"),
}
_LARGEST: Final = {name: Attribute(as_flag, default=True) for name in ("largest", "sorted")}

POSITIONS: Final = (
    Operator(
        onnx=(Spelling("OneHot", "data depth values", _LAST, since=9),),
        openvino=(Spelling("OneHot", "data depth values off", _AXIS | _NEGATIVE),),
        infer=_infer_one_hot,
        fold=_fold_one_hot,
    ),
    Operator(
        onnx=(
            Spelling("TopK", "data k", _LAST | _LARGEST, since=11),
            Spelling("TopK", "data k", _LAST, since=10, fixed={"largest": True}),
            Spelling("TopK", "data", _LAST | {"k": Attribute(as_integer)}, fixed={"largest": True}),
        ),
        openvino=(Spelling("TopK", "data k", _ORDER),),
        infer=_infer_top_k,
        fold=_fold_top_k,
    ),
    Operator(
        onnx=(Spelling("Compress", "data condition", {"axis": Attribute(as_integer, None)}, since=9),),
        infer=_infer_compress,
    ),
    Operator(
        onnx=(Spelling("NonZero", since=9),),
        openvino=(Spelling("NonZero", "data", {"type": Attribute(as_type, INT64, "output_type")}),),
        infer=_infer_non_zero,
    ),
    Operator(
        onnx=(Spelling("Unique", "data", {"axis": Attribute(as_integer, None)}, since=11),),
        openvino=(Spelling("Unique", "data axis?", _UNIQUE),),
        infer=_infer_unique,
    ),
    Operator(
        onnx=(Spelling("GatherElements", "data indices", _FIRST, since=11),),
        openvino=(Spelling("GatherElements", "data indices", _AXIS),),
        infer=lambda operands: AbstractTensor(operands.get_type(), operands.get_shape("indices")),
        fold=_fold_gather_elements,
    ),
    Operator(
        onnx=(Spelling("GatherND", "data indices", _BATCHES, since=11),),
        openvino=(
            Spelling("GatherND", "data indices", _BATCHES, since=8),
            Spelling("GatherND", "data indices", _BATCHES, fixed={"joins_batches": True}),
        ),
        infer=_infer_gather_nd,
        fold=_fold_gather_nd,
    ),
    Operator(
        onnx=(Spelling("ScatterElements", "data indices updates", _FIRST | _REDUCTION, since=11),),
        openvino=(Spelling("ScatterElementsUpdate", "data indices updates axis", _REDUCTION),),
        infer=infer_same,
        fold=_fold_scatter_elements,
    ),
    Operator(
        onnx=(Spelling("ScatterND", "data indices updates", _REDUCTION, since=11),),
        openvino=(Spelling("ScatterNDUpdate", "data indices updates", _REDUCTION),),
        infer=infer_same,
        fold=_fold_scatter_nd,
    ),
    Operator(
        openvino=(Spelling("ScatterUpdate", "data indices updates axis"),),
        infer=infer_same,
        fold=_fold_scatter,
    ),
    Operator(
        onnx=(Spelling("CumSum", "data axis", _FLAGS, since=11),),
        openvino=(Spelling("CumSum", "data axis", _FLAGS),),
        infer=infer_same,
        fold=_fold_cum_sum,
    ),
    Operator(
        onnx=(Spelling("Trilu", "data k?", {"upper": Attribute(as_flag, default=True)}, since=14),),
        infer=infer_same,
        fold=_fold_trilu,
    ),
    Operator(
        openvino=(Spelling("Eye", "rows columns shift", {"type": Attribute(as_type, name="output_type")}),),
        infer=_infer_eye,
        fold=_fold_eye,
    ),
)
