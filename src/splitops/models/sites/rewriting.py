"""One split, rewritten in another operator version: decided from the rows and the plan's own arithmetic.

A split node is bound in its own version, which reduces it to its meaning: axis, division, parts. Each way
to write this meaning for a target is tried in order, and what is set is bound again and compared, so that
no rule of any version is written down here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import accumulate, pairwise
from typing import Final

from splitops.errors import Rule, RuleError, rule_error
from splitops.models.sites.forms import Form, Method, SplitForm, Target
from splitops.models.sites.operands import attributes_and_inputs
from splitops.models.sites.site import UNBIND_REPAIRS, Origin, Site
from splitops.spec.elements.types import ELEMENT_TYPES, ElementType, from_onnx_name
from splitops.spec.operators import OperatorSchema
from splitops.spec.operators.schemas import Given
from splitops.spec.sizes.arithmetic import (
    Division,
    describe,
    part_count,
    part_size,
    part_sizes,
)
from splitops.spec.sizes.rules import SizeRule
from splitops.splitting.binding import Binding, Fact, bind

_INT64: Final = ELEMENT_TYPES["int64"]


def find_form(site: Site, target: Target, form: Form = Form.SAME, *, apart: bool = False) -> SplitForm:
    """Find the first form of a split node for a target that gives the same parts on every valid input.

    Args:
        site: the split node.
        target: what its model is converted to.
        form: which of equal forms is preferred.
        apart: whether a runtime would take the node for another one if it set no lengths, see
            :mod:`splitops.models.quirks.onnxruntime`.

    Raises:
        RuleError: the split node is invalid, or nothing declares it; the rule says what prevents the plainest
            form.

    Examples:
        >>> from splitops.spec.operators import schema
        >>> data = Fact(ELEMENT_TYPES["float32"], (5,))
        >>> site = Site(schema=schema("Split", 18), attributes={"num_outputs": 4}, facts=(data,),
        ...             outputs=("a", "b", "c", "d"))
        >>> find_form(site, Target("", 11)).division.lengths
        (2, 2, 1, 0)
        >>> find_form(site, Target("openvino")).row.name
        'VariadicSplit'
    """
    binding = site.bind()
    rows = target.rows(site.schema)
    kept = None
    if _is_kept(site, binding, rows[0]):
        outputs = len(site.outputs)
        kept = SplitForm(
            Method.KEPT, rows[0], binding.axis, binding.division, outputs, squeeze=binding.squeeze
        )
        taken = apart and _is_counted(rows[0], binding.division)
        if site.may_be_unbind or (form is Form.SAME and not taken):
            return kept
    if site.may_be_unbind:
        raise unbind_error(site, Rule.OPERATOR_VERSION)
    if not target.domain:
        _reject_references(site, rows[0])
    search = _Search(site, target, form, apart)
    found = next(search.forms(), None)
    if kept is None:
        if found is None:
            raise search.against.get(False) or search.against[True]
        return found
    # What stands there is kept unless one other node is preferred.
    if found is None or found.row is None:
        return kept
    same = found.method is Method.ONE_NODE and found.division == kept.division
    return kept if same else found


def find_forms(
    site: Site, target: Target, form: Form = Form.SAME, *, apart: bool = False
) -> Iterator[SplitForm]:
    """Yield every form of a split node for a target that gives the same parts, the plainest first.

    See :func:`find_form`.

    Examples:
        >>> from splitops.spec.operators import schema
        >>> site = Site(schema=schema("Split", 18), attributes={"num_outputs": 2}, facts=(Fact(shape=(5,)),),
        ...             outputs=("a", "b"))
        >>> [str(way.method) for way in find_forms(site, Target("", 18), Form.LENGTHS)]
        ['one node', 'one node', 'slices']
    """
    search = _Search(site, target, form, apart)
    if not target.domain:
        _reject_references(site, search.rows[0])
    yield from search.forms()


def unbind_error(site: Site, rule: Rule) -> RuleError:
    """Return the rejection of a split node that the text and the runtimes read in two ways."""
    return rule_error(
        str(site.schema),
        rule,
        "keepdims = 0 is used with chunks of 1: the text ignores it, PyTorch and onnxruntime drop the axis",
        f"chunks of 1 with keepdims = 0 have two meanings; {UNBIND_REPAIRS}",
        where=site.where,
    )


def _is_counted(row: OperatorSchema, division: Division | None) -> bool:
    """Return whether a node of a version declares a division by a number of parts, without their lengths."""
    return division is not None and division.rule is row.count_rule


def _is_kept(site: Site, binding: Binding, row: OperatorSchema) -> bool:
    if row.domain != site.schema.domain or row.name != site.schema.name:
        return False
    try:
        again = bind(row, site.attributes, site.facts, outputs=len(site.outputs), where=site.where)
    except RuleError:
        return False
    return replace(again, schema=binding.schema) == binding


def _reject_references(site: Site, row: OperatorSchema) -> None:
    """Only the axis, and lengths that become an input, can be written without knowing their values."""
    movable = {source.name for source in site.schema.lengths} | {row.axis.name}
    for name, reference in site.references.items():
        if name not in movable:
            raise rule_error(
                str(row),
                Rule.OPERATOR_VERSION,
                f"{name} is attribute {reference!r} of the function's caller",
                f"it must be known to be written as {row} declares it",
                where=replace(site.where, attribute=name),
            )


@dataclass
class _Search:
    """The forms of one binding for one target, the plainest first."""

    site: Site
    target: Target
    form: Form
    apart: bool
    against: dict[bool, RuleError] = field(default_factory=dict)
    """What prevents the plainest form, and (True) what prevents one in case that no other says more."""

    def __post_init__(self) -> None:
        self.binding = self.site.bind()
        self.rows = self.target.rows(self.site.schema)
        self.outputs = len(self.site.outputs)
        shape, axis = self.binding.data.shape, self.binding.axis
        size = None if shape is None or axis is None else shape[axis]
        self.size = size if isinstance(size, int) else None

    def forms(self) -> Iterator[SplitForm]:
        """Yield every way that is known to give the same parts."""
        binding = self.binding
        for row in self.rows:
            self._takes(row, binding.data.type)
        if binding.division is None:
            yield from self._runtime()
        else:
            for division in self._divisions():
                for row in self.rows:
                    yield from self._one_node(row, division, binding.data)
            yield from self._computed()
        if not self.target.domain and not binding.schema.gives_sequence:
            yield from self._sliced()
            yield from self._cast()

    # One node

    def _divisions(self) -> Iterator[Division]:
        """Yield the divisions that give the split node's parts, in the order of the preferred form."""
        division = self.binding.division
        assert division is not None
        same, lengths, counts = [division], list(self._explicit(division)), list(self._counts(division))
        remainder = division.rule is SizeRule.REMAINDER
        orders = {
            Form.SAME: same + (lengths + counts if remainder else counts + lengths),
            Form.LENGTHS: lengths + same + counts,
            Form.COUNT: counts + same + lengths,
        }
        yield from dict.fromkeys(orders[self.form])

    def _explicit(self, division: Division) -> Iterator[Division]:
        if division.rule is SizeRule.EXPLICIT:
            yield division
        elif self.size is not None:
            wanted = self._wanted(division, self.size)
            sizes = part_sizes(division, self.size, wanted)
            rest = self.size - sum(sizes)
            # What nobody declares becomes one more part: the lengths must add up.
            yield Division(SizeRule.EXPLICIT, lengths=sizes + ((rest,) if rest or not sizes else ()))

    def _wanted(self, division: Division, size: int) -> int:
        count = part_count(division, size)
        return count if self.binding.schema.gives_sequence else min(count, self.outputs)

    def _counts(self, division: Division) -> Iterator[Division]:
        """Yield the same parts as a number of parts, where it is known to be the same."""
        if division.rule in (SizeRule.EVEN, SizeRule.CEIL):
            count = division.count
        elif self.size is not None and not self.binding.schema.gives_sequence:
            count = part_count(division, self.size)
        else:
            return
        for rule in dict.fromkeys(row.count_rule for row in self.rows):
            if rule is not None and not (rule is SizeRule.CEIL and self._may_end_empty(count)):
                yield Division(rule, count=count)

    def _may_end_empty(self, count: int) -> bool:
        """Return whether the last of num_outputs parts may be empty, which not every runtime takes."""
        if self.size is None:
            return True
        return part_size(Division(SizeRule.CEIL, count=count), self.size, count - 1) == 0

    def _one_node(
        self, row: OperatorSchema, division: Division, data: Fact, method: Method = Method.ONE_NODE
    ) -> Iterator[SplitForm]:
        """Yield the form of a division in a version, where the version takes it with the same parts."""
        if division.rule not in row.size_rules:
            uneven = "is uneven" if self.size is not None else "divides an axis of unknown size"
            self._object(
                row,
                Rule.PARTS_DIVISIBLE if division.rule is SizeRule.CEIL else Rule.LENGTHS_MISSING,
                f"{describe(division, self._subject(division))} {uneven}",
                f"{row} knows the rules {', '.join(rule.value for rule in row.size_rules)} alone",
                minor=True,
            )
            return
        if self.apart and _is_counted(row, division):
            self._object(
                row,
                Rule.LENGTHS_MISSING,
                "another Split of the same data has another number of outputs, and no lengths either",
                "onnxruntime would take one for the other",
                minor=True,
            )
            return
        binding = self.binding
        outputs = self._outputs(row, division)
        if outputs > self.outputs + _MOST_COMPUTED:
            return  # nobody reads them, and nobody can hold them
        attributes, inputs = attributes_and_inputs(row, binding.axis or 0, division, squeeze=binding.squeeze)
        shape = data.shape if binding.axis is not None else None
        facts = [replace(data, shape=shape), *inputs[1:]]
        try:
            again = bind(row, attributes, facts, outputs=outputs, where=binding.where)
        except RuleError as error:
            self.against.setdefault(False, error)
            return
        if again.squeeze != binding.squeeze:
            return
        if again.division is None or not self._agrees(again.division):
            return
        carrier = data.type if method is Method.CAST else None
        yield SplitForm(
            method, row, binding.axis, division, outputs, carrier=carrier, squeeze=binding.squeeze
        )

    def _outputs(self, row: OperatorSchema, division: Division) -> int:
        if row.gives_sequence:
            return 1
        if division.rule in (SizeRule.EXPLICIT, SizeRule.REMAINDER):
            return len(division.lengths)
        if row.count is not None and row.count.given is Given.ATTRIBUTE and not row.domain:
            return min(self.outputs, division.count)
        return division.count

    def _agrees(self, division: Division) -> bool:
        """Return whether a division has the parts of the split node wherever that is valid."""
        own = self.binding.division
        assert own is not None
        if division == own:
            return True
        if self.size is not None:
            counts = part_count(division, self.size), part_count(own, self.size)
            if self.binding.schema.gives_sequence and len(set(counts)) > 1:
                return False
            wanted = self._wanted(own, self.size)
            return part_sizes(division, self.size, wanted) == part_sizes(own, self.size, wanted)
        return False

    # Lengths that only the running model knows

    def _runtime(self) -> Iterator[SplitForm]:
        binding = self.binding
        for row in self.rows:
            if not self._takes(row, binding.data.type):
                continue
            kinds = self._lengths_types(row)
            if not kinds:
                overridable = Origin.DEFAULT in self.site.origins[1:]
                name = "one that its caller can replace" if overridable else "known only then"
                self._object(
                    row,
                    Rule.LENGTHS_MISSING,
                    f"the lengths are read when the model runs, {name}",
                    f"{row} needs them as constants",
                )
                continue
            own = self.site.lengths
            given = own.type if own is not None else _INT64
            kind = given if given in kinds else _holding(kinds, self.size)
            if kind is None:
                self._object(
                    row,
                    Rule.LENGTHS_DTYPE,
                    f"lengths of type {given} may be up to {'any size' if self.size is None else self.size}",
                    f"{row} takes {', '.join(sorted(map(str, kinds)))}, which may not hold them exactly",
                )
                continue
            # A length of -1 is the remainder in OpenVINO alone.
            resolve = binding.schema.lengths_rule is SizeRule.REMAINDER is not row.lengths_rule
            if resolve and kind is not _INT64:
                self._object(
                    row,
                    Rule.LENGTHS_MISSING,
                    "a length read when the model runs may be -1",
                    f"{row} takes no integers that could be computed from it",
                )
                continue
            method = Method.COMPUTED if resolve or kind is not given else Method.ONE_NODE
            outputs = binding.outputs or 1
            yield SplitForm(
                method, row, binding.axis, None, outputs, lengths_type=kind, squeeze=binding.squeeze
            )

    def _lengths_types(self, row: OperatorSchema) -> frozenset[ElementType]:
        for source in row.lengths:
            if source.given is Given.INPUT:
                parameter = row.inputs[row.input_index(source.name)]
                if parameter.type == row.inputs[0].type:  # one type name is one type
                    own = self.binding.data.type
                    return frozenset({own} if own is not None else ())
                return row.types_of(parameter)
        return frozenset()

    def _computed(self) -> Iterator[SplitForm]:
        """Yield lengths computed from the size of the axis, which only the running model knows."""
        binding, division = self.binding, self.binding.division
        assert division is not None
        if self.size is not None or binding.schema.gives_sequence or division.rule is SizeRule.EXPLICIT:
            return
        count = part_count(division, 0)
        if count > max(_MOST_COMPUTED, self.outputs):
            return
        for row in self.rows:
            if self._takes(row, binding.data.type) and _INT64 in self._lengths_types(row):
                yield SplitForm(Method.COMPUTED, row, binding.axis, division, count, lengths_type=_INT64)

    # Slices

    def _sliced(self) -> Iterator[SplitForm]:
        """Yield slices with constant bounds, or with tensors, which Slice takes from opset 10 on."""
        axis, bounds, division, opset = (
            self._slice_axis(),
            self._bounds(),
            self.binding.division,
            self.target.opset,
        )
        if axis is not None and bounds is not None:
            yield SplitForm(Method.SLICED, None, axis, None, self.outputs, bounds=bounds)
        elif axis is not None and opset is not None and opset >= 10 and self.outputs <= _MOST_COMPUTED:
            lengths_rule = self.binding.schema.lengths_rule
            if lengths_rule is SizeRule.EXPLICIT if division is None else division.count <= _MOST_ADDED:
                yield SplitForm(Method.SLICED, None, axis, division, self.outputs)

    def _bounds(self) -> tuple[tuple[int | None, int | None], ...] | None:
        division = self.binding.division
        if division is None:
            return None
        if self.size is not None or division.rule is SizeRule.EXPLICIT:
            sizes = division.lengths
            if self.size is not None:
                sizes = part_sizes(division, self.size, self._wanted(division, self.size))
            return tuple(pairwise([0, *accumulate(sizes)]))
        if division.rule is SizeRule.REMAINDER:
            # What follows the remainder is counted from the end.
            at = division.lengths.index(-1)
            before = [0, *accumulate(division.lengths[:at])]
            after = [0, *accumulate(reversed(division.lengths[at + 1 :]))][::-1]
            # The end itself has no number: -0 is the begin.
            marks: list[int | None] = [*before, *(-mark or None for mark in after)]
            return tuple(pairwise(marks))
        return None

    def _slice_axis(self) -> int | None:
        """Return the axis where Slice of the target takes the data and the axis."""
        binding, opset = self.binding, self.target.opset
        assert opset is not None
        own, axis = binding.data.type, binding.axis
        is_taken = own is None or own in onnx_types("Slice", opset)
        return axis if is_taken and axis is not None and (axis >= 0 or opset >= 11) else None

    # Another element type

    def _cast(self) -> Iterator[SplitForm]:
        binding, division = self.binding, self.binding.division
        own = binding.data.type
        if own is None or division is None or own.name not in _VALUE_BITS:
            return
        for row in self.rows:
            taken = row.types_of(row.inputs[0])
            if own in taken:
                continue
            carriers = [
                ELEMENT_TYPES[name]
                for name, bits in _FLOAT_BITS.items()
                if bits >= _VALUE_BITS[own.name] and ELEMENT_TYPES[name] in taken
            ]
            for carrier in carriers[:1]:
                for candidate in self._divisions():
                    yield from self._one_node(
                        row, candidate, replace(binding.data, type=carrier), Method.CAST
                    )

    # What prevents it

    def _takes(self, row: OperatorSchema, element_type: ElementType | None) -> bool:
        taken = row.types_of(row.inputs[0])
        if element_type is None or element_type in taken:
            return True
        self._object(
            row,
            Rule.TYPE_UNSUPPORTED,
            f"{row.inputs[0].name} has element type {element_type}",
            f"{row} takes {', '.join(sorted(map(str, taken)))}",
        )
        return False

    def _subject(self, division: Division) -> str:
        row = self.binding.schema
        lengths = division.rule in (SizeRule.EXPLICIT, SizeRule.REMAINDER, SizeRule.CHUNK)
        source = row.lengths[0] if lengths else row.count
        return source.name if source is not None and source.name else "number of outputs"

    def _object(
        self, row: OperatorSchema, rule: Rule, got: str, expected: str, *, minor: bool = False
    ) -> None:
        if minor not in self.against:
            self.against[minor] = rule_error(str(row), rule, got, expected, where=self.site.where)


@cache
def onnx_types(operator: str, opset: int, name: str = "T") -> frozenset[ElementType]:
    """Return the element types that an operator of ONNX takes at an opset for one of its type variables."""
    from onnx.defs import get_schema

    constraints = get_schema(operator, opset, "").type_constraints
    names = next(c.allowed_type_strs for c in constraints if c.type_param_str == name)
    return frozenset(filter(None, map(from_onnx_name, names)))


_MOST_COMPUTED: Final = 1 << 12
"""The most parts whose bounds a graph computes: each takes nodes or entries of its own."""

_VALUE_BITS: Final = {
    "bool": 1,
    **{f"{sign}int{bits}": bits for sign in ("", "u") for bits in (8, 16, 32)},
}
"""Types that ONNX casts from and to at every opset, with the bits that a float needs to hold them exactly."""

_FLOAT_BITS: Final = {"float16": 11, "float32": 24, "float64": 53}
"""The floats that hold every integer of so many bits exactly, the narrowest first."""


_MOST_ADDED: Final = 1 << 62
"""The largest number that a graph adds to a size without leaving 64 bits."""


def _holding(kinds: frozenset[ElementType], size: int | None) -> ElementType | None:
    """Return a type of these that holds every length up to a size exactly."""
    if _INT64 in kinds:
        return _INT64
    for kind in sorted(kinds, key=lambda kind: kind.bits):
        bits = _FLOAT_BITS.get(kind.name)
        if bits is not None and size is not None and size <= 1 << bits:
            return kind
    return None
