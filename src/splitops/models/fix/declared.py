"""Correct declared types and shapes of a model that contradict the inferred ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx_ir as ir

from splitops.models.abstract_values import AbstractSequence, AbstractValue, meet_shapes
from splitops.models.check.checking import Contradiction, Walked, find_contradiction, find_contradictions
from splitops.models.fix.report import Reason
from splitops.models.formats.openvino.nodes import LayerNode
from splitops.models.graph.split_nodes import is_split
from splitops.models.infer.interpreter import InferenceResult
from splitops.models.infer.layers import declare_ports
from splitops.models.split_nodes import SplitNode

Repair = tuple[SplitNode, str, Reason]
"""A split, the corrected declaration of its output, and the reason."""


class Declarations:
    """Corrects the wrong declared types and shapes of a model.

    It does so only if an output of a split, or of the nodes that replaced a split, is declared wrongly.
    """

    def __init__(self) -> None:
        self.repairs: list[Repair] = []
        self._parts: dict[tuple[str | None, str | None], SplitNode] = {}
        """All splits seen, keyed by graph path and output name."""

    def repair(self, walked: Walked) -> None:
        """Correct all wrong declarations of a model, except those of inputs, if a part is declared wrongly.

        A wrong declaration of a part usually makes later declarations wrong, too.
        """
        wrong = [*find_contradictions(walked), *self._find_replaced(walked.found)]
        for split_node in walked.splits:
            named = ((split_node.where.graph, value.name) for value in split_node.node.outputs if value.name)
            self._parts.update(dict.fromkeys(named, split_node))
        if not wrong:
            return
        others = (find_contradiction(walked.found, value) for value in walked.found.values)
        _declare([one for one in others if one is not None])
        self.repairs += [
            (split_node, f"output {one.value.name!r} declared as {one.found}", Reason(one.code, one.message))
            for split_node, one in wrong
        ]

    def _find_replaced(self, found: InferenceResult) -> Iterator[tuple[SplitNode, Contradiction]]:
        """Yield the contradictions of values that were outputs of a split before other nodes replaced it."""
        for value in found.values if self._parts else ():
            split_node, maker = self._parts.get((found.paths.get(value), value.name)), value.producer()
            if split_node is None or maker is None or is_split(maker):
                continue
            one = find_contradiction(found, value)
            if one is not None:
                yield split_node, one


def _declare(wrong: Iterable[Contradiction]) -> None:
    layers: dict[ir.Node, dict[ir.Value, AbstractValue]] = {}
    for one in wrong:
        maker = one.value.producer()
        if maker is None:
            continue  # an input belongs to the caller
        if type(maker) is not LayerNode:
            _declare_value(one)
            continue
        for node in (maker, *(use.node for use in one.value.uses())):
            layers.setdefault(node, {})[one.value] = one.found
    for node, values in layers.items():
        declare_ports(node, values)


def _declare_value(one: Contradiction) -> None:
    """Correct the declaration of an ONNX value, but keep declared sizes that are not wrong."""
    found, before, value = one.found, one.declared, one.value
    if isinstance(found, AbstractSequence):
        shape, kind = found.element.shape, found.element.type
    elif isinstance(before, AbstractSequence):
        shape, kind = found.shape, found.type
    else:
        shape, kind = meet_shapes(found.shape, before.shape), found.type or before.type
    if kind is not None and kind.onnx_number is not None:
        tensor = ir.TensorType(ir.DataType(kind.onnx_number))
        value.type = ir.SequenceType(tensor) if isinstance(found, AbstractSequence) else tensor
    if shape is not None or type(found) is not type(before):
        sizes = [size if isinstance(size, int) else size.name for size in shape or ()]
        value.shape = None if shape is None else ir.Shape(sizes)
