"""SplitSqueezeConcatFusion: heads that are split and concatenated become a Transpose and a Reshape.

::

    x -> Split into parts of size 1 --+-> Squeeze --+
                                      +-> Squeeze --+-> Concat
                                      +-> Squeeze --+

It replaces them with ``x -> Transpose -> Reshape``. A Concat on a negative axis corrupts memory, and the
Reshape cannot have two unknown sizes. Splits by lengths are not fused.

Reported in compare/docs/reports/split-squeeze-concat.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import onnx_ir as ir

from splitops.models.graph.onnx import find_shape
from splitops.models.quirks.graph_view import GraphView, get_static_sizes
from splitops.models.quirks.quirk import Match, Quirk, count_axis_from_the_front, set_lengths

NEGATIVE_AXIS: Final = Quirk(
    "squeezed-parts", "openvino", lambda editor, match: count_axis_from_the_front(editor, match, match.last)
)
TWO_OPEN_SIZES: Final = Quirk("squeezed-open-parts", "openvino", set_lengths)


def find(view: GraphView, concat: ir.Node) -> Iterator[Match]:
    """Yield the matches that end at a Concat, if OpenVINO fuses them wrongly."""
    squeezes, splits = [], set()
    for index, value in enumerate(concat.inputs):
        squeeze = view.find_producer(value, "Squeeze", "Reshape")
        part = None if squeeze is None else view.find_split(squeeze.inputs[0])
        if squeeze is None or part is None or part[1] != index:
            return
        splits.add(split := part[0])
        if len(splits) > 1 or not view.is_counted(split):
            return
        if not view.is_only_for(split.outputs[index], squeeze) or not _is_squeeze(view, squeeze, *part):
            return
        squeezes.append(squeeze)
    axis, shape = view.editor.find_axis(concat), find_shape(concat.outputs[0])
    if not squeezes or axis is None or view.count(split) != len(squeezes):
        return
    path = (split, *squeezes, concat)
    if axis < 0:
        yield Match(NEGATIVE_AXIS, split, path)
    if shape is not None and sum(not isinstance(size, int) for size in shape) > 1:
        yield Match(TWO_OPEN_SIZES, split, path)


def _is_squeeze(view: GraphView, squeeze: ir.Node, split: ir.Node, index: int) -> bool:
    """Return whether a node removes only the split axis of a part, whose size must be 1."""
    cut = view.editor.read_split_facts(split)
    before, after = find_shape(split.outputs[index]), find_shape(squeeze.outputs[0])
    if cut is None or before is None or after is None or len(after) != len(before) - 1:
        return False
    if before[cut.axis] != 1:
        return False
    rest = (*before[: cut.axis], *before[cut.axis + 1 :])
    if view.name(squeeze) == "Reshape":
        return get_static_sizes(rest) is not None and rest == after
    return all(one == other for one, other in zip(rest, after, strict=True) if isinstance(one, int))
