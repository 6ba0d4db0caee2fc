"""Runs cases in one implementation, and restarts its process after a crash."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self

from splitops_compare import protocol
from splitops_compare.data import Case, Outcome
from splitops_compare.driver.process import ForkServer, Process, ProcessEnded, ResourceLimits
from splitops_compare.protocol import ProtocolError

PERTURBATIONS: Final = (85, 170)
"""Values of ``MALLOC_PERTURB_``, which fills new memory, in the two processes that confirm a finding."""


@dataclass(frozen=True, slots=True)
class LaunchCommand:
    """The command that starts an implementation.

    Attributes:
        adapter: name of the adapter.
        command: program and arguments.
        setting: values of its settings.
        variables: environment variables.
        can_fork: whether the command becomes a fork server if the descriptor of a socket is appended.
    """

    adapter: str
    command: Sequence[str]
    setting: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    can_fork: bool = False


class NotInstalled(Exception):  # noqa: N818 - a result, not an error
    """The implementation is not installed."""


class CaseRunner:
    """Runs cases in a process of an implementation.

    The process is started for the first case, and again for the next case after it has ended.

    Args:
        launch: command of the process.
        limits: time and memory of the process.
        perturbation: value of ``MALLOC_PERTURB_``, which fills new memory. None does not set it.
        server: server that forks the processes if it can; otherwise, ``launch`` starts them.
    """

    def __init__(
        self,
        launch: LaunchCommand,
        limits: ResourceLimits,
        perturbation: int | None = None,
        server: ForkServer | None = None,
    ) -> None:
        self._server = server
        self._launch = launch
        self._limits = limits
        self._variables = dict(launch.variables)
        if perturbation is not None:
            self._variables["MALLOC_PERTURB_"] = str(perturbation)
        self._process: Process | None = None
        self._number = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def is_running(self) -> bool:
        """Whether the process has been started and not been stopped since."""
        return self._process is not None

    def start(self) -> dict[str, Any]:
        """Start the process, after stopping a running one, and return its ``started`` message.

        Raises:
            NotInstalled: the implementation is not installed.
            ProcessEnded: the process ended, exceeded a limit or violated the protocol.
        """
        self.stop()
        self._process = Process(self._launch.command, self._limits, self._variables, self._server)
        try:
            line = self._process.request(protocol.encode_start(self._launch.setting), self._limits.start)
            message = protocol.parse_response(line)
            if message["message"] == "absent":
                raise NotInstalled(message["reason"])
            if message["message"] == "response":
                raise ProtocolError("it sent a response before it started")
        except ProtocolError as error:
            self.stop()
            raise ProcessEnded("protocol", str(error)) from error
        except (ProcessEnded, NotInstalled):
            self.stop()
            raise
        return message

    def run(self, case: Case, model: Path | None = None) -> Outcome:
        """Run a case, with ``model`` instead of its own model if that is set, and return its outcome."""
        try:
            if self._process is None:
                self.start()
            return self._run(case, model)
        except NotInstalled as absent:
            return Outcome(kind="crash", text=f"its process did not start again: {absent}")
        except ProtocolError as error:
            self.stop()
            return Outcome(kind="protocol", text=str(error))
        except ProcessEnded as ended:
            self.stop()
            return ended.outcome

    def _run(self, case: Case, model: Path | None) -> Outcome:
        assert self._process is not None
        shutil.rmtree(self._folder, ignore_errors=True)
        self._number += 1
        # Each case has its own folder, since the implementation may still map the file of the last case.
        self._folder.mkdir()
        path = _write_model(case, self._folder) if model is None else model
        request = protocol.encode_request(case, self._number, path, self._folder)
        response = protocol.parse_response(self._process.request(request, self._limits.seconds))
        if response["message"] != "response":
            raise ProtocolError(f"it sent {response['message']!r} instead of a response")
        if response["id"] != self._number:
            raise ProtocolError(f"it responded to request {response['id']}, not {self._number}")
        outcome = protocol.parse_outcome(response, self._folder)
        return replace(outcome, text=outcome.text.replace(f"{self._folder}/", ""))

    @property
    def _folder(self) -> Path:
        assert self._process is not None
        return self._process.folder / str(self._number)

    def take_late_outcome(self) -> Outcome | None:
        """Return the outcome of anything the process did after its last response, or None.

        A process that did something is stopped.
        """
        outcome = None if self._process is None else self._process.take_late_outcome()
        if outcome is not None:
            self.stop()
        return outcome

    def finish(self) -> Outcome | None:
        """Let the process exit, and return the outcome of a failure since its last response, or None."""
        outcome = None if self._process is None else self._process.finish()
        self.stop()
        return outcome

    def kill(self) -> None:
        """Kill the process. A thread that waits in :meth:`run` gets the outcome of a crash."""
        if (process := self._process) is not None:
            process.kill()

    def stop(self) -> None:
        """Stop the process, if there is one."""
        if self._process is not None:
            self._process.stop()
            self._process = None


def _write_model(case: Case, folder: Path) -> Path:
    path = folder / ("m.onnx" if case.format == "onnx" else "m.xml")
    path.write_bytes(case.model)
    if case.weights is not None:
        path.with_suffix(".bin").write_bytes(case.weights)
    return path
