"""Write the matrix of docs/convert.md: every way to state a split, converted to every version.

Beside splitops' own result stands what onnx's version converter, onnxscript's and OpenVINO's frontend make of
the same model. Usage: ``tasks.py bench conversion_matrix [--check]``.
"""

from __future__ import annotations

import io
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
from onnx import ModelProto

from splitops.models.convert import convert_with_report
from splitops.models.formats.openvino import from_bytes

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests" / "convert"))

from conversion_cases import CASES, Case
from conversion_results import BEGIN, DOCUMENT, END, equal, outputs, own_result

SAME, OTHER, NONE, NOT_ASKED = "same", "**other values**", "no model", "-"


def _judged(case: Case, make: Callable[[], Any]) -> str:
    try:
        model = make()
        if isinstance(model, ModelProto):
            onnx.checker.check_model(model)
        found = outputs(case, model)
    except Exception:
        return NONE
    return SAME if equal(found, outputs(case, case.build())) else OTHER


def _by_onnx(model: ModelProto, opset: int) -> ModelProto:
    return onnx.version_converter.convert_version(model, opset)


def _by_onnxscript(model: ModelProto, opset: int) -> ModelProto:
    import onnx_ir
    from onnxscript import version_converter

    edited = onnx_ir.from_proto(model)
    version_converter.convert_version(edited, opset)
    proto = onnx_ir.to_proto(edited)
    if [entry.version for entry in proto.opset_import if entry.domain == ""] != [opset]:
        raise ValueError("the model keeps its opset")
    return proto


def _by_openvino(model: ModelProto) -> Any:
    import tempfile

    import openvino

    converted = openvino.convert_model(io.BytesIO(model.SerializeToString()))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.xml"
        openvino.save_model(converted, path, compress_to_fp16=False)
        return from_bytes(path.read_bytes(), path.with_suffix(".bin").read_bytes())


def others(case: Case, target: str) -> tuple[str, ...]:
    """Return what the other converters produce for a case: onnx and onnxscript, or OpenVINO."""
    model = case.build()
    if not isinstance(model, ModelProto):
        return ()
    if target == "openvino":
        return (_judged(case, lambda: _by_openvino(model)),)
    opset = int(target.partition(":")[2])
    if opset == model.opset_import[0].version:
        return (NOT_ASKED, NOT_ASKED)
    return tuple(_judged(case, lambda by=by: by(model, opset)) for by in (_by_onnx, _by_onnxscript))


def matrix() -> str:
    """Return the tables as Markdown."""
    lines: list[str] = []
    count: Counter[tuple[str, str]] = Counter()
    worse: list[str] = []
    heading: tuple[str, ...] | None = None
    for case in CASES:
        if heading != (case.targets, case.source):
            if heading is None or heading[1] != case.source:
                lines += ["", f"### From {case.source}", ""]
            heading = case.targets, case.source
            lines.append(f"| form | {' | '.join(case.targets)} |")
            lines.append("|---" * (len(case.targets) + 1) + "|")
        cells = []
        for target in case.targets:
            own, found = own_result(convert_with_report(case.build(), to=target)), others(case, target)
            cells.append("<br>".join([own, " · ".join(found)] if found else [own]))
            names = ("OpenVINO",) if target == "openvino" else ("onnx", "onnxscript")
            for name, result in zip(names, found, strict=False):
                count[name, result] += 1
                if result != NOT_ASKED:
                    count[f"splitops, where {name} is asked", "rejected" if "rejected" in own else SAME] += 1
                if result == SAME and "rejected" in own:
                    worse.append(f"{case.label} to {target} by {name}")
        lines.append(f"| {case.form} | {' | '.join(cells)} |")
    summary = ["| converter | same values | other values | no model or rejected |", "|---|---|---|---|"]
    for name in ("onnx", "onnxscript", "OpenVINO"):
        for label in (name, f"splitops, where {name} is asked"):
            none = count[label, NONE] + count[label, "rejected"]
            summary.append(f"| {label} | {count[label, SAME]} | {count[label, OTHER]} | {none} |")
    verdict = f"Cells that another converter fills and splitops rejects: {len(worse)}."
    summary += ["", verdict, *(f"- {line}" for line in worse)]
    return "\n".join([*summary, *lines])


def main() -> None:
    text = DOCUMENT.read_text()
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    made = f"{head}{BEGIN}\n{matrix()}\n{END}{tail}"
    if "--check" in sys.argv:
        sys.exit(0 if made == text else "docs/convert.md is not what this command makes")
    DOCUMENT.write_text(made)


if __name__ == "__main__":
    main()
