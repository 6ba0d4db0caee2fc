"""Generated splits through every conversion and simplification: run before and after, at several sizes.

What the source gives, the result gives, here and in onnxruntime; where the source rejects, the result does.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from conversion_results import equal, runnable
from hypothesis import assume, event, given, note, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper, numpy_helper

import splitops
from splitops.errors import NOWHERE, SplitError
from splitops.models.convert import Conversion, SplitStyle, convert, convert_with_report
from splitops.models.formats.onnx.graphs import deserialize_model
from splitops.models.formats.openvino import Builder, OpenVINOModel
from splitops.models.quirks import find_conflicting_splits
from splitops.models.simplify import simplify_with_report
from splitops.spec import SCHEMAS, SizeRule, SourceKind, schema

sys.path.append(str(Path(__file__).resolve().parents[1] / "simplify"))

from simplify_helpers import ONNXRUNTIME, in_onnxruntime

OPSETS = (1, 2, 9, 10, 11, 12, 13, 17, 18, 24)
TARGETS = [f"onnx:{opset}" for opset in OPSETS]
if importlib.util.find_spec("openvino") is not None:  # its converter takes the operators around the splits
    TARGETS.append("openvino")
AXIS, RANK = 1, 2
"""The data has shape (2, n)."""

Model = ModelProto | OpenVINOModel


@dataclass(frozen=True)
class Statement:
    """One split as its node sets it.

    Attributes:
        outputs: the number of declared outputs.
        lengths: the lengths, -1 among them; an integer is a chunk; None is a number of parts.
        count: what declares that number, where it is not the outputs.
        axis: the axis, maybe counted from the end.
        names: whether each output has a name; ONNX alone leaves some out.
        keepdims: of a sequence.
    """

    outputs: int
    lengths: tuple[int, ...] | int | None = None
    count: int | None = None
    axis: int = AXIS
    names: tuple[bool, ...] = ()
    keepdims: int = 1


@dataclass(frozen=True)
class Case:
    """A model whose splits share one input, and the sizes of its axis that it is run at."""

    model: Model
    sizes: tuple[int, ...]

    def feeds(self) -> Iterator[dict[str, Any]]:
        for size in self.sizes:
            yield {"x": np.arange(2 * size, dtype=np.float32).reshape(2, size)}


@st.composite
def lengths_of(draw: st.DrawFn, size: int) -> tuple[int, ...]:
    """Lengths that add up to a size; some of them may be 0."""
    cuts = sorted(draw(st.lists(st.integers(0, size), max_size=3)))
    return tuple(int(length) for length in np.diff([0, *cuts, size]))


@st.composite
def statements(draw: st.DrawFn, name: str, version: int, domain: str, size: int) -> Statement:
    """A form of an operator version that is right for an axis of some size."""
    row = schema(name, version, domain)
    axis = draw(st.sampled_from([AXIS, AXIS - RANK]))
    if row.gives_sequence:
        lengths = draw(st.one_of(st.none(), st.integers(1, 4), lengths_of(size)))
        return Statement(1, lengths, axis=axis, keepdims=draw(st.sampled_from([0, 1])))
    if row.lengths and draw(st.booleans()):
        lengths = draw(lengths_of(size))
        if row.lengths_rule is SizeRule.REMAINDER and draw(st.booleans()):
            at = draw(st.integers(0, len(lengths) - 1))
            lengths = (*lengths[:at], -1, *lengths[at + 1 :])
        if row.count is None or row.domain:
            return Statement(len(lengths), lengths, axis=axis)
        names = tuple(draw(st.lists(st.booleans(), min_size=len(lengths), max_size=len(lengths))))
        return Statement(len(lengths), lengths, axis=axis, names=names if any(names) else ())
    if row.count is None:
        return Statement(1, (size,), axis=axis)
    count = draw(st.sampled_from([n for n in range(1, 7) if size % n == 0]))
    if row.count_rule is SizeRule.CEIL:
        count = draw(st.integers(1, 6))
        return Statement(draw(st.integers(1, count)), count=count, axis=axis)
    stated = count if row.count.kind is SourceKind.ATTRIBUTE else None
    return Statement(count, count=stated, axis=axis)


def onnx_model(opset: int, stated: list[tuple[str, Statement]], size: int, *, open_axis: bool) -> ModelProto:
    nodes, initializers, results = [], [], []
    for index, (operator, split) in enumerate(stated):
        row = schema(operator, opset, "")
        inputs, attributes = ["x"], {"axis": split.axis}
        names = [f"p{index}_{part}" for part in range(split.outputs)]
        if split.lengths is not None and row.lengths[0].kind is SourceKind.INPUT:
            inputs.append(f"lengths{index}")
            initializers.append(numpy_helper.from_array(np.array(split.lengths, np.int64), inputs[1]))
        elif split.lengths is not None:
            attributes["split"] = split.lengths
        elif split.count is not None:
            attributes["num_outputs"] = split.count
        if row.gives_sequence:
            attributes["keepdims"] = split.keepdims
            nodes.append(helper.make_node(operator, inputs, [f"s{index}"], **attributes))
            if split.keepdims or split.lengths is not None:
                nodes.append(helper.make_node("ConcatFromSequence", [f"s{index}"], [f"c{index}"], axis=0))
                results.append((f"c{index}", TensorProto.FLOAT))
            nodes.append(helper.make_node("SequenceLength", [f"s{index}"], [f"l{index}"]))
            results.append((f"l{index}", TensorProto.INT64))
            continue
        named = [name if not split.names or split.names[part] else "" for part, name in enumerate(names)]
        nodes.append(helper.make_node("Split", inputs, named, **attributes))
        for name in filter(None, named):
            # Read by a node: what onnxruntime's optimiser makes of a graph output is another story.
            nodes.append(helper.make_node("Neg", [name], [f"{name}_read"]))
            results.append((f"{name}_read", TensorProto.FLOAT))
    values = [
        helper.make_tensor_value_info(name, kind, [] if kind == TensorProto.INT64 else [None] * RANK)
        for name, kind in results
    ]
    data = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, "N" if open_axis else size])
    graph = helper.make_graph(nodes, "g", [data], values, initializers)
    imports = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10 if opset > 20 else 8)


def ir_model(stated: list[tuple[str, Statement]], size: int, *, open_axis: bool) -> OpenVINOModel:
    builder = Builder("m")
    data = builder.parameter("x", "f32", f"2,{'?' if open_axis else size}")
    for index, (operator, split) in enumerate(stated):
        ports = [data, builder.const(np.array(split.axis))]
        attributes = None
        if operator == "VariadicSplit":
            ports.append(builder.const(np.array(split.lengths, np.int64)))
        else:
            attributes = {"num_splits": split.count}
        for part, output in enumerate(builder.layer(operator, ports, attributes, outputs=split.outputs)):
            builder.result(output, f"p{index}_{part}")
    return builder.model()


ONNX_ROWS = sorted({(row.name, row.since_version) for row in SCHEMAS if row.domain == ""})


@st.composite
def onnx_cases(draw: st.DrawFn) -> Case:
    """Several splits of one opset on one input, of a declared size or one that only the input has."""
    operator, since = draw(st.sampled_from(ONNX_ROWS))
    opset = draw(st.sampled_from([o for o in OPSETS if schema_of(operator, o) == since]))
    operators = [operator, "Split"] if draw(st.booleans()) else [operator]
    return _case(draw, [operators[0], *draw(st.lists(st.sampled_from(operators), max_size=2))], opset)


def schema_of(operator: str, opset: int) -> int | None:
    try:
        return schema(operator, opset, "").since_version
    except SplitError:
        return None


@st.composite
def ir_cases(draw: st.DrawFn) -> Case:
    """Several splits of an OpenVINO model on one input."""
    operators = draw(st.lists(st.sampled_from(["Split", "VariadicSplit"]), min_size=1, max_size=3))
    return _case(draw, operators, None)


def _case(draw: st.DrawFn, operators: list[str], opset: int | None) -> Case:
    size, open_axis = draw(st.integers(0, 6)), draw(st.booleans())
    domain = "openvino" if opset is None else ""
    stated = [(name, draw(statements(name, opset or 1, domain, size))) for name in operators]
    if opset is None:
        model: Model = ir_model(stated, size, open_axis=open_axis)
    else:
        model = onnx_model(opset, stated, size, open_axis=open_axis)
    others = draw(st.lists(st.integers(0, 8), max_size=3)) if open_axis else []
    return Case(model, (size, *others))


def ours(model: Model, feeds: dict[str, Any]) -> list[Any] | None:
    """What a model gives; None where it rejects."""
    try:
        return list(splitops.run(runnable(model), feeds, engine="reference").values())
    except SplitError:
        return None


def assert_same(case: Case, after: Model, *, may_take_more: bool = False) -> None:
    """Both give the same or both reject, here; where onnxruntime runs the source, it runs the result."""
    for feeds in case.feeds():
        expected, found = ours(case.model, feeds), ours(after, feeds)
        if expected is None:
            assert found is None or may_take_more, f"only the source rejects {feeds['x'].shape}"
            continue
        assert found is not None, f"only the result rejects {feeds['x'].shape}"
        assert equal(found, expected), feeds["x"].shape
        if ONNXRUNTIME and isinstance(after, ModelProto):
            _assert_same_in_onnxruntime(case.model, after, feeds, expected)


def _assert_same_in_onnxruntime(
    before: Model, after: ModelProto, feeds: dict[str, Any], expected: list[Any]
) -> None:
    """The result runs, optimised, where the source runs unchanged, and gives what the source gives."""
    right = [expected]
    if isinstance(before, ModelProto):
        kind, found = in_onnxruntime(before, feeds)
        if kind != "outputs":
            return  # a rejection that was there may stay
        right.append(list(found.values()))  # it may misread a split node, and the result may be kept
    if after.opset_import[0].version < 7:
        return  # where onnxruntime begins
    kind, found = in_onnxruntime(after, feeds, optimized=True)
    assert kind == "outputs", found
    if not any(equal(list(found.values()), values) for values in right):
        # Below opset 13, lengths that only a run knows cannot be written: what stood in danger may stay so.
        assert isinstance(before, ModelProto)
        assert find_conflicting_splits(deserialize_model(after, NOWHERE)) <= find_conflicting_splits(
            deserialize_model(before, NOWHERE)
        ), f"onnxruntime on {feeds['x'].shape}"
        assert after.opset_import[0].version < 13


def _takes_more(report: Conversion) -> bool:
    """Whether some split became Slices, which take any size."""
    return any("Slice x" in str(change.after) for change in report.changes)


@settings(max_examples=80)
@given(st.one_of(onnx_cases(), ir_cases()), st.sampled_from(TARGETS), st.sampled_from(SplitStyle))
def test_a_converted_model_gives_the_same(case: Case, target: str, form: SplitStyle) -> None:
    assume(isinstance(case.model, ModelProto) or target != "openvino")
    report = convert_with_report(case.model, to=target, style=form)
    note(str(report))
    event("complete" if report.complete else "rejected")
    if not report.complete:
        if not report.rejections:  # as a whole: onnx or OpenVINO sees of the result that it never runs
            assert all(ours(case.model, feeds) is None for feeds in case.feeds())
        return
    if isinstance(report.model, ModelProto):
        onnx.checker.check_model(report.model)
    assert_same(case, report.model, may_take_more=_takes_more(report))


@settings(max_examples=40)
@given(onnx_cases(), st.sampled_from(["lengths", "count"]))
def test_another_form_gives_the_same(case: Case, form: str) -> None:
    report = convert_with_report(case.model, splits_only=True, style=form)
    note(str(report))
    assert_same(case, report.model)
    assert convert(report.model, splits_only=True, style=form) == report.model


@settings(max_examples=80)
@given(st.one_of(onnx_cases(), ir_cases()))
def test_a_simplified_model_gives_the_same(case: Case) -> None:
    report = simplify_with_report(case.model)
    note(str(report))
    assert_same(case, report.model)  # type: ignore[arg-type]
    assert not simplify_with_report(report.model).changes


def test_every_row_is_generated() -> None:
    assert len(ONNX_ROWS) == 7
    assert {schema_of(*row) for row in ((n, o) for n, _ in ONNX_ROWS for o in OPSETS)} >= {
        since for _, since in ONNX_ROWS
    }


def test_the_comparison_can_fail() -> None:
    right, wrong = (
        Case(ir_model([("VariadicSplit", Statement(2, lengths))], 4, open_axis=True), (4,))
        for lengths in ((1, 3), (2, 2))
    )
    assert_same(right, right.model)
    with pytest.raises(AssertionError):
        assert_same(right, wrong.model)
    with pytest.raises(AssertionError, match="only the result rejects"):
        assert_same(Case(ir_model([("Split", Statement(2, count=2))], 6, open_axis=True), (6,)), wrong.model)
