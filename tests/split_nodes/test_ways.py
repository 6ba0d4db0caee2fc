"""The ways to write a split: their order is behaviour, and so is that of the fixes that limits name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from splitops.errors import ModelError, RuleError
from splitops.models.check.limits import FIXES
from splitops.models.split_nodes import SplitNode
from splitops.models.split_nodes.styles import ConversionTarget, SplitStyle
from splitops.models.split_nodes.ways import Kind, find_way, get_first_way, iter_ways
from splitops.spec.elements.types import ELEMENT_TYPES
from splitops.spec.operators import schema
from splitops.spec.operators.schemas import Attribute, SourceKind, ValueSource
from splitops.spec.sizes.arithmetic import Division
from splitops.spec.sizes.rules import SizeRule
from splitops.splitting.binding import Fact


def site(
    version: int, size: int | None, outputs: int = 2, dtype: str = "float32", **attributes: Any
) -> SplitNode:
    shape = None if size is None else (size,)
    data = Fact(ELEMENT_TYPES[dtype], shape)
    names = tuple("abcdefgh"[:outputs])
    return SplitNode(schema=schema("Split", version), attributes=attributes, facts=(data,), outputs=names)


def written(*args: Any, **options: Any) -> list[str]:
    return [f"{way.kind}: {way}" for way in iter_ways(*args, **options)]


def test_the_fixes_are_ordered_by_how_much_they_change() -> None:
    assert list(FIXES) == [
        *("axis", "explicit outputs", "version", "num_outputs", "unbind", "open"),
        *("lengths", "parts", "sequence", "tree", "slices", "gathers", "casts"),
        *("constants", "empty tensor"),
    ]


@pytest.mark.parametrize(
    ("prefer", "first"),
    [
        (SplitStyle.SAME, ["num_outputs=2", "split=[3, 2]"]),
        (SplitStyle.COUNT, ["num_outputs=2", "split=[3, 2]"]),
        (SplitStyle.LENGTHS, ["split=[3, 2]", "num_outputs=2"]),
    ],
)
def test_one_node_comes_first_then_slices_then_gathers(prefer: SplitStyle, first: list[str]) -> None:
    found = written(site(18, 5, num_outputs=2), ConversionTarget("", 18), prefer, keep=False)
    assert found == [
        *(f"lengths: Split-18(axis=0, {one})" for one in first),
        "slices: Slice x 2(axis=0, 0:3, 3:5)",
        "gathers: Gather x 2(axis=0, 0:3, 3:5)",
    ]


def test_lengths_that_the_graph_computes_come_after_those_that_are_set() -> None:
    found = written(site(18, None, num_outputs=2), ConversionTarget("", 18), SplitStyle.LENGTHS, keep=False)
    assert found == [
        "lengths: Split-18(axis=0, num_outputs=2)",
        "lengths: Split-18(axis=0, split computed)",
        "slices: Slice x 2(axis=0, bounds computed)",
        "gathers: Gather x 2(axis=0, bounds computed)",
    ]


def test_casts_come_last() -> None:
    kinds = [way.kind for way in iter_ways(site(13, 6, dtype="int8"), ConversionTarget("", 1))]
    assert kinds == [Kind.SLICES, Kind.CASTS, Kind.CASTS]


@pytest.mark.parametrize(
    ("prefer", "kept"), [(SplitStyle.SAME, True), (SplitStyle.COUNT, True), (SplitStyle.LENGTHS, False)]
)
def test_the_node_as_it_is_stays_unless_another_one_is_preferred(prefer: SplitStyle, kept: bool) -> None:
    assert get_first_way(site(18, 6, num_outputs=2), ConversionTarget("", 18), prefer).is_kept is kept


def test_a_node_that_a_runtime_takes_for_another_one_sets_its_lengths() -> None:
    assert (
        str(get_first_way(site(13, 6), ConversionTarget("", 13), must_differ=True))
        == "Split-13(axis=0, split=[3, 3])"
    )


def test_the_error_is_that_of_the_plainest_way() -> None:
    with pytest.raises(RuleError, match=r"Split-11 \[type.unsupported\]"):
        get_first_way(site(18, None, num_outputs=2, dtype="bfloat16"), ConversionTarget("", 11))


@pytest.mark.parametrize(
    "target", [ConversionTarget("", 18), ConversionTarget("", 13), ConversionTarget("openvino")]
)
def test_parts_without_the_axis_have_no_way_with_it(target):
    """No version of Split removes the axis. If one ever does, nothing that keeps the axis may replace it."""
    attributes = (*schema("Split", 18).attributes, Attribute(name="keepdims", default=1, minimum=0))
    keepdims = ValueSource(SourceKind.ATTRIBUTE, "keepdims")
    future = replace(schema("Split", 18), since_version=99, attributes=attributes, keepdims=keepdims)
    data = Fact(ELEMENT_TYPES["float32"], (2, 3))
    node = SplitNode(
        schema=future, attributes={"num_outputs": 2, "keepdims": 0}, facts=(data,), outputs=("a", "b")
    )
    with pytest.raises(RuleError, match="do not have the axis") as found:
        get_first_way(node, target)
    assert found.value.rule == "op.version"
    kept = replace(node, attributes={"num_outputs": 2})
    assert get_first_way(kept, target).squeeze is False


def test_trees_come_before_slices_if_outputs_are_limited() -> None:
    args = site(18, 8, 4, num_outputs=4), ConversionTarget("", 18), SplitStyle.LENGTHS
    kinds = [way.kind for way in iter_ways(*args, keep=False, max_outputs=2)]
    assert kinds == [Kind.NODE, Kind.NODE, Kind.TREE, Kind.SLICES, Kind.GATHERS]
    incomplete = site(18, 8, 3, num_outputs=4)
    assert Kind.TREE not in [way.kind for way in iter_ways(incomplete, args[1], max_outputs=2)]


def test_layers_have_the_same_ways_but_conversions_write_one() -> None:
    data, axis = Fact(ELEMENT_TYPES["float32"], (2, 6)), Fact(ELEMENT_TYPES["int64"], (), 1)
    node = SplitNode(
        schema=schema("Split", domain="openvino"),
        attributes={"num_splits": 2},
        facts=(data, axis),
        outputs=("a", "b"),
    )
    target = ConversionTarget("openvino", 1)
    assert written(node, target, SplitStyle.LENGTHS, keep=False)[-2:] == [
        "slices: Slice x 2(axis=1, 0:3, 3:6)",
        "gathers: Gather x 2(axis=1, 0:3, 3:6)",
    ]
    assert get_first_way(node, target, SplitStyle.LENGTHS).kind is Kind.NODE
    huge = replace(node, facts=(Fact(data.type, (2, 1 << 40)), axis))
    with pytest.raises(ModelError, match="its parts have more than 16777216 positions"):
        find_way(huge, target, Kind.GATHERS)


def test_a_sequence_of_too_many_parts_keeps_its_chunks() -> None:
    data = Fact(ELEMENT_TYPES["float32"], (9_000_000_000,))
    node = SplitNode(schema=schema("SplitToSequence", 11), attributes={}, facts=(data,), outputs=("s",))
    target = ConversionTarget("", 13)
    assert get_first_way(node, target, SplitStyle.LENGTHS).is_kept
    for kind in (Kind.NODE, Kind.SEQUENCE):
        with pytest.raises(ModelError):
            find_way(node, target, kind)
    small = replace(node, facts=(Fact(data.type, (3,)),))
    assert find_way(small, target, Kind.SEQUENCE).lengths == Division(SizeRule.EXPLICIT, lengths=(1, 1, 1))
    assert get_first_way(small, ConversionTarget("", 13), SplitStyle.LENGTHS).kind is Kind.NODE
