"""The process of an implementation: JSON lines in, and on what was standard output what one adapter answers.

    python worker.py ADAPTER.py [DESCRIPTOR]

With the descriptor of a socket it imports what the adapter names in ``PRELOAD``, and answers nothing itself.
It forks a process for each request, which is as fresh as one that was started and needs no time to import.

It runs in the environment of the implementation, which need not have splitops: this module and the
adapters know the standard library, NumPy, ml_dtypes where it is there, and the implementation. An adapter
is a file with

- ``KIND``, one of :data:`KINDS`; without it, ``"runtime"``;
- ``FORMATS``, ``("onnx",)``, ``("ir",)`` or both; without it, ``("onnx",)``;
- ``SETTINGS``, where it has any: the values of each setting by its name, the default one first;
- ``PRELOAD``, where the implementation may be imported before a fork: the names of its modules;
- ``ADDRESS_SPACE``, where it can work with a limit: so many bytes;
- ``PACKAGES``: the distributions whose releases are reported, that of the implementation first; or
  ``versions()``: the releases by name, ImportError where the implementation is not installed;
- ``answer(case)``: the implementation's answer to a :class:`Question`.

What the implementation's own calls raise is its rejection: they are in :func:`rejecting`. Any other
exception is an error of the adapter.
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
"""What an implementation is. ``answer`` returns

- of a runtime or compiler the outputs: arrays (or :class:`Tensor`) in the order of ``case.outputs`` or by
  name, lists of arrays for sequences;
- of an inference their dimensions in the same way: a number, a name or None for each, or None for all;
- of a checker nothing;
- of a converter or simplifier the ModelProto that it made.
"""
_INLINE: Final = 1 << 20
"""Larger tensors go through files."""
_TEXT: Final = 2000


@dataclass(frozen=True)
class Question:
    """One question to an implementation.

    Attributes:
        inputs: arrays by input name. Strings are object arrays, small types those of ml_dtypes, one element
            an item; a type that NumPy and ml_dtypes lack is unsigned integers of its bits.
        types: name of the element type of each input, such as ``"float32"``, ``"bfloat16"``, ``"nf4"``.
        folder: where files may be written.
    """

    model: str
    inputs: Mapping[str, npt.NDArray[Any]]
    types: Mapping[str, str]
    outputs: tuple[str, ...]
    setting: Mapping[str, str]
    folder: str


@dataclass(frozen=True)
class Tensor:
    """An array whose element type NumPy and ml_dtypes cannot say."""

    dtype: str
    array: npt.NDArray[Any]


class Rejected(Exception):  # noqa: N818 - an answer
    """The implementation rejects the case at ``"load"``, ``"compile"``, ``"run"`` or another stage."""

    def __init__(self, stage: str, error: BaseException | str) -> None:
        super().__init__(stage, error)
        self.stage = stage
        self.error = error


class NotApplicable(Exception):  # noqa: N818 - an answer
    """The implementation says in its documentation that it does not do this."""


@contextlib.contextmanager
def rejecting(stage: str) -> Iterator[None]:
    """Take what the calls of the implementation raise in the block for its rejection."""
    try:
        yield
    except (KeyboardInterrupt, Rejected, NotApplicable):
        raise
    except BaseException as error:  # a panic of Rust is not an Exception, an implementation may call exit
        raise Rejected(stage, error) from error


def tool(stage: str, *command: str | os.PathLike[str], folder: str | None = None) -> None:
    """Run a program of the implementation in a folder: its failure is a rejection, its death is ours."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace")  # noqa: S603
    sys.stderr.write(done.stdout + done.stderr)
    if done.returncode < 0:
        sys.stderr.flush()
        os.kill(os.getpid(), -done.returncode)
    if done.returncode:
        said = done.stderr.strip() or done.stdout.strip()
        raise Rejected(stage, said or f"{os.path.basename(command[0])} ends with {done.returncode}")


def pack(value: Any, folder: str, name: str) -> dict[str, Any]:
    """Write an array for a message; a large one goes into a file of that name."""
    dtype, array = (value.dtype, value.array) if isinstance(value, Tensor) else (None, np.asarray(value))
    found: dict[str, Any] = {"dtype": dtype or array.dtype.name, "shape": list(array.shape)}
    if array.dtype.kind in "OUST":
        return {**found, "dtype": "string", "strings": [_string(item) for item in array.ravel().tolist()]}
    array = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"), copy=False))
    if array.nbytes <= _INLINE:
        return {**found, "data": base64.b64encode(array.tobytes()).decode()}
    path = os.path.join(folder, name)
    array.tofile(path)
    return {**found, "file": path}


def _string(item: Any) -> str:
    if isinstance(item, bytes):
        return item.decode("utf-8", "surrogateescape")
    if not isinstance(item, str):
        raise TypeError(f"a string was expected, not {type(item).__name__}")
    return item


def unpack(found: Mapping[str, Any]) -> npt.NDArray[Any]:
    """Read an array of a message; a ValueError says that the bytes are not as many as type and shape say."""
    shape = tuple(found["shape"])
    if "strings" in found:
        array = np.empty(len(found["strings"]), object)
        array[:] = found["strings"]
        return array.reshape(shape)
    dtype = storage(found["dtype"])
    if math.prod(shape) * dtype.itemsize == 0:
        return np.zeros(shape, dtype)
    content = Path(found["file"]).read_bytes() if "file" in found else base64.b64decode(found["data"])
    return np.frombuffer(content, dtype).reshape(shape)


def storage(name: str) -> np.dtype[Any]:
    """Return the dtype that arrays of an element type have; integers of its bits where there is none."""
    try:
        return np.dtype(name)
    except TypeError:
        pass
    try:
        import ml_dtypes

        found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return found
    except (ImportError, AttributeError, TypeError):
        return np.dtype("<u2" if name == "bfloat16" else "u1")


def main() -> None:
    """Answer until nobody asks any more."""
    sys.modules["splitops.comparison.worker"] = sys.modules["__main__"]  # where adapters import it from
    sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]  # an import of OpenVINO sends otherwise
    adapter = _adapter(sys.argv[1])
    if len(sys.argv) > 2:
        _fork_on_request(adapter, socket.socket(fileno=int(sys.argv[2])))
    # What the implementation reads and prints is not a message.
    asked = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    setting: Mapping[str, str] = {}
    for line in asked:
        message = json.loads(line)
        if message["message"] == "start":
            defaults = {name: values[0] for name, values in adapter.SETTINGS.items()}
            setting = defaults | message["setting"]
            answer = _started(adapter)
        else:
            answer = {"message": "answer", "id": message["id"], **_answer(adapter, message, setting)}
        answers.write(json.dumps(answer).encode() + b"\n")
        answers.flush()
    os._exit(0)  # what an implementation does at its exit belongs to no case


def _fork_on_request(adapter: Any, requests: socket.socket) -> None:
    """Fork a process for each request, and say how it ended; return in these processes alone.

    A request brings standard input, output and error, and a socket. There the process says its number, and
    its parent, which is forked for it alone, says how it has ended. It is reaped when the other end is
    closed: until then no other process gets its number.
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
        if not message:  # nobody asks any more
            os._exit(0)
        if os.fork() == 0:
            break
        for descriptor in descriptors:
            os.close(descriptor)
    requests.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    number = os.fork()
    if number == 0:
        _settle(json.loads(message), descriptors)
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


def _settle(request: Mapping[str, Any], descriptors: Sequence[int]) -> None:
    """Make a forked process what a started one would be."""
    os.setsid()
    for target, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, target)
        os.close(descriptor)
    os.environ.update(request["variables"])
    os.chdir(request["folder"])
    tempfile.tempdir = None
    fill = request["variables"].get("MALLOC_PERTURB_")
    if fill is not None:
        with contextlib.suppress(AttributeError):  # a C library without it
            ctypes.CDLL(None).mallopt(_M_PERTURB, int(fill))
    os.write(descriptors[3], str(os.getpid()).encode())
    os.close(descriptors[3])


_M_PERTURB: Final = -6
"""The parameter of ``mallopt`` that ``MALLOC_PERTURB_`` sets when a process starts."""


_DEFAULTS: Final[Mapping[str, Any]] = {
    "KIND": "runtime", "FORMATS": ("onnx",), "SETTINGS": {}, "PRELOAD": (), "ADDRESS_SPACE": None,
}  # fmt: skip


def _adapter(path: str) -> Any:
    return SimpleNamespace(**{**_DEFAULTS, **runpy.run_path(path)})


def _started(adapter: Any) -> dict[str, Any]:
    if adapter.ADDRESS_SPACE is not None:
        import resource  # not on Windows, where no implementation is started

        resource.setrlimit(resource.RLIMIT_AS, (adapter.ADDRESS_SPACE, adapter.ADDRESS_SPACE))
    try:
        own = hasattr(adapter, "versions")
        versions = adapter.versions() if own else {name: version(name) for name in adapter.PACKAGES}
    except ImportError as error:
        return {"message": "absent", "reason": str(error)[:_TEXT]}
    return {
        "message": "started",
        "protocol": PROTOCOL,
        "name": Path(adapter.__file__).stem,
        "kind": adapter.KIND,
        "formats": list(adapter.FORMATS),
        "settings": adapter.SETTINGS,
        "versions": versions,
    }


def _answer(adapter: Any, message: Mapping[str, Any], setting: Mapping[str, str]) -> dict[str, Any]:
    try:
        case = Question(
            message["model"],
            {name: unpack(tensor) for name, tensor in message["inputs"].items()},
            {name: tensor["dtype"] for name, tensor in message["inputs"].items()},
            tuple(message["outputs"]),
            setting,
            message["folder"],
        )
        return _told(adapter.KIND, adapter.answer(case), case)
    except Rejected as rejected:
        error = rejected.error
        kind = "error" if isinstance(error, str) else type(error).__name__
        return {"outcome": "rejected", "stage": rejected.stage, "type": kind, "text": _text(error)}
    except NotApplicable as reason:
        return {"outcome": "not applicable", "text": _text(reason)}
    except Exception as error:
        return {"outcome": "adapter error", "type": type(error).__name__, "text": _text(error)}


def _told(kind: str, found: Any, case: Question) -> dict[str, Any]:
    if kind == "checker":
        return {"outcome": "accepted"}
    if kind in ("converter", "simplifier"):
        path = os.path.join(case.folder, "made.onnx")
        Path(path).write_bytes(found.SerializeToString())
        return {"outcome": "made", "model": path}
    values: Sequence[Any] = [found[name] for name in case.outputs] if isinstance(found, Mapping) else found
    if kind == "inference":
        return {"outcome": "inferred", "shapes": [None if dims is None else list(dims) for dims in values]}
    names = (f"answer-{index}" for index in range(1 << 62))
    outputs = [
        {"sequence": [pack(part, case.folder, next(names)) for part in value]}
        if isinstance(value, list | tuple)
        else pack(value, case.folder, next(names))
        for value in values
    ]
    return {"outcome": "ok", "outputs": outputs}


def _text(error: BaseException | str) -> str:
    text = str(error) if isinstance(error, str) else str(error) or repr(error)
    return text if len(text) <= _TEXT else f"{text[: _TEXT // 2]} ... {text[-_TEXT // 2 :]}"


if __name__ == "__main__":
    main()
