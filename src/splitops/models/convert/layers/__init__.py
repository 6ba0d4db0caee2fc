"""One-way converters of OpenVINO layers to ONNX nodes, by family.

Operators that mean the same in both dialects are in :mod:`splitops.models.ops`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from splitops.models.convert.layers.arranging import ARRANGING
from splitops.models.convert.layers.converter import LayerConverter
from splitops.models.convert.layers.elementwise import ELEMENTWISE
from splitops.models.convert.layers.images import IMAGES
from splitops.models.convert.layers.positions import POSITIONS
from splitops.models.convert.layers.products import PRODUCTS
from splitops.models.convert.layers.recurrent import RECURRENT
from splitops.models.convert.layers.reductions import REDUCTIONS
from splitops.models.convert.layers.windows import WINDOWS
from splitops.models.formats.openvino import Layer
from splitops.models.ops.conversion import convert_layer, find_converter, get_opset

CONVERTERS: Final[tuple[LayerConverter, ...]] = (
    *ELEMENTWISE,
    *WINDOWS,
    *PRODUCTS,
    *REDUCTIONS,
    *POSITIONS,
    *ARRANGING,
    *IMAGES,
    *RECURRENT,
)
"""All converters. :func:`find_layer_converter` looks them up by layer type and operation set."""

_BY_LAYER: Final[Mapping[tuple[str, str], LayerConverter]] = {
    (entry.layer, f"opset{version}"): entry for entry in CONVERTERS for version in entry.versions
}


def find_layer_converter(layer: Layer) -> LayerConverter | None:
    """Return the converter of a layer, or None if its type and version have none."""
    operator = find_converter(layer)
    if operator is None:
        return _BY_LAYER.get((layer.type, layer.version))
    return LayerConverter(layer=layer.type, write=convert_layer, opset=get_opset(operator))
