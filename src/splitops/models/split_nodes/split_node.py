"""What every model tool sees of one split operator in a model, whatever the file format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import cached_property
from typing import Any, Final

from splitops.errors import NOWHERE, SplitError, Where
from splitops.models.split_nodes.operands import describe
from splitops.spec.operators import OperatorSchema, history
from splitops.spec.operators.schemas import SourceKind
from splitops.splitting.binding import Binding, Fact, bind
from splitops.splitting.faults import find_faults
from splitops.splitting.inference import Inference, infer_binding


class Origin(Enum):
    """Who says what the value of an input is."""

    MODEL = auto()
    """It is a constant."""
    DEFAULT = auto()
    """It is a constant that the model's caller can replace."""
    RUN = auto()
    """It is an input of the model, or computed."""


@dataclass(frozen=True, kw_only=True)
class SplitNode:
    """One node of the split family in its place, with what is known of it there.

    A split node in a model-local function is one for every call that inference follows, one in a loop is
    one with what holds in every round.

    Attributes:
        schema: the operator's version, chosen by the opset that its graph or function imports; the first one
            of an operator that the opset does not have yet, see ``unread``.
        attributes: the attributes that the node sets: integers, and tuples of them (a file can set other
            numbers; binding says what is wrong with them). One that a function's caller gives, and that is
            not known, is an empty :class:`Fact`.
        facts: what is known of each input, in the operator's order; None is an absent one.
        inputs: names of the inputs; ``""`` is an absent one.
        outputs: names of the declared outputs; ``""`` is one that nobody reads.
        where: model, graph path and node name.
        references: attributes that a model-local function takes from its caller: the node's attribute name
            to the function's.
        origins: for each input, who says what its value is.
        conditional: whether the model may run without running this split node.
        unread: why the node is not one of its operator: it has no such version, or an attribute is none.
        node: the ``onnx_ir.Node``, for tools that rewrite it; that of a layer knows its
            :class:`~splitops.models.formats.openvino.Layer`.

    Examples:
        >>> from splitops.spec.operators import schema
        >>> data = Fact(shape=(2, 7))
        >>> site = Site(schema=schema("Split", 18), attributes={"num_outputs": 2, "axis": 1}, facts=(data,),
        ...             outputs=("a", "b"))
        >>> site.inference.parts
        ((2, 4), (2, 3))
    """

    schema: OperatorSchema
    attributes: Mapping[str, Any]
    facts: tuple[Fact | None, ...]
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...]
    where: Where = NOWHERE
    references: Mapping[str, str] = field(default_factory=dict)
    origins: tuple[Origin, ...] = ()
    conditional: bool = False
    unread: SplitError | None = None
    node: Any = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        if isinstance(self._bound, SplitError):
            return self.operator
        axis, division, squeeze = self._bound.axis, self._bound.division, self._bound.squeeze
        return describe(self.schema, axis, division, len(self.outputs), squeeze=squeeze)

    def __repr__(self) -> str:
        place = f" at {self.where}" if str(self.where) else ""
        return f"Site({self}{place})"

    @property
    def operator(self) -> str:
        """Its operator for messages, with the version where the node is one of it."""
        return str(self.schema) if self.unread is None else self.schema.name

    @property
    def binding(self) -> Binding | None:
        """What is proved of it; None where ``error`` is set."""
        return None if self.error is not None else self.bind()

    @property
    def inference(self) -> Inference | None:
        """What follows for its outputs; None where ``error`` is set."""
        return None if isinstance(self._inferred, SplitError) else self._inferred

    @property
    def error(self) -> SplitError | None:
        """The rule that it breaks, or why it could not be read."""
        return self._inferred if isinstance(self._inferred, SplitError) else None

    @property
    def faults(self) -> Sequence[SplitError]:
        """All rules that it breaks and that do not follow from one another, ``error`` first."""
        error, schema = self.error, self.as_written
        if error is None or self.unread is not None:
            return () if error is None else (error,)
        given: Any = (self.attributes, self.facts)
        found = find_faults(schema or self.schema, *given, outputs=len(self.outputs), where=self.where)
        # Of a node that is written as another version, what is wrong as that one.
        return (error, *(one for one in found if one.message != error.message))

    def bind(self) -> Binding:
        """Prove it valid and reduce it to its meaning.

        Raises:
            RuleError: it breaks a rule of its version.
            ModelError: it could not be read.
        """
        if isinstance(self._bound, SplitError):
            raise self._bound.with_traceback(None)
        return self._bound

    @cached_property
    def _bound(self) -> Binding | SplitError:
        if self.unread is not None:
            return self.unread
        try:
            return bind(self.schema, self.attributes, self.facts, outputs=len(self.outputs), where=self.where)
        except SplitError as error:
            return error

    @cached_property
    def _inferred(self) -> Inference | SplitError:
        if isinstance(self._bound, SplitError):
            return self._bound
        try:
            return infer_binding(self._bound)
        except SplitError as error:
            return error

    @property
    def lengths(self) -> Fact | None:
        """What is known of the lengths where they are an input; None where there is none."""
        for source in self.schema.lengths:
            if source.kind is SourceKind.INPUT:
                index = self.schema.input_index(source.name)
                return self.facts[index] if index < len(self.facts) else None
        return None

    @property
    def as_written(self) -> OperatorSchema | None:
        """The newest version with all of the node's attributes; None where its own has them, or none.

        Models whose opset was changed by hand keep the attributes of another version: ``num_outputs`` below
        opset 18, ``split`` from 13 on.

        Examples:
            >>> from splitops.spec.operators import schema
            >>> data, given = Fact(shape=(7,)), {"num_outputs": 2}
            >>> site = Site(schema=schema("Split", 13), attributes=given, facts=(data,), outputs=("a", "b"))
            >>> str(site.as_written)
            'Split-18'
        """
        if self.unread is not None or _has(self.schema, self.attributes):
            return None
        schemas = reversed(history(self.schema.name, self.schema.domain))
        return next((schema for schema in schemas if _has(schema, self.attributes)), None)

    @property
    def may_be_unbind(self) -> bool:
        """Whether the text and the runtimes may disagree on what it gives.

        PyTorch exports a scripted ``unbind`` as a SplitToSequence of chunks of 1 with keepdims = 0. The text
        ignores keepdims beside chunks; PyTorch and onnxruntime drop the axis. We run what is written, and no
        tool rewrites such a split node unasked.

        Examples:
            >>> from splitops.spec.operators import schema
            >>> row, data, given = schema("SplitToSequence", 13), Fact(shape=(2, 3)), {"keepdims": 0}
            >>> one, two = Fact(shape=(), value=1), Fact(shape=(), value=2)
            >>> sites = [Site(schema=row, attributes=given, facts=facts, outputs=("s",))
            ...          for facts in ((data, one), (data, two), (data,))]
            >>> [site.may_be_unbind for site in sites]
            [True, False, False]
        """
        keepdims, chunk = self.schema.keepdims, self.lengths
        if keepdims is None or self.attributes.get(keepdims.name) != 0 or chunk is None:
            return False
        return chunk.shape in (None, ()) and chunk.value in (None, 1)


UNBIND_REPAIRS: Final = (
    "splitops fix --unbind as-written keeps the axis, as the specification says; "
    "splitops fix --unbind as-pytorch drops it, as PyTorch means it"
)
"""The two unambiguous forms of a split node that :attr:`Site.may_be_unbind`."""


def _has(schema: OperatorSchema, attributes: Iterable[str]) -> bool:
    return {attribute.name for attribute in schema.attributes}.issuperset(attributes)
