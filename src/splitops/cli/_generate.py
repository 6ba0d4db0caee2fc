"""Generated input arrays: ramps and random elements."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from splitops.errors import ModelError
from splitops.native.resources import read_memory_limit
from splitops.spec.elements.types import ElementType


def get_max_bytes() -> int:
    """Return the maximum size of an input array in bytes: half of the memory that the process may use."""
    return read_memory_limit() // 2


def make_ramp(shape: tuple[int, ...], element_type: ElementType) -> npt.NDArray[Any]:
    """Return an array of 0, 1, 2, ... in row-major order, or of the strings "s0", "s1", "s2", ...

    The numbers restart at 0 so that the type represents each exactly: int8 after 127, float16 after 2047.
    float8_e8m0fnu has only powers of two, which begin with the smallest one. nf4 gets its codes 0 to 15.

    Raises:
        ModelError: the array may not fit into memory.

    Examples:
        >>> from splitops.spec.elements.types import ELEMENT_TYPES
        >>> make_ramp((2, 3), ELEMENT_TYPES["float32"]).tolist()
        [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    """
    count = _count_elements(shape, element_type)
    numbers = np.arange(count, dtype=np.int64)
    if element_type.name == "string":
        return np.array([f"s{number}" for number in numbers], dtype=object).reshape(shape)
    if element_type.name == "float8_e8m0fnu":
        return (numbers % 255).astype(np.uint8).view(element_type.numpy).reshape(shape)
    return (numbers % _compute_period(element_type)).astype(element_type.numpy).reshape(shape)


def make_random(shape: tuple[int, ...], element_type: ElementType, seed: int) -> npt.NDArray[Any]:
    """Return an array of random elements. Equal seeds return equal arrays.

    Integers, booleans and the codes of nf4 are uniform over all values of the type. Floats and complex
    numbers are normal, without a sign for float8_e8m0fnu. Strings are "s" and a uniform random integer.

    Raises:
        ModelError: the array may not fit into memory.
    """
    count = _count_elements(shape, element_type)
    generator = np.random.default_rng(seed)
    name = element_type.name
    if name == "string":
        texts = [f"s{number}" for number in generator.integers(1 << 32, size=count)]
        return np.array(texts, dtype=object).reshape(shape)
    array: npt.NDArray[Any]
    if name == "bool" or element_type.storage is not None:
        array = generator.integers(1 << (1 if name == "bool" else element_type.bits), size=count)
    elif element_type.bits >= 8 and element_type.integer:
        limits = np.iinfo(element_type.numpy)
        array = generator.integers(limits.min, limits.max, count, element_type.numpy, endpoint=True)
    elif element_type.integer:
        low = 0 if name.startswith("u") else -(1 << (element_type.bits - 1))
        array = generator.integers(low, low + (1 << element_type.bits), size=count)
    elif name.startswith("complex"):
        parts = generator.standard_normal((2, count))
        array = parts[0] + 1j * parts[1]
    else:
        array = generator.standard_normal(count)
        if name == "float8_e8m0fnu":
            array = np.abs(array)  # the type has only positive powers of two
    return array.astype(element_type.numpy).reshape(shape)


def _count_elements(shape: tuple[int, ...], element_type: ElementType) -> int:
    count = math.prod(shape)
    # Generating an element of any type needs up to 16 bytes.
    if math.prod(size for size in shape if size) * 16 > get_max_bytes():
        raise ModelError(f"{element_type} of shape {shape} does not fit into the memory of this machine")
    return count


def _compute_period(element_type: ElementType) -> int:
    """Return the number of integers in a ramp before it restarts at 0. The type represents each exactly."""
    name, bits = element_type.name, element_type.bits
    if name == "bool":
        return 2
    if element_type.integer or element_type.storage is not None:
        unsigned = name.startswith("u") or element_type.storage is not None
        return 1 << min(62, bits if unsigned else bits - 1)
    import ml_dtypes

    if name.startswith("complex"):
        return 1 << (24 if bits == 64 else 53)
    info: Any = ml_dtypes.finfo(element_type.numpy)  # type: ignore[no-untyped-call]
    greatest = int(min(float(info.max), 2.0**62))
    return min(1 << (int(info.nmant) + 1), greatest + 1)
