"""The rewrites of splits in OpenVINO graphs: each looks at one layer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from splitops.dims import Dim
from splitops.dtypes import ELEMENT_TYPES
from splitops.errors import SplitError
from splitops.models.infer.knowledge import Tensor
from splitops.models.openvino_ir import Endpoint, Layer
from splitops.models.simplify.decisions import (
    Cut,
    joined,
    nested,
    runs,
    same_size,
    shortest,
    sole_part,
    useful_groups,
    whole,
)
from splitops.models.simplify.openvino_editor import GraphEditor
from splitops.operators import schema
from splitops.operators.schema import SizeRule

__all__ = [
    "concat_split",
    "fold_constants",
    "nested_splits",
    "shortest_form",
    "split_concat",
    "unused_parts",
    "whole_part",
]


def whole_part(editor: GraphEditor, layer: Layer) -> None:
    """Let the readers of a part that is the whole axis read the data; an output keeps its split."""
    cut = editor.cuts.get(layer.id)
    if cut is None or not cut.removable:
        return
    outputs = editor.outputs(layer)
    at = sole_part(cut.parts)
    read = [editor.is_read(end) for end in outputs]
    if at is None or not read[at] or sum(read) > 1 or editor.is_result(outputs[at]):
        return
    before, data = editor.describe(layer), editor.inputs(layer)[0]
    editor.replace(outputs[at], data)
    editor.remove(layer)
    after = editor.layers[data.layer].name
    editor.applied("whole-part", editor.where(layer), before, after, "one part is the whole axis")


def unused_parts(editor: GraphEditor, layer: Layer) -> None:
    """Leave out empty parts that nobody reads, and join unused neighbours."""
    cut = editor.cuts.get(layer.id)
    sizes = None if cut is None else cut.sizes
    read = [editor.is_read(end) for end in editor.outputs(layer)]
    if cut is None or sizes is None or not any(read):
        return
    groups = useful_groups(sizes, read)
    if len(groups) == len(sizes) or _names_outputs(editor, layer):
        return
    before = editor.describe(layer)
    made = _regrouped(editor, layer, cut, sizes, groups)
    reason = f"{len(read) - sum(read)} of {len(read)} parts are not read"
    editor.applied("unused-parts", editor.where(layer), before, editor.describe(made), reason)


def _names_outputs(editor: GraphEditor, layer: Layer) -> bool:
    """Return whether a layer and its ports name outputs of the model, as they do before IR version 11."""
    return editor.version < 11 and any(map(editor.is_result, editor.outputs(layer)))


def _regrouped(
    editor: GraphEditor, layer: Layer, cut: Cut, sizes: Sequence[int], groups: Sequence[range]
) -> Layer:
    """Replace a split by one whose parts are groups of its parts; the parts of a group lose their readers."""
    names = [layer.outputs[group.start].names if len(group) == 1 else () for group in groups]
    made = editor.split(layer, editor.inputs(layer)[0], cut, joined(sizes, groups), names)
    outputs = editor.outputs(layer)
    for group, end in zip(groups, editor.outputs(made), strict=True):
        if len(group) == 1:
            editor.replace(outputs[group.start], end)
    editor.remove(layer)
    return made


def shortest_form(editor: GraphEditor, layer: Layer) -> None:
    """State equal lengths as a number of parts: VariadicSplit becomes Split."""
    cut = editor.cuts.get(layer.id)
    sizes = None if cut is None else cut.sizes
    if layer.type != "VariadicSplit" or cut is None or sizes is None:
        return
    if shortest(schema("Split", domain="openvino"), sizes, cut.size).rule is not SizeRule.EVEN:
        return
    before = editor.describe(layer)
    made = _regrouped(editor, layer, cut, sizes, [range(index, index + 1) for index in range(len(sizes))])
    reason = "the lengths follow from their number"
    editor.applied("shortest-form", editor.where(layer), before, editor.describe(made), reason)


def nested_splits(editor: GraphEditor, layer: Layer) -> None:
    """Make a split of a part, on the same axis, one with the split that makes it."""
    cut = editor.cuts.get(layer.id)
    data = editor.inputs(layer)[0] if cut is not None else None
    origin = None if data is None else editor.split_of(data)
    if cut is None or data is None or origin is None or len(editor.readers[data]) != 1:
        return
    outer, (outer_id, index) = editor.layers[origin[0]], origin
    outer_cut = editor.cuts[outer_id]
    sizes, inner = outer_cut.sizes, cut.sizes
    if sizes is None or inner is None or cut.axis != outer_cut.axis or sum(inner) != sizes[index]:
        return
    if _names_outputs(editor, layer) or _names_outputs(editor, outer):
        return
    where, before = editor.where(layer), f"{editor.describe(layer)} of {editor.describe(outer)}"
    ports = (*outer.outputs[:index], *layer.outputs, *outer.outputs[index + 1 :])
    parts = nested(sizes, index, inner)
    source = editor.inputs(outer)[0]
    made = editor.split(outer, source, outer_cut, parts, [port.names for port in ports])
    old = editor.outputs(outer)
    ends = [*old[:index], *editor.outputs(layer), *old[index + 1 :]]
    for end, new in zip(ends, editor.outputs(made), strict=True):
        editor.replace(end, new)
    editor.remove(layer)
    editor.remove(outer)
    after = editor.describe(made)
    editor.applied("nested-splits", where, before, after, "both split the same axis")


def split_concat(editor: GraphEditor, layer: Layer) -> None:
    """Join neighbouring parts of a split that a Concat puts together again."""
    if layer.type != "Concat":
        return
    inputs = editor.inputs(layer)
    items = [_own_item(editor, layer, end) for end in inputs]
    for run in runs(items):
        first = items[run.start]
        assert first is not None
        split = editor.layers[first[0]]
        cut = editor.cuts[split.id]
        order = [first[1] + step for step in range(len(run))]
        if len(run) == len(inputs) and whole(cut.parts, order):
            if cut.removable and not any(map(editor.is_result, editor.outputs(layer))):
                _undo(editor, layer, split)
                return
        elif cut.sizes is not None and all(len(editor.readers[inputs[at]]) == 1 for at in run):
            _merge(editor, layer, split, cut, cut.sizes, run, order)
            return


def _own_item(editor: GraphEditor, layer: Layer, end: Endpoint) -> tuple[int, int] | None:
    origin = editor.split_of(end)
    cut = None if origin is None else editor.cuts[origin[0]]
    return origin if cut is not None and cut.axis == _concat_axis(layer, cut.rank) else None


def _concat_axis(layer: Layer, rank: int) -> int | None:
    text = layer.attribute("axis") or ""
    if not text.removeprefix("-").isascii() or not text.removeprefix("-").isdigit() or len(text) > 18:
        return None
    axis = int(text)
    return axis % rank if -rank <= axis < rank else None


def _undo(editor: GraphEditor, layer: Layer, split: Layer) -> None:
    where, before = editor.where(layer), f"{editor.describe(split)}, {editor.describe(layer)}"
    data = editor.inputs(split)[0]
    editor.replace(editor.outputs(layer)[0], data)
    editor.remove(layer)
    if not any(map(editor.is_read, editor.outputs(split))):
        editor.remove(split)
    after = editor.layers[data.layer].name
    editor.applied("split-concat", where, before, after, "all parts of a split stand in their order")


def _merge(
    editor: GraphEditor,
    layer: Layer,
    split: Layer,
    cut: Cut,
    sizes: Sequence[int],
    run: range,
    order: Sequence[int],
) -> None:
    """Make one part of a run of parts that a Concat reads; the Concat gets fewer ports."""
    where, before = editor.where(layer), f"{editor.describe(split)}, {editor.describe(layer)}"
    if len(run) == len(layer.inputs) and any(map(editor.is_result, editor.outputs(layer))):
        return  # the Concat stays: its names are those of an output
    if _names_outputs(editor, split):
        return
    groups: list[range] = []
    for index in range(len(sizes)):
        if index == order[0]:
            groups.append(range(order[0], order[-1] + 1))
        elif index not in order:
            groups.append(range(index, index + 1))
    inputs = editor.inputs(layer)
    names = [split.outputs[group.start].names if len(group) == 1 else () for group in groups]
    made = editor.split(split, editor.inputs(split)[0], cut, joined(sizes, groups), names)
    new = dict(zip((group.start for group in groups), editor.outputs(made), strict=True))
    old = editor.outputs(split)
    for group in groups:
        if len(group) == 1:
            editor.replace(old[group.start], new[group.start])
    if len(run) == len(inputs):
        editor.replace(editor.outputs(layer)[0], new[order[0]])
        editor.remove(layer)
    else:
        kept = [end for at, end in enumerate(editor.inputs(layer)) if at not in run[1:]]
        kept[run.start] = new[order[0]]
        editor.set_inputs(layer, kept)
    editor.remove(split)
    reason = "neighbouring parts are concatenated, and nothing else reads them"
    editor.applied("split-concat", where, before, editor.describe(made), reason)


def concat_split(editor: GraphEditor, layer: Layer) -> None:
    """Let the readers of parts read what was concatenated at the same boundaries."""
    cut = editor.cuts.get(layer.id)
    if cut is None:
        return
    data = editor.inputs(layer)[0]
    concat = editor.layers[data.layer]
    if concat.type != "Concat" or _concat_axis(concat, cut.rank) != cut.axis:
        return
    outputs, pieces = editor.outputs(layer), editor.inputs(concat)
    tensors = [editor.known.get(end, Tensor()) for end in pieces]
    sizes = [_size(tensor, cut) for tensor in tensors]
    found = [size for size in sizes if size is not None]
    if len(found) != len(sizes) or len(found) != len(cut.parts) or not all(map(same_size, found, cut.parts)):
        return
    dead = len(editor.readers[data]) == 1
    if any(map(editor.is_result, outputs)) or (dead and not _always_fit(tensors, cut)):
        return
    where, before = editor.where(layer), f"{editor.describe(concat)}, {editor.describe(layer)}"
    for end, piece in zip(outputs, pieces, strict=True):
        editor.replace(end, piece)
    editor.remove(layer)
    if dead:
        editor.remove(concat)
    after = ", ".join(editor.layers[piece.layer].name for piece in pieces[:8])
    editor.applied("concat-split", where, before, after, "the parts are what was concatenated")


def _size(tensor: Tensor, cut: Cut) -> Dim | None:
    return None if tensor.shape is None or len(tensor.shape) != cut.rank else tensor.shape[cut.axis]


def _always_fit(tensors: Sequence[Tensor], cut: Cut) -> bool:
    """Return whether tensors can be concatenated whatever their unknown sizes turn out to be."""
    shapes = [tensor.shape or () for tensor in tensors]
    others = [[size for axis, size in enumerate(shape) if axis != cut.axis] for shape in shapes]
    return all(all(map(same_size, others[0], other)) for other in others)


def fold_constants(editor: GraphEditor, layer: Layer, limit: int) -> None:
    """Make constants of the parts of a constant."""
    cut = editor.cuts.get(layer.id)
    sizes = None if cut is None else cut.sizes
    if cut is None or sizes is None or not cut.removable:
        return
    origin = editor.layers[editor.inputs(layer)[0].layer]
    constant = origin.constant
    if constant is None or constant.size > limit * len(sizes):
        return
    where, before = editor.where(layer), editor.describe(layer)
    try:
        array = constant.array(where)
    except SplitError:
        return
    begin, folded = 0, 0
    for index, (end, size) in enumerate(zip(editor.outputs(layer), sizes, strict=True)):
        piece = array[(slice(None),) * cut.axis + (slice(begin, begin + size),)]
        begin += size
        bytes_ = piece.size * max(constant.element_type.bits, 8) // 8
        if not editor.is_read(end) or bytes_ > limit or constant.element_type is ELEMENT_TYPES["string"]:
            continue
        name = layer.name if len(sizes) == 1 else f"{layer.name}.{index}"
        port = layer.outputs[index]
        made = editor.constant(np.ascontiguousarray(piece), constant.element_type, name, port.names)
        editor.replace(end, made)
        folded += 1
    if not folded:
        return
    if not any(map(editor.is_read, editor.outputs(layer))):
        editor.remove(layer)
    after = f"{folded} constant{'s' if folded > 1 else ''}"
    editor.applied("fold-constants", where, before, after, "the values are known before the model runs")
