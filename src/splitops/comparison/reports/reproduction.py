"""Write a disagreement as a folder for engineers: the model, a script, and a report ready to file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Final

import numpy as np

from splitops.comparison import worker
from splitops.comparison.driver.finding import adapter_files
from splitops.comparison.records import Case, CompareError, Entry, Peer, Report, Verdict
from splitops.comparison.reports.verdicts import (
    MEANINGS,
    RULES,
    SOURCES,
    described,
    releases,
    stated,
    written,
)
from splitops.errors import one_line, shown
from splitops.ground.writing import StagedFiles
from splitops.spec.elements.types import is_builtin

_FILES: Final = {"onnx": "model.onnx", "ir": "model.xml"}
_PACKAGES: Final = {"opencv": "opencv-python-headless"}
"""Releases that are not named as their packages are."""


def write_reproduction(report: Report, case: Case, peer: str, folder: Path) -> None:
    """Write a folder that shows one disagreement without splitops.

    It holds the model, its inputs (as ONNX's own test data has them, or ``.npy`` beside an IR), the
    adapter that called the implementation, ``reproduce.py``, which needs the implementation, NumPy and, for
    a model of ONNX, onnx, what the script reads (``case.json``), and ``report.md``.
    """
    with StagedFiles(make_folders=True) as files:
        for name, content in reproduction(report, case, peer).items():
            with files.open(folder / name) as file:
                file.write(content)


def reproduction(report: Report, case: Case, peer: str) -> dict[str, bytes]:
    """Return the files of :func:`write_reproduction` by name."""
    entry, column, verdict = _found(report, case.id, peer)
    adapter = adapter_files().get(column.adapter)
    if adapter is None:
        raise CompareError(f"there is no reproduction for implementations of {shown(column.adapter)}")
    install = _install(column, case.format, adapter)
    files = {_FILES[case.format]: case.model, **_inputs(case)}
    if case.weights is not None:
        files["model.bin"] = case.weights
    called = adapter.read_bytes().replace(b"from splitops.comparison.worker import", b"from worker import")
    files |= {f"adapter{adapter.suffix}": called, "worker.py": Path(worker.__file__).read_bytes()}
    if adapter.suffix == ".mjs":
        files["_node.mjs"] = adapter.with_name("_node.mjs").read_bytes()
    files["reproduce.py"] = Path(__file__).with_name("reproduce.py").read_bytes()
    asked = {"model": _FILES[case.format], "types": case.types, "outputs": case.outputs, "folder": "."}
    files["case.json"] = json.dumps(
        asked | {"setting": column.setting, "expected": _expected(entry)}
    ).encode()
    files["report.md"] = _report(report, entry, column, verdict, install).encode()
    return files


def _install(peer: Peer, format_: str, adapter: Path) -> str:
    """Return the command that installs what the script needs."""
    first, *others = (_PACKAGES.get(name, name) for name in peer.versions)
    base = [] if format_ == "ir" else ["onnx"]
    if adapter.suffix == ".mjs":
        return f"npm install {first}; pip install numpy {' '.join(base)}".rstrip()
    return f"pip install {' '.join(dict.fromkeys([first, *others, *base]))}"


def _found(report: Report, case: str, peer: str) -> tuple[Entry, Peer, Verdict]:
    for entry, column, verdict in report.findings:
        if entry.id == case and column.name == peer:
            return entry, column, verdict
    if not any(column.name == peer for column in report.peers):
        raise CompareError(f"there is no implementation {shown(peer)} in this comparison")
    raise CompareError(f"{shown(peer)} has no confirmed disagreement in case {shown(case)}")


def _inputs(case: Case) -> dict[str, bytes]:
    if case.format == "ir":
        return {f"{name}.npy": _npy(case, name) for name in case.inputs}
    from onnx import numpy_helper

    return {
        f"input_{index}.pb": numpy_helper.from_array(array, name).SerializeToString()
        for index, (name, array) in enumerate(case.inputs.items())
    }


def _npy(case: Case, name: str) -> bytes:
    array = case.inputs[name]
    if array.dtype.kind == "O":
        array = array.astype(np.str_)
    if array.dtype.kind not in "biufcU" or not is_builtin(array.dtype):
        raise CompareError(f"there is no reproduction of IR with an input of type {case.types[name]}")
    file = BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def _expected(entry: Entry) -> str:
    if isinstance(entry.expected, Mapping):
        return f"an error ({entry.expected['error']})"
    return "; ".join(map(written, entry.expected)) or "nothing"


def _comment(value: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in one_line(value, 90))


def _report(report: Report, entry: Entry, peer: Peer, verdict: Verdict, install: str) -> str:
    detail = verdict.detail or MEANINGS[verdict.word]
    settings = [f"{name} = {value}" for name, value in peer.setting.items()]
    place = {
        "versions": ", ".join([releases(peer), *settings]),
        "platform": report.environment.get("platform", "unknown"),
        "python": report.environment.get("python", "unknown"),
    }
    parts = [
        f"# {_comment(entry.title)}: {described(verdict)}",
        "## What the specification says",
        RULES.get(entry.rule) or _comment(entry.rule),
        f"Source: {SOURCES.get(entry.operator, 'see the specification of the operator')}",
        f"For the attached model it gives:\n\n{_block(_expected(entry))}",
        f"## What {_comment(peer.name)} does",
        f"{described(verdict)}{f' at {verdict.stage}' if verdict.stage else ''}:\n\n{_block(detail)}",
        *([f"It gives:\n\n{_block(chr(10).join(map(written, verdict.got)))}"] if verdict.got else []),
        f"Seen alone in {verdict.confirmed + 1} processes.",
        "## To reproduce",
        f"{_block(f'{install}{chr(10)}python reproduce.py')}",
        "## Where",
        "\n".join(f"- {name}: {_comment(str(value))}" for name, value in place.items()),
        *([f"The model, as data:\n\n{_block(json.dumps(stated(entry.record)))}"] if entry.record else []),
    ]
    return "\n\n".join(parts) + "\n"


def _block(text: str) -> str:
    """Set a text apart: by four spaces, which no text can end."""
    lines = ("".join(c if c.isprintable() else "?" for c in line) for line in text.splitlines())
    return "\n".join(f"    {line}" for line in lines)
