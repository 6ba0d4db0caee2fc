"""Runs of plans whose targets are in a folder: atomic, resumable and verifiable."""

from __future__ import annotations

import contextlib
import errno
import filecmp
import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from pathlib import Path

from splitops.common.atomic_write import StagedFiles
from splitops.common.descriptors import Descriptors
from splitops.common.signals import defer_signals
from splitops.common.staging import Retention, StagingFolder, make_staging_path
from splitops.errors import FileError, shown_path
from splitops.files.checksums import compute_sha256
from splitops.files.chunk_tasks import ChunkTask
from splitops.files.chunks import ChunkCopies
from splitops.files.cluster import Workers, connect_client
from splitops.files.descriptors import make_durable, open_for_sync, raise_file_limit, sync_folder
from splitops.files.engine import CopyError
from splitops.files.extent_tasks import ExtentTask
from splitops.files.formats import TargetFile
from splitops.files.journal import Journal
from splitops.files.plan_types import TO_REPLACE, Kept, PlannedFiles, Report, RunOptions
from splitops.files.runs import Run
from splitops.files.sources import LocalFile
from splitops.files.tasks import Files


class FolderRun(Run):
    """Executes a plan once and writes its targets into a folder."""

    def __init__(self, plan: PlannedFiles, how: RunOptions) -> None:
        self.tasks = plan.make_tasks(how["memory"])
        super().__init__(plan, how)
        # Detects tasks of another release, which may split the same extents in another way.
        cut = hashlib.sha256(repr([task.partition for task in self.tasks]).encode()).hexdigest()
        self.identity = {"plan": plan.compute_digest(how["memory"]), "cut": cut, "sources": self.before}
        self._staging: StagingFolder | None = None
        self._journal: Journal | None = None
        self._opened: dict[int, LocalFile] = {}
        self._written = Descriptors()
        self._choose_place()

    def _choose_place(self) -> None:
        """Choose the staging folder: next to the target folder if the run creates it, otherwise inside.

        A run with scratch files creates the target folder first. An interrupted run may have left a staging
        folder next to a target folder that has appeared since.
        """
        folder, name = self.plan.folder, self.plan.name
        beside = folder.parent, f"{folder.name}-{name}"
        scratch = any(target.scratch for target in self.plan.targets)
        self.new = not scratch and (not os.path.lexists(folder) or make_staging_path(*beside).is_dir())
        self._place_of_staging = beside if self.new else (folder, name)

    def execute(self) -> Report:
        """Write all targets and return the report."""
        staged = StagedFiles(make_folders=True)
        try:
            return self._run(staged)
        except BaseException as error:
            journal = self._journal
            if (
                journal is not None
                and not isinstance(error, Exception)
                and (staged.kept or not journal.whole)
            ):
                done = sum(self.tasks[number].bytes for number in journal.done)
                error.add_note(Kept(next(iter(staged.kept), None), done, self.plan.bytes))
            raise

    def _run(self, staged: StagedFiles) -> Report:
        plan, overwrite, resume = self.plan, self.how["overwrite"], self.how["resume"]
        if not resume:
            self.reject_checksums(None)
        self._all_open = (
            raise_file_limit(len(plan.targets) + len(plan.sources)) and self.how["cluster"] is None
        )
        with self.convert_errors(), contextlib.ExitStack() as stack:
            stack.callback(self._close)
            stack.push(staged)  # it also cleans up after a Ctrl-C just outside of its own block
            replaced = None
            there = False
            if not (resume and plan.copies.resumable and make_staging_path(*self._place_of_staging).is_dir()):
                there = resume and bool(plan.paths) and all(map(os.path.lexists, plan.paths))
                known = self._has_equal_targets() if there else False
                if known:
                    digests = self._compute_digests(self._places)
                    self.place_checksums(staged, digests)
                    return self.report(self._find_sizes(), plan.bytes, digests)
                there = known is None
                self._reject(overwrite or there)
            staging = self._open_staging(staged)
            resume = resume and plan.copies.resumable and staging.existed
            if resume:
                staging.check()
            else:
                replaced = staging.path if staging.is_used else None
                staging.clear()
                staging.retention = Retention.NEVER
            counts = [task.checksums for task in self.tasks]
            self._journal = journal = Journal(staging, self.identity, counts, resume=resume, sync=self.sync)
            staging.retention = Retention.AFTER_INTERRUPT if journal.done else Retention.NEVER
            with staged:
                drafts = self._place(staged, staging, journal)
                resumed = plan.bytes
                if not journal.whole:
                    with contextlib.closing(self._written):
                        self._prepare(drafts, journal)
                        resumed = sum(self.tasks[number].bytes for number in journal.done)
                        self._write(drafts, journal)
                    self._finish(drafts)
                    if there and self._are_equal(drafts):
                        resumed = plan.bytes
                    else:
                        self._reject(overwrite)
                    journal.finish()
                digests = self._compute_digests(drafts)
                self.place_checksums(staged, digests)
                if self.new and os.path.lexists(plan.folder):
                    # Another process has created the folder: no run may be writing the same files in it.
                    with defer_signals():
                        inner = StagingFolder.open_locked(make_staging_path(plan.folder, plan.name))
                        stack.callback(inner.close if inner.existed else inner.remove)
        if self.sync:
            sync_folder(plan.folder)
            sync_folder(plan.folder.parent)
        return self.report(self._find_sizes(), resumed, digests, replaced)

    def _close(self) -> None:
        if self._staging is not None:
            self._staging.close()

    def _open_staging(self, staged: StagedFiles) -> StagingFolder:
        """Open and lock the staging folder, so that no other run writes the same files."""
        while True:
            staging = staged.open_staging(*self._place_of_staging)
            staging.retention = (
                Retention.ALWAYS if staging.existed else Retention.NEVER
            )  # until the run has checked the journal in it
            if staging.existed or not (self.new and os.path.lexists(self.plan.folder)):
                self._staging = staging
                return staging
            staged.drop(staging)  # another run has just created the folder
            self._choose_place()

    def _find_sizes(self) -> Iterable[int]:
        """Return the size of each published file."""
        if self.plan.finishes or isinstance(self.plan.copies, ChunkCopies):
            return map(_compute_size, self.plan.paths)
        return (target.size for target in self.plan.targets)

    @cached_property
    def _places(self) -> list[Path]:
        """Final paths of the targets."""
        paths = iter(self.plan.paths)
        return [self.plan.folder / t.name if t.scratch else next(paths) for t in self.plan.targets]

    def _has_equal_targets(self) -> bool | None:
        """Return whether the targets exist with the bytes that a run would write, without writing anything.

        None means that this is known only after a run.
        """
        plan, places = self.plan, self._places
        if any(t.scratch and not place.exists() for place, t in zip(places, plan.targets, strict=True)):
            return None
        opened = {index: plan.sources[index].find_local() for index in self._used}
        local = {index: source for index, source in opened.items() if source is not None}
        tasks = [task for task in self.tasks if isinstance(task, ExtentTask)]
        if isinstance(plan.copies, ChunkCopies) or (plan.finishes and not plan.targets[0].folder):
            return None
        if len(local) < len(opened):
            return None
        kept = {place for place, target in zip(places, plan.targets, strict=True) if not target.folder}
        for place, target in zip(places, plan.targets, strict=True):
            if target.folder and {path for path in place.rglob("*") if not path.is_dir()} != kept:
                return False
            if not target.folder and not _is_target(place, target):
                return False
        used = {index: source.path.absolute() for index, source in local.items()}
        files = Files(used, dict(enumerate(map(Path.absolute, self._places))), self.sync, local)
        try:
            for task in tasks:
                wanted = task.checksum_sources(local)
                self.advance(task.bytes)
                if task.read_back(files) != wanted:
                    return False
            return True
        except CopyError as error:
            raise self.make_error(error) from error
        finally:
            self.finished = 0

    def _are_equal(self, drafts: Sequence[Path]) -> bool:
        """Return whether the existing targets have the same bytes as the drafts of this run."""
        made = [draft for draft, target in zip(drafts, self.plan.targets, strict=True) if not target.scratch]
        return all(_have_equal_bytes(draft, path) for draft, path in zip(made, self.plan.paths, strict=True))

    def _reject(self, overwrite: bool) -> None:
        """Raise FileError if the run would replace a source, its folder or, without ``overwrite``, a file."""
        if self.new and not os.path.lexists(self.plan.folder):
            return
        sources = {
            source.real if isinstance(source, LocalFile) else os.path.realpath(source.path)
            for source in self.plan.sources
        }
        folders = {os.path.dirname(source) for source in sources}
        sources |= folders.union(*(map(str, Path(folder).parents) for folder in folders))
        folders_of_targets = {path.parent for path in self.plan.paths}  # resolved once, not for each file
        real = {folder: os.path.realpath(folder) for folder in folders_of_targets}
        for path in self.plan.paths:
            if os.path.join(real[path.parent], path.name) in sources:
                raise FileError(f"{shown_path(path)} would replace a source: write to another folder")
            if not overwrite and os.path.lexists(path):
                raise FileError(f"{shown_path(path)} already exists. {TO_REPLACE}")

    def _place(self, staged: StagedFiles, staging: StagingFolder, journal: Journal) -> list[Path]:
        """Register the targets for publication, unless they were already moved. Return their draft paths."""
        moved = journal.whole
        if self.new:
            root = staging.drafts / self.plan.folder.name
            names = [target.name for target in self.plan.targets]
            if not moved or root.is_dir():
                staged.place_new(self.plan.folder, [n for n in names if not moved or (root / n).exists()])
            return [root / name for name in names]
        drafts = []
        paths = iter(self.plan.paths)
        for target in self.plan.targets:
            path = None if target.scratch else next(paths)
            draft = staging.drafts / target.name
            if path is None or (moved and not draft.exists()):
                drafts.append(draft)
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

    def _finish(self, drafts: Sequence[Path]) -> None:
        """Complete the targets after the copy. Flush them with ``sync``, and check them with ``verify``."""
        verify = self.how["verify"]
        for finish in self.plan.finishes:
            paths = [drafts[position] for position in finish.targets]
            finish.complete(paths)
            if self.sync:
                made = [file for path in paths for file in (path, *path.rglob("*")) if file.exists()]
                with open_for_sync(made) as files:
                    make_durable(list(files.values()))
            if verify and finish.check is not None:
                finish.check(paths)
        if self.new and drafts:
            there = set(os.listdir(drafts[0].parent))  # the whole folder is published by one rename
            for index, draft in enumerate(drafts):
                if draft.name not in there:
                    raise self.make_error(CopyError(True, index, -1, errno.ENOENT))
            if self.sync:
                sync_folder(drafts[0].parent)

    def _verify_literals(self, drafts: Sequence[Path]) -> None:
        """Check that the bytes outside of tensors were written correctly: read them back and compare."""
        for draft, target in zip(drafts, self.plan.targets, strict=True):
            for offset, data in target.literals:
                if LocalFile(draft).read(offset, len(data)) != data:
                    name = shown_path(target.name)
                    raise FileError(f"{name} does not read back as it was written, starting at byte {offset}")

    def _prepare(self, drafts: Sequence[Path], journal: Journal) -> None:
        """Create the targets without their tensors, or keep those of an interrupted run."""
        copies, targets = self.plan.copies, self.plan.targets
        kept = bool(journal.done) and copies.are_made(targets, drafts)
        if not kept:
            journal.forget()  # the finished targets no longer exist
            self._keep_on_interrupt(False)
        copies.make(
            targets,
            drafts,
            self.plan.folder,
            kept=kept,
            sync=self.sync,
            reserve=len(self.tasks) > 1,  # a single task fails at once anyway
            left_open=self._written if self._all_open else None,
        )

    def _copy(self, drafts: Sequence[Path], journal: Journal) -> None:
        """Execute the tasks that the journal does not list as done, and record them in it."""
        for number in journal.done:
            self.advance(self.tasks[number].bytes)
        todo = [number for number in range(len(self.tasks)) if number not in journal.done]

        def note(number: int, checksums: list[int]) -> None:
            journal.add(number, checksums)
            self._keep_on_interrupt(self.plan.copies.resumable)

        self._run_tasks(todo, drafts, note, back=False)

    def _keep_on_interrupt(self, keeps: bool) -> None:
        assert self._staging is not None
        self._staging.retention = Retention.AFTER_INTERRUPT if keeps else Retention.NEVER

    def _verify(self, drafts: Sequence[Path], journal: Journal) -> None:
        """Read the targets of every task back and compare their checksums with those in the journal."""

        def compare(number: int, found: Sequence[int]) -> None:
            for index, (read, written) in enumerate(zip(found, journal.done[number], strict=True)):
                if read != written:
                    target, place = self.tasks[number].locate(index)
                    raise FileError(
                        f"{shown_path(self.plan.targets[target].name)} does not read back as it was written, "
                        f"{place}: CRC-32 {read:08x}, not {written:08x}"
                    )

        self._run_tasks(range(len(self.tasks)), drafts, compare, back=True)

    def _run_tasks(
        self,
        numbers: Iterable[int],
        drafts: Sequence[Path],
        note: Callable[[int, list[int]], None],
        *,
        back: bool,
    ) -> None:
        """Run the copy tasks ``numbers`` on the draft files or, with ``back``, read their targets back.

        ``note`` is called with the number and the checksums of each task.
        """
        files, cluster, copies = self._locate_files(drafts), self.how["cluster"], self.plan.copies

        def record(number: int, checksums: list[int]) -> None:
            note(number, checksums)
            self.advance(self.tasks[number].bytes)

        try:
            if isinstance(copies, ChunkCopies) and copies.compute is not None and not back:
                tasks = [task for task in self.tasks if isinstance(task, ChunkTask)]
                copies.compute(tasks, files, copies.count_threads(self.how["memory"]), cluster, record)
            elif cluster is None:
                self._run_locally(numbers, files, note, back=back)
            else:
                with connect_client(cluster) as client:
                    workers = Workers(client, files)
                    results = workers.iter_results(self.tasks, files, numbers, back=back)
                    with contextlib.closing(results):
                        for number, checksums in results:
                            record(number, checksums)
        except CopyError as error:
            raise (self._make_read_back_error(error) if back else self.make_error(error)) from error

    @cached_property
    def _used(self) -> set[int]:
        """Indices of the sources that are read."""
        return {index for task in self.tasks for index in task.sources}

    def _locate_files(self, drafts: Sequence[Path]) -> Files:
        """Return the files for the tasks. Download or unpack sources of extents that are not local files."""
        assert self._staging is not None
        self._opened = self._opened or self.open_local_sources(self._staging.root)
        sources = {index: self._opened.get(index, self.plan.sources[index]).path for index in self._used}
        return Files(
            {index: path.absolute() for index, path in sources.items()},
            {index: draft.absolute() for index, draft in enumerate(drafts)},
            self.sync,
            self._opened if self.how["cluster"] is None else None,
            self._written,
            self._staging,
        )

    def _run_locally(
        self, numbers: Iterable[int], files: Files, note: Callable[[int, list[int]], None], *, back: bool
    ) -> None:
        """Execute the tasks ``numbers`` in this process.

        A second thread flushes each task and calls ``note`` for it while the next one is copied.
        """

        def flush(number: int, checksums: list[int]) -> None:
            if not back:
                self.tasks[number].sync(files)
            note(number, checksums)

        pending: Future[None] | None = None
        other = ThreadPoolExecutor(1)
        try:
            for number in numbers:
                task = self.tasks[number]
                checksums = (task.read_back if back else task.copy)(files, self.show_progress)
                if pending is not None:
                    pending.result()
                pending = other.submit(flush, number, checksums)
                self.advance(task.bytes)
            if pending is not None:
                pending.result()
        finally:
            with defer_signals():  # the caller closes and removes its files next
                other.shutdown()

    def _compute_digests(self, places: Sequence[Path]) -> dict[Path, str]:
        """Compute the SHA-256 of each published file, including those in folders, if it was requested.

        Each target is at its path in ``places`` or, if it has been published already, at its final path.
        """
        found: dict[Path, str] = {}
        if not self.how["sha256"] and self.how["checksums"] is None:
            return found
        for given, path, target in zip(places, self._places, self.plan.targets, strict=True):
            place = given if given.exists() else path
            if not target.scratch:
                found |= {
                    path / name: compute_sha256(LocalFile(file)) for name, file in _list_files(place).items()
                }
        return found

    def _make_read_back_error(self, error: CopyError) -> FileError:
        name = shown_path(self.plan.targets[error.file].name)
        return FileError(f"cannot read {name} back at byte {error.offset}: {str(error).lower()}")


def _is_target(path: Path, target: TargetFile) -> bool:
    """Return whether a file has the size of a target, and the same bytes outside of its tensors."""
    if not path.is_file() or path.stat().st_size != target.size:
        return False
    file = LocalFile(path)
    return all(file.read(offset, len(data)) == data for offset, data in target.literals)


def _list_files(path: Path) -> dict[str, Path]:
    """Return all files below a folder, keyed by relative path. If ``path`` is a file, its key is ``""``."""
    if not path.is_dir():
        return {"": path}
    return {str(file.relative_to(path)): file for file in sorted(path.rglob("*")) if file.is_file()}


def _have_equal_bytes(one: Path, other: Path) -> bool:
    """Return whether two files, or folders of files, have the same bytes."""
    first, second = _list_files(one), _list_files(other)
    alike = first.keys() == second.keys()
    return alike and all(filecmp.cmp(file, second[name], shallow=False) for name, file in first.items())


def _compute_size(path: Path) -> int:
    """Return the size of a file, or of all files in a folder."""
    return sum(file.stat().st_size for file in _list_files(path).values())
