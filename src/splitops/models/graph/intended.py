"""Find the intended meaning of splits that break only rules about types, ranks or a length of -1."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any, Final

from splitops.common.integers import INT64_MAX
from splitops.errors import Rule, RuleError
from splitops.models.formats.openvino.nodes import LayerNode
from splitops.models.graph.onnx import find_elements
from splitops.models.split_nodes import SplitNode
from splitops.models.split_nodes.styles import ConversionTarget, SplitStyle
from splitops.models.split_nodes.ways import Kind, Way, iter_ways
from splitops.spec.elements.types import ELEMENT_TYPES
from splitops.spec.operators import OperatorSchema
from splitops.spec.operators.schemas import SourceKind, TypeConstraint, ValueSource
from splitops.spec.sizes.arithmetic import Division, compute_part_sizes, count_parts
from splitops.spec.sizes.dims import Dim
from splitops.spec.sizes.rules import SizeRule
from splitops.splitting.binding import Fact

_MAX_LENGTHS: Final = 1 << 16
CLEAR_RULES: Final = frozenset({Rule.LENGTHS_DTYPE, Rule.LENGTHS_NEGATIVE, Rule.LENGTHS_RANK, Rule.AXIS_RANK})
"""Rules that a split can break although its meaning is clear."""
_INT64: Final = ELEMENT_TYPES["int64"]
FLOATS: Final = frozenset(ELEMENT_TYPES[name] for name in ("float16", "bfloat16", "float32", "float64"))
_NUMBERS: Final = FLOATS | {kind for kind in ELEMENT_TYPES.values() if kind.integer}


def find_intended_split_node(split_node: SplitNode) -> SplitNode | None:
    """Return the only valid split that an invalid one can mean, or None if it is valid or unclear.

    An axis tensor with one element is read as a scalar, and lengths in one row of a matrix as a list. Lengths
    of another numeric type keep their values, and a single -1 is the rest of the axis. A scalar is read as
    one length, a chunk size or a number of parts, if only one list of lengths fits the axis and the outputs.

    Returns:
        A copy whose schema accepts these inputs and whose facts contain the valid axis and lengths.

    Examples:
        >>> from splitops.spec.operators import schema
        >>> facts = (Fact(_INT64, (6,)), Fact(ELEMENT_TYPES["int32"], (2,), (4, -1)))
        >>> node = SplitNode(schema=schema("Split", 18), attributes={}, facts=facts, outputs=("a", "b"))
        >>> find_intended_split_node(node).inference.parts
        ((4,), (2,))
    """
    error = split_node.error
    if not isinstance(error, RuleError) or error.rule not in CLEAR_RULES or split_node.unread is not None:
        return None
    if not {source.name for source in split_node.schema.lengths}.isdisjoint(split_node.references):
        return None  # each call of the function may set other lengths
    facts: list[Fact | None] = list(split_node.facts)
    if error.rule is Rule.AXIS_RANK:
        index = split_node.schema.input_index(split_node.schema.axis.name)
        axis = facts[index]
        if axis is None or axis.shape is None or any(size != 1 for size in axis.shape):
            return None
        numbers = _read_elements(split_node, index, 1)
        facts[index] = replace(axis, shape=(), value=None if numbers is None else numbers[0])
    lengths: Any = None
    for source in split_node.schema.lengths:
        if source.kind is SourceKind.ATTRIBUTE:
            lengths = split_node.attributes.get(source.name, lengths)
            continue
        index = split_node.schema.input_index(source.name)
        given = facts[index] if index < len(facts) else None
        if given is not None:
            listed = _convert_to_list(split_node, source, index, given)
            if listed is None or (listed.type in FLOATS and listed.value is None):
                return None
            facts[index], lengths = listed, listed.value
    remainder = isinstance(lengths, tuple | list) and list(lengths).count(-1) == 1
    made = replace(split_node, schema=_relax(split_node.schema, remainder=remainder), facts=tuple(facts))
    return made if made.error is None else None


def find_intended_way(intended: SplitNode, opset: int) -> Way | str:
    """Return a :class:`Way` to write the intended split as one ONNX node, or a message if there is none."""
    for way in iter_ways(intended, ConversionTarget("", opset), SplitStyle.LENGTHS, keep=False):
        if way.kind is Kind.NODE:
            return way
    schema = intended.schema
    computed = any(source.kind is SourceKind.INPUT for source in schema.lengths) and not schema.gives_sequence
    cure = "" if computed or schema.gives_sequence else ", or convert the model to opset 13 or newer first"
    return f"the size of the axis is not known, and {schema} cannot compute the lengths: set the size{cure}"


def _convert_to_list(split_node: SplitNode, source: ValueSource, index: int, given: Fact) -> Fact | None:
    """Return lengths of a rank that the schema accepts, or None if they form a matrix or are ambiguous."""
    ranks = split_node.schema.inputs[index].ranks
    if given.shape is None or ranks is None or len(given.shape) in ranks:
        return given
    if not given.shape:
        lists = (
            set()
            if isinstance(given.value, tuple) or given.value is None
            else set(_iter_candidates(split_node, given.value))
        )
        (lengths,) = lists if len(lists) == 1 else (None,)
        return None if lengths is None else Fact(_INT64, (len(lengths),), lengths)
    long = [size for size in given.shape if size != 1]
    count = long[0] if long else 1
    if len(long) > 1 or (count == 1 and split_node.schema.scalar_rule is not None):
        return None
    return Fact(given.type, (count,), _read_elements(split_node, index, count))


def _read_elements(split_node: SplitNode, index: int, count: Dim) -> tuple[Any, ...] | None:
    """Return the ``count`` elements of an input of any rank, or None if they are unknown or too many."""
    if split_node.node is None or not isinstance(count, int) or count > _MAX_LENGTHS:
        return None
    value = split_node.node.inputs[index]
    producer = value.producer()
    if type(producer) is LayerNode and producer.layer.constant is not None:
        array: Any = producer.layer.constant.read_array(producer.layer.where)
    else:
        array = find_elements(value)
    return None if array is None else tuple(array.reshape(-1).tolist())


def _iter_candidates(split_node: SplitNode, number: int | float) -> Iterator[tuple[int, ...]]:
    """Yield the lists of lengths that a scalar can mean for this axis and these outputs."""
    data, outputs = split_node.facts[0], len(split_node.outputs)
    source, axis = (
        split_node.schema.axis,
        split_node.attributes.get(split_node.schema.axis.name, split_node.schema.default_axis),
    )
    if source.kind is SourceKind.INPUT:
        fact = split_node.facts[split_node.schema.input_index(source.name)]
        value = None if fact is None else fact.value
        axis = value[0] if isinstance(value, tuple) and value else value
    shape = None if data is None else data.shape
    if shape is None or not isinstance(axis, int) or not -len(shape) <= axis < len(shape):
        return
    size = shape[axis]
    if not isinstance(size, int) or not 1 <= number <= INT64_MAX or number != int(number):
        return
    if outputs == 1 and number == size:
        yield (size,)
    for division in (Division(SizeRule.CHUNK, chunk=int(number)), Division(SizeRule.CEIL, count=int(number))):
        if count_parts(division, size) == outputs:
            yield compute_part_sizes(division, size, outputs)


@cache
def _relax(schema: OperatorSchema, *, remainder: bool) -> OperatorSchema:
    """Return a copy of a schema that accepts lengths of ``_NUMBERS`` types and, with ``remainder``, a -1."""
    least = -1 if remainder else 0
    names = {source.name for source in schema.lengths}
    attributes = tuple(replace(one, minimum=least) if one.name in names else one for one in schema.attributes)
    inputs = tuple(
        replace(one, type="lengths", minimum=least) if one.name in names else one for one in schema.inputs
    )
    return replace(
        schema,
        attributes=attributes,
        inputs=inputs,
        type_constraints=(*schema.type_constraints, TypeConstraint(name="lengths", types=_NUMBERS)),
        lengths_rule=SizeRule.REMAINDER if remainder else schema.lengths_rule,
    )
