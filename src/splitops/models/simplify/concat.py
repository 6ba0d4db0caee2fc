"""Rewrites of Splits and Concats that undo each other, and of nested Concats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir

from splitops.models.graph.editor import Editor, Role
from splitops.models.graph.onnx import find_shape, has_consumers
from splitops.models.graph.op_builder import annotate_like
from splitops.models.split_nodes.static_facts import (
    SplitFacts,
    find_nonempty_parts,
    find_runs,
    group_pieces,
    is_same_size,
    is_whole,
    sum_groups,
)
from splitops.spec.sizes.dims import Shape, to_exact

Item = tuple[ir.Node, int] | None
"""The split and the part index of a Concat input, if it is a part on the same axis. None for other inputs."""


def cancel_split_concat(node: ir.Node, editor: Editor) -> None:
    """Simplify a Concat that joins parts of a split in their order.

    If it reads all parts, they are replaced by the data of the split. Otherwise, adjacent parts without other
    uses are merged into one part.
    """
    items = _read_items(node, editor)
    if any(items) and not _replace_whole_splits(node, items, editor):
        _merge_runs(node, editor)


def _read_items(node: ir.Node, editor: Editor) -> list[Item]:
    """Return the :data:`Item` of each input of a Concat, or an empty list if an input is absent."""
    inputs = [value for value in node.inputs if value is not None]
    return [_read_item(node, value, editor) for value in inputs] if len(inputs) == len(node.inputs) else []


def _read_item(node: ir.Node, value: ir.Value, editor: Editor) -> Item:
    origin = editor.find_source_split(value)
    facts = None if origin is None else editor.read_split_facts(origin[0])
    return origin if facts is not None and facts.axis == editor.find_concat_axis(node, facts.rank) else None


def _replace_whole_splits(node: ir.Node, items: Sequence[Item], editor: Editor) -> bool:
    """Replace the parts of each split that a Concat reads completely with the data of the split.

    Return whether the Concat was changed.
    """
    inputs, values = list(node.inputs), list[ir.Value | None]()
    begin = 0
    splits: list[ir.Node] = []
    needed: dict[ir.Node, list[int] | None] = {}
    while begin < len(items):
        item = items[begin]
        end = begin + 1
        if item is not None:
            while end < len(items) and _is_later_part(items[end - 1], items[end]):
                end += 1
            split, order = item[0], [part[1] for part in items[begin:end] if part is not None]
            facts, data = editor.read_split_facts(split), split.inputs[0]
            if facts is not None and split not in needed:
                is_replaceable = facts.removable and facts.complete
                needed[split] = find_nonempty_parts(facts.parts) if is_replaceable else None
            used, parts = needed.get(split), () if facts is None else facts.parts
            if data is not None and used is not None and is_whole(parts, order, used):
                splits.append(split)
                values.append(data)
                begin = end
                continue
        values += inputs[begin:end]
        begin = end
    if not splits or (len(values) == 1 and editor.has_fixed_name(node.outputs[0])):
        return False
    before, where = editor.describe(splits[0]), editor.locate(node)
    before = f"{before}, {editor.describe(node)}"
    if len(values) == 1 and values[0] is not None:
        after = values[0].name or "its input"
        editor.replace(node.outputs[0], values[0])
        editor.remove(node)
    else:
        editor.set_inputs(node, values)
        after = f"Concat of {len(values)} inputs instead of {len(inputs)}"
    for split in splits:
        # Other passes may be disabled, so this one removes the Splits that are unused now.
        if not any(map(has_consumers, split.outputs)):
            editor.remove(split)
    editor.record(where, before, after, "all parts of a split are in their order")
    return True


def _merge_runs(node: ir.Node, editor: Editor) -> None:
    """Merge each run of adjacent parts that only one Concat uses into one part of the split.

    All Concats of the split are rewritten at once, so that the work is linear in its number of parts.
    """
    for split, own in _find_runs(node, editor).items():
        facts = None if editor.has_fixed_outputs(split) else editor.read_split_facts(split)
        sizes = None if facts is None else facts.sizes
        if facts is None or sizes is None or not _is_complete(facts, sizes):
            continue
        found = {node: own}
        for reader in dict.fromkeys(map(editor.find_sole_consumer, split.outputs)):
            if reader is not None and reader not in found and editor.find_role(reader) is Role.CONCAT:
                found[reader] = _find_runs(reader, editor).get(split, [])
        _merge_parts({concat: spans for concat, spans in found.items() if spans}, split, facts, sizes, editor)
        return  # the node is visited again with its new inputs


def _find_runs(node: ir.Node, editor: Editor) -> dict[ir.Node, list[range]]:
    """Return the index ranges of adjacent parts that only this Concat uses, keyed by split."""
    items, spans = _read_items(node, editor), dict[ir.Node, list[range]]()
    for run in find_runs(items):
        item = items[run.start]
        assert item is not None
        split, span = item[0], range(item[1], item[1] + len(run))
        kept = len(run) == len(items) and editor.has_fixed_name(node.outputs[0])
        if not kept and all(editor.find_sole_consumer(split.outputs[index]) is node for index in span):
            spans.setdefault(split, []).append(span)
    return spans


def _merge_parts(
    concats: Mapping[ir.Node, Sequence[range]],
    split: ir.Node,
    facts: SplitFacts,
    sizes: tuple[int, ...],
    editor: Editor,
) -> None:
    source, first = split.inputs[0], next(iter(concats))
    assert source is not None
    often = f"{len(concats)} x " if len(concats) > 1 else ""
    before, where = f"{editor.describe(split)}, {often}{editor.describe(first)}", editor.locate(first)
    starts = {span.start: span for spans in concats.values() for span in spans}
    groups, position = [], 0
    while position < len(sizes):
        groups.append(starts.get(position, range(position, position + 1)))
        position = groups[-1].stop
    parts = editor.make_builder(split).split(source, facts.axis, facts.size, sum_groups(sizes, groups))
    values: list[ir.Value | None] = [None] * len(sizes)
    merged: dict[ir.Value, ir.Value | None] = {}
    for group, part in zip(groups, parts, strict=True):
        if len(group) == 1:
            values[group.start] = part
        else:
            merged |= dict.fromkeys(split.outputs[index] for index in group)
            merged[split.outputs[group.start]] = part
    for concat in concats:
        sources = [(value, editor.skip_identities(value)) for value in concat.inputs if value is not None]
        read = [merged.get(behind, value) for value, behind in sources]
        editor.set_inputs(concat, [value for value in read if value is not None])
    editor.substitute(split, values)
    after = editor.describe_producer(parts[0])
    for concat in concats:
        if len(concat.inputs) == 1 and concat.inputs[0] is not None:
            editor.replace(concat.outputs[0], concat.inputs[0])
            editor.remove(concat)
    editor.record(where, before, after, "neighbouring parts are concatenated, and nothing else reads them")


def _is_later_part(before: Item, item: Item) -> bool:
    return before is not None and item is not None and item[0] is before[0] and item[1] > before[1]


def _is_complete(facts: SplitFacts, sizes: tuple[int, ...]) -> bool:
    return not isinstance(facts.size, int) or sum(sizes) == facts.size


def cancel_concat_split(node: ir.Node, editor: Editor) -> None:
    """Replace the parts of a split with the inputs of the Concat before it, if they have the same boundaries.

    If the Concat has no other use, a part that consists of several inputs becomes a Concat of them, unless
    that needs more nodes.
    """
    facts, data = editor.read_split_facts(node), node.inputs[0]
    if facts is None or data is None:
        return
    concat = editor.skip_identities(data).producer()
    if concat is None or editor.find_role(concat) is not Role.CONCAT or len(concat.outputs) != 1:
        return
    pieces = [value for value in concat.inputs if value is not None]
    if facts.axis != editor.find_concat_axis(concat, facts.rank) or not pieces:
        return
    dead = editor.find_sole_consumer(concat.outputs[0]) is node
    shapes = [find_shape(piece) for piece in pieces]
    if any(map(editor.has_fixed_name, node.outputs)):
        return
    if dead and not _can_always_concatenate(shapes, facts.axis, facts.rank):
        return  # the Concat would be removed as well, although it could fail
    groups = _match_inputs(facts, shapes)
    if groups is None:
        return
    several = [group for group in groups if len(group) > 1]
    if several and (len(several) > 1 or not dead or concat.graph is not node.graph):
        return
    before, where = f"{editor.describe(concat)}, {editor.describe(node)}", editor.locate(node)
    values: list[ir.Value | None] = []
    for group, size in zip(groups, facts.parts, strict=True):
        own = pieces[group.start : group.stop]
        if len(own) == 1:
            values.append(own[0])
        else:
            joint = editor.make_builder(node).concatenate(own, facts.axis)
            annotate_like(joint, data, {facts.axis: size})
            values.append(joint)
    for output, value in zip(list(node.outputs), values, strict=True):
        if has_consumers(output) and value is not None:
            editor.replace(output, value)
    editor.remove(node)
    if dead and not has_consumers(concat.outputs[0]):
        editor.remove(concat)
    names = ", ".join(value.name or "?" for value in values[:8] if value is not None)
    editor.record(where, before, names, "the parts are the concatenated values")


def _match_inputs(facts: SplitFacts, shapes: Sequence[Shape | None]) -> list[range] | None:
    sizes = [shape[facts.axis] for shape in shapes if shape is not None and len(shape) == facts.rank]
    if len(sizes) != len(shapes):
        return None
    if len(sizes) == len(facts.parts) and all(map(is_same_size, sizes, facts.parts)):
        # The sizes then add up to the size of the axis, so the split cannot fail.
        return [range(index, index + 1) for index in range(len(sizes))]
    exact = to_exact(sizes)
    if exact is None or facts.sizes is None or not facts.removable:
        return None
    return group_pieces(exact, facts.sizes)


def remove_single_concat(node: ir.Node, editor: Editor) -> None:
    """Replace a Concat of a single value with that value."""
    data, output = node.inputs[0], node.outputs[0]
    rank = None if data is None else find_shape(data)
    if len(node.inputs) != 1 or data is None or rank is None or editor.has_fixed_name(output):
        return
    if editor.find_concat_axis(node, len(rank)) is None:
        return
    before, where = editor.describe(node), editor.locate(node)
    editor.replace(output, data)
    editor.remove(node)
    editor.record(where, before, data.name or "its input", "it concatenates one value")


def merge_concats(node: ir.Node, editor: Editor) -> None:
    """Merge a Concat into the only node that uses it, if that is a Concat on the same axis.

    A tree of nested Concats is merged at once, so that the work is linear in its size.
    """
    outer = node
    while (above := _find_outer(outer, editor)) is not None:
        outer = above
    inner, leaves = _collect_tree(outer, editor)
    axis = editor.find_axis(outer)
    if not inner or axis is None:
        return
    before, where = f"{len(inner) + 1} x {editor.describe(outer)}", editor.locate(outer)
    joint = editor.make_builder(outer).concatenate(leaves, axis)
    editor.substitute(outer, [joint])
    editor.remove(*inner)
    after = f"Concat of {len(leaves)} inputs"
    editor.record(where, before, after, "they concatenate on the same axis, and nothing else reads them")


def _find_outer(node: ir.Node, editor: Editor) -> ir.Node | None:
    """Return the Concat into which a Concat can be merged, or None if there is none."""
    reader = editor.find_sole_consumer(node.outputs[0])
    if reader is None or editor.find_role(reader) is not Role.CONCAT or reader.graph is not node.graph:
        return None
    axes, shape = (editor.find_axis(node), editor.find_axis(reader)), find_shape(node.outputs[0])
    if None in axes or None in (*node.inputs, *reader.inputs):
        return None
    if axes[0] == axes[1]:
        return reader
    equal = shape is not None and len({editor.find_concat_axis(n, len(shape)) for n in (node, reader)}) == 1
    return reader if equal else None


def _collect_tree(outer: ir.Node, editor: Editor) -> tuple[list[ir.Node], list[ir.Value]]:
    """Return the Concats nested in ``outer``, the outer ones first, and the inputs of the merged Concat."""
    inner: list[ir.Node] = []
    leaves: list[ir.Value] = []
    pending = [(outer, iter(outer.inputs))]
    while pending:
        user, values = pending[-1]
        value = next(values, None)
        if value is None:
            pending.pop()
            continue
        node = editor.skip_identities(value).producer()
        if node is not None and editor.find_role(node) is Role.CONCAT and _find_outer(node, editor) is user:
            inner.append(node)
            pending.append((node, iter(node.inputs)))
        else:
            leaves.append(value)
    return inner, leaves


def _can_always_concatenate(shapes: Sequence[Shape | None], axis: int, rank: int) -> bool:
    """Return whether tensors can be concatenated for all values of their unknown sizes."""
    known = [shape for shape in shapes if shape is not None and len(shape) == rank]
    return len(known) == len(shapes) and all(
        is_same_size(size, other)
        for shape in known
        for index, (size, other) in enumerate(zip(known[0], shape, strict=True))
        if index != axis
    )
