"""Tasks that copy chunks of tensors. This process or a worker of a cluster runs them.

If a source has a chunk with the same elements and encoding as a chunk of the target, its encoded bytes are
copied, unless it has checksums that can be checked only by decoding it. Any other chunk is assembled in
memory and encoded.
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

from splitops.common.signals import defer_signals
from splitops.errors import shown_path
from splitops.files.boxes import Box
from splitops.files.descriptors import make_durable, open_for_sync
from splitops.files.formats import Contents, Format
from splitops.files.sources import reading, writing
from splitops.files.tasks import Files, Tick, ignore_tick
from splitops.files.tensors import StoredTensor
from splitops.native.files import crc32


class ChunkedArray(Protocol):
    """An open array in a source, or in a target that is being written."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of elements along each axis."""
        ...

    @property
    def chunks(self) -> tuple[int, ...]:
        """Shape of the unit that is encoded: a shard if the array has shards, otherwise a chunk."""
        ...

    @property
    def coding(self) -> object:
        """A value that is equal for arrays with the same encoding; None if no encoded chunk can be copied."""
        ...

    @property
    def written(self) -> Sequence[Path]:
        """Paths of the files that were written. The files are complete once the array is closed."""
        ...

    def read(self, box: Box) -> npt.NDArray[Any]:
        """Read the elements in a box. If a checksum is wrong, the format's library raises its own error."""
        ...

    def write(self, box: Box, elements: npt.NDArray[Any]) -> None:
        """Write the elements of a whole chunk."""
        ...

    def read_stored(self, index: tuple[int, ...]) -> bytes | None:
        """Return the encoded bytes of a chunk, after checking its checksums, or None if it is not stored.

        Raises:
            FileError: a checksum is wrong.
        """
        ...

    def store(self, index: tuple[int, ...], data: bytes) -> None:
        """Store the encoded bytes of a chunk."""
        ...


@runtime_checkable
class ChunkedFormat(Format, Protocol):
    """A format that can store tensors in chunks."""

    @property
    def folders(self) -> bool:
        """Whether its files are folders. Otherwise, runs that copy them chunk by chunk cannot be resumed."""
        ...

    def open_array(
        self, path: Path, name: str, *, writing: bool = False
    ) -> AbstractContextManager[ChunkedArray]:
        """Open the array ``name`` of a file or folder, read-only unless ``writing`` is set."""
        ...

    def create(self, path: Path, tensors: Sequence[StoredTensor], like: Contents | None) -> None:
        """Create a file for tensors, without their elements. Copy other metadata from ``like``, if given."""
        ...

    def choose_chunks(self, tensor: StoredTensor, like: Contents, offset: int) -> tuple[int, ...]:
        """Return the chunk shape for a target tensor that begins at ``offset`` along its source's split axis.

        Raises:
            FileError: ``like`` has invalid metadata about its chunks.
        """
        ...


@dataclass(frozen=True, slots=True)
class SourceSpan:
    """A range of a source tensor along the split axis, and its position in the target tensor."""

    source: int
    begin: int
    target_begin: int
    size: int


@dataclass(frozen=True, slots=True)
class TensorAssembly:
    """A tensor of the target with index ``target``, and the ranges of source tensors that make it up.

    The spans follow each other along the axis without gaps; there are none if the elements are computed.
    ``read_bytes`` is the size of the largest source chunk in memory. It may be 0 if none exceeds the chunks
    of the tensor itself.
    """

    target: int
    tensor: StoredTensor
    axis: int
    spans: tuple[SourceSpan, ...]
    read_bytes: int

    @property
    def chunks(self) -> tuple[int, ...]:
        """Shape of the target's chunks, which are copied one by one."""
        assert self.tensor.chunks is not None  # tensors without chunks have extents
        return self.tensor.chunks

    @property
    def grid(self) -> tuple[int, ...]:
        """Number of chunks along each axis."""
        return tuple(-(-size // chunk) for size, chunk in zip(self.tensor.shape, self.chunks, strict=True))

    @property
    def chunk_bytes(self) -> int:
        """Bytes of a chunk in memory: the larger of a source chunk and a target chunk."""
        return max(self.read_bytes, chunk_bytes(self.tensor))


def chunk_bytes(tensor: StoredTensor) -> int:
    """Return the size of one chunk of a tensor in memory, in bytes."""
    assert tensor.chunks is not None  # tensors without chunks have extents
    return math.prod(tensor.chunks) * tensor.unit.bytes


@dataclass(frozen=True, slots=True)
class ChunkTask:
    """Chunks ``first`` to ``end`` (exclusive) of a target tensor; see :mod:`splitops.files.tasks`.

    Chunks are numbered in row-major order. ``formats`` is keyed by source index. ``name`` is the name of the
    target in messages.
    """

    assembly: TensorAssembly
    first: int
    end: int
    format: ChunkedFormat
    formats: Mapping[int, ChunkedFormat]
    name: str

    @property
    def sources(self) -> Collection[int]:
        """Indices of the sources that are read."""
        return self.formats.keys()

    @property
    def targets(self) -> Collection[int]:
        """Index of the target, as a collection."""
        return (self.assembly.target,)

    @property
    def bytes(self) -> int:
        """Approximate number of bytes that are copied: all chunks count as equally large."""
        size, count = self.assembly.tensor.size, math.prod(self.assembly.grid)
        return size * self.end // count - size * self.first // count

    @property
    def partition(self) -> object:
        """Chunk numbers, which show whether a plan is still split into the same tasks."""
        return self.first, self.end

    @property
    def checksums(self) -> int:
        """Number of checksums: one per chunk."""
        return self.end - self.first

    def copy(self, files: Files, tick: Tick = ignore_tick) -> list[int]:
        """Copy the chunks and return the checksum of each. With ``files.sync``, flush them to disk."""
        found, done = [], 0
        with self._open_for_writing(files) as target, contextlib.ExitStack() as stack:
            sources = _Sources(self, files, stack)
            for chunk in self._iter_chunks():
                data = sources.read_stored_chunk(chunk, target)
                elements = None if data is not None else sources.read_elements(chunk)
                # After Ctrl-C, threads of zarr would continue to write into a folder that is removed.
                with defer_signals(), writing(self.name):
                    if elements is not None:
                        target.write(chunk.box, elements)
                    elif data:
                        target.store(chunk.index, data)
                found.append(compute_checksum(data if elements is None else elements))
                done += chunk.elements * self.assembly.tensor.unit.bytes
                tick(done)
        return found

    def write(self, files: Files, elements: npt.NDArray[Any]) -> list[int]:
        """Write ``elements`` as the task's only chunk, like :meth:`copy`. Return a list with its checksum."""
        [chunk] = self._iter_chunks()
        with self._open_for_writing(files) as target, defer_signals(), writing(self.name):
            target.write(chunk.box, elements)
        return [compute_checksum(elements)]

    def sync(self, files: Files) -> None:
        """Do nothing: if the run flushes, :meth:`copy` has flushed the chunks."""

    def read_back(self, files: Files, tick: Tick = ignore_tick) -> list[int]:
        """Return the checksum of each written chunk, or of its encoded bytes if these were copied."""
        found, done = [], 0
        with contextlib.ExitStack() as stack, reading(self.name):
            target = stack.enter_context(self._open(files))
            sources = _Sources(self, files, stack)
            for chunk in self._iter_chunks():
                whole = sources.find_source_chunk(chunk, target) is not None
                data = (target.read_stored(chunk.index) or b"") if whole else target.read(chunk.box)
                found.append(compute_checksum(data))
                done += chunk.elements * self.assembly.tensor.unit.bytes
                tick(done)
        return found

    def locate(self, index: int) -> tuple[int, str]:
        """Return the index of the target, and text for a message that names the chunk of a checksum."""
        chunk = next(islice(self._iter_chunks(), index, None))
        return self.assembly.target, f"in chunk {chunk.index} of {self.assembly.tensor.label}"

    def _open(self, files: Files, *, writing: bool = False) -> AbstractContextManager[ChunkedArray]:
        return self.format.open_array(
            files.targets[self.assembly.target], self.assembly.tensor.name, writing=writing
        )

    @contextlib.contextmanager
    def _open_for_writing(self, files: Files) -> Iterator[ChunkedArray]:
        """Open the target. With ``files.sync``, flush the written files to disk at the end."""
        with contextlib.ExitStack() as stack:
            with writing(self.name):
                target = stack.enter_context(self._open(files, writing=True))
            yield target
            with writing(self.name):
                stack.close()
                if files.sync:
                    make_names_durable(target.written, files.targets[self.assembly.target])

    def _iter_chunks(self) -> Iterator[_Chunk]:
        """Yield the chunks of the task in row-major order."""
        grid, chunks, shape = self.assembly.grid, self.assembly.chunks, self.assembly.tensor.shape
        for number in range(self.first, self.end):
            index = tuple(int(at) for at in np.unravel_index(number, grid)) if grid else ()
            sides = zip(index, chunks, shape, strict=True)
            yield _Chunk(
                index, tuple(slice(at * step, min((at + 1) * step, size)) for at, step, size in sides)
            )


@dataclass(frozen=True, slots=True)
class _Chunk:
    """A chunk of a target: its index in the grid, and the box of its elements."""

    index: tuple[int, ...]
    box: Box

    @property
    def elements(self) -> int:
        return math.prod(side.stop - side.start for side in self.box)


class _Sources:
    """The source tensors of a task, opened on first use."""

    def __init__(self, task: ChunkTask, files: Files, stack: contextlib.ExitStack) -> None:
        self._flow, self._formats, self._paths, self._stack = (
            task.assembly,
            task.formats,
            files.sources,
            stack,
        )
        self._open: dict[int, ChunkedArray] = {}

    def read_stored_chunk(self, chunk: _Chunk, target: ChunkedArray) -> bytes | None:
        """Return the stored bytes of the source chunk with exactly these elements, or None if there is none.

        The bytes are empty if the source does not store the chunk because it has only fill values.
        """
        found = self.find_source_chunk(chunk, target)
        if found is None:
            return None
        source, index = found
        with reading(self._name(source)):
            return self._open_array(source).read_stored(index) or b""

    def find_source_chunk(self, chunk: _Chunk, target: ChunkedArray) -> tuple[int, tuple[int, ...]] | None:
        """Return the source and index of an equal chunk with the encoding of ``target``, or None."""
        if not chunk.box or not self._flow.spans or target.coding is None:
            return None
        axis = self._flow.axis
        side, step = chunk.box[axis], self._flow.chunks[axis]
        span = self._find_spans(side)[0]
        begin = span.begin + side.start - span.target_begin
        if side.stop > span.target_begin + span.size or begin % step:
            return None
        array = self._open_array(span.source)
        end = min(begin + step, array.shape[axis])
        if array.coding != target.coding or end - begin != side.stop - side.start:
            return None
        return span.source, (*chunk.index[:axis], begin // step, *chunk.index[axis + 1 :])

    def read_elements(self, chunk: _Chunk) -> npt.NDArray[Any]:
        """Read the elements of a chunk, in row-major order."""
        axis = self._flow.axis
        if not chunk.box:
            return self._read(self._flow.spans[0].source, ())
        side = chunk.box[axis]
        parts = []
        for span in self._find_spans(side):
            first = max(side.start, span.target_begin)
            end = min(side.stop, span.target_begin + span.size)
            shift = span.begin - span.target_begin
            box = (*chunk.box[:axis], slice(first + shift, end + shift), *chunk.box[axis + 1 :])
            parts.append(self._read(span.source, box))
        # Without a dtype, NumPy would convert the elements to native byte order.
        return np.ascontiguousarray(
            parts[0] if len(parts) == 1 else np.concatenate(parts, axis, dtype=parts[0].dtype)
        )

    def _find_spans(self, side: slice) -> Sequence[SourceSpan]:
        """Return the non-empty spans that intersect ``side``, a range along the axis of the target."""
        spans = self._flow.spans
        first = bisect_right(spans, side.start, key=lambda span: span.target_begin) - 1
        end = bisect_right(spans, side.stop - 1, key=lambda span: span.target_begin)
        return [span for span in spans[first:end] if span.size]

    def _read(self, source: int, box: Box) -> npt.NDArray[Any]:
        with reading(self._name(source)):
            return self._open_array(source).read(box)

    def _open_array(self, source: int) -> ChunkedArray:
        if source not in self._open:
            with reading(self._name(source)):
                opened = self._formats[source].open_array(self._paths[source], self._flow.tensor.name)
                self._open[source] = self._stack.enter_context(opened)
        return self._open[source]

    def _name(self, source: int) -> str:
        return shown_path(self._paths[source])


def compute_checksum(data: bytes | npt.NDArray[Any] | None) -> int:
    """Return the CRC-32 of bytes, or of elements in row-major order. None counts as no bytes."""
    if not isinstance(data, np.ndarray):
        return crc32(np.frombuffer(data or b"", np.uint8), 0)
    return crc32(np.ascontiguousarray(data).reshape(-1).view(np.uint8), 0)


def make_names_durable(paths: Sequence[Path], target: Path) -> None:
    """Flush files of a target to disk, with their entries in folders up to that of the target itself.

    A chunk that is lost in a crash would be read as fill values.
    """
    folders = {each for path in paths for each in path.parents if each.is_relative_to(target.parent)}
    for path in (*paths, *folders):
        with open_for_sync([path]) as files:
            make_durable(list(files.values()))
