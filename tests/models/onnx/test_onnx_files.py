"""Files: external data stays in the folder, what lies is rejected, what is written appears whole."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir
import pytest
from onnx import AttributeProto, ModelProto, TensorProto, helper, numpy_helper

import splitops
from splitops.common import untrusted_files as files
from splitops.errors import ModelError
from splitops.models.formats.onnx import check_model, read, write
from splitops.models.formats.onnx.storage import MAX_MODEL_BYTES, open_model

run = partial(splitops.run, engine="reference")

WEIGHT = np.arange(12, dtype=np.float32).reshape(4, 3)
X = np.ones((2, 4), np.float32)


def model(weight: TensorProto | None = None) -> ModelProto:
    """X @ w, split in two."""
    proto = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 18]>
        g (float[2, 4] x) => (float[2, n] a, float[2, m] b) {
            y = MatMul (x, w)
            [cut] a, b = Split <axis = 1, num_outputs = 2> (y)
        }""")
    proto.graph.initializer.append(weight or numpy_helper.from_array(WEIGHT, "w"))
    return proto


def external(location: str, dims: tuple[int, ...] = (4, 3), **entries: Any) -> TensorProto:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=dims, data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def save(proto: ModelProto, folder: Path) -> Path:
    path = folder / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def check_outputs(outputs: dict[str, Any]) -> None:
    np.testing.assert_array_equal(np.concatenate(list(outputs.values()), axis=1), X @ WEIGHT)


class TestExternalData:
    @pytest.mark.parametrize("entries", [{}, {"offset": 0}, {"length": 48}, {"offset": 0, "length": 48}])
    def test_whole_file(self, tmp_path: Path, entries: dict[str, int]) -> None:
        (tmp_path / "w.bin").write_bytes(WEIGHT.tobytes())
        path = save(model(external("w.bin", **entries)), tmp_path)
        check_outputs(run(path, {"x": X}))
        assert read(path).graph.initializer[0].raw_data == WEIGHT.tobytes()

    @pytest.mark.parametrize("offset", [1, 4096, 5000])
    def test_inside_a_larger_file_in_a_subfolder(self, tmp_path: Path, offset: int) -> None:
        (tmp_path / "deep").mkdir()
        (tmp_path / "deep" / "w.bin").write_bytes(bytes(offset) + WEIGHT.tobytes() + b"tail")
        path = save(model(external("deep/w.bin", offset=offset, length=48)), tmp_path)
        check_outputs(run(path, {"x": X}))
        check_outputs(run(read(path), {"x": X}))

    def test_link_inside_the_folder(self, tmp_path: Path) -> None:
        (tmp_path / "real.bin").write_bytes(WEIGHT.tobytes())
        (tmp_path / "w.bin").symlink_to("real.bin")
        check_outputs(run(save(model(external("w.bin")), tmp_path), {"x": X}))

    @pytest.mark.parametrize(
        "location",
        [
            "/etc/hostname",
            "../secret.bin",
            "a/../../secret.bin",
            "..\\secret.bin",
            "C:\\secret.bin",
            "\\\\h\\s",
        ],
    )
    def test_path_out_of_the_folder(self, tmp_path: Path, location: str) -> None:
        (tmp_path / "secret.bin").write_bytes(WEIGHT.tobytes())
        folder = tmp_path / "models"
        (folder / "a").mkdir(parents=True)
        path = save(model(external(location)), folder)
        for use in (read, lambda path: run(path, {"x": X})):
            with pytest.raises(ModelError, match="leads out of the model's folder"):
                use(path)

    @pytest.mark.parametrize("inner", ["w.bin", "link/w.bin"])
    def test_link_out_of_the_folder(self, tmp_path: Path, inner: str) -> None:
        (tmp_path / "w.bin").write_bytes(WEIGHT.tobytes())
        folder = tmp_path / "models"
        folder.mkdir()
        link = folder / Path(inner).parts[0]
        link.symlink_to(tmp_path / "w.bin" if inner == "w.bin" else tmp_path)
        with pytest.raises(ModelError, match="symbolic link"):
            run(save(model(external(inner)), folder), {"x": X})

    @pytest.mark.parametrize("location", ["", " ", ".", "nowhere.bin", "a\0b", "x" * 5000])
    def test_no_such_file(self, tmp_path: Path, location: str) -> None:
        with pytest.raises(ModelError) as caught:
            run(save(model(external(location)), tmp_path), {"x": X})
        assert len(str(caught.value)) < 400

    def test_link_to_itself(self, tmp_path: Path) -> None:
        (tmp_path / "w.bin").symlink_to("w.bin")
        with pytest.raises(ModelError):
            run(save(model(external("w.bin")), tmp_path), {"x": X})

    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
    def test_pipe_is_not_waited_for(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "w.bin")
        with pytest.raises(ModelError, match="not a regular file"):
            run(save(model(external("w.bin")), tmp_path), {"x": X})

    @pytest.mark.parametrize(
        ("entries", "message"),
        [
            ({"length": 47}, "has 47 bytes of external data; float32 of shape .4, 3. requires 48"),
            ({"length": 49}, "of a file of 48 bytes"),
            ({"offset": 1}, "has 47 bytes"),
            ({"offset": 1, "length": 48}, "needs bytes 1 to 49 of a file of 48 bytes"),
            ({"offset": 49}, "needs bytes 49 to 49 of a file of 48 bytes"),
            ({"offset": -1}, "not a number of bytes"),
            ({"length": "1e3"}, "not a number of bytes"),
            ({"length": "9" * 5000}, "not a number of bytes"),
            ({"length": 2**63}, "of a file of 48 bytes"),
            ({"dims": (2**31, 2**31)}, "more bytes than any memory has"),
            ({"dims": (2**40,)}, "requires 4398046511104"),
            ({"dims": (-4, 3)}, "negative size"),
        ],
    )
    def test_sizes_that_lie(self, tmp_path: Path, entries: dict[str, Any], message: str) -> None:
        (tmp_path / "w.bin").write_bytes(WEIGHT.tobytes())
        path = save(model(external("w.bin", **entries)), tmp_path)
        for use in (read, lambda path: run(path, {"x": X})):
            with pytest.raises(ModelError, match=message):
                use(path)

    def test_stated_twice(self, tmp_path: Path) -> None:
        (tmp_path / "w.bin").write_bytes(WEIGHT.tobytes())
        tensor = external("w.bin")
        tensor.external_data.add(key="location", value="../other")
        with pytest.raises(ModelError, match="twice"):
            run(save(model(tensor), tmp_path), {"x": X})

    def test_model_in_memory_has_no_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """External data is never looked for in the working directory."""
        (tmp_path / "w.bin").write_bytes(WEIGHT.tobytes())
        monkeypatch.chdir(tmp_path)
        with pytest.raises(ModelError, match="no folder"):
            run(model(external("w.bin")), {"x": X})
        with pytest.raises(ModelError, match="load the model with its data"):
            write(model(external("w.bin")), tmp_path / "out.onnx")

    def test_constant_node(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Onnx would look for the data of a Constant in the working directory."""
        (tmp_path / "models").mkdir()
        (tmp_path / "models" / "w.bin").write_bytes(WEIGHT.tobytes())
        (tmp_path / "w.bin").write_bytes(bytes(48))
        monkeypatch.chdir(tmp_path)
        proto = model()
        del proto.graph.initializer[:]
        proto.graph.node.insert(0, helper.make_node("Constant", [], ["w"], value=external("w.bin")))
        check_outputs(run(save(proto, tmp_path / "models"), {"x": X}))
        with pytest.raises(ModelError, match="no folder"):
            run(proto, {"x": X})

    def test_the_default_of_a_function_is_read_from_the_folder(self, tmp_path: Path) -> None:
        (tmp_path / "w.bin").write_bytes(WEIGHT.tobytes())
        path = save(with_default(), tmp_path)
        check_outputs(run(path, {"x": X}))
        write(splitops.load(path), tmp_path / "whole.onnx")
        (tmp_path / "w.bin").unlink()
        check_outputs(run(tmp_path / "whole.onnx", {"x": X}))

    def test_onnx_ir_model_keeps_its_folder(self, tmp_path: Path) -> None:
        import onnx_ir

        (tmp_path / "w.bin").write_bytes(WEIGHT.tobytes())
        path = save(model(external("w.bin", length=48, offset=0)), tmp_path)
        check_outputs(run(onnx_ir.load(path), {"x": X}))
        write(onnx_ir.load(path), tmp_path / "whole.onnx")
        (tmp_path / "w.bin").unlink()
        check_outputs(run(tmp_path / "whole.onnx", {"x": X}))


def nested(depth: int) -> ModelProto:
    """A graph in a graph in a graph: If, If, If."""
    proto = ModelProto(ir_version=9, opset_import=[helper.make_opsetid("", 18)])
    graph = proto.graph
    graph.input.extend(
        [
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [1]),
        ]
    )
    for level in range(depth):
        graph.output.add(name=f"y{level}")
        node = graph.node.add(op_type="If", input=["c"], output=[f"y{level}"])
        graph = node.attribute.add(name="then_branch", type=onnx.AttributeProto.GRAPH).g
    graph.output.add(name="x")
    return proto


def nested_bytes(depth: int) -> bytes:
    """The bytes of the same, deeper than protobuf itself would write."""

    def field(number: int, content: bytes) -> bytes:
        size, varint = len(content), b""
        while size > 0x7F:
            varint += bytes([size & 0x7F | 0x80])
            size >>= 7
        return bytes([number << 3 | 2]) + varint + bytes([size]) + content

    graph = b""
    for _ in range(depth):
        graph = field(1, field(5, field(6, graph)))  # graph.node.attribute.g
    return field(7, graph)


def edited(change: Callable[[ModelProto], Any]) -> ModelProto:
    proto = model()
    change(proto)
    return proto


def weight(**fields: Any) -> ModelProto:
    tensor = numpy_helper.from_array(WEIGHT, "w")
    for name, value in fields.items():
        tensor.ClearField(name)
        if isinstance(value, list | tuple):
            getattr(tensor, name).extend(value)
        elif value is not None:
            setattr(tensor, name, value)
    return model(tensor)


def outside(**fields: Any) -> TensorProto:
    tensor = external("w.bin")
    for name, value in fields.items():
        setattr(tensor, name, value)
    return tensor


def function(name: str, calls: list[str]) -> onnx.FunctionProto:
    nodes, last = [], "x"
    for index, called in enumerate(calls):
        nodes.append(helper.make_node(called, [last], [f"t{index}"], domain="local"))
        last = f"t{index}"
    nodes.append(helper.make_node("Identity", [last], ["y"]))
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("local", 1)]
    return helper.make_function("local", name, ["x"], ["y"], nodes, imports)


def with_functions(*functions: onnx.FunctionProto) -> ModelProto:
    proto = model()
    proto.opset_import.add(domain="local", version=1)
    proto.functions.extend(functions)
    return proto


def with_default(**fields: Any) -> ModelProto:
    """Return a model whose weight is the default of a function's attribute."""
    proto = model()
    del proto.graph.initializer[:]
    constant = helper.make_node("Constant", [], ["y"])
    constant.attribute.add(name="value", ref_attr_name="w", type=AttributeProto.TENSOR)
    imports = [helper.make_opsetid("", 18)]
    called = helper.make_function("local", "weight", [], ["y"], [constant], imports)
    called.attribute_proto.append(helper.make_attribute("w", outside(**fields)))
    proto.functions.append(called)
    proto.opset_import.add(domain="local", version=1)
    proto.graph.node.insert(0, helper.make_node("weight", [], ["w"], domain="local"))
    return proto


def with_default_graph() -> ModelProto:
    proto = with_default()
    proto.functions[0].attribute_proto.append(helper.make_attribute("body", model().graph))
    return proto


MALFORMED: dict[str, tuple[Callable[[], bytes | ModelProto], str]] = {
    "default of a function with a wrong size": (
        lambda: with_default(data_location=0, raw_data=b"\0\0"),
        "has 2 bytes of data",
    ),
    "default graph of a function": (with_default_graph, "default of a function's attribute is not supported"),
    "empty": (lambda: b"", "no graph"),
    "text": (lambda: b"not a model at all", "not an ONNX model"),
    "zeros": (lambda: bytes(1000), "not an ONNX model"),
    "truncated": (lambda: model().SerializeToString()[:-7], "not an ONNX model"),
    "wrong wire type": (lambda: b"\x3d\x00\x00\x00\x00", "no graph"),
    "length beyond the end": (lambda: b"\x3a\xff\xff\xff\xff\x0f", "not an ONNX model"),
    "a tensor": (lambda: numpy_helper.from_array(WEIGHT).SerializeToString(), "not an ONNX model|no graph"),
    "no graph": (lambda: edited(lambda m: m.ClearField("graph")), "no graph"),
    "no opset": (
        lambda: edited(lambda m: m.ClearField("opset_import")),
        "no opset of this domain is imported",
    ),
    "opset 0": (lambda: edited(lambda m: setattr(m.opset_import[0], "version", 0)), "opset 0"),
    "two opsets": (lambda: edited(lambda m: m.opset_import.add(domain="ai.onnx", version=17)), "and at 17"),
    "unknown domain": (
        lambda: edited(lambda m: setattr(m.graph.node[0], "domain", "elsewhere")),
        "'elsewhere'",
    ),
    "no operator": (lambda: edited(lambda m: m.graph.node[0].ClearField("op_type")), "no operator"),
    "too few inputs": (
        lambda: edited(lambda m: m.graph.node[1].ClearField("input")),
        "0 inputs; the minimum is 1",
    ),
    "too few outputs": (
        lambda: edited(lambda m: m.graph.node[1].ClearField("output")),
        "0 outputs; the minimum is 1",
    ),
    "missing edge": (
        lambda: edited(lambda m: m.graph.node[1].input.__setitem__(0, "z")),
        "'z' is not produced by any node",
    ),
    "out of order": (lambda: edited(lambda m: m.graph.node.reverse()), "topological order"),
    "own output": (lambda: edited(lambda m: m.graph.node[0].input.__setitem__(0, "y")), "a cycle"),
    "cycle": (lambda: edited(lambda m: m.graph.node[0].input.__setitem__(0, "a")), "cycle"),
    "repeated output": (
        lambda: edited(lambda m: m.graph.node[1].output.__setitem__(1, "a")),
        "'a' is defined again",
    ),
    "output named like an input": (
        lambda: edited(lambda m: m.graph.node[0].output.__setitem__(0, "x")),
        "'x' is defined again",
    ),
    "repeated input": (lambda: edited(lambda m: m.graph.input.append(m.graph.input[0])), "defined again"),
    "repeated initializer": (
        lambda: edited(lambda m: m.graph.initializer.append(m.graph.initializer[0])),
        "defined again",
    ),
    "unnamed initializer": (lambda: weight(name=""), "has no name"),
    "output of no node": (
        lambda: edited(lambda m: setattr(m.graph.output[0], "name", "q")),
        "'q' is not produced by any",
    ),
    "output twice": (lambda: edited(lambda m: m.graph.output.append(m.graph.output[0])), "appears twice"),
    "attribute twice": (
        lambda: edited(lambda m: m.graph.node[1].attribute.append(m.graph.node[1].attribute[0])),
        "appears twice",
    ),
    "reference outside a function": (
        lambda: edited(lambda m: setattr(m.graph.node[1].attribute[0], "ref_attr_name", "q")),
        "not an attribute of an enclosing function",
    ),
    "sparse": (lambda: edited(lambda m: m.graph.sparse_initializer.add()), "sparse"),
    "raw data too short": (lambda: weight(raw_data=bytes(47)), "has 47 bytes of data, but float32"),
    "raw data too long": (lambda: weight(raw_data=bytes(49)), "has 49 bytes"),
    "no data": (lambda: weight(raw_data=None), "has no data"),
    "entries too few": (lambda: weight(raw_data=None, float_data=[1.0] * 11), "11 entries of float_data"),
    "entries of another type": (
        lambda: weight(raw_data=None, int64_data=[1] * 12),
        "12 entries of int64_data",
    ),
    "data twice": (lambda: weight(float_data=[1.0] * 12), "has raw data, but also float_data"),
    "type unknown": (lambda: weight(data_type=99), "element type 99"),
    "type undefined": (lambda: weight(data_type=0), "element type 0"),
    "dims negative": (lambda: weight(dims=[-4, -3]), "negative"),
    "dims huge": (lambda: weight(dims=[2**62, 2**62]), "more bytes than any"),
    "dims huge and empty": (lambda: weight(dims=[2**62, 2**62, 0], raw_data=b""), "more bytes than any"),
    "dims overflow to the right size": (lambda: weight(dims=[2**32, 2**32, 12]), "more bytes than any"),
    "rank huge": (lambda: weight(dims=[1] * 100_000), "rank 100000"),
    "strings in raw data": (lambda: weight(data_type=TensorProto.STRING), "string_data"),
    "strings in another file": (
        lambda: model(outside(data_type=TensorProto.STRING)),
        "has strings, which cannot be external data",
    ),
    "data in two places": (
        lambda: model(outside(raw_data=WEIGHT.tobytes())),
        "has data in the model and in another file",
    ),
    "half a complex number": (
        lambda: weight(data_type=TensorProto.COMPLEX64, raw_data=None, dims=(1,), float_data=[1.0]),
        "has 1 entries of float_data, but complex64 of shape .* requires 2",
    ),
    "segment": (lambda: edited(lambda m: setattr(m.graph.initializer[0].segment, "begin", 1)), "segment"),
    "graphs nested deep": (lambda: nested_bytes(5000), "not an ONNX model"),
    "function calls itself": (
        lambda: with_functions(function("f", ["f"])),
        "'f' of domain 'local' calls itself",
    ),
    "functions call each other": (
        lambda: with_functions(function("f", ["g"]), function("g", ["h"]), function("h", ["f"])),
        "calls itself",
    ),
    "function twice": (lambda: with_functions(function("f", []), function("f", [])), "defined twice"),
}


MAX_CALLS = 50_000
"""Bad input must not cost work: no more calls of functions than this."""


@contextmanager
def counted_calls() -> Iterator[Counter[str]]:
    """Count the events that Python's profiler sees: calls, returns, and those of built-in functions."""
    events: Counter[str] = Counter()
    sys.setprofile(lambda _frame, event, _: events.update((event,)))
    try:
        yield events
    finally:
        sys.setprofile(None)


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A first use imports modules, which takes calls too."""
    path = tmp_path_factory.mktemp("first") / "m.onnx"
    write(model(), path)
    run(path, {"x": X})
    path.write_bytes(b"\x08")
    with pytest.raises(ModelError):
        run(path, {"x": X})


@pytest.mark.usefixtures("imported")
@pytest.mark.parametrize("case", MALFORMED)
def test_malformed(tmp_path: Path, case: str) -> None:
    make, message = MALFORMED[case]
    content = make()
    path = tmp_path / "m.onnx"
    path.write_bytes(content if isinstance(content, bytes) else content.SerializeToString())
    for use in (read, lambda path: run(path, {"x": X})):
        with pytest.raises(ModelError, match=message) as caught, counted_calls() as events:
            use(path)
        assert events["call"] + events["c_call"] < MAX_CALLS
        assert caught.value.where.model == str(path)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 500


def test_calls_are_counted() -> None:
    with counted_calls() as events:
        sum(len(str(number)) for number in range(MAX_CALLS))
    assert events["call"] + events["c_call"] > MAX_CALLS


def test_unharmed_model_is_fine(tmp_path: Path) -> None:
    """What the malformed ones were made of runs."""
    check_outputs(run(save(model(), tmp_path), {"x": X}))
    check_outputs(run(save(with_functions(function("f", ["g"]), function("g", [])), tmp_path), {"x": X}))


def test_nested_in_memory_deeper_than_a_file_can_be() -> None:
    with pytest.raises(ModelError, match="nested more than 64 deep"):
        run(nested(90), {"c": np.array(True), "x": X[0, :1]})


def test_functions_that_call_twice_as_often_at_each_level_are_made_once() -> None:
    depth = 40
    functions = [function(f"f{i}", [f"f{i + 1}", f"f{i + 1}"]) for i in range(depth)] + [
        function(f"f{depth}", [])
    ]
    proto = with_functions(*functions)
    proto.graph.node.insert(
        0,
        onnx.parser.parse_node("""unused = If (no) <
            then_branch = t () => (float[n] u) { u = local.f0 (x) },
            else_branch = e () => (float[n] v) { v = Identity (x) }>"""),
    )
    proto.graph.initializer.append(numpy_helper.from_array(np.array(False), "no"))
    check_outputs(run(proto, {"x": X}))


def test_many_nodes_are_checked_in_linear_time() -> None:
    """A graph that each If would copy the names of: 4000 of them."""
    branch = helper.make_graph([], "b", [], [])
    branch.output.add(name="x")
    nodes = [
        helper.make_node("If", ["c"], [f"y{i}"], then_branch=branch, else_branch=branch) for i in range(4000)
    ]
    proto = model()
    proto.graph.node.extend(nodes)
    proto.graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
    check_model(proto)


def test_file_beyond_the_limit_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    with path.open("wb") as file:
        file.truncate(MAX_MODEL_BYTES + 1)  # a hole: it takes no space
    with pytest.raises(ModelError, match="has 2147483648 bytes"):
        read(path)


@pytest.mark.parametrize("kind", ["missing", "folder", "pipe"])
def test_no_regular_file(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "m.onnx"
    if kind == "folder":
        path.mkdir()
    if kind == "pipe":
        os.mkfifo(path)
    with pytest.raises(ModelError, match=f"cannot open {str(path)!r}: "):
        read(path)


class TestWriting:
    def test_reads_back(self, tmp_path: Path) -> None:
        write(model(), tmp_path / "m.onnx")
        assert read(tmp_path / "m.onnx") == model()
        assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]

    def test_permissions_are_those_of_other_files(self, tmp_path: Path) -> None:
        write(model(), tmp_path / "m.onnx")
        (tmp_path / "other").write_bytes(b"")
        assert (tmp_path / "m.onnx").stat().st_mode == (tmp_path / "other").stat().st_mode

    def test_external_data_beside(self, tmp_path: Path) -> None:
        large = np.arange(4 * 300, dtype=np.float32).reshape(4, 300)
        proto = model(numpy_helper.from_array(large, "w"))
        typed = TensorProto(name="v", data_type=TensorProto.INT64, dims=[500], int64_data=range(500))
        packed = helper.make_tensor("p", TensorProto.INT4, [5000], np.arange(5000) % 15 - 7)
        small = numpy_helper.from_array(np.arange(3), "s")
        text = helper.make_tensor("t", TensorProto.STRING, [200], [b"twelve bytes"] * 200)
        proto.graph.initializer.extend([typed, packed, small, text])
        before = proto.SerializeToString(deterministic=True)
        write(proto, tmp_path / "m.onnx", external=True)
        assert proto.SerializeToString(deterministic=True) == before
        assert sorted(path.name for path in tmp_path.iterdir()) == ["m.onnx", "m.onnx.data"]
        assert (tmp_path / "m.onnx").stat().st_size < 4000
        onnx.checker.check_model(str(tmp_path / "m.onnx"))
        back, theirs = read(tmp_path / "m.onnx"), onnx.load(tmp_path / "m.onnx")
        for ours, other, original in zip(
            back.graph.initializer, theirs.graph.initializer, proto.graph.initializer, strict=True
        ):
            expected = numpy_helper.to_array(original)
            np.testing.assert_array_equal(numpy_helper.to_array(ours), expected, strict=True)
            np.testing.assert_array_equal(numpy_helper.to_array(other), expected, strict=True)
        assert back.graph.node == proto.graph.node
        assert back.opset_import == proto.opset_import
        outputs = run(tmp_path / "m.onnx", {"x": X})
        np.testing.assert_array_equal(np.concatenate(list(outputs.values()), 1), X @ large)

    @pytest.mark.parametrize("beside", [True, False])
    def test_external_data_of_a_branch(self, tmp_path: Path, beside: bool) -> None:
        (tmp_path / "w.bin").write_bytes(np.arange(9000, dtype=np.float32).tobytes())
        proto = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 18]>
            g (bool c) => (float[n] y) {
                y = If (c) <
                    then_branch = t () => (float[n] a) { a = Identity (w) },
                    else_branch = e () => (float[n] b) { b = Neg (w2) }>
            }""")
        for attribute, name in zip(proto.graph.node[0].attribute, ("w", "w2"), strict=True):
            tensor = external("w.bin", (9000,))
            tensor.name = name
            attribute.g.initializer.append(tensor)
        target = tmp_path / "made" / "m.onnx"
        target.parent.mkdir()
        write(open_model(save(proto, tmp_path), weights=False), target, external=beside)
        assert (target.parent / "m.onnx.data").exists() is beside
        (found,) = run(target, {"c": np.array(False)}).values()
        np.testing.assert_array_equal(found, -np.arange(9000, dtype=np.float32))

    def test_invalid_model_is_not_written(self, tmp_path: Path) -> None:
        with pytest.raises(ModelError, match="topological"):
            write(MALFORMED["out of order"][0](), tmp_path / "m.onnx")  # type: ignore[arg-type]
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, OSError])
    def test_nothing_is_left_after_an_error(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
    ) -> None:
        (tmp_path / "m.onnx").write_bytes(b"as before")

        def fail(*_: object) -> None:
            raise error

        monkeypatch.setattr(files.os, "fsync", fail)
        with pytest.raises((ModelError, error)):
            write(model(), tmp_path / "m.onnx", external=True)
        assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]
        assert (tmp_path / "m.onnx").read_bytes() == b"as before"

    def test_folder_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(ModelError, match=r"the folder '.*/none' does not exist"):
            write(model(), tmp_path / "none" / "m.onnx")

    def test_target_is_a_folder(self, tmp_path: Path) -> None:
        (tmp_path / "m.onnx").mkdir()
        with pytest.raises(ModelError, match="cannot write"):
            write(model(), tmp_path / "m.onnx")
        assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]

    def test_too_large_for_one_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("splitops.models.formats.onnx.storage.MAX_MODEL_BYTES", (1 << 24) + 1000)
        proto = model(numpy_helper.from_array(np.ones((4, 300), np.float32), "w"))
        write(proto, tmp_path / "m.onnx")
        assert (tmp_path / "m.onnx.data").exists()
        monkeypatch.setattr("splitops.models.formats.onnx.storage.MAX_MODEL_BYTES", 100)
        with pytest.raises(
            ModelError, match="bytes without its external data, but a file may have 100 at most"
        ):
            write(proto, tmp_path / "n.onnx", external=False)
        assert not (tmp_path / "n.onnx").exists()


def test_lying_sizes_take_no_memory(tmp_path: Path) -> None:
    """Under a limit of 2 GiB on all of its memory, a process rejects models that speak of more."""
    pytest.importorskip("resource")
    path = save(weight(dims=[2**40], raw_data=bytes(64)), tmp_path)
    code = (
        "import resource, sys\n"
        "from splitops.errors import ModelError\n"
        "import splitops\n"
        f"resource.setrlimit(resource.RLIMIT_AS, ({2 << 30}, {2 << 30}))\n"
        "try:\n    splitops.run(sys.argv[1], {}, engine='reference')\n"
        "except ModelError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "requires 4398046511104" in done.stdout


@pytest.mark.parametrize("version", [0, -1, 1 << 31, 1 << 40, (1 << 63) - 1])
@pytest.mark.parametrize("operator", ["Relu", "Split"])
def test_an_impossible_opset_is_one_clear_error(operator, version):
    proto = helper.make_model(
        helper.make_graph(
            [helper.make_node(operator, ["x"], ["y"])],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N"])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["M"])],
        )
    )
    proto.opset_import[0].version = version
    with pytest.raises(ModelError, match="imported at the invalid opset"):
        run(proto, {"x": np.zeros(2, np.float32)})


@pytest.mark.parametrize("use", [splitops.simplify, splitops.infer, lambda model: run(model, {"x": X})])
def test_a_name_of_an_onnx_ir_model_that_is_no_text_is_one_clear_error(use: Callable[[Any], Any]) -> None:
    given = onnx_ir.from_proto(model())
    given.graph[0].name = "\ud800"
    with pytest.raises(ModelError, match=r"onnx-ir cannot write the model: .*surrogate") as caught:
        use(given)
    assert "\n" not in str(caught.value)


def test_a_string_that_is_no_text_is_one_clear_error() -> None:
    proto = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 18]>
        g (float[1] x) => (string[1] y) { y = Identity (w) }""")
    proto.graph.initializer.add(name="w", data_type=TensorProto.STRING, dims=[1], string_data=[b"\xff"])
    with pytest.raises(ModelError, match=r"tensor 'w' cannot be read: .*can't decode byte 0xff"):
        run(proto, {"x": np.zeros(1, np.float32)})


def test_complex_numbers_are_pairs_of_floats() -> None:
    tensor = TensorProto(name="w", data_type=TensorProto.COMPLEX64, dims=[2], float_data=[1, 2, 3, 4])
    proto = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 18]>
        g (float[1] x) => (complex64[1] a, complex64[1] b) { a, b = Split <num_outputs = 2> (w) }""")
    proto.graph.initializer.append(tensor)
    found = run(proto, {"x": np.zeros(1, np.float32)})
    assert [part.tolist() for part in found.values()] == [[1 + 2j], [3 + 4j]]


def test_before_ir_version_3_the_opset_is_1() -> None:
    proto = onnx.parser.parse_model("""<ir_version: 2, opset_import: ["": 1]>
        g (float[4] x) => (float[n] a, float[m] b) { a, b = Split (x) }""")
    del proto.opset_import[:]
    found = run(proto, {"x": np.arange(4, dtype=np.float32)})
    assert [part.tolist() for part in found.values()] == [[0, 1], [2, 3]]
    from splitops.models.fix import fix

    legal = fix(proto, "onnxruntime")
    assert {node.op_type for node in legal.graph.node} == {"Slice"}
    moved = splitops.convert(proto, "onnx:18")
    assert [entry.version for entry in moved.opset_import] == [18]
    found = run(legal, {"x": np.arange(4, dtype=np.float32)})
    assert [part.tolist() for part in found.values()] == [[0, 1], [2, 3]]
    proto.ir_version = 3
    with pytest.raises(ModelError, match="no opset of this domain is imported"):
        check_model(proto)


def test_bytes_that_are_no_text_are_one_clear_error():
    proto = helper.make_model(
        helper.make_graph(
            [helper.make_node("Split", ["x"], ["a", "b"], num_outputs=2)],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.STRING, ["N"])],
            [helper.make_tensor_value_info(name, TensorProto.STRING, None) for name in "ab"],
        ),
        opset_imports=[helper.make_opsetid("", 18)],
    )
    with pytest.raises(ModelError, match="not UTF-8"):
        run(proto, {"x": np.array([b"\xff", b"b"])})
