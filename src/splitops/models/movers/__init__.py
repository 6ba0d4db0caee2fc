"""Operators that move data or compute sizes, alike in ONNX and OpenVINO: all that the tools know of each.

Each has a file and a row of this table; running, inference and conversion read the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from splitops.models.movers.arithmetic import ARITHMETIC_OF_SIZES
from splitops.models.movers.concat import CONCAT
from splitops.models.movers.convert import CONVERT
from splitops.models.movers.gather import GATHER
from splitops.models.movers.mover import Mover
from splitops.models.movers.reshape import RESHAPE
from splitops.models.movers.shape import SHAPE
from splitops.models.movers.slice import SLICE
from splitops.models.movers.squeeze import SQUEEZE, UNSQUEEZE
from splitops.models.movers.transpose import TRANSPOSE

if TYPE_CHECKING:
    from splitops.models.formats.openvino import Layer


MOVERS: Final = (
    CONCAT,
    CONVERT,
    GATHER,
    RESHAPE,
    SHAPE,
    SLICE,
    SQUEEZE,
    TRANSPOSE,
    UNSQUEEZE,
    *ARITHMETIC_OF_SIZES,
)
"""Every mover."""

BY_OPERATOR: Final[Mapping[str, Mover]] = {mover.onnx: mover for mover in MOVERS}
"""The movers by ONNX operator."""

_BY_LAYER: Final[Mapping[str, Mover]] = {mover.openvino: mover for mover in MOVERS}


def mover_of(layer: Layer) -> Mover | None:
    """Return the mover that covers a layer; None where there is none for its type, version or attributes."""
    mover = _BY_LAYER.get(layer.type)
    return mover if mover is not None and mover.covers(layer) else None
