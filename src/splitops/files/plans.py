"""Plans of splits and merges of files, which can be run."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

from splitops.errors import FileError, shown, shown_path
from splitops.files.addresses import address_of, is_address
from splitops.files.chunks import ChunkCopies
from splitops.files.folder_run import FolderRun
from splitops.files.planned import MEMORY, DryRun, PlannedFiles, Report, RunOptions, all_options
from splitops.files.sources import LocalFolder
from splitops.files.tensors import without_collector
from splitops.files.uploads import AddressRun, uploads_of, windows_of


@dataclass(frozen=True, repr=False)
class FilePlan(PlannedFiles):
    """A split or merge of files that is proved valid and can be carried out; see :class:`PlannedFiles`.

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
        """Reject targets of one name, and those at an address that cannot be written from begin to end."""
        self.reject_doubles()
        whole = any(target.scratch or target.folder for target in self.targets)
        if is_address(self.folder) and (isinstance(self.copies, ChunkCopies) or self.finishes or whole):
            name = self.targets[0].name if self.targets else self.name
            raise FileError(
                f"{address_of(self.folder)}/{name}: a file of this format is not made from its beginning to "
                "its end, as one at an address is: write it to a folder, or another format"
            )

    def dry_run(self, *, memory: int = MEMORY) -> DryRun:
        """Return what a run would do; nothing is written.

        Sizes of chunks are those in memory, without compression. Of targets at an address, the tasks are the
        parts of all uploads.
        """
        tasks = len(self.tasks(memory))
        sizes = zip(self.targets, self.copies.sizes(self.targets), strict=True)
        exists = tuple(path for path in self.paths if os.path.lexists(path))
        if is_address(self.folder):
            tasks = sum(len(windows_of(target.size)) for target in self.targets)
            exists = tuple(Path(address) for address in uploads_of(self).existing())
        files = tuple((self.folder / target.name, size) for target, size in sizes if not target.scratch)
        return DryRun(files, self.bytes, len(self.copies), tasks, exists)

    def run(self, **options: Unpack[RunOptions]) -> Report:
        """Write the targets: all of them whole, or none.

        What is no error but ends the run (a KeyboardInterrupt, a SystemExit) leaves a hidden folder with the
        tensors that are copied, for ``resume=True``. A note has its name, or says that nothing is kept.
        Targets that cannot be resumed leave nothing: those at an address, chunks of HDF5, computed arrays.

        Args:
            **options: the fields of :class:`RunOptions`.

        Raises:
            FileError: the memory is too little, a target exists, a source cannot be read or has changed, the
                disk is full, a byte does not read back as it was written, or a cluster cannot write such
                targets. Nothing is left then, but for what a run was to go on with whose sources have
                changed.
        """
        how, address = all_options(options), is_address(self.folder)
        alone = "targets at an address" if address else self.copies.one_process
        if how["checksums"] is not None:
            self._reject_checksums(how["checksums"])
        if how["cluster"] is not None and alone:
            raise FileError(f"{alone} are written by one process, not by a cluster")
        with without_collector():
            run = AddressRun(self, how) if address else FolderRun(self, how)
        return run.done()

    def _reject_checksums(self, path: Path) -> None:
        """Reject a file of checksums in the place of a file that is read, or of one that is written."""

        def is_in(folder: str) -> bool:
            return own.startswith(folder + os.sep)

        own, folder = os.path.realpath(path), os.path.realpath(self.folder)
        for source in self.sources:
            there = os.path.realpath(source.path)
            if own == there or (isinstance(source, LocalFolder) and is_in(there)):
                raise FileError(f"checksums {shown_path(path)} would replace what it is made from")
        inside = isinstance(self.copies, ChunkCopies)
        for target in self.targets:
            place = os.path.join(folder, target.name)
            if own == place or (target.folder and inside and is_in(place)):
                raise FileError(f"checksums {shown_path(path)} would replace {shown(target.name)}, a target")
