"""SHA-256 checksum files in the format of ``sha256sum``: write them, and check files against them."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from splitops.common.untrusted_files import DataFolder, read_bounded
from splitops.errors import FileError, ModelError, shown, shown_path
from splitops.files.sources import LocalFile, Source
from splitops.files.urls import RemoteFile, format_url, is_local_url, is_url

_MAX_BYTES: Final = 64 << 20
"""Maximum size of a checksum file in bytes."""
_LINE: Final = re.compile(r"(\\?)([0-9a-fA-F]{64}) [ *](.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Checked:
    """The result for a file: its name in the checksum file, and its problem, or None if it is unchanged."""

    name: str
    problem: str | None = None


def compute_sha256(file: Source) -> str:
    """Compute the SHA-256 of the bytes of a file, in hexadecimal."""
    digest = hashlib.sha256()
    for block in file.iter_blocks(0, file.size):
        digest.update(block)
    return digest.hexdigest()


def format_lines(digests: Mapping[Path, str], folder: Path) -> bytes:
    """Format the lines of a checksum file in ``folder``. Local paths become relative to this folder.

    Examples:
        >>> format_lines({Path("parts/x.npy"): "0" * 64}, Path("parts")).decode().endswith("0  x.npy\\n")
        True
    """
    return b"".join(_format_line(path, digest, folder) for path, digest in digests.items())


def _format_line(path: Path, digest: str, folder: Path) -> bytes:
    name = format_url(path) if is_url(path) else os.path.relpath(path, folder)
    escaped = name.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return os.fsencode(f"{'' if escaped == name else chr(92)}{digest}  {escaped}\n")


def check(path: Path, *, allow_links: bool = False) -> Iterator[Checked]:
    """Check every file that a checksum file lists, and yield the result for each.

    Args:
        path: the checksum file; the file names in it are relative to its folder.
        allow_links: whether names and links may lead out of its folder. URLs of files on this machine are
            read only then. Other URLs are always read.

    Raises:
        FileError: the checksum file is empty, cannot be read, or has a line in another format.
    """
    try:
        content = read_bounded(path, limit=_MAX_BYTES)
    except ModelError as error:
        raise FileError(error.message) from error
    found = [_read(line, number, path) for number, line in enumerate(content.split(b"\n"), 1) if line]
    if not found:
        raise FileError(f"{shown_path(path)} has no checksums")
    for name, wanted in found:
        try:
            digest = compute_sha256(_open_file(name, path.parent, allow_links))
        except FileError as error:
            yield Checked(name, error.message)
            continue
        same = digest == wanted
        yield Checked(name, None if same else f"its SHA-256 is {digest}, not {wanted}")


def _open_file(name: str, folder: Path, allow_links: bool) -> Source:
    if is_url(name) and (allow_links or not is_local_url(name)):
        return RemoteFile(name)
    return LocalFile(folder / name) if allow_links else LocalFile(name, DataFolder(folder))


def _read(line: bytes, number: int, path: Path) -> tuple[str, str]:
    """Parse a line. Return the file name and the digest."""
    found = _LINE.fullmatch(os.fsdecode(line).removesuffix("\r"))
    if found is None or "\0" in found[3]:
        said = f"{shown(os.fsdecode(line))} is not a SHA-256 followed by a file name"
        raise FileError(f"{shown_path(path)}, line {number}: {said}")
    name = found[3]
    if found[1]:
        name = re.sub(r"\\([\\nr])", lambda each: {"n": "\n", "r": "\r"}.get(each[1], "\\"), name)
    return name, found[2].lower()
