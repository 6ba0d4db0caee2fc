"""Write fixes into a model: repair or rewrite a split node, or replace nodes around it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, TypeAlias, assert_never

import numpy as np
import onnx_ir as ir

from splitops.common.integers import INT32_MAX, INT64_MAX
from splitops.errors import ModelError
from splitops.models.abstract_values import AbstractTensor
from splitops.models.check.baked import find_baked_lengths
from splitops.models.check.limits import Cure, Fix, Repair
from splitops.models.fix.cleared_sizes import clear_sizes_after
from splitops.models.fix.onnx_sequences import cast_sequence
from splitops.models.fix.opening import Opening
from splitops.models.fix.report import Unbind
from splitops.models.formats.walk import make_stem
from splitops.models.graph.editor import Editor
from splitops.models.graph.intended import FLOATS, find_intended_split_node, find_intended_way
from splitops.models.graph.onnx import annotate, find_shape, find_type, has_consumers
from splitops.models.graph.onnx_editor import OnnxEditor, is_operator
from splitops.models.graph.onnx_sequences import INT64, slice_elements
from splitops.models.graph.op_builder import OnnxOpBuilder
from splitops.models.graph.openvino_editor import OpenVINOOpBuilder
from splitops.models.graph.split_writer import write_split
from splitops.models.simplify.constants import fold_constants
from splitops.models.simplify.sequences import replace_sequences
from splitops.models.split_nodes.split_node import UNBIND_REPAIRS, SplitNode
from splitops.models.split_nodes.static_facts import MAX_OUTPUTS
from splitops.models.split_nodes.styles import ConversionTarget
from splitops.models.split_nodes.ways import Kind, Way, find_way, get_first_way, get_onnx_types
from splitops.spec.operators import schema
from splitops.spec.sizes.rules import SizeRule

_ANY_SIZE: Final = 1 << 62
_BOUNDS_AS_INPUTS: Final = 10
"""The first opset in which Slice reads its bounds from inputs."""
_LENGTHS_AS_INPUT: Final = 13
"""The opset from which on the lengths of a Split are always an input."""
_COMPUTED_LENGTHS: Final = "a few nodes that compute the lengths from the size of the axis"
_COMPUTED_BOUNDS: Final = "a few nodes that compute the bounds"
_POSITIONS: Final = "the positions of each part, with 8 bytes for each entry of the axis"
_OF_SEQUENCES: Final = {Kind.PARTS, Kind.SEQUENCE, Kind.CASTS}
_OF_ONNX: Final = {*Repair, *_OF_SEQUENCES} - {Repair.OPEN}
_UNKNOWN_SIZES: Final = "the sizes of its parts are known only at run time"
_NAMED_PORTS: Final = "its ports define names of model outputs"


class RewriteResult(NamedTuple):
    """The description of a rewritten split node, and its additional cost at run time."""

    text: str
    cost: str = ""
    splits: Sequence[ir.Node] = ()
    """The new splits, if there are several."""


_Writer: TypeAlias = Callable[[ir.Node, SplitNode], RewriteResult]


class FixWriter:
    """Writes fixes into a model. ``max_outputs`` limits the outputs of each Split in a tree of Splits."""

    def __init__(
        self, editor: Editor, unbind: Unbind | None, max_outputs: int | None, opening: Opening | None = None
    ) -> None:
        self.editor = editor
        self.unbind = unbind
        self.max_outputs = max_outputs
        self.opening = opening

    def write(self, rewrite: Fix, node: ir.Node) -> RewriteResult:
        """Rewrite a split node of a model that is annotated with inferred types and shapes.

        Raises:
            SplitError: ``rewrite`` does not apply; the outputs of the split node are unchanged.
        """
        split_node = self.editor.read_split_node(node)  # with the facts of all calls of its function
        if split_node.schema.domain and rewrite in _OF_ONNX:
            raise ModelError(f"OpenVINO IR has no rewrite {str(rewrite)!r}")
        if rewrite in _OF_SEQUENCES and not split_node.schema.gives_sequence:
            raise ModelError(f"{split_node.operator} does not return a sequence")
        return self._get_writer(rewrite)(node, split_node)

    def _get_writer(self, rewrite: Fix) -> _Writer:
        match rewrite:
            case Repair.AXIS:
                return self._write_axis
            case Repair.EXPLICIT_OUTPUTS:
                return self._write_explicit_outputs
            case Repair.VERSION:
                return self._write_version
            case Repair.NUM_OUTPUTS:
                return self._write_num_outputs
            case Repair.UNBIND:
                return self._write_unbind
            case Repair.OPEN:
                return self._write_open
            case Kind.NODE:
                return self._write_node
            case Kind.PARTS:
                return self._write_parts
            case Kind.SEQUENCE:
                return self._write_sequence
            case Kind.TREE:
                return self._write_tree
            case Kind.SLICES:
                return self._write_slices
            case Kind.GATHERS:
                return self._write_gathers
            case Kind.CASTS:
                return self._write_casts
            case Cure.CONSTANTS:
                return self._write_constants
            case Cure.EMPTY_TENSOR:
                return self._write_empty_tensor
        assert_never(rewrite)

    def _describe(self, node: ir.Node) -> str:
        return str(self.editor.read_split_node(node))

    @property
    def _onnx(self) -> OnnxEditor:
        assert isinstance(self.editor, OnnxEditor)
        return self.editor

    # Repairs of one node

    def _write_axis(self, node: ir.Node, split_node: SplitNode) -> RewriteResult:
        name, axis = split_node.schema.axis.name, split_node.bind().axis
        if axis is None:
            raise ModelError("each call of the function may set another axis")
        node.attributes[name] = ir.AttrInt64(name, axis)
        return RewriteResult(self._describe(node))

    def _write_explicit_outputs(self, node: ir.Node, split_node: SplitNode) -> RewriteResult:
        schema, done = split_node.schema, []
        given = node.attributes.get(schema.count_attribute or "")
        count = 0 if given is None or given.is_ref() else int(given.value)
        if len(node.inputs) > 1 and node.inputs[1] is None:
            self.editor.set_inputs(node, node.inputs[:1])
            done.append("without the input named ''")
        if count > len(node.outputs):
            if count > MAX_OUTPUTS:
                raise ModelError(f"{count - len(node.outputs)} of its parts are unused")
            node.resize_outputs(count)
            done.append("all outputs declared")
        if self._name_outputs(node):
            done.append("all outputs named")
        if schema.keepdims is not None and len(node.inputs) > 1 and schema.keepdims.name in node.attributes:
            del node.attributes[schema.keepdims.name]
            done.append(
                f"without {schema.keepdims.name}, which is ignored if {schema.lengths[0].name!r} is set"
            )
        if not done:
            raise ModelError("each call of the function may set a different number")
        return RewriteResult(f"{self._describe(node)}, {', '.join(done)}")

    def _name_outputs(self, node: ir.Node) -> bool:
        unnamed = [value for value in node.outputs if not value.name]
        for value in unnamed:
            value.name = self.editor.names.make_name(f"{make_stem(node)}_unused")
        return bool(unnamed)

    def _write_version(self, node: ir.Node, split_node: SplitNode) -> RewriteResult:
        read = replace(split_node, schema=split_node.as_written or split_node.schema)
        way = get_first_way(read, self._make_target(node))
        write_split(node, read, way, self.editor.make_builder(node))
        return RewriteResult(str(way))

    def _write_num_outputs(self, node: ir.Node, split_node: SplitNode) -> RewriteResult:
        name = split_node.schema.count_attribute
        if name is None:
            raise ModelError(f"{split_node.schema} sets no number of parts")
        node.attributes[name] = ir.AttrInt64(name, len(node.outputs))
        return RewriteResult(self._describe(node))

    def _write_unbind(self, node: ir.Node, split_node: SplitNode) -> RewriteResult:
        keepdims, chunk = split_node.schema.keepdims, split_node.lengths
        if self.unbind is None:
            raise ModelError(f"chunks of 1 with keepdims = 0 are ambiguous; {UNBIND_REPAIRS}")
        if keepdims is None or keepdims.name not in node.attributes:
            raise ModelError(f"{split_node.schema} does not set keepdims")
        if self.unbind is Unbind.AS_WRITTEN:
            node.attributes.pop(keepdims.name)
            return RewriteResult(f"{self._describe(node)}, as written")
        if chunk is None or chunk.shape != () or chunk.value != 1:
            raise ModelError(
                "the size of the chunks is known only at run time: PyTorch's unbind has chunks of 1"
            )
        self.editor.set_inputs(node, node.inputs[:1])
        return RewriteResult(f"{self._describe(node)}, as PyTorch means it")

    def _write_open(self, node: ir.Node, split_node: SplitNode) -> RewriteResult:
        """Replace constant lengths with lengths that follow the size of the axis, as ``--open`` chooses."""
        op_schema, lengths, count = split_node.schema, find_baked_lengths(split_node), len(node.outputs)
        if self.opening is None or (lengths is None and op_schema.domain):
            raise ModelError("choose with --open how the lengths follow the size of the axis")
        if lengths is None:
            raise ModelError("each call of the function may have other lengths")
        if self.editor.has_fixed_outputs(node):
            raise ModelError(_NAMED_PORTS)
        division, is_computed = self.opening.make_division(lengths), True
        if op_schema.domain:
            is_computed = division.rule is not SizeRule.EVEN
            op_schema = schema("VariadicSplit" if is_computed else "Split", domain=op_schema.domain)
        elif op_schema.gives_sequence:
            # The number of chunks depends on the size, too.
            is_computed, count = division.rule is not SizeRule.CHUNK, 1
        elif self.editor.get_opset(node) < _LENGTHS_AS_INPUT:
            if division.rule is not SizeRule.EVEN:
                cure = f"splitops convert MODEL --to onnx:{_LENGTHS_AS_INPUT} -o FILE makes them an input"
                raise ModelError(f"{op_schema} requires constant lengths; {cure}, which can be computed")
            is_computed = False
        bound = split_node.bind()
        way = Way(
            Kind.NODE, op_schema, bound.axis, division, count, is_computed=is_computed, lengths_type=INT64
        )
        way = replace(way, squeeze=bound.squeeze)
        parts = write_split(node, split_node, way, self.editor.make_builder(node))
        split = next(part.producer() for part in parts if part is not None)
        assert split is not None
        clear_sizes_after(self.editor.model, split)
        computed = "a few layers that compute the lengths" if op_schema.domain else _COMPUTED_LENGTHS
        return RewriteResult(str(way), computed if is_computed else "")

    # Other ways to write a split

    def _make_target(self, node: ir.Node) -> ConversionTarget:
        return ConversionTarget(self.editor.domain, self.editor.get_opset(node))

    def _find_way(self, node: ir.Node, split_node: SplitNode, kind: Kind) -> Way:
        """Return the first :class:`Way` of a kind, see :func:`find_way`, if the outputs can be replaced."""
        way, data = find_way(split_node, self._make_target(node), kind, self.max_outputs), node.inputs[0]
        if self.editor.has_fixed_outputs(node):
            raise ModelError(_NAMED_PORTS)
        if kind is Kind.SLICES and data is not None and not self.editor.can_slice(data):
            raise ModelError(f"Slice does not support {find_type(data)}")
        return way

    def _write_node(self, node: ir.Node, split_node: SplitNode) -> RewriteResult:
        intended, editor = find_intended_split_node(split_node), self.editor
        if intended is not None:
            return self._write_intended(node, split_node, intended)
        if editor.domain:
            raise ModelError(f"OpenVINO IR has no rewrite {str(Kind.NODE)!r}")
        if split_node.error is not None:
            raise ModelError("the calls of its function have different lengths")
        way = self._find_way(node, split_node, Kind.NODE)
        write_split(node, split_node, way, editor.make_builder(node))
        self._name_outputs(node)
        return RewriteResult(str(way), _COMPUTED_LENGTHS if way.is_computed else "")

    def _write_intended(self, node: ir.Node, split_node: SplitNode, intended: SplitNode) -> RewriteResult:
        """Write the intended axis and lengths in the form that the version of the split requires."""
        builder = self.editor.make_builder(node)
        if not isinstance(builder, OnnxOpBuilder):
            inputs = list(node.inputs)
            for index, (before, after) in enumerate(zip(split_node.facts, intended.facts, strict=True)):
                value = inputs[index]
                if index == 0 or value is None or after is None:
                    continue
                if before == after and after.type not in FLOATS:
                    continue
                if after.value is not None:
                    inputs[index] = builder.add_constant(np.array(after.value).astype(np.int64), "lengths")
                else:
                    inputs[index] = builder.reshape(value, [-1] if after.shape else [], after.shape)
            self.editor.set_inputs(node, inputs)
            return RewriteResult(self._describe(node))
        way = find_intended_way(intended, self.editor.get_opset(node))
        if isinstance(way, str):
            raise ModelError(way)
        is_known = intended.bind().division is not None
        for index, (before, after) in enumerate(zip(split_node.facts, intended.facts, strict=True)):
            value = node.inputs[index]
            if before == after or is_known or value is None or after is None:
                continue
            listed = builder.add("Reshape", [value, builder.add_ints([-1])], hint="lengths")
            annotate(listed, AbstractTensor(after.type, after.shape))
            node.replace_input_with(index, listed)
        write_split(node, intended, way, builder)
        self._name_outputs(node)
        return RewriteResult(str(way), "a few nodes that compute the lengths" if way.is_computed else "")

    def _write_tree(self, node: ir.Node, split_node: SplitNode) -> RewriteResult:
        way, data = self._find_way(node, split_node, Kind.TREE), node.inputs[0]
        splits: dict[ir.Node, None] = {}
        for part in write_split(node, split_node, way, self.editor.make_builder(node)):
            while part is not data and part is not None and (split := part.producer()) is not None:
                splits[split] = None
                part = split.inputs[0]
        text = f"{split_node} as a tree of {len(splits)} Splits"
        return RewriteResult(text, "a copy of the data for each level of the tree", tuple(splits))

    def _write_slices(self, node: ir.Node, split_node: SplitNode) -> RewriteResult:
        if split_node.schema.gives_sequence:
            count = slice_elements(node, split_node, self._onnx)
            text = f"Slice x {count}(axis={split_node.bind().axis}, bounds computed)"
            return RewriteResult(text, _COMPUTED_BOUNDS)
        way, size = self._find_way(node, split_node, Kind.SLICES), split_node.implied_size
        reads_bounds = not self.editor.domain and self.editor.get_opset(node) >= _BOUNDS_AS_INPUTS
        if isinstance(size, int) and size > INT32_MAX and reads_bounds:
            self._slice_two_axes(node, way, size)
        else:
            write_split(node, split_node, way, self.editor.make_builder(node))
        return RewriteResult(str(way), "" if way.bounds else _COMPUTED_BOUNDS)

    def _write_gathers(self, node: ir.Node, split_node: SplitNode) -> RewriteResult:
        way = self._find_way(node, split_node, Kind.GATHERS)
        write_split(node, split_node, way, self.editor.make_builder(node))
        return RewriteResult(str(way), _POSITIONS if way.bounds else _COMPUTED_BOUNDS)

    def _slice_two_axes(self, node: ir.Node, way: Way, size: int) -> None:
        """Write Slices that also select all of a second axis, so that onnxruntime does not fuse them.

        GatherSliceToSplitFusion turns Slices that partition one axis into a Split with 32-bit lengths. In
        onnxruntime, a Slice with an end of 2^31 - 1 ends at the end of the axis.
        """
        data = node.inputs[0]
        shape = None if data is None else find_shape(data)
        if not way.bounds or way.axis is None or data is None or shape is None:
            raise ModelError("its bounds cannot be written, or Slice does not support the data")
        builder, flat = self._onnx.make_builder(node), len(shape) == 1
        if flat:
            data = builder.unsqueeze(data, 1)
        axes = builder.add_ints([way.axis, 0 if way.axis % len(shape) else 1])
        parts: list[ir.Value | None] = []
        for output, (begin, end) in zip(node.outputs, way.bounds, strict=True):
            if end == INT32_MAX:
                end -= size
            stops = builder.add_ints([INT64_MAX if end is None else end, INT64_MAX])
            part = builder.add("Slice", [data, builder.add_ints([begin or 0, 0]), stops, axes], hint="part")
            parts.append((builder.squeeze(part, 1) if flat else part) if output.name else None)
        builder.replace(node, parts)

    # Sequences

    def _write_parts(self, node: ir.Node, split_node: SplitNode) -> RewriteResult:
        replace_sequences(node, self.editor)
        if node.graph is not None:
            raise ModelError(
                "its sequence is used for more than its length, constant positions and concatenation"
            )
        return RewriteResult(self.editor.changes[-1].after)

    def _write_sequence(self, node: ir.Node, split_node: SplitNode) -> RewriteResult:
        way = self._find_way(node, split_node, Kind.SEQUENCE)
        (sequence,) = write_split(node, split_node, way, self.editor.make_builder(node))
        made = None if sequence is None else sequence.producer()
        if made is None or not made.inputs:
            return RewriteResult("SequenceEmpty")
        part = made.inputs[0]
        if way.squeeze and part is not None and (squeeze := part.producer()) is not None:
            part = squeeze.inputs[0]
        assert part is not None
        text = f"{self.editor.describe_producer(part)}, SequenceConstruct"
        return RewriteResult(text, "a copy of the parts into the sequence")

    def _write_casts(self, node: ir.Node, split_node: SplitNode) -> RewriteResult:
        before = str(split_node)
        cast_type = cast_sequence(node, self._onnx)
        return RewriteResult(
            f"{before} on {cast_type}", "Casts of the data, and of the elements that are read"
        )

    # Replacements of parts and of the nodes that read them

    def _write_constants(self, node: ir.Node, split_node: SplitNode) -> RewriteResult:
        """Replace each part of a constant with a constant."""
        fold_constants(node, self.editor, _ANY_SIZE)
        if any(map(has_consumers, node.outputs)):
            raise ModelError(_UNKNOWN_SIZES)
        self.editor.remove(node)
        return RewriteResult(self.editor.changes[-1].after)

    def _write_empty_tensor(self, node: ir.Node, split_node: SplitNode) -> RewriteResult:
        """Replace the Transposes of empty parts with empty tensors."""
        parts = zip(node.outputs, (split_node.inference and split_node.inference.parts) or (), strict=False)
        empty = [part for part, shape in parts if shape is not None and 0 in shape]
        readers = [(part, use.node) for part in empty for use in list(part.uses())]
        for part, transpose in readers:
            builder = self.editor.make_builder(transpose)
            if isinstance(builder, OnnxOpBuilder) and is_operator(transpose, "Transpose"):
                _add_empty_tensor(transpose, part, builder)
            elif isinstance(builder, OpenVINOOpBuilder) and transpose.op_type == "Transpose":
                _write_empty_layer(transpose, part, builder)
        return RewriteResult(f"{self._describe(node)}, without Transposes of empty parts")


def _add_empty_tensor(transpose: ir.Node, part: ir.Value, builder: OnnxOpBuilder) -> None:
    """Replace the Transpose of an empty part with an empty tensor of the output shape."""
    kind, shape = find_type(part), find_shape(part)
    if kind is None or shape is None:
        raise ModelError("the element type of the empty part is not known")
    if builder.opset < 9 or kind not in get_onnx_types("ConstantOfShape", builder.opset, "T2"):
        raise ModelError(f"opset {builder.opset} cannot create an empty tensor of {kind}")
    order = transpose.attributes.get("perm")
    if order is not None and order.is_ref():
        raise ModelError("the order of the Transpose depends on the caller of the function")
    axes = range(len(shape))[::-1] if order is None else order.value
    moved = builder.add(
        "Gather", [builder.add("Shape", [part]), builder.add_ints(axes)], {"axis": 0}, hint="shape"
    )
    nothing = ir.tensor(np.zeros(1, kind.numpy))
    builder.replace(transpose, [builder.add("ConstantOfShape", [moved], {"value": nothing})])


def _write_empty_layer(transpose: ir.Node, part: ir.Value, builder: OpenVINOOpBuilder) -> None:
    """Replace the Transpose of an empty part with an empty tensor of the output shape."""
    order, kind, shape = transpose.inputs[1], find_type(part), find_shape(part)
    if kind is None or not kind.bits or shape is None:
        raise ModelError(f"an empty tensor of {kind or 'an unknown type'} cannot be written")
    inputs = [builder.add_shape(part), order, builder.add_constant(np.array(0), "axis")]
    moved = builder.annotate_outputs(builder.add_node("Gather", inputs), INT64, (len(shape),))[0]
    nothing = builder.add_constant(np.zeros((), kind.numpy), "nothing", kind)
    builder.replace(transpose, [builder.fill(nothing, moved, None)])
