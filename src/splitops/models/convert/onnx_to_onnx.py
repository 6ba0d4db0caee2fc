"""Conversion of an ONNX model to another opset, or of its splits to another style."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import onnx
import onnx_ir as ir
from onnx import ModelProto, NodeProto, TensorShapeProto

from splitops.common.progress import track
from splitops.errors import ModelError, Rule, SplitError, Where, rule_error
from splitops.models.convert.onnx_sequences import lower_sequence
from splitops.models.convert.opset_converter import CONSTANTS_OF_EVERY_TYPE, OpsetConverter
from splitops.models.convert.report import Change, Conversion, Status
from splitops.models.formats.model import CheckedModel
from splitops.models.formats.onnx import check_model
from splitops.models.formats.onnx.schemas import find_since_version
from splitops.models.formats.onnx.storage import copy_proto, strip_weights
from splitops.models.formats.onnx.structure import (
    find_inlining_problem,
    iter_located_graphs,
)
from splitops.models.formats.onnx.structure import iter_nodes as protos_of
from splitops.models.formats.walk import (
    AnyGraph,
    get_opset_imports,
    get_unread_attributes,
    iter_nodes,
    iter_owners,
    make_stem,
)
from splitops.models.graph.onnx import replace_constant_node
from splitops.models.graph.onnx_editor import OnnxEditor
from splitops.models.graph.onnx_sequences import slice_elements
from splitops.models.graph.op_builder import OnnxOpBuilder
from splitops.models.graph.split_nodes import is_split
from splitops.models.graph.split_writer import write_split
from splitops.models.infer.declarations import declare_found, find_contradiction
from splitops.models.infer.interpreter import ForwardInterpreter, infer_model
from splitops.models.quirks import SplitKey, find_conflicting_splits, split_key
from splitops.models.simplify.sequences import replace_sequences
from splitops.models.split_nodes import Origin, SplitNode
from splitops.models.split_nodes.styles import ConversionTarget, SplitStyle
from splitops.models.split_nodes.ways import Way, get_first_way
from splitops.spec.operators import schema


def convert_opset(
    model: CheckedModel, edited: ir.Model, target: ConversionTarget | None, style: SplitStyle
) -> Conversion:
    """Convert ``edited``, a copy of ``model``. Without a target, only rewrite the splits in ``style``."""
    imported, where = get_opset_imports(edited.graph, edited).get(""), model.where
    opset = None if target is None else target.opset
    name = f"onnx:{imported}" if target is None else str(target)
    if imported is None and not edited.functions:
        return Conversion(name, (), model.proto)
    if model.proto.training_info and opset not in (None, imported):
        # Training graphs are not traversed, and run at the opset of the model.
        problem = ModelError("training information cannot be converted to another opset", where)
        return Conversion(name, (), None, problem)
    must_differ: frozenset[SplitKey] = frozenset()
    while True:
        changes = _convert_graphs(edited, imported, opset, style, where, must_differ)
        if any(change.status is Status.REJECTED for change in changes):
            return Conversion(name, changes, None)
        # A later conversion would replace lengths with numbers of parts, so their conflicts count, too.
        counted = style is SplitStyle.COUNT and bool(must_differ)
        merged = find_conflicting_splits(edited, equal_as_count=counted) - must_differ
        if not merged:
            break
        must_differ |= merged
        edited = model.copy()
    converted = model.to_proto(edited)
    try:
        check_converted(converted, where, model.proto)
    except SplitError as error:
        if not _fix_shapes(edited, where):
            return Conversion(name, changes, None, error)
        converted = model.to_proto(edited)
        if _find_problem(converted, full=True) is not None:
            return Conversion(name, changes, None, error)
    return Conversion(name, changes, converted)


def _fix_shapes(model: ir.Model, where: Where) -> bool:
    """Correct declared shapes that contradict the inferred ones. Return whether there were any.

    The source has the same wrong shapes, but onnx may detect them only at newer opsets. Runtimes ignore them.
    """
    found = infer_model(model, where)
    contradictions = (find_contradiction(found, value) for value in found.values)
    wrong = [one for one in contradictions if one is not None and one.code == "declared.shape"]
    declare_found(wrong)
    return bool(wrong)


def _convert_graphs(
    edited: ir.Model,
    imported: int | None,
    opset: int | None,
    style: SplitStyle,
    where: Where,
    must_differ: frozenset[SplitKey],
) -> tuple[Change, ...]:
    annotate_for(edited, where, style)
    converting = ModelConversion(edited, where, must_differ)
    for _, owner in iter_owners(edited):
        old = owner.opset_imports.get("", imported)
        if old is None:
            continue
        new = old if opset is None else opset
        converting.convert_graph(owner, old, new, style)
        owner.opset_imports[""] = new
    return tuple(converting.changes)


def check_converted(model: ModelProto, where: Where, source: ModelProto | None = None) -> None:
    """Check with onnx's checker that a converted model is valid, or at least as valid as its source."""
    check_model(model, where)
    for full in (True, False):
        reason = _find_problem(model, full=full)
        if reason is not None and (source is None or _find_problem(source, full=full) is None):
            raise ModelError(f"the converted model would not be valid: {reason[:300]}", where)
        if reason is None:
            return


def _find_problem(model: ModelProto, *, full: bool) -> str | None:
    """Return the first error of onnx's checker, or None. ``full`` adds its strict shape inference."""
    slim = strip_weights(model)
    if full and any(map(_may_crash, protos_of(slim))):
        _clear_sizes(slim)
    try:
        onnx.checker.check_model(_add_ranks(slim), full_check=False)
        if full and find_inlining_problem(slim) is None:
            onnx.shape_inference.infer_shapes(slim, check_type=True, strict_mode=True)
    except (
        onnx.checker.ValidationError,
        onnx.shape_inference.InferenceError,
        ValueError,  # onnx's inference tries to allocate as many as 2**62 sizes
        MemoryError,
    ) as error:
        lines = (line.strip() for line in str(error).splitlines())
        return next(filter(None, lines), type(error).__name__)
    return None


def _add_ranks(model: ModelProto) -> ModelProto:
    """Return a model in which all tensor inputs and outputs declare a shape, as onnx's checker requires."""
    open_ = [
        number
        for number, value in enumerate((*model.graph.input, *model.graph.output))
        if value.type.HasField("tensor_type") and not value.type.tensor_type.HasField("shape")
    ]
    if not open_:
        return model
    ranked = copy_proto(model)
    values = (*ranked.graph.input, *ranked.graph.output)
    for number in open_:
        values[number].type.tensor_type.shape.SetInParent()
    return ranked


def _may_crash(node: NodeProto) -> bool:
    """Return whether onnx's inference may abort or run out of memory on a node.

    It aborts on a Slice of an axis whose inferred size is negative, for example in the output of a Split into
    too many parts or of a pool larger than its data. For a Split, it allocates ``num_outputs`` sizes.
    """
    return node.op_type == "Slice" or any(
        attribute.name == "num_outputs" and attribute.i > _MAX_CHECKED for attribute in node.attribute
    )


_MAX_CHECKED: Final = 1 << 16


def _clear_sizes(model: ModelProto) -> None:
    """Turn initializers into inputs, and remove all sizes. onnx can still check the types and ranks."""
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
"""The element types that Constant-1 supports."""


def annotate_for(edited: ir.Model, where: Where, style: SplitStyle) -> None:
    """Annotate the values of a model with their inferred types, shapes and elements.

    If ``style`` prefers numbers of parts, a split does not restrict the inferred size of its own input:
    otherwise its lengths would always seem redundant.
    """
    if style is SplitStyle.COUNT:
        ForwardInterpreter(edited, where).run().annotate()
    else:
        infer_model(edited, where).annotate()


# Converting


class ModelConversion:
    """Converts a model whose values are annotated with inferred types and shapes, and collects changes."""

    def __init__(self, model: ir.Model, where: Where, must_differ: frozenset[SplitKey] = frozenset()) -> None:
        self.editor = OnnxEditor(model, where)
        self.changes: list[Change] = []
        self.split_nodes: set[ir.Node] = set()
        """Splits that were written for the target, and the nodes that were created for them."""
        self._unread = get_unread_attributes(model)
        self._must_differ = must_differ  # splits that must set their lengths
        self._converter = OpsetConverter(self.editor.names)
        self._lowered: dict[ir.Node, str] = {}
        self._rejected: dict[ir.Node, SplitError] = {}

    def convert_graph(self, owner: AnyGraph, old: int, new: int, style: SplitStyle) -> None:
        """Convert a graph or function, including its subgraphs, from one opset to another."""
        if new < 11 <= old:
            self.lower(owner, Rule.OPERATOR_VERSION)
        nodes = [node for _, node in iter_nodes(owner)]
        self.rewrite_splits(nodes, ConversionTarget("", new), new, style)
        if old != new:
            for node in track(nodes, "convert"):
                # Constants that only a split used have been removed.
                if node.domain in ("", "ai.onnx") and not is_split(node) and node.graph is not None:
                    self._convert_other(node, old, new)
        if new < CONSTANTS_OF_EVERY_TYPE:
            self._replace_constants(owner)

    def lower(self, owner: AnyGraph, rule: Rule) -> None:
        """Rewrite each SplitToSequence without sequences, or reject it, usually because of ``rule``."""
        splits = [node for _, node in iter_nodes(owner) if is_split(node)]
        for node in [node for node in splits if schema(node.op_type, domain="").gives_sequence]:
            split_node = self.editor.read_split_node(node)
            try:
                self._lowered[lower_sequence(node, split_node, self.editor, rule)] = str(split_node)
            except SplitError as error:
                where = self.editor.locate(node)
                after = self._read_separately(node, split_node)
                if after is None:
                    self._rejected[node] = error
                else:
                    self.changes.append(Change(where, Status.REWRITTEN, str(split_node), after))

    def _read_separately(self, node: ir.Node, split_node: SplitNode) -> str | None:
        """Replace all uses of a sequence. Return a description of the new nodes, or None if uses remain."""
        if Origin.DEFAULT in split_node.origins[1:]:
            return None  # the caller of the model can replace the lengths
        replace_sequences(node, self.editor)
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
        """Rewrite the splits among ``nodes`` for a target, and report each. Added nodes use ``opset``."""
        for node in track([node for node in nodes if is_split(node)], "convert splits"):
            where, split_node = self.editor.locate(node), self.editor.read_split_node(node)
            before = self._lowered.get(node) or str(split_node)
            try:
                if node in self._rejected:
                    raise self._rejected[node]
                must_differ = split_key(where.graph, split_node.outputs) in self._must_differ
                way = get_first_way(split_node, target, style, must_differ=must_differ)
                if target.domain and way.lengths is None:
                    _check_lengths(split_node, way)
                builder = OnnxOpBuilder(opset, self.editor.names, make_stem(node))
                write_split(node, split_node, way, builder)
            except SplitError as error:
                self.changes.append(Change(where, Status.REJECTED, before, error=error))
                continue
            self.split_nodes.update(builder.nodes, [node])
            status = Status.REWRITTEN if node in self._lowered else get_status(way)
            self.changes.append(Change(where, status, before, f"{target.domain} {way}".lstrip()))

    def _replace_constants(self, owner: AnyGraph) -> None:
        """Replace Constants of types that Constant-1 lacks with initializers. Reject them in functions."""
        for node in [
            node for _, node in iter_nodes(owner) if node.op_type == "Constant" and node.domain == ""
        ]:
            tensor, graph = ir.convenience.get_const_tensor(node.outputs[0]), node.graph
            if tensor is None or tensor.dtype in _FLOATING:
                continue
            if graph is not None and not (isinstance(owner, ir.Function) and graph is owner.graph):
                replace_constant_node(node, tensor, graph)
                continue
            place = self.editor.locate(node)
            error = ModelError(f"a function cannot have a constant of {tensor.dtype} below opset 9", place)
            self.changes.append(Change(place, Status.REJECTED, "Constant", error=error))

    def _convert_other(self, node: ir.Node, old: int, new: int) -> None:
        """Convert a node that is not a split, and report it if it changed."""
        before, where = f"{node.op_type}-{find_since_version(node.op_type, old)}", self.editor.locate(node)
        try:
            if node in self._unread and find_since_version(node.op_type, old) != find_since_version(
                node.op_type, new
            ):
                name = self._unread[node][0].name
                raise ModelError(
                    f"{before} cannot be converted to opset {new}: onnx-ir cannot read its {name}",
                    where,
                )
            became = self._converter.convert_node(node, old, new, where)
        except ModelError as error:
            self.changes.append(Change(where, Status.REJECTED, before, error=error))
            return
        if became is not None:
            versions = ", ".join(f"{name}-{find_since_version(name, new)}" for name in became)
            status = Status.CONVERTED if len(became) == 1 else Status.REWRITTEN
            self.changes.append(Change(where, status, before, versions))


def _check_lengths(split_node: SplitNode, way: Way) -> None:
    """Check that the lengths of a split are not a default that the caller of the model can replace."""
    inputs = zip(split_node.inputs[1:], split_node.origins[1:], strict=True)
    names = ", ".join(sorted(name for name, origin in inputs if origin is Origin.DEFAULT))
    if names:
        got = f"the lengths {names} are a default that the caller can replace"
        expected = "OpenVINO has no defaults for inputs"
        raise rule_error(str(way.schema), Rule.LENGTHS_MISSING, got, expected, where=split_node.where)


def get_status(way: Way) -> Status:
    """Return the status of a split node that is written in this :class:`Way`."""
    if way.is_kept:
        return Status.KEPT
    return Status.CONVERTED if way.is_one_node else Status.REWRITTEN
