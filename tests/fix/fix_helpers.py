"""What the tests of fixes share: the runtimes themselves, each in a process of its own, and bits."""

from __future__ import annotations

import atexit
import pickle
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
from runtime_worker import send

import splitops
from splitops.models.fix import FixReport, fix_with_report

FOLDER = Path(tempfile.mkdtemp(prefix="splitops-fix-"))


def parse(body: str, opset: int = 18, ir: int = 8) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: {ir}, opset_import: ["": {opset}, "own": 1]> g {body}')


@cache
def _worker(runtime: str, number: int) -> subprocess.Popen[bytes]:
    worker = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("runtime_worker.py")), runtime],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    atexit.register(worker.kill)
    return worker


_crashes: dict[str, int] = {}


def on(runtime: str, model: Any, feeds: dict[str, Any]) -> tuple[str, Any]:
    """What a runtime does with a model: outputs by name, an error, or the end of its process."""
    path = FOLDER / ("m.onnx" if isinstance(model, onnx.ModelProto) else "m.xml")
    if isinstance(model, onnx.ModelProto):
        path.write_bytes(model.SerializeToString())  # save() rejects some of those that are to be wrong
    else:
        splitops.save(model, path)
    worker = _worker(runtime, _crashes.get(runtime, 0))
    try:
        send(worker.stdin, (str(path), feeds))  # type: ignore[arg-type]
        found: tuple[str, Any] = pickle.load(worker.stdout)  # type: ignore[arg-type]
        return found
    except (EOFError, BrokenPipeError):
        _crashes[runtime] = _crashes.get(runtime, 0) + 1
        return "crash", worker.wait()


def difference(left: Any, right: Any) -> str | None:
    """How two results differ in a type, a shape or a bit; None where they do not."""
    if isinstance(left, dict):
        found = ((name, difference(left[name], right[name])) for name in left)
        return next((f"{name}: {text}" for name, text in found if text), None)
    if isinstance(left, list):
        if not isinstance(right, list) or len(left) != len(right):
            return f"{len(left)} elements and {right}"
        return next((text for pair in zip(left, right, strict=True) if (text := difference(*pair))), None)
    a, b = np.asarray(left), np.asarray(right)
    if a.shape != b.shape or (a.dtype.kind not in "OUS" and a.dtype != b.dtype):
        return f"{a.dtype}{a.shape} and {b.dtype}{b.shape}"
    same = a.tolist() == b.tolist() if a.dtype.kind in "OUS" else a.tobytes() == b.tobytes()
    return None if same else f"{a} and {b}"


def is_right(runtime: str, model: Any, source: Any, feeds: dict[str, Any]) -> str | None:
    """How a runtime's results of a model differ from the specified ones of the source; None: it is right."""
    kind, found = on(runtime, model, feeds)
    return (
        f"{kind}: {found}"
        if kind != "outputs"
        else difference(splitops.run(source, feeds, engine="reference"), found)
    )


def proved(
    runtime: str, model: Any, feeds: dict[str, Any], *, unbind: str | None = None, wrong: bool = True
) -> FixReport:
    """Fix a model that a runtime does not execute correctly, and prove that it does now."""
    if wrong:
        assert is_right(runtime, model, model, feeds) is not None, "there is nothing to fix"
    report = fix_with_report(model, runtime, unbind=unbind)
    assert is_right(runtime, report.model, model, feeds) is None, is_right(
        runtime, report.model, model, feeds
    )
    assert (
        difference(
            splitops.run(report.model, feeds, engine="reference"),
            splitops.run(model, feeds, engine="reference"),
        )
        is None
        or unbind
    )
    again = fix_with_report(report.model, runtime)
    assert not again.rewritten, f"not a fixed point: {again}"
    return report
