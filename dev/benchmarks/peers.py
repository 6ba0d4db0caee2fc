"""The other libraries, each optional: how they do the same split."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module, metadata
from typing import Any

import numpy as np

from dev.benchmarks.timing import Call

THREADS = 2
DISTRIBUTIONS = {
    "numpy": "numpy",
    "torch": "torch",
    "onnxruntime": "onnxruntime",
    "openvino": "openvino",
    "jax": "jax",
    "cv2": "opencv-python-headless",
}
Array = np.ndarray[Any, Any]


def load(name: str) -> Any:
    """The module, or None where it is not installed."""
    try:
        return import_module(name)
    except ImportError:
        return None


def versions() -> dict[str, str]:
    """The versions of the installed peers."""
    found = {}
    for module, distribution in DISTRIBUTIONS.items():
        if load(module) is not None:
            try:
                found[module] = metadata.version(distribution)
            except metadata.PackageNotFoundError:
                found[module] = "?"
    return found


class Memcpy:
    """A memcpy of `size` bytes between two warm buffers of its own, in equal shares on two threads."""

    _helper = ThreadPoolExecutor(THREADS - 1)

    def __init__(self, size: int) -> None:
        self._share = size // THREADS
        self._source = np.ones(size, np.uint8)
        self._target = np.ones(size, np.uint8)

    def _copy(self, index: int) -> None:
        start = index * self._share
        ctypes.memmove(self._target.ctypes.data + start, self._source.ctypes.data + start, self._share)

    def __call__(self) -> None:
        others = [self._helper.submit(self._copy, index) for index in range(1, THREADS)]
        self._copy(0)
        for other in others:
            other.result()


def _bounds(sizes: Sequence[int]) -> list[int]:
    return list(itertools.accumulate(sizes[:-1]))


def trim_memory() -> None:
    """Gives back the memory that the allocator of C keeps for arrays to come, where it can be asked to."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def numpy_fresh(x: Array, axis: int, sizes: Sequence[int]) -> Call:
    """``np.split`` and a copy of each part."""
    bounds = _bounds(sizes)
    return lambda: [part.copy() for part in np.split(x, bounds, axis)]


def numpy_out(x: Array, axis: int, sizes: Sequence[int], out: Sequence[Array]) -> Call:
    """``np.copyto`` of each part."""
    parts = np.split(x, _bounds(sizes), axis)

    def run() -> None:
        for target, part in zip(out, parts, strict=True):
            np.copyto(target, part)

    return run


def torch_fresh(x: Array, axis: int, sizes: Sequence[int]) -> Call | None:
    """``torch.split_with_sizes_copy``."""
    torch = load("torch")
    if torch is None:
        return None
    torch.set_num_threads(THREADS)
    data, lengths = torch.from_numpy(x), list(sizes)
    return lambda: torch.split_with_sizes_copy(data, lengths, axis)


def torch_out(x: Array, axis: int, sizes: Sequence[int], out: Sequence[Array]) -> Call | None:
    """``torch.split_with_sizes_copy(out=)``."""
    torch = load("torch")
    if torch is None:
        return None
    torch.set_num_threads(THREADS)
    data, lengths, targets = torch.from_numpy(x), list(sizes), [torch.from_numpy(o) for o in out]
    return lambda: torch.split_with_sizes_copy(data, lengths, axis, out=targets)


def _onnx_session(x: Array, node: Any, outputs: Sequence[Any], initializers: Sequence[Any] = ()) -> Any:
    onnx, onnxruntime = load("onnx"), load("onnxruntime")
    if onnx is None or onnxruntime is None:
        return None
    kind = onnx.helper.np_dtype_to_tensor_dtype(x.dtype)
    graph = onnx.helper.make_graph(
        [node],
        "split",
        [onnx.helper.make_tensor_value_info("x", kind, x.shape)],
        outputs,
        initializers,
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    except Exception:  # an element type that it has no kernel for
        return None


def _onnxruntime_split(x: Array, axis: int, sizes: Sequence[int]) -> Any:
    onnx = load("onnx")
    if onnx is None or load("onnxruntime") is None:
        return None
    names = [f"y{i}" for i in range(len(sizes))]
    kind = onnx.helper.np_dtype_to_tensor_dtype(x.dtype)
    return _onnx_session(
        x,
        onnx.helper.make_node("Split", ["x", "sizes"], names, axis=axis),
        [onnx.helper.make_tensor_value_info(name, kind, None) for name in names],
        [onnx.numpy_helper.from_array(np.array(sizes, np.int64), "sizes")],
    )


def onnxruntime_fresh(x: Array, axis: int, sizes: Sequence[int]) -> Call | None:
    """A session with one Split node."""
    session = _onnxruntime_split(x, axis, sizes)
    return None if session is None else lambda: session.run(None, {"x": x})


def onnxruntime_out(x: Array, axis: int, sizes: Sequence[int], out: Sequence[Array]) -> Call | None:
    """A session whose input and outputs are bound to the caller's buffers."""
    session = _onnxruntime_split(x, axis, sizes)
    if session is None:
        return None
    binding = session.io_binding()
    binding.bind_cpu_input("x", x)
    for index, target in enumerate(out):
        binding.bind_output(f"y{index}", "cpu", 0, x.dtype, target.shape, target.ctypes.data)
    return lambda: session.run_with_iobinding(binding)


def onnxruntime_sequence(x: Array) -> Call | None:
    """A session with one SplitToSequence node, parts of one row each, without the axis."""
    onnx = load("onnx")
    if onnx is None:
        return None
    kind = onnx.helper.np_dtype_to_tensor_dtype(x.dtype)
    session = _onnx_session(
        x,
        onnx.helper.make_node("SplitToSequence", ["x"], ["y"], axis=0, keepdims=0),
        [onnx.helper.make_tensor_sequence_value_info("y", kind, None)],
    )
    return None if session is None else lambda: session.run(None, {"x": x})


def openvino_out(x: Array, axis: int, sizes: Sequence[int], out: Sequence[Array]) -> Call | None:
    """A compiled VariadicSplit whose input and outputs are the caller's buffers."""
    openvino = load("openvino")
    if openvino is None:
        return None
    ops = import_module("openvino.opset8")
    data = ops.parameter(list(x.shape), openvino.Type(x.dtype))
    split = ops.variadic_split(data, np.int64(axis), np.array(sizes, np.int64))
    model = openvino.Model([ops.result(output) for output in split.outputs()], [data])
    compiled = openvino.Core().compile_model(
        model, "CPU", {"INFERENCE_NUM_THREADS": THREADS, "INFERENCE_PRECISION_HINT": "undefined"}
    )
    request = compiled.create_infer_request()
    request.set_input_tensor(openvino.Tensor(x, shared_memory=True))
    for index, target in enumerate(out):
        request.set_output_tensor(index, openvino.Tensor(target, shared_memory=True))
    return lambda: request.infer()


def jax_fresh(x: Array, axis: int, sizes: Sequence[int]) -> Call | None:
    """A compiled ``jnp.split``."""
    jax = load("jax")
    if jax is None:
        return None
    jax.config.update("jax_platforms", "cpu")
    bounds = tuple(_bounds(sizes))
    data = jax.numpy.asarray(x)
    run = jax.jit(lambda a: jax.numpy.split(a, bounds, axis))
    return lambda: jax.block_until_ready(run(data))


def cv2_split(x: Array, out: Sequence[Array] | None) -> Call | None:
    """``cv2.split``, into the caller's planes if they are given."""
    cv2 = load("cv2")
    if cv2 is None or x.ndim != 3 or x.shape[2] > 4 or x.dtype == np.float16:
        return None
    cv2.setNumThreads(THREADS)
    if out is None:
        return lambda: cv2.split(x)
    planes = [o.reshape(x.shape[:2]) for o in out]
    return lambda: cv2.split(x, planes)
