"""The process of an implementation: whatever it does is named, and nothing of it is left."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import secrets
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from splitops.comparison.protocol import MAX_LINE
from splitops.comparison.records import Outcome

_TICK: Final = 0.1
"""Seconds between two looks at the memory, and at a process whose output stays open."""
_GRACE: Final = 1.0
"""Seconds that a process has to end when nobody asks any more, or once its output is closed."""
_GONE: Final = 10.0
"""Seconds in which a process that is killed is gone, unless the kernel keeps it."""
_LARGEST_FILE: Final = 4 << 30
_LIMITED: Final = ("sh", "-c", f'ulimit -c 0; ulimit -f {_LARGEST_FILE >> 9}; exec "$@"', "sh")
"""Starts a command without core files, and so that it fills no disk."""
_TOKEN: Final = "SPLITOPS_COMPARE_"  # noqa: S105 - begins the name of a variable
"""The rest of the name is the token, so what a forked process starts has the variable of its nursery too."""
_LOOKS: Final = 8
_SIZE: Final = 20
_ENV_END: Final = 48
"""Where the size of the memory and the end of the variables stand in /proc/PID/stat, behind the name."""
_HEARD: Final = 2
"""So many lines that nobody asked for are kept; the first is wrong."""
_TAIL: Final = 1 << 12


@dataclass(frozen=True, slots=True)
class Allowance:
    """What an implementation may take.

    Attributes:
        seconds: for one case.
        start: seconds to start.
        memory: bytes of resident memory, of all its processes together.
    """

    seconds: float = 30
    start: float = 120
    memory: int = 4 << 30


class Ended(Exception):  # noqa: N818 - an outcome
    """The process is of no more use; its ``outcome`` says why."""

    def __init__(self, kind: str, text: str, signal_name: str | None = None) -> None:
        super().__init__(text)
        self.outcome = Outcome(kind=kind, text=text, signal=signal_name)


class _Forked:
    """A process that a nursery has forked, as far as :class:`Process` looks at a ``subprocess.Popen``."""

    def __init__(self, pipes: Sequence[int], status: socket.socket) -> None:
        self.status = status
        self.pid = int(status.recv(64))  # the pipes stay with the caller if this fails
        self.stdin = os.fdopen(pipes[0], "wb")
        self.stdout, self.stderr = os.fdopen(pipes[1], "rb"), os.fdopen(pipes[2], "rb")
        self._returned: int | None = None

    def poll(self) -> int | None:
        """Return how it ended, if it did, as ``subprocess.Popen.poll``."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """Return how it ended, as ``subprocess.Popen.wait``."""
        if self._returned is None:
            self.status.settimeout(timeout)
            try:
                said = self.status.recv(64)
            except (TimeoutError, BlockingIOError) as error:
                raise subprocess.TimeoutExpired("a forked process", timeout or 0) from error
            self._returned = int(said or -signal.SIGKILL)  # a nursery is killed with all that it forked
        return self._returned


class Nursery:
    """A process in which an implementation is imported, and that forks others in which it is too.

    The command takes the number of a socket behind it.
    """

    def __init__(self, command: Sequence[str], allowance: Allowance, environment: Mapping[str, str]) -> None:
        self._lock = threading.Lock()
        self._token = secrets.token_hex(16)
        self._ready = False
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._requests.settimeout(allowance.start)
        with theirs:
            variables = {**environment, _TOKEN + self._token: "1"}
            number = theirs.fileno()
            pipe = subprocess.DEVNULL
            self._process = _started([*command, str(number)], variables, pipe, pass_fds=(number,))

    def fork(self, folder: str, variables: Mapping[str, str]) -> _Forked | None:
        """Return a new process; None where the implementation cannot be imported before a fork."""
        inputs, outputs, errors = os.pipe(), os.pipe(), os.pipe()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pipes = (inputs[1], outputs[0], errors[0])
        message = json.dumps({"folder": folder, "variables": dict(variables)}).encode()
        try:
            with self._lock, theirs:
                self._ready = self._ready or self._requests.recv(64) == b"ready"
                if not self._ready:
                    raise ConnectionError
                socket.send_fds(
                    self._requests, [message], [inputs[0], outputs[1], errors[1], theirs.fileno()]
                )
            ours.settimeout(_GRACE * 30)
            return _Forked(pipes, ours)
        except (OSError, ValueError):
            ours.close()
            for descriptor in pipes:
                with contextlib.suppress(OSError):
                    os.close(descriptor)
            return None
        finally:
            for descriptor in (inputs[0], outputs[1], errors[1]):
                os.close(descriptor)

    def stop(self) -> None:
        """End the process and all that it has forked."""
        _kill(self._process.pid, self._token)
        self._process.wait()
        self._requests.close()


class Process:
    """A running implementation; threads hear what it says, and what it prints.

    Its ``folder``, where it works, is gone once it is stopped. A nursery forks it, where it can.
    """

    def __init__(
        self,
        command: Sequence[str],
        allowance: Allowance,
        environment: Mapping[str, str],
        nursery: Nursery | None = None,
    ) -> None:
        self._allowance = allowance
        self._token = secrets.token_hex(16)
        self._home = tempfile.TemporaryDirectory(prefix="splitops-compare-", ignore_cleanup_errors=True)
        self.folder = Path(self._home.name)
        own = {**environment, "TMPDIR": self._home.name, _TOKEN + self._token: "1"}
        forked = None if nursery is None else nursery.fork(self._home.name, own)
        self._process: Any
        try:
            self._process = forked or _started(command, own, subprocess.PIPE, cwd=self.folder)
        except OSError as error:
            self._home.cleanup()
            raise Ended("crash", f"it cannot be started: {error.strerror}") from error
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._printed = b""
        self._closed = False
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._hear, self._listen)]
        for thread in self._threads:
            thread.start()

    def ask(self, message: bytes, seconds: float) -> bytes:
        """Send a message and return the line that answers it."""
        deadline = time.monotonic() + seconds
        threading.Thread(target=self._write, args=(message,), daemon=True).start()  # it may never read
        while True:
            left = deadline - time.monotonic()
            line = self._next(min(_TICK, left)) if left > 0 else None
            if line is None and left > 0 and self._process.poll() is not None:
                line = self._next(_GRACE)  # what it said before
                if line is None:  # something else keeps its output open
                    raise self._end()
            if line is not None and line.endswith(b"\n"):
                return line[:-1]
            if left <= 0:
                raise Ended("hang", f"no answer in {seconds:g} s")
            self._weigh()

    def after(self, seconds: float = 0) -> Outcome | None:
        """Return what the process did in some time after its last answer, which belongs to the same case."""
        try:
            line = self._next(seconds)
            if line is not None:
                raise Ended("protocol", f"it says more than it was asked: {line.rstrip()[:60]!r}")
            if self._process.poll() is not None:
                raise self._end()
        except Ended as ended:
            return ended.outcome
        return None

    def finish(self) -> Outcome | None:
        """Say that nobody asks any more, and return what it did after its last answer; then stop it."""
        found = self.after()
        if found is None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
            found = self.after(_GRACE)
            if found is not None and found.signal is None and (self._closed or found.kind == "crash"):
                found = None  # it ends as it should
        return found

    def kill(self) -> None:
        """End the process and all that it started; its callers hear that it has ended."""
        _kill(self._process.pid, self._token)

    def stop(self) -> None:
        """End the process and all that it started, and take its files away."""
        self.kill()
        self._process.wait()
        for thread in self._threads:
            thread.join(_GRACE)
        if isinstance(self._process, _Forked):
            self._process.status.close()
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._home.cleanup()

    def _write(self, message: bytes) -> None:
        with contextlib.suppress(OSError, ValueError):  # nobody reads any more: the exit says why
            while message:
                message = message[os.write(self._process.stdin.fileno(), message) :]

    def _hear(self) -> None:
        """Put what it says into the queue; of a flood the beginning, and an empty line at its end."""
        with self._process.stdout as pipe:
            while line := pipe.readline(MAX_LINE + 2):
                if self._lines.qsize() < _HEARD:
                    self._lines.put(line)
        self._lines.put(b"")

    def _listen(self) -> None:
        with self._process.stderr as pipe:
            while content := pipe.read1():
                self._printed = (self._printed + content)[-_TAIL:]

    def _next(self, seconds: float) -> bytes | None:
        """Return the next line, the last one perhaps without its end; None where none comes in time."""
        if self._closed:
            raise self._end()
        try:
            line = self._lines.get(timeout=seconds) if seconds else self._lines.get_nowait()
        except queue.Empty:
            return None
        if len(line) > MAX_LINE:
            raise Ended("protocol", f"a message has more than {MAX_LINE >> 20} MB")
        self._closed = not line
        if self._closed:
            raise self._end()
        return line

    def _end(self) -> Ended:
        """Return why the output is closed: the process ends, or it does not."""
        try:
            status = self._process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            return Ended("protocol", "it has closed its output")
        self._threads[1].join(_TICK)  # it has printed why, most likely
        printed = self._printed.decode(errors="replace")
        lines = [line for line in printed.splitlines() if line.strip()]
        said = f": {lines[-1].strip()}" if lines else ""
        if status >= 0:
            return Ended("crash", f"its process ends with status {status}{said}")
        try:
            name = signal.Signals(-status).name
        except ValueError:
            name = f"signal {-status}"
        return Ended("crash", f"its process ends with {name}{said}", name)

    def _weigh(self) -> None:
        pages = 0
        for number in {self._process.pid, *family(self._token)}:
            with contextlib.suppress(OSError, ValueError, IndexError):
                pages += int(Path(f"/proc/{number}/statm").read_text("ascii").split()[1])
        if pages * os.sysconf("SC_PAGE_SIZE") > self._allowance.memory:
            raise Ended("memory", f"it takes more than {self._allowance.memory / 2**30:g} GB")


def _started(
    command: Sequence[str], variables: Mapping[str, str], pipe: int, **more: Any
) -> subprocess.Popen[bytes]:
    """Start a command in a session of its own, limited and without a network, with three pipes or none."""
    return subprocess.Popen(  # noqa: S603
        [*_LIMITED, *without_network(), *command],
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        env={**os.environ, **variables},
        start_new_session=True,
        **more,
    )


def _kill(group: int, token: str) -> None:
    """End a group of processes, and all that have a token; return when they are gone."""
    deadline = time.monotonic() + _GONE
    while time.monotonic() < deadline:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
        left = family(token)
        for number in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(number, signal.SIGKILL)
        if not left:
            break
        time.sleep(0.01)


def family(token: str) -> list[int]:
    """Return all processes that have a token from us, wherever they have gone."""
    wanted = f"{_TOKEN}{token}=".encode()
    found = []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError):
                if wanted in _variables(Path("/proc", name)):
                    found.append(int(name))
    return found


def _variables(process: Path) -> bytes:
    """Return the variables that a process began with; while it begins another program it has none."""
    content, looks = b"", 0
    for _ in range(1000):
        content = (process / "environ").read_bytes()
        fields = (
            [] if content else (process / "stat").read_text("ascii", "replace").rpartition(")")[2].split()
        )
        if content or fields[_SIZE] == "0":
            break
        looks += fields[_ENV_END] != "0"
        if looks == _LOOKS:  # without variables, and not only between a look at these and one at this
            break
        time.sleep(0.001)
    return content


@cache
def without_network() -> tuple[str, ...]:
    """Return what starts a command without a network; nothing where this machine does not allow it."""
    for options in ("-cn", "-rn"):
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            command = ("unshare", options, "true")
            if subprocess.run(command, capture_output=True, timeout=10, check=False).returncode == 0:  # noqa: S603
                return ("unshare", options, "--")
    return ()
