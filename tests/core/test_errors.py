"""Errors: the family of each rule, their data, their one line, and that they travel between processes."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import splitops
from splitops import ArrayError, ModelError, Rule, RuleError, SplitError, Where, errors
from splitops.calls.node import evaluate
from splitops.errors import brief, rule_error, shown
from splitops.onnx import split, split_to_sequence
from splitops.openvino import split as openvino_split
from splitops.openvino import variadic_split

DATA = np.zeros((4, 6), "f4")
SPLIT_1, SPLIT_18 = splitops.schema("Split", 1), splitops.schema("Split", 18)

MESSAGES: dict[str, tuple[Callable[[], Any], str]] = {
    "axis.range": (
        lambda: split(DATA, [6], axis=2),
        "Split-18 [axis.range]: axis = 2, but it must be in [-2, 1] for data (4, 6)",
    ),
    "axis.range of rank 0": (
        lambda: split(np.float32(1), [1]),
        "Split-18 [axis.range]: data has rank 0, but a split needs at least one axis",
    ),
    "axis.rank": (
        lambda: openvino_split(DATA, [0], 2),
        "Split-1 [axis.rank]: axis has shape (1,), but it must be a scalar",
    ),
    "axis.rank of VariadicSplit": (
        lambda: variadic_split(DATA, [0, 1], [4]),
        "VariadicSplit-1 [axis.rank]: axis has shape (2,), but it must be a scalar or of shape [1]",
    ),
    "axis.dtype": (
        lambda: openvino_split(DATA, 0.0, 2),
        "Split-1 [axis.dtype]: axis has element type float64, but it must be of an integer type",
    ),
    "axis.dtype of an attribute": (
        lambda: split(DATA, [6], axis=1.0),
        "Split-18 [axis.dtype]: axis = 1.0, but it must be an integer",
    ),
    "lengths.sum": (
        lambda: split(DATA, [2, 3], axis=1),
        "Split-18 [lengths.sum]: split = [2, 3] sums to 5, but axis 1 of data (4, 6) has size 6",
    ),
    "lengths.negative": (
        lambda: split(DATA, [6, -2]),
        "Split-18 [lengths.negative]: split = [6, -2] has -2 at index 1, but each length must be >= 0",
    ),
    "lengths.negative of VariadicSplit": (
        lambda: variadic_split(DATA, 0, [6, -2]),
        "VariadicSplit-1 [lengths.negative]: split_lengths = [6, -2] has -2 at index 1, "
        "but each length must be >= -1",
    ),
    "lengths.rank": (
        lambda: split(DATA, [[2, 2]]),
        "Split-18 [lengths.rank]: split has shape (1, 2), but it must be 1-D",
    ),
    "lengths.rank of SplitToSequence": (
        lambda: split_to_sequence(DATA, [[2, 2]]),
        "SplitToSequence-24 [lengths.rank]: split has shape (1, 2), but it must be 1-D or a scalar",
    ),
    "lengths.dtype": (
        lambda: split(DATA, np.array([2.0, 2.0])),
        "Split-18 [lengths.dtype]: split has element type float64, but it must be int64",
    ),
    "lengths.dtype of SplitToSequence": (
        lambda: split_to_sequence(DATA, 2.0),
        "SplitToSequence-24 [lengths.dtype]: split has element type float64, but it must be int32 or int64",
    ),
    "lengths.count": (
        lambda: evaluate(SPLIT_18, {}, [DATA, np.array([2, 2])], outputs=3),
        "Split-18 [lengths.count]: split has 2 lengths, but 3 outputs are declared",
    ),
    "lengths.count of none": (
        lambda: split(DATA, []),
        "Split-18 [lengths.count]: split is empty, but Split-18 has at least one part",
    ),
    "lengths.value": (
        lambda: split(DATA, [2.5, 1.5], opset=1),
        "Split-1 [lengths.value]: split contains 2.5, but each length must be a 64-bit integer",
    ),
    "lengths.conflict": (
        lambda: split(DATA, [2, 2], num_outputs=2),
        "Split-18 [lengths.conflict]: both input 'split' and attribute 'num_outputs' are given, "
        "but exactly one must be",
    ),
    "lengths.conflict of Split-1": (
        lambda: evaluate(SPLIT_1, {"split": [2, 2]}, [DATA, np.array([2, 2], "f4")]),
        "Split-1 [lengths.conflict]: attribute 'split' and input 'split' are given, "
        "but only one of them may be",
    ),
    "lengths.missing": (
        lambda: split(DATA),
        "Split-18 [lengths.missing]: no input 'split' and no attribute 'num_outputs' is given, "
        "but exactly one must be",
    ),
    "parts.divisible": (
        lambda: openvino_split(DATA, 1, 4),
        "Split-1 [parts.divisible]: num_splits = 4 requires equal parts, "
        "but axis 1 of data (4, 6) has size 6, which 4 does not divide",
    ),
    "parts.divisible by outputs": (
        lambda: split(DATA, axis=1, num_outputs=4, opset=13),
        "Split-13 [parts.divisible]: number of outputs = 4 requires equal parts, "
        "but axis 1 of data (4, 6) has size 6, which 4 does not divide",
    ),
    "parts.count": (
        lambda: split(DATA, num_outputs=0),
        "Split-18 [parts.count]: num_outputs = 0, but it must be a 64-bit integer >= 1",
    ),
    "parts.count of too many": (
        lambda: split(DATA, num_outputs=2**62),
        "Split-18 [parts.count]: axis 0 of data (4, 6) would be split into 4611686018427387904 parts, "
        "but at most 16777216 parts are allowed",
    ),
    "chunk.positive": (
        lambda: split_to_sequence(DATA, 0),
        "SplitToSequence-24 [chunk.positive]: split = 0, but a scalar must be >= 1",
    ),
    "remainder.negative": (
        lambda: variadic_split(DATA, 1, [4, -1, 3]),
        "VariadicSplit-1 [remainder.negative]: split_lengths = [4, -1, 3] leaves -1 for the -1, "
        "but axis 1 of data (4, 6) has size 6",
    ),
    "remainder.repeated": (
        lambda: variadic_split(DATA, 1, [-1, 3, -1]),
        "VariadicSplit-1 [remainder.repeated]: split_lengths = [-1, 3, -1] has 2 entries of -1, "
        "but at most one is allowed",
    ),
    "keepdims.value": (
        lambda: split_to_sequence(DATA, keepdims=2),
        "SplitToSequence-24 [keepdims.value]: keepdims = 2, but it must be 0 or 1",
    ),
    "type.unsupported": (
        lambda: split(DATA.astype("i4"), num_outputs=2, opset=1),
        "Split-1 [type.unsupported]: input has element type int32, "
        "but Split-1 supports float16, float32, float64",
    ),
    "outputs.count": (
        lambda: evaluate(SPLIT_18, {"num_outputs": 2}, [DATA], outputs=3),
        "Split-18 [outputs.count]: 3 outputs are declared, but num_outputs = 2",
    ),
    "op.unknown": (
        lambda: splitops.schema("Squeeze"),
        "Squeeze [op.unknown]: operator 'Squeeze' is unknown, but the split operators are "
        "Split and SplitToSequence of domain ai.onnx, Split and VariadicSplit of domain openvino",
    ),
    "op.version": (
        lambda: split_to_sequence(DATA, opset=10),
        "SplitToSequence [op.version]: opset = 10, but SplitToSequence requires opset 11 or later",
    ),
    "op.version of an attribute": (
        lambda: evaluate(SPLIT_18, {"split": [2, 2]}, [DATA]),
        "Split-18 [op.version]: attribute 'split' is given, "
        "but Split-18 has the attributes axis, num_outputs",
    ),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_the_message(name: str) -> None:
    call, message = MESSAGES[name]
    with pytest.raises(RuleError) as caught:
        call()
    error = caught.value
    assert str(error) == message
    assert str(error.rule) == name.partition(" ")[0]
    assert message == f"{error.operator} [{error.rule}]: {error.got}, but {error.expected}"


def test_the_message_of_every_rule_is_pinned() -> None:
    assert {name.partition(" ")[0] for name in MESSAGES} == {str(rule) for rule in Rule}


FAMILIES = {
    "axis": errors.AxisError,
    "lengths": errors.LengthsError,
    "parts": errors.PartsError,
    "chunk": errors.ChunkError,
    "remainder": errors.RemainderError,
    "keepdims": errors.KeepdimsError,
    "type": errors.TypeUnsupportedError,
    "outputs": errors.OutputsError,
    "op": errors.OperatorError,
}


@pytest.mark.parametrize("rule", Rule)
def test_each_rule_is_raised_as_its_family(rule: Rule) -> None:
    error = rule_error("Split-18", rule, "got", "expected", size=6)
    assert type(error) is FAMILIES[rule.partition(".")[0]]
    assert isinstance(error, RuleError)
    assert isinstance(error, SplitError)
    assert isinstance(error, ValueError)
    assert dict(error.values) == {"size": 6}


def test_the_rules_are_a_closed_set() -> None:
    assert len(Rule) == 21
    with pytest.raises(ValueError, match="not a valid Rule"):
        Rule("axis.colour")


PLACE = Where(model="m.onnx", graph="main/then", node="n", input="split", attribute=None)


def test_a_place_becomes_json_by_what_is_known_of_it() -> None:
    whole = Where("m.onnx", "main/then", "n", "split", "axis")
    named = {"model": "m.onnx", "graph": "main/then", "node": "n", "input": "split", "attribute": "axis"}
    assert list(whole.as_dict().items()) == list(named.items())
    assert PLACE.as_dict() == {name: value for name, value in named.items() if name != "attribute"}
    assert Where(node="").as_dict() == {"node": ""}
    assert Where().as_dict() == {}


def test_a_place_in_a_model_ends_the_line() -> None:
    with pytest.raises(RuleError) as caught:
        evaluate(SPLIT_18, {}, [DATA, np.array([2, 3])], where=Where(model="m.onnx", node="n"))
    assert str(caught.value).endswith("has size 4 (model 'm.onnx', node 'n', input 'split')")
    assert caught.value.where == Where(model="m.onnx", node="n", input="split")


@pytest.mark.parametrize(
    ("attributes", "inputs", "place"),
    [
        ({"axis": 5, "num_outputs": 1}, [DATA], Where(node="n", attribute="axis")),
        ({"num_outputs": 0}, [DATA], Where(node="n", attribute="num_outputs")),
        ({}, [DATA, np.array([1])], Where(node="n", input="split")),
        ({"num_outputs": 1}, [DATA.astype("M8[s]")], Where(node="n", input="input")),
    ],
)
def test_an_error_says_which_input_or_attribute_it_is_about(
    attributes: Any, inputs: Any, place: Where
) -> None:
    with pytest.raises(RuleError) as caught:
        evaluate(SPLIT_18, attributes, inputs, where=Where(node="n"))
    assert caught.value.where == place


def test_a_call_has_no_place_in_its_message() -> None:
    with pytest.raises(RuleError) as caught:
        split(DATA, [1])
    assert caught.value.where == Where(input="split")
    assert not str(caught.value).endswith(")") or "(4, 6)" in str(caught.value)
    assert str(Where(input="split")) == ""


TRAVELLERS = [
    rule_error("Split-18", Rule.LENGTHS_SUM, "a", "b", where=PLACE, lengths=(2, 3), size=6),
    ModelError("truncated", Where(model="m.onnx")),
    ArrayError("out[0] overlaps data"),
    SplitError("anything"),
]


@pytest.mark.parametrize("error", TRAVELLERS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize(
    "travel",
    [copy.copy, copy.deepcopy, *(lambda e, p=p: pickle.loads(pickle.dumps(e, p)) for p in range(2, 6))],
)
def test_errors_keep_all_their_data_on_the_way_to_another_process(error: SplitError, travel: Any) -> None:
    found = travel(error)
    assert type(found) is type(error)
    assert str(found) == str(error)
    assert found.where == error.where
    if isinstance(error, RuleError):
        assert isinstance(found, RuleError)
        for name in ("operator", "rule", "got", "expected", "message"):
            assert getattr(found, name) == getattr(error, name)
        assert dict(found.values) == dict(error.values)
        assert type(found.rule) is Rule


@pytest.mark.parametrize("copied", [False, True])
def test_the_offending_values_cannot_be_changed(copied: bool) -> None:
    error = rule_error("Split-18", Rule.LENGTHS_SUM, "a", "b", size=6)
    error = pickle.loads(pickle.dumps(error)) if copied else error
    with pytest.raises(TypeError):
        error.values["size"] = 7  # type: ignore[index]


LONG = list(range(10**5))
HOPELESS = 10**5000 + 1  # more digits than Python writes
WIDE = np.arange(10_000).reshape(100, 100)


@pytest.mark.parametrize(
    "call",
    [
        lambda: split(DATA, LONG),
        lambda: split(DATA, WIDE, opset=11),
        lambda: split(DATA, [1], axis=LONG),
        lambda: split(DATA, [1], axis=WIDE),
        lambda: split(DATA, [1], axis="a\nb" * 1000),
        lambda: split(DATA, num_outputs=WIDE),
        lambda: split(DATA, num_outputs=WIDE, opset=13),
        lambda: split(DATA, num_outputs=10**400),
        lambda: split(DATA, axis=10**4000),
        lambda: split(DATA, [10**4000, 1]),
        lambda: split_to_sequence(DATA, keepdims=WIDE),
        lambda: split_to_sequence(DATA, 10**4000),
        lambda: splitops.schema("Split\nx" * 1000),
        lambda: splitops.schema("Split" * 1000),
        lambda: splitops.schema("Split", 10**4000 * -1),
        lambda: splitops.schema("Split", domain="a\nb" * 1000),
        lambda: evaluate(SPLIT_18, {"a\nb" * 1000: 1}, [DATA]),
        lambda: split(np.zeros(2, [(f"f{i}", "i4") for i in range(1000)]), num_outputs=2),
        lambda: split(np.broadcast_to(np.float32(0), (1,) * 60), [1], axis=60),
        lambda: splitops.plan("Split", shape=(10**4000 + 1,), num_outputs=2, opset=13),
        lambda: split(DATA, [1], axis=HOPELESS),
        lambda: split(DATA, [HOPELESS, 1]),
        lambda: split(DATA, num_outputs=HOPELESS),
        lambda: splitops.plan("Split", shape=(HOPELESS,), num_outputs=2, opset=13),
        lambda: splitops.schema("Split", -HOPELESS),
        lambda: splitops.plan("Split", shape=LONG, num_outputs=2, axis=10**6),
    ],
)
def test_a_message_is_one_line_of_bounded_length(call: Callable[[], Any]) -> None:
    with pytest.raises(SplitError) as caught:
        call()
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_long_lists_are_shortened_in_the_middle() -> None:
    assert brief(range(8)) == "[0, 1, 2, 3, 4, 5, 6, 7]"
    assert brief(range(9)) == "[0, 1, 2, 3, 4, 5, ..., 8] (9 values)"
    assert brief([]) == "[]"
    assert len(shown("x" * 10_000)) <= 80


class Odd:
    """A stranger's class whose text cannot be had."""

    def __repr__(self) -> str:
        raise ZeroDivisionError


def test_no_message_says_where_in_memory_an_object_lies() -> None:
    assert shown(object()) == "<object object>"
    assert shown([object()]) == "[<object object>]"
    assert str(ModelError(f"it is {object()!r}")) == "it is <object object>"
    assert shown(Odd()) == "<Odd instance>"
    assert shown("at 0x7f06afd4f2b0 of a table") == "'at 0x7f06afd4f2b0 of a table'"


# Plans and rows travel too


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("cannot read ftp://me:secret@host/x", "cannot read ftp://...@host/x"),
        ("s3://key:a:b@host and ssh://:x@host", "s3://...@host and ssh://...@host"),
        ("https://token@host/x.npy", "https://...@host/x.npy"),
        ("http://host:80/a@b", "http://host:80/a@b"),
        ("'http://host:80' at me@here", "'http://host:80' at me@here"),
        ("https://u:p@ss@host/x", "https://...@host/x"),
        ("http://u:p/q@host/x@2", "http://...@2"),
        ("s3://bucket/x@2.npy", "s3://bucket/x@2.npy"),
        ("https://h/x?X-Sig=a:b@c//d&u=https://i/?j is", "https://h/x?... is"),
        ("why? see https://h/x? No", "why? see https://h/x? No"),
    ],
)
def test_no_message_gives_a_password(text: str, left: str) -> None:
    assert str(SplitError(text)) == left


def test_a_long_text_without_a_password_is_read_once() -> None:
    # If each colon, or the rest behind each ://, is tried again, this takes hours.
    for text in ("://" + ":" * 1_000_000, "://:a" * 200_000, "://a" * 200_000, "://u:" + "p/" * 400_000):
        assert errors.without_passwords(text) == text


def test_a_plan_travels_and_can_be_a_key() -> None:
    plan = splitops.plan("SplitToSequence", shape=(6, 4), split=4)
    for found in (pickle.loads(pickle.dumps(plan)), copy.deepcopy(plan)):
        assert type(found) is splitops.Plan
        assert found == plan
        assert hash(found) == hash(plan)
        assert [part.shape for part in found(np.zeros((6, 4)))] == [(4, 4), (2, 4)]
    same = splitops.plan("SplitToSequence", shape=(6, 4), split=[4, 2])
    other = splitops.plan("SplitToSequence", shape=(6, 4), split=[2, 4])
    assert len({plan, same, other}) == 2
    with pytest.raises(AttributeError):
        plan.axis = 1  # type: ignore[misc]


def test_a_row_travels_and_can_be_a_key() -> None:
    row = splitops.schema("Split", 18)
    assert pickle.loads(pickle.dumps(row)) == row
    assert hash(pickle.loads(pickle.dumps(row))) == hash(row)
