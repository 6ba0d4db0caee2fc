"""Rewrites of splits whose data is static: constants, inferred shapes and initializers."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt
import onnx_ir as ir

from splitops.models.abstract_values import AbstractTensor
from splitops.models.graph.editor import Editor
from splitops.models.graph.onnx import find_type, get_abstract_value, has_consumers
from splitops.models.graph.op_builder import annotate_like
from splitops.models.simplify.registry import DEFAULT_LIMIT
from splitops.models.split_nodes.static_facts import SplitFacts, split_array
from splitops.spec.elements.types import ElementType

Content = tuple[npt.NDArray[Any], ElementType]


def fold_constants(node: ir.Node, editor: Editor, limit: int = DEFAULT_LIMIT) -> None:
    """Replace statically known parts, such as those of constants and shapes, with constants.

    Each new constant has at most ``limit`` bytes.
    """
    facts, data = editor.read_split_facts(node), node.inputs[0]
    if facts is None or data is None:
        return
    before, where = editor.describe(node), editor.locate(node)
    folded = 0
    parts = _read_parts(editor.skip_identities(data), facts, editor, limit)
    for index, output in enumerate(node.outputs):
        if not has_consumers(output):
            continue
        content = parts[index] if parts is not None and index < len(parts) else _read_inferred(output)
        if content is None or _count_bytes(content) > limit or not editor.has_type(content[1]):
            continue
        if not content[0].size and not editor.has_empty(content[1], node):
            continue
        constant = editor.fold(*content, output, node)
        annotate_like(constant, output, {})
        editor.replace(output, constant)
        folded += 1
    if folded:
        after = f"{folded} constant{'s' if folded > 1 else ''}"
        editor.record(where, before, after, "the values are known before the model runs")


def _read_parts(data: ir.Value, facts: SplitFacts, editor: Editor, limit: int) -> list[Content] | None:
    sizes = facts.sizes
    if sizes is None or not facts.removable:
        return None
    whole = editor.read_constant(data, max(limit * 8 * len(sizes), 1))
    if whole is None:
        return None
    array, element_type = whole
    return [(piece, element_type) for piece in split_array(array, facts.axis, sizes)]


def _read_inferred(value: ir.Value) -> Content | None:
    tensor = get_abstract_value(value)
    array = tensor.to_array() if isinstance(tensor, AbstractTensor) else None
    kind = find_type(value)
    return None if array is None or kind is None else (array, kind)


def _count_bytes(content: Content) -> int:
    array, kind = content
    if kind.bits:
        return -(-array.size * kind.bits // 8)
    return sum(len(text if isinstance(text, bytes) else str(text).encode()) for text in array.flat)


def split_initializers(node: ir.Node, editor: Editor) -> None:
    """Replace a constant that only a split uses with one constant per used part.

    The weights of a fused QKV projection become three constants of the same total size. External data is not
    copied if each part is contiguous in its file.
    """
    facts, data = editor.read_split_facts(node), node.inputs[0]
    sizes = None if facts is None else facts.sizes
    if facts is None or data is None or sizes is None or not facts.removable:
        return
    outputs = list(node.outputs)
    if not any(map(has_consumers, outputs)) or any(
        o.is_graph_output() or editor.has_fixed_name(o) for o in outputs
    ):
        return
    before, where = editor.describe(node), editor.locate(node)
    parts = editor.split_constant(data, facts.axis, sizes)
    if parts is None:
        return
    names = []
    for output, part in zip(outputs, parts, strict=True):
        if not has_consumers(output):
            continue
        annotate_like(part, output, {})
        editor.use_split_constant(part, output, node)
        names.append(part.name or "")
    editor.remove(node)
    after, reason = f"initializers {', '.join(names[:8])}", f"{data.name} has no other use"
    editor.record(where, before, after, reason)
