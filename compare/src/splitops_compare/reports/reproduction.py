"""Writes a finding as a folder for engineers: the model, a script, and a report that is ready to file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Final

import numpy as np
from onnx import numpy_helper

from splitops.errors import one_line, shown
from splitops.extension import StagedFiles
from splitops_compare import worker
from splitops_compare.data import (
    Case,
    CaseResult,
    CompareError,
    ComparisonReport,
    ImplementationInfo,
    Verdict,
)
from splitops_compare.driver.discovery import find_adapters
from splitops_compare.reports.verdicts import (
    MEANINGS,
    RULES,
    SOURCES,
    describe_verdict,
    format_output,
    format_releases,
    make_spec_json,
)

_MODEL_FILES: Final = {"onnx": "model.onnx", "ir": "model.xml"}
_PACKAGES: Final = {"opencv": "opencv-python-headless"}
"""Packages, keyed by the names under which their releases are reported, if these differ."""
_REGISTERED: Final = 2
"""``numpy.dtype.isbuiltin`` of the types of other libraries, such as ml_dtypes."""


def write_reproduction(report: ComparisonReport, case: Case, name: str, folder: Path) -> None:
    """Write a folder that reproduces a finding without splitops.

    It contains the model, its inputs (in the format of ONNX test data, or ``.npy`` for an IR), the adapter,
    the script ``reproduce.py`` with its data ``case.json`` and the module ``worker.py``, and ``report.md``.
    The script needs the implementation, NumPy, onnx for an ONNX model, and Node.js for a ``.mjs`` adapter.

    Args:
        report: the report with the finding.
        case: the case.
        name: name of the implementation.
        folder: folder to write.

    Raises:
        CompareError: the report does not have the finding, or it cannot be reproduced without splitops.
    """
    with StagedFiles(make_folders=True) as files:
        for path, content in make_reproduction(report, case, name).items():
            with files.open(folder / path) as file:
                file.write(content)


def make_reproduction(report: ComparisonReport, case: Case, name: str) -> dict[str, bytes]:
    """Return the contents of the files that :func:`write_reproduction` writes, keyed by name."""
    result, info, verdict = _find_finding(report, case.id, name)
    adapter = find_adapters().get(info.adapter)
    if adapter is None:
        raise CompareError(f"there is no reproduction for implementations of {shown(info.adapter)}")
    install = _format_install_command(info, case.format, adapter)
    files = {_MODEL_FILES[case.format]: case.model, **_make_inputs(case)}
    if case.weights is not None:
        files["model.bin"] = case.weights
    content = adapter.read_bytes().replace(b"from splitops_compare.worker import", b"from worker import")
    files |= {f"adapter{adapter.suffix}": content, "worker.py": Path(worker.__file__).read_bytes()}
    if adapter.suffix == ".mjs":
        files["_node.mjs"] = adapter.with_name("_node.mjs").read_bytes()
    files["reproduce.py"] = Path(__file__).with_name("reproduce.py").read_bytes()
    data = {
        "model": _MODEL_FILES[case.format],
        "types": case.types,
        "outputs": case.outputs,
        "folder": ".",
        "setting": info.setting,
        "expected": _format_expected(result),
    }
    files["case.json"] = json.dumps(data).encode()
    files["report.md"] = _format_report(report, result, info, verdict, install).encode()
    return files


def _format_install_command(info: ImplementationInfo, format_: str, adapter: Path) -> str:
    """Format the command that installs the packages that the script needs."""
    first, *others = (_PACKAGES.get(name, name) for name in info.versions)
    base = [] if format_ == "ir" else ["onnx"]
    if adapter.suffix == ".mjs":
        return f"npm install {first}; pip install numpy {' '.join(base)}".rstrip()
    return f"pip install {' '.join(dict.fromkeys([first, *others, *base]))}"


def _find_finding(
    report: ComparisonReport, case: str, name: str
) -> tuple[CaseResult, ImplementationInfo, Verdict]:
    for result, info, verdict in report.findings:
        if result.id == case and info.name == name:
            return result, info, verdict
    if not any(info.name == name for info in report.implementations):
        raise CompareError(f"there is no implementation {shown(name)} in this comparison")
    raise CompareError(f"{shown(name)} has no confirmed finding in case {shown(case)}")


def _make_inputs(case: Case) -> dict[str, bytes]:
    if case.format == "ir":
        return {f"{name}.npy": _make_npy(case, name) for name in case.inputs}
    return {
        f"input_{index}.pb": numpy_helper.from_array(array, name).SerializeToString()
        for index, (name, array) in enumerate(case.inputs.items())
    }


def _make_npy(case: Case, name: str) -> bytes:
    array = case.inputs[name]
    if array.dtype.kind == "O":
        array = array.astype(np.str_)
    if array.dtype.kind not in "biufcU" or array.dtype.isbuiltin == _REGISTERED:
        raise CompareError(f"there is no reproduction of IR with an input of type {case.types[name]}")
    file = BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def _format_expected(result: CaseResult) -> str:
    if isinstance(result.expected, Mapping):
        return f"an error ({result.expected['error']})"
    return "; ".join(map(format_output, result.expected)) or "nothing"


def _escape(value: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in one_line(value, 90))


def _format_report(
    report: ComparisonReport, result: CaseResult, info: ImplementationInfo, verdict: Verdict, install: str
) -> str:
    label = describe_verdict(verdict)
    detail = verdict.detail or MEANINGS[verdict.kind]
    settings = [f"{name} = {value}" for name, value in info.setting.items()]
    environment = {
        "versions": ", ".join([format_releases(info), *settings]),
        "platform": report.environment.get("platform", "unknown"),
        "python": report.environment.get("python", "unknown"),
    }
    parts = [
        f"# {_escape(result.title)}: {label}",
        "## Specification",
        RULES.get(result.rule) or _escape(result.rule),
        f"Source: {SOURCES.get(result.operator, 'see the specification of the operator')}",
        f"The attached model must return:\n\n{_format_block(_format_expected(result))}",
        f"## Result of {_escape(info.name)}",
        f"{label}{f' at {verdict.stage}' if verdict.stage else ''}:\n\n{_format_block(detail)}",
        *(
            [f"It returns:\n\n{_format_block(chr(10).join(map(format_output, verdict.got)))}"]
            if verdict.got
            else []
        ),
        f"Confirmed in {verdict.confirmed + 1} processes.",
        "## How to reproduce it",
        f"{_format_block(f'{install}{chr(10)}python reproduce.py')}",
        "## Environment",
        "\n".join(f"- {name}: {_escape(str(value))}" for name, value in environment.items()),
        *(
            [f"The model, as data:\n\n{_format_block(json.dumps(make_spec_json(result.spec)))}"]
            if result.spec
            else []
        ),
    ]
    return "\n\n".join(parts) + "\n"


def _format_block(text: str) -> str:
    """Format text as a Markdown code block by indentation, since the text could close a fence."""
    lines = ("".join(c if c.isprintable() else "?" for c in line) for line in text.splitlines())
    return "\n".join(f"    {line}" for line in lines)
