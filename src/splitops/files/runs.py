"""Base class of runs: the steps that do not depend on whether the targets are in a folder or at a URL."""

from __future__ import annotations

import contextlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from splitops.common.atomic_write import StagedFiles
from splitops.errors import FileError, ModelError, shown_path
from splitops.files.checksums import format_lines
from splitops.files.descriptors import make_durable, open_for_sync
from splitops.files.engine import CopyError
from splitops.files.extents import cover_byte_ranges
from splitops.files.plan_types import TO_REPLACE, PlannedFiles, Report, RunOptions
from splitops.files.sources import LocalFile, format_reason


class Run(ABC):
    """Base class of runs. A run executes a plan once: it writes the files and returns a report."""

    def __init__(self, plan: PlannedFiles, how: RunOptions) -> None:
        self.plan = plan
        self.how = how
        self.sync = how["sync"]
        self.before = [source.read_identity() for source in plan.sources]
        self.finished = 0
        self.total = plan.bytes * (1 + how["verify"])

    @abstractmethod
    def execute(self) -> Report:
        """Write all targets and return the report."""

    def report(
        self, sizes: Iterable[int], resumed: int, digests: Mapping[Path, str], replaced: Path | None = None
    ) -> Report:
        """Make the report of a finished run. ``digests`` has the SHA-256 of files by path."""
        files = tuple(zip(self.plan.paths, sizes, strict=True))
        own = tuple(digests[path] for path, _ in files if path in digests) if self.how["sha256"] else ()
        return Report(files, self.plan.bytes, resumed, replaced, own)

    def place_checksums(self, staged: StagedFiles, digests: Mapping[Path, str]) -> None:
        """Write the checksum file, if it was requested. It is never published before the other files."""
        path = self.how["checksums"]
        if path is None:
            return
        content = format_lines(digests, path.parent)
        self.reject_checksums(content)
        draft = staged.place(path)
        draft.write_bytes(content)
        if self.sync:
            with open_for_sync([draft]) as files:
                make_durable(list(files.values()))

    def reject_checksums(self, content: bytes | None) -> None:
        """Raise FileError if the checksum file exists already and must not be replaced.

        An existing file with exactly this ``content`` is accepted. None accepts no existing file.
        """
        path = self.how["checksums"]
        if path is None or self.how["overwrite"] or not os.path.lexists(path):
            return
        if content is None or not path.is_file() or path.read_bytes() != content:
            raise FileError(f"{shown_path(path)} already exists. {TO_REPLACE}")

    def reject_changed_sources(self) -> None:
        """Raise FileError if a source has changed since the run began."""
        for source, before in zip(self.plan.sources, self.before, strict=True):
            if source.read_identity() != before:
                raise FileError(f"{source.name} has changed while it was being read")

    @contextlib.contextmanager
    def convert_errors(self) -> Iterator[None]:
        """Convert a ModelError, or an OSError except BrokenPipeError, into a :class:`FileError`."""
        try:
            yield
        except ModelError as error:  # StagedFiles raises this
            raise FileError(error.message) from error
        except BrokenPipeError:  # the terminal that shows progress was closed
            raise
        except OSError as error:
            raise FileError(
                f"cannot write into {shown_path(self.plan.folder)}: {format_reason(error)}"
            ) from error

    def open_local_sources(self, staging: Path) -> dict[int, LocalFile]:
        """Return the sources of the extents as local files. Unpack or download others into ``staging``."""
        found = {}
        used = self.plan.extents.sources
        for index, source in enumerate(self.plan.sources):
            if index not in used:
                continue
            local = source.find_local()
            if local is None:
                spool = staging / f".source-{index}"
                spool.unlink(missing_ok=True)
                with spool.open("xb") as file:
                    extents = [extent for extent in self.plan.extents if extent.source == index]
                    source.copy_to(file, cover_byte_ranges(extents))
                local = LocalFile(spool)
            found[index] = local
        return found

    def advance(self, size: int) -> None:
        """Report ``size`` more bytes as done."""
        self.finished += size
        self.show_progress(0)

    def show_progress(self, size: int) -> None:
        """Report progress inside a task: ``size`` of its bytes are done."""
        if self.how["progress"] is not None:
            self.how["progress"](self.finished + size, self.total)

    def make_error(self, error: CopyError) -> FileError:
        """Convert a failed copy into an error that names the file and, for a source, the tensor."""
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
