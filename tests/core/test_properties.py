"""Properties of planning and binding; each quotes the sentence of docs/semantics.md that it tests."""

from __future__ import annotations

import tracemalloc
from itertools import accumulate
from typing import Any

import numpy as np
import pytest
from comparison import assert_restores, assert_same_parts, ramp_of
from hypothesis import event, example, given, settings
from hypothesis import strategies as st
from written_rules import ATTRIBUTES, INPUTS, Key, broken_rules

import splitops
from splitops import RuleError
from splitops.calls.node import evaluate
from splitops.spec import ELEMENT_TYPES, SizeRule
from splitops.spec.operators import schema as find_schema
from splitops.spec.sizes.arithmetic import (
    Division,
    compute_part_size,
    compute_part_sizes,
    count_parts,
    find_violation,
)
from splitops.splitting import MAX_PARTS, SplitRequest, plan_request

HUGE = [2**31, 2**32 + 4, 2**53 + 1, 2**63 - 1]
SPLIT = find_schema("Split", 18)


@st.composite
def divisions(
    draw: st.DrawFn,
    sizes: st.SearchStrategy[int] = st.integers(0, 60),  # noqa: B008
) -> tuple[Division, int]:
    """A division of any rule, with an axis size that it fits."""
    rule = draw(st.sampled_from(SizeRule))
    match rule:
        case SizeRule.EXPLICIT:
            lengths = tuple(draw(st.lists(sizes, max_size=8)))
            return Division(rule, lengths=lengths), sum(lengths)
        case SizeRule.REMAINDER:
            lengths = draw(st.lists(sizes, max_size=8))
            at, rest = draw(st.integers(0, len(lengths))), draw(sizes)
            return Division(rule, lengths=(*lengths[:at], -1, *lengths[at:])), sum(lengths) + rest
        case SizeRule.EVEN:
            count = draw(st.integers(1, 12))
            return Division(rule, count=count), count * draw(sizes)
        case SizeRule.CEIL:
            return Division(rule, count=draw(st.integers(1, 12))), draw(sizes)
        case SizeRule.CHUNK:
            size = draw(sizes)
            least = max(1, size // 200)  # not millions of parts
            return Division(rule, chunk=draw(st.integers(least, max(least, 2 * size)))), size


def all_sizes(division: Division, size: int) -> tuple[int, ...]:
    return compute_part_sizes(division, size, count_parts(division, size))


@given(divisions())
def test_sizes_are_not_negative_and_sum_to_the_axis(made: tuple[Division, int]) -> None:
    """The rule: 'they sum to D', for every size rule."""
    division, size = made
    assert find_violation(division, size) is None
    sizes = all_sizes(division, size)
    assert min(sizes, default=0) >= 0
    assert sum(sizes) == size


@given(divisions(st.one_of(st.integers(0, 60), st.sampled_from(HUGE))), st.data())
def test_part_sizes_are_the_part_size_of_each(made: tuple[Division, int], data: st.DataObject) -> None:
    """The rule: 'There is one arithmetic': all parts at once, the first ones and each one alone agree."""
    division, size = made
    count = count_parts(division, size)
    each = tuple(compute_part_size(division, size, index) for index in range(count))
    assert compute_part_sizes(division, size, count) == each
    first = data.draw(st.integers(0, count))
    assert compute_part_sizes(division, size, first) == each[:first]


def walk(size: int, chunk: int) -> list[int]:
    """Cut chunk after chunk off an axis, one element at a time: no division."""
    parts: list[int] = []
    for position in range(size):
        if position % chunk == 0:
            parts.append(0)
        parts[-1] += 1
    return parts


@given(st.integers(0, 80), st.integers(1, 90))
@example(5, 4)
@example(9, 4)
@example(0, 2)
def test_ceil_cuts_the_smallest_chunk_that_suffices_and_pads_with_empty_parts(size: int, count: int) -> None:
    """The rule: 'c = ceil(D / n) while the axis lasts. The next part has the rest, the others 0'."""
    chunk = next(c for c in range(size + 1) if c * count >= size)
    parts = walk(size, chunk) if chunk else []
    assert list(all_sizes(Division(SizeRule.CEIL, count=count), size)) == parts + [0] * (count - len(parts))


@given(st.integers(0, 80), st.integers(1, 90))
def test_chunks_are_as_many_as_it_takes(size: int, chunk: int) -> None:
    """The rule: 'ceil(D / s) parts of s, of which the last may be smaller'."""
    division = Division(SizeRule.CHUNK, chunk=chunk)
    parts = walk(size, chunk)
    assert count_parts(division, size) == len(parts)
    assert list(all_sizes(division, size)) == parts


@given(st.integers(0, 200), st.integers(1, 60))
def test_even_parts_are_equal_or_rejected(size: int, count: int) -> None:
    """The rule: 'n divides D, and each part has D / n'."""
    division = Division(SizeRule.EVEN, count=count)
    if size in range(0, size + count, count):
        assert find_violation(division, size) is None
        assert len(set(all_sizes(division, size))) == 1
    else:
        broken = find_violation(division, size)
        assert broken is not None
        assert broken.rule == "parts.divisible"


@given(divisions(), st.integers(-20, 20).filter(bool))
def test_lengths_fit_one_size_only(made: tuple[Division, int], error: int) -> None:
    """The rules: 'they sum to D', and what -1 takes 'may be 0 but not negative'."""
    division, size = made
    if division.rule is SizeRule.EXPLICIT:
        broken = find_violation(division, size + error)
        assert broken is not None
        assert broken.rule == "lengths.sum"
    if division.rule is SizeRule.REMAINDER:
        least = sum(length for length in division.lengths if length >= 0)
        assert find_violation(division, least) is None
        broken = find_violation(division, least - abs(error))
        assert broken is not None
        assert broken.rule == "remainder.negative"


@given(divisions(), st.lists(st.integers(0, 5), max_size=3), st.lists(st.integers(0, 5), max_size=3))
def test_offsets_are_where_the_parts_before_end(
    made: tuple[Division, int], before: list[int], after: list[int]
) -> None:
    division, size = made
    plan = plan_request(SplitRequest(SPLIT, (*before, size, *after), len(before), division))
    assert plan.offsets == tuple(accumulate(plan.sizes, initial=0))[: len(plan.sizes)]
    assert plan.shapes == tuple((*before, part, *after) for part in plan.sizes)


# Arrays


@st.composite
def plans(draw: st.DrawFn) -> tuple[SplitRequest, tuple[int, ...], int]:
    division, size = draw(divisions(st.integers(0, 7)))
    shape = [
        *draw(st.lists(st.integers(0, 4), max_size=2)),
        size,
        *draw(st.lists(st.integers(0, 4), max_size=2)),
    ]
    axis = draw(st.sampled_from([index for index, extent in enumerate(shape) if extent == size]))
    return SplitRequest(SPLIT, tuple(shape), axis, division), tuple(shape), axis


@pytest.mark.parametrize("element_type", ELEMENT_TYPES.values(), ids=str)
@given(made=plans(), copy=st.booleans())
def test_a_concatenation_of_the_parts_is_the_data(element_type: Any, made: Any, copy: bool) -> None:
    """The rule: 'Strings split as strings; 64-bit integers and float64 keep all their bits', and so on."""
    request, shape, axis = made
    plan = splitops.splitting.planning.plan_request(request)
    data = ramp_of(shape, element_type)
    parts = plan(data, copy=copy)
    assert [part.shape for part in parts] == list(plan.shapes)
    assert_restores(parts, data, axis)


@given(made=plans())
def test_parts_are_what_numpy_gives(made: Any) -> None:
    request, shape, axis = made
    plan = splitops.splitting.planning.plan_request(request)
    data = ramp_of(shape, ELEMENT_TYPES["int64"])
    if plan.sizes:
        assert_same_parts(plan(data), np.split(data, plan.offsets[1:], axis))
        assert_same_parts(plan(data, copy=True), np.split(data, plan.offsets[1:], axis))


# Nodes


KEYS: list[Key] = list(ATTRIBUTES)
SOME_SHAPES = st.lists(st.integers(0, 7), min_size=1, max_size=3).map(tuple)
SHAPES = st.integers(0, 19).flatmap(lambda chance: st.just(()) if chance == 13 else SOME_SHAPES)
DATA_TYPES = [*["float32"] * 6, "float64", "float16", "int64", "bool", "complex64", "uint8", "datetime64[s]"]
LENGTH_TYPES = ["int64", "int64", "int64", "int32", "uint8", "float32", "float64", "bool"]


@st.composite
def lengths_for(draw: st.DrawFn, size: int, *, remainder: bool) -> list[int]:
    """Lengths that mostly fit an axis of this size, sometimes bent."""
    points = sorted(draw(st.lists(st.integers(0, size), max_size=4)))
    lengths = [end - start for start, end in zip([0, *points], [*points, size], strict=True)]
    bend = draw(st.sampled_from(["no", "no", "no", "add", "negative", "rest", "rests", "empty", "huge"]))
    at = draw(st.integers(0, len(lengths) - 1))
    match bend:
        case "add":
            lengths[at] += draw(st.integers(1, 3))
        case "negative":
            lengths[at] = draw(st.integers(-5, -2 if remainder else -1))
        case "rest":
            lengths[at] = -1
        case "rests":
            lengths += [-1, -1]
        case "empty":
            lengths = []
        case "huge":
            lengths[at] = draw(st.sampled_from([2**62, 2**63 - 1, 2**32 + 1]))
    return lengths


def tensor(values: Any, dtype: str) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.array(values, np.int64).astype(dtype)


@st.composite
def nodes(draw: st.DrawFn) -> tuple[Key, dict[str, Any], list[np.ndarray | None], int | None]:
    """A node of any version: mostly near to valid, so that both verdicts are common."""
    key = draw(st.sampled_from(KEYS))
    domain, name, _ = key
    shape, dtype = draw(SHAPES), draw(st.sampled_from(DATA_TYPES))
    data = np.zeros(shape, dtype)
    rank = max(len(shape), 1)
    axis = draw(st.sampled_from([*range(-rank, rank), *range(-rank, rank), -4, rank]))
    size = shape[axis] if -len(shape) <= axis < len(shape) else 3
    attributes: dict[str, Any] = {}
    inputs: list[np.ndarray | None] = [data]
    if domain == "openvino":
        form = draw(st.sampled_from(["scalar", "scalar", "scalar", "one", "two"]))
        at = tensor(
            {"scalar": axis, "one": [axis], "two": [[axis]]}[form],
            draw(st.sampled_from(["int64", "int8", "int64", "float32", "bool"])),
        )
        inputs.append(at)
    elif draw(st.booleans()) or axis:
        attributes["axis"] = axis
    count = draw(st.integers(1, 8) | st.integers(-1, 1))
    lengths = draw(lengths_for(size, remainder=name == "VariadicSplit"))
    outputs = draw(st.sampled_from([None, len(lengths), count, count, count + 1]))
    if name == "SplitToSequence":
        outputs = draw(st.sampled_from([None, None, None, 1, 2]))
        if draw(st.booleans()):
            attributes["keepdims"] = draw(st.sampled_from([0, 1, 0, 1, 2, -1]))
    if "split" in ATTRIBUTES[key] and draw(st.booleans()):
        attributes["split"] = lengths
    if key in (("", "Split", 18), ("openvino", "Split", 1)) and draw(st.integers(0, 3)):
        attributes["num_splits" if domain else "num_outputs"] = count
    if draw(st.integers(0, 11)) == 7:
        attributes[draw(st.sampled_from(["split", "num_outputs", "keepdims"]))] = draw(
            st.just([1]) | st.just(1)
        )
    if name == "VariadicSplit" or (INPUTS[key] > len(inputs) and draw(st.booleans())):
        inputs.append(draw(_lengths_tensor(lengths, key, dtype)))
    elif draw(st.integers(0, 9)) == 7:
        inputs.append(draw(st.none() | st.just(np.array([1]))))
    if "split" in attributes and not isinstance(attributes["split"], list):
        attributes["split"] = [attributes["split"]]
    for number in ("num_outputs", "keepdims"):
        if isinstance(attributes.get(number), list):
            attributes[number] = attributes[number][0]
    return key, attributes, inputs, outputs


@st.composite
def _lengths_tensor(draw: st.DrawFn, lengths: list[int], key: Key, dtype: str) -> np.ndarray:
    own = dtype if key == ("", "Split", 1) and dtype.startswith("float") else "int64"
    form = draw(st.sampled_from(["1-D"] * 6 + ["2-D", "scalar", "fraction"]))
    made = tensor(lengths, draw(st.sampled_from([own, own, own, *LENGTH_TYPES])))
    match form:
        case "2-D":
            return made.reshape(1, -1)
        case "scalar":
            return made.reshape(-1)[:1].reshape(()) if made.size else np.array(3)
        case "fraction":
            return made + made.dtype.type(0.5) if made.dtype.kind == "f" else made
    return made


@settings(max_examples=6 * settings.default.max_examples)  # many versions, many ways to be wrong
@given(nodes())
@example((("", "Split", 18), {"num_outputs": 4}, [np.zeros(5)], 4))
@example((("openvino", "VariadicSplit", 1), {}, [np.zeros(4), np.array(0), np.array([3, -1, 2])], None))
def test_exactly_the_nodes_that_the_rules_allow_are_bound(node: Any) -> None:
    """The code agrees with the rules written down once more, naively: in what it accepts, and in why not."""
    key, attributes, inputs, outputs = node
    domain, name, version = key
    expected = broken_rules(key, attributes, inputs, outputs)
    row = find_schema(name, version, domain)
    parts, rejected = None, None
    try:
        parts = evaluate(row, attributes, inputs, outputs=outputs)
    except RuleError as error:
        rejected = error.rule
    event(f"rejected: {rejected}" if rejected else "accepted")
    if parts is None:
        assert str(rejected) in expected
        return
    assert expected == set()
    number = attributes.get("num_outputs", attributes.get("num_splits"))
    if outputs is None or number is None or outputs == number:  # else the last parts are left out
        axis = int(np.ravel(inputs[1])[0]) if domain else attributes.get("axis", 0)
        has_lengths = any(value is not None for value in inputs[1:])
        squeeze = attributes.get("keepdims") == 0 and not has_lengths
        assert_restores(parts, inputs[0], axis % inputs[0].ndim, squeeze=squeeze)


# Sizes beyond memory


@pytest.mark.parametrize("size", HUGE)
@pytest.mark.parametrize("count", [1, 2, 3, 7, 1000])
def test_huge_sizes_are_exact(size: int, count: int) -> None:
    """The rule: 'exact integer arithmetic: never floating-point, never 32 bits wide'."""
    sizes = splitops.plan("Split", shape=(2, size), axis=1, num_outputs=count).sizes
    assert sum(sizes) == size
    assert sizes[0] * count - size in range(count)
    lengths = [size - 2**20, 1, 2**20 - 1]
    plan = splitops.plan("Split", shape=(size,), split=lengths)
    assert (plan.sizes, plan.offsets) == (tuple(lengths), (0, size - 2**20, size - 2**20 + 1))
    assert (
        splitops.plan("VariadicSplit", shape=(size, 3), axis=0, split_lengths=[5, -1, 7]).sizes[1]
        == size - 12
    )
    if size > 2**32:
        rest = splitops.plan("SplitToSequence", shape=(size,), split=size // 2)
        assert sum(rest.sizes) == size
        assert set(rest.sizes[:2]) == {size // 2}


@pytest.mark.parametrize("size", HUGE)
def test_a_huge_sum_that_is_wrong_by_one_is_rejected(size: int) -> None:
    with pytest.raises(RuleError) as caught:
        splitops.plan("Split", shape=(size,), split=[size - 2, 1])
    assert caught.value.values["size"] == size
    with pytest.raises(RuleError):
        splitops.plan("Split", shape=(size,), num_outputs=2 if size % 2 else 3, opset=13)


def test_planning_huge_sizes_allocates_next_to_nothing() -> None:
    tracemalloc.start()
    try:
        splitops.plan("Split", shape=(2**63 - 1, 2**40), axis=0, num_outputs=1000)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_huge_array_that_lies_in_one_element_is_split() -> None:
    data = np.broadcast_to(np.float32(1), (2**40, 2))
    parts = splitops.onnx.split(data, [2**40 - 3, 3])
    assert [part.shape for part in parts] == [(2**40 - 3, 2), (3, 2)]
    assert all(np.shares_memory(part, data) for part in parts)


def test_two_declared_outputs_of_a_hostile_number_are_two_parts() -> None:
    data = np.arange(3)
    parts = evaluate(SPLIT, {"num_outputs": 2**62}, [data], outputs=2)
    assert_same_parts(parts, [data[:1], data[1:2]])


@pytest.mark.parametrize("opset", [13, 18])
def test_a_hostile_number_of_parts_is_rejected_without_making_them(opset: int) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(RuleError) as caught:
            splitops.onnx.split(np.zeros((0, 2)), num_outputs=2**62, opset=opset)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert caught.value.rule == "parts.count"
    with pytest.raises(RuleError) as caught:
        splitops.onnx.split_to_sequence(np.broadcast_to(np.zeros(1), (MAX_PARTS + 1,)), 1)
    assert caught.value.rule == "parts.count"
