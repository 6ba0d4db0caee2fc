"""Operators that onnx's converter cannot move: by what they mean, or by the bodies of their schemas."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest
from onnx import ModelProto

import splitops
from splitops.errors import ModelError, Where
from splitops.models.convert import Status, convert, convert_with_report
from splitops.models.convert.onnx_to_onnx import check_converted


def parsed(text: str, opset: int, ir_version: int = 8) -> ModelProto:
    return onnx.parser.parse_model(f'<ir_version: {ir_version}, opset_import: ["": {opset}]> {text}')


def assert_moves(model: ModelProto, opset: int, **inputs: Any) -> ModelProto:
    """Convert, prove valid, run before and after, and return what came of it."""
    moved = convert(model, to=f"onnx:{opset}")
    onnx.checker.check_model(moved, full_check=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted, own = (
            splitops.run(model, inputs, engine="reference"),
            splitops.run(moved, inputs, engine="reference"),
        )
    for name, array in wanted.items():
        np.testing.assert_allclose(own[name], array, rtol=1e-5, atol=1e-6)
        assert own[name].dtype == array.dtype
    return moved


X = np.random.default_rng(0).normal(size=(2, 6)).astype(np.float32)


def test_allowzero_is_left_out_where_no_size_is_zero() -> None:
    model = parsed(
        """g (float[2,6] x) => (float[3,4] y) <int64[2] shape = {3, -1}> {
            y = Reshape<allowzero = 1>(x, shape) }""",
        18,
    )
    moved = assert_moves(model, 13, x=X)
    assert not moved.graph.node[0].attribute


def test_allowzero_is_left_out_where_a_zero_would_copy_the_same_size() -> None:
    model = parsed(
        """g (float[N,6] x) => (float[N,2,3] y) <int64[2] last = {2, 3}, int64[1] first = {0}> {
            shape = Shape(x)
            rows = Gather(shape, first)
            sizes = Concat<axis = 0>(rows, last)
            y = Reshape<allowzero = 1>(x, sizes) }""",
        18,
    )
    for rows in (0, 2):
        assert_moves(model, 13, x=X[:rows])


@pytest.mark.parametrize("shape", ["{0, 3}", "{3, 0}"])
def test_allowzero_stays_where_a_zero_means_zero(shape: str) -> None:
    model = parsed(
        f"""g (float[0,6] x) => (float[a,b] y) <int64[2] shape = {shape}> {{
            y = Reshape<allowzero = 1>(x, shape) }}""",
        18,
    )
    report = convert_with_report(model, to="onnx:13")
    assert [change.status for change in report.changes] == [Status.REWRITTEN]
    assert report.changes[0].where.node == "Reshape -> y"
    feeds = {"x": np.zeros((0, 6), np.float32)}
    for converted in (model, report.model):
        found = splitops.run(converted, feeds, engine="reference")["y"]
        assert found.shape == tuple(map(int, shape.strip("{}").split(", ")))
    [change] = convert_with_report(model, to="onnx:9").changes
    assert change.status is Status.REJECTED


@pytest.mark.parametrize("operator", ["ReduceMean", "ReduceMax", "ReduceL2", "ReduceSum"])
@pytest.mark.parametrize("opset", [11, 17])
def test_a_stated_default_goes_with_the_version_that_has_it(operator: str, opset: int) -> None:
    model = parsed(
        f"""g (float[2,6] x) => (float[2,1] y) <int64[1] axes = {{1}}> {{
            y = {operator}<noop_with_empty_axes = 0>(x, axes) }}""",
        18,
    )
    assert_moves(model, opset, x=X)


@pytest.mark.parametrize("opset", [11, 17, 20])
@pytest.mark.parametrize("operator", ["ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum"])
@pytest.mark.parametrize("axes", ["", ", none", ", one"])
def test_a_reduction_of_no_axes_is_an_identity(operator: str, opset: int, axes: str) -> None:
    size = 1 if axes == ", one" else 6
    model = parsed(
        f"""g (float[2,6] x) => (float[2,{size}] y) <int64[0] none = {{}}, int64[1] one = {{1}}> {{
            y = {operator}<noop_with_empty_axes = 1>(x{axes}) }}""",
        18,
    )
    if axes == ", one":
        assert_moves(model, opset, x=X)
    else:  # the evaluator of old releases of onnx reduces all axes of the source
        moved = convert(model, to=f"onnx:{opset}")
        onnx.checker.check_model(moved, full_check=True)
        if opset == 20:  # it stays as it is
            assert [node.op_type for node in moved.graph.node] == [operator]
        else:
            np.testing.assert_array_equal(splitops.run(moved, {"x": X}, engine="reference")["y"], X)


NORM = "g (float[2,6] x, float[6] scale, float[6] bias) => (float[2,6] y) { y = %s }"
BODIES = {
    "LayerNormalization": (17, NORM % "LayerNormalization<axis = -1>(x, scale, bias)", 13),
    "LayerNormalization without bias": (17, NORM % "LayerNormalization(x, scale)", 11),
    "CastLike": (15, "g (float[2,6] x, int64[1] k) => (int64[2,6] y) { y = CastLike(x, k) }", 13),
    "Gelu": (20, 'g (float[2,6] x) => (float[2,6] y) { y = Gelu<approximate = "tanh">(x) }', 13),
    "Mish": (18, "g (float[2,6] x) => (float[2,6] y) { y = Mish(x) }", 13),
    "HardSwish": (14, "g (float[2,6] x) => (float[2,6] y) { y = HardSwish(x) }", 11),
    "Swish": (24, "g (float[2,6] x) => (float[2,6] y) { y = Swish<alpha = 0.5>(x) }", 11),
    "RMSNormalization": (
        23,
        "g (float[2,6] x, float[6] s) => (float[2,6] y) { y = RMSNormalization(x, s) }",
        13,
    ),
    "GroupNormalization": (
        21,
        "g (float[2,6] x, float[6] s, float[6] b) => (float[2,6] y) "
        "{ y = GroupNormalization<num_groups = 2>(x, s, b) }",
        13,
    ),
}


@pytest.mark.parametrize("name", BODIES)
def test_an_operator_that_came_later_becomes_the_body_of_its_schema(name: str) -> None:
    opset, text, target = BODIES[name]
    model = parsed(text, opset, ir_version=10)
    feeds: dict[str, Any] = {}
    for value in model.graph.input:
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        feeds[value.name] = np.random.default_rng(len(feeds)).normal(size=shape).astype(dtype)
    moved = assert_moves(model, target, **feeds)
    assert name.split()[0] not in [node.op_type for node in moved.graph.node]


@pytest.mark.parametrize("operator", ["BlackmanWindow", "HannWindow<periodic = 0>", "HammingWindow"])
def test_a_body_has_the_defaults_of_its_operator(operator: str) -> None:
    model = parsed(f"g (int64 n) => (float[k] y) {{ y = {operator}(n) }}", 17)
    assert_moves(model, 13, n=np.array(10))


def test_a_rejection_inside_a_body_names_the_node_that_has_it() -> None:
    model = parsed("g (float x, int64[1] k) => (int64 y) { y = CastLike(x, k) }", 15)
    del model.graph.input[1].type.tensor_type.shape.dim[:]
    model.graph.input[1].type.tensor_type.elem_type = onnx.TensorProto.BFLOAT16
    model.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.BFLOAT16
    report = convert_with_report(model, to="onnx:11")  # Cast-9 has no bfloat16
    assert [change.where.node for change in report.rejections] == ["CastLike -> y"]
    with pytest.raises(ModelError, match=r"CastLike-15 cannot be converted .* in the body .*Cast"):
        _ = report.model


def test_a_batch_normalization_of_inference_is_the_same_in_every_version() -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    text = """g (float[2,3,4] x, float[3] s, float[3] b, float[3] m, float[3] v) => (float[2,3,4] y) {
        y = BatchNormalization<epsilon = 0.1>(x, s, b, m, v) }"""
    data = np.abs(np.random.default_rng(0).normal(size=(2, 3, 4))).astype(np.float32)
    feeds = {"x": data, **{name: data[0, :, index] for index, name in enumerate("sbmv")}}
    for old, new in ((15, 11), (9, 17), (14, 9)):
        model = parsed(text, old)
        moved = convert(model, to=f"onnx:{new}")
        assert [node.op_type for node in moved.graph.node] == ["BatchNormalization"]
        # onnx's evaluator runs versions 9 and 14 as if for training.
        left, right = (
            onnxruntime.InferenceSession(m.SerializeToString()).run(None, feeds)[0] for m in (model, moved)
        )
        np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize(
    ("old", "new", "stated"),
    [
        (1, 6, ["alpha", "gamma"]),
        (6, 1, ["alpha", "gamma"]),
        (1, 22, ["alpha", "gamma"]),
        (6, 22, []),
    ],
)
def test_defaults_that_a_later_version_has_changed_are_stated(old: int, new: int, stated: list[str]) -> None:
    model = parsed("g (float[2,6] x) => (float[2,6] y) { y = Selu(x) }", old)
    (node,) = convert(model, to=f"onnx:{new}").graph.node
    schema = onnx.defs.get_schema("Selu", old)
    values = {attribute.name: attribute.f for attribute in node.attribute}
    assert sorted(values) == stated
    for name, value in values.items():
        assert value == pytest.approx(schema.attributes[name].default_value.f, abs=1e-7)


def test_bounds_that_a_clip_leaves_out_are_none() -> None:
    model = parsed("g (float[2,6] x) => (float[2,6] y) { y = Clip<max = 1.0>(x) }", 1)
    (node,) = convert(model, to="onnx:6").graph.node
    assert {attribute.name: attribute.f for attribute in node.attribute} == {"max": 1, "min": -np.inf}


def test_another_default_that_nothing_is_known_of_is_rejected() -> None:
    """The first GRU leaves its direction to the word "foward"."""
    text = "g (float[2,1,1] x, float[1,3,1] w, float[1,3,1] r) => (float[2,1,1,1] y) {"
    with pytest.raises(ModelError, match="GRU-1 cannot be converted to opset 3"):
        convert(parsed(text + " y, z = GRU<hidden_size = 1>(x, w, r) }", 1), to="onnx:3")


def test_attributes_become_constants_where_a_later_version_takes_inputs() -> None:
    model = parsed("g (float[2,6] x) => (float[n,m] y) { y = Pad<pads = [0, 1, 1, 0], value = 3.0>(x) }", 2)
    for opset in (11, 18):
        moved = assert_moves(model, opset, x=X)
        assert not moved.graph.initializer
        assert [node.op_type for node in moved.graph.node] == ["Constant", "Constant", "Pad"]


@pytest.mark.parametrize(
    ("kind", "operator", "gives", "old", "new"),
    [
        ("optional(float[2,3])", "OptionalHasElement", "bool", 15, 18),
        ("optional(seq(float[2,3]))", "OptionalHasElement", "bool", 18, 15),
        ("optional(float[2,3])", "Identity", "optional(float[2,3])", 18, 16),
        ("float[2,3]", "OptionalHasElement", "bool", 18, 15),
    ],
)
def test_operators_of_optionals_move_where_they_take_the_type(
    kind: str, operator: str, gives: str, old: int, new: int
) -> None:
    report = convert_with_report(
        parsed(f"g ({kind} x) => ({gives} y) {{ y = {operator}(x) }}", old), f"onnx:{new}"
    )
    assert report.complete == (kind != "float[2,3]")  # which it takes since opset 18


def own(body: str, opset: int) -> str:
    return f'<domain: "own", opset_import: ["": {opset}]> f {body}'


@pytest.mark.parametrize(
    ("text", "old", "new", "words"),
    [
        (
            "(float x) => (int64[A] y) { y = ArgMax<axis = -1>(x) }",
            13,
            10,
            "an axis is negative and the rank is unknown",
        ),
        (
            "(float x) => (float[A] y) { y = Softmax(x) }",
            13,
            12,
            "opset 12 has Softmax-11, and the rank of its data is unknown",
        ),
        (
            "(float[2,3] x) => (float[A,B] y) { y = own.f<a = 0>(x) }"
            + own("<a> (x) => (y) { y = Softmax<axis: int = @a>(x) }", 13),
            13,
            12,
            "an attribute that the caller of its function sets",
        ),
        (
            "(float[2,3] x) => (int64[A] y) { y = own.f<a = 1>(x) }"
            + own("<a> (x) => (y) { y = Shape<start: int = @a>(x) }", 15),
            15,
            13,
            "an attribute that the caller of its function sets",
        ),
        (
            "(float[2,3] x) => (int64[A] y) { y = own.f(x) }"
            + own("(x) => (y) { y = Constant<value = int64[2] {1, 2}>() z = Identity(x) }", 9),
            9,
            8,
            "a function cannot have a constant of INT64 below opset 9",
        ),
        (
            "(float[2,3] x) => (int64[2,3] y) { y = Cast<to = 7, saturate = 0>(x) }",
            19,
            13,
            "Cast-19 cannot be converted to opset 13",
        ),
    ],
)
def test_nodes_that_cannot_be_moved_say_why(text: str, old: int, new: int, words: str) -> None:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {old}, "own": 1]> g {text}')
    if text.startswith("(float x)"):
        model.graph.input[0].type.tensor_type.ClearField("shape")
    (change,) = convert_with_report(model, to=f"onnx:{new}").rejections
    assert words in str(change.error)


def test_an_answer_of_onnx_s_converter_of_other_types_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(model: ModelProto, opset: int) -> ModelProto:
        made = ModelProto()
        made.CopyFrom(model)
        made.graph.node[0].op_type = "Not"
        made.graph.node[0].ClearField("attribute")
        made.opset_import[0].version = opset
        return made

    monkeypatch.setattr(onnx.version_converter, "convert_version", wrong)
    monkeypatch.setattr(onnx.shape_inference, "infer_shapes", lambda model: model)
    model = parsed("g (float[2,6] x) => (float[2,1] y) { y = ReduceMean<axes = [1]>(x) }", 13)
    with pytest.raises(ModelError, match="onnx's converter returned Not, which does not accept these types"):
        convert(model, to="onnx:18")


def test_a_function_without_onnx_s_operators_stays() -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["own": 1]>
        g (float[2,3] x) => (float[2,3] y) { y = own.f(x) }
        <domain: "own", opset_import: ["own": 1]> f (x) => (y) { y = own.g(x) }""")
    assert convert(model, to="onnx:12").functions == model.functions


def test_onnx_is_asked_once_for_each_kind_of_node(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    ask = onnx.version_converter.convert_version

    def counted(*arguments: Any) -> ModelProto:
        asked.append(arguments)
        return ask(*arguments)

    nodes = "".join(f"r{i} = ReduceMean<axes = [1]>(x) t{i} = Relu(r{i})" for i in range(9))
    model = parsed(f"g (float[2,6] x) => (float[2,1] t8) {{ {nodes} }}", 13)
    monkeypatch.setattr(onnx.version_converter, "convert_version", counted)
    assert convert_with_report(model, to="onnx:18").complete
    assert len(asked) == 1


@pytest.mark.parametrize("opset", [6, 8])
@pytest.mark.parametrize("ir_version", [3, 8])
def test_constants_that_the_first_version_cannot_state_become_initializers(
    opset: int, ir_version: int
) -> None:
    huge = 2**62 + 1  # which no float holds
    model = parsed(
        f"""g (float[2,6] x, bool c) => (float[n,m] y, int64[1] k) {{
            k = Constant<value = int64[1] {{{huge}}}>()
            s = Constant<value = int64[2] {{3, -1}}>()
            r = Reshape(x, s)
            y = If(c) <
                then_branch = t () => (float[a,b] z) {{
                    q = Constant<value_ints = [4, -1]>()
                    z = Reshape(r, q) }},
                else_branch = e () => (float[a,b] w) {{ w = Reshape(r, s) }}> }}""",
        13,
        ir_version,
    )
    for condition in (True, False):
        moved = assert_moves(model, opset, x=X, c=np.array(condition))
    assert "Constant" not in [node.op_type for node in moved.graph.node]
    assert splitops.run(moved, {"x": X, "c": np.array(True)}, engine="reference")["k"].tolist() == [huge]


def test_a_result_is_held_against_the_whole_of_what_onnx_checks() -> None:
    model = parsed("g (float[2,6] x) => (float[2,5] y) { y = Relu(x) }", 13)
    with pytest.raises(ModelError, match="would not be valid"):
        check_converted(model, Where())
    check_converted(model, Where(), model)  # it was not better before


@pytest.mark.parametrize(
    "text",
    [
        """g (float[5] x) => (float[n] y) {
            a, b, c, d = Split<num_outputs = 4>(x)
            zero = Constant<value_ints = [0]>() one = Constant<value_ints = [1]>()
            y = Slice(d, zero, one) }""",
        """g (float[1,1,3,3] x) => (float[n,m,k,l] y) {
            p = MaxPool<kernel_shape = [9, 9]>(x)
            zero = Constant<value_ints = [0]>() one = Constant<value_ints = [1]>()
            y = Slice(p, zero, one) }""",
        """g (float[6] x) => (float[n] y, float[m] z) { y, z = Split<num_outputs = 100000000>(x) }""",
    ],
    ids=["ceil", "pool", "count"],
)
def test_what_ends_onnx_s_checker_does_not_end_the_process(text: str, tmp_path: Path) -> None:
    onnx.save(parsed(text, 18), tmp_path / "model.onnx")
    script = (
        "import resource, sys, splitops; resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))\n"
        "report = splitops.convert_with_report(sys.argv[1], 'onnx:19')\n"
        "print(report.rejections or report.model.opset_import[0].version)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path / "model.onnx"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "19\n"), done.stderr


def test_types_are_held_against_onnx_also_where_sizes_are_not() -> None:
    model = parsed(
        """g (float[6] x) => (float[n] y) {
            k = Constant<value = int64[1] {1}>() z = Constant<value = int64[1] {0}>()
            s = Slice(x, z, k) y = Add(s, k) }""",
        13,
    )
    with pytest.raises(ModelError, match="would not be valid"):
        check_converted(model, Where())


@pytest.mark.skipif(onnx.defs.onnx_opset_version() < 27, reason="onnx has no Range-27")
def test_a_body_with_a_graph_in_it_takes_no_place() -> None:
    """Its Loop reads values around it by names that only the body has."""
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 27]>
        g (float16 s, float16 l, float16 d) => (float16[n] y) { y = Range(s, l, d) }""")
    with pytest.raises(ModelError, match="Range-27 cannot be converted to opset 12"):
        convert(model, 12)
