"""The process of an implementation: whatever it does is named, and nothing of it is left."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import selectors
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
"""Seconds between two looks at the memory."""
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
_CHUNK: Final = 1 << 20
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
    """The process is of no more use.

    Attributes:
        outcome: the result of it.
    """

    def __init__(self, kind: str, text: str, signal_name: str | None = None) -> None:
        super().__init__(text)
        self.outcome = Outcome(kind=kind, text=text, signal=signal_name)


class _Forked:
    """A process that a nursery has forked, as far as :class:`Process` looks at a ``subprocess.Popen``."""

    def __init__(self, pipes: Sequence[int], status: socket.socket) -> None:
        self.stdin, self.stdout, self.stderr = (
            os.fdopen(descriptor, mode, buffering=0)
            for descriptor, mode in zip(pipes, ("wb", "rb", "rb"), strict=True)
        )
        self.status = status
        self.pid = int(status.recv(64))
        self._returned: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """Return how it ended, as ``subprocess.Popen.wait``."""
        if self._returned is None:
            self.status.settimeout(timeout)
            try:
                said = self.status.recv(64)
            except TimeoutError as error:
                raise subprocess.TimeoutExpired("a forked process", timeout or 0) from error
            self._returned = int(said or -signal.SIGKILL)  # a nursery is killed with all that it forked
        return self._returned


class Nursery:
    """A process in which an implementation is imported, and that forks others in which it is too.

    Args:
        command: what starts the process of the implementation; it takes the number of a socket behind it.
        allowance: what an implementation may take.
        environment: variables beside those of this process.
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
        """Return a new process; None where the implementation cannot be imported before a fork.

        Args:
            folder: where it works.
            variables: of its environment, beside those of the nursery.
        """
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
    """A running implementation.

    Args:
        command: what starts it.
        allowance: what it may take.
        environment: variables beside those of this process.
        nursery: forks it, where it can.

    Attributes:
        folder: where it works; gone once the process is stopped.
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
        self._process: _Forked | subprocess.Popen[bytes]
        try:
            self._process = forked or _started(command, own, subprocess.PIPE, cwd=self.folder)
        except OSError as error:
            self._home.cleanup()
            raise Ended("crash", f"it cannot be started: {error.strerror}") from error
        self._exit = _exit_of(self._process)
        self._selector = selectors.DefaultSelector()
        for pipe in (self._process.stdout, self._process.stderr, self._exit):
            self._selector.register(pipe, selectors.EVENT_READ)  # type: ignore[arg-type]
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            os.set_blocking(pipe.fileno(), False)  # type: ignore[union-attr]
        self._chunks: list[bytes] = []
        self._size = 0
        self._lines: list[bytes] = []
        self._printed = b""
        self._exited = self._closed = False

    @property
    def printed(self) -> str:
        """The end of what it printed."""
        return self._printed.decode(errors="replace")

    def ask(self, message: bytes, seconds: float) -> bytes:
        """Send a message and return the line that answers it.

        Raises:
            Ended: it does not answer.
        """
        deadline = time.monotonic() + seconds
        looked = time.monotonic()
        rest = memoryview(message)
        while not self._lines:
            rest = self._write(rest)
            now = time.monotonic()
            if now >= deadline:
                raise Ended("hang", f"no answer in {seconds:g} s")
            self._read(min(_TICK, deadline - now))
            if self._lines:
                break
            self._prove_open()
            if now - looked >= _TICK:
                looked = now
                self._weigh()
        return self._lines.pop(0)

    def after(self) -> Outcome | None:
        """Return what the process did after its last answer, which belongs to the same case."""
        try:
            self._read(0)
            if self._lines or self._size:
                said = (self._lines or self._chunks)[0][:60]
                raise Ended("protocol", f"it says more than it was asked: {said!r}")
            self._prove_open()
        except Ended as ended:
            return ended.outcome
        return None

    def finish(self) -> Outcome | None:
        """Say that nobody asks any more, and return what it did after its last answer; then stop it."""
        found = self.after()
        if found is None:
            assert self._process.stdin is not None
            with contextlib.suppress(OSError):
                self._process.stdin.close()
            deadline = time.monotonic() + _GRACE
            while not self._exited and not self._lines and time.monotonic() < deadline:
                with contextlib.suppress(Ended):
                    self._read(_TICK)
            if self._lines or self._size:
                found = self.after()
            elif self._exited and self._process.wait() < 0:
                found = self._end().outcome
        return found

    def kill(self) -> None:
        """End the process and all that it started; its callers hear that it has ended."""
        _kill(self._process.pid, self._token)

    def stop(self) -> None:
        """End the process and all that it started, and take its files away."""
        self.kill()
        self._process.wait()
        self._selector.close()
        os.close(self._exit)
        if isinstance(self._process, _Forked):
            self._process.status.close()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            with contextlib.suppress(OSError):
                pipe.close()  # type: ignore[union-attr]
        self._home.cleanup()

    def _write(self, rest: memoryview) -> memoryview:
        if not rest:
            return rest
        pipe = self._process.stdin
        assert pipe is not None
        try:
            rest = rest[os.write(pipe.fileno(), rest[:_CHUNK]) :]
        except BlockingIOError:
            pass
        except OSError:  # nobody reads any more: the exit says why
            rest = rest[:0]
        known = pipe in self._selector.get_map()
        if rest and not known:
            self._selector.register(pipe, selectors.EVENT_WRITE)
        elif known and not rest:
            self._selector.unregister(pipe)
        return rest

    def _read(self, seconds: float) -> None:
        """Take what there is, waiting so long for it."""
        for key, _ in self._selector.select(seconds):
            if key.fileobj is self._process.stdout:
                self._take()
            elif key.fileobj is self._process.stderr:
                self._listen()
            elif key.fileobj == self._exit:
                self._exited = True
        if self._exited:  # what it said before, at most what a pipe holds
            self._take()
            self._listen()

    def _take(self) -> None:
        data = self._data(self._process.stdout)
        first, *more = data.split(b"\n")
        self._chunks.append(first)
        self._size += len(first)
        if more:
            self._lines += [b"".join(self._chunks), *more[:-1]]
            self._chunks, self._size = [more[-1]], len(more[-1])
        if self._size > MAX_LINE:
            raise Ended("protocol", f"a message has more than {MAX_LINE >> 20} MB")

    def _listen(self) -> None:
        self._printed = (self._printed + self._data(self._process.stderr))[-_TAIL:]

    def _data(self, pipe: Any) -> bytes:
        try:
            data = os.read(pipe.fileno(), _CHUNK)
        except BlockingIOError:
            return b""
        if not data and pipe in self._selector.get_map():
            self._selector.unregister(pipe)
            self._closed |= pipe is self._process.stdout
        return data

    def _prove_open(self) -> None:
        """Say why the output is closed, if it is: the process ends, or it does not."""
        if self._closed and not self._exited:
            try:
                self._process.wait(_GRACE)
            except subprocess.TimeoutExpired as error:
                raise Ended("protocol", "it has closed its output") from error
        if self._closed or self._exited:
            raise self._end()

    def _end(self) -> Ended:
        status = self._process.wait()
        lines = [line for line in self.printed.splitlines() if line.strip()]
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


def _exit_of(process: _Forked | subprocess.Popen[bytes]) -> int:
    """Return what becomes readable when a process ends."""
    if isinstance(process, _Forked):
        return os.dup(process.status.fileno())
    return os.pidfd_open(process.pid)


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
