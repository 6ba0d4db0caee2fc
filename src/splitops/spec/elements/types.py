"""Table of element types, with their names in ONNX, OpenVINO and NumPy, and lookups in it."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, ClassVar, Final

import numpy as np


@dataclass(frozen=True, slots=True)
class ElementType:
    """An element type of tensors.

    Attributes:
        name: name in NumPy or ml_dtypes, for example ``"float32"``, or in splitops if both lack the type.
        bits: width of an element in bits; 0 for strings, whose width varies.
        onnx: name of the ``TensorProto.DataType`` value, or None if ONNX lacks the type.
        onnx_number: number of that value, or None.
        onnx_tensor: name in ONNX schemas, for example ``"tensor(float)"``, or None.
        openvino: ``element_type`` in OpenVINO IR, or None if OpenVINO lacks the type.
        precision: upper-case ``precision`` of a port in OpenVINO IR, or None.
        integer: whether it is an integer type.
        storage: name of the NumPy dtype of arrays of codes, if NumPy and ml_dtypes lack the element type;
            otherwise None.
    """

    TEXT: ClassVar = True

    name: str
    bits: int
    onnx: str | None = None
    onnx_number: int | None = None
    onnx_tensor: str | None = None
    openvino: str | None = None
    precision: str | None = None
    integer: bool = False
    storage: str | None = None

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"ElementType({self.name})"

    def __hash__(self) -> int:
        return hash(self.name)  # fast, since every call looks up its type

    @property
    def packed(self) -> bool:
        """Whether elements are smaller than a byte, so that files pack them."""
        return 0 < self.bits < 8

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype of arrays of this type: its own, object for strings, or that of its ``storage``."""
        return _get_numpy_dtype(self)


def _make_type(
    name: str,
    bits: int,
    onnx: tuple[int, str] | None = None,
    openvino: str | None = None,
    precision: str | None = None,
    *,
    integer: bool = False,
    storage: str | None = None,
) -> ElementType:
    number, onnx_name = onnx or (None, None)
    return ElementType(
        name=name,
        bits=bits,
        onnx=onnx_name,
        onnx_number=number,
        onnx_tensor=f"tensor({onnx_name.lower()})" if onnx_name else None,
        openvino=openvino,
        precision=(precision or openvino.upper()) if openvino else None,
        integer=integer,
        storage=storage,
    )


# Sources: onnx.proto (TensorProto.DataType), OpenVINO's element_type names as its serialiser writes them.
_TYPES: Final = (
    _make_type("bool", 8, (9, "BOOL"), "boolean", "BOOL"),
    _make_type("int8", 8, (3, "INT8"), "i8", integer=True),
    _make_type("int16", 16, (5, "INT16"), "i16", integer=True),
    _make_type("int32", 32, (6, "INT32"), "i32", integer=True),
    _make_type("int64", 64, (7, "INT64"), "i64", integer=True),
    _make_type("uint8", 8, (2, "UINT8"), "u8", integer=True),
    _make_type("uint16", 16, (4, "UINT16"), "u16", integer=True),
    _make_type("uint32", 32, (12, "UINT32"), "u32", integer=True),
    _make_type("uint64", 64, (13, "UINT64"), "u64", integer=True),
    _make_type("float16", 16, (10, "FLOAT16"), "f16", "FP16"),
    _make_type("float32", 32, (1, "FLOAT"), "f32", "FP32"),
    _make_type("float64", 64, (11, "DOUBLE"), "f64", "FP64"),
    _make_type("complex64", 64, (14, "COMPLEX64")),
    _make_type("complex128", 128, (15, "COMPLEX128")),
    _make_type("string", 0, (8, "STRING"), "string"),
    _make_type("bfloat16", 16, (16, "BFLOAT16"), "bf16"),
    _make_type("float8_e4m3fn", 8, (17, "FLOAT8E4M3FN"), "f8e4m3"),
    _make_type("float8_e4m3fnuz", 8, (18, "FLOAT8E4M3FNUZ")),
    _make_type("float8_e5m2", 8, (19, "FLOAT8E5M2"), "f8e5m2"),
    _make_type("float8_e5m2fnuz", 8, (20, "FLOAT8E5M2FNUZ")),
    _make_type("float8_e8m0fnu", 8, (24, "FLOAT8E8M0"), "f8e8m0"),
    _make_type("float6_e2m3fn", 6, (27, "FLOAT6E2M3")),
    _make_type("float6_e3m2fn", 6, (28, "FLOAT6E3M2")),
    _make_type("float4_e2m1fn", 4, (23, "FLOAT4E2M1"), "f4e2m1"),
    _make_type("int4", 4, (22, "INT4"), "i4", integer=True),
    _make_type("uint4", 4, (21, "UINT4"), "u4", integer=True),
    _make_type("int2", 2, (26, "INT2"), integer=True),
    _make_type("uint2", 2, (25, "UINT2"), "u2", integer=True),
    _make_type("nf4", 4, None, "nf4", storage="uint8"),
    _make_type("uint1", 1, None, "u1", "BIN", integer=True, storage="uint8"),
    _make_type("uint3", 3, None, "u3", integer=True, storage="uint8"),
    _make_type("uint6", 6, None, "u6", integer=True, storage="uint8"),
)

ELEMENT_TYPES: Final = MappingProxyType({row.name: row for row in _TYPES})
"""Every element type, keyed by name."""

_BY_ONNX = {row.onnx_number: row for row in _TYPES if row.onnx_number is not None}
_BY_ONNX_TENSOR = {row.onnx_tensor: row for row in _TYPES if row.onnx_tensor is not None}
_BY_OPENVINO = {row.openvino: row for row in _TYPES if row.openvino is not None}
_BY_PRECISION = {row.precision: row for row in _TYPES if row.precision is not None}


def from_onnx(number: int) -> ElementType | None:
    """Return the type of a ``TensorProto.DataType`` value, or None if it is unknown or undefined."""
    return _BY_ONNX.get(number)


def from_onnx_name(tensor: str) -> ElementType | None:
    """Return the type with a name in ONNX schemas such as ``"tensor(float)"``, or None if there is none."""
    return _BY_ONNX_TENSOR.get(tensor)


def from_openvino(name: str) -> ElementType | None:
    """Return the type of an ``element_type`` attribute of OpenVINO IR, or None if it is unknown."""
    return _BY_OPENVINO.get(name)


def from_precision(name: str) -> ElementType | None:
    """Return the type of a port's ``precision`` in OpenVINO IR, or None if it is unknown."""
    return _BY_PRECISION.get(name.upper())


# Cache of element_type_of. Dtypes of both byte orders have the same element type.
_OF_DTYPE: dict[np.dtype[Any], ElementType | None] = {}


def element_type_of(dtype: np.dtype[Any]) -> ElementType | None:
    """Return the element type of a NumPy dtype in either byte order, or None if there is none.

    Object dtypes and the dtypes of strings, ``U``, ``S`` and ``StringDType``, are all ``string``.

    Examples:
        >>> import numpy as np
        >>> element_type_of(np.dtype(">f4")).onnx_tensor
        'tensor(float)'
        >>> element_type_of(np.dtype("datetime64[s]")) is None
        True
    """
    try:
        return _OF_DTYPE[dtype]
    except KeyError:
        found = ELEMENT_TYPES["string"] if dtype.kind in "OUST" else ELEMENT_TYPES.get(dtype.name)
        if len(_OF_DTYPE) < 4096:  # the number of fixed-width string dtypes is unlimited
            _OF_DTYPE[dtype] = found
        return found


def is_builtin(dtype: np.dtype[Any]) -> bool:
    """Return whether a dtype belongs to NumPy and was not registered by another library.

    ``dtype.kind`` does not show this: float8_e5m2 of ml_dtypes has the kind of float32.

    Examples:
        >>> import numpy as np
        >>> is_builtin(np.dtype(">f4")), is_builtin(ELEMENT_TYPES["float8_e5m2"].numpy)
        (True, False)
    """
    return dtype.isbuiltin != _REGISTERED


_REGISTERED: Final = 2
"""``isbuiltin`` of a dtype that another library has registered."""


@cache
def _get_numpy_dtype(element_type: ElementType) -> np.dtype[Any]:
    if element_type.name == "string":
        return np.dtype(object)
    name = element_type.storage or element_type.name
    try:
        return np.dtype(name)
    except TypeError:
        dtype: np.dtype[Any] = np.dtype(getattr(importlib.import_module("ml_dtypes"), name))
        return dtype
