"""What the tests of files share: extents done naively, and the two implementations of the engine."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

from splitops import native
from splitops.files.extents import Extent
from splitops.native import file_fallback

IMPLEMENTATIONS = [file_fallback.copy_extents]
if native.available:
    from splitops.native import _core

    IMPLEMENTATIONS.append(_core.copy_extents)


def obeyed(extents: Sequence[Extent], sources: dict[int, bytes], targets: dict[int, bytearray]) -> list[int]:
    """Do extents byte by byte; return the checksum of each."""
    checksums = []
    for e in extents:
        checksum = 0
        for row in range(e.runs):
            at, to = e.offset + row * e.stride, e.target_offset + row * e.target_stride
            run = sources[e.source][at : at + e.run]
            assert len(run) == e.run
            targets[e.target][to : to + e.run] = run
            checksum = zlib.crc32(run, checksum)
        checksums.append(checksum)
    return checksums


def noise(size: int, seed: int = 0) -> bytes:
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8).tobytes()
