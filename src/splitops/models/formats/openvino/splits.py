"""The layers of the split family as a file declares them: version and attributes."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from splitops.errors import ModelError, Where
from splitops.models.formats.openvino.model import Layer
from splitops.models.formats.openvino.shapes import parse_integer
from splitops.spec.operators import FAMILY, OperatorSchema, schema

_NAMES: Final = frozenset(name.casefold() for name in FAMILY["openvino"])


def operation_set(version: str) -> int | None:
    """Return the number of the operation set that a layer's ``version`` names; None where it is none."""
    number = version.removeprefix("opset")
    if version == number or not number.isascii() or not number.isdigit() or len(number) > 4:
        return None
    return int(number)


def family_schema(name: str, version: str, where: Where) -> OperatorSchema:
    """Return the operator of the split family that a layer's ``type`` and ``version`` name."""
    number = operation_set(version)
    if number is None:
        raise ModelError(f"{name} is of version {version!r}, which is not an operation set", where)
    return schema(name, max(1, number), "openvino")


def split_attributes(layer: Layer, schema: OperatorSchema, where: Where) -> dict[str, int]:
    """Return the attributes of a layer of the split family that its operator has, as integers."""
    text = {attribute.name: layer.attribute(attribute.name) for attribute in schema.attributes}
    return {
        name: parse_integer(value, name, replace(where, attribute=name))
        for name, value in text.items()
        if value is not None
    }


def is_split_layer(layer: Layer) -> bool:
    """Return whether a layer, or one in its bodies, is a split; OpenVINO ignores the case of names."""
    return layer.type.casefold() in _NAMES or any(
        is_split_layer(inner) for _, body in layer.bodies for inner in body.layers
    )


def is_misspelt(layer: Layer) -> bool:
    """Return whether only OpenVINO takes a layer for a split: it ignores the case of names."""
    return layer.type.casefold() in _NAMES and layer.type not in FAMILY["openvino"]
