"""Split and SplitToSequence as classes for ``onnx.reference.ReferenceEvaluator``."""

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
"""The values of FLOAT, INT, FLOATS and INTS in ``AttributeProto.AttributeType``."""


def get_reference_ops() -> list[type[OpRun]]:
    """Return Split and SplitToSequence for ``ReferenceEvaluator(model, new_ops=...)``.

    Each class implements all versions, and runs the one of the opset that the graph imports. onnx passes
    ``new_ops`` to the main graph and its subgraphs, but not to model-local functions; ``splitops.run`` covers
    these, too.

    Returns:
        Subclasses of ``onnx.reference.op_run.OpRun``, the same ones in each call. Their outputs are read-only
        views of the data, since that may be an initializer or an array of the caller.

    Examples:
        >>> import numpy as np, onnx.parser
        >>> from onnx.reference import ReferenceEvaluator
        >>> model = onnx.parser.parse_model('''
        ...     <ir_version: 9, opset_import: ["": 18]>
        ...     g (float[7] x) => (float[n] a, float[m] b) { a, b = Split<num_outputs = 2>(x) }''')
        >>> evaluator = ReferenceEvaluator(model, new_ops=get_reference_ops())
        >>> [part.shape for part in evaluator.run(None, {"x": np.zeros(7, np.float32)})]
        [(4,), (3,)]
    """
    return list(_make_classes())


@cache
def _make_classes() -> tuple[type[OpRun], ...]:
    from onnx.reference.op_run import OpRun

    class SplitOperator(OpRun):
        """A split operator in the version that the opset of the graph selects."""

        def __init__(self, onnx_node: NodeProto, run_params: dict[str, Any], schema: Any = None) -> None:
            untyped = [item.name for item in onnx_node.attribute if not item.type and not item.ref_attr_name]
            if untyped:  # from before IR version 2, or from a faulty exporter
                raise ModelError(
                    f"attribute {untyped[0]!r} of {onnx_node.op_type} has no type",
                    Where(node=node_label(onnx_node), attribute=untyped[0]),
                )
            # Without a schema, OpRun does not add the attribute defaults of the newest version.
            super().__init__(onnx_node, run_params, schema=schema or False)
            # The evaluator of splitops passes the location of the graph; that of onnx does not.
            self.where = replace(run_params.get("where", Where()), node=node_label(onnx_node))
            opset = run_params["opsets"][onnx_node.domain]
            self.operator: OperatorSchema = find_schema(onnx_node.op_type, opset)
            self.names = tuple(onnx_node.output)
            self.split: NodeSplit | None = (
                None  # set in the first run, unless attributes depend on the caller
            )

        def run(
            self, *args: Any, linked_attributes: Mapping[str, Any] | None = None, **_: Any
        ) -> tuple[Any, ...]:
            # Overridden, because OpRun.run rejects None for unused outputs and hides TypeErrors.
            if linked_attributes or self.split is None:
                split = self._make_split(linked_attributes)
                self.split = None if linked_attributes else split
            else:
                split = self.split
            parts = read_only(list(split([_to_array(value, self.operator, self.where) for value in args])))
            if self.operator.gives_sequence:
                return (parts,)
            # Return None for an output named "", because "" must remain the name of absent inputs.
            return tuple(part if name else None for name, part in zip(self.names, parts, strict=True))

        def _make_split(self, linked: Mapping[str, Any] | None) -> NodeSplit:
            attributes = read_node_attributes(self.onnx_node, linked)
            return NodeSplit(self.operator, attributes, outputs=len(self.names), where=self.where)

        def _run(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
            raise NotImplementedError("run() replaces this method")

    return tuple(
        type(name, (SplitOperator,), {"op_domain": domain}) for domain in _DOMAINS for name in FAMILY[""]
    )


def read_node_attributes(node: NodeProto, linked: Mapping[str, Any] | None = None) -> dict[str, object]:
    """Return the attributes of a split node: numbers or lists of numbers, which binding checks later.

    Raise ModelError if the node sets an attribute of another type.

    ``linked`` has the attributes of the function call, to which attributes in the function's body refer. An
    attribute that refers to a missing one is absent.
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
                f"attribute {attribute.name!r} of {node.op_type} is not a number or a list of numbers",
                Where(node=node_label(node), attribute=attribute.name),
            )
    return found


def node_label(node: NodeProto) -> str:
    """Return the name of a node, or ``Op -> output`` with its first named output if it has no name."""
    return node.name or f"{node.op_type} -> {next(filter(None, node.output), '')}"


def _to_array(value: Any, operator: OperatorSchema, where: Where) -> np.ndarray[Any, Any] | None:
    if value is None or isinstance(value, np.ndarray):
        return value
    if isinstance(value, np.generic):
        return np.asarray(value)
    raise ModelError(f"{operator}: an input is a {type(value).__name__}, not a tensor", where)
