"""The ways to write a split node in an operator version, or with other nodes.

Binding reduces a split node to its meaning: axis, division, parts. Each single split node with a constant
division that may replace it is bound again and compared, so that this module does not repeat the rules of
any version.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache, cached_property
from itertools import accumulate, pairwise
from typing import Final

from splitops.errors import ModelError, Rule, RuleError, rule_error
from splitops.models.split_nodes.operands import describe, make_operand_facts
from splitops.models.split_nodes.split_node import UNBIND_REPAIRS, Origin, SplitNode
from splitops.models.split_nodes.static_facts import MAX_OUTPUTS, SplitFacts, read_split_facts
from splitops.models.split_nodes.styles import ConversionTarget, SplitStyle
from splitops.spec.elements.types import ELEMENT_TYPES, ElementType, from_onnx_name
from splitops.spec.operators import OperatorSchema
from splitops.spec.operators.schemas import SourceKind
from splitops.spec.sizes.arithmetic import (
    Division,
    compute_part_size,
    compute_part_sizes,
    count_parts,
)
from splitops.spec.sizes.arithmetic import (
    describe as describe_division,
)
from splitops.spec.sizes.rules import SizeRule
from splitops.splitting.binding import Fact, bind

_INT64: Final = ELEMENT_TYPES["int64"]


class Kind(StrEnum):
    """The kind of nodes that replace a split."""

    NODE = "lengths"
    """One split node. The graph may compute its lengths at run time."""
    PARTS = "parts"
    """A Split, whose parts replace the elements of a sequence."""
    SEQUENCE = "sequence"
    """A Split, and a SequenceConstruct of its parts; a SequenceEmpty if there are none."""
    TREE = "tree"
    """A tree of Splits, each with at most as many outputs as the runtime accepts."""
    SLICES = "slices"
    """A Slice for each part."""
    GATHERS = "gathers"
    """A Gather for each part."""
    CASTS = "casts"
    """Casts around one split of another element type, which represents every value exactly."""


@dataclass(frozen=True, slots=True)
class Way:
    """A way to write a split for a target, with the same parts on every valid input.

    Attributes:
        kind: kind of the nodes.
        schema: version of the split node; None for Slices, Gathers, trees and sequences of parts.
        axis: axis to set; None if it is unknown. In ONNX, a reference to an attribute of the function stays.
        lengths: division to set, or to compute lengths or bounds from; None if the lengths are known only at
            run time, or if ``bounds`` are set.
        outputs: number of outputs to declare, including unused ones that the original node does not have. For
            a tree, the maximum number of outputs of each Split.
        is_kept: whether the node already has this form.
        is_computed: whether other nodes compute or convert the lengths.
        bounds: start and end of each part; negative bounds count from the end, and None is the end itself.
            If empty, the graph computes them.
        cast_type: element type of the data between the Casts.
        lengths_type: element type of lengths that are computed or known only at run time.
        squeeze: whether the axis is removed from the parts; None if that is unknown.
    """

    kind: Kind
    schema: OperatorSchema | None
    axis: int | None
    lengths: Division | None
    outputs: int
    is_kept: bool = False
    is_computed: bool = False
    bounds: tuple[tuple[int | None, int | None], ...] = ()
    cast_type: ElementType | None = None
    lengths_type: ElementType | None = None
    squeeze: bool | None = False

    @property
    def is_one_node(self) -> bool:
        """Whether the result is one node, without nodes that compute its lengths."""
        return self.kind is Kind.NODE and not self.is_computed

    def __str__(self) -> str:
        axis = "?" if self.axis is None else self.axis
        if self.schema is None:
            marks = [["end" if mark is None else mark for mark in bounds] for bounds in self.bounds[:8]]
            bounds = ", ".join(f"{begin}:{end}" for begin, end in marks)
            more = ", ..." if len(self.bounds) > 8 else ""
            bounds = bounds + more or "bounds computed"
            return f"{self.kind.title()[:-1]} x {self.outputs}(axis={axis}, {bounds})"
        lengths = None if self.is_computed else self.lengths
        text = describe(self.schema, self.axis, lengths, self.outputs, squeeze=self.squeeze)
        if self.is_computed:
            text = text.replace("at run time", "computed")
        return f"{text} on {self.cast_type}" if self.cast_type is not None else text


def iter_ways(
    split_node: SplitNode,
    target: ConversionTarget,
    prefer: SplitStyle = SplitStyle.SAME,
    *,
    must_differ: bool = False,
    keep: bool = True,
    max_outputs: int | None = None,
) -> Iterator[Way]:
    """Yield the valid ways to write a split node for a target, the simplest first.

    Args:
        split_node: the split node.
        target: target of the conversion.
        prefer: style that comes first.
        must_differ: whether a runtime would merge the node with another one if it set no lengths; see
            :mod:`splitops.models.quirks`.
        keep: whether the unchanged node is included. If it can stay and the style is ``SAME``, it is then the
            only way, unless ``must_differ`` excludes it.
        max_outputs: maximum number of outputs of each Split in a tree; None leaves trees out.

    Raises:
        RuleError: the split node is invalid, ``keep`` is set but the ambiguous node cannot stay, or a node to
            rewrite for ONNX has an attribute other than the axis and the lengths that refers to an attribute
            of its function.
        ModelError: the split node cannot be read.

    Examples:
        >>> from splitops.spec.operators import schema
        >>> node = SplitNode(schema=schema("Split", 18), attributes={"num_outputs": 2},
        ...                  facts=(Fact(shape=(5,)),), outputs=("a", "b"))
        >>> for way in iter_ways(node, ConversionTarget("", 18), SplitStyle.LENGTHS, keep=False):
        ...     print(way)
        Split-18(axis=0, split=[3, 2])
        Split-18(axis=0, num_outputs=2)
        Slice x 2(axis=0, 0:3, 3:5)
        Gather x 2(axis=0, 0:3, 3:5)
    """
    yield from _Search(split_node, target, prefer, must_differ, max_outputs).iter_ways(keep=keep)


def get_first_way(
    split_node: SplitNode,
    target: ConversionTarget,
    prefer: SplitStyle = SplitStyle.SAME,
    *,
    must_differ: bool = False,
) -> Way:
    """Return the first way of :func:`iter_ways` that a conversion may use.

    In OpenVINO, and for a split that returns a sequence, a conversion writes only a single split node.

    Raises:
        RuleError: as for :func:`iter_ways`; or there is no way to write the split node. The error then names
            a rule that excludes one of the ways.
        ModelError: the split node cannot be read.

    Examples:
        >>> from splitops.spec.operators import schema
        >>> data = Fact(ELEMENT_TYPES["float32"], (5,))
        >>> node = SplitNode(schema=schema("Split", 18), attributes={"num_outputs": 4}, facts=(data,),
        ...             outputs=("a", "b", "c", "d"))
        >>> print(get_first_way(node, ConversionTarget("", 11)))
        Split-11(axis=0, split=[2, 2, 1, 0])
        >>> print(get_first_way(node, ConversionTarget("openvino")))
        VariadicSplit-1(axis=0, split_lengths=[2, 2, 1, 0])
    """
    search = _Search(split_node, target, prefer, must_differ)
    one_node = bool(target.domain) or split_node.schema.gives_sequence
    for way in search.iter_ways():
        if way.kind is Kind.NODE or not one_node:
            return way
    reasons = [search.against[minor] for minor in (False, True) if minor in search.against]
    if reasons:
        raise reasons[0]
    got, expected = f"there is no way to write {split_node.schema} for it", "it would need too many nodes"
    raise rule_error(str(target), Rule.OPERATOR_VERSION, got, expected, where=split_node.where)


def find_way(
    split_node: SplitNode, target: ConversionTarget, kind: Kind, max_outputs: int | None = None
) -> Way:
    """Return the first way of a kind to rewrite a split node. A single node sets or computes its lengths.

    Raises:
        ModelError: there is no such way (the message is the reason), or the split node cannot be read.
        RuleError: as for :func:`iter_ways`.

    Examples:
        >>> from splitops.spec.operators import schema
        >>> node = SplitNode(schema=schema("Split", 18), attributes={"num_outputs": 3},
        ...                  facts=(Fact(shape=(7,)),), outputs=("a", "b", "c"))
        >>> find_way(node, ConversionTarget("", 18), Kind.TREE, max_outputs=2).lengths.lengths
        (3, 3, 1)
        >>> find_way(node, ConversionTarget("", 11), Kind.GATHERS)
        Traceback (most recent call last):
        ...
        splitops.errors.ModelError: positions can be computed only in opset 12 or later
    """
    search = _Search(split_node, target, SplitStyle.LENGTHS, True, max_outputs)
    for way in search.iter_ways(keep=False):
        sets_lengths = way.lengths is not None and way.lengths.rule is SizeRule.EXPLICIT
        if way.kind is kind and (not way.is_one_node or sets_lengths):
            return way
    default = _REASONS.get(kind, f"{split_node.operator} cannot set these lengths")
    raise ModelError(search.reasons.get(kind, default))


def make_unbind_error(split_node: SplitNode, rule: Rule) -> RuleError:
    """Return the error for a split node that the specification and the runtimes interpret differently."""
    return rule_error(
        str(split_node.schema),
        rule,
        "keepdims = 0 is set with chunks of 1",
        f"PyTorch and onnxruntime interpret that differently from the specification; {UNBIND_REPAIRS}",
        where=split_node.where,
    )


def _reject_references(split_node: SplitNode, schema: OperatorSchema) -> None:
    """Raise RuleError if an attribute of a split is a reference to an attribute of the enclosing function.

    References for the axis and the lengths are allowed.
    """
    movable = {source.name for source in split_node.schema.lengths} | {schema.axis.name}
    for name, reference in split_node.references.items():
        if name not in movable:
            raise rule_error(
                str(schema),
                Rule.OPERATOR_VERSION,
                f"{name} refers to attribute {reference!r} of the function, which each call may set",
                f"{schema} needs its value: inline the function, or set {name} in it",
                where=replace(split_node.where, attribute=name),
            )


@dataclass
class _Search:
    """Finds the ways to write a split for a target, and the errors that exclude other ways."""

    split_node: SplitNode
    target: ConversionTarget
    prefer: SplitStyle
    must_differ: bool
    max_outputs: int | None = None
    against: dict[bool, RuleError] = field(default_factory=dict)
    """The first error of each kind, keyed by whether it is minor. A minor one is reported only if alone."""
    reasons: dict[Kind, str] = field(default_factory=dict)
    """The reason why there is no way of a kind of several nodes, if it differs from :data:`_REASONS`."""

    def __post_init__(self) -> None:
        self.binding = self.split_node.bind()
        self.schemas = self.target.list_schemas(self.split_node.schema)
        self.outputs = len(self.split_node.outputs)
        shape, axis = self.binding.data.shape, self.binding.axis
        size = None if shape is None or axis is None else shape[axis]
        self.size = size if isinstance(size, int) else None

    def iter_ways(self, *, keep: bool = True) -> Iterator[Way]:
        """Yield the ways, the simplest first.

        If the node can stay, yield only the way that keeps it for an ambiguous unbind, and for the style SAME
        unless ``must_differ`` excludes it.
        """
        kept, schema = self._find_unchanged() if keep else None, self.schemas[0]
        if kept is not None:
            taken = self.must_differ and kept.lengths is not None and kept.lengths.rule is schema.count_rule
            if self.split_node.may_be_unbind or (self.prefer is SplitStyle.SAME and not taken):
                yield kept
                return
        if keep and self.split_node.may_be_unbind:
            raise make_unbind_error(self.split_node, Rule.OPERATOR_VERSION)
        if not self.target.domain:
            _reject_references(self.split_node, schema)
        for way in self._iter_rewrites():
            same = kept is not None and way.is_one_node and way.lengths == kept.lengths
            if kept is not None and (way.schema is None or same):
                yield kept
            else:
                yield way
            kept = None
        if kept is not None:
            yield kept

    def _find_unchanged(self) -> Way | None:
        """Return the way that keeps the node unchanged.

        Return None if the target has another operator, rejects the node, or interprets it differently.
        """
        split_node, binding, schema = self.split_node, self.binding, self.schemas[0]
        if schema.domain != split_node.schema.domain or schema.name != split_node.schema.name:
            return None
        try:
            again = bind(
                schema, split_node.attributes, split_node.facts, outputs=self.outputs, where=split_node.where
            )
        except RuleError:
            return None
        if replace(again, schema=binding.schema) != binding:
            return None
        axis, squeeze = binding.axis, binding.squeeze
        return Way(Kind.NODE, schema, axis, binding.division, self.outputs, is_kept=True, squeeze=squeeze)

    def _iter_rewrites(self) -> Iterator[Way]:
        binding = self.binding
        for schema in self.schemas:
            self._supports_type(schema, binding.data.type)
        if binding.division is None:
            yield from self._iter_runtime_lengths()
        else:
            for division in self._iter_divisions():
                for schema in self.schemas:
                    yield from self._iter_nodes(schema, division, binding.data)
            yield from self._iter_computed_lengths()
        if binding.schema.gives_sequence:
            yield from self._iter_sequences()
        elif binding.squeeze is False:
            yield from self._iter_trees()
            yield from self._iter_slices()
            yield from self._iter_casts() if not self.target.domain else ()

    # One node

    def _iter_divisions(self) -> Iterator[Division]:
        """Yield divisions that may result in the same parts, those of the preferred style first."""
        division = self.binding.division
        assert division is not None
        same, lengths = [division], list(self._iter_lengths(division))
        counts = list(self._iter_counts(division))
        remainder = division.rule is SizeRule.REMAINDER
        orders = {
            SplitStyle.SAME: same + (lengths + counts if remainder else counts + lengths),
            SplitStyle.LENGTHS: lengths + same + counts,
            SplitStyle.COUNT: counts + same + lengths,
        }
        yield from dict.fromkeys(orders[self.prefer])

    def _iter_lengths(self, division: Division) -> Iterator[Division]:
        if division.rule is SizeRule.EXPLICIT:
            yield division
        elif self.size is not None and (wanted := self._count_parts(division, self.size)) <= _MAX_LENGTHS:
            sizes = compute_part_sizes(division, self.size, wanted)
            rest = self.size - sum(sizes)
            # Undeclared parts become one more part, because the lengths must sum to the size.
            yield Division(SizeRule.EXPLICIT, lengths=sizes + ((rest,) if rest or not sizes else ()))

    def _count_parts(self, division: Division, size: int) -> int:
        count = count_parts(division, size)
        return count if self.binding.schema.gives_sequence else min(count, self.outputs)

    def _iter_counts(self, division: Division) -> Iterator[Division]:
        """Yield divisions by a number of parts that may result in the same parts."""
        if division.rule in (SizeRule.EVEN, SizeRule.CEIL):
            count = division.count
        elif self.size is not None and not self.binding.schema.gives_sequence:
            count = count_parts(division, self.size)
        else:
            return
        for rule in dict.fromkeys(schema.count_rule for schema in self.schemas):
            if rule is not None and not (rule is SizeRule.CEIL and self._may_end_empty(count)):
                yield Division(rule, count=count)

    def _may_end_empty(self, count: int) -> bool:
        """Return whether the last of ``count`` parts by the ceil rule may be empty.

        Some runtimes reject num_outputs then.
        """
        if self.size is None:
            return True
        return compute_part_size(Division(SizeRule.CEIL, count=count), self.size, count - 1) == 0

    def _iter_nodes(
        self, schema: OperatorSchema, division: Division, data: Fact, kind: Kind = Kind.NODE
    ) -> Iterator[Way]:
        """Yield the way to set ``division`` on a node of version ``schema`` if it is valid and equivalent."""
        if division.rule not in schema.size_rules:
            uneven = "is uneven" if self.size is not None else "divides an axis of unknown size"
            got = f"{describe_division(division, self._get_subject(division))} {uneven}"
            knows = f"{schema} has only the rules {', '.join(rule.value for rule in schema.size_rules)}"
            rule = Rule.PARTS_DIVISIBLE if division.rule is SizeRule.CEIL else Rule.LENGTHS_MISSING
            self._add_error(schema, rule, got, knows, minor=True)
            return
        if self.must_differ and division.rule is schema.count_rule:
            got = "two Splits of the same data differ only in their number of outputs"
            taken = "onnxruntime would merge them: set the lengths"
            self._add_error(schema, Rule.LENGTHS_MISSING, got, taken, minor=True)
            return
        binding = self.binding
        outputs = self._count_outputs(schema, division)
        if outputs > self.outputs + MAX_OUTPUTS:
            return  # too many unused outputs for a graph
        attributes, inputs = make_operand_facts(schema, binding.axis or 0, division, squeeze=binding.squeeze)
        shape = data.shape if binding.axis is not None else None
        facts = [replace(data, shape=shape), *inputs[1:]]
        try:
            again = bind(schema, attributes, facts, outputs=outputs, where=binding.where)
        except RuleError as error:
            self.against.setdefault(False, error)
            return
        if again.squeeze != binding.squeeze:
            got = "the parts do not have the axis" if binding.squeeze else "the parts may have the axis"
            self._add_error(schema, Rule.OPERATOR_VERSION, got, f"the parts of {schema} differ")
            return
        if again.division is None or not self._has_same_parts(again.division):
            return
        cast_type = data.type if kind is Kind.CASTS else None
        yield Way(kind, schema, binding.axis, division, outputs, cast_type=cast_type, squeeze=binding.squeeze)

    def _count_outputs(self, schema: OperatorSchema, division: Division) -> int:
        if schema.gives_sequence:
            return 1
        if division.rule in (SizeRule.EXPLICIT, SizeRule.REMAINDER):
            return len(division.lengths)
        if schema.count is not None and schema.count.kind is SourceKind.ATTRIBUTE and not schema.domain:
            return min(self.outputs, division.count)
        return division.count

    def _has_same_parts(self, division: Division) -> bool:
        """Return whether a division certainly has the parts of the split node for every valid size."""
        present = self.binding.division
        assert present is not None
        if division == present:
            return True
        if self.size is not None:
            counts = count_parts(division, self.size), count_parts(present, self.size)
            if self.binding.schema.gives_sequence and len(set(counts)) > 1:
                return False
            wanted = self._count_parts(present, self.size)
            return compute_part_sizes(division, self.size, wanted) == compute_part_sizes(
                present, self.size, wanted
            )
        return False

    # Lengths known only at run time

    def _iter_runtime_lengths(self) -> Iterator[Way]:
        binding = self.binding
        for schema in self.schemas:
            if not self._supports_type(schema, binding.data.type):
                continue
            kinds = self._get_lengths_types(schema)
            if not kinds:
                overridable = Origin.DEFAULT in self.split_node.origins[1:]
                kind_of_value = "an overridable initializer" if overridable else "known only at run time"
                got = f"the lengths are {kind_of_value}"
                self._add_error(schema, Rule.LENGTHS_MISSING, got, f"{schema} needs them as constants")
                continue
            own = self.split_node.lengths
            given = own.type if own is not None else _INT64
            kind = given if given in kinds else _find_exact_type(kinds, self.size)
            if kind is None:
                got = f"lengths of type {given} can be up to {'any size' if self.size is None else self.size}"
                taken = f"{schema} accepts {', '.join(sorted(map(str, kinds)))}, which may be inexact"
                self._add_error(schema, Rule.LENGTHS_DTYPE, got, taken)
                continue
            # Only OpenVINO interprets a length of -1 as the remainder.
            resolve = binding.schema.lengths_rule is SizeRule.REMAINDER is not schema.lengths_rule
            if resolve and kind is not _INT64:
                got = "a length that is known only at run time may be -1"
                taken = f"{schema} does not accept int64 lengths, which are needed to compute the remainder"
                self._add_error(schema, Rule.LENGTHS_MISSING, got, taken)
                continue
            way = Way(Kind.NODE, schema, binding.axis, None, binding.outputs or 1, squeeze=binding.squeeze)
            yield replace(way, is_computed=resolve or kind is not given, lengths_type=kind)

    def _get_lengths_types(self, schema: OperatorSchema) -> frozenset[ElementType]:
        for source in schema.lengths:
            if source.kind is SourceKind.INPUT:
                parameter = schema.inputs[schema.input_index(source.name)]
                if parameter.type == schema.inputs[0].type:  # the lengths have the type of the data
                    own = self.binding.data.type
                    return frozenset({own} if own is not None else ())
                return schema.types_of(parameter)
        return frozenset()

    def _iter_computed_lengths(self) -> Iterator[Way]:
        """Yield ways to write a node whose lengths the graph computes from the axis size at run time."""
        binding, division = self.binding, self.binding.division
        assert division is not None
        if self.size is not None or binding.schema.gives_sequence or division.rule is SizeRule.EXPLICIT:
            return
        count = count_parts(division, 0)
        if count > max(MAX_OUTPUTS, self.outputs):
            return
        for schema in self.schemas:
            if self._supports_type(schema, binding.data.type) and _INT64 in self._get_lengths_types(schema):
                way = Way(Kind.NODE, schema, binding.axis, division, count)
                yield replace(way, is_computed=True, lengths_type=_INT64)

    # Several nodes

    @cached_property
    def facts(self) -> SplitFacts | None:
        """The axis and the parts of the split, or None if too little is known or it may be an unbind."""
        return None if self.split_node.may_be_unbind else read_split_facts(self.binding)

    def _iter_sequences(self) -> Iterator[Way]:
        """Yield the way that writes a Split and a sequence of its parts."""
        sizes = None if self.facts is None else self.facts.elements
        kind = self.binding.data.type
        if self.facts is None or sizes is None:
            self.reasons[Kind.SEQUENCE] = "the number of its parts is known only at run time"
        elif kind not in get_onnx_types("SequenceConstruct", self.target.opset or 0):
            self.reasons[Kind.SEQUENCE] = f"SequenceConstruct does not support {kind or 'an unknown type'}"
        elif len(sizes) > MAX_OUTPUTS:
            self.reasons[Kind.SEQUENCE] = f"it has {len(sizes)} parts, more than {MAX_OUTPUTS}"
        else:
            lengths = Division(SizeRule.EXPLICIT, lengths=sizes)
            yield Way(Kind.SEQUENCE, None, self.facts.axis, lengths, 1, squeeze=self.facts.squeeze)

    def _iter_trees(self) -> Iterator[Way]:
        """Yield the way that writes a tree of Splits, each with at most ``max_outputs`` outputs."""
        sizes = None if self.facts is None else self.facts.sizes
        if self.facts is None or sizes is None:
            return
        if self.max_outputs is None or self.max_outputs < 2:
            self.reasons[Kind.TREE] = "a Split with one output has no parts"
        elif not self.facts.complete:
            self.reasons[Kind.TREE] = "its last parts are not declared"
        else:
            lengths = Division(SizeRule.EXPLICIT, lengths=sizes)
            yield Way(Kind.TREE, None, self.facts.axis, lengths, self.max_outputs)

    def _iter_slices(self) -> Iterator[Way]:
        """Yield the way that writes Slices and, in OpenVINO or since opset 12, the one that writes Gathers.

        In ONNX, the graph may compute their bounds at run time since opset 10. In OpenVINO, the Gathers have
        at most :data:`_MAX_POSITIONS` positions.
        """
        bounds, opset = self._compute_bounds(), self.target.opset or 0
        if self.target.domain:
            if bounds is not None and self.facts is not None and self.facts.sizes is not None:
                way = Way(Kind.SLICES, None, self.facts.axis, None, self.outputs, bounds=bounds)
                yield way
                if sum(self.facts.sizes) <= _MAX_POSITIONS:
                    yield replace(way, kind=Kind.GATHERS)
                else:
                    self.reasons[Kind.GATHERS] = f"its parts have more than {_MAX_POSITIONS} positions"
            else:
                self.reasons |= dict.fromkeys((Kind.SLICES, Kind.GATHERS), _UNKNOWN_SIZES)
            return
        if opset < _COMPUTED_POSITIONS:
            self.reasons[Kind.GATHERS] = (
                f"positions can be computed only in opset {_COMPUTED_POSITIONS} or later"
            )
        axis = self._find_slice_axis()
        division, rule = self.binding.division, self.binding.schema.lengths_rule
        if axis is None:
            return
        way = Way(Kind.SLICES, None, axis, None, self.outputs, bounds=bounds or ())
        if bounds is None:
            known = rule is SizeRule.EXPLICIT if division is None else division.count <= _MAX_ADDED
            if not known or opset < 10 or self.outputs > MAX_OUTPUTS:
                return
            way = replace(way, lengths=division)
        yield way
        if opset >= _COMPUTED_POSITIONS:
            yield replace(way, kind=Kind.GATHERS)

    def _compute_bounds(self) -> tuple[tuple[int | None, int | None], ...] | None:
        division = self.binding.division
        if division is None:
            return None
        if self.size is not None or division.rule is SizeRule.EXPLICIT:
            sizes = division.lengths
            if self.size is not None:
                sizes = compute_part_sizes(division, self.size, self._count_parts(division, self.size))
            return tuple(pairwise([0, *accumulate(sizes)]))
        if division.rule is SizeRule.REMAINDER:
            # Bounds after the remainder are counted from the end.
            at = division.lengths.index(-1)
            before = [0, *accumulate(division.lengths[:at])]
            after = [0, *accumulate(reversed(division.lengths[at + 1 :]))][::-1]
            # The end itself is None, because -0 is the beginning.
            marks: list[int | None] = [*before, *(-mark or None for mark in after)]
            return tuple(pairwise(marks))
        return None

    def _find_slice_axis(self) -> int | None:
        """Return the axis, or None if it is unknown, or if Slice does not support it or the element type."""
        binding, opset = self.binding, self.target.opset
        assert opset is not None
        own, axis = binding.data.type, binding.axis
        is_taken = own is None or own in get_onnx_types("Slice", opset)
        return axis if is_taken and axis is not None and (axis >= 0 or opset >= 11) else None

    # Another element type

    def _iter_casts(self) -> Iterator[Way]:
        binding, division = self.binding, self.binding.division
        element_type = binding.data.type
        if element_type is None or division is None or element_type.name not in _VALUE_BITS:
            return
        min_bits = _VALUE_BITS[element_type.name]
        for schema in self.schemas:
            taken = schema.types_of(schema.inputs[0])
            if element_type in taken:
                continue
            wide = [ELEMENT_TYPES[name] for name, bits in _FLOAT_BITS.items() if bits >= min_bits]
            cast_type = next((one for one in wide if one in taken), None)
            for candidate in self._iter_divisions() if cast_type is not None else ():
                yield from self._iter_nodes(
                    schema, candidate, replace(binding.data, type=cast_type), Kind.CASTS
                )

    # Errors

    def _supports_type(self, schema: OperatorSchema, element_type: ElementType | None) -> bool:
        taken = schema.types_of(schema.inputs[0])
        if element_type is None or element_type in taken:
            return True
        got = f"{schema.inputs[0].name} has element type {element_type}"
        self._add_error(
            schema, Rule.TYPE_UNSUPPORTED, got, f"{schema} accepts {', '.join(sorted(map(str, taken)))}"
        )
        return False

    def _get_subject(self, division: Division) -> str:
        schema = self.binding.schema
        lengths = division.rule in (SizeRule.EXPLICIT, SizeRule.REMAINDER, SizeRule.CHUNK)
        source = schema.lengths[0] if lengths and schema.lengths else schema.count
        return source.name if source is not None and source.name else "number of outputs"

    def _add_error(
        self, schema: OperatorSchema, rule: Rule, got: str, expected: str, *, minor: bool = False
    ) -> None:
        if minor not in self.against:
            self.against[minor] = rule_error(str(schema), rule, got, expected, where=self.split_node.where)


@cache
def get_onnx_types(operator: str, opset: int, name: str = "T") -> frozenset[ElementType]:
    """Return the element types that an ONNX operator at an opset accepts for the type variable ``name``."""
    from onnx.defs import get_schema

    constraints = get_schema(operator, opset, "").type_constraints
    names = next(c.allowed_type_strs for c in constraints if c.type_param_str == name)
    return frozenset(filter(None, map(from_onnx_name, names)))


_COMPUTED_POSITIONS: Final = 12
"""The first opset at which a graph can compute the indices of Gathers."""
_MAX_POSITIONS: Final = 1 << 24
"""Maximum number of constant positions in the Gathers that replace a split of OpenVINO."""
_MAX_LENGTHS: Final = 1 << 20
"""Maximum number of constant lengths that replace a number of parts, a chunk size or a remainder."""
_UNKNOWN_SIZES: Final = "the sizes of its parts are known only at run time"
_NO_BOUNDS: Final = "its bounds cannot be written, or Slice does not support the data"
_REASONS: Final = {Kind.TREE: _UNKNOWN_SIZES, Kind.SLICES: _NO_BOUNDS, Kind.GATHERS: _NO_BOUNDS}
"""The default reasons why there is no way of a kind."""

_VALUE_BITS: Final = {
    "bool": 1,
    **{f"{sign}int{bits}": bits for sign in ("", "u") for bits in (8, 16, 32)},
}
"""Types that Cast supports at every opset, with a number of significand bits that holds all their values."""

_FLOAT_BITS: Final = {"float16": 11, "float32": 24, "float64": 53}
"""Number of significand bits of float types, narrowest first. Integers up to this width are exact."""


_MAX_ADDED: Final = 1 << 62
"""Maximum number of parts whose bounds a graph computes: it is added to the size, which must fit in int64."""


def _find_exact_type(kinds: frozenset[ElementType], size: int | None) -> ElementType | None:
    """Return int64 if ``kinds`` has it, else a float type exact for every length up to ``size``, or None."""
    if _INT64 in kinds:
        return _INT64
    for kind in sorted(kinds, key=lambda kind: kind.bits):
        bits = _FLOAT_BITS.get(kind.name)
        if bits is not None and size is not None and size <= 1 << bits:
            return kind
    return None
