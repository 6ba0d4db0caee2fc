"""Carry networks from OpenVINO IR to ONNX and back, and compare what runtimes make of them.

``tasks.py bench networks FOLDER`` takes the ONNX files of a folder, as ``python
dev/benchmarks/architectures.py --out FOLDER`` makes them. OpenVINO's own converter makes an IR of each (kept
in ``--ir FOLDER``). splitops makes ONNX of the IR and an IR of that again; onnxruntime and OpenVINO run the
three on the same inputs. Outputs are the same where they differ by at most 1e-5 of their largest number.

``--peer PYTHON`` is an interpreter with onnxifier, whose ONNX is run beside ours. Everything runs in
processes with bounded time and memory; ``--sample 40`` takes so many of the models, evenly over their names.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dev.benchmarks.exported_conversion import evenly, feeds

TOLERANCE = 1e-5
SECONDS = 240
BYTES = 24 << 30  # of addresses: OpenVINO maps far more than it uses
OPSET = 17
Engine = Callable[[Path, Mapping[str, Any]], list[Any]]


def made_ir(path: Path, folder: Path) -> Path:
    """Return the IR that OpenVINO's converter makes of an ONNX file."""
    made = folder / f"{path.stem}.xml"
    if not made.exists():
        import openvino

        openvino.save_model(openvino.convert_model(path), made, compress_to_fp16=False)
    return made


def openvino_outputs(path: Path, inputs: Mapping[str, Any]) -> list[Any]:
    """Run an IR in the types that it declares."""
    import openvino

    core = openvino.Core()
    compiled = core.compile_model(
        path, "CPU", {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}
    )
    named = {value.any_name: value.names for value in compiled.inputs}
    given = {name: next(inputs[own] for own in names if own in inputs) for name, names in named.items()}
    found = compiled(given)
    return [found[output] for output in compiled.outputs]


def onnxruntime_outputs(path: Path, inputs: Mapping[str, Any]) -> list[Any]:
    """Run an ONNX model."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = {value.name for value in session.get_inputs()}
    outputs: list[Any] = session.run(None, {name: value for name, value in inputs.items() if name in names})
    return outputs


def difference(before: Sequence[Any], after: Sequence[Any]) -> float:
    """Return how far outputs are apart, as a part of their largest number; infinite where they do not fit."""
    if [np.shape(value) for value in before] != [np.shape(value) for value in after]:
        return float("inf")
    apart = 0.0
    for left, right in zip(before, after, strict=True):
        a, b = np.asarray(left, np.float64), np.asarray(right, np.float64)
        finite = np.isfinite(a) & np.isfinite(b)
        if not np.array_equal(np.where(finite, 0, a), np.where(finite, 0, b), equal_nan=True):
            return float("inf")
        scale = max(float(np.max(np.abs(a), initial=0, where=finite)), 1e-30)
        apart = max(apart, float(np.max(np.abs(a - b), initial=0, where=finite)) / scale)
    return apart


def convert(source: Path, target: Path, to: str) -> dict[str, Any]:
    """Convert a model by splitops, and say what rejects it."""
    import splitops

    begin = time.process_time()
    report = splitops.convert_with_report(source, to=to)
    seconds = time.process_time() - begin
    if report.complete:
        report.save(target)
        return {"seconds": seconds}
    errors = [change.error for change in report.rejections] or [report.problem]
    reasons = [re.sub(r"'[^']*'|\d{3,}", "...", error.message)[:160] for error in errors if error]
    return {"seconds": seconds, "values": "rejected", "rejected": sorted(set(reasons))}


def verdict(expected: Sequence[Any], engine: Engine, model: Path, inputs: Mapping[str, Any]) -> str:
    """Run a model and say how its outputs compare."""
    try:
        by = difference(expected, engine(model, inputs))
    except Exception as error:
        return f"does not run: {' '.join(str(error).split())[:300]}"
    return "same" if by <= TOLERANCE else f"other values: {by:.1e}"


def carry(path: Path, ir: Path, peer: str) -> Iterator[tuple[str, Any]]:
    """Carry one network there and back; yield the result of each step."""
    import onnx

    inputs = feeds(onnx.load(path))
    source = made_ir(path, ir)
    expected = openvino_outputs(source, inputs)
    yield "source", "runs"
    with tempfile.TemporaryDirectory() as name:
        there, back = Path(name) / "there.onnx", Path(name) / "back.xml"
        found = convert(source, there, f"onnx:{OPSET}")
        yield "there", {"values": verdict(expected, onnxruntime_outputs, there, inputs)} | found
        if there.exists():
            found = convert(there, back, "openvino")
            yield "back", {"values": verdict(expected, openvino_outputs, back, inputs)} | found
        if peer:
            other = Path(name) / "peer.onnx"
            command = [peer, "-m", "onnxifier", str(source), str(other), "-n", "-u", "-v", str(OPSET)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            values = (
                verdict(expected, onnxruntime_outputs, other, inputs) if other.exists() else last_line(done)
            )
            yield "peer", {"values": values}


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    """Return what a process said last."""
    lines = [line for line in done.stderr.splitlines() if line.strip()] or ["no message"]
    return f"ended with {done.returncode}: {lines[-1][:300]}"


def examine(path: Path, ir: Path, peer: str) -> dict[str, Any]:
    """Carry one network there and back, in a process of its own with bounded time and memory."""
    command = [sys.executable, __file__, "--one", str(path), str(ir), peer]
    with tempfile.TemporaryFile("w+") as output:
        try:
            done = subprocess.run(
                command, stdout=output, stderr=subprocess.PIPE, text=True, timeout=SECONDS, check=False
            )
            failed = last_line(done) if done.returncode else None
        except subprocess.TimeoutExpired:
            failed = f"more than {SECONDS} s"
        output.seek(0)
        found = dict(json.loads(line) for line in output if line.startswith("["))
    for key in ("source", "there", "back", *(["peer"] if peer else [])):
        if key not in found and failed is not None:
            found[key] = failed if key == "source" else {"values": failed}
            break
    return found


def kind(values: str) -> str:
    """Return a verdict without its figure."""
    return values.split(":")[0] if values.split(":")[0] in KINDS else "no model"


KINDS = ("same", "other values", "does not run", "rejected")


def table(answers: Mapping[str, Mapping[str, Any]], with_peer: bool) -> str:
    """Return the result of the networks, and what rejects the rest."""
    rows = {"IR to ONNX": "there", "and back to IR": "back"} | (
        {"IR to ONNX by onnxifier": "peer"} if with_peer else {}
    )
    ran = {name: answer for name, answer in answers.items() if answer["source"] == "runs"}
    lines = [f"{len(ran)} networks of {len(answers)} have an IR that OpenVINO runs.", ""]
    lines += [f"| conversion | {' | '.join([*KINDS, 'no model'])} |", "| --- | --- | --- | --- | --- | --- |"]
    for title, key in rows.items():
        counts = Counter(kind(answer[key]["values"]) for answer in ran.values() if key in answer)
        lines.append(f"| {title} | {' | '.join(str(counts[name]) for name in (*KINDS, 'no model'))} |")
    reasons = Counter(
        reason
        for answer in ran.values()
        for key in ("there", "back")
        for reason in answer.get(key, {}).get("rejected", ())
    )
    lines += ["", *(f"- {count} rejected: {reason}" for reason, count in reasons.most_common())]
    for name, answer in answers.items():
        told = [answer["source"]] if answer["source"] != "runs" else []
        told += [
            f"{key}: {answer[key]['values']}"
            for key in ("there", "back")
            if key in answer and answer[key]["values"] != "same"
        ]
        lines += [f"- {name}: {'; '.join(told)}"] if told else []
    return "\n".join(lines)


def main() -> None:
    """Read the arguments."""
    if sys.argv[1:2] == ["--one"]:
        resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
        path, ir, peer = sys.argv[2:]
        for answer in carry(Path(path), Path(ir), peer):
            print(json.dumps(answer), flush=True)
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ir", type=Path, help="where the IRs are kept")
    parser.add_argument("--peer", metavar="PYTHON", default="", help="an interpreter that has onnxifier")
    parser.add_argument("--sample", type=int, metavar="COUNT")
    parser.add_argument("--results", type=Path, help="a JSON file of every answer")
    arguments = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as name:
        ir = arguments.ir or Path(name)
        ir.mkdir(parents=True, exist_ok=True)
        answers = {}
        for path in evenly(sorted(arguments.folder.rglob("*.onnx")), arguments.sample):
            answers[path.stem] = examine(path, ir, arguments.peer)
            print(f"{path.stem}: {json.dumps(answers[path.stem])}", file=sys.stderr, flush=True)
            if arguments.results:
                arguments.results.write_text(json.dumps(answers, indent=1))
    print(table(answers, bool(arguments.peer)))


if __name__ == "__main__":
    main()
