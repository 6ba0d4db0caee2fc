"""The ONNX dialect: ``Split`` and ``SplitToSequence`` of every version, as functions on arrays.

:func:`reference_ops` plugs them into onnx's ``ReferenceEvaluator``, and :mod:`splitops.onnx.backend` is the
ONNX backend interface.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy.typing as npt

from splitops.calls.functions import call, function
from splitops.onnx.inference import InferredSequence, infer_split, infer_split_to_sequence
from splitops.onnx.reference import reference_ops
from splitops.spec.operators import schema

__all__ = [
    "InferredSequence",
    "backend",
    "infer_split",
    "infer_split_to_sequence",
    "reference_ops",
    "split",
    "split_to_sequence",
]

Lengths = Sequence[int] | npt.NDArray[Any]


@function("Split", "")
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
    """Split an array as ONNX ``Split`` does.

    Args:
        data: array of rank 1 or more, of an element type that the version takes; nested lists of numbers
            become a NumPy array.
        split: the size of each part, int64 (Split-1: the data's own floating-point type, or a list of
            integers as the attribute).
        axis: the axis to split, in [-rank, rank - 1].
        num_outputs: from opset 18 on, the attribute: parts of ceil(D / num_outputs) as long as the axis
            lasts. Below, the number of outputs that the node declares, which must divide the axis.
        opset: the opset that selects the version; None is the newest.
        copy: None or False gives views that share memory with ``data``; True gives independent contiguous
            parts.
        out: arrays of the exact shapes and dtype, not overlapping ``data`` or one another; they are filled
            and returned.

    Returns:
        The parts; their concatenation along the axis is the data.

    Raises:
        TypeUnsupportedError: ``type.unsupported``.
        AxisError: ``axis.range``, ``axis.dtype``.
        LengthsError: ``lengths.sum``, ``lengths.negative``, ``lengths.rank``, ``lengths.dtype``,
            ``lengths.count``, ``lengths.value``, ``lengths.conflict``, ``lengths.missing``.
        PartsError: ``parts.divisible`` (below opset 18), ``parts.count``.
        OperatorError: ``op.version``.
        ArrayError: ``out`` does not fit, or the array's library is not known.

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


@function("SplitToSequence", "")
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
    """Split an array as ONNX ``SplitToSequence`` does.

    Args:
        data: array of rank 1 or more, of an element type that the version takes; nested lists of numbers
            become a NumPy array.
        split: an integer: parts of that size, the last one smaller; or the size of each part, int32 or
            int64; None: parts of size 1.
        axis: the axis to split, in [-rank, rank - 1].
        keepdims: 0 removes the axis of the parts of size 1; ignored when ``split`` is given.
        opset: the opset that selects the version; None is the newest.
        copy: None or False gives views that share memory with ``data``; True gives independent contiguous
            parts.
        out: arrays of the exact shapes and dtype, not overlapping ``data`` or one another; they are filled
            and returned.

    Returns:
        The sequence of the parts.

    Raises:
        TypeUnsupportedError: ``type.unsupported``.
        AxisError: ``axis.range``, ``axis.dtype``.
        KeepdimsError: ``keepdims.value``.
        LengthsError: ``lengths.sum``, ``lengths.negative``, ``lengths.rank``, ``lengths.dtype``,
            ``lengths.value``.
        ChunkError: ``chunk.positive``.
        PartsError: ``parts.count``, more parts than one call makes.
        OperatorError: ``op.version``, below opset 11.
        ArrayError: ``out`` does not fit, or the array's library is not known.

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


def __getattr__(name: str) -> Any:
    if name == "backend":  # imported when it is asked for: it needs onnx
        return import_module("splitops.onnx.backend")
    raise AttributeError(f"module 'splitops.onnx' has no attribute {name!r}")
