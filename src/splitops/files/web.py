"""Ranges of files at ``http://`` and ``https://``: proved to be those that were asked for.

fsspec takes any answer for the range. A server that is busy is asked again, one that is silent ends the run.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

from splitops.errors import FileError, shown

PROTOCOLS: Final = ("http", "https")
SILENCE: Final = 60.0
"""Seconds after which a server that sends nothing has failed."""
_WAITS: Final = (0.5, 1.0, 2.0)
"""Seconds before each further attempt."""
_BUSY: Final = (429, 500, 502, 503, 504)
"""Answers after which the same question may succeed."""

_Found = TypeVar("_Found")


def options() -> dict[str, Any]:
    """Return what fsspec's file system is made with: the time after which a silent server has failed."""
    import aiohttp

    timeout = aiohttp.ClientTimeout(total=None, sock_connect=SILENCE, sock_read=SILENCE)
    return {"client_kwargs": {"timeout": timeout}}


def patiently(name: str, ask: Callable[[], _Found]) -> _Found:
    """Return the answer to a question about a file, asked again while the server is busy.

    Raises:
        FileError: the server sends nothing for :data:`SILENCE` seconds.
        Exception: what the last attempt raises.
    """
    for wait in (*_WAITS, None):
        try:
            return ask()
        except Exception as error:
            # fsspec says "not found" of all that fails when it asks for the size.
            reason = error.__cause__ if isinstance(error, FileNotFoundError) else error
            if isinstance(reason, TimeoutError):
                raise FileError(
                    f"cannot read {name}: the server has sent nothing for {SILENCE:g} seconds"
                ) from error
            if wait is None or not _passes(reason):
                raise
            time.sleep(wait)
    raise AssertionError  # the last attempt returns or raises


def _passes(error: BaseException | None) -> bool:
    import aiohttp

    broken = isinstance(error, (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError))
    return broken or getattr(error, "status", None) in _BUSY


def range_of(files: Any, path: str, name: str, begin: int, end: int) -> bytes:
    """Return the bytes of a file from ``begin`` to ``end``, through the file system of fsspec.

    Raises:
        FileError: the server sends another range, or knows none.
        Exception: as fsspec and aiohttp do.
    """
    from fsspec.asyn import sync

    found: bytes = sync(files.loop, _range_of, files, path, name, begin, end)
    return found


async def _range_of(files: Any, path: str, name: str, begin: int, end: int) -> bytes:
    session = await files.set_session()
    asked = {"Range": f"bytes={begin}-{end - 1}", "Accept-Encoding": "identity"}
    more = files.kwargs | {"headers": {**files.kwargs.get("headers", {}), **asked}}
    async with session.get(files.encode_url(path), **more) as answer:
        answer.raise_for_status()
        stated = answer.headers.get("Content-Range", "")
        # A server without ranges sends the file, which may be all that was asked for.
        all_of_it = begin == 0 and answer.headers.get("Content-Length") == str(end)
        if answer.status != 206 and not all_of_it:
            raise FileError(
                f"cannot read {name}: the server does not send ranges of bytes; download the file first"
            )
        if answer.status == 206 and not stated.startswith(f"bytes {begin}-{end - 1}/"):
            raise FileError(
                f"cannot read {name}: the server was asked for bytes {begin}-{end - 1}, and its answer is "
                f"for {shown(stated)}"
            )
        return bytes(await answer.read())
