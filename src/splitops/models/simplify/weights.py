"""Rewrites of splits of a product with constant weights: they split the weights instead."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import onnx_ir as ir

from splitops.models.graph.editor import Editor, Role
from splitops.models.graph.onnx import find_shape, find_type, has_consumers, is_constant
from splitops.models.graph.op_builder import replace_sizes
from splitops.models.simplify.moves import (
    HoistedPart,
    apply_moves,
    find_partition,
    find_reshapes_before,
    plan_hoist,
)
from splitops.models.simplify.registry import NUMERICS


def split_weights(node: ir.Node, editor: Editor, allow: Collection[str] = ()) -> None:
    """Replace a split matrix product or convolution with one product per used part.

    The weights are constant, and are split instead. A constant bias, Reshapes and Transposes may be between
    the product and the split. A runtime may add products of floats in another order if the matrix has another
    size. Floats are therefore rewritten only if ``allow`` has ``"numerics"``; integers are exact.
    """
    data = node.inputs[0]
    kind = None if data is None else find_type(data)
    if data is None or data.is_graph_output() or kind is None or not (kind.integer or NUMERICS in allow):
        return
    chain = find_reshapes_before(data, node, editor)
    top = chain[0].inputs[0] if chain else data
    partition = None if top is None or top.producer() is None else find_partition(node, data, editor)
    if top is None or partition is None or len(data.uses()) != len(partition.nodes):
        return
    if chain:
        plan = plan_hoist(chain, partition, editor)
    elif partition.squeezed or any(map(editor.has_fixed_name, partition.parts)):
        plan = None
    else:
        sizes = zip(partition.sizes, partition.parts, strict=True)
        plan = partition.axis, [HoistedPart(size, part, (), ()) for size, part in sizes]
    if plan is None or len(plan[1]) < 2:
        return
    axis, parts = plan
    product = _find_product(top, axis, editor)
    lengths = [part.size for part in parts]
    divided = None if product is None else _split_constants(product, axis, lengths, editor)
    if product is None or divided is None:
        return
    where, first = editor.locate(partition.nodes[0]), partition.nodes[0]
    before = ", ".join(one.op_type for one in (*product, *chain, first))
    for index, part in enumerate(parts):
        if has_consumers(part.end):
            made = _write_part(product, divided, index, axis, part.size, first, editor)
            editor.replace(part.end, apply_moves(part.moves, first, made, editor))
        editor.remove(*part.old_nodes)
    editor.remove(*product, *chain, *partition.nodes)
    after = f"{len(parts)} x {', '.join(one.op_type for one in product)}"
    editor.record(where, before, after, "its weights are constant")


def _find_product(value: ir.Value, axis: int, editor: Editor) -> list[ir.Node] | None:
    """Return the nodes that compute a value: a product and, if there is one, the Add of a constant bias.

    Return None if there is no product, if it has other uses, or if its weights do not determine the axis.
    """
    nodes: list[ir.Node] = []
    while True:
        node = value.producer()
        alone = len(value.uses()) == 1 and not value.is_graph_output()
        if node is None or not alone or editor.find_weight_axes(node, axis) is None or len(node.outputs) != 1:
            return None
        nodes.insert(0, node)
        if editor.find_role(node) is not Role.SUM:
            return nodes
        constant = 1 if is_constant(node.inputs[1]) else 0
        added = node.inputs[1 - constant]
        if len(nodes) > 1 or added is None or find_shape(added) != find_shape(value):
            return None
        value = added


SplitConstants = Mapping[ir.Value, Sequence[ir.Value]]


def _split_constants(
    product: Sequence[ir.Node], axis: int, sizes: Sequence[int], editor: Editor
) -> SplitConstants | None:
    """Return the parts of each constant that determines the axis, or None if one cannot be split."""
    parts: dict[ir.Value, Sequence[ir.Value]] = {}
    for node in product:
        for index, own in (editor.find_weight_axes(node, axis) or {}).items():
            whole = node.inputs[index]
            shape = None if whole is None else find_shape(whole)
            if whole is None or shape is None or shape[own] != sum(sizes):
                return None
            found = editor.split_constant(whole, own, sizes)
            if found is None:
                return None
            parts[whole] = found
    return parts


def _write_part(
    product: Sequence[ir.Node],
    divided: SplitConstants,
    index: int,
    axis: int,
    size: int,
    before: ir.Node,
    editor: Editor,
) -> ir.Value:
    """Add the nodes that compute the part ``index`` before the node ``before``, and return the part."""
    part: ir.Value | None = None
    for node in product:
        inputs: list[ir.Value | None] = []
        for value in node.inputs:
            if value is not None and value in divided:
                editor.insert_part(divided[value][index], value, before)
                inputs.append(divided[value][index])
            else:
                inputs.append(part if part is not None and value is product[0].outputs[0] else value)
        part = editor.make_builder(before).repeat(node, inputs, replace_sizes(node.outputs[0], {axis: size}))
    assert part is not None
    return part
