"""Squeeze and Unsqueeze, which remove and insert axes of size 1."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Final

from splitops.common.documents import MAX_RANK
from splitops.models.abstract_values import AbstractTensor
from splitops.models.ops.operator import Attribute, Operands, Operator, Role, Spelling, Unknown, as_integers
from splitops.models.ops.reshape import reshape
from splitops.models.ops.shapes import normalise_axis, unsqueeze
from splitops.models.ops.writing import NodeWriter, Reader, read_integers, require
from splitops.spec.sizes.dims import Range

if TYPE_CHECKING:
    import onnx_ir as ir


def _infer_squeeze(operands: Operands) -> AbstractTensor:
    shape = operands.get_shape()
    axes = operands.get_integers("axes") if "axes" in operands else None
    if axes == [] and not operands.of_layer:
        raise Unknown("runtimes interpret empty axes differently")
    removed = _find_removed_axes(axes or (), len(shape))
    # Versions differ for an axis whose size is not 1: some keep it, others fail.
    if any(isinstance(shape[axis], Range) for axis in removed):
        return AbstractTensor(operands.get_type())
    kept = (size for axis, size in enumerate(shape) if axis not in removed or size != 1)
    return reshape(operands.get_tensor(), tuple(kept))


def _find_removed_axes(axes: Sequence[int], rank: int) -> Collection[int]:
    """Return the axes that are removed if their size is 1: all axes if ``axes`` is empty."""
    return {normalise_axis(axis, rank) for axis in axes} or range(rank)


def _infer_unsqueeze(operands: Operands) -> AbstractTensor:
    axes = list(dict.fromkeys(operands.get_integers("axes")))
    if len(axes) > MAX_RANK:
        raise Unknown(f"{len(axes)} axes")
    return reshape(operands.get_tensor(), unsqueeze(operands.get_shape(), axes))


def _squeeze_layer(writer: NodeWriter, operands: dict[str, Any]) -> dict[str, Any] | ir.Value:
    data, given = operands["data"], operands.get("axes")
    axes, shape = [] if given is None else read_integers(writer, given), writer.find_shape(data)
    if not axes:
        return {"data": data}
    if shape is not None:
        # OpenVINO keeps axes whose size is not 1. ONNX rejects them.
        removed = sorted(_find_removed_axes(axes, len(shape)))
        axes = [axis for axis in removed if shape[axis] == 1 or isinstance(shape[axis], Range)]
    return {"data": data, "axes": axes} if axes else writer.add("Identity", [data])


def _squeeze_node(reader: Reader, operands: dict[str, Any]) -> dict[str, Any] | None:
    axes = operands.get("axes")
    if axes is None:
        return operands
    count = (reader.find_shape(axes) or (None,))[0] if hasattr(axes, "producer") else len(axes)
    return operands if isinstance(count, int) and count > 0 else None


def _unsqueeze_layer(writer: NodeWriter, operands: dict[str, Any]) -> dict[str, Any]:
    axes = list(dict.fromkeys(read_integers(writer, operands["axes"])))
    require(writer, bool(axes), "has no axes")
    return {**operands, "axes": axes}


_AXES: Final = {"axes": Attribute(as_integers, None)}
SQUEEZE: Final = Operator(
    onnx=(Spelling("Squeeze", "data axes?", since=13), Spelling("Squeeze", "data", _AXES)),
    openvino=(Spelling("Squeeze", "data axes?"),),
    role=Role.RESHAPE,
    infer=_infer_squeeze,
    converts=True,
    adapt_layer=_squeeze_layer,
    adapt_node=_squeeze_node,
)

UNSQUEEZE: Final = Operator(
    onnx=(
        Spelling("Unsqueeze", "data axes", since=13),
        Spelling("Unsqueeze", "data", {"axes": Attribute(as_integers)}),
    ),
    openvino=(Spelling("Unsqueeze", "data axes"),),
    role=Role.RESHAPE,
    infer=_infer_unsqueeze,
    converts=True,
    adapt_layer=_unsqueeze_layer,
)
