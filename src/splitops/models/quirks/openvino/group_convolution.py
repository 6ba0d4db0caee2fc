"""ConvolutionToGroupConvolutionFusion: convolutions of parts of the channels become a grouped one.

::

    x -> Split of the channels --+-> Conv --+
         (or Slices)             +-> Conv --+-> Concat
                                 +-> Conv --+

The pass does not check which part a convolution reads: it convolves all parts in order, even if some are
missing or reordered. Other inputs of the Concat are read as convolutions, too.

Reported in compare/docs/reports/group-convolution.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import onnx_ir as ir

from splitops.models.graph.editor import Editor
from splitops.models.graph.onnx import find_shape
from splitops.models.quirks.graph_view import GraphView, get_static_sizes
from splitops.models.quirks.quirk import Match, Quirk


def find(view: GraphView, concat: ir.Node) -> Iterator[Match]:
    """Yield the match that ends at a Concat, if the fusion is wrong."""
    values = [view.skip_idle(value) for value in concat.inputs if value is not None]
    first = _read_channels(view, values[0]) if values and len(values) == len(concat.inputs) else None
    axis = None if first is None else view.editor.find_axis(concat)
    if first is None or axis is None:
        return
    read = [first]
    for value in values[1:]:
        node = value.producer()
        if node is None or not node.inputs or node.graph is not concat.graph:
            ends = (first.node, first.convolution, concat)
            yield Match(JOINED_WITH_A_CONSTANT, first.node, ends, channels=first.span)
            return
        other = _read_channels(view, value)
        if other is None or other.whole is not first.whole:
            return
        if view.editor.get_window(other.convolution) != view.editor.get_window(first.convolution):
            return
        read.append(other)
    kernels = {_read_kernel_shape(one.convolution) for one in read}
    if len(kernels) > 1 or None in kernels or len(values) < 2:
        return
    rank = len(find_shape(concat.outputs[0]) or next(iter(kernels)) or ())
    if [one.index for one in read] != list(range(first.count)) or axis not in (1, 1 - rank):
        path = (first.node, *(one.convolution for one in read), concat)
        yield Match(ANY_ORDER, first.node, path, channels=first.span)


@dataclass(frozen=True, slots=True)
class _Channels:
    """The channels that a convolution reads. ``node`` is the split or the Slice that it reads them from.

    ``whole`` identifies the divided tensor: it is the split, or the data of the Slices.
    """

    convolution: ir.Node
    node: ir.Node
    whole: object
    index: int
    count: int
    span: tuple[int, int]


def _read_channels(view: GraphView, value: ir.Value) -> _Channels | None:
    """Return the part of the channels that a convolution with one group and no bias reads, or None."""
    node = view.find_producer(value, "Conv")
    if node is None or len([one for one in node.inputs if one is not None]) != 2:
        return None
    group = node.attributes.get("group")
    if group is not None and (group.is_ref() or group.value != 1):
        return None
    kernel, part = _read_kernel_shape(node), view.find_split(node.inputs[0])
    if kernel is None or len(kernel) < 2:
        return None
    if part is not None:
        split, index = part
        cut, axis = view.editor.read_split_facts(split), view.editor.find_signed_axis(split)
        if cut is None:  # computed lengths, which are equal because the kernels are
            count, sizes = len(split.outputs), None
        else:
            axis, count, sizes = cut.axis, view.count(split), cut.sizes
        if axis not in (1, 1 - len(kernel)):
            return None
        begin = index * kernel[1] if sizes is None else sum(sizes[:index])
        return _Channels(node, split, split, index, count, (begin, begin + kernel[1]))
    one = view.slice(view.find_producer(node.inputs[0], "Slice"))
    if one is None or one.axis != 1 or one.size is None or one.span is None:
        return None
    others = [other for other in map(view.slice, view.sliced.get(one.data, ())) if other and other.axis == 1]
    spans = sorted({other.span for other in others if other.span is not None})
    ends = [0, *(end for _, end in spans)]
    if len(spans) < 2 or ends[:-1] != [begin for begin, _ in spans] or ends[-1] != one.size:
        return None
    return _Channels(node, one.node, one.data, spans.index(one.span), len(spans), one.span)


def _read_kernel_shape(convolution: ir.Node) -> tuple[int, ...] | None:
    weights = convolution.inputs[1]
    return None if weights is None else get_static_sizes(find_shape(weights))


def _gather_channels(editor: Editor, match: Match) -> str | None:
    """Replace the input of the first convolution with a Gather of its channels.

    Return a description, or None if it is not possible.
    """
    convolution, data = match.path[1], match.node.inputs[0]
    if data is None:
        return None
    begin, end = match.channels
    part = editor.make_builder(convolution).gather(data, range(begin, end), 1)
    before = convolution.inputs[0]
    editor.set_inputs(convolution, [part, *convolution.inputs[1:]])
    return None if before is None else f"{editor.describe(match.node)}, Gather(axis=1, {begin}:{end})"


ANY_ORDER: Final = Quirk("convolved-parts", "openvino", _gather_channels)
JOINED_WITH_A_CONSTANT: Final = Quirk("convolved-beside", "openvino", _gather_channels)
