"""Which bytes of which files go where, how that may be carried out, and what a run reports."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple, TypedDict

from splitops.errors import FileError, count_of, shown, shown_path
from splitops.files.chunk_tasks import ChunkTask
from splitops.files.chunks import ChunkCopies
from splitops.files.extent_tasks import ExtentCopies, ExtentTask
from splitops.files.extents import Extents
from splitops.files.formats import TargetFile
from splitops.files.sources import Source
from splitops.files.tensors import StoredTensor
from splitops.ground.notebooks import html_table

MEMORY: Final = 64 << 20
"""Bytes that the buffers of a run take, without another word."""
TO_REPLACE: Final = "Pass --overwrite to replace it (in Python: overwrite=True)"
"""What to do about a file that already exists."""

Task = ExtentTask | ChunkTask
"""What is copied at a time; see :mod:`splitops.files.tasks`."""
Progress = Callable[[int, int], object]
"""Called with the bytes that are done, and the bytes of all."""


class RunOptions(TypedDict, total=False):
    """How a plan is carried out. Every option may be left out.

    Attributes:
        overwrite: whether files of the same names are replaced; they are an error otherwise.
        resume: go on with what a run of the same plan had done when it was killed or interrupted; begin where
            there is none. If all targets are there with the same bytes, they stay as they are.
        verify: read everything back and compare it with what was read.
        sync: make the files durable before they take their places, and now and then on the way. The default.
        sha256: take the SHA-256 of each file for the report.
        checksums: a file to write, with the SHA-256 of every file as ``sha256sum`` reads it. Names are seen
            from its folder.
        memory: bytes that the buffers may take, at least 4 MiB; 64 MiB by default.
        progress: called about every 50 ms; what it raises ends the run.
        cluster: the address of a Dask scheduler, or a ``distributed.Client``, whose workers do the tasks.
            They must see the folders of the sources and targets by the same names.
    """

    overwrite: bool
    resume: bool
    verify: bool
    sync: bool
    sha256: bool
    checksums: Path | None
    memory: int
    progress: Progress | None
    cluster: Any


_OPTIONS: Final[RunOptions] = {
    "overwrite": False,
    "resume": False,
    "verify": False,
    "sync": True,
    "sha256": False,
    "checksums": None,
    "memory": MEMORY,
    "progress": None,
    "cluster": None,
}


def all_options(options: RunOptions) -> RunOptions:
    """Return options with the defaults of those that are left out; a TypeError names one that is none."""
    strange = next((name for name in options if name not in _OPTIONS), None)
    if strange is not None:
        raise TypeError(f"a run has no option {strange!r}; it has {', '.join(_OPTIONS)}")
    found: RunOptions = {**_OPTIONS, **options}
    return found


class Finish(NamedTuple):
    """What completes some targets once their tensors are there.

    Attributes:
        targets: their positions.
        complete: called with their paths.
        check: called with them after that, where they are verified; see
            :class:`~splitops.files.formats.Layout`.
    """

    targets: range
    complete: Callable[[Sequence[Path]], None]
    check: Callable[[Sequence[Path]], None] | None = None


class Part(NamedTuple):
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

    def __str__(self) -> str:
        extents, tasks = count_of(self.extents, "extent"), count_of(self.tasks, "task")
        return f"{self.bytes} bytes in {extents} and {tasks}; nothing is written"

    def __repr__(self) -> str:
        return f"DryRun({count_of(len(self.files), 'file')}, {self})"

    def _repr_html_(self) -> str:
        return html_table(str(self), ("file", "bytes"), self.files)


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

    def __repr__(self) -> str:
        return f"Report({count_of(len(self.files), 'file')}, {self.bytes} tensor bytes)"

    def _repr_html_(self) -> str:
        return html_table(repr(self), ("file", "bytes"), self.files)


class Kept(str):
    """What an interrupted run has kept: the note that it adds to the exception that ended it.

    Attributes:
        folder: the hidden folder, or None if nothing is kept.
        done: the tensor bytes that are copied.
        total: the tensor bytes of the run.
    """

    folder: Path | None
    done: int
    total: int

    def __new__(cls, folder: Path | None, done: int, total: int) -> Kept:
        """Return the note."""
        said = f"nothing of {total} bytes is kept"
        if folder is not None:
            said = (
                f"{done} of {total} bytes are kept in {shown_path(folder)}: a run with resume=True continues "
                "from there, and a run without it starts over"
            )
        made = super().__new__(cls, said)
        made.folder, made.done, made.total = folder, done, total
        return made


@dataclass(frozen=True)
class PlannedFiles:
    """Which bytes of which files go where: a split or merge of files that is proved valid.

    Attributes:
        name: of the staging folder; plans for the same targets share it.
        folder: where the targets go, or its address.
        sources: the files that are read.
        tensors: what is read of them; ``file`` is a position in ``sources``.
        targets: the files that are written.
        copies: what goes into them.
        parts: the tensors that the request made.
        finishes: what completes targets once their tensors are there.
        warnings: a sentence for each file of a model's folder that is not copied.
    """

    name: str
    folder: Path
    sources: tuple[Source, ...]
    tensors: tuple[StoredTensor, ...]
    targets: tuple[TargetFile, ...]
    copies: ExtentCopies | ChunkCopies
    parts: tuple[Part, ...]
    finishes: tuple[Finish, ...] = ()
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        files = count_of(len(self.paths), "file")
        return f"{type(self).__name__}({files} in {shown_path(self.folder)}, {self.bytes} tensor bytes)"

    def _repr_html_(self) -> str:
        rows = [(part.path, part.tensor, part.offset, part.size, part.shape) for part in self.parts]
        return html_table(repr(self), ("file", "tensor", "offset", "size", "shape"), rows)

    @cached_property
    def paths(self) -> tuple[Path, ...]:
        """The files that are published."""
        return tuple(self.folder / target.name for target in self.targets if not target.scratch)

    @property
    def extents(self) -> Extents:
        """Which bytes go where; none of tensors that are copied chunk by chunk."""
        return self.copies.extents if isinstance(self.copies, ExtentCopies) else Extents.of(())

    @property
    def bytes(self) -> int:
        """The tensor bytes that are copied."""
        return self.copies.bytes

    def tasks(self, memory: int = MEMORY) -> Sequence[Task]:
        """Return the plan in tasks that can be done in any order, and again."""
        return self.copies.tasks(memory)

    def digest(self, memory: int) -> str:
        """Return a digest that differs for plans whose tasks differ."""
        digest = hashlib.sha256(self.copies.identity().encode())
        said: list[object] = [memory]
        for target in self.targets:
            said += [target.name, target.size, *((offset, len(data)) for offset, data in target.literals)]
            for _, data in target.literals:
                digest.update(data)
        digest.update(repr(said).encode())
        return digest.hexdigest()

    def reject_doubles(self) -> None:
        """Reject two targets of one name, and a file where a folder is needed.

        Names that differ only in case, or in how an accent is encoded, are one file on some file systems.

        Raises:
            FileError: with what both targets are made from.
        """
        first: dict[str, int] = {}
        for index, target in enumerate(self.targets):
            key = _file_key(target.name)
            if first.setdefault(key, index) != index:
                raise self._doubles(first[key], index)
        for index, target in enumerate(self.targets):
            for at in [i for i, c in enumerate(target.name) if c == "/"]:
                other = first.get(_file_key(target.name[:at]))
                if other is not None and not self.targets[other].folder:
                    raise self._doubles(other, index)

    def _doubles(self, one: int, other: int) -> FileError:
        new = f"{self.targets[0].name}/" if self.targets[0].folder else ""
        names = [self.targets[index].name.removeprefix(new) for index in (one, other)]
        what = f"two files would be {shown(names[0])}"
        if names[0] != names[1]:
            what = f"{shown(names[0])} and {shown(names[1])} would be one file, or not on every file system"
        return FileError(
            f"{what}: one is {self._origin(one)}, the other {self._origin(other)}. Rename one of them first"
        )

    def _origin(self, index: int) -> str:
        """Return in words what a target is made from."""
        target = self.targets[index]
        if target.copied:
            return f"a copy of {target.copied}"
        if isinstance(self.copies, ExtentCopies):
            table = self.extents.table
            found = dict.fromkeys(table[table[:, 3] == index, 0].tolist())
        else:
            flows = [flow for flow in self.copies.flows if flow.target == index]
            found = dict.fromkeys(span.source for flow in flows for span in flow.spans)
        names = [self.sources[source].name for source in found if source < len(self.sources)]
        if not names:
            return "written by splitops"
        more = f" and {count_of(len(names) - 1, 'more file')}" if len(names) > 1 else ""
        return f"made from tensors of {names[0]}{more}"


def _file_key(name: str) -> str:
    """Return what is equal for names that may be one file."""
    if name.isascii():
        return name.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())
