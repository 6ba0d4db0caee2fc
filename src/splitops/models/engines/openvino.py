"""The OpenVINO engine: compile and run OpenVINO IR and ONNX models."""

from __future__ import annotations

import contextlib
import importlib
import re
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from splitops.common.untrusted_files import DataFolder
from splitops.errors import ModelError, Where
from splitops.models.engines.empty_tensors import (
    EmptyTensorError,
    EmptyTensorGuard,
    add_sizes,
    check_full,
    get_bodies,
)
from splitops.models.engines.engine import EngineError, Event, Program, check_options
from splitops.models.engines.fork_safety import keep_alive_in_children
from splitops.models.engines.openvino_process import Extension, to_ir
from splitops.models.formats.onnx.structure import iter_located_graphs, iter_tensors
from splitops.models.formats.onnx.tensors import load_external
from splitops.spec.elements.packing import compute_packed_size, pack, unpack
from splitops.spec.elements.types import (
    ElementType,
    element_type_of,
    from_onnx,
    from_openvino,
    is_builtin,
)

_OPTIONS: Final = ("device_name", "config")
_EXACT: Final = {"INFERENCE_PRECISION_HINT": "f32"}
"""Default configuration: a CPU that supports bfloat16 would otherwise compute float32 in bfloat16."""


def _is_plain(dtype: np.dtype[Any]) -> bool:
    """Return whether OpenVINO can use arrays of a dtype as tensors without conversion."""
    return dtype.kind in "biuf" and is_builtin(dtype)


class OpenVINO:
    """OpenVINO, by default on the CPU.

    ``device_name`` and ``config`` are arguments of ``openvino.Core.compile_model``. float32 is computed as
    float32 unless ``config`` sets ``INFERENCE_PRECISION_HINT``. ``inside`` is whether this is the process of
    an isolated engine, which may crash. In any other process, a child process reads ONNX models.
    """

    name = "openvino"

    def __init__(self, options: Mapping[str, Any], *, profile: bool = False, inside: bool = False) -> None:
        check_options(self.name, options, _OPTIONS)
        self._library: Any = _import_library()
        self._inside = inside
        self._core: Any = self._library.Core()
        self._profile = profile
        self._device = options.get("device_name") or "CPU"
        self._config = _EXACT | dict(options.get("config") or {}) | ({"PERF_COUNT": True} if profile else {})

    @property
    def version(self) -> str:
        """Release of the runtime."""
        return str(self._library.__version__).partition("-")[0]

    def compile(self, program: Program) -> OpenVINOProgram:
        """See :meth:`Engine.compile`."""
        try:
            model = self._read(program)
            _check_sizes(model, program)
            guard, sizes = None, 0
            if not program.as_it_is:
                check_full(model, program.where)
                if model.is_dynamic():
                    guard = EmptyTensorGuard(model, program.where, resolves=program.guarded)
                sizes = add_sizes(self._library, model, program.where) if program.guarded else 0
            compiled = self._core.compile_model(model, self._device, self._config)
            made = OpenVINOProgram(
                self._library, compiled, guard, program.where, sizes=sizes, profile=self._profile
            )
            return keep_alive_in_children(made)
        except ModelError:
            raise
        except Exception as error:  # RuntimeErrors, and various errors of the bindings
            raise _make_rejection(error, program.where) from error

    def _read(self, program: Program) -> Any:
        content, binary = program.content, program.binary
        if binary is None:
            source = _load_data(content, program) if isinstance(content, bytes) else content
            if self._inside:
                return self._core.read_model(source)
            content, constants = to_ir(source, program.where)
            binary = np.frombuffer(constants, np.uint8)
        weights = binary if binary.size else np.zeros(1, np.uint8)
        return self._core.read_model(content, self._library.Tensor(weights))

    def to_ir(
        self, source: bytes | str, extensions: Sequence[Extension], where: Where
    ) -> tuple[bytes, bytes]:
        """See :func:`splitops.models.engines.openvino_process.to_ir`. Converts in this process."""
        try:
            core = self._library.Core()
            for extension in extensions:
                core.add_extension(_make_conversion(*extension, where))
            model = core.read_model(source)
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "model.xml"
                self._library.save_model(model, path, compress_to_fp16=False)
                return path.read_bytes(), path.with_suffix(".bin").read_bytes()
        except ModelError:
            raise
        except Exception as error:
            raise _make_rejection(error, where) from error

    def close(self) -> None:
        """Do nothing: each program closes its own compiled model."""


def _import_library() -> Any:
    """Import OpenVINO, without its telemetry if neither was imported before."""
    telemetry = "openvino_telemetry"
    with contextlib.ExitStack() as stack:
        if "openvino" not in sys.modules and telemetry not in sys.modules:
            sys.modules[telemetry] = None  # type: ignore[assignment]  # makes the import fail
            stack.callback(sys.modules.pop, telemetry)
        return importlib.import_module("openvino")


def _make_conversion(name: str, version: int, attributes: Sequence[str], where: Where) -> Any:
    """Return the extension that converts nodes of domain ``openvino`` to an OpenVINO layer."""
    frontend: Any = importlib.import_module("openvino.frontend.onnx")
    opset = f"opset{version}"
    function = re.sub("(?<=[a-z])(?=[A-Z])", "_", name).lower()  # variadic_split
    try:
        make = getattr(importlib.import_module(f"openvino.{opset}"), function)
    except (ImportError, AttributeError) as error:
        raise ModelError(f"the installed OpenVINO has no {name} in {opset}", where) from error

    def converted(node: Any) -> list[Any]:
        inputs = [node.get_input(index) for index in range(node.get_input_size())]
        given = [node.get_attribute(attribute) for attribute in attributes]
        return list(make(*inputs, *given).outputs())

    return frontend.ConversionExtension(name, "openvino", converted)


def replace_empty_constants(model: ModelProto) -> None:
    """Replace the empty tensors of initializers and Constant nodes with ConstantOfShape nodes, in place.

    OpenVINO reads an empty tensor in a serialised model as a scalar. Strings, which ConstantOfShape does not
    support, lists of numbers in Constant nodes, and defaults of inputs are left unchanged.
    """
    count = 0
    for _, graph in iter_located_graphs(model):  # OpenVINO rejects models with functions
        nodes, initializers = graph.node, graph.initializer
        constants = [node for node in nodes if node.op_type == "Constant" and not node.domain]
        empty: dict[str, tuple[Any, TensorProto]] = {
            node.output[0]: (node, node.attribute[0].t)
            for node in constants
            if [attribute.name for attribute in node.attribute] == ["value"]
        }
        inputs = {value.name for value in graph.input}
        empty |= {each.name: (each, each) for each in initializers if each.name not in inputs}
        for name, (owner, tensor) in empty.items():
            if 0 not in tensor.dims or tensor.data_type == TensorProto.STRING:
                continue
            shape = f"splitops/empty/{count}"
            zero = np.zeros(1, helper.tensor_dtype_to_np_dtype(tensor.data_type))
            sizes = numpy_helper.from_array(np.array(tensor.dims, np.int64))
            value = helper.make_tensor("", tensor.data_type, [1], zero)
            nodes.insert(0, helper.make_node("ConstantOfShape", [shape], [name], value=value))
            nodes.insert(0, helper.make_node("Constant", [], [shape], value=sizes))
            (nodes if isinstance(owner, NodeProto) else initializers).remove(owner)
            count += 1


def _load_data(content: bytes, program: Program) -> bytes:
    """Return a serialised model that includes its external data, with empty tensors replaced.

    Otherwise, OpenVINO would search the working directory for the data.
    """
    model = ModelProto.FromString(content)
    for tensor in model.graph.initializer:
        array = (program.weights or {}).get(tensor.name)
        kind = from_onnx(tensor.data_type)
        if array is not None and kind is not None:
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")
            tensor.raw_data = pack(array, kind)
    folder = None if program.folder is None else DataFolder(Path(program.folder))
    load_external(iter_tensors(model), program.where, folder)
    replace_empty_constants(model)
    whole: bytes = model.SerializeToString()
    return whole


def _check_sizes(model: Any, program: Program) -> None:
    """Check that OpenVINO infers the same part sizes as splitops, for every split in ``program.sizes``.

    A file can declare shapes that its layers do not have.
    """
    if not program.sizes:
        return
    found = Counter(
        (layer.get_friendly_name(), tuple(map(_get_shape, layer.outputs()))) for layer in _iter_splits(model)
    )
    for name, shapes in program.sizes:
        kept = [key for key in found if key[0] == name and _match_sizes(key[1], shapes)]
        if not kept:
            raise EngineError(
                "openvino", f"infers other sizes than splitops for the parts of {name!r}", program.where
            )


def _iter_splits(model: Any) -> Iterator[Any]:
    """Yield the splits of a model, including those in bodies."""
    for layer in model.get_ordered_ops():
        if layer.get_type_name() in _SPLITS:
            yield layer
        for body in get_bodies(layer):
            yield from _iter_splits(body)


_SPLITS: Final = ("Split", "VariadicSplit")


def _get_shape(port: Any) -> tuple[int | None, ...] | None:
    shape = port.get_partial_shape()
    if shape.rank.is_dynamic:
        return None
    return tuple(size.get_length() if size.is_static else None for size in shape)


def _match_sizes(found: Sequence[tuple[int | None, ...] | None], expected: Sequence[tuple[int, int]]) -> bool:
    """Return whether each part in ``found`` has the expected size on the expected axis."""
    if len(found) != len(expected):
        return False
    return all(
        shape is not None and axis < len(shape) and shape[axis] == size
        for shape, (axis, size) in zip(found, expected, strict=True)
    )


_Held = dict[int, tuple[Any, npt.NDArray[Any]]]
"""Input tensors of a request by position, each with an array that views its memory."""


class OpenVINOProgram:
    """A compiled model, with one inference request per concurrent run."""

    def __init__(
        self,
        library: Any,
        compiled: Any,
        guard: EmptyTensorGuard | None,
        where: Where,
        *,
        sizes: int,
        profile: bool,
    ) -> None:
        self._library = library
        self._compiled = compiled
        self._guard = guard
        self._sizes = sizes
        self._where = where
        self._idle: deque[tuple[Any, _Held]] = deque()
        self._kinds = [from_openvino(port.element_type.get_type_name()) for port in compiled.inputs]
        self._types = [from_openvino(port.element_type.get_type_name()) for port in compiled.outputs]
        # OpenVINO warns about every shared string tensor.
        self._shares = all(kind is not None and kind.bits != 0 for kind in self._types)
        self._positions = {name: at for at, port in enumerate(compiled.inputs) for name in port.names}
        self._profile = profile
        self._events: list[Event] = []

    def run(self, feeds: Mapping[Any, Any]) -> Sequence[Any]:
        """See :meth:`Compiled.run`. The outputs are copies."""
        # OpenVINO drops unused inputs of ONNX models. Inputs of IR may have no names.
        found_at = {key: key if isinstance(key, int) else self._positions.get(key) for key in feeds}
        places = {at: feeds[key] for key, at in found_at.items() if at is not None}
        if self._guard is not None:
            self._guard.check(tuple(places[at].shape for at in sorted(places)))
        try:
            request, held = self._idle.pop()
        except IndexError:  # all requests are in use
            request, held = self._compiled.create_infer_request(), {}
        try:
            given = {at: self._prepare_input(at, array, held) for at, array in places.items()}
            begin = time.time()
            request.infer(given, share_inputs=True, share_outputs=self._shares)
            found = [_to_array(request.get_output_tensor(at), kind) for at, kind in enumerate(self._types)]
        except ModelError:
            raise
        except Exception as error:  # including errors of the bindings for unsupported arrays
            raise EngineError("openvino", f"fails: {_format_reason(error)}", self._where) from error
        if self._profile:
            self._events += _iter_events(request, begin)
        self._idle.append((request, held))
        count = len(found) - self._sizes
        if not all(np.all(sizes) for sizes in found[count:]):
            raise EmptyTensorError.from_layers({"a tensor": "is empty in this run"}, self._where)
        return found[:count]

    def _prepare_input(self, at: int, array: npt.NDArray[Any], held: _Held) -> Any:
        kind = self._kinds[at]
        if _is_plain(array.dtype) and (kind is None or (array.dtype == kind.numpy and not kind.packed)):
            if array.flags.c_contiguous and array.flags.writeable:
                return array
            # OpenVINO copies read-only arrays; reusing the memory is faster than new memory in each run.
            tensor, memory = held.get(at, (None, None))
            if memory is None or (memory.dtype, memory.shape) != (array.dtype, array.shape):
                tensor = self._library.Tensor(np.array(array, order="C"))
                held[at] = tensor, tensor.data
            else:
                memory[...] = array
            return tensor
        return _to_tensor(self._library, array, kind)

    def close(self) -> None:
        """See :meth:`Compiled.close`. Does not wait for a run in another thread, which keeps its request."""
        self._compiled = self._guard = None
        self._idle.clear()

    def events(self) -> Sequence[Event]:
        """See :meth:`Compiled.events`."""
        return self._events


def _iter_events(request: Any, begin: float) -> Iterator[Event]:
    """Yield the events of the last run of a request, except those without a measurable duration.

    Operators are assumed to run consecutively.
    """
    for item in request.profiling_info:
        seconds = item.real_time.total_seconds()
        if seconds:
            yield Event(item.node_type, item.node_name, "openvino", begin, seconds)
            begin += seconds


def _to_tensor(library: Any, array: npt.NDArray[Any], kind: ElementType | None) -> Any:
    """Copy an array to a tensor, for element types that NumPy does not have or stores differently."""
    kind = kind or element_type_of(array.dtype)
    if kind is None or kind.openvino is None:
        raise EngineError("openvino", f"has no element type for dtype {array.dtype}")
    if kind.bits == 0:
        tensor = library.Tensor(library.Type.string, list(array.shape))
        if array.size:
            tensor.bytes_data = np.array(
                [text.encode("utf-8", "surrogateescape") for text in array.reshape(-1)], np.bytes_
            ).reshape(array.shape)
        return tensor
    tensor = library.Tensor(getattr(library.Type, kind.openvino), list(array.shape))
    _view_bytes(tensor)[...] = np.frombuffer(pack(array, kind), np.uint8)
    return tensor


def _to_array(tensor: Any, kind: ElementType | None) -> npt.NDArray[Any]:
    kind = kind or from_openvino(tensor.element_type.get_type_name())
    if kind is None:
        raise EngineError(
            "openvino", f"returns elements of the unknown type {tensor.element_type.get_type_name()!r}"
        )
    if _is_plain(kind.numpy) and not kind.packed and kind.storage is None:
        return np.array(tensor.data)
    shape = tuple(tensor.shape)  # reading it is slow
    if kind.bits == 0:
        array = np.empty(shape, object)
        if array.size:  # bytes_data of an empty tensor crashes
            array.reshape(-1)[:] = [
                text.decode("utf-8", "surrogateescape")
                for text in np.asarray(tensor.bytes_data).reshape(-1).tolist()
            ]
        return array
    content = _view_bytes(tensor).tobytes()
    size = compute_packed_size(kind, int(np.prod(shape, dtype=np.int64)))
    return unpack(content[:size], kind, shape).copy()


def _view_bytes(tensor: Any) -> npt.NDArray[np.uint8]:
    flat: npt.NDArray[np.uint8] = tensor.data.reshape(-1).view(np.uint8)
    return flat


def _make_rejection(error: Exception, where: Where) -> EngineError:
    return EngineError("openvino", f"rejects the model: {_format_reason(error)}", where)


def _format_reason(error: Exception) -> str:
    return " ".join(str(error).split())[-300:]
