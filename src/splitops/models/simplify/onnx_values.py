"""What rewrites ask of onnx-ir nodes and values, and what one value hands to the next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import onnx_ir as ir

from splitops.dims import Dim, Shape
from splitops.models.convert.onnx_graph import known, note
from splitops.models.infer.knowledge import Tensor, meet

__all__ = ["is_needed", "is_operator", "note_like", "take_over", "tensor_shape"]

_ONNX: Final = frozenset({"", "ai.onnx"})
_NEVER_FAIL: Final = frozenset({"Constant", "Identity", "Shape", "Size"})


def tensor_shape(tensor: ir.TensorProtocol) -> ir.Shape:
    """Return the shape of a constant tensor, as values state it."""
    return ir.Shape([int(size) for size in tensor.shape.numpy()])


def is_needed(node: ir.Node) -> bool:
    """Return whether a node is read, or could fail: one whose numbers are known without it could not."""
    if any(value.uses() or value.is_graph_output() for value in node.outputs) or node.domain not in _ONNX:
        return True
    if node.op_type in _NEVER_FAIL:
        return False
    facts = [known(value) for value in node.outputs]
    return not all(isinstance(found, Tensor) and found.is_whole for found in facts)


def is_operator(node: ir.Node, *names: str) -> bool:
    """Return whether a node is one of some operators of ONNX."""
    return node.domain in _ONNX and node.op_type in names


def take_over(new: ir.Value, old: ir.Value) -> None:
    """Give a value what another one states, and what is known of either."""
    both = meet(known(new), known(old))
    new.type = new.type if old.type is None else old.type
    new.shape = new.shape if old.shape is None else old.shape  # that of a scalar is false
    new.metadata_props.update(old.metadata_props)
    new.meta.update(old.meta)
    note(new, both)
    new.doc_string = old.doc_string or new.doc_string


def note_like(value: ir.Value, data: ir.Value, sizes: Mapping[int, Dim | None]) -> None:
    """Note that a value is like another one but for the sizes of some axes; None drops the axis."""
    found = known(data)
    if not isinstance(found, Tensor):
        return
    shape: Shape | None = None
    if found.shape is not None:
        dims = [sizes.get(axis, dim) for axis, dim in enumerate(found.shape)]
        shape = tuple(dim for dim in dims if dim is not None)
    note(value, Tensor(found.type, shape))
