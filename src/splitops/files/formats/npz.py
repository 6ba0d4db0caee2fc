"""npz: a zip archive with a .npy file a member, stored or deflated.

Stored members are read where they lie. Deflated ones can only be read forwards: they are inflated once,
into the staging folder. New files are what ``np.savez`` and ``np.savez_compressed`` write.

Source: PKWARE's APPNOTE.TXT, sections 4.3 and 4.5.
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, Final

import numpy as np

from splitops.errors import FileError, one_line, shown, shown_path
from splitops.files.addresses import written
from splitops.files.formats import Contents, Layout, Place, TargetFile
from splitops.files.formats.npy import header_of, read_header, stored, taken
from splitops.files.sources import LocalFile, Source, SourceFile, Stretch
from splitops.files.tensors import StoredTensor
from splitops.native.files import crc32

_LOCAL: Final = struct.Struct("<4s5H3L2H")
_CENTRAL: Final = struct.Struct("<4s6H3L5H2L")
_END: Final = struct.Struct("<4s4H2LH")
_END_64: Final = struct.Struct("<4sQ2H2L4Q")
_LOCATOR_64: Final = struct.Struct("<4sLQL")
_LIMIT: Final = (1 << 31) - 1
"""From here on, and not at the format's own 2^32, zipfile says a number in 64 bits."""
_EPOCH: Final = 0x21
"""1980-01-01, the date of zip files that sets none."""
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
"""What :mod:`zipfile` raises of an archive that is damaged or lies."""


class _Npz:
    name = "npz"
    suffixes = (".npz",)

    def read(self, source: Source) -> Contents:
        try:
            with zipfile.ZipFile(_Archive(source)) as archive:
                members = archive.infolist()
                tensors, sources = _tensors(members, source)
        except BROKEN as error:
            raise FileError(f"{source.name} is a malformed .npz: {one_line(str(error), 200)}") from error
        methods = {member.filename.removesuffix(".npy"): member.compress_type for member in members}
        return Contents(self, tuple(tensors), tuple(sources), {"methods": methods})

    def taken(self, tensor: StoredTensor) -> StoredTensor:
        return taken(tensor)

    def lay_out(self, tensors: Sequence[StoredTensor], like: Contents, name: str) -> Layout:
        methods: Mapping[str, int] = like.metadata.get("methods", {}) if like.format is self else {}
        members = []
        for tensor in tensors:
            if "\0" in tensor.name:
                raise FileError(f"{tensor.label} has a NUL in its name, where names in a zip archive end")
            method = methods.get(tensor.name, zipfile.ZIP_STORED)
            members.append(_Member(f"{tensor.name}.npy".encode(), header_of(tensor), tensor.size, method))
        if any(member.method != zipfile.ZIP_STORED for member in members):
            return _deflated_layout(name, members)
        literals, places, at = [], [], 0
        for member in members:
            literals.append((at, member.local(0, member.size) + member.header))
            at += member.local_bytes
            places.append(Place(0, at + len(member.header)))
            at += member.size
        directory = sum(_CENTRAL.size + len(m.name) + (28 if m.needs_64(m.size, at) else 0) for m in members)
        end = _end(len(members), directory, at)
        file = TargetFile(name, at + directory + len(end), tuple(literals))
        return Layout((file,), tuple(places), partial(_finish_stored, members=members, at=at), _check)


FORMAT: Final = _Npz()


class _Archive(SourceFile):
    """An archive whose directory is read at once, if it is no longer than a directory can well be."""

    def read(self, size: int = -1) -> bytes:
        if size > _MAX_DIRECTORY:
            raise zipfile.BadZipFile(
                f"its directory would have {size} bytes; {_MAX_DIRECTORY} are read at most"
            )
        return super().read(size) or b""


def _tensors(members: Sequence[zipfile.ZipInfo], source: Source) -> tuple[list[StoredTensor], list[Source]]:
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
            raise zipfile.BadZipFile(f"{shown(name)} lies over another member")
        start = _data_offset(member, source)
        end = start + member.compress_size
        if end > source.size:
            raise zipfile.BadZipFile(f"{shown(name)} ends at byte {end}, but the file has {source.size}")
        label = f"{written(source.path)}:{name}"
        if member.compress_type == zipfile.ZIP_STORED:
            head = source.read(start, min(member.compress_size, 10_012))
            header = read_header(io.BytesIO(head), label, member.compress_size)
            tensors.append(stored(name, header, start + header.start))
        elif member.compress_type == zipfile.ZIP_DEFLATED:
            inflated = _Inflated(source, start, member.compress_size, member.file_size, member.CRC, label)
            header = read_header(
                io.BytesIO(inflated.read(0, min(member.file_size, 10_012))), label, member.file_size
            )
            tensors.append(stored(name, header, header.start, len(sources)))
            sources.append(inflated)
        else:
            raise zipfile.BadZipFile(f"{shown(name)} is compressed in way {member.compress_type}")
    order = {member.filename.removesuffix(".npy"): at for at, member in enumerate(members)}
    return sorted(tensors, key=lambda tensor: order[tensor.name]), sources


def _data_offset(member: zipfile.ZipInfo, source: Source) -> int:
    """Return where a member's bytes begin: its own header says how long that is, not the directory."""
    fields = _LOCAL.unpack(source.read(member.header_offset, _LOCAL.size))
    if fields[0] != b"PK\x03\x04":
        raise zipfile.BadZipFile(f"{shown(member.filename)} has no header where the directory says")
    return member.header_offset + _LOCAL.size + int(fields[-2]) + int(fields[-1])


@dataclass(frozen=True, slots=True)
class _Inflated:
    """A deflated member, as a source that is read forwards."""

    archive: Source
    start: int
    compressed: int
    size: int
    checksum: int
    name: str

    @property
    def path(self) -> Path:
        return self.archive.path

    def read(self, offset: int, size: int) -> bytes:
        found, at = bytearray(), 0
        for block in self._blocks():
            found += block[max(0, offset - at) : max(0, offset + size - at)]
            at += len(block)
            if at >= offset + size:
                return bytes(found)
        raise FileError(f"{shown(self.name)} ends at byte {at}, before its declared end")

    def identity(self) -> list[Any]:
        return [*self.archive.identity(), self.start]

    def local(self) -> LocalFile | None:
        return None

    def copy_to(self, file: Any, stretches: Sequence[Stretch]) -> None:
        checksum = 0
        for block in self._blocks():
            checksum = zlib.crc32(block, checksum)
            file.write(block)
        if checksum != self.checksum:
            raise FileError(
                f"{shown(self.name)}: its bytes have CRC-32 {checksum:08x}, not {self.checksum:08x}"
            )

    def _blocks(self) -> Iterator[bytes]:
        inflate = zlib.decompressobj(-zlib.MAX_WBITS)
        at, done = 0, 0
        try:
            while not inflate.eof and done < self.size:
                data = inflate.unconsumed_tail
                if not data:
                    if at == self.compressed:
                        break
                    data = self.archive.read(self.start + at, min(_BLOCK, self.compressed - at))
                    at += len(data)
                block = inflate.decompress(data, min(_BLOCK, self.size - done))
                done += len(block)
                yield block
        except zlib.error as error:
            raise FileError(f"{shown(self.name)} cannot be inflated: {one_line(str(error), 200)}") from error
        if done != self.size:
            raise FileError(
                f"{shown(self.name)} inflates to {done} bytes, not to the {self.size} that it declares"
            )


@dataclass(frozen=True, slots=True)
class _Member:
    """A member of a new archive, as np.savez writes them: sizes in 64 bits in the header before it."""

    name: bytes
    header: bytes
    """Of the .npy file."""
    data: int
    """Bytes of its tensor."""
    method: int

    @property
    def size(self) -> int:
        return len(self.header) + self.data

    @property
    def local_bytes(self) -> int:
        return _LOCAL.size + len(self.name) + 20

    @property
    def flags(self) -> int:
        return 0 if self.name.isascii() else 0x800

    def local(self, checksum: int, compressed: int) -> bytes:
        fixed = (b"PK\x03\x04", 45, self.flags, self.method, 0, _EPOCH, checksum, 0xFFFFFFFF, 0xFFFFFFFF)
        extra = struct.pack("<2H2Q", 1, 16, self.size, compressed)
        return _LOCAL.pack(*fixed, len(self.name), len(extra)) + self.name + extra

    def needs_64(self, compressed: int, offset: int) -> bool:
        return max(self.size, compressed, offset) > _LIMIT

    def central(self, checksum: int, compressed: int, offset: int) -> bytes:
        numbers, sizes, place = [], [compressed, self.size], offset
        if max(sizes) > _LIMIT:
            numbers, sizes = [self.size, compressed], [0xFFFFFFFF, 0xFFFFFFFF]
        if offset > _LIMIT:
            numbers.append(offset)
            place = 0xFFFFFFFF
        extra = struct.pack(f"<2H{len(numbers)}Q", 1, 8 * len(numbers), *numbers) if numbers else b""
        fixed = (b"PK\x01\x02", 45 | 3 << 8, 45, self.flags, self.method, 0, _EPOCH, checksum, *sizes)
        lengths = (len(self.name), len(extra), 0, 0, 0)
        return _CENTRAL.pack(*fixed, *lengths, 0o600 << 16, place) + self.name + extra


def _end(count: int, size: int, offset: int) -> bytes:
    """Return what follows the directory of a zip archive."""
    made = b""
    if count >= 0xFFFF or offset > _LIMIT or size > _LIMIT:
        made = _END_64.pack(b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, size, offset)
        made += _LOCATOR_64.pack(b"PK\x06\x07", 0, offset + size, 1)
        count, size, offset = min(count, 0xFFFF), min(size, 0xFFFFFFFF), min(offset, 0xFFFFFFFF)
    return made + _END.pack(b"PK\x05\x06", 0, 0, count, count, size, offset, 0)


def _finish_stored(paths: Sequence[Path], members: Sequence[_Member], at: int) -> None:
    """Write the checksums of the members and the directory."""
    directory, offset = b"", 0
    with paths[0].open("r+b") as file:
        for member in members:
            file.seek(offset + member.local_bytes)
            checksum = 0
            for _, block in _blocks_of(file, member.size):
                checksum = crc32(block, checksum)
            file.seek(offset)
            file.write(member.local(checksum, member.size))
            directory += member.central(checksum, member.size, offset)
            offset += member.local_bytes + member.size
        file.seek(at)
        file.write(directory + _end(len(members), len(directory), at))
        file.truncate()


def _deflated_layout(name: str, members: Sequence[_Member]) -> Layout:
    """Each tensor goes to a scratch file of its own and is deflated from there."""
    files = [TargetFile(name, 0)]
    for index, member in enumerate(members):
        files.append(TargetFile(f".{name}.{index}", member.size, ((0, member.header),), scratch=True))
    places = tuple(Place(1 + index, len(member.header)) for index, member in enumerate(members))
    return Layout(tuple(files), places, partial(_finish_deflated, members=members), _check)


def _finish_deflated(paths: Sequence[Path], members: Sequence[_Member]) -> None:
    directory = b""
    with paths[0].open("r+b") as file:
        file.truncate()
        for member, path in zip(members, paths[1:], strict=True):
            offset = file.tell()
            file.write(bytes(member.local_bytes))
            deflate = zlib.compressobj(-1, zlib.DEFLATED, -zlib.MAX_WBITS)
            checksum = 0
            with path.open("rb") as scratch:
                for data, block in _blocks_of(scratch, member.size):
                    checksum = crc32(block, checksum)
                    file.write(deflate.compress(data) if member.method == zipfile.ZIP_DEFLATED else data)
            if member.method == zipfile.ZIP_DEFLATED:
                file.write(deflate.flush())
            end = file.tell()
            compressed = end - offset - member.local_bytes
            file.seek(offset)
            file.write(member.local(checksum, compressed))
            file.seek(end)
            directory += member.central(checksum, compressed, offset)
        at = file.tell()
        file.write(directory + _end(len(members), len(directory), at))


def _check(paths: Sequence[Path]) -> None:
    """Unpack all members; their checksums are of the bytes that they were made from."""
    name = shown_path(paths[0].name)
    try:
        with zipfile.ZipFile(paths[0]) as archive:
            damaged = archive.testzip()
    except BROKEN as error:
        reason = one_line(str(error), 200)
        raise FileError(f"{name} does not read back as it was written: {reason}") from error
    if damaged is not None:
        raise FileError(f"{name} does not read back as it was written, in {shown(damaged)}")


def _blocks_of(file: IO[bytes], size: int) -> Iterator[tuple[bytes, Any]]:
    for at in range(0, size, _BLOCK):
        data = file.read(min(_BLOCK, size - at))
        yield data, np.frombuffer(data, np.uint8)
