"""Read the operation set and the attributes of split layers."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from splitops.errors import ModelError, Where
from splitops.models.formats.openvino.model import Layer
from splitops.models.formats.openvino.shapes import parse_integer
from splitops.spec.operators import FAMILY, OperatorSchema, schema

_NAMES: Final = frozenset(name.casefold() for name in FAMILY["openvino"])


def parse_operation_set(version: str) -> int | None:
    """Return the number in a layer's ``version``, such as 8 for ``"opset8"``, or None for other text."""
    number = version.removeprefix("opset")
    if version == number or not number.isascii() or not number.isdigit() or len(number) > 4:
        return None
    return int(number)


def get_family_schema(name: str, version: str, where: Where) -> OperatorSchema:
    """Return the schema of the split layer ``name`` in operation set ``version``. opset0 counts as opset1."""
    number = parse_operation_set(version)
    if number is None:
        raise ModelError(f"{name} is of version {version!r}, which is not an operation set", where)
    return schema(name, max(1, number), "openvino")


def read_split_attributes(layer: Layer, schema: OperatorSchema, where: Where) -> dict[str, int]:
    """Return the attributes of ``schema`` that a split layer sets, as integers."""
    text = {attribute.name: layer.get_attribute(attribute.name) for attribute in schema.attributes}
    return {
        name: parse_integer(value, name, replace(where, attribute=name))
        for name, value in text.items()
        if value is not None
    }


def is_split_layer(layer: Layer) -> bool:
    """Return whether a layer, or one in its bodies, is a split. As in OpenVINO, letter case is ignored."""
    return layer.type.casefold() in _NAMES or any(
        is_split_layer(inner) for _, body in layer.bodies for inner in body.layers
    )


def is_misspelt(layer: Layer) -> bool:
    """Return whether a layer is a split only to OpenVINO, which ignores the letter case of its type."""
    return layer.type.casefold() in _NAMES and layer.type not in FAMILY["openvino"]
