"""The other files of a model: links that lead out of its folder, and contents that no message may show."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest
from click.testing import CliRunner
from onnx import ModelProto, TensorProto

import splitops
from splitops.cli import cli
from splitops.errors import ModelError, SplitError
from splitops.models.formats import openvino as openvino_ir

COUNT = 3 * 4096


def ir_model(values: Any) -> openvino_ir.OpenVINOModel:
    builder = openvino_ir.Builder()
    weights = builder.const(values)
    parts = builder.layer("Split", [weights, builder.const(0)], {"num_splits": 3}, outputs=3)
    for index, part in enumerate(parts):
        builder.result(part, f"part{index}")
    return builder.model()


def external_model(count: int = COUNT) -> ModelProto:
    made = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["": 18]>
        g () => (float[n] a, float[m] b) { a, b = Split<num_outputs = 2>(w) }""")
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[count])
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="m.bin")
    made.graph.initializer.append(tensor)
    return made


def write_model(folder: Path, kind: str) -> Path:
    """Write a model with its data in ``m.bin``."""
    folder.mkdir(parents=True)
    if kind == "onnx":
        (folder / "m.bin").write_bytes(np.arange(COUNT, dtype=np.float32).tobytes())
        (folder / "m.onnx").write_bytes(external_model().SerializeToString())
        return folder / "m.onnx"
    values = np.array(["text"] * 99, object) if kind == "strings" else np.arange(COUNT, dtype=np.float32)
    splitops.save(ir_model(values), folder / "m.xml")
    return folder / "m.xml"


def in_a_hub_cache(tmp_path: Path, kind: str) -> Path:
    """Write a model as hubs keep it: links in a folder for the version, the contents in another one."""
    path = write_model(tmp_path / "snapshots" / "v1", kind)
    (tmp_path / "blobs").mkdir()
    for name in (path.name, "m.bin"):
        path.with_name(name).rename(tmp_path / "blobs" / name)
        path.with_name(name).symlink_to(Path("../../blobs") / name)
    return path


def checked(path: Path, **options: Any) -> None:
    """Check a model; raise the finding that it cannot be read."""
    for finding in splitops.check(path, **options):
        raise ModelError(finding.message)


def converted(path: Path, **options: Any) -> Any:
    return splitops.convert(path, to="onnx:13" if path.suffix == ".xml" else "onnx:23", **options)


READERS: dict[str, Callable[..., Any]] = {
    "load": splitops.load,
    "run": lambda path, **options: splitops.run(path, {}, **options),
    "infer": splitops.infer,
    "check": checked,
    "fix": lambda path, **options: splitops.fix(path, "openvino", **options),
    "convert": converted,
    "simplify": splitops.simplify,
}
"""Every function that reads a model from a path."""


@pytest.mark.parametrize("kind", ["onnx", "xml"])
@pytest.mark.parametrize("name", READERS)
def test_links_out_of_the_folder_are_followed_where_the_caller_allows_them(tmp_path, kind, name):
    path = in_a_hub_cache(tmp_path, kind)
    with pytest.raises(ModelError, match=r"through a symbolic link\. .* --allow-links .*allow_links=True"):
        READERS[name](path)
    READERS[name](path, allow_links=True)


@pytest.mark.parametrize("kind", ["onnx", "xml"])
def test_what_is_linked_is_what_is_run(tmp_path, kind):
    outputs = splitops.run(in_a_hub_cache(tmp_path, kind), {}, allow_links=True)
    assert list(outputs.values())[-1][-1] == COUNT - 1


@pytest.mark.parametrize("kind", ["onnx", "xml"])
def test_links_inside_the_folder_are_followed(tmp_path, kind):
    path = write_model(tmp_path / "folder", kind)
    path.with_name("m.bin").rename(path.with_name("other"))
    path.with_name("m.bin").symlink_to("other")
    for name in READERS:
        READERS[name](path)


@pytest.mark.parametrize("command", ["run", "infer", "check", "fix", "convert", "simplify"])
@pytest.mark.parametrize("kind", ["onnx", "xml"])
def test_every_command_that_reads_models_can_follow_links(tmp_path, kind, command):
    path = str(in_a_hub_cache(tmp_path, kind))
    arguments = [command, path, *(["--to", "onnx:18"] if command == "convert" else [])]
    rejected = CliRunner().invoke(cli, arguments)
    assert rejected.exit_code == 1
    assert "--allow-links" in rejected.output
    allowed = CliRunner().invoke(cli, [*arguments, "--allow-links"])
    assert allowed.exit_code == 0, allowed.output


def test_fix_follows_links_where_allowed(tmp_path):
    path, out = in_a_hub_cache(tmp_path, "onnx"), tmp_path / "out.onnx"
    arguments = ["fix", str(path), "-o", str(out)]
    assert CliRunner().invoke(cli, arguments).exit_code == 1
    assert not out.exists()
    assert CliRunner().invoke(cli, [*arguments, "--allow-links"]).exit_code == 0
    assert len(splitops.run(out, {})["a"]) == COUNT // 2


def test_weights_of_models_over_2_gb_are_followed_where_allowed(tmp_path):
    elements = 600_000_000
    (tmp_path / "m").mkdir()
    path = tmp_path / "m" / "m.onnx"
    path.write_bytes(external_model(elements).SerializeToString())
    with open(tmp_path / "blob", "wb") as blob:
        blob.truncate(4 * elements)  # a hole: it takes no space, and nobody is to read it
    path.with_name("m.bin").symlink_to("../blob")
    for name in ("infer", "check", "convert", "simplify", "fix"):
        with pytest.raises(ModelError, match="--allow-links"):
            READERS[name](path)
        READERS[name](path, allow_links=True)


SECRET = b"-----BEGIN PRIVATE KEY-----\xff\x00\x1b[2J" * 64
SHOWN = re.compile(r"BEGIN|PRIV|KEY|----|\\xff|\\x1b|\[2J")
"""How a message would show it."""


def hostile_contents(size: int, kind: str) -> list[bytes]:
    whole = (SECRET * (size // len(SECRET) + 1))[:size]
    if kind == "strings":  # their number and ends stay, or nothing looks at the text
        count = 99
        header = np.array([count, 0, *(4 * (i + 1) for i in range(count))], "<i4").tobytes()
        return [whole, (header + SECRET)[:size], SECRET[:7], b""]
    return [whole, SECRET[:7], b""]


def test_no_error_quotes_the_contents_of_data_files(tmp_path):
    tried = 0
    for kind in ("onnx", "xml", "strings"):
        path = write_model(tmp_path / kind, kind)
        data = path.with_name("m.bin")
        for content in hostile_contents(data.stat().st_size, kind):
            data.write_bytes(content)
            for use in READERS.values():
                try:
                    use(path)
                except SplitError as error:
                    tried += 1
                    text = "".join(traceback.format_exception_only(error))
                    text += "".join(traceback.format_exception_only(error.__cause__ or error))
                    assert not SHOWN.search(text), text
    assert tried > 20


def test_no_error_quotes_lengths_that_are_somebody_elses_bytes(tmp_path):
    """A file of secrets as the lengths of a split: a message may state numbers, and no text."""
    made = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["": 18]>
        g (float[6] x) => (float[n] a, float[m] b) <int64[2] w = {3, 3}> { a, b = Split(x, w) }""")
    tensor = made.graph.initializer[0]
    for number, dtype in enumerate((TensorProto.INT64, TensorProto.FLOAT, TensorProto.INT32)):
        tensor.ClearField("int64_data")
        tensor.ClearField("external_data")
        tensor.data_type, tensor.data_location = dtype, TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="w.bin")
        path = tmp_path / f"{number}.onnx"
        path.write_bytes(made.SerializeToString())
        (tmp_path / "w.bin").write_bytes(SECRET[: 16 if dtype == TensorProto.INT64 else 8])
        for use in (splitops.infer, checked, lambda path: splitops.run(path, {"x": np.ones(6, np.float32)})):
            with pytest.raises(SplitError) as caught:
                use(path)
            assert not SHOWN.search(str(caught.value))


def test_the_detector_of_quotes_detects():
    for text in (repr(SECRET), SECRET.decode("latin-1"), str(SECRET[3:30])):
        assert SHOWN.search(text)
