"""HDF5, through h5py: contiguous datasets are copied as byte ranges, chunked ones to HDF5 chunk by chunk.

h5py lays out a new file of contiguous datasets without their data. All other bytes that it writes are copied
verbatim into the target (its ``literals``). A part of a chunked dataset keeps its chunks and filters.
Datasets whose elements h5py reads as Python objects, such as variable-length text and references, are not
tensors. External links, external storage and virtual datasets read other files, so they are rejected.

Source: the HDF5 File Format Specification 3.0; H5Dget_offset, H5Dread_chunk of the HDF5 reference.
"""

from __future__ import annotations

import contextlib
import math
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from splitops.errors import FileError, shown
from splitops.files.boxes import Box, BoxedArray
from splitops.files.formats import Contents, Layout, TargetFile, make_places
from splitops.files.sources import Source, reading, writing
from splitops.files.tensors import StoredTensor, make_array_tensor, to_row_major
from splitops.spec.elements.types import is_builtin

_BLOCK: Final = 1 << 20
"""Approximate number of bytes to read at a time from a dataset without chunks."""
_MASK_BYTES: Final = 4


class _Hdf5:
    name = "hdf5"
    suffixes = (".h5", ".hdf5")
    folders = False

    def read(self, source: Source) -> Contents:
        h5py = _import_h5py()
        with reading(source.name):
            file = h5py.File(source.path, "r")
            links = _list_links(file)
            found = [
                (name, file[name])
                for name, link in links
                if _is_hard_link(name, link, source, h5py) and isinstance(file[name], h5py.Dataset)
            ]
            sources: list[Source] = [source]
            tensors = [
                _read_tensor(name, item, file, sources, h5py)
                for name, item in found
                if _is_tensor(name, item, source, h5py)
            ]
        names = {tensor.name for tensor in tensors}
        metadata = {
            "left_out": tuple(name for name, _ in found if name not in names),
            "links": {name: link.path for name, link in links if isinstance(link, h5py.SoftLink)},
        }
        return Contents(self, tuple(tensors), tuple(sources), metadata)

    def adapt(self, tensor: StoredTensor) -> StoredTensor:
        dtype = tensor.dtype
        named = dtype is not None and (dtype.kind != "V" or dtype.fields is not None) and is_builtin(dtype)
        return to_row_major(
            tensor, _format_code(dtype) if dtype is not None and named else None, "HDF5", swapped=True
        )

    def lay_out(self, tensors: Sequence[StoredTensor], like: Contents, name: str) -> Layout:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "layout.h5"
            with writing(shown(name)):
                self._create(path, tensors, like, contiguous=True)
            with _import_h5py().File(path, "r") as file:
                offsets = [file[tensor.name].id.get_offset() or 0 for tensor in tensors]
            size = path.stat().st_size
            ranges = sorted(
                (at, tensor.size) for at, tensor in zip(offsets, tensors, strict=True) if tensor.size
            )
            with path.open("rb") as content:
                literals = tuple(_iter_gaps(content, ranges, size))
        return Layout((TargetFile(name, size, literals),), make_places((0, offset) for offset in offsets))

    @contextlib.contextmanager
    def open_array(self, path: Path, name: str, *, writing: bool = False) -> Iterator[_Dataset]:
        with _import_h5py().File(path, "r+" if writing else "r") as file:
            yield _Dataset(file[name], [path] if writing else [])

    def create(self, path: Path, tensors: Sequence[StoredTensor], like: Contents | None) -> None:
        assert like is not None  # computed arrays are written as zarr
        self._create(path, tensors, like, contiguous=False)

    def choose_chunks(self, tensor: StoredTensor, like: Contents, offset: int) -> tuple[int, ...]:
        assert tensor.chunks is not None  # tensors without chunks have extents
        return tensor.chunks

    def _create(
        self, path: Path, tensors: Sequence[StoredTensor], like: Contents, *, contiguous: bool
    ) -> None:
        """Create a file with unwritten datasets, which have no chunks if ``contiguous`` is set.

        If ``like`` is from an HDF5 file, copy its attributes and soft links.
        """
        h5py = _import_h5py()
        with h5py.File(path, "w", track_order=True) as new, contextlib.ExitStack() as stack:
            old = None
            if like.format is self:
                old = stack.enter_context(h5py.File(like.sources[0].path, "r"))
                _copy_attributes(old, new, h5py)
                _copy_soft_links(tensors, like, new, h5py)
            for tensor in tensors:
                for group in reversed(Path(tensor.name).parents[:-1]):
                    if str(group) not in new:
                        made = new.create_group(str(group), track_order=True)
                        if old is not None:
                            _copy_attributes(old[str(group)], made, h5py)
                before = None if old is None else old[tensor.name]
                _create_dataset(new, tensor, before, h5py, contiguous=contiguous)


FORMAT: Final = _Hdf5()


def _import_h5py() -> Any:
    try:
        import h5py
    except ImportError as error:
        raise FileError("HDF5 files need h5py: install splitops[hdf5]") from error
    return h5py


# Reading ------------------------------------------------------------------------------------------------


def _list_links(file: Any) -> list[tuple[str, Any]]:
    """Return all links with their paths. A group with several links is entered only once."""
    found: list[tuple[str, Any]] = []
    file.visititems_links(lambda name, link: found.append((name, link)))
    return found


def _is_hard_link(name: str, link: Any, source: Source, h5py: Any) -> bool:
    if isinstance(link, h5py.ExternalLink):
        raise FileError(f"{source.name}: {shown(name)} is a link to another file, which is not followed")
    return isinstance(link, h5py.HardLink)


def _is_tensor(name: str, item: Any, source: Source, h5py: Any) -> bool:
    properties = item.id.get_create_plist()
    if properties.get_layout() == h5py.h5d.VIRTUAL or properties.get_external_count():
        raise FileError(f"{source.name}: {shown(name)} has its data in other files, which are not read")
    dtype = item.dtype
    plain = dtype.kind in "biufcSV" and not dtype.hasobject and dtype.subdtype is None
    return item.shape is not None and plain and dtype.itemsize > 0


def _read_tensor(name: str, item: Any, file: Any, sources: list[Source], h5py: Any) -> StoredTensor:
    source, dtype, shape = sources[0], item.dtype, tuple(item.shape)
    chunks = item.chunks or _choose_block_shape(shape, dtype.itemsize)
    tensor = make_array_tensor(name, shape, dtype, _format_code(dtype), chunks=chunks)
    offset = item.id.get_offset() if item.chunks is None else None
    # A dataset without an offset is compact or not written. One with a type unknown to NumPy is converted.
    if offset is not None and item.id.get_type().equal(h5py.h5t.py_create(dtype, logical=True)):
        end = offset + tensor.size
        if end > source.size:
            raise FileError(
                f"{source.name}: {shown(name)} ends at byte {end}, but the file has {source.size} bytes"
            )
        return tensor._replace(offset=offset)
    sources.append(BoxedArray(source, name, shape, dtype, chunks, lambda box: file[name][box]))
    return tensor._replace(file=len(sources) - 1)


def _format_code(dtype: np.dtype[Any]) -> str:
    return dtype.str if dtype.fields is None else str(dtype)


def _choose_block_shape(shape: Sequence[int], item_bytes: int) -> tuple[int, ...]:
    """Return the shape of a box of about ``_BLOCK`` consecutive bytes."""
    room, block = max(1, _BLOCK // item_bytes), []
    for size in reversed(shape):
        block.append(max(1, min(size, room)))
        room = max(1, room // block[-1])
    return tuple(reversed(block))


# Writing ------------------------------------------------------------------------------------------------


def _copy_soft_links(tensors: Sequence[StoredTensor], like: Contents, new: Any, h5py: Any) -> None:
    """Copy the soft links of a file with several tensors. Raise FileError for datasets of other types."""
    if len(tensors) <= 1:
        return
    left_out = like.metadata["left_out"]
    if left_out:
        names = ", ".join(shown(name) for name in left_out[:4])
        raise FileError(f"{like.sources[0].name} has datasets of types that cannot be copied: {names}")
    for name, path in like.metadata["links"].items():
        new[name] = h5py.SoftLink(path)


def _create_dataset(file: Any, tensor: StoredTensor, like: Any, h5py: Any, *, contiguous: bool) -> None:
    """Create an unwritten dataset for a tensor, stored like the dataset ``like`` or contiguously."""
    if "\0" in tensor.name:
        raise FileError(f"{tensor.label} has a NUL in its name, which HDF5 cannot store")
    shape, maximum = tensor.shape, None
    if contiguous or like is None or like.chunks is None:
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_layout(h5py.h5d.CONTIGUOUS)
        properties.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        properties.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    else:
        properties = like.id.get_create_plist().copy()
        # HDF5 permits chunks larger than a dataset only if the axis may grow to the size of a chunk.
        limits = zip(like.maxshape, shape, like.chunks, strict=True)
        maximum = tuple(
            h5py.h5s.UNLIMITED if most is None else max(size, chunk) for most, size, chunk in limits
        )
    properties.set_obj_track_times(False)  # equal requests create equal files
    properties.set_attr_creation_order(h5py.h5p.CRT_ORDER_TRACKED | h5py.h5p.CRT_ORDER_INDEXED)
    space = h5py.h5s.create_simple(shape, maximum) if shape else h5py.h5s.create(h5py.h5s.SCALAR)
    kind = h5py.h5t.py_create(tensor.dtype, logical=True) if like is None else like.id.get_type()
    made = h5py.h5d.create(file.id, tensor.name.encode(), kind, space, properties)
    if like is not None:
        _copy_attributes(like, h5py.Dataset(made), h5py)


def _copy_attributes(before: Any, after: Any, h5py: Any) -> None:
    """Copy attributes except references, which are not valid in another file."""
    for name in before.attrs:
        dtype = before.attrs.get_id(name).dtype
        if not _has_references(dtype, h5py):
            after.attrs.create(name, before.attrs[name], dtype=dtype)


def _has_references(dtype: np.dtype[Any], h5py: Any) -> bool:
    inner = h5py.check_vlen_dtype(dtype)
    if isinstance(inner, np.dtype):
        return _has_references(inner, h5py)
    if dtype.fields:
        return any(_has_references(field[0], h5py) for field in dtype.fields.values())
    return h5py.check_ref_dtype(dtype.base) is not None


def _iter_gaps(content: Any, ranges: Sequence[tuple[int, int]], size: int) -> Iterator[tuple[int, bytes]]:
    at = 0
    for begin, length in (*ranges, (size, 0)):
        if begin > at:
            content.seek(at)
            yield at, content.read(begin - at)
        at = begin + length


# Chunks -------------------------------------------------------------------------------------------------


class _Dataset:
    """A dataset as a :class:`splitops.files.chunk_tasks.ChunkedArray`."""

    def __init__(self, dataset: Any, written: Sequence[Path]) -> None:
        self._dataset = dataset
        self.shape: tuple[int, ...] = tuple(dataset.shape)
        self.chunks: tuple[int, ...] = dataset.chunks or self.shape
        self.coding = None if dataset.chunks is None else _get_coding(dataset)
        self.written = written

    def read(self, box: Box) -> npt.NDArray[Any]:
        return np.asarray(self._dataset[box])

    def write(self, box: Box, elements: npt.NDArray[Any]) -> None:
        self._dataset[box] = elements

    def read_stored(self, index: tuple[int, ...]) -> bytes | None:
        """Return the mask of skipped filters, then the encoded bytes of a chunk; None if it is not stored."""
        corner = self._find_corner(index)
        found = self._dataset.id.get_chunk_info_by_coord(corner)
        if found.byte_offset is None:
            return None
        plain = math.prod(self.chunks) * self._dataset.dtype.itemsize
        if found.size > 2 * plain + _BLOCK:  # no filter expands data that much
            raise ValueError(f"a chunk of {plain} bytes is stored in {found.size}")
        mask, data = self._dataset.id.read_direct_chunk(corner)
        return int(mask).to_bytes(_MASK_BYTES, "little") + bytes(data)

    def store(self, index: tuple[int, ...], data: bytes) -> None:
        mask = int.from_bytes(data[:_MASK_BYTES], "little")
        self._dataset.id.write_direct_chunk(self._find_corner(index), data[_MASK_BYTES:], mask)

    def _find_corner(self, index: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(at * chunk for at, chunk in zip(index, self.chunks, strict=True))


def _get_coding(dataset: Any) -> object:
    """Return a value that is equal for datasets whose chunks have the same encoding.

    Return None if a filter has checksums. Such a filter checks only chunks that it decodes, so they must
    not be copied undecoded.
    """
    properties = dataset.id.get_create_plist()
    filters = [properties.get_filter(number) for number in range(properties.get_nfilters())]
    if any(found[0] == _import_h5py().h5z.FILTER_FLETCHER32 for found in filters):
        return None
    return dataset.id.get_type().encode(), dataset.chunks, filters, np.asarray(dataset.fillvalue).tobytes()
