"""``Split`` and ``VariadicSplit`` of OpenVINO, as functions on arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

import numpy.typing as npt

from splitops.calls.arguments import ArrayT, NestedLists
from splitops.calls.dimension_forms import DimensionForm, ShapeForm, infer_call, to_shape_form
from splitops.calls.functions import call, define_function
from splitops.calls.hints import make_attribute_error
from splitops.spec.operators import schema

__all__ = ["DimensionForm", "ShapeForm", "infer_split", "infer_variadic_split", "split", "variadic_split"]


@overload
def split(
    data: NestedLists,
    axis: int | npt.NDArray[Any],
    num_splits: int,
    *,
    opset: int | None = ...,
    copy: bool | None = ...,
    out: Sequence[Any] | None = ...,
) -> tuple[npt.NDArray[Any], ...]: ...


@overload
def split(
    data: ArrayT,
    axis: int | npt.NDArray[Any],
    num_splits: int,
    *,
    opset: int | None = ...,
    copy: bool | None = ...,
    out: Sequence[Any] | None = ...,
) -> tuple[ArrayT, ...]: ...


@define_function("Split", "openvino")
def split(
    data: Any,
    axis: int | npt.NDArray[Any],
    num_splits: int,
    *,
    opset: int | None = None,
    copy: bool | None = None,
    out: Sequence[Any] | None = None,
) -> tuple[Any, ...]:
    """Split an array into equal parts like OpenVINO ``Split``.

    Args:
        data: array of rank 1 or more, of any OpenVINO element type. Nested lists of numbers become a NumPy
            array.
        axis: axis to split, in [-rank, rank - 1]: an integer or a scalar of any integer type.
        num_splits: number of parts, at least 1, which must divide the axis.
        opset: operation set that selects the version; None for the newest.
        copy: None or False returns views of ``data`` if its library has them; True returns contiguous copies.
        out: arrays with the exact shapes and dtype of the parts, which must not overlap ``data`` or each
            other. They are filled and returned.

    Returns:
        The parts. Their concatenation along the axis is the data.

    Raises:
        TypeUnsupportedError: ``type.unsupported``, for example for complex numbers.
        AxisError: ``axis.range``, ``axis.rank``, ``axis.dtype``.
        PartsError: ``parts.divisible``, ``parts.count``.
        OperatorError: ``op.version``: ``opset`` is below 1 or not an integer.
        ArrayError: ``out`` does not match the parts, overlaps, is unsupported, or contradicts ``copy=False``;
            or ``data`` is not an array of a known library.

    Examples:
        >>> import numpy as np
        >>> [part.shape for part in split(np.zeros((6, 12, 10, 24)), 1, 3)]
        [(6, 4, 10, 24), (6, 4, 10, 24), (6, 4, 10, 24)]

    Source: OpenVINO opset1 Split-1.
    """
    arguments = {"axis": axis, "num_splits": num_splits}
    parts: tuple[Any, ...] = call(schema("Split", opset, "openvino"), data, arguments, copy, out)
    return parts


@overload
def variadic_split(
    data: NestedLists,
    axis: int | Sequence[int] | npt.NDArray[Any],
    split_lengths: Sequence[int] | npt.NDArray[Any],
    *,
    opset: int | None = ...,
    copy: bool | None = ...,
    out: Sequence[Any] | None = ...,
) -> tuple[npt.NDArray[Any], ...]: ...


@overload
def variadic_split(
    data: ArrayT,
    axis: int | Sequence[int] | npt.NDArray[Any],
    split_lengths: Sequence[int] | npt.NDArray[Any],
    *,
    opset: int | None = ...,
    copy: bool | None = ...,
    out: Sequence[Any] | None = ...,
) -> tuple[ArrayT, ...]: ...


@define_function("VariadicSplit", "openvino")
def variadic_split(
    data: Any,
    axis: int | Sequence[int] | npt.NDArray[Any],
    split_lengths: Sequence[int] | npt.NDArray[Any],
    *,
    opset: int | None = None,
    copy: bool | None = None,
    out: Sequence[Any] | None = None,
) -> tuple[Any, ...]:
    """Split an array into parts of given lengths like OpenVINO ``VariadicSplit``.

    Args:
        data: array of rank 1 or more, of any OpenVINO element type. Nested lists of numbers become a NumPy
            array.
        axis: axis to split, in [-rank, rank - 1]: an integer, or an array of shape [] or [1] of any integer
            type.
        split_lengths: size of each part, of any integer type. One of them may be -1: the rest of the axis.
        opset: operation set that selects the version; None for the newest.
        copy: None or False returns views of ``data`` if its library has them; True returns contiguous copies.
        out: arrays with the exact shapes and dtype of the parts, which must not overlap ``data`` or each
            other. They are filled and returned.

    Returns:
        The parts. Their concatenation along the axis is the data.

    Raises:
        TypeUnsupportedError: ``type.unsupported``, for example for complex numbers.
        AxisError: ``axis.range``, ``axis.rank``, ``axis.dtype``.
        LengthsError: ``lengths.sum``, ``lengths.negative``, ``lengths.rank``, ``lengths.dtype``,
            ``lengths.count``, ``lengths.value``.
        RemainderError: ``remainder.negative``, ``remainder.repeated``.
        OperatorError: ``op.version``: ``opset`` is below 1 or not an integer.
        ArrayError: ``out`` does not match the parts, overlaps, is unsupported, or contradicts ``copy=False``;
            or ``data`` is not an array of a known library.

    Examples:
        >>> import numpy as np
        >>> [part.shape for part in variadic_split(np.zeros((6, 12, 10, 24)), 0, [-1, 2])]
        [(4, 12, 10, 24), (2, 12, 10, 24)]

    Source: OpenVINO opset1 VariadicSplit-1.
    """
    arguments = {"axis": axis, "split_lengths": split_lengths}
    parts: tuple[Any, ...] = call(schema("VariadicSplit", opset, "openvino"), data, arguments, copy, out)
    return parts


def infer_split(
    shape: Sequence[DimensionForm] | None,
    axis: int | npt.NDArray[Any] | None,
    num_splits: int,
    *,
    opset: int | None = None,
) -> list[ShapeForm]:
    """Infer the shapes of the outputs of OpenVINO ``Split``.

    Args:
        shape: dimensions of the data: each an integer, a name, an interval ``(lo, hi)`` in which ``hi`` may
            be None for unbounded, or None for unknown. None if the rank is unknown.
        axis: axis to split, or None if it is unknown.
        num_splits: number of parts.
        opset: operation set that selects the version; None for the newest.

    Returns:
        The shape of each part, with dimensions as in ``shape``. These are the narrowest shapes that contain
        all possible results.

    Raises:
        RuleError: no valid result is possible; see :func:`splitops.openvino.split`.
        ArrayError: ``shape`` is not a shape.

    Examples:
        >>> infer_split([(2, 7), 4], 0, 3)
        [((1, 2), 4), ((1, 2), 4), ((1, 2), 4)]
        >>> infer_split([7, 6], None, 3)  # axis 0 cannot be split in 3
        [(7, 2), (7, 2), (7, 2)]

    Source: OpenVINO opset1 Split-1.
    """
    arguments = {"axis": axis, "num_splits": num_splits}
    found = infer_call(schema("Split", opset, "openvino"), shape, arguments, unknown=("axis",))
    return [to_shape_form(part) for part in found.parts or ()]


def infer_variadic_split(
    shape: Sequence[DimensionForm] | None,
    axis: int | Sequence[int] | npt.NDArray[Any] | None,
    split_lengths: Sequence[int | None] | npt.NDArray[Any] | None,
    *,
    opset: int | None = None,
) -> list[ShapeForm]:
    """Infer the shapes of the outputs of OpenVINO ``VariadicSplit``.

    Args:
        shape: dimensions of the data, as for :func:`infer_split`.
        axis: axis to split, or None if it is unknown.
        split_lengths: size of each part, with None for an unknown size. One of them may be -1. None if the
            number of parts is unknown.
        opset: operation set that selects the version; None for the newest.

    Returns:
        The shape of each part, with dimensions as in ``shape``; empty if the number of parts is unknown.
        These are the narrowest shapes that contain all possible results.

    Raises:
        RuleError: no valid result is possible; see :func:`splitops.openvino.variadic_split`.
        ArrayError: ``shape`` is not a shape.

    Examples:
        >>> infer_variadic_split([(5, 9), "N"], 0, [-1, 2])
        [((3, 7), 'N'), (2, 'N')]
        >>> infer_variadic_split([6], 0, [None, 4, None])
        [((0, 2),), (4,), ((0, 2),)]

    Source: OpenVINO opset1 VariadicSplit-1.
    """
    arguments = {"axis": axis, "split_lengths": split_lengths}
    op_schema = schema("VariadicSplit", opset, "openvino")
    found = infer_call(op_schema, shape, arguments, unknown=("axis", "split_lengths"))
    return [to_shape_form(part) for part in found.parts or ()]


def __getattr__(name: str) -> Any:
    raise make_attribute_error(__name__, name)
