"""An ONNX model at another opset, or with its splits stated in another form."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import onnx
import onnx_ir as ir
from onnx import ModelProto, NodeProto, TensorShapeProto

from splitops.common.progress import track
from splitops.errors import ModelError, Rule, SplitError, Where, rule_error
from splitops.models.abstract_values import AbstractTensor, may_be
from splitops.models.convert.onnx_sequences import lower_sequence
from splitops.models.convert.opset_converter import CONSTANTS_OF_EVERY_TYPE, OpsetConverter
from splitops.models.convert.report import Change, Conversion, Status
from splitops.models.formats.model import CheckedModel
from splitops.models.formats.onnx import check_model
from splitops.models.formats.onnx.graphs import deserialize_model
from splitops.models.formats.onnx.schemas import find_since_version
from splitops.models.formats.onnx.storage import strip_weights
from splitops.models.formats.onnx.structure import (
    find_inlining_problem,
    iter_located_graphs,
)
from splitops.models.formats.onnx.structure import iter_nodes as protos_of
from splitops.models.formats.onnx.types import from_type, to_type
from splitops.models.formats.walk import (
    AnyGraph,
    get_opset_imports,
    get_unread_attributes,
    iter_nodes,
    iter_owners,
    make_stem,
)
from splitops.models.graph.onnx import make_initializer
from splitops.models.graph.onnx_editor import OnnxEditor
from splitops.models.graph.onnx_sequences import slice_elements
from splitops.models.graph.op_builder import OnnxOpBuilder
from splitops.models.graph.split_nodes import is_split
from splitops.models.graph.split_writer import write
from splitops.models.infer.interpreter import ForwardInterpreter, ShapeInterpreter
from splitops.models.quirks import SplitKey, find_conflicting_splits, split_key
from splitops.models.simplify.sequences import sequence_reads
from splitops.models.split_nodes import Origin, SplitNode
from splitops.models.split_nodes.styles import ConversionTarget, SplitStyle
from splitops.models.split_nodes.ways import Way, get_first_way
from splitops.spec.operators import schema


def convert_opset(
    model: CheckedModel, edited: ir.Model, target: ConversionTarget | None, style: SplitStyle
) -> Conversion:
    """Convert a copy of a model to an opset; None keeps its opset and only declares the splits anew."""
    imported, where = get_opset_imports(edited.graph, edited).get(""), model.where
    opset = None if target is None else target.opset
    name = f"onnx:{imported}" if target is None else str(target)
    if imported is None and not edited.functions:
        return Conversion(name, (), model.proto)
    if model.proto.training_info and opset not in (None, imported):
        # Its graphs belong to no walk of the model, and run at the model's opset.
        problem = ModelError("training information cannot be converted to another opset", where)
        return Conversion(name, (), None, problem)
    apart: frozenset[SplitKey] = frozenset()
    while True:
        changes = _convert_graphs(edited, imported, opset, style, where, apart)
        if any(change.status is Status.REJECTED for change in changes):
            return Conversion(name, changes, None)
        # The next conversion would count the parts of splits that were set apart: what they meet then counts.
        counted = style is SplitStyle.COUNT and bool(apart)
        merged = find_conflicting_splits(edited, equal_as_count=counted) - apart
        if not merged:
            break
        apart |= merged
        edited = model.copy()
    converted = model.to_proto(edited)
    try:
        check_converted(converted, where, model.proto)
    except SplitError as error:
        corrected = _with_true_shapes(converted, where)
        if corrected is None or _problem(corrected, full=True) is not None:
            return Conversion(name, changes, None, error)
        converted = corrected
    return Conversion(name, changes, converted)


def _with_true_shapes(model: ModelProto, where: Where) -> ModelProto | None:
    """Return a model without false shapes of values, which its source declares too; None where all are true.

    onnx's inference of an older operation set knows less and lets them pass, and runtimes do not need them.
    """
    values = (
        ShapeInterpreter(deserialize_model(model, where), where, lambda _: None)
        .run()
        .substitute_sizes()
        .by_name()
    )
    made = ModelProto()
    made.CopyFrom(model)
    false = []
    for value in (*made.graph.output, *made.graph.value_info):
        found, said = values.get((None, value.name)), from_type(value.type)
        if not isinstance(found, AbstractTensor) or not isinstance(said, AbstractTensor):
            continue
        if not may_be(said.shape, found.shape):
            kind = to_type(found)
            assert kind is not None
            value.type.CopyFrom(kind)
            false.append(value)
    return made if false else None


def _convert_graphs(
    edited: ir.Model,
    imported: int | None,
    opset: int | None,
    style: SplitStyle,
    where: Where,
    apart: frozenset[SplitKey],
) -> tuple[Change, ...]:
    annotate_for(edited, where, style)
    converting = ModelConversion(edited, where, apart)
    for _, owner in iter_owners(edited):
        old = owner.opset_imports.get("", imported)
        if old is None:
            continue
        new = old if opset is None else opset
        converting.convert_node(owner, old, new, style)
        owner.opset_imports[""] = new
    return tuple(converting.changes)


def check_converted(model: ModelProto, where: Where, source: ModelProto | None = None) -> None:
    """Hold the result against onnx's checker: a valid model, or IR, never becomes an invalid one."""
    check_model(model, where)
    for full in (True, False):
        reason = _problem(model, full=full)
        if reason is not None and (source is None or _problem(source, full=full) is None):
            raise ModelError(f"the converted model would not be valid: {reason[:300]}", where)
        if reason is None:
            return


def _problem(model: ModelProto, *, full: bool) -> str | None:
    """Return what onnx's checker has against a model, at full with its strict inference; None: nothing."""
    slim = strip_weights(model)
    if full and any(map(_ends_the_process, protos_of(slim))):
        _forget_sizes(slim)
    try:
        onnx.checker.check_model(_with_ranks(slim), full_check=False)
        if full and find_inlining_problem(slim) is None:
            onnx.shape_inference.infer_shapes(slim, check_type=True, strict_mode=True)
    except (
        onnx.checker.ValidationError,
        onnx.shape_inference.InferenceError,
        ValueError,  # its inference makes every one of 2**62 parts
        MemoryError,
    ) as error:
        lines = (line.strip() for line in str(error).splitlines())
        return next(filter(None, lines), type(error).__name__)
    return None


def _with_ranks(model: ModelProto) -> ModelProto:
    """Return a model in which every input and output declares a rank: onnx's checker asks for no other."""
    open_ = [
        number
        for number, value in enumerate((*model.graph.input, *model.graph.output))
        if value.type.HasField("tensor_type") and not value.type.tensor_type.HasField("shape")
    ]
    if not open_:
        return model
    made = ModelProto()
    made.CopyFrom(model)
    values = (*made.graph.input, *made.graph.output)
    for number in open_:
        values[number].type.tensor_type.shape.SetInParent()
    return made


def _ends_the_process(node: NodeProto) -> bool:
    """Return whether onnx's inference may not come back from a node.

    Slice aborts on an axis that it takes for negative (of a split by the ceil rule, a pool larger than its
    data), and a Split makes as many sizes as it is asked for.
    """
    return node.op_type == "Slice" or any(
        attribute.name == "num_outputs" and attribute.i > _MAX_CHECKED for attribute in node.attribute
    )


_MAX_CHECKED: Final = 1 << 16


def _forget_sizes(model: ModelProto) -> None:
    """Leave the types of a model and the ranks of its values, which onnx can still check, and no size."""
    inputs = {value.name for value in model.graph.input}
    for tensor in model.graph.initializer:
        if tensor.name not in inputs:
            kind = model.graph.input.add(name=tensor.name).type.tensor_type
            kind.elem_type = tensor.data_type
            kind.shape.dim.extend([TensorShapeProto.Dimension()] * len(tensor.dims))
    del model.graph.initializer[:]
    for _, graph in iter_located_graphs(model):
        for value in (*graph.input, *graph.output, *graph.value_info):
            for size in value.type.tensor_type.shape.dim if value.type.HasField("tensor_type") else ():
                size.Clear()


_FLOATING: Final = frozenset({ir.DataType.FLOAT16, ir.DataType.FLOAT, ir.DataType.DOUBLE})
"""The types of Constant-1."""


def annotate_for(edited: ir.Model, where: Where, style: SplitStyle) -> None:
    """Annotate the values of a model with what is inferred for them.

    What a split proves of its own input is not known where a number of parts may take the place of lengths:
    it would prove that the lengths are not needed.
    """
    if style is SplitStyle.COUNT:
        ForwardInterpreter(edited, where, lambda site: None).run().annotate()
    else:
        ShapeInterpreter(edited, where, lambda site: None).run().substitute_sizes().annotate()


# Converting


class ModelConversion:
    """A model that is being converted, with what is known of its values noted, and the report of it."""

    def __init__(self, model: ir.Model, where: Where, apart: frozenset[SplitKey] = frozenset()) -> None:
        self.editor = OnnxEditor(model, where)
        self.changes: list[Change] = []
        self.made: set[ir.Node] = set()
        """The splits as the target has them, and what was made for them."""
        self._unread = get_unread_attributes(model)
        self._apart = apart  # splits that must set their lengths
        self._mover = OpsetConverter(self.editor.names)
        self._lowered: dict[ir.Node, str] = {}
        self._rejected: dict[ir.Node, SplitError] = {}

    def convert_node(self, owner: AnyGraph, old: int, new: int, style: SplitStyle) -> None:
        """Move a graph or function, with all graphs inside it, to an opset."""
        if new < 11 <= old:
            self.lower(owner, Rule.OPERATOR_VERSION)
        nodes = [node for _, node in iter_nodes(owner)]
        self.rewrite_splits(nodes, ConversionTarget("", new), new, style)
        if old != new:
            for node in track(nodes, "convert"):
                # A constant that only a split read is gone by now.
                if node.domain in ("", "ai.onnx") and not is_split(node) and node.graph is not None:
                    self._convert_other(node, old, new)
        if new < CONSTANTS_OF_EVERY_TYPE:
            self._settle_constants(owner)

    def lower(self, owner: AnyGraph, rule: Rule) -> None:
        """Make every SplitToSequence a Split where its readers allow it, else what they read of the data.

        Others are rejected by a rule.
        """
        splits = [node for _, node in iter_nodes(owner) if is_split(node)]
        for node in [node for node in splits if schema(node.op_type, domain="").gives_sequence]:
            split_node = self.editor.read_split_node(node)
            try:
                self._lowered[lower_sequence(node, split_node, self.editor, rule)] = str(split_node)
            except SplitError as error:
                where = self.editor.where(node)
                after = self._read_separately(node, split_node)
                if after is None:
                    self._rejected[node] = error
                else:
                    self.changes.append(Change(where, Status.REWRITTEN, str(split_node), after))

    def _read_separately(self, node: ir.Node, split_node: SplitNode) -> str | None:
        """Let the readers of a sequence of unknown length read the data; None where they read more.

        Lengths that the caller can replace are no constants for every target.
        """
        if Origin.DEFAULT in split_node.origins[1:]:
            return None
        sequence_reads(node, self.editor)
        if node.graph is None:
            return self.editor.changes[-1].after
        try:
            count = slice_elements(node, split_node, self.editor)
        except ModelError:
            return None
        return f"Slice x {count}(axis={split_node.bind().axis})"

    def rewrite_splits(
        self, nodes: Iterable[ir.Node], target: ConversionTarget, opset: int, style: SplitStyle
    ) -> None:
        """Write each split among some nodes for a target, between nodes of an opset, and report it."""
        for node in track([node for node in nodes if is_split(node)], "convert splits"):
            where, split_node = self.editor.where(node), self.editor.read_split_node(node)
            before = self._lowered.get(node) or str(split_node)
            try:
                if node in self._rejected:
                    raise self._rejected[node]
                apart = split_key(where.graph, split_node.outputs) in self._apart
                way = get_first_way(split_node, target, style, apart=apart)
                if target.domain and way.lengths is None:
                    _check_stated(split_node, way)
                builder = OnnxOpBuilder(opset, self.editor.names, make_stem(node))
                write(node, split_node, way, builder)
            except SplitError as error:
                self.changes.append(Change(where, Status.REJECTED, before, error=error))
                continue
            self.made.update(builder.nodes, [node])
            status = Status.REWRITTEN if node in self._lowered else status_of(way)
            self.changes.append(Change(where, status, before, f"{target.domain} {way}".lstrip()))

    def _settle_constants(self, owner: AnyGraph) -> None:
        """Make initializers of the Constant nodes that the first version of Constant cannot state."""
        for node in [n for _, n in iter_nodes(owner) if n.op_type == "Constant" and n.domain == ""]:
            tensor, graph = ir.convenience.get_const_tensor(node.outputs[0]), node.graph
            if tensor is None or tensor.dtype in _FLOATING:
                continue
            if graph is not None and not (isinstance(owner, ir.Function) and graph is owner.graph):
                make_initializer(node, tensor, graph)
                continue
            place = self.editor.where(node)
            error = ModelError(f"a function has no constant of {tensor.dtype} below opset 9", place)
            self.changes.append(Change(place, Status.REJECTED, "Constant", error=error))

    def _convert_other(self, node: ir.Node, old: int, new: int) -> None:
        """Move one node of another operator and report it where it changed."""
        version, where = find_since_version(node.op_type, old), self.editor.where(node)
        before = f"{node.op_type}-{version}"
        try:
            if node in self._unread and version != find_since_version(node.op_type, new):
                name = self._unread[node][0].name
                raise ModelError(
                    f"{before} cannot be moved to opset {new}: onnx-ir does not read {name}", where
                )
            became = self._mover.convert_node(node, old, new, where)
        except ModelError as error:
            self.changes.append(Change(where, Status.REJECTED, before, error=error))
            return
        if became is not None:
            versions = ", ".join(f"{name}-{find_since_version(name, new)}" for name in became)
            status = Status.CONVERTED if len(became) == 1 else Status.REWRITTEN
            self.changes.append(Change(where, status, before, versions))


def _check_stated(split_node: SplitNode, way: Way) -> None:
    """Reject lengths that the caller of the model may leave to a default."""
    inputs = zip(split_node.inputs[1:], split_node.origins[1:], strict=True)
    names = ", ".join(sorted(name for name, origin in inputs if origin is Origin.DEFAULT))
    if names:
        got = f"the lengths {names} are a default that the caller can replace"
        expected = "OpenVINO has no defaults for inputs"
        raise rule_error(str(way.schema), Rule.LENGTHS_MISSING, got, expected, where=split_node.where)


def status_of(way: Way) -> Status:
    """Return what a way makes of its node."""
    if way.is_kept:
        return Status.KEPT
    return Status.CONVERTED if way.is_one_node else Status.REWRITTEN
