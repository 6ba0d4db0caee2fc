"""zarr 3, by zarr-python: arrays in chunks, sharded or not, read and written a chunk (or shard) at a time.

A part has the chunks, shards, codecs and attributes of the array that it comes from. A part that is narrower
than a chunk has narrower chunks. The array of a group is named by its path, and a part of it has this name in
a group. From zarr 3 to zarr 3, chunks are copied one by one; from and to other formats, arrays go through the
staging folder as plain bytes, and a part is an array by itself.
"""

from __future__ import annotations

import contextlib
import math
import shutil
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from splitops.errors import FileError, shown, shown_path
from splitops.files.boxes import BoxedArray, boxes
from splitops.files.formats import Contents, Layout, TargetFile, places
from splitops.files.formats.zarr_chunks import (
    Levels,
    ZarrArray,
    chunks_of,
    create,
    outer_chunks,
    rechunked,
    stored_levels,
    target_chunks,
    without_zeros,
)
from splitops.files.lazy import LazyTensor
from splitops.files.sources import LocalFile, Source, reading
from splitops.files.tensors import StoredTensor, array_tensor, row_major
from splitops.ground.reading import DataFolder
from splitops.ground.signals import uninterrupted
from splitops.spec.elements.types import is_numpys_own

_MAX_RESTORED: Final = 1 << 31
"""Attributes may say anything of the chunks before a split, and a chunk is encoded in memory."""


class _Zarr:
    name = "zarr"
    suffixes = (".zarr",)
    folders = True

    def read(self, source: Source) -> Contents:
        zarr = _zarr()
        from splitops.files.formats.zarr_store import open_root

        try:
            store, root = open_root(source.path)
            found = {"": root} if isinstance(root, zarr.Array) else dict(_arrays(root, zarr))
            for name, array in found.items():
                store.allow(name, array)
        except FileError:
            raise
        except Exception as error:  # zarr-python declares no closed set
            raise FileError(f"{source.name}: {shown(str(error), 200)}") from error
        sources: list[Source] = [source]
        tensors = []
        for name, array in found.items():
            dtype = array.dtype
            if dtype.hasobject or dtype.itemsize == 0:
                continue
            boxed = BoxedArray(
                source,
                name or "the array",
                tuple(array.shape),
                dtype,
                outer_chunks(array),
                array.__getitem__,
            )
            place = {"file": len(sources), "chunks": chunks_of(array)}
            tensors.append(array_tensor(name, boxed.shape, dtype, dtype.str, **place))
            sources.append(boxed)
        return Contents(self, tuple(tensors), tuple(sources), {"arrays": found})

    def taken(self, tensor: StoredTensor) -> StoredTensor:
        dtype = tensor.dtype
        named = dtype is not None and dtype.kind in "biufc" and is_numpys_own(dtype)
        code = dtype.str if dtype is not None and named else None
        return row_major(tensor, code, "zarr", swapped=True)._replace(name="", chunks=None)

    @contextlib.contextmanager
    def open_array(self, path: Path, name: str, *, writing: bool = False) -> Iterator[ZarrArray]:
        zarr = _zarr()
        from splitops.files.formats.zarr_store import FolderStore

        if writing:
            found = zarr.open_array(store=str(path), path=name, mode="r+")
        else:
            found = FolderStore(path).open_array(name)
        yield ZarrArray(DataFolder(path), name, found)

    def create(self, path: Path, tensors: Sequence[StoredTensor], like: Contents | None) -> None:
        if like is not None:
            create(path, tensors, DataFolder(like.sources[0].path))
            return
        for tensor in tensors:
            _made(path, tensor, {"chunks": tensor.chunks})

    def target_chunks(self, tensor: StoredTensor, like: Contents, offset: int) -> tuple[int, ...]:
        source = like.sources[0]
        with reading(source.name):
            return target_chunks(tensor, like.tensor(tensor.name), DataFolder(source.path), offset)

    def lay_out(self, tensors: Sequence[StoredTensor], like: Contents, name: str) -> Layout:
        if len(tensors) != 1:
            raise FileError(f"{shown(name)} would have {len(tensors)} tensors; a zarr array has one")
        [tensor] = tensors
        before = like.metadata["arrays"][tensor.name] if like.format is self else None
        files = TargetFile(name, 0, folder=True), TargetFile(f".{name}.raw", tensor.size, scratch=True)
        options = {}
        if before is not None:
            with reading(like.sources[0].name):
                options = _options(tensor, before, DataFolder(like.sources[0].path))
        finish = partial(_finish, tensor=tensor, options=options)
        return Layout(files, places([(1, 0)]), finish, partial(_check, tensor=tensor))


FORMAT: Final = _Zarr()


def _zarr() -> Any:
    try:
        import zarr
    except ImportError as error:
        raise FileError("zarr arrays need zarr-python: install splitops[zarr]") from error
    return zarr


def _arrays(group: Any, zarr: Any) -> Any:
    for name, item in sorted(group.members(max_depth=None)):
        if isinstance(item, zarr.Array):
            yield name, item


def _options(tensor: StoredTensor, before: Any, folder: DataFolder) -> dict[str, Any]:
    """Return how an array is made for a tensor that is described after another array."""
    levels: Levels = (without_zeros(before.chunks),)
    if before.metadata.zarr_format == 3:
        levels = stored_levels(folder, tensor.name)
    before_levels = levels
    levels, attributes = rechunked(levels, dict(before.attrs), before.shape, tensor.shape)
    size = math.prod(levels[0]) * before.dtype.itemsize
    if size > _MAX_RESTORED and levels[0] != before_levels[0]:
        raise ValueError(
            f"its chunks before the split had {size} bytes; at most {_MAX_RESTORED} are restored"
        )
    sharded = before.shards is not None
    options = {
        "chunks": levels[1] if sharded else levels[0],
        "shards": levels[0] if sharded else None,
        "fill_value": before.fill_value,
        "attributes": attributes,
    }
    if before.metadata.zarr_format == 3:  # the codecs of zarr 2 are others
        options |= {
            "filters": before.filters,
            "compressors": before.compressors,
            "dimension_names": before.metadata.dimension_names,
        }
    return options


def _finish(paths: Sequence[Path], tensor: StoredTensor, options: dict[str, Any]) -> None:
    """Encode a part from its plain bytes."""
    folder, scratch = paths
    shutil.rmtree(folder, ignore_errors=True)
    with uninterrupted():  # after Ctrl-C the threads of zarr would go on writing
        made = _made(folder, tensor, options)
    data = _plain(scratch, tensor)
    for box in boxes(tensor.shape, outer_chunks(made)):
        with uninterrupted():
            made[box] = np.asarray(data[box])


def _made(folder: Path, tensor: StoredTensor, options: dict[str, Any]) -> Any:
    """Return a new array for a tensor, without its elements."""
    assert tensor.dtype is not None
    zarr = _zarr()
    big = {"serializer": zarr.codecs.BytesCodec(endian="big")} if tensor.dtype.byteorder == ">" else {}
    return zarr.create_array(folder, shape=tensor.shape, dtype=tensor.dtype, **options, **big)


def _check(paths: Sequence[Path], tensor: StoredTensor) -> None:
    """Decode a part, and compare it with its plain bytes."""
    folder, scratch = paths
    data = _plain(scratch, tensor)
    with reading(shown_path(folder.name)):
        found = _zarr().open_array(folder, mode="r")
        for box in boxes(tensor.shape, outer_chunks(found)):
            if np.asarray(found[box], tensor.dtype).tobytes() != np.asarray(data[box]).tobytes():
                raise FileError(f"{shown_path(folder.name)} does not read back as it was written, at {box}")


def _plain(scratch: Path, tensor: StoredTensor) -> LazyTensor:
    return LazyTensor(LocalFile(scratch), tensor._replace(offset=0, file=0))
