"""An OpenVINO model as an ONNX model.

Each split is rewritten for the target with what inference knows of its data; the other layers are written in
one opset, and move to the target as the operators of any ONNX model do.
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
from splitops.models.convert import layers
from splitops.models.convert.folding import folded_array, folded_layer
from splitops.models.convert.layer_op_builder import LayerOpBuilder
from splitops.models.convert.onnx_to_onnx import check_converted, status_of
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
    annotate,
    attributes_of,
    get_abstract_value,
    initializer,
    remove_if_unused,
    type_of,
    value_fact,
)
from splitops.models.graph.onnx_editor import OnnxEditor
from splitops.models.graph.op_builder import OnnxOpBuilder
from splitops.models.graph.split_nodes import is_split, read_split_node
from splitops.models.graph.split_writer import write
from splitops.models.infer.interpreter import ShapeInterpreter
from splitops.models.ops.conversion import convert_layer, find_converter, opset_of
from splitops.models.ops.writing import ONNX_OPSET, Values
from splitops.models.quirks import SplitKey, find_conflicting_splits
from splitops.models.split_nodes.styles import ConversionTarget, SplitStyle
from splitops.models.split_nodes.ways import get_first_way
from splitops.spec.elements.types import ElementType, from_onnx

EVALUATOR_OPSET: Final = 21
"""The opset in which the evaluator runs OpenVINO IR."""


def convert_ir(source: CheckedModel, target: ConversionTarget | None, style: SplitStyle) -> Conversion:
    """Convert an OpenVINO model to an opset of ONNX."""
    model, nodes, where = get_source(source.nodes), source.nodes, source.where
    if target is None or target.domain:
        raise ModelError("an OpenVINO model can be converted to 'onnx:' with an opset alone", where)
    apart: frozenset[ir.Node] = frozenset()
    while True:
        writer = _Writer(model, nodes, target, style, apart)
        writer.write(model, where)
        changes = tuple(writer.changes)
        if not writer.complete:
            return Conversion(str(target), changes, None)
        merged = writer.read_of(find_conflicting_splits(writer.model)) - apart
        if not merged:
            break
        apart |= merged
    proto = writer.proto()
    try:
        check_converted(proto, where)
    except SplitError as error:
        return Conversion(str(target), changes, None, error)
    return Conversion(str(target), changes, proto)


def convert_for_evaluator(model: OpenVINOModel, where: Where) -> ModelProto:
    """Return an OpenVINO model as ONNX for the evaluator alone: splits stay nodes of the domain ``openvino``.

    Its inputs are called ``input0``, ``input1`` and so on.

    Raises:
        RuleError: a split breaks a rule that does not depend on a run.
        ModelError: only OpenVINO runs a layer.
    """
    writer = _Writer(
        model, to_nodes(model), ConversionTarget("", EVALUATOR_OPSET), SplitStyle.SAME, frozenset()
    )
    writer.for_evaluator = True
    writer.write(model, where)
    rejected = next((change for change in writer.changes if change.error is not None), None)
    if rejected is not None:
        error = rejected.error
        assert error is not None
        needs = f"the reference cannot run the model: {error.message}; engine='openvino' may run it"
        raise ModelError(needs, error.where if error.where.node else rejected.where)
    return writer.proto()


class _Writer:
    """What the graphs of one model share while their layers are written as nodes."""

    def __init__(
        self,
        source: OpenVINOModel,
        read: ir.Model,
        target: ConversionTarget,
        style: SplitStyle,
        apart: frozenset[ir.Node],
    ) -> None:
        assert target.opset is not None
        self.read = read
        """The nodes of the source."""
        pairs = zip(source.iter_graphs(), iter_all_graphs(read), strict=True)
        self.read_graphs = {
            id(graph): nodes for (_, graph), (_, nodes) in pairs if isinstance(nodes, ir.Graph)
        }
        self.target = target
        self.opset = target.opset
        self.style = style
        self.apart = apart
        self.changes: list[Change] = []
        graph = ir.Graph(
            [], [], nodes=[], name=source.name or "model", opset_imports={"": self.opset, DOMAIN: 1}
        )
        self.model = ir.Model(graph, ir_version=8, producer_name="splitops")
        self.names = FreshNames(self.model)
        self.mover = OpsetConverter(self.names)
        self.for_evaluator = False
        """Whether only the evaluator reads the model."""
        self.splits: dict[str, ir.Node] = {}
        """The node that was read of each split, by the name of its first part."""

    @property
    def complete(self) -> bool:
        """Whether every layer could be written."""
        return not any(change.status is Status.REJECTED for change in self.changes)

    def proto(self) -> ModelProto:
        """Return the ONNX model."""
        self.model.ir_version = max(self.model.ir_version, compute_min_ir_version(self.model))
        return ir.serde.to_proto(self.model)

    def read_of(self, sites: frozenset[SplitKey]) -> frozenset[ir.Node]:
        """Return the nodes that some nodes of the ONNX model were made of."""
        return frozenset(self.splits[name] for _, name in sites if name in self.splits)

    def write(self, source: OpenVINOModel, where: Where) -> None:
        """Write every layer that an output or the interface needs, in topological order."""
        inputs = dict(zip((layer.id for layer in source.inputs), make_input_names(source), strict=True))
        outputs = dict(zip((layer.id for layer in source.outputs), make_output_names(source), strict=True))
        if self.for_evaluator:  # names of inputs may repeat
            inputs = {id_: f"input{at}" for at, id_ in enumerate(inputs)}
            outputs = {id_: f"output{at}" for at, id_ in enumerate(outputs)}
        # The names of the interface come first, whatever the layers in between are called.
        for name in dict.fromkeys([*inputs.values(), *outputs.values()]):
            self.names.make_name(name)
        self.scope(self.model.graph, where).write(source.graph, {}, inputs, outputs)
        RemoveUnusedNodesPass()(self.model)  # what only was read to write other nodes, too
        for graph in self.model.graphs():
            for constant in list(graph.initializers.values()):  # the pass leaves those of bodies
                remove_if_unused(constant)
        if not self.for_evaluator:
            self._make_empty(where)

    def _make_empty(self, where: Where) -> None:
        """Let nodes make empty data: OpenVINO reads an empty initializer as a scalar."""
        for graph in self.model.graphs():
            for value in list(graph.initializers.values()):
                tensor = value.const_value
                kind = None if tensor is None or tensor.size else from_onnx(tensor.dtype.value)
                if tensor is None or kind is None or (tensor.shape.rank() == 1 and kind.integer):
                    continue  # such as the axes of a reduction
                editor, before = OnnxEditor(self.model, where), graph[0]
                if editor.has_empty(kind, before):
                    made = editor.fold(tensor.numpy(), kind, value, before)
                    ir.convenience.replace_all_uses_with(value, made)
                    remove_if_unused(value)

    def scope(self, graph: ir.Graph, where: Where) -> _GraphWriter:
        """Return what writes layers in a graph."""
        return _GraphWriter(self, graph, where)


class _GraphWriter:
    """Writes the layers of one graph."""

    def __init__(self, writer: _Writer, graph: ir.Graph, where: Where) -> None:
        self.writer = writer
        self.graph = graph
        self.where = where
        self.names = writer.names
        self.opset = writer.opset
        self.source = Graph()
        self.known: Mapping[ir.Value, AbstractValue] = {}
        self.values: dict[ir.Value, ir.Value] = {}
        """What stands for the value of each port."""
        self.named: set[ir.Value] = set()
        self.folded: dict[ir.Value, ir.Value] = {}

    def write(
        self,
        source: Graph,
        given: Mapping[int, ir.Value],
        inputs: Mapping[int, str] = MappingProxyType({}),
        outputs: Mapping[int, str] = MappingProxyType({}),
    ) -> dict[int, ir.Value]:
        """Write the layers of a graph that an output or the interface needs, in topological order.

        Args:
            source: the graph.
            given: the value of each Parameter of a body, by layer id.
            inputs: the name of the input that each other Parameter becomes.
            outputs: the name of the output that each Result becomes; those of a body become none.

        Returns:
            The value of each Result, by layer id.
        """
        self.source = source
        read = self.writer.read_graphs[id(source)]
        told: dict[ir.Value, AbstractValue] = {}
        for node in read:
            found = get_abstract_value(given[get_layer(node).id]) if get_layer(node).id in given else None
            if isinstance(found, AbstractTensor):
                told[node.outputs[0]] = found
        self.known = (
            ShapeInterpreter(self.writer.read, self.where, lambda site: None)
            .run_single_graph(read, told)
            .values
        )
        results: dict[int, ir.Value] = {}
        for node in track(read, "convert"):
            assert type(node) is LayerNode
            layer = node.layer
            where = replace(self.where, node=layer.name)
            try:
                if layer.type == "Parameter":
                    made = given.get(layer.id) or self._parameter(layer, inputs[layer.id], where)
                    if layer.id in given:
                        _check_type(layer, made, where)
                    self.values[node.outputs[0]] = made
                elif layer.type == "Result":
                    (value,) = self._sources(node)
                    results[layer.id] = self._result(value, outputs[layer.id]) if outputs else value
                elif layer.constant is not None:
                    kind, array = layer.constant.element_type, layer.constant.read_array(where)
                    self._const(node.outputs[0], kind, array, where)
                elif is_split(node):
                    self._split(node, where)
                else:
                    self._other(node, where)
            except SplitError as error:
                self._reject(node, layer.type, where, error)
        self.graph.outputs.extend(results[id_] for id_ in outputs)
        return results

    def _reject(self, node: ir.Node, before: str, where: Where, error: SplitError) -> None:
        """Report a layer, and give it outputs that nothing makes, so that what follows is reported too."""
        self.writer.changes.append(Change(where, Status.REJECTED, before, error=error))
        for port in node.outputs:
            self.values[port] = ir.Value(name=self.names.make_name("rejected"))
            annotate(self.values[port], self.known.get(port))

    # Parameter, Const, Result

    def _parameter(self, layer: Layer, name: str, where: Where) -> ir.Value:
        any_type = self.writer.for_evaluator and layer.has_dynamic_type
        kind = None if any_type else layer.read_element_type(where)
        return self.input(name, AbstractTensor(kind, layer.read_shape(where)), where)

    def input(self, name: str, what: AbstractTensor, where: Where) -> ir.Value:
        """Add an input to the graph; the names of a model's own are taken already."""
        value = ir.Value(name=name)
        if what.type is not None:
            value.type = self._type(what.type, where)
            if what.type.onnx_number is None:
                annotate(value, what)
        if what.shape is not None:
            value.shape = ir.Shape([dim if isinstance(dim, int) else None for dim in what.shape])
        self.graph.inputs.append(value)
        return value

    def _type(self, element_type: ElementType, where: Where) -> ir.TensorType:
        if self.writer.for_evaluator and element_type.storage:
            return ir.TensorType(ir.DataType.UINT8)  # its codes, which are only moved
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

    def _const(
        self, port: ir.Value, element_type: ElementType, array: npt.NDArray[Any], where: Where
    ) -> None:
        kind = self._type(element_type, where)
        if element_type.bits == 0:
            texts = [str(text).encode("utf-8", "surrogateescape") for text in array.reshape(-1)]
            if self.writer.for_evaluator and not all(map(_is_utf8, texts)):
                raise ModelError("a constant has text that is not UTF-8, which ONNX does not have", where)
            tensor: Any = ir.StringTensor(texts, shape=ir.Shape(array.shape))
        else:
            tensor = ir.Tensor(np.array(array), dtype=kind.dtype)
        self.values[port] = initializer(self.graph, tensor, self.names.make_name(port.name or ""))
        if element_type.onnx_number is None:
            annotate(self.values[port], AbstractTensor(element_type, array.shape))

    def _result(self, value: ir.Value, name: str) -> ir.Value:
        if value.is_graph_input() and value.name == name:
            return value  # an input that is an output too
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

    def _sources(self, node: ir.Node) -> list[ir.Value]:
        return [self.values[value] for value in node.inputs if value is not None]

    # Splits

    def _split(self, read: LayerNode, where: Where) -> None:
        if self.writer.for_evaluator:
            self._keep(read, where)
            return
        data, *stated = self._sources(read)
        stated = [self._folded(value, where) for value in stated]
        sources = [data, *stated]
        facts = [value_fact(value, read=index > 0) for index, value in enumerate(sources)]
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
                split_node, self.writer.target, self.writer.style, apart=read in self.writer.apart
            )
            outputs = [self._new_value(port) for port in read.outputs]
            node = ir.Node("", "Split", sources, outputs=outputs, name=self.names.make_name(read.name or ""))
            self.graph.append(node)
            parts = write(node, split_node, way, OnnxOpBuilder(self.opset, self.names, make_stem(node)))
        except SplitError as error:
            self._reject(read, before, where, error)
            return
        for port, part in zip(read.outputs, parts, strict=True):
            assert part is not None
            self.values[port] = part
            self.writer.splits.setdefault(part.name or "", read)
        self.writer.changes.append(Change(where, status_of(way), before, str(way)))

    def _keep(self, read: LayerNode, where: Where) -> None:
        """Write a layer as a node that the evaluator runs as OpenVINO specifies it, with its place."""
        layer, sources = read.layer, self._sources(read)
        attributes: dict[str, Any] = {"version": layer.version}
        if layer.type == "Convert":
            attributes["destination_type"] = layer.get_attribute("destination_type") or ""
            kind = type_of(sources[0])
            if kind is not None and kind.storage:  # arrays of its codes do not tell it
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
            attributes_of(attributes),
            outputs=outputs,
            name=self.names.make_name(layer.name),
            doc_string=json.dumps([where.graph, layer.name]),
        )
        self.graph.append(node)
        self.values.update(zip(read.outputs, outputs, strict=True))

    def _folded(self, value: ir.Value, where: Where) -> ir.Value:
        """Return an axis or lengths as a constant, where they follow from constants."""
        if value_fact(value, read=True).value is not None and value.producer() is None:
            return value
        if value not in self.folded:
            array = folded_array(value, self.opset, where)
            if array is None:
                return value
            name = self.names.make_name(value.name or "folded")
            self.folded[value] = initializer(self.graph, ir.Tensor(array), name)
        return self.folded[value]

    def _new_value(self, port: ir.Value) -> ir.Value:
        value = ir.Value(name=self.names.make_name(port.name or ""))
        annotate(value, self.known.get(port))
        return value

    # The other layers

    def _other(self, node: LayerNode, where: Where) -> None:
        layer = node.layer
        if self.writer.for_evaluator and _is_kept(layer):
            self._keep(node, where)
            return
        try:
            opset = parse_operation_set(layer.version) or 0
            if layer.type in BODIES_SINCE and opset >= BODIES_SINCE[layer.type]:
                made = write_bodies(node, self._sources(node), self, where)
            else:
                made = self._by_row(node, where)
        except SplitError:
            constants = folded_layer(self.source, layer)
            if constants is None:
                raise
            for port in node.outputs:
                constant = constants.get(Endpoint(layer.id, get_port(port).id))
                if constant is not None:
                    self._const(port, constant.element_type, constant.read_array(where), where)
            return
        for port, value in zip(node.outputs, made, strict=True):
            if value is None:
                continue
            found, told = get_abstract_value(value), self.known[port]
            if layer.bodies and isinstance(found, AbstractTensor) and isinstance(told, AbstractTensor):
                annotate(value, AbstractTensor(found.type, meet_shapes(found.shape, told.shape)))
            self.values[port] = value

    def _by_row(self, node: LayerNode, where: Where) -> Values:
        layer = node.layer
        operator, form = find_converter(layer), layers.find_form(layer)
        opset = opset_of(operator) if operator is not None else form.opset if form is not None else None
        if layer.bodies or opset is None:
            raise ModelError(f"{layer} of {layer.version} has no ONNX form here", where)
        builder = LayerOpBuilder(opset, self.names, self.graph, node)
        made: Values
        try:
            if operator is not None:
                made = [convert_layer(builder, layer, self._sources(node))]
            else:
                assert form is not None
                made = form.to_onnx(builder, layer, self._sources(node))
        except SplitError as error:
            error.where = where
            raise
        except (ArithmeticError, LookupError, ValueError) as error:
            # Where it declares other numbers, or takes fewer inputs, than its text allows.
            raise ModelError(f"{layer} is not what its text says: {error}", where) from error
        if len(made) != len(node.outputs):
            outputs = len(node.outputs)
            raise ModelError(f"{layer} has {outputs} output ports, but it gives {len(made)}", where)
        for port, value in zip(node.outputs, made, strict=True):
            if value is not None:
                annotate(value, self.known.get(port))
                value.name = self.names.make_name(port.name or "")
        return self.place(builder, made, where)

    # What layers with bodies need

    def inner(self, layer: Layer, tag: str) -> _GraphWriter:
        """Return a new graph inside this one, for the body of a tag."""
        path = f"{layer.name}/{tag}"
        where = replace(self.where, graph=path if self.where.graph is None else f"{self.where.graph}/{path}")
        imports = {"": self.opset}
        return self.writer.scope(ir.Graph([], [], nodes=[], name=path, opset_imports=imports), where)

    def make_builder(self, node: LayerNode) -> LayerOpBuilder:
        """Return a builder for nodes that stand for a layer with bodies."""
        return LayerOpBuilder(ONNX_OPSET, self.names, self.graph, node)

    def place(self, builder: LayerOpBuilder, values: Values, where: Where) -> Values:
        """Append the nodes of a builder, moved to the target; return what stands for some values then."""
        nodes = list(builder.nodes)
        # A node that moves has other outputs: what reads them now is what reads the value.
        readers = [None if value is None else builder.op("Identity", [value]) for value in values]
        for reader, value in zip(readers, values, strict=True):
            if reader is not None and value is not None:
                annotate(reader, get_abstract_value(value))
        for node in builder.nodes:
            self.graph.append(node)
        for node in nodes:
            if next(iter_subgraphs(node), None) is None:
                self.writer.mover.convert_node(node, builder.opset, self.opset, where)
            else:
                self._check_types(node, where)
        placed: list[ir.Value | None] = []
        for reader in readers:
            identity = None if reader is None else reader.producer()
            placed.append(reader if identity is None else identity.inputs[0])
            if identity is not None:
                self.graph.remove(identity, safe=True)
        return placed

    def _check_types(self, node: ir.Node, where: Where) -> None:
        """Reject a node with graphs whose values are of types that it does not take at the target."""
        version = find_version(node.op_type, self.opset)
        inputs, outputs = (
            [
                None if value is None or (kind := type_of(value)) is None else kind.onnx_tensor
                for value in values
            ]
            for values in (node.inputs, node.outputs)
        )
        if version is None or not version.can_have_types(inputs, outputs):
            raise ModelError(f"{node.op_type} of opset {self.opset} takes no value of these types", where)


def _is_kept(layer: Layer) -> bool:
    """Return whether the evaluator runs a layer as it is: ONNX rejects or rounds what OpenVINO does not."""
    if layer.type in ("Convert", "Reshape"):
        return True
    return layer.type == "Gather" and layer.get_attribute("batch_dims") in (None, "0")


def _check_type(parameter: Layer, value: ir.Value, where: Where) -> None:
    """Check that a Parameter of a body gets a value of its element type."""
    kind = type_of(value)
    if kind is not None and not parameter.has_dynamic_type and kind is not parameter.read_element_type(where):
        takes = parameter.get_attribute("element_type")
        raise ModelError(f"the body takes {takes}, but gets {kind}", where)


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
