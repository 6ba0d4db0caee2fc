"""Tensors in files as arrays that are read when they are used, and only as far as they are."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from splitops.backends import Backend, register
from splitops.backends.capabilities import Capabilities
from splitops.backends.slicing import slices
from splitops.errors import ArrayError, FileError, brief
from splitops.files.extents import runs_along, steps_of
from splitops.files.formats import Contents, Format
from splitops.files.planning import AnyPath, read
from splitops.files.sources import Source
from splitops.files.tensors import StoredTensor
from splitops.native import SplitPlan
from splitops.spec.elements.packing import unpack
from splitops.spec.elements.types import ElementType

_BLOCK: Final = 1 << 20
_MAX_GAP: Final = 16 << 10
"""Runs this close together are read at once, a block at a time."""


class LazyTensor:
    """A tensor in a file, or a box of it. Slicing reads nothing; becoming an array reads what it holds.

    Attributes:
        stored: where its bytes are.

    Examples:
        >>> import pathlib, tempfile
        >>> import numpy as np, splitops
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "x.npy"
        >>> np.save(path, np.arange(12).reshape(3, 4))
        >>> tensor = splitops.files.open(path)[""]
        >>> tensor
        LazyTensor(int64 (3, 4) in 'x.npy')
        >>> first, second = splitops.onnx.split(tensor, [1, 3], axis=1)
        >>> np.asarray(second[:, -1])
        array([ 3,  7, 11])
    """

    __slots__ = ("_ranges", "_source", "stored")

    def __init__(
        self, source: Source, stored: StoredTensor, ranges: tuple[range | int, ...] | None = None
    ) -> None:
        self.stored = stored
        self._source = source
        # What is taken of each axis of the stored tensor: positions, or the one of an axis that is gone.
        self._ranges = tuple(map(range, stored.shape)) if ranges is None else ranges

    @property
    def name(self) -> str:
        """The tensor's name in the file."""
        return self.stored.name

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape."""
        return tuple(_count(found) for found in self._ranges if isinstance(found, range))

    @property
    def ndim(self) -> int:
        """The rank."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the array that it becomes.

        Raises:
            FileError: no array holds its elements.
        """
        stored = self.stored
        dtype = stored.dtype
        if dtype is None and stored.element_type is not None:
            dtype = stored.element_type.numpy
        if dtype is None:
            raise FileError(f"{stored.label} is of type {stored.code}, whose elements no array holds")
        return dtype

    @property
    def element_type(self) -> ElementType | None:
        """The element type, where it is one of ours."""
        return self.stored.element_type

    def __repr__(self) -> str:
        kind = self.stored.element_type or self.stored.code
        return f"{type(self).__name__}({kind} {self.shape} in {str(self._source.path.name)!r})"

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a tensor of rank 0 has no length")
        return self.shape[0]

    def __getitem__(self, key: Any) -> LazyTensor:
        """Return a box of the tensor, by integers, slices with steps of at least 1, and an ellipsis.

        Raises:
            IndexError: an integer is outside of its axis, or there are too many.
            TypeError: anything else is in the brackets.
        """
        keys = list(key) if isinstance(key, tuple) else [key]
        if keys.count(Ellipsis) == 0:
            keys.append(Ellipsis)
        at = keys.index(Ellipsis)
        missing = self.ndim - (len(keys) - 1)
        if missing < 0 or keys.count(Ellipsis) > 1:
            raise IndexError(f"{len(keys) - 1} indices for a tensor of rank {self.ndim}")
        keys[at : at + 1] = [slice(None)] * missing
        todo = iter(keys)
        ranges = tuple(
            _narrowed(found, next(todo)) if isinstance(found, range) else found for found in self._ranges
        )
        return LazyTensor(self._source, self.stored, ranges)

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """Read the tensor into an array of its own.

        Raises:
            FileError: the file cannot be read, has lost its end, or declares a shape that no array has.
            ValueError: ``copy=False``, which a file cannot give.
        """
        if copy is False:
            raise ValueError("a tensor in a file becomes an array by reading it: copy=False cannot be")
        array = self._read()
        return array if dtype is None else array.astype(dtype, copy=False)

    def _read(self) -> npt.NDArray[Any]:
        dtype, stored = self.dtype, self.stored
        ranges, shape = [r if isinstance(r, range) else range(r, r + 1) for r in self._ranges], stored.shape
        if stored.fortran:  # its bytes are those of the row-major tensor with the axes reversed
            ranges, shape = ranges[::-1], shape[::-1]
        try:
            box = np.empty([_count(found) for found in ranges], dtype)
        except ValueError as error:  # nothing in it, and other sizes that no array can have
            raise FileError(f"{stored.label} has shape {brief(self.shape)}: {error}") from error
        if box.size:
            flat = box.reshape(-1)
            done = 0
            for elements in self._runs(ranges, shape):
                flat[done : done + len(elements)] = elements
                done += len(elements)
        if stored.fortran:
            box = box.T
        return box.reshape(self.shape) if self.shape != box.shape else box

    def _runs(self, ranges: Sequence[range], shape: Sequence[int]) -> Iterator[npt.NDArray[Any]]:
        """Yield the elements in the order of the memory, as many at a time as lie together."""
        counts, steps = [_count(found) for found in ranges], steps_of(shape)
        apart = [found.step * step for found, step in zip(ranges, steps, strict=True)]
        walks, run = runs_along(zip(counts, apart, steps_of(counts), strict=True))
        begin = sum(found.start * step for found, step in zip(ranges, steps, strict=True))
        *outer, (rows, stride, _) = [(1, run, run), *walks]
        gap, width = (size * self.stored.unit.bytes for size in (stride - run, stride))
        together = max(1, _BLOCK // width) if gap <= _MAX_GAP else 1
        for place in itertools.product(*(range(0, count * step, step) for count, step, _ in outer)):
            for row in range(0, rows, together):
                count = min(together, rows - row)
                first = begin + sum(place) + row * stride
                elements = self._elements(first, (count - 1) * stride + run)
                yield np.lib.stride_tricks.sliding_window_view(elements, run)[::stride].reshape(-1)

    def _elements(self, first: int, count: int) -> npt.NDArray[Any]:
        """Return neighbouring elements by their place in the memory's order."""
        stored, unit = self.stored, self.stored.unit
        begin = first // unit.elements
        end = -(-(first + count) // unit.elements)
        offset = begin * unit.bytes
        data = self._source.read(stored.offset + offset, min(end * unit.bytes, stored.size) - offset)
        if stored.dtype is not None:
            return np.frombuffer(data, stored.dtype)
        assert stored.element_type is not None  # there is a dtype
        held = min((end - begin) * unit.elements, math.prod(stored.shape) - begin * unit.elements)
        elements = unpack(data, stored.element_type, (held,))
        return elements[first - begin * unit.elements :][:count]


def _count(found: range) -> int:
    """Return how many positions there are: ``len`` ends at 63 bits, a tensor without elements does not."""
    return max(0, -(-(found.stop - found.start) // found.step))


def _narrowed(found: range, key: Any) -> range | int:
    if isinstance(key, slice):
        if (narrow := found[key]).step < 1:
            raise TypeError(f"a tensor in a file is sliced forwards: step {key.step}")
        return narrow
    try:
        return found[operator.index(key)]
    except TypeError:
        raise TypeError(f"a tensor in a file takes integers and slices, not a {type(key).__name__}") from None
    except IndexError:
        raise IndexError(f"index {operator.index(key)} of an axis of size {_count(found)}") from None


class TensorFile(Mapping[str, LazyTensor]):
    """The tensors of a file by name; the one array of a ``.npy`` file has the name ``""``.

    Attributes:
        contents: what the file says of them.
    """

    def __init__(self, contents: Contents) -> None:
        self.contents = contents
        self._stored = {tensor.name: tensor for tensor in contents.tensors}

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What else the file says, in its format's terms."""
        return self.contents.metadata

    def __getitem__(self, name: str) -> LazyTensor:
        stored = self._stored[name]
        return LazyTensor(self.contents.sources[stored.file], stored)

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored)

    def __len__(self) -> int:
        return len(self._stored)

    def __repr__(self) -> str:
        source = self.contents.sources[0]
        return f"TensorFile({source.path.name!r}, {self.contents.format.name}, tensors {brief(list(self))})"


def open(path: AnyPath, like: Format | None = None) -> TensorFile:
    """Open a tensor file; nothing but its header is read.

    Args:
        path: the file.
        like: its format; None goes by its name.

    Returns:
        A mapping from names to :class:`LazyTensor`, which slice, become NumPy arrays, and are split by
        ``splitops.onnx`` and ``splitops.openvino`` into tensors that are as lazy.

    Raises:
        FileError: it is missing or malformed, or no format has such names.

    Examples:
        >>> import pathlib, tempfile
        >>> import numpy as np
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "x.npz"
        >>> np.savez(path, a=np.arange(3), b=np.zeros((2, 2)))
        >>> {name: tensor.shape for name, tensor in open(path).items()}
        {'a': (3,), 'b': (2, 2)}
    """
    return TensorFile(read(path, like))


class _Lazy:
    name = "splitops.files"
    capabilities = Capabilities(views=False, copies=True, out=False, lazy=True, devices=("file",))
    symbols: tuple[type, ...] = ()

    def shape(self, array: LazyTensor) -> tuple[int, ...]:
        return array.shape

    def element_type(self, array: LazyTensor) -> ElementType | None:
        return array.element_type

    def dtype_name(self, array: LazyTensor) -> str:
        return array.stored.code

    def numbers(self, array: LazyTensor) -> npt.NDArray[Any]:
        return np.asarray(array)

    def views(self, plan: SplitPlan, array: LazyTensor) -> tuple[Any, ...]:
        return slices(plan, array)

    def copies(self, plan: SplitPlan, array: LazyTensor) -> tuple[Any, ...]:
        return tuple(np.asarray(part) for part in slices(plan, array))

    def fill(self, plan: SplitPlan, array: LazyTensor, out: Sequence[Any]) -> None:
        raise ArrayError("out= does not take tensors in files: make arrays of the parts")


BACKEND: Final[Backend] = _Lazy()
register(LazyTensor, BACKEND)
