"""``splitops split``: parts bit for bit, files whole or not at all, and .npy files that lie."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from splitops.errors import FileError
from splitops.files.formats.npy import encode_header, map_array, read_header


def saved(path: Path, array: np.ndarray) -> Path:
    np.save(path, array)
    return path


def parts_of(folder: Path) -> list[np.ndarray]:
    return [np.load(path) for path in sorted(folder.iterdir())]


ARRAYS = {
    "row-major": np.arange(120).reshape(4, 6, 5),
    "Fortran": np.asfortranarray(np.arange(120.0).reshape(4, 6, 5)),
    "big-endian": np.arange(120, dtype=">i2").reshape(4, 6, 5),
    "bool": (np.arange(120) % 3 == 0).reshape(4, 6, 5),
    "complex": (np.arange(120) * (1 + 2j)).astype(np.complex64).reshape(4, 6, 5),
    "strings": np.arange(120).astype("U7").reshape(4, 6, 5),
    "empty": np.zeros((4, 6, 0), np.float32),
    "bits": np.arange(120, dtype=np.uint64).reshape(4, 6, 5) * np.uint64(0x9E3779B97F4A7C15),
}


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("name", ARRAYS)
def test_parts_are_numpys_bit_for_bit(invoke, tmp_path, name, axis):
    array = ARRAYS[name]
    size = array.shape[axis]
    sizes = [size // 3, 0, size // 4, size - size // 3 - size // 4]
    file = saved(tmp_path / "x.npy", array)
    result = invoke(
        "split", file, "--axis", axis - 3, "--sizes", ",".join(map(str, sizes)), "--out", tmp_path / "out"
    )
    assert (result.exit_code, result.stderr) == (0, "")
    expected = np.split(array, np.cumsum(sizes)[:-1], axis)
    found = parts_of(tmp_path / "out")
    for part, want in zip(found, expected, strict=True):
        assert (part.dtype, part.shape) == (array.dtype, want.shape)
        assert part.tobytes() == want.tobytes()
        if array.flags.f_contiguous and not array.flags.c_contiguous and part.size > part.shape[0]:
            assert part.flags.f_contiguous


@pytest.mark.parametrize(
    ("arguments", "operator", "sizes"),
    [
        (["--sizes", "2,5"], "Split-18", [2, 5]),
        (["--parts", "4"], "Split-18", [2, 2, 2, 1]),
        (["--chunk", "3"], "SplitToSequence-24", [3, 3, 1]),
        (["--sizes", "-1,2"], "VariadicSplit-1", [5, 2]),
        (["--sizes", "2,5", "--op", "Split-1"], "Split-1", [2, 5]),
        (["--sizes", "2,5", "--op", "Split-11"], "Split-11", [2, 5]),
        (["--sizes", "2,5", "--op", "Split-13"], "Split-13", [2, 5]),
        (["--sizes", "2,5", "--op", "VariadicSplit-1"], "VariadicSplit-1", [2, 5]),
        (["--sizes", "2,5", "--op", "SplitToSequence-11"], "SplitToSequence-11", [2, 5]),
        (["--parts", "7", "--op", "Split-13"], "Split-13", [1] * 7),
        (["--parts", "7", "--op", "openvino:Split-1"], "Split-1", [1] * 7),
        (["--op", "SplitToSequence"], "SplitToSequence-24", [1] * 7),
    ],
)
def test_operators(invoke, tmp_path, arguments, operator, sizes):
    file = saved(tmp_path / "x.npy", np.arange(14.0, dtype=np.float32).reshape(2, 7))
    result = invoke("split", file, "--axis", 1, *arguments, "--out", tmp_path / "out", "--json")
    stated = json.loads(result.output)
    assert stated["operator"] == operator
    assert [part["size"] for part in stated["parts"]] == sizes
    assert [Path(part["file"]).name for part in stated["parts"]] == sorted(os.listdir(tmp_path / "out"))
    for part in stated["parts"]:
        assert np.load(part["file"]).shape == tuple(part["shape"]) == (2, part["size"])


def test_keepdims(invoke, tmp_path):
    file = saved(tmp_path / "x.npy", np.arange(6).reshape(2, 3))
    arguments = ["--axis", 1, "--op", "SplitToSequence-11", "--no-keepdims", "--out", tmp_path / "out"]
    assert invoke("split", file, *arguments).exit_code == 0
    assert [part.tolist() for part in parts_of(tmp_path / "out")] == [[0, 3], [1, 4], [2, 5]]


def test_file_names_sort_and_stay_in_the_folder(invoke, tmp_path):
    file = saved(tmp_path / "x.npy", np.arange(12))
    out = tmp_path / "a" / "b"
    assert invoke("split", file, "--chunk", 1, "--prefix", "up", "--out", out).exit_code == 0
    assert sorted(os.listdir(out)) == [f"up.{i:02}.npy" for i in range(12)]
    assert sorted(os.listdir(tmp_path)) == ["a", "x.npy"]


def test_odd_paths(invoke, tmp_path):
    folder = tmp_path / "a b=[c]'é\n%s"
    folder.mkdir()
    result = invoke(
        "split", saved(folder / "-x y.npy", np.arange(4)), "--parts", 2, "--out", folder / "o u t"
    )
    assert (result.exit_code, result.stderr) == (0, "")
    assert sorted(os.listdir(folder / "o u t")) == ["x_y.0.npy", "x_y.1.npy"]


def test_default_folder_is_the_current_one(process, tmp_path):
    saved(tmp_path / "x.npy", np.arange(4))
    assert process("split", "x.npy", "--parts", "2", cwd=tmp_path).returncode == 0
    assert sorted(os.listdir(tmp_path)) == ["x.0.npy", "x.1.npy", "x.npy"]


def test_a_part_never_replaces_its_source(invoke, tmp_path):
    file = saved(tmp_path / "x.0.npy", np.arange(4))
    result = invoke("split", file, "--parts", 2, "--prefix", "x", "--out", tmp_path, "--overwrite")
    assert result.exit_code == 1
    assert "would replace a source" in result.stderr
    assert np.load(file).tolist() == [0, 1, 2, 3]


def test_types_that_npy_cannot_say(invoke, tmp_path):
    array = np.arange(6).astype(ml_dtypes.bfloat16)
    file = saved(tmp_path / "x.npy", array)
    rejected = invoke("split", file, "--parts", 2, "--out", tmp_path / "out")
    assert (rejected.exit_code, "[type.unsupported]" in rejected.stderr) == (1, True)
    assert (
        invoke("split", file, "--parts", 2, "--dtype", "bfloat16", "--out", tmp_path / "out").exit_code == 0
    )
    assert parts_of(tmp_path / "out")[1].view(ml_dtypes.bfloat16).tolist() == [3, 4, 5]
    wrong = invoke("split", file, "--parts", 2, "--dtype", "float32", "--out", tmp_path / "no")
    assert wrong.exit_code == 1
    assert not (tmp_path / "no").exists()


def npy(descr: str = "'<f4'", shape: str = "(3, 4)", order: str = "False", data: bytes = bytes(48)) -> bytes:
    text = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}".encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


def pickled() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.array([{"a": 1}], dtype=object))
    return buffer.getvalue()


HOSTILE = {
    "no file content": (b"", "is not a .npy file"),
    "another format": (b"PK\x03\x04" + bytes(100), "is not a .npy file"),
    "pickle": (pickled(), "pickled"),
    "raw pickle": (b"\x80\x04N.", "is not a .npy file"),
    "object in a structure": (npy("[('a', 'O')]", "(1,)", data=bytes(8)), "pickled"),
    "truncated magic": (b"\x93NUM", "is not a .npy file"),
    "truncated version": (b"\x93NUMPY\x01", "version"),
    "unknown version": (b"\x93NUMPY\x09\x00" + bytes(100), "version"),
    "truncated header": (npy()[:40], "malformed"),
    "huge header": (b"\x93NUMPY\x02\x00" + b"\xff\xff\xff\x7f" + bytes(100), "malformed"),
    "truncated data": (npy()[:-1], "is truncated"),
    "data of more": (npy() + b"x", "has bytes after its data"),
    "no data": (npy(data=b""), "is truncated"),
    "shape beyond memory": (npy(shape="(4611686018427387904, 16)"), "is larger than NumPy supports"),
    "shape beyond memory, empty": (
        npy(shape="(0, 4611686018427387904, 16)", data=b""),
        "is larger than NumPy supports",
    ),
    "shape that wraps": (npy(shape="(4294967296, 4294967296, 0)", data=b""), "is larger than NumPy supports"),
    "huge truncated": (npy(shape="(1000000000000,)"), "is truncated"),
    "negative size": (npy(shape="(-3, -4)"), "not the shape of an array"),
    "size is a bool": (npy(shape="(True, 12)"), "not the shape of an array"),
    "size is a float": (npy(shape="(3.0, 4)"), "malformed"),
    "shape is not a tuple": (npy(shape="12"), "malformed"),
    "shape is a call": (npy(shape="__import__('os').getcwd()"), "malformed"),
    "too many dimensions": (npy(shape=str((1,) * 100), data=bytes(4)), "not the shape of an array"),
    "unknown dtype": (npy("'<q9z'"), "malformed"),
    "dtype is a number": (npy("7"), "malformed"),
    "order is a number": (npy(order="3"), "malformed"),
    "deep nesting": (npy("(" * 4000), "malformed"),
    "items are arrays": (npy("('<f4', (2,))", "(3, 2)"), "has subarrays"),
    "not Python": (npy(shape="(3, 4"), "malformed"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_one_clear_line(invoke, tmp_path, name):
    content, problem = HOSTILE[name]
    file = tmp_path / "x.npy"
    file.write_bytes(content)
    result = invoke("split", file, "--parts", 1, "--out", tmp_path / "out")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert problem in result.stderr
    assert f"'{file}'" in result.stderr
    assert not re.search("0x[0-9a-f]{6}", result.stderr)
    assert not (tmp_path / "out").exists()


def test_the_file_that_hostile_ones_are_made_of_is_read(invoke, tmp_path):
    (tmp_path / "x.npy").write_bytes(npy())
    assert invoke("split", tmp_path / "x.npy", "--parts", 3, "--out", tmp_path / "out").exit_code == 0
    assert len(parts_of(tmp_path / "out")) == 3


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_versions_of_the_format(tmp_path, version):
    with (tmp_path / "x.npy").open("wb") as file:
        np.lib.format.write_array(file, np.arange(6).reshape(2, 3), version=version)
    assert map_array(tmp_path / "x.npy").tolist() == [[0, 1, 2], [3, 4, 5]]


@given(st.data())
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_damage_makes_anything_but_an_array_or_one_error(tmp_path, data):
    content = bytearray(npy(data=bytes(range(48))))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, 127))] = data.draw(st.integers(0, 255))
    content = content[: data.draw(st.integers(0, len(content)))] if data.draw(st.booleans()) else content
    (tmp_path / "x.npy").write_bytes(content)
    try:
        found = map_array(tmp_path / "x.npy")
    except FileError:
        return
    header = read_header(io.BytesIO(content), "x.npy", len(content))
    assert header.end == len(content)
    assert (found.shape, found.dtype) == (header.shape, header.dtype)


def test_folders_and_pipes_are_no_files(process, tmp_path):
    os.mkfifo(tmp_path / "pipe.npy")
    (tmp_path / "folder.npy").mkdir()
    for name, code in (("pipe.npy", 1), ("folder.npy", 2), ("absent.npy", 2)):
        result = process("split", tmp_path / name, "--parts", "2", "--out", tmp_path / "out", timeout=120)
        assert (result.returncode, result.stdout) == (code, "")
        assert len(result.stderr.splitlines()) == (1 if code == 1 else 4)


@pytest.mark.parametrize("prefix", ["a/b", "../a", "a b", "", ".a", "a\\b", "con", "x" * 200])
def test_a_prefix_is_taken_as_it_is_or_rejected(invoke, tmp_path, prefix):
    file = saved(tmp_path / "x.npy", np.arange(4))
    result = invoke("split", file, "--parts", 2, "--out", tmp_path / "out", "--prefix", prefix)
    assert (result.exit_code, (tmp_path / "out").exists()) == (2, False)
    assert "--prefix" in result.stderr


def test_what_exists_is_replaced_on_request_alone(invoke, tmp_path):
    file = saved(tmp_path / "x.npy", np.arange(4))
    (tmp_path / "x.1.npy").write_bytes(b"from before")
    rejected = invoke("split", file, "--parts", 2, "--out", tmp_path)
    assert (rejected.exit_code, "x.1.npy' already exists" in rejected.stderr) == (1, True)
    assert sorted(os.listdir(tmp_path)) == ["x.1.npy", "x.npy"]
    assert invoke("split", file, "--parts", 2, "--out", tmp_path, "--overwrite").exit_code == 0
    assert np.load(tmp_path / "x.1.npy").tolist() == [2, 3]


def test_a_dry_run_writes_nothing(invoke, tmp_path):
    file = saved(tmp_path / "x.npy", np.arange(4))
    result = invoke("split", file, "--parts", 2, "--out", tmp_path / "out", "--dry-run", "--json")
    stated = json.loads(result.output)
    assert (stated["dry_run"], stated["bytes"], stated["exists"]) == (True, 32, [])
    assert os.listdir(tmp_path) == ["x.npy"]


def test_checksums_are_printed_on_request(invoke, tmp_path):
    file = saved(tmp_path / "x.npy", np.arange(4))
    arguments = ["--parts", 2, "--out", tmp_path / "out", "--sha256", "--verify", "--json"]
    for part in json.loads(invoke("split", file, *arguments).output)["parts"]:
        assert part["sha256"] == hashlib.sha256(Path(part["file"]).read_bytes()).hexdigest()


@pytest.mark.parametrize("text", ["64X", "-1", "", "1e9", "M"])
def test_memory_is_a_number_of_bytes(invoke, tmp_path, text):
    file = saved(tmp_path / "x.npy", np.arange(4))
    assert invoke("split", file, "--parts", 2, "--memory", text).exit_code == 2


def test_a_folder_that_cannot_be_made(invoke, tmp_path):
    file = saved(tmp_path / "x.npy", np.arange(4))
    result = invoke("split", file, "--parts", 2, "--out", file / "out")
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1
    assert "/x.npy/out': not a directory" in result.stderr


def sparse(path: Path, shape: tuple[int, ...]) -> Path:
    """Write a .npy file of zeros that takes no room on the disk."""
    header = encode_header(shape, np.dtype(np.float32))
    with path.open("wb") as file:
        file.write(header)
        file.truncate(len(header) + 4 * int(np.prod(shape)))
    return path


def test_a_file_larger_than_memory_is_split(process, tmp_path):
    file = sparse(tmp_path / "x.npy", (50_000, 2_000))  # 400 MB

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (200 << 20, 200 << 20))

    out = tmp_path / "out"
    result = process("split", file, "--axis", "1", "--sizes", "10,1990", "--out", out, preexec_fn=limit)
    assert (result.returncode, result.stderr) == (0, "")
    assert [np.load(p, mmap_mode="r").shape for p in sorted(out.iterdir())] == [(50_000, 10), (50_000, 1990)]


def test_the_limit_above_is_one(environment):
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (200 << 20, 200 << 20))

    code = "import numpy; numpy.ones(400 << 20, numpy.uint8)"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, preexec_fn=limit, capture_output=True
    )
    assert b"MemoryError" in done.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("existing", [False, True])
def test_an_interrupt_leaves_nothing_half_written(environment, tmp_path, number, code, existing):
    file = sparse(tmp_path / "x.npy", (4, 1 << 28))  # 4 GB: seconds of writing
    out = tmp_path / "out"
    if existing:
        out.mkdir()
        (out / "x.0.npy").write_bytes(b"from before")
    command = [
        sys.executable,
        "-m",
        "splitops",
        "split",
        file,
        "--axis",
        "1",
        "--parts",
        "3",
        "--overwrite",
        "--out",
        out,
    ]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    written = 0
    deadline = time.monotonic() + 120
    while written < 1 << 20 and process.poll() is None and time.monotonic() < deadline:
        # A new folder is written beside its place, parts of one that exists in it.
        drafts = [
            *tmp_path.glob("out/.splitops-*/files/*.npy"),
            *tmp_path.glob(".splitops-*/files/out/*.npy"),
        ]
        written = sum(path.stat().st_size for path in drafts)
        time.sleep(0.005)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=120)
    assert written >= 1 << 20
    assert process.returncode == code
    assert len(stderr.splitlines()) == 1
    assert "Traceback" not in stderr
    hidden = [".splitops-x.part" if existing else ".splitops-out-x.part"] * (" are kept in " in stderr)
    if existing:
        assert sorted(os.listdir(out)) == [*hidden, "x.0.npy"]
        assert (out / "x.0.npy").read_bytes() == b"from before"
    else:
        assert sorted(os.listdir(tmp_path)) == [*hidden, "x.npy"]
