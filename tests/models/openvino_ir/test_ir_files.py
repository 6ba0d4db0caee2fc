"""Reading and writing: what a file says comes back, files are whole or absent, OpenVINO loads them."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ir_helpers import (
    OPENVINO_TYPES,
    array_of,
    assert_same,
    data_of,
    needs_openvino,
    run_by_openvino,
    run_ir,
    split_model,
    stated,
)

from splitops.errors import ModelError, Where
from splitops.models.formats import openvino as ir
from splitops.models.formats.openvino.constants import Constant, Weights
from splitops.models.formats.openvino.model import join_names, split_names
from splitops.models.formats.openvino.nodes import to_nodes
from splitops.models.formats.openvino.shapes import format_shape, is_match, parse_integer, parse_shape
from splitops.models.graph.split_nodes import iter_split_nodes
from splitops.spec import ELEMENT_TYPES, ElementType
from splitops.spec.sizes.dims import Range

NOWHERE = Where()


def canonical(model: ir.OpenVINOModel) -> str:
    return ElementTree.canonicalize(ir.to_bytes(model)[0].decode(), strip_text=True)


# Shapes and numbers


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("", ()),
        ("6,12,10,24", (6, 12, 10, 24)),
        ("2, 3", (2, 3)),
        ("[2,3]", (2, 3)),
        ("?", (Range(),)),
        ("-1,2", (Range(), 2)),
        ("2..6,..3,2..", (Range(2, 6), Range(0, 3), Range(2, None))),
        ("4..4", (4,)),
        ("2..9223372036854775807", (Range(2, None),)),
        ("...", None),
    ],
)
def test_partial_shapes(text: str, shape: tuple[int | Range, ...] | None) -> None:
    assert parse_shape(text, NOWHERE) == shape
    assert parse_shape(format_shape(shape), NOWHERE) == shape


@given(
    st.lists(
        st.integers(0, 99)
        | st.just(Range())
        | st.builds(lambda lo, more: Range(lo, lo + more + 1), st.integers(0, 9), st.integers(0, 9)),
        max_size=5,
    ),
    st.data(),
)
def test_shapes_match_their_sizes_and_no_others(dims: list[int | Range], data: st.DataObject) -> None:
    partial = parse_shape(format_shape(tuple(dims)), NOWHERE)
    assert partial == tuple(dims)
    shape = tuple(
        dim
        if isinstance(dim, int)
        else data.draw(st.integers(dim.lo, dim.hi if dim.hi is not None else dim.lo + 9))
        for dim in dims
    )
    assert is_match(shape, partial)
    assert is_match(shape, None)
    assert not is_match((*shape, 1), partial)
    for at, dim in enumerate(dims):
        beyond = dim + 1 if isinstance(dim, int) else None if dim.hi is None else dim.hi + 1
        if beyond is not None:
            assert not is_match((*shape[:at], beyond, *shape[at + 1 :]), partial)


@pytest.mark.parametrize(
    ("text", "value"),
    [("3", 3), ("3.0", 3), ("3.", 3), (" -1 ", -1), ("-9223372036854775808", -(2**63))],
)
def test_integers(text: str, value: int) -> None:
    assert parse_integer(text, "num_splits", NOWHERE) == value


@pytest.mark.parametrize(
    "text",
    ["", "3.5", "+2", "3e0", "0x3", "three", "3,", "--3", "9223372036854775808", "9" * 5000, "1_000", "٣"],
)
def test_no_integers(text: str) -> None:
    with pytest.raises(ModelError, match="not a 64-bit integer"):
        parse_integer(text, "num_splits", NOWHERE)


@given(st.lists(st.text(st.characters(exclude_characters="\0\\", codec="utf-8"), min_size=1), max_size=4))
def test_names_with_commas(names: list[str]) -> None:
    assert split_names(join_names(tuple(names))) == tuple(names)


# Round trips


RICH = """<?xml version="1.0"?>
<net name="rich" version="11" note="kept">
  <layers>
    <layer id="7" name="x,&lt;&amp;&quot;" type="Parameter" version="opset1" PrimitivesPriority="cpu:gemm">
      <data shape="2..6,?,..3" element_type="f32"/>
      <rt_info><attribute name="layout" version="0" layout="[N,C,W]"/></rt_info>
      <output>
        <port id="0" precision="FP32" names="a\\,b,c" note="kept">
          <dim>-1</dim><dim>-1</dim><dim>-1</dim>
          <rt_info><attribute name="port" version="0" value="1"/></rt_info>
        </port>
      </output>
    </layer>
    <layer id="3" name="mystery" type="Mystery" version="extension">
      <data alpha="0.1" beta="a b"><inner kept="yes">text</inner></data>
      <port_map><input external_port_id="0" internal_layer_id="0"/></port_map>
      <input><port id="4" precision="FP32"/></input>
      <output><port id="9" precision="FP32" names="m"/></output>
      <body>
        <layers>
          <layer id="0" name="p" type="Parameter" version="opset1">
            <data shape="..." element_type="f32"/><output><port id="0" precision="FP32"/></output>
          </layer>
          <layer id="1" name="c" type="Const" version="opset1">
            <data element_type="f32" shape="2" offset="1" size="8"/>
            <output><port id="0" precision="FP32"><dim>2</dim></port></output>
          </layer>
          <layer id="2" name="s" type="VariadicSplit" version="opset1">
            <input><port id="0"/><port id="1"/><port id="2"/></input>
            <output><port id="3"/><port id="4"/></output>
          </layer>
          <layer id="5" name="i" type="Const" version="opset1">
            <data element_type="i32" shape="" offset="9" size="4"/><output><port id="0"/></output>
          </layer>
          <layer id="6" name="l" type="Const" version="opset1">
            <data element_type="i32" shape="2" offset="13" size="8"/><output><port id="0"/></output>
          </layer>
          <layer id="8" name="r" type="Result" version="opset1"><input><port id="0"/></input></layer>
        </layers>
        <edges>
          <edge from-layer="1" from-port="0" to-layer="2" to-port="0"/>
          <edge from-layer="5" from-port="0" to-layer="2" to-port="1"/>
          <edge from-layer="6" from-port="0" to-layer="2" to-port="2"/>
          <edge from-layer="2" from-port="4" to-layer="8" to-port="0"/>
        </edges>
        <rt_info/>
      </body>
    </layer>
    <layer id="1" name="out" type="Result" version="opset1" output_names="o">
      <input><port id="0" precision="FP32"/></input>
    </layer>
  </layers>
  <edges>
    <edge from-layer="7" from-port="0" to-layer="3" to-port="4"/>
    <edge from-layer="3" from-port="9" to-layer="1" to-port="0"/>
  </edges>
  <rt_info><Runtime_version value="2026"/><conversion><a value="1"/></conversion></rt_info>
</net>
"""
RICH_BIN = b"\xff" + np.array([1.5, -2.5], "<f4").tobytes() + np.array([0, 1, -1], "<i4").tobytes()


def test_what_is_not_interpreted_is_kept() -> None:
    model = ir.from_bytes(RICH.encode(), RICH_BIN)
    xml, weights = ir.to_bytes(model)
    old, new = ElementTree.fromstring(RICH), ElementTree.fromstring(xml)
    for element in (*old.iter(), *new.iter()):
        for name in ("offset", "size"):
            element.attrib.pop(name, None)
    # The order of a layer's sections is ours; what they hold is the file's.
    assert sections(new) == sections(old)
    again = ir.from_bytes(xml, weights)
    constants = [
        layer.constant for _, graph in again.iter_graphs() for layer in graph.layers if layer.constant
    ]
    assert [constant.read_array(NOWHERE).tolist() for constant in constants] == [[1.5, -2.5], 0, [1, -1]]
    assert ir.to_bytes(again) == (xml, weights)


def sections(element: ElementTree.Element) -> tuple[object, ...]:
    children = [sections(child) for child in element]
    if element.tag in {"layer", "body"}:
        children.sort(key=repr)
    return element.tag, dict(element.attrib), (element.text or "").strip(), tuple(children)


def test_lookups() -> None:
    model = ir.from_bytes(RICH.encode(), RICH_BIN)
    graph = model.graph
    assert [layer.id for layer in graph.order] == [7, 3, 1]
    assert graph.producers[ir.Endpoint(3, 4)] == ir.Endpoint(7, 0)
    assert graph.consumers[ir.Endpoint(3, 9)] == (ir.Endpoint(1, 0),)
    assert ir.Endpoint(1, 0) not in graph.consumers
    assert graph.by_id[7].outputs[0].names == ("a,b", "c")
    assert graph.by_id[7].outputs[0].element_type is ELEMENT_TYPES["float32"]
    assert graph.by_id[7].read_shape(NOWHERE) == (Range(2, 6), Range(), Range(0, 3))
    assert [path for path, _ in model.iter_graphs()] == [None, "mystery/body"]
    (site,) = iter_split_nodes(to_nodes(model))
    assert site.where == Where(None, "mystery/body", "s")
    assert (site.inputs, site.outputs) == (("c", "i", "l"), ("", "s:4"))


@pytest.mark.parametrize("kind", OPENVINO_TYPES, ids=str)
def test_constants_of_every_type(kind: ElementType, tmp_path: Path) -> None:
    builder = ir.Builder()
    arrays = {
        f"c{index}": data_of(kind, shape) for index, shape in enumerate([(), (0,), (3, 5), (2, 0, 4), (41,)])
    }
    for name, array in arrays.items():
        builder.result(builder.const(array, kind), name)
    ir.write(builder.model(), tmp_path / "model.xml")
    outputs = run_ir(ir.read(tmp_path / "model.xml"), {})
    assert list(outputs) == list(arrays)
    for name, array in arrays.items():
        assert_same(outputs[name], array)
        assert not outputs[name].flags.writeable


def test_unaligned_and_shared_ranges() -> None:
    xml = RICH.replace('offset="13"', 'offset="9"')
    model = ir.from_bytes(xml.encode(), RICH_BIN)
    constants = [
        layer.constant for _, graph in model.iter_graphs() for layer in graph.layers if layer.constant
    ]
    assert [constant.read_array(NOWHERE).tolist() for constant in constants] == [[1.5, -2.5], 0, [0, 1]]
    aligned = ir.to_bytes(model)[1]
    assert len(aligned) == 8 + 4 + 8
    for element in ElementTree.fromstring(ir.to_bytes(model)[0]).iter("data"):
        assert int(element.get("offset", "0")) % 4 == 0


def test_a_constant_that_lies_across_words_is_read() -> None:
    kind = ELEMENT_TYPES["bfloat16"]
    builder = ir.Builder()
    builder.result(builder.const(np.arange(3).astype(kind.numpy), kind), "z")
    xml, weights = ir.to_bytes(builder.model())
    moved = ir.from_bytes(xml.replace(b'offset="0"', b'offset="1"'), b"\0" + bytes(weights))
    assert run_ir(moved, {})["z"].astype(float).tolist() == [0, 1, 2]


def test_a_constant_of_the_other_byte_order_is_the_same() -> None:
    builder = ir.Builder()
    builder.result(builder.const(np.array([1, 256], ">i4")), "z")
    assert run_ir(builder.model(), {})["z"].tolist() == [1, 256]


FLOAT = ELEMENT_TYPES["float32"]


@pytest.mark.parametrize(
    ("constant", "message"),
    [
        (None, "has no value"),
        (Constant(FLOAT, (1,) * 65, Weights(b"1234"), 0, 4), "shape has more than 64 dimensions"),
        (Constant(FLOAT, (2,), Weights(b""), 0, 8), "needs bytes 0 to 8, but the weights have 0 bytes"),
        (Constant(FLOAT, (2,), Weights(b"12345678"), -8, 8), "bytes -8 to 0 are outside the 8 bytes"),
    ],
)
def test_constants_that_cannot_be(constant: Constant | None, message: str) -> None:
    builder = ir.Builder()
    builder.result(builder.const(np.zeros(2, np.float32)), "z")
    graph = builder.model().graph
    layers = [replace(layer, constant=constant) if layer.type == "Const" else layer for layer in graph.layers]
    with pytest.raises(ModelError, match=message):
        ir.to_bytes(builder.model().with_graph(replace(graph, layers=tuple(layers))))


def test_strings_that_a_constant_cannot_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelError, match="a string constant has a value of type int"):
        ir.Builder().const(np.array(["a", 1], object), "string")
    monkeypatch.setattr("splitops.models.formats.openvino.constants.INT32_MAX", 8)
    ir.Builder().const(np.array(["four", "more"], object), "string")
    with pytest.raises(ModelError, match="strings of 9 bytes are more than a constant can store"):
        ir.Builder().const(np.array(["four", "more!"], object), "string")


def test_equal_constants_are_written_once() -> None:
    builder = ir.Builder()
    for index in range(5):
        builder.result(builder.const(np.arange(100)), f"same{index}")
    builder.result(builder.const(np.arange(100, dtype=np.int32)), "other")
    assert len(ir.to_bytes(builder.model())[1]) == 800 + 400


def test_bytes_of_a_constant_are_not_read_before_they_are_asked_for(tmp_path: Path) -> None:
    """A .bin of 64 GiB that takes no space: only the pages that are touched are read."""
    xml = RICH.replace('offset="1" size="8"', f'offset="{(1 << 36) - 9}" size="8"')
    path = tmp_path / "model.xml"
    path.write_text(xml)
    path.with_suffix(".bin").write_bytes(RICH_BIN)
    os.truncate(path.with_suffix(".bin"), 1 << 36)
    model = ir.read(path)
    values = [
        layer.constant.read_array(NOWHERE)
        for _, graph in model.iter_graphs()
        for layer in graph.layers
        if layer.constant
    ]
    assert values[0].tolist() == [0.0, 0.0]


# Writing


def test_write_over_the_file_that_is_read_from(tmp_path: Path) -> None:
    path = tmp_path / "model.xml"
    data = data_of(ELEMENT_TYPES["float32"], (6, 4))
    ir.write(split_model(("f32", (6, 4)), np.array(0), lengths=np.array([1, -1]), outputs=2), path)
    model = ir.read(path)
    before = path.with_suffix(".bin").read_bytes()
    ir.write(model, path)
    assert path.with_suffix(".bin").read_bytes() == before
    for one in (model, ir.read(path)):
        assert_same(run_ir(one, {"data": data})["part1"], data[1:])
    assert sorted(file.name for file in tmp_path.iterdir()) == ["model.bin", "model.xml"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError("disk full"), ModelError("no")])
def test_nothing_is_left_after_an_error(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.xml"
    path.write_text("old")
    path.with_suffix(".bin").write_text("old")
    model = split_model(("f32", (6,)), np.array(0), lengths=np.array([1, -1]), outputs=2)
    calls = []

    def failing(self: object, *arguments: object) -> memoryview:
        calls.append(arguments)
        if len(calls) == 2:
            raise error
        return memoryview(bytes(8))

    monkeypatch.setattr(ir.Constant, "read_data", failing)
    with pytest.raises(KeyboardInterrupt if error is KeyboardInterrupt else ModelError):
        ir.write(model, path)
    assert len(calls) == 2
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {
        "model.xml": "old",
        "model.bin": "old",
    }


def test_rejected_names() -> None:
    builder = ir.Builder()
    builder.result(builder.parameter("nul\0", "f32", (1,)), "out")
    with pytest.raises(ModelError, match=r"has the character U\+0000, which XML forbids"):
        ir.to_bytes(builder.model())
    with pytest.raises(ModelError, match=r"ends in \.xml"):
        ir.write(builder.model(), "model.onnx")


def test_builder_rejects_what_openvino_lacks() -> None:
    builder = ir.Builder()
    with pytest.raises(ModelError, match="no element type for dtype complex64"):
        builder.const(np.zeros(2, np.complex64))
    with pytest.raises(ModelError, match="f33 is not an element type of OpenVINO"):
        builder.parameter("x", "f33", (1,))
    builder.parameter("x", "f32", (1,))
    builder.parameter("x", "f32", (1,))
    with pytest.raises(ModelError, match="two inputs are named 'x'"):
        builder.model()


# With OpenVINO


@needs_openvino
def test_openvino_loads_what_we_write(tmp_path: Path) -> None:
    """Constants of every element type, an empty one alone, partial shapes, names with commas, version 10."""
    jobs = []
    expected = []
    for kind in OPENVINO_TYPES:
        builder = ir.Builder()
        arrays = [data_of(kind, shape) for shape in [(), (3, 5), (0, 2), (17,)]]
        for index, array in enumerate(arrays):
            builder.result(builder.const(array, kind), f"c{index}", names=[f"a,{index}"])
        jobs.append(written(builder, tmp_path / f"{kind}.xml"))
        expected.append((arrays, [["a,0"], ["a,1"], ["a,2"], ["a,3"]]))
    builder = ir.Builder()
    builder.result(builder.const(np.empty((0,), np.int64)), "empty")
    jobs.append(written(builder, tmp_path / "empty.xml"))
    expected.append(([np.empty((0,), np.int64)], [["empty"]]))
    data = data_of(ELEMENT_TYPES["float32"], (4, 6))
    for version in (10, 11):
        builder = ir.Builder(version=version)
        value = builder.parameter("x", "f32", "2..6,?", names=["n,1", "m"])
        parts = builder.layer(
            "VariadicSplit", [value, builder.const(1), builder.const([2, -1])], outputs=[["p"], ["q"]]
        )
        builder.result(parts[1], "r", names=["q"])
        jobs.append(
            written(builder, tmp_path / f"split{version}.xml")
            | {"inputs": [stated(data, ELEMENT_TYPES["float32"])]}
        )
        names = ["VariadicSplit_3.1", "q"] if version == 10 else ["q"]
        expected.append(([data[:, 2:]], [names]))
    for job, answer, (arrays, names) in zip(jobs, run_by_openvino(tmp_path, jobs), expected, strict=True):
        assert "error" not in answer, f"{job['xml']}: {answer}"
        assert answer["outputs"] == names
        for tensor, array in zip(answer["tensors"], arrays, strict=True):
            assert_same(array_of(tensor), array)
        outputs = ir.make_output_names(ir.read(job["xml"]))
        assert list(outputs) == [own[0] for own in names]


def written(builder: ir.Builder, path: Path) -> dict[str, object]:
    ir.write(builder.model(), path)
    # The CPU plugin has no outputs of the first three types, and computes the other ones in 32 bits.
    reference = path.stem in {"uint1", "uint3", "uint6", "int64", "uint64", "float64"}
    return {"xml": str(path), "inputs": [], "by": "reference" if reference else "CPU"}


@needs_openvino
def test_we_read_what_openvino_writes(tmp_path: Path) -> None:
    """Its save_model, which halves f32 constants, and its serialize in both versions, give the same parts."""
    source = tmp_path / "source.xml"
    builder = ir.Builder()
    data = builder.parameter("data", "f32", "?,4")
    table = builder.const(np.arange(4000, dtype=np.float32).reshape(1000, 4) % 250)
    (joined,) = builder.layer("Concat", [data, table], {"axis": 0})
    axis, lengths = builder.const(np.array(0, np.int32)), builder.const(np.array([10, -1, 3], np.int16))
    parts = builder.layer("VariadicSplit", [joined, axis, lengths], outputs=[["a"], ["b"], ["c,d"]])
    for index, part in enumerate(parts):
        builder.result(part, f"result{index}", names=[])
    ir.write(builder.model(), source)
    older = tmp_path / "older.xml"  # OpenVINO writes version 10 of models in version 10 alone
    ir.write(replace(builder.model(), version=10), older)
    array = np.arange(80, dtype=np.float32).reshape(20, 4)
    expected = list(run_ir(ir.read(source), {"data": array}).values())
    assert [part.shape for part in expected] == [(10, 4), (1007, 4), (3, 4)]
    jobs = [
        {"source": str(path), "xml": str(tmp_path / f"{how}.xml"), "by": how}
        for how, path in {"save_model": source, "IR_V10": older, "IR_V11": source}.items()
    ]
    assert run_by_openvino(tmp_path, jobs) == [{}, {}, {}]
    for job in jobs:
        model = ir.read(job["xml"])
        assert model.version == (10 if job["by"] == "IR_V10" else 11)
        converts = len(model.graph.list_layers("Convert"))
        assert converts == (1 if job["by"] == "save_model" else 0)
        outputs = run_ir(model, {"data": array})
        expected_names = ["a", "b", "c,d"]
        if model.version == 10:
            expected_names = [f"VariadicSplit_5.{index}" for index in range(3)]
        assert list(outputs) == expected_names
        for part, own in zip(outputs.values(), expected, strict=True):
            assert_same(part, own)
        assert canonical(ir.from_bytes(*ir.to_bytes(model))) == canonical(model)
