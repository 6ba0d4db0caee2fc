"""Files of SHA-256 checksums, as ``sha256sum`` reads and writes them, and checks of files against them."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from splitops.errors import FileError, ModelError, shown, shown_path
from splitops.files.addresses import RemoteFile, address_of, is_address, reads_this_machine
from splitops.files.sources import LocalFile, Source
from splitops.ground.reading import DataFolder, read_whole

_MOST: Final = 64 << 20
"""The most bytes that such a file may have."""
_LINE: Final = re.compile(r"(\\?)([0-9a-fA-F]{64}) [ *](.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Checked:
    """A file that has been read again, by the name in its line, and what is wrong with it."""

    name: str
    problem: str | None = None


def digest_of(file: Source) -> str:
    """Return the SHA-256 of the bytes of a file."""
    digest = hashlib.sha256()
    for block in file.blocks(0, file.size):
        digest.update(block)
    return digest.hexdigest()


def lines(digests: Mapping[Path, str], folder: Path) -> bytes:
    """Return what a file of checksums in a folder says of files by their paths or addresses.

    Examples:
        >>> lines({Path("parts/x.npy"): "0" * 64}, Path("parts")).decode().endswith("0  x.npy\\n")
        True
    """
    return b"".join(_line(path, digest, folder) for path, digest in digests.items())


def _line(path: Path, digest: str, folder: Path) -> bytes:
    name = address_of(path) if is_address(path) else os.path.relpath(path, folder)
    escaped = name.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return os.fsencode(f"{'' if escaped == name else chr(92)}{digest}  {escaped}\n")


def check(path: Path, *, allow_links: bool = False) -> Iterator[Checked]:
    """Read every file again that a file of checksums names, seen from its folder, and yield the results.

    Args:
        path: the file of checksums.
        allow_links: whether its names and links may lead out of its folder. An address on another machine
            is read without it, one that reads files of this machine is not.

    Raises:
        FileError: it cannot be read, or has a line that is not of ``sha256sum``.
    """
    try:
        content = read_whole(path, limit=_MOST)
    except ModelError as error:
        raise FileError(error.message) from error
    found = [_read(line, number, path) for number, line in enumerate(content.split(b"\n"), 1) if line]
    if not found:
        raise FileError(f"{shown_path(path)} has no checksums")
    for name, wanted in found:
        try:
            digest = digest_of(_opened(name, path.parent, allow_links))
        except FileError as error:
            yield Checked(name, error.message)
            continue
        same = digest == wanted
        yield Checked(name, None if same else f"its SHA-256 is {digest}, and not {wanted}")


def _opened(name: str, folder: Path, allow_links: bool) -> Source:
    if is_address(name) and (allow_links or not reads_this_machine(name)):
        return RemoteFile(name)
    return LocalFile(folder / name) if allow_links else LocalFile(name, DataFolder(folder))


def _read(line: bytes, number: int, path: Path) -> tuple[str, str]:
    """Return the name and the digest of a line."""
    found = _LINE.fullmatch(os.fsdecode(line).removesuffix("\r"))
    if found is None or "\0" in found[3]:
        said = f"{shown(os.fsdecode(line))} is not a SHA-256 with the name of a file"
        raise FileError(f"{shown_path(path)}, line {number}: {said}")
    name = found[3]
    if found[1]:
        name = re.sub(r"\\([\\nr])", lambda each: {"n": "\n", "r": "\r"}.get(each[1], "\\"), name)
    return name, found[2].lower()
