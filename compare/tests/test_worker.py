"""The process of an implementation, and the messages to and from it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from splitops_compare import CompareError, worker
from splitops_compare.data import Case, Outcome
from splitops_compare.protocol import (
    ProtocolError,
    encode_request,
    encode_start,
    parse_outcome,
    parse_response,
)

ADAPTER = """
import sys, numpy as np
from splitops_compare.worker import NotApplicable, Tensor, catch_rejection
SETTINGS = {"mode": ("back", "reject", "skip", "bug", "exit")}
def read_versions():
    return {"echo": "1.0"}
def run(case):
    print("what a runtime prints", sys.stdin.read())
    match case.setting["mode"]:
        case "reject":
            with catch_rejection("load"):
                raise ZeroDivisionError("by nothing")
        case "skip":
            raise NotApplicable("no such type")
        case "bug":
            return 1 / 0
        case "exit":
            with catch_rejection("run"):
                sys.exit(3)
    found = {name: array for name, array in case.inputs.items()}
    return [Tensor(case.types[n], a) for n, a in found.items()] + [list(found.values())]
"""


def question(**inputs: tuple[str, np.ndarray]) -> Case:
    return Case(
        id="c",
        operator="Split-18",
        rule="even",
        title="",
        spec=None,
        model=b"",
        inputs={name: array for name, (_, array) in inputs.items()},
        types={name: kind for name, (kind, _) in inputs.items()},
        outputs=tuple(inputs),
        expected=(),
    )


def answered(folder: Path, case: Case, mode: str = "back") -> Outcome:
    """What a worker answers that knows neither splitops nor this environment's paths."""
    adapter = folder / "echo.py"
    adapter.write_text(ADAPTER)
    lines = encode_start({"mode": mode}) + encode_request(case, 7, folder / "m.onnx", folder)
    done = subprocess.run(
        [sys.executable, "-P", worker.__file__, adapter], input=lines, capture_output=True, timeout=180
    )
    assert done.returncode == 0, done.stderr
    started, answer = done.stdout.splitlines()
    assert parse_response(started)["versions"] == {"echo": "1.0"}
    assert b"what a runtime prints" in done.stderr
    return parse_outcome(parse_response(answer), folder)


def test_arrays_of_every_kind_come_back_as_they_went(tmp_path: Path) -> None:
    arrays = {
        "plain": ("float32", np.arange(6, dtype=np.float32).reshape(2, 3)),
        "large": ("int64", np.arange(1 << 18)),
        "scalar": ("float64", np.array(np.nan)),
        "empty": ("int32", np.zeros((2**32 + 4, 0), np.int32)),
        "brain": ("bfloat16", np.arange(5).astype(ml_dtypes.bfloat16)),
        "nibbles": ("int4", np.arange(-8, 8).astype(ml_dtypes.int4)),
        "looked-up": ("nf4", np.arange(16, dtype=np.uint8)),
        "words": ("string", np.array([["a\n", ""], ["ü", "\U0001f600"]], object)),
        "strided": ("int16", np.arange(10, dtype=">i2")[::3]),
    }
    found = answered(tmp_path, question(**arrays))
    assert found.kind == "ok"
    *values, sequence = found.values
    assert found.types[:-1] == tuple(kind for kind, _ in arrays.values())
    assert isinstance(sequence, list)
    for (kind, sent), value, part in zip(arrays.values(), values, sequence, strict=True):
        assert isinstance(value, np.ndarray)
        for back in (value, part):
            assert back.shape == sent.shape
            if kind == "string":
                assert back.tolist() == sent.tolist()
            else:
                assert back.tobytes() == sent.astype(sent.dtype.newbyteorder("<")).tobytes()


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("reject", ("rejected", "load", "ZeroDivisionError", "by nothing")),
        ("exit", ("rejected", "run", "SystemExit", "3")),
        ("skip", ("not applicable", None, None, "no such type")),
        ("bug", ("adapter error", None, "ZeroDivisionError", "division by zero")),
    ],
)
def test_rejections_are_told_from_errors_of_the_adapter(
    tmp_path: Path, mode: str, expected: tuple[str | None, ...]
) -> None:
    found = answered(tmp_path, question(), mode)
    assert (found.kind, found.stage, found.error, found.text) == expected


def test_a_peer_that_is_not_installed_says_so(tmp_path: Path) -> None:
    adapter = tmp_path / "absent.py"
    adapter.write_text(
        'from importlib.metadata import version\ndef read_versions(): return {"x": version("x-no")}\n'
    )
    done = subprocess.run(
        [sys.executable, "-P", worker.__file__, adapter],
        input=encode_start({}),
        capture_output=True,
        timeout=180,
    )
    assert parse_response(done.stdout)["message"] == "absent"


@pytest.mark.parametrize(
    "line",
    [
        b"hello",
        b"[" * 100_000,
        b"[]",
        b'{"message": "response", "id": 1}',
        b'{"message": "response", "id": 1, "outcome": "ok", "outputs": [{"dtype": "int8", "shape": [1]}]}',
        b'{"message": "response", "id": 1, "outcome": "accepted", "more": 1}',
        b'{"message": "started", "protocol": 2, "name": "x"}',
    ],
)
def test_what_is_no_message_is_rejected(line: bytes) -> None:
    with pytest.raises(ProtocolError):
        parse_response(line)


@pytest.mark.parametrize(
    "tensor",
    [
        {"dtype": "int8", "shape": [3], "data": "AAAA" * 2},
        {"dtype": "int8", "shape": [3], "data": "!!!!"},
        {"dtype": "float999", "shape": [0], "data": ""},
        {"dtype": "string", "shape": [2], "strings": ["a"]},
        {"dtype": "int64", "shape": [1 << 40, 1 << 40], "data": ""},
        {"dtype": "int8", "shape": [1] * 70, "data": "AA=="},
        {"dtype": "int8", "shape": [3], "file": "/etc/hostname"},
        {"dtype": "int8", "shape": [3], "file": "FOLDER/link"},
        {"dtype": "int8", "shape": [3], "file": "FOLDER/pipe"},
        {"dtype": "int8", "shape": [3], "file": "FOLDER/../three"},
        {"dtype": "int8", "shape": [3], "file": "FOLDER/nothing"},
        {"dtype": "int8", "shape": [3], "file": "FOLDER/\x00"},
    ],
)
def test_tensors_that_lie_are_rejected(tmp_path: Path, tensor: dict[str, object]) -> None:
    import os

    folder = tmp_path / "case"
    folder.mkdir()
    (tmp_path / "three").write_bytes(b"abc")
    (folder / "link").symlink_to(tmp_path / "three")
    os.mkfifo(folder / "pipe")
    line = json.dumps({"message": "response", "id": 1, "outcome": "ok", "outputs": [tensor]}).replace(
        "FOLDER", str(folder)
    )
    with pytest.raises(ProtocolError):
        parse_outcome(parse_response(line.encode()), folder)


def test_a_broken_report_is_one_line() -> None:
    from splitops_compare.protocol import parse_report

    for content in (
        b"",
        b"\xff",
        b"{}",
        b'{"version": 1, "environment": {}, "implementations": [1], "cases": []}',
    ):
        with pytest.raises(CompareError, match="not a report of a comparison") as caught:
            parse_report(content)
        assert "\n" not in str(caught.value)
