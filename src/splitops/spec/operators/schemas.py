"""Data classes for operator schemas: attributes, inputs, outputs, types and rules of one operator version."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum
from functools import cached_property

from splitops.common.notebooks import format_html_table
from splitops.spec.elements.types import ElementType
from splitops.spec.sizes.rules import SizeRule


class AttributeType(StrEnum):
    """The type of an attribute: an integer or a list of integers."""

    INT = "INT"
    INTS = "INTS"


class Option(StrEnum):
    """Whether an input or output occurs once, at most once, or a variable number of times."""

    SINGLE = "Single"
    OPTIONAL = "Optional"
    VARIADIC = "Variadic"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """An attribute of an operator.

    Attributes:
        name: name in a node.
        type: INT or INTS.
        required: whether a node must set it.
        default: default value in the published schema, or None if it has none.
        minimum: minimum of each integer, or None if the operator has none.
    """

    name: str
    type: AttributeType = AttributeType.INT
    required: bool = False
    default: int | None = None
    minimum: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """An input or output of an operator.

    Attributes:
        name: name in the specification.
        type: name of a type constraint, or a type such as ``"tensor(int64)"``.
        option: single, optional or variadic.
        ranks: permitted ranks, or None for any rank.
        minimum: minimum of each element, or None if the operator has none.
        differentiable: whether ONNX declares it differentiable; None if ONNX declares nothing.
    """

    name: str
    type: str
    option: Option = Option.SINGLE
    ranks: tuple[int, ...] | None = None
    minimum: int | None = None
    differentiable: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeConstraint:
    """The permitted element types of a type name in the specification.

    Attributes:
        name: type name, for example ``"T"``.
        types: permitted element types.
        sequence: whether the type is a sequence of such tensors.
        description: description in the published schema or specification.
    """

    name: str
    types: frozenset[ElementType]
    sequence: bool = False
    description: str = ""


def describe_item(item: Attribute | Parameter) -> str:
    """Return the constraints on an attribute, input or output as text, without its type.

    Examples:
        >>> describe_item(Attribute(name="axis", default=0))
        'optional, default 0'
    """
    words = []
    if isinstance(item, Parameter):
        words.append(item.option.lower())
        if item.ranks is not None:
            words.append("rank " + " or ".join(map(str, item.ranks)))
    else:
        words.append("required" if item.required else "optional")
        if item.default is not None:
            words.append(f"default {item.default}")
    if item.minimum is not None:
        words.append(f">= {item.minimum}")
    return ", ".join(words)


class SourceKind(Enum):
    """Where a node sets a value."""

    ATTRIBUTE = "attribute"
    INPUT = "input"
    OUTPUTS = "number of declared outputs"


@dataclass(frozen=True, slots=True)
class ValueSource:
    """Where a node sets the axis, the lengths, the number of parts or ``keepdims``.

    Attributes:
        kind: whether it is an attribute, an input, or the number of declared outputs.
        name: name of the attribute or input, or of the argument that sets the number of outputs of a call.
    """

    kind: SourceKind
    name: str

    def __str__(self) -> str:
        return self.kind.value if self.kind is SourceKind.OUTPUTS else f"{self.kind.value} {self.name!r}"


@dataclass(frozen=True, kw_only=True)
class OperatorSchema:
    """The definition of one operator version, from which binding, inference and checks are derived.

    Attributes:
        name: name of the operator, for example ``"Split"``.
        domain: ``""`` (ai.onnx) or ``"openvino"``.
        since_version: opset that introduced this version.
        attributes: attributes of a node.
        inputs: inputs, in order.
        outputs: outputs, in order.
        type_constraints: permitted types by type name.
        axis: where a node sets the axis.
        default_axis: axis of a node that does not set it; None if the node must set it.
        lengths: places where a node may set a list of lengths. It may use only one of them.
        lengths_rule: size rule of a list of lengths.
        scalar_rule: size rule of a scalar instead of a list, or None if a scalar is an error.
        count: where a node without lengths sets the number of parts, or None if it cannot.
        count_rule: size rule of the number of parts.
        default_chunk: chunk size of a node that sets neither; None if it must set one of them.
        exclusive: whether lengths and the number of parts exclude each other.
        keepdims: where a node sets whether parts of size 1 keep the axis, or None if parts always keep it.
        category: category of the operator in OpenVINO.
        shape_inference: whether the published operator infers output types and shapes.
        support_level: support level in ONNX.
        deprecated: whether ONNX has deprecated it.
        source: URL of the document that defines it.
        notes: cases in which that document is silent or contradicts itself, with the decisions of splitops.
    """

    name: str
    domain: str
    since_version: int
    attributes: tuple[Attribute, ...]
    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]
    type_constraints: tuple[TypeConstraint, ...]
    axis: ValueSource
    default_axis: int | None = None
    lengths: tuple[ValueSource, ...] = ()
    lengths_rule: SizeRule = SizeRule.EXPLICIT
    scalar_rule: SizeRule | None = None
    count: ValueSource | None = None
    count_rule: SizeRule | None = None
    default_chunk: int | None = None
    exclusive: bool = False
    keepdims: ValueSource | None = None
    category: str | None = None
    shape_inference: bool = True
    support_level: str | None = None
    deprecated: bool = False
    source: str = ""
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}-{self.since_version}"

    def __repr__(self) -> str:
        inputs = ", ".join(
            f"{parameter.name}?" if parameter.option is Option.OPTIONAL else parameter.name
            for parameter in self.inputs
        )
        attributes = "".join(f", {attribute.name}=" for attribute in self.attributes)
        return f"OperatorSchema({self.domain or 'ai.onnx'} {self}({inputs}{attributes}))"

    def _repr_html_(self) -> str:
        rows = [
            *(("attribute", each.name, each.type.value, describe_item(each)) for each in self.attributes),
            *(("input", each.name, each.type, describe_item(each)) for each in self.inputs),
            *(("output", each.name, each.type, describe_item(each)) for each in self.outputs),
        ]
        title = f"{self.domain or 'ai.onnx'} {self}, since opset {self.since_version}"
        return format_html_table(title, ("", "name", "type", "description"), rows)

    def __hash__(self) -> int:
        return hash((self.domain, self.name, self.since_version))  # fast, since every call looks up a schema

    @cached_property
    def gives_sequence(self) -> bool:
        """Whether the parts are the elements of one sequence, not separate outputs."""
        return self.outputs[0].option is not Option.VARIADIC

    @property
    def count_attribute(self) -> str | None:
        """The name of the attribute with the number of parts, or None if no attribute sets it."""
        return self.count.name if self.count is not None and self.count.kind is SourceKind.ATTRIBUTE else None

    @property
    def size_rules(self) -> tuple[SizeRule, ...]:
        """The size rules that a node of this version can use."""
        rules = [self.lengths_rule] if self.lengths else []
        if self.lengths_rule is SizeRule.REMAINDER:
            rules.insert(0, SizeRule.EXPLICIT)
        rules += [rule for rule in (self.scalar_rule, self.count_rule) if rule is not None]
        return tuple(dict.fromkeys(rules))

    def attribute(self, name: str) -> Attribute | None:
        """Return the attribute called ``name``, or None if there is none."""
        return next((attribute for attribute in self.attributes if attribute.name == name), None)

    def input_index(self, name: str) -> int:
        """Return the index of the input called ``name``, which must exist."""
        return next(i for i, parameter in enumerate(self.inputs) if parameter.name == name)

    def types_of(self, parameter: Parameter) -> frozenset[ElementType]:
        """Return the permitted element types of an input or output."""
        return next(c.types for c in self.type_constraints if c.name == parameter.type)
