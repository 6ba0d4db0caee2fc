"""Trees of Splits, for runtimes that accept only so many outputs of one."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from splitops.models.fix.rounds import NoFormError, Written
from splitops.models.graph.editor import Editor


def write_tree(node: ir.Node, editor: Editor, most: int | None) -> Written:
    """Put a tree of Splits in the place of a Split, each with few enough outputs."""
    cut, data = editor.cut(node), node.inputs[0]
    sizes = None if cut is None else cut.sizes
    if cut is None or data is None or sizes is None or len(sizes) != len(node.outputs):
        raise NoFormError("the sizes of its parts are known only when the model runs")
    if editor.keeps_parts(node):
        raise NoFormError("its ports name outputs of the model")
    if most is None or most < 2:
        raise NoFormError("a Split with one output has no parts")
    made: list[ir.Node] = []

    def parts_of(whole: ir.Value, lengths: Sequence[int]) -> list[ir.Value]:
        if len(lengths) == 1:
            return [whole]
        groups = groups_of(lengths, most)
        inner = editor.pen(node).split(whole, cut.axis, sum(lengths), [sum(group) for group in groups])
        made.extend(filter(None, [inner[0].producer()]))
        pairs = zip(inner, groups, strict=True)
        return [part for value, group in pairs for part in parts_of(value, group)]

    before = editor.describe(node)
    editor.substitute(node, parts_of(data, sizes))
    text = f"{before} as a tree of {len(made)} Splits"
    return Written(text, "a copy of the data for each level of the tree", made)


def groups_of(lengths: Sequence[int], most: int) -> list[Sequence[int]]:
    """Divide lengths into few enough groups, of equally many lengths where that is possible.

    Examples:
        >>> groups_of([2, 2, 2, 2, 2, 2], 4), groups_of([1, 2, 3, 4, 5], 4)
        ([[2, 2], [2, 2], [2, 2]], [[1, 2], [3, 4], [5]])
    """
    total = len(lengths)
    even = (total // count for count in range(most, 1, -1) if total % count == 0)
    each = 1 if total <= most else next(even, -(-total // most))
    return [lengths[at : at + each] for at in range(0, total, each)]
