"""The engine's two implementations: what is not consistent is rejected, and failures are named."""

from __future__ import annotations

import errno
import os
import zlib

import numpy as np
import pytest
from file_helpers import IMPLEMENTATIONS, noise

from splitops import native
from splitops.native import file_fallback, files

GOOD = {
    "passes": [[4, 2]],
    "sources": [[0, 0, 0, 8, 8]],
    "targets": [[0, 0, 0, 3, 3], [0, 1, 0, 5, 5]],
    "moves": [[0, 0, 0, 0, 3], [0, 3, 1, 0, 5]],
}
BAD = {
    "no rows": {"passes": [[0, 2]]},
    "no rows in a block": {"passes": [[4, 0]]},
    "a lane before its pass": {"passes": [[4, 2], [4, 2]], "sources": [[1, 0, 0, 8, 8], [0, 0, 0, 8, 8]]},
    "a lane without a pass": {"sources": [[1, 0, 0, 8, 8]]},
    "a negative pass": {"sources": [[-1, 0, 0, 8, 8]]},
    "a lane without a file": {"sources": [[0, 1, 0, 8, 8]]},
    "a target without a file": {"targets": [[0, 0, 0, 3, 3], [0, 2, 0, 5, 5]]},
    "a negative file": {"sources": [[0, -1, 0, 8, 8]]},
    "a negative base": {"sources": [[0, 0, -1, 8, 8]]},
    "an empty lane": {"sources": [[0, 0, 0, 0, 8]]},
    "rows that overlap": {"sources": [[0, 0, 0, 8, 7]]},
    "rows that overflow": {"sources": [[0, 0, 0, 8, 1 << 62]]},
    "a base that overflows": {"sources": [[0, 0, (1 << 63) - 8, 8, 8]]},
    "a move without a source": {"moves": [[1, 0, 0, 0, 3], [0, 3, 1, 0, 5]]},
    "a move without a target": {"moves": [[0, 0, 0, 0, 3], [0, 3, 2, 0, 5]]},
    "a negative lane": {"moves": [[-1, 0, 0, 0, 3], [0, 3, 1, 0, 5]]},
    "a move beyond its source": {"moves": [[0, 6, 0, 0, 3], [0, 3, 1, 0, 5]]},
    "a move before its source": {"moves": [[0, -1, 0, 0, 3], [0, 3, 1, 0, 5]]},
    "a move beyond its target": {"moves": [[0, 0, 0, 0, 4], [0, 3, 1, 0, 5]]},
    "an empty move": {"moves": [[0, 0, 0, 0, 0], [0, 3, 1, 0, 5]]},
    "a gap in a target": {"moves": [[0, 0, 0, 1, 2], [0, 3, 1, 0, 5]]},
    "a target that is not full": {"moves": [[0, 0, 0, 0, 2], [0, 3, 1, 0, 5]]},
    "a target without moves": {"moves": [[0, 3, 1, 0, 5]]},
    "a pass without a source": {"passes": [[4, 2], [4, 2]], "targets": [[1, 0, 0, 3, 3]], "moves": []},
    "a pass without a target": {"targets": [], "moves": []},
    "a block beyond any memory": {"sources": [[0, 0, 0, 8, 1 << 60]]},
    "blocks that overflow": {
        "passes": [[4, 4]],
        "sources": [[0, 0, 0, 8, 1 << 60], [0, 0, 0, 8, 1 << 60]],
        "targets": [[0, 0, 0, 3, 1 << 60], [0, 1, 0, 5, 5]],
    },
    "too many blocks": {
        "passes": [[(1 << 62) // 8, 1]] * 9,
        "sources": [[number, 0, 0, 8, 8] for number in range(9)],
    },
    "a move between two passes": {
        "passes": [[4, 2], [4, 2]],
        "sources": [[0, 0, 0, 8, 8], [1, 0, 0, 8, 8]],
        "targets": [[0, 0, 0, 3, 3], [1, 1, 0, 5, 5]],
        "moves": [[1, 0, 0, 0, 3], [1, 3, 1, 0, 5]],
    },
    "too few columns": {"passes": [[4]]},
}


def tables(**changed):
    columns = {"passes": 2}
    return {
        name: np.array(rows, np.int64) if rows else np.empty((0, columns.get(name, 5)), np.int64)
        for name, rows in (GOOD | changed).items()
    }


@pytest.fixture(params=IMPLEMENTATIONS, ids=lambda f: f.__module__ or "core")
def implementation(request):
    return request.param


@pytest.fixture
def opened(tmp_path):
    """A source of 32 bytes and two targets."""
    (tmp_path / "s").write_bytes(noise(32))
    source = os.open(tmp_path / "s", os.O_RDONLY)
    targets = [os.open(tmp_path / name, os.O_RDWR | os.O_CREAT) for name in "ab"]
    yield source, targets
    for file in (source, *targets):
        os.close(file)


def test_what_the_bad_ones_are_made_of_is_good(implementation, opened):
    source, targets = opened
    checksums, failure = implementation(
        **tables(), source_files=[source], target_files=targets, threads=2, tick=print
    )
    data = np.frombuffer(noise(32), np.uint8).reshape(4, 8)
    left, right = data[:, :3].tobytes(), data[:, 3:].tobytes()
    assert failure is None
    assert checksums == [zlib.crc32(left), zlib.crc32(right)]
    assert [os.pread(file, 100, 0) for file in targets] == [left, right]


@pytest.mark.parametrize("name", BAD)
def test_inconsistent_work_is_rejected_before_anything_is_done(implementation, opened, name):
    source, targets = opened
    with pytest.raises(ValueError, match=r"lane|pass|move|table|gap|larger than any memory"):
        implementation(
            **tables(**BAD[name]), source_files=[source], target_files=targets, threads=2, tick=print
        )
    assert [os.fstat(file).st_size for file in targets] == [0, 0]


def test_a_source_that_ends_early_is_named(implementation, opened, tmp_path):
    source, targets = opened
    os.truncate(tmp_path / "s", 20)
    found = implementation(**tables(), source_files=[source], target_files=targets, threads=1, tick=print)
    assert found == ([], (False, 0, 20, 0))


def test_a_source_that_cannot_be_read_is_named(implementation, opened):
    _, targets = opened
    unreadable = os.open("/proc/self/mem", os.O_RDONLY)  # nothing is at address 0
    try:
        found = implementation(
            **tables(), source_files=[unreadable], target_files=targets, threads=1, tick=print
        )
    finally:
        os.close(unreadable)
    assert found == ([], (False, 0, 0, errno.EIO))


def test_a_target_that_cannot_be_written_is_named(implementation, opened, tmp_path):
    source, targets = opened
    reader = os.open(tmp_path / "b", os.O_RDONLY)
    try:
        found = implementation(
            **tables(), source_files=[source], target_files=[targets[0], reader], threads=1, tick=print
        )
    finally:
        os.close(reader)
    assert found == ([], (True, 1, 0, errno.EBADF))


def test_a_tick_that_raises_ends_the_copy(implementation, tmp_path):
    (tmp_path / "s").touch()
    os.truncate(tmp_path / "s", 1 << 33)
    source = os.open(tmp_path / "s", os.O_RDONLY)
    lane = [[0, 0, 0, 1 << 20, 1 << 20]]
    work = tables(passes=[[1 << 13, 1]], sources=lane, targets=lane, moves=[[0, 0, 0, 0, 1 << 20]])

    def tick(done: int) -> None:
        raise KeyboardInterrupt(done)

    try:
        with pytest.raises(KeyboardInterrupt) as caught:
            implementation(**work, source_files=[source], target_files=None, threads=2, tick=tick)
    finally:
        os.close(source)
    assert 0 < caught.value.args[0] < 1 << 33


@pytest.mark.skipif(not native.available, reason="the checksum is zlib's own without the core")
def test_checksums_are_zlibs():
    from splitops.native import _core

    data = np.frombuffer(noise(5000), np.uint8)
    for size in (*range(200), 255, 256, 257, 1000, 4096, 5000):
        for start in (0, 1, 7):
            part = data[start:size]
            for before in (0, 1, 0xFFFFFFFF, 0x12345678):
                expected = zlib.crc32(part.tobytes(), before)
                assert _core.crc32(part, before) == _core.crc32(part, before, table=True) == expected


def test_many_files_are_synced(tmp_path):
    opened = [os.open(tmp_path / str(i), os.O_RDWR | os.O_CREAT) for i in range(70)]
    try:
        assert files.sync_files(opened) == files.sync_files(opened[:3]) == 0
    finally:
        for file in opened:
            os.close(file)
    assert files.sync_files([opened[0]]) == errno.EBADF


def test_the_caller_is_told_how_far_it_is(implementation, opened, monkeypatch):
    """The core tells it every so often, and here nothing takes so long."""
    monkeypatch.setattr(file_fallback, "_TICK", -1)
    source, targets = opened
    seen = []
    implementation(**tables(), source_files=[source], target_files=targets, threads=1, tick=seen.append)
    assert seen == ([16, 32] if implementation is file_fallback.copy_extents else [])


def test_a_sync_that_fails_is_named():
    assert file_fallback.sync_files([1 << 20]) == errno.EBADF


def test_targets_may_share_bytes_of_their_source(implementation, tmp_path):
    content = noise(4096)
    (tmp_path / "s").write_bytes(content)
    source = os.open(tmp_path / "s", os.O_RDONLY)
    targets = [os.open(tmp_path / name, os.O_RDWR | os.O_CREAT) for name in "ab"]
    work = tables(
        sources=[[0, 0, 0, 1024, 1024]],
        targets=[[0, 0, 0, 600, 600], [0, 1, 0, 600, 600]],
        moves=[[0, 0, 0, 0, 600], [0, 300, 1, 0, 600]],
    )
    _, failure = implementation(
        **work, source_files=[source], target_files=targets, threads=1, tick=lambda _: None
    )
    rows = np.frombuffer(content, np.uint8).reshape(4, 1024)
    assert failure is None
    assert [os.pread(file, 4096, 0) for file in targets] == [
        rows[:, :600].tobytes(),
        rows[:, 300:900].tobytes(),
    ]
    for file in (source, *targets):
        os.close(file)


def test_a_row_that_is_not_there_is_named(implementation, opened, tmp_path):
    source, targets = opened
    os.truncate(tmp_path / "s", 100)
    work = tables(sources=[[0, 0, 0, 8, 64]])
    found = implementation(**work, source_files=[source], target_files=targets, threads=1, tick=print)
    assert found == ([], (False, 0, 128, 0))


def test_a_row_that_cannot_be_written_is_named(implementation, opened, tmp_path):
    source, targets = opened
    fixed = os.open(tmp_path / "a", os.O_RDONLY)
    work = tables(targets=[[0, 0, 0, 3, 9], [0, 1, 0, 5, 5]])
    found = implementation(
        **work, source_files=[source], target_files=[fixed, targets[1]], threads=1, tick=print
    )
    os.close(fixed)
    assert found == ([], (True, 0, 0, errno.EBADF))
