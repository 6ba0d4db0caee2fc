"""An engine in a process of its own: that it dies is an answer."""

from __future__ import annotations

import contextlib
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final

from splitops.errors import NOWHERE, Where
from splitops.models.engines.engine import EngineError, Event, Program

_WORKER: Final = "splitops.models.engines.worker"

_END: Final = pickle.dumps(None)
"""The message that ends the worker."""


class IsolatedEngine:
    """A runtime behind messages; calls from several threads wait for one another."""

    def __init__(self, name: str, options: Mapping[str, Any], *, profile: bool) -> None:
        self.name = name
        self._lock = threading.Lock()
        self._settings = dict(options), profile
        self.starts = 0
        """How often the process was started."""
        self.version = ""
        self.start()

    ended = ""
    """How the process has ended; empty while it lives."""

    def start(self) -> None:
        """Start the process, or start it again after it has ended."""
        self._process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", _WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,  # Ctrl-C is ours: it must not end the worker between two messages
        )
        self.ended = ""
        self.starts += 1
        self.version = self.request("make", self.name, *self._settings)

    def request(self, *message: Any, where: Where = NOWHERE) -> Any:
        """Send a message and return its answer.

        Raises:
            EngineError: the process has ended, or the runtime rejects or fails.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            # Whole before any of it is sent: half a message would spoil the next one.
            content = pickle.dumps(message, protocol=5)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            problem = f"is isolated, and cannot be told of {str(error)[:200]}"
            raise EngineError(self.name, problem, where) from error
        with self._lock:
            try:
                self._process.stdin.write(content)
                self._process.stdin.flush()
                # The worker is our own code; whoever has taken it over can do what we can without us.
                answer = pickle.load(self._process.stdout)  # noqa: S301
            except (OSError, EOFError, ValueError, pickle.UnpicklingError) as error:
                raise EngineError(self.name, self._end(), where) from error
            except BaseException:  # Ctrl-C: the next message would be given the answer to this one
                self._process.kill()
                self._process.stdout.close()  # it may be there already, and outlives the process
                raise
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _end(self) -> str:
        """Say how the process has ended."""
        self._process.kill()  # of one that lives, and has lost its thread
        status = self._process.wait()
        way = f"status {status}" if status >= 0 else f"signal {signal.Signals(-status).name}"
        self.ended = f"has ended its process with {way}"
        return self.ended

    def compile(self, program: Program) -> IsolatedProgram:
        """Compile a program; see :class:`Engine`."""
        return IsolatedProgram(self, program)

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            # A message, since it sees no end of the pipe while the child of a fork holds it too.
            with contextlib.suppress(OSError, ValueError):  # it has ended already, or was told
                self._process.stdin.write(_END)
            for pipe in (self._process.stdin, self._process.stdout):
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
            self._process.wait()


class IsolatedProgram:
    """A program in the process of its engine."""

    def __init__(self, engine: IsolatedEngine, program: Program) -> None:
        self._engine = engine
        self._program = program
        self._lock = threading.Lock()
        self._compile()

    def _compile(self) -> None:
        self._start = self._engine.starts
        where = self._program.where
        self._number = self._engine.request("compile", self._program, where=where)

    def run(self, feeds: Mapping[str, Any]) -> Sequence[Any]:
        """Run the program; arrays are copied into its process and back, which starts again if it ended."""
        with self._lock:
            if self._engine.ended:
                self._engine.start()
            if self._start != self._engine.starts:
                self._compile()
        found: Sequence[Any] = self._engine.request(
            "run", self._number, dict(feeds), where=self._program.where
        )
        return found

    def close(self) -> None:
        """Do nothing: the program ends with the process of its engine."""

    def events(self) -> Sequence[Event]:
        """Return what a profile has recorded."""
        found: Sequence[Event] = self._engine.request("events", self._number, where=self._program.where)
        return found
