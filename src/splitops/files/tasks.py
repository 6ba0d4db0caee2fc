"""What tasks are done with: the files, and who is told how far they are.

A task is a part of what a plan copies (:class:`~splitops.files.extent_tasks.ExtentTask` or
:class:`~splitops.files.chunk_tasks.ChunkTask`). It can be done before or after any other, and again, here
or by a worker of a cluster. It names the ``sources`` and ``targets`` that it needs, its share of the
``bytes``, and how many ``checksums`` it has. ``copy`` and ``read_back`` return these. ``cut`` differs where
the same bytes are cut into other tasks, as another release may do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from splitops.files.sources import LocalFile
from splitops.ground.staging import StagingFolder

Tick = Callable[[int], object]
"""Called now and then with the bytes that are done; what it raises ends the task."""


def no_tick(_: int) -> None:
    """Tell nobody how far a task is."""


@dataclass(frozen=True, slots=True)
class Files:
    """Where the files and folders of tasks are, by their positions in the plan.

    This process has sources (``opened``) and targets (``written``) open; where not, each task opens its own.
    Paths in the folder where targets are written (``staging``) are those of this process.
    """

    sources: Mapping[int, Path]
    targets: Mapping[int, Path]
    sync: bool
    opened: Mapping[int, LocalFile] | None = None
    written: Mapping[int, int] = field(default_factory=dict)
    staging: StagingFolder | None = None

    def of(self, sources: Collection[int], targets: Collection[int]) -> Files:
        """Return some of the files, as a worker gets them."""
        read = {index: self._name_of(self.sources[index]) for index in sources}
        return Files(read, {index: self._name_of(self.targets[index]) for index in targets}, self.sync)

    def _name_of(self, path: Path) -> Path:
        return path if self.staging is None else self.staging.name_of(path).absolute()
