"""Runs whose tasks are done by the workers of a Dask cluster, the extra ``cluster``.

A task is a list of passes over files, known by their paths: workers read the sources and write the targets
themselves, and send back nothing but checksums. Doing a task again does no harm, so the scheduler gives those
of a worker that died to another one. What there must be one of stays here: making the targets in their full
size, the journal, and the moves to their places.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final, Protocol

from splitops.errors import FileError, shown, shown_path
from splitops.files import engine
from splitops.files.copying import FilePlan, Report, RunOptions
from splitops.files.descriptors import make_durable, read_back
from splitops.files.engine import CopyError, Pass
from splitops.files.journal import Journal
from splitops.files.running import Run
from splitops.files.sources import LocalFile, reason
from splitops.ground.descriptors import Descriptors
from splitops.ground.version import __version__

_SIGN: Final = ".cluster"
"""A file in the staging folder that workers find there, if they see the same folder."""
_PATIENCE: Final = 60.0
"""Seconds for which a cluster may have no workers."""
_SAID: Final = 10.0
"""Seconds after which that is said."""
_LOG: Final = logging.getLogger("splitops")


@dataclass(frozen=True, slots=True)
class Place:
    """What workers must see to do any task of a run.

    Attributes:
        sign: a file of the run.
        text: what is in it.
        sources: by path, the size and the time of change.
        version: of splitops.
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


@dataclass(frozen=True, slots=True)
class Work:
    """A task as a worker gets it.

    Attributes:
        task: what is copied, or read back.
        sources: the paths of the files that are read.
        targets: the paths of the files that are written.
        sync: whether what is written is to be durable.
    """

    task: Sequence[Pass]
    sources: Mapping[int, Path]
    targets: Mapping[int, Path]
    sync: bool

    @property
    def reads(self) -> tuple[Path, ...]:
        """The files that are read."""
        return tuple(self.sources.values())

    def copy(self) -> list[int]:
        """Copy, and return the checksum of each extent."""
        sources = {index: LocalFile(path) for index, path in self.sources.items()}
        descriptors = {index: source.descriptor for index, source in sources.items()}
        with self._open() as targets:
            checksums = engine.copy(self.task, descriptors, targets)
            if self.sync:
                make_durable(list(targets.values()))
        return checksums

    def read_back(self) -> list[int]:
        """Return the checksum of each extent as it is on the disk."""
        with self._open() as targets:
            return read_back(self.task, targets)

    @contextlib.contextmanager
    def _open(self) -> Iterator[dict[int, int]]:
        files = Descriptors()
        at = 0
        try:
            for at, path in self.targets.items():
                files.open(at, path, os.O_RDWR)
            yield files
        except OSError as error:
            raise CopyError(True, at, 0, error.errno or errno.EIO) from error
        finally:
            files.close()


class _Task(Protocol):
    """What a worker does."""

    @property
    def reads(self) -> tuple[Path, ...]:
        """The files that are read."""
        ...


class ClusterRun(Run):
    """One run of a plan by the workers of a cluster."""

    def __init__(self, plan: FilePlan, how: RunOptions) -> None:
        super().__init__(plan, how)
        self._client: Any = None

    def done(self) -> Report:
        """Carry it out."""
        with client_of(self.how["cluster"]) as self._client:
            return super().done()

    def _copy(self, drafts: Sequence[Path], journal: Journal) -> None:
        sources = self._local_sources()
        paths = {index: source.path.absolute() for index, source in sources.items()}
        for number in journal.done:
            self._advance(self._task_bytes(number))
        todo = [number for number in range(len(self.tasks)) if number not in journal.done]
        for number, checksums in self._results(Work.copy, self._failure, todo, paths, drafts):
            journal.add(number, checksums)
            self._advance(self._task_bytes(number))

    def _verify(self, drafts: Sequence[Path], journal: Journal) -> None:
        every = range(len(self.tasks))
        for number, found in self._results(Work.read_back, self._cannot_read_back, every, {}, drafts):
            self._compare(number, found, journal)

    def _results(
        self,
        function: Callable[[Work], list[int]],
        failure: Callable[[CopyError], FileError],
        numbers: Iterable[int],
        sources: Mapping[int, Path],
        drafts: Sequence[Path],
    ) -> Iterator[tuple[int, list[int]]]:
        def work(number: int) -> Work:
            extents = [extent for each in self.tasks[number] for extent in each.extents]
            return Work(
                self.tasks[number],
                {index: sources[index] for index in {e.source for e in extents} if index in sources},
                {index: drafts[index].absolute() for index in sorted({e.target for e in extents})},
                self.sync,
            )

        workers = Workers(self._client, self.staging, sources.values())
        try:
            yield from workers.results(function, work, numbers)
        except CopyError as error:
            raise failure(error) from error


class Workers:
    """The workers of a cluster, once they have been asked whether they see what this process sees."""

    def __init__(self, client: Any, staging: Path, sources: Iterable[Path]) -> None:
        """Ask the workers.

        Raises:
            FileError: a worker does not see a folder or file, or has another splitops; no worker answers.
        """
        self._client = client
        self._place = _place_in(staging, sources)
        with _cluster_errors():
            # The first question brings up a worker where the cluster makes them as they are needed.
            self._first_done([client.submit(Place.problem, self._place, pure=False)], at_once=True)
            answers = client.run(Place.problem, self._place, on_error="return")
        for worker, answer in answers.items():
            if answer is not None:
                said = f"cannot begin: {reason(answer)}" if isinstance(answer, Exception) else answer
                raise FileError(f"worker {worker} of the cluster {said}")

    def results(
        self,
        function: Callable[..., list[int]],
        work: Callable[[int], _Task],
        numbers: Iterable[int],
    ) -> Iterator[tuple[int, list[int]]]:
        """Yield what a function gives for the work of each number, as workers have done it.

        The scheduler holds few of them at a time.

        Raises:
            FileError, CopyError: what the function raises; the cluster fails.
        """

        def submit(number: int) -> Any:
            task, known = work(number), self._place.sources
            # A worker that comes later may see other folders.
            seen = replace(self._place, sources={str(path): known[str(path)] for path in task.reads})
            return self._client.submit(_done, seen, function, task, pure=False)

        running: dict[Any, int] = {}
        waiting = iter(numbers)
        try:
            with _cluster_errors():
                most = 2 * max(1, sum(self._client.nthreads().values()))
                running.update((submit(number), number) for number in islice(waiting, most))
            while running:
                for future in self._first_done(list(running)):
                    with _cluster_errors():
                        found: list[int] = future.result()
                    yield running.pop(future), found
                    with _cluster_errors():
                        running.update((submit(number), number) for number in islice(waiting, 1))
        finally:
            self._client.cancel(list(running))

    def _first_done(self, futures: Sequence[Any], *, at_once: bool = False) -> Iterable[Any]:
        """Wait for some of the futures; a cluster that has no workers all the while has failed.

        Args:
            futures: what workers do.
            at_once: whether it takes them no time, so that a worker that does not answer has failed too.

        Raises:
            FileError: there was no worker, or no answer, for :data:`_PATIENCE` seconds.
        """
        from distributed import wait

        alone = 0.0
        while True:
            with _cluster_errors():
                try:
                    found: Iterable[Any] = wait(futures, _SAID, return_when="FIRST_COMPLETED").done
                    return found
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


def _done(place: Place, function: Callable[..., list[int]], work: _Task) -> list[int]:
    """Do some work, on a worker."""
    problem = place.problem()
    if problem is not None:
        raise FileError(f"a worker of the cluster {problem}")
    return function(work)


def _place_in(staging: Path, sources: Iterable[Path]) -> Place:
    """Return what workers must see, with a sign in the staging folder that they know it by."""
    sign, text = staging.absolute() / _SIGN, secrets.token_hex(16)
    sign.write_text(text, "ascii")
    found = {}
    for path in sources:
        stat = path.stat()
        found[str(path.absolute())] = (stat.st_size, stat.st_mtime_ns)
    return Place(str(sign), text, found, __version__)


@contextlib.contextmanager
def client_of(cluster: Any) -> Iterator[Any]:
    """Give a client of a cluster: a ``distributed.Client``, what makes one, or an address.

    One that the caller has is left open.

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
    """Make one kind of error of what the cluster itself has; what a task has found passes."""
    try:
        yield
    except (FileError, CopyError):
        raise
    except Exception as error:
        raise FileError(f"the cluster failed: {reason(error)}") from error
