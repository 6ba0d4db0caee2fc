"""What a prompt and a notebook show of the public objects: one line, and a table or a drawing."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest

import splitops
from splitops.models.check import Target

MODEL = """
    <ir_version: 9, opset_import: ["": 18]>
    g (float[5] x) => (float[2] a, float[2] b, float[1] c, float[0] d) {
        a, b, c, d = Split<num_outputs = 4>(x) }"""


def checkpoint(folder: Path) -> Path:
    safetensors = pytest.importorskip("safetensors.numpy")
    safetensors.save_file({"w": np.zeros((4, 2), np.float32)}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"model_type": "llama"}))
    return folder


def objects(folder: Path) -> dict[str, Any]:
    model = onnx.parser.parse_model(MODEL)
    np.save(folder / "x.npy", np.zeros(12))
    files = splitops.files.plan_split(folder / "x.npy", folder / "parts", split=[5, 7])
    plan = {"version": 1, "rule": [{"match": "*", "axis": 0}]}
    inferred = splitops.infer(model)
    report = splitops.fix_with_report(model, "onnxruntime")
    conversion = splitops.convert_with_report(model, to="onnx:13")
    simplification = splitops.simplify_with_report(model)
    return {
        "schema": splitops.schema("Split"),
        "history": splitops.history("Split")[0],
        "difference": splitops.difference("Split", 13, 18),
        "plan": splitops.plan("Split", shape=(7, 3), num_outputs=3),
        "finding": splitops.check(model, "onnxruntime")[0],
        "target": Target.load("onnxruntime"),
        "limit": Target.load("onnxruntime").limits[0],
        "fix": report,
        "fixed split": report.splits[0],
        "conversion": conversion,
        "change": conversion.changes[0],
        "simplification": simplification,
        "rewrite": simplification.changes[0],
        "inferred": inferred,
        "value": inferred.values[0],
        "tensor": inferred["x"],
        "split node": inferred.splits[0],
        "session": splitops.session(model, "reference"),
        "IR": splitops.convert(model, to="openvino"),
        "files": files,
        "dry run": files.dry_run(),
        "report": files.run(),
        "ranks": splitops.sharding.plan(checkpoint(folder), ranks=2, plan=plan),
    }


def test_every_object_is_one_line_that_names_it(tmp_path: Path) -> None:
    shown = {name: repr(value) for name, value in objects(tmp_path).items()}
    for name, line in shown.items():
        assert "\n" not in line, name
        assert len(line) < 400, (name, line)
        assert "object at 0x" not in line, name
    assert shown["schema"] == "OperatorSchema(ai.onnx Split-18(input, split?, axis=, num_outputs=))"
    assert shown["difference"] == "Difference(Split-13 -> Split-18: 7 changes)"
    assert shown["plan"] == "Plan(shape=(7, 3), axis=0, sizes=(3, 3, 1))"
    assert shown["tensor"] == "Tensor(float32[5])"
    assert shown["split node"] == "SplitNode(Split-18(axis=0, num_outputs=4) at node 'Split -> a')"
    assert shown["session"].startswith("Session(Runs on the reference evaluator, including its split")
    assert shown["report"] == "Report(2 files, 96 tensor bytes)"


def test_a_plan_of_many_parts_stays_short() -> None:
    plan = splitops.plan("SplitToSequence", shape=(100_000,), keepdims=0)
    assert repr(plan) == (
        "Plan(shape=(100000,), axis=0, sizes=(1, 1, 1, 1, 1, 1, 1, 1, ..., 1, 1) of 100000 parts, "
        "squeeze=True, sequence=True)"
    )


def test_notebooks_get_tables_and_a_drawing(tmp_path: Path) -> None:
    found = {name: value for name, value in objects(tmp_path).items() if hasattr(value, "_repr_html_")}
    assert found.keys() >= {
        *("schema", "difference", "plan", "finding", "fix", "conversion", "simplification", "inferred"),
        *("files", "dry run", "report"),
    }
    for name, value in found.items():
        html = value._repr_html_()
        root = ET.fromstring(html)
        assert root.tag.endswith("svg" if name == "plan" else "table"), name
        if name != "plan":
            assert len(root.findall("tbody/tr")) >= 1, name
            assert len(root.findall("tbody/tr")[0]) == len(root.findall("thead/tr/th")), name


def test_what_a_model_says_is_text_in_a_notebook() -> None:
    model = onnx.parser.parse_model(MODEL)
    model.graph.node[0].name = "<script>alert(1)</script>"
    for value in (splitops.fix_with_report(model), *splitops.check(model, "onnxruntime")):
        html = value._repr_html_()
        assert "<script>" not in html
        assert "&lt;script&gt;" in html
