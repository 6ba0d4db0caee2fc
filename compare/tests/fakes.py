"""An implementation with a fault: ``python fakes.py FAULT``. It needs only the standard library."""

from __future__ import annotations

import base64
import json
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

RIGHT = struct.pack("<2f", 1, 2)
STARTED = {
    "message": "started",
    "protocol": 1,
    "name": "fake",
    "kind": "runtime",
    "formats": ["onnx"],
    "settings": {},
    "versions": {"fake": "1.0"},
}
Ask = dict[str, Any]


def say(message: Any, end: str = "\n") -> None:
    os.write(1, (json.dumps(message) + end).encode())


def answer(ask: Ask, **more: Any) -> None:
    say({"message": "response", "id": ask["id"], **more})


def tensor(content: bytes = RIGHT, **more: Any) -> dict[str, Any]:
    return {"dtype": "float32", "shape": [2], "data": base64.b64encode(content).decode(), **more}


def ok(ask: Ask, *outputs: Any) -> None:
    answer(ask, outcome="ok", outputs=list(outputs or [tensor()]))


def file_tensor(ask: Ask, path: str) -> None:
    ok(ask, {"dtype": "float32", "shape": [2], "file": path})


def linked(ask: Ask) -> None:
    path = f"{ask['folder']}/link"
    os.symlink("/etc/hostname", path)
    file_tensor(ask, path)


def pipe(ask: Ask) -> None:
    path = f"{ask['folder']}/pipe"
    os.mkfifo(path)
    file_tensor(ask, path)


def flood(text: bytes, descriptor: int = 1) -> None:
    while True:
        os.write(descriptor, text)


def ignore_signals(ask: Ask) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    time.sleep(600)


def close_output(ask: Ask) -> None:
    os.close(1)
    time.sleep(600)


def eat(ask: Ask | None = None) -> None:
    held = []
    while True:
        held.append(bytearray(os.urandom(1 << 10) * (16 << 10)))
        time.sleep(0.01)


def fork_and(child: Callable[[], None], parent: Callable[[], None]) -> None:
    if os.fork() == 0:
        child()
        os._exit(0)
    parent()


def in_another_session() -> None:
    os.setsid()
    time.sleep(600)


def daemon() -> None:
    os.setsid()
    fork_and(lambda: time.sleep(600), lambda: os._exit(0))


def then(*steps: Callable[[], Any]) -> None:
    for step in steps:
        step()


def busy(ask: Ask) -> None:
    while True:
        pass


def moved() -> bytes:
    """What lies in memory, as an allocator leaves it."""
    return struct.pack("<2f", 1, float(os.environ.get("MALLOC_PERTURB_", 0)) + 3)


def later(ask: Ask) -> None:
    """Die of the damage that an earlier question did."""
    if ask["id"] > 1:
        os.abort()
    ok(ask)


def alone_otherwise(ask: Ask) -> None:
    """Fail in another way whenever memory is filled with something else."""
    {"85": lambda: os._exit(1), "170": lambda: ok(ask)}.get(os.environ.get("MALLOC_PERTURB_", ""), os.abort)()


FAULTS: dict[str, Callable[[Ask], Any]] = {
    "right": ok,
    "values": lambda a: ok(a, tensor(struct.pack("<2f", 1, 3))),
    "shape": lambda a: ok(a, tensor(shape=[2, 1])),
    "type": lambda a: ok(a, tensor(dtype="int32")),
    "too few": lambda a: answer(a, outcome="ok", outputs=[]),
    "too many": lambda a: ok(a, tensor(), tensor()),
    "sequence": lambda a: ok(a, {"sequence": [tensor()]}),
    "reads outside": lambda a: ok(a, tensor(moved())),
    "rejects": lambda a: answer(a, outcome="rejected", stage="load", type="E", text="no"),
    "does not claim": lambda a: answer(a, outcome="not applicable", text="no"),
    "adapter fails": lambda a: answer(a, outcome="adapter error", type="E", text="no"),
    "segfault": lambda a: os.kill(os.getpid(), signal.SIGSEGV),
    "abort": lambda a: os.abort(),
    "signal without a name": lambda a: os.kill(os.getpid(), signal.SIGRTMIN + 6),
    "made elsewhere": lambda a: answer(a, outcome="made", model="/etc/hostname"),
    "made nothing": lambda a: answer(a, outcome="made", model=f"{a['folder']}/nothing"),
    "kills its group": lambda a: os.kill(0, signal.SIGKILL),
    "exit 0": lambda a: os._exit(0),
    "exit 3": lambda a: os._exit(3),
    "says why and exits": lambda a: then(lambda: os.write(2, b"out of luck\n"), lambda: os._exit(3)),
    "sleeps": lambda a: time.sleep(600),
    "busy": busy,
    "ignores signals": ignore_signals,
    "stops itself": lambda a: os.kill(os.getpid(), signal.SIGSTOP),
    "flood without lines": lambda a: flood(b"x" * (1 << 20)),
    "flood of lines": lambda a: flood(b"x\n" * (1 << 15)),
    "flood of what is right": lambda a: then(lambda: ok(a), lambda: ok(a), lambda: flood(b"{}\n")),
    "prints much": lambda a: then(lambda: [os.write(2, b"y" * (1 << 16)) for _ in range(99)], lambda: ok(a)),
    "prints for ever": lambda a: flood(b"y" * (1 << 16), 2),
    "closes its output": close_output,
    "answers twice": lambda a: then(lambda: ok(a), lambda: ok(a)),
    "half a line": lambda a: then(lambda: say({"message": "response"}, end=""), lambda: time.sleep(600)),
    "half a line and exits": lambda a: then(lambda: say({}, end=""), lambda: os._exit(0)),
    "no JSON": lambda a: os.write(1, b"hello\n"),
    "no text": lambda a: os.write(1, b"\xff\xfe\n"),
    "empty line": lambda a: os.write(1, b"\n"),
    "deep": lambda a: os.write(1, b"[" * 200_000 + b"\n"),
    "a list": lambda a: say([]),
    "another id": lambda a: ok({"id": 99}),
    "another word": lambda a: answer(a, outcome="fine"),
    "starts again": lambda a: say(STARTED),
    "endless text": lambda a: answer(a, outcome="rejected", stage="load", type="E", text="x" * 100_000),
    "no bytes": lambda a: ok(a, tensor(b"")),
    "endless shape": lambda a: ok(a, tensor(shape=[1 << 40, 1 << 40])),
    "negative shape": lambda a: ok(a, tensor(shape=[-2])),
    "no such type": lambda a: ok(a, tensor(dtype="float7")),
    "file elsewhere": lambda a: file_tensor(a, "/etc/hostname"),
    "no file": lambda a: file_tensor(a, f"{a['folder']}/nothing"),
    "link": linked,
    "pipe": pipe,
    "eats memory": eat,
    "child eats memory": lambda a: fork_and(eat, lambda: time.sleep(600)),
    "child keeps the pipes": lambda a: fork_and(lambda: time.sleep(600), lambda: os._exit(0)),
    "child lives on": lambda a: fork_and(in_another_session, lambda: ok(a)),
    "daemon": lambda a: then(lambda: fork_and(daemon, lambda: os.wait()), lambda: ok(a)),
    "starts a program": lambda a: then(lambda: subprocess.Popen(["sleep", "600"]), lambda: ok(a)),
    "dies after its answer": lambda a: then(lambda: ok(a), os.abort),
    "dies a while after its answer": lambda a: then(lambda: ok(a), lambda: time.sleep(0.2), os.abort),
    "answers twice after a while": lambda a: then(lambda: ok(a), lambda: time.sleep(0.2), lambda: ok(a)),
    "half a line after its answer": lambda a: then(lambda: ok(a), lambda: say({}, end="")),
    "damage of an earlier case": later,
    "another fault each time": alone_otherwise,
}


def main() -> None:
    fault = sys.argv[1]
    sys.stdin.readline()
    if fault == "another protocol":
        say(STARTED | {"protocol": 2})
    elif fault == "absent":
        say({"message": "absent", "reason": "not installed"})
    elif fault == "answers at the start":
        ok({"id": 0})
    elif fault == "dies at the start":
        os.abort()
    elif fault == "sleeps at the start":
        time.sleep(600)
    else:
        say(STARTED)
    for line in sys.stdin:
        FAULTS.get(fault, ok)(json.loads(line))


if __name__ == "__main__":
    main()
