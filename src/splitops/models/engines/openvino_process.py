"""OpenVINO in a process of its own, which alone ends if it crashes: to read ONNX."""

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
"""A node of domain ``openvino`` that becomes OpenVINO's own layer: name, operation set and attributes."""


class _Process:
    """The process, which the first question starts and which answers all later ones."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._engine: IsolatedEngine | None = None
        atexit.register(self._close, os.getpid())

    def request(self, *message: Any, where: Where) -> Any:
        """Return an answer, or in words how the process has ended; a rejection by OpenVINO is raised."""
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
            except BaseException:  # Ctrl-C has ended it
                self._engine = None
                raise

    def _close(self, owner: int) -> None:
        if self._engine is not None and os.getpid() == owner:
            self._engine.close()


_PROCESSES: Final[dict[int, _Process]] = {}
"""By the process that asks: the child of a fork has one of its own."""


def _process() -> _Process:
    return _PROCESSES.get(os.getpid()) or _PROCESSES.setdefault(os.getpid(), _Process())


def to_ir(
    source: bytes | os.PathLike[str], where: Where, *, extensions: Sequence[Extension] = ()
) -> tuple[bytes, bytes]:
    """Return an ONNX model as OpenVINO reads it: the XML and the constants of OpenVINO IR.

    The source is serialised, with its data inside, or a file. Nodes of domain ``openvino`` are extensions.
    """
    given = source if isinstance(source, bytes) else os.path.abspath(source)
    answer: tuple[bytes, bytes] | str = _process().request("to_ir", given, extensions, where, where=where)
    if not isinstance(answer, str):
        return answer
    at = _suspect(given, extensions, where)
    likely = "" if at is None else f"; the likely cause is {at}"
    raise EngineError("openvino", f"{answer} while it read the model{likely}", where)


def _suspect(source: bytes | str, extensions: Sequence[Extension], where: Where) -> str | None:
    """Return the first node with which a model cannot be read; None where only the whole model cannot."""
    if isinstance(source, str):
        return None
    from onnx import ModelProto

    model = ModelProto.FromString(source)
    nodes = model.graph.node
    read, unread, reason = 0, len(nodes) + 1, ""
    while unread - read > 1:
        count = (read + unread) // 2
        try:
            part = _beginning(model, count)
            answer = _process().request("to_ir", part, extensions, where, where=where)
            problem = answer if isinstance(answer, str) else None
        except EngineError as error:
            # OpenVINO goes on behind a node that it cannot read, and crashes on what is missing there.
            problem = error.message
        if problem is None:
            read = count
        else:
            unread, reason = count, problem
    if unread > len(nodes):
        return None
    node = nodes[unread - 1]
    return f"node {shown(node.name or node.output[0])} ({node.op_type}): {reason}"


def _beginning(model: ModelProto, count: int) -> bytes:
    """Return the first nodes of a model as a model, serialised."""
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
