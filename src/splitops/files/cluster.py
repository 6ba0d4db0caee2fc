"""Runs whose tasks are done by the workers of a Dask cluster, the extra ``cluster``.

A task knows its files by their paths: workers read the sources and write the targets themselves, and send
back nothing but checksums. Doing a task again does no harm, so the scheduler gives those
of a worker that died to another one. What must happen once stays here: making the targets in their full
size, the journal, and the moves to their places.
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

from splitops.errors import FileError, shown, shown_path
from splitops.files.engine import CopyError
from splitops.files.planned import Task
from splitops.files.sources import reason
from splitops.files.tasks import Files
from splitops.ground.staging import StagingFolder
from splitops.ground.version import __version__

_SIGN: Final = ".cluster"
"""A file in the staging folder that workers find there, if they see the same folder."""
_PATIENCE: Final = 60.0
"""Seconds for which a cluster may have no workers."""
_SAID: Final = 10.0
"""Seconds after which that is said."""
_LOG: Final = logging.getLogger("splitops")
_AT_WORK: Final = Counter[str]()
"""On a worker: how many tasks it is doing, by the sign of their run."""
_AT_WORK_LOCK: Final = Lock()


@dataclass(frozen=True, slots=True)
class Place:
    """What workers must see to do any task of a run.

    ``sign`` is a file of the run with this text. Of each source the size and the time of change are known.
    """

    sign: str
    text: str
    sources: Mapping[str, tuple[int, int]]
    version: str

    def problem(self) -> str | None:
        """Return what a worker does not see; None: it sees all."""
        if __version__ != self.version:
            return f"has splitops {__version__}, and not {self.version}"
        try:
            found = Path(self.sign).read_text("ascii")
        except OSError as error:
            found = reason(error)
        if found != self.text:
            return f"does not see the folder {shown_path(Path(self.sign).parent.parent)} ({shown(found)})"
        for path, wanted in self.sources.items():
            try:
                stat = os.stat(path)
            except OSError as error:
                return f"does not see {shown_path(path)}: {reason(error)}"
            if (stat.st_size, stat.st_mtime_ns) != wanted:
                return f"sees another file as {shown_path(path)}"
        return None

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """Count a task of the run on a worker while it is done, if it sees all; see :meth:`Workers.stop`."""
        with _AT_WORK_LOCK:
            _AT_WORK[self.sign] += 1
        try:
            problem = self.problem()
            if problem is not None:
                raise FileError(f"a worker of the cluster {problem}")
            yield
        finally:
            with _AT_WORK_LOCK:
                _AT_WORK[self.sign] -= 1
                if not _AT_WORK[self.sign]:
                    del _AT_WORK[self.sign]

    async def idle(self) -> None:
        """Return once the worker does no task of the run, or after :data:`_PATIENCE` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                while _AT_WORK[self.sign]:
                    await asyncio.sleep(0.01)


class Workers:
    """The workers of a cluster, once they have been asked whether they see what this process sees."""

    def __init__(self, client: Any, files: Files) -> None:
        """Ask the workers; one that does not see a folder or file, or has another splitops, is an error."""
        assert files.staging is not None  # where the sign is
        self._client = client
        self._sign = files.staging.root / _SIGN
        self.place = _place_in(files.staging, self._sign, files.of(files.sources, ()).sources.values())
        with _cluster_errors():
            # The first question brings up a worker where the cluster makes them as they are needed.
            self._patiently(client.submit(Place.problem, self.place, pure=False).result, at_once=True)
            answers = client.run(Place.problem, self.place, on_error="return")
        for worker, answer in answers.items():
            if answer is not None:
                said = f"cannot begin: {reason(answer)}" if isinstance(answer, Exception) else answer
                raise FileError(f"worker {worker} of the cluster {said}")

    def results(
        self, tasks: Sequence[Task], files: Files, numbers: Iterable[int], *, back: bool
    ) -> Generator[tuple[int, list[int]]]:
        """Yield the number and the checksums of each task that workers have copied, or read back.

        The scheduler holds few of them at a time.
        """
        from distributed import wait

        def submit(number: int) -> Any:
            task, known = tasks[number], self.place.sources
            own = files.of(task.sources, task.targets)
            # A worker that comes later may see other folders.
            seen = replace(self.place, sources={str(path): known[str(path)] for path in own.sources.values()})
            return self._client.submit(_done, seen, task, own, back, pure=False)

        running: dict[Any, int] = {}
        waiting = iter(numbers)
        try:
            with _cluster_errors():
                most = 2 * max(1, sum(self._client.nthreads().values()))
                running.update((submit(number), number) for number in islice(waiting, most))
            while running:
                first = partial(wait, list(running), return_when="FIRST_COMPLETED")
                for future in self._patiently(first).done:
                    found = self._patiently(future.result)  # done again, where its worker has gone with it
                    yield running.pop(future), found
                    with _cluster_errors():
                        running.update((submit(number), number) for number in islice(waiting, 1))
        finally:
            if running:
                self.stop(list(running))

    def stop(self, futures: Sequence[Any]) -> None:
        """Cancel tasks, and wait for those that workers are doing: their files can be removed then.

        A task that has begun goes on after it is cancelled; one that begins later misses the sign.
        """
        with contextlib.suppress(Exception):  # of the cluster: what ended the run is the error
            self._sign.unlink(missing_ok=True)
            self._client.cancel(futures)
            self._client.run(Place.idle, self.place, on_error="ignore")

    def _patiently(self, ask: Callable[[float], Any], *, at_once: bool = False) -> Any:
        """Return the answer to a question; a cluster that has no workers for :data:`_PATIENCE` seconds fails.

        ``ask`` raises a TimeoutError after the given seconds. An answer that takes no time (``at_once``) is
        missing also where workers are there.
        """
        alone = 0.0
        while True:
            with _cluster_errors():
                try:
                    return ask(_SAID)
                except TimeoutError:
                    working = self._client.nthreads() and not at_once
                    alone = 0.0 if working else alone + _SAID
            if alone >= _PATIENCE:
                raise FileError(f"no worker of the cluster has answered for {alone:g} seconds")
            if alone:
                _LOG.warning(
                    "no worker of the cluster has answered for %g seconds; the run ends after %g",
                    alone,
                    _PATIENCE,
                )


def _done(place: Place, task: Task, files: Files, back: bool) -> list[int]:
    """Do a task, on a worker."""
    with place.at_work():
        if back:
            return task.read_back(files)
        found = task.copy(files)
        task.settle(files)
        return found


def _place_in(staging: StagingFolder, sign: Path, sources: Iterable[Path]) -> Place:
    """Return what workers must see, with a sign in the staging folder that they know it by."""
    text = secrets.token_hex(16)
    sign.unlink(missing_ok=True)
    with sign.open("x", encoding="ascii") as file:
        file.write(text)
    found = {}
    for path in sources:
        stat = path.stat()
        found[str(path.absolute())] = (stat.st_size, stat.st_mtime_ns)
    return Place(str(staging.name_of(sign).absolute()), text, found, __version__)


@contextlib.contextmanager
def client_of(cluster: Any) -> Iterator[Any]:
    """Yield a client of a cluster: a ``distributed.Client``, which stays open, what makes one, an address.

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
        client = Client(cluster, timeout=_PATIENCE)
    except Exception as error:  # of the network, of an address
        raise FileError(f"cannot reach the cluster at {shown(cluster)}: {reason(error)}") from error
    with client:
        yield client


@contextlib.contextmanager
def _cluster_errors() -> Iterator[None]:
    """Turn the errors of the cluster itself into one kind; errors of a task pass."""
    try:
        yield
    except (FileError, CopyError):
        raise
    except Exception as error:
        raise FileError(f"the cluster failed: {reason(error)}") from error
