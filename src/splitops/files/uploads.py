"""Targets at addresses such as ``s3://bucket/parts``: uploaded in parts, and seen when all of them are whole.

A file system of fsspec that can hold back what is written until it is told (a multipart upload on S3) takes
the targets as they are made, window by window in the order of each file. Nothing of them waits here, so
a run that was killed begins anew.
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

from splitops.errors import FileError
from splitops.files import engine
from splitops.files.addresses import RemoteFile, address_of, file_system
from splitops.files.descriptors import raise_file_limit, write_all
from splitops.files.engine import CopyError
from splitops.files.extents import Extent, Extents, Table, compose, contiguous
from splitops.files.formats import TargetFile
from splitops.files.planned import TO_REPLACE, PlannedFiles, Report, RunOptions
from splitops.files.runs import Run
from splitops.files.sources import reason, writing
from splitops.ground.signals import uninterrupted
from splitops.ground.writing import StagedFiles
from splitops.native.files import crc32
from splitops.native.positioned import read_at

_PART: Final = 5 << 20
"""The least that S3 takes as a part of an upload, but for the last one."""
_PARTS: Final = 10_000
"""The most parts that S3 takes."""
_HELD: Final = 3
"""So many times a part is held while it is sent: as it was read, in fsspec's buffer, in the request."""
_THREADS: Final = 4
_MOST_NAMED: Final = 8


def windows_of(size: int) -> list[range]:
    """Return the parts of an upload: at least 5 MiB each but the last, and at most 10,000 of them.

    Examples:
        >>> [len(window) >> 20 for window in windows_of(12 << 20)]
        [5, 5, 2]
        >>> len(windows_of(1 << 40))
        10000
    """
    step = part_bytes(size)
    return [range(begin, min(begin + step, size)) for begin in range(0, size, step)]


def part_bytes(size: int) -> int:
    """Return the bytes of a part of an upload."""
    return max(_PART, -(-size // _PARTS))


class AddressRun(Run):
    """One run of a plan whose targets are at an address."""

    def __init__(self, plan: PlannedFiles, how: RunOptions) -> None:
        plan.tasks(how["memory"])  # an error where that is too little
        super().__init__(plan, how)
        self._uploads = uploads_of(plan)
        self._memory = how["memory"]
        self._digested = how["sha256"] or how["checksums"] is not None
        table = plan.extents.table[np.argsort(plan.extents.table[:, 3])]
        of_targets = np.split(table, np.searchsorted(table[:, 3], np.arange(1, len(plan.targets))))
        self._made = [_Made(*pair) for pair in zip(plan.targets, of_targets, strict=False)]

    def done(self) -> Report:
        """Carry it out."""
        plan, sizes = self.plan, [target.size for target in self.plan.targets]
        overwrite, resume, verify = self.how["overwrite"], self.how["resume"], self.how["verify"]
        self.total = sum(sizes) * (1 + verify)
        raise_file_limit(len(plan.sources))
        if not resume:
            self.reject_checksums(None)
        with (
            self.failures(),
            tempfile.TemporaryDirectory(prefix="splitops-") as folder,
            StagedFiles(make_folders=True) as staged,
            self._uploads as files,
        ):
            if resume and len(list(files.existing())) == len(sizes):
                self._send(_There(files.addresses), Path(folder))
                self.place_checksums(staged, self._sent())
                return self.report(sizes, plan.bytes, self._sent())
            self._reject_targets(files, overwrite)
            files.open()
            self._send(files, Path(folder))
            self.reject_changed_sources()
            self.place_checksums(staged, self._sent())
            files.publish(self._reject_targets(files, overwrite))
            if verify:
                self._read_back()
        return self.report(sizes, 0, self._sent())

    def _sent(self) -> dict[Path, str]:
        """Return the SHA-256 of each file, where that is asked for."""
        digests = [made.digest.hexdigest() for made in self._made]
        return dict(zip(self.plan.paths, digests, strict=True)) if self._digested else {}

    def _reject_targets(self, files: Uploads, overwrite: bool) -> list[str]:
        """Reject to replace a file, or ever to replace a source; return what is replaced."""
        sources = {source.name for source in self.plan.sources}
        for address in files.addresses:
            if address in sources:
                raise FileError(f"{address} would replace what it is made from")
        there = list(files.existing())
        if there and not overwrite:
            raise FileError(f"{there[0]} already exists. {TO_REPLACE}")
        return there

    def _send(self, files: Uploads | _There, staging: Path) -> None:
        """Make the targets window by window, as many at a time as the memory takes, and send them."""
        largest = max((part_bytes(made.target.size) for made in self._made), default=_PART)
        threads = min(_THREADS, self._memory // (largest * _HELD))
        if not threads:
            raise FileError(
                f"{self._memory} bytes of memory are too few for parts of {largest} bytes: at least "
                f"{largest * _HELD} are needed"
            )
        local = self.local_sources(staging)
        sources = {index: source.descriptor for index, source in local.items()}
        with tempfile.TemporaryFile(dir=staging) as scratch, _pool(threads) as pool:
            for group in _groups([made.target.size for made in self._made], self._memory):
                self._gather(group, sources, scratch.fileno(), staging)
                sent = [
                    pool.submit(self._send_windows, files, index, windows, scratch.fileno())
                    for index, windows in group.items()
                ]
                for each in sent:
                    self.advance(each.result())

    def _gather(self, group: _Group, sources: Mapping[int, int], scratch: int, staging: Path) -> None:
        """Put the bytes of windows into the scratch file, one behind the other."""
        extents: list[Extent] = []
        try:
            os.ftruncate(scratch, 0)  # what is nobody's bytes is zeros
            os.ftruncate(scratch, sum(len(window) for windows in group.values() for window, _ in windows))
            for index, windows in group.items():
                for window, place in windows:
                    for offset, data in self._made[index].literals(window):
                        write_all(scratch, data, place + offset)
                    extents += self._made[index].extents(window, place)
            task = engine.passes(extents, self._memory // 2)
            used = {extent.source for extent in extents}
            engine.copy(
                task, {index: sources[index] for index in used}, {0: scratch}, tick=lambda _: self.tick(0)
            )
        except CopyError as error:
            if error.writing:
                raise FileError(f"cannot write to {staging}: {str(error).lower()}") from error
            raise self.failure(error) from error
        except OSError as error:
            raise FileError(f"cannot write to {staging}: {reason(error)}") from error

    def _send_windows(self, files: Uploads | _There, index: int, windows: _Windows, scratch: int) -> int:
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
        for address, made in zip(self._uploads.addresses, self._made, strict=True):
            file, checksum = RemoteFile(address), 0
            for data in file.blocks(0, made.target.size):
                checksum = crc32(np.frombuffer(data, np.uint8), checksum)
                self.advance(len(data))
            if (file.size, checksum) != (made.target.size, made.checksum):
                raise FileError(
                    f"{address} does not read back as it was written: CRC-32 {checksum:08x}, not "
                    f"{made.checksum:08x}"
                )


_Windows = list[tuple[range, int]]
"""Windows of a file, and where each begins in the scratch file."""
_Group = dict[int, _Windows]
"""By the position of the target."""


def _groups(sizes: Sequence[int], memory: int) -> Iterator[_Group]:
    """Yield the windows of files in the order of each file, as many together as the memory takes.

    The windows of different files that lie at the same rows of a source come together.
    """
    waiting = [(index, iter(windows_of(size))) for index, size in enumerate(sizes)]
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
def _pool(threads: int) -> Iterator[ThreadPoolExecutor]:
    """Run a pool; after an error nothing more begins."""
    with ThreadPoolExecutor(threads) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


class _Made:
    """What a target is made of, found by windows, and what was sent of it so far."""

    def __init__(self, target: TargetFile, extents: Table) -> None:
        self.target = target
        self.checksum = 0
        self.digest = hashlib.sha256()
        self._extents = extents
        self._ends = extents[:, 4] + (extents[:, 7] - 1) * extents[:, 5] + extents[:, 6]

    def extents(self, window: range, place: int) -> list[Extent]:
        """Return what brings the bytes of a window to a place of the scratch file."""
        meeting = (self._extents[:, 4] < window.stop) & (self._ends > window.start)
        found = Extents(self._extents[meeting])
        target = found.targets[0] if found else 0
        return compose(found, [contiguous(target, window.start, 0, place, len(window))])

    def literals(self, window: range) -> Iterator[tuple[int, bytes]]:
        """Yield the literals of a window, by their offsets in it."""
        for offset, data in self.target.literals:
            begin, end = max(offset, window.start), min(offset + len(data), window.stop)
            if begin < end:
                yield begin - window.start, data[begin - offset : end - offset]

    def note(self, data: bytes, *, sha256: bool) -> None:
        """Take the checksums of the next bytes."""
        self.checksum = crc32(np.frombuffer(data, np.uint8), self.checksum)
        if sha256:
            self.digest.update(data)


def uploads_of(plan: PlannedFiles) -> Uploads:
    """Return the targets of a plan as files that hold back what is written to them."""
    return Uploads(address_of(plan.folder), {target.name: target.size for target in plan.targets})


class Uploads:
    """New files of one file system, which hold back what is written until all are published.

    As a context: after an error nothing of them is left, not even of those that were published, but for what
    has replaced a file: the error says which files are new then, and which are as before.

    Attributes:
        addresses: of the files.
    """

    def __init__(self, folder: str, sizes: Mapping[str, int]) -> None:
        """Begin with files in a folder, by their names; nothing is sent yet."""
        # An instance of its own: a transaction is a state of the instance.
        self._system, path = file_system(folder, alone=True)
        self._paths = [f"{path.rstrip('/')}/{name}" for name in sizes]
        self._sizes = list(sizes.values())
        self.addresses = tuple(f"{folder.rstrip('/')}/{name}" for name in sizes)
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
        with uninterrupted():
            self._discard()
        replaced = [self.addresses[i] for i in self._published if self.addresses[i] in self._before]
        if replaced:
            kept = [each for each in self.addresses if each in self._before and each not in replaced]
            said = f"new: {_several(replaced)}; as before: {_several(kept)}"
            if isinstance(error, FileError):
                raise FileError(f"{error.message}; {said}") from error
            assert error is not None
            error.add_note(said)

    def existing(self) -> Iterator[str]:
        """Yield the addresses where a file is already."""
        self._system.invalidate_cache()
        with _pool(_THREADS) as pool:
            for address, found in zip(self.addresses, pool.map(self._exists, self._paths), strict=True):
                if found:
                    yield address

    def _exists(self, path: str) -> bool:
        with writing(path):
            return bool(self._system.exists(path))

    def open(self) -> None:
        """Open all files; the file system holds back what is written to them."""
        transaction = self._system.start_transaction()
        for address, path, size in zip(self.addresses, self._paths, self._sizes, strict=True):
            with writing(address):
                file = self._system.open(path, "wb", block_size=part_bytes(size))
            self._files.append(file)
            if not _holds_back(file):
                raise FileError(f"{address}: what is written there would be seen before it is whole")
        transaction.files.clear()  # they are published and discarded here

    def write(self, index: int, data: bytes) -> None:
        """Send the next part of a file."""
        with writing(self.addresses[index]):
            self._files[index].write(data)

    def close(self, index: int) -> None:
        """Send what is left of a file: until then fsspec holds what is less than a part."""
        with writing(self.addresses[index]):
            self._files[index].close()

    def publish(self, before: Collection[str]) -> None:
        """Let all files be seen. Where one cannot be, those are removed that did not replace a file."""
        self._before = frozenset(before)
        with uninterrupted():
            for index, file in enumerate(self._files):
                with writing(self.addresses[index]):
                    file.commit()
                self._published.append(index)

    def _discard(self) -> None:
        for index, file in enumerate(self._files):
            with contextlib.suppress(Exception):  # the first error is the one to tell
                if index in self._published:
                    if self.addresses[index] not in self._before:
                        self._system.rm_file(self._paths[index])
                else:
                    file.discard()
                    file.closed = True  # or fsspec sends what is left of it when it is collected


class _There:
    """Files that are there already, and take what would be sent: it must be what they hold."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._files = [RemoteFile(address) for address in addresses]
        self._at = [0] * len(addresses)

    def write(self, index: int, data: bytes) -> None:
        """Compare the next part of a file."""
        file, begin = self._files[index], self._at[index]
        self._at[index] = end = begin + len(data)
        if end > file.size or file.read(begin, len(data)) != data:
            raise _other_bytes(file.name)

    def close(self, index: int) -> None:
        """Prove that a file has no more bytes."""
        if self._at[index] != self._files[index].size:
            raise _other_bytes(self._files[index].name)


def _other_bytes(address: str) -> FileError:
    return FileError(f"{address} already exists, with other bytes. {TO_REPLACE}")


def _several(addresses: Sequence[str]) -> str:
    more = len(addresses) - _MOST_NAMED
    return ", ".join(addresses[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "") or "none"


def _holds_back(file: Any) -> bool:
    """Return whether what is written to a file is seen only once it is told to be."""
    from fsspec.spec import AbstractBufferedFile

    commit = getattr(file, "commit", None)
    return commit is not None and getattr(commit, "__func__", commit) is not AbstractBufferedFile.commit
