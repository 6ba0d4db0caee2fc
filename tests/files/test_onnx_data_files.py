"""ONNX models with external data: in several data files of bounded size, in one, and in the model itself."""

from __future__ import annotations

import json
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir
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


def run_model(model: Path | bytes, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Run a model on onnxruntime or, without it, on the reference."""
    if find_spec("onnxruntime") is None:
        proto = model if isinstance(model, Path) else onnx.load_model_from_string(model)
        return [*splitops.run(proto, feeds, engine="reference").values()]
    import onnxruntime

    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def assert_same(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Check the values, with onnx and onnxruntime, and everything else that the model declares."""
    onnx.checker.check_model(path)
    model = onnx.load(path)
    assert [proto.name for proto in model.graph.initializer] == ["a", "inside", *list(arrays)[1:]]
    assert (model.metadata_props[0].key, model.graph.doc_string) == ("kept", "the graph")
    for name, found in zip([*arrays, "inside"], run_model(path, {}), strict=True):
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
        protos = {proto.name: proto for proto in model.graph.initializer}
        # onnx 1.19 reads the rest of the file for a tensor without elements.
        filled = {name: array for name, array in arrays.items() if array.size}
        assert all((numpy_helper.to_array(protos[name]) == array).all() for name, array in filled.items())


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


def weigh(name: str, names: list[str]) -> TensorProto:
    """Return a new weight, and note its name."""
    names.append(name)
    return numpy_helper.from_array(RNG.standard_normal((16, 16), np.float32), name)


def make_branch(name: str, names: list[str], inner: list[onnx.NodeProto] | None = None) -> onnx.GraphProto:
    """Return a branch with an initializer and a constant. Its ``inner`` nodes compute the value ``m``."""
    tensor = weigh("w", names)  # both branches, and their inner ones, have a tensor of this name
    nodes = [
        *(inner or [helper.make_node("Identity", ["x"], ["m"])]),
        helper.make_node("Constant", [], ["k"], value=weigh("k", names)),
        helper.make_node("Add", ["m", "k"], ["s"]),
        helper.make_node("MatMul", ["s", "w"], ["o"]),
    ]
    for node in nodes:
        node.output[:] = [f"{name}_{output}" for output in node.output]
        node.input[:] = [f"{name}_{value}" if value in "mkso" else value for value in node.input]
    output = helper.make_tensor_value_info(f"{name}_o", TensorProto.FLOAT, [16, 16])
    return helper.make_graph(nodes, name, [], [output], [tensor])


def iter_every_tensor(model: onnx.ModelProto) -> Any:
    """Yield every tensor of a model that is not an initializer of the main graph, and then those."""
    for owner in (model.graph, *model.functions):
        for node in owner.node:
            yield from iter_node_tensors(node)
    for function in model.functions:
        yield from (default.t for default in function.attribute_proto)
    yield from model.graph.initializer


def iter_node_tensors(node: onnx.NodeProto) -> Any:
    for attribute in node.attribute:
        if attribute.HasField("t"):
            yield attribute.t
        if attribute.HasField("g"):
            yield from attribute.g.initializer
            for inner in attribute.g.node:
                yield from iter_node_tensors(inner)


def write_nested_model(folder: Path, *, main: bool = True) -> onnx.ModelProto:
    """Write a model whose tensors are external in every place, and return it with its tensors inside."""
    names: list[str] = []
    nested = make_branch("n", names), make_branch("e", names)
    inner = [helper.make_node("If", ["c"], ["m"], then_branch=nested[0], else_branch=nested[1])]
    branches = make_branch("t", names, inner), make_branch("f", names)
    called = make_branch("p", names), make_branch("q", names)
    function = helper.make_function(
        "own",
        "F",
        ["x", "c"],
        ["y"],
        [
            helper.make_node("Constant", [], ["k"], value=weigh("fk", names)),
            helper.make_node("If", ["c"], ["b"], then_branch=called[0], else_branch=called[1]),
            helper.make_node("Constant", [], ["d"]),
            helper.make_node("Sum", ["b", "k", "d"], ["y"]),
        ],
        [helper.make_opsetid("", 18)],
        attribute_protos=[helper.make_attribute("default", weigh("default", names))],
    )
    function.node[2].attribute.add(name="value", ref_attr_name="default", type=onnx.AttributeProto.TENSOR)
    nodes = [
        helper.make_node("If", ["c"], ["h"], then_branch=branches[0], else_branch=branches[1]),
        helper.make_node("F", ["h", "c"], ["g"], domain="own"),
        helper.make_node("Sum", ["g", "a", "b"], ["y"]),
    ]
    kinds = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [16, 16]) for name in ("x", "y")]
    graph = helper.make_graph(
        nodes,
        "g",
        [kinds[0], helper.make_tensor_value_info("c", TensorProto.BOOL, [])],
        kinds[1:],
        [weigh("a", names), weigh("b", names)],
    )
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    model = helper.make_model(graph, opset_imports=imports, functions=[function], ir_version=9)
    outside = onnx.ModelProto()
    outside.CopyFrom(model)
    tensors = list(iter_every_tensor(outside))
    assert len(tensors) == len(names)
    folder.mkdir()
    for number, tensor in enumerate(tensors if main else tensors[:-2]):
        location = f"m{number % 3}.data"
        with (folder / location).open("ab") as file:
            offset = file.tell()
            file.write(tensor.raw_data)
        entries = {"location": location, "offset": offset, "length": len(tensor.raw_data)}
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in entries.items():
            tensor.external_data.add(key=key, value=str(value))
    (folder / "m.onnx").write_bytes(outside.SerializeToString())
    return model


def evaluate(model: Path | bytes) -> list[np.ndarray]:
    x = np.arange(256, dtype=np.float32).reshape(16, 16) / 256
    return [run_model(model, {"x": x, "c": np.array(flag)})[0] for flag in (False, True)]


@pytest.mark.parametrize("main", [True, False])
def test_external_data_of_subgraphs_functions_and_attributes(tmp_path: Path, main: bool) -> None:
    model = write_nested_model(tmp_path / "model", main=main)
    source, wanted = tmp_path / "model" / "m.onnx", evaluate(model.SerializeToString())
    made = [tmp_path / "one" / "m.onnx"]
    run("merge", source, "--out", made[0], "--verify")
    if main:
        said = run("split", tmp_path / "model", "--max-size", "1KiB", "--out", tmp_path / "x", "--verify")
        assert "'m.onnx' has " in said
        assert "more than 1024: tensors inside the model are not moved to data files" in said
        assert len(list((tmp_path / "x").iterdir())) == 3
        run("merge", source, "--out", tmp_path / "y" / "m.onnx", "--external-data")
        run("merge", tmp_path / "x" / "m.onnx", "--out", tmp_path / "z" / "m.onnx")
        run("split", source, "--tensor", "a", "--parts", "2", "--keep-other-tensors", "-o", tmp_path / "p")
        run(
            "merge",
            *sorted((tmp_path / "p").glob("*.onnx")),
            "--tensor",
            "a",
            "-o",
            tmp_path / "q" / "m.onnx",
        )
        made += [tmp_path / folder / "m.onnx" for folder in "xyzq"]
    for path in made:
        onnx.checker.check_model(path)
        for found, expected in zip(evaluate(path), wanted, strict=True):
            assert (found == expected).all()
        left = [t for t in iter_every_tensor(onnx.load(path, load_external_data=False)) if t.external_data]
        assert {tensor.name for tensor in left} <= {"a", "b"}
    assert list((tmp_path / "one").iterdir()) == [made[0]]
    assert onnx.load(made[0]).SerializeToString(deterministic=True) == model.SerializeToString(
        deterministic=True
    )
    said = run(
        "merge", source, "--out", tmp_path / "model" / "m1.data", "--to", "onnx", "--overwrite", code=1
    )
    assert "would replace a source" in said


def test_external_data_only_in_subgraphs_cannot_be_split(tmp_path: Path) -> None:
    write_nested_model(tmp_path / "model", main=False)
    source = tmp_path / "model" / "m.onnx"
    for command in (["split", "--max-size", "1MB"], ["merge", "--external-data"]):
        said = run(*command, source, "--out", tmp_path / "x.onnx", code=1)
        assert "no initializer of the main graph has external data, only 14 tensors of subgraphs" in said
        assert not (tmp_path / "x.onnx").exists()


def test_external_data_of_subgraphs_that_exceeds_a_model(tmp_path: Path, monkeypatch: Any) -> None:
    write_nested_model(tmp_path / "model")
    monkeypatch.setattr(storage, "MAX_MODEL_BYTES", 14 * KIB)
    for command in (["split", "--max-size", "1MB"], ["merge"], ["merge", "--external-data"]):
        said = run(*command, tmp_path / "model" / "m.onnx", "--out", tmp_path / "x.onnx", code=1)
        assert "14336 bytes of external data belong to tensors of subgraphs" in said
        assert "but ONNX allows 14336" in said
    assert "2 tensors" in run("inspect", tmp_path / "model" / "m.onnx")


def test_missing_and_wrong_data_of_subgraphs(tmp_path: Path) -> None:
    write_nested_model(tmp_path / "model", main=False)
    data = tmp_path / "model" / "m2.data"
    os.truncate(data, 1000)
    said = run("merge", tmp_path / "model" / "m.onnx", "--out", tmp_path / "x.onnx", code=1)
    assert "of a file of 1000 bytes" in said
    data.unlink()
    assert "cannot open" in run("merge", tmp_path / "model" / "m.onnx", "--out", tmp_path / "x.onnx", code=1)


def test_a_model_without_external_data(tmp_path: Path) -> None:
    onnx.save(write_nested_model(tmp_path / "model"), tmp_path / "m.onnx")
    for command in (["split", "--max-size", "1MB"], ["merge", "--external-data"]):
        said = run(*command, tmp_path / "m.onnx", "--out", tmp_path / "x.onnx", code=1)
        assert "has no external data: its tensors are in the model" in said
        assert "save_as_external_data=True" in said
    assert not (tmp_path / "x.onnx.data").exists()
    np.savez(tmp_path / "none.npz")
    splitops.files.plan_one_file(tmp_path / "none.npz", tmp_path / "none.onnx").run()
    assert not (tmp_path / "none.onnx.data").exists()


def test_other_formats_leave_tensors_inside_out_with_a_warning(tmp_path: Path) -> None:
    write_model(tmp_path / "m.onnx", make_arrays())
    said = run("merge", tmp_path / "m.onnx", "--out", tmp_path / "m.safetensors")
    assert "has 1 more tensor that will not be written: only initializers of the main graph" in said
    write_nested_model(tmp_path / "model")
    said = run("merge", tmp_path / "model", "--out", tmp_path / "n.safetensors")
    assert "has 14 more tensors that will not be written" in said


@pytest.mark.parametrize("name", ["", "m.onnx"])
def test_ranks_keep_the_data_files_of_subgraphs(tmp_path: Path, name: str) -> None:
    write_nested_model(tmp_path / "model")  # m2.data and m0.data have tensors of the main graph
    rules = {"version": 1, "rule": [{"match": "*", "axis": 0}]}
    plan = splitops.sharding.plan(tmp_path / "model" / name, rules, ranks=2)
    assert "splitops does not shard 14 tensors of subgraphs, functions or node attributes" in plan.warnings
    plan.run(tmp_path / "ranks", sync=False)
    splitops.sharding.merge(tmp_path / "ranks").run(tmp_path / "merged", sync=False)
    assert sorted(path.name for path in (tmp_path / "merged").iterdir()) == [
        "m.onnx",
        "m0.data",
        "m1.data",
        "m2.data",
    ]
    for path in (tmp_path / "merged").iterdir():
        assert path.read_bytes() == (tmp_path / "model" / path.name).read_bytes()


@pytest.mark.parametrize("ending", ["onnx", "safetensors", "gguf"])
def test_leftovers_of_an_earlier_split_are_named(tmp_path: Path, ending: str) -> None:
    np.savez(tmp_path / "m.npz", **{f"t{i}": np.full((8, 32), i, np.float32) for i in range(6)})
    out, to = tmp_path / "x", ["--out", tmp_path / "x", "--to", ending]
    assert "warning" not in run("split", tmp_path / "m.npz", "--max-size", "1700", *to)
    old = {path.name for path in out.iterdir()}
    assert "warning" not in run("split", tmp_path / "m.npz", "--max-size", "1700", *to, "--overwrite")
    said = run("split", tmp_path / "m.npz", "--max-size", "3400", *to, "--overwrite")
    [warning] = [line for line in said.splitlines() if line.startswith("warning")]
    stale = {name for name in old if "-of-00006" in name}
    assert len(stale) == 6
    assert all(repr(name) in warning for name in stale)
    assert "-of-00003" not in warning
    said = run(
        "merge",
        out / ("m.onnx" if ending == "onnx" else f"m-00001-of-00003.{ending}"),
        "-o",
        tmp_path / f"m.{ending}",
    )
    assert "warning" not in said


def test_leftovers_of_an_earlier_split_of_a_tensor_are_named(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((12, 2)))
    run("split", tmp_path / "x.npy", "--parts", "6", "--out", tmp_path / "p")
    said = run("split", tmp_path / "x.npy", "--parts", "4", "--out", tmp_path / "p", "--overwrite")
    assert "also has 'x.4.npy', 'x.5.npy', which are not among the new files" in said
    said = run("split", tmp_path / "x.npy", "--parts", "5", "--out", tmp_path / "p", "--overwrite", "--json")
    assert "'x.5.npy'" in json.loads(said)["warnings"][0]
    said = run("split", tmp_path / "x.npy", "--parts", "6", "--out", tmp_path / "p", "--overwrite", "--json")
    assert "warnings" not in json.loads(said)
