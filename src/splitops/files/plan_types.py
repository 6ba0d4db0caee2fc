"""Types of plans and runs: the files and copies of a plan, the options of a run, and its report."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple, TypedDict

from splitops.common.notebooks import format_html_table
from splitops.errors import FileError, count_of, shown, shown_path
from splitops.files.chunk_tasks import ChunkTask
from splitops.files.chunks import ChunkCopies
from splitops.files.extent_tasks import ExtentCopies, ExtentTask
from splitops.files.extents import Column, Extents
from splitops.files.formats import TargetFile
from splitops.files.sources import Source
from splitops.files.tensors import StoredTensor
from splitops.spec.sizes.dims import require_integer

MEMORY: Final = 64 << 20
"""Default total size of the buffers of a run, in bytes."""
TO_REPLACE: Final = "Pass --overwrite to replace it (in Python: overwrite=True)"
"""End of an error message about a file that already exists."""

Task = ExtentTask | ChunkTask
"""A part of the work of a run; see :mod:`splitops.files.tasks`."""
Progress = Callable[[int, int], object]
"""Called with the number of finished bytes, and the total. Both include bytes that ``verify`` reads back."""


class RunOptions(TypedDict, total=False):
    """Options of a run; all are optional.

    Attributes:
        overwrite: whether to replace existing files. Otherwise they are an error.
        resume: whether to continue an interrupted run of the same plan, if there is one. Targets are
            accepted if all of them already exist with the same bytes.
        verify: whether to read the targets back and compare their checksums with those of the copied bytes.
        sync: whether to flush the files to disk after each task and before publication; True by default.
        sha256: whether the report contains the SHA-256 of each file.
        checksums: path of a file to write, with the SHA-256 of every file in the format of ``sha256sum``.
            File names in it are relative to its folder; URLs stay as they are.
        memory: bytes for the buffers; 64 MiB by default. Most runs need at least 4 MiB; uploads need more.
        progress: called about every 50 ms, after each chunk or, with a cluster, after each task. An exception
            that it raises stops the run.
        cluster: address of a Dask scheduler, or a ``distributed.Client``, whose workers execute the tasks.
            They must see the folders of the sources and targets at the same paths.
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


def fill_options(options: RunOptions) -> RunOptions:
    """Return the options, with defaults for missing ones. Raise TypeError for an unknown option."""
    strange = next((name for name in options if name not in _OPTIONS), None)
    if strange is not None:
        raise TypeError(f"unknown option {strange!r} of run(): use {', '.join(_OPTIONS)}")
    found: RunOptions = {**_OPTIONS, **options}
    found["memory"] = require_integer(found["memory"], "memory", FileError, 0)
    return found


class Finish(NamedTuple):
    """A step that completes some targets after their tensors are copied.

    Attributes:
        targets: indices of the targets.
        complete: called with their paths.
        check: called with their paths after ``complete`` if the run verifies; see
            :class:`~splitops.files.formats.Layout`.
    """

    targets: range
    complete: Callable[[Sequence[Path]], None]
    check: Callable[[Sequence[Path]], None] | None = None


class Part(NamedTuple):
    """A tensor of a plan, or a part of one, and its file.

    Attributes:
        path: path of the file.
        tensor: its name in the file; empty if the format has no names.
        offset: its first index along the split axis of the original tensor; 0 if it is whole.
        size: its size along that axis, which is axis 0 if nothing is split.
        shape: its shape.
    """

    path: Path
    tensor: str
    offset: int
    size: int
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DryRun:
    """The result of a dry run: files that a run would write, and its amount of work.

    Attributes:
        files: each file or folder that would be written, with its size in bytes; 0 if only the run knows it.
        bytes: bytes of tensors and small files that would be copied.
        extents: number of extents (strided byte ranges), or of chunks if tensors are copied chunk by chunk.
        tasks: number of tasks. After each one, the journal is updated and, with ``sync``, the files are
            flushed. For targets at a URL, the number of parts to upload.
        exists: targets that already exist.
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
        return format_html_table(str(self), ("file", "bytes"), self.files)


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a run: the files that it has written, or found complete.

    Attributes:
        files: each of these files, with its size in bytes.
        bytes: bytes of tensors and small files that were copied into these files.
        resumed: how many of these bytes an earlier run had already copied.
        replaced: staging folder of an interrupted run, which this run has deleted; None if there was none.
        sha256: SHA-256 of each file that is not a folder, if it was requested.
    """

    files: tuple[tuple[Path, int], ...]
    bytes: int
    resumed: int = 0
    replaced: Path | None = None
    sha256: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Report({count_of(len(self.files), 'file')}, {self.bytes} tensor bytes)"

    def _repr_html_(self) -> str:
        return format_html_table(repr(self), ("file", "bytes"), self.files)


class Kept(str):
    """Note on the exception that interrupted a run. It names the folder that was kept, if any.

    Attributes:
        folder: the hidden folder, or None if nothing was kept.
        done: bytes that finished tasks have copied.
        total: all bytes that the run copies.
    """

    folder: Path | None
    done: int
    total: int

    def __new__(cls, folder: Path | None, done: int, total: int) -> Kept:
        """Build the note. If a folder was kept, its text explains how to continue the run."""
        said = f"none of the {total} bytes are kept"
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
    """A valid split or merge of files: which bytes of which files are copied where.

    Attributes:
        name: name from which that of the staging folder is made. Plans of the same kind for the same targets
            share it.
        folder: path or URL of the folder of the targets.
        sources: files that are read.
        tensors: tensors of the sources, for messages; their ``file`` is an index into ``sources``. Empty if
            tensors are copied chunk by chunk.
        targets: files that are written.
        copies: copies from the sources to the targets.
        parts: the tensors that were requested, with their files.
        finishes: steps that complete targets after their tensors are copied.
        warnings: sentences for the user, for example about files in a model's folder that are not copied.
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
        return format_html_table(repr(self), ("file", "tensor", "offset", "size", "shape"), rows)

    @cached_property
    def paths(self) -> tuple[Path, ...]:
        """Paths of the targets that are published: all except scratch files."""
        return tuple(self.folder / target.name for target in self.targets if not target.scratch)

    @property
    def extents(self) -> Extents:
        """Extents of the copies; empty if the tensors are copied chunk by chunk."""
        return self.copies.extents if isinstance(self.copies, ExtentCopies) else Extents.from_extents(())

    @property
    def bytes(self) -> int:
        """Bytes of tensors and small files that are copied."""
        return self.copies.bytes

    def make_tasks(self, memory: int = MEMORY) -> Sequence[Task]:
        """Split the plan into independent, repeatable tasks. ``memory`` is as in :class:`RunOptions`."""
        return self.copies.make_tasks(require_integer(memory, "memory", FileError, 0))

    def compute_digest(self, memory: int) -> str:
        """Return a digest of the copies, the targets and ``memory``, which together determine the tasks."""
        digest = hashlib.sha256(self.copies.get_identity().encode())
        said: list[object] = [memory]
        for target in self.targets:
            said += [target.name, target.size, *((offset, len(data)) for offset, data in target.literals)]
            for _, data in target.literals:
                digest.update(data)
        digest.update(repr(said).encode())
        return digest.hexdigest()

    def reject_duplicates(self) -> None:
        """Reject two targets with the same name, and a file at the path of a folder.

        Names that differ only in case or in how an accent is encoded count as the same, because some file
        systems do not distinguish them.

        Raises:
            FileError: there are such targets; the message names both and their sources.
        """
        first: dict[str, int] = {}
        for index, target in enumerate(self.targets):
            key = _fold_name(target.name)
            if first.setdefault(key, index) != index:
                raise self._make_duplicate_error(first[key], index)
        for index, target in enumerate(self.targets):
            for at in [i for i, c in enumerate(target.name) if c == "/"]:
                other = first.get(_fold_name(target.name[:at]))
                if other is not None and not self.targets[other].folder:
                    raise self._make_duplicate_error(other, index)

    def _make_duplicate_error(self, one: int, other: int) -> FileError:
        new = f"{self.targets[0].name}/" if self.targets[0].folder else ""
        names = [self.targets[index].name.removeprefix(new) for index in (one, other)]
        what = f"two files would have the name {shown(names[0])}"
        if names[0] != names[1]:
            what = f"{shown(names[0])} and {shown(names[1])} cannot both exist on every file system"
        return FileError(
            f"{what}: one is {self._describe_origin(one)}, the other {self._describe_origin(other)}. Rename "
            "one of them first"
        )

    def _describe_origin(self, index: int) -> str:
        """Describe the source of a target, for a message."""
        target = self.targets[index]
        if target.copied:
            return f"a copy of {target.copied}"
        if isinstance(self.copies, ExtentCopies):
            table = self.extents.table
            found = dict.fromkeys(table[table[:, Column.TARGET] == index, Column.SOURCE].tolist())
        else:
            assemblies = [assembly for assembly in self.copies.assemblies if assembly.target == index]
            found = dict.fromkeys(span.source for assembly in assemblies for span in assembly.spans)
        names = [self.sources[source].name for source in found if source < len(self.sources)]
        if not names:
            return "written by splitops"
        more = f" and {count_of(len(names) - 1, 'more file')}" if len(names) > 1 else ""
        return f"made from tensors of {names[0]}{more}"


def _fold_name(name: str) -> str:
    """Return a key that two names share if some file system treats them as the same name."""
    if name.isascii():
        return name.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())
