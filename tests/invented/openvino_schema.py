"""OpenVINO's Split with another meaning from opset 20 on: uneven parts, as ONNX's ``num_outputs`` makes."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import click.testing
import numpy as np
import onnx.parser
import pytest
from rejections import rejects

import splitops
import splitops.cli
from dev.pages.reference import operators
from splitops.models.convert import convert_with_report
from splitops.models.formats.openvino import Builder

X = np.arange(7, dtype=np.float32)
SIZES = [3, 3, 1]


def model(version: str = "opset20", sizes: tuple[int, ...] = (), shape: str = "7") -> Any:
    made = Builder("halves")
    data = made.parameter("x", "f32", shape)
    axis = made.const(np.array(0))
    if sizes:
        parts = made.layer(
            "VariadicSplit", [data, axis, made.const(np.array(sizes))], outputs=3, version="opset1"
        )
        parts = [made.layer("Relu", [part], version=version)[0] for part in parts]
    else:
        parts = made.layer("Split", [data, axis], {"num_splits": 3}, outputs=3, version=version)
    for index, part in enumerate(parts):
        made.result(part, f"part{index}")
    return made.model()


def onnx_model(count: int = 3) -> onnx.ModelProto:
    return onnx.parser.parse_model(f"""<ir_version: 9, opset_import: ["": 18]>
        g (float[7] x) => (float[a] p, float[b] q, float[c] r) {{
            p, q, r = Split<num_outputs = {count}>(x) }}""")


def sizes_of(parts: Any) -> list[int]:
    return [len(part) for part in (parts.values() if isinstance(parts, dict) else parts)]


def versions_of(converted: Any) -> dict[str, str]:
    return {layer.type: layer.version for layer in converted.graph.layers if "Split" in layer.type}


def step_the_table_has_it() -> None:
    assert [row.since_version for row in splitops.history("Split", "openvino")] == [1, 20]
    assert splitops.schema("Split", 19, "openvino").since_version == 1


def step_calls() -> None:
    split = splitops.openvino.split
    for _ in range(3):  # remembered or not
        assert sizes_of(split(X, 0, 3)) == sizes_of(split(X, 0, 3, opset=20)) == SIZES
        assert sizes_of(split(X, 0, 3, copy=True)) == SIZES
        for opset in (1, 19):
            rejects("parts.divisible", lambda opset=opset: split(X, 0, 3, opset=opset))
    plan = splitops.plan("Split", shape=(7,), domain="openvino", axis=0, num_splits=3)
    assert list(plan.sizes) == SIZES


def step_infers() -> None:
    infer = splitops.openvino.infer_split
    assert infer([7], 0, 3) == [(3,), (3,), (1,)]
    rejects("parts.divisible", lambda: infer([7], 0, 3, opset=1))
    inferred = splitops.infer(model())
    assert [str(inferred[f"part{index}"]) for index in range(3)] == [f"float32[{size}]" for size in SIZES]


def step_runs() -> None:
    assert sizes_of(splitops.run(model(), {"x": X})) == SIZES
    rejects("parts.divisible", lambda: splitops.run(model("opset19"), {"x": X}))


def step_checks() -> None:
    codes = {finding.code for finding in splitops.check(model())}
    assert not codes & {"parts.divisible", "model.invalid", "declared.shape"}
    assert "parts.divisible" in {finding.code for finding in splitops.check(model("opset1"))}


def step_checks_a_lone_layer() -> None:
    port = '<port id="{}" precision="FP32"><dim>{}</dim></port>'
    outputs = "".join(port.format(index + 2, size) for index, size in enumerate(SIZES))
    layer = (
        '<layer id="1" name="s" type="Split" version="{}"><data num_splits="3"/><input>'
        + port.format(0, 7)
        + f'<port id="1" precision="I64"/></input><output>{outputs}</output></layer>'
    )
    for version, good in (("opset20", True), ("opset1", False)):
        assert (not splitops.check(layer.format(version))) is good, version


def step_converts_to_it() -> None:
    for target, expected in (
        ("openvino", {"Split": "opset20"}),
        ("openvino:opset20", {"Split": "opset20"}),
        ("openvino:opset19", {"VariadicSplit": "opset1"}),
    ):
        report = convert_with_report(onnx_model(), target)
        assert report.target == target
        assert versions_of(report.model) == expected, target
        assert sizes_of(splitops.run(report.model, {"x": X})) == SIZES


def step_converts_from_it() -> None:
    for opset in (11, 13, 18):
        converted = splitops.convert(model(), f"onnx:{opset}")
        assert sizes_of(splitops.run(converted, {"x": X})) == SIZES


def step_an_open_axis_keeps_its_meaning() -> None:
    converted = splitops.convert(model(shape="?"), "onnx:13")
    for size in (7, 6, 2):
        data = X[:size]
        wanted = sizes_of(splitops.openvino.split(data, 0, 3))
        assert sizes_of(splitops.run(converted, {"x": data})) == wanted


def step_what_the_installed_openvino_lacks_is_named() -> None:
    proto = onnx_model()
    proto.graph.node.add(op_type="Celu", input=["p"], output=["s"])
    proto.graph.output[0].name = "s"
    with pytest.raises(splitops.ModelError, match="the installed OpenVINO has no Split in opset20"):
        splitops.convert(proto, "openvino")
    assert versions_of(splitops.convert(proto, "openvino:opset1")) == {"VariadicSplit": "opset1"}


def step_writes_and_reads_back() -> None:
    path = Path(tempfile.mkdtemp()) / "model.xml"
    splitops.save(splitops.convert(onnx_model(), "openvino"), path)
    assert 'version="opset20"' in path.read_text()
    assert sizes_of(splitops.run(splitops.load(path), {"x": X})) == SIZES


def step_simplifies_to_it() -> None:
    for version, expected in (("opset20", {"Split": "opset20"}), ("opset8", {"VariadicSplit": "opset1"})):
        found = splitops.simplify(model(version, (3, 3, 1)), ["shorten-lengths"])
        assert versions_of(found) == expected, version


def step_differs() -> None:
    changes = splitops.difference("Split", 1, 20, "openvino").changes
    assert [change.text for change in changes if "number of parts" in change.name] == ["even -> ceil"]


def step_is_documented() -> None:
    text = operators()
    assert "## OpenVINO Split-20" in text
    assert "### OpenVINO Split-1 to Split-20" in text
    assert "even -> ceil" in text


def step_commands_know_it() -> None:
    runner = click.testing.CliRunner()
    explain = ["explain", "--shape", "7", "--parts", "3", "--op"]
    assert runner.invoke(splitops.cli.cli, [*explain, "openvino:Split"]).exit_code == 0
    assert runner.invoke(splitops.cli.cli, [*explain, "openvino:Split-1"]).exit_code == 1
    shown = runner.invoke(splitops.cli.cli, ["spec", "openvino:Split"]).output
    assert "openvino:Split-20" in shown
