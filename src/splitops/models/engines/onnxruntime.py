"""The onnxruntime engine: compile models as inference sessions, run them, and read their profiles."""

from __future__ import annotations

import ctypes
import json
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from splitops.errors import ModelError, Where, shown
from splitops.models.engines.engine import EngineError, Event, Program, check_options
from splitops.models.engines.fork_safety import keep_alive_in_children
from splitops.spec.elements.types import element_type_of, from_onnx, is_builtin

_OPTIONS: Final = ("providers", "provider_options", "session_options")
_SILENT: Final = 4
"""Log level: only fatal errors are written to stderr; other errors are exceptions."""
_FOLDER: Final = "session.model_external_initializers_file_folder_path"
_RUNNING: Final = re.compile(r"while running (\S+) node\. Name:'(.*?)' Status Message: ", re.S)
_CODE: Final = re.compile(r"^\[ONNXRuntimeError\] : \d+ : [A-Z_]+ : ")


class OnnxRuntime:
    """onnxruntime, by default on the CPU.

    ``providers`` and ``provider_options`` are the arguments of ``onnxruntime.InferenceSession``.
    ``session_options`` sets attributes of ``onnxruntime.SessionOptions`` by name, and configuration entries,
    whose names contain a dot.
    """

    name = "onnxruntime"

    def __init__(self, options: Mapping[str, Any], *, profile: bool = False) -> None:
        import onnxruntime

        check_options(self.name, options, _OPTIONS)
        self._library: Any = onnxruntime
        self._providers = options.get("providers") or ["CPUExecutionProvider"]
        self._provider_options = options.get("provider_options")
        self._session_options = dict(options.get("session_options") or {})
        self._profile = profile
        self._make_session_options()

    @property
    def version(self) -> str:
        """Release of the runtime."""
        return str(self._library.__version__)

    def _make_session_options(self) -> Any:
        made = self._library.SessionOptions()
        made.log_severity_level = _SILENT
        try:
            for name, value in self._session_options.items():
                if "." in name:
                    made.add_session_config_entry(name, str(value))
                elif hasattr(made, name):
                    setattr(made, name, value)
                else:
                    raise ModelError(f"onnxruntime.SessionOptions has no attribute {shown(name)}")
        except (TypeError, RuntimeError) as error:
            raise ModelError(f"onnxruntime rejects session_options: {str(error)[:200]}") from error
        return made

    def compile(self, program: Program) -> OnnxRuntimeProgram:
        """See :meth:`Engine.compile`."""
        options = self._make_session_options()
        folder = None
        if self._profile:
            folder = tempfile.TemporaryDirectory(prefix="splitops-profile-")
            options.enable_profiling = True
            options.profile_file_prefix = str(Path(folder.name) / "events")
        if program.folder is not None and isinstance(program.content, bytes):
            options.add_session_config_entry(_FOLDER, program.folder)
        held = {name: self._to_ort_value(array) for name, array in (program.weights or {}).items()}
        if held:
            options.add_external_initializers(list(held), list(held.values()))
        content = program.content if isinstance(program.content, bytes) else os.fspath(program.content)
        try:
            session = self._library.InferenceSession(
                content, options, providers=self._providers, provider_options=self._provider_options
            )
        except Exception as error:  # the exceptions of onnxruntime have no other common base
            raise _make_rejection(error, program.where) from error
        return keep_alive_in_children(OnnxRuntimeProgram(self, session, program, (held, folder)))

    def _to_ort_value(self, array: Any) -> Any:
        """Return an OrtValue that shares the memory of an array of numbers if it is contiguous."""
        kind = element_type_of(array.dtype)
        make = self._library.OrtValue
        if kind is None or is_builtin(array.dtype):
            return make.ortvalue_from_numpy(array)
        words = np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")
        return make.ortvalue_from_numpy_with_onnx_type(words, kind.onnx_number)

    def close(self) -> None:
        """Do nothing: each program closes its own session."""


class OnnxRuntimeProgram:
    """A model that an onnxruntime session has compiled."""

    def __init__(self, engine: OnnxRuntime, session: Any, program: Program, kept: object) -> None:
        self._engine = engine
        self._session = session
        self._kept = kept  # the memory of the weights is not owned by the session
        self._events: Sequence[Event] | None = None
        self._where = program.where
        self._outputs = list(program.outputs)
        strange = {"tensor(bfloat16)", *(f"tensor(Float8{kind})" for kind in _FLOAT8)}
        ends = (*session.get_inputs(), *session.get_outputs())
        self._is_strange = any(end.type in strange for end in ends)

    def run(self, feeds: Mapping[str, Any]) -> Sequence[Any]:
        """See :meth:`Compiled.run`. The outputs are in new memory."""
        try:
            return self._run_values(feeds) if self._is_strange else self._run_arrays(feeds)
        except Exception as error:
            raise _make_failure(error, self._where) from error

    def _run_arrays(self, feeds: Mapping[str, Any]) -> Sequence[Any]:
        _weights, session = self._kept, self._session  # keeps both alive if the program is closed
        found: Sequence[Any] = session.run(self._outputs, feeds)
        return found

    def _run_values(self, feeds: Mapping[str, Any]) -> Sequence[Any]:
        """Run with OrtValues, for element types that NumPy does not have."""
        values = {name: self._engine._to_ort_value(array) for name, array in feeds.items()}
        _weights, session = self._kept, self._session
        return [_to_array(value) for value in session.run_with_ort_values(self._outputs, values)]

    def close(self) -> None:
        """See :meth:`Compiled.close`. Does not wait for a run in another thread."""
        self._session = self._kept = None

    def events(self) -> Sequence[Event]:
        """See :meth:`Compiled.events`."""
        if self._events is None:
            self._events = self._read_events()
        return self._events

    def _read_events(self) -> list[Event]:
        """End profiling, which works once, and read the events from the file of the session."""
        start = self._session.get_profiling_start_time_ns() / 1e9
        entries = json.loads(Path(self._session.end_profiling()).read_text(encoding="utf-8"))
        return [
            Event(
                entry["args"]["op_name"],
                entry["name"].removesuffix("_kernel_time"),
                self._engine.name,
                start + entry["ts"] / 1e6,
                entry["dur"] / 1e6,
            )
            for entry in entries
            if entry.get("cat") == "Node" and entry["name"].endswith("_kernel_time")
        ]


_FLOAT8: Final = ("E4M3FN", "E4M3FNUZ", "E5M2", "E5M2FNUZ")


def _to_array(value: Any) -> Any:
    """Return an array that shares the memory of an OrtValue and keeps it alive."""
    kind = from_onnx(value.element_type())
    if kind is None or is_builtin(kind.numpy):
        return value.numpy()
    memory = (ctypes.c_ubyte * value.tensor_size_in_bytes()).from_address(value.data_ptr())
    memory.owner = value
    return np.frombuffer(memory, kind.numpy).reshape(value.shape())


def _make_rejection(error: Exception, where: Where) -> EngineError:
    return EngineError("onnxruntime", f"rejects the model: {_CODE.sub('', str(error))}", where)


def _make_failure(error: Exception, where: Where) -> EngineError:
    text = str(error)
    running = list(_RUNNING.finditer(text))  # the last one is the innermost
    if not running:
        return EngineError("onnxruntime", f"fails: {_CODE.sub('', text)}", where)
    operator, node = running[-1].groups()
    place = Where(where.model, where.graph, node or None)
    reason = text[running[-1].end() :]
    return EngineError("onnxruntime", f"fails: {reason}", place, node=node, operator=operator)
