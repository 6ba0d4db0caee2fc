"""No option of a command replaces a file that the command reads, or another one that it writes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper
from onnx.external_data_helper import convert_model_to_external_data
from safetensors.numpy import save_file

import splitops
from command_line import runner
from splitops.cli import cli
from splitops.errors import FileError
from splitops.models.engines import is_installed

PLAN = {"version": 1, "rule": [{"match": "*", "axis": 0}]}
MODEL = """<ir_version: 9, opset_import: ["": 18]> g (float[6] x) => (float[3] y, float[3] z)
<float[6] w = {1, 2, 3, 4, 5, 6}> { s = Add(x, w) y, z = Split<num_outputs = 2>(s) }"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a source, a model and a plan of each kind."""
    model = tmp_path / "model"
    model.mkdir()
    save_file({"w": np.zeros((8, 4), np.float32)}, model / "model.safetensors")
    (model / "config.json").write_text("{}")
    (tmp_path / "plan.json").write_text(json.dumps(PLAN))
    (tmp_path / "rules.json").write_text('{"version": 1, "rule": [{"fused": "v", "parts": ["w"]}]}')
    np.save(tmp_path / "x.npy", np.arange(6, dtype=np.float32))
    np.save(tmp_path / "y.npy", np.arange(6, dtype=np.float32))
    onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "m.onnx")
    for name, location in (("heavy.onnx", "m.bin"), ("other.onnx", "new.onnx.data")):
        heavy = onnx.parser.parse_model(MODEL)
        [weight] = heavy.graph.initializer
        weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight), weight.name))
        convert_model_to_external_data(heavy, location=location, size_threshold=0)
        onnx.save(heavy, tmp_path / name)
    splitops.save(splitops.convert(tmp_path / "m.onnx", "openvino"), tmp_path / "ir.xml")
    (tmp_path / "report.json").write_text("{}")
    (tmp_path / "link.svg").symlink_to("x.npy")
    return tmp_path


def _contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


SHARD = "shard model --ranks 2 --plan plan.json"
CASES = [
    # a source
    f"{SHARD} --svg model/model.safetensors",
    f"{SHARD} --html model/config.json",
    f"{SHARD} --svg ./model/../model/config.json --dry-run",
    f"{SHARD} --out ranks --checksums model/config.json --overwrite",
    "split x.npy --parts 2 --out out --checksums x.npy --overwrite",
    "split x.npy --parts 2 --out out --checksums link.svg --overwrite",
    "merge x.npy y.npy --out z.npy --checksums y.npy --overwrite",
    "split model --max-size 1G --out out --checksums model/config.json --overwrite",
    "merge model --out one.safetensors --checksums model/model.safetensors --overwrite",
    "unfuse model --plan rules.json --out new --checksums model/config.json --overwrite",
    "inspect x.npy --svg x.npy",
    "inspect heavy.onnx --svg m.bin",
    "inspect ir.xml --svg ir.bin",
    "run m.onnx --input x=x.npy --trace m.onnx",
    "run m.onnx --input x=x.npy --trace x.npy",
    "run heavy.onnx --input x=x.npy --trace m.bin",
    "run ir.xml --input x=x.npy --trace ir.bin",
    "run m.onnx --input x=y.npy --out .",
    "compare --model m.onnx --html m.onnx",
    "compare --model heavy.onnx --sarif m.bin",
    "infer other.onnx -o new.onnx",
    "convert heavy.onnx --to openvino -o m.xml",
    # the plan, and other documents
    f"{SHARD} --svg plan.json",
    f"{SHARD} --html plan.json",
    f"{SHARD} --out ranks --checksums plan.json --overwrite",
    "unfuse model --plan rules.json --out new --checksums rules.json --overwrite",
    "compare --diff report.json --html report.json",
    "compare --expect report.json --sarif report.json",
    # what the same run writes
    f"{SHARD} --svg a --html a",
    "split x.npy --parts 2 --out out --checksums out/x.0.npy",
    "split x.npy --parts 2 --checksums x.1.npy --overwrite",
    "merge x.npy y.npy --out z.npy --checksums z.npy",
    f"{SHARD} --out ranks --checksums ranks/manifest.json",
    f"{SHARD} --out ranks --checksums ranks/rank-00001-of-00002/model.safetensors",
    "split model --max-size 1G --out out --checksums out/config.json",
    "explain --shape 6 --parts 2 --svg a --html a",
    "explain --shape 6 --parts 2 --svg a --html ./a",
    "run m.onnx --input x=x.npy --out out --trace out/z.npy",
    "run m.onnx --input x=x.npy --out out --trace out/outputs.json",
    "compare --html a --sarif a",
]


@pytest.mark.parametrize("line", CASES)
def test_nothing_is_replaced_and_nothing_is_written(folder, monkeypatch, line):
    monkeypatch.chdir(folder)
    before = _contents(folder)
    done = runner().invoke(cli, line.split())
    assert done.exit_code in (1, 2), done.output
    assert "would replace" in done.stderr or "may replace" in done.stderr
    assert not done.stderr.startswith("Traceback")
    assert _contents(folder) == before


@pytest.mark.parametrize(
    "line",
    [
        f"{SHARD} --svg new.svg --html new.html",
        "split x.npy --parts 2 --out out --checksums out/files.sha256",
        "inspect x.npy --svg y.npy",  # an existing file that is not read
        "run m.onnx --input x=x.npy --out out --trace trace.json",
        "fix m.onnx --for onnxruntime -o fixed.onnx",
        "infer heavy.onnx -o shaped.onnx",
        "convert m.onnx --to openvino -o m.xml",
    ],
)
def test_other_names_are_written(folder, monkeypatch, line):
    monkeypatch.chdir(folder)
    if "m.xml" in line:
        (folder / "m.bin").unlink()
    done = runner().invoke(cli, line.split(), catch_exceptions=False)
    assert done.exit_code == 0, done.output + done.stderr


@pytest.mark.parametrize(
    "line",
    [
        "fix m.onnx --for openvino -o m.onnx",
        "simplify m.onnx -o ./m.onnx",
        "convert m.onnx --to onnx:13 -o m.onnx",
        "infer heavy.onnx -o heavy.onnx",
        "infer ir.xml -o ir.xml",
        "simplify own.onnx -o own.onnx",
    ],
)
def test_a_model_may_take_its_own_place(folder, monkeypatch, line):
    if "ir.xml" in line and not is_installed("openvino"):
        pytest.skip("OpenVINO runs what is not a split")
    monkeypatch.chdir(folder)
    heavy = onnx.parser.parse_model(MODEL)
    [weight] = heavy.graph.initializer
    weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight), weight.name))
    convert_model_to_external_data(heavy, location="own.onnx.data", size_threshold=0)
    onnx.save(heavy, "own.onnx")
    name = line.split()[1]
    engine = "reference"
    feeds = {"x": np.arange(6, dtype=np.float32)}
    before = list(splitops.run(name, feeds, engine=engine).values())
    done = runner().invoke(cli, line.split(), catch_exceptions=False)
    assert done.exit_code == 0, done.output + done.stderr
    for value, expected in zip(splitops.run(name, feeds, engine=engine).values(), before, strict=True):
        np.testing.assert_array_equal(value, expected)


def test_checksums_in_python(folder):
    plan = splitops.files.plan_split(folder / "x.npy", folder / "out", num_outputs=2)
    for path in (folder / "x.npy", folder / "out" / "x.0.npy"):
        with pytest.raises(FileError, match="would replace"):
            plan.run(checksums=path, overwrite=True)
    assert not (folder / "out").exists()
