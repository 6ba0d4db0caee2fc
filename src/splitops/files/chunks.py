"""Tensors that are stored in chunks: split and merged a chunk at a time, by the library of their format.

All but the copying of chunks is as for other files: the staging, the journal, the check that sources stayed
as they were, the publication.
"""

from __future__ import annotations

import hashlib
import math
import os
import shutil
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Final

from splitops.errors import FileError, shown_path
from splitops.files.chunk_work import (
    ChunkedFormat,
    ChunkTask,
    ChunkWork,
    Flow,
    chunks_of,
    make_names_durable,
)
from splitops.files.copying import FilePlan
from splitops.files.engine import TASK_BYTES
from splitops.files.formats import Contents
from splitops.files.journal import Journal
from splitops.files.plans import MEMORY, DryRun, RunOptions
from splitops.files.running import Run
from splitops.files.sources import writing

_HELD: Final = 4
"""So many times the bytes of a chunk are held at most: two that are read, one made of them, and its code."""
_MAX_CHUNKS: Final = 100_000_000


@dataclass(frozen=True)
class ChunkPlan(FilePlan):
    """A split or merge of files some of whose tensors are stored in chunks.

    Attributes:
        like: what the targets are made after.
        formats: that of each source.
        flows: what is copied.
    """

    like: Contents | None = None
    formats: tuple[ChunkedFormat, ...] = ()
    flows: tuple[Flow, ...] = ()

    @cached_property
    def bytes(self) -> int:
        """The tensor bytes that are copied."""
        return sum(flow.tensor.size for flow in self.flows)

    def dry_run(self, *, memory: int = MEMORY) -> DryRun:
        """Return what a run would do; the sizes are those in memory, without compression."""
        sizes = [0] * len(self.targets)
        for flow in self.flows:
            sizes[flow.target] += flow.tensor.size
        return DryRun(
            tuple(zip(self.paths, sizes, strict=True)),
            self.bytes,
            sum(math.prod(flow.grid) for flow in self.flows),
            len(self.chunk_tasks(memory)),
            tuple(path for path in self.paths if os.path.lexists(path)),
        )

    def chunk_tasks(self, memory: int) -> list[ChunkTask]:
        """Return the chunks in tasks that can be done in any order, and again.

        Raises:
            FileError: a chunk does not fit into the memory, or there are too many.
        """
        made: list[ChunkTask] = []
        for number, flow in enumerate(self.flows):
            count, size = math.prod(flow.grid), flow.chunk_bytes
            if count > _MAX_CHUNKS:
                raise FileError(f"{flow.tensor.label} has {count} chunks; at most {_MAX_CHUNKS} are copied")
            if size * _HELD > memory:
                raise FileError(
                    f"{memory} bytes of memory are too few for {flow.tensor.label}, whose chunks have {size} "
                    f"bytes: at least {size * _HELD} are needed"
                )
            step = max(1, TASK_BYTES // max(1, size))
            made += [ChunkTask(number, first, min(first + step, count)) for first in range(0, count, step)]
        return made

    def start(self, how: RunOptions) -> Run:
        """Return a run of the plan that has done nothing yet."""
        return _ChunkRun(self, how)

    def digest(self, memory: int) -> str:
        """Return a digest that differs for plans whose tasks differ."""
        digest = hashlib.sha256(super().digest(memory).encode())
        for flow in self.flows:
            digest.update(repr(flow).encode())
        digest.update(repr(self.chunk_tasks(memory)).encode())
        return digest.hexdigest()


class _ChunkRun(Run):
    """One run of a plan by chunks."""

    def __init__(self, plan: ChunkPlan, how: RunOptions) -> None:
        super().__init__(plan, how)
        assert plan.like is not None
        self._like = plan.like
        self._format: ChunkedFormat = plan.like.format  # type: ignore[assignment]
        self._formats = plan.formats
        self._flows = plan.flows
        self._tasks = plan.chunk_tasks(how["memory"])
        if how["cluster"] is not None and not self._format.folders:
            raise FileError(f"the chunks of {self._format.name} are written by one process, not by a cluster")

    def _is_there(self) -> bool | None:
        return None

    def _counts(self) -> list[int]:
        return [task.end - task.first for task in self._tasks]

    def _prepare(self, drafts: Sequence[Path], journal: Journal) -> None:
        """Make the targets without their elements, where they are missing or cannot be resumed."""
        if self._format.folders and journal.done and all(draft.exists() for draft in drafts):
            return
        journal.forget()
        for position, draft in enumerate(drafts):
            if draft.is_dir():
                shutil.rmtree(draft)
            tensors = [flow.tensor for flow in self._flows if flow.target == position]
            with self._writing(position):
                self._format.create(draft, tensors, self._like)
                if self.sync:
                    files = (Path(folder, name) for folder, _, names in os.walk(draft) for name in names)
                    make_names_durable(list(files) if self._format.folders else [draft])

    def _where(self, number: int, index: int) -> tuple[int, str]:
        flow = self._flows[self._tasks[number].flow]
        chunk = next(islice(chunks_of(flow, self._tasks[number]), index, None))
        return flow.target, f"in chunk {chunk.index} of {flow.tensor.label}"

    def _work(self, number: int, drafts: Sequence[Path]) -> ChunkWork:
        task = self._tasks[number]
        flow = self._flows[task.flow]
        name = shown_path(self.plan.folder / self.plan.targets[flow.target].name)
        sources = {
            piece.source: (self.plan.sources[piece.source].path.absolute(), self._formats[piece.source])
            for piece in flow.pieces
        }
        return ChunkWork(flow, task, sources, drafts[flow.target].absolute(), self._format, name, self.sync)

    def _reads(self) -> list[Path]:
        return [source.path for source in self.plan.sources]

    def _task_bytes(self, number: int) -> int:
        """Return a task's share of its tensor's bytes; the shares of all tasks are these bytes."""
        task = self._tasks[number]
        flow = self._flows[task.flow]
        count = math.prod(flow.grid)
        return flow.tensor.size * task.end // count - flow.tensor.size * task.first // count

    def _writing(self, target: int) -> AbstractContextManager[None]:
        return writing(shown_path(self.plan.folder / self.plan.targets[target].name))
