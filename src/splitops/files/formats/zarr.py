"""zarr, through zarr-python: chunked arrays, with or without shards. zarr 2 can be read, but not written.

A part keeps the chunks and attributes of its source array and, for zarr 3, its shards and codecs. If it is
narrower than a chunk, its chunks are narrower, too, unless it is a last chunk that can be copied undecoded.
An array in a group is named by its path, and its parts keep that name in groups of their own. From zarr 3 to
zarr 3, chunks are copied one by one. From or to other formats, an array is unpacked into the staging folder,
and a part is a single array.
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

from splitops.common.signals import defer_signals
from splitops.common.untrusted_files import DataFolder
from splitops.errors import FileError, shown, shown_path
from splitops.files.boxes import BoxedArray, iter_boxes
from splitops.files.formats import Contents, Layout, TargetFile, make_places
from splitops.files.formats.zarr_chunks import (
    Levels,
    ZarrArray,
    choose_chunks,
    create,
    find_chunks,
    get_outer_chunks,
    read_levels,
    rechunk,
    replace_zeros,
)
from splitops.files.lazy import LazyTensor
from splitops.files.sources import LocalFile, Source, reading
from splitops.files.tensors import StoredTensor, make_array_tensor, to_row_major
from splitops.spec.elements.types import is_builtin

_MAX_RESTORED: Final = 1 << 31
"""Maximum bytes of chunks that a merge restores: they must fit in memory, and attributes are not trusted."""


class _Zarr:
    name = "zarr"
    suffixes = (".zarr",)
    folders = True

    def read(self, source: Source) -> Contents:
        zarr = _import_zarr()
        from splitops.files.formats.zarr_store import open_root

        try:
            store, root = open_root(source.path)
            found = {"": root} if isinstance(root, zarr.Array) else dict(_iter_arrays(root, zarr))
            for name, array in found.items():
                store.allow(name, array)
        except FileError:
            raise
        except Exception as error:  # zarr-python raises many kinds
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
                get_outer_chunks(array),
                array.__getitem__,
            )
            place = {"file": len(sources), "chunks": find_chunks(array)}
            tensors.append(make_array_tensor(name, boxed.shape, dtype, dtype.str, **place))
            sources.append(boxed)
        return Contents(self, tuple(tensors), tuple(sources), {"arrays": found})

    def adapt(self, tensor: StoredTensor) -> StoredTensor:
        dtype = tensor.dtype
        named = dtype is not None and dtype.kind in "biufc" and is_builtin(dtype)
        code = dtype.str if dtype is not None and named else None
        return to_row_major(tensor, code, "zarr", swapped=True)._replace(name="", chunks=None)

    @contextlib.contextmanager
    def open_array(self, path: Path, name: str, *, writing: bool = False) -> Iterator[ZarrArray]:
        zarr = _import_zarr()
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
            _create_array(path, tensor, {"chunks": tensor.chunks})

    def choose_chunks(self, tensor: StoredTensor, like: Contents, offset: int) -> tuple[int, ...]:
        source = like.sources[0]
        with reading(source.name):
            return choose_chunks(tensor, like.get_tensor(tensor.name), DataFolder(source.path), offset)

    def lay_out(self, tensors: Sequence[StoredTensor], like: Contents, name: str) -> Layout:
        if len(tensors) != 1:
            raise FileError(f"{shown(name)} would have {len(tensors)} tensors; a zarr array has one")
        [tensor] = tensors
        before = like.metadata["arrays"][tensor.name] if like.format is self else None
        files = TargetFile(name, 0, folder=True), TargetFile(f".{name}.raw", tensor.size, scratch=True)
        options = {}
        if before is not None:
            with reading(like.sources[0].name):
                options = _choose_options(tensor, before, DataFolder(like.sources[0].path))
        finish = partial(_finish, tensor=tensor, options=options)
        return Layout(files, make_places([(1, 0)]), finish, partial(_check, tensor=tensor))


FORMAT: Final = _Zarr()


def _import_zarr() -> Any:
    try:
        import zarr
    except ImportError as error:
        raise FileError("zarr arrays need zarr-python: install splitops[zarr]") from error
    return zarr


def _iter_arrays(group: Any, zarr: Any) -> Any:
    for name, item in sorted(group.members(max_depth=None)):
        if isinstance(item, zarr.Array):
            yield name, item


def _choose_options(tensor: StoredTensor, before: Any, folder: DataFolder) -> dict[str, Any]:
    """Return the options for ``zarr.create_array`` for a part or merge of the array ``before``."""
    levels: Levels = (replace_zeros(before.chunks),)
    if before.metadata.zarr_format == 3:
        levels = read_levels(folder, tensor.name)
    before_levels = levels
    levels, attributes = rechunk(levels, dict(before.attrs), before.shape, tensor.shape)
    size = math.prod(levels[0]) * before.dtype.itemsize
    if size > _MAX_RESTORED and levels[0] != before_levels[0]:
        raise ValueError(
            f"its chunks before the split had {size} bytes, more than the limit of {_MAX_RESTORED}"
        )
    sharded = before.shards is not None
    options = {
        "chunks": levels[1] if sharded else levels[0],
        "shards": levels[0] if sharded else None,
        "fill_value": before.fill_value,
        "attributes": attributes,
    }
    if before.metadata.zarr_format == 3:  # codecs of zarr 2 differ
        options |= {
            "filters": before.filters,
            "compressors": before.compressors,
            "dimension_names": before.metadata.dimension_names,
        }
    return options


def _finish(paths: Sequence[Path], tensor: StoredTensor, options: dict[str, Any]) -> None:
    """Write an array from its elements. ``paths`` are its folder and the scratch file with the elements."""
    folder, scratch = paths
    shutil.rmtree(folder, ignore_errors=True)
    with defer_signals():  # otherwise threads of zarr continue to write after Ctrl-C
        made = _create_array(folder, tensor, options)
    data = _open_scratch(scratch, tensor)
    for box in iter_boxes(tensor.shape, get_outer_chunks(made)):
        with defer_signals():
            made[box] = np.asarray(data[box])


def _create_array(folder: Path, tensor: StoredTensor, options: dict[str, Any]) -> Any:
    """Create an array for a tensor, without its elements."""
    assert tensor.dtype is not None
    zarr = _import_zarr()
    big = {"serializer": zarr.codecs.BytesCodec(endian="big")} if tensor.dtype.byteorder == ">" else {}
    return zarr.create_array(folder, shape=tensor.shape, dtype=tensor.dtype, **options, **big)


def _check(paths: Sequence[Path], tensor: StoredTensor) -> None:
    """Check that a written array reads back as the elements in its scratch file; see :func:`_finish`.

    Raises:
        FileError: an element differs.
    """
    folder, scratch = paths
    data = _open_scratch(scratch, tensor)
    with reading(shown_path(folder.name)):
        found = _import_zarr().open_array(folder, mode="r")
        for box in iter_boxes(tensor.shape, get_outer_chunks(found)):
            if np.asarray(found[box], tensor.dtype).tobytes() != np.asarray(data[box]).tobytes():
                raise FileError(f"{shown_path(folder.name)} does not read back as it was written, at {box}")


def _open_scratch(scratch: Path, tensor: StoredTensor) -> LazyTensor:
    return LazyTensor(LocalFile(scratch), tensor._replace(offset=0, file=0))
