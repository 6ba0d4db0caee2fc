"""Files at URLs such as ``s3://bucket/x.npy``, read in ranges through fsspec (the extra ``fsspec``).

A plan downloads only the ranges that it needs to its staging folder; see
:func:`splitops.files.extents.cover_byte_ranges`.
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
"""Protocols of local files."""
_THIS_MACHINE: Final = (*_HERE, "dir", "git", "jlocal", "libarchive", "reference", "tar", "zip")
"""Protocols for which fsspec reads local files."""
_CHANGES: Final = (
    *("size", "LastModified", "last_modified", "Last-Modified", "mtime", "created"),
    *("ETag", "etag", "Content-MD5", "VersionId"),
)
"""Fields of fsspec's file information that change when the contents of a file change."""
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:(/|$)")


def is_url(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is a URL.

    Examples:
        >>> [is_url(path) for path in ("s3://bucket/x.npy", Path("s3://bucket/x.npy"), "C:/x.npy")]
        [True, True, False]
    """
    return _URL.match(os.fspath(path)) is not None


def is_local_url(url: str) -> bool:
    """Return whether fsspec reads local files for a URL, or may do so because the URL is chained (``::``).

    Examples:
        >>> [is_local_url(url) for url in ("s3://b/x", "file:///x", "zip://x::file:///y.zip")]
        [False, True, True]
    """
    return "::" in url or url.partition(":")[0].lower() in _THIS_MACHINE


def format_url(path: str | os.PathLike[str]) -> str:
    """Return a URL with the slashes after its protocol restored: a Path keeps only one of them.

    Examples:
        >>> format_url(Path("s3://bucket/x.npy")), format_url("file:///x.npy")
        ('s3://bucket/x.npy', 'file:///x.npy')
    """
    protocol, _, rest = os.fspath(path).partition(":")
    return f"{protocol}://{'/' * (protocol in _HERE)}{rest.lstrip('/')}"


def format_location(path: str | os.PathLike[str]) -> str:
    """Return a path, or a URL without its password, as text for messages.

    Examples:
        >>> format_location(Path("s3://bucket/x.npy")), format_location(Path("x.npy"))
        ('s3://bucket/x.npy', 'x.npy')
    """
    return without_passwords(format_url(path)) if is_url(path) else os.fspath(path)


def resolve_target(path: str | os.PathLike[str]) -> Path:
    """Return the path of a target. The URL of a local file becomes a local path.

    Examples:
        >>> str(resolve_target("file:///parts/x.npy")), str(resolve_target("parts/x.npy"))
        ('/parts/x.npy', 'parts/x.npy')
    """
    protocol, _, rest = os.fspath(path).partition(":/")
    return Path("/" + rest.lstrip("/")) if is_url(path) and protocol in _HERE else Path(path)


def open_file_system(url: str, *, alone: bool = False) -> tuple[Any, str]:
    """Return fsspec's file system for a URL (a new instance with ``alone``), and the path in the file system.

    Raises:
        FileError: fsspec or the library for the protocol is not installed, or the URL cannot be reached.
    """
    try:
        import fsspec
    except ImportError as error:
        raise FileError(f"{url} is a URL, which needs fsspec: install splitops[fsspec]") from error
    with reading(url):
        options = web.make_options() if url.partition(":")[0] in web.PROTOCOLS else {}
        files, path = fsspec.core.url_to_fs(url, skip_instance_cache=alone, **options)
    return files, str(path)


class RemoteFile(Source):
    """A file at a URL."""

    def __init__(self, url: str | os.PathLike[str]) -> None:
        """Request the size of the file. Raise FileError if it does not exist or the size is unknown."""
        self.name = format_url(url)
        self.path = Path(self.name)
        self._files, self._path = open_file_system(self.name)
        self._web = self.name.partition(":")[0] in web.PROTOCOLS
        self._info = self._request_info()
        if self._info.get("type") != "file" or self._info.get("size") is None:
            raise FileError(f"{self.name} is not a file, or the server does not report its size")
        self.size = int(self._info["size"])

    def read(self, offset: int, size: int) -> bytes:
        """See :class:`splitops.files.sources.Source`."""
        if not size:
            return b""
        with reading(self.name):
            found = bytes(self._read_range(offset, offset + size))
        if len(found) > size:
            raise FileError(
                f"cannot read {self.name}: the server returned {len(found)} bytes instead of {size}. It may "
                "not support range requests: download the file first"
            )
        if len(found) < size:
            raise FileError(f"{self.name} ends at byte {offset + len(found)}, before its declared end")
        return found

    def read_identity(self) -> list[Any]:
        """Request the current size, times and tags of the file. Return a list of its URL and these values."""
        found = self._request_info()
        return [self.name, *(str(found.get(key)) for key in _CHANGES)]

    def _request_info(self) -> dict[str, Any]:
        """Request information about the file, bypassing the cache of fsspec."""
        self._files.invalidate_cache()
        with reading(self.name):
            ask = partial(self._files.info, self._path)
            found: dict[str, Any] = web.retry(self.name, ask) if self._web else ask()
        return found

    def _read_range(self, begin: int, end: int) -> Any:
        if not self._web:
            return self._files.cat_file(self._path, start=begin, end=end)
        ask = partial(web.read_range, self._files, self._path, self.name, begin, end)
        return web.retry(self.name, ask)
