"""Run an engine in a separate process, so that a crash becomes an error."""

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
"""The message that stops the worker."""


class IsolatedEngine:
    """A runtime in a worker process. Calls from several threads run one after the other."""

    def __init__(self, name: str, options: Mapping[str, Any], *, profile: bool) -> None:
        self.name = name
        self._lock = threading.Lock()
        self._settings = dict(options), profile
        self.starts = 0
        """Number of starts of the process."""
        self.version = ""
        self.start()

    ended = ""
    """Description of how the process ended; empty until a request finds that it has ended."""

    def start(self) -> None:
        """Start the process, or start it again after it has ended."""
        self._process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", _WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,  # Ctrl-C must not stop the worker between two messages
        )
        self.ended = ""
        self.starts += 1
        self.version = self.request("make", self.name, *self._settings)

    def request(self, *message: Any, where: Where = NOWHERE) -> Any:
        """Send a request to the process and return the response.

        Raises:
            EngineError: the process has ended, the runtime fails, or ``message`` cannot be pickled.
            ModelError: the engine cannot be made, or lacks a layer type that the request names.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            # Pickle everything before sending: half a message would corrupt the next one.
            content = pickle.dumps(message, protocol=5)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            problem = f"runs in a separate process, and an argument cannot be sent to it: {str(error)[:200]}"
            raise EngineError(self.name, problem, where) from error
        with self._lock:
            try:
                self._process.stdin.write(content)
                self._process.stdin.flush()
                # The worker runs as the same user: unpickling its response grants it no new rights.
                answer = pickle.load(self._process.stdout)  # noqa: S301
            except (OSError, EOFError, ValueError, pickle.UnpicklingError) as error:
                raise EngineError(self.name, self._end(), where, process_ended=True) from error
            except BaseException:  # Ctrl-C: the next request would get the response to this one
                self._process.kill()
                self._process.stdout.close()  # a response in the pipe outlives the process
                raise
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _end(self) -> str:
        """Stop the process, set :attr:`ended` and return it."""
        self._process.kill()  # it may still run, but its pipe is unusable
        status = self._process.wait()
        names = {int(each): each.name for each in signal.Signals}  # most real-time signals have no name
        way = f"status {status}" if status >= 0 else f"signal {names.get(-status, -status)}"
        self.ended = f"has ended its process with {way}"
        return self.ended

    def compile(self, program: Program) -> IsolatedProgram:
        """See :meth:`Engine.compile`."""
        return IsolatedProgram(self, program)

    def close(self) -> None:
        """Stop the process, and wait until it has exited."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            # Closing the pipe is not enough: a forked child may have it open, too.
            with contextlib.suppress(OSError, ValueError):  # the process has already ended
                self._process.stdin.write(_END)
            for pipe in (self._process.stdin, self._process.stdout):
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
            self._process.wait()


class IsolatedProgram:
    """A compiled program in the process of its engine."""

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
        """See :meth:`Compiled.run`. Arrays are copied both ways.

        If an earlier request found that the process had ended, start it and compile the program again.
        """
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
        """See :meth:`Compiled.events`."""
        found: Sequence[Event] = self._engine.request("events", self._number, where=self._program.where)
        return found
