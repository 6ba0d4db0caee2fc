"""Dask arrays as sources: their parts are computed into zarr arrays, a chunk at a time.

All parts are one computation, so that a chunk that lies in two of them is computed once. A part has the
chunks of its array; where a cut goes through one, the later chunks are assembled again.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np

from splitops.backends import backend_of
from splitops.errors import FileError, shown_path
from splitops.files.addresses import target_path
from splitops.files.boxes import Box, boxes
from splitops.files.chunk_work import ChunkedArray, ChunkedFormat, checksum_of, make_names_durable
from splitops.files.cluster import Workers, client_of
from splitops.files.copying import FilePlan
from splitops.files.extents import Extents
from splitops.files.formats import Format, TargetFile, format_named
from splitops.files.journal import Journal
from splitops.files.plans import MEMORY, DryRun, Part, RunOptions
from splitops.files.requests import Bind
from splitops.files.running import Run
from splitops.files.sources import reading, writing
from splitops.files.tensors import StoredTensor, Unit
from splitops.files.uploads import at_address
from splitops.spec.elements.types import ElementType

DaskArray = Any
"""A ``dask.array.Array``."""
_HELD: Final = 4
"""So many times the bytes of a chunk a thread holds at most."""


def is_dask_array(source: Any) -> bool:
    """Return whether a source is a Dask array."""
    dask = sys.modules.get("dask.array")
    return dask is not None and isinstance(source, dask.Array)


def array_plan(
    array: DaskArray, folder: Path, bind: Bind, *, prefix: str | None = None, to: Format | None = None
) -> FilePlan:
    """Plan the split of a Dask array into a zarr array a part.

    Args:
        array: what is split.
        folder: where the parts go.
        bind: the requested split.
        prefix: what the names of the parts begin with; None is ``part``.
        to: the format of the parts: zarr.

    Raises:
        FileError: zarr has no such type, or another format is asked for.
    """
    zarr = format_named("zarr")
    if to is not None and to is not zarr:
        raise FileError(f"a Dask array is written as zarr, not as {to.name}")
    backend, dtype = backend_of(array), np.dtype(array.dtype)
    shape = backend.shape(array)
    if None in shape:
        raise FileError(
            f"the Dask array has axes of unknown sizes, {shape}: compute_chunk_sizes() finds them"
        )
    plan = bind(shape, backend.element_type(array) or ElementType(str(dtype), bits=0))
    unit = Unit(1, dtype.itemsize)
    zarr.taken(StoredTensor("", shape, str(dtype), unit, 0, array.nbytes, dtype=dtype))
    digits = len(str(max(0, len(plan.sizes) - 1)))
    name, folder = prefix or "part", target_path(folder)
    names = [f"{name}.{index:0{digits}}{zarr.suffixes[0]}" for index in range(len(plan.sizes))]
    places = zip(names, plan.offsets, plan.sizes, plan.shapes, strict=True)
    made = ComputedPlan(
        name[:100],
        folder,
        (),
        (),
        tuple(TargetFile(each, 0, folder=True) for each in names),
        Extents.of(()),
        tuple(Part(folder / each, "", offset, size, shape) for each, offset, size, shape in places),
        arrays=tuple(_in_regular_chunks(part) for part in backend.views(plan, array)),
    )
    return at_address(made)


def _in_regular_chunks(array: Any) -> Any:
    """Return an array in chunks of one shape, but for the last along each axis, as zarr stores them."""
    return array.rechunk(tuple(max(1, *sizes) for sizes in array.chunks)) if array.size else array


@dataclass(frozen=True)
class ComputedPlan(FilePlan):
    """A split of a Dask array; see :class:`FilePlan`.

    Attributes:
        arrays: the part that each target gets.
    """

    arrays: tuple[Any, ...] = ()

    @cached_property
    def bytes(self) -> int:
        """The tensor bytes that are computed."""
        return sum(int(array.nbytes) for array in self.arrays)

    def dry_run(self, *, memory: int = MEMORY) -> DryRun:
        """Return what a run would do; the sizes are those in memory, the tasks are the chunks."""
        self.threads(memory)  # an error where that is too little
        chunks = sum(1 for array in self.arrays for _ in boxes(array.shape, array.chunksize))
        return DryRun(
            tuple(zip(self.paths, (array.nbytes for array in self.arrays), strict=True)),
            self.bytes,
            chunks,
            chunks,
            tuple(path for path in self.paths if os.path.lexists(path)),
        )

    def threads(self, memory: int) -> int:
        """Return how many threads may compute chunks at a time.

        Raises:
            FileError: the memory is too little for one.
        """
        largest = max((_chunk_bytes(array) for array in self.arrays), default=0)
        if largest * _HELD > memory:
            raise FileError(
                f"{memory} bytes of memory are too few for chunks of {largest} bytes: at least "
                f"{largest * _HELD} are needed, or smaller chunks"
            )
        return max(1, min(os.cpu_count() or 1, memory // max(1, largest * _HELD)))

    def start(self, how: RunOptions) -> Run:
        """Return a run of the plan that has done nothing yet."""
        return _ComputedRun(self, how)


def _chunk_bytes(array: Any) -> int:
    return int(math.prod(array.chunksize) * array.dtype.itemsize)


def _current_client() -> Any:
    """Return the client of a cluster that Dask computes with anyway; None where it computes here."""
    distributed = sys.modules.get("distributed")
    try:
        return distributed.default_client() if distributed is not None else None
    except ValueError:  # there is none
        return None


@dataclass(frozen=True, slots=True)
class _Write:
    """A chunk of a part: which target it goes to, and where."""

    target: int
    box: Box
    bytes: int
    delayed: Any


class _ComputedRun(Run):
    """One run of a plan that computes what it writes."""

    resumable = False

    def __init__(self, plan: ComputedPlan, how: RunOptions) -> None:
        super().__init__(plan, how)
        self._arrays = plan.arrays
        self._cluster = how["cluster"] or _current_client()
        self._threads = plan.threads(how["memory"])
        self._writes: list[_Write] = []
        self._checksums: dict[int, int] = {}
        """Of each write."""

    def _is_there(self) -> bool | None:
        return None

    def _prepare(self, drafts: Sequence[Path], journal: Journal) -> None:
        for index, (draft, array) in enumerate(zip(drafts, self._arrays, strict=True)):
            with writing(shown_path(self.plan.paths[index])):
                import zarr

                chunks = tuple(max(1, size) for size in array.chunksize)
                zarr.create_array(draft, shape=array.shape, dtype=array.dtype, chunks=chunks)
                if self.sync:
                    make_names_durable([path for path in draft.rglob("*") if path.is_file()])

    def _copy(self, drafts: Sequence[Path], journal: Journal) -> None:
        self._writes = [
            write
            for index, (draft, array) in enumerate(zip(drafts, self._arrays, strict=True))
            for write in _writes(index, draft.absolute(), array, sync=self.sync)
        ]
        if self._cluster is None:
            self._compute_here()
        else:
            self._compute_on_cluster()

    def _written(self, number: int, checksum: int) -> None:
        self._checksums[number] = checksum
        self._advance(self._writes[number].bytes)

    def _compute_here(self) -> None:
        """Compute with threads of its own: after an error none of them writes any more."""
        import dask
        from dask.callbacks import Callback

        numbers = {write.delayed.key: number for number, write in enumerate(self._writes)}

        def finished(key: Any, value: Any, *_: object) -> None:
            if key in numbers:
                self._written(numbers[key], value)

        with ThreadPoolExecutor(self._threads) as pool, Callback(posttask=finished):
            dask.compute(*(write.delayed for write in self._writes), scheduler="threads", pool=pool)

    def _compute_on_cluster(self) -> None:
        from distributed import as_completed

        with client_of(self._cluster) as client:
            Workers(client, self.staging, ())  # an error where they do not see the folder
            futures = client.compute([write.delayed for write in self._writes])
            numbers = {future.key: number for number, future in enumerate(futures)}
            try:
                for future in as_completed(futures):
                    self._written(numbers[future.key], future.result())
            finally:
                client.cancel(futures)

    def _verify(self, drafts: Sequence[Path], journal: Journal) -> None:
        """Read every chunk back."""
        for number, write in enumerate(self._writes):
            name = self.plan.targets[write.target].name
            with reading(name), _opened(drafts[write.target]) as target:
                found = checksum_of(target.read(write.box))
            if found != self._checksums[number]:
                raise FileError(
                    f"{shown_path(name)} does not read back as it was written, at {write.box}: CRC-32 "
                    f"{found:08x}, not {self._checksums[number]:08x}"
                )
            self._advance(write.bytes)


def _opened(path: Path, *, writing: bool = False) -> AbstractContextManager[ChunkedArray]:
    zarr: ChunkedFormat = format_named("zarr")  # type: ignore[assignment]
    return zarr.open_array(path, "", writing=writing)


def _writes(index: int, draft: Path, array: Any, *, sync: bool) -> Iterator[_Write]:
    """Yield what writes the chunks of a part; they share what computes them with those of the other parts."""
    from dask import delayed

    if not array.size:
        return
    write = delayed(_write, pure=False, traverse=False)
    # Left as they are: each part by itself would be optimised to compute what it shares with its neighbours.
    blocks = array.to_delayed(optimize_graph=False).ravel()
    for box, block in zip(boxes(array.shape, array.chunksize), blocks, strict=True):
        elements = math.prod(side.stop - side.start for side in box)
        yield _Write(index, box, elements * array.dtype.itemsize, write(draft, box, block, array.dtype, sync))


def _write(draft: Path, box: Box, chunk: Any, dtype: np.dtype[Any], sync: bool) -> int:
    """Write a chunk and return its checksum."""
    elements = np.ascontiguousarray(chunk, dtype)
    with writing(shown_path(draft)), _opened(draft, writing=True) as target:
        target.write(box, elements)
        if sync:
            make_names_durable(target.written)
    return checksum_of(elements)
