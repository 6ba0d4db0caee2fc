"""What the tests of the native core share: both implementations, arrays of every layout, comparison."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np
from hypothesis import strategies as st

from splitops.native import fallback as numpy_only

try:
    from splitops.native import _core as compiled
except ImportError:  # a build without a compiler: the fallback is tested alone
    compiled = None


class Implementation:
    """A module of the native layer, with what a plan does as functions of the array and its cut.

    What is not an array gets a plan for four elements.
    """

    def __init__(self, module: Any) -> None:
        self.module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self.module, name)

    def __repr__(self) -> str:
        return self.module.__name__.rpartition(".")[2]

    def plan(self, array: Any, *cut: Any) -> Any:
        return self.module.Plan(array.shape if isinstance(array, np.ndarray) else (4,), *cut)

    def views(self, array: Any, *cut: Any) -> Any:
        return self.plan(array, *cut).views(array)

    def copies(self, array: Any, *cut: Any, separate: bool = False) -> Any:
        return self.plan(array, *cut).copies(array, separate=separate)

    def copies_into(self, array: Any, axis: Any, offsets: Any, sizes: Any, squeeze: Any, out: Any) -> None:
        self.plan(array, axis, offsets, sizes, squeeze).copies_into(array, out)

    def fill(self, array: Any, axis: Any, offsets: Any, sizes: Any, squeeze: Any, out: Any) -> Any:
        return self.plan(array, axis, offsets, sizes, squeeze).fill(array, out)


fallback = Implementation(numpy_only)
_core = None if compiled is None else Implementation(compiled)
IMPLEMENTATIONS = [fallback] if _core is None else [_core, fallback]

DTYPES = [
    *map(np.dtype, ["?", "u1", "S3", "<i2", ">u2", "e", "f4", ">i4", "S5", "S6", "V7"]),
    *map(np.dtype, ["f8", ">c8", "M8[s]", "U3", "S9", "S11", "c16"]),
    np.dtype([("a", "u1"), ("b", ">i4")]),
]


def assert_same(got: tuple[Any, ...], expected: tuple[Any, ...]) -> None:
    """The same number of parts with the same shape, dtype and bytes each."""
    assert len(got) == len(expected)
    for g, e in zip(got, expected, strict=True):
        assert type(g) is np.ndarray
        assert g.shape == e.shape
        assert g.dtype == e.dtype
        assert g.dtype.byteorder == e.dtype.byteorder
        assert g.tobytes() == e.tobytes()


def filled(shape: tuple[int, ...], dtype: np.dtype[Any], seed: int = 0) -> np.ndarray[Any, Any]:
    """An array of random bytes (every byte pattern of a dtype without objects is allowed)."""
    rng = np.random.default_rng(seed)
    count = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    low, high = (1, 127) if dtype.kind == "S" else (0, 256)
    data = rng.integers(low, high, count, dtype=np.uint8)
    if dtype.kind == "U":  # code points, not arbitrary bytes
        return rng.integers(65, 91, (*shape, 3), dtype=np.uint32).view(dtype).reshape(shape)
    if dtype.kind == "b":
        data &= 1
    return data.view(dtype).reshape(shape) if count else np.empty(shape, dtype)


def misaligned(array: np.ndarray[Any, Any], shift: int) -> np.ndarray[Any, Any]:
    """The same values, `shift` bytes off the alignment of the allocator."""
    buffer = np.empty(array.nbytes + shift, np.uint8)
    result = np.ndarray(array.shape, array.dtype, buffer, offset=shift)
    result[...] = array
    return result


@st.composite
def arrays(draw: Any, min_ndim: int = 1) -> np.ndarray[Any, Any]:
    """Arrays of every layout: transposed, reversed, stepped, broadcast, misaligned, empty, read-only."""
    dtype = draw(st.sampled_from(DTYPES))
    ndim = draw(st.integers(min_ndim, 5))
    shape = tuple(draw(st.integers(0, 6)) for _ in range(ndim))
    if draw(st.booleans()):  # one longer axis reaches the vector kernels
        long = draw(st.integers(0, ndim - 1))
        shape = tuple(draw(st.integers(20, 200)) if i == long else min(n, 4) for i, n in enumerate(shape))
    array = filled(shape, dtype, draw(st.integers(0, 3)))
    if draw(st.booleans()):
        array = misaligned(array, draw(st.integers(1, 9)))
    for _ in range(draw(st.integers(0, 3))):
        change = draw(st.sampled_from(["transpose", "slice", "fortran", "broadcast", "new axis"]))
        if change == "transpose":
            array = array.transpose(draw(st.permutations(range(array.ndim))))
        elif change == "slice":
            array = array[
                tuple(
                    slice(None, None, draw(st.sampled_from([1, 1, 2, -1, -2, 3])))
                    if draw(st.booleans())
                    else slice(draw(st.integers(0, 2)), None)
                    for _ in range(array.ndim)
                )
            ]
        elif change == "fortran":
            array = np.asfortranarray(array)
        elif change == "broadcast":
            array = np.broadcast_to(array, (draw(st.integers(0, 3)), *array.shape))
        else:
            array = np.expand_dims(array, draw(st.integers(0, array.ndim)))
    if draw(st.booleans()):
        array = array.view()
        array.flags.writeable = False
    return array


@st.composite
def cuts(draw: Any, array: np.ndarray[Any, Any]) -> tuple[int, tuple[int, ...], tuple[int, ...], bool]:
    """Axis, offsets, sizes and squeeze: a partition of the axis, or any parts within it."""
    axis = draw(st.integers(0, array.ndim - 1))
    extent = array.shape[axis]
    kind = draw(st.sampled_from(["partition", "even", "any", "squeeze"]))
    if kind == "squeeze" and extent > 0:
        offsets = tuple(draw(st.lists(st.integers(0, extent - 1), max_size=6)))
        return axis, offsets, (1,) * len(offsets), True
    if kind == "even" and extent > 0:
        size = draw(st.sampled_from([n for n in range(1, extent + 1) if extent % n == 0]))
        return axis, tuple(range(0, extent, size)), (size,) * (extent // size), False
    if kind == "any":
        offsets = tuple(draw(st.lists(st.integers(0, extent), max_size=6)))
        return axis, offsets, tuple(draw(st.integers(0, extent - o)) for o in offsets), False
    points = sorted(draw(st.lists(st.integers(0, extent), max_size=6)))
    offsets = (0, *points)
    ends = (*points, extent)
    return axis, offsets, tuple(e - o for o, e in zip(offsets, ends, strict=True)), False


class Guarded:
    """Memory between two pages that may not be touched: any access outside of it ends the process."""

    def __init__(self, size: int) -> None:
        page = mmap.PAGESIZE
        self.size = -(-size // page) * page
        self._map = mmap.mmap(-1, self.size + 2 * page)
        self._bytes = np.frombuffer(self._map, np.uint8)
        address = self._bytes.ctypes.data
        libc = ctypes.CDLL(None, use_errno=True)
        for guard in (address, address + page + self.size):
            if libc.mprotect(ctypes.c_void_p(guard), ctypes.c_size_t(page), 0) != 0:
                raise OSError(ctypes.get_errno(), "mprotect")

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any], at_end: bool) -> np.ndarray[Any, Any]:
        """A C-contiguous array that ends (or begins) exactly at a guard page."""
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        offset = mmap.PAGESIZE + (self.size - nbytes if at_end else 0)
        return np.ndarray(shape, dtype, self._bytes.data, offset=offset)
