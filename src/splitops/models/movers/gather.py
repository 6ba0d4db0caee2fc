"""Gather: elements of an axis by their positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from splitops.models.abstract_values import AbstractTensor
from splitops.models.abstract_values import Value as Numbers
from splitops.models.movers.followed import integers as known_integers
from splitops.models.movers.followed import moved, numbers, shape_of
from splitops.models.movers.form import as_positions, axis_input
from splitops.models.movers.mover import LayerWriter, Mover, NodeWriter, OnnxNode, Role
from splitops.models.movers.shapes import axis_within, gathered

if TYPE_CHECKING:
    import onnx_ir as ir

    from splitops.models.formats.openvino import Layer, Output


def _counts_back(layer: Layer) -> bool:
    """Return whether negative positions count from the end; before Gather-8 they are outside."""
    return layer.version not in {"opset1", "opset7"}


def _inferred(
    data: AbstractTensor, indices: AbstractTensor, axis: int, *, counts_back: bool
) -> AbstractTensor:
    shape = shape_of(data)
    at = axis_within(axis, len(shape))

    def take() -> Numbers:
        source, positions = numbers(data), numbers(indices)
        if not indices.is_complete:
            raise ValueError("a position is unknown")
        positions = positions.astype(np.int64)
        size = source.shape[at]
        if ((positions < (-size if counts_back else 0)) | (positions >= size)).any():
            raise ValueError("outside: zeros, or an error")
        return np.asarray(np.take(source, positions, axis=at))

    return moved(data.type, gathered(shape, at, shape_of(indices)), take)


def _infer_layer(layer: Layer, inputs: Sequence[AbstractTensor]) -> AbstractTensor:
    data, indices, axis = inputs
    return _inferred(data, indices, known_integers(axis)[0], counts_back=_counts_back(layer))


def _infer_node(node: OnnxNode) -> AbstractTensor:
    return _inferred(node.tensor(0), node.tensor(1), node.attributes.get("axis", 0), counts_back=True)


def _to_onnx(builder: NodeWriter, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    data, indices, given = sources
    axis = axis_input(builder, layer, given)
    # Indices that ONNX rejects, OpenVINO reads as zeros: only constant ones are known to be the same.
    return builder.op("Gather", [data, as_positions(builder, indices)], {"axis": axis})


def _to_openvino(layers: LayerWriter, node: ir.Node) -> Output:
    attribute = node.attributes.get("axis")
    axis = layers.integers(0 if attribute is None else attribute.value)
    return layers.layer(node, "Gather", [*node.inputs[:2], axis], {"batch_dims": 0}, version="opset8")


GATHER: Final = Mover(
    onnx="Gather",
    openvino="Gather",
    role=Role.GATHER,
    versions=frozenset({"opset1", "opset7", "opset8"}),
    takes_layer=lambda layer: layer.attribute("batch_dims") in {None, "0"},
    infer_layer=_infer_layer,
    infer_node=_infer_node,
    to_onnx=_to_onnx,
    to_openvino=_to_openvino,
)
