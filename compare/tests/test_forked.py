"""Processes that a nursery forks do what processes do that are started, and nothing is left of them."""

from __future__ import annotations

import os
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from splitops_compare import worker
from splitops_compare.data import Case, Outcome
from splitops_compare.driver.case_runner import CaseRunner, LaunchCommand
from splitops_compare.driver.process import ForkServer, ResourceLimits

ADAPTER = """
import ctypes, os, signal, subprocess, sys, tempfile, time
import numpy as np
from splitops_compare.worker import catch_rejection

PRELOAD = ("colorsys", "nothing_of_this_name")
STARTED_WITH = "colorsys" in sys.modules

def read_versions():
    return {"own": "1"}

def filled():
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    return ctypes.string_at(libc.malloc(3000), 3000)[100]

def in_another_session():
    if os.fork() == 0:
        os.setsid()
        os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(600)"])

def eat():
    held = []
    while True:
        held.append(np.ones(1 << 20))
        time.sleep(0.01)

def run(case):
    what = bytes(case.inputs["x"]).decode()
    found = 0
    match what:
        case "imported": found = "colorsys" in sys.modules
        case "filled": found = filled()
        case "folder": found = os.getcwd() == tempfile.gettempdir() == os.environ["TMPDIR"]
        case "limit": found = subprocess.run(["sh", "-c", "ulimit -c"], capture_output=True).stdout == b"0\\n"
        case "leads": found = os.getpid() == os.getpgid(0) == os.getsid(0)
        case "open": found = len(os.listdir("/proc/self/fd"))
        case "raises":
            with catch_rejection("run"):
                raise ValueError("no")
        case "prints": os.write(1, b"hello\\n")
        case "aborts": os.abort()
        case "exits":
            os.write(2, b"out of luck\\n")
            os._exit(3)
        case "stops itself": os.kill(os.getpid(), signal.SIGSTOP)
        case "kills its group": os.kill(0, signal.SIGKILL)
        case "eats": eat()
        case "leaves a program": subprocess.Popen(["sleep", "600"])
        case "leaves another session": in_another_session()
    return [np.float32([found])]
"""
QUESTIONS = (
    "folder", "limit", "leads", "raises", "prints", "aborts", "exits", "stops itself", "kills its group",
    "eats", "leaves a program", "leaves another session",
)  # fmt: skip
LIMITS = ResourceLimits(seconds=60, memory=400 << 20)


@pytest.fixture(autouse=True)
def nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    mark = f"FORKED_{uuid.uuid4().hex}"
    monkeypatch.setenv(mark, "1")
    yield
    assert not [folder for folder in Path("/proc").glob("[0-9]*") if _is_marked(folder, mark)]


def _is_marked(folder: Path, mark: str) -> bool:
    try:
        return mark.encode() in (folder / "environ").read_bytes()
    except OSError:
        return False


def case(what: str) -> Case:
    return Case(
        id=what,
        operator="Split-18",
        rule="even",
        title="",
        spec=None,
        model=b"model",
        inputs={"x": np.frombuffer(what.encode(), np.uint8)},
        types={"x": "uint8"},
        outputs=("y",),
        expected=None,
        error="lengths.sum",
    )


def source(folder: Path, text: str = ADAPTER) -> LaunchCommand:
    file = folder / "own.py"
    if not file.exists():  # a nursery may be reading it
        file.write_text(text)
    return LaunchCommand(
        "own", [sys.executable, "-P", worker.__file__, str(folder / "own.py")], can_fork=True
    )


@pytest.fixture
def nursery(tmp_path: Path) -> Iterator[ForkServer]:
    made = ForkServer(source(tmp_path).command, LIMITS, {})
    try:
        yield made
    finally:
        made.stop()


def asked(folder: Path, nursery: ForkServer | None, what: str, fill: int | None = None) -> Outcome:
    limits = replace(LIMITS, seconds=2) if what == "stops itself" else LIMITS
    with CaseRunner(source(folder), limits, fill, nursery) as asker:
        found = asker.run(case(what))
        late = asker.finish()
        assert late is None or found.kind == "ok"
        return late or found


@pytest.mark.parametrize("what", QUESTIONS)
def test_a_forked_process_does_what_a_started_one_does(
    tmp_path: Path, nursery: ForkServer, what: str
) -> None:
    started, forked = (asked(tmp_path, one, what) for one in (None, nursery))
    assert (forked.kind, forked.text, forked.signal) == (started.kind, started.text, started.signal)
    assert [value.tolist() for value in forked.values] == [value.tolist() for value in started.values]
    after = asked(tmp_path, nursery, "imported")
    assert after.values[0].tolist() == [1]  # it goes on forking, whatever one of them did


def test_what_is_imported_is_imported_once(tmp_path: Path, nursery: ForkServer) -> None:
    assert asked(tmp_path, None, "imported").values[0].tolist() == [0]
    assert asked(tmp_path, nursery, "imported").values[0].tolist() == [1]


@pytest.mark.parametrize("fill", [85, 170])
def test_new_memory_is_filled_as_in_a_started_process(tmp_path: Path, nursery: ForkServer, fill: int) -> None:
    started, forked = (asked(tmp_path, one, "filled", fill).values[0].tolist() for one in (None, nursery))
    assert forked == started == [fill ^ 255]


def test_no_process_keeps_what_belongs_to_another(tmp_path: Path, nursery: ForkServer) -> None:
    first = asked(tmp_path, nursery, "open").values[0].tolist()
    with CaseRunner(source(tmp_path), LIMITS, None, nursery) as other:
        other.run(case("imported"))
        assert asked(tmp_path, nursery, "open").values[0].tolist() == first
    before = len(os.listdir("/proc/self/fd"))
    asked(tmp_path, nursery, "aborts")
    assert len(os.listdir("/proc/self/fd")) == before


def test_what_cannot_be_imported_before_a_fork_is_started(tmp_path: Path) -> None:
    text = ADAPTER.replace('PRELOAD = ("colorsys", "nothing_of_this_name")', "")
    made = ForkServer(source(tmp_path, text).command, LIMITS, {})
    try:
        assert made.fork(str(tmp_path), {}) is None
        with CaseRunner(source(tmp_path, text), LIMITS, None, made) as asker:
            assert asker.run(case("imported")).values[0].tolist() == [0]
    finally:
        made.stop()


def test_a_process_that_is_killed_from_outside_is_a_crash(tmp_path: Path, nursery: ForkServer) -> None:
    with CaseRunner(source(tmp_path), LIMITS, None, nursery) as asker:
        asker.run(case("imported"))
        asker.kill()
        deadline = time.monotonic() + 10
        while (found := asker.take_late_outcome()) is None and time.monotonic() < deadline:
            time.sleep(0.01)
        assert found is not None
        assert (found.kind, found.signal) == ("crash", "SIGKILL")
