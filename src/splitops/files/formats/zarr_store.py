"""The store through which zarr-python reads a folder: only regular files inside it, of limited size."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any, Final

import zarr
from zarr.abc.store import OffsetByteRequest, RangeByteRequest, SuffixByteRequest
from zarr.core.buffer import default_buffer_prototype
from zarr.storage import LocalStore

from splitops.common.documents import MAX_RANK, parse_json
from splitops.common.untrusted_files import DataFolder, read_open_file, read_range
from splitops.errors import FileError, ModelError, shown, shown_path
from splitops.files.formats.zarr_chunks import MAX_DESCRIPTION, compute_max_bytes, open_inside

_DOCUMENTS: Final = ("zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata")


class FolderStore(LocalStore):  # type: ignore[misc]
    """A read-only folder. The chunks of an array can be read once :meth:`allow` has been called for it."""

    def __init__(self, root: Path | str, *, read_only: bool = True) -> None:
        """Make the store of a folder. zarr-python itself passes ``read_only``."""
        super().__init__(root, read_only=read_only)
        self._folder = DataFolder(Path(root))
        self._most: dict[str, int] = {}

    def open_array(self, name: str) -> Any:
        """Open an array of the folder and allow its chunks to be read."""
        found = zarr.open_array(store=self, path=name, mode="r")
        self.allow(name, found)
        return found

    def allow(self, name: str, array: Any) -> None:
        """Allow the chunks of an array to be read.

        Raises:
            FileError: the rank exceeds the limit, or the name leads out of the folder.
        """
        if len(array.shape) > MAX_RANK:
            raise FileError(f"{shown(name)} has rank {len(array.shape)}, more than the limit of {MAX_RANK}")
        if any(part in (".", "..") or "\\" in part for part in name.split("/")):
            raise FileError(f"{shown(name)} does not name an array inside the folder")
        self._most[name] = compute_max_bytes(array)

    def get_sync(self, key: str, *, prototype: Any = None, byte_range: Any = None) -> Any:
        """Return the bytes of a file, or of a range of a chunk; None if the file does not exist."""
        buffer = (prototype or default_buffer_prototype()).buffer
        with open_inside(self._folder, key) as file:
            if file is None:
                return None
            if byte_range is None or self._is_document(key):
                path = self._folder.path / key
                try:
                    data = read_open_file(file, path, limit=self._limit(key))
                    if self._is_document(key):
                        parse_json(bytes(data))
                except ModelError as error:
                    raise FileError(error.message) from error
                except ValueError as error:
                    raise FileError(f"{shown_path(path)} is not JSON: {shown(str(error), 120)}") from error
                return buffer.from_bytes(data)
            size = os.fstat(file.fileno()).st_size
            match byte_range:
                case RangeByteRequest(start=begin, end=end):
                    pass
                case OffsetByteRequest(offset=begin):
                    end = size
                case SuffixByteRequest(suffix=length):
                    begin, end = size - length, size
            begin, end = max(0, min(begin, size)), max(0, min(end, size))
            if end - begin > self._limit(key):
                raise FileError(
                    f"{shown_path(self._folder.path / key)}: {end - begin} bytes of it are needed, but its "
                    f"array has chunks of at most {self._limit(key)} bytes"
                )
            return buffer.from_bytes(read_range(file, begin, max(0, end - begin)))

    async def get(self, key: str, prototype: Any = None, byte_range: Any = None) -> Any:
        """See :meth:`get_sync`."""
        return await asyncio.to_thread(self.get_sync, key, prototype=prototype, byte_range=byte_range)

    async def get_partial_values(self, prototype: Any, key_ranges: Iterable[tuple[str, Any]]) -> list[Any]:
        """See :meth:`get_sync`."""
        return [await self.get(key, prototype, byte_range) for key, byte_range in key_ranges]

    async def exists(self, key: str) -> bool:
        """Return whether the folder has a file at the path ``key``."""
        with open_inside(self._folder, key) as file:
            return file is not None

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """Yield the names of the files and folders in a subfolder.

        Raises:
            FileError: a name is a link to a folder, which may lead out of the store or to a parent folder.
        """
        base = self._folder.path / prefix
        try:
            names = sorted(os.listdir(base))
        except (FileNotFoundError, NotADirectoryError):
            return
        for name in names:
            if (base / name).is_symlink() and (base / name).is_dir():
                raise FileError(f"{shown_path(base / name)} is a link to a folder, which is not followed")
            yield name

    def _is_document(self, key: str) -> bool:
        return key.rpartition("/")[2] in _DOCUMENTS

    def _limit(self, key: str) -> int:
        if self._is_document(key):
            return MAX_DESCRIPTION
        folder = key
        while folder and folder not in self._most:
            folder = folder.rpartition("/")[0]
        return self._most.get(folder, 0)


def open_root(path: Path) -> tuple[FolderStore, Any]:
    """Open a folder that is an array or a group. Return its store, and the array or group."""
    store = FolderStore(path)
    return store, zarr.open(store, mode="r")
