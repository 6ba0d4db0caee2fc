"""Operators that read, write, count and order elements by their positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from splitops.models.abstract_values import AbstractTensor, Value
from splitops.models.ops.copying import check_size, read_type
from splitops.models.ops.elementwise import infer_same
from splitops.models.ops.operator import (
    Attribute,
    Operands,
    Operator,
    Spelling,
    Unknown,
    as_flag,
    as_integer,
    as_word,
    infer_result,
)
from splitops.models.ops.shapes import axis_within, product, size_of
from splitops.models.ops.writing import INT32, INT64
from splitops.spec.elements.types import ElementType
from splitops.spec.sizes.dims import Dim, Shape, make_dim

_AXIS: Final = {"axis": Attribute(as_integer)}
_FIRST: Final = {"axis": Attribute(as_integer, 0)}
_LAST: Final = {"axis": Attribute(as_integer, -1)}


def _smallest_bound(*sizes: Dim | None) -> int | None:
    """Return the smallest upper bound of some sizes, or None if none has a bound."""
    bounds = [size if isinstance(size, int) else size.hi for size in sizes if size is not None]
    return min((bound for bound in bounds if bound is not None), default=None)


def _with_axis(shape: Shape, axis: int, size: Dim) -> Shape:
    return (*shape[:axis], size, *shape[axis + 1 :])


# Positions that elements have or choose


def _infer_one_hot(operands: Operands) -> AbstractTensor:
    shape, depth = operands.shape(), operands.entry("depth")
    axis = axis_within(operands["axis"], len(shape) + 1)
    depth = int(depth) if isinstance(depth, float) and abs(depth) < 1 << 62 else depth
    return AbstractTensor(operands.type("values"), (*shape[:axis], size_of(depth), *shape[axis:]))


def _one_hot(operands: Operands, indices: Any, depth: Any, *values: Any) -> Any:
    count, axis = int(depth.reshape(())), axis_within(operands["axis"], indices.ndim + 1)
    off, on = values[0] if len(values) == 1 else (values[1], values[0])
    check_size([*indices.shape, count])
    if not operands.of_layer:
        indices = np.where((indices >= -count) & (indices < 0), indices + count, indices)
    elif operands.get("negative") != "ignore_negative":
        raise Unknown("counted in another way")
    return np.moveaxis(np.where(indices[..., None] == np.arange(count), on, off), -1, axis)


def _infer_top_k(operands: Operands) -> list[AbstractTensor]:
    shape = operands.shape()
    axis = axis_within(operands["axis"], len(shape))
    found = _with_axis(shape, axis, size_of(operands.entry("k")))
    return [AbstractTensor(operands.type(), found), AbstractTensor(operands.get("type", INT64), found)]


def _top_k(operands: Operands, data: Any, *_: Any) -> Any:
    axis, count = axis_within(operands["axis"], data.ndim), int(operands.array("k").reshape(()))
    order = operands.get("sort", "value")
    if np.isnan(data).any() or not 0 < count <= data.shape[axis] or not operands.get("sorted", True):
        raise Unknown("not ordered, or more than there are")
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
    """Keep the positions of an axis, or of all elements, at which a condition is true."""
    data, condition, axis = operands.tensor(), operands.tensor("condition"), operands.get("axis")
    if axis is not None:
        axis = axis_within(axis, len(operands.shape()))
    whole: Dim | None = None
    if data.shape is not None:
        whole = size_of(product(data.shape)) if axis is None else data.shape[axis]
    if condition.is_complete:
        count: Dim = int(np.count_nonzero(operands.elements("condition")))
    else:
        count = make_dim(0, _smallest_bound(whole, condition.shape[0] if condition.shape else None))

    def take() -> Value:
        chosen = operands.elements() if axis is not None else operands.elements().reshape(-1)
        try:
            return np.compress(operands.complete("condition").reshape(-1), chosen, axis or 0)
        except IndexError as error:
            raise Unknown("more conditions than elements") from error

    shape = (count,) if axis is None else _with_axis(operands.shape(), axis, count)
    return infer_result(data, shape, take)


def _infer_non_zero(operands: Operands) -> AbstractTensor:
    """Return the position of each element that is not 0: one row for each axis."""
    shape, kind = operands.shape(), operands.get("type", INT64)
    if operands.tensor().is_complete:
        found = np.array(np.nonzero(np.atleast_1d(operands.elements())), kind.numpy)
        return AbstractTensor(kind, tuple(found.shape), found)
    return AbstractTensor(kind, (max(1, len(shape)), make_dim(0, _smallest_bound(size_of(product(shape))))))


def _infer_unique(operands: Operands) -> list[AbstractTensor]:
    """Return unique elements, their first positions, the positions of elements among them, and counts."""
    shape = operands.shape()
    axis = axis_within(operands.integer("axis"), len(shape)) if "axis" in operands else None
    whole = size_of(product(shape)) if axis is None else shape[axis]
    elements = operands.tensor().elements if operands.tensor().is_complete else None
    if elements is not None and not np.any(elements != elements):  # of NaN each one may be unique
        count: Dim = np.unique(elements, axis=axis).shape[axis or 0]
    else:
        count = make_dim(min(1, whole if isinstance(whole, int) else whole.lo), _smallest_bound(whole))
    found = (count,) if axis is None else _with_axis(shape, axis, count)
    kind, counts = operands.get("type", INT64), operands.get("count_type", INT64)
    types, shapes = (operands.type(), kind, kind, counts), (found, (count,), (whole,), (count,))
    return [AbstractTensor(*pair) for pair in zip(types, shapes, strict=True)]


# Elements at positions


def _inside(operands: Operands, indices: Any, size: Any) -> Any:
    """Return positions counted from the first. ONNX counts negative ones from the end."""
    if ((indices < (0 if operands.of_layer else -size)) | (indices >= size)).any():
        raise Unknown("positions outside, or that are read in another way")
    return np.where(indices < 0, indices + size, indices)


def _axis_of(operands: Operands, data: Any) -> int:
    return axis_within(int(operands.array("axis").reshape(())), data.ndim)


def _parts_of(array: Any, axis: int, indices: Any) -> Any:
    """Return the part of an array that other positions than those on an axis can reach."""
    return array[tuple(slice(None if at == axis else size) for at, size in enumerate(indices.shape))]


def _gather_elements(operands: Operands, data: Any, indices: Any) -> Any:
    axis = _axis_of(operands, data)
    return np.take_along_axis(
        _parts_of(data, axis, indices), _inside(operands, indices, data.shape[axis]).astype(np.int64), axis
    )


def _infer_gather_nd(operands: Operands) -> AbstractTensor:
    shape, indices, batches = operands.shape(), operands.shape("indices"), operands["batches"]
    width = indices[-1] if indices else None
    if not isinstance(width, int) or not 0 <= batches < len(indices) or batches + width > len(shape):
        raise Unknown("the length of a position is unknown")
    batch: Sequence[Dim] = indices[:batches]
    if batches > 1 and operands.get("joins_batches", False):
        batch = (size_of(product(tuple(batch))),)
    return AbstractTensor(operands.type(), (*batch, *indices[batches:-1], *shape[batches + width :]))


def _gather_nd(operands: Operands, data: Any, indices: Any) -> Any:
    if operands["batches"]:
        raise Unknown("batches")
    sizes = np.array(data.shape[: indices.shape[-1]])
    return data[tuple(np.moveaxis(_inside(operands, indices, sizes).astype(np.int64), -1, 0))]


def _scatter(operands: Operands, data: Any, indices: Any, updates: Any, *_: Any) -> Any:
    made, axis = _copied(operands, data), _axis_of(operands, data)
    keys: tuple[Any, ...] = (*[slice(None)] * axis, _inside(operands, indices, data.shape[axis]))
    made[keys] = updates
    return made


def _scatter_elements(operands: Operands, data: Any, indices: Any, updates: Any, *_: Any) -> Any:
    made, axis = _copied(operands, data), _axis_of(operands, data)
    positions = _inside(operands, indices, data.shape[axis]).astype(np.int64)
    np.put_along_axis(_parts_of(made, axis, indices), positions, updates, axis)
    return made


def _scatter_nd(operands: Operands, data: Any, indices: Any, updates: Any) -> Any:
    made, sizes = _copied(operands, data), np.array(data.shape[: indices.shape[-1]])
    made[tuple(np.moveaxis(_inside(operands, indices, sizes).astype(np.int64), -1, 0))] = updates
    return made


def _copied(operands: Operands, data: Any) -> Any:
    if operands.get("reduction", "none") != "none":
        raise Unknown("elements are combined")
    return data.copy()


def _cumulative_sum(operands: Operands, data: Any, axis: Any) -> Any:
    if operands["exclusive"] or operands["reverse"]:
        raise Unknown("another sum")
    return np.cumsum(data, axis_within(int(axis.reshape(())), data.ndim)).astype(data.dtype)


def _triangle(operands: Operands, data: Any, *_: Any) -> Any:
    offset = int(operands.array("k", 0).reshape(()))
    return np.triu(data, offset) if operands["upper"] else np.tril(data, offset)


def _infer_eye(operands: Operands) -> AbstractTensor:
    sizes = tuple(size_of(operands.entry(name)) for name in ("rows", "columns"))
    return AbstractTensor(operands["type"], sizes)


def _eye(operands: Operands, rows: Any, columns: Any, shift: Any) -> Any:
    sizes = [int(one.reshape(())) for one in (rows, columns, shift)]
    check_size(sizes[:2])
    return np.eye(*sizes, dtype=operands["type"].numpy)


def _type(name: str, default: ElementType = INT64) -> Attribute:
    return Attribute(read_type, default, name)


_REDUCTION: Final = {"reduction": Attribute(as_word, "none")}
_FLAGS: Final = {name: Attribute(as_flag, default=False) for name in ("exclusive", "reverse")}
_UNIQUE: Final = {"type": _type("index_element_type"), "count_type": _type("count_element_type")}
_BATCHES: Final = {"batches": Attribute(as_integer, 0, "batch_dims")}
_ORDER: Final = {
    "axis": Attribute(as_integer),
    "largest": Attribute({"max": True, "min": False}, name="mode"),
    "sort": Attribute(as_word),
    "type": _type("index_element_type", INT32),
}
_LARGEST: Final = {name: Attribute(as_flag, default=True) for name in ("largest", "sorted")}

POSITIONS: Final = (
    Operator(
        onnx=(Spelling("OneHot", "data depth values", _LAST, since=9),),
        openvino=(
            Spelling(
                "OneHot",
                "data depth values off",
                _AXIS | {"negative": Attribute(as_word, "ignore_negative", "negative_indices_mode")},
            ),
        ),
        infer=_infer_one_hot,
        fold=_one_hot,
    ),
    Operator(
        onnx=(
            Spelling("TopK", "data k", _LAST | _LARGEST, since=11),
            Spelling("TopK", "data k", _LAST, since=10, fixed={"largest": True}),
            Spelling("TopK", "data", _LAST | {"k": Attribute(as_integer)}, fixed={"largest": True}),
        ),
        openvino=(Spelling("TopK", "data k", _ORDER),),
        infer=_infer_top_k,
        fold=_top_k,
    ),
    Operator(
        onnx=(Spelling("Compress", "data condition", {"axis": Attribute(as_integer, None)}, since=9),),
        infer=_infer_compress,
    ),
    Operator(
        onnx=(Spelling("NonZero", since=9),),
        openvino=(Spelling("NonZero", "data", {"type": _type("output_type")}),),
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
        infer=lambda operands: AbstractTensor(operands.type(), operands.shape("indices")),
        fold=_gather_elements,
    ),
    Operator(
        onnx=(Spelling("GatherND", "data indices", _BATCHES, since=11),),
        openvino=(
            Spelling("GatherND", "data indices", _BATCHES, since=8),
            Spelling("GatherND", "data indices", _BATCHES, fixed={"joins_batches": True}),
        ),
        infer=_infer_gather_nd,
        fold=_gather_nd,
    ),
    Operator(
        onnx=(Spelling("ScatterElements", "data indices updates", _FIRST | _REDUCTION, since=11),),
        openvino=(
            Spelling(
                "ScatterElementsUpdate",
                "data indices updates axis",
                _REDUCTION,
            ),
        ),
        infer=infer_same,
        fold=_scatter_elements,
    ),
    Operator(
        onnx=(Spelling("ScatterND", "data indices updates", _REDUCTION, since=11),),
        openvino=(Spelling("ScatterNDUpdate", "data indices updates", _REDUCTION),),
        infer=infer_same,
        fold=_scatter_nd,
    ),
    Operator(
        openvino=(Spelling("ScatterUpdate", "data indices updates axis"),), infer=infer_same, fold=_scatter
    ),
    Operator(
        onnx=(Spelling("CumSum", "data axis", _FLAGS, since=11),),
        openvino=(Spelling("CumSum", "data axis", _FLAGS),),
        infer=infer_same,
        fold=_cumulative_sum,
    ),
    Operator(
        onnx=(Spelling("Trilu", "data k?", {"upper": Attribute(as_flag, default=True)}, since=14),),
        infer=infer_same,
        fold=_triangle,
    ),
    Operator(
        openvino=(Spelling("Eye", "rows columns shift", {"type": Attribute(read_type, name="output_type")}),),
        infer=_infer_eye,
        fold=_eye,
    ),
)
