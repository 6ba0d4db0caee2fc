"""ONNX models with external data: in several data files of bounded size, in one, and in the model itself."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import splitops
from command_line import runner
from splitops.cli import cli
from splitops.errors import FileError
from splitops.models.formats.onnx import storage

RNG = np.random.default_rng(5)
KIB = 1 << 10


def run(*arguments: object, code: int = 0) -> str:
    done = runner().invoke(cli, [str(argument) for argument in arguments], catch_exceptions=False)
    assert done.exit_code == code, done.output + done.stderr
    return done.stdout + done.stderr


def write_model(path: Path, arrays: dict[str, np.ndarray], alignment: int = 1) -> None:
    """Write a model that returns all arrays. Their data are in reversed order in the data file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    protos, end = [], 0
    with (path.parent / f"{path.name}.data").open("wb") as file:
        for name, array in reversed(arrays.items()):
            file.write(bytes(-file.tell() % alignment))
            offset = file.tell()
            file.write(array.tobytes())
            end = file.tell()
            proto = TensorProto(name=name, data_type=helper.np_dtype_to_tensor_dtype(array.dtype))
            proto.dims.extend(array.shape)
            proto.data_location = TensorProto.EXTERNAL
            entries = {"location": f"{path.name}.data", "offset": offset, "length": end - offset}
            for key, value in entries.items():
                proto.external_data.add(key=key, value=str(value))
            protos.insert(0, proto)
    nodes = [helper.make_node("Identity", [name], [f"out_{name}"]) for name in [*arrays, "inside"]]
    inside = np.arange(3, dtype=np.float32)
    outputs = [
        helper.make_tensor_value_info(f"out_{name}", helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for name, a in [*arrays.items(), ("inside", inside)]
    ]
    protos.insert(1, numpy_helper.from_array(inside, "inside"))
    graph = helper.make_graph(nodes, "g", [], outputs, protos, doc_string="the graph")
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    model.metadata_props.add(key="kept", value="yes")
    path.write_bytes(model.SerializeToString())


def make_arrays() -> dict[str, np.ndarray]:
    return {
        "a": RNG.standard_normal((30, 40), np.float32),
        "b": RNG.standard_normal((700, 500), np.float32),
        "c": np.arange(7, dtype=np.int64),
        "d": RNG.standard_normal((64, 64)).astype(np.float16),
        "e": np.zeros((0, 3), np.float32),
        "f": RNG.standard_normal((50, 33), np.float32),
    }


def read_places(path: Path) -> dict[str, tuple[str, int, int]]:
    """Return the data file, offset and size of each external tensor."""
    made = {}
    for proto in onnx.load(path, load_external_data=False).graph.initializer:
        said = {entry.key: entry.value for entry in proto.external_data}
        if said:
            made[proto.name] = said["location"], int(said["offset"]), int(said["length"])
    return made


def assert_same(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Check the values, with onnx and onnxruntime, and everything else that the model declares."""
    onnx.checker.check_model(path)
    model = onnx.load(path)
    assert [proto.name for proto in model.graph.initializer] == ["a", "inside", *list(arrays)[1:]]
    assert (model.metadata_props[0].key, model.graph.doc_string) == ("kept", "the graph")
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for name, found in zip([*arrays, "inside"], session.run(None, {}), strict=True):
        wanted = arrays.get(name, np.arange(3, dtype=np.float32))
        assert found.dtype == wanted.dtype
        assert (found == wanted).all()


@pytest.mark.parametrize("alignment", [1, 64, 4096])
def test_external_data_in_several_files_and_in_one_again(tmp_path: Path, alignment: int) -> None:
    arrays = make_arrays()
    write_model(tmp_path / "model" / "m.onnx", arrays, alignment)
    source, out = tmp_path / "model" / "m.onnx", tmp_path / "x"
    said = run("split", source, "--max-size", "16KiB", "--out", out, "--verify")
    assert "tensor 'b' is larger than 16384 bytes and has a file of its own" in said
    files = sorted(path.name for path in out.glob("*.data"))
    assert files == [f"m-{i + 1:05}-of-{len(files):05}.onnx.data" for i in range(len(files))]
    assert len(list(out.iterdir())) == len(files) + 1
    assert_same(tmp_path / "x" / "m.onnx", arrays)
    places = read_places(tmp_path / "x" / "m.onnx")
    for name in files:
        held = sorted((at, tensor) for tensor, (file, at, size) in places.items() if file == name and size)
        assert (tmp_path / "x" / name).stat().st_size <= 16 * KIB or [t for _, t in held] == ["b"]
    order = sorted((name for name in arrays if arrays[name].size), key=lambda name: places[name][:2])
    assert order == ["f", "d", "c", "b", "a"]  # that of the bytes of the source
    assert all(at % alignment == 0 for _, at, size in places.values() if size)

    run("merge", tmp_path / "x" / "m.onnx", "--out", tmp_path / "y" / "m.onnx", "--external-data", "--verify")
    assert sorted(path.name for path in (tmp_path / "y").iterdir()) == ["m.onnx", "m.onnx.data"]
    assert_same(tmp_path / "y" / "m.onnx", arrays)
    places = read_places(tmp_path / "y" / "m.onnx")
    order = sorted((name for name in arrays if arrays[name].size), key=lambda name: places[name][1])
    assert order == ["f", "d", "c", "b", "a"]
    assert places["b"][1] % (64 * KIB) == 0
    assert all(at % alignment == 0 for _, at, size in places.values() if size)

    run("merge", tmp_path / "x" / "m.onnx", "--out", tmp_path / "one.onnx", "--verify")
    assert not (tmp_path / "one.onnx.data").exists()
    assert_same(tmp_path / "one.onnx", arrays)
    storage.write(storage.read(tmp_path / "model" / "m.onnx"), tmp_path / "whole.onnx")
    assert (tmp_path / "one.onnx").read_bytes() == (tmp_path / "whole.onnx").read_bytes()


@settings(deadline=None, max_examples=30)
@given(
    sizes=st.lists(st.integers(0, 900), min_size=1, max_size=9),
    alignment=st.sampled_from([1, 4, 64, 256]),
    max_size=st.integers(1, 3000),
)
def test_any_sizes(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], alignment: int, max_size: int
) -> None:
    folder = tmp_path_factory.mktemp("any")
    arrays = {f"t{i}": RNG.integers(0, 255, size, dtype=np.uint8) for i, size in enumerate(sizes)}
    write_model(folder / "m.onnx", arrays, alignment)
    splitops.files.plan_by_size(folder / "m.onnx", folder / "x", max_size).run(verify=True)
    splitops.files.plan_one_file(folder / "x" / "m.onnx", folder / "one.onnx").run()
    splitops.files.plan_one_file(folder / "x" / "m.onnx", folder / "y.onnx", external_data=True).run()
    places = read_places(folder / "x" / "m.onnx")
    for file in {file for file, _, _ in places.values()}:
        held = [name for name, (of, _, size) in places.items() if of == file and size]
        assert (folder / "x" / file).stat().st_size <= max_size or len(held) == 1
    for path in (folder / "x" / "m.onnx", folder / "one.onnx", folder / "y.onnx"):
        model = onnx.load(path)
        found = {proto.name: numpy_helper.to_array(proto) for proto in model.graph.initializer}
        assert all((found[name] == array).all() for name, array in arrays.items())


def test_tensors_that_share_bytes_share_them_afterwards(tmp_path: Path) -> None:
    arrays = make_arrays()
    write_model(tmp_path / "m.onnx", arrays)
    model = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    tied = model.graph.initializer.add()
    tied.CopyFrom(next(proto for proto in model.graph.initializer if proto.name == "b"))
    tied.name = "tied"
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    made = splitops.files.plan_by_size(tmp_path / "m.onnx", tmp_path / "x", 1 << 20)
    assert made.bytes == sum(array.nbytes for array in arrays.values())
    made.run(verify=True)
    places = read_places(tmp_path / "x" / "m.onnx")
    assert places["tied"] == places["b"]
    splitops.files.plan_one_file(tmp_path / "x" / "m.onnx", tmp_path / "one.onnx").run(verify=True)
    found = {p.name: numpy_helper.to_array(p) for p in onnx.load(tmp_path / "one.onnx").graph.initializer}
    assert (found["tied"] == arrays["b"]).all()
    assert (found["b"] == arrays["b"]).all()


def test_a_folder_with_one_model_keeps_its_small_files(tmp_path: Path) -> None:
    arrays = make_arrays()
    write_model(tmp_path / "model" / "m.onnx", arrays)
    (tmp_path / "model" / "config.json").write_text("{}")
    text = run("split", tmp_path / "model", "--max-size", "1405KB", "--out", tmp_path / "x", "--json")
    said = json.loads(text)
    assert [Path(file["file"]).name for file in said["files"]] == [
        "m-00001-of-00002.onnx.data",
        "m-00002-of-00002.onnx.data",
        "m.onnx",
        "config.json",
    ]
    assert [file["tensors"] for file in said["files"][2:]] == [[], []]
    assert sorted(name for file in said["files"] for name in file["tensors"]) == list(arrays)
    run("merge", tmp_path / "x", "--out", tmp_path / "one.onnx")
    assert_same(tmp_path / "one.onnx", arrays)


def test_a_model_too_large_for_one_file_gets_one_data_file(tmp_path: Path, monkeypatch: Any) -> None:
    arrays = make_arrays()
    write_model(tmp_path / "m.onnx", arrays)
    splitops.files.plan_one_file(tmp_path / "m.onnx", tmp_path / "one.onnx").run()
    size = (tmp_path / "one.onnx").stat().st_size
    monkeypatch.setattr(storage, "MAX_MODEL_BYTES", size)
    assert len(splitops.files.plan_one_file(tmp_path / "m.onnx", tmp_path / "two.onnx").paths) == 1
    monkeypatch.setattr(storage, "MAX_MODEL_BYTES", size - 1)
    said = run("merge", tmp_path / "m.onnx", "--out", tmp_path / "two.onnx")
    assert "the tensors are written to 'two.onnx.data': in one file, the model would exceed 2 GiB" in said
    assert_same(tmp_path / "two.onnx", arrays)


def test_a_sparse_model_of_more_than_2_gib(tmp_path: Path) -> None:
    """The size of a tag grows with its message, and offsets exceed 32 bits."""
    write_model(tmp_path / "m.onnx", {"a": np.zeros(4, np.uint8), "b": np.zeros(4, np.uint8)})
    model = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    for proto, offset in zip(model.graph.initializer[::2], (0, 3 << 30), strict=True):
        del proto.external_data[:]
        proto.dims[:] = [3 << 30]
        said = {"location": "m.onnx.data", "offset": offset, "length": 3 << 30}
        for key, value in said.items():
            proto.external_data.add(key=key, value=str(value))
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    os.truncate(tmp_path / "m.onnx.data", 6 << 30)
    one = splitops.files.plan_one_file(tmp_path / "m.onnx", tmp_path / "one.onnx")
    assert [path.name for path in one.paths] == ["one.onnx.data", "one.onnx"]
    assert one.warnings
    several = splitops.files.plan_by_size(tmp_path / "m.onnx", tmp_path / "x", 4 << 30)
    assert [size for _, size in several.dry_run().files[:2]] == [3 << 30, 3 << 30]


def test_onnx_ir_reads_the_files(tmp_path: Path) -> None:
    arrays = make_arrays()
    onnx_ir.save(_as_ir(tmp_path, arrays), tmp_path / "ir.onnx", external_data="ir.onnx.data")
    splitops.files.plan_by_size(tmp_path / "ir.onnx", tmp_path / "x", 300 * KIB).run()
    for name, value in onnx_ir.load(tmp_path / "x" / "ir.onnx").graph.initializers.items():
        wanted = arrays.get(name, np.arange(3, dtype=np.float32))
        assert value.const_value is not None
        assert (value.const_value.numpy() == wanted).all()


def _as_ir(folder: Path, arrays: dict[str, np.ndarray]) -> onnx_ir.Model:
    write_model(folder / "m.onnx", arrays)
    return onnx_ir.load(folder / "m.onnx")


def test_what_cannot_be_done_says_so(tmp_path: Path) -> None:
    write_model(tmp_path / "m.onnx", make_arrays())
    splitops.files.plan_one_file(tmp_path / "m.onnx", tmp_path / "one.onnx").run()
    with pytest.raises(FileError, match="has no external data: its tensors are in the model"):
        splitops.files.plan_by_size(tmp_path / "one.onnx", tmp_path / "x", 100)
    with pytest.raises(FileError, match="safetensors files have no external data"):
        splitops.files.plan_one_file(tmp_path / "m.onnx", tmp_path / "m.safetensors", external_data=True)
    said = run("split", tmp_path / "m.onnx", "--max-size", "1MB", "--out", tmp_path, code=1)
    assert "would replace a source: write to another folder" in said
    said = run("merge", tmp_path / "m.onnx", "--out", tmp_path / "m.onnx", code=1)
    assert "would replace a source" in said
    np.save(tmp_path / "x.npy", np.zeros(3))
    said = run("merge", tmp_path / "x.npy", "--out", tmp_path / "y.npy", "--external-data", code=2)
    assert "--external-data can be used only with an ONNX model" in said
    (tmp_path / "m.onnx.data").unlink()
    assert "cannot open" in run("merge", tmp_path / "m.onnx", "--out", tmp_path / "z.onnx", code=1)
    assert not (tmp_path / "z.onnx").exists()
