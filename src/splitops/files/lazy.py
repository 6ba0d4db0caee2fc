"""Lazy tensors in files: slicing reads nothing, conversion to an array reads the slice and small gaps."""

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
from splitops.backends.slicing import slice_parts
from splitops.errors import ArrayError, FileError, brief
from splitops.files.extents import coalesce_axes, compute_strides
from splitops.files.formats import Contents, Format
from splitops.files.plan_builder import AnyPath, read
from splitops.files.sources import Source
from splitops.files.tensors import StoredTensor
from splitops.native import SplitPlan
from splitops.spec.elements.packing import unpack
from splitops.spec.elements.types import ElementType

_BLOCK: Final = 1 << 20
_MAX_GAP: Final = 16 << 10
"""Maximum gap in bytes between runs that are read together, one block at a time."""


class LazyTensor:
    """A tensor in a file, or a box of it, which is read when it is converted to an array.

    Attributes:
        stored: the whole tensor: its type, its shape and its offset in the file.

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
        # The selected indices along each stored axis: a range, or an integer for an axis that was removed.
        self._ranges = tuple(map(range, stored.shape)) if ranges is None else ranges

    @property
    def name(self) -> str:
        """Name of the tensor in the file; empty if the format has no names."""
        return self.stored.name

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the box that is selected."""
        return tuple(_count(found) for found in self._ranges if isinstance(found, range))

    @property
    def ndim(self) -> int:
        """Number of axes of the box."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements of the box."""
        return math.prod(self.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the array into which the tensor is read.

        Raises:
            FileError: NumPy has no dtype for the elements.
        """
        stored = self.stored
        dtype = stored.dtype
        if dtype is None and stored.element_type is not None:
            dtype = stored.element_type.numpy
        if dtype is None:
            raise FileError(f"{stored.label} has type {stored.code}, for which NumPy has no dtype")
        return dtype

    @property
    def element_type(self) -> ElementType | None:
        """Element type, or None if there is none, as for quantised blocks of GGUF."""
        return self.stored.element_type

    def __repr__(self) -> str:
        kind = self.stored.element_type or self.stored.code
        return f"{type(self).__name__}({kind} {self.shape} in {str(self._source.path.name)!r})"

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a tensor of rank 0 has no length")
        return self.shape[0]

    def __getitem__(self, key: Any) -> LazyTensor:
        """Return a box of the tensor, selected by integers, slices with positive steps and an ellipsis.

        Raises:
            IndexError: an index is out of range, or there are too many indices.
            TypeError: an index has another type, or a slice has a negative step.
            ValueError: a slice has a step of 0.
        """
        keys = list(key) if isinstance(key, tuple) else [key]
        if keys.count(Ellipsis) == 0:
            keys.append(Ellipsis)
        at = keys.index(Ellipsis)
        missing = self.ndim - (len(keys) - 1)
        if missing < 0 or keys.count(Ellipsis) > 1:
            raise IndexError(f"too many indices: {len(keys) - 1} for a tensor of rank {self.ndim}")
        keys[at : at + 1] = [slice(None)] * missing
        todo = iter(keys)
        ranges = tuple(
            _select(found, next(todo)) if isinstance(found, range) else found for found in self._ranges
        )
        return LazyTensor(self._source, self.stored, ranges)

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """Read the box into a new array.

        Raises:
            FileError: the file cannot be read, ends early, or declares a shape that NumPy does not support.
            ValueError: ``copy=False`` was requested, which is not possible.
        """
        if copy is False:
            raise ValueError(
                "copy=False is not possible for a tensor in a file, which is read into a new array"
            )
        array = self._read()
        return array if dtype is None else array.astype(dtype, copy=False)

    def _read(self) -> npt.NDArray[Any]:
        dtype, stored = self.dtype, self.stored
        ranges, shape = [r if isinstance(r, range) else range(r, r + 1) for r in self._ranges], stored.shape
        if stored.fortran:  # its bytes are those of the row-major tensor with the axes reversed
            ranges, shape = ranges[::-1], shape[::-1]
        try:
            box = np.empty([_count(found) for found in ranges], dtype)
        except ValueError as error:  # an empty tensor may have sizes that are too large
            raise FileError(f"{stored.label} has shape {brief(self.shape)}: {error}") from error
        if box.size:
            flat = box.reshape(-1)
            done = 0
            for elements in self._iter_runs(ranges, shape):
                flat[done : done + len(elements)] = elements
                done += len(elements)
        if stored.fortran:
            box = box.T
        return box.reshape(self.shape) if self.shape != box.shape else box

    def _iter_runs(self, ranges: Sequence[range], shape: Sequence[int]) -> Iterator[npt.NDArray[Any]]:
        """Yield the elements of a box in memory order. Runs that are close together are read together."""
        counts, steps = [_count(found) for found in ranges], compute_strides(shape)
        apart = [found.step * step for found, step in zip(ranges, steps, strict=True)]
        walks, run = coalesce_axes(zip(counts, apart, compute_strides(counts), strict=True))
        begin = sum(found.start * step for found, step in zip(ranges, steps, strict=True))
        *outer, (rows, stride, _) = [(1, run, run), *walks]
        gap, width = (size * self.stored.unit.bytes for size in (stride - run, stride))
        together = max(1, _BLOCK // width) if gap <= _MAX_GAP else 1
        for place in itertools.product(*(range(0, count * step, step) for count, step, _ in outer)):
            for row in range(0, rows, together):
                count = min(together, rows - row)
                first = begin + sum(place) + row * stride
                elements = self._read_elements(first, (count - 1) * stride + run)
                yield np.lib.stride_tricks.sliding_window_view(elements, run)[::stride].reshape(-1)

    def _read_elements(self, first: int, count: int) -> npt.NDArray[Any]:
        """Read ``count`` consecutive elements, starting at index ``first`` in memory order."""
        stored, unit = self.stored, self.stored.unit
        begin = first // unit.elements
        end = -(-(first + count) // unit.elements)
        offset = begin * unit.bytes
        data = self._source.read(stored.offset + offset, min(end * unit.bytes, stored.size) - offset)
        if stored.dtype is not None:
            return np.frombuffer(data, stored.dtype)
        assert stored.element_type is not None  # otherwise `dtype` has raised
        held = min((end - begin) * unit.elements, math.prod(stored.shape) - begin * unit.elements)
        elements = unpack(data, stored.element_type, (held,))
        return elements[first - begin * unit.elements :][:count]


def _count(found: range) -> int:
    """Return the length of a range. ``len`` fails above 63 bits, which an empty tensor may have."""
    return max(0, -(-(found.stop - found.start) // found.step))


def _select(found: range, key: Any) -> range | int:
    if isinstance(key, slice):
        if (narrow := found[key]).step < 1:
            raise TypeError(f"step {key.step}: steps must be at least 1 to slice a tensor in a file")
        return narrow
    try:
        return found[operator.index(key)]
    except TypeError:
        raise TypeError(
            f"a tensor in a file can be indexed by integers and slices, not by a {type(key).__name__}"
        ) from None
    except IndexError:
        raise IndexError(
            f"index {operator.index(key)} is out of range for an axis of size {_count(found)}"
        ) from None


class TensorFile(Mapping[str, LazyTensor]):
    """The tensors of a file, keyed by name. The array of a ``.npy`` file has the name ``""``.

    Attributes:
        contents: the tensors and metadata that the file declares.
    """

    def __init__(self, contents: Contents) -> None:
        self.contents = contents
        self._stored = {tensor.name: tensor for tensor in contents.tensors}

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Metadata of the file in addition to its tensors. The keys depend on the format."""
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
    """Open a tensor file and read its header.

    Args:
        path: path or URL of the file.
        like: its format; None to infer it from the file name.

    Returns:
        A mapping from names to :class:`LazyTensor`. These can be sliced, converted to NumPy arrays, and split
        by ``splitops.onnx`` and ``splitops.openvino`` into other lazy tensors.

    Raises:
        FileError: the file is missing or malformed, or its format is unknown.

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

    def get_shape(self, array: LazyTensor) -> tuple[int, ...]:
        return array.shape

    def get_element_type(self, array: LazyTensor) -> ElementType | None:
        return array.element_type

    def get_dtype_name(self, array: LazyTensor) -> str:
        return array.stored.code

    def to_numpy(self, array: LazyTensor) -> npt.NDArray[Any]:
        return np.asarray(array)

    def make_views(self, plan: SplitPlan, array: LazyTensor) -> tuple[Any, ...]:
        return slice_parts(plan, array)

    def make_copies(self, plan: SplitPlan, array: LazyTensor) -> tuple[Any, ...]:
        return tuple(np.asarray(part) for part in slice_parts(plan, array))

    def fill(self, plan: SplitPlan, array: LazyTensor, out: Sequence[Any]) -> None:
        raise ArrayError("out= is not supported for tensors in files: convert the parts to arrays")


BACKEND: Final[Backend] = _Lazy()
register(LazyTensor, BACKEND)
