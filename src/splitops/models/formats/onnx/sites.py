"""The split operators of an ONNX model."""

from __future__ import annotations

from collections.abc import Iterator

from onnx import ModelProto

from splitops.errors import SplitError, Where
from splitops.models.formats.onnx.structure import canonical, located_nodes
from splitops.models.site import SplitSite
from splitops.onnx.reference import node_attributes
from splitops.operators import FAMILY, schema

__all__ = ["split_sites"]


def split_sites(model: ModelProto, where: Where | None = None) -> Iterator[SplitSite]:
    """Yield every Split and SplitToSequence: of the main graph, of subgraphs and of model-local functions.

    Args:
        model: a well-formed model.
        where: the place of the model; its ``model``.

    Yields:
        The sites in the order of the file: main graph first, subgraphs after the node that they belong to,
        then functions. ``site.where.graph`` is None for the main graph, ``"choose.then_branch"`` for a
        branch of the node named choose, ``"function my.domain.halve"`` for a function, and a path of these
        steps joined by ``/`` for what is nested.

    Raises:
        OperatorError: ``op.version`` where the imported opset does not have the operator yet.
        ModelError: an attribute holds no numbers.

    Examples:
        >>> import onnx.parser
        >>> model = onnx.parser.parse_model('''
        ...     <ir_version: 9, opset_import: ["": 13]>
        ...     g (float[6] x) => (float[3] a, float[3] b) { a, b = Split<axis = 0>(x) }''')
        >>> [(str(site.schema), dict(site.attributes), site.outputs) for site in split_sites(model)]
        [('Split-13', {'axis': 0}, ('a', 'b'))]
    """
    for located in located_nodes(model, where):
        node = located.node
        if canonical(node.domain) or node.op_type not in FAMILY[""]:
            continue
        try:
            row = schema(node.op_type, opset=located.opsets.get("", 1))
            attributes = node_attributes(node)
        except SplitError as error:
            error.where = located.where
            raise
        yield SplitSite(
            schema=row,
            attributes={name: _frozen(value) for name, value in attributes.items()},
            inputs=tuple(node.input),
            outputs=tuple(node.output),
            where=located.where,
            references={a.name: a.ref_attr_name for a in node.attribute if a.ref_attr_name},
            node=node,
        )


def _frozen(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value
