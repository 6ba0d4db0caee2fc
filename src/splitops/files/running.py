"""Carrying out the plan of a split or merge of files: all or nothing, resumable, verified."""

from __future__ import annotations

import contextlib
import filecmp
import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property, partial
from pathlib import Path

from splitops.errors import FileError, ModelError, shown_path
from splitops.files import engine
from splitops.files.checksums import digest_of, lines
from splitops.files.cluster import Work, Workers, client_of
from splitops.files.descriptors import (
    allocate,
    make_durable,
    opened,
    raise_file_limit,
    sync_folder,
    write_all,
)
from splitops.files.engine import CopyError, Pass
from splitops.files.extent_work import ExtentWork
from splitops.files.extents import Extents, stretches
from splitops.files.formats import TargetFile
from splitops.files.journal import Journal
from splitops.files.plans import TO_REPLACE, PlannedFiles, Report, RunOptions
from splitops.files.sources import LocalFile
from splitops.ground.descriptors import Descriptors
from splitops.ground.writing import StagedFiles, staging_folder


class Run:
    """One run of a plan."""

    resumable = True
    """Whether what a run that was killed has left is gone on with."""

    def __init__(self, plan: PlannedFiles, how: RunOptions) -> None:
        self.plan = plan
        self.how = how
        self.sync = how["sync"]
        self.tasks = plan.tasks(how["memory"])
        self.staging = staging_folder(plan.folder, plan.name)
        self.identity = {
            "plan": plan.digest(how["memory"]),
            "cut": self._cut(),
            "sources": [source.identity() for source in plan.sources],
        }
        self.finished = 0
        self.total = plan.bytes
        self._local: dict[int, LocalFile] = {}

    def _cut(self) -> str:
        """Return what changes where the same extents are cut into other tasks, as another release may."""
        cut = [[(each.count, each.block_rows, len(each.extents)) for each in task] for task in self.tasks]
        return hashlib.sha256(repr(cut).encode()).hexdigest()

    def done(self) -> Report:
        """Carry it out."""
        plan, overwrite, resume = self.plan, self.how["overwrite"], self.how["resume"]
        self.total *= 1 + self.how["verify"]
        if not resume:
            self._reject_checksums(None)
        raise_file_limit(len(plan.targets) + len(plan.sources))
        with self._failures(), contextlib.ExitStack() as stack:
            staged = StagedFiles(make_folders=True, name=plan.name)
            stack.callback(staged.clean)  # once the journal is closed
            journal = replaced = None
            there = False
            if resume and self.resumable and self.staging.is_dir():
                journal = stack.enter_context(contextlib.closing(self._journal(resume=True)))
            else:
                there = resume and all(os.path.lexists(path) for path in plan.paths)
                known = self._is_there() if there else False
                if known:
                    digests = self._digests(self._places)
                    with StagedFiles(make_folders=True) as written:
                        self._place_checksums(written, digests)
                    return self._report(plan.bytes, None, digests)
                there = known is None
                self._reject(overwrite or there)
                replaced = self._clear()
            with staged:
                drafts = self._place(staged, journal)
                if journal is None:
                    journal = stack.enter_context(contextlib.closing(self._journal(resume=False)))
                resumed = plan.bytes
                if not journal.whole:
                    self._prepare(drafts, journal)
                    resumed = sum(self._task_bytes(task) for task in journal.done)
                    self._write(drafts, journal)
                    if there and self._are_equal(drafts):
                        resumed = plan.bytes
                    else:
                        self._reject(overwrite)
                    journal.finish()
                pairs = zip(drafts, self._places, strict=True)
                digests = self._digests([draft if draft.exists() else place for draft, place in pairs])
                self._place_checksums(staged, digests)
        # The run before may have been killed just before this.
        shutil.rmtree(self.staging, ignore_errors=True)
        if self.sync:
            sync_folder(plan.folder)
        return self._report(resumed, replaced, digests)

    def _report(self, resumed: int, replaced: Path | None, digests: Mapping[Path, str]) -> Report:
        files = tuple((path, _size(path)) for path in self.plan.paths)
        own = tuple(digests[path] for path, _ in files if path in digests) if self.how["sha256"] else ()
        return Report(files, self.plan.bytes, resumed, replaced, own)

    def _place_checksums(self, staged: StagedFiles, digests: Mapping[Path, str]) -> None:
        """Write the file of checksums where it was asked for; it takes its place after all others."""
        path = self.how["checksums"]
        if path is None:
            return
        content = lines(digests, path.parent)
        self._reject_checksums(content)
        draft = staged.place(path)
        draft.write_bytes(content)
        if self.sync:
            with opened([draft]) as files:
                make_durable(list(files.values()))

    def _reject_checksums(self, content: bytes | None) -> None:
        """Reject to replace a file by that of checksums, unless it says the same already."""
        path = self.how["checksums"]
        if path is None or self.how["overwrite"] or not os.path.lexists(path):
            return
        if content is None or not path.is_file() or path.read_bytes() != content:
            raise FileError(f"{shown_path(path)} already exists. {TO_REPLACE}")

    @cached_property
    def _places(self) -> list[Path]:
        """Where the targets are once they are published."""
        return [self.plan.folder / target.name for target in self.plan.targets]

    def _is_there(self) -> bool | None:
        """Return whether the targets are in their places with the bytes that a run would write.

        Nothing is written to find out; None: that takes a run.
        """
        plan, places = self.plan, self._places
        if any(t.scratch and not place.exists() for place, t in zip(places, plan.targets, strict=True)):
            return None
        used = plan.extents.sources
        sources = {index: plan.sources[index].local() for index in used}
        local = {index: source for index, source in sources.items() if source is not None}
        if (plan.finishes and not plan.targets[0].folder) or len(local) < len(sources):
            return None
        kept = {place for place, target in zip(places, plan.targets, strict=True) if not target.folder}
        for place, target in zip(places, plan.targets, strict=True):
            if target.folder and {path for path in place.rglob("*") if not path.is_dir()} != kept:
                return False
            if not target.folder and not _begins_as(place, target):
                return False
        self._local = local
        try:
            return all(self._is_done(number) for number in range(len(self.tasks)))
        except CopyError as error:
            raise self._failure(error) from error
        finally:
            self.finished = 0

    def _is_done(self, number: int) -> bool:
        """Return whether the targets have what the sources of a task have."""
        task, descriptors = self.tasks[number], {i: source.descriptor for i, source in self._local.items()}
        wanted = engine.checksums(task, _used(task, descriptors), written=False)
        self._advance(self._task_bytes(number))
        return self._work(number, self._places).read_back() == wanted

    def _are_equal(self, drafts: Sequence[Path]) -> bool:
        """Return whether what is in the places of the targets is what this run has made."""
        made = [draft for draft, target in zip(drafts, self.plan.targets, strict=True) if not target.scratch]
        return all(_same(draft, path) for draft, path in zip(made, self.plan.paths, strict=True))

    @contextlib.contextmanager
    def _failures(self) -> Iterator[None]:
        """Raise what fails where no single target is written as an error of the folder."""
        try:
            yield
        except ModelError as error:  # of the writer
            raise FileError(error.message) from error
        except BrokenPipeError:  # of the terminal, which may show progress: no regular file has it
            raise
        except OSError as error:
            raise FileError(f"cannot write into {shown_path(self.plan.folder)}: {_reason(error)}") from error

    def _journal(self, *, resume: bool) -> Journal:
        return Journal(self.staging, self.identity, self._counts(), resume=resume, sync=self.sync)

    def _counts(self) -> list[int]:
        """Return how many checksums each task has."""
        return [sum(len(each.extents) for each in task) for task in self.tasks]

    def _reject(self, overwrite: bool) -> None:
        """Reject to replace a file, or ever to replace a source or the folder that one is in."""
        real = [source.path.resolve() for source in self.plan.sources]
        sources = {str(path) for each in real for path in (each, *each.parents)}
        folder = self.plan.folder.resolve()  # once: there may be many thousand files in it
        for path in self.plan.paths:
            if os.path.join(folder, path.name) in sources:
                raise FileError(f"{shown_path(path)} would replace what it is made from")
            if not overwrite and os.path.lexists(path):
                raise FileError(f"{shown_path(path)} already exists. {TO_REPLACE}")

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

    def _write(self, drafts: Sequence[Path], journal: Journal) -> None:
        verify = self.how["verify"]
        self._copy(drafts, journal)
        self.reject_changed_sources()
        if verify:
            self._verify_literals(drafts)
            self._verify(drafts, journal)
        for finish in self.plan.finishes:
            paths = [drafts[position] for position in finish.targets]
            finish.complete(paths)
            if self.sync:
                made = [file for path in paths for file in (path, *path.rglob("*")) if file.exists()]
                with opened(made) as files:
                    make_durable(list(files.values()))
            if verify and finish.check is not None:
                finish.check(paths)

    def _verify_literals(self, drafts: Sequence[Path]) -> None:
        """Read back what is not a tensor's."""
        for draft, target in zip(drafts, self.plan.targets, strict=True):
            for offset, data in target.literals:
                if LocalFile(draft).read(offset, len(data)) != data:
                    name = shown_path(target.name)
                    raise FileError(f"{name} does not read back as it was written, from byte {offset} on")

    def reject_changed_sources(self) -> None:
        """Reject what was read of sources that are not as they were when the run began."""
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
            files = Descriptors()
            try:
                files.open(0, draft, os.O_RDWR | os.O_CREAT)
                allocate(files[0], target.size)
                for offset, data in target.literals:
                    write_all(files[0], data, offset)
            except OSError as error:
                raise self._cannot_write(target, error) from error
            finally:
                files.close()

    def _local_sources(self) -> dict[int, LocalFile]:
        """Return the sources as local files; those that are not are brought into the staging folder."""
        found = {}
        used = self.plan.extents.sources
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
        """Do the tasks that are not done."""
        for number in journal.done:
            self._advance(self._task_bytes(number))
        todo = [number for number in range(len(self._counts())) if number not in journal.done]
        self._do(todo, drafts, journal.add, back=False)

    def _verify(self, drafts: Sequence[Path], journal: Journal) -> None:
        """Read every task back."""

        def compare(number: int, found: Sequence[int]) -> None:
            for index, (read, written) in enumerate(zip(found, journal.done[number], strict=True)):
                if read != written:
                    target, place = self._where(number, index)
                    raise FileError(
                        f"{shown_path(self.plan.targets[target].name)} does not read back as it was written, "
                        f"{place}: CRC-32 {read:08x}, not {written:08x}"
                    )

        self._do(range(len(self._counts())), drafts, compare, back=True)

    def _do(
        self,
        numbers: Iterable[int],
        drafts: Sequence[Path],
        note: Callable[[int, list[int]], None],
        *,
        back: bool,
    ) -> None:
        """Copy tasks, or read them back, here or by the workers of a cluster; note the checksums of each."""
        self._local = self._local or self._local_sources()
        work = partial(self._work, drafts=drafts)
        try:
            if self.how["cluster"] is None:
                self._do_here(work, numbers, note, back=back)
                return
            with client_of(self.how["cluster"]) as client:
                workers = Workers(client, self.staging, self._reads())
                for number, checksums in workers.results(work, numbers, back=back):
                    note(number, checksums)
                    self._advance(self._task_bytes(number))
        except CopyError as error:
            raise (self._cannot_read_back(error) if back else self._failure(error)) from error

    def _do_here(
        self,
        work: Callable[[int], Work],
        numbers: Iterable[int],
        note: Callable[[int, list[int]], None],
        *,
        back: bool,
    ) -> None:
        """Do tasks by this process: one is made durable and noted while the next one is copied."""

        def settle(task: Work, number: int, checksums: list[int]) -> None:
            if not back:
                task.settle()
            note(number, checksums)

        pending: Future[None] | None = None
        with ThreadPoolExecutor(1) as other:
            for number in numbers:
                task = work(number)
                checksums = task.read_back(self._tick) if back else task.copy(self._tick)
                if pending is not None:
                    pending.result()
                pending = other.submit(settle, task, number, checksums)
                self._advance(self._task_bytes(number))
            if pending is not None:
                pending.result()

    def _work(self, number: int, drafts: Sequence[Path]) -> Work:
        """Return a task as it is done here, or sent to a worker."""
        task, here = self.tasks[number], self.how["cluster"] is None
        extents = Extents.all([each.extents for each in task])
        sources = {index: self._local[index] for index in extents.sources}
        return ExtentWork(
            task,
            {index: source.path.absolute() for index, source in sources.items()},
            {index: drafts[index].absolute() for index in extents.targets},
            self.sync,
            {index: source.descriptor for index, source in sources.items()} if here else None,
        )

    def _reads(self) -> list[Path]:
        """Return the files that workers read."""
        return [source.path for source in self._local.values()]

    def _where(self, number: int, index: int) -> tuple[int, str]:
        """Return the target that one of the checksums of a task is of, and where in it, for messages."""
        extent = Extents.all([each.extents for each in self.tasks[number]])[index]
        return extent.target, f"from byte {extent.target_offset} on"

    def _digests(self, places: Sequence[Path]) -> dict[Path, str]:
        """Return the SHA-256 of each file that is published, also in folders, where that is asked for."""
        found: dict[Path, str] = {}
        if not self.how["sha256"] and self.how["checksums"] is None:
            return found
        for place, path, target in zip(places, self._places, self.plan.targets, strict=True):
            if target.folder:
                files = sorted(file for file in place.rglob("*") if file.is_file())
                found |= {path / file.relative_to(place): digest_of(LocalFile(file)) for file in files}
            elif not target.scratch:
                found[path] = digest_of(LocalFile(place))
        return found

    def _task_bytes(self, number: int) -> int:
        return sum(each.row_bytes * each.count for each in self.tasks[number])

    def _advance(self, size: int) -> None:
        self.finished += size
        self._tick(0)

    def _tick(self, size: int) -> None:
        if self.how["progress"] is not None:
            self.how["progress"](self.finished + size, self.total)

    def _failure(self, error: CopyError) -> FileError:
        if error.writing:
            target = self.plan.targets[error.file]
            at = f" at byte {error.offset}" if error.offset >= 0 else ""
            return FileError(
                f"cannot write {shown_path(self.plan.folder / target.name)}{at}: {str(error).lower()}"
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
        return FileError(f"cannot read {name} back at byte {error.offset}: {str(error).lower()}")

    def _cannot_write(self, target: TargetFile, error: OSError) -> FileError:
        return FileError(f"cannot write {shown_path(self.plan.folder / target.name)}: {_reason(error)}")


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def _begins_as(path: Path, target: TargetFile) -> bool:
    """Return whether a file has the size of a target, and what is not a tensor's."""
    if not path.is_file() or path.stat().st_size != target.size:
        return False
    file = LocalFile(path)
    return all(file.read(offset, len(data)) == data for offset, data in target.literals)


def _same(one: Path, other: Path) -> bool:
    """Return whether two files, or folders of files, have the same bytes."""
    if one.is_dir() != other.is_dir():
        return False
    if not one.is_dir():
        return filecmp.cmp(one, other, shallow=False)
    names = [
        sorted(str(p.relative_to(root)) for p in root.rglob("*") if p.is_file()) for root in (one, other)
    ]
    return names[0] == names[1] and all(filecmp.cmp(one / n, other / n, shallow=False) for n in names[0])


def _size(path: Path) -> int:
    """Return the bytes of a file, or of the files in a folder."""
    found = path.stat()
    if not stat.S_ISDIR(found.st_mode):
        return found.st_size
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def _used(task: Sequence[Pass], descriptors: Mapping[int, int]) -> dict[int, int]:
    return {index: descriptors[index] for index in Extents.all([each.extents for each in task]).sources}
