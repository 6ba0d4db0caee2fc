"""Splits of what is known before the model runs: constants, shapes and initializers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from splitops.dtypes import from_onnx
from splitops.models.convert.onnx_graph import constant_array, known
from splitops.models.infer.knowledge import Tensor
from splitops.models.simplify.decisions import Cut
from splitops.models.simplify.onnx_editor import Editor
from splitops.models.simplify.onnx_parts import is_read
from splitops.models.simplify.onnx_pass import SplitPass
from splitops.models.simplify.onnx_values import note_like
from splitops.models.simplify.registry import DEFAULT_LIMIT

__all__ = ["FoldConstantsPass", "SplitInitializersPass"]


class FoldConstantsPass(SplitPass):
    """Parts that are known before the model runs become constants.

    They are parts of constants, and of shapes as far as those are known.

    Args:
        limit: the most bytes that a folded part may have.
    """

    name = "fold-constants"
    roots = frozenset({"Split"})

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self.limit = limit

    def rewrite(self, node: ir.Node, editor: Editor) -> None:
        """Put constants in the places of known parts."""
        cut, data = editor.cut(node), node.inputs[0]
        if cut is None or data is None:
            return
        before, where = editor.describe(node), editor.where(node)
        folded = 0
        parts = self._parts(editor.source(data), cut)
        for index, output in enumerate(node.outputs):
            if not is_read(output):
                continue
            tensor = parts[index] if parts is not None and index < len(parts) else self._noted(output)
            if tensor is None or tensor.nbytes > self.limit:
                continue
            if output.is_graph_output():
                constant = editor.constant_node(tensor, node)
            else:
                constant = editor.named_constant(tensor, output, node)
            note_like(constant, output, {})
            editor.replace(output, constant)
            folded += 1
        if folded:
            after = f"{folded} constant{'s' if folded > 1 else ''}"
            editor.applied(self, where, before, after, "the values are known before the model runs")

    def _parts(self, data: ir.Value, cut: Cut) -> list[ir.TensorProtocol] | None:
        sizes = cut.sizes
        if sizes is None or not cut.removable:
            return None
        array = constant_array(data, limit=max(self.limit * 8 * len(sizes), 1))
        if array is None:
            return None
        tensor = ir.convenience.get_const_tensor(data)
        assert tensor is not None
        return [_tensor(piece, tensor.dtype) for piece in _pieces(array, cut.axis, sizes)]

    def _noted(self, value: ir.Value) -> ir.TensorProtocol | None:
        found = known(value)
        if not isinstance(found, Tensor) or found.value is None or found.type is None or not found.is_whole:
            return None
        if found.type.onnx_number is None or found.shape != found.value.shape:
            return None
        dtype = ir.DataType(found.type.onnx_number)
        return _tensor(found.value.astype(dtype.numpy()), dtype)


class SplitInitializersPass(SplitPass):
    """An initializer that only a Split reads becomes an initializer for each part.

    The weights of a fused QKV projection become three. Together they have the bytes that the one had. Data in
    another file stays there where each part lies in one piece.
    """

    name = "split-initializers"
    roots = frozenset({"Split"})

    def rewrite(self, node: ir.Node, editor: Editor) -> None:
        """Divide the initializer that a Split, the root, reads."""
        cut, data = editor.cut(node), node.inputs[0]
        if cut is None or data is None or not data.is_initializer() or data.is_graph_input():
            return
        tensor, sizes, graph = data.const_value, cut.sizes, data.graph
        if tensor is None or sizes is None or not cut.removable or not isinstance(graph, ir.Graph):
            return
        outputs = list(node.outputs)
        if not any(map(is_read, outputs)):
            return
        if len(data.uses()) > 1 or data.is_graph_output() or any(o.is_graph_output() for o in outputs):
            return
        before, where = editor.describe(node), editor.where(node)
        tensors = _divided(tensor, cut.axis, sizes)
        if tensors is None:
            return
        made = []
        for output, piece in zip(outputs, tensors, strict=True):
            if not is_read(output):
                continue
            name = output.name or ""
            value = ir.Value(name=editor.names.fresh(f"{data.name}_part"), const_value=piece)
            value.type, value.shape = ir.TensorType(piece.dtype), ir.Shape(piece.shape)
            note_like(value, output, {})
            editor.replace(output, value)
            if graph is node.graph:
                output.name = None
                value.name = name  # the readers, and tools that look for names, find what they found
            piece.name = value.name
            graph.register_initializer(value)
            made.append(value.name or "")
        editor.remove(node)
        editor.applied(
            self, where, before, f"initializers {', '.join(made[:8])}", f"only it reads {data.name}"
        )


def _divided(tensor: ir.TensorProtocol, axis: int, sizes: tuple[int, ...]) -> list[Any] | None:
    """Return the parts of a tensor; those of one in another file stay in it where they can."""
    element = from_onnx(tensor.dtype.value)
    if element is None:
        return None
    shape = tuple(int(size) for size in tensor.shape.numpy())
    if not isinstance(tensor, ir.ExternalTensor):
        return [_tensor(piece, tensor.dtype) for piece in _pieces(tensor.numpy(), axis, sizes)]
    row_bits = math.prod(shape[axis + 1 :]) * element.bits
    if math.prod(shape[:axis]) != 1 or any(size * row_bits % 8 for size in sizes):
        return None
    offset, parts = tensor.offset or 0, []
    for size in sizes:
        length = size * row_bits // 8
        part_shape = ir.Shape((*shape[:axis], size, *shape[axis + 1 :]))
        parts.append(
            ir.ExternalTensor(
                tensor.location,
                offset,
                length,
                tensor.dtype,
                shape=part_shape,
                name=tensor.name or "",
                base_dir=tensor.base_dir,
            )
        )
        offset += length
    return parts


def _pieces(array: npt.NDArray[Any], axis: int, sizes: tuple[int, ...]) -> list[npt.NDArray[Any]]:
    parts, begin = [], 0
    for size in sizes:
        index = (slice(None),) * axis + (slice(begin, begin + size),)
        parts.append(np.ascontiguousarray(array[index]))
        begin += size
    return parts


def _tensor(array: npt.NDArray[Any], dtype: ir.DataType) -> ir.Tensor[Any] | ir.StringTensor:
    if dtype == ir.DataType.STRING:
        return ir.StringTensor(array.astype(object), shape=ir.Shape(array.shape))
    return ir.Tensor(array, dtype)
