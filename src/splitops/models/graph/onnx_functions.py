"""The attributes of model-local functions, as their calls give them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import onnx_ir as ir

from splitops.splitting.binding import Fact

Attributes: TypeAlias = Mapping[str, ir.Attr]
"""Attributes by name. One that refers to an attribute of its function is not known."""


def resolve_attributes(node: ir.Node, linked: Attributes | None) -> Attributes:
    """Return the attributes of a node of a function as its caller gives them."""
    stated: Attributes = node.attributes.data
    if linked is None or not any(attribute.is_ref() for attribute in stated.values()):
        return stated
    found: dict[str, ir.Attr] = {}
    for name, attribute in stated.items():
        given = linked.get(attribute.ref_attr_name or "") if attribute.is_ref() else attribute
        if given is not None:
            found[name] = attribute if given.is_ref() else ir.Attr(name, given.type, given.value)
    return found


def resolve_call(node: ir.Node, function: ir.Function, linked: Attributes | None) -> Attributes:
    """Return a function's attributes as one call gives them; what a call leaves out is absent."""
    given = resolve_attributes(node, linked)
    found = {name: given.get(name, default) for name, default in function.attributes.items()}
    return {name: one for name, one in found.items() if one.is_ref() or one.value is not None}


def make_unknown_attributes(function: ir.Function) -> Attributes:
    """Return the attributes of a function of which no caller is known."""
    return {name: ir.RefAttr(name, name, default.type) for name, default in function.attributes.items()}


def read_number(attribute: ir.Attr) -> Any:
    """Return the number or numbers of an attribute; a :class:`Fact` of one that is not known."""
    if attribute.is_ref():
        return Fact()
    match attribute.type:
        case ir.AttributeType.INT | ir.AttributeType.FLOAT:
            return attribute.value
        case ir.AttributeType.INTS | ir.AttributeType.FLOATS:
            return tuple(attribute.value)
    raise TypeError(f"attribute {attribute.name!r} has no numbers")
