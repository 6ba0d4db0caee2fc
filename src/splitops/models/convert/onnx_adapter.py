"""onnx's version converter and the bodies in its schemas, asked about one node alone, once for each kind."""

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

from splitops.errors import NOWHERE
from splitops.models.abstract_values import AbstractTensor, AbstractValue
from splitops.models.convert.onnx_versions import drop_defaults, unchanged
from splitops.models.formats.onnx.graphs import deserialize_model
from splitops.models.formats.onnx.schemas import find_version
from splitops.models.formats.onnx.types import to_type
from splitops.models.formats.walk import FreshNames, make_stem
from splitops.models.graph.onnx import PLAIN, annotate, fixed_array, get_abstract_value
from splitops.models.graph.op_builder import OnnxOpBuilder
from splitops.models.infer.interpreter import ShapeInterpreter

_MAX_EMBEDDED: Final = 1 << 12
"""Integers up to this many elements are shown to onnx's converter, which reads axes and the like."""
_MAX_FACTORS: Final = 16
"""Of floating-point numbers it reads bounds and scales: more are weights, in which equal nodes may differ."""
_IR_VERSION: Final = 10
_BODY: Final = "body"
"""The domain of an operator that is replaced by its body."""


class NoAdapterError(Exception):
    """Nothing is known that says the same as a node at another opset."""


@dataclass(frozen=True)
class CanonicalNode:
    """A node by itself, its values named by their places, so that nodes of one kind are equal."""

    node: NodeProto
    types: Mapping[str, TypeProto]
    constants: Mapping[str, TensorProto]
    """Those of its inputs that are small and always the same."""

    @classmethod
    def of(cls, node: ir.Node) -> CanonicalNode:
        """Return a node by itself."""
        proto = ir.serde.serialize_node(node)
        names = _place_names(node)
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
            array = fixed_array(value, limit=_MAX_EMBEDDED)
            if array is not None and _is_shown(array):
                constants[names[value]] = _readable(array, names[value])
        return cls(proto, types, constants)

    @property
    def is_open(self) -> bool:
        """Whether it has a body, or an attribute of the function around it."""
        return any(a.HasField("g") or a.graphs or a.ref_attr_name for a in self.node.attribute)

    def key(self) -> tuple[bytes, ...]:
        """Return what two nodes of one kind share."""
        messages: list[Any] = [self.node, *self.types.values(), *self.constants.values()]
        names = "\0".join((*self.types, *self.constants)).encode()
        return names, *(message.SerializeToString(deterministic=True) for message in messages)

    def model(self, opset: int) -> ModelProto:
        """Return a model of it."""
        graph = helper.make_graph([self.node], "node", [], [])
        for name in dict.fromkeys(filter(None, self.node.input)):
            if name in self.constants:
                graph.initializer.append(self.constants[name])
            else:
                graph.input.add(name=name, type=self.types.get(name))
        for name in filter(None, self.node.output):
            graph.output.add(name=name, type=self.types.get(name))
        return _model(graph, opset)


def _readable(array: npt.NDArray[Any], name: str) -> TensorProto:
    """Return a tensor whose numbers onnx's converter reads: up to onnx 1.21, it takes raw data for none."""
    return helper.make_tensor(
        name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape, array.reshape(-1).tolist()
    )


def _is_shown(array: npt.NDArray[Any]) -> bool:
    return array.dtype.kind in "biu" or (array.dtype.kind == "f" and array.size <= _MAX_FACTORS)


def _place_names(node: ir.Node) -> dict[ir.Value, str]:
    """Return a name for each value that a node reads or makes."""
    names: dict[ir.Value, str] = {}
    for letter, values in (("i", node.inputs), ("o", node.outputs)):
        for index, value in enumerate(values):
            if value is not None and value.name:
                names.setdefault(value, f"{letter}{index}")
    return names


def _model(graph: onnx.GraphProto, opset: int) -> ModelProto:
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=_IR_VERSION)


@dataclass(frozen=True)
class ReplacementModel:
    """A model that replaces a node. Its values have the names of the :class:`CanonicalNode`."""

    model: ModelProto
    opset: int
    known: Mapping[str, AbstractValue]

    @classmethod
    def of(cls, model: ModelProto, opset: int) -> ReplacementModel:
        """Return a model with what inference knows of its values."""
        found = (
            ShapeInterpreter(deserialize_model(model), NOWHERE, lambda site: None).run().substitute_sizes()
        )
        return cls(model, opset, {name: known for (_, name), known in found.by_name().items()})

    def inline(self, node: ir.Node, names: FreshNames) -> list[ir.Node]:
        """Put it in the place of a node, reading the values that the node reads; return its nodes."""
        places = _place_names(node)
        given = {value for value in node.inputs if value is not None}
        values: dict[str, ir.Value | None] = {name: value for value, name in places.items() if value in given}
        values[""] = None
        builder = OnnxOpBuilder(self.opset, names, make_stem(node))
        for tensor in self.model.graph.initializer:
            if tensor.name not in values:
                values[tensor.name] = builder.constant(np.asarray(onnx.numpy_helper.to_array(tensor)))
        for proto in self.model.graph.node:
            inputs = [values[name] for name in proto.input]
            attributes = {one.name: ir.serde.deserialize_attribute(one) for one in proto.attribute}
            outputs = builder.multi(
                proto.op_type, inputs, attributes, outputs=len(proto.output), hint="moved"
            )
            for name, value in zip(proto.output, outputs, strict=True):
                value.name = value.name if name else ""
                if name in self.known:
                    annotate(value, self.known[name])
            values.update(zip(proto.output, outputs, strict=True))
        builder.replace(node, [values.get(places[v]) if v in places else None for v in node.outputs])
        return builder.nodes


class Adapter:
    """onnx's answers, each asked for once."""

    def __init__(self) -> None:
        self._moved: dict[tuple[Any, ...], ReplacementModel | NoAdapterError] = {}
        self._bodies: dict[tuple[Any, ...], ReplacementModel | None] = {}
        self._unchanged: dict[tuple[Any, ...], bool] = {}

    def unchanged(self, node: ir.Node, old: int, new: int) -> bool:
        """Return whether a node says the same at both opsets."""
        attributes = node.attributes.data.values()
        if any(attribute.type not in PLAIN or attribute.is_ref() for attribute in attributes):
            canonical = CanonicalNode.of(node)
            return _unchanged(canonical.node, canonical.types, old, new)
        stated = tuple((attribute.name, attribute.type, attribute.value) for attribute in attributes)
        key = old, new, node.op_type, stated, *map(_kind_of, node.inputs), None, *map(_kind_of, node.outputs)
        if key not in self._unchanged:
            canonical = CanonicalNode.of(node)
            self._unchanged[key] = _unchanged(canonical.node, canonical.types, old, new)
        return self._unchanged[key]

    def convert(self, canonical: CanonicalNode, old: int, new: int) -> ReplacementModel:
        """Return the result of onnx's converter for a node."""
        key = (old, new, *canonical.key())
        if key not in self._moved:
            try:
                self._moved[key] = ReplacementModel.of(_adapted(canonical.model(old), old, new), new)
            except NoAdapterError as error:
                self._moved[key] = error
        found = self._moved[key]
        if isinstance(found, NoAdapterError):
            raise NoAdapterError(str(found))
        return found

    def body(self, canonical: CanonicalNode, opset: int) -> ReplacementModel | None:
        """Return the body that the schema of a node's operator has; None where it sets none for it."""
        key = (opset, *canonical.key())
        if key not in self._bodies:
            self._bodies[key] = _body(canonical, opset)
        return self._bodies[key]


def _kind_of(value: ir.Value | None) -> object:
    """Return what two values of one type share."""
    found = get_abstract_value(value) if value is not None and value.name else ""
    return (found.type,) if isinstance(found, AbstractTensor) else found


def _unchanged(node: NodeProto, types: Mapping[str, TypeProto], old: int, new: int) -> bool:
    return unchanged(node, *_written_types(node, types), old, new)


def _written_types(
    node: NodeProto, types: Mapping[str, TypeProto]
) -> tuple[list[str | None], list[str | None]]:
    return [_written(types.get(name)) for name in node.input], [
        _written(types.get(name)) for name in node.output
    ]


def _written(proto: TypeProto | None) -> str | None:
    """Return a type as schemas write it; None where it is not known in full."""
    match None if proto is None else proto.WhichOneof("value"):
        case "tensor_type":
            assert proto is not None
            number = proto.tensor_type.elem_type
            return f"tensor({TensorProto.DataType.Name(number).lower()})" if number else None
        case "sequence_type":
            assert proto is not None
            inner = _written(proto.sequence_type.elem_type)
            return inner and f"seq({inner})"
        case "optional_type":
            assert proto is not None
            inner = _written(proto.optional_type.elem_type)
            return inner and f"optional({inner})"
    return None


# The version converter


def _adapted(model: ModelProto, old: int, new: int) -> ModelProto:
    """Convert a small model version by version."""
    step = 1 if new > old else -1
    for opset in range(old, new, step):
        for node in model.graph.node:
            drop_defaults(node, opset, opset + step)
        types = _types(model)
        if all(_unchanged(node, types, opset, opset + step) for node in model.graph.node):
            model.opset_import[0].version = opset + step
            continue
        try:
            model = onnx.version_converter.convert_version(model, opset + step)
            model = onnx.shape_inference.infer_shapes(model)
        except Exception as error:
            text = str(error).strip() or type(error).__name__
            reason = text.splitlines()[-1].rpartition("failed: ")[2]
            raise NoAdapterError(f"onnx's converter says: {reason[:200]}") from error
        for node in model.graph.node:
            drop_defaults(node, opset, opset + step)
    _prove(model, new)
    return model


def _types(model: ModelProto) -> dict[str, TypeProto]:
    graph = model.graph
    return {
        value.name: value.type
        for value in (*graph.input, *graph.output, *graph.value_info)
        if value.HasField("type")
    }


def _prove(model: ModelProto, opset: int) -> None:
    """Hold what the converter has made against the schemas: it leaves attributes that a version lacks."""
    context = onnx.checker.C.CheckerContext()
    context.ir_version = _IR_VERSION
    context.opset_imports = {"": opset}
    types = _types(model)
    for node in model.graph.node:
        try:
            onnx.checker.check_node(node, context)
        except onnx.checker.ValidationError as error:
            reason = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
            raise NoAdapterError(f"what onnx's converter makes is not valid: {reason[:200]}") from error
        version = find_version(node.op_type, opset)
        if version is None or not version.can_have_types(*_written_types(node, types)):
            raise NoAdapterError(f"the result of onnx's converter, {node.op_type}, takes other types")


# Bodies


def _body(canonical: CanonicalNode, opset: int) -> ReplacementModel | None:
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
        body = _inlined(canonical, schema, function, version)
        if any(attribute.HasField("g") for inner in body.graph.node for attribute in inner.attribute):
            return None  # it reads values of the graph around it, by names that they have here alone
        return ReplacementModel.of(body, version)
    except Exception:  # onnx asks for types that are not known, or its inference rejects
        return None


def _inlined(canonical: CanonicalNode, schema: Any, function: FunctionProto, opset: int) -> ModelProto:
    """Return a node's body as a model, without what nobody reads of it."""
    model = canonical.model(opset)
    (call,) = model.graph.node
    given = {attribute.name for attribute in call.attribute}
    defaults = [found.default_value for name, found in schema.attributes.items() if name not in given]
    call.attribute.extend(value for value in defaults if value.type)  # the inliner binds no defaults
    function.domain = call.domain = _BODY
    model.functions.append(function)
    model.opset_import.add(domain=_BODY, version=1)
    inlined = ir.from_proto(onnx.inliner.inline_local_functions(model))
    RemoveUnusedNodesPass()(inlined)
    del inlined.opset_imports[_BODY]
    return onnx.shape_inference.infer_shapes(ir.to_proto(inlined), strict_mode=True)
