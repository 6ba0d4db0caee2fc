"""Convert a folder of ONNX models to several targets, and count those that give the same outputs.

Make the folder with ``python benchmarks/exported_models.py --out FOLDER``, which needs PyTorch, then run
``python benchmarks/exported_conversion.py FOLDER``. With ``--reach 13 17`` the models are only converted
to these opsets, not run, and what refuses the rest is named: for the many architectures that
``python benchmarks/architectures.py --out FOLDER`` writes.
"""

from __future__ import annotations

import argparse
import re
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import splitops

TARGETS = ("onnx:11", "onnx:13", "onnx:18", "onnx:23", "openvino")


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
            found[value.name] = random.standard_normal(shape).astype(dtype)
    return found


def outcome(model: onnx.ModelProto, target: str, inputs: dict[str, Any], expected: dict[str, Any]) -> str:
    """Return ``same``, ``other values`` or ``refused``."""
    report = splitops.convert(model, to=target, report=True)
    if not report.complete:
        return "refused"
    found = splitops.run(report.model, inputs)
    pairs = zip(expected.values(), found.values(), strict=True)
    return "same" if all(np.allclose(*pair, rtol=1e-4, atol=1e-5) for pair in pairs) else "other values"


def reach(folder: Path, opsets: list[int]) -> None:
    """Print how many models convert to each opset, the time for a node, and what refuses the rest."""
    for opset in opsets:
        reached, nodes, seconds = 0, 0, 0.0
        reasons: Counter[str] = Counter()
        paths = sorted(folder.rglob("*.onnx"))
        for path in paths:
            model = onnx.load(path)
            begin = time.process_time()
            report = splitops.convert(model, to=f"onnx:{opset}", report=True)
            seconds += time.process_time() - begin
            nodes += len(model.graph.node)
            reached += report.complete
            errors = [change.error for change in report.refusals] or [report.problem]
            reasons.update({re.sub(r"\d{3,}", "...", error.message)[:160] for error in errors if error})
        print(f"onnx:{opset}: {reached} of {len(paths)}, {seconds / max(nodes, 1) * 1e3:.2f} ms a node")
        for reason, count in reasons.most_common():
            print(f"  {count} models: {reason}")


def main() -> None:
    """Read the arguments."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--reach", type=int, nargs="+", metavar="OPSET")
    arguments = parser.parse_args()
    if arguments.reach:
        reach(arguments.folder, arguments.reach)
    else:
        compare(arguments.folder)


def compare(folder: Path) -> None:
    """Print a row for each target."""
    counts: dict[str, Counter[str]] = {target: Counter() for target in TARGETS}
    for path in sorted(folder.rglob("*.onnx")):
        model = onnx.load(path)
        inputs = feeds(model)
        expected = splitops.run(model, inputs)
        for target in TARGETS:
            counts[target][outcome(model, target, inputs, expected)] += 1
    print("| target | same outputs | other values | refused |\n| --- | --- | --- | --- |")
    for target, count in counts.items():
        print(f"| {target} | {count['same']} | {count['other values']} | {count['refused']} |")


if __name__ == "__main__":
    main()
