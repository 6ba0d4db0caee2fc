"""Asks runtimes about models, each in a process of its own that may end."""

from __future__ import annotations

import importlib
import importlib.util
import os
import pickle
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
import onnx.parser

import splitops
from dev.forks import end_after, in_a_fork
from splitops.models.formats.openvino import OpenVINOModel, to_bytes
from splitops_compare.data import Case, Outcome
from splitops_compare.driver.case_runner import CaseRunner
from splitops_compare.driver.discovery import start_implementations
from splitops_compare.driver.process import ResourceLimits

Answer = tuple[str, Any]
OTHERS = {"opencv": "cv2", "tinygrad": "tinygrad", "tract": "tract"}
"""The adapters of other runtimes that run whole graphs, and the module of each."""
_SETTINGS = [("tinygrad", {"device": "PYTHON"})]
"""That device needs no compiler."""
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
    for name in ("onnx", "openvino", "fallback"):
        importlib.import_module(f"splitops.models.sessions.{name}")


def apart(work: Callable[[], Any]) -> Answer:
    """Return ``("ok", value)``, ``("error", text)`` or ``("died", signal)``."""

    def answered(writing: int) -> None:
        end_after(60)
        try:
            answer: Answer = "ok", work()
        except BaseException as error:
            answer = "error", f"{type(error).__name__}: {' '.join(str(error).split())[-300:]}"
        with os.fdopen(writing, "wb") as pipe:
            pickle.dump(answer, pipe)

    content, status = in_a_fork(answered)
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


@contextmanager
def others() -> Iterator[dict[str, CaseRunner]]:
    """Return what asks each of the other runtimes that is installed, in a process of its own."""
    installed = [name for name, module in OTHERS.items() if importlib.util.find_spec(module) is not None]
    limits = ResourceLimits(seconds=60)
    with ExitStack() as stack:
        settings = [one for one in _SETTINGS if one[0] in installed]
        ready, _ = start_implementations(limits, installed, settings=settings)
        chosen = {one.info.adapter: one.launch for one in ready}  # the one with a setting is the last
        yield {name: stack.enter_context(CaseRunner(source, limits)) for name, source in chosen.items()}


def on_other(
    ask: Callable[[Case], Outcome], model: onnx.ModelProto, feeds: Mapping[str, Any], wanted: list[Any]
) -> str:
    """Return ``"right"``, ``"rejected"``, or what is wrong with what another runtime makes of a model."""
    outcome = ask(
        Case(
            id="drawn",
            operator="drawn",
            rule="drawn",
            title="a drawn model",
            spec=None,
            model=model.SerializeToString(),
            inputs=feeds,
            types={name: str(value.dtype) for name, value in feeds.items()},
            outputs=tuple(output.name for output in model.graph.output),
            expected=tuple(wanted),
            exact=False,
        )
    )
    if outcome.kind != "ok":
        ended = outcome.kind in ("crash", "hang", "memory")
        return f"{outcome.kind}: {outcome.signal or outcome.text[-200:]}" if ended else "rejected"
    return verdict(wanted, ("ok", list(outcome.values)))


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


def judged(
    model: onnx.ModelProto,
    feeds: Mapping[str, Any],
    *,
    tools: bool,
    askers: Mapping[str, CaseRunner] = MappingProxyType({}),
) -> dict[str, str]:
    """Return what runtimes and tools make of a model; empty where nobody knows what is right.

    Args:
        model: the model.
        feeds: its inputs.
        tools: whether splitops is asked to run, rewrite and convert it even if OpenVINO is right.
        askers: other runtimes that are asked.
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
    made = {name: on_other(asker.ask, model, feeds, truth[1]) for name, asker in askers.items()}
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
