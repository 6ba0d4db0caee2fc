"""What the tests of OpenVINO IR share: models, data, comparison and the runs by OpenVINO itself."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import subprocess
import sys
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import splitops
from splitops.models.formats import openvino as ir
from splitops.spec import ELEMENT_TYPES, ElementType
from splitops.spec.elements.packing import compute_packed_size, pack, unpack
from splitops.spec.elements.types import from_openvino

Array = np.ndarray[Any, Any]

OPENVINO_TYPES = [row for row in ELEMENT_TYPES.values() if row.openvino is not None]

needs_openvino = pytest.mark.skipif(
    importlib.util.find_spec("openvino") is None, reason="the openvino package is not installed"
)


def run_ir(model: ir.OpenVINOModel, inputs: Any, **options: Any) -> dict[str, Array]:
    """Run a model once, on the reference."""
    return splitops.run(model, inputs, engine="reference", **options)


def openvino_version() -> tuple[int, ...]:
    """Return the installed version; (0,) where there is none."""
    try:
        return tuple(int(part) for part in importlib.metadata.version("openvino").split(".")[:2])
    except importlib.metadata.PackageNotFoundError:
        return (0,)


def data_of(element_type: ElementType, shape: Sequence[int]) -> Array:
    """Return data in which neighbours differ, in every bit pattern of narrow types."""
    count = prod(shape)
    numbers = np.arange(count)
    if element_type.bits == 0:
        flat = np.array(
            [["", "a", "日本", "x" * 40, "a,b"][number % 5] + str(number) for number in numbers], object
        )
        return flat.reshape(shape)
    if element_type.name == "bool":
        return (numbers % 3 == 1).reshape(shape)
    if element_type.bits < 8:
        rng = np.random.default_rng(count)
        size = compute_packed_size(element_type, count)
        return unpack(_without_padding(rng.bytes(size), element_type, count), element_type, shape)
    if element_type.bits == 8 and not element_type.integer:
        return numbers.astype(np.uint8).view(element_type.numpy).reshape(shape)
    if element_type.name in {"int64", "uint64"}:
        return (numbers + (1 << 53) + 1).astype(element_type.numpy).reshape(shape)
    if element_type.name == "float64":
        return (numbers / 3).reshape(shape)
    return (numbers % 120).astype(element_type.numpy).reshape(shape)


def _without_padding(content: bytes, element_type: ElementType, count: int) -> bytes:
    return pack(unpack(content, element_type, (count,)), element_type)


def assert_same(got: Array, expected: Array) -> None:
    """The same shape, dtype and bits; any NaN is equal to any other one."""
    assert got.shape == expected.shape
    assert got.dtype == expected.dtype
    if got.dtype == object:
        assert got.tolist() == expected.tolist()
        return
    same = (got.reshape(-1, 1).view(np.uint8) if got.size else np.empty((0, 1))) == (
        expected.reshape(-1, 1).view(np.uint8) if expected.size else np.empty((0, 1))
    )
    if got.dtype.kind == "f" or "float" in got.dtype.name:
        with np.errstate(all="ignore"):
            nan = np.isnan(got.astype(np.float64)) & np.isnan(expected.astype(np.float64))
        same |= nan.reshape(-1, 1)
    wrong = np.flatnonzero(~same.all(axis=1))
    assert wrong.size == 0, [(int(at), got.reshape(-1)[at], expected.reshape(-1)[at]) for at in wrong[:5]]


def stated(array: Array, element_type: ElementType) -> dict[str, Any]:
    """Return a tensor as the worker takes it."""
    name, shape = element_type.openvino, list(array.shape)
    if element_type.bits == 0:
        return {"type": name, "shape": shape, "value": array.reshape(-1).tolist()}
    return {"type": name, "shape": shape, "value": pack(array, element_type).hex()}


def array_of(tensor: dict[str, Any]) -> Array:
    """Return a tensor of the worker as an array."""
    element_type = from_openvino(tensor["type"])
    assert element_type is not None
    if element_type.bits == 0:
        array = np.empty(prod(tensor["shape"]), object)
        array[:] = tensor["value"]
        return array.reshape(tensor["shape"])
    size = compute_packed_size(element_type, prod(tensor["shape"]))
    return unpack(bytes.fromhex(tensor["value"])[:size], element_type, tensor["shape"]).copy()


def run_by_openvino(folder: Path, jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Do jobs in a process of their own; the job that crashes it answers with an error."""
    answers: list[dict[str, Any]] = []
    while len(answers) < len(jobs):
        (folder / "jobs.json").write_text(json.dumps(jobs[len(answers) :]))
        worker = Path(__file__).with_name("openvino_worker.py")
        done = subprocess.run(
            [sys.executable, str(worker), str(folder)],
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        lines = (
            (folder / "answers.jsonl").read_text().splitlines() if (folder / "answers.jsonl").exists() else []
        )
        answers += [json.loads(line) for line in lines]
        if done.returncode == 0:
            break
        assert done.returncode < 0, done.stderr[-2000:]
        answers.append({"error": f"crash by signal {-done.returncode}"})
    return answers


def split_model(
    data: tuple[ElementType | str, Any],
    axis: Array,
    *,
    num_splits: object = None,
    lengths: Array | None = None,
    outputs: int,
    version: int = 11,
) -> ir.OpenVINOModel:
    """Return a whole model around one Split or VariadicSplit."""
    builder = ir.Builder("split", version=version)
    values = [builder.parameter("data", *data), builder.const(axis)]
    if lengths is not None:
        values.append(builder.const(lengths))
        parts = builder.layer("VariadicSplit", values, outputs=outputs, name="split")
    else:
        parts = builder.layer("Split", values, {"num_splits": num_splits}, outputs=outputs, name="split")
    for index, part in enumerate(parts):
        builder.result(part, f"part{index}")
    return builder.model()
