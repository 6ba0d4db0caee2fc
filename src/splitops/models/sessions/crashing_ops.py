"""Operators on which onnxruntime crashes if an input is an empty tensor."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, Final

import onnx_ir as ir
from onnx import ModelProto

from splitops.errors import Where
from splitops.models.abstract_values import AbstractTensor, AbstractValue
from splitops.models.formats.onnx.structure import iter_nodes
from splitops.models.formats.walk import canonicalise, iter_all_graphs
from splitops.models.graph.onnx import get_declared
from splitops.models.infer.interpreter import infer_model
from splitops.spec.sizes.dims import Dim

CRASHING: Final = frozenset(
    ["ConvTranspose", "Einsum", "GRU", "InstanceNormalization", "LSTM", "STFT", "Unique"]
)
"""Operators on which onnxruntime crashes if an input is empty. ``dev/tools/empties.py`` tries all of them."""


def has_crashing_op(model: ModelProto) -> bool:
    """Return whether a model has an operator in :data:`CRASHING`."""
    return any(node.op_type in CRASHING and not canonicalise(node.domain) for node in iter_nodes(model))


@dataclass(frozen=True, slots=True)
class CrashRisk:
    """Crashing operators of a model, given that no input of the model is empty.

    Attributes:
        operators: the operators in :data:`CRASHING` that the model has.
        certain: those of them with a node that reads an empty tensor whenever it runs.
        possible: whether the model may compute an empty tensor that one of them reads.
    """

    operators: tuple[str, ...]
    certain: tuple[str, ...]
    possible: bool


def find_crash_risk(model: ir.Model, where: Where) -> CrashRisk:
    """Infer whether operators in :data:`CRASHING` read empty tensors if no input of the model is empty."""
    full: set[str | None] = set()  # names of input sizes, which are not 0
    sized: dict[ir.Value, AbstractValue] = {}
    for value in model.graph.inputs:
        known = get_declared(value)
        if isinstance(known, AbstractTensor) and known.shape is not None:
            shape = tuple(
                size if isinstance(size, int) else replace(size, name=size.name or f"{value.name}[{axis}]")
                for axis, size in enumerate(known.shape)
            )
            full.update(size.name for size in shape if not isinstance(size, int))
            sized[value] = replace(known, shape=shape)
    result = infer_model(model, where, given=sized)
    nodes = [node for _, inner in iter_all_graphs(model) for node in inner]
    crashing = [node for node in nodes if node.op_type in CRASHING and not canonicalise(node.domain)]

    def is_full(value: ir.Value | None) -> bool:
        return value is None or _is_known_nonempty(result.values.get(value), full)

    def may_empty(node: ir.Node) -> bool:
        """Return whether a node may return an empty tensor from non-empty inputs."""
        shapes = [getattr(result.values.get(value), "shape", None) for value in node.outputs]
        if node.op_type == "Split" and not canonicalise(node.domain):
            axis = node.attributes.get_int("axis", 0)
            return not all(shape and _is_full(shape[axis % len(shape)], full) for shape in shapes)
        makes = (
            node.op_type in _MAKERS or canonicalise(node.domain) or node.op_identifier() in model.functions
        )
        return bool(makes) and not all(map(is_full, node.outputs))

    certain = {
        node.op_type
        for node in crashing
        for kind in map(result.values.get, filter(None, node.inputs))
        if isinstance(kind, AbstractTensor) and kind.shape is not None and 0 in kind.shape
    }
    doubtful = any(not all(map(is_full, node.inputs)) for node in crashing)
    has_empty = any(0 in (getattr(known, "shape", None) or ()) for known in result.values.values())
    operators = tuple(sorted({node.op_type for node in crashing}))
    possible = doubtful and (has_empty or any(map(may_empty, nodes)))
    return CrashRisk(operators, tuple(sorted(certain)), possible)


_MAKERS: Final = frozenset(
    [
        "CenterCropPad", "Compress", "ConstantOfShape", "Expand", "EyeLike", "GatherND", "If", "Loop",
        "NonMaxSuppression", "NonZero", "OneHot", "OptionalGetElement", "Pad", "RandomNormal",
        "RandomUniform", "Range", "Resize", "Scan", "SequenceAt", "Slice", "Split", "SplitToSequence",
        "StringSplit", "Tile", "TopK", "Upsample",
    ]
)  # fmt: skip
"""Operators that may return an empty tensor even if no input is empty."""


def _is_known_nonempty(kind: Any, names: Collection[str | None]) -> bool:
    """Return whether a value is certainly not empty. Symbolic sizes in ``names`` are not 0."""
    shape = kind.shape if isinstance(kind, AbstractTensor) else None
    return shape is not None and all(_is_full(size, names) for size in shape)


def _is_full(size: Dim, names: Collection[str | None]) -> bool:
    return size > 0 if isinstance(size, int) else size.lo > 0 or size.name in names
