"""Infer nodes other than splits one at a time, with onnx and with :mod:`splitops.models.ops`."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final

import numpy as np
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
from splitops.models.infer.onnx_reading import to_attribute_proto, to_node_proto
from splitops.models.infer.onnx_texts import TEXT_OPERATORS, add_text_sizes
from splitops.models.infer.operators import infer_operator, is_tracked
from splitops.models.ops import find_node_spelling
from splitops.spec.elements.types import ElementType, from_onnx, from_onnx_name
from splitops.spec.sizes.dims import to_exact

_MAX_PASSED: Final = 64
"""Maximum number of elements that are passed to onnx. Larger tensors are not sizes, axes or scales."""


class NodeInference:
    """Infers single nodes. onnx's results are cached for nodes that differ only in names: blocks repeat."""

    def __init__(self, unread: Mapping[ir.Node, Sequence[AttributeProto]]) -> None:
        self._found: dict[Hashable, tuple[AbstractValue, ...]] = {}
        self._unread = unread

    def infer_outputs(
        self,
        node: ir.Node,
        attributes: Attributes,
        opsets: Mapping[str, int],
        inputs: Sequence[AbstractValue],
    ) -> Sequence[AbstractValue]:
        """Infer the outputs of a node with onnx and with splitops' operators. Subgraphs are not visited."""
        unread = self._unread.get(node, ()) if self._unread else ()
        keys: list[Hashable] = []
        complete = True
        for value, known in zip(node.inputs, inputs, strict=True):
            keys.append("" if value is None else _make_key(known))
            complete = complete and (
                not isinstance(known, AbstractTensor) or known.elements is None or _is_passed(known)
            )
        try:
            key = (
                node.domain,
                node.op_type,
                opsets.get(node.domain),
                tuple(map(_make_attribute_key, attributes.values())),
                tuple(attribute.SerializeToString() for attribute in unread) if unread else (),
                tuple(keys),
                tuple([value.name != "" for value in node.outputs]),
            )
            result = self._found.get(key)
            proto = to_node_proto(node, attributes, unread) if result is None else None
        except ir.serde.SerdeError:  # protobuf can read strings that are not UTF-8, but not write them
            return [None] * len(node.outputs)
        if result is None:
            assert proto is not None
            outputs: Sequence[AbstractValue] = _infer_by_onnx(proto, opsets, inputs)
            if complete and not node.domain:
                outputs = _infer_by_operator(node, attributes, opsets.get("", 0), inputs, outputs)
            result = self._found[key] = tuple(outputs)
        if not node.domain and node.op_type in TEXT_OPERATORS:  # strings are not part of the key
            return add_text_sizes(node, attributes, opsets.get("", 0), result)
        if complete or node.domain:
            return result
        return _infer_by_operator(node, attributes, opsets.get("", 0), inputs, result)


def _infer_by_operator(
    node: ir.Node,
    attributes: Attributes,
    opset: int,
    inputs: Sequence[AbstractValue],
    outputs: Sequence[AbstractValue],
) -> Sequence[AbstractValue]:
    """Refine ``outputs``, which onnx has inferred, if :mod:`splitops.models.ops` has the operator.

    onnx tracks only exact elements and unchanged sizes. Symbols and intervals in computed sizes are inferred
    here.
    """
    known_operator = find_node_spelling(node.op_type, opset)
    if known_operator is None:
        return outputs
    present = [
        None if value is None or value.name == "" else known or NOTHING
        for value, known in zip(node.inputs, inputs, strict=True)
    ]
    values = {name: attribute.value for name, attribute in attributes.items() if not attribute.is_ref()}
    if len(values) < len(attributes):
        return outputs  # only a call of the function sets all attributes
    refined = infer_operator(*known_operator, values, present, len(outputs), of_layer=False)
    return [old if new is NOTHING else _combine(old, new) for old, new in zip(outputs, refined, strict=True)]


def _combine(known: AbstractValue, refined: AbstractTensor) -> AbstractValue:
    """Combine the results of onnx and of splitops' operator for an output."""
    if not isinstance(known, AbstractTensor | None):
        return known
    base = known or NOTHING
    kind, shape = base.type or refined.type, meet_shapes(base.shape, refined.shape)
    value = refined.elements
    if value is None or not is_tracked(kind) or value.size > MAX_ELEMENTS:
        return AbstractTensor(kind, shape, base.elements)
    exact = to_exact(shape)
    if exact is not None and math.prod(exact) > MAX_ELEMENTS:
        return AbstractTensor(kind, shape, base.elements)
    return AbstractTensor(kind, tuple(value.shape), _convert_to_dtype(value, kind))


def _convert_to_dtype(value: Value, kind: ElementType | None) -> Value:
    """Convert elements to the dtype of ``kind`` if all of them are known numbers. Integers wrap around."""
    if kind is None or value.dtype != object or not all(isinstance(one, int | float) for one in value.flat):
        return value
    if kind.integer and all(isinstance(one, int) for one in value.flat):
        bits = [one & ((1 << kind.bits) - 1) for one in value.flat]
        return np.array(bits, np.uint64).reshape(value.shape).astype(kind.numpy)
    return value.astype(kind.numpy)


def _make_attribute_key(attribute: ir.Attr) -> Hashable:
    if attribute.type in PLAIN or attribute.is_ref():
        return attribute.name, attribute.type, attribute.value, attribute.ref_attr_name
    content: bytes = to_attribute_proto(attribute).SerializeToString()
    return content


def _make_key(value: AbstractValue) -> Hashable:
    """Return a key for the part of an abstract input that onnx's inference depends on."""
    if not isinstance(value, AbstractTensor):
        return value
    numbers = value.elements
    if numbers is None or not _is_passed(value):
        return value.type, value.shape
    content = tuple(numbers.flat) if numbers.dtype == object else numbers.tobytes()
    return value.type, value.shape, numbers.dtype.str, content


def _is_passed(known: AbstractTensor) -> bool:
    return known.elements is not None and known.elements.ndim <= 1 and known.elements.size <= _MAX_PASSED


def _infer_by_onnx(
    node: NodeProto, opsets: Mapping[str, int], inputs: Sequence[AbstractValue]
) -> list[AbstractValue]:
    version = find_version(node.op_type, opsets.get(node.domain, 0), canonicalise(node.domain))
    if version is None or version.deprecated:
        return [None] * len(node.output)
    types = _infer_types(version.schema, node, inputs)
    inferred: list[AbstractValue] = [None] * len(node.output)
    if version.is_safe_to_infer(node):
        if node.op_type == "STFT" and not any(one.name == "onesided" for one in node.attribute):
            # onnx's inference assumes 0 for an absent attribute, but the default is 1
            node.attribute.append(helper.make_attribute("onesided", version.attributes["onesided"].default))
        inferred = _call_onnx(version.schema, node, opsets, inputs)
    return [
        AbstractTensor(kind, known.shape if isinstance(known, AbstractTensor) else None)
        if kind is not None and (known is None or (isinstance(known, AbstractTensor) and known.type is None))
        else known
        for known, kind in zip(inferred, types, strict=True)
    ]


def _infer_types(
    schema: onnx.defs.OpSchema, node: NodeProto, inputs: Sequence[AbstractValue]
) -> list[ElementType | None]:
    """Infer the element types of the outputs of a node from its schema, without onnx's shape inference.

    An output has the only type that the operator allows, the type of an input with the same type variable, or
    the type that an attribute sets. Otherwise, its type is None.
    """
    variables: dict[str, ElementType | None] = {}
    formals = _expand_formals(schema.inputs, len(inputs))
    for name, formal, known in zip(node.input, formals, inputs, strict=True):
        if name and formal is not None and isinstance(known, AbstractTensor) and known.type is not None:
            kind = variables.setdefault(formal.type_str, known.type)
            variables[formal.type_str] = known.type if kind == known.type else None  # an invalid node
    named = next((attribute.i for attribute in node.attribute if attribute.name in ("to", "dtype")), 0)
    named = named if len(node.output) == 1 else 0
    allowed = {one.type_param_str: list(one.allowed_type_strs) for one in schema.type_constraints}
    result: list[ElementType | None] = []
    for formal in _expand_formals(schema.outputs, len(node.output)):
        if formal is None:
            result.append(None)
            continue
        kinds = allowed.get(formal.type_str, [formal.type_str])
        kind = variables.get(formal.type_str)
        if len(kinds) == 1:
            kind = from_onnx_name(kinds[0])
        elif kind is None and named and all(one.startswith("tensor(") for one in kinds):
            kind = from_onnx(named)
        result.append(kind)
    return result


def _expand_formals(formals: Sequence[Any], count: int) -> list[Any]:
    """Return the formal parameter of each of ``count`` values.

    It is None for a heterogeneous variadic value, and for values that the operator does not have.
    """
    last = formals[-1] if formals else None
    variadic = last is not None and last.option == onnx.defs.OpSchema.FormalParameterOption.Variadic
    repeated = last if last is not None and variadic and last.is_homogeneous else None
    fixed = list(formals[:-1]) if variadic else list(formals)
    return [*fixed, *[repeated] * count][:count]


def _call_onnx(
    schema: onnx.defs.OpSchema, node: NodeProto, opsets: Mapping[str, int], inputs: Sequence[AbstractValue]
) -> list[AbstractValue]:
    """Infer the outputs of a node with onnx. They are unknown if onnx fails."""
    nothing: list[AbstractValue] = [None] * len(node.output)
    names = SizeNames()
    types: dict[str, TypeProto] = {}
    numbers: dict[str, TensorProto] = {}
    for name, value in zip(node.input, inputs, strict=True):
        if not name:
            continue
        type_ = to_type(value, names)
        if type_ is None:
            return nothing
        types[name] = type_
        array = value.to_array() if isinstance(value, AbstractTensor) and _is_passed(value) else None
        if array is not None and array.dtype.kind in "iufb":
            numbers[name] = onnx.numpy_helper.from_array(array, name)
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    try:
        found = shape_inference.infer_node_outputs(schema, node, types, numbers, opset_imports=imports)
    except Exception:
        return nothing
    return [from_type(found[name], names) if name in found else None for name in node.output]
