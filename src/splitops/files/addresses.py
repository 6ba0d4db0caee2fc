"""Files at addresses such as ``s3://bucket/x.npy``: read by ranges through fsspec, the extra ``fsspec``.

Only what a plan needs is brought to the staging folder: see :func:`splitops.files.extents.stretches`.
"""

from __future__ import annotations

import os
import re
from functools import partial
from pathlib import Path
from typing import Any, Final

from splitops.errors import FileError, without_passwords
from splitops.files import web
from splitops.files.sources import Source, reading

_HERE: Final = ("file", "local")
"""What addresses of this machine begin with."""
_THIS_MACHINE: Final = (*_HERE, "dir", "git", "jlocal", "libarchive", "reference", "tar", "zip")
"""What addresses begin with for which fsspec reads files of this machine."""
_CHANGES: Final = (
    *("size", "LastModified", "last_modified", "Last-Modified", "mtime", "created"),
    *("ETag", "etag", "Content-MD5", "VersionId"),
)
"""What file systems of fsspec say of a file that changes with its contents."""
_ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:(/|$)")


def is_address(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is an address.

    Examples:
        >>> [is_address(path) for path in ("s3://bucket/x.npy", Path("s3://bucket/x.npy"), "C:/x.npy")]
        [True, True, False]
    """
    return _ADDRESS.match(os.fspath(path)) is not None


def reads_this_machine(address: str) -> bool:
    """Return whether fsspec reads files of this machine for an address, or might in a chain of addresses.

    Examples:
        >>> [reads_this_machine(address) for address in ("s3://b/x", "file:///x", "zip://x::file:///y.zip")]
        [False, True, True]
    """
    return "::" in address or address.partition(":")[0].lower() in _THIS_MACHINE


def address_of(path: str | os.PathLike[str]) -> str:
    """Return an address as it is written: a Path has one slash of them all, an address of this machine three.

    Examples:
        >>> address_of(Path("s3://bucket/x.npy")), address_of("file:///x.npy")
        ('s3://bucket/x.npy', 'file:///x.npy')
    """
    protocol, _, rest = os.fspath(path).partition(":")
    return f"{protocol}://{'/' * (protocol in _HERE)}{rest.lstrip('/')}"


def written(path: str | os.PathLike[str]) -> str:
    """Return a path, or an address as it is written, without its password.

    Examples:
        >>> written(Path("s3://bucket/x.npy")), written(Path("x.npy"))
        ('s3://bucket/x.npy', 'x.npy')
    """
    return without_passwords(address_of(path)) if is_address(path) else os.fspath(path)


def target_path(path: str | os.PathLike[str]) -> Path:
    """Return where a target goes: an address of this machine is the path of a file like any other.

    Examples:
        >>> str(target_path("file:///parts/x.npy")), str(target_path("parts/x.npy"))
        ('/parts/x.npy', 'parts/x.npy')
    """
    protocol, _, rest = os.fspath(path).partition(":/")
    return Path("/" + rest.lstrip("/")) if is_address(path) and protocol in _HERE else Path(path)


def file_system(address: str, *, alone: bool = False) -> tuple[Any, str]:
    """Return fsspec's file system for an address, alone or shared, and the path in it.

    Raises:
        FileError: fsspec or the library for the kind of address is not installed, or it cannot be reached.
    """
    try:
        import fsspec
    except ImportError as error:
        raise FileError(f"{address} is an address, which needs fsspec: install splitops[fsspec]") from error
    with reading(address):
        options = web.options() if address.partition(":")[0] in web.PROTOCOLS else {}
        files, path = fsspec.core.url_to_fs(address, skip_instance_cache=alone, **options)
    return files, str(path)


class RemoteFile(Source):
    """A file at an address."""

    def __init__(self, address: str | os.PathLike[str]) -> None:
        """Find a file of a known size."""
        self.name = address_of(address)
        self.path = Path(self.name)
        self._files, self._path = file_system(self.name)
        self._web = self.name.partition(":")[0] in web.PROTOCOLS
        self._info = self._asked()
        if self._info.get("type") != "file" or self._info.get("size") is None:
            raise FileError(f"{self.name} is not a file of a known size")
        self.size = int(self._info["size"])

    def read(self, offset: int, size: int) -> bytes:
        """See :class:`splitops.files.sources.Source`."""
        if not size:
            return b""
        with reading(self.name):
            found = bytes(self._range(offset, offset + size))
        if len(found) > size:
            raise FileError(
                f"cannot read {self.name}: {len(found)} bytes came where {size} were asked for; its server "
                "may not send ranges of bytes: download the file first"
            )
        if len(found) < size:
            raise FileError(f"{self.name} ends at byte {offset + len(found)}, before its declared end")
        return found

    def identity(self) -> list[Any]:
        """Return what the server says of the file: its size, its time of change, its tag."""
        found = self._asked()
        return [self.name, *(str(found.get(key)) for key in _CHANGES)]

    def _asked(self) -> dict[str, Any]:
        """Return what the server says of the file now."""
        self._files.invalidate_cache()
        with reading(self.name):
            ask = partial(self._files.info, self._path)
            found: dict[str, Any] = web.patiently(self.name, ask) if self._web else ask()
        return found

    def _range(self, begin: int, end: int) -> Any:
        if not self._web:
            return self._files.cat_file(self._path, start=begin, end=end)
        ask = partial(web.range_of, self._files, self._path, self.name, begin, end)
        return web.patiently(self.name, ask)
