"""Read ONNX with OpenVINO in a separate process, so that a crash does not end this one."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from splitops.errors import Where, shown
from splitops.models.engines.engine import EngineError

if TYPE_CHECKING:
    from onnx import ModelProto

    from splitops.models.engines.isolated import IsolatedEngine

Extension = tuple[str, int, tuple[str, ...]]
"""The name, operation set and attributes of an operator of domain ``openvino`` to convert to a layer."""


class _Process:
    """A process with OpenVINO, started by the first request."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._engine: IsolatedEngine | None = None
        atexit.register(self._close, os.getpid())

    def request(self, *message: Any, where: Where) -> Any:
        """Send a request. Return the response, or text on how the process ended. Raise errors of OpenVINO."""
        with self._lock:
            if self._engine is None:
                from splitops.models.engines.isolated import IsolatedEngine

                self._engine = IsolatedEngine("openvino", {}, profile=False)
            if self._engine.ended:
                self._engine.start()
            try:
                return self._engine.request(*message, where=where)
            except EngineError:
                if not self._engine.ended:
                    raise
                return self._engine.ended
            except BaseException:  # Ctrl-C has killed the process
                self._engine = None
                raise

    def _close(self, owner: int) -> None:
        if self._engine is not None and os.getpid() == owner:
            self._engine.close()


_PROCESSES: Final[dict[int, _Process]] = {}
"""Processes, keyed by the id of the parent process: a forked child gets its own."""


def _get_process() -> _Process:
    return _PROCESSES.get(os.getpid()) or _PROCESSES.setdefault(os.getpid(), _Process())


def to_ir(
    source: bytes | os.PathLike[str], where: Where, *, extensions: Sequence[Extension] = ()
) -> tuple[bytes, bytes]:
    """Convert an ONNX model with OpenVINO's reader. Return the XML and the constants of OpenVINO IR.

    Args:
        source: a serialised model without external data, or a path.
        where: location of the model, for errors.
        extensions: the operators of domain ``openvino`` in the model.

    Raises:
        EngineError: OpenVINO rejects the model or crashes. After a crash on a serialised model, the message
            names the likely cause, if it is found.
        ModelError: OpenVINO is not installed, or does not have one of ``extensions``.
    """
    given = source if isinstance(source, bytes) else os.path.abspath(source)
    answer: tuple[bytes, bytes] | str = _get_process().request("to_ir", given, extensions, where, where=where)
    if not isinstance(answer, str):
        return answer
    at = _find_suspect(given, extensions, where)
    likely = "" if at is None else f"; the likely cause is {at}"
    problem = f"{answer} while it read the model{likely}"
    raise EngineError("openvino", problem, where, process_ended=True)


def _find_suspect(source: bytes | str, extensions: Sequence[Extension], where: Where) -> str | None:
    """Describe the first node that OpenVINO cannot read. Return None if it reads all, or for a path."""
    if isinstance(source, str):
        return None
    from onnx import ModelProto

    model = ModelProto.FromString(source)
    nodes = model.graph.node
    read, unread, reason = 0, len(nodes) + 1, ""
    while unread - read > 1:
        count = (read + unread) // 2
        try:
            part = _truncate(model, count)
            answer = _get_process().request("to_ir", part, extensions, where, where=where)
            problem = answer if isinstance(answer, str) else None
        except EngineError as error:
            # OpenVINO continues after a node that it cannot read, and crashes on its missing outputs.
            problem = error.message
        if problem is None:
            read = count
        else:
            unread, reason = count, problem
    if unread > len(nodes):
        return None
    node = nodes[unread - 1]
    return f"node {shown(node.name or node.output[0])} ({node.op_type}): {reason}"


def _truncate(model: ModelProto, count: int) -> bytes:
    """Serialise a model with only its first ``count`` nodes. Their unused results become the outputs."""
    from onnx import ModelProto, ValueInfoProto

    made = ModelProto()
    made.CopyFrom(model)
    del made.graph.node[count:]
    del made.graph.output[:]
    read = {name for node in made.graph.node for name in node.input}
    ends = [name for node in made.graph.node for name in node.output if name and name not in read]
    made.graph.output.extend(ValueInfoProto(name=name) for name in ends)
    content: bytes = made.SerializeToString()
    return content
