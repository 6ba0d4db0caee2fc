"""LSTMCellFusionWithJointWeights: the gates of an LSTM cell become an LSTMCell.

::

    [x, h] * W + b -> Split --+-> i -> act --+
                              +-> g -> act --+-> Mul ---------+
                              |                     c --+     +-> Add -> c' -> act --+
                              +-> f -> + number -> act -+-> Mul                      +-> Mul -> h'
                              +-> o -> act ------------------------------------------+

The pass identifies the gates by position. Only the order i, g, f, o (in OpenVINO's terms, i, c, f, o) is
right. Splits by lengths are not fused.

Reported in compare/docs/reports/lstm-cell.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Final

import onnx_ir as ir

from splitops.models.graph.editor import Role
from splitops.models.graph.onnx import is_constant
from splitops.models.quirks.graph_view import Bindings, GraphView, Op, Pattern, op
from splitops.models.quirks.quirk import Match, Quirk, set_lengths


def _make_activation(pattern: Pattern, bind: str = "") -> Op:
    return op("Relu Sigmoid Tanh", pattern, bind=bind)


_FORGET: Final = _make_activation(op("Add", "f", "number", bind="f + number"), "act f")
_STATE: Final = op(
    "Add", op("Mul", _FORGET, "c"), op("Mul", _make_activation("i", "act i"), _make_activation("g", "act g"))
)
_CELL: Final = op("Mul", _make_activation(_STATE), _make_activation("o", "act o"))
GATES: Final = 4
LSTM_CELL: Final = Quirk("gated-parts", "openvino", set_lengths)


def find(view: GraphView, split: ir.Node) -> Iterator[Match]:
    """Yield the match that begins at a split, if OpenVINO fuses it into a wrong LSTMCell."""
    if len(split.outputs) != GATES or not _is_joint(view, split):
        return
    activations = [node for part in split.outputs for node in view.find_consumers(part)]
    for scaled in (node for one in activations for node in view.find_consumers(one.outputs[0], "Mul")):
        for found in view.match(scaled.outputs[0], _CELL):
            gates = {name: view.find_split(found[name]) for name in "figo"}
            at = {name: part[1] for name, part in gates.items() if part is not None and part[0] is split}
            paths = [_read_gate(view, found, name) for name in sorted(at, key=lambda name: at[name])]
            if len(set(at.values())) < GATES or view.size(found["number"]) != 1 or None in paths:
                continue
            nodes = [path for path in paths if path is not None]
            kinds = [view.name(path[-1]) for path in nodes]
            is_known = at["f"] in (1, 2) and kinds[0] == kinds[3] == kinds[at["f"]]
            if is_known and is_constant(found["number"]) and (at["f"], at["o"]) != (2, 3):
                yield Match(LSTM_CELL, split, (split, *chain.from_iterable(nodes), scaled))
                return


def _read_gate(view: GraphView, found: Bindings, name: str) -> list[ir.Node] | None:
    """Return the nodes of a gate, or None if its part or a value between them has other consumers."""
    names = ("f", "f + number", "act f") if name == "f" else (name, f"act {name}")
    nodes = [node for one in names[1:] if (node := found[one].producer()) is not None]
    is_sole = all(view.find_consumers(found[one]) == [node] for one, node in zip(names, nodes, strict=False))
    return nodes if is_sole else None


def _is_joint(view: GraphView, split: ir.Node) -> bool:
    """Return whether a node splits a product of concatenated inputs into four gates."""
    cut = view.editor.read_split_facts(split) if view.editor.find_role(split) is Role.SPLIT else None
    if cut is None or (cut.axis, cut.rank) != (1, 2) or not view.is_counted(split):
        return False
    total = view.find_producer(split.inputs[0], "Add", "Gemm")
    if total is None or not len(split.outputs) == view.count(split) == GATES:
        return False
    products = (
        [total] if view.name(total) == "Gemm" else [view.find_producer(one, "MatMul") for one in total.inputs]
    )
    product = next(filter(None, products), None)
    return product is not None and view.find_producer(product.inputs[0], "Concat") is not None
