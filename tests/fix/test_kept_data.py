"""``--keep-data``: a fixed model names the data of its source, which is not written again."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import Result
from fix_helpers import parse
from onnx import numpy_helper

import splitops
from command_line import printed, runner
from splitops.cli import cli
from splitops.models.engines import is_installed
from splitops.models.fix import fix, fix_with_report
from splitops.models.formats.files import write_model

FOUR = "a, b, c, d = Split<num_outputs = 4>(y)"
X = np.arange(5, dtype=np.float32)


def run(*arguments: Any) -> Result:
    return runner().invoke(cli, [str(argument) for argument in arguments])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A model whose split onnxruntime rejects, with a large and a small tensor in another file."""
    outputs = "float[A] a, float[B] b, float[C] c, float[D] d"
    model = parse(f"(float[5] x) => ({outputs}) {{ t = MatMul(x, w) y = Add(t, v) {FOUR} }}")
    large = np.zeros((5, 5 * 4096), np.float32)
    large[:, :5] = np.eye(5)
    model.graph.initializer.append(numpy_helper.from_array(np.eye(5, dtype=np.float32), "w"))
    model.graph.initializer.append(numpy_helper.from_array(np.full(5, 1, np.float32), "v"))
    model.graph.initializer.append(numpy_helper.from_array(large, "large"))
    path = tmp_path / "m.onnx"
    onnx.save_model(
        model,
        path,
        save_as_external_data=True,
        location="m.onnx.data",
        size_threshold=0,
        convert_attribute=False,
    )
    return path


def outside(path: Path) -> dict[str, dict[str, str]]:
    """Where the tensors of a file are that are in another one."""
    tensors = onnx.load(path, load_external_data=False).graph.initializer
    return {
        one.name: {entry.key: entry.value for entry in one.external_data}
        for one in tensors
        if one.data_location == onnx.TensorProto.EXTERNAL
    }


@pytest.mark.skipif(not is_installed("onnxruntime"), reason="onnxruntime is not installed")
def test_the_data_stays_where_it_is(path: Path) -> None:
    out, data = path.with_name("fixed.onnx"), path.with_name("m.onnx.data")
    content, changed = data.read_bytes(), os.stat(data).st_mtime_ns
    done = run("fix", path, "--for", "onnxruntime", "--keep-data", "--verify", "-o", out)
    assert done.exit_code == 0, printed(done)
    assert printed(done).endswith(f"Written to {out}\n")
    assert sorted(file.name for file in path.parent.iterdir()) == ["fixed.onnx", "m.onnx", "m.onnx.data"]
    assert (data.read_bytes(), os.stat(data).st_mtime_ns) == (content, changed)
    before = outside(path)
    assert set(before) == {"w", "v", "large"}
    found = outside(out)
    assert {name: found[name]["location"] for name in found} == dict.fromkeys(before, "m.onnx.data")
    assert {name: int(one["offset"]) for name, one in found.items()} == {
        name: int(one["offset"]) for name, one in before.items()
    }
    assert out.stat().st_size < 4096
    parts = splitops.run(out, {"x": X})
    np.testing.assert_array_equal(np.concatenate(list(parts.values())), X + 1)
    assert splitops.check(out, "onnxruntime") == []


def test_python_keeps_it_too(path: Path) -> None:
    report = fix_with_report(path, "onnxruntime", keep_data=True)
    report.save(path.with_name("a.onnx"))
    splitops.save(fix(path, "onnxruntime", keep_data=True), path.with_name("b.onnx"), keep_data=True)
    splitops.save(fix(path, "onnxruntime", keep_data=True), path.with_name("whole.onnx"))
    assert outside(path.with_name("a.onnx")) == outside(path.with_name("b.onnx"))
    assert set(outside(path.with_name("a.onnx"))) == {"w", "v", "large"}
    assert outside(path.with_name("whole.onnx")) == {}
    report.save(path)  # in the place of the source
    assert set(outside(path)) == {"w", "v", "large"}
    np.testing.assert_array_equal(splitops.run(path, {"x": X})["a"], [1, 2])


def test_a_model_that_needs_no_fix_keeps_it(path: Path) -> None:
    out = path.with_name("o.onnx")
    assert run("fix", path, "--for", "opencv", "--partial", "--keep-data", "-o", out).exit_code == 0
    assert set(outside(out)) == {"w", "v", "large"}


def test_another_folder_cannot_name_the_data(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    done = run("fix", path, "--for", "onnxruntime", "--keep-data", "-o", other / "o.onnx")
    assert done.exit_code == 2
    assert "is not in the folder of" in printed(done)
    report = fix_with_report(path, "onnxruntime", keep_data=True)
    with pytest.raises(splitops.ModelError, match="write the model into the folder of its data"):
        report.save(other / "o.onnx")
    assert list(other.iterdir()) == []


def test_what_has_no_data_of_its_own_is_rejected(path: Path, tmp_path: Path) -> None:
    with pytest.raises(splitops.ModelError, match="keep_data requires the path of an ONNX model"):
        fix(splitops.load(path), "onnxruntime", keep_data=True)
    splitops.save(
        splitops.convert(parse("(float[4] x) => (float[A] a) { a = Relu(x) }"), to="openvino"),
        tmp_path / "m.xml",
    )
    done = run("fix", tmp_path / "m.xml", "--keep-data")
    assert done.exit_code == 2
    assert "--keep-data works only for ONNX models" in printed(done)
    # A model whose data is in itself has nothing to keep.
    inline = tmp_path / "inline.onnx"
    splitops.save(
        parse(f"(float[5] y) => (float[A] a, float[B] b, float[C] c, float[D] d) {{ {FOUR} }}"), inline
    )
    assert run("fix", inline, "--keep-data", "-o", tmp_path / "o.onnx").exit_code == 0


def test_the_file_of_the_data_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("splitops.models.formats.onnx.storage.MAX_MODEL_BYTES", (1 << 24) + (1 << 17))
    out = path.with_name("fixed.onnx")
    done = run("fix", path, "--for", "onnxruntime", "-o", out)
    assert printed(done).endswith(f"Written to {out} and {out}.data\n")
    for words in (("infer",), ("simplify",), ("convert", "--to", "onnx:19")):
        other = path.with_name(f"{words[0]}.onnx")
        assert printed(run(*words, path, "-o", other)).endswith(f"Written to {other} and {other}.data\n")
    data = json.loads(run("fix", path, "--for", "onnxruntime", "-o", out, "--json").stdout)
    assert (data["output"], data["files"]) == (str(out), [str(out), f"{out}.data"])


def test_data_that_the_model_would_replace_is_kept(path: Path) -> None:
    model = fix(path, "onnxruntime", keep_data=True)
    data = path.with_name("m.onnx.data")
    link = path.with_name("link.onnx")
    link.hardlink_to(data)
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = entry.value.replace("m.onnx.data", "link.onnx")
    with pytest.raises(splitops.ModelError, match="contains data that should be kept"):
        write_model(model, link, keep_data=True)


@pytest.mark.skipif(not is_installed("onnxruntime"), reason="onnxruntime is not installed")
def test_the_command_that_is_proposed_keeps_the_options(path: Path) -> None:
    line = printed(run("fix", path, "--keep-data", "--partial", "--allow-links")).splitlines()[-1]
    fixed = path.with_name("m.fixed.onnx")
    assert line == f"Write it: splitops fix {path} --partial --keep-data --allow-links -o {fixed}"
    model = parse("(float[6] x) => (seq(float[A]) s) { s = SplitToSequence<keepdims = 0>(x) }")
    model.graph.node[0].input.append("one")
    model.graph.initializer.append(numpy_helper.from_array(np.int64(1), "one"))
    path.write_bytes(model.SerializeToString())
    line = printed(run("fix", path, "--unbind", "as-pytorch")).splitlines()[-1]
    assert line == f"Write it: splitops fix {path} --unbind as-pytorch -o {fixed}"
    baked = "(float[N] x) => (float[A] a, float[B] b) <int64[2] k = {3, 3}> { a, b = Split(x, k) }"
    path.write_bytes(parse(baked).SerializeToString())
    line = printed(run("fix", path, "--open", "even")).splitlines()[-1]
    assert line == f"Write it: splitops fix {path} --open even -o {fixed}"


def test_kept_data_may_have_the_name_that_written_data_would_have(path: Path) -> None:
    fixed = path.with_name("fixed.onnx")
    model = onnx.load(path, load_external_data=False)
    for tensor in model.graph.initializer:
        tensor.external_data[0].value = "fixed.onnx.data"
    path.with_name("m.onnx.data").rename(path.with_name("fixed.onnx.data"))
    path.write_bytes(model.SerializeToString())
    assert run("fix", path, "-o", fixed).exit_code == 2
    before = path.with_name("fixed.onnx.data").read_bytes()
    assert run("fix", path, "-o", fixed, "--keep-data").exit_code == 0
    assert {found["location"] for found in outside(fixed).values()} == {"fixed.onnx.data"}
    assert path.with_name("fixed.onnx.data").read_bytes() == before
    assert run("fix", path, "-o", fixed.with_name("fixed.onnx.data"), "--keep-data").exit_code == 2


def test_kept_data_is_never_replaced_by_the_model(path: Path) -> None:
    model = onnx.load(path, load_external_data=False)
    for tensor in model.graph.initializer:
        tensor.external_data[0].value = "data.onnx"
    data = path.with_name("m.onnx.data").rename(path.with_name("data.onnx"))
    path.write_bytes(model.SerializeToString())
    before = data.read_bytes()
    assert run("fix", path, "-o", data, "--keep-data").exit_code == 1
    assert data.read_bytes() == before
