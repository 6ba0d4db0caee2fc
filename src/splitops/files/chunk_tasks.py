"""The chunks of tensors: what is copied at a time, here or by a worker of a cluster.

A chunk of a target that is a chunk of a source unchanged is copied as its bytes; any other is put together
in memory from what it meets and coded anew.
"""

from __future__ import annotations

import contextlib
import math
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from splitops.errors import shown_path
from splitops.files.boxes import Box
from splitops.files.descriptors import make_durable, opened
from splitops.files.formats import Contents, Format
from splitops.files.sources import reading, writing
from splitops.files.tasks import Files, Tick, no_tick
from splitops.files.tensors import StoredTensor
from splitops.ground.signals import uninterrupted
from splitops.native.files import crc32


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
        """Whether its files are folders; only these can be resumed after a kill."""
        ...

    def open_array(
        self, path: Path, name: str, *, writing: bool = False
    ) -> AbstractContextManager[ChunkedArray]:
        """Open an array of a file."""
        ...

    def create(self, path: Path, tensors: Sequence[StoredTensor], like: Contents | None) -> None:
        """Make a file with tensors of these names and shapes; all but the elements is as in ``like``."""
        ...

    def target_chunks(self, tensor: StoredTensor, like: Contents, offset: int) -> tuple[int, ...]:
        """Return the shape of the chunks of a target's tensor, which a part begins with at an offset.

        Raises:
            FileError: what ``like`` says of its chunks is wrong.
        """
        ...


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a tensor of a source along an axis, and where it begins in the target's tensor."""

    source: int
    begin: int
    target_begin: int
    size: int


@dataclass(frozen=True, slots=True)
class Flow:
    """A tensor of a target, and the spans of the tensors of its name in sources that it is made of.

    The spans follow each other along the axis without a gap; there are none where the elements are computed.
    ``read_bytes`` has the largest chunk of the sources in memory.
    """

    target: int
    tensor: StoredTensor
    axis: int
    spans: tuple[Span, ...]
    read_bytes: int

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
        """The bytes of a chunk in memory: of the target or of a source, whichever is larger."""
        return max(self.read_bytes, chunk_bytes(self.tensor))


def chunk_bytes(tensor: StoredTensor) -> int:
    """Return the bytes in memory of a chunk of a tensor."""
    assert tensor.chunks is not None  # tensors without chunks have extents
    return math.prod(tensor.chunks) * tensor.unit.bytes


@dataclass(frozen=True, slots=True)
class ChunkTask:
    """The chunks ``first`` to ``end`` of a flow, to a target that messages call so; see
    :mod:`splitops.files.tasks`.
    """

    flow: Flow
    first: int
    end: int
    format: ChunkedFormat
    formats: Mapping[int, ChunkedFormat]
    name: str

    @property
    def sources(self) -> Collection[int]:
        """The positions of the sources that are read."""
        return self.formats.keys()

    @property
    def targets(self) -> Collection[int]:
        """The position of the target."""
        return (self.flow.target,)

    @property
    def bytes(self) -> int:
        """Its share of the bytes of the tensor."""
        size, count = self.flow.tensor.size, math.prod(self.flow.grid)
        return size * self.end // count - size * self.first // count

    @property
    def cut(self) -> object:
        """Which chunks it has."""
        return self.first, self.end

    @property
    def checksums(self) -> int:
        """How many chunks there are."""
        return self.end - self.first

    def copy(self, files: Files, tick: Tick = no_tick) -> list[int]:
        """Copy the chunks and make them durable; return the checksum of each."""
        found, done = [], 0
        with self._writing(files) as target, contextlib.ExitStack() as stack:
            sources = _Sources(self, files, stack)
            for chunk in self._chunks():
                data = sources.whole_chunk(chunk, target)
                elements = None if data is not None else sources.elements(chunk)
                # After Ctrl-C the threads of zarr would go on writing to what has been cleaned up.
                with uninterrupted(), writing(self.name):
                    if elements is not None:
                        target.write(chunk.box, elements)
                    elif data:
                        target.store(chunk.index, data)
                found.append(checksum_of(data if elements is None else elements))
                done += chunk.elements * self.flow.tensor.unit.bytes
                tick(done)
        return found

    def write(self, files: Files, elements: npt.NDArray[Any]) -> list[int]:
        """Write the elements of the only chunk and make them durable; return their checksum."""
        [chunk] = self._chunks()
        with self._writing(files) as target, uninterrupted(), writing(self.name):
            target.write(chunk.box, elements)
        return [checksum_of(elements)]

    def settle(self, files: Files) -> None:
        """Do nothing: each chunk is a file that is durable once it is written, or part of the one that is."""

    def read_back(self, files: Files, tick: Tick = no_tick) -> list[int]:
        """Return the checksums of the chunks as they were taken: of bytes where these were copied."""
        found, done = [], 0
        with contextlib.ExitStack() as stack, reading(self.name):
            target = stack.enter_context(self._open(files))
            sources = _Sources(self, files, stack)
            for chunk in self._chunks():
                whole = sources.source_of(chunk, target) is not None
                data = (target.stored(chunk.index) or b"") if whole else target.read(chunk.box)
                found.append(checksum_of(data))
                done += chunk.elements * self.flow.tensor.unit.bytes
                tick(done)
        return found

    def where(self, index: int) -> tuple[int, str]:
        """Return the target, and which chunk one of the checksums is of."""
        chunk = next(islice(self._chunks(), index, None))
        return self.flow.target, f"in chunk {chunk.index} of {self.flow.tensor.label}"

    def _open(self, files: Files, *, writing: bool = False) -> AbstractContextManager[ChunkedArray]:
        return self.format.open_array(files.targets[self.flow.target], self.flow.tensor.name, writing=writing)

    @contextlib.contextmanager
    def _writing(self, files: Files) -> Iterator[ChunkedArray]:
        """Open the target; what is written to it is durable in the end."""
        with contextlib.ExitStack() as stack:
            with writing(self.name):
                target = stack.enter_context(self._open(files, writing=True))
            yield target
            with writing(self.name):
                stack.close()
                if files.sync:
                    make_names_durable(target.written)

    def _chunks(self) -> Iterator[_Chunk]:
        """Yield the chunks in their order."""
        grid, chunks, shape = self.flow.grid, self.flow.chunks, self.flow.tensor.shape
        for number in range(self.first, self.end):
            index = tuple(int(at) for at in np.unravel_index(number, grid)) if grid else ()
            sides = zip(index, chunks, shape, strict=True)
            yield _Chunk(
                index, tuple(slice(at * step, min((at + 1) * step, size)) for at, step, size in sides)
            )


@dataclass(frozen=True, slots=True)
class _Chunk:
    """A chunk of a flow: where it is among the chunks and among the elements of its tensor."""

    index: tuple[int, ...]
    box: Box

    @property
    def elements(self) -> int:
        return math.prod(side.stop - side.start for side in self.box)


class _Sources:
    """The tensors that a flow is made of, opened when they are needed."""

    def __init__(self, task: ChunkTask, files: Files, stack: contextlib.ExitStack) -> None:
        self._flow, self._formats, self._paths, self._stack = task.flow, task.formats, files.sources, stack
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
        if not chunk.box or not self._flow.spans or target.coding is None:
            return None
        axis = self._flow.axis
        side, step = chunk.box[axis], self._flow.chunks[axis]
        span = self._spans(side)[0]
        begin = span.begin + side.start - span.target_begin
        if side.stop > span.target_begin + span.size or begin % step:
            return None
        array = self._array(span.source)
        end = min(begin + step, array.shape[axis])
        if array.coding != target.coding or end - begin != side.stop - side.start:
            return None
        return span.source, (*chunk.index[:axis], begin // step, *chunk.index[axis + 1 :])

    def elements(self, chunk: _Chunk) -> npt.NDArray[Any]:
        """Return the elements of a chunk, in row-major order."""
        axis = self._flow.axis
        if not chunk.box:
            return self._read(self._flow.spans[0].source, ())
        side = chunk.box[axis]
        parts = []
        for span in self._spans(side):
            first = max(side.start, span.target_begin)
            end = min(side.stop, span.target_begin + span.size)
            shift = span.begin - span.target_begin
            box = (*chunk.box[:axis], slice(first + shift, end + shift), *chunk.box[axis + 1 :])
            parts.append(self._read(span.source, box))
        # Joined by NumPy itself they would be in the byte order of this machine.
        return np.ascontiguousarray(
            parts[0] if len(parts) == 1 else np.concatenate(parts, axis, dtype=parts[0].dtype)
        )

    def _spans(self, side: slice) -> Sequence[Span]:
        """Return the spans that meet a stretch of the target."""
        spans = self._flow.spans
        first = bisect_right(spans, side.start, key=lambda span: span.target_begin) - 1
        end = bisect_right(spans, side.stop - 1, key=lambda span: span.target_begin)
        return [span for span in spans[first:end] if span.size]

    def _read(self, source: int, box: Box) -> npt.NDArray[Any]:
        with reading(self._name(source)):
            return self._array(source).read(box)

    def _array(self, source: int) -> ChunkedArray:
        if source not in self._open:
            with reading(self._name(source)):
                opened = self._formats[source].open_array(self._paths[source], self._flow.tensor.name)
                self._open[source] = self._stack.enter_context(opened)
        return self._open[source]

    def _name(self, source: int) -> str:
        return shown_path(self._paths[source])


def checksum_of(data: bytes | npt.NDArray[Any] | None) -> int:
    """Return the CRC-32 of bytes, or of elements in row-major order."""
    if not isinstance(data, np.ndarray):
        return crc32(np.frombuffer(data or b"", np.uint8), 0)
    return crc32(np.ascontiguousarray(data).reshape(-1).view(np.uint8), 0)


def make_names_durable(paths: Sequence[Path]) -> None:
    """Make files durable, and their names: a chunk that is not there would be one of fill values."""
    for path in (*paths, *{path.parent for path in paths}):
        with opened([path]) as files:
            make_durable(list(files.values()))
