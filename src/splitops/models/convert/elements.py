"""Conversions of element types that mean the same in ONNX (Cast) and OpenVINO (Convert)."""

from __future__ import annotations

from typing import Final

from splitops.elements.types import ElementType

__all__ = ["same_conversion"]

_INTEGERS: Final = frozenset(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
_HALVES: Final = frozenset({"float16", "bfloat16"})
_TYPES: Final = _INTEGERS | _HALVES | {"bool", "float32", "float64"}
_WITHIN_FLOAT32: Final = _HALVES | {"bool", "float32", "int8", "uint8", "int16", "uint16"}


def same_conversion(source: ElementType, target: ElementType) -> bool:
    """Return whether both dialects give the same value wherever they define one.

    OpenVINO rounds to half precision by way of float32, which rounds wider types twice.
    """
    if source is target:
        return True
    if target.name in _HALVES:
        return source.name in _WITHIN_FLOAT32
    return source.name in _TYPES and target.name in _TYPES
