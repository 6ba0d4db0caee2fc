"""The form of a row: what one version of one operator takes, gives and means."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum
from functools import cached_property

from splitops.ground.notebooks import format_html_table
from splitops.spec.elements.types import ElementType
from splitops.spec.sizes.rules import SizeRule


class AttributeType(StrEnum):
    """The type of an attribute."""

    INT = "INT"
    INTS = "INTS"


class Option(StrEnum):
    """How often an input or output may occur."""

    SINGLE = "Single"
    OPTIONAL = "Optional"
    VARIADIC = "Variadic"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """One attribute.

    Attributes:
        name: its name in a node.
        type: INT or INTS.
        required: whether a node must have it.
        default: the value that the published schema gives to a node without it; None where there is none.
        minimum: the least value that each integer may have, where the operator bounds it.
    """

    name: str
    type: AttributeType = AttributeType.INT
    required: bool = False
    default: int | None = None
    minimum: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One input or output.

    Attributes:
        name: its name in the specification.
        type: the name of a type constraint, or a type such as ``"tensor(int64)"``.
        option: single, optional or variadic.
        ranks: the ranks that it may have; None is any.
        minimum: the least value that each integer of it may have, where the operator bounds it.
        differentiable: whether ONNX says that it is differentiable; None if it says nothing.
    """

    name: str
    type: str
    option: Option = Option.SINGLE
    ranks: tuple[int, ...] | None = None
    minimum: int | None = None
    differentiable: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeConstraint:
    """The element types that a type name of the specification stands for.

    Attributes:
        name: for example ``"T"``.
        types: the element types.
        sequence: whether it is a sequence of such tensors.
        description: the specification's own sentence, where it is held against the published schema.
    """

    name: str
    types: frozenset[ElementType]
    sequence: bool = False
    description: str = ""


def describe_item(item: Attribute | Parameter) -> str:
    """Describe what an attribute, input or output must be, except for its type.

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


class Given(Enum):
    """Where a node sets something."""

    ATTRIBUTE = "attribute"
    INPUT = "input"
    OUTPUTS = "number of declared outputs"


@dataclass(frozen=True, slots=True)
class Source:
    """Where axis, lengths, number of parts or keepdims come from.

    Attributes:
        given: an attribute, an input, or the number of declared outputs.
        name: of the attribute or input; of the argument by which a call says how many outputs are declared.
    """

    given: Given
    name: str

    def __str__(self) -> str:
        return self.given.value if self.given is Given.OUTPUTS else f"{self.given.value} {self.name!r}"


@dataclass(frozen=True, kw_only=True)
class OperatorSchema:
    """One version of one operator, as data. Everything else in splitops reads this row.

    Attributes:
        name: the operator's name, for example ``"Split"``.
        domain: ``""`` (ai.onnx) or ``"openvino"``.
        since_version: the opset that introduced this version.
        attributes: the attributes of a node.
        inputs: the inputs, in order.
        outputs: the outputs, in order.
        type_constraints: what the type names of inputs and outputs stand for.
        axis: where the axis comes from.
        default_axis: the axis of a node that sets none; None if the node has to set it.
        lengths: where a 1-D list of lengths may be given; at most one of these places.
        lengths_rule: the size rule of such a list.
        scalar_rule: the size rule of a scalar in its place; None where a scalar is an error.
        count: where the number of parts is given, for a node without lengths.
        count_rule: the size rule of that number.
        default_chunk: chunk size of a node that gives neither; None where one must be given.
        exclusive: whether lengths and the number of parts exclude each other.
        keepdims: where it is given that parts of size 1 lose the axis; None if they never do.
        category: OpenVINO's category of the operator.
        shape_inference: whether the published operator infers its output types and shapes.
        support_level: ONNX's support level.
        deprecated: whether ONNX has deprecated it.
        source: the document that defines it.
        notes: where that document is silent or contradicts itself, and what splitops does.
    """

    name: str
    domain: str
    since_version: int
    attributes: tuple[Attribute, ...]
    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]
    type_constraints: tuple[TypeConstraint, ...]
    axis: Source
    default_axis: int | None = None
    lengths: tuple[Source, ...] = ()
    lengths_rule: SizeRule = SizeRule.EXPLICIT
    scalar_rule: SizeRule | None = None
    count: Source | None = None
    count_rule: SizeRule | None = None
    default_chunk: int | None = None
    exclusive: bool = False
    keepdims: Source | None = None
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
        return format_html_table(title, ("", "name", "type", "what"), rows)

    def __hash__(self) -> int:
        return hash((self.domain, self.name, self.since_version))  # rows are asked for with every call

    @cached_property
    def gives_sequence(self) -> bool:
        """Whether the parts are the elements of one sequence, instead of outputs of their own."""
        return self.outputs[0].option is not Option.VARIADIC

    @property
    def count_attribute(self) -> str | None:
        """The attribute that holds the number of parts; None if it is given elsewhere."""
        return self.count.name if self.count is not None and self.count.given is Given.ATTRIBUTE else None

    @property
    def size_rules(self) -> tuple[SizeRule, ...]:
        """The size rules that a node of this version can ask for."""
        rules = [self.lengths_rule] if self.lengths else []
        if self.lengths_rule is SizeRule.REMAINDER:
            rules.insert(0, SizeRule.EXPLICIT)
        rules += [rule for rule in (self.scalar_rule, self.count_rule) if rule is not None]
        return tuple(dict.fromkeys(rules))

    def attribute(self, name: str) -> Attribute | None:
        """Return the attribute of this name; None where the version has none."""
        return next((attribute for attribute in self.attributes if attribute.name == name), None)

    def input_index(self, name: str) -> int:
        """Return the position of an input."""
        return next(i for i, parameter in enumerate(self.inputs) if parameter.name == name)

    def types_of(self, parameter: Parameter) -> frozenset[ElementType]:
        """Return the element types that an input or output may have."""
        return next(c.types for c in self.type_constraints if c.name == parameter.type)
