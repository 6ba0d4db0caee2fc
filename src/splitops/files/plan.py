"""Plans of splits and merges of files, ready to run."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

from splitops.errors import FileError, shown, shown_path
from splitops.files.chunks import ChunkCopies
from splitops.files.folder_run import FolderRun
from splitops.files.plan_types import MEMORY, DryRun, PlannedFiles, Report, RunOptions, fill_options
from splitops.files.sources import LocalFolder
from splitops.files.tensors import pause_gc
from splitops.files.uploads import UploadRun, make_uploads, split_into_windows
from splitops.files.urls import format_url, is_url


@dataclass(frozen=True, repr=False)
class FilePlan(PlannedFiles):
    """A valid plan to split or merge files; see :class:`PlannedFiles`.

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

    def __post_init__(self) -> None:
        """Reject duplicate target names, and targets at a URL that cannot be written from start to end."""
        self.reject_duplicates()
        whole = any(target.scratch or target.folder for target in self.targets)
        if is_url(self.folder) and (isinstance(self.copies, ChunkCopies) or self.finishes or whole):
            name = self.targets[0].name if self.targets else self.name
            raise FileError(
                f"{format_url(self.folder)}/{name}: files of this format cannot be uploaded, because "
                "they are not written from start to end. Write to a local folder, or choose another format"
            )

    def dry_run(self, *, memory: int = MEMORY) -> DryRun:
        """Describe what a run would do, without writing anything.

        The sizes of targets that are copied chunk by chunk are those of their uncompressed tensors. Sizes
        that only the run knows, such as those of deflated archives, are 0. If the targets are at a URL,
        ``tasks`` counts the parts of all uploads. ``memory`` is as in :class:`RunOptions`.
        """
        tasks = len(self.make_tasks(memory))
        sizes = self.copies.compute_sizes(self.targets)
        inside: Counter[str] = Counter()
        for target, size in zip(self.targets, sizes, strict=True):
            inside[target.name.partition("/")[0]] += size
        exists = tuple(path for path in self.paths if os.path.lexists(path))
        if is_url(self.folder):
            tasks = sum(len(split_into_windows(target.size)) for target in self.targets)
            exists = tuple(Path(url) for url in make_uploads(self).iter_existing())
        files = tuple(
            (self.folder / target.name, inside[target.name] if target.folder else size)
            for target, size in zip(self.targets, sizes, strict=True)
            if not target.scratch
        )
        return DryRun(files, self.bytes, len(self.copies), tasks, exists)

    def run(self, **options: Unpack[RunOptions]) -> Report:
        """Write the targets. In a local folder, either all of them are written completely, or none is.

        At a URL, files that have already been replaced cannot be restored, and the error lists them.

        A KeyboardInterrupt or SystemExit during the copy into a local folder leaves a hidden folder with the
        output of finished tasks, for ``resume=True``. A note on its exception names the hidden folder, or
        reports that nothing is kept. Some targets cannot be resumed and leave nothing: those at a URL, chunks
        of HDF5 and computed arrays.

        Args:
            **options: fields of :class:`RunOptions`.

        Raises:
            FileError: the memory is too small, a target exists, a source cannot be read or has changed, the
                disk is full, a byte does not read back as it was written, or a cluster cannot write this kind
                of target. Nothing of the run is left then, except files at a URL that it has replaced. The
                folder of an earlier run is left if this run fails before it uses that folder, for example
                because the earlier run had other arguments or its sources have changed.
        """
        how, is_upload = fill_options(options), is_url(self.folder)
        alone = "targets at a URL" if is_upload else self.copies.one_process
        if how["checksums"] is not None:
            self._reject_checksums(how["checksums"])
        if how["cluster"] is not None and alone:
            raise FileError(f"a cluster cannot write {alone}: run without a cluster")
        with pause_gc():
            run = UploadRun(self, how) if is_upload else FolderRun(self, how)
        return run.execute()

    def _reject_checksums(self, path: Path) -> None:
        """Raise FileError if the checksum file would replace a source or a target."""

        def is_in(folder: str) -> bool:
            return own.startswith(folder + os.sep)

        own, folder = os.path.realpath(path), os.path.realpath(self.folder)
        for source in self.sources:
            there = os.path.realpath(source.path)
            if own == there or (isinstance(source, LocalFolder) and is_in(there)):
                raise FileError(f"the checksum file {shown_path(path)} would replace a source")
        inside = isinstance(self.copies, ChunkCopies)
        for target in self.targets:
            place = os.path.join(folder, target.name)
            if own == place or (target.folder and inside and is_in(place)):
                raise FileError(
                    f"the checksum file {shown_path(path)} would replace the target {shown(target.name)}"
                )
