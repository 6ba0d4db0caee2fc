"""Arguments that all tasks share: the files of the plan, and the progress callback.

A task copies a part of a plan (:class:`~splitops.files.extent_tasks.ExtentTask` or
:class:`~splitops.files.chunk_tasks.ChunkTask`). Tasks are independent and repeatable, and run here or on a
worker of a cluster. Each has the indices of its ``sources`` and ``targets``, the number of ``bytes`` that it
copies, and the number of ``checksums`` that ``copy`` and ``read_back`` return. Its ``partition`` changes if
the same bytes are split into other tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from splitops.common.staging import StagingFolder
from splitops.files.sources import LocalFile

Tick = Callable[[int], object]
"""Called repeatedly with the bytes of the task that are done. An exception that it raises stops the task."""


def ignore_tick(_: int) -> None:
    """Ignore progress: a :data:`Tick` that does nothing."""


@dataclass(frozen=True, slots=True)
class Files:
    """The paths of the files of a plan, keyed by index.

    With ``sync``, tasks flush their writes. ``opened`` and ``written`` are the sources and targets that
    are open in this process. Without them, each task opens its own. Paths in the folder ``staging`` are valid
    in this process only.
    """

    sources: Mapping[int, Path]
    targets: Mapping[int, Path]
    sync: bool
    opened: Mapping[int, LocalFile] | None = None
    written: Mapping[int, int] = field(default_factory=dict)
    staging: StagingFolder | None = None

    def select(self, sources: Collection[int], targets: Collection[int]) -> Files:
        """Return the files with the given indices, with paths that are valid on a worker."""
        read = {index: self._get_worker_path(self.sources[index]) for index in sources}
        return Files(
            read, {index: self._get_worker_path(self.targets[index]) for index in targets}, self.sync
        )

    def _get_worker_path(self, path: Path) -> Path:
        return path if self.staging is None else self.staging.get_public_path(path).absolute()
