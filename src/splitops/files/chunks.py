"""Copies of chunked tensors, which the library of their format reads and writes one chunk at a time.

Staging, journal, publication and the check for changed sources are the same as for other files.
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from splitops.common.signals import defer_signals
from splitops.errors import FileError
from splitops.files.chunk_tasks import ChunkedFormat, ChunkTask, TensorAssembly, make_names_durable
from splitops.files.engine import TASK_BYTES
from splitops.files.formats import Contents, TargetFile
from splitops.files.sources import writing
from splitops.files.tasks import Files

_MEMORY_FACTOR: Final = 4
"""Chunks in memory at a time: two that are read, the one assembled from them, and its encoding."""
_MAX_CHUNKS: Final = 100_000_000

Compute = Callable[[Sequence[ChunkTask], Files, int, Any, Callable[[int, list[int]], None]], None]
"""Computes chunks and writes them.

Arguments: one task per chunk, the files, the number of threads that fit in memory, the cluster or None, and a
function to call with the index and the checksums of each finished task.
"""


@dataclass(frozen=True)
class ChunkCopies:
    """Copies of a plan that are made chunk by chunk.

    ``format`` is the format of the targets, ``names`` are their names in messages, and ``formats`` are the
    formats of the sources. New files get the metadata of ``like``. If ``compute`` is set, it computes the
    elements, and there are no sources.
    """

    assemblies: tuple[TensorAssembly, ...]
    format: ChunkedFormat
    names: tuple[str, ...]
    formats: tuple[ChunkedFormat, ...] = ()
    like: Contents | None = None
    compute: Compute | None = None

    @property
    def resumable(self) -> bool:
        """Whether a later run can continue from the chunks that an interrupted run has copied."""
        return self.compute is None and self.format.folders

    @property
    def one_process(self) -> str | None:
        """The part of the targets that a cluster cannot write, as a phrase for messages, or None."""
        return None if self.format.folders else f"the chunks of {self.format.name}"

    @cached_property
    def bytes(self) -> int:
        """Tensor bytes that are copied."""
        return sum(assembly.tensor.size for assembly in self.assemblies)

    def __len__(self) -> int:
        return sum(math.prod(assembly.grid) for assembly in self.assemblies)

    def compute_sizes(self, targets: Sequence[TargetFile]) -> list[int]:
        """Return the uncompressed size of the tensors in each target, in bytes."""
        sizes = [0] * len(targets)
        for assembly in self.assemblies:
            sizes[assembly.target] += assembly.tensor.size
        return sizes

    def make_tasks(self, memory: int) -> list[ChunkTask]:
        """Split the copies into tasks. Raise FileError for too many chunks, or if ``memory`` is too small."""
        made: list[ChunkTask] = []
        for assembly in self.assemblies:
            count, size = math.prod(assembly.grid), assembly.chunk_bytes
            if count > _MAX_CHUNKS:
                raise FileError(f"{assembly.tensor.label} has {count} chunks; the limit is {_MAX_CHUNKS}")
            if size * _MEMORY_FACTOR > memory:
                raise FileError(
                    f"{memory} bytes of memory are not enough for {assembly.tensor.label}, which has chunks "
                    f"of {size} bytes: at least {size * _MEMORY_FACTOR} are needed, or smaller chunks"
                )
            step = 1 if self.compute is not None else max(1, TASK_BYTES // max(1, size))
            formats, name = (
                {span.source: self.formats[span.source] for span in assembly.spans},
                self.names[assembly.target],
            )
            made += [
                ChunkTask(assembly, first, min(first + step, count), self.format, formats, name)
                for first in range(0, count, step)
            ]
        return made

    def count_threads(self, memory: int) -> int:
        """Return the number of threads whose chunks fit in ``memory``: 1 to the number of processors."""
        largest = max((assembly.chunk_bytes for assembly in self.assemblies), default=0)
        return max(1, min(os.cpu_count() or 1, memory // max(1, largest * _MEMORY_FACTOR)))

    def get_identity(self) -> str:
        """Return a string that is equal only for equal copies."""
        return repr(self.assemblies)

    def are_made(self, targets: Sequence[TargetFile], drafts: Sequence[Path]) -> bool:
        """Return whether all targets that an earlier run created at ``drafts`` still exist."""
        return all(draft.exists() for draft in drafts)

    def make(
        self,
        targets: Sequence[TargetFile],
        drafts: Sequence[Path],
        folder: Path,
        *,
        kept: bool,
        sync: bool,
        **_: object,
    ) -> None:
        """Create the targets at ``drafts`` without their elements, unless existing ones are ``kept``."""
        for position, draft in enumerate([] if kept else drafts):
            if draft.is_dir():
                shutil.rmtree(draft)
            tensors = [assembly.tensor for assembly in self.assemblies if assembly.target == position]
            with defer_signals(), writing(self.names[position]):
                self.format.create(draft, tensors, self.like)
                if sync:
                    files = (Path(folder, name) for folder, _, names in os.walk(draft) for name in names)
                    make_names_durable(list(files) if self.format.folders else [draft], draft)
