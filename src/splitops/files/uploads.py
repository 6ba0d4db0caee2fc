"""Targets at URLs such as ``s3://bucket/parts``: uploaded in parts, and published when all are complete.

The file system of fsspec must support commits, such as a multipart upload on S3. Each target is built and
sent in windows, the parts of its upload. No target is kept locally, so an interrupted run starts over.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import numpy as np

from splitops.common.atomic_write import StagedFiles
from splitops.common.signals import defer_signals
from splitops.errors import FileError, format_list
from splitops.files import engine
from splitops.files.descriptors import raise_file_limit, write_all
from splitops.files.engine import CopyError
from splitops.files.extents import Column, Extent, Extents, Table, compose, make_contiguous
from splitops.files.formats import TargetFile
from splitops.files.plan_types import TO_REPLACE, PlannedFiles, Report, RunOptions
from splitops.files.runs import Run
from splitops.files.sources import format_reason, writing
from splitops.files.urls import RemoteFile, format_url, open_file_system
from splitops.native.files import crc32
from splitops.native.positioned import read_at

_PART: Final = 5 << 20
"""Minimum size of a part of an upload on S3, except the last."""
_PARTS: Final = 10_000
"""Maximum number of parts of an upload on S3."""
_COPIES: Final = 3
"""Number of copies of a part in memory during the upload: as read, in fsspec's buffer, in the request."""
_THREADS: Final = 4


def split_into_windows(size: int) -> list[range]:
    """Split a file into the parts of an upload: at least 5 MiB each except the last, and at most 10,000.

    Examples:
        >>> [len(window) >> 20 for window in split_into_windows(12 << 20)]
        [5, 5, 2]
        >>> len(split_into_windows(1 << 40))
        10000
    """
    step = compute_part_bytes(size)
    return [range(begin, min(begin + step, size)) for begin in range(0, size, step)]


def compute_part_bytes(size: int) -> int:
    """Return the size of the parts of an upload of ``size`` bytes. The last part may be smaller."""
    return max(_PART, -(-size // _PARTS))


class UploadRun(Run):
    """Executes a plan once and uploads its targets to a URL."""

    def __init__(self, plan: PlannedFiles, how: RunOptions) -> None:
        plan.make_tasks(how["memory"])  # raises if the memory is too small
        super().__init__(plan, how)
        self._uploads = make_uploads(plan)
        self._memory = how["memory"]
        self._digested = how["sha256"] or how["checksums"] is not None
        table = plan.extents.table[np.argsort(plan.extents.table[:, Column.TARGET])]
        begins = np.searchsorted(table[:, Column.TARGET], np.arange(1, len(plan.targets)))
        of_targets = np.split(table, begins)
        self._made = [_TargetContent(*pair) for pair in zip(plan.targets, of_targets, strict=False)]

    def execute(self) -> Report:
        """Upload all targets and return the report."""
        plan, sizes = self.plan, [target.size for target in self.plan.targets]
        overwrite, resume, verify = self.how["overwrite"], self.how["resume"], self.how["verify"]
        self.total = sum(sizes) * (1 + verify)
        raise_file_limit(len(plan.sources))
        if not resume:
            self.reject_checksums(None)
        with (
            self.convert_errors(),
            tempfile.TemporaryDirectory(prefix="splitops-") as folder,
            StagedFiles(make_folders=True) as staged,
            self._uploads as files,
        ):
            if resume and len(list(files.iter_existing())) == len(sizes):
                self._send(_ExistingFiles(files.urls), Path(folder))
                self.place_checksums(staged, self._get_digests())
                return self.report(sizes, plan.bytes, self._get_digests())
            self._reject_targets(files, overwrite)
            files.open()
            self._send(files, Path(folder))
            self.reject_changed_sources()
            self.place_checksums(staged, self._get_digests())
            files.publish(self._reject_targets(files, overwrite))
            if verify:
                self._read_back()
        return self.report(sizes, 0, self._get_digests())

    def _get_digests(self) -> dict[Path, str]:
        """Return the SHA-256 of each file, keyed by path, or an empty mapping if none was requested."""
        digests = [made.digest.hexdigest() for made in self._made]
        return dict(zip(self.plan.paths, digests, strict=True)) if self._digested else {}

    def _reject_targets(self, files: Uploads, overwrite: bool) -> list[str]:
        """Return the URLs of existing targets. Raise FileError if they must not be replaced."""
        sources = {source.name for source in self.plan.sources}
        for url in files.urls:
            if url in sources:
                raise FileError(f"{url} would replace a source: write to another folder")
        there = list(files.iter_existing())
        if there and not overwrite:
            raise FileError(f"{there[0]} already exists. {TO_REPLACE}")
        return there

    def _send(self, files: Uploads | _ExistingFiles, staging: Path) -> None:
        """Make the targets window by window, as many at a time as fit in the memory, and upload them."""
        largest = max((compute_part_bytes(made.target.size) for made in self._made), default=_PART)
        threads = min(_THREADS, self._memory // (largest * _COPIES))
        if not threads:
            raise FileError(
                f"{self._memory} bytes of memory are not enough for parts of {largest} bytes: at least "
                f"{largest * _COPIES} are needed"
            )
        local = self.open_local_sources(staging)
        sources = {index: source.descriptor for index, source in local.items()}
        with tempfile.TemporaryFile(dir=staging) as scratch, _open_pool(threads) as pool:
            for group in _group_windows([made.target.size for made in self._made], self._memory):
                self._gather(group, sources, scratch.fileno(), staging)
                sent = [
                    pool.submit(self._send_windows, files, index, windows, scratch.fileno())
                    for index, windows in group.items()
                ]
                for each in sent:
                    self.advance(each.result())

    def _gather(self, group: _Group, sources: Mapping[int, int], scratch: int, staging: Path) -> None:
        """Copy the windows of a group to their offsets in the scratch file, which is in ``staging``."""
        extents: list[Extent] = []
        try:
            os.ftruncate(scratch, 0)  # bytes that nothing writes are zeros
            os.ftruncate(scratch, sum(len(window) for windows in group.values() for window, _ in windows))
            for index, windows in group.items():
                for window, place in windows:
                    for offset, data in self._made[index].iter_literals(window):
                        write_all(scratch, data, place + offset)
                    extents += self._made[index].find_extents(window, place)
            task = engine.batch_extents(extents, self._memory // 2)
            used = {extent.source for extent in extents}
            engine.copy(
                task,
                {index: sources[index] for index in used},
                {0: scratch},
                tick=lambda _: self.show_progress(0),
            )
        except CopyError as error:
            if error.writing:
                raise FileError(f"cannot write to {staging}: {str(error).lower()}") from error
            raise self.make_error(error) from error
        except OSError as error:
            raise FileError(f"cannot write to {staging}: {format_reason(error)}") from error

    def _send_windows(
        self, files: Uploads | _ExistingFiles, index: int, windows: _Windows, scratch: int
    ) -> int:
        sent = 0
        for window, place in windows:
            data = read_at(scratch, len(window), place)
            self._made[index].note(data, sha256=self._digested)
            files.write(index, data)
            sent += len(data)
        if windows[-1][0].stop == self._made[index].target.size:
            files.close(index)
        return sent

    def _read_back(self) -> None:
        for url, made in zip(self._uploads.urls, self._made, strict=True):
            file, checksum = RemoteFile(url), 0
            for data in file.iter_blocks(0, made.target.size):
                checksum = crc32(np.frombuffer(data, np.uint8), checksum)
                self.advance(len(data))
            if (file.size, checksum) != (made.target.size, made.checksum):
                raise FileError(
                    f"{url} does not read back as it was written: CRC-32 {checksum:08x}, not "
                    f"{made.checksum:08x}"
                )


_Windows = list[tuple[range, int]]
"""Windows (byte ranges) of a target, each with its offset in the scratch file."""
_Group = dict[int, _Windows]
"""Windows of several targets, keyed by target index."""


def _group_windows(sizes: Sequence[int], memory: int) -> Iterator[_Group]:
    """Yield groups of windows that fit in ``memory`` together. Windows of a file stay in order.

    The n-th windows of all files are next to each other: they usually need the same rows of a source.
    """
    waiting = [(index, iter(split_into_windows(size))) for index, size in enumerate(sizes)]
    group: _Group = {}
    filled = 0
    while waiting:
        left = []
        for index, windows in waiting:
            window = next(windows, None)
            if window is None:
                continue
            left.append((index, windows))
            if filled and filled + len(window) > memory:
                yield group
                group, filled = {}, 0
            group.setdefault(index, []).append((window, filled))
            filled += len(window)
        waiting = left
    if group:
        yield group


@contextlib.contextmanager
def _open_pool(threads: int) -> Iterator[ThreadPoolExecutor]:
    """Yield a thread pool. After an error, it starts no more work."""
    with ThreadPoolExecutor(threads) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


class _TargetContent:
    """Finds the bytes of any window of a target, and keeps the checksums of the bytes sent so far."""

    def __init__(self, target: TargetFile, extents: Table) -> None:
        self.target = target
        self.checksum = 0
        self.digest = hashlib.sha256()
        self._extents = extents
        self._ends = Extents(extents).target_ends

    def find_extents(self, window: range, place: int) -> list[Extent]:
        """Return the extents that copy a window to offset ``place`` of the scratch file."""
        meeting = (self._extents[:, Column.TARGET_OFFSET] < window.stop) & (self._ends > window.start)
        found = Extents(self._extents[meeting])
        target = found.targets[0] if found else 0
        return compose(found, [make_contiguous(target, window.start, 0, place, len(window))])

    def iter_literals(self, window: range) -> Iterator[tuple[int, bytes]]:
        """Yield the bytes of a window that belong to no tensor, with their offsets in it."""
        for offset, data in self.target.literals:
            begin, end = max(offset, window.start), min(offset + len(data), window.stop)
            if begin < end:
                yield begin - window.start, data[begin - offset : end - offset]

    def note(self, data: bytes, *, sha256: bool) -> None:
        """Update the CRC-32 and, with ``sha256``, the SHA-256 with the next bytes."""
        self.checksum = crc32(np.frombuffer(data, np.uint8), self.checksum)
        if sha256:
            self.digest.update(data)


def make_uploads(plan: PlannedFiles) -> Uploads:
    """Make the uploads of a plan. Nothing is sent yet."""
    return Uploads(format_url(plan.folder), {target.name: target.size for target in plan.targets})


class Uploads:
    """New files in one file system, which are only visible after :meth:`publish`.

    As a context manager, it removes new files after an error, even if they are already published. Replaced
    files cannot be restored: the error then lists them, and the existing files that were not replaced.

    Attributes:
        urls: URLs of the files.
    """

    def __init__(self, folder: str, sizes: Mapping[str, int]) -> None:
        """Prepare files in a folder, given their names and sizes. Nothing is sent yet."""
        # The instance is not shared, because a transaction is part of its state.
        self._system, path = open_file_system(folder, alone=True)
        self._paths = [f"{path.rstrip('/')}/{name}" for name in sizes]
        self._sizes = list(sizes.values())
        self.urls = tuple(f"{folder.rstrip('/')}/{name}" for name in sizes)
        self._files: list[Any] = []
        self._published: list[int] = []
        self._before: frozenset[str] = frozenset()

    def __enter__(self) -> Uploads:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            return
        with defer_signals():
            self._discard()
        replaced = [self.urls[i] for i in self._published if self.urls[i] in self._before]
        if replaced:
            kept = [each for each in self.urls if each in self._before and each not in replaced]
            but = f", but not {format_list(kept)}" if kept else ""
            said = f"The run has already replaced {format_list(replaced)}{but}"
            if isinstance(error, FileError):
                raise FileError(f"{error.message}. {said}") from error
            assert error is not None
            error.add_note(said)

    def iter_existing(self) -> Iterator[str]:
        """Yield the URLs at which a file exists."""
        self._system.invalidate_cache()
        with _open_pool(_THREADS) as pool:
            for url, found in zip(self.urls, pool.map(self._check_exists, self._paths), strict=True):
                if found:
                    yield url

    def _check_exists(self, path: str) -> bool:
        with writing(path):
            return bool(self._system.exists(path))

    def open(self) -> None:
        """Open all files in a transaction, so that they are only visible after :meth:`publish`."""
        transaction = self._system.start_transaction()
        for url, path, size in zip(self.urls, self._paths, self._sizes, strict=True):
            with writing(url):
                file = self._system.open(path, "wb", block_size=compute_part_bytes(size))
            self._files.append(file)
            if not _can_commit(file):
                raise FileError(
                    f"{url}: the file system has no commits, so incomplete files would be visible. "
                    "Write to a local folder and upload it"
                )
        transaction.files.clear()  # this class publishes and discards them

    def write(self, index: int, data: bytes) -> None:
        """Send the next part of a file."""
        with writing(self.urls[index]):
            self._files[index].write(data)

    def close(self, index: int) -> None:
        """Send the rest of a file, which fsspec has buffered because it is less than a part."""
        with writing(self.urls[index]):
            self._files[index].close()

    def publish(self, before: Collection[str]) -> None:
        """Publish all files. ``before`` has the URLs of the files that they replace."""
        self._before = frozenset(before)
        with defer_signals():
            for index, file in enumerate(self._files):
                with writing(self.urls[index]):
                    file.commit()
                self._published.append(index)

    def _discard(self) -> None:
        for index, file in enumerate(self._files):
            with contextlib.suppress(Exception):  # the first error is the one to report
                if index in self._published:
                    if self.urls[index] not in self._before:
                        self._system.rm_file(self._paths[index])
                else:
                    file.discard()
                    file.closed = True  # otherwise fsspec sends its buffer when it is garbage-collected


class _ExistingFiles:
    """Existing files that are compared with the bytes that would be sent to them."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._files = [RemoteFile(url) for url in urls]
        self._at = [0] * len(urls)

    def write(self, index: int, data: bytes) -> None:
        """Compare the next part of a file. Raise FileError if it differs."""
        file, begin = self._files[index], self._at[index]
        self._at[index] = end = begin + len(data)
        if end > file.size or file.read(begin, len(data)) != data:
            raise _make_mismatch_error(file.name)

    def close(self, index: int) -> None:
        """Raise FileError if a file has more bytes than were compared."""
        if self._at[index] != self._files[index].size:
            raise _make_mismatch_error(self._files[index].name)


def _make_mismatch_error(url: str) -> FileError:
    return FileError(f"{url} already exists with other contents. {TO_REPLACE}")


def _can_commit(file: Any) -> bool:
    """Return whether an open file of fsspec becomes visible only when it is committed."""
    from fsspec.spec import AbstractBufferedFile

    commit = getattr(file, "commit", None)
    return commit is not None and getattr(commit, "__func__", commit) is not AbstractBufferedFile.commit
