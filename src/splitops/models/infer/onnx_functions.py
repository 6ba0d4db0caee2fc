"""The attributes of model-local functions, as their calls give them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from onnx import FunctionProto, NodeProto

from splitops.binding import Fact
from splitops.errors import SplitError
from splitops.onnx.reference import node_attributes

__all__ = ["call_attributes", "unknown_attributes", "with_attributes"]


def with_attributes(node: NodeProto, linked: Mapping[str, Any] | None) -> NodeProto:
    """Return a node of a function with the attributes that its caller gives."""
    if linked is None or not any(attribute.ref_attr_name for attribute in node.attribute):
        return node
    whole = NodeProto()
    whole.CopyFrom(node)
    del whole.attribute[:]
    for attribute in node.attribute:
        given = linked.get(f"\0{attribute.ref_attr_name}") if attribute.ref_attr_name else attribute
        if given is not None:
            added = whole.attribute.add()
            added.CopyFrom(given)
            added.name = attribute.name
        elif attribute.ref_attr_name in linked:
            whole.attribute.add().CopyFrom(attribute)  # not known: onnx is not asked
    return whole


def call_attributes(
    node: NodeProto, function: FunctionProto, linked: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return a function's attributes as one call gives them: numbers by name, protos by ``\\0`` and name."""
    whole = with_attributes(node, linked)
    given = {attribute.name: attribute for attribute in (*function.attribute_proto, *whole.attribute)}
    names = [*function.attribute, *(attribute.name for attribute in function.attribute_proto)]
    found: dict[str, Any] = {}
    for name in names:
        if name not in given:
            continue
        if given[name].ref_attr_name:
            found[name] = Fact()
            continue
        found[f"\0{name}"] = given[name]
        holder = NodeProto(op_type=node.op_type, attribute=[given[name]])
        with suppress(SplitError):  # what is not a number no split refers to
            found[name] = node_attributes(holder)[name]
    return found


def unknown_attributes(function: FunctionProto) -> dict[str, Any]:
    """Return the attributes of a function of which no caller is known."""
    names = [*function.attribute, *(attribute.name for attribute in function.attribute_proto)]
    return {name: Fact() for name in names}
