"""Every operator but the split family: onnx's own inference, one node at a time."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import onnx
import onnx_ir as ir
from onnx import AttributeProto, NodeProto, TensorProto, TypeProto, defs, helper, shape_inference

from splitops.models.formats.onnx.types import Names, from_type, to_type
from splitops.models.graph.onnx import ATTRIBUTES, PLAIN
from splitops.models.graph.onnx_functions import Attributes
from splitops.models.infer.onnx_shapes import refined
from splitops.models.known import Known, Tensor

__all__ = ["NodeInference", "node_proto"]

_MAX_FED: Final = 64
"""Inputs with more numbers are no sizes, axes or scales: what they hold does not matter to shapes."""
_GRAPHS: Final = (AttributeProto.GRAPH, AttributeProto.GRAPHS)


class NodeInference:
    """Inference of single nodes; those that differ in names alone are inferred once.

    Models repeat their blocks, so that most of their nodes are known after the first one.
    """

    def __init__(self) -> None:
        self._found: dict[Hashable, tuple[Known, ...]] = {}

    def outputs(
        self, node: ir.Node, attributes: Attributes, opsets: Mapping[str, int], inputs: Sequence[Known]
    ) -> list[Known]:
        """Return what is known of a node's outputs: nothing where neither onnx nor we can tell.

        Args:
            node: the node, without graphs in its attributes.
            attributes: its attributes.
            opsets: the opset of each domain.
            inputs: what is known of its inputs.
        """
        try:
            key = (
                node.domain,
                node.op_type,
                opsets.get(node.domain),
                tuple(map(_attribute_key, attributes.values())),
                tuple(attribute.SerializeToString() for attribute in node.meta.get(ATTRIBUTES, ())),
                tuple(
                    "" if value is None else _key(known)
                    for value, known in zip(node.inputs, inputs, strict=True)
                ),
                tuple(value.name != "" for value in node.outputs),
            )
            found = self._found.get(key)
            asked = node_proto(node, attributes) if found is None else None
        except (UnicodeDecodeError, ir.serde.SerdeError):
            return [None] * len(
                node.outputs
            )  # protobuf reads names that are no text, and does not write them
        if found is None:
            assert asked is not None
            outputs: Sequence[Known] = _infer_by_onnx(asked, opsets, inputs)
            if not node.domain:
                outputs = refined(node, attributes, opsets.get("", 0), inputs, outputs)
            found = self._found[key] = tuple(outputs)
        return list(found)


def node_proto(node: ir.Node, attributes: Attributes) -> NodeProto:
    """Return a node as onnx reads it, its values named by their positions.

    Raises:
        UnicodeDecodeError: a name is no text.
        SerdeError: an attribute is none that onnx-ir writes.
    """
    return NodeProto(
        op_type=node.op_type,
        domain=node.domain,
        input=["" if value is None else f"i{index}" for index, value in enumerate(node.inputs)],
        output=["" if value.name == "" else f"o{index}" for index, value in enumerate(node.outputs)],
        attribute=[*map(_attribute_proto, attributes.values()), *node.meta.get(ATTRIBUTES, ())],
    )


def _attribute_proto(attribute: ir.Attr) -> AttributeProto:
    if attribute.is_ref():
        return ir.serde.serialize_reference_attribute(attribute)
    if attribute.type == ir.AttributeType.UNDEFINED:
        return AttributeProto(name=attribute.name)
    return ir.serde.serialize_attribute(attribute)


def _attribute_key(attribute: ir.Attr) -> Hashable:
    if attribute.type in PLAIN or attribute.is_ref():
        return attribute.name, attribute.type, attribute.value, attribute.ref_attr_name
    content: bytes = _attribute_proto(attribute).SerializeToString()
    return content


def _key(known: Known) -> Hashable:
    """Return what inference looks at in an input."""
    if not isinstance(known, Tensor):
        return known
    numbers = known.value
    if numbers is None or not _is_fed(known):
        return known.type, known.shape
    content = tuple(numbers.flat) if numbers.dtype == object else numbers.tobytes()
    return known.type, known.shape, numbers.dtype.str, content


def _is_fed(known: Tensor) -> bool:
    return known.value is not None and known.value.ndim <= 1 and known.value.size <= _MAX_FED


def _infer_by_onnx(node: NodeProto, opsets: Mapping[str, int], inputs: Sequence[Known]) -> list[Known]:
    nothing: list[Known] = [None] * len(node.output)
    form = _form(node.op_type, node.domain if node.domain != "ai.onnx" else "", opsets.get(node.domain, 0))
    if form is None or not form.fits(node):
        return nothing
    names = Names()
    types: dict[str, TypeProto] = {}
    numbers: dict[str, TensorProto] = {}
    for name, known in zip(node.input, inputs, strict=True):
        if not name:
            continue
        type_ = to_type(known, names)
        if type_ is None:
            return nothing
        types[name] = type_
        if isinstance(known, Tensor) and _is_fed(known) and known.is_whole and known.type is not None:
            assert known.value is not None
            if known.value.dtype.kind in "iufb":
                numbers[name] = onnx.numpy_helper.from_array(known.value.astype(known.type.numpy), name)
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    try:
        found = shape_inference.infer_node_outputs(form.schema, node, types, numbers, opset_imports=imports)
    except Exception:
        return nothing
    return [from_type(found[name], names) if name in found else None for name in node.output]


@dataclass(frozen=True, slots=True)
class _Form:
    """What onnx's inference of an operator relies on without looking."""

    schema: defs.OpSchema
    inputs: range
    outputs: range
    single: tuple[bool, ...]
    """For each declared input, whether it must be there."""
    attributes: Mapping[str, tuple[int, bool]]
    """Type and whether it is required, by name."""

    def fits(self, node: NodeProto) -> bool:
        """Return whether a node has what its schema says."""
        if len(node.input) not in self.inputs or len(node.output) not in self.outputs:
            return False
        if any(single and not name for single, name in zip(self.single, node.input, strict=False)):
            return False
        stated = {attribute.name: attribute for attribute in node.attribute}
        for name, (kind, required) in self.attributes.items():
            if name not in stated:
                if required:
                    return False
            elif kind != stated[name].type or stated[name].ref_attr_name:
                return False
        return not any(attribute.type in _GRAPHS for attribute in stated.values())


@cache
def _form(name: str, domain: str, opset: int) -> _Form | None:
    try:
        schema = defs.get_schema(name, opset, domain)
    except Exception:
        return None
    if schema.deprecated:
        return None
    option = defs.OpSchema.FormalParameterOption.Single
    return _Form(
        schema,
        range(schema.min_input, schema.max_input + 1),
        range(schema.min_output, schema.max_output + 1),
        tuple(parameter.option == option for parameter in schema.inputs),
        {
            name: (_type_number(attribute.type), attribute.required)
            for name, attribute in schema.attributes.items()
        },
    )


def _type_number(kind: Any) -> int:
    number: int = kind.value
    return number
