"""One operator's inference is sound and tight: every concrete instance of small inputs is tried."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import splitops
from splitops.errors import Rule, RuleError
from splitops.spec import ELEMENT_TYPES, schema
from splitops.spec.sizes import names as symbols
from splitops.spec.sizes.dims import make_dim
from splitops.splitting.binding import Fact, bind
from splitops.splitting.inference import infer_binding

LIMIT = 7  # an unbounded dimension is tried up to here


def concrete_shapes(shape: tuple[Any, ...]) -> Iterator[tuple[int, ...]]:
    """Every shape that a partly known one stands for; equal names are equal sizes."""
    names = sorted({dim for dim in shape if isinstance(dim, str)})
    ranges = [
        [dim]
        if isinstance(dim, int | str)
        else range(LIMIT + 1)
        if dim is None
        else range(dim[0], (LIMIT if dim[1] is None else dim[1]) + 1)
        for dim in shape
    ]
    for sizes in product(range(LIMIT + 1), repeat=len(names)):
        named = dict(zip(names, sizes, strict=True))
        for dims in product(*ranges):
            yield tuple(named[dim] if isinstance(dim, str) else dim for dim in dims)


def bounds(dim: Any) -> tuple[int, int | None]:
    if isinstance(dim, int):
        return dim, dim
    return (0, None) if dim is None or isinstance(dim, str) else dim


def assert_hull(inferred: tuple[Any, ...], outcomes: list[tuple[int, ...]], *, open_end: bool) -> None:
    """The inferred shape is the least one that holds every outcome."""
    assert {len(outcome) for outcome in outcomes} == {len(inferred)}
    for dim, sizes in zip(inferred, zip(*outcomes, strict=True), strict=True):
        lo, hi = bounds(dim)
        assert lo <= min(sizes), (dim, sizes)
        assert hi is None or max(sizes) <= hi, (dim, sizes)
        if not isinstance(dim, str):
            assert lo == min(sizes), f"{dim} could begin at {min(sizes)}"
            if not open_end:
                assert hi == max(sizes), f"{dim} could end at {max(sizes)}"


def outcomes_of(
    run: Callable[..., Any], shape: tuple[Any, ...], choices: list[tuple[Any, ...]]
) -> list[tuple[tuple[int, ...], Any]]:
    """What every concrete instance that runs gives: the concrete shape, and the shapes of its parts."""
    found = []
    for concrete in concrete_shapes(shape):
        for choice in choices:
            try:
                parts = run(np.zeros(concrete, np.int8), *choice)
            except RuleError:
                continue
            found.append((concrete, tuple(part.shape for part in parts)))
    return found


bounded = st.one_of(
    st.integers(0, 6),
    st.tuples(st.integers(0, 6), st.integers(0, 4)).map(lambda t: (t[0], min(t[0] + t[1], LIMIT))),
)
any_dim = st.one_of(bounded, st.none(), st.just((2, None)), st.sampled_from(["N", "M"]))
lengths = st.lists(st.one_of(st.integers(0, 4), st.none()), min_size=1, max_size=3).filter(
    lambda entries: entries.count(None) < 3  # which takes long to try
)


def all_lengths(partial: list[int | None], *, minimum: int) -> list[list[int]]:
    ranges = [range(minimum, LIMIT + 1) if entry is None else [entry] for entry in partial]
    return [list(entries) for entries in product(*ranges)]


def compare(
    infer: Callable[[], Any], found: list[tuple[tuple[int, ...], Any]], shape: tuple[Any, ...]
) -> None:
    # What has no upper bound was tried up to a limit only: there the upper bound cannot be judged.
    open_end = any(
        dim is None or isinstance(dim, str) or (isinstance(dim, tuple) and dim[1] is None) for dim in shape
    )
    try:
        inferred = infer()
    except RuleError:
        assert not found, "an instance runs, but inference says that none can"
        return
    if not found:
        assert open_end, "no instance runs, and inference does not say so"
        return
    for index, part in enumerate(inferred):
        assert_hull(part, [parts[index] for _, parts in found], open_end=open_end)
    for concrete, parts in found:
        sizes = {name: size for name, size in zip(shape, concrete, strict=True) if isinstance(name, str)}
        for part, outcome in zip(inferred, parts, strict=True):
            for dim, size in zip(part, outcome, strict=True):
                assert not isinstance(dim, str) or symbols.evaluate(dim, sizes) == size, (dim, sizes, size)


@settings(max_examples=150)
@given(
    st.lists(any_dim, min_size=1, max_size=2),
    st.integers(1, 4),
    st.sampled_from([13, 18]),
    st.integers(-2, 1),
)
def test_split_by_number(shape: list[Any], count: int, opset: int, axis: int) -> None:
    shape, arguments = tuple(shape), {"axis": axis, "num_outputs": count, "opset": opset}
    found = outcomes_of(lambda data: splitops.onnx.split(data, **arguments), shape, [()])
    compare(lambda: splitops.onnx.infer_split(shape, **arguments), found, shape)


@settings(max_examples=100)
@given(st.lists(any_dim, min_size=1, max_size=2), lengths, st.sampled_from([2, 11, 13, 18]))
def test_split_by_partly_known_lengths(shape: list[Any], partial: list[int | None], opset: int) -> None:
    shape = tuple(shape)
    choices = [(entries,) for entries in all_lengths(partial, minimum=0)]
    found = outcomes_of(lambda data, split: splitops.onnx.split(data, split, opset=opset), shape, choices)
    compare(lambda: splitops.onnx.infer_split(shape, partial, opset=opset), found, shape)


@settings(max_examples=100)
@given(st.lists(bounded, min_size=1, max_size=3), st.integers(1, 4), st.one_of(st.none(), st.integers(-3, 2)))
def test_openvino_split_of_any_axis(shape: list[Any], count: int, axis: int | None) -> None:
    shape = tuple(shape)
    choices = [(a,) for a in (range(len(shape)) if axis is None else [axis])]
    found = outcomes_of(lambda data, axis: splitops.openvino.split(data, axis, count), shape, choices)
    compare(lambda: splitops.openvino.infer_split(shape, axis, count), found, shape)


@settings(max_examples=100)
@given(
    st.lists(bounded, min_size=1, max_size=2),
    st.lists(st.one_of(st.integers(-1, 4), st.none()), min_size=1, max_size=3),
    st.one_of(st.none(), st.integers(0, 1)),
)
def test_variadic_split_of_partly_known_lengths(
    shape: list[Any], partial: list[int | None], axis: int | None
) -> None:
    shape = tuple(shape)
    axes = range(len(shape)) if axis is None else [axis]
    choices = list(product(axes, all_lengths(partial, minimum=-1)))
    found = outcomes_of(splitops.openvino.variadic_split, shape, choices)
    compare(lambda: splitops.openvino.infer_variadic_split(shape, axis, partial), found, shape)


@settings(max_examples=150)
@given(
    st.lists(any_dim, min_size=1, max_size=2),
    st.one_of(st.none(), st.integers(1, 5), lengths, st.just([])),
    st.integers(0, 1),
)
def test_split_to_sequence(shape: list[Any], split: Any, keepdims: int) -> None:
    shape = tuple(shape)
    choices = (
        [(entries,) for entries in all_lengths(split, minimum=0)] if isinstance(split, list) else [(split,)]
    )

    def run(data: np.ndarray[Any, Any], split: Any) -> list[Any]:
        given = np.array(split, np.int64) if isinstance(split, list) else split
        return splitops.onnx.split_to_sequence(data, given, keepdims=keepdims)

    found = outcomes_of(run, shape, choices)
    try:
        inferred = splitops.onnx.infer_split_to_sequence(
            shape, np.empty(0, np.int64) if split == [] else split, keepdims=keepdims
        )
    except RuleError:
        assert not found
        return
    if not found:
        return
    open_end = any(not isinstance(bounds(dim)[1], int) for dim in shape)
    assert_hull((inferred.length,), [(len(parts),) for _, parts in found], open_end=open_end)
    elements = [outcome for _, parts in found for outcome in parts]
    if elements:
        assert inferred.shape is not None
        assert_hull(inferred.shape, elements, open_end=open_end)


@pytest.mark.parametrize(("lo", "hi"), [(0, 0), (0, 6), (2, 6), (1, 1)])
def test_a_scalar_chunk_of_unknown_size(lo: int, hi: int) -> None:
    row = splitops.schema("SplitToSequence")
    facts = [Fact(None, (make_dim(lo, hi),)), Fact(ELEMENT_TYPES["int64"], ())]
    inferred = infer_binding(bind(row, {}, facts))
    parts = [
        [part.shape[0] for part in splitops.onnx.split_to_sequence(np.zeros(size), chunk)]
        for size in range(lo, hi + 1)
        for chunk in range(1, hi + 2)
    ]
    assert inferred.count == make_dim(min(map(len, parts)), max(map(len, parts)))
    sizes = [size for row in parts for size in row]
    if sizes:
        assert inferred.element == (make_dim(min(sizes), max(sizes)),)


def test_more_unknown_lengths_than_are_listed_may_each_be_all_of_the_axis() -> None:
    count = 1 << 17
    facts = [Fact(None, (make_dim(2, 6),)), Fact(ELEMENT_TYPES["int64"], (count,))]
    inferred = infer_binding(bind(schema("Split", 13), {}, facts, outputs=count))
    assert inferred.parts == ((make_dim(0, 6),),) * count


def test_chunks_of_data_of_unknown_rank_are_of_any_number() -> None:
    assert splitops.onnx.infer_split_to_sequence(None, 2).length is None


@pytest.mark.parametrize("size", [2**31, 2**32 + 4, 2**53 + 1, 2**63 - 1])
def test_sizes_beyond_32_and_53_bits_are_exact(size: int) -> None:
    assert splitops.onnx.infer_split([size], num_outputs=2) == [((size + 1) // 2,), (size // 2,)]
    assert splitops.openvino.infer_variadic_split([size], 0, [1, -1]) == [(1,), (size - 1,)]
    assert splitops.openvino.infer_variadic_split([(size - 1, size)], 0, [1, -1])[1] == (
        (size - 2, size - 1),
    )
    assert splitops.onnx.infer_split_to_sequence([size], 2).length == (size + 1) // 2


def test_an_integer_among_floats_is_exact() -> None:
    size = 2**53 + 1
    assert splitops.onnx.infer_split([2 + size], [2.0, size], opset=1) == [(2,), (size,)]


def test_a_bound_beyond_every_size_is_none() -> None:
    assert splitops.openvino.infer_variadic_split([(4, 2**63)], 0, [1, -1])[1] == ((3, None),)


@pytest.mark.parametrize(
    ("infer", "rule"),
    [
        (lambda: splitops.onnx.infer_split([(4, 5)], num_outputs=3, opset=13), Rule.PARTS_DIVISIBLE),
        (lambda: splitops.onnx.infer_split([(0, 4)], [2, 3]), Rule.LENGTHS_SUM),
        (lambda: splitops.onnx.infer_split([(0, 4)], [5, None]), Rule.LENGTHS_SUM),
        (lambda: splitops.onnx.infer_split([None], [2, -3]), Rule.LENGTHS_NEGATIVE),
        (lambda: splitops.onnx.infer_split([None], [2, 3], num_outputs=2), Rule.LENGTHS_CONFLICT),
        (lambda: splitops.onnx.infer_split(None), Rule.LENGTHS_MISSING),
        (lambda: splitops.onnx.infer_split([None], [1], axis=1), Rule.AXIS_RANGE),
        (lambda: splitops.onnx.infer_split([], num_outputs=1, axis=None), Rule.AXIS_RANGE),
        (lambda: splitops.onnx.infer_split(None, num_outputs=1 << 40), Rule.PARTS_COUNT),
        (lambda: splitops.onnx.infer_split_to_sequence([1], [1], opset=9), Rule.OPERATOR_VERSION),
        (lambda: splitops.onnx.infer_split_to_sequence([None], 0), Rule.CHUNK_POSITIVE),
        (lambda: splitops.onnx.infer_split_to_sequence([None], keepdims=2), Rule.KEEPDIMS_VALUE),
        (lambda: splitops.openvino.infer_split([(4, 5)], 0, 3), Rule.PARTS_DIVISIBLE),
        (lambda: splitops.openvino.infer_split([5, 7], None, 3), Rule.PARTS_DIVISIBLE),
        (lambda: splitops.openvino.infer_split([None], 0, 0), Rule.PARTS_COUNT),
        (lambda: splitops.openvino.infer_variadic_split([(0, 4)], 0, [5, -1]), Rule.REMAINDER_NEGATIVE),
        (lambda: splitops.openvino.infer_variadic_split([None], 0, [-1, None, -1]), Rule.REMAINDER_REPEATED),
        (lambda: splitops.openvino.infer_variadic_split(None, np.zeros((1, 1), int), [1]), Rule.AXIS_RANK),
    ],
)
def test_what_leaves_no_outcome_is_an_error_with_its_rule(infer: Callable[[], Any], rule: Rule) -> None:
    with pytest.raises(RuleError) as caught:
        infer()
    assert caught.value.rule == rule


@pytest.mark.parametrize(
    "shape", ["N", [-1], [True], [1.5], [(3, 2)], [(1, 2, 3)], [""], {2: 3}, 4, [None, object()]]
)
def test_what_is_no_shape_is_one_clear_error(shape: Any) -> None:
    with pytest.raises(splitops.ArrayError, match=r"shape|dimension"):
        splitops.onnx.infer_split(shape, [1])


def test_the_parts_of_a_symbol_add_up_to_it() -> None:
    for shape, arguments in [
        (["N"], {"num_outputs": 2}),
        (["N"], {"num_outputs": 4, "opset": 13}),
        (["3*N + 6"], {"num_outputs": 3, "opset": 13}),
    ]:
        parts = splitops.onnx.infer_split(shape, **arguments)
        assert symbols.add(*(part[0] for part in parts)) == shape[0]
    parts = splitops.openvino.infer_variadic_split(["N"], 0, [2, -1, 5])
    assert symbols.add(*(part[0] for part in parts)) == "N"


@given(st.text(max_size=30), st.integers(1, 9), st.integers(-5, 5))
def test_any_text_is_a_name(text: str, divisor: int, offset: int) -> None:
    """Names come from files: none fails, and what is done to one can be undone."""
    if not text:
        return
    for name in (
        symbols.divide(text, divisor),
        symbols.divide_up(text, divisor),
        symbols.add(text, offset),
    ):
        assert name is None or isinstance(name, int) or len(name) <= symbols.MAX_LENGTH
    back = symbols.add(text, 0)
    assert back is None or symbols.subtract(back, back) == 0
