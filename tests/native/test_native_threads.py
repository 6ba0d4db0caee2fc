"""Threads that change what others split, small stacks, no memory, other interpreters: nothing breaks."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
from native_helpers import _core
from test_native_function import Halves
from test_native_safety import in_threads

import splitops
from splitops import native

needs_core = pytest.mark.skipif(_core is None, reason="the extension module is not built")
FREE_THREADED = not getattr(sys, "_is_gil_enabled", lambda: True)()


def printed(script: str) -> str:
    """What a script prints in a process of its own, which ends well."""
    command = [sys.executable, "-W", "ignore", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


class Changing(Halves):
    """A function whose caller changes the lengths, or the array, while they are planned."""

    def __init__(self, change: Any) -> None:
        super().__init__()
        self.change = change

    def plan(self, data: Any, split: Any, axis: Any) -> Any:
        self.change()
        self.planned.append((list(split), axis))
        return _core.Plan(data.shape, 0, (0, int(split[0])), tuple(map(int, split)))


@needs_core
@pytest.mark.parametrize("kind", [list, np.array], ids=["list", "array"])
def test_lengths_that_change_while_they_are_planned_spoil_no_later_call(kind: Any) -> None:
    lengths = kind([1, 3])

    def change() -> None:
        lengths[:] = kind([2, 2])

    changing = Changing(change)
    assert [len(part) for part in changing.function(np.zeros(4), lengths)] == [1, 3]
    assert changing.planned == [([1, 3], 0)]
    assert [len(part) for part in changing.function(np.zeros(4), kind([1, 3]))] == [1, 3]
    assert len(changing.planned) == 1


@needs_core
def test_an_array_that_gets_another_shape_while_it_is_planned_is_not_split_by_that_plan() -> None:
    array = np.zeros((4, 3))

    def change() -> None:
        array.shape = (3, 4)

    changing = Changing(change)
    assert changing.function(array, [1, 2]) == "called"
    array.shape = (4, 3)
    changing.change = lambda: None
    assert [part.shape for part in changing.function(array, [1, 3])] == [(1, 3), (3, 3)]
    with pytest.raises(ValueError, match="outside axis 0"):
        changing.function(array, [1, 4])


@needs_core
@pytest.mark.skipif(FREE_THREADED, reason="shapes may change between any two reads, as in NumPy")
def test_an_array_may_get_another_shape_while_its_bytes_are_copied() -> None:
    array = np.arange(1 << 22, dtype=np.uint8).reshape(2048, -1)
    plan = _core.Plan(array.shape, 1, (0, 100), (100, array.shape[1] - 100))
    expected = [array[:, :100].copy(), array[:, 100:].copy()]
    buffers = [
        np.empty((expected[0].size * 2,), np.uint8)[::2].reshape(2048, 100),
        np.empty_like(expected[1]),
    ]
    done = threading.Event()

    def reshape() -> None:
        while not done.is_set():
            array.shape = (-1,)
            array.shape = (2048, -1)

    thread = threading.Thread(target=reshape)
    thread.start()
    copied = 0
    try:
        for _ in range(20):
            for call in (plan.copies, lambda data: plan.fill(data, buffers)):
                try:
                    parts = call(array)
                except ValueError:  # it had the other shape just then
                    continue
                assert all((one == other).all() for one, other in zip(parts, expected, strict=True))
                copied += 1
    finally:
        done.set()
        thread.join()
    assert copied


def test_threads_share_functions_and_plans() -> None:
    plan = splitops.plan("Split", shape=(12, 7), axis=0, num_outputs=5)

    def work(index: int) -> None:
        data = np.full((12, 7), index)
        for turn in range(300):
            size = (turn + index) % 12
            first, second = splitops.onnx.split(data, [size, 12 - size], copy=turn % 2 == 0 or None)
            assert (first.shape[0], second.shape[0]) == (size, 12 - size)
            assert all((part == index).all() for part in (first, second, *plan(data, copy=True)))

    in_threads(work)


def test_small_stacks_are_enough() -> None:
    """The smallest stack that a Python thread may have: what is not enough for NumPy is not asked for."""
    script = """
import threading
import numpy as np, splitops
array = np.arange(3 << 19, dtype=np.uint8).reshape(-1, 24)
failed = []
def work():
    try:
        for axis, sizes in ((1, [1] * 24), (1, [5, 19]), (0, [1, len(array) - 1])):
            for data in (array, np.asfortranarray(array), array.T.copy().T):
                parts = splitops.onnx.split(data, sizes, axis=axis, copy=True)
                splitops.onnx.split(data, sizes, axis=axis, out=parts)
                assert (np.concatenate(parts, axis) == array).all()
    except BaseException as error:
        failed.append(error)
threading.stack_size(64 << 10)
for _ in range(3):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
print(failed)
"""
    assert printed(script) == "[]\n"


def test_the_end_of_the_stack_is_an_error() -> None:
    script = """
import numpy as np, splitops
plan = splitops.plan("Split", shape=(4,), num_outputs=2)
turn = 0
def dig():
    global turn
    turn += 1
    parts = splitops.onnx.split(np.zeros(4), [turn % 5, 4 - turn % 5])
    assert len(parts[0]) == turn % 5 and len(plan([1, 2, 3, 4])) == 2
    dig()
try:
    dig()
except RecursionError:
    print("RecursionError")
print(len(splitops.onnx.split(np.zeros(4), [1, 3])))
"""
    assert printed(script) == "RecursionError\n2\n"


def test_no_memory_is_an_error_wherever_it_ends() -> None:
    """Memory ends a little later each time, so that every allocation of a call fails once."""
    script = """
import resource
import numpy as np, splitops
from splitops import native
native.set_num_threads(3)
array = np.zeros((64, 1 << 14), np.uint8)
out = [np.empty((64, 1 << 13), np.uint8) for _ in range(2)]
short = np.zeros((8, 8))
calls = (
    lambda i: splitops.onnx.split(array, num_outputs=2, axis=1, copy=True),
    lambda i: splitops.onnx.split(array, num_outputs=2, axis=1, out=out),
    lambda i: splitops.onnx.split_to_sequence(short, [i % 8, 8 - i % 8]),
    lambda i: splitops.plan("Split", shape=(100000,), num_outputs=50000)(np.zeros(100000, "u1"), copy=True),
)
failed = 0
hard = resource.getrlimit(resource.RLIMIT_AS)[1]
for more in range(0, 160):
    size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + (more << 15), hard))
    for call in calls:
        try:
            call(more)
        except MemoryError:
            failed += 1
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    native.release_pool()
for call in calls:
    call(0)
print(failed > 0)
"""
    if not hasattr(native._implementation, "instruction_sets"):
        pytest.skip("NumPy alone")
    assert printed(script) == "True\n"


SUBINTERPRETER = """
import sys
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
import numpy as np, splitops
script = '''
try:
    import numpy as np, splitops
except ImportError as error:
    print("rejected")
else:
    print([part.tolist() for part in splitops.onnx.split(np.arange(6), [2, 4])], splitops.native.available)
'''
plan = splitops.plan("Split", shape=(6,), num_outputs=2)
for _ in range(2):
    made = interpreters.create()
    failed = interpreters.run_string(made, script)
    assert failed is None, failed
    interpreters.destroy(made)
assert [part.tolist() for part in splitops.onnx.split(np.arange(6), [2, 4])] == [[0, 1], [2, 3, 4, 5]]
assert [part.tolist() for part in plan(np.arange(6), copy=True)] == [[0, 1, 2], [3, 4, 5]]
"""


def test_another_interpreter_is_rejected_or_right() -> None:
    """NumPy rejects it; where an older one does not, the second one does without the compiled core."""
    pytest.importorskip("_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters")
    assert set(printed(SUBINTERPRETER).splitlines()) in (
        {"rejected"},
        {"[[0, 1], [2, 3, 4, 5]] False"},
    )


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere processes are not forked")
def test_processes_of_a_pool_copy_too() -> None:
    script = """
import multiprocessing, threading
import numpy as np, splitops
def work(index):
    data = np.full((600, 3000), index, np.uint8)
    parts = splitops.onnx.split(data, num_outputs=7, axis=1, copy=True)
    return sum(int((part == index).all()) for part in parts)
splitops.set_num_threads(3)
stop = threading.Event()
def busy():
    while not stop.is_set():
        work(1)
threads = [threading.Thread(target=busy) for _ in range(2)]
for thread in threads:
    thread.start()
with multiprocessing.get_context("fork").Pool(3) as pool:
    print(set(pool.map(work, range(12))))
stop.set()
for thread in threads:
    thread.join()
"""
    assert printed(script) == "{7}\n"
