"""To what a split node is rewritten, and how."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from splitops.models.sites.operands import describe
from splitops.spec.elements.types import ElementType
from splitops.spec.operators import OperatorSchema, schema, versions
from splitops.spec.sizes.arithmetic import Division


class Form(StrEnum):
    """Which of the equal ways to write a split is preferred."""

    SAME = "same"
    """What the split node declares now, as far as the target can say it."""
    LENGTHS = "lengths"
    """The length of each part."""
    COUNT = "count"
    """A number of parts, where it gives the same lengths."""


class Method(StrEnum):
    """How a split node is set for the target."""

    KEPT = "kept"
    """The node unchanged means the same."""
    ONE_NODE = "one node"
    """One node with other attributes or inputs."""
    COMPUTED = "computed lengths"
    """One node, whose lengths the graph computes from the size of the axis."""
    SLICED = "slices"
    """A Slice for each part."""
    CAST = "casts"
    """One node on another element type that holds every value exactly."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a model is converted to: a domain and opset, None for the newest of OpenVINO."""

    domain: str
    opset: int | None = None

    def __str__(self) -> str:
        if not self.domain:
            return f"onnx:{self.opset}"
        return self.domain if self.opset is None else f"{self.domain}:opset{self.opset}"

    def rows(self, like: OperatorSchema) -> tuple[OperatorSchema, ...]:
        """Return the versions that can write what an operator does, one of its own name first.

        Those that give outputs where it does, a sequence where it does; all, where the domain has none such.
        """
        if like.domain == self.domain:
            schema(like.name, self.opset, self.domain)
        rows = versions(self.domain, self.opset)
        alike = [row for row in rows if row.gives_sequence is like.gives_sequence] or rows
        return tuple(sorted(alike, key=lambda row: row.name != like.name))


@dataclass(frozen=True, slots=True)
class SplitForm:
    """How a split node is to be written for a target.

    Attributes:
        method: how.
        row: the version of the one node; None for slices.
        axis: the axis to set; None is the one that the split node refers to.
        division: the division to set; None are lengths known only when the model runs. With
            :attr:`Method.COMPUTED` and :attr:`Method.SLICED`, what lengths and bounds are computed from.
        outputs: number of outputs to declare: those of the split node, and one more where the parts that
            nobody reads must be somebody's.
        bounds: of slices, begin and end of each part; negative ones count from the end, None is the end
            itself. Where there are none, the graph computes them.
        carrier: the element type of the data in between (CAST).
        lengths_type: the element type of lengths known only when the model runs, as the row takes them.
        squeeze: whether the parts lose the axis.
    """

    method: Method
    row: OperatorSchema | None
    axis: int | None
    division: Division | None
    outputs: int
    bounds: tuple[tuple[int | None, int | None], ...] = ()
    carrier: ElementType | None = None
    lengths_type: ElementType | None = None
    squeeze: bool | None = False

    @property
    def rewritten(self) -> bool:
        """Whether it takes more than one node."""
        return self.method not in (Method.KEPT, Method.ONE_NODE)

    def __str__(self) -> str:
        axis = "?" if self.axis is None else self.axis
        if self.row is None:
            marks = [["end" if mark is None else mark for mark in bounds] for bounds in self.bounds[:8]]
            bounds = ", ".join(f"{begin}:{end}" for begin, end in marks)
            more = ", ..." if len(self.bounds) > 8 else ""
            return f"Slice x {self.outputs}(axis={axis}, {bounds + more or 'bounds computed'})"
        computed = self.method is Method.COMPUTED
        division = None if computed else self.division
        text = describe(self.row, self.axis, division, self.outputs, squeeze=self.squeeze)
        if computed:
            text = text.replace("at run time", "computed")
        return f"{text} on {self.carrier}" if self.carrier is not None else text
