"""Asks runtimes about models, each in a process of its own that may end."""

from __future__ import annotations

import importlib
import os
import pickle
import signal
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import onnx.parser

import splitops
from splitops.models.formats.openvino import OpenVINOModel, to_bytes

Answer = tuple[str, Any]
_WARM = """
    <ir_version: 9, opset_import: ["": 18]> g (float[4, 1] x) => (float[m, 1] y, float[n, 1] z)
    { a, b = Split<axis = 0, num_outputs = 2>(x)  y = Concat<axis = -2>(b, a)  z = Relu(x) }"""


def warm() -> None:
    """Import here what every child would import again; no runtime begins a thread by that."""
    for name in ("onnxruntime", "openvino"):
        importlib.import_module(name)
    model = onnx.parser.parse_model(_WARM)
    splitops.run(model, {"x": np.zeros((4, 1), np.float32)}, engine="reference")
    splitops.check(splitops.convert(model, "openvino"), "openvino")
    splitops.fix(splitops.simplify(model), "openvino")
    for name in ("onnx", "openvino", "legality"):
        importlib.import_module(f"splitops.models.sessions.{name}")


def apart(work: Callable[[], Any]) -> Answer:
    """Return ``("ok", value)``, ``("error", text)`` or ``("died", signal)``."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        signal.alarm(60)
        try:
            answer: Answer = "ok", work()
        except BaseException as error:
            answer = "error", f"{type(error).__name__}: {' '.join(str(error).split())[-300:]}"
        with os.fdopen(writing, "wb") as pipe:
            pickle.dump(answer, pipe)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        content = pipe.read()
    _, status = os.waitpid(child, 0)
    if content:
        found: Answer = pickle.loads(content)  # noqa: S301
        return found
    return "died", signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else str(status)


def on_onnxruntime(model: onnx.ModelProto, feeds: Mapping[str, Any], *, optimized: bool) -> list[Any]:
    """Return the outputs of a model on onnxruntime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    if not optimized:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return list(onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, dict(feeds)))


def on_openvino(model: onnx.ModelProto | OpenVINOModel, feeds: Mapping[str, Any]) -> list[Any]:
    """Return the outputs of a model on OpenVINO."""
    import openvino

    core = openvino.Core()
    if isinstance(model, OpenVINOModel):
        content, weights = to_bytes(model)
        held = np.frombuffer(weights or b"\0", np.uint8).copy()
        read = core.read_model(content, openvino.Tensor(held))
    else:
        read = core.read_model(model.SerializeToString())
    compiled = core.compile_model(
        read, "CPU", {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}
    )
    request = compiled.create_infer_request()
    places = {name: index for index, port in enumerate(compiled.inputs) for name in port.names}
    request.infer({places[name]: value for name, value in feeds.items() if name in places})
    return [np.array(request.get_output_tensor(index).data) for index in range(len(compiled.outputs))]


def verdict(wanted: list[Any], answer: Answer) -> str:
    """Return ``"right"``, or what is wrong with an answer."""
    kind, found = answer
    if kind != "ok":
        return f"{kind}: {found}"
    for one, other in zip(wanted, found, strict=True):
        if one.shape != np.shape(other):
            return f"wrong shape: {np.shape(other)} for {one.shape}"
        rough = 0.02 if one.dtype == np.float16 else 1e-3
        if not np.allclose(np.asarray(one, np.float64), np.asarray(other, np.float64), rough, rough / 10):
            return "wrong values"
    return "right"


def judged(model: onnx.ModelProto, feeds: Mapping[str, Any], *, tools: bool) -> dict[str, str]:
    """Return what runtimes and tools make of a model; empty where nobody knows what is right.

    Args:
        model: the model.
        feeds: its inputs.
        tools: whether splitops is asked to run, rewrite and convert it even if OpenVINO is right.
    """
    truth = apart(lambda: on_onnxruntime(model, feeds, optimized=False))
    if truth[0] != "ok":
        return {}
    asked: dict[str, Callable[[], list[Any]]] = {
        "onnxruntime": lambda: on_onnxruntime(model, feeds, optimized=True),
        "openvino": lambda: on_openvino(model, feeds),
        "reference": lambda: list(splitops.run(model, feeds, engine="reference").values()),
        "simplify": lambda: on_openvino(splitops.simplify(model), feeds),
        "simplify, onnxruntime": lambda: on_onnxruntime(splitops.simplify(model), feeds, optimized=True),
        "fix": lambda: on_openvino(splitops.fix(model, "openvino", partial=True), feeds),
        "convert": lambda: on_openvino(splitops.convert(model, "openvino"), feeds),
        "run": lambda: list(splitops.run(model, feeds, engine="openvino").values()),
    }
    made: dict[str, str] = {}
    for name, work in asked.items():
        made[name] = verdict(truth[1], apart(work))
        if name == "openvino" and made[name] == "right" and not tools:
            break
    codes = [one.code for one in splitops.check(model, "openvino")]
    made["check"] = ", ".join(dict.fromkeys(codes)) or "nothing"
    return made


def problems(found: Mapping[str, str]) -> list[str]:
    """Return what of it is a fault: of a runtime that is not foreseen, or of ours."""
    right = found["openvino"] == "right"
    said = [
        f"{name}: {found[name]}"
        for name in ("reference", "onnxruntime")
        if found.get(name, "right") != "right"
    ]
    if not right and found["check"] == "nothing":
        said.append(f"not foreseen: {found['openvino']}")
    # What was right before stays right; what is rewritten for OpenVINO is right on it.
    tools = ("run", "fix", "convert", "simplify", "simplify, onnxruntime")
    bad = [name for name in tools if found.get(name, "right") != "right"]
    wrong = [name for name in bad if right or name != "simplify"]
    return said + [f"{name}: {found[name]}" for name in wrong]
