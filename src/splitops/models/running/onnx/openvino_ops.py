"""OpenVINO layers for the evaluator, as OpenVINO specifies them: splits, Gather, Convert and Reshape.

Their nodes have the domain ``openvino``. Splits have the rules and messages of OpenVINO's operators, not of
ONNX's. Gather returns zeros for positions outside the axis. Reshape resolves an ambiguous -1 for empty data.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from onnx import NodeProto, helper
from onnx.reference.op_run import OpRun

from splitops.calls.node import NodeSplit, read_only
from splitops.common.documents import MAX_RANK
from splitops.common.integers import INT64_MAX
from splitops.errors import ModelError, Where
from splitops.models.formats.openvino.splits import get_family_schema
from splitops.models.ops.element_conversion import convert, is_convertible
from splitops.models.ops.shapes import gather, normalise_axis
from splitops.models.running.onnx.control_flow import FunctionCallBase
from splitops.native.resources import read_memory_limit
from splitops.spec.elements.types import element_type_of, from_openvino
from splitops.spec.operators import FAMILY

DOMAIN: Final = "openvino"
_MEMORY: Final = read_memory_limit()


class _Layer(FunctionCallBase):
    """An OpenVINO layer. The ``doc_string`` of its node has its location in the original model."""

    def __init__(self, onnx_node: NodeProto, run_params: dict[str, Any]) -> None:
        super().__init__(onnx_node, run_params)
        graph, name = json.loads(onnx_node.doc_string)
        self.where = Where(run_params["where"].model, graph, name)
        self.values = {one.name: helper.get_attribute_value(one) for one in onnx_node.attribute}
        self.version = self.values.pop("version").decode()


class _Split(_Layer):
    """OpenVINO's Split and VariadicSplit, with the checks of splitops."""

    def __init__(self, onnx_node: NodeProto, run_params: dict[str, Any]) -> None:
        super().__init__(onnx_node, run_params)
        schema = get_family_schema(onnx_node.op_type, self.version, self.where)
        self.split = NodeSplit(schema, self.values, outputs=len(onnx_node.output), where=self.where)

    def run(self, *args: Any, **_: Any) -> tuple[Any, ...]:
        return tuple(read_only(list(self.split([np.asarray(value) for value in args]))))


class _Gather(_Layer):
    """Gather. Before Gather-8, negative positions are outside the axis."""

    def run(self, *args: Any, **_: Any) -> tuple[Any, ...]:
        """Gather the positions. Those outside the axis yield zeros, or empty strings."""
        data, positions, axes = map(np.asarray, args)
        kinds = [element_type_of(value.dtype) for value in (positions, axes)]
        if not all(kind is not None and kind.integer and not kind.packed for kind in kinds):
            raise ModelError(f"indices are {kinds[0]} and the axis {kinds[1]}, not integers", self.where)
        if axes.size != 1:
            raise ModelError(f"axis = {axes.reshape(-1)[:8].tolist()} is not a single axis", self.where)
        axis = normalise_axis(int(axes.item()), data.ndim)
        shape = gather(data.shape, axis, positions.shape)
        if len(shape) > MAX_RANK:
            raise ModelError(f"the result has more than {MAX_RANK} dimensions", self.where)
        _check_size(shape, data.dtype.itemsize, self.where)
        lowest = -data.shape[axis] if self.version not in ("opset1", "opset7") else 0
        inside = (positions < data.shape[axis]) & (positions >= lowest)
        if inside.all():
            return (np.take(data, positions, axis=axis),)
        made = np.zeros(shape, data.dtype)
        if data.dtype == object:
            made[...] = ""
        made[(slice(None),) * axis + (inside,)] = np.take(data, positions[inside], axis=axis)
        return (made,)


class _Convert(_Layer):
    """Convert with OpenVINO's rounding, for the element types between which OpenVINO converts."""

    def run(self, *args: Any, **_: Any) -> tuple[Any, ...]:
        (data,) = map(np.asarray, args)
        target = from_openvino(self.values["destination_type"].decode())
        stated = self.values.get("source_type")
        source = element_type_of(data.dtype) if stated is None else from_openvino(stated.decode())
        if source is None or target is None or not is_convertible(source, target):
            raise ModelError(f"Convert does not convert {source} to {target}", self.where)
        _check_size(data.shape, target.numpy.itemsize, self.where)
        return (data if source is target else convert(data, source, target),)


class _Reshape(_Layer):
    """Reshape. For empty data, an ambiguous -1 is 1."""

    def run(self, *args: Any, **_: Any) -> tuple[Any, ...]:
        if len(args) != 2:
            raise ModelError(f"Reshape has {len(args)} inputs, but requires 2", self.where)
        data, pattern = map(np.asarray, args)
        kind = element_type_of(pattern.dtype)
        if kind is None or not kind.integer or kind.packed or pattern.ndim != 1:
            raise ModelError(
                f"the pattern is {kind} {list(pattern.shape)}, not integers of rank 1", self.where
            )
        if pattern.size > MAX_RANK:
            raise ModelError(f"the pattern has {pattern.size} entries, more than {MAX_RANK}", self.where)
        copies_zero = bool(self.values["special_zero"])
        return (data.reshape(_resolve_pattern(data.shape, pattern.tolist(), copies_zero=copies_zero)),)


def _resolve_pattern(shape: tuple[int, ...], pattern: Sequence[int], *, copies_zero: bool) -> list[int]:
    """Return the shape to which a Reshape of OpenVINO reshapes data of a static shape.

    Unlike :func:`~splitops.models.ops.shapes.resolve_reshape`, this rejects invalid patterns, and resolves an
    ambiguous -1 for empty data.
    """
    result: list[int] = []
    product, rest = 1, list(shape)
    for index, size in enumerate(pattern):
        if size == 0 and copies_zero:
            if index >= len(rest):
                raise ModelError(
                    f"pattern {pattern} copies dimension {index} of a tensor of rank {len(rest)}"
                )
            result.append(shape[index])
            rest[index] = 1
        elif size < -1:
            raise ModelError(f"pattern {pattern} has the negative size {size}")
        else:
            result.append(size)
            product *= size if size >= 0 else 1
    misfit = ModelError(f"pattern {pattern} does not fit shape {list(shape)}")
    if pattern.count(-1) > 1:
        raise ModelError(f"pattern {pattern} has more than one -1")
    if -1 in pattern:
        count = math.prod(rest)
        # For empty data, OpenVINO resolves an ambiguous -1 to 1.
        if product == 0 and count == 0:
            result[pattern.index(-1)] = 1
        elif product == 0 or count % product:
            raise misfit
        else:
            result[pattern.index(-1)] = count // product
    if math.prod(result) != math.prod(shape) or max(result, default=0) > INT64_MAX:
        raise misfit
    return result


def _check_size(shape: Sequence[int], itemsize: int, where: Where) -> None:
    """Check that a result with a given shape fits into memory.

    Raises:
        ModelError: it does not fit, or has too many axes.
    """
    size = math.prod(dim or 1 for dim in shape) * itemsize
    if (size > _MEMORY and 0 not in shape) or size > INT64_MAX or len(shape) > MAX_RANK:
        raise ModelError(f"the result of shape {list(shape)} is larger than the memory", where)


def get_openvino_op(name: str) -> type[OpRun]:
    """Return the implementation of a layer type."""
    return _OPS[name]


_OPS: Final[Mapping[str, type[OpRun]]] = {
    **dict.fromkeys(FAMILY[DOMAIN], _Split),
    "Convert": _Convert,
    "Gather": _Gather,
    "Reshape": _Reshape,
}
"""The implementations, keyed by layer type."""
