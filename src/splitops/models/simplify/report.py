"""The report of a simplification: the applied rewrites and the simplified model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from splitops.common.notebooks import format_html_table
from splitops.models.formats.files import ModelReport
from splitops.models.graph.applied import Applied

if TYPE_CHECKING:
    import onnx
    import onnx_ir

    from splitops.models.formats.openvino import OpenVINOModel


@dataclass(frozen=True, slots=True)
class Simplification(ModelReport):
    """The report of :func:`~splitops.models.simplify.simplify`.

    Attributes:
        model: the simplified model, with the type of the original: ``onnx.ModelProto`` (also for an ONNX
            file), ``onnx_ir.Model`` or ``OpenVINOModel``.
        changes: the applied rewrites in order.
        nodes_before: number of nodes of the original model, without those in functions.
        nodes_after: number of nodes of the simplified model, counted in the same way.
        kept_for: runtimes for which the model was fixed, if rewrites that could undo the fix were excluded.
    """

    model: onnx.ModelProto | onnx_ir.Model | OpenVINOModel
    changes: tuple[Applied, ...]
    nodes_before: int
    nodes_after: int
    kept_for: tuple[str, ...] = ()

    @property
    def counts(self) -> Mapping[str, int]:
        """Number of applications of each rewrite, keyed by its name."""
        return Counter(change.rewrite for change in self.changes)

    def __str__(self) -> str:
        lines = [str(change) for change in self.changes] or ["nothing to simplify"]
        head = f"{self.nodes_before} nodes -> {self.nodes_after}:"
        return "\n".join([head, *(f"  {line}" for line in lines)])

    def __repr__(self) -> str:
        return f"Simplification({len(self.changes)} changes, {self.nodes_before} -> {self.nodes_after} nodes)"

    def _repr_html_(self) -> str:
        rows = [(str(c.where), c.before, c.after, c.rewrite, c.reason) for c in self.changes]
        title = f"{self.nodes_before} nodes, now {self.nodes_after}"
        return format_html_table(title, ("node", "before", "after", "rewrite", "reason"), rows)
