"""The other operators keep their values when they move: onnx's own test models, down and up again."""

from __future__ import annotations

import importlib.util
import warnings
from typing import Any

import numpy as np
import onnx
import onnx.backend.test.case.node
import onnx.parser
import pytest
from conversion_results import runnable
from onnx import ModelProto

import splitops.models
from splitops.errors import ModelError, SplitError
from splitops.models.convert import convert, convert_with_report


def _close(own: Any, wanted: Any) -> bool:
    if isinstance(wanted, list):
        return len(own) == len(wanted) and all(map(_close, own, wanted))
    own, wanted = np.asarray(own), np.asarray(wanted)
    if (own.dtype, own.shape) != (wanted.dtype, wanted.shape):
        return False
    if own.dtype.kind in "biufc":
        return np.allclose(own, wanted, rtol=1e-3, atol=1e-5, equal_nan=True)
    return own.astype(object).tolist() == wanted.astype(object).tolist()


def _gives(model: ModelProto, feeds: dict[str, Any], wanted: list[Any]) -> bool | None:
    """Whether a model gives these outputs; None where onnx's evaluator cannot run it."""
    try:
        found = list(splitops.models.run(runnable(model), feeds).values())
    except SplitError:
        return None
    return all(map(_close, found, wanted))


def _official() -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = onnx.backend.test.case.node.collect_testcases(None)
    # One in forty-five, spread over all operators: every one takes minutes. And those that once went wrong.
    # onnx's evaluator runs the versions 9 and 14 of BatchNormalization as if for training.
    named = {"test_softmax_axis_0", "test_logsoftmax_axis_1", "test_onehot_with_negative_axis"}
    named |= {"test_averagepool_2d_pads", "test_averagepool_2d_same_upper"}
    return [
        case
        for index, case in enumerate(cases)
        if case.model is not None and case.data_sets and (index % 45 == 0 or case.name in named)
        if not case.name.startswith("test_batchnorm")
    ]


def test_operators_keep_their_values() -> None:
    wrong, same, rejected = [], 0, 0
    for case in _official():
        names = [value.name for value in case.model.graph.input]
        given, wanted = case.data_sets[0]
        feeds = dict(zip(names, given, strict=True))
        if not _gives(case.model, feeds, wanted):
            continue
        for opset in (6, 9, 12, 17):
            down = convert_with_report(case.model, to=f"onnx:{opset}")
            if not down.complete:
                rejected += 1
                assert isinstance(down.problem, SplitError)
                continue
            if _gives(down.model, feeds, wanted) is False:
                wrong.append((case.name, opset))
            up = convert_with_report(down.model, to="onnx:21")
            if up.complete and _gives(up.model, feeds, wanted) is False:
                wrong.append((case.name, opset, 21))
            same += 1
    assert not wrong
    assert same > 60
    assert rejected > 20


@pytest.mark.parametrize("operator", ["Softmax", "LogSoftmax"])
def test_an_inner_axis_moves_below_opset_13(operator: str) -> None:
    model = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["": 13]>
        g (float[2,3,4] x) => (float[2,3,4] y) {{ y = {operator}<axis = -2>(x) }}""")
    data = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    report = convert_with_report(model, to="onnx:9")
    assert [node.op_type for node in report.model.graph.node] == ["Transpose", operator, "Transpose"]
    (wanted,) = splitops.models.run(model, {"x": data}).values()
    (own,) = splitops.models.run(report.model, {"x": data}).values()
    np.testing.assert_allclose(own, wanted, rtol=1e-6)


def test_bounds_of_a_shape_become_a_slice() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["": 15]>
        g (float[2,3,4] x) => (int64[2] y) { y = Shape<start = -2>(x) }""")
    for opset in (6, 10, 13):
        report = convert_with_report(model, to=f"onnx:{opset}")
        (own,) = splitops.models.run(report.model, {"x": np.zeros((2, 3, 4), np.float32)}).values()
        assert own.tolist() == [3, 4]


@pytest.mark.parametrize(("old", "new"), [(16, 20), (20, 16)])
def test_the_words_of_grid_sample_change_at_opset_20(old: int, new: int) -> None:
    words = {16: "bilinear", 20: "linear"}
    model = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["": {old}]>
        g (float[1,1,2,2] x, float[1,3,3,2] grid) => (float[1,1,3,3] y) {{
            y = GridSample<mode = "{words[old]}">(x, grid) }}""")
    report = convert_with_report(model, to=f"onnx:{new}")
    if report.complete:
        assert onnx.helper.get_node_attr_value(report.model.graph.node[0], "mode").decode() == words[new]
    else:
        assert "GridSample" in str(report.problem)


def test_a_model_without_a_split_goes_through_openvinos_converter() -> None:
    pytest.importorskip("openvino")
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["": 13]>
        g (float[6] x) => (float[6] y) { y = Hardmax(x) }""")
    data = np.arange(6, dtype=np.float32)
    (found,) = splitops.models.run(convert(model, to="openvino"), {"x": data}).values()
    assert found.tolist() == [0, 0, 0, 0, 0, 1]


def test_without_openvino_other_operators_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["": 13]>
        g (float[6] x) => (float[3] p, float[3] q) { y = Hardmax(x) p, q = Split(y) }""")
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *rest: None if name == "openvino" else find_spec(name, *rest),
    )
    with pytest.raises(ModelError, match=r"needed for Hardmax: pip install splitops\[openvino\]"):
        _ = convert(model, to="openvino")
    plain = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["": 13]>
        g (float[6] x) => (float[3] p, float[3] q) { p, q = Split(x) }""")
    assert convert_with_report(plain, to="openvino").complete
