"""A loop without a turn gives tensors of the sizes that its body would have given."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import splitops
from splitops.models.engines import is_installed

needs_onnxruntime = pytest.mark.skipif(not is_installed("onnxruntime"), reason="no onnxruntime")
ENGINES = ["reference", pytest.param("onnxruntime", marks=needs_onnxruntime)]


def looped(trips: int, condition: str, row: str) -> onnx.ModelProto:
    """The body reads a value from outside, calls a function, and gives a part of its state."""
    return onnx.parser.parse_model(f"""
        <ir_version: 9, opset_import: ["": 18, "my": 1]>
        g (float[N, 4] x, bool go) => (float[p, q] last, float[r, s, t] y, int64[u] k) {{
            m = Constant<value = int64 {{{trips}}}>()
            yes = Constant<value = bool {{1}}>()
            w = Neg(x)
            last, y, k = Loop(m, {condition}, x) <body = b (int64 i, bool on, float[v, z] state) =>
                (bool on_, float[v, z] next, float[{row}] part, int64 i_) {{
                on_ = Identity(on) next = Add(state, w) i_ = Identity(i)
                halves = my.half(next) part = Identity(halves) }}> }}
        <domain: "my", opset_import: ["": 18]>
        half (a) => (b) {{ b, c = Split<axis = 1, num_outputs = 2>(a) }}""")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("row", ["h, i", "h, 2"])
@pytest.mark.parametrize(("trips", "condition"), [(0, ""), (0, "yes"), (3, "go")])
def test_a_loop_without_a_turn(engine, row, trips, condition):
    feeds = {"x": np.ones((5, 4), np.float32), "go": np.array(False)}
    model = looped(trips, condition, row)
    found = splitops.run(model, feeds, engine=engine)
    assert {name: value.shape for name, value in found.items()} == {
        "last": (5, 4),
        "y": (0, 5, 2),
        "k": (0,),
    }
    known: Any = splitops.infer(model)["y"]
    assert len(known.shape) == 3
    assert known.shape[2] == 2


@needs_onnxruntime
@pytest.mark.parametrize("row", ["h, i", "5, 2"])
def test_only_runs_without_a_turn_go_to_the_reference(row):
    """What a loop gives without a turn, onnxruntime infers from what the body declares alone."""
    ready = splitops.session(looped(3, "go", row), "onnxruntime")
    for going in (True, False, True):
        ready.run({"x": np.ones((5, 4), np.float32), "go": np.array(going)})
        assert ("reference" in ready.describe()) is (not going and row == "h, i")


@pytest.mark.parametrize("engine", ["reference", "auto"])
def test_a_scan_of_nothing(engine):
    model = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["": 18]>
        g (float[N, 4] x) => (float[r, s] y) {
            y = Scan<num_scan_inputs = 1, body = b (float[n] row) => (float[m] part) {
                part, other = Split<num_outputs = 2>(row) }>(x) }""")
    found = splitops.run(model, {"x": np.ones((0, 4), np.float32)}, engine=engine)
    assert found["y"].shape == (0, 2)
