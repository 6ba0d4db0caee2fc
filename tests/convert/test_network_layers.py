"""Each row of the layers of networks, there and back: OpenVINO's values from onnxruntime, and from its IR."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conversion_runtimes import run_apart
from network_cases import CASES, Given, LayerCase

import splitops
from scripts import script
from splitops.models.convert.layers import CONVERTERS
from splitops.models.ops import BY_LAYER, OPERATORS

pytest.importorskip("openvino")
pytest.importorskip("onnxruntime")


_KNOWN = {
    "Divide-1 {'m_pythondiv': True}": ([-3, 2, 2, -3, 2], "OpenVINO's CPU plugin divides towards zero"),
    "NonMaxSuppression-9 at the threshold": (
        [[0, 0, 0], [0, 0, 1], [0, 0, 2]],
        "OpenVINO's CPU plugin drops a box whose overlap is the threshold",
    ),
    "Divide-1 at the ends of int32": ([-715827883, -429496730], "OpenVINO's CPU plugin divides in float32"),
}
"""Cases in which OpenVINO does not do what its text says: what the text gives, and what it does."""


def _close(left: Any, right: Any) -> bool:
    """Return whether arrays are of one type and shape, and as near as their type and scale let them be."""
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    if left.dtype.kind != "f":
        return bool(np.array_equal(left, right))
    finite = np.isfinite(left)
    scale = float(np.max(np.abs(left), initial=0, where=finite))
    step = {2: 2e-3, 4: 1e-5, 8: 1e-5}[left.dtype.itemsize]
    return bool(np.allclose(left, right, rtol=0, atol=step * scale, equal_nan=True))


def _job(case: LayerCase) -> Any:
    inputs = [(value.array, value.shape) if isinstance(value, Given) else value for value in case.inputs]
    return (
        case.type,
        case.opset,
        inputs,
        dict(case.attributes),
        case.outputs,
        case.feeds,
        case.rejected is None,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("layers")


@pytest.fixture(scope="module")
def layers(folder: Path) -> dict[int, Any]:
    """What OpenVINO gives, of a model that it has written."""
    return run_apart(
        "layers", [(i, str(folder / f"{i}.xml"), [_job(case)]) for i, case in enumerate(CASES)], folder
    )


@pytest.fixture(scope="module")
def there(folder: Path, layers: dict[int, Any]) -> dict[int, Any]:
    """Why there is no ONNX of a case, or what onnxruntime gives of it."""
    found: dict[int, Any] = {}
    jobs = []
    for index, case in enumerate(CASES):
        report = splitops.convert_with_report(folder / f"{index}.xml", to="onnx:20")
        if report.complete:
            path = folder / f"{index}.onnx"
            report.save(path)
            jobs.append((index, str(path), [case.feeds]))
        else:
            found[index] = report.problem
    return found | run_apart("onnxruntime", jobs, folder)


_ALL = pytest.mark.parametrize("index", range(len(CASES)), ids=[case.label for case in CASES])


@_ALL
def test_a_layer_gives_the_same_in_onnx(index: int, layers: dict[int, Any], there: dict[int, Any]) -> None:
    case, found = CASES[index], there[index]
    assert not isinstance(layers[index], str), f"OpenVINO: {layers[index]}"
    if case.rejected is not None:
        assert isinstance(found, splitops.SplitError), "ONNX says it after all"
        assert case.rejected in str(found)
        return
    assert not isinstance(found, str | splitops.SplitError), found
    if case.label in _KNOWN:
        wanted, reason = _KNOWN[case.label]
        assert found[0][0].tolist() == wanted
        assert layers[index][0][0].tolist() != wanted, f"no longer so: {reason}"
        return
    for expected, got in zip(layers[index][0], found[0], strict=True):
        assert _close(np.asarray(expected), np.asarray(got)), f"{expected}\n{got}"


def test_every_row_has_a_case(folder: Path, layers: dict[int, Any]) -> None:
    models = [splitops.load(folder / f"{index}.xml") for index in layers]
    tried = {(layer.type, layer.version) for model in models for layer in model.graph.layers}
    rows = {(form.layer, f"opset{version}") for form in CONVERTERS for version in form.versions}
    shared = [operator for operator in OPERATORS if operator.converts and operator.types is not None]
    spellings = [spelling for operator in shared for spelling in operator.openvino]
    rows |= {(one.name, f"opset{version}") for one in spellings for version in one.versions or ()}
    assert rows - tried == set()


_IN_IR = {"Relu": "ReLU", "Softmax": "SoftMax", "PRelu": "PReLU"}
"""Layers that IR calls by another name."""


def test_the_page_has_every_row() -> None:
    module = script("dev/pages/convert")
    text = module.PAGE.read_text(encoding="utf-8")
    assert module.page(text) == text, "run python3.11 tasks.py docs"
    assert module.layers() in text


def test_the_page_names_every_layer_of_openvino() -> None:
    """Each type of opset1 to opset16 has a form or the reason why it has none, and not both."""
    import openvino

    found: set[str] = set()
    for number in range(1, 17):
        for path in (Path(openvino.__file__).parent / f"opset{number}").glob("ops.py"):
            found |= set(re.findall(r'\.create\(\s*"(\w+)"', path.read_text(encoding="utf-8")))
    module = script("dev/pages/convert")
    names = {_IN_IR.get(name, name) for name in found} | {"PReLU"} - {"PRelu"}
    assert len(names) > 150
    assert names - module.written() - set(module.without()) == set()
    assert not module.written() & set(module.without())


def test_a_comparison_of_outputs_can_fail() -> None:
    one = np.ones(3, np.float32)
    assert _close(one, one + np.float32(1e-6))
    assert not _close(one, one + np.float32(1e-4))
    assert not _close(one, one.astype(np.float64))
    assert not _close(one, np.array([1, 1, np.nan], np.float32))
    assert not _close(one, one.reshape(1, 3))


def test_a_row_for_both_directions_needs_no_openvino(
    folder: Path, layers: dict[int, Any], there: dict[int, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What such a row has written as ONNX comes back as the layer, and gives the same there."""
    from splitops.models.convert import onnx_to_openvino

    monkeypatch.setattr(onnx_to_openvino, "is_installed", lambda name: False)
    jobs, missing = [], []
    for index, case in enumerate(CASES):
        operator = BY_LAYER.get(_IN_IR.get(case.type, case.type))
        versions = () if operator is None else operator.openvino[0].versions or ()
        if operator is None or operator.types is None or case.opset not in versions or case.rejected:
            continue
        if case.only == "of integers" and operator.identity_types:
            continue  # ONNX has no such operator of integers
        report = splitops.convert_with_report(folder / f"{index}.onnx", to="openvino")
        if not report.complete:
            missing.append(f"{case.label}: {report.problem}")
            continue
        (layer,) = report.model.graph.list_layers(operator.openvino[0].name)
        assert layer.version in {f"opset{version}" for version in versions}
        report.save(folder / f"back{index}.xml")
        jobs.append((index, str(folder / f"back{index}.xml"), [case.feeds]))
    assert missing == []
    found = run_apart("openvino", jobs, folder)
    wrong = [
        f"{CASES[index].label}: {got}"
        for index, got in found.items()
        if isinstance(got, str) or not _close(np.asarray(layers[index][0][0]), np.asarray(got[0][0]))
    ]
    assert wrong == []
