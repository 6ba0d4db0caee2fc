"""HDF5, by h5py: contiguous datasets where they lie, chunked ones a chunk at a time. Written contiguous.

Datasets of texts of any length, of references and the like hold no elements of a fixed size and are no
tensors here. External links, external storage and virtual datasets, which read other files, are refused.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from splitops.elements.types import ElementType, element_type_of
from splitops.errors import FileError, shown
from splitops.files.boxes import BoxedArray
from splitops.files.formats import Contents, Layout, Place, TargetFile
from splitops.files.sources import Source
from splitops.files.tensors import StoredTensor, Unit

__all__ = ["FORMAT"]

_ROWS: Final = 1 << 22
"""About so many bytes are read at a time of a dataset without chunks that is not in its file."""


class _Hdf5:
    name = "hdf5"
    suffixes = (".h5", ".hdf5")

    def read(self, source: Source) -> Contents:
        h5py = _h5py()
        try:
            file = h5py.File(source.path, "r")
            found = [(name, item) for name, item in _datasets(file, h5py, source) if _is_plain(item.dtype)]
            sources: list[Source] = [source]
            tensors = [_stored(name, item, source, sources) for name, item in found]
        except (OSError, RuntimeError, ValueError, KeyError, TypeError) as error:
            if isinstance(error, FileError):
                raise
            raise FileError(f"{source.name}: {shown(str(error), 200)}") from error
        return Contents(self, tuple(tensors), tuple(sources), {"file": file})

    def taken(self, tensor: StoredTensor) -> StoredTensor:
        dtype = tensor.dtype
        named = dtype is not None and (dtype.kind != "V" or dtype.fields is not None)
        if dtype is None or not named or (tensor.fortran and not tensor.both_orders):
            raise FileError(f"{tensor.label} is of type {tensor.code} or in an order that HDF5 has not")
        return replace(tensor, code=dtype.str, fortran=False)

    def lay_out(self, tensors: Sequence[StoredTensor], like: Contents, name: str) -> Layout:
        h5py = _h5py()
        descriptor, path = tempfile.mkstemp(suffix=".h5")
        os.close(descriptor)
        try:
            before = like.metadata["file"] if like.format is self else None
            with h5py.File(path, "w", track_order=True) as file:
                if before is not None:
                    _copy_attributes(before, file)
                for tensor in tensors:
                    _create(file, tensor, h5py, before)
                file.flush()
                offsets = [file[tensor.name].id.get_offset() or 0 for tensor in tensors]
            ranges = sorted(
                (at, tensor.size) for at, tensor in zip(offsets, tensors, strict=True) if tensor.size
            )
            size = os.stat(path).st_size
            with Path(path).open("rb") as content:
                literals = tuple(_between(content, ranges, size))
        finally:
            os.unlink(path)
        return Layout((TargetFile(name, size, literals),), tuple(Place(0, offset) for offset in offsets))


FORMAT: Final = _Hdf5()


def _h5py() -> Any:
    try:
        import h5py
    except ImportError as error:
        raise FileError("HDF5 files need h5py: install splitops[hdf5]") from error
    return h5py


def _datasets(
    group: Any, h5py: Any, source: Source, path: str = "", seen: frozenset[Any] = frozenset()
) -> Iterator[Any]:
    for name in group:
        link = group.get(name, getlink=True)
        label = f"{path}{name}"
        if isinstance(link, h5py.ExternalLink):
            raise FileError(f"{source.name}: {shown(label)} is a link to another file, which is not followed")
        if not isinstance(link, h5py.HardLink):
            continue
        item = group[name]
        if isinstance(item, h5py.Group):
            address = h5py.h5o.get_info(item.id).addr
            if address not in seen:
                yield from _datasets(item, h5py, source, f"{label}/", seen | {address})
        elif isinstance(item, h5py.Dataset):
            if item.is_virtual or item.external:
                raise FileError(
                    f"{source.name}: {shown(label)} has its data in other files, which are not read"
                )
            yield label, item


def _is_plain(dtype: Any) -> bool:
    return dtype.kind in "biufcSV" and not dtype.hasobject and dtype.subdtype is None and dtype.itemsize > 0


def _stored(name: str, item: Any, source: Source, sources: list[Source]) -> StoredTensor:
    dtype, shape = item.dtype, tuple(item.shape or ())
    size = item.size * dtype.itemsize if item.shape is not None else 0
    offset: int | None = item.id.get_offset() if item.chunks is None else None
    file = 0
    if offset is None and size:
        row = max(1, size // shape[0]) if shape else size
        chunk = item.chunks or ((max(1, _ROWS // row), *shape[1:]) if shape else ())
        file = len(sources)
        sources.append(BoxedArray(source, name, shape, dtype, tuple(chunk), lambda box: item[box]))
    elif offset is not None and offset + size > source.size:
        raise FileError(
            f"{source.name}: {shown(name)} ends at byte {offset + size}, but the file has {source.size}"
        )
    kind = element_type_of(dtype) or ElementType(str(dtype), bits=0)
    return StoredTensor(name, shape, dtype.str, Unit(1, dtype.itemsize), offset or 0, size, kind, dtype, file)


def _create(file: Any, tensor: StoredTensor, h5py: Any, before: Any) -> None:
    """Make room for a tensor: contiguous, at once, and without writing to it."""
    creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    creation.set_layout(h5py.h5d.CONTIGUOUS)
    creation.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    creation.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    made = file.create_dataset(tensor.name, tensor.shape, tensor.dtype, dcpl=creation)
    if before is not None and tensor.name in before:
        _copy_attributes(before[tensor.name], made)


def _copy_attributes(before: Any, after: Any) -> None:
    for key, value in before.attrs.items():
        after.attrs[key] = value


def _between(content: Any, ranges: Sequence[tuple[int, int]], size: int) -> Iterator[tuple[int, bytes]]:
    at = 0
    for begin, length in (*ranges, (size, 0)):
        if begin > at:
            content.seek(at)
            yield at, content.read(begin - at)
        at = begin + length
