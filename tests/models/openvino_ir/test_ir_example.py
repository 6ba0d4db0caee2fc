"""The shipped OpenVINO IR, what its script makes and what it gives; and models converted from ONNX."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ir_helpers import array_of, assert_same, needs_openvino, run_by_openvino, run_ir, stated

from splitops.models.formats import openvino as ir
from splitops.models.formats.openvino.nodes import to_nodes
from splitops.models.graph.split_nodes import iter_split_nodes
from splitops.spec import ELEMENT_TYPES

EXAMPLES = Path(__file__).parents[3] / "examples"
MODEL, DATA = EXAMPLES / "models" / "feature_split.xml", EXAMPLES / "data" / "feature_split_x.npy"
F32 = ELEMENT_TYPES["float32"]


def test_the_script_makes_the_shipped_files(tmp_path: Path) -> None:
    maker = runpy.run_path(str(EXAMPLES / "make_openvino_ir.py"))
    maker["main"](tmp_path)
    for shipped in (MODEL, MODEL.with_suffix(".bin"), DATA):
        assert (tmp_path / shipped.relative_to(EXAMPLES)).read_bytes() == shipped.read_bytes()


def test_the_shipped_model_runs() -> None:
    x = np.load(DATA)
    outputs = run_ir(ir.read(MODEL), {"x": x})
    assert list(outputs) == ["bgr", "radar_with_reference", "lidar"]
    assert_same(outputs["bgr"], x[:, [4, 5, 2, 3, 0, 1]])
    assert_same(outputs["lidar"], np.ascontiguousarray(x[:, 8:]))
    reference = np.linspace(0, 1, 4, dtype=np.float16).reshape(2, 2).astype(np.float32)
    assert_same(outputs["radar_with_reference"], np.concatenate([reference, x[:, 6:8]]))


@needs_openvino
def test_openvino_gives_the_same(tmp_path: Path) -> None:
    x = np.load(DATA)
    (answer,) = run_by_openvino(tmp_path, [{"xml": str(MODEL), "inputs": [stated(x, F32)], "by": "CPU"}])
    outputs = run_ir(ir.read(MODEL), {"x": x})
    assert [names[0] for names in answer["outputs"]] == list(outputs)
    for array, tensor in zip(outputs.values(), answer["tensors"], strict=True):
        assert_same(np.ascontiguousarray(array), array_of(tensor))


ONNX = """
<ir_version: 9, opset_import: ["": %d]>
converted (float[batch, 7] x) => (float[b, n] y, float[c, m] z) {
    %s
    s = Relu (q)
    y = Concat <axis = 1> (s, p)
    size = Shape (r)
    z = Reshape (r, size)
}
"""
NODES = {
    (18, "num_outputs"): "p, q, r = Split <axis = 1, num_outputs = 3> (x)",
    (18, "split"): "sizes = Constant <value_ints = [2, 4, 1]> ()\n p, q, r = Split <axis = -1> (x, sizes)",
    (13, "split"): "sizes = Constant <value_ints = [1, 0, 6]> ()\n p, q, r = Split <axis = 1> (x, sizes)",
    (11, "attribute"): "p, q, r = Split <axis = 1, split = [3, 3, 1]> (x)",
}


@needs_openvino
def test_models_that_openvino_converts_from_onnx(tmp_path: Path) -> None:
    """OpenVINO's own conversion, saved by its save_model: our run of it, and its run, agree."""
    parser = pytest.importorskip("onnx.parser")
    onnx = pytest.importorskip("onnx")
    x = np.linspace(-2, 2, 21, dtype=np.float32).reshape(3, 7)
    jobs: list[dict[str, Any]] = []
    for index, ((opset, _), nodes) in enumerate(NODES.items()):
        onnx.save(parser.parse_model(ONNX % (opset, nodes)), tmp_path / f"{index}.onnx")
        path = str(tmp_path / f"{index}.xml")
        jobs.append({"source": str(tmp_path / f"{index}.onnx"), "xml": path, "by": "save_model"})
        jobs.append({"xml": path, "inputs": [stated(x, F32)], "by": "CPU"})
    answers = run_by_openvino(tmp_path, jobs)
    assert [answer for answer in answers if "error" in answer] == []
    for job, answer in zip(jobs[1::2], answers[1::2], strict=True):
        model = ir.read(job["xml"])
        assert [str(site.schema) for site in iter_split_nodes(to_nodes(model))] == ["VariadicSplit-1"]
        outputs = run_ir(model, {"x": x})
        assert list(outputs) == ["y", "z"]
        for array, tensor in zip(outputs.values(), answer["tensors"], strict=True):
            assert_same(np.ascontiguousarray(array), array_of(tensor))
