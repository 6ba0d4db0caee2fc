"""What binding proves of facts that no array declares: partial ones, wrong ones, the ends of the ranges."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from splitops import ModelError, RuleError, Where
from splitops.spec import ELEMENT_TYPES, SCHEMAS, OperatorSchema, Option, SizeRule, SourceKind, ValueSource
from splitops.spec.operators import schema as find_schema
from splitops.spec.sizes.arithmetic import Division
from splitops.spec.sizes.dims import Range
from splitops.splitting import SplitRequest
from splitops.splitting.binding import Binding, Fact, bind, make_fact, make_unknown_type
from splitops.splitting.binding.compiled_schema import Operand, compile_schema

SPLIT_1, SPLIT_2, SPLIT_13, SPLIT_18 = (find_schema("Split", version) for version in (1, 2, 13, 18))
SEQUENCE = find_schema("SplitToSequence", 24)
EVEN, VARIADIC = (find_schema(name, 1, "openvino") for name in ("Split", "VariadicSplit"))
INT64, FLOAT32 = ELEMENT_TYPES["int64"], ELEMENT_TYPES["float32"]
INT64_MAX = 2**63 - 1

DATA = Fact(FLOAT32, (4, 6))
RANGES = Fact(FLOAT32, (Range(2, 5), Range(0, 3)))
ANY_RANK = Fact(FLOAT32)
UNKNOWN = Fact()


def entries(*values: float | None, of: str = "int64") -> Fact:
    return Fact(ELEMENT_TYPES[of], (len(values),), values)


def scalar(value: float | None, of: str = "int64") -> Fact:
    return Fact(ELEMENT_TYPES[of], (), value)


def shaped(*shape: Any, of: str = "int64") -> Fact:
    return Fact(ELEMENT_TYPES[of], shape)


AXIS = scalar(0)

Node = tuple[OperatorSchema, dict[str, Any], list[Fact | None], int | None]


def node(schema: OperatorSchema, *inputs: Fact | None, outputs: int | None = None, **attributes: Any) -> Node:
    return schema, attributes, list(inputs), outputs


def bound(made: Node, where: Where | None = None) -> Binding:
    schema, attributes, inputs, outputs = made
    return bind(schema, attributes, inputs, outputs=outputs, where=where)


TYPES_OF_LENGTHS = (
    "int16 or int32 or int4 or int64 or int8 or uint1 or uint16 or uint2 or uint3 or uint32 or uint4 "
    "or uint6 or uint64 or uint8"
)
NOT_64_BITS = "each length must be a 64-bit integer"
COUNT_NOT_64_BITS = "it must be a 64-bit integer >= 1"

REJECTED: list[tuple[Node, str, dict[str, Any], str]] = [
    # What the version does not have, or must have
    (
        node(VARIADIC, DATA, AXIS, entries(4), x=1),
        "op.version: attribute 'x' is given, but VariadicSplit-1 has no attribute",
        {"attribute": "x"},
        "",
    ),
    (
        node(EVEN, DATA, AXIS, num_splits=2, axis=1),
        "op.version: attribute 'axis' is given, but Split-1 has the attribute num_splits",
        {"attribute": "axis"},
        "",
    ),
    (
        node(SPLIT_18, DATA, None, entries(1), num_outputs=2),
        "op.version: 3 inputs are given, but Split-18 has the inputs input, split",
        {},
        "",
    ),
    (
        node(SPLIT_2, DATA, entries(1)),
        "op.version: 2 inputs are given, but Split-2 has the input input",
        {},
        "",
    ),
    (node(EVEN, DATA, num_splits=2), "axis.dtype: axis is absent, but Split-1 requires it", {}, "input axis"),
    (
        node(VARIADIC, DATA, AXIS),
        "lengths.missing: split_lengths is absent, but VariadicSplit-1 requires it",
        {},
        "input split_lengths",
    ),
    (
        node(VARIADIC, DATA, AXIS, None),
        "lengths.missing: split_lengths is absent, but VariadicSplit-1 requires it",
        {},
        "input split_lengths",
    ),
    (
        node(SPLIT_1, Fact(make_unknown_type("int9"), (4,)), outputs=2),
        "type.unsupported: input has element type int9, but Split-1 supports float16, float32, float64",
        {"type": "int9"},
        "input input",
    ),
    # The axis
    (
        node(EVEN, DATA, scalar(0, "float32"), num_splits=2),
        "axis.dtype: axis has element type float32, but it must be of an integer type",
        {"type": "float32"},
        "input axis",
    ),
    (
        node(EVEN, DATA, entries(0), num_splits=2),
        "axis.rank: axis has shape (1,), but it must be a scalar",
        {"shape": (1,)},
        "input axis",
    ),
    (
        node(VARIADIC, DATA, shaped(0), entries(4)),
        "axis.rank: axis has shape (0,), but it must be a scalar or of shape [1]",
        {"shape": (0,)},
        "input axis",
    ),
    (
        node(VARIADIC, DATA, shaped(Range(0, 3), 1), entries(4)),
        "axis.rank: axis has shape (0..3, 1), but it must be a scalar or of shape [1]",
        {"shape": (Range(0, 3), 1)},
        "input axis",
    ),
    (
        node(SEQUENCE, DATA, axis=True),
        "axis.dtype: axis = True, but it must be an integer",
        {"axis": True},
        "attribute axis",
    ),
    (
        node(SEQUENCE, DATA, axis=2),
        "axis.range: axis = 2, but it must be in [-2, 1] for data (4, 6)",
        {"axis": 2, "shape": (4, 6)},
        "attribute axis",
    ),
    (
        node(SEQUENCE, DATA, axis=-3),
        "axis.range: axis = -3, but it must be in [-2, 1] for data (4, 6)",
        {"axis": -3, "shape": (4, 6)},
        "attribute axis",
    ),
    (
        node(SEQUENCE, shaped(), axis=UNKNOWN),
        "axis.range: data has rank 0, but a split needs at least one axis",
        {"axis": None},
        "attribute axis",
    ),
    (
        node(EVEN, shaped(), scalar(2), num_splits=1),
        "axis.range: data has rank 0, but a split needs at least one axis",
        {"axis": 2},
        "input axis",
    ),
    # keepdims and the outputs of a sequence
    (
        node(SEQUENCE, DATA, keepdims=-1),
        "keepdims.value: keepdims = -1, but it must be 0 or 1",
        {"keepdims": -1},
        "attribute keepdims",
    ),
    (
        node(SEQUENCE, DATA, keepdims="0"),
        "keepdims.value: keepdims = '0', but it must be 0 or 1",
        {"keepdims": "0"},
        "attribute keepdims",
    ),
    (
        node(SEQUENCE, DATA, entries(4), keepdims=2),
        "keepdims.value: keepdims = 2, but it must be 0 or 1",
        {"keepdims": 2},
        "attribute keepdims",
    ),
    (
        node(SEQUENCE, DATA, outputs=2),
        "outputs.count: 2 outputs are declared, but the operator returns one sequence",
        {},
        "",
    ),
    (
        node(SEQUENCE, DATA, outputs=0),
        "outputs.count: 0 outputs are declared, but the operator returns one sequence",
        {},
        "",
    ),
    # Where lengths and their number stand
    (
        node(SPLIT_13, DATA),
        "lengths.missing: no input 'split' and no number of declared outputs is given, "
        "but exactly one must be",
        {},
        "",
    ),
    (node(EVEN, DATA, AXIS), "lengths.missing: no attribute 'num_splits' is given, but it must be", {}, ""),
    (
        node(SPLIT_13, DATA, outputs=0),
        "outputs.count: 0 outputs are declared, but there must be at least one",
        {},
        "",
    ),
    (
        node(SPLIT_18, DATA, num_outputs=3, outputs=0),
        "outputs.count: 0 outputs are declared, but num_outputs = 3",
        {"outputs": 0, "count": 3},
        "attribute num_outputs",
    ),
    (
        node(SPLIT_18, DATA, num_outputs=3, outputs=4),
        "outputs.count: 4 outputs are declared, but num_outputs = 3",
        {"outputs": 4, "count": 3},
        "attribute num_outputs",
    ),
    *(
        (
            node(SPLIT_18, ANY_RANK, num_outputs=number),
            f"parts.count: num_outputs = {number!r}, but {COUNT_NOT_64_BITS}",
            {"count": number},
            "attribute num_outputs",
        )
        for number in (INT64_MAX + 1, 0, True, "2")
    ),
    # Lengths as an attribute
    *(
        (
            node(SPLIT_2, DATA, split=value),
            f"lengths.rank: split = {value!r}, but it must be a list of integers",
            {},
            "attribute split",
        )
        for value in ("ab", b"ab", {1: 2}, 3)
    ),
    (
        node(SPLIT_2, DATA, split=[1, 2.5, True]),
        "lengths.dtype: split contains 2.5, but it must be a list of integers",
        {"value": 2.5},
        "attribute split",
    ),
    *(
        (
            node(SPLIT_2, ANY_RANK, split=[value]),
            f"lengths.value: split contains {value}, but {NOT_64_BITS}",
            {"value": value},
            "attribute split",
        )
        for value in (INT64_MAX + 1, -INT64_MAX - 2)
    ),
    (
        node(SPLIT_2, ANY_RANK, split=[-INT64_MAX - 1]),
        f"lengths.negative: split = [{-INT64_MAX - 1}] has {-INT64_MAX - 1} at index 0, "
        "but each length must be >= 0",
        {"lengths": (-INT64_MAX - 1,), "index": 0},
        "attribute split",
    ),
    # Lengths as an input
    (
        node(SPLIT_18, DATA, shaped(2, 2)),
        "lengths.rank: split has shape (2, 2), but it must be 1-D",
        {"shape": (2, 2)},
        "input split",
    ),
    (
        node(SPLIT_18, DATA, scalar(2)),
        "lengths.rank: split has shape (), but it must be 1-D; num_outputs is the number of parts",
        {"shape": ()},
        "input split",
    ),
    (
        node(SEQUENCE, DATA, shaped(2, 1)),
        "lengths.rank: split has shape (2, 1), but it must be 1-D or a scalar",
        {"shape": (2, 1)},
        "input split",
    ),
    (
        node(VARIADIC, DATA, AXIS, shaped(1, of="float32")),
        f"lengths.dtype: split_lengths has element type float32, but it must be {TYPES_OF_LENGTHS}",
        {"type": "float32"},
        "input split_lengths",
    ),
    (
        node(SPLIT_1, DATA, entries(2, 2)),
        "lengths.dtype: split has element type int64, but it must be float32",
        {"type": "int64"},
        "input split",
    ),
    (
        node(SPLIT_1, Fact(None, (4,)), entries(2, 2)),
        "lengths.dtype: split has element type int64, but it must be float16 or float32 or float64",
        {"type": "int64"},
        "input split",
    ),
    *(
        (
            node(SPLIT_1, ANY_RANK, entries(1, value, of="float32")),
            f"lengths.value: split contains {value}, but {NOT_64_BITS}",
            {"value": value},
            "input split",
        )
        for value in (2.5, float("inf"), float("nan"), 2.0**63)
    ),
    (
        node(SPLIT_18, DATA, entries(2**63, None)),
        f"lengths.value: split contains {2**63}, but {NOT_64_BITS}",
        {"value": 2**63},
        "input split",
    ),
    (
        node(SPLIT_18, DATA, entries(None, 5, -1)),
        "lengths.negative: split = [None, 5, -1] has -1 at index 2, but each length must be >= 0",
        {"lengths": (None, 5, -1), "index": 2},
        "input split",
    ),
    (
        node(VARIADIC, DATA, AXIS, entries(-2, None)),
        "lengths.negative: split_lengths = [-2, None] has -2 at index 0, but each length must be >= -1",
        {"lengths": (-2, None), "index": 0},
        "input split_lengths",
    ),
    (
        node(VARIADIC, DATA, AXIS, entries(-1, None, -1)),
        "remainder.repeated: split_lengths = [-1, None, -1] has 2 entries of -1, but at most one is allowed",
        {"lengths": (-1, None, -1)},
        "input split_lengths",
    ),
    (
        node(SPLIT_18, DATA, shaped(3), outputs=2),
        "lengths.count: split has 3 lengths, but 2 outputs are declared",
        {"count": 3, "outputs": 2},
        "input split",
    ),
    (
        node(SPLIT_18, DATA, shaped(0)),
        "lengths.count: split is empty, but Split-18 has at least one part",
        {},
        "input split",
    ),
    (
        node(SEQUENCE, DATA, scalar(0)),
        "chunk.positive: split = 0, but a scalar must be >= 1",
        {"chunk": 0},
        "input split",
    ),
    # Sizes that the axis may have
    (
        node(VARIADIC, DATA, scalar(None), entries(9, -1)),
        "remainder.negative: split_lengths = [9, -1] leaves -3 for the -1, but no axis of data (4, 6) fits",
        {"lengths": (9, -1), "axis": None, "shape": (4, 6), "size": 6},
        "input split_lengths",
    ),
    (
        node(VARIADIC, DATA, scalar(None), entries(9, None)),
        "lengths.sum: split_lengths = [9, None] sums to at least 9, but no axis of data (4, 6) fits",
        {"lengths": (9, None), "axis": None, "shape": (4, 6), "size": 6},
        "input split_lengths",
    ),
    (
        node(VARIADIC, RANGES, AXIS, entries(9, None, -1)),
        "remainder.negative: split_lengths = [9, None, -1] leaves -4 for the -1, "
        "but axis 0 of data (2..5, 0..3) has no size that fits",
        {"lengths": (9, None, -1), "axis": 0, "shape": RANGES.shape, "size": Range(2, 5)},
        "input split_lengths",
    ),
    (
        node(SPLIT_18, RANGES, entries(5), axis=1),
        "lengths.sum: split = [5] sums to 5, but axis 1 of data (2..5, 0..3) has no size that fits",
        {"lengths": (5,), "axis": 1, "shape": RANGES.shape, "size": Range(0, 3)},
        "input split",
    ),
    (
        node(SPLIT_18, DATA, entries(5, None)),
        "lengths.sum: split = [5, None] sums to at least 5, but axis 0 of data (4, 6) has size 4",
        {"lengths": (5, None), "axis": 0, "shape": (4, 6), "size": 4},
        "input split",
    ),
    (
        node(SPLIT_18, shaped(Range(3)), entries(1, 1)),
        "lengths.sum: split = [1, 1] sums to 2, but axis 0 of data (3..,) has no size that fits",
        {"lengths": (1, 1), "axis": 0, "shape": (Range(3),), "size": Range(3)},
        "input split",
    ),
    (
        node(SPLIT_18, shaped(Range(0)), entries(2**63 - 1, 1)),
        f"lengths.sum: split = [{2**63 - 1}, 1] sums to {2**63}, "
        "but axis 0 of data (?,) has no size that fits",
        {"lengths": (2**63 - 1, 1), "axis": 0, "shape": (Range(0),), "size": Range(0)},
        "input split",
    ),
    (
        node(SPLIT_13, shaped(Range(4, 5)), outputs=3),
        "parts.divisible: number of outputs = 3 requires equal parts, "
        "but axis 0 of data (4..5,) has no size that fits",
        {"lengths": (), "axis": 0, "shape": (Range(4, 5),), "size": Range(4, 5)},
        "",
    ),
    (
        node(EVEN, shaped(3, 5, 7), UNKNOWN, num_splits=2),
        "parts.divisible: num_splits = 2 requires equal parts, but no axis of data (3, 5, 7) fits",
        {"lengths": (), "axis": None, "shape": (3, 5, 7), "size": 7},
        "attribute num_splits",
    ),
    (
        node(SEQUENCE, DATA, shaped(0)),
        "lengths.sum: split = [] sums to 0, but axis 0 of data (4, 6) has size 4",
        {"lengths": (), "axis": 0, "shape": (4, 6), "size": 4},
        "input split",
    ),
]


@pytest.mark.parametrize(("made", "message", "values", "place"), REJECTED)
def test_what_breaks_a_rule_is_rejected(made: Node, message: str, values: dict[str, Any], place: str) -> None:
    kind, _, name = place.partition(" ")
    with pytest.raises(RuleError) as caught:
        bound(made, Where(node="n"))
    error = caught.value
    assert error.operator == str(made[0])
    assert f"{error.rule}: {error.got}, but {error.expected}" == message
    assert dict(error.values) == values
    assert error.where == Where(node="n", **({kind: name} if place else {}))


def test_a_node_without_data_is_a_broken_model() -> None:
    with pytest.raises(ModelError) as caught:
        bound(node(SPLIT_18, None, num_outputs=2), Where(node="n"))
    assert str(caught.value) == (
        "Split-18: input is absent, but Split-18 requires it (node 'n', input 'input')"
    )
    assert caught.value.where == Where(node="n", input="input")


def explicit(*lengths: int) -> Division:
    return Division(SizeRule.EXPLICIT, lengths=lengths)


TAKEN: list[tuple[Node, tuple[Any, ...]]] = [
    # Axis, division, lengths, whether the axis goes, shape of the lengths
    (node(VARIADIC, DATA, AXIS, entries(1, None)), (0, None, (1, None), False, (2,))),
    (node(VARIADIC, DATA, shaped(Range(0, 3)), entries(4)), (None, explicit(4), None, False, (1,))),
    (node(VARIADIC, DATA, entries(-1), entries(6)), (1, explicit(6), None, False, (1,))),
    (node(VARIADIC, RANGES, AXIS, entries(2, 0)), (0, explicit(2, 0), None, False, (2,))),
    (node(VARIADIC, DATA, Fact(None, (), 1), Fact(None, (1,), (6,))), (1, explicit(6), None, False, (1,))),
    (node(SPLIT_18, DATA, Fact(INT64, (2,), (1, 3)), None), (0, explicit(1, 3), None, False, (2,))),
    (node(SPLIT_18, DATA, shaped(Range(2, 3))), (0, None, None, False, (Range(2, 3),))),
    (node(SPLIT_18, DATA, Fact(INT64), outputs=2), (0, None, (None, None), False, None)),
    (node(SPLIT_18, DATA, Fact(INT64)), (0, None, None, False, None)),
    (node(SPLIT_18, ANY_RANK, shaped(2**16)), (0, None, (None,) * 2**16, False, (2**16,))),
    (node(SPLIT_18, ANY_RANK, shaped(2**16 + 1)), (0, None, None, False, (2**16 + 1,))),
    (
        node(SPLIT_18, ANY_RANK, num_outputs=INT64_MAX),
        (0, Division(SizeRule.CEIL, count=INT64_MAX), None, False, None),
    ),
    (
        node(SPLIT_18, DATA, num_outputs=3, outputs=1),
        (0, Division(SizeRule.CEIL, count=3), None, False, None),
    ),
    (node(SPLIT_18, DATA, num_outputs=UNKNOWN), (0, None, None, False, None)),
    (
        node(SPLIT_13, DATA, axis=UNKNOWN, outputs=3),
        (None, Division(SizeRule.EVEN, count=3), None, False, None),
    ),
    (node(SPLIT_13, DATA, outputs=1), (0, Division(SizeRule.EVEN, count=1), None, False, None)),
    (node(SPLIT_2, DATA, split=[np.int32(1), 3]), (0, explicit(1, 3), None, False, (2,))),
    (node(SPLIT_2, ANY_RANK, split=[INT64_MAX]), (0, explicit(INT64_MAX), None, False, (1,))),
    (
        node(SPLIT_18, ANY_RANK, entries(INT64_MAX, None)),
        (0, None, (INT64_MAX, None), False, (2,)),
    ),
    (node(SPLIT_2, DATA, split=Fact(None, (2,))), (0, None, (None, None), False, (2,))),
    (node(SPLIT_2, DATA, split=UNKNOWN, outputs=3), (0, None, (None, None, None), False, None)),
    (node(SPLIT_1, DATA, entries(2.0, 2.0, of="float32")), (0, explicit(2, 2), None, False, (2,))),
    (node(SPLIT_1, DATA, entries(2.0, None, of="float32")), (0, None, (2, None), False, (2,))),
    (node(SPLIT_1, Fact(None, (4,)), entries(4.0, of="float16")), (0, explicit(4), None, False, (1,))),
    (node(SEQUENCE, DATA, scalar(2)), (0, Division(SizeRule.CHUNK, chunk=2), None, False, ())),
    (node(SEQUENCE, DATA, scalar(1), keepdims=0), (0, Division(SizeRule.CHUNK, chunk=1), None, False, ())),
    (node(SEQUENCE, DATA, scalar(None), keepdims=0), (0, None, None, False, ())),
    (node(SEQUENCE, shaped(0), shaped(0)), (0, explicit(), None, False, (0,))),
    (node(SEQUENCE, DATA, shaped(3), outputs=1), (0, None, (None,) * 3, False, (3,))),
    (node(SEQUENCE, DATA, Fact(INT64), outputs=1), (0, None, None, False, None)),
    (node(SEQUENCE, DATA, keepdims=0), (0, Division(SizeRule.CHUNK, chunk=1), None, True, None)),
    (node(SEQUENCE, DATA, keepdims=np.False_), (0, Division(SizeRule.CHUNK, chunk=1), None, True, None)),
    (node(SEQUENCE, DATA, keepdims=True), (0, Division(SizeRule.CHUNK, chunk=1), None, False, None)),
    (node(SEQUENCE, DATA, keepdims=UNKNOWN), (0, Division(SizeRule.CHUNK, chunk=1), None, None, None)),
    (node(SEQUENCE, ANY_RANK, axis=-5), (-5, Division(SizeRule.CHUNK, chunk=1), None, False, None)),
    (node(SEQUENCE, DATA, axis=-1), (1, Division(SizeRule.CHUNK, chunk=1), None, False, None)),
    (
        node(VARIADIC, shaped(Range(name="N")), AXIS, entries(4, -1)),
        (0, Division(SizeRule.REMAINDER, lengths=(4, -1)), None, False, (2,)),
    ),
]


@pytest.mark.parametrize(("made", "expected"), TAKEN)
def test_what_is_known_is_bound(made: Node, expected: tuple[Any, ...]) -> None:
    schema, _, inputs, outputs = made
    axis, division, lengths, squeeze, lengths_shape = expected
    where = Where(node="n")
    assert bound(made, where) == Binding(
        schema, inputs[0] or UNKNOWN, axis, division, lengths, squeeze, outputs, where, lengths_shape
    )


def test_what_is_all_known_is_a_request() -> None:
    where = Where(node="n")
    made = bound(node(SPLIT_18, DATA, num_outputs=3, outputs=2, axis=-1), where)
    division = Division(SizeRule.CEIL, count=3)
    assert made.request() == SplitRequest(SPLIT_18, (4, 6), 1, division, False, 2, where)
    made = bound(node(SEQUENCE, DATA, outputs=1, keepdims=0))
    assert made.request() == SplitRequest(SEQUENCE, (4, 6), 0, Division(SizeRule.CHUNK, chunk=1), True)


@pytest.mark.parametrize(
    ("made", "rule", "got", "expected"),
    [
        (
            node(SPLIT_18, DATA, axis=UNKNOWN, num_outputs=2),
            "axis.dtype",
            "axis has no value",
            "it must be an integer",
        ),
        (
            node(VARIADIC, DATA, AXIS, entries(1, None)),
            "lengths.dtype",
            "split_lengths = [1, None]",
            "each length must be an integer",
        ),
        (node(SPLIT_1, DATA, Fact(FLOAT32)), "lengths.dtype", "split has no value", "it must be known"),
        (
            node(SPLIT_18, DATA, num_outputs=UNKNOWN, outputs=2),
            "lengths.dtype",
            "split or num_outputs has no value",
            "it must be known",
        ),
        (
            node(EVEN, DATA, AXIS, num_splits=UNKNOWN, outputs=2),
            "parts.count",
            "num_splits has no value",
            "it must be known",
        ),
    ],
)
def test_a_request_needs_all_of_it(made: Node, rule: str, got: str, expected: str) -> None:
    with pytest.raises(RuleError) as caught:
        bound(made, Where(node="n")).request()
    error = caught.value
    assert (error.operator, str(error.rule), error.got, error.expected) == (str(made[0]), rule, got, expected)
    assert error.where == Where(node="n")


@pytest.mark.parametrize("row", SCHEMAS, ids=str)
def test_a_row_is_compiled_as_it_stands(row: OperatorSchema) -> None:
    """Each place has the name, the bound, the default and the types of its attribute or input."""
    made = compile_schema(row)
    assert compile_schema(row) is made
    assert made.schema is row
    assert made.attributes == {attribute.name for attribute in row.attributes}
    assert made.sequence is row.gives_sequence
    assert made.data.name == row.inputs[0].name
    assert list(made.inputs) == [parameter.name for parameter in row.inputs[1:]]
    assert [place.name for place in made.required] == [
        parameter.name for parameter in row.inputs if parameter.option is Option.SINGLE
    ]
    assert [place.source for place in made.lengths] == list(row.lengths)
    declared = row.count is not None and row.count.kind is SourceKind.OUTPUTS
    assert made.outputs == (row.count.name if row.count is not None and declared else None)
    assert (made.count is None, made.keepdims is None) == (row.count is None, row.keepdims is None)
    places = [made.data, *made.inputs.values(), *made.required, made.axis, *made.lengths]
    places += [place for place in (made.count, made.keepdims) if place is not None]
    for place in places:
        assert place == expected_place(row, place.source)


def expected_place(row: OperatorSchema, source: ValueSource) -> Operand:
    stated = {field.name: field.default for field in fields(Operand) if field.name not in ("source", "name")}
    if source.kind is SourceKind.ATTRIBUTE:
        (attribute,) = (a for a in row.attributes if a.name == source.name)
        stated |= {"default": attribute.default, "minimum": attribute.minimum}
    elif source.kind is SourceKind.INPUT:
        ((index, parameter),) = ((i, p) for i, p in enumerate(row.inputs) if p.name == source.name)
        stated |= {"index": index, "minimum": parameter.minimum, "types": row.types_of(parameter)}
        stated |= {"ranks": parameter.ranks or ()}
        stated["as_data"] = index > 0 and parameter.type == row.inputs[0].type
    else:
        stated["minimum"] = 1
    if source == row.axis and row.default_axis is not None:
        stated["default"] = row.default_axis
    return Operand(source, source.name, **stated)  # type: ignore[arg-type]


def test_lengths_of_the_type_of_the_data_are_those_of_the_first_split_alone() -> None:
    as_data = [row for row in SCHEMAS if any(place.as_data for place in compile_schema(row).lengths)]
    assert as_data == [SPLIT_1]


def test_an_array_says_all_of_an_input() -> None:
    kind = ELEMENT_TYPES["int32"]
    array = np.array([2, 3], np.int32)
    assert make_fact(array, value=True) == Fact(kind, (2,), (2, 3))
    assert make_fact(array, value=False) == Fact(kind, (2,))
    assert make_fact(array[0:1].reshape(()), value=True) == Fact(kind, (), 2)
    assert make_fact(array.reshape(1, 2), value=True) == Fact(kind, (1, 2))
    assert make_fact(np.zeros(2, "M8[s]"), value=False) == Fact(make_unknown_type("datetime64[s]"), (2,))
    masked = np.ma.array(array, mask=[0, 1])
    assert make_fact(masked, value=True) == Fact(make_unknown_type("masked int32"), (2,))
    assert make_fact(masked, value=False) == Fact(kind, (2,))
    assert make_fact(np.ma.array(array, mask=[0, 0]), value=True) == Fact(kind, (2,), (2, 3))
    assert make_unknown_type("int9").bits == 0
