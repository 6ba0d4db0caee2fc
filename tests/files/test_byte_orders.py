"""Every format in every byte order, chunked or not: split and merged with ``verify``, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr

import splitops
from splitops.errors import FileError
from splitops.files import LazyTensor
from splitops.files.formats import npz as npz_format
from splitops.files.formats import zarr as zarr_format

ARRAY = np.random.default_rng(0).standard_normal((12, 21)).astype(np.float32)
ORDERS = ("<f4", ">f4", ">i2", ">c16")


def hdf5(path: Path, array: np.ndarray, **options: object) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("a", data=array, **options)


def zarr_of(path: Path, array: np.ndarray, **options: object) -> None:
    made = zarr.create_array(path, shape=array.shape, dtype=array.dtype, **options)
    made[...] = array


def zarr_3(path: Path, array: np.ndarray, **options: object) -> None:
    order = "big" if array.dtype.byteorder == ">" else "little"
    zarr_of(path, array, serializer=zarr.codecs.BytesCodec(endian=order), **options)


FORMATS: dict[str, tuple[str, Callable[[Path, np.ndarray], None]]] = {
    "npy": ("x.npy", np.save),
    "npy, Fortran order": ("x.npy", lambda path, array: np.save(path, np.asfortranarray(array))),
    "npz": ("x.npz", lambda path, array: np.savez(path, a=array)),
    "npz, deflated": ("x.npz", lambda path, array: np.savez_compressed(path, a=array)),
    "hdf5": ("x.h5", hdf5),
    "hdf5, chunked": ("x.h5", lambda path, array: hdf5(path, array, chunks=(5, 4))),
    "hdf5, deflated": ("x.h5", lambda path, array: hdf5(path, array, chunks=(5, 4), compression="gzip")),
    "hdf5, checked": ("x.h5", lambda path, array: hdf5(path, array, chunks=(5, 4), fletcher32=True)),
    "zarr 2": ("x.zarr", lambda path, array: zarr_of(path, array, chunks=(5, 4), zarr_format=2)),
    "zarr 3": ("x.zarr", lambda path, array: zarr_3(path, array, chunks=(5, 4))),
    "zarr 3, one chunk": ("x.zarr", lambda path, array: zarr_3(path, array, chunks=(12, 21))),
}


def stored(path: Path) -> tuple[np.ndarray, str]:
    """An array as a file of any format has it, and its byte order there."""
    [tensor] = splitops.files.open(path).values()
    assert isinstance(tensor, LazyTensor)
    if path.suffix == ".zarr":
        array = zarr.open_array(path, mode="r")
        if array.metadata.zarr_format == 3:
            codecs = array.metadata.to_dict()["codecs"]
            [order] = [codec["configuration"]["endian"] for codec in codecs if codec["name"] == "bytes"]
            return np.asarray(array[...]), ">" if order == "big" else "<"
        return np.asarray(array[...]), array.dtype.str[0]
    return np.asarray(tensor), tensor.dtype.str[0]


@pytest.mark.parametrize("sizes", [(8, 8, 5), (3, 11, 7)])
@pytest.mark.parametrize("dtype", ORDERS)
@pytest.mark.parametrize("kind", FORMATS)
def test_a_byte_order_is_kept(tmp_path: Path, kind: str, dtype: str, sizes: tuple[int, ...]) -> None:
    name, save = FORMATS[kind]
    array = (ARRAY * 100).astype(dtype)
    save(tmp_path / name, array)
    made = splitops.files.split(tmp_path / name, tmp_path / "parts", axis=1, split=list(sizes), verify=True)
    ends = [0, *np.cumsum(sizes).tolist()]
    for (path, _), (begin, end) in zip(made.files, pairwise(ends), strict=True):
        found, order = stored(path)
        assert found.astype(dtype).tobytes() == array[:, begin:end].tobytes()
        assert order == dtype[0]
    merged = tmp_path / "merged" / name
    splitops.files.merge([path for path, _ in made.files], merged, axis=1, verify=True)
    found, order = stored(merged)
    assert (found.astype(dtype).tobytes(), order) == (array.tobytes(), dtype[0])


@pytest.mark.parametrize("kind", ["npz", "npz, deflated", "zarr 2"])
def test_what_is_verified_is_the_file_that_is_opened(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A byte is damaged in what is encoded last."""
    name, save = FORMATS[kind]
    save(tmp_path / name, ARRAY)
    module, finish = {
        "npz": (npz_format, "_finish_stored"),
        "npz, deflated": (npz_format, "_finish_deflated"),
        "zarr 2": (zarr_format, "_finish"),
    }[kind]
    real = getattr(module, finish)

    def damaging(paths: list[Path], **arguments: object) -> None:
        real(paths, **arguments)
        written = paths[0]
        file = max(written.rglob("c/*/*"), key=str) if written.is_dir() else written
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)

    monkeypatch.setattr(module, finish, damaging)
    with pytest.raises(FileError, match=r"x\.0.*(does not read back|cannot read)"):
        splitops.files.split(tmp_path / name, tmp_path / "parts", num_outputs=2, verify=True)
    assert not (tmp_path / "parts").exists()
