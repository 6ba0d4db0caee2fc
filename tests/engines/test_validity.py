"""A session runs valid splits alone: what is invalid raises its rule, whoever would have run it."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import pytest

import splitops
from splitops.errors import RuleError
from splitops.files import get_format
from splitops.files import split as split_file
from splitops.models.engines import is_installed
from splitops.models.engines.engine import EngineError
from splitops.models.formats.openvino import Builder

X = np.arange(6, dtype=np.float32)


def parsed(text: str, opset: int = 18) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": {opset}]> {text}')


def engines(*, ir: bool = False) -> list[Any]:
    runtimes = ("openvino",) if ir else ("onnxruntime", "openvino")
    return [
        "reference",
        "auto",
        *(
            pytest.param(name, marks=pytest.mark.skipif(not is_installed(name), reason=f"no {name}"))
            for name in runtimes
        ),
    ]


def code_of(model: Any, feeds: dict[str, Any], engine: str) -> str:
    with pytest.raises(RuleError) as caught:
        splitops.run(model, feeds, engine=engine)
    assert caught.value.where.node
    return str(caught.value.rule)


@pytest.mark.parametrize("engine", engines())
@pytest.mark.parametrize(
    ("node", "opset", "code"),
    [
        ("Split(x)", 18, "lengths.missing"),
        ("Split<num_outputs = 2>(x)", 2, "op.version"),
        ("Split<num_outputs = 2>(x)", 11, "op.version"),
        ("Split<num_outputs = 2>(x)", 13, "op.version"),
        ("Split<split = [2, 4]>(x)", 13, "op.version"),
        ("Split<axis = 1, num_outputs = 2>(x)", 18, "axis.range"),
        ("Split<split = [2, 3]>(x)", 11, "lengths.sum"),
    ],
)
@pytest.mark.parametrize("size", ["6", "N"])
def test_a_split_that_is_never_valid_makes_no_session(engine, node, opset, code, size):
    model = parsed(f"g (float[{size}] x) => (float[n] a, float[m] b) {{ a, b = {node} }}", opset)
    if size == "N" and code == "lengths.sum":
        assert splitops.run(model, {"x": X[:5]}, engine=engine)["b"].tolist() == [2, 3, 4]
        return
    with pytest.raises(RuleError, match=rf"\[{code}\].*node 'Split -> a'"):
        splitops.session(model, engine)


@pytest.mark.parametrize("engine", engines())
def test_a_split_that_may_not_run_is_rejected_when_it_does(engine):
    model = parsed("""
        g (float[6] x, bool k) => (float[c] c) {
            c = If(k) <then_branch = t () => (float[n] d) { d, e = Split(x) },
                       else_branch = f () => (float[6] h) { h = Neg(x) }> }""")
    if engine not in ("reference", "auto"):
        with pytest.raises(EngineError, match=r"would not run 'Split -> d' as specified: it breaks a rule"):
            splitops.session(model, engine)
        return
    ready = splitops.session(model, engine)
    assert ready.run({"x": X, "k": np.array(False)})["c"].tolist() == (-X).tolist()
    with pytest.raises(RuleError, match=r"lengths\.missing"):
        ready.run({"x": X, "k": np.array(True)})


@pytest.mark.parametrize("engine", engines())
@pytest.mark.parametrize("claim", [None, 5])
def test_sizes_that_a_run_brings_are_proved(engine, claim):
    """Slices in the place of a Split-1 would not notice that its data has another size than is claimed."""
    model = parsed(
        "g (float[N] x) => (float[n] a, float[m] b) { y = Identity(x) a, b = Split<split = [2, 3]>(y) }", 1
    )
    if claim is not None:
        model.graph.value_info.append(onnx.helper.make_tensor_value_info("y", 1, [claim]))
    if engine == "onnxruntime":  # which has nothing at opset 1 that could check them
        with pytest.raises(EngineError):
            splitops.session(model, engine)
        return
    ready = splitops.session(model, engine)
    assert ready.run({"x": X[:5]})["b"].tolist() == [2, 3, 4]
    with pytest.raises(splitops.SplitError) as caught:
        ready.run({"x": X})
    if engine != "openvino":  # which has words of its own
        assert str(caught.value).startswith("Split-1 [lengths.sum]: split = [2, 3] sums to 5")


@pytest.mark.parametrize("engine", engines(ir=True))
def test_a_layer_that_is_never_valid_makes_no_session(engine):
    builder = Builder("g")
    x = builder.parameter("x", "f32", "?")
    ports = [x, builder.const(np.array(0)), builder.const(np.array([-2, 8]))]
    unread = builder.layer("VariadicSplit", [x, builder.const(np.array(7)), ports[2]], outputs=2)
    del unread  # which no Result needs
    for name, part in zip("ab", builder.layer("VariadicSplit", ports, outputs=2, name="v"), strict=True):
        builder.result(part, name)
    with pytest.raises(RuleError, match=r"lengths\.negative.*'v'"):
        splitops.session(builder.model(), engine)


def test_a_layer_that_nothing_needs_may_be_invalid():
    builder = Builder("g")
    x = builder.parameter("x", "f32", "6")
    builder.layer("Split", [x, builder.const(np.array(7))], {"num_splits": 2}, outputs=2)
    builder.result(builder.layer("ReLU", [x])[0], "y")
    assert splitops.run(builder.model(), {"x": X}, engine="reference")["y"].tolist() == X.tolist()


@pytest.mark.skipif(not is_installed("openvino"), reason="no OpenVINO")
@pytest.mark.parametrize("kind", ["float8_e5m2", "float8_e4m3fn", "float8_e8m0fnu"])
@pytest.mark.parametrize("engine", ["auto", "openvino"])
def test_floats_of_8_bits_go_to_openvino_and_come_back(engine, kind):
    from splitops.spec import ELEMENT_TYPES

    builder = Builder("g")
    x = builder.parameter("x", ELEMENT_TYPES[kind], "6")
    ports = [x, builder.const(np.array(0)), builder.const(np.array([2, 4]))]
    for name, part in zip("ab", builder.layer("VariadicSplit", ports, outputs=2), strict=True):
        builder.result(part, name)
    data = np.arange(6, dtype=np.uint8).view(getattr(ml_dtypes, kind))
    found = splitops.run(builder.model(), {"x": data}, engine=engine)
    assert found["b"].dtype == data.dtype
    assert found["b"].tobytes() == data[2:].tobytes()


def test_a_type_that_npy_cannot_name_is_not_written(tmp_path):
    """NumPy says of float8_e5m2 that it is a float, writes it as '<f1', and cannot read that."""
    safetensors = pytest.importorskip("safetensors.numpy")
    data = np.arange(6, dtype=np.uint8).view(ml_dtypes.float8_e5m2)
    safetensors.save_file({"t": data}, tmp_path / "t.safetensors")
    with pytest.raises(splitops.SplitError, match=r"F8_E5M2, which \.npy does not support"):
        split_file(
            tmp_path / "t.safetensors",
            tmp_path,
            "VariadicSplit",
            axis=0,
            split_lengths=[2, 4],
            to=get_format("npy"),
        )
    assert [path.name for path in tmp_path.iterdir()] == ["t.safetensors"]


@pytest.mark.skipif(not is_installed("onnxruntime"), reason="no onnxruntime")
def test_a_part_that_ends_before_the_last_of_2_to_the_31_elements():
    """In onnxruntime an end of 2^31 - 1 of a Slice is the end of the axis."""
    model = parsed("""
        g (float[2147483648, 0] x) => (float[n, 0] a, float[m, 0] b, float[k, 0] c) {
            lengths = Constant<value = int64[3] {1, 2147483646, 1}>()
            a, b, c = Split(x, lengths) }""")
    found = splitops.run(model, {"x": np.zeros((2**31, 0), np.float32)}, engine="onnxruntime")
    assert [part.shape[0] for part in found.values()] == [1, 2**31 - 2, 1]


@pytest.mark.skipif(not is_installed("onnxruntime"), reason="no onnxruntime")
@pytest.mark.parametrize("release", ["1.28.0", "1.29.0"])
def test_lengths_of_a_run_never_reach_a_release_that_does_not_check_them(monkeypatch, release):
    """Before 1.29, onnxruntime ends the process where a negative length cancels a large one out."""
    from splitops.models.engines.onnxruntime import OnnxRuntime

    monkeypatch.setattr(OnnxRuntime, "version", release)
    model = parsed("g (float[4, 2] x, int64[2] k) => (float[n, 2] a, float[m, 2] b) { a, b = Split(x, k) }")
    ready = splitops.session(model, "onnxruntime")
    x = np.zeros((4, 2), np.float32)
    assert ready.run({"x": x, "k": np.array([1, 3])})["b"].shape == (3, 2)
    assert ready.describe() == "Runs on onnxruntime, including its split"
    if release == "1.28.0":  # else it depends on the release that is installed
        with pytest.raises(RuleError, match=r"lengths\.negative"):
            ready.run({"x": x, "k": np.array([20000000, -19999996])})


@pytest.mark.parametrize("engine", engines()[:2])  # a runtime rejects such a model
def test_two_splits_of_one_name_are_proved_each(engine):
    """Only the first one would become Slices, which prove nothing."""
    model = parsed("""
        g (float[N, 0] x, float[5] z) => (float[n, 0] a, float[m, 0] b, float[k] c, float[l] d) {
            p = Constant<value = int64[2] {2147483647, 1}>() q = Constant<value = int64[2] {2, 3}>()
            a, b = Split(x, p) c, d = Split(z, q) }""")
    for node in model.graph.node[2:]:
        node.name = "twice"
    ready = splitops.session(model, engine)
    assert ready.run({"x": np.zeros((2**31, 0), np.float32), "z": X[:5]})["b"].shape == (1, 0)
    with pytest.raises(RuleError, match=r"lengths\.sum"):
        ready.run({"x": np.zeros((5, 0), np.float32), "z": X[:5]})
