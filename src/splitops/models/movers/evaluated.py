"""Tensors between the layers of a model that runs, and what movers read of layers and of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy.typing as npt

from splitops.errors import ModelError, Where
from splitops.ground.documents import MAX_RANK
from splitops.native.resources import read_memory_limit
from splitops.spec.elements.types import ElementType

if TYPE_CHECKING:
    from splitops.models.formats.openvino import Layer

_INT64_MAX: Final = (1 << 63) - 1
_MEMORY: Final = read_memory_limit()


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor between layers."""

    array: npt.NDArray[Any]
    element_type: ElementType
    """It says what uint8 codes of nf4, u1, u3 and u6 do not."""
    constant: bool = False
    """Whether it follows from constants alone."""

    def __str__(self) -> str:
        return f"{self.element_type} {list(self.array.shape)}"

    def like(self, array: npt.NDArray[Any]) -> Value:
        """Return another tensor of the same type."""
        return replace(self, array=array)


def taken(layer: Layer, inputs: Sequence[Value], count: int) -> Sequence[Value]:
    """Return the inputs of a layer that takes a number of them."""
    if len(inputs) != count:
        raise ModelError(f"{layer} has {len(inputs)} inputs, but it takes {count}")
    return inputs


def integers(value: Value, name: str, *, ranks: tuple[int, ...]) -> list[int]:
    """Return the integers of a tensor that has no more entries than a tensor has axes."""
    array = value.array
    if not value.element_type.integer or array.ndim not in ranks:
        raise ModelError(f"{name} is {value}, not integers of rank {ranks[-1]}")
    if array.size > MAX_RANK:
        raise ModelError(f"{name} has {array.size} entries, more than {MAX_RANK}")
    return [int(number) for number in array.reshape(-1)]


def prove_size(shape: Sequence[int], element_type: ElementType, where: Where | None = None) -> None:
    """Prove that a result fits into memory before it is made."""
    size = math.prod(dim or 1 for dim in shape) * element_type.numpy.itemsize
    if (size > _MEMORY and 0 not in shape) or size > _INT64_MAX or len(shape) > MAX_RANK:
        raise ModelError(f"the result of shape {list(shape)} is larger than the memory", where)
