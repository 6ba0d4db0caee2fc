"""Splits of what is known before the model runs: constants, shapes and initializers."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt
import onnx_ir as ir

from splitops.models.abstract_values import AbstractTensor
from splitops.models.graph.editor import Editor
from splitops.models.graph.onnx import get_abstract_value, has_consumers
from splitops.models.graph.op_builder import annotate_like
from splitops.models.simplify.registry import DEFAULT_LIMIT
from splitops.models.split_nodes.static_facts import SplitFacts, pieces
from splitops.spec.elements.types import ElementType

Content = tuple[npt.NDArray[Any], ElementType]


def fold_constants(node: ir.Node, editor: Editor, limit: int = DEFAULT_LIMIT) -> None:
    """Parts that are known before the model runs become constants.

    They are parts of constants, and of shapes as far as those are known. None of them has more bytes than the
    limit.
    """
    cut, data = editor.read_split_facts(node), node.inputs[0]
    if cut is None or data is None:
        return
    before, where = editor.describe(node), editor.where(node)
    folded = 0
    parts = _parts(editor.skip_identities(data), cut, editor, limit)
    for index, output in enumerate(node.outputs):
        if not has_consumers(output):
            continue
        content = parts[index] if parts is not None and index < len(parts) else _annotate_constant(output)
        if content is None or _bytes(content) > limit or not editor.has_type(content[1]):
            continue
        if not content[0].size and not editor.has_empty(content[1], node):
            continue
        constant = editor.fold(*content, output, node)
        annotate_like(constant, output, {})
        editor.replace(output, constant)
        folded += 1
    if folded:
        after = f"{folded} constant{'s' if folded > 1 else ''}"
        editor.applied(where, before, after, "the values are known before the model runs")


def _parts(data: ir.Value, cut: SplitFacts, editor: Editor, limit: int) -> list[Content] | None:
    sizes = cut.sizes
    if sizes is None or not cut.removable:
        return None
    whole = editor.content(data, max(limit * 8 * len(sizes), 1))
    if whole is None:
        return None
    array, element_type = whole
    return [(piece, element_type) for piece in pieces(array, cut.axis, sizes)]


def _annotate_constant(value: ir.Value) -> Content | None:
    found = get_abstract_value(value)
    if (
        not isinstance(found, AbstractTensor)
        or found.elements is None
        or found.type is None
        or not found.is_complete
    ):
        return None
    return found.elements.astype(found.type.numpy), found.type


def _bytes(content: Content) -> int:
    array, element_type = content
    return (
        sum(map(len, map(str, array.flat)))
        if not element_type.bits
        else -(-array.size * element_type.bits // 8)
    )


def split_initializers(node: ir.Node, editor: Editor) -> None:
    """A constant that only a split reads becomes a constant for each part.

    The weights of a fused QKV projection become three. Together they have the bytes that the one had. Data in
    another file stays there where each part lies in one piece.
    """
    cut, data = editor.read_split_facts(node), node.inputs[0]
    sizes = None if cut is None else cut.sizes
    if cut is None or data is None or sizes is None or not cut.removable:
        return
    outputs = list(node.outputs)
    if not any(map(has_consumers, outputs)) or any(
        o.is_graph_output() or editor.has_fixed_name(o) for o in outputs
    ):
        return
    before, where = editor.describe(node), editor.where(node)
    parts = editor.split_constant(data, cut.axis, sizes)
    if parts is None:
        return
    made = []
    for output, part in zip(outputs, parts, strict=True):
        if not has_consumers(output):
            continue
        annotate_like(part, output, {})
        editor.use_split_constant(part, output, node)
        made.append(part.name or "")
    editor.remove(node)
    after, reason = f"initializers {', '.join(made[:8])}", f"only it reads {data.name}"
    editor.applied(where, before, after, reason)
