"""GroupedSliceToVSplitOptimization: consecutive Slices become a VariadicSplit.

::

    x --+-> Slice 0:2 -->
        +-> Slice 2:1 -->        x -> VariadicSplit by 2, -1, 3 -->
        +-> Slice 1:4 -->

A Slice that ends one position before it starts is empty. Its length of -1 is read as the rest of the axis.

Reported in compare/docs/reports/grouped-slices.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Final

import onnx_ir as ir

from splitops.models.graph.editor import Editor
from splitops.models.graph.onnx import find_shape
from splitops.models.quirks.graph_view import GraphView, SliceOfAxis, get_static_sizes
from splitops.models.quirks.quirk import Match, Quirk


def find(view: GraphView, node: ir.Node) -> Iterator[Match]:
    """Yield the matches among all Slices of one tensor, if ``node`` is the first of them."""
    data = None if node.inputs[0] is None else view.skip_idle(node.inputs[0])
    nodes = [] if data is None else view.sliced.get(data, [])
    if data is None or len(nodes) < 2 or nodes[0] is not node:
        return
    if not any(0 in (find_shape(one.outputs[0]) or (0,)) for one in nodes):
        return  # no Slice is empty, so none ends before it starts
    found = [one for one in map(view.slice, nodes) if one is not None]
    for axis in dict.fromkeys(one.axis for one in found):
        group = [one for one in found if one.axis == axis]
        yield from _find_reversed(group, is_known=get_static_sizes(find_shape(data)) is not None)


def _find_reversed(group: Sequence[SliceOfAxis], *, is_known: bool) -> Iterator[Match]:
    """Yield a match for each Slice in ``group`` that ends before it starts, if OpenVINO misreads the group.

    Slices with equal bounds count as one. ``is_known`` is whether the shape is static. If so, Slices of the
    whole axis are ignored.
    """
    size = group[0].size
    if size is None:
        return
    # OpenVINO merges Slices with equal bounds, but not those with equal positions.
    found = {(one.bounds.start, one.bounds.stop): one for one in group}.values()
    kept = [(slice(one.bounds.start, one.bounds.stop).indices(size)[:2], one.node) for one in found]
    if is_known:
        kept = [(span, node) for span, node in kept if span != (0, size)]
    kept.sort(key=itemgetter(0))
    reversed_nodes = [node for (start, stop), node in kept if stop < start]
    lengths = _read_lengths([span for span, _ in kept], size)
    if lengths is not None and lengths != [max(0, stop - start) for (start, stop), _ in kept]:
        path = tuple(node for _, node in kept)
        yield from (Match(REVERSED_SLICES, node, path) for node in reversed_nodes)


def _read_lengths(spans: Sequence[tuple[int, int]], size: int) -> list[int] | None:
    """Return the part sizes of the VariadicSplit that replaces Slices, or None if OpenVINO keeps them."""
    if not spans or [0, *(stop for _, stop in spans)][:-1] != [start for start, _ in spans]:
        return None
    left, lengths = size, []
    for start, stop in spans:
        lengths.append(-1 if stop - start > left else stop - start)
        left -= stop - start
    if lengths.count(-1) > 1 or min(lengths) < -1:
        return None
    rest = size - sum(length for length in lengths if length != -1)
    found = [rest if length == -1 else length for length in lengths]
    return found if sum(found) == size else None


def _set_end_to_start(editor: Editor, match: Match) -> str | None:
    """Set the end of an empty Slice to its start. Return a description, or None if it is not possible."""
    node, data = match.node, match.node.inputs[0]
    shape = None if data is None else find_shape(data)
    bounds = None if shape is None else editor.read_slices(node, len(shape))
    if data is None or bounds is None or not editor.can_slice(data):
        return None
    ((axis, one),) = bounds.items()
    part = editor.make_builder(node).slice(data, {axis: slice(one.start, one.start, 1)})
    editor.substitute(node, [part])
    return f"Slice(axis={axis}, {one.start}:{one.start})"


REVERSED_SLICES: Final = Quirk("backward-slices", "openvino", _set_end_to_start)
