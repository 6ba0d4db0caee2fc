"""Dask arrays as sources: their parts are computed chunk by chunk and written as zarr arrays.

All parts are computed together, so a chunk that two parts share is computed once. A part keeps the chunks of
the array if they all have one shape, except smaller ones at the end, as zarr requires. Otherwise it is
rechunked, for example because it begins inside a chunk.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from splitops.backends import get_backend
from splitops.errors import FileError
from splitops.files.chunk_tasks import ChunkTask, TensorAssembly
from splitops.files.cluster import WorkerRequirements, Workers, connect_client
from splitops.files.formats import Format, get_format
from splitops.files.plan import FilePlan
from splitops.files.plan_builder import Bind, name_parts, plan_chunks
from splitops.files.plan_types import Part
from splitops.files.strays import warn_of_leftovers
from splitops.files.tasks import Files
from splitops.files.tensors import make_array_tensor
from splitops.files.urls import resolve_target
from splitops.spec.elements.types import ElementType

DaskArray = Any
"""A ``dask.array.Array``."""


def is_dask_array(source: Any) -> bool:
    """Return whether ``source`` is a Dask array, without importing Dask."""
    dask = sys.modules.get("dask.array")
    return dask is not None and isinstance(source, dask.Array)


def plan_dask_split(
    array: DaskArray, folder: Path, bind: Bind, *, prefix: str | None = None, to: Format | None = None
) -> FilePlan:
    """Plan to split a Dask array into one zarr array per part."""
    zarr = get_format("zarr")
    if to is not None and to is not zarr:
        raise FileError(f"a Dask array is written as zarr, not as {to.name}")
    backend, dtype = get_backend(array), np.dtype(array.dtype)
    shape = backend.get_shape(array)
    if None in shape:
        raise FileError(
            f"the Dask array has axes of unknown size, shape {shape}: call its compute_chunk_sizes() first"
        )
    plan = bind(shape, backend.get_element_type(array) or ElementType(str(dtype), bits=0))
    whole = zarr.adapt(make_array_tensor("", shape, dtype, str(dtype)))
    name, folder = prefix or "part", resolve_target(folder)
    names = name_parts(name, len(plan.sizes), zarr.suffixes[0])
    arrays = [_make_chunks_regular(part) for part in backend.make_views(plan, array)]
    assemblies, parts = [], []
    for index, (made, offset, size) in enumerate(zip(arrays, plan.offsets, plan.sizes, strict=True)):
        chunks = tuple(max(1, each) for each in made.chunksize)
        tensor = whole._replace(shape=made.shape, size=made.nbytes, chunks=chunks)
        assemblies.append(TensorAssembly(index, tensor, 0, (), 0))
        parts.append(Part(folder / names[index], "", offset, size, made.shape))
    made = plan_chunks(name, folder, names, parts, assemblies, zarr, compute=partial(_compute, arrays))
    return warn_of_leftovers(made, rf"{re.escape(name)}\.\d+{re.escape(zarr.suffixes[0])}")


def _make_chunks_regular(array: Any) -> Any:
    """Rechunk an array to its largest chunk size along each axis, because zarr requires regular chunks."""
    return array.rechunk(tuple(max(1, *sizes) for sizes in array.chunks)) if array.size else array


def _compute(
    arrays: Sequence[Any],
    tasks: Sequence[ChunkTask],
    files: Files,
    threads: int,
    cluster: Any,
    note: Callable[[int, list[int]], None],
) -> None:
    """Compute the chunks of all arrays and write them; see :data:`splitops.files.chunks.Compute`.

    Intermediate results that several chunks share are computed only once.
    """
    from dask import compute, delayed

    # Not optimised: Dask would optimise each part separately, and compute shared chunks more than once.
    blocks = [b for array in arrays if array.size for b in array.to_delayed(optimize_graph=False).ravel()]
    write = delayed(_write, pure=False, traverse=False)
    cluster = cluster or _find_client()
    seen = files if cluster is not None else replace(files, staging=None)  # only a cluster needs public paths
    owns = [seen.select((), task.targets) for task in tasks]
    if cluster is None:
        from dask.callbacks import Callback

        writes = [write(*each, None) for each in zip(tasks, owns, blocks, strict=True)]
        numbers = {each.key: number for number, each in enumerate(writes)}

        def record_chunk(key: Any, value: Any, *_: object) -> None:
            if key in numbers:
                note(numbers[key], value)

        # A separate pool is shut down after an error, so that no thread writes later.
        with ThreadPoolExecutor(threads) as pool, Callback(posttask=record_chunk):
            compute(*writes, scheduler="threads", pool=pool)
        return
    from distributed import as_completed

    with connect_client(cluster) as client:
        workers = Workers(client, files)  # rejects workers that cannot access the folder
        writes = [write(*each, workers.place) for each in zip(tasks, owns, blocks, strict=True)]
        numbers = {each.key: number for number, each in enumerate(writes)}
        futures = client.compute(writes)
        try:
            for future in as_completed(futures):
                note(numbers[future.key], future.result())
        except BaseException:
            workers.stop(futures)
            raise


def _find_client() -> Any:
    """Return the Dask client that is active in this process, or None."""
    distributed = sys.modules.get("distributed")
    try:
        return distributed.default_client() if distributed is not None else None
    except ValueError:  # there is none
        return None


def _write(task: ChunkTask, files: Files, chunk: Any, place: WorkerRequirements | None) -> list[int]:
    """Write a chunk, on a worker of a cluster if ``place`` is set. Return a list with its checksum."""
    assert task.assembly.tensor.dtype is not None
    with place.track_task() if place is not None else contextlib.nullcontext():
        return task.write(files, np.ascontiguousarray(chunk, task.assembly.tensor.dtype))
