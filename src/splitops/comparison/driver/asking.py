"""Asks one column case by case: starts its process, starts it again after a death, reads what it says."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self

from splitops.comparison import protocol
from splitops.comparison.driver.process import Allowance, Ended, Nursery, Process
from splitops.comparison.protocol import ProtocolError
from splitops.comparison.records import Case, Outcome

PERTURBATIONS: Final = (85, 170)
"""What new memory is filled with in the two fresh processes that confirm a finding (``MALLOC_PERTURB_``)."""


@dataclass(frozen=True, slots=True)
class Launch:
    """Where an implementation comes from; ``forks`` says whether the command fits a :class:`Nursery`."""

    adapter: str
    command: Sequence[str]
    setting: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    forks: bool = False


class Absent(Exception):  # noqa: N818 - an answer
    """The implementation is not installed."""


class Asker:
    """Asks an implementation; its process starts with the first question, and again when it has ended.

    New memory is filled with the perturbation. A nursery forks the processes, where it can.
    """

    def __init__(
        self,
        launch: Launch,
        allowance: Allowance,
        perturbation: int | None = None,
        nursery: Nursery | None = None,
    ) -> None:
        self._nursery = nursery
        self._launch = launch
        self._allowance = allowance
        self._variables = dict(launch.variables)
        if perturbation is not None:
            self._variables["MALLOC_PERTURB_"] = str(perturbation)
        self._process: Process | None = None
        self._asked = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def running(self) -> bool:
        """Whether the process of the last question goes on."""
        return self._process is not None

    def start(self) -> dict[str, Any]:
        """Start the process and return what it says of itself."""
        self.stop()
        self._process = Process(self._launch.command, self._allowance, self._variables, self._nursery)
        try:
            said = self._process.ask(protocol.start(self._launch.setting), self._allowance.start)
            found = protocol.read(said)
            if found["message"] == "absent":
                raise Absent(found["reason"])
            if found["message"] == "answer":
                raise ProtocolError("it answers before it has started")
        except ProtocolError as error:
            self.stop()
            raise Ended("protocol", str(error)) from error
        except (Ended, Absent):
            self.stop()
            raise
        return found

    def ask(self, case: Case, model: Path | None = None) -> Outcome:
        """Ask a case, or another model in the place of its own, and return the result of it."""
        try:
            if self._process is None:
                self.start()
            return self._ask(case, model)
        except Absent as absent:
            return Outcome(kind="crash", text=f"its process does not start again: {absent}")
        except ProtocolError as error:
            self.stop()
            return Outcome(kind="protocol", text=str(error))
        except Ended as ended:
            self.stop()
            return ended.outcome

    def _ask(self, case: Case, model: Path | None) -> Outcome:
        assert self._process is not None
        shutil.rmtree(self._folder, ignore_errors=True)
        self._asked += 1
        # A folder of its own for each case: an implementation may have mapped the file of the case before.
        self._folder.mkdir()
        path = _written(case, self._folder) if model is None else model
        line = self._process.ask(protocol.ask(case, self._asked, path, self._folder), self._allowance.seconds)
        answer = protocol.read(line)
        if answer["message"] != "answer":
            raise ProtocolError(f"it says {answer['message']!r} in the place of an answer")
        if answer["id"] != self._asked:
            raise ProtocolError(f"it answers question {answer['id']}, and was asked {self._asked}")
        found = protocol.outcome(answer, self._folder)
        return replace(found, text=found.text.replace(f"{self._folder}/", ""))

    @property
    def _folder(self) -> Path:
        assert self._process is not None
        return self._process.folder / str(self._asked)

    def after(self) -> Outcome | None:
        """Return what it did after its last answer, if it did anything; then it starts anew."""
        outcome = None if self._process is None else self._process.after()
        if outcome is not None:
            self.stop()
        return outcome

    def finish(self) -> Outcome | None:
        """Stop the process once it had the time to end, and return what it did after its last answer."""
        outcome = None if self._process is None else self._process.finish()
        self.stop()
        return outcome

    def kill(self) -> None:
        """End the process; a thread that is asking it hears of it."""
        if (process := self._process) is not None:
            process.kill()

    def stop(self) -> None:
        """Stop the process, if there is one."""
        if self._process is not None:
            self._process.stop()
            self._process = None


def _written(case: Case, folder: Path) -> Path:
    path = folder / ("m.onnx" if case.format == "onnx" else "m.xml")
    path.write_bytes(case.model)
    if case.weights is not None:
        path.with_suffix(".bin").write_bytes(case.weights)
    return path
