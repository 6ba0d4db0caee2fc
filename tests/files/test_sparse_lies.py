"""Files of 1 GiB that the disk does not hold, whose headers state as much: one error, in little memory."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path

import h5py
import pytest

import splitops

SIZE = 1 << 30

LIES = {
    "a header of 1 GiB.npy": b"\x93NUMPY\x02\x00" + struct.pack("<I", SIZE - 12),
    "a header of 1 GiB in version 3.npy": b"\x93NUMPY\x03\x00" + struct.pack("<I", SIZE - 12) + b"{",
    "a header of 1 GiB.safetensors": struct.pack("<Q", SIZE - 8) + b"{",
    "the longest header.safetensors": struct.pack("<Q", 100_000_000) + b'{"',
    "many tensors.gguf": b"GGUF" + struct.pack("<IQQ", 3, SIZE, 0),
    "many entries.gguf": b"GGUF" + struct.pack("<IQQ", 3, 0, SIZE),
    "a long key.gguf": b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, SIZE - 64),
    "a long text.gguf": b"GGUF" + struct.pack("<IQQQ1sIQ", 3, 0, 1, 1, b"k", 8, SIZE - 64),
    "a long array.gguf": b"GGUF" + struct.pack("<IQQQ1sIIQ", 3, 0, 1, 1, b"k", 9, 0, SIZE - 64),
    "a long array of texts.gguf": b"GGUF" + struct.pack("<IQQQ1sIIQ", 3, 0, 1, 1, b"k", 9, 8, SIZE >> 4),
    "nothing but zeros.h5": b"\x89HDF\r\n\x1a\n",
}
DIRECTORY = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, SIZE - 22, 0, 0)

SCRIPT = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (600_000_000, 600_000_000))
import splitops
for path in sys.argv[1:]:
    try:
        splitops.files.open(path)
    except splitops.errors.FileError as error:
        print(error)
"""


def sparse(path: Path, begin: bytes, end: bytes = b"") -> Path:
    path.write_bytes(begin)
    os.truncate(path, SIZE - len(end))
    with path.open("ab") as file:
        file.write(end)
    return path


def test_lies_are_one_error(tmp_path):
    paths = [sparse(tmp_path / name, content) for name, content in LIES.items()]
    paths.append(sparse(tmp_path / "a directory of 1 GiB.npz", b"PK\x01\x02", DIRECTORY))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *map(str, paths)],
        env=os.environ | {"PYTHONPATH": str(Path(splitops.__file__).parents[1]), "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == len(paths), done.stdout
    for path, line in zip(paths, lines, strict=True):
        assert path.name in line


def test_a_chunk_that_states_too_much_is_one_error(tmp_path):
    """A chunk of 64 bytes that the file says is stored in half a GiB."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        made = file.create_dataset("x", (16,), "i4", chunks=(8,), compression="gzip")
        made.id.write_direct_chunk((0,), bytes(64), 1)
        made.id.write_direct_chunk((8,), b"\0" * (8 << 20), 0)
    with pytest.raises(splitops.errors.FileError, match=r"cannot read .*x\.h5"):
        splitops.files.split(path, tmp_path / "out", num_outputs=2, memory=4 << 20)
    assert not (tmp_path / "out").exists()
