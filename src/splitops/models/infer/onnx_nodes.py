"""Every operator but the split family: onnx's own inference, one node at a time."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final

import onnx
import onnx_ir as ir
from onnx import AttributeProto, NodeProto, TensorProto, TypeProto, helper, shape_inference

from splitops.models.abstract_values import (
    MAX_ELEMENTS,
    NOTHING,
    AbstractTensor,
    AbstractValue,
    Value,
    meet_shapes,
)
from splitops.models.formats.onnx.schemas import find_version
from splitops.models.formats.onnx.types import SizeNames, from_type, to_type
from splitops.models.formats.walk import canonicalise
from splitops.models.graph.onnx import PLAIN
from splitops.models.graph.onnx_functions import Attributes
from splitops.models.infer.onnx_reading import attribute_proto, node_proto
from splitops.models.infer.onnx_texts import TEXT_OPERATORS, with_text_sizes
from splitops.models.infer.operators import infer_operator, is_tracked
from splitops.models.ops import find_node_spelling
from splitops.spec.elements.types import ElementType, from_onnx

_MAX_FED: Final = 64
"""Inputs with more numbers are not sizes, axes or scales: what they hold does not matter to shapes."""


class NodeInference:
    """Inference of single nodes; those that differ in names alone are inferred once.

    Models repeat their blocks, so that most of their nodes are known after the first one.
    """

    def __init__(self, unread: Mapping[ir.Node, Sequence[AttributeProto]]) -> None:
        self._found: dict[Hashable, tuple[AbstractValue, ...]] = {}
        self._unread = unread

    def outputs(
        self,
        node: ir.Node,
        attributes: Attributes,
        opsets: Mapping[str, int],
        inputs: Sequence[AbstractValue],
    ) -> Sequence[AbstractValue]:
        """Return what is known of the outputs of a node without graphs, by onnx and by the rules here."""
        unread = self._unread.get(node, ()) if self._unread else ()
        keys: list[Hashable] = []
        complete = True
        for value, known in zip(node.inputs, inputs, strict=True):
            keys.append("" if value is None else _key(known))
            complete = complete and (
                not isinstance(known, AbstractTensor) or known.elements is None or _is_fed(known)
            )
        try:
            key = (
                node.domain,
                node.op_type,
                opsets.get(node.domain),
                tuple(map(_attribute_key, attributes.values())),
                tuple(attribute.SerializeToString() for attribute in unread) if unread else (),
                tuple(keys),
                tuple([value.name != "" for value in node.outputs]),
            )
            found = self._found.get(key)
            asked = node_proto(node, attributes, unread) if found is None else None
        except ir.serde.SerdeError:  # protobuf reads what is not text, and does not write it
            return [None] * len(node.outputs)
        if found is None:
            assert asked is not None
            outputs: Sequence[AbstractValue] = _infer_by_onnx(asked, opsets, inputs)
            if complete and not node.domain:
                outputs = _infer_by_meaning(node, attributes, opsets.get("", 0), inputs, outputs)
            found = self._found[key] = tuple(outputs)
        if not node.domain and node.op_type in TEXT_OPERATORS:  # which are no part of the key
            return with_text_sizes(node, attributes, opsets.get("", 0), found)
        if complete or node.domain:
            return found
        return _infer_by_meaning(node, attributes, opsets.get("", 0), inputs, found)


def _infer_by_meaning(
    node: ir.Node,
    attributes: Attributes,
    opset: int,
    inputs: Sequence[AbstractValue],
    outputs: Sequence[AbstractValue],
) -> Sequence[AbstractValue]:
    """Add what an operator means to what onnx infers: sizes of symbols and intervals, and elements.

    onnx follows elements that it knows exactly, and sizes as they are. Computed sizes are tracked here.
    """
    known_operator = find_node_spelling(node.op_type, opset)
    if known_operator is None:
        return outputs
    present = [
        None if value is None or value.name == "" else known or NOTHING
        for value, known in zip(node.inputs, inputs, strict=True)
    ]
    values = {name: one.value for name, one in attributes.items() if not one.is_ref()}
    if len(values) < len(attributes):
        return outputs  # what only a call of the function sets
    told = infer_operator(*known_operator, values, present, len(outputs), of_layer=False)
    return [known if one is NOTHING else _both(known, one) for known, one in zip(outputs, told, strict=True)]


def _both(known: AbstractValue, told: AbstractTensor) -> AbstractValue:
    """Return what onnx and the meaning of an operator say of an output."""
    if not isinstance(known, AbstractTensor | None):
        return known
    found = known or NOTHING
    kind, shape = found.type or told.type, meet_shapes(found.shape, told.shape)
    value = told.elements
    if value is None or not is_tracked(kind) or value.size > MAX_ELEMENTS:
        return AbstractTensor(kind, shape, found.elements)
    exact = [size for size in shape or () if isinstance(size, int)]
    if shape is not None and len(exact) == len(shape) and math.prod(exact) > MAX_ELEMENTS:
        return AbstractTensor(kind, shape, found.elements)
    return AbstractTensor(kind, tuple(value.shape), _compact(value, kind))


def _compact(value: Value, kind: ElementType | None) -> Value:
    """Return a value of which all is known in its own dtype."""
    if kind is not None and value.dtype == object and all(isinstance(one, int | float) for one in value.flat):
        return value.astype(kind.numpy)
    return value


def _attribute_key(attribute: ir.Attr) -> Hashable:
    if attribute.type in PLAIN or attribute.is_ref():
        return attribute.name, attribute.type, attribute.value, attribute.ref_attr_name
    content: bytes = attribute_proto(attribute).SerializeToString()
    return content


def _key(known: AbstractValue) -> Hashable:
    """Return what inference looks at in an input."""
    if not isinstance(known, AbstractTensor):
        return known
    numbers = known.elements
    if numbers is None or not _is_fed(known):
        return known.type, known.shape
    content = tuple(numbers.flat) if numbers.dtype == object else numbers.tobytes()
    return known.type, known.shape, numbers.dtype.str, content


def _is_fed(known: AbstractTensor) -> bool:
    return known.elements is not None and known.elements.ndim <= 1 and known.elements.size <= _MAX_FED


def _infer_by_onnx(
    node: NodeProto, opsets: Mapping[str, int], inputs: Sequence[AbstractValue]
) -> list[AbstractValue]:
    version = find_version(node.op_type, opsets.get(node.domain, 0), canonicalise(node.domain))
    if version is None or version.deprecated:
        return [None] * len(node.output)
    types = _types_by_schema(version.schema, node, inputs)
    found: list[AbstractValue] = [None] * len(node.output)
    if version.is_safe_to_infer(node):
        if node.op_type == "STFT" and not any(one.name == "onesided" for one in node.attribute):
            # onnx takes what is left out for 0, and the default is 1
            node.attribute.append(helper.make_attribute("onesided", version.attributes["onesided"].default))
        found = _inferred(version.schema, node, opsets, inputs)
    return [
        AbstractTensor(kind, known.shape if isinstance(known, AbstractTensor) else None)
        if kind is not None and (known is None or (isinstance(known, AbstractTensor) and known.type is None))
        else known
        for known, kind in zip(found, types, strict=True)
    ]


def _types_by_schema(
    schema: onnx.defs.OpSchema, node: NodeProto, inputs: Sequence[AbstractValue]
) -> list[ElementType | None]:
    """Return the element types of outputs that follow from the schema alone, whatever the shapes are.

    An output has the one type that its operator gives, the type that an attribute names, or that of an input
    of the same type variable.
    """
    variables: dict[str, ElementType | None] = {}
    for name, formal, known in zip(node.input, _formals(schema.inputs, len(inputs)), inputs, strict=True):
        if name and formal is not None and isinstance(known, AbstractTensor) and known.type is not None:
            kind = variables.setdefault(formal.type_str, known.type)
            variables[formal.type_str] = known.type if kind == known.type else None  # an invalid node
    named = next((attribute.i for attribute in node.attribute if attribute.name in ("to", "dtype")), 0)
    allowed = {one.type_param_str: list(one.allowed_type_strs) for one in schema.type_constraints}
    found: list[ElementType | None] = []
    for formal in _formals(schema.outputs, len(node.output)):
        if formal is None:
            found.append(None)
            continue
        kinds = allowed.get(formal.type_str, [formal.type_str])
        kind = variables.get(formal.type_str)
        if len(kinds) == 1:
            kind = _TENSORS.get(kinds[0])
        elif kind is None and named and len(node.output) == 1 and all(one in _TENSORS for one in kinds):
            kind = from_onnx(named)
        found.append(kind)
    return found


def _formals(formals: Sequence[Any], count: int) -> list[Any]:
    """Return the formal parameter of each of some values; None of one that may have any type."""
    last = formals[-1] if formals else None
    variadic = last is not None and last.option == onnx.defs.OpSchema.FormalParameterOption.Variadic
    repeated = last if last is not None and variadic and last.is_homogeneous else None
    fixed = list(formals[:-1]) if variadic else list(formals)
    return [*fixed, *[repeated] * count][:count]


_TENSORS: Final = {
    f"tensor({name.lower()})": from_onnx(number)
    for name, number in TensorProto.DataType.items()
    if number != TensorProto.UNDEFINED
}
"""The types of tensors as schemas write them."""


def _inferred(
    schema: onnx.defs.OpSchema, node: NodeProto, opsets: Mapping[str, int], inputs: Sequence[AbstractValue]
) -> list[AbstractValue]:
    """Return what onnx's own inference says."""
    nothing: list[AbstractValue] = [None] * len(node.output)
    names = SizeNames()
    types: dict[str, TypeProto] = {}
    numbers: dict[str, TensorProto] = {}
    for name, known in zip(node.input, inputs, strict=True):
        if not name:
            continue
        type_ = to_type(known, names)
        if type_ is None:
            return nothing
        types[name] = type_
        if (
            isinstance(known, AbstractTensor)
            and _is_fed(known)
            and known.is_complete
            and known.type is not None
        ):
            assert known.elements is not None
            if known.elements.dtype.kind in "iufb":
                numbers[name] = onnx.numpy_helper.from_array(known.elements.astype(known.type.numpy), name)
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    try:
        found = shape_inference.infer_node_outputs(schema, node, types, numbers, opset_imports=imports)
    except Exception:
        return nothing
    return [from_type(found[name], names) if name in found else None for name in node.output]
