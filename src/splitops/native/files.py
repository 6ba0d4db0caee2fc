"""Copying extents between files, and their checksums: compiled where the core is, in Python elsewhere.

A copy is a list of passes. The lanes of a pass are rows of bytes, equally spaced in one file each; its moves
say which columns of the lanes that are read go to which columns of the lanes that are written. All tables are
64-bit integers:

- passes: rows, rows of a block (what is read, moved and written at a time).
- sources, targets: pass, file (its position among the descriptors), base, used, stride.
- moves: source lane, source column, target lane, target column, run.

Lanes and moves are in the order of the passes; the moves of a target lane leave no gap in it.
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

Does the passes with at most so many threads, and calls ``tick(bytes)`` from this thread now and then; what
that raises ends the copy and is raised again. ``target_files`` is None where nothing is to be written: the
bytes are read for their checksums. Nothing outside of the lanes is written.

Returns the CRC-32 of each move, row after row, and None; or no checksums and the first failure:
``(writing, file, offset, errno)``, with 0 for ``errno`` where a source ended too early.

Raises ValueError for tables that are not consistent; nothing is read or written then.
"""

crc32 = _implementation.crc32
"""``crc32(data, before=0)``: zlib's checksum of a one-dimensional uint8 array behind what gave ``before``."""

read_header = _implementation.read_header
"""``read_header(text, bits, start)``: the header of a safetensors file, as its usual writers write it.

``bits`` are those of an element of each type; ``start`` is where the tensors' bytes begin.

Returns columns in the order of the bytes: names, which may repeat, shapes, types, offsets and sizes. Behind
them are the metadata as JSON, which has not been read, or None. Returns None for a header with anything
unusual or wrong in it, and without the core: a reader in Python says what it is.
"""

sync_files = _implementation.sync_files
"""``sync_files(files)``: make the data of descriptors durable; 0 or an errno."""
