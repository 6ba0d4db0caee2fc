"""Conversion of elements to another type with the results of OpenVINO's ``Convert``.

- To boolean: true if the element is not zero (NaN is not zero).
- Integer to integer: the low bits are kept, as in C++; a boolean is 0 or 1.
- Floating point to integer: the fraction is cut off, then the low bits of the whole number are kept. Numbers
  outside 64 bits (outside 32 bits for signed destinations of at most 32 bits and unsigned ones below 32),
  infinities and NaN are undefined in OpenVINO, and its backends disagree. This module returns the results of
  OpenVINO's reference implementation on x86-64.
- To floating point: rounded to the nearest, ties to even, via float32 (but not to float64) and, for f8e5m2,
  via float16. Types without infinity saturate (f4e2m1) or return NaN (f8e4m3).
- f8e8m0 has neither zero nor sign: zero and negative numbers become its minimum, infinity its maximum.

Source: ``openvino/reference/convert.hpp``, compared with the openvino package by the tests.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from splitops.spec.elements.types import ELEMENT_TYPES, ElementType

Array = npt.NDArray[Any]

_NF4: Final = np.array(
    [
        -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
        -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
        0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023,
        1.0,
    ],
    np.float32,
)  # fmt: skip
"""The values of the codes of nf4. Source: ``ConvertNF4::dequantize``."""

# OpenVINO converts these types only from and to the partner types.
_SCALED: Final = frozenset({"float4_e2m1fn", "float8_e8m0fnu", "nf4"})
_SCALED_PARTNERS: Final = frozenset({"float16", "bfloat16", "float32"})
_STRING: Final = ELEMENT_TYPES["string"]


def is_convertible(source: ElementType, target: ElementType) -> bool:
    """Return whether OpenVINO can convert elements of ``source`` to ``target``."""
    if source is target:
        return True
    if _STRING in (source, target) or target.name == "nf4":
        return False
    if source.name in _SCALED or target.name in _SCALED:
        return source.name in _SCALED_PARTNERS or target.name in _SCALED_PARTNERS
    return True


def convert(array: Array, source: ElementType, target: ElementType) -> Array:
    """Convert elements of ``source`` to ``target``. If the types are equal, return ``array`` itself.

    Examples:
        >>> from splitops.spec.elements.types import ELEMENT_TYPES as types
        >>> values = np.array([1.9, -1.9, 300.0], np.float32)
        >>> convert(values, types["float32"], types["uint8"]).tolist()
        [1, 255, 44]
    """
    if source is target:
        return array
    if source.name == "nf4":
        array = _NF4[array]
    elif (
        source.name.startswith("float") and source.name not in {"float16", "float32", "float64"}
    ) or source.name == "bfloat16":
        array = array.astype(np.float32)
    elif source.integer and source.bits < 8 and source.storage is None:
        array = array.astype(np.int8)
    if target.name == "bool":
        return np.asarray(array != 0)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return _to_integer(array, target) if target.integer else _to_floating(array, target)


def _to_floating(array: Array, target: ElementType) -> Array:
    if target.name in {"float32", "float64"}:
        return array.astype(target.numpy)
    single = array.astype(np.float32)
    if target.name == "float8_e8m0fnu":
        return _to_exponent(single).view(target.numpy)
    if target.name == "float8_e5m2":
        # OpenVINO rounds twice here, as f8e5m2 is the upper half of a float16.
        return single.astype(np.float16).astype(target.numpy)
    result = single.astype(target.numpy)
    if target.name == "float4_e2m1fn":
        # The type has no NaN.
        result = np.where(np.isnan(single), np.copysign(np.float32(6), single).astype(target.numpy), result)
    return result


def _to_exponent(single: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
    """Round to powers of two, ties to the even exponent, and return the exponents as f8e8m0 codes."""
    bits = single.view(np.uint32)
    exponent = (bits >> np.uint32(23)) & np.uint32(0xFF)
    fraction = bits & np.uint32(0x7FFFFF)
    # Half-way between two powers of two. A subnormal number consists of the fraction alone.
    half = np.where(exponent == 0, np.uint32(0x600000), np.uint32(0x400000))
    up = (fraction > half) | ((fraction == half) & (exponent % 2 == 1))
    code = np.where(np.isnan(single), 255, np.minimum(exponent + up, 254))
    return np.where(np.signbit(single), 0, code).astype(np.uint8)


def _to_integer(array: Array, target: ElementType) -> Array:
    wide: Array
    if array.dtype.kind == "f":
        if target.bits < 32 or target.name == "int32":
            wide = _truncate(array, np.int32)
        elif target.name == "uint64":
            wide = _truncate_unsigned(array)
        else:
            wide = _truncate(array, np.int64)
    else:
        wide = array
    if target.bits >= 8:
        return wide.astype(target.numpy)
    codes = wide.astype(np.uint8) & np.uint8((1 << target.bits) - 1)
    return codes.view(target.numpy)


def _truncate(array: Array, integer: type[np.signedinteger[Any]]) -> Array:
    """Cut off fractions. NaN and numbers outside the range of ``integer`` become its minimum."""
    bound = -float(np.iinfo(integer).min)
    whole = np.trunc(array.astype(np.float64))
    fits = (whole >= -bound) & (whole < bound)
    return np.where(fits, np.where(fits, whole, 0).astype(integer), np.iinfo(integer).min)


def _truncate_unsigned(array: Array) -> Array:
    """Cut off fractions. Negative numbers wrap around, but NaN and those below -2^63 become 2^63.

    Numbers of 2^64 and more become 0.
    """
    double = array.astype(np.float64)
    upper = double >= 2.0**63
    shifted = _truncate(np.where(upper, double - 2.0**63, double), np.int64).astype(np.uint64)
    return shifted ^ (upper.astype(np.uint64) << np.uint64(63))
