"""An OpenVINO model as an ONNX model.

Each split is rewritten for the target with what inference knows of its data; the other layers are written in
one opset, and move to the target as the operators of any ONNX model do.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
from onnx import ModelProto

from splitops.errors import ModelError, Rule, SplitError, Where, rule_error
from splitops.ground.progress import counted
from splitops.models.convert.folding import folded, folded_layer, remove_unread
from splitops.models.convert.layers import row_of
from splitops.models.convert.onnx_operators import OpsetMover
from splitops.models.convert.onnx_to_onnx import (
    least_ir_version,
    prove,
    status_of,
)
from splitops.models.convert.report import Change, Conversion, Status
from splitops.models.convert.tape import Tape
from splitops.models.formats.onnx.types import to_type
from splitops.models.formats.openvino import (
    Endpoint,
    Layer,
    OpenVINOModel,
    endpoint_name,
    input_names,
    opened,
    output_names,
)
from splitops.models.formats.openvino.sites import read_site
from splitops.models.graph.merging import SiteKey, merged_sites, site_key
from splitops.models.graph.onnx import (
    Names,
    initializer,
    known,
    note,
    remove_if_unused,
    value_fact,
)
from splitops.models.graph.onnx_splits import write_site
from splitops.models.infer.openvino_walk import walk_openvino
from splitops.models.movers.form import Values
from splitops.models.sites.forms import Form, Target
from splitops.models.sites.restating import restate
from splitops.spec.elements.types import ElementType
from splitops.spec.operators import FAMILY


def convert_ir(model: Any, target: Target | None, form: Form, where: Where, allow_links: bool) -> Conversion:
    """Convert a path or :class:`OpenVINOModel` to an opset of ONNX."""
    model = opened(model, allow_links=allow_links)
    where = Where(model=where.model or model.file)
    if target is None or target.domain:
        raise ModelError("an OpenVINO model can be converted to 'onnx:' with an opset alone", where)
    apart: frozenset[int] = frozenset()
    while True:
        writer = _Writer(model, target, form, where, apart)
        writer.write()
        changes = tuple(writer.changes)
        if not writer.complete:
            return Conversion(str(target), changes, None)
        merged = writer.layers_of(merged_sites(writer.model)) - apart
        if not merged:
            break
        apart |= merged
    proto = writer.proto()
    try:
        prove(proto, where)
    except SplitError as error:
        return Conversion(str(target), changes, None, error)
    return Conversion(str(target), changes, proto)


class _Writer:
    """Writes the layers of one model as nodes."""

    def __init__(
        self,
        source: OpenVINOModel,
        target: Target,
        form: Form,
        where: Where,
        apart: frozenset[int],
    ) -> None:
        assert target.opset is not None
        self.source = source
        self.target = target
        self.opset = target.opset
        self.form = form
        self.where = where
        self.apart = apart
        self.known = walk_openvino(source, where, lambda site: None)
        self.changes: list[Change] = []
        self.graph = ir.Graph([], [], nodes=[], name=source.name or "model", opset_imports={"": self.opset})
        self.model = ir.Model(self.graph, ir_version=8, producer_name="splitops")
        self.names = Names(self.model)
        self.mover = OpsetMover(self.names)
        self.values: dict[Endpoint, ir.Value] = {}
        self.named: set[ir.Value] = set()
        self.splits: dict[int, ir.Node] = {}
        self.folded: dict[ir.Value, ir.Value] = {}
        self.read: list[ir.Value] = []

    @property
    def complete(self) -> bool:
        """Whether every layer could be written."""
        return not any(change.status is Status.REJECTED for change in self.changes)

    def proto(self) -> ModelProto:
        """Return the ONNX model."""
        proto = ir.serde.to_proto(self.model)
        proto.ir_version = max(proto.ir_version, least_ir_version(proto))
        return proto

    def layers_of(self, sites: frozenset[SiteKey]) -> frozenset[int]:
        """Return the layers that some nodes of the ONNX model were made of."""
        keys = {
            layer: site_key(None, [value.name or "" for value in node.outputs])
            for layer, node in self.splits.items()
        }
        return frozenset(layer for layer, key in keys.items() if key in sites)

    def write(self) -> None:
        """Write every layer that an output or the interface needs, in topological order."""
        graph = self.source.graph
        source = self.source
        inputs = dict(zip((layer.id for layer in source.inputs), input_names(source), strict=True))
        outputs = dict(zip((layer.id for layer in source.outputs), output_names(source), strict=True))
        # The names of the interface come first, whatever the layers in between are called.
        for name in dict.fromkeys([*inputs.values(), *outputs.values()]):
            self.names.fresh(name)
        results: dict[int, ir.Value] = {}
        for layer in counted(graph.order, "convert"):
            where = replace(self.where, node=layer.name)
            try:
                if layer.type == "Parameter":
                    self._parameter(layer, inputs[layer.id], where)
                elif layer.type == "Result":
                    results[layer.id] = self._result(layer, outputs[layer.id])
                elif layer.constant is not None:
                    end = Endpoint(layer.id, layer.outputs[0].id)
                    self._const(end, layer.constant.element_type, layer.constant.array(where), where)
                elif layer.type in FAMILY["openvino"]:
                    self._split(layer, where)
                else:
                    self._other(layer, where)
            except SplitError as error:
                self.changes.append(Change(where, Status.REJECTED, f"{layer.type}", error=error))
                self._reject(layer)
        self.graph.outputs.extend(results[layer.id] for layer in self.source.outputs)
        for value in (*self.folded, *self.read):
            remove_unread(value)
        for value in list(self.graph.initializers.values()):
            remove_if_unused(value)

    def _reject(self, layer: Layer) -> None:
        """Give a rejected layer outputs that nothing makes, so that what follows is reported too."""
        for port in layer.outputs:
            end = Endpoint(layer.id, port.id)
            self.values[end] = ir.Value(name=self.names.fresh("rejected"))
            note(self.values[end], self.known.get((None, end)))

    # Parameter, Const, Result

    def _parameter(self, layer: Layer, name: str, where: Where) -> None:
        value = ir.Value(name=name, type=self._type(layer.element_type(where), where))
        shape = layer.shape(where)
        if shape is not None:
            value.shape = ir.Shape([dim if isinstance(dim, int) else None for dim in shape])
        self.graph.inputs.append(value)
        self.values[Endpoint(layer.id, layer.outputs[0].id)] = value

    def _type(self, element_type: ElementType, where: Where) -> ir.TensorType:
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

    def _const(self, end: Endpoint, element_type: ElementType, array: npt.NDArray[Any], where: Where) -> None:
        kind = self._type(element_type, where)
        if element_type.bits == 0:
            texts = [str(text).encode("utf-8", "surrogateescape") for text in array.reshape(-1)]
            tensor: Any = ir.StringTensor(texts, shape=ir.Shape(array.shape))
        else:
            tensor = ir.Tensor(np.array(array), dtype=kind.dtype)
        name = self.names.fresh(endpoint_name(self.source.graph, end))
        self.values[end] = initializer(self.graph, tensor, name)

    def _result(self, layer: Layer, name: str) -> ir.Value:
        value = self._sources(layer)[0]
        if value.is_graph_input() and value.name == name:
            return value  # an input that is an output too
        if value.producer() is None or value in self.named:
            output = ir.Value(name=name)
            note(output, known(value))
            node_name = self.names.fresh(f"{name}/Identity")
            self.graph.append(ir.Node("", "Identity", [value], outputs=[output], name=node_name))
            value = output
        self.named.add(value)
        value.name = name
        kind = to_type(known(value))
        if kind is not None:
            value.type = ir.serde.deserialize_type_proto_for_type(kind)
            value.shape = ir.serde.deserialize_type_proto_for_shape(kind)
        return value

    def _sources(self, layer: Layer) -> list[ir.Value]:
        return [self.values[end] for end in self.source.graph.sources(layer)]

    # Splits

    def _split(self, layer: Layer, where: Where) -> None:
        data, *stated = self._sources(layer)
        stated = [self._folded(value, where) for value in stated]
        sources = [data, *stated]
        facts = [value_fact(value, read=index > 0) for index, value in enumerate(sources)]
        site = read_site(self.source.graph, layer, where, facts)
        if site.unread is not None:
            raise site.unread
        before = f"openvino {site}"
        try:
            if facts[1].value is None:
                raise rule_error(
                    str(site.schema),
                    Rule.AXIS_RANGE,
                    "the axis is computed when the model runs",
                    "ONNX needs it as an attribute",
                    where=replace(where, input="axis"),
                )
            rewritten = restate(site, self.target, self.form, apart=layer.id in self.apart)
            outputs = [self._new_value(Endpoint(layer.id, port.id)) for port in layer.outputs]
            node = ir.Node("", "Split", sources, outputs=outputs, name=self.names.fresh(layer.name))
            self.graph.append(node)
            self.splits[layer.id] = node
            parts = write_site(node, site, rewritten, self.opset, self.names)
        except SplitError as error:
            self.changes.append(Change(where, Status.REJECTED, before, error=error))
            self._reject(layer)
            return
        for port, part in zip(layer.outputs, parts, strict=True):
            assert part is not None
            self.values[Endpoint(layer.id, port.id)] = part
        self.changes.append(Change(where, status_of(rewritten), before, str(rewritten)))

    def _folded(self, value: ir.Value, where: Where) -> ir.Value:
        """Return an axis or lengths as a constant, where they follow from constants."""
        if value_fact(value, read=True).value is not None and value.producer() is None:
            return value
        if value not in self.folded:
            made = folded(value, self.graph, self.opset, self.names, where)
            if made is None:
                return value
            self.folded[value] = made
        return self.folded[value]

    def _new_value(self, end: Endpoint) -> ir.Value:
        value = ir.Value(name=self.names.fresh(endpoint_name(self.source.graph, end)))
        note(value, self.known.get((None, end)))
        return value

    # The other layers

    def _other(self, layer: Layer, where: Where) -> None:
        try:
            self._by_row(layer, where)
        except SplitError:
            found = folded_layer(self.source.graph, layer)
            if found is None:
                raise
            self.read += self._sources(layer)
            for end, value in found.items():
                self._const(end, value.element_type, value.array, where)

    def _by_row(self, layer: Layer, where: Where) -> None:
        row = row_of(layer)
        if layer.bodies or row is None:
            raise ModelError(f"{layer} of {layer.version} has no ONNX form here", where)
        tape = Tape(row.opset, self.names, self.graph, layer, self.source.graph)
        try:
            made = row.to_onnx(tape, layer, self._sources(layer))
        except SplitError as error:
            error.where = where
            raise
        except (ArithmeticError, LookupError, ValueError) as error:
            # Where it declares other numbers, or takes fewer inputs, than its text allows.
            raise ModelError(f"{layer} is not what its text says: {error}", where) from error
        self.read += tape.folded
        self._append(tape, layer, [made] if isinstance(made, ir.Value) else made, where)

    def _append(self, tape: Tape, layer: Layer, made: Values, where: Where) -> None:
        """Append the nodes that stand for a layer, moved to the target, and name what they give."""
        nodes = list(tape.nodes)
        readers: dict[Endpoint, ir.Value] = {}
        for port, value in zip(layer.outputs, made, strict=True):
            end = Endpoint(layer.id, port.id)
            if value is None:
                continue
            note(value, self.known.get((None, end)))
            value.name = self.names.fresh(endpoint_name(self.source.graph, end))
            readers[end] = tape.op("Identity", [value])
            note(readers[end], known(value))
        for node in tape.nodes:
            self.graph.append(node)
        for node in nodes:
            self.mover.move(node, tape.opset, self.opset, where)
        # A node that moved has other outputs: what reads them now is what reads the layer.
        for end, output in readers.items():
            identity = output.producer()
            assert identity is not None
            self.values[end] = identity.inputs[0] or output
            self.graph.remove(identity, safe=True)
