"""Models of more than 2 GB: their weights stay in their files, unread, and results are written beside."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import splitops
from splitops.errors import ModelError
from splitops.models.formats.onnx.tensors import is_external, is_marked

ROWS, COLUMNS = (1 << 18) + (1 << 14), 1 << 10
BYTES = ROWS * COLUMNS * 4
"""The bytes of one weight; two of them are more than one file of protobuf can hold."""
MOST = 0.2

ROUND = """
import sys
import splitops
from splitops.cli import main
try:
    sys.exit(main())
except SystemExit as end:
    assert not end.code, end.code
# Not ru_maxrss, which begins with what the process that made this one has.
with open("/proc/self/status") as status:
    print("peak", next(line.split()[1] for line in status if line.startswith("VmHWM:")))
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of 2.1 GiB on paper: its data are holes in a file."""
    folder = tmp_path_factory.mktemp("large")
    graph = helper.make_graph(
        [
            helper.make_node("Gather", ["w0", "row"], ["a"], axis=0),
            helper.make_node("Gather", ["w1", "row"], ["b"], axis=0),
            helper.make_node("Add", ["a", "b"], ["c"]),
            helper.make_node("Split", ["c", "lengths"], ["d", "e"], axis=1, name="split"),
            helper.make_node("Concat", ["d", "e"], ["f"], axis=1),
            helper.make_node("Split", ["f"], ["left", "right"], axis=1, name="halves"),
        ],
        "large",
        [helper.make_tensor_value_info("row", TensorProto.INT64, [1])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, "n"]) for name in ("left", "right")],
    )
    for index in range(2):
        tensor = graph.initializer.add(name=f"w{index}", data_type=TensorProto.FLOAT, dims=[ROWS, COLUMNS])
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", "weights.bin"), ("offset", index * BYTES), ("length", BYTES)):
            tensor.external_data.add(key=key, value=str(value))
    lengths = graph.initializer.add(name="lengths", data_type=TensorProto.INT64, dims=[2])
    lengths.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "weights.bin"), ("offset", 2 * BYTES), ("length", 16)):
        lengths.external_data.add(key=key, value=str(value))
    with (folder / "weights.bin").open("wb") as file:
        file.seek(BYTES + COLUMNS * 4 * 7)
        file.write(np.arange(COLUMNS, dtype=np.float32).tobytes())  # row 7 of w1
        file.seek(2 * BYTES)
        file.write(np.array([1000, 24], np.int64).tobytes())
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return folder / "model.onnx"


def command(*arguments: object) -> float:
    """Run a command line in a process of its own; return its peak memory, as a part of the model's size."""
    done = subprocess.run(
        [sys.executable, "-c", ROUND, *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return int(done.stdout.split()[-1]) * 1024 / (2 * BYTES)


def row_seven(path: Path) -> np.ndarray:
    """Return what is in the second weight of a written model."""
    (tensor,) = [t for t in onnx.load(path, load_external_data=False).graph.initializer if t.name == "w1"]
    entries = {entry.key: entry.value for entry in tensor.external_data}
    with (path.parent / entries["location"]).open("rb") as file:
        file.seek(int(entries["offset"]) + COLUMNS * 4 * 7)
        return np.frombuffer(file.read(COLUMNS * 4), np.float32)


def test_weights_stay_unread(large: Path) -> None:
    for arguments in (["check"], ["infer"], ["simplify"], ["convert", "--splits-only"]):
        assert command(arguments[0], large, *arguments[1:]) < MOST


def test_weights_are_written_beside_unread(large: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    assert command("convert", large, "--to", "onnx:18", "-o", out) < MOST
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.onnx", "out.onnx.data"]
    np.testing.assert_array_equal(row_seven(out), np.arange(COLUMNS, dtype=np.float32))
    (tmp_path / "out.onnx.data").unlink()  # which has no holes


def test_what_is_made_of_it_names_its_data_wherever_it_is(
    large: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = splitops.convert(large, to="onnx:18")
    weights = {tensor.name: tensor for tensor in made.graph.initializer}
    assert is_marked(weights["w0"])
    again = splitops.convert(made, to="onnx:13")
    assert [is_marked(tensor) for tensor in again.graph.initializer if tensor.dims == [ROWS, COLUMNS]]
    lengths = [t for t in again.graph.initializer if t.name == "lengths"]
    assert not any(is_external(tensor) for tensor in lengths)


def test_a_file_cannot_know_the_name_of_a_folder(large: Path, tmp_path: Path) -> None:
    made = splitops.convert(large, to="onnx:18")
    for tensor in made.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = "splitops:" + "0" * 32 + "/weights.bin"
    with pytest.raises(ModelError, match="in another file"):
        splitops.save(made, tmp_path / "out.onnx")
    assert not list(tmp_path.iterdir())


def test_nothing_is_written_where_the_data_has_gone(large: Path, tmp_path: Path) -> None:
    made = splitops.convert(large, to="onnx:18")
    weights = large.parent / "weights.bin"
    weights.rename(weights.with_suffix(".away"))
    try:
        with pytest.raises(ModelError, match="cannot open"):
            splitops.save(made, tmp_path / "out.onnx")
    finally:
        weights.with_suffix(".away").rename(weights)
    assert not list(tmp_path.iterdir())


def test_short_data_is_rejected_before_anything_is_made(large: Path, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(large.read_bytes())
    (tmp_path / "weights.bin").write_bytes(bytes(100))
    for use in (splitops.infer, splitops.simplify):
        with pytest.raises(ModelError, match="of a file of 100 bytes"):
            use(tmp_path / "model.onnx")
