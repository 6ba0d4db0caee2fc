"""Dask arrays as sources: their parts are computed into zarr arrays, a chunk at a time.

All parts are one computation, so that a chunk that lies in two of them is computed once. A part has the
chunks of its array; where a cut goes through one, the later chunks are assembled again.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from splitops.backends import backend_of
from splitops.errors import FileError
from splitops.files.addresses import target_path
from splitops.files.chunk_tasks import ChunkTask, Flow
from splitops.files.cluster import Place, Workers, client_of
from splitops.files.formats import Format, format_named
from splitops.files.planned import Part
from splitops.files.planning import Bind, chunk_plan, part_names
from splitops.files.plans import FilePlan
from splitops.files.tasks import Files
from splitops.files.tensors import array_tensor
from splitops.spec.elements.types import ElementType

DaskArray = Any
"""A ``dask.array.Array``."""


def is_dask_array(source: Any) -> bool:
    """Return whether a source is a Dask array."""
    dask = sys.modules.get("dask.array")
    return dask is not None and isinstance(source, dask.Array)


def array_plan(
    array: DaskArray, folder: Path, bind: Bind, *, prefix: str | None = None, to: Format | None = None
) -> FilePlan:
    """Plan the split of a Dask array into a zarr array a part."""
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
    whole = zarr.taken(array_tensor("", shape, dtype, str(dtype)))
    name, folder = prefix or "part", target_path(folder)
    names = part_names(name, len(plan.sizes), zarr.suffixes[0])
    arrays = [_in_regular_chunks(part) for part in backend.views(plan, array)]
    flows, parts = [], []
    for index, (made, offset, size) in enumerate(zip(arrays, plan.offsets, plan.sizes, strict=True)):
        chunks = tuple(max(1, each) for each in made.chunksize)
        tensor = whole._replace(shape=made.shape, size=made.nbytes, chunks=chunks)
        flows.append(Flow(index, tensor, 0, (), 0))
        parts.append(Part(folder / names[index], "", offset, size, made.shape))
    return chunk_plan(name, folder, names, parts, flows, zarr, compute=partial(_compute, arrays))


def _in_regular_chunks(array: Any) -> Any:
    """Return an array in chunks of one shape, but for the last along each axis, as zarr stores them."""
    return array.rechunk(tuple(max(1, *sizes) for sizes in array.chunks)) if array.size else array


def _compute(
    arrays: Sequence[Any],
    tasks: Sequence[ChunkTask],
    files: Files,
    threads: int,
    cluster: Any,
    note: Callable[[int, list[int]], None],
) -> None:
    """Compute the chunks of arrays and write them: what several of them need is computed once."""
    from dask import compute, delayed

    # Left as they are: each part by itself would be optimised to compute what it shares with its neighbours.
    blocks = [b for array in arrays if array.size for b in array.to_delayed(optimize_graph=False).ravel()]
    write = delayed(_write, pure=False, traverse=False)
    cluster = cluster or _current_client()
    seen = files if cluster is not None else replace(files, staging=None)  # by the paths of this process
    owns = [seen.of((), task.targets) for task in tasks]
    if cluster is None:
        from dask.callbacks import Callback

        writes = [write(*each, None) for each in zip(tasks, owns, blocks, strict=True)]
        numbers = {each.key: number for number, each in enumerate(writes)}

        def finished(key: Any, value: Any, *_: object) -> None:
            if key in numbers:
                note(numbers[key], value)

        # Threads of its own: after an error none of them writes any more.
        with ThreadPoolExecutor(threads) as pool, Callback(posttask=finished):
            compute(*writes, scheduler="threads", pool=pool)
        return
    from distributed import as_completed

    with client_of(cluster) as client:
        workers = Workers(client, files)  # rejects those that do not see the folder
        writes = [write(*each, workers.place) for each in zip(tasks, owns, blocks, strict=True)]
        numbers = {each.key: number for number, each in enumerate(writes)}
        futures = client.compute(writes)
        try:
            for future in as_completed(futures):
                note(numbers[future.key], future.result())
        except BaseException:
            workers.stop(futures)
            raise


def _current_client() -> Any:
    """Return the client of a cluster that Dask computes with anyway; None where it computes here."""
    distributed = sys.modules.get("distributed")
    try:
        return distributed.default_client() if distributed is not None else None
    except ValueError:  # there is none
        return None


def _write(task: ChunkTask, files: Files, chunk: Any, place: Place | None) -> list[int]:
    """Write a chunk and return its checksum."""
    assert task.flow.tensor.dtype is not None
    with place.at_work() if place is not None else contextlib.nullcontext():
        return task.write(files, np.ascontiguousarray(chunk, task.flow.tensor.dtype))
