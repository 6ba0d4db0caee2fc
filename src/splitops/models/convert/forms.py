"""What is converted, to what, and how: the data that conversion decides on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from splitops.binding import Binding, Fact, bind
from splitops.elements.types import ElementType
from splitops.errors import NOWHERE, Where
from splitops.models.site import may_be_unbind
from splitops.operators import OperatorSchema, schema, versions
from splitops.operators.schema import Given
from splitops.sizes.arithmetic import Division

__all__ = ["Form", "Method", "Restatement", "Site", "Target"]


class Form(StrEnum):
    """Which of the equal ways to state a split is preferred."""

    SAME = "same"
    """What the site states now, as far as the target can say it."""
    LENGTHS = "lengths"
    """The length of each part."""
    COUNT = "count"
    """A number of parts, where it gives the same lengths."""


class Method(StrEnum):
    """How a site is stated for the target."""

    KEPT = "kept"
    """The node as it stands means the same."""
    STATED = "stated"
    """One node with other attributes or inputs."""
    COMPUTED = "computed lengths"
    """One node, whose lengths the graph computes from the size of the axis."""
    SLICED = "slices"
    """A Slice for each part, with constant bounds."""
    SLICED_COMPUTED = "slices with computed bounds"
    """A Slice for each part, with bounds that the graph computes."""
    CAST = "casts"
    """One node on another element type that holds every value exactly."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a model is converted to.

    Attributes:
        domain: ``""`` or ``"openvino"``.
        opset: the opset; None is the newest of OpenVINO.
    """

    domain: str
    opset: int | None = None

    def __str__(self) -> str:
        if not self.domain:
            return f"onnx:{self.opset}"
        return self.domain if self.opset is None else f"{self.domain}:opset{self.opset}"

    def rows(self, like: OperatorSchema) -> tuple[OperatorSchema, ...]:
        """Return the versions that may state what an operator says, one of its own name first.

        Those that give outputs where it does, a sequence where it does; all, where the domain has none such.

        Raises:
            OperatorError: ``op.version``, the opset does not have the operator.
        """
        if like.domain == self.domain:
            schema(like.name, self.opset, self.domain)
        rows = versions(self.domain, self.opset)
        alike = [row for row in rows if row.gives_sequence is like.gives_sequence] or rows
        return tuple(sorted(alike, key=lambda row: row.name != like.name))


@dataclass(frozen=True, slots=True)
class Site:
    """One split with what is known of it.

    Attributes:
        schema: its version.
        attributes: the attributes that it states.
        inputs: what is known of each input, in the operator's order; a constant one has its value.
        outputs: number of declared outputs.
        where: its place.
        references: attributes that come from the call of a function: their values are not known.
        overridable: names of inputs whose value is only a default.
        apart: whether a runtime would take the node for another one if it stated no lengths, see
            :mod:`splitops.models.check.merging`.
    """

    schema: OperatorSchema
    attributes: Mapping[str, Any]
    inputs: tuple[Fact | None, ...]
    outputs: int
    where: Where = NOWHERE
    references: Mapping[str, str] = field(default_factory=dict)
    overridable: frozenset[str] = frozenset()
    apart: bool = False

    @property
    def may_be_unbind(self) -> bool:
        """Whether the text and the runtimes may disagree on what the site gives."""
        return may_be_unbind(self.schema, self.attributes, self.inputs)

    def bind(self) -> Binding:
        """Prove the site valid and reduce it to its meaning.

        Raises:
            RuleError: it breaks a rule of its own version.
        """
        inputs, attributes = list(self.inputs), dict(self.attributes)
        row = self.schema
        if row.axis.name in self.references and inputs[0] is not None:
            # Any axis may come: nothing of the shape can be held against it.
            inputs[0] = replace(inputs[0], shape=None)
        for source in row.lengths:
            if source.given is Given.ATTRIBUTE and source.name in self.references:
                inputs.extend([None] * (len(row.inputs) - len(inputs)))
                attributes.pop(source.name, None)
        binding = bind(row, attributes, inputs, outputs=self.outputs, where=self.where)
        if row.axis.name in self.references:
            binding = replace(binding, axis=None)
        if any(source.name in self.references for source in row.lengths):
            binding = replace(binding, division=None)
        return binding


@dataclass(frozen=True, slots=True)
class Restatement:
    """How a site is to be stated for a target.

    Attributes:
        method: how.
        row: the version of the one node; None for slices.
        axis: the axis to state; None is the one that the site refers to.
        division: the division to state; None are lengths known only when the model runs. With
            :attr:`Method.COMPUTED` and :attr:`Method.SLICED_COMPUTED`, what the lengths are computed from.
        outputs: number of outputs to declare: those of the site, and one more where the parts that nobody
            reads must be somebody's.
        bounds: begin and end of each part (SLICED); negative ones count from the end, None is the end itself.
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
        return self.method not in (Method.KEPT, Method.STATED)
