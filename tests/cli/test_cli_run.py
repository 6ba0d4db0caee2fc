"""``splitops run``: inputs of every form, what was split, and outputs that stay in their folder."""

from __future__ import annotations

import json
import math
import os
import re
import resource
import zipfile
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper

from splitops.cli._generate import make_ramp, make_random
from splitops.cli._outputs import compute_statistics, describe_outputs
from splitops.cli._outputs import write_outputs as write_outputs
from splitops.cli._trace import Trace
from splitops.errors import ModelError
from splitops.files.formats.npy import encode_header
from splitops.models.formats.openvino import builder, write
from splitops.spec import ELEMENT_TYPES

X = np.arange(24, dtype=np.float32).reshape(4, 6)


def save(path: Path, text: str) -> Path:
    onnx.save(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 18]> {text}'), path)
    return path


@pytest.fixture
def halves(tmp_path: Path) -> Path:
    text = "(float[N, 6] x) => (float[N, 3] left, float[N, 3] right)"
    text = f"g {text} {{left, right = Split<axis=1, num_outputs=2>(x)}}"
    return save(tmp_path / "halves.onnx", text)


@pytest.fixture
def rich_model(tmp_path: Path) -> Path:
    """A model with hostile names, a branch, a sequence, bfloat16, strings, no-finite numbers and a scalar."""
    f = TensorProto.FLOAT
    value = helper.make_tensor_value_info
    taken = helper.make_graph(
        [helper.make_node("Split", ["a"], ["p", "q"], name="in_branch", num_outputs=2)],
        "t",
        [],
        [value("p", f, None)],
    )
    other = helper.make_graph([helper.make_node("Identity", ["a"], ["r"])], "e", [], [value("r", f, None)])
    nodes = [
        helper.make_node("Split", ["x", "sizes"], ["a", "../../b"], name="first\x1b[31m", axis=1),
        helper.make_node("SplitToSequence", ["a"], ["s"], name="unstack", keepdims=0),
        helper.make_node("Cast", ["a"], ["h"], to=TensorProto.BFLOAT16),
        helper.make_node("If", ["flag"], ["z"], name="choose", then_branch=taken, else_branch=other),
        helper.make_node("Div", ["a", "a"], ["nan"]),
        helper.make_node("Identity", ["text"], ["words"]),
        helper.make_node("Size", ["x"], ["n"]),
        helper.make_node("Greater", ["x", "../../b0"], ["mask"]),
    ]
    outputs = [value(name, f, None) for name in ("a", "../../b", "z", "nan")]
    outputs += [value("h", TensorProto.BFLOAT16, None), value("words", TensorProto.STRING, None)]
    outputs += [value("n", TensorProto.INT64, None), value("mask", TensorProto.BOOL, None)]
    outputs += [helper.make_tensor_sequence_value_info("s", f, None)]
    initializers = [numpy_helper.from_array(np.array([2, 4]), "sizes")]
    initializers += [helper.make_tensor("text", TensorProto.STRING, [2], ["é".encode(), b"long word"])]
    initializers += [numpy_helper.from_array(np.float32(11), "../../b0")]
    inputs = [value("x", f, ["N", 6]), value("flag", TensorProto.BOOL, [])]
    graph = helper.make_graph(nodes, "g", inputs, outputs, initializers)
    path = tmp_path / "rich.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)
    return path


def test_outputs_and_report(invoke, rich_model, tmp_path):
    np.save(tmp_path / "x.npy", X)
    out = tmp_path / "deep" / "out"
    result = invoke(
        "run", rich_model, "--input", f"x={tmp_path / 'x.npy'}", "--input", "flag=ramp", "--out", out,
        "--for", "reference",
    )  # fmt: skip
    assert (result.exit_code, result.stderr) == (
        0,
        "Runs on the reference evaluator, including all 3 splits\n",
    )
    text = result.output
    assert "\x1b" not in text
    for words in (
        "first\\x1b[31m",
        "Split-18",
        "SplitToSequence-11",
        "not run",
        "in_branch in choose.then_branch",
    ):
        assert words in text
    assert "[2, 4]" in text
    assert "(4, 2), (4, 4)" in text
    files = {"a", "_.._b", "z", "nan", "h", "words", "n", "mask", "s.0", "s.1", "s.2", "s.3"}
    assert set(os.listdir(out)) == {f"{name}.npy" for name in files} | {"outputs.json"}
    assert not (tmp_path.parent / "b.npy").exists()
    np.testing.assert_array_equal(np.load(out / "_.._b.npy"), X[:, 2:])
    assert np.load(out / "h.npy").view(ml_dtypes.bfloat16).tolist() == X[:, :2].tolist()
    assert np.load(out / "words.npy").tolist() == ["é", "long word"]
    assert np.load(out / "n.npy") == 24
    assert np.load(out / "s.3.npy").tolist() == [18, 19]
    manifest = json.loads((out / "outputs.json").read_text())
    described = {item["name"]: item for item in manifest["outputs"]}
    assert described["h"] == {
        "name": "h",
        "kind": "tensor",
        "dtype": "bfloat16",
        "shape": [4, 2],
        "file": "h.npy",
    }
    assert described["../../b"]["file"] == "_.._b.npy"
    assert [element["file"] for element in described["s"]["elements"]] == [f"s.{i}.npy" for i in range(4)]


def test_json(invoke, rich_model):
    feeds = ("--input", "x=ramp:4,6", "--input", "flag=random:::1")
    result = invoke("run", rich_model, *feeds, "--json", "--for", "reference")
    assert (result.exit_code, result.stderr) == (0, "")
    stated = json.loads(result.output)
    first, second, third = stated["splits"]
    assert (first["operator"], first["node"], first["sizes"]) == ("Split-18", "first\x1b[31m", [2, 4])
    assert (first["shape"], first["shapes"], first["times"]) == ([4, 6], [[4, 2], [4, 4]], 1)
    assert (second["operator"], second["axis"], second["shapes"]) == ("SplitToSequence-11", 0, [[2]] * 4)
    flag = make_random((), ELEMENT_TYPES["bool"], 1)
    assert (third["node"], third["graph"], third["times"]) == ("in_branch", "choose.then_branch", int(flag))
    outputs = {item["name"]: item for item in stated["outputs"]}
    assert (outputs["../../b"]["min"], outputs["../../b"]["max"]) == (2, 23)
    assert outputs["nan"]["not_finite"] == 1
    assert outputs["mask"]["true"] == 12
    assert stated["out"] is None


def test_a_loop_is_counted(invoke, tmp_path):
    body = helper.make_graph(
        [
            helper.make_node("Split", ["carried"], ["p", "q"], name="turn", num_outputs=2),
            helper.make_node("Concat", ["q", "p"], ["next"], axis=0),
            helper.make_node("Identity", ["going"], ["on"]),
        ],
        "body",
        [helper.make_tensor_value_info(n, t, None) for n, t in (("i", 7), ("going", 9), ("carried", 1))],
        [helper.make_tensor_value_info(n, t, None) for n, t in (("on", 9), ("next", 1))],
    )
    graph = helper.make_graph(
        [helper.make_node("Loop", ["turns", "", "x"], ["y"], name="loop", body=body)],
        "g",
        [helper.make_tensor_value_info("x", 1, [4])],
        [helper.make_tensor_value_info("y", 1, [4])],
        [numpy_helper.from_array(np.array(5), "turns")],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10),
        tmp_path / "l.onnx",
    )
    result = invoke("run", tmp_path / "l.onnx", "--input", "x=ramp", "--json")
    stated = json.loads(result.output)
    assert [(s["node"], s["graph"], s["times"]) for s in stated["splits"]] == [("turn", "loop.body", 5)]
    assert "turn in loop.body (5 times)" in invoke("run", tmp_path / "l.onnx", "--input", "x=ramp").output


def test_openvino(invoke, tmp_path):
    made = builder.Builder()
    data = made.parameter("data", "f32", "6,12,10,24")
    parts = made.layer("Split", [data, made.const(1)], {"num_splits": 3}, outputs=3)
    for index, part in enumerate(parts):
        made.result(part, f"part{index}")
    write(made.model(), tmp_path / "m.xml")
    result = invoke("run", tmp_path / "m.xml", "--input", "data=ramp", "--out", tmp_path / "out", "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    (split,) = json.loads(result.output)["splits"]
    assert (split["operator"], split["domain"], split["shapes"]) == (
        "Split-1",
        "openvino",
        [[6, 4, 10, 24]] * 3,
    )
    whole = np.arange(6 * 12 * 10 * 24, dtype=np.float32).reshape(6, 12, 10, 24)
    for index in range(3):
        found = np.load(tmp_path / "out" / f"part{index}.npy")
        np.testing.assert_array_equal(found, whole[:, 4 * index : 4 * index + 4])


def test_forms_of_inputs(invoke, halves, tmp_path):
    np.save(tmp_path / "x=1.npy", X)
    np.savez(tmp_path / "x.npz", other=X[:1], data=X)
    np.savez_compressed(tmp_path / "c.NPZ", data=X)
    (tmp_path / "x.pb").write_bytes(numpy_helper.from_array(X).SerializeToString())
    forms = [f"x={tmp_path}/x=1.npy", f"x={tmp_path}/x.npz:data", f"x={tmp_path}/x.pb", "x=ramp:4,6:float32"]
    forms += ["x=ramp:4,6", "x=ramp:4,6:FLOAT", f"x={tmp_path}/c.NPZ.npz:data"]
    for form in forms:
        result = invoke("run", halves, "--input", form, "--out", tmp_path / "out")
        assert (result.exit_code, result.stderr.count("\n")) == (0, 1), form
        np.testing.assert_array_equal(np.load(tmp_path / "out" / "right.npy"), X[:, 3:])


def test_random_input_is_the_seeds(invoke, halves, tmp_path):
    values = []
    for form in ("random:4,6:float32", "random:4,6:float32:0", "random:4,6:float32:1"):
        assert invoke("run", halves, "--input", f"x={form}", "--out", tmp_path / "out").exit_code == 0
        values.append(np.load(tmp_path / "out" / "left.npy").tolist())
    assert values[0] == values[1] != values[2]


def test_names_with_equals_signs(invoke, tmp_path):
    one, two = (helper.make_tensor_value_info(name, 1, [2]) for name in ("x", "x=y"))
    out = helper.make_tensor_value_info("z", 1, [2])
    graph = helper.make_graph([helper.make_node("Sub", ["x", "x=y"], ["z"])], "g", [one, two], [out])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10),
        tmp_path / "m.onnx",
    )
    np.save(tmp_path / "v.npy", np.array([5, 7], np.float32))
    result = invoke(
        "run", tmp_path / "m.onnx", "--input", "x=ramp", "--input", f"x=y={tmp_path}/v.npy", "--json"
    )
    assert json.loads(result.output)["outputs"][0]["min"] == -6


def test_sequence_inputs(invoke, tmp_path):
    text = "g (seq(float[N, 6]) s) => (float[M, 6] y) { y = ConcatFromSequence<axis=0>(s) }"
    model = save(tmp_path / "m.onnx", text)
    np.save(tmp_path / "a.npy", X[:1])
    np.save(tmp_path / "b.npy", X[1:])
    sequence = onnx.SequenceProto(elem_type=onnx.SequenceProto.TENSOR)
    sequence.tensor_values.extend(numpy_helper.from_array(part) for part in (X[:2], X[2:]))
    (tmp_path / "s.pb").write_bytes(sequence.SerializeToString())
    for forms in (["a.npy", "b.npy"], ["s.pb"]):
        inputs = [item for form in forms for item in ("--input", f"s={tmp_path / form}")]
        assert invoke("run", model, *inputs, "--out", tmp_path / "out").exit_code == 0
        np.testing.assert_array_equal(np.load(tmp_path / "out" / "y.npy"), X)


def test_types_that_npy_cannot_say(invoke, tmp_path):
    text = "g (bfloat16[6] x) => (bfloat16[3] a, bfloat16[3] b) { a, b = Split<num_outputs=2>(x) }"
    model = save(tmp_path / "m.onnx", text)
    array = np.arange(6).astype(ml_dtypes.bfloat16)
    np.save(tmp_path / "raw.npy", array)
    np.save(tmp_path / "bits.npy", array.view(np.uint16))
    for name in ("raw.npy", "bits.npy"):
        result = invoke("run", model, "--input", f"x={tmp_path / name}", "--out", tmp_path / "out")
        assert (result.exit_code, result.stderr.count("\n")) == (0, 1)
        found = np.load(tmp_path / "out" / "b.npy")
        assert (found.dtype, found.view(ml_dtypes.bfloat16).tolist()) == (np.uint16, [3, 4, 5])
    # What a run wrote is what a run reads.
    again = save(tmp_path / "again.onnx", text.replace("[6]", "[3]").replace("[3] a", "[2] a"))
    assert invoke("run", again, "--input", f"x={tmp_path}/out/b.npy").exit_code == 0


def test_stderr_says_no_more_than_the_engine_after_a_division_by_zero(process, rich_model):
    result = process("run", rich_model, "--input", "x=ramp:4,6", "--input", "flag=ramp", "--json")
    assert (result.returncode, result.stderr) == (0, "")
    assert json.loads(result.stdout)["outputs"]


def test_a_model_without_inputs_says_so(invoke, tmp_path):
    model = save(tmp_path / "m.onnx", "g () => (float[2] y) <float[2] c = {1, 2}> { y = Identity(c) }")
    result = invoke("run", model, "--input", "x=ramp:2")
    assert (result.exit_code, "The model has no inputs." in result.stderr) == (2, True)
    assert invoke("run", model).exit_code == 0


def test_missing_inputs_are_listed(process, rich_model):
    result = process("run", rich_model, "--input", "flag=ramp")
    assert (result.returncode, result.stdout) == (2, "")
    assert "Missing: x." in result.stderr
    assert "x: float32 (N, 6)" in result.stderr
    assert "flag: bool ()" in result.stderr


@pytest.mark.parametrize(
    "inputs",
    [
        ["y=ramp"],
        ["ramp"],
        ["x"],
        ["x=data"],
        ["x=a.txt"],
        ["x=a.npz"],
        ["x=ramp"],
        ["x=ramp:4,6:float33"],
        ["x=ramp:4,y"],
        ["x=ramp:4,6:float32:1"],
        ["x=random:4,6:float32:one"],
        ["x=ramp:4,6", "x=ramp:4,6"],
    ],
)
def test_wrong_inputs_are_usage(invoke, halves, inputs):
    result = invoke("run", halves, *(item for text in inputs for item in ("--input", text)))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Error:" in result.stderr


def bad_files(folder: Path) -> dict[str, str]:
    """Make files that are not inputs; return what --input says of each and the words of its error."""
    np.savez(folder / "good.npz", data=X)
    with zipfile.ZipFile(folder / "liar.npz", "w") as archive:
        archive.writestr("data.npy", (folder / "good.npz").read_bytes())
        archive.writestr("short.npy", b"\x93NUMPY\x01\x00v\x00")
        archive.writestr("pickle.npy", b"\x80\x04N.")
    content = bytearray((folder / "good.npz").read_bytes())
    content[60:70] = b"\xff" * 10
    (folder / "broken.npz").write_bytes(content)
    (folder / "text.npz").write_text("no archive")
    (folder / "text.npy").write_text("no array")
    (folder / "text.pb").write_bytes(b"\xff\xff\xff")
    (folder / "lying.pb").write_bytes(
        TensorProto(data_type=1, dims=[4, 6], raw_data=bytes(8)).SerializeToString()
    )
    (folder / "huge.pb").write_bytes(TensorProto(data_type=1, dims=[1 << 40, 1 << 40]).SerializeToString())
    header = encode_header((4, 6), np.dtype("<f4"))
    with zipfile.ZipFile(folder / "short.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data.npy", header + bytes(88))
    content = bytearray((folder / "short.npz").read_bytes())
    at = content.index(b"PK\x01\x02") + 24  # its size
    content[at : at + 4] = (len(header) + 96).to_bytes(4, "little")
    (folder / "short.npz").write_bytes(content)
    outside = TensorProto(data_type=1, dims=[4, 6], data_location=TensorProto.EXTERNAL)
    outside.external_data.add(key="location", value="../../etc/passwd")
    (folder / "outside.pb").write_bytes(outside.SerializeToString())
    with zipfile.ZipFile(folder / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        text = "{'descr': '<f4', 'fortran_order': False, 'shape': (1073741824, 1024), }".ljust(117) + "\n"
        archive.writestr("data.npy", b"\x93NUMPY\x01\x00v\x00" + text.encode() + bytes(1 << 20))
    return {
        "good.npz:absent": "has no array 'absent'",
        "liar.npz:data": "is not a .npy file",
        "liar.npz:short": "malformed",
        "liar.npz:pickle": "is not a .npy file",
        "broken.npz:data": "malformed",
        "text.npz:data": "malformed .npz",
        "bomb.npz:data": "is truncated",
        "short.npz:data": "is truncated after 88 of 96 bytes",
        "text.npy": "is not a .npy file",
        "text.pb": "not a TensorProto",
        "lying.pb": "8 bytes of data",
        "huge.pb": "more bytes than any memory",
        "outside.pb": "no folder",
    }


def inflating(path: Path, dtype: str, shape: tuple[int, ...]) -> Path:
    """Write a small .npz whose member inflates to the zeros of a large array."""
    header = encode_header(shape, np.dtype(dtype))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("data.npy", "w") as member:
        member.write(header)
        for _ in range(math.prod(shape) * np.dtype(dtype).itemsize >> 20):
            member.write(bytes(1 << 20))
    return path


@pytest.mark.parametrize(
    ("dtype", "shape", "words"),
    [
        ("<f4", (1 << 20, 64), "the model declares float32 (N, 6)"),
        ("<f4", (1 << 26,), "the model declares float32 (N, 6)"),
        ("<f8", (1 << 20, 32), "has element type float64, but the model declares float32"),
    ],
)
def test_the_header_of_a_member_is_proved_before_it_is_inflated(
    process, halves, tmp_path, dtype, shape, words
):
    path = inflating(tmp_path / "x.npz", dtype, shape)  # 256 MiB

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (200 << 20, 200 << 20))

    result = process("run", halves, "--input", f"x={path}:data", preexec_fn=limit)
    assert (result.returncode, len(result.stderr.splitlines())) == (1, 1)
    assert words in result.stderr


def test_the_limit_above_is_too_little_for_the_member(process, tmp_path):
    path = inflating(tmp_path / "x.npz", "<f4", (1 << 20, 64))

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (200 << 20, 200 << 20))

    text = "g (float[N, M] x) => (float[N, K] a, float[N, L] b) {a, b = Split<axis=1, num_outputs=2>(x)}"
    model = save(tmp_path / "any.onnx", text)
    result = process("run", model, "--input", f"x={path}:data", preexec_fn=limit)
    assert "not enough memory" in result.stderr


@pytest.mark.parametrize(
    ("dims", "shape", "fits"),
    [
        ("1,?,2..4", (1, 9, 2), True),
        ("1,?,2..4", (1, 9, 5), False),
        ("1,?,2..4", (1, 9, 1), False),
        ("1,?,2..", (1, 0, 9), True),
        ("1,?,2..4", (2, 9, 2), False),
        ("1,?,2..4", (1, 9), False),
        (None, (), True),
    ],
)
def test_what_a_header_proves_is_what_a_run_takes(invoke, tmp_path, dims, shape, fits):
    made = builder.Builder()
    made.result(made.parameter("x", "f32", dims))
    write(made.model(), tmp_path / "m.xml")
    np.savez(tmp_path / "x.npz", data=np.zeros(shape, "<f4"))
    np.save(tmp_path / "x.npy", np.zeros(shape, "<f4"))
    for form in ("x.npz:data", "x.npy"):
        result = invoke("run", tmp_path / "m.xml", "--input", f"x={tmp_path}/{form}")
        assert result.exit_code == (0 if fits else 1), result.output


@pytest.mark.parametrize("names", [("x.npy", "x.npy"), ("x.npy", "x"), ("y.npy", "y.npy", "x.npy")])
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_member_that_is_there_twice_is_rejected(invoke, halves, tmp_path, names):
    content = encode_header((4, 6), np.dtype("<f4"))
    with zipfile.ZipFile(tmp_path / "twice.npz", "w") as archive:
        for number, name in enumerate(names):
            archive.writestr(name, content + np.full(24, number, "<f4").tobytes())
    result = invoke("run", halves, "--input", f"x={tmp_path}/twice.npz:x")
    assert result.exit_code == 1
    assert f"'{tmp_path}/twice.npz' has more than one array named '{names[0][0]}'" in result.stderr


def test_bad_files_are_one_clear_line(invoke, halves, tmp_path):
    for form, words in bad_files(tmp_path).items():
        result = invoke("run", halves, "--input", f"x={tmp_path}/{form}", "--out", tmp_path / "out")
        assert result.exit_code == 1, (form, result.output)
        assert len(result.stderr.splitlines()) == 1, form
        assert words in result.stderr, (form, result.stderr)
        assert not re.search("0x[0-9a-f]{6}", result.stderr), result.stderr
        assert not (tmp_path / "out").exists()


def test_a_sequence_of_something_else_is_no_input(invoke, tmp_path):
    text = "g (seq(float[N, 6]) s) => (float[M, 6] y) { y = ConcatFromSequence<axis=0>(s) }"
    sequence = onnx.SequenceProto(elem_type=onnx.SequenceProto.SEQUENCE)
    (tmp_path / "s.pb").write_bytes(sequence.SerializeToString())
    result = invoke("run", save(tmp_path / "m.onnx", text), "--input", f"s={tmp_path / 's.pb'}")
    assert (result.exit_code, "the file is a sequence whose elements are not tensors" in result.stderr) == (
        1,
        True,
    )


def test_members_beyond_memory(invoke, halves, tmp_path, monkeypatch):
    np.savez(tmp_path / "x.npz", data=X)
    monkeypatch.setattr("splitops.cli._inputs.get_max_bytes", lambda: 100)
    result = invoke("run", halves, "--input", f"x={tmp_path}/x.npz:data")
    assert (result.exit_code, len(result.stderr.splitlines())) == (1, 1)
    assert f"x.npz:data' has {128 + X.nbytes} bytes, too many for the memory of this machine" in result.stderr


def test_sizes_beyond_memory(invoke, halves):
    for kind in ("ramp", "random"):
        result = invoke("run", halves, "--input", f"x={kind}:1000000000000,6:float32")
        assert (result.exit_code, len(result.stderr.splitlines())) == (1, 1)
        assert "does not fit into the memory of this machine" in result.stderr


def test_bad_models_and_broken_rules_are_one_line(invoke, process, halves, tmp_path):
    (tmp_path / "bad.onnx").write_bytes(b"\x08\x0a\xff\xff")
    (tmp_path / "bad.xml").write_text('<!DOCTYPE a [<!ENTITY b "c">]><net>&b;</net>')
    text = "(float[N, 6] x) => (float[N, k] y, float[N, m] z) <int64[2] s = {2, 3}>"
    text = f"g {text} {{ y, z = Split<axis=1>(x, s) }}"
    broken = save(tmp_path / "broken.onnx", text)
    cases = [
        (tmp_path / "bad.onnx", "bad.onnx"),
        (tmp_path / "bad.xml", "bad.xml"),
        (broken, "Split-18 [lengths.sum]"),
    ]
    for model, words in cases:
        result = invoke("run", model, "--input", "x=ramp:4,6", "--out", tmp_path / "out")
        assert (result.exit_code, len(result.stderr.splitlines())) == (1, 1), result.output
        assert words in result.stderr
        assert not (tmp_path / "out").exists()
    result = process("run", broken, "--input", "x=ramp:4,6")
    assert result.returncode == 1
    assert f"model {str(broken)!r}, node 'Split -> y', input 'split'" in result.stderr
    result = invoke("run", halves, "--input", "x=ramp:4,5")
    assert (result.exit_code, len(result.stderr.splitlines())) == (1, 1)


def test_an_earlier_run_stays_when_a_later_one_fails(invoke, halves, tmp_path):
    out = tmp_path / "out"
    assert invoke("run", halves, "--input", "x=ramp:4,6", "--out", out).exit_code == 0
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    (out / "left.npy").rename(out / "kept")
    (out / "left.npy").mkdir()
    assert invoke("run", halves, "--input", "x=random:4,6", "--out", out).exit_code == 1
    assert (out / "right.npy").read_bytes() == before["right.npy"]
    assert sorted(os.listdir(out)) == ["kept", "left.npy", "outputs.json", "right.npy"]


@pytest.mark.parametrize("name", ELEMENT_TYPES)
def test_generated_values(name):
    element_type = ELEMENT_TYPES[name]
    made = make_ramp((50, 60), element_type)
    other = make_random((50, 60), element_type, 3)
    for array in (made, other):
        assert (array.dtype, array.shape) == (element_type.numpy, (50, 60))
    assert len(set(other.reshape(-1).tolist())) > 1
    if name == "string":
        assert made[0, 1] == "s1"
        return
    if name == "float8_e8m0fnu":
        values = made.reshape(-1).astype(float)
        np.testing.assert_array_equal(values[1:255], 2 * values[:254])
        return
    values = made.reshape(-1).astype(np.complex128 if name.startswith("complex") else np.float64).real
    period = next((i for i in range(1, values.size) if values[i] == 0), values.size)
    assert period >= 2
    np.testing.assert_array_equal(values, np.arange(values.size) % period)
    if element_type.storage is not None:
        assert max(made.max(), other.max()) < 1 << element_type.bits
    if element_type.bits >= 16:
        assert period >= 256


def test_ramps_of_no_elements_and_scalars():
    assert make_ramp((0, 3), ELEMENT_TYPES["float32"]).shape == (0, 3)
    assert make_ramp((), ELEMENT_TYPES["int8"]) == 0
    assert make_random((), ELEMENT_TYPES["bfloat16"], 0).shape == ()


def test_statistics():
    assert compute_statistics(np.array([1, 2**63 - 1])) == {"min": 1, "max": 2**63 - 1}
    assert compute_statistics(np.array([np.nan, np.inf])) == {"not_finite": 2}
    assert compute_statistics(np.array([2, 3]).astype(ml_dtypes.bfloat16)) == {"min": 2.0, "max": 3.0}
    assert (
        compute_statistics(np.zeros(0))
        == compute_statistics(np.array(["a"]))
        == compute_statistics(np.ones(2, complex))
        == {}
    )


def test_a_trace_ends_with_its_block():
    from splitops.calls.node import evaluate, observe_splits
    from splitops.spec import schema

    arguments = (schema("Split"), {"num_outputs": 2}, [np.zeros(4)])
    trace = Trace()
    with observe_splits(trace.record):
        evaluate(*arguments)
        evaluate(*arguments)
    evaluate(*arguments)
    assert list(trace.counts.values()) == [2]


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ([{1: 2.0}], "output 'y' is a sequence of dict, not of tensors"),
        ({1: 2.0}, "output 'y' is a dict, which .npy cannot represent"),
    ],
)
def test_outputs_that_are_no_tensors_are_rejected(tmp_path, value, problem):
    for use in (describe_outputs, lambda outputs: write_outputs(outputs, "m", tmp_path / "out")):
        with pytest.raises(ModelError, match=problem):
            use({"y": value})
    assert not (tmp_path / "out").exists()


def test_an_output_may_be_absent(invoke, tmp_path):
    pytest.importorskip("onnxruntime")
    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, [2]))
    nodes = [
        helper.make_node("Optional", [], ["y"], type=kind.optional_type.elem_type),
        helper.make_node("Split", ["x"], ["a", "b"], num_outputs=2),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", 1, [1])],
        [helper.make_value_info("y", kind), helper.make_tensor_value_info("b", 1, [0])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    onnx.save(model, tmp_path / "m.onnx")
    arguments = ["run", tmp_path / "m.onnx", "--input", "x=ramp", "--for", "onnxruntime"]
    result = invoke(*arguments, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert re.search(r"^ *y +absent *$", result.output, re.M)
    assert sorted(os.listdir(tmp_path / "out")) == ["b.npy", "outputs.json"]
    assert np.load(tmp_path / "out/b.npy").shape == (0,)
    stated = json.loads((tmp_path / "out/outputs.json").read_text())
    assert stated["outputs"][0] == {"name": "y", "kind": "absent"}


@pytest.mark.parametrize("dtype", [ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fn, ml_dtypes.int4])
def test_narrow_types_are_written_bit_for_bit(tmp_path, dtype):
    array = np.arange(4).astype(dtype)
    write_outputs({"y": array}, "m", tmp_path)
    found = np.load(tmp_path / "y.npy")
    assert (found.dtype, found.tobytes()) == (np.uint8, array.tobytes())


@pytest.mark.parametrize(
    ("texts", "memory", "problem"),
    [
        ([b"a\xff"], 1 << 20, "'y.npy': a string is not UTF-8, which .npy requires"),
        (["a", "b\0"], 1 << 20, r"'y.npy': .npy cannot represent the string 'b\\x00'"),
        (["a", "bcd"], 23, "'y.npy': strings of one width, as in .npy, do not fit into memory"),
        (["a", "bcd"], 24, None),
    ],
)
def test_strings_that_npy_cannot_say_are_rejected(tmp_path, monkeypatch, texts, memory, problem):
    monkeypatch.setattr("splitops.cli._outputs.get_max_bytes", lambda: memory)
    outputs = {"y": np.array(texts, object)}
    if problem is None:
        write_outputs(outputs, "m", tmp_path / "out")
        assert np.load(tmp_path / "out/y.npy").tolist() == texts
        return
    with pytest.raises(ModelError, match=problem):
        write_outputs(outputs, "m", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_long_reports_are_cut(invoke, tmp_path, monkeypatch):
    text = """
        g (float[60] x, string[7] t) => (seq(float[]) s, string[7] u, float[N] k)
        <int64[8] n = {1, 2, 3, 4, 5, 6, 7, 32}> {
            s = SplitToSequence<keepdims=0>(x)
            a, b, c, d, e, f, h, i = Split(x, n)
            j, k = Split<num_outputs=2>(i)
            u = Identity(t) }"""
    arguments = ["run", save(tmp_path / "m.onnx", text), "--input", "x=ramp", "--input", "t=ramp"]
    monkeypatch.setenv("COLUMNS", "300")
    shown = invoke(*arguments, "--for", "reference").output
    assert re.search(r"sequence +60 elements", shown)
    assert re.search(r"^ +39 +float32", shown, re.M)
    assert not re.search(r"^ +40 +float32", shown, re.M)
    assert re.search(r"^ +\.\.\. *$", shown, re.M)
    assert "'s0' ... 's6'" in shown
    assert "(1,), (2,), (3,), (4,), (5,), (6,), ..." in shown
    monkeypatch.setattr("splitops.cli._trace._MAX_DIFFERENT", 2)
    assert "... and 1 more" in invoke(*arguments, "--for", "reference").output
    assert json.loads(invoke(*arguments, "--for", "reference", "--json").output)["splits_unlisted"] == 1


def test_a_split_of_what_the_run_alone_knows(invoke, tmp_path):
    pytest.importorskip("onnxruntime")
    text = """
        g (float[6] x) => (float[n] a, float[m] b) {
            i = NonZero(x)
            j = Squeeze(i)
            y = Gather(x, j)
            a, b = Split<num_outputs=2>(y) }"""
    arguments = ["run", save(tmp_path / "m.onnx", text), "--input", "x=ramp", "--for", "onnxruntime"]
    assert "not known before the run" in invoke(*arguments).output
    [split] = json.loads(invoke(*arguments, "--json").output)["splits"]
    assert "sizes" not in split
    assert split["operator"] == "Split-18"
