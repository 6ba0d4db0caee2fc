"""Models made at random run to what NumPy says; files damaged at random raise SplitError and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import splitops
from splitops.errors import SplitError
from splitops.models.formats.onnx import read
from splitops.models.formats.onnx.graphs import deserialize_model
from splitops.models.graph.split_nodes import iter_split_nodes

run = partial(splitops.run, engine="reference")

OPSETS = (1, 2, 7, 11, 12, 13, 17, 18, 23, onnx.defs.onnx_opset_version())
Chain = tuple[onnx.ModelProto, np.ndarray[Any, Any], list[np.ndarray[Any, Any]]]
"""A model, its input, and what NumPy gives."""
NESTING = ("main", "if", "loop", "function")


@st.composite
def chains(draw: st.DrawFn) -> Chain:
    """Cut an array, and parts of it again, in graphs and functions of any opset; NumPy says the rest."""
    opset = draw(st.sampled_from(OPSETS))
    # Before opset 11 a Loop carries at least one value.
    place = draw(st.sampled_from([name for name in NESTING if name != "loop" or opset >= 11]))
    shape = draw(st.lists(st.integers(0, 7), min_size=1, max_size=4))
    data = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    pending, nodes, initializers = [("x", data)], [], []
    for step in range(draw(st.integers(1, 4))):
        name, array = pending.pop(draw(st.integers(0, len(pending) - 1)))
        axis = draw(st.integers(-array.ndim, array.ndim - 1))
        size = array.shape[axis]
        cuts = sorted(draw(st.lists(st.integers(0, size), max_size=3)))
        lengths = [end - begin for begin, end in zip([0, *cuts], [*cuts, size], strict=True)]
        outputs = [f"p{step}_{i}" for i in range(len(lengths))]
        inputs, attributes = [name], {"axis": axis}
        if opset < 13:
            attributes["split"] = lengths
        else:
            inputs.append(f"lengths{step}")
            tensor = numpy_helper.from_array(np.array(lengths, np.int64), inputs[1])
            if place == "function":  # a function has no initializers
                nodes.append(helper.make_node("Constant", [], [inputs[1]], value=tensor))
            else:
                initializers.append(tensor)
        nodes.append(helper.make_node("Split", inputs, outputs, name=f"cut{step}", **attributes))
        pending += zip(outputs, np.split(array, cuts, axis), strict=True)
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name, _ in pending],
        initializers,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    return nest(model, place, opset), data, [array for _, array in pending]


def nest(model: onnx.ModelProto, place: str, opset: int) -> onnx.ModelProto:
    """Move the graph of a model into a subgraph or a function."""
    inner = model.graph
    outputs = [value.name for value in inner.output]
    outer = [f"out_{name}" for name in outputs]
    if place == "main":
        return model
    graph = helper.make_graph([], "outer", [inner.input[0]], [])
    graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outer)
    if place == "function":
        imports = [helper.make_opsetid("", opset)]
        function = helper.make_function("own", "f", ["x"], outputs, list(inner.node), imports)
        graph.node.append(helper.make_node("f", ["x"], outer, domain="own"))
        imports.append(helper.make_opsetid("own", 1))
        return helper.make_model(graph, opset_imports=imports, functions=[function], ir_version=10)
    body = onnx.GraphProto()
    body.CopyFrom(inner)
    del body.input[:]
    graph.initializer.append(numpy_helper.from_array(np.array(True), "yes"))
    if place == "if":
        otherwise = helper.make_graph(
            [helper.make_node("Identity", ["x"], [f"same{i}"]) for i in range(len(outputs))],
            "otherwise",
            [],
            [helper.make_tensor_value_info(f"same{i}", TensorProto.FLOAT, None) for i in range(len(outputs))],
        )
        graph.node.append(
            helper.make_node("If", ["yes"], outer, name="choose", then_branch=body, else_branch=otherwise)
        )
    else:
        # One iteration; scan outputs get a leading axis, which the oracle takes off again.
        body.input.extend(
            [
                helper.make_tensor_value_info("i", TensorProto.INT64, []),
                helper.make_tensor_value_info("going", TensorProto.BOOL, []),
            ]
        )
        body.node.append(helper.make_node("Identity", ["going"], ["still"]))
        body.output.insert(0, helper.make_tensor_value_info("still", TensorProto.BOOL, []))
        graph.initializer.append(numpy_helper.from_array(np.array(1), "once"))
        graph.node.append(helper.make_node("Loop", ["once", ""], outer, name="once_only", body=body))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


@given(chains())
@settings(max_examples=150, deadline=None)
def test_chains_of_splits_match_numpy(case: Chain) -> None:
    model, data, expected = case
    outputs = list(run(model, {"x": data}).values())
    looped = model.graph.node[0].op_type == "Loop"
    for part, wanted in zip(outputs, expected, strict=True):
        np.testing.assert_array_equal(part[0] if looped else part, wanted, strict=True)
    sites = list(iter_split_nodes(deserialize_model(model)))
    assert {site.where.graph is None for site in sites} == {model.graph.name != "outer"}


@given(
    size=st.integers(0, 40),
    chunk=st.one_of(st.none(), st.integers(1, 50)),
    keepdims=st.sampled_from([0, 1]),
    dtype=st.sampled_from([np.int32, np.int64]),
)
@settings(max_examples=60, deadline=None)
def test_sequences_match_slices(size: int, chunk: int | None, keepdims: int, dtype: type) -> None:
    data = np.arange(3 * size, dtype=np.int64).reshape(3, size)
    node = helper.make_node(
        "SplitToSequence", ["x", "s"] if chunk else ["x"], ["y"], axis=1, keepdims=keepdims
    )
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.INT64, [3, size])],
        [helper.make_tensor_sequence_value_info("y", TensorProto.INT64, None)],
        [numpy_helper.from_array(np.array(chunk, dtype), "s")] if chunk else [],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=10)
    parts = run(model, {"x": data})["y"]
    step = chunk or 1
    expected = [data[:, i : i + step] for i in range(0, size, step)]
    if not chunk and not keepdims:
        expected = [part[:, 0] for part in expected]
    assert len(parts) == len(expected)
    for part, wanted in zip(parts, expected, strict=True):
        np.testing.assert_array_equal(part, wanted, strict=True)


SEED = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 18, "own": 1]>
    g (bool c, float[6, 4] x) => (float[n, 4] a, float[m, 4] y, seq(float[k]) s) {
        a, b = own.halve <parts = 2> (x)
        y = If (c) <
            then_branch = t () => (float[n, 4] u) { sizes = Constant <value = int64[2] {1, 5}> ()
                                                    u, v = Split <axis = 0> (x, sizes) },
            else_branch = e () => (float[6, 4] w) { w = Identity (x) }
        >
        s = SplitToSequence <keepdims = 0> (b)
    }
    <opset_import: ["": 18], domain: "own">
    halve <parts> (x) => (a, b) { a, b = Split <num_outputs: int = @parts> (x) }
""").SerializeToString()
SEED_INPUTS = {"c": np.array(True), "x": np.arange(24, dtype=np.float32).reshape(6, 4)}


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    content = bytearray(SEED)
    for _ in range(draw(st.integers(1, 4))):
        if not content:
            break
        at = draw(st.integers(0, len(content) - 1))
        match draw(st.sampled_from(["flip", "set", "cut", "drop", "insert", "repeat"])):
            case "flip":
                content[at] ^= 1 << draw(st.integers(0, 7))
            case "set":
                content[at] = draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
            case "cut":
                del content[at:]
            case "drop":
                del content[at : at + draw(st.integers(1, 8))]
            case "insert":
                content[at:at] = draw(st.binary(min_size=1, max_size=8))
            case _:
                content[at:at] = content[at : at + draw(st.integers(1, 40))]
    return bytes(content)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("damaged") / "m.onnx"


def rejection(use: Callable[[Path], Any], file: Path) -> str:
    """Return the message of the SplitError that a file gives, if any; other errors are not caught."""
    try:
        use(file)
    except SplitError as error:
        return str(error)
    return ""


def test_the_undamaged_file_runs(file: Path) -> None:
    file.write_bytes(SEED)
    outputs = run(file, SEED_INPUTS)
    assert outputs["y"].shape == (1, 4)
    assert len(outputs["s"]) == 3


@given(content=damaged())
@settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damaged_files_raise_split_errors_alone(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    for use in (
        read,
        lambda path: list(iter_split_nodes(deserialize_model(read(path)))),
        lambda path: run(path, SEED_INPUTS),
    ):
        message = rejection(use, file)
        assert "\n" not in message
        assert len(message) < 2000


@pytest.mark.parametrize("length", range(0, len(SEED), 3))
def test_truncated_files(file: Path, length: int) -> None:
    """A truncated model is invalid, or lacks its last fields: never anything but a SplitError."""
    file.write_bytes(SEED[:length])
    rejection(lambda path: run(path, SEED_INPUTS), file)


@given(content=st.binary(max_size=200))
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_bytes_are_no_model(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    with pytest.raises(SplitError):
        run(file, {})
