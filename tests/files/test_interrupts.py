"""Ctrl-C between any two lines of a run: it arrives, and the files are all there or none is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPT = """
import shutil, signal, sys
from pathlib import Path
import splitops
from splitops import files

folder, kind = Path(sys.argv[1]), sys.argv[2]
package, out = str(Path(splitops.__file__).parent), folder / "out"
numbers = signal.SIGINT, signal.SIGTERM
signal.signal(signal.SIGINT, signal.default_int_handler)  # what begins in the background ignores it
handlers = [signal.getsignal(number) for number in numbers]
parts = [folder / f"x.{number}.npy" for number in range(3)]

def run():
    if kind == "split":
        files.split(folder / "x.npy", out, axis=0, split=[5, 7, 8], verify=True)
    else:
        files.merge(parts, out / "y.npy", axis=0, verify=True)

def interrupt(at):
    '''Run, with Ctrl-C before a line of the package; return where that was.'''
    left, where = at, None
    def lines(frame, event, _):
        nonlocal left, where
        left -= event == "line"
        if event == "line" and left == 0:
            where = f"{frame.f_code.co_name}, line {frame.f_lineno}"
            sys.settrace(None)
            signal.raise_signal(signal.SIGINT)
        return lines
    sys.settrace(lambda frame, *_: lines if frame.f_code.co_filename.startswith(package) else None)
    try:
        run()
    except KeyboardInterrupt:
        return where
    finally:
        sys.settrace(None)
    return where and f"{where}: no KeyboardInterrupt"

def found():
    return {path.name: path.read_bytes() for path in out.iterdir()} if out.exists() else {}

run()
expected = found()
shutil.rmtree(out)
seen, at = set(), 1
while where := interrupt(at):
    assert found() in ({}, expected), where
    assert [signal.getsignal(number) for number in numbers] == handlers, where
    assert "no K" not in where, where
    seen.add(len(found()))
    shutil.rmtree(out, ignore_errors=True)
    at += 7
assert at > 500 and seen == {0, len(expected)}, (at, seen)
"""


@pytest.mark.parametrize("kind", ["split", "merge"])
def test_an_interrupt_anywhere_leaves_all_or_nothing(kind, tmp_path):
    array = np.arange(60_000, dtype=np.uint8).reshape(20, -1)
    np.save(tmp_path / "x.npy", array)
    for number, part in enumerate(np.split(array, [5, 12])):
        np.save(tmp_path / f"x.{number}.npy", part)
    command = [sys.executable, "-c", SCRIPT, tmp_path, kind]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


DESCRIPTORS = """
import gc, os, signal, sys
from pathlib import Path
from splitops import files
from splitops.files.descriptors import open_for_sync
from splitops.files.sources import LocalFile
from splitops.common.untrusted_files import open_regular

folder = Path(sys.argv[1])
signal.signal(signal.SIGINT, signal.default_int_handler)
names = {"open_regular", "__init__", "open", "_open"}
own = str(Path(files.__file__).parents[1]) + os.sep

def whole():
    how = {"overwrite": True, "sync": False, "verify": True}
    files.split(folder / "x.npy", folder / "out", axis=0, split=[5, 7, 8], **how)

def owned():
    with open_for_sync([folder / "x.npy", folder]):
        pass

def interrupt(what, at):
    left, hit = at, False
    def steps(frame, event, _):
        nonlocal left, hit
        left -= event == "opcode"
        if event == "opcode" and left == 0:
            hit = True
            sys.settrace(None)
            signal.raise_signal(signal.SIGINT)
        return steps
    def calls(frame, *_):
        if frame.f_code.co_filename.startswith(own) and frame.f_code.co_name in names:
            frame.f_trace_opcodes = True
            return steps
        return None
    sys.settrace(calls)
    try:
        what()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(None)
    return hit

def regular():
    open_regular(folder / "x.npy").close()

def local():
    LocalFile(folder / "x.npy")

for what in (regular, local, owned, whole):
    what()
    gc.collect()
    before = sorted(os.listdir("/proc/self/fd"))
    at = 1
    while interrupt(what, at):
        gc.collect()
        assert sorted(os.listdir("/proc/self/fd")) == before, (what.__name__, at)
        at += 1 if what is not whole else 13
    assert at > 20, at
"""


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="no list of open files")
def test_an_interrupt_between_opening_and_owning_leaves_no_descriptor(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(600, dtype=np.uint8).reshape(20, -1))
    command = [sys.executable, "-W", "ignore::ResourceWarning", "-c", DESCRIPTORS, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
