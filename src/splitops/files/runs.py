"""What every run of a plan does, wherever its targets go."""

from __future__ import annotations

import contextlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from splitops.errors import FileError, ModelError, shown_path
from splitops.files.checksums import lines
from splitops.files.descriptors import make_durable, opened
from splitops.files.engine import CopyError
from splitops.files.extents import stretches
from splitops.files.planned import TO_REPLACE, PlannedFiles, Report, RunOptions
from splitops.files.sources import LocalFile, reason
from splitops.ground.writing import StagedFiles


class Run(ABC):
    """One run of a plan."""

    def __init__(self, plan: PlannedFiles, how: RunOptions) -> None:
        self.plan = plan
        self.how = how
        self.sync = how["sync"]
        self.before = [source.identity() for source in plan.sources]
        self.finished = 0
        self.total = plan.bytes * (1 + how["verify"])

    @abstractmethod
    def done(self) -> Report:
        """Carry it out."""

    def report(
        self, sizes: Iterable[int], resumed: int, digests: Mapping[Path, str], replaced: Path | None = None
    ) -> Report:
        """Return what the run has done."""
        files = tuple(zip(self.plan.paths, sizes, strict=True))
        own = tuple(digests[path] for path, _ in files if path in digests) if self.how["sha256"] else ()
        return Report(files, self.plan.bytes, resumed, replaced, own)

    def place_checksums(self, staged: StagedFiles, digests: Mapping[Path, str]) -> None:
        """Write the file of checksums where it was asked for; it takes its place after all others."""
        path = self.how["checksums"]
        if path is None:
            return
        content = lines(digests, path.parent)
        self.reject_checksums(content)
        draft = staged.place(path)
        draft.write_bytes(content)
        if self.sync:
            with opened([draft]) as files:
                make_durable(list(files.values()))

    def reject_checksums(self, content: bytes | None) -> None:
        """Reject to replace a file by that of checksums, unless it says the same already."""
        path = self.how["checksums"]
        if path is None or self.how["overwrite"] or not os.path.lexists(path):
            return
        if content is None or not path.is_file() or path.read_bytes() != content:
            raise FileError(f"{shown_path(path)} already exists. {TO_REPLACE}")

    def reject_changed_sources(self) -> None:
        """Reject what was read of sources that are not as they were when the run began."""
        for source, before in zip(self.plan.sources, self.before, strict=True):
            if source.identity() != before:
                raise FileError(f"{source.name} has changed while it was read")

    @contextlib.contextmanager
    def failures(self) -> Iterator[None]:
        """Raise what fails where no single target is written as an error of the folder."""
        try:
            yield
        except ModelError as error:  # of the writer
            raise FileError(error.message) from error
        except BrokenPipeError:  # of the terminal, which may show progress: no regular file has it
            raise
        except OSError as error:
            raise FileError(f"cannot write into {shown_path(self.plan.folder)}: {reason(error)}") from error

    def local_sources(self, staging: Path) -> dict[int, LocalFile]:
        """Return the sources of extents as local files; those that are not are brought into a folder."""
        found = {}
        used = self.plan.extents.sources
        for index, source in enumerate(self.plan.sources):
            if index not in used:
                continue
            local = source.local()
            if local is None:
                spool = staging / f".source-{index}"
                spool.unlink(missing_ok=True)
                with spool.open("xb") as file:
                    extents = [extent for extent in self.plan.extents if extent.source == index]
                    source.copy_to(file, stretches(extents))
                local = LocalFile(spool)
            found[index] = local
        return found

    def advance(self, size: int) -> None:
        """Tell that so many bytes more are done."""
        self.finished += size
        self.tick(0)

    def tick(self, size: int) -> None:
        """Tell that so many bytes of what is at work are done."""
        if self.how["progress"] is not None:
            self.how["progress"](self.finished + size, self.total)

    def failure(self, error: CopyError) -> FileError:
        """Return what a file that cannot be read or written is called by the plan."""
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
