"""Outputs of a run as .npy files, with a manifest of their names, kinds and element types."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy

from splitops.cli._filenames import make_safe_names
from splitops.cli._generate import get_max_bytes
from splitops.cli._paths import reject_read
from splitops.common.atomic_write import StagedFiles
from splitops.errors import ModelError, shown
from splitops.files.formats.npy import encode_header
from splitops.spec.elements.types import element_type_of

MANIFEST: Final = "outputs.json"
_BLOCK: Final = 8 << 20

Array = npt.NDArray[Any]


def write_outputs(outputs: Mapping[str, Any], model: str, target: Path) -> dict[str, Any]:
    """Write all outputs and ``outputs.json`` into the folder ``target``, or nothing. Return the manifest.

    An output ``y`` becomes ``y.npy``, the elements of a sequence ``s`` become ``s.0.npy``, ``s.1.npy`` and so
    on, with leading zeros if there are more than ten. Absent outputs have no file. Element types that NumPy
    lacks are written as unsigned integers of the same item size, and strings as fixed-width Unicode.
    ``model`` is the name of the model in the manifest.
    """
    arrays = [(name, list(_iter_arrays(name, value))) for name, value in outputs.items()]
    names = [
        name if index is None else f"{name}.{index:0{len(str(len(items) - 1))}}"
        for name, items in arrays
        for index, _ in items
    ]
    stems = list(make_safe_names(names, [".npy"]))
    reject_read([target / MANIFEST, *(target / f"{stem}.npy" for stem in stems)], "--out")
    rest = iter(stems)
    manifest: dict[str, Any] = {"model": model, "outputs": []}
    with StagedFiles(make_folders=True) as staged:
        for (_, items), described in zip(arrays, describe_outputs(outputs), strict=True):
            files = []
            for _, array in items:
                files.append(f"{next(rest)}.npy")
                with staged.open(target / files[-1]) as file:
                    _write_array(file, array, files[-1])
            elements = described.get("elements", [described])
            for element, file_name in zip(elements, files, strict=False):
                element["file"] = file_name
            manifest["outputs"].append(described)
        with staged.open(target / MANIFEST) as file:
            file.write(json.dumps(manifest, indent=2).encode() + b"\n")
    return manifest


def may_be_output(name: str) -> bool:
    """Return whether :func:`write_outputs` may write a file with this name."""
    return name == MANIFEST or name.endswith(".npy")


def describe_outputs(outputs: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the entries of the manifest without file names: name and kind of each output.

    Tensors, and the elements of sequences, also have a dtype and a shape.
    """
    described: list[dict[str, Any]] = []
    for name, value in outputs.items():
        items = [_describe_array(array) for _, array in _iter_arrays(name, value)]
        if value is None:
            described.append({"name": name, "kind": "absent"})
        elif isinstance(value, list | tuple):
            described.append({"name": name, "kind": "sequence", "elements": items})
        else:
            described.append({"name": name, "kind": "tensor", **items[0]})
    return described


def compute_statistics(array: Array) -> dict[str, Any]:
    """Return the minimum and maximum of the finite elements, and the number of other elements, if any.

    For booleans, only the number of true elements is returned. Strings, complex numbers and empty arrays
    have no statistics.

    Examples:
        >>> compute_statistics(np.array([1.5, np.nan, -2.0]))
        {'min': -2.0, 'max': 1.5, 'not_finite': 1}
    """
    kind = array.dtype.kind
    if not array.size or kind in "OUSTc" or element_type_of(array.dtype) is None:
        return {}
    if kind == "b":
        return {"true": int(np.count_nonzero(array))}
    numbers = array if kind in "iuf" else array.astype(np.float32)
    found: dict[str, Any] = {}
    if numbers.dtype.kind == "f":
        finite = np.isfinite(numbers)
        if not finite.all():
            found["not_finite"] = int(numbers.size - np.count_nonzero(finite))
            numbers = numbers[finite]
    if numbers.size:
        found = {"min": numbers.min().item(), "max": numbers.max().item(), **found}
    return found


def _iter_arrays(name: str, value: Any) -> Iterator[tuple[int | None, Array]]:
    """Yield each array of an output with its index in a sequence. The index of a single tensor is None."""
    if value is None:
        return
    if isinstance(value, list | tuple):
        for index, item in enumerate(value):
            if not isinstance(item, np.ndarray | np.generic):
                kind = type(item).__name__
                raise ModelError(f"output {shown(name)} is a sequence of {kind}, not of tensors")
            yield index, np.asarray(item)
    elif isinstance(value, np.ndarray | np.generic):
        yield None, np.asarray(value)
    else:
        raise ModelError(f"output {shown(name)} is a {type(value).__name__}, which .npy cannot represent")


def _describe_array(array: Array) -> dict[str, Any]:
    element_type = element_type_of(array.dtype)
    return {"dtype": str(element_type or array.dtype), "shape": list(array.shape)}


def _write_array(file: BinaryIO, array: Array, name: str) -> None:
    array = _make_storable(array, name)
    file.write(encode_header(array.shape, array.dtype))
    if not array.size:
        return
    # Blocks in row-major order, so that a strided view of a large array is not copied at once.
    size = max(1, _BLOCK // array.dtype.itemsize)
    flags = ["external_loop", "buffered", "zerosize_ok"]
    for block in np.nditer(array, flags=flags, buffersize=size, order="C"):  # type: ignore[call-overload]
        for at in range(0, len(block), size):
            file.write(np.ascontiguousarray(block[at : at + size]).view(np.uint8).data)


def _make_storable(array: Array, name: str) -> Array:
    """Return an array whose dtype .npy can represent: itself, fixed-width strings, or unsigned integers."""
    if array.dtype.kind in "OT":
        return _make_fixed_width(array, name)
    try:
        native = npy.descr_to_dtype(npy.dtype_to_descr(array.dtype)) == array.dtype
    except (ValueError, TypeError):
        native = False
    return array if native else array.view(np.dtype(f"u{array.dtype.itemsize}"))


def _make_fixed_width(array: Array, name: str) -> Array:
    texts = []
    for item in array.reshape(-1).tolist():
        try:
            text = item.decode() if isinstance(item, bytes) else item
        except UnicodeDecodeError as error:
            raise ModelError(f"{shown(name)}: a string is not UTF-8, which .npy requires") from error
        if not isinstance(text, str) or text.endswith("\0"):
            raise ModelError(f"{shown(name)}: .npy cannot represent the string {shown(item)}")
        texts.append(text)
    if 4 * max(map(len, texts), default=0) * len(texts) > get_max_bytes():
        raise ModelError(f"{shown(name)}: strings of one width, as in .npy, do not fit into memory")
    return np.array(texts, dtype=np.str_).reshape(array.shape)
