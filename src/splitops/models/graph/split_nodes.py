"""Find and read the split nodes of models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import onnx_ir as ir

from splitops.errors import NOWHERE, ModelError, SplitError, Where
from splitops.models.formats.openvino.nodes import DOMAIN, LayerNode
from splitops.models.formats.openvino.splits import get_family_schema, read_split_attributes
from splitops.models.formats.walk import canonicalise, has_defaults, iter_located_nodes, label
from splitops.models.graph.onnx import is_constant, make_fact
from splitops.models.graph.onnx_functions import Attributes, read_number, resolve_attributes
from splitops.models.split_nodes import Origin, SplitNode
from splitops.spec.operators import FAMILY, history, schema
from splitops.splitting.binding import Fact


def is_split(node: ir.Node) -> bool:
    """Return whether a node is a split operator of ONNX or OpenVINO, in any version."""
    if type(node) is LayerNode:
        return node.op_type in FAMILY[DOMAIN]
    return node.op_type in FAMILY[""] and canonicalise(node.domain) == ""


def iter_split_nodes(model: ir.Model, where: Where = NOWHERE) -> Iterator[SplitNode]:
    """Yield every split node of the main graph, of subgraphs and of model-local functions.

    Args:
        model: a well-formed model.
        where: the location of the model; only its ``model`` is used.

    Yields:
        The split nodes with the annotated or declared types and shapes of their inputs. The main graph comes
            first, with subgraphs after their node, then the functions. ``where.graph`` is None for the main
            graph, ``"choose.then_branch"`` for a branch of the node named choose, ``"function
            my.domain.halve"`` for a function, and a path of these steps, joined by ``/``, for nested graphs.

    Raises:
        OperatorError: ``op.version`` if the imported opset does not have the operator yet.
        ModelError: an attribute is not numeric, or the version of a layer is not an operation set.

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
    """Read a split node at the opset of its graph or function. A layer has its own version.

    ``facts`` describe the inputs; by default, they are read from the model. ``linked`` are the attributes of
    the function for one call. ``defaults`` is whether callers can override initializers that are also inputs.
    ``conditional`` is whether a run may skip the node. An error is not raised, but set as ``unread``.
    """
    layer = node.layer if type(node) is LayerNode else None
    op_schema, attributes, unread = None, {}, None
    try:
        if layer is not None:
            op_schema = get_family_schema(node.op_type, layer.version, where)
            attributes = read_split_attributes(layer, op_schema, where)
        else:
            op_schema = schema(node.op_type, opset, "")
            attributes = _read_numbers(node, linked)
    except SplitError as error:
        error.where = where
        unread = error
    if facts is None:
        facts = [
            None if value is None or value.name == "" else make_fact(value, read=index > 0)
            for index, value in enumerate(node.inputs)
        ]
    return SplitNode(
        schema=op_schema or history(node.op_type, canonicalise(node.domain))[0],
        attributes=attributes,
        facts=tuple(facts),
        inputs=tuple("" if value is None else value.name or "" for value in node.inputs),
        outputs=tuple([value.name or "" if layer is None or value.uses() else "" for value in node.outputs]),
        where=where,
        references={name: at.ref_attr_name or "" for name, at in node.attributes.data.items() if at.is_ref()},
        origins=tuple(_get_origin(value, defaults) for value in node.inputs),
        conditional=conditional,
        unread=unread,
        node=node,
    )


def _read_numbers(node: ir.Node, linked: Attributes | None) -> dict[str, Any]:
    numbers: dict[str, Any] = {}
    for name, attribute in resolve_attributes(node, linked).items():
        try:
            numbers[name] = read_number(attribute)
        except TypeError:
            if not node.attributes[name].is_ref():  # if a call sets an attribute of another type, ignore it
                raise ModelError(f"attribute {name!r} of {node.op_type} is not numeric") from None
    return numbers


def _get_origin(value: ir.Value | None, defaults: bool) -> Origin:
    if value is not None and value.is_initializer() and value.is_graph_input():
        return Origin.DEFAULT if defaults else Origin.MODEL
    return Origin.MODEL if is_constant(value) else Origin.RUN
