"""Rejections, ownership, threads, forks: what must hold whoever the caller is."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from native_helpers import IMPLEMENTATIONS, _core, fallback

from splitops import native
from splitops.native import file_fallback, resources

implementations = pytest.mark.parametrize("implementation", IMPLEMENTATIONS, ids=repr)
needs_core = pytest.mark.skipif(_core is None, reason="the extension module is not built")
BIG = 1 << 62


def calls(implementation: Any) -> list[Callable[..., Any]]:
    def into(array: Any, *cut: Any) -> Any:
        return implementation.copies_into(array, *cut, ())

    def plan(array: Any, *cut: Any) -> Any:
        return implementation.Plan(array.shape, *cut)

    def fill(array: Any, *cut: Any) -> Any:
        return implementation.fill(array, *cut, ())

    return [implementation.views, implementation.copies, into, fill, plan]


@implementations
@pytest.mark.parametrize(
    ("cut", "error"),
    [
        ((2, (0,), (1,), False), ValueError),
        ((-1, (0,), (1,), False), ValueError),
        ((0, (-1,), (1,), False), ValueError),
        ((0, (0,), (-1,), False), ValueError),
        ((0, (0,), (5,), False), ValueError),
        ((0, (4,), (1,), False), ValueError),
        ((0, (5,), (0,), False), ValueError),
        ((0, (BIG,), (BIG,), False), ValueError),
        ((0, (1,), ((1 << 63) - 1,), False), ValueError),
        ((0, (1 << 64,), (1,), False), ValueError),
        ((0, (0, 1), (1,), False), ValueError),
        ((0, (0,), (2,), True), ValueError),
        ((0, (0.0,), (1,), False), TypeError),
        ((0, (0,), (np.float64(1),), False), TypeError),
        ((0, 0, 1, False), TypeError),
        ((0.0, (0,), (1,), False), TypeError),
        ((0, (0,), (1,), 1), TypeError),
    ],
)
def test_bad_cuts_are_rejected(implementation: Any, cut: tuple[Any, ...], error: type[Exception]) -> None:
    array = np.zeros((4, 3))
    for call in calls(implementation):
        with pytest.raises(error):
            call(array, *cut)


@implementations
def test_only_exact_arrays(implementation: Any) -> None:
    for array in (np.zeros(4).view(np.recarray), np.ma.zeros(4), [1, 2, 3, 4], None, np.float64(1)):
        for call in calls(implementation)[:4]:
            with pytest.raises(TypeError):
                call(array, 0, (0,), (1,), False)
    with pytest.raises(ValueError, match="axis"):
        implementation.views(np.zeros(()), 0, (), (), False)


@implementations
@pytest.mark.parametrize("shape", [(-1, 2), (1 << 64,), (1.0,)])
def test_impossible_shapes(implementation: Any, shape: tuple[int, ...]) -> None:
    with pytest.raises((ValueError, TypeError), match="shape"):
        implementation.Plan(shape, 0, (), ())


@implementations
@pytest.mark.parametrize("shape", [(BIG, 4), (BIG, BIG, 0), (1,) * 65])
def test_a_plan_for_more_than_numpy_has_fits_no_array(implementation: Any, shape: tuple[int, ...]) -> None:
    plan = implementation.Plan(shape, 0, (0,), (1,))
    assert plan.shape == shape
    for array in (np.zeros((4, 4)), np.zeros(()), np.zeros((1,) * 64)):
        with pytest.raises(ValueError, match="this plan is for shape"):
            plan.views(array)


@implementations
def test_copies_beyond_the_address_space(implementation: Any) -> None:
    wide = np.broadcast_to(np.zeros(1, "u1"), (1 << 50,))
    with pytest.raises(MemoryError, match="63 bits"):
        implementation.copies(wide, 0, (0,) * 8192, (1 << 50,) * 8192, False)


@needs_core
def test_no_memory() -> None:
    wide = np.broadcast_to(np.zeros(1, "u1"), (1 << 50,))
    for separate in (False, True):
        with pytest.raises(MemoryError, match=str(1 << 50)):
            _core.copies(wide, 0, (0,), (1 << 50,), False, separate=separate)


@implementations
def test_bad_buffers_are_rejected_before_anything_is_written(implementation: Any) -> None:
    array = np.arange(6, dtype="i4")
    cut = (0, (0, 2), (2, 4), False)
    good = np.zeros(2, "i4")
    locked = np.zeros(4, "i4")
    locked.flags.writeable = False
    for bad, error in (
        (np.zeros(3, "i4"), ValueError),
        (np.zeros((4, 1), "i4"), ValueError),
        (np.zeros(4, "u4"), ValueError),
        (np.zeros(4, ">i4"), ValueError),
        (locked, ValueError),
        ([0] * 4, TypeError),
        (np.zeros(4, "i4").view(np.recarray), TypeError),
    ):
        with pytest.raises(error):
            implementation.copies_into(array, *cut, [good, bad])
    for bad in ([good], [good] * 3):
        with pytest.raises(ValueError, match="2 parts"):
            implementation.copies_into(array, *cut, bad)
    with pytest.raises(TypeError):
        implementation.copies_into(array, *cut, iter([good, good]))
    assert not good.any()


@implementations
def test_what_does_not_fit_is_not_filled(implementation: Any) -> None:
    array = np.arange(1000, dtype="i4")
    cut = (0, tuple(range(1000)), (1,) * 1000, False)
    locked = np.zeros(1, "i4")
    locked.flags.writeable = False
    plan = implementation.Plan((1000,), *cut)
    for bad in (
        np.zeros(2, "i4"),
        np.zeros((1, 1), "i4"),
        np.zeros(1, "u4"),
        np.zeros(1, ">i4"),
        locked,
        [0],
        None,
        np.zeros(1, "i4").view(np.recarray),
        array[:1],
    ):
        out: list[Any] = [np.full(1, -1, "i4") for _ in range(1000)]
        out[500] = bad
        for fill in (
            lambda out: implementation.fill(array, *cut, out),
            lambda out: plan.fill(array, out),
        ):
            assert fill(out) is None
            assert fill(tuple(out)) is None
            assert all((buffer == -1).all() for i, buffer in enumerate(out) if i != 500)
    for no_list in (None, 3, iter([locked] * 1000), [locked] * 999):
        assert implementation.fill(array, *cut, no_list) is None
    assert array[0] == 0


@implementations
def test_a_plan_takes_its_shape_only(implementation: Any) -> None:
    plan = implementation.Plan((4, 3), 0, (0, 1), (1, 3))
    for call in (
        plan.views,
        plan.copies,
        lambda a: plan.copies_into(a, ()),
        lambda a: plan.fill(a, ()),
    ):
        for wrong in (np.zeros((3, 4)), np.zeros(4), np.zeros((4, 3, 1))):
            with pytest.raises(ValueError, match="shape"):
                call(wrong)
        with pytest.raises(TypeError):
            call([1])


@implementations
def test_objects_keep_their_reference_counts(implementation: Any) -> None:
    item = object()
    array = np.full((6, 5), item, dtype=object)
    before = sys.getrefcount(item)
    views = implementation.views(array, 0, (0, 2), (2, 4), False)
    assert sys.getrefcount(item) == before
    copies = implementation.copies(array[:, ::2], 1, (0, 1), (1, 2), False)
    assert sys.getrefcount(item) == before + 18
    assert copies[1][5, 1] is item
    out = [np.empty((6, 5), object)]
    implementation.copies_into(array, 0, (0,), (6,), False, out)
    implementation.copies_into(array, 0, (0,), (6,), False, out)
    assert sys.getrefcount(item) == before + 48
    del copies, out, views
    gc.collect()
    assert sys.getrefcount(item) == before
    record = np.zeros(4, [("a", "u1"), ("b", object)])
    record["b"] = item
    (copy,) = implementation.copies(record, 0, (0,), (4,), False)
    assert sys.getrefcount(item) == before + 8
    del copy, record
    assert sys.getrefcount(item) == before


@implementations
def test_variable_strings_own_their_text(implementation: Any) -> None:
    texts = np.array([["short", "x" * 400], ["", "y" * 5000], ["ü" * 30, "z"]], dtype=np.dtypes.StringDType())
    expected = texts.tolist()
    views = implementation.views(texts, 0, (0, 1), (1, 2), False)
    assert [v.tolist() for v in views] == [expected[:1], expected[1:]]
    copies = implementation.copies(texts, 0, (0, 1), (1, 2), False)
    out = [np.empty_like(v) for v in views]
    implementation.copies_into(texts, 0, (0, 1), (1, 2), False, out)
    del views
    texts[...] = "gone" * 1000
    del texts
    gc.collect()
    for parts in (copies, out):
        assert [p.tolist() for p in parts] == [expected[:1], expected[1:]]


@implementations
def test_writing_through_views(implementation: Any) -> None:
    array = np.zeros((4, 4), "i4")
    first, second = implementation.views(array, 1, (0, 1), (1, 3), False)
    first[...] = 1
    second[...] = 2
    assert array.tolist() == [[1, 2, 2, 2]] * 4
    array.flags.writeable = False
    assert not implementation.views(array, 0, (0,), (4,), False)[0].flags.writeable


@implementations
def test_references_of_dtypes_and_arrays_balance(implementation: Any) -> None:
    dtype = np.dtype([("balance", ">i4"), ("of", "f8")])
    array = np.zeros((8, 8), dtype)
    plan = implementation.Plan((8, 8), 0, (0, 4), (4, 4))
    listed = implementation.Plan((8, 8), 0, (0, 4), (4, 4), False, True)

    def use() -> None:
        plan.views(array)
        plan.copies(array)
        plan.copies(array, separate=True)
        plan.copies_into(array, plan.copies(array))
        plan.fill(array, plan.copies(array))
        plan.fill(array, list(plan.copies(array)))
        plan.fill(array, [array, array])
        listed.views(array)
        listed.copies(array)
        listed.fill(array, plan.copies(array))
        for bad in ((9, (0,), (1,)), (0, (7,), (2,))):
            with pytest.raises(ValueError, match="axis"):
                implementation.copies(array, *bad, False)

    use()
    gc.collect()
    before = sys.getrefcount(array), sys.getrefcount(array.dtype), sys.getrefcount(plan)
    for _ in range(50):
        use()
    gc.collect()
    after = sys.getrefcount(array), sys.getrefcount(array.dtype), sys.getrefcount(plan)
    assert all(b - a < 5 for a, b in zip(before, after, strict=True)), (before, after)


def in_threads(work: Callable[[int], None], count: int = 4) -> None:
    errors: list[BaseException] = []

    def run(index: int) -> None:
        try:
            work(index)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors


@implementations
def test_many_threads_at_once(implementation: Any) -> None:
    plan = implementation.Plan((600, 3000), 1, (0, 1000), (1000, 2000))

    def work(index: int) -> None:
        array = np.full((600, 3000), index, "u1")
        for _ in range(30):
            parts = plan.copies(array)
            plan.copies_into(array, parts)
            assert all((part == index).all() for part in parts)

    in_threads(work)


@needs_core
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_copies_too() -> None:
    script = """
import os, threading, numpy as np
from splitops import native
native.set_num_threads(2)
array = np.arange(1 << 21, dtype="u4").reshape(2, -1)
def use():
    parts = native.Plan(array.shape, 1, (0, 5), (5, array.shape[1] - 5)).copies(array)
    assert (parts[1] == array[:, 5:]).all()
use()
stop = threading.Event()
def busy():
    while not stop.is_set():
        use()
thread = threading.Thread(target=busy)
thread.start()
for _ in range(20):
    pid = os.fork()
    if pid == 0:
        try:
            use(); use()
        except BaseException:
            os._exit(1)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
stop.set(); thread.join()
print("done")
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, timeout=120
    )
    assert done.stdout == "done\n", done.stderr


ENDLESS = {
    "copies": "native.Plan(large.shape, 0, (0, 1), (1, 3)).copies(large)",
    "columns": "native.Plan(large.shape, 1, (0, 1), (1, 7)).copies(large)",
    "out": "native.Plan(large.shape, 0, (0, 1), (1, 3)).copies_into(large, buffers)",
    "strings": "native.Plan(strings.shape, 0, (0, 1), (1, 3)).copies(strings)",
    "strings into": "native.Plan(strings.shape, 0, (0, 1), (1, 3)).copies_into(strings, string_buffers)",
    "objects": "native.Plan(objects.shape, 0, (0, 1), (1, 3)).copies(objects)",
    "release": "native.release_pool()",
    "calls": "splitops.onnx.split(large, [np.int64(1), 3], copy=True)",
    "planned": "splitops.onnx.split(large[:, : time.monotonic_ns() % 8], [1, 3], copy=True)",
    "files": "assert files.copy_extents(*read, [file], None, 2, lambda size: None)[1] is None",
}


@pytest.mark.parametrize("call", ENDLESS.values(), ids=ENDLESS)
def test_daemon_threads_that_copy_end_with_the_interpreter(call: str) -> None:
    """CPython stops them where they take the interpreter back: in the middle of a call of ours."""
    script = f"""
import tempfile, threading, time
import numpy as np, splitops
from splitops import native
from splitops.native import files
large = np.zeros((4, 8, 1 << 16), np.uint8)
buffers = [np.zeros((n, 8, 1 << 16), np.uint8) for n in (1, 3)]
strings = np.full((4, 10000), "longer than what a string holds itself", np.dtypes.StringDType())
string_buffers = [np.empty((n, 10000), strings.dtype) for n in (1, 3)]
objects = np.full((4, 10000), None, object)
row = 1 << 20
tables = (1 << 10, 1), (0, 0, 0, row, row), (0, 0, 0, row, row), (0, 0, 0, 0, row)
read = [np.array([line], np.int64) for line in tables]
sparse = tempfile.TemporaryFile()
sparse.truncate(1 << 30)
file = sparse.fileno()
copying = [threading.Event() for _ in range(3)]
def work(event):
    while True:
        {call}
        event.set()
for event in copying:
    threading.Thread(target=work, args=(event,), daemon=True).start()
for event in copying:
    event.wait()
"""
    for _ in range(5):
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
        assert (done.returncode, done.stderr) == (0, "")


@needs_core
def test_guard_pages_catch_an_overrun() -> None:
    script = f"""
import ctypes, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from native_helpers import Guarded, np
guard = Guarded(1)
last = guard.array((guard.size,), np.dtype("u1"), True).ctypes.data + guard.size - 1
"""
    for beyond, status in ((0, 0), (1, -signal.SIGSEGV)):
        code = f"{script}ctypes.memset(last + {beyond}, 1, 1)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True)
        assert done.returncode == status, done.stderr


@needs_core
def test_blocks_return_to_the_pool_with_the_last_part() -> None:
    array = np.zeros((4, 1 << 18), "u1")
    gc.collect()
    native.release_pool()
    start = native.pool_statistics()
    parts = _core.copies(array, 0, (0, 1), (1, 3), False)
    used = native.pool_statistics()
    assert used.used_blocks == start.used_blocks + 1
    assert used.used_bytes - start.used_bytes >= array.nbytes
    assert used.allocations == start.allocations + 1
    view = parts[1][0, 5:9]
    del parts
    assert native.pool_statistics().used_blocks == used.used_blocks
    del view
    idle = native.pool_statistics()
    assert (idle.used_blocks, idle.idle_blocks) == (start.used_blocks, 1)
    parts = _core.copies(array, 0, (0, 1), (1, 3), False)
    again = native.pool_statistics()
    assert (again.reuses, again.allocations, again.idle_blocks) == (start.reuses + 1, used.allocations, 0)
    separate = _core.copies(array, 0, (0, 1), (2, 2), False, separate=True)
    assert native.pool_statistics().used_blocks == start.used_blocks + 3
    first, second = separate
    del separate, first
    assert native.pool_statistics().used_blocks == start.used_blocks + 2
    del parts, second
    assert native.pool_statistics().used_blocks == start.used_blocks
    native.release_pool()
    assert native.pool_statistics().idle_bytes == 0


@needs_core
def test_the_pool_is_bounded() -> None:
    limit = native.pool_limit()
    try:
        native.release_pool()
        assert native.pool_limit(1 << 20) == 1 << 20
        arrays = [_core.copies(np.zeros(300_000, "u1"), 0, (0,), (300_000,), False) for _ in range(8)]
        del arrays
        assert 0 < native.pool_statistics().idle_bytes <= 1 << 20
        large = _core.copies(np.zeros(1 << 22, "u1"), 0, (0,), (1 << 22,), False)
        del large
        assert 0 < native.pool_statistics().idle_bytes <= 1 << 20
        native.pool_limit(0)
        assert native.pool_statistics().idle_bytes == 0
    finally:
        native.pool_limit(limit)


def test_public_settings() -> None:
    threads, limit = native.get_num_threads(), native.pool_limit()
    assert threads == resources.count_threads()
    try:
        native.set_num_threads(3)
        assert native.get_num_threads() == 3
        assert native.pool_limit(12345) == 12345
        assert native.pool_statistics().limit == 12345
    finally:
        native.set_num_threads(None)
        native.pool_limit(limit)
    assert native.get_num_threads() == threads
    for wrong in (0, -1, 5000):
        with pytest.raises(ValueError, match="threads"):
            native.set_num_threads(wrong)
    for wrong in (True, 1.0, "2"):
        with pytest.raises(TypeError):
            native.set_num_threads(wrong)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            native.pool_limit(wrong)  # type: ignore[arg-type]
    for wrong in (-1, 1 << 63):
        with pytest.raises(ValueError, match="limit"):
            native.pool_limit(wrong)


@pytest.mark.parametrize(("text", "count"), [("3", 3), ("1", 1)])
def test_threads_from_the_environment(monkeypatch: pytest.MonkeyPatch, text: str, count: int) -> None:
    monkeypatch.setenv("SPLITOPS_NUM_THREADS", text)
    assert resources.count_threads() == count


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5", " "])
def test_bad_threads_in_the_environment(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("SPLITOPS_NUM_THREADS", text)
    with pytest.warns(UserWarning, match="SPLITOPS_NUM_THREADS"):
        assert resources.count_threads() == resources.count_processors()


def test_control_groups_bound_the_resources(tmp_path: Path) -> None:
    own = tmp_path / "cgroup"
    own.write_text("1:name=systemd:/x\n0::/outer/inner\n")
    inner = tmp_path / "root" / "outer" / "inner"
    inner.mkdir(parents=True)
    (inner / "cpu.max").write_text("max 100000\n")
    (inner.parent / "cpu.max").write_text("50000 100000\n")
    (inner / "memory.max").write_text("1048576\n")
    assert resources.count_processors(tmp_path / "root", own) == 1
    assert resources.read_memory_limit(tmp_path / "root", own) == 1048576
    assert resources.count_processors(tmp_path / "root", tmp_path / "none") >= 1
    own.write_text("1:name=systemd:/x\n")  # no version 2
    assert resources.read_memory_limit(tmp_path / "root", own) > 1 << 26
    own.write_text("0::/\n")
    assert resources.read_memory_limit(tmp_path / "root", own) > 1 << 26


@pytest.mark.parametrize(("value", "native_in_use"), [("0", False), ("1", _core is not None)])
def test_the_environment_chooses_the_implementation(value: str, native_in_use: bool) -> None:
    script = "from splitops import native; print(native.available, native._implementation.__name__)"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "SPLITOPS_NATIVE": value},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split()[0] == str(native_in_use)
    assert ("fallback" in done.stdout) != native_in_use


@needs_core
def test_both_implementations_have_the_same_functions() -> None:
    hooks = {"instruction_sets", "use_instruction_set", "thresholds", "set_thresholds", "Function"}
    names = {name for name in dir(_core.module) if not name.startswith("_")} - hooks
    assert names <= {*dir(fallback.module), *dir(file_fallback)}
    methods = {name for name in dir(_core.Plan) if not name.startswith("_")}
    assert methods == {name for name in dir(fallback.Plan) if not name.startswith("_")}
