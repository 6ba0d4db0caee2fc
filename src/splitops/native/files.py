"""Copies of extents between files, and their checksums: compiled with the core, otherwise in Python.

A copy is a list of passes, which have lanes and moves. A lane is a series of equally spaced rows of bytes in
a file. A move copies columns of a source lane to columns of a target lane. The tables have 64-bit integers:

- passes: rows, rows per block (read, moved and written at a time).
- sources, targets: pass, file (index of the descriptor), base (offset of the first row), used (bytes of a
  row), stride (distance between rows).
- moves: source lane, source column, target lane, target column, run.

Lanes and moves are in the order of the passes. The moves of a target lane leave no gap in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from splitops import native
from splitops.native import file_fallback

_implementation = file_fallback
if not TYPE_CHECKING and native.available:
    from splitops.native import _core as _implementation

copy_extents = _implementation.copy_extents
"""``copy_extents(passes, sources, targets, moves, source_files, target_files, threads, tick)``.

Executes the passes with at most ``threads`` threads. Every 50 ms or later, ``tick(bytes)`` is called in the
caller's thread with the number of bytes so far; an exception that it raises stops the copy and is raised
again. If ``target_files`` is None, nothing is written, and the bytes are only read for their checksums.
Nothing outside the lanes is written.

Returns the CRC-32 of each move, row after row, and None; or no checksums and the first failure ``(writing,
file, offset, errno)``. ``errno`` is 0 if a source ended early.

Raises ValueError if the tables are not consistent. Nothing is read or written then.
"""

crc32 = _implementation.crc32
"""``crc32(data, before=0)``: zlib's checksum of a one-dimensional uint8 array. It continues ``before``, the
checksum of preceding bytes.
"""

read_header = _implementation.read_header
"""``read_header(text, bits, start)``: parse a safetensors header in the form that its usual writers produce.

``bits`` are the bits per element of each type; ``start`` is the offset of the tensors' bytes.

Returns columns in the order of the bytes: names (which may repeat), shapes, types, offsets and sizes; then
the metadata as unparsed JSON, or None. Returns None if anything in the header is unusual or wrong, and always
without the core. The caller must then parse the header in Python.
"""

sync_files = _implementation.sync_files
"""``sync_files(files)``: flush descriptors to disk; returns 0 or an errno."""
