"""Carry networks from OpenVINO IR to ONNX and back, and compare what runtimes make of them.

``python benchmarks/networks.py FOLDER`` takes the ONNX files of a folder, as
``python benchmarks/exported_models.py --out FOLDER`` makes them. OpenVINO's own converter makes an IR of each
(kept in ``--ir FOLDER``). splitops makes ONNX of the IR and an IR of that again; onnxruntime and OpenVINO run
the three on the same inputs. Outputs are the same where they differ by at most 1e-5 of their largest number.

``--peer PYTHON`` is an interpreter with onnxifier, whose ONNX is run beside ours. Everything runs in
processes with bounded time and memory; ``--sample 40`` takes so many of the models, evenly over their names.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from exported_conversion import evenly, feeds

TOLERANCE = 1e-5
SECONDS = 240
BYTES = 6 << 30
OPSET = 18

PEER = """
import sys
from onnxifier import PassManager, convert_graph, OnnxGraph
import onnxifier
graph = onnxifier.convert_graph(sys.argv[1], target_opset_version=int(sys.argv[3]))
graph.save(sys.argv[2])
"""


def made_ir(path: Path, folder: Path) -> Path:
    """Return the IR that OpenVINO's converter makes of an ONNX file."""
    made = folder / f"{path.stem}.xml"
    if not made.exists():
        import openvino

        openvino.save_model(openvino.convert_model(path), made, compress_to_fp16=False)
    return made


def openvino_outputs(path: Path, inputs: Mapping[str, Any]) -> list[Any]:
    """Run an IR in the types that it states."""
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
    """Convert a model by splitops, and say what refuses it."""
    import splitops

    begin = time.process_time()
    report = splitops.convert(source, to=to, report=True)
    seconds = time.process_time() - begin
    if report.complete:
        report.save(target)
        return {"seconds": seconds}
    errors = [change.error for change in report.refusals] or [report.problem]
    reasons = [re.sub(r"'[^']*'|\d{3,}", "...", error.message)[:160] for error in errors if error]
    return {"seconds": seconds, "refused": sorted(set(reasons))}


JOBS = {"openvino": openvino_outputs, "onnxruntime": onnxruntime_outputs}


def one(arguments: Sequence[str]) -> None:
    """Do one step, in a process of its own."""
    resource.setrlimit(resource.RLIMIT_AS, (BYTES * 3, BYTES * 3))  # OpenVINO maps far more than it uses
    step, *rest = arguments
    if step == "ir":
        made_ir(Path(rest[0]), Path(rest[1]))
        answer: Any = {}
    elif step == "convert":
        answer = convert(Path(rest[0]), Path(rest[1]), rest[2])
    else:
        inputs = pickle.loads(Path(rest[1]).read_bytes())
        Path(rest[2]).write_bytes(pickle.dumps(JOBS[step](Path(rest[0]), inputs)))
        answer = {}
    print(json.dumps(answer))


def apart(command: Sequence[Any]) -> dict[str, Any]:
    """Run a step; an answer without ``failed`` is its own."""
    try:
        words = list(map(str, command))
        done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return {"failed": f"more than {SECONDS} s"}
    if done.returncode != 0:
        last = [line for line in done.stderr.strip().splitlines() if line.strip()][-1:] or ["no message"]
        return {"failed": f"ended with {done.returncode}: {last[0][:300]}"}
    lines = done.stdout.strip().splitlines()
    answer: dict[str, Any] = json.loads(lines[-1]) if lines and lines[-1].startswith("{") else {}
    return answer


def step(*words: Any) -> dict[str, Any]:
    """Run a step of this file."""
    return apart([sys.executable, __file__, "--one", *words])


def examine(path: Path, ir: Path, peer: str | None) -> dict[str, Any]:
    """Carry one network there and back."""
    import onnx

    made = step("ir", path, ir)
    if "failed" in made:
        return {"source": f"no IR: {made['failed']}"}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        inputs = folder / "inputs"
        inputs.write_bytes(pickle.dumps(feeds(onnx.load(path))))

        def outputs(engine: str, model: Path) -> Any:
            ran = step(engine, model, inputs, folder / "outputs")
            return ran["failed"] if "failed" in ran else pickle.loads((folder / "outputs").read_bytes())

        def verdict(engine: str, model: Path) -> str:
            found = outputs(engine, model)
            if isinstance(found, str):
                return f"does not run: {found}"
            by = difference(expected, found)
            return "same" if by <= TOLERANCE else f"other values: {by:.1e}"

        source = ir / f"{path.stem}.xml"
        expected = outputs("openvino", source)
        if isinstance(expected, str):
            return {"source": f"IR does not run: {expected}"}
        found: dict[str, Any] = {"source": "runs"}
        there, back = folder / "there.onnx", folder / "back.xml"
        for key, (given, target, to, engine) in {
            "there": (source, there, f"onnx:{OPSET}", "onnxruntime"),
            "back": (there, back, "openvino", "openvino"),
        }.items():
            converted = step("convert", given, target, to)
            found[key] = converted
            if "refused" in converted or "failed" in converted:
                converted["values"] = "refused" if "refused" in converted else converted["failed"]
                break
            converted["values"] = verdict(engine, target)
        if peer is not None:
            other = folder / "peer.onnx"
            converted = apart([peer, "-c", PEER, source, other, OPSET])
            found["peer"] = {"values": converted.get("failed") or verdict("onnxruntime", other)}
        return found


def kind(values: str) -> str:
    """Return a verdict without its figure."""
    return values.split(":")[0] if values.split(":")[0] in KINDS else "no model"


KINDS = ("same", "other values", "does not run", "refused")


def table(answers: Mapping[str, Mapping[str, Any]], with_peer: bool) -> str:
    """Return what became of the networks, and what refuses the rest."""
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
        for reason in answer.get(key, {}).get("refused", ())
    )
    lines += ["", *(f"- {count} refused: {reason}" for reason, count in reasons.most_common())]
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
        one(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ir", type=Path, help="where the IRs are kept")
    parser.add_argument("--peer", metavar="PYTHON", help="an interpreter that has onnxifier")
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
    print(table(answers, arguments.peer is not None))


if __name__ == "__main__":
    main()
