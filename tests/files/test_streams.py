"""Compressed sources: read forwards, once, and held to what their headers state."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import sys
from concurrent.futures import ThreadPoolExecutor

import fsspec
import numpy as np
import pytest
import zstandard
from click.testing import CliRunner
from safetensors.numpy import load_file, save

import splitops
from splitops.cli import cli
from splitops.errors import FileError
from splitops.files import streams
from splitops.files.sources import LocalFile, SourceFile

ARRAY = np.arange(4_000, dtype=np.float32).reshape(100, 40)
COMPRESSIONS = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstandard.ZstdCompressor(write_checksum=True).compress,
}


def npy(array=ARRAY) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def names(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def opened(monkeypatch):
    """Count how often a stream is begun."""
    found = []
    real = streams.Stream._open
    monkeypatch.setattr(streams.Stream, "_open", lambda self: found.append(self.name) or real(self))
    return found


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("ending", COMPRESSIONS)
def test_split_and_merge(tmp_path, ending, axis, monkeypatch, opened):
    monkeypatch.setattr(streams.Stream, "block", 300)
    source = tmp_path / f"x.npy.{ending}"
    source.write_bytes(COMPRESSIONS[ending](npy()))
    plan = splitops.files.plan_split(
        source, tmp_path / "out", axis=axis, split=[30, 0, ARRAY.shape[axis] - 30]
    )
    opened.clear()
    made = plan.run(verify=True)
    assert len(opened) == 1
    assert names(tmp_path / "out") == ["x.0.npy", "x.1.npy", "x.2.npy"]
    parts = [path for path, _ in made.files]
    for path, want in zip(parts, np.split(ARRAY, [30, 30], axis), strict=True):
        np.testing.assert_array_equal(np.load(path), want)
    packed = []
    for path in parts:
        packed.append(tmp_path / f"{path.name}.{ending}")
        packed[-1].write_bytes(COMPRESSIONS[ending](path.read_bytes()))
    splitops.files.merge(packed, tmp_path / "y.npy", axis=axis)
    assert (tmp_path / "y.npy").read_bytes() == npy()


def test_safetensors_keep_what_is_asked_for(tmp_path, opened):
    source = tmp_path / "x.safetensors.gz"
    other = np.arange(9, dtype=np.int64)
    source.write_bytes(gzip.compress(save({"w": ARRAY, "b": other}, {"who": "us"})))
    plan = splitops.files.plan_split(
        source, tmp_path / "out", tensor="w", num_outputs=2, keep_other_tensors=True
    )
    opened.clear()
    for path, want in zip([path for path, _ in plan.run().files], np.split(ARRAY, 2), strict=True):
        found = load_file(path)
        np.testing.assert_array_equal(found["w"], want)
        np.testing.assert_array_equal(found["b"], other)
    assert len(opened) == 1


def test_raw_bytes_state_their_sizes(tmp_path):
    (tmp_path / "x.bin.gz").write_bytes(gzip.compress(b"head" + ARRAY.tobytes() + b"more"))
    for shape, problem in (("100,-1", "set all sizes, not -1"), ("100,41", "ends at byte 16008")):
        arguments = ["split", str(tmp_path / "x.bin.gz"), "--raw", f"{shape}:float32@4", "--chunk", "50"]
        result = CliRunner().invoke(cli, [*arguments, "--out", str(tmp_path / "out")])
        assert result.exit_code == 1
        assert problem in result.output
        assert names(tmp_path) == ["x.bin.gz"]
    arguments[3] = "100,40:float32@4"
    result = CliRunner().invoke(cli, [*arguments, "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "out/x.1.bin").read_bytes() == ARRAY[50:].tobytes()


@pytest.mark.parametrize(
    ("shape", "says"),
    [
        (f"8,{1 << 60}:uint8", "declares 9223372036854775808 bytes, more than any file can have"),
        (f"8,{1 << 48}:uint8", "the plan copies 2251799813685248 bytes"),
    ],
)
def test_more_bytes_than_any_file_has_are_rejected(tmp_path, shape, says):
    (tmp_path / "x.bin.gz").write_bytes(gzip.compress(b"few"))
    arguments = ["split", str(tmp_path / "x.bin.gz"), "--raw", shape, "--parts", "2", "--out", str(tmp_path)]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 1
    assert says in result.output
    assert names(tmp_path) == ["x.bin.gz"]


def test_a_merge_of_more_than_63_bits_is_rejected(tmp_path):
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': (0, {1 << 62})}}"
    part = tmp_path / "x.npy"
    part.write_bytes(b"\x93NUMPY\1\0" + b"\x76\0" + header.ljust(117).encode() + b"\n")
    with pytest.raises(FileError, match=f"size along axis 1 would be {1 << 63}"):
        splitops.files.merge([part, part], tmp_path / "y.npy", axis=1)
    assert names(tmp_path) == ["x.npy"]


def test_tensors_are_read_lazily(tmp_path, opened):
    (tmp_path / "x.npy.xz").write_bytes(lzma.compress(npy()))
    tensor = splitops.files.open(tmp_path / "x.npy.xz")[""]
    opened.clear()
    for key in ((slice(10, 90, 7), slice(3, 30)), (slice(95, 100), 4), 2):
        np.testing.assert_array_equal(np.asarray(tensor[key]), ARRAY[key])
    assert len(opened) == 2  # the last one lies before the others


def test_threads_may_read_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(streams.Stream, "block", 100)
    (tmp_path / "x.npy.gz").write_bytes(gzip.compress(npy()))
    tensor = splitops.files.open(tmp_path / "x.npy.gz")[""]
    with ThreadPoolExecutor(8) as pool:
        for row, found in zip(ARRAY, pool.map(lambda row: np.asarray(tensor[row]), range(100)), strict=True):
            np.testing.assert_array_equal(found, row)


def test_compressed_files_at_addresses(tmp_path):
    files = fsspec.filesystem("memory")
    files.pipe_file("/streams/x.npy.gz", gzip.compress(npy()))
    made = splitops.files.split("memory://streams/x.npy.gz", tmp_path, num_outputs=2)
    np.testing.assert_array_equal(np.load(made.files[1][0]), ARRAY[50:])
    files.rm("/streams", recursive=True)


@pytest.mark.parametrize("ending", COMPRESSIONS)
@pytest.mark.parametrize("format_", ["npy", "safetensors"])
def test_streams_that_lie_are_rejected(tmp_path, ending, format_):
    content = npy() if format_ == "npy" else save({"w": ARRAY})
    compress = COMPRESSIONS[ending]
    packed = compress(content)
    damaged = bytearray(packed)
    damaged[len(packed) // 2] ^= 255
    source = tmp_path / f"x.{format_}.{ending}"
    for found, problem in {
        compress(content[:-1]): "ends at byte",
        compress(content + b"\0"): "has data after",
        packed[: len(packed) // 2]: "cannot read|ends|not a .npy",
        bytes(damaged): "cannot read|malformed|ends|not a .npy|header|x.safetensors",
        b"": "cannot read|not a .npy|ends",
        b"no stream": "cannot read|ends|not a .npy",
    }.items():
        source.write_bytes(found)
        with pytest.raises(FileError, match=problem):
            splitops.files.split(source, tmp_path / "out", num_outputs=2)
        assert names(tmp_path) == [source.name]


def test_a_bomb_is_not_unpacked(tmp_path, monkeypatch):
    """Behind a small array stand 256 MiB of zeros; of them one byte is made."""
    made = 0
    real = gzip.GzipFile.read

    def counted(self, size=-1):
        nonlocal made
        assert 0 <= size <= 1 << 20
        data = real(self, size)
        made += len(data)
        return data

    with gzip.open(tmp_path / "x.npy.gz", "wb", 1) as file:
        file.write(npy())
        for _ in range(256):
            file.write(bytes(1 << 20))
    monkeypatch.setattr(gzip.GzipFile, "read", counted)
    with pytest.raises(FileError, match="has data after the 16128 bytes"):
        splitops.files.split(tmp_path / "x.npy.gz", tmp_path / "out", num_outputs=2)
    assert made <= 2 * len(npy()) + 1
    assert names(tmp_path) == ["x.npy.gz"]


def test_what_needs_random_access_is_rejected(tmp_path):
    for name in ("x.npz.gz", "x.gguf.xz", "x.onnx.bz2"):
        (tmp_path / name).write_bytes(b"x")
        with pytest.raises(FileError, match=r"cannot be read; only npy, safetensors, raw can\. Decompress"):
            splitops.files.open(tmp_path / name)
    np.save(tmp_path / "x.npy", ARRAY)
    with pytest.raises(FileError, match="compressed files cannot be written"):
        splitops.files.merge([tmp_path / "x.npy"], tmp_path / "y.npy.gz")


def test_a_library_that_is_missing_is_named(tmp_path, monkeypatch):
    (tmp_path / "x.npy.zst").write_bytes(COMPRESSIONS["zst"](npy()))
    monkeypatch.delitem(fsspec.utils.compressions, "zst")
    with pytest.raises(FileError, match=r"no library for \.zst is installed; .* splitops\[zstd\]"):
        splitops.files.open(tmp_path / "x.npy.zst")


@pytest.mark.parametrize(
    ("library", "name", "extra"),
    [
        ("fsspec", "memory://x.npy", "fsspec"),
        ("fsspec.compression", "x.npy.gz", "fsspec"),
        ("h5py", "x.h5", "hdf5"),
        ("zarr", "x.zarr", "zarr"),
    ],
)
def test_an_extra_that_is_not_installed_is_named(tmp_path, monkeypatch, library, name, extra):
    (tmp_path / "x.npy.gz").write_bytes(gzip.compress(npy()))
    (tmp_path / "x.h5").touch()
    (tmp_path / "x.zarr").mkdir()
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(FileError, match=rf"install splitops\[{extra}\]$"):
        splitops.files.open(name if "://" in name else tmp_path / name)


def test_a_cluster_without_dask_is_rejected(tmp_path, monkeypatch):
    np.save(tmp_path / "x.npy", ARRAY)
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(FileError, match=r"install splitops\[cluster\]$"):
        splitops.files.split(tmp_path / "x.npy", tmp_path / "out", num_outputs=2, cluster="tcp://127.0.0.1:1")
    assert names(tmp_path) == ["x.npy"]


def test_a_source_is_a_file_to_seek_in(tmp_path):
    (tmp_path / "x").write_bytes(bytes(range(100)))
    file = io.BufferedReader(SourceFile(LocalFile(tmp_path / "x")))
    assert (file.seek(-10, io.SEEK_END), file.read()) == (90, bytes(range(90, 100)))


def test_the_command_line_says_what_is_in_it(tmp_path):
    (tmp_path / "x.npy.gz").write_bytes(gzip.compress(npy()))
    result = CliRunner().invoke(cli, ["inspect", str(tmp_path / "x.npy.gz")])
    assert result.exit_code == 0, result.output
    assert "npy, 1 tensor, 16000 bytes" in result.output
