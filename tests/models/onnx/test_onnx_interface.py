"""The backend interface beyond what onnx's own cases ask of it."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper

from splitops.errors import ModelError, Rule, RuleError
from splitops.onnx import backend

X = np.arange(6, dtype=np.float32)
MODEL = onnx.parser.parse_model("""<ir_version: 3, opset_import: ["": 13]>
    g (float[6] x, int64[2] sizes) => (float[n] a, float[m] b) <int64[2] sizes = {2, 4}> {
        a, b = Split (x, sizes)
    }""")


def test_the_module_is_imported_when_it_is_asked_for() -> None:
    code = "import sys, splitops.onnx as o; assert 'onnx' not in sys.modules; print(o.backend.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "splitops.onnx.backend"


def test_inputs_by_name_in_order_and_without_defaults() -> None:
    prepared = backend.prepare(MODEL)
    for inputs in ({"x": X}, [X], [X, np.array([2, 4])], (X,)):
        assert [part.shape for part in prepared.run(inputs)] == [(2,), (4,)]
    assert [part.shape for part in backend.run_model(MODEL, [X, np.array([5, 1])])] == [(5,), (1,)]
    with pytest.raises(ModelError, match="the model has 1 input, not 3"):
        prepared.run([X, X, X])


@pytest.mark.parametrize(
    ("device", "known"), [("CPU", True), ("CPU:0", True), ("CPU:1", False), ("CUDA", False), ("", False)]
)
def test_devices(device: str, known: bool) -> None:
    assert backend.supports_device(device) is known
    if not known:
        with pytest.raises(ModelError, match="is not supported"):
            backend.prepare(MODEL, device)


def test_compatibility() -> None:
    assert backend.is_compatible(MODEL)
    unknown = onnx.ModelProto()
    unknown.CopyFrom(MODEL)
    unknown.graph.node[0].op_type = "Unheard"
    assert not backend.is_compatible(unknown)
    early = onnx.ModelProto()
    early.CopyFrom(MODEL)
    early.graph.node[0].op_type = "SplitToSequence"
    early.opset_import[0].version = 10
    assert not backend.is_compatible(early)
    assert not backend.is_compatible(onnx.ModelProto())


def test_node_of_any_opset() -> None:
    node = helper.make_node("Split", ["x"], ["a", "b", "c", "d"])
    with pytest.raises(RuleError) as caught:
        backend.run_node(node, [X], opset_version=13)
    assert caught.value.rule is Rule.PARTS_DIVISIBLE
    with pytest.raises(RuleError) as caught:
        backend.run_node(node, [X])
    assert caught.value.rule is Rule.LENGTHS_MISSING


def test_node_inputs_and_outputs() -> None:
    node = helper.make_node("SplitToSequence", ["x", ""], ["s"], keepdims=0)
    (parts,) = backend.run_node(node, [X, None])
    assert [part.shape for part in parts] == [()] * 6
    node = helper.make_node("Split", ["x"], ["", "b"], num_outputs=2)
    (second,) = backend.run_node(node, {"x": X})
    assert second.tolist() == [3, 4, 5]
    with pytest.raises(ModelError, match="input 'x' is missing"):
        backend.run_node(node, [])
    with pytest.raises(ModelError, match="the node has 1 input, not 2"):
        backend.run_node(node, [X, X])


def test_node_does_not_read_files(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(str(tmp_path))
    with open("w.bin", "wb") as file:
        file.write(bytes(4))
    tensor = TensorProto(name="w", data_type=1, dims=[1], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="w.bin")
    with pytest.raises(ModelError, match="no folder"):
        backend.run_node(helper.make_node("Constant", [], ["c"], value=tensor), [])
