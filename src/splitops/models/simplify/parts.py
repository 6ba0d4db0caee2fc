"""Rewrites of splits based on the sizes of their parts, and on which parts are used."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from splitops.models.abstract_values import AbstractTensor
from splitops.models.graph.editor import Editor, Role
from splitops.models.graph.onnx import get_abstract_value, has_consumers
from splitops.models.quirks import RUNTIMES, find
from splitops.models.split_nodes.static_facts import find_shortest, find_whole_part, group_parts, sum_groups
from splitops.spec.sizes.dims import to_exact


def remove_whole_part(node: ir.Node, editor: Editor) -> None:
    """Remove a split if one of its parts is the whole axis and its other, empty parts are unused."""
    facts, data = editor.read_split_facts(node), node.inputs[0]
    if facts is None or data is None or not facts.removable or not facts.complete:
        return
    at = find_whole_part(facts.parts)
    read = [has_consumers(output) for output in node.outputs]
    if at is None or not read[at] or sum(read) > 1 or editor.has_fixed_name(node.outputs[at]):
        return
    before, where = editor.describe(node), editor.locate(node)
    editor.replace(node.outputs[at], data)
    editor.remove(node)
    editor.record(where, before, data.name or "its input", "one part is the whole axis")


def remove_unused_parts(node: ir.Node, editor: Editor) -> None:
    """Remove unused parts.

    Adjacent unused parts are merged into one, and empty unused parts are removed. A Split that cannot fail is
    removed if no part is used, and replaced by a Slice if only one is used.
    """
    facts, data = editor.read_split_facts(node), node.inputs[0]
    read = [has_consumers(output) for output in node.outputs]
    if facts is None or data is None or all(read):
        return
    before, where = editor.describe(node), editor.locate(node)
    if not any(read):
        if facts.removable:
            editor.remove(node)
            editor.record(where, before, "nothing", "no part is read")
        return
    sizes = facts.sizes
    if sizes is None or (isinstance(facts.size, int) and sum(sizes) != facts.size):
        return  # there are fewer outputs than parts: the last parts are not declared
    at = read.index(True)
    if sum(read) == 1 and sizes[at] == facts.size:
        return  # remove-whole-part handles this
    if sum(read) == 1 and facts.removable and editor.can_slice(data) and not editor.has_fixed_outputs(node):
        begin = sum(sizes[:at])
        part = editor.make_builder(node).slice(data, {facts.axis: slice(begin, begin + sizes[at], 1)})
        after = f"Slice(axis={facts.axis}, {begin}:{begin + sizes[at]})"
        editor.substitute(node, [part if index == at else None for index in range(len(sizes))])
        editor.record(where, before, after, "one part is read")
        return
    groups = group_parts(sizes, read)
    if len(groups) == len(sizes) or editor.has_fixed_outputs(node):
        return
    parts = editor.make_builder(node).split(data, facts.axis, facts.size, sum_groups(sizes, groups))
    values: list[ir.Value | None] = [None] * len(sizes)
    for group, part in zip(groups, parts, strict=True):
        if read[group.start]:
            values[group.start] = part
    editor.substitute(node, values)
    reason = f"{len(sizes) - sum(read)} of {len(sizes)} parts are not read"
    editor.record(where, before, editor.describe_producer(parts[0]), reason)


def fold_empty_parts(node: ir.Node, editor: Editor) -> None:
    """Replace used empty parts of known shape with constants."""
    facts = editor.read_split_facts(node)
    if facts is None or len(facts.parts) == 1:
        return
    parts = list(zip(node.outputs, facts.parts, strict=True))
    if not facts.removable and not any(has_consumers(output) for output, size in parts if size != 0):
        return  # the unused split may then be removed, and with it the check of the size of the axis
    before, where = editor.describe(node), editor.locate(node)
    for output, size in parts:
        tensor = get_abstract_value(output)
        if (
            size != 0
            or not has_consumers(output)
            or not isinstance(tensor, AbstractTensor)
            or tensor.type is None
        ):
            continue
        kind, shape = tensor.type, to_exact(tensor.shape)
        # A constant needs all sizes, and NumPy has no dtype for strings.
        if shape is None or 0 not in shape or kind.name == "string":
            continue
        if not editor.has_type(kind) or not editor.has_empty(kind, node):
            continue
        editor.replace(output, editor.fold(np.zeros(shape, kind.numpy), kind, output, node))
        after = f"a constant of shape {shape}"
        editor.record(where, before, after, f"part {output.index()} is empty")


def merge_splits(node: ir.Node, editor: Editor) -> None:
    """Merge a split into the split on the same axis that produces its data, if the data has no other use.

    A tree of nested splits is merged at once, so that the work is linear in its size.
    """
    root = node
    while (above := _find_outer(root, editor)) is not None:
        root = above[0]
    if root is node:
        return
    facts, source = editor.read_split_facts(root), root.inputs[0]
    assert facts is not None
    assert source is not None
    inner, leaves = _collect_tree(root, editor)
    what = editor.describe(node) if len(inner) == 1 else f"{len(inner)} splits"
    before, where = f"{what} of {editor.describe(root)}", editor.locate(node)
    parts = editor.make_builder(root).split(source, facts.axis, facts.size, list(leaves.values()))
    new = dict(zip(leaves, parts, strict=True))
    splits = (*reversed(inner), root)
    editor.substitute_all({split: [new.get(output) for output in split.outputs] for split in splits})
    editor.record(where, before, editor.describe_producer(parts[0]), "both split the same axis")


def _find_outer(node: ir.Node, editor: Editor) -> tuple[ir.Node, int] | None:
    """Return the split into which a split can be merged, and the index of the divided part, or None."""
    if editor.find_role(node) is not Role.SPLIT:  # a SplitToSequence has no outputs for its parts
        return None
    data = node.inputs[0]
    origin = None if data is None else editor.find_source_split(data)
    if origin is None:
        return None
    outer, index = origin
    inner_cut, facts = editor.read_split_facts(node), editor.read_split_facts(outer)
    if inner_cut is None or facts is None or outer.inputs[0] is None or outer.graph is not node.graph:
        return None
    sizes, inner = facts.sizes, inner_cut.sizes
    if sizes is None or inner is None or facts.axis != inner_cut.axis or not inner_cut.removable:
        return None
    if editor.has_fixed_outputs(node) or editor.has_fixed_outputs(outer):
        return None
    complete = sum(inner) == sizes[index] and (not isinstance(facts.size, int) or sum(sizes) == facts.size)
    return origin if complete and editor.find_sole_consumer(outer.outputs[index]) is node else None


def _collect_tree(root: ir.Node, editor: Editor) -> tuple[list[ir.Node], dict[ir.Value, int]]:
    """Return the splits nested in ``root``, the outer ones first, and the sizes of the undivided parts."""
    inner: list[ir.Node] = []
    leaves: dict[ir.Value, int] = {}
    pending = [iter(_list_parts(root, editor))]
    while pending:
        part, size = next(pending[-1], (None, 0))
        if part is None:
            pending.pop()
            continue
        reader = editor.find_sole_consumer(part)
        if reader is not None and _find_outer(reader, editor) == (part.producer(), part.index()):
            inner.append(reader)
            pending.append(iter(_list_parts(reader, editor)))
        else:
            leaves[part] = size
    return inner, leaves


def _list_parts(node: ir.Node, editor: Editor) -> list[tuple[ir.Value, int]]:
    facts = editor.read_split_facts(node)
    assert facts is not None
    assert facts.sizes is not None
    return list(zip(node.outputs, facts.sizes, strict=True))


def shorten_lengths(node: ir.Node, editor: Editor) -> None:
    """Replace lengths with an equivalent number of parts, if the opset supports it.

    The lengths are kept if the optimiser of a runtime would otherwise rewrite the split wrongly.
    """
    facts, data = editor.read_split_facts(node), node.inputs[0]
    sizes = None if facts is None else facts.sizes
    if facts is None or data is None or sizes is None or not facts.division.lengths:
        return
    if find_shortest(editor.make_builder(node).schemas, sizes, facts.size)[1].lengths:
        return
    if node in editor.analyse_once(_find_if_counted):
        return
    before, where = editor.describe(node), editor.locate(node)
    parts = editor.make_builder(node).split(data, facts.axis, facts.size, sizes)
    editor.substitute(node, list(parts))
    editor.record(where, before, editor.describe_producer(parts[0]), "the lengths follow from their number")


def _find_if_counted(editor: Editor) -> frozenset[ir.Node]:
    """Return the splits that an optimiser would rewrite wrongly if they did not set their equal lengths."""
    return frozenset(
        match.node for runtime in RUNTIMES for match in find(editor, runtime, equal_as_count=True)
    )
