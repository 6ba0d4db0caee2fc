"""SplitConcatPairToInterpolateFusion: a Concat that repeats each part becomes an Interpolate.

::

    x -> Split into parts of size 1 --+-> part 0, part 0 --+
                                      +-> part 1, part 1 --+-> Concat
                                      +-> part 2, part 2 --+

It upsamples the axis of the Split, even if the axis of the Concat differs. With a negative axis of the Split,
the model does not compile. If its size is unknown and the parts are larger than 1, the values are wrong.
Splits by lengths are not fused.

Reported in compare/docs/reports/split-concat-interpolate.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import onnx_ir as ir

from splitops.models.quirks.graph_view import GraphView
from splitops.models.quirks.quirk import Match, Quirk, set_lengths

INTERPOLATE: Final = Quirk("repeated-parts", "openvino", set_lengths)


def find(view: GraphView, concat: ir.Node) -> Iterator[Match]:
    """Yield the match that ends at a Concat, if the fusion is or may be wrong."""
    parts = [view.find_split(value) for value in concat.inputs[:2]]
    if len(parts) < 2 or parts[0] is None or parts[0] != parts[1]:
        return
    editor, split = view.editor, parts[0][0]
    cut, axis = editor.read_split_facts(split), editor.find_axis(concat)
    if cut is None or axis is None or cut.rank not in (4, 5) or not view.is_counted(split):
        return
    count = view.count(split)
    times, rest = divmod(len(concat.inputs), count)
    repeated = [(split, index) for index in range(count) for _ in range(times)]
    if rest or count < 2 or list(map(view.find_split, concat.inputs)) != repeated:
        return
    if isinstance(cut.size, int) and cut.size != count:
        return
    if not all(view.is_only_for(value, concat) for value in split.outputs):
        return
    written_axis = editor.find_signed_axis(split)
    is_wrong = axis % cut.rank != cut.axis or (written_axis is not None and written_axis < 0)
    if is_wrong or not isinstance(cut.size, int):
        yield Match(INTERPOLATE, split, (split, concat), is_wrong)
