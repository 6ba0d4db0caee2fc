"""Carrying out the plan of a split or merge of files: all or nothing, resumable, verified."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import resource
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np

from splitops.errors import FileError, ModelError, shown_path
from splitops.files import engine
from splitops.files.engine import CopyError, Pass
from splitops.files.extents import Extent, stretches, total_bytes
from splitops.files.formats import TargetFile
from splitops.files.journal import Journal
from splitops.files.sources import LocalFile, Source
from splitops.files.tensors import StoredTensor, without_collector
from splitops.native.files import sync_files
from splitops.writing import StagedFiles, staging_folder

__all__ = [
    "MEMORY",
    "DryRun",
    "FilePlan",
    "Finish",
    "Part",
    "Progress",
    "Report",
    "Run",
    "close",
    "make_durable",
    "raise_file_limit",
    "read_back",
]

MEMORY: Final = 64 << 20
"""Bytes that the buffers of a run take, without another word."""
_MIN_MEMORY: Final = 4 << 20
_THREADS: Final = 2

Progress = Callable[[int, int], object]
"""Called with the bytes that are done, and the bytes of all."""
Finish = tuple[range, Callable[[Sequence[Path]], None]]
"""The positions of some targets, and what completes them."""


@dataclass(frozen=True, slots=True)
class Part:
    """A tensor in a target.

    Attributes:
        path: the file that it will be in.
        tensor: its name there; empty where the format has none.
        offset: where it begins on the axis of the whole.
        size: its size on that axis.
        shape: its shape.
    """

    path: Path
    tensor: str
    offset: int
    size: int
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DryRun:
    """What a run would do.

    Attributes:
        files: each file that would be written, with its size.
        bytes: the tensor bytes that would be copied.
        extents: in how many extents.
        tasks: in how many tasks; each is made durable and journalled at a time.
        exists: the files that are there already.
    """

    files: tuple[tuple[Path, int], ...]
    bytes: int
    extents: int
    tasks: int
    exists: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """What a run has done.

    Attributes:
        files: each file that was written, with its size.
        bytes: the tensor bytes that are in them.
        resumed: how many of them a run before had copied.
        replaced: the folder of a run before that was thrown away; None where there was none.
        sha256: of each file, where that was asked for.
    """

    files: tuple[tuple[Path, int], ...]
    bytes: int
    resumed: int = 0
    replaced: Path | None = None
    sha256: tuple[str, ...] = ()


@dataclass(frozen=True)
class FilePlan:
    """A split or merge of files that is proved valid and can be carried out.

    Attributes:
        name: of the staging folder; plans for the same targets share it.
        folder: where the targets go.
        sources: the files that are read.
        tensors: what is read of them; ``file`` is a position in ``sources``.
        targets: the files that are written.
        extents: which bytes go where.
        parts: the tensors that the request made.
        finishes: what completes targets once their tensors are there.

    Examples:
        >>> import pathlib, tempfile
        >>> import numpy as np, splitops
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> np.save(folder / "x.npy", np.arange(12.0).reshape(3, 4))
        >>> plan = splitops.files.plan_split(folder / "x.npy", folder / "parts", axis=1, num_outputs=2)
        >>> [part.shape for part in plan.parts], plan.dry_run().bytes
        ([(3, 2), (3, 2)], 96)
        >>> report = plan.run(verify=True)
        >>> [path.name for path, _ in report.files]
        ['x.0.npy', 'x.1.npy']
    """

    name: str
    folder: Path
    sources: tuple[Source, ...]
    tensors: tuple[StoredTensor, ...]
    targets: tuple[TargetFile, ...]
    extents: tuple[Extent, ...]
    parts: tuple[Part, ...]
    finishes: tuple[Finish, ...] = ()

    @cached_property
    def paths(self) -> tuple[Path, ...]:
        """The files that are published."""
        return tuple(self.folder / target.name for target in self.targets if not target.scratch)

    @cached_property
    def bytes(self) -> int:
        """The tensor bytes that are copied."""
        return total_bytes(self.extents)

    def dry_run(self, *, memory: int = MEMORY) -> DryRun:
        """Return what a run would do; nothing is written."""
        return DryRun(
            tuple((self.folder / target.name, target.size) for target in self.targets if not target.scratch),
            self.bytes,
            len(self.extents),
            len(self.tasks(memory)),
            tuple(path for path in self.paths if os.path.lexists(path)),
        )

    def tasks(self, memory: int = MEMORY) -> list[list[Pass]]:
        """Return the plan in tasks: lists of passes that can be done in any order, and again."""
        if memory < _MIN_MEMORY:
            raise FileError(f"{memory} bytes of memory are too few: at least {_MIN_MEMORY} are needed")
        return engine.tasks(engine.passes(self.extents, memory // _THREADS))

    def run(
        self,
        *,
        overwrite: bool = False,
        resume: bool = False,
        verify: bool = False,
        sync: bool = True,
        sha256: bool = False,
        memory: int = MEMORY,
        progress: Progress | None = None,
        cluster: Any = None,
    ) -> Report:
        """Write the targets: all of them whole, or none.

        Args:
            overwrite: whether files of the same names are replaced; they are an error otherwise.
            resume: go on with what a run of the same plan had done when it was killed.
            verify: read everything back and compare its CRC-32 with that of what was read.
            sync: make the files durable before they take their places, and now and then on the way.
            sha256: take the SHA-256 of each file for the report.
            memory: bytes that the buffers may take, at least 4 MiB.
            progress: called about every 50 ms; what it raises ends the run.
            cluster: the address of a Dask scheduler, or a ``distributed.Client``, whose workers do the tasks;
                they must see the folders of the sources and targets by the same names.

        Raises:
            FileError: a target exists, a source cannot be read or has changed, the disk is full, a byte does
                not read back as it was written. Nothing is left then, but for what a run was to go on with
                whose sources have changed.
        """
        return self.start(sync=sync, memory=memory, progress=progress, cluster=cluster).done(
            overwrite=overwrite, resume=resume, verify=verify, sha256=sha256
        )

    @without_collector()
    def start(self, *, sync: bool, memory: int, progress: Progress | None, cluster: Any = None) -> Run:
        """Return a run of the plan that has done nothing yet.

        Raises:
            FileError: the memory is too little, or the plan cannot be run on a cluster.
        """
        if cluster is None:
            return Run(self, sync=sync, memory=memory, progress=progress)
        from splitops.files.cluster import ClusterRun

        return ClusterRun(self, cluster, sync=sync, memory=memory, progress=progress)

    def digest(self, memory: int) -> str:
        """Return what tells the plans apart whose tasks are not the same."""
        digest = hashlib.sha256(np.array(self.extents, np.int64).tobytes())
        digest.update(repr([(target.name, target.size, target.literals) for target in self.targets]).encode())
        digest.update(repr(memory).encode())
        return digest.hexdigest()


class Run:
    """One run of a plan."""

    def __init__(self, plan: FilePlan, *, sync: bool, memory: int, progress: Progress | None) -> None:
        self.plan = plan
        self.sync = sync
        self.progress = progress
        self.tasks = plan.tasks(memory)
        self.staging = staging_folder(plan.folder, plan.name)
        self.identity = {
            "plan": plan.digest(memory),
            "cut": self._cut(),
            "sources": [source.identity() for source in plan.sources],
        }
        self.finished = 0
        self.total = plan.bytes

    def _cut(self) -> str:
        """Return what changes where the same extents are cut into other tasks, as another release may."""
        cut = [[(each.count, each.block_rows, len(each.extents)) for each in task] for task in self.tasks]
        return hashlib.sha256(repr(cut).encode()).hexdigest()

    def done(self, *, overwrite: bool, resume: bool, verify: bool, sha256: bool) -> Report:
        """Carry it out."""
        plan = self.plan
        self.total *= 1 + verify
        raise_file_limit(len(plan.targets) + len(plan.sources))
        with contextlib.ExitStack() as stack:
            journal = replaced = None
            if resume:
                journal = stack.enter_context(contextlib.closing(self._journal(resume=True)))
            else:
                self._refuse(overwrite)
                replaced = self._clear()
            try:
                with StagedFiles(make_folders=True, name=plan.name) as staged:
                    drafts = self._place(staged, journal)
                    if journal is None:
                        journal = stack.enter_context(contextlib.closing(self._journal(resume=False)))
                    resumed = plan.bytes
                    if not journal.whole:
                        self._prepare(drafts, journal)
                        resumed = sum(self._task_bytes(task) for task in journal.done)
                        self._write(drafts, journal, verify=verify)
                        self._refuse(overwrite)
                        journal.finish()
                    digests = self._digests(drafts) if sha256 else ()
            except ModelError as error:  # of the writer
                raise FileError(error.message) from error
        shutil.rmtree(
            self.staging, ignore_errors=True
        )  # the run before may have been killed just before this
        if self.sync:
            _sync_folder(plan.folder)
        files = tuple((path, _size(path)) for path in plan.paths)
        return Report(files, plan.bytes, resumed, replaced, digests)

    def _journal(self, *, resume: bool) -> Journal:
        if resume and not self.staging.is_dir():
            raise FileError(f"there is nothing to go on with: no {shown_path(self.staging)}")
        return Journal(self.staging, self.identity, resume=resume, sync=self.sync)

    def _refuse(self, overwrite: bool) -> None:
        """Refuse to replace a file, or ever to replace a source or the folder that one is in."""
        real = [source.path.resolve() for source in self.plan.sources]
        sources = {str(path) for each in real for path in (each, *each.parents)}
        folder = self.plan.folder.resolve()  # once: there may be many thousand files in it
        for path in self.plan.paths:
            if os.path.join(folder, path.name) in sources:
                raise FileError(f"{shown_path(path)} would replace what it is made from")
            if not overwrite and os.path.lexists(path):
                raise FileError(f"{shown_path(path)} exists already")

    def _clear(self) -> Path | None:
        """Throw away what a run that was killed has left; return where that was."""
        if not self.staging.is_dir():
            return None
        self._journal(resume=False).close()  # an error where another run works there
        shutil.rmtree(self.staging)
        return self.staging

    def _place(self, staged: StagedFiles, journal: Journal | None) -> list[Path]:
        """Return where each target is written."""
        drafts = []
        moved = journal is not None and journal.whole
        paths = iter(self.plan.paths)
        for target in self.plan.targets:
            path = None if target.scratch else next(paths)
            if path is None or (moved and not (self.staging / target.name).exists()):
                drafts.append(self.staging / target.name)
            else:
                drafts.append(staged.place(path, folder=target.folder))
        return drafts

    def _write(self, drafts: Sequence[Path], journal: Journal, *, verify: bool) -> None:
        self._copy(drafts, journal)
        self.refuse_changed_sources()
        if verify:
            self._verify(drafts, journal)
        for positions, finish in self.plan.finishes:
            paths = [drafts[position] for position in positions]
            finish(paths)
            if self.sync:
                with _opened([file for path in paths for file in (path, *path.rglob("*"))]) as files:
                    make_durable(list(files.values()))

    def refuse_changed_sources(self) -> None:
        """Refuse what was read of sources that are not as they were when the run began."""
        for source, before in zip(self.plan.sources, self.identity["sources"], strict=True):
            if source.identity() != before:
                raise FileError(f"{source.name} has changed while it was read")

    def _prepare(self, drafts: Sequence[Path], journal: Journal) -> None:
        """Make the targets in their full size, with what is not a tensor's bytes in its place."""
        targets = [pair for pair in zip(drafts, self.plan.targets, strict=True) if not pair[1].folder]
        if journal.done and not all(
            draft.exists() and draft.stat().st_size == target.size for draft, target in targets
        ):
            journal.forget()  # what was done is not there any more
        for folder in {draft.parent for draft, _ in targets}:
            folder.mkdir(parents=True, exist_ok=True)
        for draft, target in targets:
            try:
                descriptor = os.open(draft, os.O_RDWR | os.O_CREAT, 0o666)
                try:
                    _allocate(descriptor, target.size)
                    for offset, data in target.literals:
                        _write_all(descriptor, data, offset)
                finally:
                    os.close(descriptor)
            except OSError as error:
                raise self._cannot_write(target, error) from error

    def _local_sources(self) -> dict[int, LocalFile]:
        """Return the sources as local files; those that are not are brought into the staging folder."""
        found = {}
        used = {extent.source for extent in self.plan.extents}
        for index, source in enumerate(self.plan.sources):
            if index not in used:
                continue
            local = source.local()
            if local is None:
                spool = self.staging / f".source-{index}"
                with spool.open("wb") as file:
                    extents = [extent for extent in self.plan.extents if extent.source == index]
                    source.copy_to(file, stretches(extents))
                local = LocalFile(spool)
            found[index] = local
        return found

    def _copy(self, drafts: Sequence[Path], journal: Journal) -> None:
        """Do the tasks that are not done; one is made durable while the next one is copied."""
        sources = self._local_sources()
        descriptors = {index: source.descriptor for index, source in sources.items()}
        pending: Future[None] | None = None
        with ThreadPoolExecutor(1) as other:
            for number, task in enumerate(self.tasks):
                if number not in journal.done:
                    files = self._open(task, drafts)
                    try:
                        checksums = engine.copy(
                            task, _used(task, descriptors), files, threads=_THREADS, tick=self._tick
                        )
                        if pending is not None:
                            pending.result()
                    except BaseException as error:
                        close(files)
                        if isinstance(error, CopyError):
                            raise self._failure(error) from error
                        raise
                    pending = other.submit(self._note, journal, number, checksums, files)
                self._advance(self._task_bytes(number))
            if pending is not None:
                pending.result()

    def _note(self, journal: Journal, task: int, checksums: list[int], files: dict[int, int]) -> None:
        try:
            if self.sync:
                make_durable(list(files.values()))
            journal.add(task, checksums)
        except OSError as error:
            raise self._cannot_write(self.plan.targets[min(files)], error) from error
        finally:
            close(files)

    def _verify(self, drafts: Sequence[Path], journal: Journal) -> None:
        """Read every task back."""
        for number, task in enumerate(self.tasks):
            files = self._open(task, drafts)
            try:
                found = read_back(task, files, self._tick)
            except CopyError as error:
                raise self._cannot_read_back(error) from error
            finally:
                close(files)
            self._compare(number, found, journal)

    def _compare(self, number: int, found: Sequence[int], journal: Journal) -> None:
        """Prove that a task reads back as it was written."""
        extents = [extent for each in self.tasks[number] for extent in each.extents]
        for extent, read, written in zip(extents, found, journal.done[number], strict=True):
            if read != written:
                raise FileError(
                    f"{shown_path(self.plan.targets[extent.target].name)} does not read back as it was "
                    f"written, from byte {extent.target_offset} on: CRC-32 {read:08x}, not {written:08x}"
                )
        self._advance(self._task_bytes(number))

    def _open(self, task: Sequence[Pass], drafts: Sequence[Path]) -> dict[int, int]:
        files: dict[int, int] = {}
        for index in sorted({extent.target for each in task for extent in each.extents}):
            try:
                files[index] = os.open(drafts[index], os.O_RDWR)
            except OSError as error:
                close(files)
                raise self._cannot_write(self.plan.targets[index], error) from error
        return files

    def _digests(self, drafts: Sequence[Path]) -> tuple[str, ...]:
        digests = []
        for draft, target in zip(drafts, self.plan.targets, strict=True):
            if not target.scratch and not target.folder:
                path = draft if draft.exists() else self.plan.folder / target.name
                with path.open("rb") as file:
                    digests.append(hashlib.file_digest(file, "sha256").hexdigest())
        return tuple(digests)

    def _task_bytes(self, number: int) -> int:
        return sum(each.row_bytes * each.count for each in self.tasks[number])

    def _advance(self, size: int) -> None:
        self.finished += size
        self._tick(0)

    def _tick(self, size: int) -> None:
        if self.progress is not None:
            self.progress(self.finished + size, self.total)

    def _failure(self, error: CopyError) -> FileError:
        if error.writing:
            target = self.plan.targets[error.file]
            return FileError(
                f"cannot write {shown_path(self.plan.folder / target.name)} at byte {error.offset}: "
                f"{str(error).lower()}"
            )
        source = self.plan.sources[error.file]
        tensor = next(
            (
                tensor
                for tensor in self.plan.tensors
                if tensor.file == error.file and 0 <= error.offset - tensor.offset < max(1, tensor.size)
            ),
            None,
        )
        inside = f" ({tensor.label})" if tensor is not None else ""
        return FileError(f"cannot read {source.name} at byte {error.offset}{inside}: {str(error).lower()}")

    def _cannot_read_back(self, error: CopyError) -> FileError:
        name = shown_path(self.plan.targets[error.file].name)
        return FileError(f"cannot read {name} back at byte {error.offset}: {error}")

    def _cannot_write(self, target: TargetFile, error: OSError) -> FileError:
        reason = (error.strerror or str(error)).lower()
        return FileError(f"cannot write {shown_path(self.plan.folder / target.name)}: {reason}")


def _size(path: Path) -> int:
    """Return the bytes of a file, or of the files in a folder."""
    found = path.stat()
    if not stat.S_ISDIR(found.st_mode):
        return found.st_size
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def _used(task: Sequence[Pass], descriptors: Mapping[int, int]) -> dict[int, int]:
    return {index: descriptors[index] for index in {e.source for each in task for e in each.extents}}


def read_back(
    task: Sequence[Pass], files: Mapping[int, int], tick: Callable[[int], object] = lambda _: None
) -> list[int]:
    """Return the checksums of what a task has written; of the disk, where the system lets go of its cache."""
    for file in files.values():
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    return engine.checksums(task, files, threads=_THREADS, tick=tick)


def close(files: Mapping[int, int]) -> None:
    """Close descriptors."""
    for file in files.values():
        os.close(file)


@contextlib.contextmanager
def _opened(paths: Sequence[Path]) -> Iterator[dict[int, int]]:
    files: dict[int, int] = {}
    try:
        for index, path in enumerate(paths):
            if path.exists():
                files[index] = os.open(path, os.O_RDONLY)
        yield files
    finally:
        close(files)


def make_durable(files: Sequence[int]) -> None:
    """Bring what was written to descriptors to the disk."""
    error = sync_files(files)
    if error:
        raise OSError(error, os.strerror(error))


def _sync_folder(folder: Path) -> None:
    """Make the names in a folder durable, where the system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _allocate(descriptor: int, size: int) -> None:
    """Give a file its size; a disk without room for it says so now, not after an hour."""
    os.ftruncate(descriptor, size)
    if size and hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(descriptor, 0, size)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                raise


def _write_all(descriptor: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        put = os.pwrite(descriptor, view, offset)
        view, offset = view[put:], offset + put


def raise_file_limit(files: int) -> None:
    """Let this process open so many files, as far as the system lets it."""
    wanted = files + 64
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
