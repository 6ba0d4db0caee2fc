"""Small networks that PyTorch, TensorFlow, Keras, JAX and Paddle have written, kept with their own results.

`dev/foreign` makes them. The suite asks every ninth network, and all with SPLITOPS_ALL_NETWORKS=1.
"""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from conversion_runtimes import run_apart

import splitops
from splitops.models.formats.openvino import from_bytes, make_input_names

pytest.importorskip("openvino")
pytest.importorskip("onnxruntime")

_FOLDER = Path(__file__).with_name("foreign")
_REFUSED = {
    "tensorflow: convolved, open, openvino": "and ONNX needs it stated",
    "paddle2: positions, openvino": "sort = 'index'; supported: value, none",
}
"""The networks that do not leave IR: ONNX takes no shape of a transposed convolution that a run computes, and
does not order the elements of a TopK by their positions.
"""


@dataclass(frozen=True)
class _Network:
    archive: Path
    name: str

    @property
    def label(self) -> str:
        return f"{self.archive.stem}: {self.name}"

    @cached_property
    def files(self) -> dict[str, bytes]:
        with zipfile.ZipFile(self.archive) as archive:
            names = [name for name in archive.namelist() if Path(name).stem == self.name]
            return {Path(name).suffix: archive.read(name) for name in names}

    @property
    def is_ir(self) -> bool:
        return ".xml" in self.files

    def model(self) -> Any:
        if self.is_ir:
            return from_bytes(self.files[".xml"], self.files[".bin"])
        return onnx.ModelProto.FromString(self.files[".onnx"])

    def arrays(self, letter: str) -> list[Any]:
        with np.load(io.BytesIO(self.files[".npz"])) as data:
            return [data[name] for name in data.files if name[0] == letter]


def _networks() -> Iterator[_Network]:
    for path in sorted(_FOLDER.glob("*.zip")):
        with zipfile.ZipFile(path) as archive:
            for name in sorted({Path(member).stem for member in archive.namelist()}):
                yield _Network(path, name)


_ALL = list(_networks())
_ASKED = _ALL if os.environ.get("SPLITOPS_ALL_NETWORKS") else _ALL[::9]


def _feeds(model: Any, network: _Network) -> dict[str, Any]:
    if isinstance(model, onnx.ModelProto):
        constants = {tensor.name for tensor in model.graph.initializer}
        names = [value.name for value in model.graph.input if value.name not in constants]
    else:
        names = list(make_input_names(model))
    return dict(zip(names, network.arrays("i"), strict=True))


def _steps(network: _Network) -> Iterator[tuple[str, Any]]:
    """Yield each model that is to give what the network gives, or why there is none."""
    model = network.model()
    assert not [one for one in splitops.check(model) if str(one.severity) == "error"]
    splitops.infer(model)
    yield "simplified", splitops.simplify(model)
    runtime = "openvino" if network.is_ir else "onnxruntime"
    yield f"for {runtime}", splitops.fix(model, runtime)
    ways = [["onnx:20", "openvino"]] if network.is_ir else [["openvino", "onnx:20"], ["onnx:13"], ["onnx:23"]]
    for way in ways:
        converted = model
        for target in way:
            report = splitops.convert_with_report(converted, to=target)
            if not report.complete:
                yield target, report.problem
                break
            converted = report.model
            yield " to ".join([*way[: way.index(target)], target]), converted


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[Any, Any]:
    """What the runtime of each format gives of every step, by network and step; or the refusal."""
    folder = tmp_path_factory.mktemp("foreign")
    found: dict[Any, Any] = {}
    jobs: dict[str, list[Any]] = {"onnxruntime": [], "openvino": []}
    for number, network in enumerate(_ASKED):
        for at, (step, model) in enumerate(_steps(network)):
            if isinstance(model, splitops.SplitError):
                found[network.label, step] = model
                continue
            is_onnx = isinstance(model, onnx.ModelProto)
            path = folder / f"{number}_{at}.{'onnx' if is_onnx else 'xml'}"
            splitops.save(model, path)
            job = (network.label, step), str(path), [_feeds(model, network)]
            jobs["onnxruntime" if is_onnx else "openvino"].append(job)
    for runtime, asked in jobs.items():
        found |= run_apart(runtime, asked, folder)
    return found


@pytest.mark.parametrize("network", _ASKED, ids=[network.label for network in _ASKED])
def test_every_step_gives_what_the_network_gives(network: _Network, results: dict[Any, Any]) -> None:
    wanted = network.arrays("o")
    steps = {step: found for (label, step), found in results.items() if label == network.label}
    assert len(steps) >= 3
    for step, found in steps.items():
        if isinstance(found, splitops.SplitError):
            assert _REFUSED.get(network.label, "is not refused") in str(found), step
            continue
        assert not isinstance(found, str), f"{step}: {found}"
        for got, expected in zip(found[0], wanted, strict=True):
            assert (got.dtype, got.shape) == (expected.dtype, expected.shape), step
            scale = max(1.0, float(np.abs(expected).max(initial=0)))
            np.testing.assert_allclose(got, expected, rtol=0, atol=1e-4 * scale, err_msg=step)


def test_each_archive_names_the_releases_that_made_it() -> None:
    for path in _FOLDER.glob("*.zip"):
        with zipfile.ZipFile(path) as archive:
            assert path.stem.rstrip("2") in archive.comment.decode()
    assert len(_ALL) > 250
