"""A split node with its inferred facts, in one form for all file formats."""

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
from splitops.spec.sizes.arithmetic import Division
from splitops.spec.sizes.dims import Dim
from splitops.splitting.binding import Binding, Fact, bind
from splitops.splitting.faults import find_faults
from splitops.splitting.inference import Inference, infer_binding


class Origin(Enum):
    """The source of the value of an input."""

    MODEL = auto()
    """A constant of the model."""
    DEFAULT = auto()
    """An initializer that the caller of the model can override."""
    RUN = auto()
    """An input of the model, a computed value or an absent input."""


@dataclass(frozen=True, kw_only=True)
class SplitNode:
    """A split node with its inferred facts.

    A node of a model-local function has one instance for each call that inference enters. The facts of a node
    in a loop hold in every iteration.

    Attributes:
        schema: operator version for the opset that the graph or function imports; for OpenVINO, the version
            of the layer. If that opset does not have the operator yet, this is the operator's first version,
            and ``unread`` is set.
        attributes: attributes that the node sets: integers or tuples of integers. An invalid file may set
            other numbers, which :meth:`bind` rejects. An attribute that only a call of the function
            determines is an empty :class:`Fact`.
        facts: inferred type, shape and value of each input, in the operator's order; None for an absent one.
        inputs: names of the inputs; ``""`` is an absent one.
        outputs: names of the declared outputs; ``""`` is an unused one.
        where: model, graph path and node name.
        references: names of the node's attributes that refer to attributes of the model-local function, with
            the names of the latter.
        origins: source of the value of each input.
        conditional: whether a run of the model may skip this split node.
        unread: error if the opset does not have the operator or an attribute cannot be read.
        node: the ``onnx_ir.Node``, for tools that rewrite it. For OpenVINO, it has the
            :class:`~splitops.models.formats.openvino.Layer`.

    Examples:
        >>> from splitops.spec.operators import schema
        >>> data = Fact(shape=(2, 7))
        >>> node = SplitNode(schema=schema("Split", 18), attributes={"num_outputs": 2, "axis": 1},
        ...                  facts=(data,), outputs=("a", "b"))
        >>> node.inference.parts
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
        return f"SplitNode({self}{place})"

    @property
    def operator(self) -> str:
        """The name of the operator for messages, with its version unless ``unread`` is set."""
        return str(self.schema) if self.unread is None else self.schema.name

    @property
    def binding(self) -> Binding | None:
        """The axis and the division of the valid node, as a :class:`Binding`; None if ``error`` is set."""
        return None if self.error is not None else self.bind()

    @property
    def axis(self) -> int | None:
        """The axis, in [0, rank) if the rank is known; None if it is unknown or ``error`` is set."""
        return None if self.error is not None else self.bind().axis

    @property
    def division(self) -> Division | None:
        """How the axis is divided; None if that is not completely known or ``error`` is set."""
        return None if self.error is not None else self.bind().division

    @property
    def size(self) -> Dim | None:
        """The size of the axis; None if the axis or the rank is unknown or ``error`` is set."""
        data, axis = self.facts[0] if self.facts else None, self.axis
        return None if axis is None or data is None or data.shape is None else data.shape[axis]

    @property
    def implied_size(self) -> Dim | None:
        """The size of the axis, which the lengths may narrow.

        None if the axis or the rank is unknown or ``error`` is set.
        """
        shape, axis = None if self.inference is None else self.inference.data, self.axis
        return None if axis is None or shape is None else shape[axis]

    @property
    def inference(self) -> Inference | None:
        """The inferred shapes of the data and of the outputs; None if ``error`` is set."""
        return None if isinstance(self._inferred, SplitError) else self._inferred

    @property
    def error(self) -> SplitError | None:
        """The violation of a rule, or the reason why the node cannot be read; None if the node is valid."""
        return self._inferred if isinstance(self._inferred, SplitError) else None

    @property
    def faults(self) -> Sequence[SplitError]:
        """All independent rule violations of the node, ``error`` first."""
        error, schema = self.error, self.as_written
        if error is None or self.unread is not None:
            return () if error is None else (error,)
        found = find_faults(
            schema or self.schema,
            self.attributes,
            self.facts,
            outputs=len(self.outputs),
            where=self.where,
            first=error if schema is None else None,
        )
        # A node with the attributes of another version is checked by the rules of that version.
        return (error, *(one for one in found if one.message != error.message))

    def bind(self) -> Binding:
        """Check the node, and return its axis and division.

        Raises:
            RuleError: the node violates a rule of its version, or the opset does not have the operator.
            ModelError: the node cannot be read.
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
        """The inferred facts of the lengths input, or None if the node does not have it."""
        for source in self.schema.lengths:
            if source.kind is SourceKind.INPUT:
                index = self.schema.input_index(source.name)
                return self.facts[index] if index < len(self.facts) else None
        return None

    @property
    def as_written(self) -> OperatorSchema | None:
        """The newest version with all attributes of the node; None if ``schema`` has them or no version does.

        It is also None if ``unread`` is set.

        Models whose opset was changed by hand keep the attributes of another version: ``num_outputs`` before
        opset 18, ``split`` since opset 13.

        Examples:
            >>> from splitops.spec.operators import schema
            >>> data, given = Fact(shape=(7,)), {"num_outputs": 2}
            >>> node = SplitNode(schema=schema("Split", 13), attributes=given, facts=(data,),
            ...                  outputs=("a", "b"))
            >>> str(node.as_written)
            'Split-18'
        """
        if self.unread is not None or _has_attributes(self.schema, self.attributes):
            return None
        schemas = reversed(history(self.schema.name, self.schema.domain))
        return next((schema for schema in schemas if _has_attributes(schema, self.attributes)), None)

    @property
    def may_be_unbind(self) -> bool:
        """Whether the node sets keepdims = 0 and chunks that are or may be chunks of 1.

        PyTorch exports a scripted ``unbind`` like this. In the specification, keepdims has no effect if the
        input ``split`` is set; PyTorch and onnxruntime drop the axis. splitops runs the node as specified,
        and rewrites it only if the user requests it.

        Examples:
            >>> from splitops.spec.operators import schema
            >>> row, data, given = schema("SplitToSequence", 13), Fact(shape=(2, 3)), {"keepdims": 0}
            >>> one, two = Fact(shape=(), value=1), Fact(shape=(), value=2)
            >>> nodes = [SplitNode(schema=row, attributes=given, facts=facts, outputs=("s",))
            ...          for facts in ((data, one), (data, two), (data,))]
            >>> [node.may_be_unbind for node in nodes]
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
"""Advice for a split node with :attr:`SplitNode.may_be_unbind`, for messages."""


def _has_attributes(schema: OperatorSchema, attributes: Iterable[str]) -> bool:
    return {attribute.name for attribute in schema.attributes}.issuperset(attributes)
