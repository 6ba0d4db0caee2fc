"""Worker process of an isolated engine: pickled requests on standard input, responses on standard output."""

from __future__ import annotations

import os
import pickle
import sys
from typing import Any

from splitops.errors import SplitError
from splitops.models.engines import make_engine
from splitops.models.engines.engine import Compiled, Engine, EngineError


class _Worker:
    def __init__(self) -> None:
        self.name = ""
        self._engine: Engine | None = None
        self._programs: list[Compiled] = []

    def respond(self, kind: str, *message: Any) -> Any:
        if kind == "make":
            self.name, options, profile = message
            self._engine = make_engine(self.name, options, profile=profile, inside=True)
            return self._engine.version
        assert self._engine is not None
        if kind == "compile":
            self._programs.append(self._engine.compile(*message))
            return len(self._programs) - 1
        if kind == "to_ir":  # only the OpenVINO engine has it
            return getattr(self._engine, kind)(*message)
        number, *values = message
        return getattr(self._programs[number], kind)(*values)


def main() -> None:
    """Respond to requests until the parent stops the worker or closes the pipe."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of libraries must not mix with responses
    worker = _Worker()
    while True:
        try:
            message = pickle.load(sys.stdin.buffer)  # noqa: S301
        except EOFError:
            return
        if message is None:
            return
        try:
            answer = worker.respond(*message)
        except SplitError as error:
            answer = error
        except Exception as error:  # runtimes may raise any exception
            answer = EngineError(worker.name, f"fails: {type(error).__name__}: {str(error)[:300]}")
        pickle.dump(answer, answers, protocol=5)
        answers.flush()


if __name__ == "__main__":
    main()
