"""Tensors that are stored in chunks: split and merged a chunk at a time, by the library of their format.

A chunk of a target that is a chunk of a source as it stands is copied as its bytes; any other is put together
in memory from what it meets and coded anew. All else is as for other files: the staging, the journal, the
check that sources stayed as they were, the publication.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import shutil
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from splitops.errors import FileError, shown_path
from splitops.files.copying import MEMORY, DryRun, FilePlan, Progress, Run
from splitops.files.engine import TASK_BYTES
from splitops.files.formats import Contents, Format
from splitops.files.journal import Journal
from splitops.files.sources import reading, writing
from splitops.files.tensors import StoredTensor
from splitops.native.files import crc32, sync_files

__all__ = [
    "Box",
    "ChunkPlan",
    "ChunkWork",
    "ChunkedArray",
    "ChunkedFormat",
    "Flow",
    "Piece",
    "checksum_of",
    "make_names_durable",
]

Box = tuple[slice, ...]

_HELD: Final = 4
"""So many times the bytes of a chunk are held at most: two that are read, one made of them, and its code."""
_MAX_CHUNKS: Final = 100_000_000


class ChunkedArray(Protocol):
    """An open array of a source, or of a target that is being written."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        ...

    @property
    def chunks(self) -> tuple[int, ...]:
        """The shape of what is coded as one: of a shard, where there are such."""
        ...

    @property
    def coding(self) -> object:
        """Where it is the same for two arrays, the same elements are the same chunks; None: nowhere."""
        ...

    @property
    def written(self) -> Sequence[Path]:
        """The files that were written to; they are complete once the array is closed."""
        ...

    def read(self, box: Box) -> npt.NDArray[Any]:
        """Return elements; a chunk whose checksum is wrong is an error of the library."""
        ...

    def write(self, box: Box, elements: npt.NDArray[Any]) -> None:
        """Write the elements of a whole chunk."""
        ...

    def stored(self, index: tuple[int, ...]) -> bytes | None:
        """Return a chunk as it is stored, with its checksums proved; None where none is stored.

        Raises:
            FileError: a checksum is wrong.
        """
        ...

    def store(self, index: tuple[int, ...], data: bytes) -> None:
        """Store a chunk."""
        ...


@runtime_checkable
class ChunkedFormat(Format, Protocol):
    """A format some of whose tensors are stored in chunks."""

    @property
    def folders(self) -> bool:
        """Whether its files are folders; only these can be gone on with after a kill."""
        ...

    def open_array(
        self, path: Path, name: str, *, writing: bool = False
    ) -> AbstractContextManager[ChunkedArray]:
        """Open an array of a file."""
        ...

    def create(self, path: Path, tensors: Sequence[StoredTensor], like: Contents) -> None:
        """Make a file with tensors of these names and shapes; all but the elements is as in ``like``."""
        ...


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a tensor of a source along an axis, and where it begins in the target's tensor."""

    source: int
    begin: int
    target_begin: int
    size: int


@dataclass(frozen=True, slots=True)
class Flow:
    """A tensor of a target, and the pieces of the tensors of its name in sources that it is made of.

    Attributes:
        target: the position of the target.
        tensor: as it will be in the target; its chunks are what is copied at a time.
        axis: along which the pieces follow each other, without a gap.
        pieces: in this order.
    """

    target: int
    tensor: StoredTensor
    axis: int
    pieces: tuple[Piece, ...]

    @property
    def chunks(self) -> tuple[int, ...]:
        """The shape of what is copied at a time."""
        assert self.tensor.chunks is not None  # tensors without chunks have extents
        return self.tensor.chunks

    @property
    def grid(self) -> tuple[int, ...]:
        """How many chunks there are along each axis."""
        return tuple(-(-size // chunk) for size, chunk in zip(self.tensor.shape, self.chunks, strict=True))

    @property
    def chunk_bytes(self) -> int:
        """The bytes of a chunk in memory."""
        return math.prod(self.chunks) * self.tensor.unit.bytes


@dataclass(frozen=True, slots=True)
class _Task:
    """The chunks ``first`` to ``end`` of a flow."""

    flow: int
    first: int
    end: int


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

    def chunk_tasks(self, memory: int) -> list[_Task]:
        """Return the chunks in tasks that can be done in any order, and again.

        Raises:
            FileError: a chunk does not fit into the memory, or there are too many.
        """
        made: list[_Task] = []
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
            made += [_Task(number, first, min(first + step, count)) for first in range(0, count, step)]
        return made

    def start(self, *, sync: bool, memory: int, progress: Progress | None, cluster: Any = None) -> Run:
        """Return a run of the plan that has done nothing yet."""
        return _ChunkRun(self, cluster, sync=sync, memory=memory, progress=progress)

    def digest(self, memory: int) -> str:
        """Return what tells the plans apart whose tasks are not the same."""
        digest = hashlib.sha256(super().digest(memory).encode())
        for flow in self.flows:
            digest.update(repr(flow).encode())
        digest.update(repr(self.chunk_tasks(memory)).encode())
        return digest.hexdigest()


class _ChunkRun(Run):
    """One run of a plan by chunks."""

    def __init__(
        self, plan: ChunkPlan, cluster: Any, *, sync: bool, memory: int, progress: Progress | None
    ) -> None:
        super().__init__(plan, sync=sync, memory=memory, progress=progress)
        assert plan.like is not None
        self._cluster = cluster
        self._like = plan.like
        self._format: ChunkedFormat = plan.like.format  # type: ignore[assignment]
        self._formats = plan.formats
        self._flows = plan.flows
        self._tasks = plan.chunk_tasks(memory)
        if cluster is not None and not self._format.folders:
            raise FileError(f"the chunks of {self._format.name} are written by one process, not by a cluster")

    def _prepare(self, drafts: Sequence[Path], journal: Journal) -> None:
        """Make the targets without their elements, where they are not there or cannot be gone on with."""
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

    def _copy(self, drafts: Sequence[Path], journal: Journal) -> None:
        todo = [number for number in range(len(self._tasks)) if number not in journal.done]
        for number in journal.done:
            self._advance(self._task_bytes(number))
        for number, checksums in self._results(ChunkWork.copy, todo, drafts):
            journal.add(number, checksums)
            self._advance(self._task_bytes(number))

    def _verify(self, drafts: Sequence[Path], journal: Journal) -> None:
        for number, found in self._results(ChunkWork.read_back, range(len(self._tasks)), drafts):
            self._compare_chunks(number, found, journal)
            self._advance(self._task_bytes(number))

    def _compare_chunks(self, number: int, found: Sequence[int], journal: Journal) -> None:
        """Prove that the chunks of a task read back as they were written."""
        task = self._tasks[number]
        flow = self._flows[task.flow]
        name = shown_path(self.plan.targets[flow.target].name)
        for chunk, read, written in zip(_chunks(flow, task), found, journal.done[number], strict=True):
            if read != written:
                raise FileError(
                    f"{name} does not read back as it was written, in chunk {chunk.index} of "
                    f"{flow.tensor.label}: CRC-32 {read:08x}, not {written:08x}"
                )

    def _results(
        self, function: Callable[..., list[int]], numbers: Iterable[int], drafts: Sequence[Path]
    ) -> Iterator[tuple[int, list[int]]]:
        """Yield tasks as they are done, here or by the workers of a cluster."""
        if self._cluster is None:
            for number in numbers:
                yield number, function(self._work(number, drafts), self._tick)
            return
        from splitops.files.cluster import Workers, client_of

        with client_of(self._cluster) as client:
            workers = Workers(client, self.staging, [source.path for source in self.plan.sources])
            yield from workers.results(function, lambda number: self._work(number, drafts), numbers)

    def _work(self, number: int, drafts: Sequence[Path]) -> ChunkWork:
        task = self._tasks[number]
        flow = self._flows[task.flow]
        name = shown_path(self.plan.folder / self.plan.targets[flow.target].name)
        sources = {
            piece.source: (self.plan.sources[piece.source].path.absolute(), self._formats[piece.source])
            for piece in flow.pieces
        }
        return ChunkWork(flow, task, sources, drafts[flow.target].absolute(), self._format, name, self.sync)

    def _task_bytes(self, number: int) -> int:
        """Return a task's share of its tensor's bytes; the shares of all tasks are these bytes."""
        task = self._tasks[number]
        flow = self._flows[task.flow]
        count = math.prod(flow.grid)
        return flow.tensor.size * task.end // count - flow.tensor.size * task.first // count

    def _writing(self, target: int) -> AbstractContextManager[None]:
        return writing(shown_path(self.plan.folder / self.plan.targets[target].name))


@dataclass(frozen=True, slots=True)
class ChunkWork:
    """A task as it is done here, or sent to a worker of a cluster.

    Attributes:
        flow: what is copied.
        task: which chunks of it.
        sources: the path and the format of each source of the flow.
        target: where the target is written.
        format: of the target.
        name: what messages call the target.
        sync: whether what is written is to be durable.
    """

    flow: Flow
    task: _Task
    sources: Mapping[int, tuple[Path, ChunkedFormat]]
    target: Path
    format: ChunkedFormat
    name: str
    sync: bool

    @property
    def reads(self) -> tuple[Path, ...]:
        """The files that are read."""
        return tuple(path for path, _ in self.sources.values())

    def copy(self, tick: Callable[[int], object] = lambda _: None) -> list[int]:
        """Copy the chunks and make them durable; return the checksum of each."""
        found, done = [], 0
        with contextlib.ExitStack() as stack:
            with writing(self.name):
                target = stack.enter_context(self._open(writing=True))
            sources = _Sources(self.sources, self.flow, stack)
            for chunk in _chunks(self.flow, self.task):
                data = sources.whole_chunk(chunk, target)
                elements = None if data is not None else sources.elements(chunk)
                with writing(self.name):
                    if elements is not None:
                        target.write(chunk.box, elements)
                    elif data:
                        target.store(chunk.index, data)
                found.append(checksum_of(data if elements is None else elements))
                done += chunk.elements * self.flow.tensor.unit.bytes
                tick(done)
            with writing(self.name):
                stack.close()
        if self.sync:
            with writing(self.name):
                make_names_durable(target.written)
        return found

    def read_back(self, tick: Callable[[int], object] = lambda _: None) -> list[int]:
        """Return the checksums of the chunks as they were taken: of bytes where these were copied."""
        found, done = [], 0
        with contextlib.ExitStack() as stack, reading(self.name):
            target = stack.enter_context(self._open())
            sources = _Sources(self.sources, self.flow, stack)
            for chunk in _chunks(self.flow, self.task):
                whole = sources.source_of(chunk, target) is not None
                data = (target.stored(chunk.index) or b"") if whole else target.read(chunk.box)
                found.append(checksum_of(data))
                done += chunk.elements * self.flow.tensor.unit.bytes
                tick(done)
        return found

    def _open(self, *, writing: bool = False) -> AbstractContextManager[ChunkedArray]:
        return self.format.open_array(self.target, self.flow.tensor.name, writing=writing)


@dataclass(frozen=True, slots=True)
class _Chunk:
    """A chunk of a flow: where it is among the chunks and among the elements of its tensor."""

    index: tuple[int, ...]
    box: Box

    @property
    def elements(self) -> int:
        return math.prod(side.stop - side.start for side in self.box)


def _chunks(flow: Flow, task: _Task) -> Iterator[_Chunk]:
    grid, chunks, shape = flow.grid, flow.chunks, flow.tensor.shape
    for number in range(task.first, task.end):
        index = tuple(int(at) for at in np.unravel_index(number, grid)) if grid else ()
        sides = zip(index, chunks, shape, strict=True)
        yield _Chunk(index, tuple(slice(at * step, min((at + 1) * step, size)) for at, step, size in sides))


class _Sources:
    """The tensors that a flow is made of, opened when they are needed."""

    def __init__(
        self, sources: Mapping[int, tuple[Path, ChunkedFormat]], flow: Flow, stack: contextlib.ExitStack
    ) -> None:
        self._sources, self._flow, self._stack = sources, flow, stack
        self._open: dict[int, ChunkedArray] = {}

    def whole_chunk(self, chunk: _Chunk, target: ChunkedArray) -> bytes | None:
        """Return the stored chunk of a source that is this one, empty where none is stored; None: none is."""
        found = self.source_of(chunk, target)
        if found is None:
            return None
        source, index = found
        with reading(self._name(source)):
            return self._array(source).stored(index) or b""

    def source_of(self, chunk: _Chunk, target: ChunkedArray) -> tuple[int, tuple[int, ...]] | None:
        """Return the source and the index of the chunk that has exactly the elements of this one."""
        if not chunk.box or target.coding is None:
            return None
        axis = self._flow.axis
        side, step = chunk.box[axis], self._flow.chunks[axis]
        piece = self._pieces(side)[0]
        begin = piece.begin + side.start - piece.target_begin
        if side.stop > piece.target_begin + piece.size or begin % step:
            return None
        array = self._array(piece.source)
        end = min(begin + step, array.shape[axis])
        if array.coding != target.coding or end - begin != side.stop - side.start:
            return None
        return piece.source, (*chunk.index[:axis], begin // step, *chunk.index[axis + 1 :])

    def elements(self, chunk: _Chunk) -> npt.NDArray[Any]:
        """Return the elements of a chunk, in row-major order."""
        axis = self._flow.axis
        if not chunk.box:
            return self._read(self._flow.pieces[0].source, ())
        side = chunk.box[axis]
        parts = []
        for piece in self._pieces(side):
            first = max(side.start, piece.target_begin)
            end = min(side.stop, piece.target_begin + piece.size)
            shift = piece.begin - piece.target_begin
            box = (*chunk.box[:axis], slice(first + shift, end + shift), *chunk.box[axis + 1 :])
            parts.append(self._read(piece.source, box))
        return np.ascontiguousarray(parts[0] if len(parts) == 1 else np.concatenate(parts, axis))

    def _pieces(self, side: slice) -> Sequence[Piece]:
        """Return the pieces that meet a stretch of the target."""
        pieces = self._flow.pieces
        first = bisect_right(pieces, side.start, key=lambda piece: piece.target_begin) - 1
        end = bisect_right(pieces, side.stop - 1, key=lambda piece: piece.target_begin)
        return [piece for piece in pieces[first:end] if piece.size]

    def _read(self, source: int, box: Box) -> npt.NDArray[Any]:
        with reading(self._name(source)):
            return self._array(source).read(box)

    def _array(self, source: int) -> ChunkedArray:
        if source not in self._open:
            path, form = self._sources[source]
            with reading(self._name(source)):
                opened = form.open_array(path, self._flow.tensor.name)
                self._open[source] = self._stack.enter_context(opened)
        return self._open[source]

    def _name(self, source: int) -> str:
        return shown_path(self._sources[source][0])


def checksum_of(data: bytes | npt.NDArray[Any] | None) -> int:
    """Return the CRC-32 of bytes, or of elements in row-major order."""
    if not isinstance(data, np.ndarray):
        return crc32(np.frombuffer(data or b"", np.uint8), 0)
    return crc32(np.ascontiguousarray(data).reshape(-1).view(np.uint8), 0)


def make_names_durable(paths: Sequence[Path]) -> None:
    """Make files durable, and their names: a chunk that is not there would be one of fill values."""
    for path in (*paths, *{path.parent for path in paths}):
        file = os.open(path, os.O_RDONLY)
        try:
            error = sync_files([file])
        finally:
            os.close(file)
        if error:
            raise OSError(error, os.strerror(error))
