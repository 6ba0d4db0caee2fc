"""The split nodes of models, as every model tool sees them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import onnx_ir as ir

from splitops.errors import NOWHERE, ModelError, SplitError, Where
from splitops.models.formats.openvino.nodes import DOMAIN, LayerNode
from splitops.models.formats.openvino.splits import get_family_schema, read_split_attributes
from splitops.models.formats.walk import canonicalise, has_defaults, iter_located_nodes, label
from splitops.models.graph.onnx import is_constant, value_fact
from splitops.models.graph.onnx_functions import Attributes, number_of, resolved
from splitops.models.split_nodes import Origin, SplitNode
from splitops.spec.operators import FAMILY, history, schema
from splitops.splitting.binding import Fact


def is_split(node: ir.Node) -> bool:
    """Return whether a node is of the split family."""
    if type(node) is LayerNode:
        return node.op_type in FAMILY[DOMAIN]
    return node.op_type in FAMILY[""] and canonicalise(node.domain) == ""


def iter_split_nodes(model: ir.Model, where: Where = NOWHERE) -> Iterator[SplitNode]:
    """Yield every split node: of the main graph, of subgraphs and of model-local functions.

    Args:
        model: a well-formed model.
        where: the place of the model; its ``model``.

    Yields: The split nodes in the order of the model: main graph first, subgraphs after the node that
        they belong to, then functions, each with what the model declares of its inputs.
        ``node.where.graph`` is None for the main graph, ``"choose.then_branch"`` for a branch of the node
        named choose, ``"function my.domain.halve"`` for a function, and a path of these steps joined by
        ``/`` for what is nested.

    Raises:
        OperatorError: ``op.version`` where the imported opset does not have the operator yet.
        ModelError: an attribute has no numbers, or the version of a layer is not an operation set.

    Examples:
        >>> model = ir.from_onnx_text('''
        ...     <ir_version: 9, opset_import: ["": 13]>
        ...     g (float[6] x) => (float[3] a, float[3] b) { a, b = Split<axis = 0>(x) }''')
        >>> [(str(node.schema), dict(node.attributes), node.outputs) for node in iter_split_nodes(model)]
        [('Split-13', {'axis': 0}, ('a', 'b'))]
    """
    for path, node, opset in iter_located_nodes(model):
        if is_split(node):
            place = Where(where.model, path, label(node))
            split_node = read_split_node(node, opset, place, defaults=has_defaults(model))
            if split_node.unread is not None:
                raise split_node.unread
            yield split_node


def read_split_node(
    node: ir.Node,
    opset: int,
    where: Where,
    *,
    facts: Sequence[Fact | None] | None = None,
    linked: Attributes | None = None,
    defaults: bool = True,
    conditional: bool = False,
) -> SplitNode:
    """Read a split node at the opset that its graph or function imports; layers have a version of their own.

    Without ``facts`` about its inputs, it is what their values carry. Attributes of a function are
    ``linked`` where a call gives them. With ``defaults``, callers can replace constants that are inputs too.
    """
    layer = node.layer if type(node) is LayerNode else None
    op_schema, attributes, unread = None, {}, None
    try:
        if layer is not None:
            op_schema = get_family_schema(node.op_type, layer.version, where)
            attributes = read_split_attributes(layer, op_schema, where)
        else:
            op_schema = schema(node.op_type, opset, "")
            attributes = _numbers(node, linked)
    except SplitError as error:
        error.where = where
        unread = error
    if facts is None:
        facts = [
            None if value is None or value.name == "" else value_fact(value, read=index > 0)
            for index, value in enumerate(node.inputs)
        ]
    return SplitNode(
        schema=op_schema or history(node.op_type, canonicalise(node.domain))[0],
        attributes=attributes,
        facts=tuple(facts),
        inputs=tuple("" if value is None else value.name or "" for value in node.inputs),
        outputs=tuple([value.name or "" if layer is None or value.uses() else "" for value in node.outputs]),
        where=where,
        references={
            one.name: one.ref_attr_name or "" for one in node.attributes.data.values() if one.is_ref()
        },
        origins=tuple(_origin(value, defaults) for value in node.inputs),
        conditional=conditional,
        unread=unread,
        node=node,
    )


def _numbers(node: ir.Node, linked: Attributes | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, attribute in resolved(node, linked).items():
        try:
            found[name] = number_of(attribute)
        except TypeError:
            if not node.attributes[name].is_ref():  # what is not a number no split refers to
                raise ModelError(f"attribute {name!r} of {node.op_type} has no numbers") from None
    return found


def _origin(value: ir.Value | None, defaults: bool) -> Origin:
    if value is not None and value.is_initializer() and value.is_graph_input():
        return Origin.DEFAULT if defaults else Origin.MODEL
    return Origin.MODEL if is_constant(value) else Origin.RUN
