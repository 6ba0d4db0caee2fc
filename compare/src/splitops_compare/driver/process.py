"""Runs an implementation in a process with limits, and turns failures into outcomes."""

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

from splitops_compare.data import Outcome
from splitops_compare.protocol import MAX_LINE

_TICK: Final = 0.1
"""Seconds between checks of the memory and of the exit status."""
_GRACE: Final = 1.0
"""Seconds that a process has to exit once its input or its output is closed."""
_KILL_TIMEOUT: Final = 10.0
"""Seconds to wait for killed processes, since one can be blocked in the kernel for longer."""
_LARGEST_FILE: Final = 4 << 30
_LIMITED: Final = ("sh", "-c", f'ulimit -c 0; ulimit -f {_LARGEST_FILE >> 9}; exec "$@"', "sh")
"""Prefix that disables core files and limits the size of files."""
_TOKEN: Final = "SPLITOPS_COMPARE_"  # noqa: S105 - begins the name of a variable
"""Prefix of the variable that marks all processes of an implementation. The rest of its name is the token.
A forked process only has the token of its server. Programs that it starts have both."""
_MAX_EMPTY_READS: Final = 8
"""Number of empty reads after which a process is assumed to have no environment variables. While a process
starts another program, its environment is briefly empty, too."""
_SIZE: Final = 20
_ENV_END: Final = 48
"""Indices of fields in /proc/PID/stat after the name: virtual memory size, and end of the environment."""
_MAX_QUEUED: Final = 2
"""Maximum number of queued lines. A second line is already a protocol violation."""
_TAIL: Final = 1 << 12
"""Number of last bytes of stderr that are kept."""


@dataclass(frozen=True, slots=True)
class ResourceLimits:
    """Limits of an implementation.

    Attributes:
        seconds: time for one case.
        start: time to start, in seconds.
        memory: resident memory of all its processes together, in bytes.
    """

    seconds: float = 30
    start: float = 120
    memory: int = 4 << 30


class ProcessEnded(Exception):  # noqa: N818 - a result, not an error
    """The process ended or must be stopped. ``outcome`` has the reason."""

    def __init__(self, kind: str, text: str, signal_name: str | None = None) -> None:
        super().__init__(text)
        self.outcome = Outcome(kind=kind, text=text, signal=signal_name)


class _ForkedProcess:
    """A forked process, with those members of ``subprocess.Popen`` that :class:`Process` uses."""

    def __init__(self, pipes: Sequence[int], status: socket.socket) -> None:
        self.status = status
        self.pid = int(status.recv(64))  # if this fails, the caller closes the pipes
        self.stdin = os.fdopen(pipes[0], "wb")
        self.stdout, self.stderr = os.fdopen(pipes[1], "rb"), os.fdopen(pipes[2], "rb")
        self._returned: int | None = None

    def poll(self) -> int | None:
        """Return the exit status or None, like ``subprocess.Popen.poll``."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit status, like ``subprocess.Popen.wait``."""
        if self._returned is None:
            self.status.settimeout(timeout)
            try:
                status = self.status.recv(64)
            except (TimeoutError, BlockingIOError) as error:
                raise subprocess.TimeoutExpired("a forked process", timeout or 0) from error
            self._returned = int(
                status or -signal.SIGKILL
            )  # empty if the fork server was killed, with all its children
        return self._returned


class ForkServer:
    """Imports an implementation once, and forks a process for each call of :meth:`fork`.

    The descriptor of the socket for these requests is appended to the command.
    """

    def __init__(
        self, command: Sequence[str], limits: ResourceLimits, environment: Mapping[str, str]
    ) -> None:
        self._lock = threading.Lock()
        self._token = secrets.token_hex(16)
        self._ready = False
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._requests.settimeout(limits.start)
        with theirs:
            variables = {**environment, _TOKEN + self._token: "1"}
            number = theirs.fileno()
            pipe = subprocess.DEVNULL
            self._process = _start_process([*command, str(number)], variables, pipe, pass_fds=(number,))

    def fork(self, folder: str, variables: Mapping[str, str]) -> _ForkedProcess | None:
        """Fork a process that runs in ``folder``, or return None if that fails or there is no ``PRELOAD``."""
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
            return _ForkedProcess(pipes, ours)
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
        """Kill the server and all processes that it forked."""
        _kill(self._process.pid, self._token)
        self._process.wait()
        self._requests.close()


class Process:
    """A running implementation. Threads read its messages from stdout, and keep the end of its stderr.

    It runs in the temporary ``folder``, which :meth:`stop` deletes. ``server`` forks it if possible;
    otherwise, ``command`` starts it.
    """

    def __init__(
        self,
        command: Sequence[str],
        limits: ResourceLimits,
        environment: Mapping[str, str],
        server: ForkServer | None = None,
    ) -> None:
        self._limits = limits
        self._token = secrets.token_hex(16)
        self._home = tempfile.TemporaryDirectory(prefix="splitops-compare-", ignore_cleanup_errors=True)
        self.folder = Path(self._home.name)
        variables = {**environment, "TMPDIR": self._home.name, _TOKEN + self._token: "1"}
        forked = None if server is None else server.fork(self._home.name, variables)
        self._process: Any
        try:
            self._process = forked or _start_process(command, variables, subprocess.PIPE, cwd=self.folder)
        except OSError as error:
            self._home.cleanup()
            raise ProcessEnded("crash", f"it did not start: {error.strerror}") from error
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._printed = b""
        self._closed = False
        self._threads = [
            threading.Thread(target=work, daemon=True) for work in (self._read_stdout, self._read_stderr)
        ]
        for thread in self._threads:
            thread.start()

    def request(self, message: bytes, seconds: float) -> bytes:
        """Send a message, and return the line of the response.

        Raises:
            ProcessEnded: the process ended, exceeded a limit or closed its stdout.
        """
        deadline = time.monotonic() + seconds
        threading.Thread(
            target=self._write, args=(message,), daemon=True
        ).start()  # the process may never read
        while True:
            left = deadline - time.monotonic()
            line = self._take_line(min(_TICK, left)) if left > 0 else None
            if line is None and left > 0 and self._process.poll() is not None:
                line = self._take_line(_GRACE)  # it may have sent a line before its end
                if line is None:  # another process keeps the output open
                    raise self._make_exit()
            if line is not None and line.endswith(b"\n"):
                return line[:-1]
            if left <= 0:
                raise ProcessEnded("hang", f"no response in {seconds:g} s")
            self._check_memory()

    def take_late_outcome(self, seconds: float = 0) -> Outcome | None:
        """Wait ``seconds`` for another line or an exit, and return its outcome, or None if there is none."""
        try:
            line = self._take_line(seconds)
            if line is not None:
                raise ProcessEnded("protocol", f"it sent more than one response: {line.rstrip()[:60]!r}")
            if self._process.poll() is not None:
                raise self._make_exit()
        except ProcessEnded as ended:
            return ended.outcome
        return None

    def finish(self) -> Outcome | None:
        """Close stdin, and return the outcome of a failure since the last response or at exit, or None.

        After stdin is closed, an exit with any status is normal; only a signal or a message is a failure.
        """
        outcome = self.take_late_outcome()
        if outcome is None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
            outcome = self.take_late_outcome(_GRACE)
            if outcome is not None and outcome.signal is None and (self._closed or outcome.kind == "crash"):
                outcome = None  # a normal exit
        return outcome

    def kill(self) -> None:
        """Kill the process and its children. :meth:`request` then raises ProcessEnded in other threads."""
        _kill(self._process.pid, self._token)

    def stop(self) -> None:
        """Kill the process and its children, and delete its folder."""
        self.kill()
        self._process.wait()
        for thread in self._threads:
            thread.join(_GRACE)
        if isinstance(self._process, _ForkedProcess):
            self._process.status.close()
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._home.cleanup()

    def _write(self, message: bytes) -> None:
        with contextlib.suppress(OSError, ValueError):  # the process ended: its status has the reason
            while message:
                message = message[os.write(self._process.stdin.fileno(), message) :]

    def _read_stdout(self) -> None:
        """Queue lines of stdout, and an empty line at its end. Lines are dropped while the queue is full."""
        with self._process.stdout as pipe:
            while line := pipe.readline(MAX_LINE + 2):
                if self._lines.qsize() < _MAX_QUEUED:
                    self._lines.put(line)
        self._lines.put(b"")

    def _read_stderr(self) -> None:
        with self._process.stderr as pipe:
            while content := pipe.read1():
                self._printed = (self._printed + content)[-_TAIL:]

    def _take_line(self, seconds: float) -> bytes | None:
        """Return the next line, or None after ``seconds``.

        Raise ProcessEnded at the end of stdout, or if the line is too long.
        """
        if self._closed:
            raise self._make_exit()
        try:
            line = self._lines.get(timeout=seconds) if seconds else self._lines.get_nowait()
        except queue.Empty:
            return None
        if len(line) > MAX_LINE:
            raise ProcessEnded("protocol", f"a message has more than {MAX_LINE >> 20} MB")
        self._closed = not line
        if self._closed:
            raise self._make_exit()
        return line

    def _make_exit(self) -> ProcessEnded:
        """Make the exception for a process that has exited, or has only closed its stdout."""
        try:
            status = self._process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            return ProcessEnded("protocol", "it closed its output")
        self._threads[1].join(_TICK)  # stderr may have the reason
        printed = self._printed.decode(errors="replace")
        lines = [line for line in printed.splitlines() if line.strip()]
        reason = f": {lines[-1].strip()}" if lines else ""
        if status >= 0:
            return ProcessEnded("crash", f"its process exited with status {status}{reason}")
        try:
            name = signal.Signals(-status).name
        except ValueError:
            name = f"signal {-status}"
        return ProcessEnded("crash", f"its process was killed by {name}{reason}", name)

    def _check_memory(self) -> None:
        pages = 0
        for pid in {self._process.pid, *find_processes(self._token)}:
            with contextlib.suppress(OSError, ValueError, IndexError):
                pages += int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1])
        if pages * os.sysconf("SC_PAGE_SIZE") > self._limits.memory:
            raise ProcessEnded("memory", f"it uses more than {self._limits.memory / 2**30:g} GB")


def _start_process(
    command: Sequence[str], variables: Mapping[str, str], pipe: int, **options: Any
) -> subprocess.Popen[bytes]:
    """Start a command in a new session with limits and, if possible, no network. All streams are ``pipe``."""
    return subprocess.Popen(  # noqa: S603
        [*_LIMITED, *make_network_prefix(), *command],
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        env={**os.environ, **variables},
        start_new_session=True,
        **options,
    )


def _kill(group: int, token: str) -> None:
    """Kill a process group and all processes with ``token``. Wait up to 10 s until the latter have ended."""
    deadline = time.monotonic() + _KILL_TIMEOUT
    while time.monotonic() < deadline:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
        left = find_processes(token)
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not left:
            break
        time.sleep(0.01)


def find_processes(token: str) -> list[int]:
    """Return the ids of the processes, in any group, whose readable initial environment has ``token``."""
    variable = f"{_TOKEN}{token}=".encode()
    pids = []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError):
                if variable in _read_environment(Path("/proc", name)):
                    pids.append(int(name))
    return pids


def _read_environment(process: Path) -> bytes:
    """Read the initial environment of a process. Wait while it starts a program, since it is empty then."""
    content, empty_reads = b"", 0
    for _ in range(1000):
        content = (process / "environ").read_bytes()
        fields = (
            [] if content else (process / "stat").read_text("ascii", "replace").rpartition(")")[2].split()
        )
        if content or fields[_SIZE] == "0":
            break
        empty_reads += fields[_ENV_END] != "0"
        if empty_reads == _MAX_EMPTY_READS:  # it has no variables
            break
        time.sleep(0.001)
    return content


@cache
def make_network_prefix() -> tuple[str, ...]:
    """Return the command prefix that disables the network, such as ``unshare -cn --``.

    The prefix is empty if the system does not allow that.
    """
    for options in ("-cn", "-rn"):
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            command = ("unshare", options, "true")
            if subprocess.run(command, capture_output=True, timeout=10, check=False).returncode == 0:  # noqa: S603
                return ("unshare", options, "--")
    return ()
