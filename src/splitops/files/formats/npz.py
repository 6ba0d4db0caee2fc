"""The .npz format: a zip archive with one .npy file per member, stored or deflated.

Stored members are read in place. Deflated ones can only be read forwards, so they are inflated once, into the
staging folder. New files equal those of ``np.savez`` and ``np.savez_compressed``.

Source: PKWARE's APPNOTE.TXT, sections 4.3 and 4.5.
"""

from __future__ import annotations

import io
import shutil
import struct
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from splitops.errors import FileError, one_line, shown, shown_path
from splitops.files.formats import Contents, Layout, TargetFile, make_places
from splitops.files.formats.npy import adapt, encode_tensor_header, make_tensor, read_header
from splitops.files.sources import Source, SourceFile
from splitops.files.streams import Stream
from splitops.files.tensors import StoredTensor
from splitops.files.urls import format_location
from splitops.native.files import crc32

_LOCAL: Final = struct.Struct("<4s5H3L2H")
_BLOCK: Final = 1 << 20
_MAX_DIRECTORY: Final = 100_000_000
BROKEN: Final = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    OSError,
    struct.error,
    UnicodeDecodeError,
)
"""Exceptions of :mod:`zipfile` for damaged or hostile archives."""


class _Npz:
    name = "npz"
    suffixes = (".npz",)

    def read(self, source: Source) -> Contents:
        try:
            archive = zipfile.ZipFile(_Archive(source))  # stays open: streams read its members later
            members = archive.infolist()
            tensors, sources = _read_members(archive, source)
        except BROKEN as error:
            raise FileError(f"{source.name} is a malformed .npz: {one_line(str(error), 200)}") from error
        methods = {member.filename.removesuffix(".npy"): member.compress_type for member in members}
        return Contents(self, tuple(tensors), tuple(sources), {"methods": methods})

    def adapt(self, tensor: StoredTensor) -> StoredTensor:
        return adapt(tensor)

    def lay_out(self, tensors: Sequence[StoredTensor], like: Contents, name: str) -> Layout:
        methods: Mapping[str, int] = like.metadata.get("methods", {}) if like.format is self else {}
        members = []
        for tensor in tensors:
            if "\0" in tensor.name:
                raise FileError(f"{tensor.label} has a NUL in its name, which a zip archive cannot store")
            method = methods.get(tensor.name, zipfile.ZIP_STORED)
            members.append(_Member(tensor.name, encode_tensor_header(tensor), tensor.size, method))
        if any(member.method != zipfile.ZIP_STORED for member in members):
            return _lay_out_deflated(name, members)
        literals, offsets, entries, at = [], [], [], 0
        for member in members:
            entries.append(member.make_entry(at))
            head = entries[-1].FileHeader(zip64=True) + member.header
            literals.append((at, head))
            offsets.append(at + len(head))
            at += len(head) + member.data
        file = TargetFile(name, at + len(_build_directory(entries, at)), tuple(literals))
        return Layout(
            (file,),
            make_places((0, offset) for offset in offsets),
            partial(_finish_stored, members=members),
            _check,
        )


FORMAT: Final = _Npz()


class _Archive(SourceFile):
    """File object for ``zipfile`` that rejects a central directory of more than ``_MAX_DIRECTORY`` bytes."""

    def read(self, size: int = -1) -> bytes:
        if size > _MAX_DIRECTORY:
            raise zipfile.BadZipFile(
                f"its directory has {size} bytes, more than the limit of {_MAX_DIRECTORY}"
            )
        return super().read(size) or b""


def _read_members(archive: zipfile.ZipFile, source: Source) -> tuple[list[StoredTensor], list[Source]]:
    members = archive.infolist()
    tensors: list[StoredTensor] = []
    sources: list[Source] = [source]
    names: set[str] = set()
    end = 0
    for member in sorted(members, key=lambda member: member.header_offset):
        name = member.filename.removesuffix(".npy")
        if name in names:
            raise zipfile.BadZipFile(f"there is more than one array {shown(name)}")
        names.add(name)
        if member.flag_bits & 1:
            raise zipfile.BadZipFile(f"{shown(name)} is encrypted")
        if member.header_offset < end:
            raise zipfile.BadZipFile(f"{shown(name)} overlaps another member")
        start = _find_data_offset(member, source)
        end = start + member.compress_size
        if end > source.size:
            raise zipfile.BadZipFile(
                f"{shown(name)} ends at byte {end}, but the file has {source.size} bytes"
            )
        label = f"{format_location(source.path)}:{name}"
        if member.compress_type == zipfile.ZIP_STORED:
            head = source.read(start, min(member.compress_size, 10_012))
            header = read_header(io.BytesIO(head), label, member.compress_size)
            tensors.append(make_tensor(name, header, start + header.start))
        elif member.compress_type == zipfile.ZIP_DEFLATED:
            inflated = Stream(source, shown(label), partial(archive.open, member))
            head = inflated.read_beginning(10_012)
            inflated.set_declared_size(member.file_size, ends=True)
            header = read_header(io.BytesIO(head), label, member.file_size)
            tensors.append(make_tensor(name, header, header.start, len(sources)))
            sources.append(inflated)
        else:
            raise zipfile.BadZipFile(f"{shown(name)} has the unknown compression {member.compress_type}")
    order = {member.filename.removesuffix(".npy"): at for at, member in enumerate(members)}
    return sorted(tensors, key=lambda tensor: order[tensor.name]), sources


def _find_data_offset(member: zipfile.ZipInfo, source: Source) -> int:
    """Return the offset of a member's data: the end of its local header, whose length varies."""
    fields = _LOCAL.unpack(source.read(member.header_offset, _LOCAL.size))
    if fields[0] != b"PK\x03\x04":
        raise zipfile.BadZipFile(f"{shown(member.filename)} has no header at the offset in the directory")
    return member.header_offset + _LOCAL.size + int(fields[-2]) + int(fields[-1])


@dataclass(frozen=True, slots=True)
class _Member:
    """A member of a new archive: its .npy header, the bytes of its tensor (``data``) and its compression."""

    name: str
    header: bytes
    data: int
    method: int

    @property
    def size(self) -> int:
        return len(self.header) + self.data

    def make_entry(self, offset: int = 0, checksum: int = 0) -> zipfile.ZipInfo:
        """Make the directory entry of the member at ``offset``, as ``np.savez`` writes it."""
        entry = zipfile.ZipInfo(f"{self.name}.npy")
        entry.compress_type, entry.create_system, entry.external_attr = self.method, 3, 0o600 << 16
        entry.file_size = entry.compress_size = self.size
        entry.header_offset, entry.CRC = offset, checksum
        return entry


class _TailFile(io.BytesIO):
    """In-memory file with the end of an archive. Its positions begin at ``start``."""

    def __init__(self, start: int) -> None:
        super().__init__()
        self._start = start

    def tell(self) -> int:
        return self._start + super().tell()

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        raise io.UnsupportedOperation


def _build_directory(entries: Sequence[zipfile.ZipInfo], at: int) -> bytes:
    """Return the central directory of an archive, which begins at offset ``at``."""
    file = _TailFile(at)
    with zipfile.ZipFile(file, "w") as archive:
        archive.filelist.extend(entries)
    return file.getvalue()


def _finish_stored(paths: Sequence[Path], members: Sequence[_Member]) -> None:
    """Write the checksums of the members into their headers, and the directory."""
    entries: list[zipfile.ZipInfo] = []
    at = 0
    with paths[0].open("r+b") as file:
        for member in members:
            start = at + len(member.make_entry().FileHeader(zip64=True))
            file.seek(start)
            checksum = 0
            for begin in range(0, member.size, _BLOCK):
                block = file.read(min(_BLOCK, member.size - begin))
                checksum = crc32(np.frombuffer(block, np.uint8), checksum)
            entries.append(member.make_entry(at, checksum))
            file.seek(at)
            file.write(entries[-1].FileHeader(zip64=True))
            at = start + member.size
        file.seek(at)
        file.write(_build_directory(entries, at))
        file.truncate()


def _lay_out_deflated(name: str, members: Sequence[_Member]) -> Layout:
    """Lay out an archive with deflated members. Each tensor is first copied to a scratch file."""
    files = [TargetFile(name, 0)]
    for index, member in enumerate(members):
        files.append(TargetFile(f".{name}.{index}", member.size, ((0, member.header),), scratch=True))
    made = make_places((1 + index, len(member.header)) for index, member in enumerate(members))
    return Layout(tuple(files), made, partial(_finish_deflated, members=members), _check)


def _finish_deflated(paths: Sequence[Path], members: Sequence[_Member]) -> None:
    with zipfile.ZipFile(paths[0], "w") as archive:
        for member, path in zip(members, paths[1:], strict=True):
            with path.open("rb") as data, archive.open(member.make_entry(), "w", force_zip64=True) as target:
                shutil.copyfileobj(data, target, _BLOCK)


def _check(paths: Sequence[Path]) -> None:
    """Check the checksums of all members by unpacking them. Raise FileError if one is wrong."""
    name = shown_path(paths[0].name)
    try:
        with zipfile.ZipFile(paths[0]) as archive:
            damaged = archive.testzip()
    except BROKEN as error:
        reason = one_line(str(error), 200)
        raise FileError(f"{name} does not read back as it was written: {reason}") from error
    if damaged is not None:
        raise FileError(f"{name} does not read back as it was written, in {shown(damaged)}")
