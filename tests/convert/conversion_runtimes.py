"""Runtimes in processes of their own: what crashes there is an answer."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_PROGRAMS = {
    "onnxruntime": """
import onnxruntime
onnxruntime.set_default_logger_severity(4)
def run(path, feeds):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)
""",
    "openvino": """
import ml_dtypes, numpy, openvino
core = openvino.Core()
def given(array):
    if array.dtype == object:
        return array.astype(str)
    if array.dtype == ml_dtypes.bfloat16:
        return openvino.Tensor(array.view(numpy.uint16), array.shape, openvino.Type.bf16)
    return array
def taken(output, array):
    if array.dtype.kind in "US":
        return array.astype(str).astype(object)
    if output.element_type == openvino.Type.bf16:
        return array.view(ml_dtypes.bfloat16)
    return array
def run(path, feeds):
    options = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}
    compiled = core.compile_model(path, "CPU", options)
    result = compiled({name: given(array) for name, array in feeds.items()})
    return [taken(output, result[output]) for output in compiled.outputs]
""",
}
"""Each runs a model from a path: inputs by name, outputs in their order."""

_PROGRAMS["layers"] = (
    _PROGRAMS["openvino"]
    + """
from openvino.opset13 import constant, parameter, result
from openvino.utils.node_factory import NodeFactory
run_model = run
def made(value, parameters):
    if not isinstance(value, tuple):
        return constant(value)
    array, shape = value
    name = f"x{len(parameters)}"
    parameters.append(parameter(list(array.shape if shape is None else shape), array.dtype, name))
    parameters[-1].output(0).set_names({name})
    return parameters[-1]
def run(path, case):
    kind, opset, inputs, attributes, outputs, feeds, runs = case
    parameters = []
    taken = [made(value, parameters) for value in inputs]
    layer = NodeFactory(f"opset{opset}").create(kind, taken, attributes)
    results = [result(layer.output(index), name=f"y{index}") for index in outputs]
    model = openvino.Model(results, parameters, "case")
    openvino.save_model(model, path, compress_to_fp16=False)
    return run_model(path, feeds) if runs else []
"""
)
"""Makes a model of one layer and writes it to the path; runs it where it is asked to."""

_DRIVER = """
import pickle, sys
jobs = pickle.load(open(sys.argv[1], "rb"))
for key, path, all_feeds in jobs:
    try:
        found = [run(path, feeds) for feeds in all_feeds]
    except Exception as error:
        found = f"{type(error).__name__}: {error}"
    with open(sys.argv[2], "ab") as file:
        pickle.dump((key, found), file)
"""


def run_apart(runtime: str, jobs: Sequence[tuple[Any, str, Any]], folder: Path) -> dict[Any, Any]:
    """Run in a process of its own, and again behind a model at which the runtime crashed.

    Args:
        runtime: the program.
        jobs: a key, the path of a model, and the inputs of each run.
        folder: where files may be written.

    Returns:
        The outputs of each run by key, or why there are none.
    """
    results: dict[Any, Any] = {}
    while len(results) < len(jobs):
        (folder / "jobs").write_bytes(pickle.dumps(jobs[len(results) :]))
        (folder / "results").write_bytes(b"")
        command = [sys.executable, "-c", _PROGRAMS[runtime] + _DRIVER, folder / "jobs", folder / "results"]
        subprocess.run(command, check=False, capture_output=True, timeout=300)
        with (folder / "results").open("rb") as file:
            while True:
                try:
                    key, found = pickle.load(file)
                except EOFError:
                    break
                results[key] = found
        if len(results) < len(jobs):
            results[jobs[len(results)][0]] = "crashed"
    return results
