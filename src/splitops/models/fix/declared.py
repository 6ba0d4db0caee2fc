"""Correct declared types and shapes of a model that contradict the inferred ones."""

from __future__ import annotations

from collections.abc import Iterator

from splitops.models.check.checking import find_contradictions
from splitops.models.fix.report import Reason
from splitops.models.graph.split_nodes import is_split
from splitops.models.infer.declarations import Contradiction, declare_found, find_contradiction
from splitops.models.infer.interpreter import InferenceResult
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

    def repair(self, inferred: InferenceResult) -> bool:
        """Correct all wrong declarations of a model, except those of inputs, if a part is declared wrongly.

        A wrong declaration of a part usually makes later declarations wrong, too. Return whether a part is.
        """
        wrong = [*find_contradictions(inferred), *self._find_replaced(inferred)]
        for split_node in inferred.splits:
            named = ((split_node.where.graph, value.name) for value in split_node.node.outputs if value.name)
            self._parts.update(dict.fromkeys(named, split_node))
        if not wrong:
            return False
        others = (find_contradiction(inferred, value) for value in inferred.values)
        declare_found([one for one in others if one is not None])
        self.repairs += [
            (split_node, f"output {one.value.name!r} declared as {one.found}", Reason(one.code, one.message))
            for split_node, one in wrong
        ]
        return True

    def _find_replaced(self, found: InferenceResult) -> Iterator[tuple[SplitNode, Contradiction]]:
        """Yield the contradictions of values that were outputs of a split before other nodes replaced it."""
        for value in found.values if self._parts else ():
            split_node, maker = self._parts.get((found.paths.get(value), value.name)), value.producer()
            if split_node is None or maker is None or is_split(maker):
                continue
            one = find_contradiction(found, value)
            if one is not None:
                yield split_node, one
