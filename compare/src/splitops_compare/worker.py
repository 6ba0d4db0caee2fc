"""The process of an implementation: reads requests as JSON lines and writes the responses of one adapter.

    python worker.py ADAPTER.py [DESCRIPTOR]

With the descriptor of a socket, it imports the modules in the adapter's ``PRELOAD`` and becomes a fork
server: it forks a process for each message from the socket. A forked process has run no case and needs no
time for these imports. If ``PRELOAD`` is empty, the server exits.

It runs in the environment of the implementation, which need not have splitops: this module and the adapters
use the standard library, NumPy, ml_dtypes if it is installed, and the implementation. An adapter is a Python
file that defines these names:

- ``KIND``: one of :data:`KINDS`, by default ``"runtime"``;
- ``FORMATS``: ``("onnx",)``, ``("ir",)`` or both, by default ``("onnx",)``;
- ``SETTINGS``: the possible values of each setting by its name, with the default value first;
- ``PRELOAD``: names of modules of the implementation that may be imported before a fork;
- ``ADDRESS_SPACE``: limit of the address space in bytes, if the implementation works with one;
- ``PACKAGES``: distributions whose releases are reported, that of the implementation first. An adapter may
  have ``read_versions()`` instead: it returns the releases by name, and raises ImportError if the
  implementation is missing;
- ``run(case)``: runs a :class:`CaseInput` and returns the result of the implementation, see :data:`KINDS`.

Calls of the implementation belong in :func:`catch_rejection`, which turns their exceptions into rejections.
Any other exception, except :class:`Rejected` and :class:`NotApplicable`, is an error of the adapter.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import importlib
import json
import math
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

PROTOCOL: Final = 1
"""The version of the messages."""
KINDS: Final = ("runtime", "compiler", "inference", "checker", "converter", "simplifier")
"""The kinds of implementations. ``run`` returns

- for a runtime or compiler, the outputs: arrays (or :class:`Tensor`) in the order of ``case.outputs`` or by
  name, and lists of arrays for sequences;
- for shape inference, the shapes of the outputs in the same way: each dimension is a number, a name or None.
  A shape of unknown rank is None;
- for a checker, None;
- for a converter or simplifier, the new ModelProto.
"""
_INLINE: Final = 1 << 20
"""Maximum size in bytes of a tensor in a message. Larger tensors, except strings, are written to files."""
_MAX_TEXT: Final = 2000


@dataclass(frozen=True)
class CaseInput:
    """The case that an adapter runs.

    Attributes:
        model: path of the model.
        inputs: arrays by input name. Strings are in object arrays. Types that NumPy lacks have the dtypes of
            ml_dtypes, with one element per item; if it lacks them or is not installed, they are stored as
            unsigned integers.
        types: name of the element type of each input, such as ``"float32"``, ``"bfloat16"``, ``"nf4"``.
        folder: folder for temporary files.
    """

    model: str
    inputs: Mapping[str, npt.NDArray[Any]]
    types: Mapping[str, str]
    outputs: tuple[str, ...]
    setting: Mapping[str, str]
    folder: str


@dataclass(frozen=True)
class Tensor:
    """An array with the name of its element type, which NumPy and ml_dtypes may lack."""

    dtype: str
    array: npt.NDArray[Any]


class Rejected(Exception):  # noqa: N818 - a result, not an error
    """The implementation rejects the case at ``"load"``, ``"compile"``, ``"run"`` or another stage."""

    def __init__(self, stage: str, error: BaseException | str) -> None:
        super().__init__(stage, error)
        self.stage = stage
        self.error = error


class NotApplicable(Exception):  # noqa: N818 - a result, not an error
    """The case does not apply to the implementation, for example because its docs exclude a type."""


@contextlib.contextmanager
def catch_rejection(stage: str) -> Iterator[None]:
    """Turn exceptions in the block into :class:`Rejected` at ``stage``.

    KeyboardInterrupt, Rejected and NotApplicable are not changed.
    """
    try:
        yield
    except (KeyboardInterrupt, Rejected, NotApplicable):
        raise
    except BaseException as error:  # Rust panics and SystemExit are not Exceptions
        raise Rejected(stage, error) from error


def run_tool(stage: str, *command: str | os.PathLike[str], folder: str | None = None) -> None:
    """Run a program of the implementation in ``folder``.

    A nonzero exit status is a rejection. A signal that kills the program kills this process too.
    """
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace")  # noqa: S603
    sys.stderr.write(done.stdout + done.stderr)
    if done.returncode < 0:
        sys.stderr.flush()
        os.kill(os.getpid(), -done.returncode)
    if done.returncode:
        text = done.stderr.strip() or done.stdout.strip()
        raise Rejected(stage, text or f"{os.path.basename(command[0])} exits with {done.returncode}")


def pack(value: Any, folder: str, name: str) -> dict[str, Any]:
    """Encode an array for a message. A large one without strings is written to ``name`` in ``folder``."""
    dtype, array = (value.dtype, value.array) if isinstance(value, Tensor) else (None, np.asarray(value))
    tensor: dict[str, Any] = {"dtype": dtype or array.dtype.name, "shape": list(array.shape)}
    if array.dtype.kind in "OUST":
        return {
            **tensor,
            "dtype": "string",
            "strings": [_decode_string(item) for item in array.ravel().tolist()],
        }
    array = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"), copy=False))
    if array.nbytes <= _INLINE:
        return {**tensor, "data": base64.b64encode(array.tobytes()).decode()}
    path = os.path.join(folder, name)
    array.tofile(path)
    return {**tensor, "file": path}


def _decode_string(item: Any) -> str:
    if isinstance(item, bytes):
        return item.decode("utf-8", "surrogateescape")
    if not isinstance(item, str):
        raise TypeError(f"a string was expected, not {type(item).__name__}")
    return item


def unpack(tensor: Mapping[str, Any]) -> npt.NDArray[Any]:
    """Decode an array from a message. The data of a numeric array without elements is not read.

    Raises:
        ValueError: the number of bytes or strings does not match the type and the shape.
    """
    shape = tuple(tensor["shape"])
    if "strings" in tensor:
        array = np.empty(len(tensor["strings"]), object)
        array[:] = tensor["strings"]
        return array.reshape(shape)
    dtype = get_storage_dtype(tensor["dtype"])
    if math.prod(shape) * dtype.itemsize == 0:
        return np.zeros(shape, dtype)
    content = Path(tensor["file"]).read_bytes() if "file" in tensor else base64.b64decode(tensor["data"])
    return np.frombuffer(content, dtype).reshape(shape)


def get_storage_dtype(name: str) -> np.dtype[Any]:
    """Return the dtype that stores an element type.

    It is an unsigned integer if NumPy lacks the type and ml_dtypes lacks it, too, or is not installed.
    """
    try:
        return np.dtype(name)
    except TypeError:
        pass
    try:
        import ml_dtypes

        dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return dtype
    except (ImportError, AttributeError, TypeError):
        return np.dtype("<u2" if name == "bfloat16" else "u1")


def main() -> None:
    """Respond to messages until stdin is closed, and then exit."""
    sys.modules["splitops_compare.worker"] = sys.modules["__main__"]  # adapters import this module
    sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]  # OpenVINO would send data when it is imported
    adapter = _load_adapter(sys.argv[1])
    if len(sys.argv) > 2:
        _fork_on_request(adapter, socket.socket(fileno=int(sys.argv[2])))
    # The implementation may read from stdin and print to stdout, so messages use copies of both.
    requests = os.fdopen(os.dup(0), "rb")
    responses = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    setting: Mapping[str, str] = {}
    for line in requests:
        message = json.loads(line)
        if message["message"] == "start":
            defaults = {name: values[0] for name, values in adapter.SETTINGS.items()}
            setting = defaults | message["setting"]
            response = _describe_adapter(adapter)
        else:
            response = {"message": "response", "id": message["id"], **_run_case(adapter, message, setting)}
        responses.write(json.dumps(response).encode() + b"\n")
        responses.flush()
    os._exit(0)  # skips exit handlers of the implementation, which belong to no case


def _fork_on_request(adapter: Any, requests: socket.socket) -> None:
    """Fork a process for each request, and return only in these processes. Exit if there is no ``PRELOAD``.

    A request carries the descriptors of stdin, stdout, stderr and a socket. The new process writes its id to
    the socket. Its parent, which is forked only for it, writes its exit status. The parent exits when the
    other end of the socket is closed: until then, the id is not given to another process.
    """
    if not adapter.PRELOAD:
        os._exit(0)
    for name in adapter.PRELOAD:
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    requests.send(b"ready")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        message, descriptors, _, _ = socket.recv_fds(requests, 1 << 16, 4)
        if not message:  # the other end is closed
            os._exit(0)
        if os.fork() == 0:
            break
        for descriptor in descriptors:
            os.close(descriptor)
    requests.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    number = os.fork()
    if number == 0:
        _set_up_child(json.loads(message), descriptors)
        return
    *pipes, status = descriptors
    for descriptor in pipes:
        os.close(descriptor)
    end = os.waitid(os.P_PID, number, os.WEXITED | os.WNOWAIT)
    assert end is not None
    code = end.si_status if end.si_code == os.CLD_EXITED else -end.si_status
    with contextlib.suppress(OSError):
        os.write(status, str(code).encode())
        os.read(status, 1)
    os._exit(0)


def _set_up_child(request: Mapping[str, Any], descriptors: Sequence[int]) -> None:
    """Start a session in a forked process, set its streams, variables and folder, and send its id."""
    os.setsid()
    for target, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, target)
        os.close(descriptor)
    os.environ.update(request["variables"])
    os.chdir(request["folder"])
    tempfile.tempdir = None
    fill = request["variables"].get("MALLOC_PERTURB_")
    if fill is not None:
        with contextlib.suppress(AttributeError):  # the C library has no mallopt
            ctypes.CDLL(None).mallopt(_M_PERTURB, int(fill))
    os.write(descriptors[3], str(os.getpid()).encode())
    os.close(descriptors[3])


_M_PERTURB: Final = -6
"""Parameter of ``mallopt`` that the variable ``MALLOC_PERTURB_`` sets when a program is executed."""


_DEFAULTS: Final[Mapping[str, Any]] = {
    "KIND": "runtime", "FORMATS": ("onnx",), "SETTINGS": {}, "PRELOAD": (), "ADDRESS_SPACE": None,
}  # fmt: skip


def _load_adapter(path: str) -> Any:
    return SimpleNamespace(**{**_DEFAULTS, **runpy.run_path(path)})


def _describe_adapter(adapter: Any) -> dict[str, Any]:
    if adapter.ADDRESS_SPACE is not None:
        import resource  # missing on Windows, but no implementation runs there

        resource.setrlimit(resource.RLIMIT_AS, (adapter.ADDRESS_SPACE, adapter.ADDRESS_SPACE))
    try:
        if hasattr(adapter, "read_versions"):
            versions = adapter.read_versions()
        else:
            versions = {name: version(name) for name in adapter.PACKAGES}
    except ImportError as error:
        return {"message": "absent", "reason": str(error)[:_MAX_TEXT]}
    return {
        "message": "started",
        "protocol": PROTOCOL,
        "name": Path(adapter.__file__).stem,
        "kind": adapter.KIND,
        "formats": list(adapter.FORMATS),
        "settings": adapter.SETTINGS,
        "versions": versions,
    }


def _run_case(adapter: Any, message: Mapping[str, Any], setting: Mapping[str, str]) -> dict[str, Any]:
    try:
        case = CaseInput(
            message["model"],
            {name: unpack(tensor) for name, tensor in message["inputs"].items()},
            {name: tensor["dtype"] for name, tensor in message["inputs"].items()},
            tuple(message["outputs"]),
            setting,
            message["folder"],
        )
        return _encode_result(adapter.KIND, adapter.run(case), case)
    except Rejected as rejected:
        error = rejected.error
        kind = "error" if isinstance(error, str) else type(error).__name__
        return {"outcome": "rejected", "stage": rejected.stage, "type": kind, "text": _truncate(error)}
    except NotApplicable as reason:
        return {"outcome": "not applicable", "text": _truncate(reason)}
    except Exception as error:
        return {"outcome": "adapter error", "type": type(error).__name__, "text": _truncate(error)}


def _encode_result(kind: str, result: Any, case: CaseInput) -> dict[str, Any]:
    if kind == "checker":
        return {"outcome": "accepted"}
    if kind in ("converter", "simplifier"):
        path = os.path.join(case.folder, "made.onnx")
        Path(path).write_bytes(result.SerializeToString())
        return {"outcome": "made", "model": path}
    values: Sequence[Any] = [result[name] for name in case.outputs] if isinstance(result, Mapping) else result
    if kind == "inference":
        return {"outcome": "inferred", "shapes": [None if dims is None else list(dims) for dims in values]}
    names = (f"output-{index}" for index in range(1 << 62))
    outputs = [
        {"sequence": [pack(part, case.folder, next(names)) for part in value]}
        if isinstance(value, list | tuple)
        else pack(value, case.folder, next(names))
        for value in values
    ]
    return {"outcome": "ok", "outputs": outputs}


def _truncate(error: BaseException | str) -> str:
    text = str(error) if isinstance(error, str) else str(error) or repr(error)
    return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT // 2]} ... {text[-_MAX_TEXT // 2 :]}"


if __name__ == "__main__":
    main()
