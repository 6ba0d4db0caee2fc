"""Range requests for files at ``http://`` and ``https://``, with retries and a check of the returned range.

fsspec would accept any response as the requested range.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

from splitops.errors import FileError, shown

PROTOCOLS: Final = ("http", "https")
SILENCE: Final = 60.0
"""Seconds without data after which a request fails."""
_WAITS: Final = (0.5, 1.0, 2.0)
"""Seconds to wait before each retry."""
_BUSY: Final = (429, 500, 502, 503, 504)
"""HTTP status codes after which a retry may succeed."""

_Found = TypeVar("_Found")


def make_options() -> dict[str, Any]:
    """Return the options of fsspec's HTTP file system: its timeouts."""
    import aiohttp

    timeout = aiohttp.ClientTimeout(total=None, sock_connect=SILENCE, sock_read=SILENCE)
    return {"client_kwargs": {"timeout": timeout}}


def retry(name: str, ask: Callable[[], _Found]) -> _Found:
    """Call ``ask`` and return its result. Retry after temporary failures, such as a busy server.

    Raises:
        FileError: the server sends nothing for :data:`SILENCE` seconds.
        Exception: the error of the last attempt.
    """
    for wait in (*_WAITS, None):
        try:
            return ask()
        except Exception as error:
            # fsspec reports every failure of the size request as "not found".
            reason = error.__cause__ if isinstance(error, FileNotFoundError) else error
            if isinstance(reason, TimeoutError):
                raise FileError(
                    f"cannot read {name}: the server has sent nothing for {SILENCE:g} seconds"
                ) from error
            if wait is None or not _is_temporary(reason):
                raise
            time.sleep(wait)
    raise AssertionError  # the last attempt returns or raises


def _is_temporary(error: BaseException | None) -> bool:
    import aiohttp

    broken = isinstance(error, (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError))
    return broken or getattr(error, "status", None) in _BUSY


def read_range(files: Any, path: str, name: str, begin: int, end: int) -> bytes:
    """Request the bytes of a file from ``begin`` to ``end`` (exclusive) through fsspec's file system.

    Raises:
        FileError: the server returns another range, or does not support range requests.
        Exception: other errors of fsspec and aiohttp.
    """
    from fsspec.asyn import sync

    found: bytes = sync(files.loop, _request_range, files, path, name, begin, end)
    return found


async def _request_range(files: Any, path: str, name: str, begin: int, end: int) -> bytes:
    session = await files.set_session()
    asked = {"Range": f"bytes={begin}-{end - 1}", "Accept-Encoding": "identity"}
    more = files.kwargs | {"headers": {**files.kwargs.get("headers", {}), **asked}}
    async with session.get(files.encode_url(path), **more) as answer:
        answer.raise_for_status()
        stated = answer.headers.get("Content-Range", "")
        # A server without range requests sends the whole file, which may be the requested range.
        all_of_it = begin == 0 and answer.headers.get("Content-Length") == str(end)
        if answer.status != 206 and not all_of_it:
            raise FileError(
                f"cannot read {name}: the server does not support range requests. Download the file first"
            )
        if answer.status == 206 and not stated.startswith(f"bytes {begin}-{end - 1}/"):
            raise FileError(
                f"cannot read {name}: the server returned {shown(stated)} instead of bytes {begin}-{end - 1}"
            )
        return bytes(await answer.read())
