"""Files at addresses such as ``s3://bucket/x.npy``: read by ranges through fsspec, the extra ``fsspec``.

Only what a plan needs is brought to the staging folder: see :func:`splitops.files.extents.stretches`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from splitops.errors import FileError
from splitops.files.sources import LocalFile, Stretch, copy_stretches, reading

__all__ = ["RemoteFile", "is_address"]

_BLOCK: Final = 8 << 20
"""Bytes of a request."""
_ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


def is_address(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is an address.

    Examples:
        >>> [is_address(path) for path in ("s3://bucket/x.npy", Path("s3://bucket/x.npy"), "C:/x.npy")]
        [True, True, False]
    """
    return _ADDRESS.match(os.fspath(path)) is not None


class RemoteFile:
    """A file at an address."""

    def __init__(self, address: str | os.PathLike[str]) -> None:
        """Find a file.

        Raises:
            FileError: it is not there, cannot be reached, or fsspec or the library for its kind of address is
                not installed.
        """
        protocol, _, rest = os.fspath(address).partition(":/")
        # A Path has one slash of them all; an address of this machine has three.
        self.name = f"{protocol}://{'/' * (protocol == 'file')}{rest.lstrip('/')}"
        self.path = Path(self.name)
        try:
            import fsspec
        except ImportError as error:
            raise FileError(
                f"{self.name} is an address, which needs fsspec: install splitops[fsspec]"
            ) from error
        with reading(self.name):
            self._files, self._path = fsspec.core.url_to_fs(self.name)
            self._info = self._files.info(self._path)
        if self._info.get("type") != "file" or self._info.get("size") is None:
            raise FileError(f"{self.name} is no file of a known size")
        self.size = int(self._info["size"])

    def read(self, offset: int, size: int) -> bytes:
        """See :class:`splitops.files.sources.Source`."""
        if not size:
            return b""
        with reading(self.name):
            found = bytes(self._files.cat_file(self._path, start=offset, end=offset + size))
        if len(found) != size:
            raise FileError(f"{self.name} ends at byte {offset + len(found)}, inside of what it states")
        return found

    def identity(self) -> list[Any]:
        """Return what the server says of the file: its size, its time of change, its tag."""
        self._files.invalidate_cache()
        with reading(self.name):
            found = self._files.info(self._path)
        keys = ("size", "LastModified", "last_modified", "mtime", "created", "ETag", "etag", "VersionId")
        return [self.name, *(str(found.get(key)) for key in keys)]

    def local(self) -> LocalFile | None:
        """Return None: its bytes must be brought here."""
        return None

    def copy_to(self, file: Any, stretches: Sequence[Stretch]) -> None:
        """See :class:`splitops.files.sources.Source`."""
        copy_stretches(self, file, stretches, _BLOCK)
