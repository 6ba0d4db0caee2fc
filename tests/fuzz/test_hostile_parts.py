"""Files merged that nobody split: they give what NumPy's concatenation gives, or are rejected."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from hostile import assert_one_line
from hypothesis import given, settings
from hypothesis import strategies as st

from splitops import SplitError, files
from splitops.files import get_format

FORMATS = ["npy", "npz", "safetensors", "gguf", "hdf5", "zarr", "onnx"]
TYPES = ["f4", "i8", "u1", "f2", "?", ">i4", "c8", "S3", "i4,f8"]


def written(folder: Path, name: str, array: np.ndarray, kind: str) -> Path:
    """An array as a file of a format: by NumPy, and from there as one part of itself."""
    plain = folder / f"{name}.npy"
    np.save(plain, array)
    if kind == "npy":
        return plain
    made = files.split(plain, folder / f"of-{name}", num_outputs=1, to=get_format(kind), sync=False)
    return made.files[0][0]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(0, 4), min_size=1, max_size=3),
            st.sampled_from(TYPES),
            st.sampled_from(FORMATS),
            st.booleans(),
        ),
        min_size=1,
        max_size=4,
    ),
    st.booleans(),
    st.integers(-4, 3),
    st.sampled_from([None, *FORMATS]),
    st.sampled_from([1, 7, 1 << 20]),
)
def test_any_parts(parts: list, alike: bool, axis: int, to: str | None, memory: int) -> None:
    arrays = []
    for number, (shape, dtype, _, fortran) in enumerate(parts):
        if alike:  # but along one axis
            first = parts[0][0]
            shape = [shape[0] if i == axis % len(first) else n for i, n in enumerate(first)]
            dtype = parts[0][1]
        size = int(np.prod(shape))
        array = np.resize(
            np.frombuffer(bytes(range(7 * number, 240)), np.uint8), size * np.dtype(dtype).itemsize
        )
        array = (array % 2 if dtype == "?" else array).view(dtype).reshape(shape)
        arrays.append(np.asfortranarray(array) if fortran else array)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        try:
            paths = [
                written(root, str(number), array, kind)
                for number, (array, (_, _, kind, _)) in enumerate(zip(arrays, parts, strict=True))
            ]
            like = get_format(to or parts[0][2])
            merged = root / f"merged{like.suffixes[0]}"
            files.merge(paths, merged, axis=axis, to=None if to is None else like, sync=False, memory=memory)
        except SplitError as error:
            assert_one_line(error)
            return
        (tensor,) = files.open(merged).values()
        expected = np.concatenate(arrays, axis)
        found = np.asarray(tensor)
        assert found.shape == expected.shape
        assert (
            found.astype(found.dtype.newbyteorder("=")).tobytes()
            == expected.astype(expected.dtype.newbyteorder("=")).tobytes()
        )
