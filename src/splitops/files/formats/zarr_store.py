"""The store through which zarr-python reads a folder: regular files inside it, no larger than they can be."""

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

from splitops.errors import FileError, ModelError, shown, shown_path
from splitops.files.formats.zarr_chunks import MAX_DESCRIPTION, most_bytes, open_inside
from splitops.ground.documents import MAX_RANK, parse_json
from splitops.ground.reading import DataFolder, read_opened, read_range

_DOCUMENTS: Final = ("zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata")


class FolderStore(LocalStore):  # type: ignore[misc]
    """A folder, read-only. Chunks are read once their array is known, which says how large they may be."""

    def __init__(self, root: Path | str, *, read_only: bool = True) -> None:
        """Take the path of a folder."""
        super().__init__(root, read_only=read_only)
        self._folder = DataFolder(Path(root))
        self._most: dict[str, int] = {}

    def open_array(self, name: str) -> Any:
        """Open an array of the folder, whose chunks can then be read."""
        found = zarr.open_array(store=self, path=name, mode="r")
        self.allow(name, found)
        return found

    def allow(self, name: str, array: Any) -> None:
        """Let the chunks of an array be read.

        Raises:
            FileError: no array can be what it declares.
        """
        if len(array.shape) > MAX_RANK:
            raise FileError(f"{shown(name)} has rank {len(array.shape)}, more than the limit of {MAX_RANK}")
        if any(part in (".", "..") or "\\" in part for part in name.split("/")):
            raise FileError(f"{shown(name)} does not name an array inside the folder")
        self._most[name] = most_bytes(array)

    def get_sync(self, key: str, *, prototype: Any = None, byte_range: Any = None) -> Any:
        """Return the bytes of a file, or some of them; None if there is no such file."""
        buffer = (prototype or default_buffer_prototype()).buffer
        with open_inside(self._folder, key) as file:
            if file is None:
                return None
            if byte_range is None or self._is_document(key):
                path = self._folder.path / key
                try:
                    data = read_opened(file, path, limit=self._limit(key))
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
                    f"{shown_path(self._folder.path / key)}: {end - begin} bytes of it are needed, more than "
                    f"the {self._limit(key)} that its array can have"
                )
            return buffer.from_bytes(read_range(file, begin, max(0, end - begin)))

    async def get(self, key: str, prototype: Any = None, byte_range: Any = None) -> Any:
        """See :meth:`get_sync`."""
        return await asyncio.to_thread(self.get_sync, key, prototype=prototype, byte_range=byte_range)

    async def get_partial_values(self, prototype: Any, key_ranges: Iterable[tuple[str, Any]]) -> list[Any]:
        """See :meth:`get_sync`."""
        return [await self.get(key, prototype, byte_range) for key, byte_range in key_ranges]

    async def exists(self, key: str) -> bool:
        """Return whether there is such a file."""
        with open_inside(self._folder, key) as file:
            return file is not None

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """Yield the names in a folder of it.

        Raises:
            FileError: one is a link to a folder: it may lead back here, or out.
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
    """Open a folder: an array or a group."""
    store = FolderStore(path)
    return store, zarr.open(store, mode="r")
