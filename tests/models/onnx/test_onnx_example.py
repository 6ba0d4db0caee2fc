"""The shipped ONNX example: made by its script, run by splitops, and the same in onnxruntime."""

from __future__ import annotations

import runpy
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import splitops
from splitops.models.formats.onnx import read
from splitops.models.formats.onnx.graphs import deserialize_model
from splitops.models.graph.split_nodes import iter_split_nodes

run = partial(splitops.run, engine="reference")

EXAMPLES = Path(__file__).parents[3] / "examples"
MODEL = EXAMPLES / "models" / "attention_block.onnx"
INPUT = EXAMPLES / "data" / "attention_block_x.npy"


def test_script_makes_the_shipped_files(tmp_path: Path) -> None:
    runpy.run_path(str(EXAMPLES / "make_onnx.py"))["main"](tmp_path)
    for path in (MODEL, INPUT):
        made = tmp_path / path.relative_to(EXAMPLES)
        assert made.read_bytes() == path.read_bytes(), f"{path.name}: run examples/make_onnx.py"


def test_sites() -> None:
    found = {
        site.where.node: (str(site.schema), site.where.graph)
        for site in iter_split_nodes(deserialize_model(read(MODEL)))
    }
    assert found == {
        "split_qkv": ("Split-18", None),
        "cut_windows": ("SplitToSequence-11", None),
        "split_halves": ("Split-18", "function example.SwiGLU"),
    }


def test_outputs() -> None:
    outputs = run(MODEL, {"x": np.load(INPUT)})
    assert outputs["y"].shape == (1, 10, 32)
    assert [window.shape for window in outputs["windows"]] == [(1, 4, 32), (1, 4, 32), (1, 2, 32)]
    np.testing.assert_array_equal(np.concatenate(outputs["windows"], axis=1), outputs["y"])


def test_same_in_onnxruntime() -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    x = np.load(INPUT)
    session = onnxruntime.InferenceSession(MODEL, providers=["CPUExecutionProvider"])
    y, windows = session.run(None, {"x": x})
    outputs = run(MODEL, {"x": x})
    np.testing.assert_allclose(outputs["y"], y, rtol=1e-4, atol=1e-5)
    for ours, theirs in zip(outputs["windows"], windows, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
