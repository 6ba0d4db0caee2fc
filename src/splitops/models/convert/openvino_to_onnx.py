"""Conversion of an OpenVINO model to ONNX.

Each split is written at the target opset, with the inferred type and shape of its data. The other layers are
written at the opset of their converter, and then converted to the target like nodes of any ONNX model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
from onnx import ModelProto
from onnx_ir.passes.common import RemoveUnusedNodesPass

from splitops.common.progress import track
from splitops.errors import ModelError, Rule, SplitError, Where, rule_error
from splitops.models.abstract_values import AbstractTensor, AbstractValue, meet_shapes
from splitops.models.convert.folding import fold_layer, fold_value
from splitops.models.convert.layer_op_builder import LayerOpBuilder
from splitops.models.convert.layers import find_layer_converter
from splitops.models.convert.onnx_to_onnx import check_converted, get_status
from splitops.models.convert.openvino_bodies import write_bodies
from splitops.models.convert.opset_converter import OpsetConverter
from splitops.models.convert.report import Change, Conversion, Status
from splitops.models.formats.model import CheckedModel
from splitops.models.formats.onnx.graphs import compute_min_ir_version
from splitops.models.formats.onnx.schemas import find_version
from splitops.models.formats.onnx.types import to_type
from splitops.models.formats.openvino import (
    Endpoint,
    Graph,
    Layer,
    OpenVINOModel,
    make_input_names,
    make_output_names,
)
from splitops.models.formats.openvino.nodes import (
    DOMAIN,
    LayerNode,
    get_layer,
    get_port,
    get_source,
    to_nodes,
)
from splitops.models.formats.openvino.port_maps import BODIES_SINCE
from splitops.models.formats.openvino.splits import (
    get_family_schema,
    parse_operation_set,
    read_split_attributes,
)
from splitops.models.formats.walk import FreshNames, iter_all_graphs, iter_subgraphs, make_stem
from splitops.models.graph.onnx import (
    add_initializer,
    annotate,
    find_type,
    get_abstract_value,
    make_attributes,
    make_fact,
    remove_if_unused,
)
from splitops.models.graph.onnx_editor import OnnxEditor
from splitops.models.graph.op_builder import OnnxOpBuilder
from splitops.models.graph.split_nodes import is_split, read_split_node
from splitops.models.graph.split_writer import write_split
from splitops.models.infer.interpreter import ShapeInterpreter
from splitops.models.ops.writing import ONNX_OPSET, Values
from splitops.models.quirks import find_conflicting_splits
from splitops.models.split_nodes.styles import ConversionTarget, SplitStyle
from splitops.models.split_nodes.ways import get_first_way
from splitops.spec.elements.types import ElementType, from_onnx

EVALUATOR_OPSET: Final = 21
"""Opset of the ONNX models to which OpenVINO IR is converted for the evaluator."""


def convert_ir(source: CheckedModel, target: ConversionTarget | None, style: SplitStyle) -> Conversion:
    """Convert an OpenVINO model to an opset of ONNX."""
    where = source.where
    if target is None or target.domain:
        raise ModelError("an OpenVINO model can only be converted to ONNX, for example to 'onnx:18'", where)
    must_differ: frozenset[ir.Node] = frozenset()
    while True:
        writer = _ModelWriter(source.nodes, where, target, style, must_differ)
        writer.write()
        changes, splits = tuple(writer.changes), writer.splits
        if any(change.status is Status.REJECTED for change in changes):
            return Conversion(str(target), changes, None)
        conflicts = find_conflicting_splits(writer.model)
        merged = frozenset(splits[name] for _, name in conflicts if name in splits) - must_differ
        if not merged:
            break
        must_differ |= merged
    proto = writer.to_proto()
    try:
        check_converted(proto, where)
    except SplitError as error:
        return Conversion(str(target), changes, None, error)
    return Conversion(str(target), changes, proto)


def convert_for_evaluator(model: OpenVINOModel, where: Where) -> ModelProto:
    """Convert an OpenVINO model to ONNX for splitops' evaluator. Splits become nodes of domain ``openvino``.

    Inputs are named ``input0``, ``input1`` and so on, outputs ``output0``, ``output1`` and so on.

    Raises:
        ModelError: a layer cannot be converted. OpenVINO may still be able to run the model.
    """
    target = ConversionTarget("", EVALUATOR_OPSET)
    writer = _ModelWriter(to_nodes(model), where, target, for_evaluator=True)
    writer.write()
    rejected = next((change for change in writer.changes if change.error is not None), None)
    if rejected is not None:
        error = rejected.error
        assert error is not None
        message = f"the reference cannot run the model: {error.message}; engine='openvino' may run it"
        raise ModelError(message, error.where if error.where.node else rejected.where)
    return writer.to_proto()


class _ModelWriter:
    """The ONNX model that is written, and other state that the writers of its graphs share."""

    def __init__(
        self,
        source: ir.Model,
        where: Where,
        target: ConversionTarget,
        style: SplitStyle = SplitStyle.SAME,
        must_differ: frozenset[ir.Node] = frozenset(),
        *,
        for_evaluator: bool = False,
    ) -> None:
        assert target.opset is not None
        self.source = source
        """The source model, with its layers as nodes."""
        self.where = where
        model = get_source(source)
        pairs = zip(model.iter_graphs(), iter_all_graphs(source), strict=True)
        self.source_graphs = {
            id(graph): nodes for (_, graph), (_, nodes) in pairs if isinstance(nodes, ir.Graph)
        }
        self.target = target
        self.opset = target.opset
        self.style = style
        self.must_differ = must_differ
        self.changes: list[Change] = []
        imports = {"": self.opset, DOMAIN: 1}
        graph = ir.Graph([], [], nodes=[], name=model.name or "model", opset_imports=imports)
        self.model = ir.Model(graph, ir_version=8, producer_name="splitops")
        self.names = FreshNames(self.model)
        self.converter = OpsetConverter(self.names)
        self.for_evaluator = for_evaluator
        """Whether the model is for the evaluator only."""
        self.splits: dict[str, ir.Node] = {}
        """Source node of each split, keyed by the names of its parts in the ONNX model."""

    def to_proto(self) -> ModelProto:
        """Return the ONNX model, with the IR version that it needs."""
        self.model.ir_version = max(self.model.ir_version, compute_min_ir_version(self.model))
        return ir.serde.to_proto(self.model)

    def write(self) -> None:
        """Write all layers in topological order, and remove the nodes that no output needs."""
        source = get_source(self.source)
        inputs = dict(zip((layer.id for layer in source.inputs), make_input_names(source), strict=True))
        outputs = dict(zip((layer.id for layer in source.outputs), make_output_names(source), strict=True))
        if self.for_evaluator:  # names of inputs may repeat
            inputs = {id_: f"input{at}" for at, id_ in enumerate(inputs)}
            outputs = {id_: f"output{at}" for at, id_ in enumerate(outputs)}
        # Inputs and outputs keep their names, even if layers between them have the same ones.
        for name in dict.fromkeys([*inputs.values(), *outputs.values()]):
            self.names.make_name(name)
        _GraphWriter(self, self.model.graph, self.where).write(source.graph, {}, inputs, outputs)
        RemoveUnusedNodesPass()(self.model)  # includes constants that only the conversion has read
        for graph in self.model.graphs():
            for constant in list(graph.initializers.values()):  # the pass keeps initializers of bodies
                remove_if_unused(constant)
        if not self.for_evaluator:
            self._replace_empty_initializers()

    def _replace_empty_initializers(self) -> None:
        """Replace empty initializers, except shapes and axes, with nodes. OpenVINO reads them as scalars."""
        for graph in self.model.graphs():
            for value in list(graph.initializers.values()):
                tensor = value.const_value
                kind = None if tensor is None or tensor.size else from_onnx(tensor.dtype.value)
                if tensor is None or kind is None or (tensor.shape.rank() == 1 and kind.integer):
                    continue  # a shape or axes, which may be empty
                editor, before = OnnxEditor(self.model, self.where), graph[0]
                if editor.has_empty(kind, before):
                    empty = editor.fold(tensor.numpy(), kind, value, before)
                    ir.convenience.replace_all_uses_with(value, empty)
                    remove_if_unused(value)


class _GraphWriter:
    """Writes the layers of one graph as ONNX nodes."""

    def __init__(self, writer: _ModelWriter, graph: ir.Graph, where: Where) -> None:
        self.writer = writer
        self.graph = graph
        self.where = where
        self.names = writer.names
        self.opset = writer.opset
        self.source = Graph()
        self.known: Mapping[ir.Value, AbstractValue] = {}
        self.values: dict[ir.Value, ir.Value] = {}
        """ONNX value of each output port."""
        self.named: set[ir.Value] = set()
        self.folded: dict[ir.Value, ir.Value] = {}

    def write(
        self,
        source: Graph,
        given: Mapping[int, ir.Value],
        inputs: Mapping[int, str] = MappingProxyType({}),
        outputs: Mapping[int, str] = MappingProxyType({}),
    ) -> dict[int, ir.Value]:
        """Write the layers of a graph in topological order.

        Args:
            source: the graph of layers.
            given: the value of each Parameter of a body, keyed by layer id.
            inputs: the name of the new input for each other Parameter, keyed by layer id.
            outputs: the name of the new output for each Result, keyed by layer id. Empty for a body.

        Returns:
            The value of each Result, keyed by layer id.
        """
        self.source = source
        nodes = self.writer.source_graphs[id(source)]
        parameters: dict[ir.Value, AbstractValue] = {}
        for node in nodes:
            value = get_abstract_value(given[get_layer(node).id]) if get_layer(node).id in given else None
            if isinstance(value, AbstractTensor):
                parameters[node.outputs[0]] = value
        self.known = (
            ShapeInterpreter(self.writer.source, self.where).run_single_graph(nodes, parameters).values
        )
        results: dict[int, ir.Value] = {}
        for node in track(nodes, "convert"):
            assert type(node) is LayerNode
            layer = node.layer
            where = replace(self.where, node=layer.name)
            try:
                if layer.type == "Parameter":
                    parameter = given.get(layer.id) or self._write_parameter(layer, inputs[layer.id], where)
                    if layer.id in given:
                        _check_type(layer, parameter, where)
                    self.values[node.outputs[0]] = parameter
                elif layer.type == "Result":
                    (result,) = self._get_sources(node)
                    results[layer.id] = self._write_result(result, outputs[layer.id]) if outputs else result
                elif layer.constant is not None:
                    kind, array = layer.constant.element_type, layer.constant.read_array(where)
                    self._write_constant(node.outputs[0], kind, array, where)
                elif is_split(node):
                    self._write_split(node, where)
                else:
                    self._write_other(node, where)
            except SplitError as error:
                self._reject(node, layer.type, where, error)
        self.graph.outputs.extend(results[id_] for id_ in outputs)
        return results

    def _reject(self, node: ir.Node, before: str, where: Where, error: SplitError) -> None:
        """Report a rejected layer, and create placeholder outputs, so that later layers are reported, too."""
        self.writer.changes.append(Change(where, Status.REJECTED, before, error=error))
        for port in node.outputs:
            self.values[port] = ir.Value(name=self.names.make_name("rejected"))
            annotate(self.values[port], self.known.get(port))

    # Parameter, Const, Result

    def _write_parameter(self, layer: Layer, name: str, where: Where) -> ir.Value:
        any_type = self.writer.for_evaluator and layer.has_dynamic_type
        kind = None if any_type else layer.read_element_type(where)
        return self.add_input(name, AbstractTensor(kind, layer.read_shape(where)), where)

    def add_input(self, name: str, what: AbstractTensor, where: Where) -> ir.Value:
        """Add an input with the type and shape of ``what`` to the graph. ``name`` must be reserved."""
        value = ir.Value(name=name)
        if what.type is not None:
            value.type = self._make_type(what.type, where)
            if what.type.onnx_number is None:
                annotate(value, what)
        if what.shape is not None:
            value.shape = ir.Shape([dim if isinstance(dim, int) else None for dim in what.shape])
        self.graph.inputs.append(value)
        return value

    def _make_type(self, element_type: ElementType, where: Where) -> ir.TensorType:
        if self.writer.for_evaluator and element_type.storage:
            return ir.TensorType(ir.DataType.UINT8)  # the evaluator only copies the codes
        if element_type.onnx_number is None:
            raise rule_error(
                "ONNX",
                Rule.TYPE_UNSUPPORTED,
                f"the element type is {element_type.openvino}",
                "ONNX has no such type",
                where=where,
                type=str(element_type),
            )
        return ir.TensorType(ir.DataType(element_type.onnx_number))

    def _write_constant(
        self, port: ir.Value, element_type: ElementType, array: npt.NDArray[Any], where: Where
    ) -> None:
        kind = self._make_type(element_type, where)
        if element_type.bits == 0:
            strings = [str(text).encode("utf-8", "surrogateescape") for text in array.reshape(-1)]
            if self.writer.for_evaluator and not all(map(_is_utf8, strings)):
                raise ModelError("a constant has a string that is not UTF-8, which ONNX requires", where)
            tensor: Any = ir.StringTensor(strings, shape=ir.Shape(array.shape))
        else:
            tensor = ir.Tensor(np.array(array), dtype=kind.dtype)
        self.values[port] = add_initializer(self.graph, tensor, self.names.make_name(port.name or ""))
        if element_type.onnx_number is None:
            annotate(self.values[port], AbstractTensor(element_type, array.shape))

    def _write_result(self, value: ir.Value, name: str) -> ir.Value:
        if value.is_graph_input() and value.name == name:
            return value  # an input that is also an output
        if value.producer() is None or value in self.named:
            output = ir.Value(name=name)
            annotate(output, get_abstract_value(value))
            node_name = self.names.make_name(f"{name}/Identity")
            self.graph.append(ir.Node("", "Identity", [value], outputs=[output], name=node_name))
            value = output
        self.named.add(value)
        value.name = name
        kind = to_type(get_abstract_value(value))
        if kind is not None:
            value.type = ir.serde.deserialize_type_proto_for_type(kind)
            value.shape = ir.serde.deserialize_type_proto_for_shape(kind)
        return value

    def _get_sources(self, node: ir.Node) -> list[ir.Value]:
        return [self.values[value] for value in node.inputs if value is not None]

    # Splits

    def _write_split(self, read: LayerNode, where: Where) -> None:
        if self.writer.for_evaluator:
            self._write_for_evaluator(read, where)
            return
        data, *operands = self._get_sources(read)
        sources = [data, *(self._fold(value, where) for value in operands)]
        facts = [make_fact(value, read=index > 0) for index, value in enumerate(sources)]
        split_node = read_split_node(read, 0, where, facts=facts, conditional=where.graph is not None)
        if split_node.unread is not None:
            raise split_node.unread
        before = f"openvino {split_node}"
        try:
            if facts[1].value is None:
                raise rule_error(
                    str(split_node.schema),
                    Rule.AXIS_RANGE,
                    "the axis is computed when the model runs",
                    "ONNX needs it as an attribute",
                    where=replace(where, input="axis"),
                )
            way = get_first_way(
                split_node, self.writer.target, self.writer.style, must_differ=read in self.writer.must_differ
            )
            outputs = [self._new_value(port) for port in read.outputs]
            node = ir.Node("", "Split", sources, outputs=outputs, name=self.names.make_name(read.name or ""))
            self.graph.append(node)
            parts = write_split(node, split_node, way, OnnxOpBuilder(self.opset, self.names, make_stem(node)))
        except SplitError as error:
            self._reject(read, before, where, error)
            return
        for port, part in zip(read.outputs, parts, strict=True):
            assert part is not None
            self.values[port] = part
            self.writer.splits.setdefault(part.name or "", read)
        self.writer.changes.append(Change(where, get_status(way), before, str(way)))

    def _write_for_evaluator(self, read: LayerNode, where: Where) -> None:
        """Write a layer as an ``openvino`` node for the evaluator. The doc string is its location in JSON."""
        layer, sources = read.layer, self._get_sources(read)
        attributes: dict[str, Any] = {"version": layer.version}
        if layer.type == "Convert":
            attributes["destination_type"] = layer.get_attribute("destination_type") or ""
            kind = find_type(sources[0])
            if kind is not None and kind.storage:  # the dtype of its codes does not determine it
                attributes["source_type"] = kind.openvino or ""
        elif layer.type == "Reshape":
            attributes["special_zero"] = int(layer.read_boolean("special_zero", default=False))
        elif is_split(read):
            schema_ = get_family_schema(layer.type, layer.version, where)
            attributes |= read_split_attributes(layer, schema_, where)
        outputs = [self._new_value(port) for port in read.outputs]
        node = ir.Node(
            DOMAIN,
            layer.type,
            sources,
            make_attributes(attributes),
            outputs=outputs,
            name=self.names.make_name(layer.name),
            doc_string=json.dumps([where.graph, layer.name]),
        )
        self.graph.append(node)
        self.values.update(zip(read.outputs, outputs, strict=True))

    def _fold(self, value: ir.Value, where: Where) -> ir.Value:
        """Return an initializer with the elements of a split operand, or the operand if they are unknown."""
        if make_fact(value, read=True).value is not None and value.producer() is None:
            return value
        if value not in self.folded:
            array = fold_value(value, self.opset, where)
            if array is None:
                return value
            name = self.names.make_name(value.name or "folded")
            self.folded[value] = add_initializer(self.graph, ir.Tensor(array), name)
        return self.folded[value]

    def _new_value(self, port: ir.Value) -> ir.Value:
        value = ir.Value(name=self.names.make_name(port.name or ""))
        annotate(value, self.known.get(port))
        return value

    # The other layers

    def _write_other(self, node: LayerNode, where: Where) -> None:
        layer = node.layer
        if self.writer.for_evaluator and _is_evaluated(layer):
            self._write_for_evaluator(node, where)
            return
        try:
            if (
                layer.type in BODIES_SINCE
                and (parse_operation_set(layer.version) or 0) >= BODIES_SINCE[layer.type]
            ):
                results = write_bodies(node, self._get_sources(node), self, where)
            else:
                results = self._convert_layer(node, where)
        except SplitError:
            constants = fold_layer(self.source, layer)
            if constants is None:
                raise
            for port in node.outputs:
                constant = constants.get(Endpoint(layer.id, get_port(port).id))
                if constant is not None:
                    self._write_constant(port, constant.element_type, constant.read_array(where), where)
            return
        for port, value in zip(node.outputs, results, strict=True):
            if value is None:
                continue
            own, inferred = get_abstract_value(value), self.known[port]
            if layer.bodies and isinstance(own, AbstractTensor) and isinstance(inferred, AbstractTensor):
                annotate(value, AbstractTensor(own.type, meet_shapes(own.shape, inferred.shape)))
            self.values[port] = value

    def _convert_layer(self, node: LayerNode, where: Where) -> Values:
        layer = node.layer
        converter = find_layer_converter(layer)
        if layer.bodies or converter is None:
            raise ModelError(f"{layer} of {layer.version} cannot be converted to ONNX", where)
        builder = LayerOpBuilder(converter.opset, self.names, self.graph, node)
        try:
            results = converter.to_onnx(builder, self._get_sources(node))
        except SplitError as error:
            error.where = where
            raise
        except (ArithmeticError, LookupError, ValueError) as error:
            # The layer has values or a number of inputs that its specification does not allow.
            raise ModelError(f"{layer} does not match its specification: {error}", where) from error
        if len(results) != len(node.outputs):
            outputs = len(node.outputs)
            raise ModelError(f"{layer} has {outputs} output ports, but should have {len(results)}", where)
        for port, value in zip(node.outputs, results, strict=True):
            if value is not None:
                annotate(value, self.known.get(port))
                value.name = self.names.make_name(port.name or "")
        return self.place(builder, results, where)

    # Methods for layers with bodies

    def make_body_writer(self, layer: Layer, tag: str) -> _GraphWriter:
        """Return the writer of a new subgraph for the body in the XML element ``tag`` of a layer."""
        path = f"{layer.name}/{tag}"
        where = replace(self.where, graph=path if self.where.graph is None else f"{self.where.graph}/{path}")
        graph = ir.Graph([], [], nodes=[], name=path, opset_imports={"": self.opset})
        return _GraphWriter(self.writer, graph, where)

    def make_builder(self, node: LayerNode) -> LayerOpBuilder:
        """Return a builder of the nodes that replace ``node``, a layer that has bodies."""
        return LayerOpBuilder(ONNX_OPSET, self.names, self.graph, node)

    def place(self, builder: LayerOpBuilder, values: Values, where: Where) -> Values:
        """Append the nodes of a builder, converted to the target, and return the converted ``values``."""
        nodes = list(builder.nodes)
        # A converted node has new outputs, which are found as the inputs of these temporary nodes.
        identities = [None if value is None else builder.add("Identity", [value]) for value in values]
        for identity, value in zip(identities, values, strict=True):
            if identity is not None and value is not None:
                annotate(identity, get_abstract_value(value))
        for node in builder.nodes:
            self.graph.append(node)
        for node in nodes:
            if next(iter_subgraphs(node), None) is None:
                self.writer.converter.convert_node(node, builder.opset, self.opset, where)
            else:
                self._check_types(node, where)
        placed: list[ir.Value | None] = []
        for identity in identities:
            producer = None if identity is None else identity.producer()
            placed.append(identity if producer is None else producer.inputs[0])
            if producer is not None:
                self.graph.remove(producer, safe=True)
        return placed

    def _check_types(self, node: ir.Node, where: Where) -> None:
        """Check that a node with subgraphs accepts the types of its values at the target opset."""
        version = find_version(node.op_type, self.opset)
        inputs, outputs = (
            [
                None if value is None or (kind := find_type(value)) is None else kind.onnx_tensor
                for value in values
            ]
            for values in (node.inputs, node.outputs)
        )
        if version is None or not version.can_have_types(inputs, outputs):
            raise ModelError(f"{node.op_type} of opset {self.opset} does not accept these types", where)


def _is_evaluated(layer: Layer) -> bool:
    """Return whether the evaluator runs a layer directly, because ONNX would reject or round some inputs."""
    if layer.type in ("Convert", "Reshape"):
        return True
    return layer.type == "Gather" and layer.get_attribute("batch_dims") in (None, "0")


def _check_type(parameter: Layer, value: ir.Value, where: Where) -> None:
    """Check that ``value`` has the element type that a Parameter of a body declares."""
    kind = find_type(value)
    if kind is not None and not parameter.has_dynamic_type and kind is not parameter.read_element_type(where):
        declared = parameter.get_attribute("element_type")
        raise ModelError(f"the body declares {declared}, but receives {kind}", where)


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
