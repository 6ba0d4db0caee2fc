"""Sessions: what goes to a runtime, what is done here, and that both together give what is specified."""

from __future__ import annotations

import gc
import os
import signal
import threading
import weakref
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import splitops
from body_models import CONDITION, Body, fill, port, reread, slices
from splitops.errors import NOWHERE, LengthsError, ModelError
from splitops.models.engines import isolated
from splitops.models.engines.engine import EngineError, Program
from splitops.models.engines.isolated import IsolatedEngine
from splitops.models.engines.onnxruntime import OnnxRuntime
from splitops.models.formats import openvino as openvino_ir
from splitops.models.formats.onnx import structure
from splitops.models.formats.onnx.graphs import deserialize_model
from splitops.models.formats.openvino.nodes import to_nodes
from splitops.models.sessions.inferred_splits import infer_splits, plan_split_node
from splitops.models.sessions.program import EngineModel
from splitops.splitting import MAX_PARTS

needs_onnxruntime = pytest.mark.skipif(
    not splitops.models.engines.is_installed("onnxruntime"), reason="onnxruntime is not installed"
)
needs_openvino = pytest.mark.skipif(
    not splitops.models.engines.is_installed("openvino"), reason="OpenVINO is not installed"
)

X = np.arange(6, dtype=np.float32) - 2


def parsed(text: str, opset: int = 18) -> ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": {opset}]> {text}')


LEGAL = parsed("""
    g (float[N] x) => (float[n] a, float[m] c) {
        y = Relu(x)
        a, b = Split<num_outputs = 2>(y)
        c = Neg(b) }""")

BORDER = parsed("""
    g (float[N] x) => (seq(float[1]) s, float[N] c) {
        two = Constant<value = float {2}>()
        one = Constant<value_int = 1>()
        y = Mul(x, two)
        s = SplitToSequence<keepdims = 0>(y, one)
        z = ConcatFromSequence<axis = 0>(s)
        c = Mul(z, two) }""")
"""onnxruntime drops the axis of the parts, which the text keeps."""

RESTATED = parsed("""
    g (float[N] x) => (float[n] a, float[m] c) {
        y = Relu(x)
        a, b = Split<num_outputs = 3>(y)
        c = Neg(b) }""")
"""onnxruntime rejects fewer outputs than num_outputs says."""


def same(model: Any, feeds: dict[str, Any], engine: str = "onnxruntime", **options: Any) -> splitops.Session:
    """Hold a session against the reference and return it."""
    expected = splitops.run(model, feeds, engine="reference")
    ready = splitops.session(model, engine, **options)
    for _ in range(2):
        found = ready.run(feeds)
        assert list(found) == list(expected)
        for name, value in expected.items():
            pairs = (
                zip(found[name], value, strict=True) if isinstance(value, list) else [(found[name], value)]
            )
            for ours, theirs in pairs:
                assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
                np.testing.assert_array_equal(ours, theirs)
    return ready


@needs_onnxruntime
def test_a_legal_site_goes_to_the_runtime_with_all_the_rest():
    ready = same(LEGAL, {"x": X})
    assert (ready.engine, len(ready.splits)) == ("onnxruntime", 1)
    assert ready.describe() == "Runs on onnxruntime, including its split"
    assert ([item.name for item in ready.inputs], ready.outputs) == (["x"], ("a", "c"))


@needs_onnxruntime
def test_a_limit_that_is_left_sends_the_whole_model_to_the_reference():
    words = r"would not run 'SplitToSequence -> s' .*\[onnxruntime.unbind\]: use engine='auto'"
    with pytest.raises(EngineError, match=words):
        splitops.session(BORDER, "onnxruntime")
    ready = same(BORDER, {"x": X}, "auto")
    assert ready.engine == "reference"
    words = "Runs on the reference evaluator, including its split, since onnxruntime would not"
    assert words in ready.describe()


@needs_onnxruntime
def test_a_site_that_can_be_rewritten_is_none():
    ready = same(RESTATED, {"x": X})
    assert ready.engine == "onnxruntime"
    assert "1 split rewritten (splitops fix shows how)" in ready.describe()


@needs_onnxruntime
def test_a_site_that_is_not_rewritten_is_rejected():
    import onnxruntime

    session = onnxruntime.InferenceSession(RESTATED.SerializeToString())
    with pytest.raises(Exception, match="does not match num_outputs"):
        session.run(None, {"x": X})


BRANCHES = parsed("""
    g (float[N] x, bool k, int64[2] s) => (float[m] c) {
        y = Relu(x)
        c = If(k) <
            then_branch = t () => (float[n] d) { d, a = Split<num_outputs = 2>(y) },
            else_branch = e () => (float[p] f) { f, g = Split(y, s) }> }""")


@needs_onnxruntime
@pytest.mark.parametrize("taken", [True, False])
def test_splits_in_bodies(taken):
    same(BRANCHES, {"x": X, "k": np.array(taken), "s": np.array([2, 4])})


@needs_onnxruntime
def test_limits_in_functions():
    model = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["": 18, "my": 1]>
        g (float[N] x) => (float[n] a, float[m] c) { a, c = my.thirds(x) }
        <domain: "my", opset_import: ["": 18]>
        thirds (v) => (p, q) { w = Neg(v)
                               one = Constant<value_int = 1>()
                               r = SplitToSequence<keepdims = 0>(w, one)
                               q = ConcatFromSequence<axis = 0>(r)
                               p = Neg(q) }""")
    assert same(model, {"x": X}, "auto").engine == "reference"
    with pytest.raises(EngineError, match=r"onnxruntime.unbind"):
        splitops.session(model, "onnxruntime")


@needs_onnxruntime
def test_a_broken_rule_is_named_wherever_it_is_found_out():
    feeds = {"x": X, "k": np.array(False), "s": np.array([2, 3])}
    for engine in ("onnxruntime", "auto"):
        with pytest.raises(LengthsError, match=r"sums to 5, but axis 0 .* graph 'If -> c.else_branch'"):
            splitops.run(BRANCHES, feeds, engine=engine)


@needs_onnxruntime
def test_a_split_that_the_runtime_rejects_when_it_runs_is_done_here():
    model = parsed("""
        g (float[N] x) => (float[n] a, float[m] c) {
            y = Relu(x)
            a, b, d, e = Split<num_outputs = 4>(y)
            c = Neg(e) }""")
    ready = same(model, {"x": X[:5]})  # the last part begins beyond the axis
    assert "Runs on the reference evaluator, including its split, since onnxruntime fails" in ready.describe()
    with ThreadPoolExecutor(1) as other:
        assert "Runs on onnxruntime" in other.submit(ready.describe).result()
    assert ready.run({"x": X[2:]})["c"].tolist() == [-3]
    assert "Runs on onnxruntime" in ready.describe()


@needs_onnxruntime
@pytest.mark.parametrize("engine", ["auto", "onnxruntime"])
def test_what_the_reference_fails_at_too_is_the_error_of_the_runtime(engine):
    model = parsed("""
        g (float[N] x, int64[K] s) => (float[n] a, float[m] b) {
            y = Reshape(x, s)
            a, b = Split<num_outputs = 2>(y) }""")
    ready = splitops.session(model, engine)
    with pytest.raises(EngineError, match=r"onnxruntime fails: .* cannot be reshaped"):
        ready.run({"x": X, "s": np.array([4])})
    assert ready.run({"x": X, "s": np.array([-1])})["a"].tolist() == [-2, -1, 0]


@needs_onnxruntime
def test_a_profile_holds_what_the_engine_did():
    for model, engine, names in ((LEGAL, "onnxruntime", {"Relu", "Split"}), (BORDER, "splitops", {"Mul"})):
        ready = splitops.session(model, profile=True)
        ready.run({"x": X})
        done = {(event.operator, event.engine) for event in ready.events()}
        assert {(name, engine) for name in names} <= done


def test_inputs_that_declare_little():
    model = parsed("g (optional(float[2]) x, float t) => (bool y) { y = OptionalHasElement(x) }")
    model.graph.input[1].type.tensor_type.ClearField("shape")
    optional, unranked = splitops.session(model, "reference").inputs
    assert (optional.kind, optional.required, optional.static_shape) == ("optional", False, (2,))
    assert (unranked.kind, unranked.required, unranked.static_shape) == ("tensor", True, None)
    assert (str(optional), str(unranked)) == ("optional of float32 (2)", "float32 any shape")


@needs_onnxruntime
def test_what_the_runtime_has_no_implementation_for_is_done_here():
    model = parsed(
        "g (int8[N] x) => (float[n] a, float[m] c) { y = Cast<to = 1>(x) z = Neg(x)"
        " w = Cast<to = 1>(z) q = Round(w) c = Add(q, y) a, b = Split<num_outputs = 2>(c) }"
    )
    uint64 = parsed("g (uint64[N] x) => (float[N] c) { y = Mod(x, x) z = Neg(y) c = Cast<to = 1>(y) }")
    del uint64.graph.node[1]
    same(model, {"x": np.arange(4, dtype=np.int8)}, "auto")
    same(uint64, {"x": np.arange(1, 5, dtype=np.uint64)}, "auto")


@needs_onnxruntime
def test_complex_numbers_stay_here():
    model = parsed("""
        g (float[4] x) => (float[4] r) {
            y = Neg(x)
            s = Neg(y)
            r = Abs(s) }""")
    z = helper.make_tensor_value_info("z", TensorProto.COMPLEX64, [4])
    model.graph.input.append(z)
    model.graph.node.append(helper.make_node("Split", ["z"], ["p", "q"], num_outputs=2))
    model.graph.output.append(helper.make_tensor_value_info("q", TensorProto.COMPLEX64, [2]))
    ready = same(model, {"x": X[:4], "z": np.arange(4).astype(np.complex64) * 1j}, "auto")
    assert ready.engine == "reference"


@needs_onnxruntime
def test_what_a_runtime_says_of_a_model_is_the_error_of_a_named_one():
    text = "g (complex64[4] z, float[4] x) => (complex64[4] y, float[A] r) { y = Identity(z) t = Neg(x) r = "
    for model in (parsed(f"{text} Abs(t) }}"), parsed(f"{text} Abs<other = 1>(t) }}")):
        with pytest.raises(EngineError, match="onnxruntime rejects the model: "):
            splitops.session(model, "onnxruntime")


@needs_onnxruntime
def test_a_file_whose_operators_the_runtime_lacks(tmp_path):
    onnx.save(parsed("g (double[N] x) => (double[N] y) { a = Asin(x) y = Neg(a) }"), tmp_path / "model.onnx")
    with pytest.raises(EngineError, match="Could not find an implementation for Asin"):
        splitops.session(tmp_path / "model.onnx", "onnxruntime")
    ready = same(str(tmp_path / "model.onnx"), {"x": np.array([-0.1, 0.0, 0.25])}, "auto")
    assert "Could not find an implementation for Asin" in ready.describe()


@needs_onnxruntime
def test_a_model_is_rewritten_with_what_onnx_ir_cannot_read():
    model = parsed("""
        g (float[N] x) => (float[n] a, float[m] c) {
            y = Relu(x)
            a, b = Split<num_outputs = 3>(y)
            c = Neg(b) }""")
    sparse = onnx.SparseTensorProto(dims=[2], values=helper.make_tensor("", TensorProto.FLOAT, [1], [2.0]))
    sparse.indices.CopyFrom(helper.make_tensor("", TensorProto.INT64, [1], [1]))
    model.graph.node.add(op_type="Constant", output=["nobody reads"]).attribute.add(
        name="sparse_value", type=onnx.AttributeProto.SPARSE_TENSOR, sparse_tensor=sparse
    )
    with splitops.session(model, "onnxruntime") as ready:
        assert "1 split rewritten" in ready.describe()
        found = ready.run({"x": X})
    assert (found["a"].tolist(), found["c"].tolist()) == ([0, 0], [0, -1])


@needs_onnxruntime
def test_sequences_and_strings():
    model = parsed("""
        g (float[N] x, string[M] t) => (seq(float[n]) s, float[k] e, string[i] u) {
            s = SplitToSequence(x)
            zero = Constant<value_int = 0>()
            e = SequenceAt(s, zero)
            u, v = Split<num_outputs = 2>(t) }""")
    same(model, {"x": X, "t": np.array(["a", "é", "c"], object)})


@needs_onnxruntime
def test_bfloat16_goes_in_and_out_by_its_bits():
    import ml_dtypes

    model = parsed("g (bfloat16[6] x) => (bfloat16[3] a, bfloat16[3] b) { a, b = Split<num_outputs = 2>(x) }")
    same(model, {"x": np.arange(6).astype(ml_dtypes.bfloat16)})


def with_weights(kind: type = np.float32) -> ModelProto:
    """A model with a large initializer, which a runtime is given in another form."""
    text = """
        g (float[N] x) => (float[n] a, float[m] c, float[k] e) {
            y = Mul(x, w)
            a, b = Split<num_outputs = 3>(y)
            c = Neg(w)
            d, e = Split<num_outputs = 2>(w) }"""
    model = parsed(text.replace("float[", f"{np.dtype(kind).name.replace('float32', 'float')}["))
    model.graph.initializer.append(numpy_helper.from_array(np.arange(600, dtype=kind), "w"))
    return model


@pytest.mark.parametrize(
    ("engine", "kind"),
    [
        pytest.param("onnxruntime", np.float32, marks=needs_onnxruntime),
        pytest.param("openvino", np.float32, marks=needs_openvino),
    ],
)
def test_weights_go_to_rewritten_models(tmp_path, engine, kind):
    from splitops.models.formats.onnx.storage import write

    feeds = {"x": np.ones(600, kind)}
    for external in (False, True):
        write(with_weights(kind), tmp_path / f"{external}.onnx", external=external)
        same(tmp_path / f"{external}.onnx", feeds, engine)
    assert same(with_weights(kind), feeds, engine).engine == engine


@pytest.mark.parametrize("engine", ["auto", "reference", pytest.param("openvino", marks=needs_openvino)])
def test_weights_that_state_an_address_are_rejected(tmp_path, engine):
    """OpenVINO reads memory there, or ends the process, even where a file of that name has the data."""
    model = parsed(
        "g (float[64] x) => (float[32] a, float[32] b) { y = Add(x, w) a, b = Split<num_outputs = 2>(y) }"
    )
    place = "*/_ORT_MEM_ADDR_/*"
    weight = model.graph.initializer.add(name="w", data_type=1, dims=[64], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", place), ("offset", "4096"), ("length", "256")):
        weight.external_data.add(key=key, value=value)
    (tmp_path / place).parent.mkdir(parents=True)
    (tmp_path / place).write_bytes(bytes(8192))
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match="'w' is stored at the memory address"):
        splitops.session(tmp_path / "m.onnx", engine).run({"x": np.ones(64, np.float32)})


@needs_onnxruntime
def test_a_split_takes_other_lengths_and_shapes_in_each_run():
    model = splitops.session(
        parsed("g (float[N] x, int64[2] n) => (float[k] a, float[m] c) { a, b = Split(x, n) c = Neg(b) }"),
        "onnxruntime",
    )
    for lengths, size in (([1, 3], 4), ([3, 1], 4), ([3, 3], 6), ([1, 3], 4)):
        x = np.arange(size, dtype=np.float32)
        found = model.run({"x": x, "n": np.array(lengths)})
        np.testing.assert_array_equal(found["a"], x[: lengths[0]])
        np.testing.assert_array_equal(found["c"], -x[lengths[0] :])
    with pytest.raises(LengthsError):
        model.run({"x": X, "n": np.array([1, 3])})


@needs_onnxruntime
def test_a_model_that_is_not_rewritten_is_read_by_the_runtime_alone(tmp_path, monkeypatch):
    given: list[Any] = []
    compile_ = OnnxRuntime.compile

    def watched(engine: OnnxRuntime, program: Program) -> Any:
        given.append(program.content)
        return compile_(engine, program)

    monkeypatch.setattr(OnnxRuntime, "compile", watched)
    onnx.save(LEGAL, tmp_path / "m.onnx")
    same(tmp_path / "m.onnx", {"x": X})
    assert given == [tmp_path / "m.onnx"]


@needs_onnxruntime
@needs_openvino
def test_defaults_can_be_replaced():
    model = parsed(
        "g (float[N] x, float[N] w) => (float[n] a, float[m] c) { y = Mul(x, w)"
        " a, c = Split<num_outputs = 2>(y) }"
    )
    model.graph.initializer.append(numpy_helper.from_array(np.float32([1, 2, 3, 4, 5, 6]), "w"))
    for version in (3, 9):
        model.ir_version = version
        for engine in ("onnxruntime", "openvino"):
            same(model, {"x": X}, engine)
            same(model, {"x": X, "w": X}, engine)


@needs_onnxruntime
def test_threads_share_a_session():
    ready = splitops.session(RESTATED, "onnxruntime")

    def one(number: int) -> bool:
        out = ready.run({"x": X + 2 + number})
        return out["a"].tolist() == [number, number + 1] and out["c"][0] == -2 - number

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(one, range(200)))


@needs_onnxruntime
def test_a_loop_that_only_a_run_ends_goes_to_the_runtime():
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            helper.make_node("Neg", ["v"], ["n"]),
            helper.make_node("Split", ["n"], ["p", "q"], num_outputs=2, name="cut"),
            helper.make_node("Concat", ["q", "p"], ["w"], axis=0),
            helper.make_node("Identity", ["go"], ["on"]),
        ],
        "body",
        [info(*stated) for stated in (("i", 7, []), ("go", 9, []), ("v", 1, [6]))],
        [info(*stated) for stated in (("on", 9, []), ("w", 1, [6]))],
    )
    turns = helper.make_tensor_value_info("turns", 7, [])
    graph = helper.make_graph(
        [helper.make_node("Loop", ["turns", "", "x"], ["y"], body=body)],
        "g",
        [turns, helper.make_tensor_value_info("x", 1, [6])],
        [helper.make_tensor_value_info("y", 1, [6])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    assert same(model, {"x": X, "turns": np.array(3)}).engine == "onnxruntime"
    del model.graph.input[0]
    model.graph.initializer.append(numpy_helper.from_array(np.array(3), "turns"))
    assert same(model, {"x": X}).engine == "onnxruntime"
    with pytest.raises(EngineError, match="only the reference limits loops and functions to max_iterations"):
        splitops.session(model, "onnxruntime", max_iterations=5)
    assert splitops.session(model, max_iterations=5).engine == "reference"
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.array((1 << 22) + 1), "turns"))
    with pytest.raises(EngineError, match="the model has loops of 4194305 iterations, more than 4194304"):
        splitops.session(model, "onnxruntime")
    model.graph.node[0].input[0] = ""
    with pytest.raises(EngineError, match="the model has loops that do not end"):
        splitops.session(model, "onnxruntime")


@needs_onnxruntime
@pytest.mark.parametrize("turns", ["", "many"])
def test_loops_whose_condition_is_constantly_false_end(turns):
    model = parsed(
        f"""g (float[6] x) => (float[6] y) {{
            y = Loop ({turns}, , x) <body = b (int64 i, bool go, float[6] v) => (bool on, float[6] w) {{
                stop = Constant<value = bool {{0}}>()
                on = Identity(stop)
                p, q = Split<axis = 0, num_outputs = 2>(v)
                w = Concat<axis = 0>(q, p) }}> }}"""
    )
    if turns:
        model.graph.initializer.append(numpy_helper.from_array(np.array(1 << 40), "many"))
    assert same(model, {"x": X}, "onnxruntime").engine == "onnxruntime"


@needs_onnxruntime
@pytest.mark.parametrize("kept", [True, False])
def test_a_loop_ends_by_a_condition_that_each_iteration_replaces(kept):
    model = parsed(
        f"""g (float[6] x, bool more) => (float[6] y) {{
            y, last = Loop (, , x, more) <
                body = b (int64 i, bool go, float[6] v, bool m) => (bool on, float[6] w, bool n) {{
                    on = Identity(m)
                    n = {"Identity" if kept else "Not"}(m)
                    p, q = Split<axis = 0, num_outputs = 2>(v)
                    w = Concat<axis = 0>(q, p) }}> }}"""
    )
    if kept:
        with pytest.raises(EngineError, match="the model has loops that do not end"):
            splitops.session(model, "onnxruntime")
    else:
        same(model, {"x": X, "more": np.array(True)}, "onnxruntime")


@needs_openvino
@pytest.mark.parametrize(
    ("trips", "condition", "problem"),
    [
        (-1, True, "loops that do not end"),
        (-1, "same", "loops that do not end"),
        (1 << 40, True, "loops of 1099511627776 iterations"),
        (-1, False, ""),
        (-1, "next", ""),
        (-1, "sliced", ""),
        (1 << 40, False, ""),
        (3, True, ""),
    ],
)
def test_a_loop_of_ir_that_does_not_end_is_rejected(trips, condition, problem):
    outer, body = openvino_ir.Builder(), Body()
    feeds = {"x": X}
    inputs = [outer.const(np.array(trips)), outer.const(np.array(True)), outer.parameter("x", "f32", (6,))]
    if condition == "sliced":
        inputs.append(outer.parameter("checks", "boolean", (2,)))
        feeds["checks"] = np.array([True, False])
    elif isinstance(condition, str):
        inputs.append(outer.const(np.array(True)))
    outer.result(outer.layer("Loop", inputs, name="loop", version="opset5", element_type="f32")[0], "y")
    v = body.takes("v", "f32", (6,), port(2))
    parts = body.builder.layer("Split", [v, body.builder.const(0)], {"num_splits": 2}, outputs=2, name="cut")
    body.gives("w", body.builder.layer("Concat", [parts[1], parts[0]], {"axis": 0})[0], port(len(inputs)))
    back = ["w>v"]
    if isinstance(condition, bool):
        body.gives("on", body.builder.const(np.array(condition)), CONDITION)
    elif condition == "sliced":
        body.gives("on", body.takes("check", "boolean", (1,), slices(3)), CONDITION)
    else:
        check = body.takes("check", "boolean", (), port(3))
        body.gives("on", check, CONDITION)
        if condition == "next":
            (flipped,) = body.builder.layer("LogicalNot", [check], element_type="boolean")
            body.gives("flipped", flipped, "")
            back.append("flipped>check")
    model = reread(fill(outer.model(), "loop", {"": body}, back))
    if problem:
        with pytest.raises(EngineError, match=f"the model has {problem}"):
            splitops.session(model, "openvino")
    else:
        same(model, feeds, "openvino")


@needs_onnxruntime
def test_functions_that_a_runtime_would_copy_without_end_go_to_none():
    functions = [
        helper.make_function(
            "my", f"f{level}", ["v"], ["w"],
            [helper.make_node(f"f{level - 1}", ["v"], ["u"], domain="my"),
             helper.make_node(f"f{level - 1}", ["u"], ["w"], domain="my")],
            [helper.make_opsetid("", 18), helper.make_opsetid("my", 1)],
        )
        for level in range(1, 40)
    ]  # fmt: skip
    zero = helper.make_node("Identity", ["v"], ["w"])
    functions.insert(0, helper.make_function("my", "f0", ["v"], ["w"], [zero], [helper.make_opsetid("", 18)]))
    node = helper.make_node("f39", ["x"], ["y"], domain="my")
    ends = [helper.make_tensor_value_info(name, 1, [6]) for name in "xy"]
    graph = helper.make_graph([node], "g", ends[:1], ends[1:])
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("my", 1)]
    model = helper.make_model(graph, opset_imports=imports, functions=functions, ir_version=9)
    with pytest.raises(EngineError, match=r"\d+ nodes once its functions are inlined, more than \d+"):
        splitops.session(model, "onnxruntime")
    assert splitops.session(model).engine == "reference"


@needs_onnxruntime
@pytest.mark.parametrize("read", [1, 5000])
def test_a_split_of_many_outputs_is_run_here(read: int) -> None:
    """Of 200,000 outputs, onnxruntime plans for minutes."""
    names = [f"o{index}" for index in range(5000)]
    node = helper.make_node("Split", ["x"], names, num_outputs=5000)
    ends = [helper.make_tensor_value_info(name, 1, None) for name in names[:read]]
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", 1, [5000])], ends)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    with pytest.raises(EngineError, match="it has more than 4096 outputs"):
        splitops.session(model, "onnxruntime")
    found = splitops.session(model).run({"x": np.arange(5000, dtype=np.float32)})
    assert [part.item() for part in found.values()] == list(range(read))


# Engines and their failures


@needs_onnxruntime
def test_a_runtime_that_ends_is_an_error_of_its_own_process():
    with splitops.session(LEGAL, "onnxruntime", isolate=True) as ready:
        for _ in range(2):  # it is started again
            assert ready.run({"x": X})["c"].tolist() == [-1, -2, -3]
            os.kill(ready._runtime._process.pid, signal.SIGSEGV)
            with pytest.raises(EngineError, match="onnxruntime has ended its process with signal SIGSEGV"):
                ready.run({"x": X})
    with pytest.raises(ModelError, match="the session is closed"):
        ready.run({"x": X})


@pytest.mark.parametrize(
    ("model", "engine", "native"),
    [
        pytest.param(LEGAL, "onnxruntime", "_session", marks=needs_onnxruntime, id="onnxruntime"),
        pytest.param(RESTATED, "onnxruntime", "_session", marks=needs_onnxruntime, id="rewritten"),
        pytest.param(LEGAL, "openvino", "_compiled", marks=needs_openvino, id="openvino"),
    ],
)
def test_a_closed_session_gives_back_at_once_what_its_runtime_holds(model, engine, native, tmp_path):
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    gc.collect()
    gc.disable()  # what lives in a circle would stay
    try:
        ready = splitops.session(path, engine)
        ready.run({"x": X})
        held = [weakref.ref(getattr(program, native)) for program in ready._program.programs]
        assert held
        assert all(one() is not None for one in held)
        ready.close()
        assert all(one() is None for one in held)
    finally:
        gc.enable()


@needs_onnxruntime
def test_a_run_keeps_its_weights_if_another_thread_closes_the_session():
    class Weights:
        pass

    class Native:
        """Closes the program in the middle of a run, as another thread may do."""

        def run(self, outputs, feeds):
            program.close()
            gc.collect()
            return [held() is not None]

    ready = splitops.session(LEGAL, "onnxruntime")
    ready.run({"x": X})
    program = ready._program.programs[-1]
    kept = Weights()
    held = weakref.ref(kept)
    program._session, program._kept = Native(), kept
    del kept
    assert program.run({}) == [True]
    assert held() is None


@needs_onnxruntime
def test_a_closed_session_has_no_events():
    with splitops.session(LEGAL, "onnxruntime", profile=True) as ready:
        ready.run({"x": X})
        assert ready.events()
        assert ready.events() == ready.events()
    with pytest.raises(ModelError, match="the session is closed"):
        ready.events()


@needs_onnxruntime
def test_what_an_isolated_engine_cannot_be_told_spoils_nothing():
    doubled = parsed("g (float[N] x, float[N] y) => (float[N] z) { z = Add(x, y) }")
    engine = IsolatedEngine("onnxruntime", {}, profile=False)
    program = engine.compile(Program(doubled.SerializeToString(), ("z",), NOWHERE))
    long = np.ones(1_000_000, np.float32)
    with pytest.raises(
        EngineError, match="onnxruntime runs in a separate process, and an argument cannot be sent"
    ):
        program.run({"x": long, "y": lambda: long})
    twice = np.arange(3, dtype=np.float32)
    (found,) = program.run({"x": twice, "y": twice})
    np.testing.assert_array_equal(found, [0, 2, 4])
    engine.close()


def test_a_process_that_ends_by_itself_says_its_status(monkeypatch):
    monkeypatch.setattr(isolated, "_WORKER", "splitops.nothing")
    with pytest.raises(EngineError, match="onnxruntime has ended its process with status 1"):
        IsolatedEngine("onnxruntime", {}, profile=False)


@needs_onnxruntime
def test_what_nobody_has_foreseen_is_an_error_of_the_engine():
    engine = IsolatedEngine("onnxruntime", {}, profile=False)
    with pytest.raises(EngineError, match="onnxruntime fails: IndexError: list index out of range"):
        engine.request("run", 7, {})
    assert engine.request("compile", Program(LEGAL.SerializeToString(), ("a", "c"), NOWHERE)) == 0
    engine.close()


@needs_onnxruntime
def test_an_isolated_engine_tells_what_it_has_recorded():
    with splitops.session(LEGAL, "onnxruntime", isolate=True, profile=True) as ready:
        ready.run({"x": X})
        assert "Relu" in {event.operator for event in ready.events()}


@needs_onnxruntime
def test_isolated_errors_are_those_of_the_engine():
    unknown = parsed("g (float[N] x) => (float[N] y) { y = Neg(x) }")
    unknown.graph.node[0].domain = "nobody"
    unknown.opset_import.add(domain="nobody", version=1)
    for isolate in (False, True):
        with pytest.raises(EngineError, match=r"onnxruntime rejects the model: .*nobody:Neg"):
            splitops.session(unknown, "onnxruntime", isolate=isolate)


@needs_onnxruntime
@pytest.mark.parametrize(
    ("engine", "options", "words"),
    [
        (
            "onnxruntime",
            {"devices": 1},
            "engine 'onnxruntime' has no option 'devices': use provider_options",
        ),
        ("onnxruntime", {"session_options": {"nothing": 1}}, "SessionOptions has no attribute 'nothing'"),
        (
            "onnxruntime",
            {"session_options": {"intra_op_num_threads": "many"}},
            "onnxruntime rejects session_options",
        ),
        ("reference", {"providers": []}, "the reference has no option 'providers'"),
        ("tensorrt", {}, "unknown engine 'tensorrt': use auto, reference, onnxruntime, openvino"),
    ],
)
def test_options_that_cannot_be(engine, options, words):
    with pytest.raises(ModelError, match=words):
        splitops.session(LEGAL, engine, **options)


@needs_onnxruntime
def test_the_engine_s_own_options():
    options = {"intra_op_num_threads": 1, "session.intra_op.allow_spinning": "0"}
    same(LEGAL, {"x": X}, providers=["CPUExecutionProvider"], session_options=options)


def test_a_runtime_that_is_missing_is_named_with_its_extra(monkeypatch):
    import splitops.models.sessions as sessions

    monkeypatch.setattr(splitops.models.engines, "is_installed", lambda name: False)
    monkeypatch.setattr(sessions, "is_installed", lambda name: False)
    with pytest.raises(
        ModelError, match=r"'onnxruntime' is not installed: pip install splitops\[onnxruntime\]"
    ):
        splitops.session(LEGAL, "onnxruntime")
    ready = splitops.session(LEGAL)
    assert (ready.engine, "no runtime is installed" in ready.describe()) == ("reference", True)


def test_shapes_that_do_not_fit():
    for engine in ("reference", "auto"):
        with pytest.raises(ModelError, match="input 'x' has shape"):
            splitops.run(LEGAL, {"x": np.zeros((2, 2), np.float32)}, engine=engine)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"x": X[:5]}, "has size 6 on axis 0, but 'N' is 5"),
        ({"x": X.astype(np.float64)}, "has element type float64"),
        ({"x": X.reshape(2, 3)}, r"has shape \(2, 3\), but the model declares float32 \(N\)"),
        ({"x": np.ma.masked_array(X, [True] * 6)}, "masked"),
        ({"y": X}, "no input 'y'"),
        ({"x": None}, "has element type"),
    ],
)
def test_inputs_that_fitted_before_excuse_no_others(wrong, words):
    ready = splitops.session(parsed("g (float[N] x, float[N] u) => (float[N] a) { a = Add(x, u) }"), "auto")
    for _ in range(2):
        assert ready.run({"u": X, "x": X})["a"].tolist() == (X + X).tolist()
        with pytest.raises(ModelError, match=words):
            ready.run({"u": X, "x": X} | wrong)
    with pytest.raises(ModelError, match="input 'u' is missing"):
        ready.run({"x": X})


# OpenVINO


@needs_openvino
def test_onnx_on_openvino():
    ready = same(LEGAL, {"x": X}, "openvino")
    assert ready.engine == "openvino"
    long = parsed("g (int64[6] x) => (int64[3] a, int64[3] b) { a, b = Split<num_outputs = 2>(x) }")
    ready = same(long, {"x": np.arange(6) + (1 << 40)}, "openvino")
    assert "openvino.narrowed-values" in ready.describe()
    ready.run({"x": np.arange(6)})
    assert ready.describe() == "Runs on openvino, including its split"


@needs_openvino
def test_openvino_runs_models_whose_inputs_are_all_unused():
    model = parsed(
        "g (float[N] x) => (float[2] a, float[2] b) <float[4] c = {1, 2, 3, 4}> { a, b = Split(c) }", 13
    )
    ready = splitops.session(model, "openvino")
    assert ready.run({"x": X})["b"].tolist() == [3, 4]
    assert ready.describe() == "Runs on openvino, including its split"


@needs_openvino
@pytest.mark.parametrize(
    ("number", "engine"),
    [(-(2**31), "openvino"), (2**31 - 1, "openvino"), (-(2**31) - 1, "reference"), (2**31, "reference")],
)
def test_exactly_the_64_bit_integers_of_32_bits_go_to_openvino(number, engine):
    long = parsed("g (int64[6] x) => (int64[3] a, int64[3] b) { a, b = Split<num_outputs = 2>(x) }")
    ready = splitops.session(long, "openvino")
    assert ready.run({"x": np.full(6, number)})["a"].tolist() == [number] * 3
    assert ("narrowed-values" in ready.describe()) == (engine == "reference")


@needs_openvino
@pytest.mark.parametrize("nodes", ["a, b = Split(w)", "y = Cast<to = 7>(x) a, b = Split(y)"])
def test_64_bit_values_that_no_input_shows_stay_away_from_openvino(nodes):
    model = parsed(f"g (double[600] x) => (int64[300] a, int64[300] b) {{ {nodes} }}", 13)
    weight = numpy_helper.from_array(np.arange(600) + (1 << 40), "w")
    model.graph.initializer.extend([weight] if "w" in nodes else [])
    feeds = {"x": np.full(600, 2.0**40)}
    with pytest.raises(EngineError, match=r"would not run 'Split -> a'.*openvino.narrowed-values"):
        splitops.session(model, "openvino")
    assert splitops.run(model, feeds)["b"].min() >= 1 << 40


@needs_openvino
@pytest.mark.parametrize(
    ("nodes", "fits"),
    [
        ("d = Identity(x)", True),
        ("d = Gather(c, x)", True),
        ("d = Concat<axis = 0>(x, x)", True),
        ("d = Concat<axis = 0>(x, c)", True),
        ("d = Concat<axis = 0>(x, large)", False),
        ("d = Shape(f)", True),
        ("d = Mul(x, x)", False),
    ],
)
def test_64_bit_values_that_are_only_moved_run_on_openvino(nodes, fits):
    model = parsed(
        f"""g (int64[4] x, float[2, 3, 4, 5] f) => (int64[a] y, int64[b] z)
            <int64[4] c = {{5, 6, 7, 8}}, int64[2] large = {{1099511627776, 0}}>
            {{ {nodes} y, z = Split<num_outputs = 2>(d) }}"""
    )
    feeds = {"x": np.arange(4), "f": np.zeros((2, 3, 4, 5), np.float32)}
    if fits:
        assert same(model, feeds, "openvino").describe() == "Runs on openvino, including its split"
    else:
        with pytest.raises(EngineError, match=r"would not run 'Split -> y'.*openvino.narrowed-values"):
            splitops.session(model, "openvino")


def casted(source: str, target: str, *casts: str) -> onnx.ModelProto:
    nodes = " ".join(casts)
    return parsed(
        f"g ({source}[4] x) => ({target}[2] a, {target}[2] b) {{ {nodes} a, b = Split<num_outputs = 2>(d) }}"
    )


@needs_openvino
@pytest.mark.parametrize(
    "model",
    [
        casted("int32", "double", "d = Cast<to = 11>(x)"),
        casted("int64", "double", "d = Cast<to = 11>(x)"),
        casted("uint32", "int64", "d = Cast<to = 7>(x)"),
        casted("int64", "int64", "u = Cast<to = 12>(x)", "d = Cast<to = 7>(u)"),
    ],
)
def test_casts_that_need_more_than_32_bits_stay_away_from_openvino(model):
    with pytest.raises(EngineError, match=r"would not run 'Split -> a'.*openvino.narrowed-values"):
        splitops.session(model, "openvino")


@needs_openvino
@pytest.mark.parametrize(
    ("source", "target", "to", "largest"),
    [
        ("uint16", "double", 11, 2**16 - 1),
        ("int8", "double", 11, 2**7 - 1),
        ("bool", "double", 11, True),
        ("int32", "int64", 7, 2**31 - 1),
        ("uint16", "int64", 7, 2**16 - 1),
    ],
)
def test_casts_that_fit_into_32_bits_run_on_openvino(source, target, to, largest):
    model = casted(source, target, f"d = Cast<to = {to}>(x)")
    ready = same(model, {"x": np.array([largest, 1, 0, largest], source)}, "openvino")
    assert ready.describe() == "Runs on openvino, including its split"


def ir_model(kind: str = "f32", lengths: bool = False, shape: str = "?,6") -> openvino_ir.OpenVINOModel:
    builder = openvino_ir.Builder()
    data = builder.parameter("data", kind, shape)
    (less,) = builder.layer("ReLU", [data], name="less") if kind == "f32" else [data]
    sizes = builder.parameter("sizes", "i64", (2,)) if lengths else builder.const(np.array([2, -1]))
    parts = builder.layer("VariadicSplit", [less, builder.const(1), sizes], outputs=2, name="cut")
    for name, part in zip("ab", parts, strict=True):
        builder.result(part, name)
    return builder.model()


DATA = (np.arange(12, dtype=np.float32) - 4).reshape(2, 6)


@needs_openvino
def test_ir_is_compiled_once_with_its_legal_splits():
    ready = same(ir_model(), {"data": DATA}, "openvino")
    assert ready.engine == "openvino"
    assert len(ready._program.programs) == 1
    ready.run({"data": np.ones((5, 6), np.float32)})
    assert len(ready._program.programs) == 1


@needs_openvino
@pytest.mark.parametrize(
    ("model", "extra"),
    [
        (ir_model("i64"), {}),
        (ir_model("f32", lengths=True), {"sizes": np.array([5, 1])}),
        (ir_model("f32", shape="?,?"), {}),
    ],
)
def test_splits_of_ir_of_sizes_that_a_run_decides_are_checked_by_the_graph(model, extra):
    kind = np.int64 if not extra and model.inputs[0].get_attribute("element_type") == "i64" else np.float32
    ready = same(model, {"data": DATA.astype(kind), **extra}, "openvino")
    assert ready.describe() == "Runs on openvino, including its split"


@needs_openvino
def test_an_ir_that_states_another_shape_than_its_layers_have():
    model = ir_model(shape="?,?")
    layers = [layer if layer.name != "less" else _stating(layer, (-1, 6)) for layer in model.graph.layers]
    from dataclasses import replace

    lying = model.with_graph(replace(model.graph, layers=tuple(layers)))
    with pytest.raises(EngineError, match="openvino infers other sizes than splitops for the parts of 'cut'"):
        splitops.session(lying, "openvino")
    ready = splitops.session(lying)
    assert ready.engine == "reference"
    with pytest.raises(splitops.RuleError, match=r"remainder\.negative"):
        ready.run({"data": np.zeros((1, 1), np.float32)})


@needs_openvino
def test_an_ir_that_states_a_rank_which_only_a_run_knows():
    builder = openvino_ir.Builder()
    data, wanted = builder.parameter("data", "f32", "?"), builder.parameter("wanted", "i64", "?")
    (made,) = builder.layer("Reshape", [data, wanted], {"special_zero": "false"}, shapes=[(3, 2)])
    cut = builder.layer("Split", [made, builder.const(1)], {"num_splits": 2}, outputs=2, name="cut")
    for index, part in enumerate(cut):
        builder.result(part, f"{index}")
    with pytest.raises(EngineError, match="openvino infers other sizes than splitops for the parts of 'cut'"):
        splitops.session(builder.model(), "openvino")


@needs_openvino
def test_splits_of_one_name_are_told_apart_by_their_parts():
    builder = openvino_ir.Builder()
    data = builder.parameter("data", "f32", "4,6")
    for count in (2, 3):
        layer = builder.layer(
            "Split", [data, builder.const(1)], {"num_splits": count}, outputs=count, name="cut"
        )
        for index, part in enumerate(layer):
            builder.result(part, f"{count}.{index}")
    same(builder.model(), {"data": np.arange(24, dtype=np.float32).reshape(4, 6)}, "openvino")


@needs_openvino
def test_splits_of_ir_that_nobody_reads_are_told_apart_by_their_names():
    builder = openvino_ir.Builder()
    data = builder.parameter("data", "f32", "4,?,6")
    for name, axis in (("open", 1), ("known", 2)):
        builder.layer("Split", [data, builder.const(axis)], {"num_splits": 2}, outputs=2, name=name)
    builder.result(data, "same")
    with splitops.session(builder.model(), "openvino") as ready:
        assert len(ready.splits) == 2
        found = ready.run({"data": np.zeros((4, 3, 6), np.float32)})  # nobody needs the invalid one
    assert found["same"].shape == (4, 3, 6)


@needs_openvino
def test_what_openvino_cannot_run_is_its_error():
    builder = openvino_ir.Builder()
    data, wanted = builder.parameter("data", "f32", "?"), builder.parameter("wanted", "i64", "2")
    (made,) = builder.layer("Reshape", [data, wanted], {"special_zero": "false"})
    builder.result(made, "z")
    ready = splitops.session(builder.model(), "openvino")
    feeds = {"data": np.zeros(6, np.float32)}
    assert ready.run(feeds | {"wanted": np.array([2, 3])})["z"].shape == (2, 3)
    with pytest.raises(EngineError, match="openvino fails: "):
        ready.run(feeds | {"wanted": np.array([2, 4])})


def _stating(layer: Any, dims: tuple[int, ...]) -> Any:
    from dataclasses import replace

    return replace(layer, outputs=(replace(layer.outputs[0], dims=dims),))


@needs_openvino
def test_64_bit_numbers_keep_their_bits_on_the_way():
    builder = openvino_ir.Builder()
    data = builder.parameter("data", "i64", (4,))
    (shape,) = builder.layer("Reshape", [data, builder.const(np.array([2, 2]))], {"special_zero": "false"})
    (less,) = builder.layer("ReLU", [builder.parameter("x", "f32", (4,))])
    builder.result(shape, "a")
    builder.result(less, "b")
    big = np.array([1 << 40, -1, 2, 3])
    same(builder.model(), {"data": big, "x": X[:4]}, "openvino")


@needs_openvino
def test_a_run_of_ir_keeps_nothing_of_the_one_before():
    ready = splitops.session(ir_model(), "openvino")
    given = [DATA, DATA + 1, DATA[:, ::-1], np.ones((5, 6), np.float32), DATA[:0], DATA.T.copy().T, -DATA]
    found = [ready.run({"data": data}) for data in given]
    for data, parts in zip(given, found, strict=True):
        np.testing.assert_array_equal(np.hstack([parts["a"], parts["b"]]), np.maximum(data, 0))


@needs_openvino
@pytest.mark.parametrize("engine", ["auto", "openvino"])
def test_what_openvino_fails_at_is_done_here_unless_it_was_asked_for(monkeypatch, engine):
    ready = splitops.session(ir_model(), engine)

    def failing(self: EngineModel, *arguments: Any, **options: Any) -> Any:
        raise EngineError("openvino", "fails: no memory is left")

    expected = ready.run({"data": DATA})
    monkeypatch.setattr(EngineModel, "run", failing)
    if engine == "openvino":
        with pytest.raises(EngineError, match="no memory is left"):
            ready.run({"data": DATA})
        return
    found = ready.run({"data": DATA})
    assert "since openvino fails" in ready.describe()
    for name, part in expected.items():
        np.testing.assert_array_equal(found[name], part)


@pytest.mark.parametrize(
    ("inputs", "sizes"),
    [
        ({}, None),
        ({"sizes": np.array([2, 4])}, None),
        ({"sizes": np.array([2, 4]), "data": DATA}, (2, 4)),
        ({"sizes": np.array([2, 5]), "data": DATA}, None),
    ],
)
def test_what_is_predicted_of_a_split_is_what_its_inputs_tell(inputs, sizes):
    (site,) = infer_splits(to_nodes(ir_model(lengths=True)), NOWHERE, inputs)
    plan = plan_split_node(site)
    assert (None if plan is None else plan.sizes) == sizes


def test_what_is_predicted_counts_a_default_that_is_replaced():
    model = parsed("""g (float[N] x, int64[2] l) => (float[A] a, float[B] b) <int64[2] l = {2, 4}> {
        a, b = Split(x, l) }""")
    (site,) = infer_splits(deserialize_model(model), NOWHERE, {"x": X, "l": np.array([1, 5])})
    plan = plan_split_node(site)
    assert plan is not None
    assert plan.sizes == (1, 5)


@pytest.mark.parametrize("more", [False, True])
def test_more_parts_than_are_made_at_once_are_not_predicted(more):
    model = parsed("g (uint8[N] x) => (seq(uint8[A]) s) <int64 k = {2}> { s = SplitToSequence(x, k) }")
    data = np.broadcast_to(np.uint8(0), (2 * MAX_PARTS + 1 if more else 3,))
    (site,) = infer_splits(deserialize_model(model), NOWHERE, {"x": data})
    plan = plan_split_node(site)
    assert (None if plan is None else plan.sizes) == (None if more else (2, 1))


@needs_openvino
def test_threads_share_a_session_of_openvino():
    ready = splitops.session(ir_model(), "openvino")
    barrier = threading.Barrier(4)

    def one(number: int) -> bool:
        barrier.wait()
        return all(
            np.array_equal(ready.run({"data": DATA + number})["b"], np.maximum(DATA + number, 0)[:, 2:])
            for _ in range(20)
        )

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(one, range(4)))


def test_onnxruntime_does_not_run_ir():
    with pytest.raises(ModelError, match="engine 'onnxruntime' does not run OpenVINO IR"):
        splitops.session(ir_model(), "onnxruntime")


@needs_onnxruntime
def test_the_backend_interface_takes_an_engine():
    from splitops.onnx import backend

    prepared = backend.prepare(LEGAL, engine="onnxruntime", providers=["CPUExecutionProvider"])
    assert prepared.session.engine == "onnxruntime"
    assert [part.tolist() for part in prepared.run([X])] == [[0, 0, 0], [-1, -2, -3]]
    assert backend.prepare(LEGAL).session.engine == "reference"


@needs_onnxruntime
@pytest.mark.parametrize(
    ("lines", "read"),
    [("a, b, c, d = Split<num_outputs = 4>(x)", 2), ("a, b = Split<num_outputs = 2>(x)", 1)],
)
def test_a_session_checks_a_model_once_and_reads_it_again_only_to_rewrite_it(
    lines: str, read: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 4 parts of 5, which onnxruntime rejects, what the split needs is read first, then all of it."""
    counts: Counter[str] = Counter()

    def count(owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def counted(*given: Any, **named: Any) -> Any:
            counts[name] += 1
            return original(*given, **named)

        monkeypatch.setattr(owner, name, counted)

    count(onnx_ir.serde, "from_proto")
    count(onnx_ir.serde, "serialize_model")
    count(structure._GraphCheck, "check_graph")
    outputs = ", ".join(f"float[{name}n] {name}" for name in lines.partition(" =")[0].split(", "))
    model = parsed(f"g (float[5] x) => ({outputs}) {{ {lines} }}")
    with splitops.session(model, "onnxruntime") as made:
        assert made.engine == "onnxruntime"
    assert counts == Counter(check_graph=1, from_proto=read, serialize_model=read - 1)
