"""Cached conversion of single nodes with onnx's version converter or the function bodies of schemas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx
import onnx.inliner
import onnx_ir as ir
from onnx import FunctionProto, ModelProto, NodeProto, TensorProto, TypeProto, helper
from onnx_ir.passes.common import RemoveUnusedNodesPass

from splitops.models.abstract_values import AbstractTensor, AbstractValue
from splitops.models.convert.onnx_versions import drop_defaults, format_types, is_unchanged
from splitops.models.formats.onnx.graphs import deserialize_model
from splitops.models.formats.onnx.schemas import find_version
from splitops.models.formats.onnx.types import to_type
from splitops.models.formats.walk import FreshNames, make_stem
from splitops.models.graph.onnx import PLAIN, annotate, find_elements, get_abstract_value
from splitops.models.graph.op_builder import OnnxOpBuilder
from splitops.models.infer.interpreter import infer_model

_MAX_EMBEDDED: Final = 1 << 12
"""Maximum size of an integer constant that is passed to onnx's converter, such as axes or sizes."""
_MAX_FACTORS: Final = 16
"""Maximum size of a floating-point constant that is passed to onnx's converter. Larger ones are weights."""
_IR_VERSION: Final = 10
_BODY: Final = "body"
"""Temporary domain of an operator that is replaced by the body in its schema."""


class NoAdapterError(Exception):
    """A node cannot be converted to another opset."""


@dataclass(frozen=True)
class CanonicalNode:
    """A node outside its graph, with values named by their positions, so that equal nodes share a key."""

    node: NodeProto
    types: Mapping[str, TypeProto]
    constants: Mapping[str, TensorProto]
    """The small inputs that have the same elements in every run, keyed by name."""

    @classmethod
    def from_node(cls, node: ir.Node) -> CanonicalNode:
        """Copy a node, with its values named by position, their types, and its small constant inputs."""
        proto = ir.serde.serialize_node(node)
        names = _name_values(node)
        types = {
            name: kind
            for value, name in names.items()
            if (kind := to_type(get_abstract_value(value))) is not None
        }
        proto.name = ""
        for fields, values in ((proto.input, node.inputs), (proto.output, node.outputs)):
            for index in range(len(fields)):
                value = values[index]
                fields[index] = "" if value is None or not value.name else names[value]
        constants = {}
        for value in node.inputs:
            if value is None or value not in names:
                continue
            array = find_elements(value, limit=_MAX_EMBEDDED)
            if array is not None and (
                array.dtype.kind in "biu" or (array.dtype.kind == "f" and array.size <= _MAX_FACTORS)
            ):
                constants[names[value]] = _make_typed_tensor(array, names[value])
        return cls(proto, types, constants)

    @property
    def is_open(self) -> bool:
        """Whether the node has a subgraph, or an attribute that the caller of its function sets."""
        return any(a.HasField("g") or a.graphs or a.ref_attr_name for a in self.node.attribute)

    def make_key(self) -> tuple[bytes, ...]:
        """Return a cache key, equal for nodes with the same operator, attributes, types and constants."""
        messages: list[Any] = [self.node, *self.types.values(), *self.constants.values()]
        names = "\0".join((*self.types, *self.constants)).encode()
        return names, *(message.SerializeToString(deterministic=True) for message in messages)

    def to_model(self, opset: int) -> ModelProto:
        """Return a model that contains only this node, with its constants as initializers."""
        graph = helper.make_graph([self.node], "node", [], [])
        for name in dict.fromkeys(filter(None, self.node.input)):
            if name in self.constants:
                graph.initializer.append(self.constants[name])
            else:
                graph.input.add(name=name, type=self.types.get(name))
        for name in filter(None, self.node.output):
            graph.output.add(name=name, type=self.types.get(name))
        imports = [helper.make_opsetid("", opset)]
        return helper.make_model(graph, opset_imports=imports, ir_version=_IR_VERSION)


def _make_typed_tensor(array: npt.NDArray[Any], name: str) -> TensorProto:
    """Build a tensor without raw data: up to release 1.21, onnx's converter reads raw data as empty."""
    return helper.make_tensor(
        name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape, array.reshape(-1).tolist()
    )


def _name_values(node: ir.Node) -> dict[ir.Value, str]:
    """Name each input and output of a node by its position, such as ``i0`` and ``o1``."""
    names: dict[ir.Value, str] = {}
    for letter, values in (("i", node.inputs), ("o", node.outputs)):
        for index, value in enumerate(values):
            if value is not None and value.name:
                names.setdefault(value, f"{letter}{index}")
    return names


@dataclass(frozen=True)
class ReplacementModel:
    """A model that replaces a node. Its inputs and outputs have the names of the :class:`CanonicalNode`."""

    model: ModelProto
    opset: int
    known: Mapping[str, AbstractValue]

    @classmethod
    def infer(cls, model: ModelProto, opset: int) -> ReplacementModel:
        """Build a replacement from a model, and infer the types and shapes of its values."""
        inferred = infer_model(deserialize_model(model))
        return cls(model, opset, {name: known for (_, name), known in inferred.index_by_name().items()})

    def inline(self, node: ir.Node, names: FreshNames) -> list[ir.Node]:
        """Replace ``node`` with the nodes of the model, and return them."""
        keys = _name_values(node)
        sources = {value for value in node.inputs if value is not None}
        values: dict[str, ir.Value | None] = {name: value for value, name in keys.items() if value in sources}
        values[""] = None
        builder = OnnxOpBuilder(self.opset, names, make_stem(node))
        for tensor in self.model.graph.initializer:
            if tensor.name not in values:
                values[tensor.name] = builder.add_constant(np.asarray(onnx.numpy_helper.to_array(tensor)))
        for proto in self.model.graph.node:
            inputs = [values[name] for name in proto.input]
            attributes = {attr.name: ir.serde.deserialize_attribute(attr) for attr in proto.attribute}
            outputs = builder.add_node(
                proto.op_type, inputs, attributes, outputs=len(proto.output), hint="moved"
            )
            for name, value in zip(proto.output, outputs, strict=True):
                value.name = value.name if name else ""
                if name in self.known:
                    annotate(value, self.known[name])
            values.update(zip(proto.output, outputs, strict=True))
        builder.replace(node, [values.get(keys[v]) if v in keys else None for v in node.outputs])
        return builder.nodes


class Adapter:
    """Converts nodes with onnx, and caches the results for equal nodes."""

    def __init__(self) -> None:
        self._converted: dict[tuple[Any, ...], ReplacementModel | NoAdapterError] = {}
        self._bodies: dict[tuple[Any, ...], ReplacementModel | None] = {}
        self._unchanged: dict[tuple[Any, ...], bool] = {}

    def is_unchanged(self, node: ir.Node, old: int, new: int) -> bool:
        """Return whether a node means the same at both opsets."""
        attributes = node.attributes.data.values()
        if any(attribute.type not in PLAIN or attribute.is_ref() for attribute in attributes):
            canonical = CanonicalNode.from_node(node)
            return is_unchanged(canonical.node, canonical.types, old, new)
        settings = tuple((attribute.name, attribute.type, attribute.value) for attribute in attributes)
        key = old, new, node.op_type, settings, *map(_to_key, node.inputs), None, *map(_to_key, node.outputs)
        if key not in self._unchanged:
            canonical = CanonicalNode.from_node(node)
            self._unchanged[key] = is_unchanged(canonical.node, canonical.types, old, new)
        return self._unchanged[key]

    def convert(self, canonical: CanonicalNode, old: int, new: int) -> ReplacementModel:
        """Convert a node with onnx's converter. Raise :class:`NoAdapterError` if it fails."""
        key = (old, new, *canonical.make_key())
        if key not in self._converted:
            try:
                self._converted[key] = ReplacementModel.infer(_adapt(canonical.to_model(old), old, new), new)
            except NoAdapterError as error:
                self._converted[key] = error
        result = self._converted[key]
        if isinstance(result, NoAdapterError):
            raise NoAdapterError(str(result))
        return result

    def find_body(self, canonical: CanonicalNode, opset: int) -> ReplacementModel | None:
        """Return the body that the operator's schema defines for a node, or None if none is usable."""
        key = (opset, *canonical.make_key())
        if key not in self._bodies:
            self._bodies[key] = _build_body(canonical, opset)
        return self._bodies[key]


def _to_key(value: ir.Value | None) -> object:
    """Return a cache key: a tensor's element type, another abstract value, or ``""`` for an absent value."""
    fact = get_abstract_value(value) if value is not None and value.name else ""
    return (fact.type,) if isinstance(fact, AbstractTensor) else fact


# The version converter


def _adapt(model: ModelProto, old: int, new: int) -> ModelProto:
    """Convert a small model with onnx's converter, one opset at a time, and check the result."""
    step = 1 if new > old else -1
    for opset in range(old, new, step):
        for node in model.graph.node:
            drop_defaults(node, opset, opset + step)
        types = _read_types(model)
        if all(is_unchanged(node, types, opset, opset + step) for node in model.graph.node):
            model.opset_import[0].version = opset + step
            continue
        try:
            model = onnx.version_converter.convert_version(model, opset + step)
            model = onnx.shape_inference.infer_shapes(model)
        except Exception as error:
            text = str(error).strip() or type(error).__name__
            reason = text.splitlines()[-1].rpartition("failed: ")[2]
            raise NoAdapterError(f"onnx's converter failed: {reason[:200]}") from error
        for node in model.graph.node:
            drop_defaults(node, opset, opset + step)
    _check_result(model, new)
    return model


def _read_types(model: ModelProto) -> dict[str, TypeProto]:
    graph = model.graph
    return {
        value.name: value.type
        for value in (*graph.input, *graph.output, *graph.value_info)
        if value.HasField("type")
    }


def _check_result(model: ModelProto, opset: int) -> None:
    """Check a result against the schemas: onnx's converter can keep attributes that ``opset`` lacks."""
    context = onnx.checker.C.CheckerContext()
    context.ir_version = _IR_VERSION
    context.opset_imports = {"": opset}
    types = _read_types(model)
    for node in model.graph.node:
        try:
            onnx.checker.check_node(node, context)
        except onnx.checker.ValidationError as error:
            reason = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
            raise NoAdapterError(f"onnx's converter returned an invalid node: {reason[:200]}") from error
        version = find_version(node.op_type, opset)
        if version is None or not version.can_have_types(*format_types(node, types)):
            problem = f"returned {node.op_type}, which does not accept these types"
            raise NoAdapterError(f"onnx's converter {problem}")


# Bodies


def _build_body(canonical: CanonicalNode, opset: int) -> ReplacementModel | None:
    node = canonical.node
    schema: Any = onnx.defs.get_schema(node.op_type, opset, "")
    fixed, depending = schema.function_opset_versions, schema.context_dependent_function_opset_versions
    version = max((found for found in (*fixed, *depending) if found <= opset), default=None)
    if version is None:
        return None
    try:
        if version in fixed:
            function = FunctionProto.FromString(schema.get_function_with_opset_version(version))
        else:
            types = [canonical.types.get(name, TypeProto()).SerializeToString() for name in node.input]
            content = schema.get_context_dependent_function_with_opset_version(
                version, node.SerializeToString(), types
            )
            function = FunctionProto.FromString(content)
        body = _inline_body(canonical, schema, function, version)
        if any(attribute.HasField("g") for inner in body.graph.node for attribute in inner.attribute):
            return None  # its subgraphs read outer values by names that are valid only in this model
        return ReplacementModel.infer(body, version)
    except Exception:  # onnx requires types that are unknown, or its inference rejects the body
        return None


def _inline_body(canonical: CanonicalNode, schema: Any, function: FunctionProto, opset: int) -> ModelProto:
    """Return a node's body as a model without unused nodes."""
    model = canonical.to_model(opset)
    (call,) = model.graph.node
    names = {attribute.name for attribute in call.attribute}
    defaults = [declared.default_value for name, declared in schema.attributes.items() if name not in names]
    call.attribute.extend(value for value in defaults if value.type)  # the inliner does not apply defaults
    function.domain = call.domain = _BODY
    model.functions.append(function)
    model.opset_import.add(domain=_BODY, version=1)
    inlined = ir.from_proto(onnx.inliner.inline_local_functions(model))
    RemoveUnusedNodesPass()(inlined)
    del inlined.opset_imports[_BODY]
    return onnx.shape_inference.infer_shapes(ir.to_proto(inlined), strict_mode=True)
