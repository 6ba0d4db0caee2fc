"""Conversions there and back give the same outputs: generated models, and onnx's own test models."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.backend.test.case.model
import onnx.backend.test.case.node
import pytest
from conversion_results import RECENT_OPSET, equal, runnable
from hypothesis import given, note
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper, numpy_helper

import splitops.models
from splitops.models.convert import convert_with_report
from splitops.spec import SizeRule
from splitops.spec.sizes.arithmetic import Division, compute_part_sizes

_TYPES = {
    TensorProto.FLOAT: np.float32,
    TensorProto.DOUBLE: np.float64,
    TensorProto.INT8: np.int8,
    TensorProto.INT64: np.int64,
    TensorProto.BOOL: np.bool_,
}


@st.composite
def split_models(draw: st.DrawFn) -> tuple[ModelProto, dict[str, Any]]:
    """A model of a chain of splits and concatenations, some of it in a branch, with its input."""
    opset = draw(st.sampled_from([2, 6, 11, 13, 17, 18, 21]))
    dtype = draw(st.sampled_from(list(_TYPES)))
    shape = draw(st.lists(st.integers(0, 7), min_size=1, max_size=3))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    size = shape[axis]
    # A declared size, or one that only the input tells.
    declared = [
        draw(st.sampled_from([dim, "N"])) if at == axis % len(shape) else dim for at, dim in enumerate(shape)
    ]
    even = [n for n in range(1, 6) if size % n == 0]
    rule = draw(st.sampled_from(["lengths", "count"]))
    initializers: list[Any] = []
    inputs, attributes = ["x"], {"axis": axis}
    if rule == "count" and opset >= 18:
        parts = draw(st.integers(1, 6))
        attributes["num_outputs"] = parts
        outputs = draw(st.integers(1, parts))
    elif rule == "count":
        outputs = draw(st.sampled_from(even))
    else:
        cuts = sorted(draw(st.lists(st.integers(0, size), max_size=3)))
        lengths = np.diff([0, *cuts, size])
        outputs = len(lengths)
        if opset < 13:
            attributes["split"] = lengths.tolist()
        else:
            inputs.append("lengths")
            initializers.append(numpy_helper.from_array(lengths.astype(np.int64), "lengths"))
    names = [f"part{index}" for index in range(outputs)]
    nodes = [helper.make_node("Split", inputs, names, name="split", **attributes)]
    results = [helper.make_tensor_value_info(name, dtype, [None] * len(shape)) for name in names]
    if draw(st.booleans()):
        # With the parts in the other order, so that it is not the data again.
        axis_from_front = axis % len(shape)
        nodes.append(helper.make_node("Concat", names[::-1], ["turned"], axis=axis_from_front))
        results.append(helper.make_tensor_value_info("turned", dtype, [None] * len(shape)))
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", dtype, declared)], results, initializer=initializers
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    data = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(_TYPES[dtype])
    return model, {"x": data}


def _outputs(model: Any, feeds: dict[str, Any]) -> list[Any]:
    return list(splitops.models.run(runnable(model), feeds).values())


@given(split_models(), st.sampled_from([1, 2, 9, 11, 12, 13, 18, 24, 28]))
def test_there_and_back_between_opsets(case: tuple[ModelProto, dict[str, Any]], opset: int) -> None:
    model, feeds = case
    opset = min(opset, onnx.defs.onnx_opset_version())
    expected = _outputs(model, feeds)
    there = convert_with_report(model, to=f"onnx:{opset}")
    note(str(there))
    if not there.complete:
        assert there.rejections
        return
    assert equal(_outputs(there.model, feeds), expected)
    back = convert_with_report(there.model, to=f"onnx:{model.opset_import[0].version}")
    note(str(back))
    if back.complete:
        assert equal(_outputs(back.model, feeds), expected)


@given(split_models(), st.sampled_from([1, 11, 13, 18]))
def test_through_openvino(case: tuple[ModelProto, dict[str, Any]], opset: int) -> None:
    model, feeds = case
    expected = _outputs(model, feeds)
    there = convert_with_report(model, to="openvino")
    assert there.complete, str(there)
    note(str(there))
    if "computed" not in str(
        there
    ):  # arithmetic of sizes runs in the openvino package, tested with the cells
        assert equal(_outputs(there.model, feeds), expected)
    back = convert_with_report(there.model, to=f"onnx:{opset}")
    note(str(back))
    if opset >= 13:
        assert back.complete
    if back.complete:
        assert equal(_outputs(back.model, feeds), expected)


@given(split_models(), st.sampled_from(["lengths", "count"]))
def test_another_form_at_the_same_opset(case: tuple[ModelProto, dict[str, Any]], form: str) -> None:
    model, feeds = case
    report = convert_with_report(model, splits_only=True, style=form)
    assert report.model.opset_import == model.opset_import
    assert equal(_outputs(report.model, feeds), _outputs(model, feeds))
    again = convert_with_report(report.model, splits_only=True, style=form)
    assert again.model == report.model


def _official_cases() -> list[Any]:
    cases = onnx.backend.test.case.node.collect_testcases(None)
    return [
        case
        for case in cases
        if case.model is not None
        and any(node.op_type in ("Split", "SplitToSequence") for node in case.model.graph.node)
    ]


_OFFICIAL = _official_cases()


def test_official_cases_are_there() -> None:
    names = {case.name for case in _OFFICIAL}
    assert {"test_split_equal_parts_1d_opset13", "test_split_1d_uneven_split_opset18"} <= names
    assert "test_split_to_sequence_1" in names


@pytest.mark.parametrize("target", ["onnx:11", "onnx:13", "onnx:18", f"onnx:{RECENT_OPSET}", "openvino"])
@pytest.mark.parametrize("case", _OFFICIAL, ids=lambda case: case.name)
def test_official_case(case: Any, target: str) -> None:
    if target == "openvino" and not case.name.startswith("test_split"):
        pytest.importorskip("openvino")  # whose converter takes the operators around the splits
    report = convert_with_report(case.model, to=target)
    if not report.complete:
        # A sequence that is an output has no other form, and some operators have no older version.
        assert "SplitToSequence" in str(report) or target == "onnx:11", str(report)
        return
    names = [value.name for value in case.model.graph.input]
    for given_inputs, expected in case.data_sets:
        feeds = dict(zip(names, given_inputs, strict=True))
        found = list(splitops.models.run(report.model, feeds).values())
        assert len(found) == len(expected)
        for own, official in zip(found, expected, strict=True):
            parts = (own, official) if isinstance(own, list) else ([own], [official])
            for part, wanted in zip(*parts, strict=True):
                np.testing.assert_allclose(part, wanted, rtol=1e-5, atol=1e-6)


def test_the_lengths_of_a_count_are_the_plans() -> None:
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("Split", ["x"], list("abcde"), num_outputs=5)],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N"])],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None]) for name in "abcde"],
        ),
        opset_imports=[helper.make_opsetid("", 18)],
        ir_version=8,
    )
    computed = {opset: convert_with_report(model, to=f"onnx:{opset}") for opset in (10, 11, 12, 13)}
    assert all("computed" in str(report) for report in computed.values())
    for size in range(40):
        planned = compute_part_sizes(Division(SizeRule.CEIL, count=5), size, 5)
        for report in computed.values():
            found = _outputs(report.model, {"x": np.zeros(size, np.float32)})
            assert tuple(len(part) for part in found) == planned


def test_an_input_that_is_an_output_too_keeps_its_name() -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 13]>
        g (float[2,4] x) => (float[2,4] x, float[2,2] a, float[2,2] b) { a, b = Split<axis = 1>(x) }""")
    openvino = splitops.convert(model, to="openvino")
    back = splitops.convert(openvino, to="onnx:18")
    feeds = {"x": np.arange(8, dtype=np.float32).reshape(2, 4)}
    for made in (model, openvino, back):
        assert list(splitops.run(made, feeds, engine="reference")) == ["x", "a", "b"]
    assert [value.name for value in back.graph.input] == ["x"]
