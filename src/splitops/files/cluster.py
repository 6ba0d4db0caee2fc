"""Runs whose tasks are executed by the workers of a Dask cluster. They need the extra ``cluster``.

Workers read the sources and write the targets themselves, by their paths, and return only checksums. Tasks
are repeatable, so the scheduler moves those of a dead worker to another one. This process does what must
happen once: it creates the targets, writes the journal and publishes the files.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any, Final

from splitops.common.staging import StagingFolder
from splitops.common.version import __version__
from splitops.errors import FileError, shown, shown_path
from splitops.files.engine import CopyError
from splitops.files.plan_types import Task
from splitops.files.sources import format_reason
from splitops.files.tasks import Files

_MARKER: Final = ".cluster"
"""Marker file in the staging folder. A worker that finds it sees the same folder."""
_MAX_WAIT: Final = 60.0
"""Maximum seconds to wait for a worker."""
_WARNING_DELAY: Final = 10.0
"""Seconds without a worker after which a warning is logged."""
_LOG: Final = logging.getLogger("splitops")
_AT_WORK: Final = Counter[str]()
"""On a worker: the number of running tasks, keyed by the marker file of their run."""
_AT_WORK_LOCK: Final = Lock()


@dataclass(frozen=True, slots=True)
class WorkerRequirements:
    """The files and the version of splitops that a worker must have to execute tasks of a run.

    ``marker`` is the path of a file that contains ``text``. ``sources`` has the size and the modification
    time (ns) of each source, by path.
    """

    marker: str
    text: str
    sources: Mapping[str, tuple[int, int]]
    version: str

    def find_problem(self) -> str | None:
        """Return why this worker cannot execute tasks, as the predicate of a sentence, or None if it can."""
        if __version__ != self.version:
            return f"has splitops {__version__}, not {self.version}"
        try:
            found = Path(self.marker).read_text("ascii")
        except OSError as error:
            found = format_reason(error)
        if found != self.text:
            return f"cannot access the folder {shown_path(Path(self.marker).parent.parent)} ({shown(found)})"
        for path, wanted in self.sources.items():
            try:
                stat = os.stat(path)
            except OSError as error:
                return f"cannot access {shown_path(path)}: {format_reason(error)}"
            if (stat.st_size, stat.st_mtime_ns) != wanted:
                return f"has another file at {shown_path(path)}"
        return None

    @contextlib.contextmanager
    def track_task(self) -> Iterator[None]:
        """Count one more running task in the block. Raise FileError if this worker cannot execute tasks."""
        with _AT_WORK_LOCK:
            _AT_WORK[self.marker] += 1
        try:
            problem = self.find_problem()
            if problem is not None:
                raise FileError(f"a worker of the cluster {problem}")
            yield
        finally:
            with _AT_WORK_LOCK:
                _AT_WORK[self.marker] -= 1
                if not _AT_WORK[self.marker]:
                    del _AT_WORK[self.marker]

    async def wait_until_idle(self) -> None:
        """Wait until this worker executes no task of the run, at most :data:`_MAX_WAIT` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_MAX_WAIT):
                while _AT_WORK[self.marker]:
                    await asyncio.sleep(0.01)


class Workers:
    """The workers of a cluster, checked to see the same files as this process."""

    def __init__(self, client: Any, files: Files) -> None:
        """Check that all workers can execute tasks.

        Raises:
            FileError: a worker cannot access a source or the staging folder, or has another version of
                splitops.
        """
        assert files.staging is not None  # it has the marker file
        self._client = client
        self._sign = files.staging.root / _MARKER
        self.place = _write_marker(
            files.staging, self._sign, files.select(files.sources, ()).sources.values()
        )
        with _convert_errors():
            # An adaptive cluster starts its first worker for this request.
            self._wait_for(
                client.submit(WorkerRequirements.find_problem, self.place, pure=False).result, at_once=True
            )
            answers = client.run(WorkerRequirements.find_problem, self.place, on_error="return")
        for worker, answer in answers.items():
            if answer is not None:
                said = f"cannot begin: {format_reason(answer)}" if isinstance(answer, Exception) else answer
                raise FileError(f"worker {worker} of the cluster {said}")

    def iter_results(
        self, tasks: Sequence[Task], files: Files, numbers: Iterable[int], *, back: bool
    ) -> Generator[tuple[int, list[int]]]:
        """Execute the tasks ``numbers`` on the workers. Yield each finished one with its checksums.

        Only about two tasks per thread are submitted at a time. With ``back``, the targets of the tasks are
        read back instead of written.
        """
        from distributed import wait

        def submit(number: int) -> Any:
            task, known = tasks[number], self.place.sources
            own = files.select(task.sources, task.targets)
            # Each task checks its worker: one that joins later may see other folders.
            seen = replace(self.place, sources={str(path): known[str(path)] for path in own.sources.values()})
            return self._client.submit(_run_task, seen, task, own, back, pure=False)

        running: dict[Any, int] = {}
        waiting = iter(numbers)
        try:
            with _convert_errors():
                most = 2 * max(1, sum(self._client.nthreads().values()))
                running.update((submit(number), number) for number in islice(waiting, most))
            while running:
                first = partial(wait, list(running), return_when="FIRST_COMPLETED")
                for future in self._wait_for(first).done:
                    found = self._wait_for(future.result)  # runs the task again if its worker has died
                    yield running.pop(future), found
                    with _convert_errors():
                        running.update((submit(number), number) for number in islice(waiting, 1))
        finally:
            if running:
                self.stop(list(running))

    def stop(self, futures: Sequence[Any]) -> None:
        """Cancel tasks and wait up to a minute for running ones, so that their files can be removed.

        A running task continues after it is cancelled. A task that begins later fails, because the marker
        file is missing.
        """
        with contextlib.suppress(Exception):  # the error that stopped the run is the one to report
            self._sign.unlink(missing_ok=True)
            self._client.cancel(futures)
            self._client.run(WorkerRequirements.wait_until_idle, self.place, on_error="ignore")

    def _wait_for(self, ask: Callable[[float], Any], *, at_once: bool = False) -> Any:
        """Call ``ask(timeout)``, which may raise a TimeoutError, until it returns, and return its result.

        If there is no worker for :data:`_MAX_WAIT` seconds, raise a FileError. With ``at_once``, the result
        needs no time, so any timeout counts as a lack of workers.
        """
        alone = 0.0
        while True:
            with _convert_errors():
                try:
                    return ask(_WARNING_DELAY)
                except TimeoutError:
                    working = self._client.nthreads() and not at_once
                    alone = 0.0 if working else alone + _WARNING_DELAY
            if alone >= _MAX_WAIT:
                raise FileError(f"no worker of the cluster has responded for {alone:g} seconds")
            if alone:
                _LOG.warning(
                    "no worker of the cluster has responded for %g seconds; the run fails after %g",
                    alone,
                    _MAX_WAIT,
                )


def _run_task(place: WorkerRequirements, task: Task, files: Files, back: bool) -> list[int]:
    """Execute a task on this worker or, with ``back``, read its targets back. Return the checksums."""
    with place.track_task():
        if back:
            return task.read_back(files)
        found = task.copy(files)
        task.sync(files)
        return found


def _write_marker(staging: StagingFolder, sign: Path, sources: Iterable[Path]) -> WorkerRequirements:
    """Write the marker file ``sign``. Return the requirements that a worker must meet for a run."""
    text = secrets.token_hex(16)
    sign.unlink(missing_ok=True)
    with sign.open("x", encoding="ascii") as file:
        file.write(text)
    found = {}
    for path in sources:
        stat = path.stat()
        found[str(path.absolute())] = (stat.st_size, stat.st_mtime_ns)
    return WorkerRequirements(str(staging.get_public_path(sign).absolute()), text, found, __version__)


@contextlib.contextmanager
def connect_client(cluster: Any) -> Iterator[Any]:
    """Yield a ``distributed.Client`` for a cluster.

    If ``cluster`` is such a client, it is yielded and left open. For anything else, such as the address of a
    scheduler, a client is made, and closed at the end.

    Raises:
        FileError: distributed is not installed, or the cluster cannot be reached.
    """
    try:
        from distributed import Client
    except ImportError as error:
        raise FileError("a cluster needs Dask: install splitops[cluster]") from error
    if isinstance(cluster, Client):
        yield cluster
        return
    try:
        client = Client(cluster, timeout=_MAX_WAIT)
    except Exception as error:  # distributed does not document which
        raise FileError(f"cannot reach the cluster at {shown(cluster)}: {format_reason(error)}") from error
    with client:
        yield client


@contextlib.contextmanager
def _convert_errors() -> Iterator[None]:
    """Convert any error except FileError and CopyError into a :class:`FileError`."""
    try:
        yield
    except (FileError, CopyError):
        raise
    except Exception as error:
        raise FileError(f"the cluster failed: {format_reason(error)}") from error
