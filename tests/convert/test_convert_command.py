"""``splitops convert``: files in, files and a report out."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from conversion_results import equal

import splitops.models
from command_line import runner
from splitops.cli._group import cli

X = np.arange(5, dtype=np.float32)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    onnx.save(
        onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["": 18]>
        g (float[N] x) => (float[a] p, float[b] q, float[c] r) { p, q, r = Split<num_outputs = 3>(x) }"""),
        path,
    )
    return path


def invoke(*arguments: str) -> tuple[int, str, str]:
    result = runner().invoke(cli, ["convert", *arguments])
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize(("target", "name"), [("onnx:13", "out.onnx"), ("onnx:11", "out.onnx")])
def test_writes_a_model_that_gives_the_same(model: Path, target: str, name: str) -> None:
    out = model.with_name(name)
    code, report, _ = invoke(str(model), "--to", target, "-o", str(out))
    assert code == 0
    assert "rewritten" in report
    own, wanted = (list(splitops.models.run(path, {"x": X}).values()) for path in (out, model))
    assert equal(own, wanted)


def test_to_openvino_and_back(model: Path) -> None:
    middle, out = model.with_name("out.xml"), model.with_name("back.onnx")
    assert invoke(str(model), "--to", "openvino", "-o", str(middle))[0] == 0
    assert middle.with_suffix(".bin").exists()
    assert invoke(str(middle), "--to", "onnx:18", "-o", str(out))[0] == 0
    own, wanted = (list(splitops.models.run(path, {"x": X}).values()) for path in (out, model))
    assert equal(own, wanted)


def test_a_rejection_is_reported_and_writes_nothing(model: Path) -> None:
    out = model.with_name("out.onnx")
    code, report, errors = invoke(str(model), "--to", "onnx:2", "-o", str(out), "--json")
    assert code == 1
    assert not out.exists()
    found = json.loads(report)
    assert found["complete"] is False
    assert found["output"] is None
    assert [change["rule"] for change in found["changes"]] == ["parts.divisible"]
    assert errors.count("\n") == 1
    assert "[parts.divisible]" in errors


def test_json_of_a_conversion(model: Path) -> None:
    code, report, _ = invoke(str(model), "--to", "onnx:13", "--json")
    assert code == 0
    (change,) = json.loads(report)["changes"]
    assert change["status"] == "rewritten"
    assert change["where"] == {"model": str(model), "node": "Split -> p"}
    assert change["before"] == "Split-18(axis=0, num_outputs=3)"


@pytest.mark.parametrize("arguments", [[], ["--to", "onnx:13", "--splits-only"]])
def test_either_a_target_or_only_the_splits(model: Path, arguments: list[str]) -> None:
    assert invoke(str(model), *arguments)[0] == 2


def test_the_wrong_ending_writes_nothing(model: Path) -> None:
    out = model.with_name("out.xml")
    code, _, errors = invoke(str(model), "--to", "onnx:13", "-o", str(out))
    assert (code, out.exists()) == (2, False)
    assert "must have the extension of ONNX: use .onnx" in errors


def test_onnx_alone_is_its_newest_opset(model: Path) -> None:
    out = model.with_name("out.onnx")
    assert invoke(str(model), "--to", "onnx", "-o", str(out))[0] == 0
    assert [entry.version for entry in onnx.load(out).opset_import] == [onnx.defs.onnx_opset_version()]


@pytest.mark.parametrize("target", ["onnx:18", "openvino"])
def test_an_opset_that_onnx_does_not_have_yet_is_rejected(model: Path, target: str) -> None:
    newer, newest = onnx.load(model), onnx.defs.onnx_opset_version()
    newer.opset_import[0].version = newest + 1
    onnx.save(newer, model)
    code, report, errors = invoke(str(model), "--to", target)
    assert (code, report) == (1, f"to {target}\n")
    assert f"opset {newest + 1}, but the installed onnx has opsets 1 to {newest}" in errors


def test_only_split_keeps_the_opset(model: Path) -> None:
    out = model.with_name("out.onnx")
    assert invoke(str(model), "--splits-only", "-o", str(out))[0] == 0
    assert [entry.version for entry in onnx.load(out).opset_import] == [18]
