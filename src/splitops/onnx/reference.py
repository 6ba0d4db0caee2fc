"""The ONNX operators as classes for ``onnx.reference.ReferenceEvaluator``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from splitops.calls.node import NodeSplit, read_only
from splitops.errors import ModelError, Where
from splitops.spec.operators import FAMILY, OperatorSchema
from splitops.spec.operators import schema as find_schema

if TYPE_CHECKING:
    from onnx import NodeProto
    from onnx.reference.op_run import OpRun

_DOMAINS = ("", "ai.onnx")
_NUMBERS = (1, 2, 6, 7)
"""The numbers of ``AttributeProto``'s types FLOAT, INT, FLOATS and INTS."""


def reference_ops() -> list[type[OpRun]]:
    """Return Split and SplitToSequence for ``ReferenceEvaluator(model, new_ops=...)``.

    Each class serves every opset: it runs the version that the node's graph imports. onnx hands ``new_ops``
    to the main graph and to its subgraphs, but not to model-local functions; ``splitops.run`` does.

    Returns:
        Subclasses of ``onnx.reference.op_run.OpRun``, always the same ones. Their parts are read-only
        views of the data, which may be the caller's own or an initializer; ``np.array(part)`` is a copy.

    Examples:
        >>> import numpy as np, onnx.parser
        >>> from onnx.reference import ReferenceEvaluator
        >>> model = onnx.parser.parse_model('''
        ...     <ir_version: 9, opset_import: ["": 18]>
        ...     g (float[7] x) => (float[n] a, float[m] b) { a, b = Split<num_outputs = 2>(x) }''')
        >>> evaluator = ReferenceEvaluator(model, new_ops=reference_ops())
        >>> [part.shape for part in evaluator.run(None, {"x": np.zeros(7, np.float32)})]
        [(4,), (3,)]
    """
    return list(_classes())


@cache
def _classes() -> tuple[type[OpRun], ...]:
    from onnx.reference.op_run import OpRun

    class SplitOperator(OpRun):
        """Any operator of the family, in the version that the graph's opset selects."""

        def __init__(self, onnx_node: NodeProto, run_params: dict[str, Any], schema: Any = None) -> None:
            untyped = [item.name for item in onnx_node.attribute if not item.type and not item.ref_attr_name]
            if untyped:  # written before IR version 2, or by a careless tool
                raise ModelError(
                    f"attribute {untyped[0]!r} of {onnx_node.op_type} has no type",
                    Where(node=node_label(onnx_node), attribute=untyped[0]),
                )
            # False keeps OpRun from filling in the defaults of the newest version.
            super().__init__(onnx_node, run_params, schema=schema or False)
            # Our evaluator knows the place of the graph; onnx's does not.
            self.where = replace(run_params.get("where", Where()), node=node_label(onnx_node))
            opset = run_params["opsets"][onnx_node.domain]
            self.operator: OperatorSchema = find_schema(onnx_node.op_type, opset)
            self.names = tuple(onnx_node.output)
            self.split: NodeSplit | None = None  # made by the first run, unless a function's caller decides

        def run(
            self, *args: Any, linked_attributes: Mapping[str, Any] | None = None, **_: Any
        ) -> tuple[Any, ...]:
            # OpRun.run would turn an output that nobody reads into an error, and TypeError into prose.
            if linked_attributes or self.split is None:
                split = self._stated(linked_attributes)
                self.split = None if linked_attributes else split
            else:
                split = self.split
            parts = read_only(list(split([_tensor(value, self.operator, self.where) for value in args])))
            if self.operator.gives_sequence:
                return (parts,)
            # None for an output named "", so that "" goes on meaning an absent input.
            return tuple(part if name else None for name, part in zip(self.names, parts, strict=True))

        def _stated(self, linked: Mapping[str, Any] | None) -> NodeSplit:
            attributes = node_attributes(self.onnx_node, linked)
            return NodeSplit(self.operator, attributes, outputs=len(self.names), where=self.where)

        def _run(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
            raise NotImplementedError("run() serves this operator")

    return tuple(
        type(name, (SplitOperator,), {"op_domain": domain}) for domain in _DOMAINS for name in FAMILY[""]
    )


def node_attributes(node: NodeProto, linked: Mapping[str, Any] | None = None) -> dict[str, object]:
    """Return the attributes of a node of the family, as integers and lists of integers.

    A number of another type is returned unchanged: binding reports what is wrong with it.

    ``linked`` are the values of the function's attributes, to which attributes refer; one that the caller
    leaves out is absent.
    """
    from onnx import helper

    found: dict[str, object] = {}
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            value = (linked or {}).get(attribute.ref_attr_name)
            if value is not None:
                found[attribute.name] = value
        elif attribute.type in _NUMBERS:
            found[attribute.name] = helper.get_attribute_value(attribute)
        else:
            raise ModelError(
                f"attribute {attribute.name!r} of {node.op_type} has no numbers",
                Where(node=node_label(node), attribute=attribute.name),
            )
    return found


def node_label(node: NodeProto) -> str:
    """Return the node's name; of an unnamed node, its operator and first output."""
    return node.name or f"{node.op_type} -> {next(filter(None, node.output), '')}"


def _tensor(value: Any, operator: OperatorSchema, where: Where) -> np.ndarray[Any, Any] | None:
    if value is None or isinstance(value, np.ndarray):
        return value
    if isinstance(value, np.generic):
        return np.asarray(value)
    raise ModelError(f"{operator}: an input is a {type(value).__name__}, not a tensor", where)
