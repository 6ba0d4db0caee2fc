"""``Split`` and ``SplitToSequence`` of ONNX in all versions, as functions on arrays.

:func:`get_reference_ops` returns them for onnx's ``ReferenceEvaluator``. :mod:`splitops.onnx.backend`
implements the ONNX backend interface.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple, overload

import numpy.typing as npt

from splitops.calls.arguments import ArrayT, NestedLists
from splitops.calls.dimension_forms import (
    DimensionForm,
    ShapeForm,
    infer_call,
    to_dimension_form,
    to_shape_form,
)
from splitops.calls.functions import call, define_function
from splitops.calls.hints import make_attribute_error
from splitops.onnx.reference import get_reference_ops
from splitops.spec.operators import schema

__all__ = [
    "DimensionForm",
    "InferredSequence",
    "ShapeForm",
    "backend",
    "get_reference_ops",
    "infer_split",
    "infer_split_to_sequence",
    "split",
    "split_to_sequence",
]

Lengths = Sequence[int] | npt.NDArray[Any]
PartialLengths = Sequence[int | None] | npt.NDArray[Any]


@overload
def split(
    data: NestedLists,
    split: Lengths | None = ...,
    *,
    axis: int = ...,
    num_outputs: int | None = ...,
    opset: int | None = ...,
    copy: bool | None = ...,
    out: Sequence[Any] | None = ...,
) -> tuple[npt.NDArray[Any], ...]: ...


@overload
def split(
    data: ArrayT,
    split: Lengths | None = ...,
    *,
    axis: int = ...,
    num_outputs: int | None = ...,
    opset: int | None = ...,
    copy: bool | None = ...,
    out: Sequence[Any] | None = ...,
) -> tuple[ArrayT, ...]: ...


@define_function("Split", "")
def split(
    data: Any,
    split: Lengths | None = None,
    *,
    axis: int = 0,
    num_outputs: int | None = None,
    opset: int | None = None,
    copy: bool | None = None,
    out: Sequence[Any] | None = None,
) -> tuple[Any, ...]:
    """Split an array like ONNX ``Split``.

    Args:
        data: array of rank 1 or more, of an element type that the version supports. Nested lists of numbers
            become a NumPy array.
        split: size of each part, int64. For Split-1, integers set the attribute; the input must have the
            floating-point type of the data.
        axis: axis to split, in [-rank, rank - 1].
        num_outputs: since opset 18, the attribute: parts have size ceil(D / num_outputs) until the axis of
            size D ends. Before, the number of outputs that the node declares, which must divide
            the axis or, with ``split``, be the number of lengths.
        opset: opset that selects the version; None for the newest.
        copy: None or False returns views of ``data`` if its library has them; True returns contiguous copies.
        out: arrays with the exact shapes and dtype of the parts, which must not overlap ``data`` or each
            other. They are filled and returned.

    Returns:
        The parts. Their concatenation along the axis is the data.

    Raises:
        TypeUnsupportedError: ``type.unsupported``.
        AxisError: ``axis.range``, ``axis.dtype``.
        LengthsError: ``lengths.sum``, ``lengths.negative``, ``lengths.rank``, ``lengths.dtype``,
            ``lengths.count``, ``lengths.value``, ``lengths.conflict``, ``lengths.missing``.
        PartsError: ``parts.divisible`` (below opset 18), ``parts.count``.
        OperatorError: ``op.version``.
        ArrayError: ``out`` does not match the parts, overlaps, is unsupported, or contradicts ``copy=False``;
            or ``data`` is not an array of a known library.

    Examples:
        >>> import numpy as np
        >>> x = np.arange(7)
        >>> [part.tolist() for part in split(x, [2, 5])]
        [[0, 1], [2, 3, 4, 5, 6]]
        >>> [part.tolist() for part in split(x, num_outputs=4)]
        [[0, 1], [2, 3], [4, 5], [6]]

    Source: ONNX Split-1, -2, -11, -13, -18.
    """
    arguments = {"split": split, "axis": axis, "num_outputs": num_outputs}
    parts: tuple[Any, ...] = call(schema("Split", opset, ""), data, arguments, copy, out)
    return parts


@overload
def split_to_sequence(
    data: NestedLists,
    split: int | Lengths | None = ...,
    *,
    axis: int = ...,
    keepdims: int = ...,
    opset: int | None = ...,
    copy: bool | None = ...,
    out: Sequence[Any] | None = ...,
) -> list[npt.NDArray[Any]]: ...


@overload
def split_to_sequence(
    data: ArrayT,
    split: int | Lengths | None = ...,
    *,
    axis: int = ...,
    keepdims: int = ...,
    opset: int | None = ...,
    copy: bool | None = ...,
    out: Sequence[Any] | None = ...,
) -> list[ArrayT]: ...


@define_function("SplitToSequence", "")
def split_to_sequence(
    data: Any,
    split: int | Lengths | None = None,
    *,
    axis: int = 0,
    keepdims: int = 1,
    opset: int | None = None,
    copy: bool | None = None,
    out: Sequence[Any] | None = None,
) -> list[Any]:
    """Split an array like ONNX ``SplitToSequence``.

    Args:
        data: array of rank 1 or more, of an element type that the version supports. Nested lists of numbers
            become a NumPy array.
        split: one size for all parts (the last may be smaller), or the size of each part; int32 or int64.
            None means parts of size 1.
        axis: axis to split, in [-rank, rank - 1].
        keepdims: 0 removes the axis from the parts if ``split`` is None; 1 keeps it.
        opset: opset that selects the version; None for the newest.
        copy: None or False returns views of ``data`` if its library has them; True returns contiguous copies.
        out: arrays with the exact shapes and dtype of the parts, which must not overlap ``data`` or each
            other. They are filled and returned.

    Returns:
        The parts, as a list.

    Raises:
        TypeUnsupportedError: ``type.unsupported``.
        AxisError: ``axis.range``, ``axis.dtype``.
        KeepdimsError: ``keepdims.value``.
        LengthsError: ``lengths.sum``, ``lengths.negative``, ``lengths.rank``, ``lengths.dtype``,
            ``lengths.value``.
        ChunkError: ``chunk.positive``.
        PartsError: ``parts.count``: there are more parts than a call can return.
        OperatorError: ``op.version``: the opset is below 11 or not an integer.
        ArrayError: ``out`` does not match the parts, overlaps, is unsupported, or contradicts ``copy=False``;
            or ``data`` is not an array of a known library.

    Examples:
        >>> import numpy as np
        >>> [part.tolist() for part in split_to_sequence(np.arange(5), 2)]
        [[0, 1], [2, 3], [4]]
        >>> [part.shape for part in split_to_sequence(np.zeros((2, 3)), keepdims=0)]
        [(3,), (3,)]

    Source: ONNX SplitToSequence-11, -24.
    """
    arguments = {"split": split, "axis": axis, "keepdims": keepdims}
    parts: list[Any] = call(schema("SplitToSequence", opset, ""), data, arguments, copy, out)
    return parts


class InferredSequence(NamedTuple):
    """The inferred output of ``SplitToSequence``."""

    shape: ShapeForm
    """Shape of all elements, or None if their rank is unknown."""
    length: DimensionForm
    """Number of elements."""


def infer_split(
    shape: Sequence[DimensionForm] | None,
    split: PartialLengths | None = None,
    *,
    axis: int | None = 0,
    num_outputs: int | None = None,
    opset: int | None = None,
) -> list[ShapeForm]:
    """Infer the shapes of the outputs of ONNX ``Split``.

    Args:
        shape: dimensions of the data: each an integer, a name, an interval ``(lo, hi)`` in which ``hi`` may
            be None for unbounded, or None for unknown. None if the rank is unknown.
        split: size of each part, with None for an unknown size.
        axis: axis to split, or None if it is unknown.
        num_outputs: since opset 18, the attribute. Before, the number of outputs that the node declares.
        opset: opset that selects the version; None for the newest.

    Returns:
        The shape of each part, with dimensions as in ``shape``. These are the narrowest shapes that contain
        all possible results.

    Raises:
        RuleError: no valid result is possible; see :func:`splitops.onnx.split`.
        ArrayError: ``shape`` is not a shape.

    Examples:
        >>> infer_split(["N", 4], num_outputs=2, opset=13)
        [('N/2', 4), ('N/2', 4)]
        >>> infer_split([(4, 6)], num_outputs=3)
        [(2,), (2,), ((0, 2),)]
        >>> infer_split([None, 8], [2, None, 3], axis=1)
        [(None, 2), (None, 3), (None, 3)]
        >>> infer_split(None, [2, 3])
        [None, None]

    Source: ONNX Split-1, -2, -11, -13, -18.
    """
    arguments = {"split": split, "axis": axis, "num_outputs": num_outputs}
    found = infer_call(schema("Split", opset, ""), shape, arguments, unknown=("axis",))
    return [to_shape_form(part) for part in found.parts or ()]


def infer_split_to_sequence(
    shape: Sequence[DimensionForm] | None,
    split: int | PartialLengths | None = None,
    *,
    axis: int | None = 0,
    keepdims: int = 1,
    opset: int | None = None,
) -> InferredSequence:
    """Infer the shape and the number of elements in the output of ONNX ``SplitToSequence``.

    Args:
        shape: dimensions of the data, as for :func:`infer_split`.
        split: one size for all parts; or the size of each part, with None for an unknown size. None means
            parts of size 1.
        axis: axis to split, or None if it is unknown.
        keepdims: 0 removes the axis from the parts if ``split`` is None; 1 keeps it.
        opset: opset that selects the version; None for the newest.

    Returns:
        The shape of all elements, and their number. If there are no elements and the axis is kept, its size
        is ``split`` or 1, or None if ``split`` is an empty list.

    Raises:
        RuleError: no valid result is possible; see :func:`splitops.onnx.split_to_sequence`.
        ArrayError: ``shape`` is not a shape.

    Examples:
        >>> infer_split_to_sequence([7, 3], 2)
        InferredSequence(shape=((1, 2), 3), length=4)
        >>> infer_split_to_sequence(["N", 3], keepdims=0)
        InferredSequence(shape=(3,), length='N')
        >>> infer_split_to_sequence([(5, 9)], 4)
        InferredSequence(shape=((1, 4),), length=(2, 3))

    Source: ONNX SplitToSequence-11, -24.
    """
    arguments = {"split": split, "axis": axis, "keepdims": keepdims}
    found = infer_call(schema("SplitToSequence", opset, ""), shape, arguments, unknown=("axis",))
    return InferredSequence(to_shape_form(found.element), to_dimension_form(found.count))


def __getattr__(name: str) -> Any:
    if name == "backend":  # imported on first use, since it needs onnx
        return import_module("splitops.onnx.backend")
    raise make_attribute_error(__name__, name)
