"""Rewrites of Split and Concat that undo each other, and of Concats in one another."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from splitops.models.graph.editor import Editor, Role
from splitops.models.graph.onnx import is_read, known, shape_of
from splitops.models.graph.pen import note_like
from splitops.models.known import Tensor
from splitops.models.sites.decisions import Cut, grouped, joined, runs, same_size, whole
from splitops.spec.sizes.dims import Dim

_CONCAT = frozenset({Role.CONCAT})


def split_concat(node: ir.Node, editor: Editor) -> None:
    """Parts that are concatenated again in their order are not split.

    All parts of a Split are its data. Some neighbouring parts that nothing else reads become one part.
    """
    inputs = [value for value in node.inputs if value is not None]
    items = [_item(node, value, editor) for value in inputs]
    if len(inputs) != len(node.inputs) or not any(items):
        return
    if not _wholes(node, inputs, items, editor):
        _runs(node, inputs, items, editor)


def _item(node: ir.Node, value: ir.Value, editor: Editor) -> tuple[ir.Node, int] | None:
    """Return the Split of the Concat's axis that makes a value."""
    origin = editor.part_of(value)
    cut = None if origin is None else editor.cut(origin[0])
    if cut is None or cut.axis != editor.concat_axis(node, cut.rank):
        return None
    return origin


def _wholes(
    node: ir.Node,
    inputs: list[ir.Value],
    items: Sequence[tuple[ir.Node, int] | None],
    editor: Editor,
) -> bool:
    """Read the data of Splits of which all parts stand here; return whether there was one."""
    values: list[ir.Value] = []
    begin = 0
    splits: list[ir.Node] = []
    while begin < len(items):
        item = items[begin]
        end = begin + 1
        if item is not None:
            while end < len(items) and _follows(items[end - 1], items[end]):
                end += 1
            cut, data = editor.cut(item[0]), item[0].inputs[0]
            order = [found[1] for found in items[begin:end] if found is not None]
            if (
                cut is not None
                and data is not None
                and cut.removable
                and cut.complete
                and whole(cut.parts, order)
            ):
                splits.append(item[0])
                values.append(data)
                begin = end
                continue
        values += inputs[begin:end]
        begin = end
    if not splits or (len(values) == 1 and editor.keeps(node.outputs[0])):
        return False
    before, where = editor.describe(splits[0]), editor.where(node)
    before = f"{before}, {editor.describe(node)}"
    if len(values) == 1:
        after = values[0].name or "its input"
        editor.replace(node.outputs[0], values[0])
        editor.remove(node)
    else:
        editor.set_inputs(node, values)
        after = f"Concat of {len(values)} inputs instead of {len(inputs)}"
    for split in splits:
        # Each is removed here: alone, this pass shall not leave more than it needs.
        if not any(map(is_read, split.outputs)):
            editor.remove(split)
    editor.applied(where, before, after, "all parts of a split are in their order")
    return True


def _runs(
    node: ir.Node,
    inputs: list[ir.Value],
    items: Sequence[tuple[ir.Node, int] | None],
    editor: Editor,
) -> None:
    """Make one part of each run of neighbouring parts that only this Concat reads."""
    found: dict[ir.Node, list[range]] = {}
    for run in runs(items):
        item = items[run.start]
        assert item is not None
        if all(editor.alone(item[0].outputs[item[1] + step]) is node for step in range(len(run))):
            found.setdefault(item[0], []).append(run)
    for split, own in found.items():
        cut = editor.cut(split)
        sizes = None if cut is None else cut.sizes
        if cut is None or sizes is None or not _complete(cut, sizes) or editor.keeps_parts(split):
            continue
        if len(own[0]) == len(inputs) and editor.keeps(node.outputs[0]):
            continue
        _merge(node, split, cut, sizes, [_span(items, run) for run in own], editor)
        return  # the node is looked at again, with what it reads now


def _span(items: Sequence[tuple[ir.Node, int] | None], run: range) -> range:
    first = items[run.start]
    assert first is not None
    return range(first[1], first[1] + len(run))


def _merge(
    node: ir.Node,
    split: ir.Node,
    cut: Cut,
    sizes: tuple[int, ...],
    spans: list[range],
    editor: Editor,
) -> None:
    source = split.inputs[0]
    assert source is not None
    before, where = f"{editor.describe(split)}, {editor.describe(node)}", editor.where(node)
    starts = {span.start: span for span in spans}
    groups, position = [], 0
    while position < len(sizes):
        groups.append(starts.get(position, range(position, position + 1)))
        position = groups[-1].stop
    parts = editor.pen(split).split(source, cut.axis, cut.size, joined(sizes, groups))
    values: list[ir.Value | None] = [None] * len(sizes)
    merged: dict[ir.Value, ir.Value | None] = {}
    for group, part in zip(groups, parts, strict=True):
        if len(group) == 1:
            values[group.start] = part
        else:
            for index in group:
                merged[split.outputs[index]] = part if index == group.start else None
    inputs: list[ir.Value | None] = []
    for value in node.inputs:
        assert value is not None
        origin = editor.source(value)
        if origin not in merged:
            inputs.append(value)
        elif merged[origin] is not None:
            inputs.append(merged[origin])
    editor.set_inputs(node, inputs)
    editor.substitute(split, values)
    after = editor.describe_maker(parts[0])
    if len(inputs) == 1 and inputs[0] is not None:
        editor.replace(node.outputs[0], inputs[0])
        editor.remove(node)
    editor.applied(where, before, after, "neighbouring parts are concatenated, and nothing else reads them")


def _follows(before: tuple[ir.Node, int] | None, item: tuple[ir.Node, int] | None) -> bool:
    return before is not None and item is not None and item[0] is before[0] and item[1] > before[1]


def _complete(cut: Cut, sizes: tuple[int, ...]) -> bool:
    return not isinstance(cut.size, int) or sum(sizes) == cut.size


def concat_split(node: ir.Node, editor: Editor) -> None:
    """What is split at the boundaries at which it was concatenated is neither.

    Where nothing else reads the concatenation, parts of several inputs become Concats of their own, if that
    takes no more nodes.
    """
    cut, data = editor.cut(node), node.inputs[0]
    if cut is None or data is None:
        return
    concat = editor.source(data).producer()
    if concat is None or editor.role(concat) is not Role.CONCAT or len(concat.outputs) != 1:
        return
    pieces = [value for value in concat.inputs if value is not None]
    if cut.axis != editor.concat_axis(concat, cut.rank) or not pieces:
        return
    dead = editor.alone(concat.outputs[0]) is node
    tensors = [found if isinstance(found := known(piece), Tensor) else None for piece in pieces]
    if any(map(editor.keeps, node.outputs)):
        return
    if dead and not _always_fit(tensors, cut.axis, cut.rank):
        return  # the Concat goes as well, and it must not be one that could fail
    groups = _groups(cut, tensors)
    if groups is None:
        return
    several = [group for group in groups if len(group) > 1]
    if several and (len(several) > 1 or not dead or concat.graph is not node.graph):
        return
    before, where = f"{editor.describe(concat)}, {editor.describe(node)}", editor.where(node)
    values: list[ir.Value | None] = []
    for group, size in zip(groups, cut.parts, strict=True):
        own = pieces[group.start : group.stop]
        if len(own) == 1:
            values.append(own[0])
        else:
            joint = editor.pen(node).concat(own, cut.axis)
            note_like(joint, data, {cut.axis: size})
            values.append(joint)
    for output, value in zip(list(node.outputs), values, strict=True):
        if is_read(output) and value is not None:
            editor.replace(output, value)
    editor.remove(node)
    if dead and not is_read(concat.outputs[0]):
        editor.remove(concat)
    names = ", ".join(value.name or "?" for value in values[:8] if value is not None)
    editor.applied(where, before, names, "the parts are what was concatenated")


def _groups(cut: Cut, tensors: Sequence[Tensor | None]) -> list[range] | None:
    pieces = [_size(tensor, cut.axis, cut.rank) for tensor in tensors]
    found = [piece for piece in pieces if piece is not None]
    if len(found) != len(pieces):
        return None
    if len(found) == len(cut.parts) and all(map(same_size, found, cut.parts)):
        # Then they add up to the axis, whatever it is, and the split cannot fail.
        return [range(index, index + 1) for index in range(len(found))]
    exact = [piece for piece in found if isinstance(piece, int)]
    if len(exact) != len(found) or cut.sizes is None or not cut.removable:
        return None
    return grouped(exact, cut.sizes)


def sole_concat(node: ir.Node, editor: Editor) -> None:
    """A Concat of one value is the value."""
    data, whole = node.inputs[0], node.outputs[0]
    rank = None if data is None else shape_of(data)
    if len(node.inputs) != 1 or data is None or rank is None or editor.keeps(whole):
        return
    if editor.concat_axis(node, len(rank)) is None:
        return
    before, where = editor.describe(node), editor.where(node)
    editor.replace(whole, data)
    editor.remove(node)
    editor.applied(where, before, data.name or "its input", "it concatenates one value")


def nested_concats(node: ir.Node, editor: Editor) -> None:
    """A Concat that only another one on the same axis reads becomes part of it.

    All that are nested in one another are joined at once: the work grows with their number.
    """
    outer = node
    while (above := _outer(outer, editor)) is not None:
        outer = above
    inner, leaves = _tree(outer, editor)
    axis = editor.axis(outer)
    if not inner or axis is None:
        return
    before, where = f"{len(inner) + 1} x {editor.describe(outer)}", editor.where(outer)
    joint = editor.pen(outer).concat(leaves, axis)
    editor.substitute(outer, [joint])
    editor.remove(*inner)
    after = f"Concat of {len(leaves)} inputs"
    editor.applied(where, before, after, "they concatenate on the same axis, and nothing else reads them")


def _outer(node: ir.Node, editor: Editor) -> ir.Node | None:
    """Return the Concat that a Concat can become part of."""
    reader = editor.alone(node.outputs[0])
    if reader is None or editor.role(reader) is not Role.CONCAT or reader.graph is not node.graph:
        return None
    axes, shape = (editor.axis(node), editor.axis(reader)), shape_of(node.outputs[0])
    if None in axes or None in (*node.inputs, *reader.inputs):
        return None
    if axes[0] == axes[1]:
        return reader
    ranked = shape is not None and len({editor.concat_axis(one, len(shape)) for one in (node, reader)}) == 1
    return reader if ranked else None


def _tree(outer: ir.Node, editor: Editor) -> tuple[list[ir.Node], list[ir.Value]]:
    """Return the Concats inside one, each behind the one that reads it, and what they all concatenate."""
    inner: list[ir.Node] = []
    leaves: list[ir.Value] = []
    pending = [(outer, iter(outer.inputs))]
    while pending:
        reader, values = pending[-1]
        value = next(values, None)
        if value is None:
            pending.pop()
            continue
        concat = editor.source(value).producer()
        if concat is not None and editor.role(concat) is Role.CONCAT and _outer(concat, editor) is reader:
            inner.append(concat)
            pending.append((concat, iter(concat.inputs)))
        else:
            leaves.append(value)
    return inner, leaves


def _size(tensor: Tensor | None, axis: int, rank: int) -> Dim | None:
    if tensor is None or tensor.shape is None or len(tensor.shape) != rank:
        return None
    return tensor.shape[axis]


def _always_fit(tensors: Sequence[Tensor | None], axis: int, rank: int) -> bool:
    """Return whether tensors can be concatenated whatever their unknown sizes turn out to be."""
    shapes = [None if tensor is None else tensor.shape for tensor in tensors]
    first = shapes[0]
    if first is None or any(shape is None or len(shape) != rank for shape in shapes):
        return False
    return all(
        same_size(size, other)
        for shape in shapes
        if shape is not None
        for index, (size, other) in enumerate(zip(first, shape, strict=True))
        if index != axis
    )
