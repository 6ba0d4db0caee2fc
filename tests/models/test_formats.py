"""The one door to models: load, save and run choose the format by the ending or by the type."""

import numpy as np
import onnx
import onnx.parser
import pytest

import splitops
from splitops.models.formats.openvino import OpenVINOModel

ONNX = "examples/models/attention_block.onnx"
IR = "examples/models/feature_split.xml"
DATA = {ONNX: "examples/data/attention_block_x.npy", IR: "examples/data/feature_split_x.npy"}


def same(left, right):
    if list(left) != list(right):
        return False
    flat = [
        [array for value in outputs.values() for array in (value if isinstance(value, list) else [value])]
        for outputs in (left, right)
    ]
    return len(flat[0]) == len(flat[1]) and all(map(np.array_equal, *flat))


@pytest.fixture(params=[ONNX, IR])
def path(request, pytestconfig):
    return pytestconfig.rootpath / request.param


@pytest.fixture
def inputs(path, pytestconfig):
    name = DATA[next(name for name in DATA if path.name in name)]
    return {"x": np.load(pytestconfig.rootpath / name)}


def test_a_path_a_string_and_a_model_in_memory_run_alike(path, inputs):
    outputs = splitops.run(path, inputs)
    assert outputs
    assert same(outputs, splitops.run(str(path), inputs))
    assert same(outputs, splitops.run(splitops.load(path), inputs))


def test_other_outputs_are_not_the_same(path, inputs):
    outputs = splitops.run(path, inputs)
    other = splitops.run(path, {"x": inputs["x"] + 1})
    assert not same(outputs, other)
    assert not same(outputs, {})


@pytest.mark.parametrize("upper", [False, True])
def test_what_is_saved_runs_alike(path, inputs, tmp_path, upper):
    suffix = path.suffix.upper() if upper else path.suffix
    copy = tmp_path / f"copy{suffix}"
    splitops.save(splitops.load(path), copy)
    assert same(splitops.run(path, inputs), splitops.run(copy, inputs))


def test_the_types_of_loaded_models(pytestconfig):
    assert isinstance(splitops.load(pytestconfig.rootpath / ONNX), onnx.ModelProto)
    assert isinstance(splitops.load(pytestconfig.rootpath / IR), OpenVINOModel)


def test_endings_of_the_other_format_are_rejected(path, tmp_path):
    model = splitops.load(path)
    wrong = tmp_path / ("copy.xml" if path.suffix == ".onnx" else "copy.onnx")
    with pytest.raises(splitops.ModelError, match="cannot be written"):
        splitops.save(model, wrong)
    with pytest.raises(splitops.ModelError, match="not a model file"):
        splitops.run(tmp_path / "model.pb", {})
    assert not list(tmp_path.iterdir())


def test_ragged_input_is_one_clear_error(path):
    with pytest.raises(splitops.ModelError, match="input"):
        splitops.run(path, {"x": [[1], [1, 2]]})


def a_small_model():
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 13]>
        g (float[6] x) => (float[2] a, float[4] b) {
            c = Constant<value = int64[2] {2, 4}>()
            a, b = Split(x, c)
        }""")
    model.graph.node[0].attribute[0].t.name = "as the caller named it"
    return model


@pytest.mark.parametrize(
    "tool",
    [
        lambda model: splitops.convert(model, to="onnx:11"),
        lambda model: splitops.convert(model, to="openvino"),
        lambda model: splitops.convert(model, splits_only=True, style="count"),
        splitops.infer,
        splitops.check,
        splitops.simplify,
        lambda model: splitops.run(model, {"x": np.zeros(6, np.float32)}),
    ],
    ids=["convert", "to openvino", "splits_only", "infer", "check", "simplify", "run"],
)
def test_no_tool_changes_the_model_that_it_is_given(tool):
    model = a_small_model()
    before = model.SerializeToString(deterministic=True)
    tool(model)
    assert model.SerializeToString(deterministic=True) == before


def test_numbers_that_are_no_shapes_keep_their_type():
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 13]>
        g (float[N, M] x, int64[1] i) => (float[k] y) {
            s = Shape(x)
            f = Cast<to = 1>(s)
            c = Constant<value = float[1] {2.0}>()
            y = Concat<axis = 0>(f, c)
        }""")
    assert str(splitops.infer(model)["y"]) == "float32[3]"
