"""Resolve the attributes of model-local functions for one call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import onnx_ir as ir

from splitops.splitting.binding import Fact

Attributes: TypeAlias = Mapping[str, ir.Attr]
"""Attributes, keyed by name. The value of a reference to an attribute of the function is unknown."""


def resolve_attributes(node: ir.Node, linked: Attributes | None) -> Attributes:
    """Return the attributes of a node with references resolved by ``linked``, the attributes of the call.

    References to attributes that ``linked`` does not have are left out. If it is None, all references stay.
    """
    declared: Attributes = node.attributes.data
    if linked is None or not any(attribute.is_ref() for attribute in declared.values()):
        return declared
    found: dict[str, ir.Attr] = {}
    for name, attribute in declared.items():
        given = linked.get(attribute.ref_attr_name or "") if attribute.is_ref() else attribute
        if given is not None:
            found[name] = attribute if given.is_ref() else ir.Attr(name, given.type, given.value)
    return found


def resolve_call(node: ir.Node, function: ir.Function, linked: Attributes | None) -> Attributes:
    """Return the attributes of a function for one call, except those with neither a value nor a default."""
    given = resolve_attributes(node, linked)
    found = {name: given.get(name, default) for name, default in function.attributes.items()}
    return {name: at for name, at in found.items() if at.is_ref() or at.value is not None}


def make_references(function: ir.Function) -> Attributes:
    """Return the attributes of a function as references to themselves, for inference without a call."""
    return {name: ir.RefAttr(name, name, default.type) for name, default in function.attributes.items()}


def read_number(attribute: ir.Attr) -> Any:
    """Return the number or numbers in an attribute, or an empty :class:`Fact` if it is a reference.

    Raise TypeError if the attribute is not numeric.
    """
    if attribute.is_ref():
        return Fact()
    match attribute.type:
        case ir.AttributeType.INT | ir.AttributeType.FLOAT:
            return attribute.value
        case ir.AttributeType.INTS | ir.AttributeType.FLOATS:
            return tuple(attribute.value)
    raise TypeError(f"attribute {attribute.name!r} is not numeric")
