"""Tensors that are stored in chunks: split and merged a chunk at a time, by the library of their format.

All but the copying of chunks is as for other files: the staging, the journal, the check that sources stayed
as they were, the publication.
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

from splitops.errors import FileError
from splitops.files.chunk_tasks import ChunkedFormat, ChunkTask, Flow, make_names_durable
from splitops.files.engine import TASK_BYTES
from splitops.files.formats import Contents, TargetFile
from splitops.files.sources import writing
from splitops.files.tasks import Files
from splitops.ground.signals import uninterrupted

_HELD: Final = 4
"""So many times the bytes of a chunk are held at most: two that are read, one made of them, and its code."""
_MAX_CHUNKS: Final = 100_000_000

Compute = Callable[[Sequence[ChunkTask], Files, int, Any, Callable[[int, list[int]], None]], None]
"""Computes chunks and writes them.

Called with a task for each chunk, the files, how many threads the memory is enough for, the cluster or None,
and what is told the number and the checksums of each task that is done.
"""


@dataclass(frozen=True)
class ChunkCopies:
    """What a plan copies chunk by chunk: to targets by their names in messages, of a format and made ``like``
    others, from sources of these formats, or (``compute``) from none.
    """

    flows: tuple[Flow, ...]
    format: ChunkedFormat
    names: tuple[str, ...]
    formats: tuple[ChunkedFormat, ...] = ()
    like: Contents | None = None
    compute: Compute | None = None

    @property
    def resumable(self) -> bool:
        """Whether what a run has done is of use to the next one."""
        return self.compute is None and self.format.folders

    @property
    def one_process(self) -> str | None:
        """What only one process can write; None where workers of a cluster can."""
        return None if self.format.folders else f"the chunks of {self.format.name}"

    @cached_property
    def bytes(self) -> int:
        """The tensor bytes that are copied."""
        return sum(flow.tensor.size for flow in self.flows)

    def __len__(self) -> int:
        return sum(math.prod(flow.grid) for flow in self.flows)

    def sizes(self, targets: Sequence[TargetFile]) -> list[int]:
        """Return the size of each target in memory, without compression."""
        sizes = [0] * len(targets)
        for flow in self.flows:
            sizes[flow.target] += flow.tensor.size
        return sizes

    def tasks(self, memory: int) -> list[ChunkTask]:
        """Return the chunks in tasks, done in any order and again; chunks have to fit into the memory."""
        made: list[ChunkTask] = []
        for flow in self.flows:
            count, size = math.prod(flow.grid), flow.chunk_bytes
            if count > _MAX_CHUNKS:
                raise FileError(f"{flow.tensor.label} has {count} chunks; at most {_MAX_CHUNKS} are copied")
            if size * _HELD > memory:
                raise FileError(
                    f"{memory} bytes of memory are too few for chunks of {size} bytes, as "
                    f"{flow.tensor.label} has: at least {size * _HELD} are needed, or smaller chunks"
                )
            step = 1 if self.compute is not None else max(1, TASK_BYTES // max(1, size))
            formats, name = (
                {span.source: self.formats[span.source] for span in flow.spans},
                self.names[flow.target],
            )
            made += [
                ChunkTask(flow, first, min(first + step, count), self.format, formats, name)
                for first in range(0, count, step)
            ]
        return made

    def threads(self, memory: int) -> int:
        """Return how many threads may hold chunks at a time."""
        largest = max((flow.chunk_bytes for flow in self.flows), default=0)
        return max(1, min(os.cpu_count() or 1, memory // max(1, largest * _HELD)))

    def identity(self) -> str:
        """Return what differs for other copies."""
        return repr(self.flows)

    def are_made(self, targets: Sequence[TargetFile], drafts: Sequence[Path]) -> bool:
        """Return whether the targets that an earlier run has made are still there."""
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
        """Make the targets without their elements, where they are not kept."""
        for position, draft in enumerate([] if kept else drafts):
            if draft.is_dir():
                shutil.rmtree(draft)
            tensors = [flow.tensor for flow in self.flows if flow.target == position]
            with uninterrupted(), writing(self.names[position]):
                self.format.create(draft, tensors, self.like)
                if sync:
                    files = (Path(folder, name) for folder, _, names in os.walk(draft) for name in names)
                    make_names_durable(list(files) if self.format.folders else [draft])
