"""Proof that a simplified model is the model: both are run, here and by onnxruntime, and compared."""

from __future__ import annotations

import atexit
import importlib.util
import pickle
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
from onnx import GraphProto, ModelProto, TensorProto
from simplify_worker import send

import splitops
from splitops.errors import SplitError
from splitops.models.simplify import Simplification, simplify_with_report

Feeds = Mapping[str, Any]
ONNXRUNTIME = importlib.util.find_spec("onnxruntime") is not None


def parse(text: str, opset: int = 18, ir_version: int = 8) -> ModelProto:
    """Read the text of a graph, and of functions behind it."""
    return onnx.parser.parse_model(
        f'<ir_version: {ir_version}, opset_import: ["": {opset}, "own": 1]> {text}'
    )


def operators(model: ModelProto) -> list[str]:
    """Return the operators of the main graph, in their order, constants left out."""
    return [node.op_type for node in model.graph.node if node.op_type != "Constant"]


def every_operator(model: ModelProto) -> list[str]:
    """Return the operators of all graphs and functions, constants left out."""
    found: list[str] = []

    def visit(nodes: Sequence[Any]) -> None:
        for node in nodes:
            if node.op_type != "Constant":
                found.append(node.op_type)
            for attribute in node.attribute:
                for graph in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                    visit(graph.node)

    visit(model.graph.node)
    for function in model.functions:
        visit(function.node)
    return found


def random_feeds(graph: GraphProto, seed: int = 0, **sizes: int) -> dict[str, Any]:
    """Return random inputs; a symbolic size is 4 where it is not given."""
    random = np.random.default_rng(seed)
    defaults = {tensor.name for tensor in graph.initializer}
    feeds: dict[str, Any] = {}
    for value in graph.input:
        if value.name in defaults:
            continue
        tensor = value.type.tensor_type
        shape = [
            d.dim_value if d.HasField("dim_value") else sizes.get(d.dim_param, 4) for d in tensor.shape.dim
        ]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        if tensor.elem_type == TensorProto.STRING:
            feeds[value.name] = random.integers(0, 99, shape).astype(str).astype(object)
        elif tensor.elem_type == TensorProto.BOOL:
            feeds[value.name] = random.integers(0, 2, shape).astype(bool)
        else:
            feeds[value.name] = random.integers(0, 99, shape).astype(dtype)
    return feeds


def difference(left: Any, right: Any) -> str | None:
    """Return how two results differ: a type, a shape or a bit; None where they do not."""
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        if list(left) != list(right):
            return f"outputs {list(left)} and {list(right)}"
        found = (difference(left[name], right[name]) for name in left)
        return next((f"{name}: {text}" for name, text in zip(left, found, strict=True) if text), None)
    if isinstance(left, list) and isinstance(right, list):
        if len(left) != len(right):
            return f"{len(left)} and {len(right)} elements"
        return next((text for pair in zip(left, right, strict=True) if (text := difference(*pair))), None)
    a, b = np.asarray(left), np.asarray(right)
    if a.dtype != b.dtype or a.shape != b.shape:
        return f"{a.dtype}{a.shape} and {b.dtype}{b.shape}"
    same = a.tolist() == b.tolist() if a.dtype == object else a.tobytes() == b.tobytes()
    return None if same else f"{a} and {b}"


def assert_equal(before: ModelProto, after: ModelProto, feeds: Feeds) -> None:
    """Prove that two models give the same on some input, or both fail."""
    results = [_ours(before, feeds), _ours(after, feeds)]
    assert (results[0] is None) == (results[1] is None), f"only one of them fails on {feeds}"
    if results[0] is not None:
        problem = difference(*results)
        assert problem is None, problem
    kind, expected = in_onnxruntime(before, feeds)
    if kind == "outputs":
        kind, found = in_onnxruntime(after, feeds)
        assert kind == "outputs", found
        problem = difference(expected, found)
        assert problem is None, f"onnxruntime: {problem}"


def _ours(model: ModelProto, feeds: Feeds) -> dict[str, Any] | None:
    try:
        return splitops.run(model, feeds, engine="reference")
    except SplitError:
        return None


def assert_valid(before: ModelProto, after: ModelProto, *, infer: bool = True) -> None:
    """Prove that a model is valid, and has the inputs and outputs that it had.

    Models with ceil parts that onnx takes for negative are not inferred: a Slice of one ends the process.
    """
    onnx.checker.check_model(after, full_check=infer and inferable(before))
    assert list(before.graph.input) == list(after.graph.input)
    assert list(before.graph.output) == list(after.graph.output)
    assert list(before.metadata_props) == list(after.metadata_props)
    assert list(before.opset_import) == list(after.opset_import)


def inferable(model: ModelProto) -> bool:
    """Return whether onnx takes a model: of ceil parts it infers negative sizes, and fails."""
    try:
        onnx.checker.check_model(model, full_check=True)
    except Exception:
        return False
    return True


def simplified(
    model: ModelProto,
    rewrites: Sequence[str] | None = None,
    *,
    feeds: Feeds | None = None,
    bad: Sequence[Mapping[str, int]] = (),
    **sizes: int,
) -> Simplification:
    """Simplify a model and prove the result: it is valid, equal on random input, and the model is untouched.

    Args:
        model: the model.
        rewrites: names of rewrites; None is the default ones.
        feeds: the input; None is random.
        bad: sizes of symbols on which the model fails.
        sizes: sizes of symbols.
    """
    content = model.SerializeToString(deterministic=True)
    found = simplify_with_report(model, rewrites)
    assert model.SerializeToString(deterministic=True) == content, "the caller's model has changed"
    after = found.model
    assert isinstance(after, ModelProto)
    assert_valid(model, after)
    assert_equal(model, after, random_feeds(model.graph, **sizes) if feeds is None else feeds)
    for failing in bad:
        wrong = random_feeds(model.graph, **failing)
        assert _ours(model, wrong) is None, "the model was to fail here"
        assert_equal(model, after, wrong)
    if not found.changes:
        assert after == model
    again = simplify_with_report(after, rewrites)
    assert not again.changes, f"not a fixed point: {again}"
    return found


@cache
def _worker() -> subprocess.Popen[bytes]:
    worker = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("simplify_worker.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )

    def stop() -> None:
        assert worker.stdin is not None
        worker.stdin.close()
        worker.wait(10)

    atexit.register(stop)
    return worker


def in_onnxruntime(model: ModelProto, feeds: Feeds, *, optimized: bool = False) -> tuple[str, Any]:
    """Run a model in onnxruntime, if it is installed, in a process of its own; one that has died says so."""
    if not ONNXRUNTIME:
        return "absent", None
    worker = _worker()
    assert worker.stdin is not None
    assert worker.stdout is not None
    try:
        send(worker.stdin, (model.SerializeToString(), dict(feeds), optimized))  # type: ignore[arg-type]
        return pickle.load(worker.stdout)  # type: ignore[no-any-return, arg-type]
    except (EOFError, BrokenPipeError):
        _worker.cache_clear()
        return "died", None
