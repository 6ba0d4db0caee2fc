"""The light adapters: each answers a case in a separate process, or its implementation is not installed."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
import pytest

from splitops.spec import ELEMENT_TYPES
from splitops.spec.elements.packing import pack
from splitops_compare import adapters, worker
from splitops_compare.adapters.openvino import _pack, _unpack
from splitops_compare.cases import build_case, list_cases
from splitops_compare.data import Case, Outcome
from splitops_compare.protocol import encode_request, encode_start, parse_outcome, parse_response

FOLDER = Path(next(iter(adapters.__path__)))
PACKAGES = {
    "onnx_reference": "onnx",
    "onnx_inference": "onnx",
    "onnx_converter": "onnx",
    "onnxruntime": "onnxruntime",
    "openvino": "openvino",
    "opencv": "opencv-python-headless",
    "onnxslim": "onnxslim",
    "onnxsim": "onnxsim",
    "onnxoptimizer": "onnxoptimizer",
    "onnxscript_optimizer": "onnxscript",
    "onnxscript_converter": "onnxscript",
}
HALVES = "split-13/even/6-into-2/float32/static"


def case(name: str) -> Case:
    return build_case(list_cases()[name])


def asked(
    adapter: str, cases: list[Case], folder: Path, setting: dict[str, str] | None = None
) -> list[Outcome]:
    """What the worker of an adapter answers, first to its start."""
    lines = encode_start(setting or {})
    for number, one in enumerate(cases):
        model = folder / f"{number}.{'onnx' if one.format == 'onnx' else 'xml'}"
        model.write_bytes(one.model)
        if one.weights is not None:
            model.with_suffix(".bin").write_bytes(one.weights)
        lines += encode_request(one, number, model, folder)
    done = subprocess.run(
        [sys.executable, "-P", worker.__file__, FOLDER / f"{adapter}.py"], input=lines, capture_output=True,
        timeout=120, check=True,
    )  # fmt: skip
    started, *answers = map(parse_response, done.stdout.splitlines())
    if started["message"] == "absent":
        pytest.skip(f"{PACKAGES[adapter]} is not installed")
    assert started["name"] == adapter
    assert next(iter(started["versions"].values()))
    return [parse_outcome(answer, folder) for answer in answers]


@pytest.mark.parametrize("adapter", PACKAGES)
def test_an_adapter_answers(adapter: str, tmp_path: Path) -> None:
    good, bad = case(HALVES), case("split-13/lengths.sum/6-as-2+3/float32/static")
    found = asked(adapter, [good, bad], tmp_path)
    assert found[0].kind == {"onnx_inference": "inferred"}.get(adapter, found[0].kind)
    assert found[0].kind in ("ok", "inferred", "made", "not applicable"), found[0]
    if found[0].kind == "ok":
        assert [value.tolist() for value in found[0].values] == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]  # type: ignore[union-attr]
    elif found[0].kind == "inferred":
        assert [list(shape or ()) for shape in found[0].shapes] == [[3], [3]]
    elif found[0].kind == "made":
        assert found[0].model is not None
        assert Path(found[0].model).stat().st_size
    if adapter in ("onnx_inference", "onnxruntime", "openvino"):
        assert found[1].kind == "rejected"


@pytest.mark.parametrize("adapter", PACKAGES)
def test_a_peer_that_is_missing_is_absent_and_no_fault(adapter: str, tmp_path: Path) -> None:
    try:
        version(PACKAGES[adapter])
    except PackageNotFoundError:
        with pytest.raises(pytest.skip.Exception):
            asked(adapter, [], tmp_path)
    else:
        assert asked(adapter, [], tmp_path) == []


@pytest.mark.parametrize(
    "name", ["uint4", "int4", "float4_e2m1fn", "nf4", "float8_e4m3fn", "bfloat16", "string"]
)
def test_openvino_is_given_every_type_and_gives_it_back(name: str, tmp_path: Path) -> None:
    """Of one part, so that what OpenVINO does wrong with several does not matter."""
    listed_case = list_cases()[f"openvino-variadicsplit-1/explicit/6-as-2+4/{name}/static/axis=0"]
    one = build_case(listed_case)
    (found,) = asked("openvino", [one], tmp_path)
    if found.kind == "ok":
        assert set(found.types) == {name}
        assert [value.shape for value in found.values] == [(2,), (4,)]  # type: ignore[union-attr]
    else:
        assert found.kind == "rejected", found


@pytest.mark.parametrize("name", ["uint1", "uint2", "uint3", "uint4", "uint6"])
def test_small_types_are_packed_as_they_are_stored(name: str) -> None:
    kind = ELEMENT_TYPES[name]
    for count in (1, 6, 23):
        codes = (np.arange(count) * 7 % 2**kind.bits).astype(np.uint8)
        stored = pack(codes if kind.storage else codes.view(kind.numpy), kind)
        packed = _pack(codes, kind.bits)
        assert packed.tobytes()[: len(stored)] == stored
        assert _unpack(packed, kind.bits, count).tolist() == codes.tolist()
