"""Convert a folder of ONNX models to several targets, and count those that give the same outputs.

Make the folder with ``tasks.py bench exported_models --out FOLDER``, which needs PyTorch, then run
``tasks.py bench exported_conversion FOLDER``, which runs the models with splitops.

With ``--reach 13 17`` the models are converted to these opsets and simplified, and run by onnxruntime before
and after; what rejects the rest is named: for the many architectures that
``tasks.py bench architectures --out FOLDER`` writes.
``--sample 60`` takes so many of them, evenly over the sorted names. Each model has a process of its own, with
bounded time and memory.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import splitops

TARGETS = ("onnx:11", "onnx:13", "onnx:18", "onnx:23", "openvino")
SECONDS = 300
BYTES = 6 << 30
Outputs = tuple[list[Any], list[Any]]
"""The outputs of the operators as they are written, and after onnxruntime's default optimisation."""
TOLERANCE = 1e-5
"""How far outputs may differ where a body of a schema stands for an operator, beside their largest number."""


def feeds(model: onnx.ModelProto) -> dict[str, Any]:
    """Random inputs of the declared types and shapes; a symbolic size is 3."""
    random = np.random.default_rng(0)
    defaults = {tensor.name for tensor in model.graph.initializer}
    found = {}
    for value in model.graph.input:
        if value.name not in defaults:
            kind = value.type.tensor_type
            shape = [dim.dim_value or 3 for dim in kind.shape.dim]
            dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
            if dtype.kind in "iu":  # positions in a table, often
                found[value.name] = random.integers(0, 5, shape).astype(dtype)
            else:
                found[value.name] = random.standard_normal(shape).astype(dtype)
    return found


def outcome(model: onnx.ModelProto, target: str, inputs: dict[str, Any], expected: dict[str, Any]) -> str:
    """Return ``same``, ``other values`` or ``rejected``."""
    report = splitops.convert_with_report(model, to=target)
    if not report.complete:
        return "rejected"
    found = splitops.run(report.model, inputs)
    pairs = zip(expected.values(), found.values(), strict=True)
    return "same" if all(np.allclose(*pair, rtol=1e-4, atol=1e-5) for pair in pairs) else "other values"


def onnxruntime_outputs(model: onnx.ModelProto, inputs: dict[str, Any], *, as_written: bool) -> list[Any]:
    """Run a model; as written, without the fusions that give other bits to the same operators."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    if as_written:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    content = model.SerializeToString()
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    outputs: list[Any] = session.run(None, inputs)
    return outputs


def verdict(before: Sequence[Any], after: Sequence[Any]) -> str:
    """Return how two lists of outputs compare: ``same bits``, ``close`` or ``other values``."""
    if [np.shape(value) for value in before] != [np.shape(value) for value in after]:
        return "other values"
    pairs = [(np.asarray(a), np.asarray(b)) for a, b in zip(before, after, strict=True)]
    if all(a.dtype == b.dtype and a.tobytes() == b.tobytes() for a, b in pairs):
        return "same bits"
    return "close" if all(_close(a, b) for a, b in pairs) else "other values"


def _close(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    if a.dtype != b.dtype or a.dtype.kind not in "fc":
        return bool(np.array_equal(a, b))
    scale = float(np.max(np.abs(a), initial=1, where=np.isfinite(a)))
    return bool(np.allclose(a, b, rtol=0, atol=TOLERANCE * scale, equal_nan=True))


def outputs_or_reason(model: onnx.ModelProto, inputs: dict[str, Any]) -> Outputs | str:
    """Return the outputs as written and as optimised by default, or why there are none."""
    try:
        return (
            onnxruntime_outputs(model, inputs, as_written=True),
            onnxruntime_outputs(model, inputs, as_written=False),
        )
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:300]}"


def compared(before: Outputs | str, model: onnx.ModelProto, inputs: dict[str, Any]) -> str:
    """Return how a rewritten model compares with its source: the worse of both ways to run it."""
    if isinstance(before, str):
        return "source does not run"
    after = outputs_or_reason(model, inputs)
    if isinstance(after, str):
        return f"does not run: {after}"
    as_written, optimised = (verdict(*pair) for pair in zip(before, after, strict=True))
    # A fusion that finds one form and not the other changes bits: only what is written has to keep them.
    return "other values" if optimised == "other values" else as_written


def examine(path: Path, opsets: Sequence[int]) -> dict[str, Any]:
    """Convert one model to each opset and simplify it; say how far it comes and what the outputs are."""
    model = onnx.load(path)
    inputs = feeds(model)
    before = outputs_or_reason(model, inputs)
    found: dict[str, Any] = {"nodes": len(model.graph.node)}
    for opset in opsets:
        begin = time.process_time()
        report = splitops.convert_with_report(model, to=f"onnx:{opset}")
        seconds = time.process_time() - begin
        errors = [change.error for change in report.rejections] or [report.problem]
        reasons = sorted({re.sub(r"\d{3,}", "...", error.message)[:160] for error in errors if error})
        values = compared(before, report.model, inputs) if report.complete else "rejected"
        found[f"onnx:{opset}"] = {"seconds": seconds, "reasons": reasons, "values": values}
    begin = time.process_time()
    simplified = splitops.simplify(model)
    seconds = time.process_time() - begin
    found["simplify"] = {"seconds": seconds, "reasons": [], "values": compared(before, simplified, inputs)}
    return found


def examine_apart(path: Path, opsets: Sequence[int]) -> dict[str, Any] | str:
    """Examine a model in a process of its own; return why there is no answer otherwise."""
    command = [sys.executable, __file__, str(path), "--one", "--reach", *map(str, opsets)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"more than {SECONDS} s"
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        return f"ended with {done.returncode}: {last[0][:200]}"
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def reach(paths: Sequence[Path], opsets: Sequence[int]) -> None:
    """Print how many models come through, with which outputs, in what time, and what rejects the rest."""
    answers = {}
    for path in paths:
        answers[path] = examine_apart(path, opsets)
        print(f"{path.name}: {answers[path]}", file=sys.stderr, flush=True)
    failed = {path: answer for path, answer in answers.items() if isinstance(answer, str)}
    found = {path: answer for path, answer in answers.items() if isinstance(answer, dict)}
    nodes = sum(answer["nodes"] for answer in found.values())
    for rewrite in [*(f"onnx:{opset}" for opset in opsets), "simplify"]:
        rows = {path: answer[rewrite] for path, answer in found.items()}
        seconds = sum(row["seconds"] for row in rows.values())
        values = Counter(row["values"].split(":")[0] for row in rows.values())
        reached = len(rows) - values["rejected"]
        each = seconds / max(nodes, 1) * 1e3
        print(f"{rewrite}: {reached} of {len(paths)}, {each:.2f} ms a node, imports included")
        print(f"  {', '.join(f'{count} {name}' for name, count in values.most_common())}")
        for path, row in rows.items():
            if row["values"].startswith(("other values", "does not run")):
                print(f"  {path.name}: {row['values']}")
        reasons = Counter(reason for row in rows.values() for reason in row["reasons"])
        for reason, count in reasons.most_common():
            print(f"  {count} models: {reason}")
    for path, answer in failed.items():
        print(f"{path.name}: {answer}")


def evenly(paths: Sequence[Path], count: int | None) -> list[Path]:
    """Return so many of the paths, as far apart as possible."""
    if count is None or count >= len(paths):
        return list(paths)
    return [paths[number * len(paths) // count] for number in range(count)]


def main() -> None:
    """Read the arguments."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--reach", type=int, nargs="+", metavar="OPSET")
    parser.add_argument("--sample", type=int, metavar="COUNT")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
        print(json.dumps(examine(arguments.folder, arguments.reach)))
        return
    paths = evenly(sorted(arguments.folder.rglob("*.onnx")), arguments.sample)
    if arguments.reach:
        reach(paths, arguments.reach)
    else:
        compare(paths)


def compare(paths: Sequence[Path]) -> None:
    """Print a row for each target."""
    counts: dict[str, Counter[str]] = {target: Counter() for target in TARGETS}
    for path in paths:
        model = onnx.load(path)
        inputs = feeds(model)
        expected = splitops.run(model, inputs)
        for target in TARGETS:
            counts[target][outcome(model, target, inputs, expected)] += 1
    print("| target | same outputs | other values | rejected |\n| --- | --- | --- | --- |")
    for target, count in counts.items():
        print(f"| {target} | {count['same']} | {count['other values']} | {count['rejected']} |")


if __name__ == "__main__":
    main()
