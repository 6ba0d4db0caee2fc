"""Writes fixes: repairs of a split node, other ways to write it, and cures of the nodes around it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Final

import numpy as np
import onnx_ir as ir

from splitops.errors import ModelError, RuleError
from splitops.models.check.baked import baked_lengths
from splitops.models.check.limits import Fix, Repair
from splitops.models.fix.loosened import loosen_behind
from splitops.models.fix.onnx_sequences import carry
from splitops.models.fix.opening import Opening
from splitops.models.fix.report import Unbind
from splitops.models.fix.rounds import NoFormError, Written
from splitops.models.formats.walk import stem
from splitops.models.graph.editor import Editor
from splitops.models.graph.meant import FLOATS, find_meant_way, meant_site
from splitops.models.graph.onnx import is_read, note, shape_of, type_of
from splitops.models.graph.onnx_editor import OnnxEditor, is_operator
from splitops.models.graph.onnx_sequences import INT64, slice_elements
from splitops.models.graph.openvino_editor import OpenVINOPen
from splitops.models.graph.pen import OnnxPen
from splitops.models.graph.split_writer import write
from splitops.models.known import Tensor
from splitops.models.simplify.constants import fold_constants
from splitops.models.simplify.sequences import sequence_reads
from splitops.models.sites.decisions import Cut
from splitops.models.sites.forms import Form, Target
from splitops.models.sites.site import UNBIND_REPAIRS, Site
from splitops.models.sites.ways import COMPUTED_POSITIONS, Kind, Way, first_way, onnx_types, ways
from splitops.spec.operators import schema
from splitops.spec.sizes.arithmetic import Division
from splitops.spec.sizes.dims import Dim
from splitops.spec.sizes.rules import SizeRule
from splitops.splitting.binding.lengths import INT64_MAX

_MAX_OUTPUTS: Final = 1 << 12
"""The most outputs that are declared for a fix, and parts that a sequence is made of."""
_ANY_SIZE: Final = 1 << 62
_BOUNDS_AS_INPUTS: Final = 10
"""The opset from which on Slice takes its bounds as inputs."""
_LENGTHS_AS_INPUT: Final = 13
"""The opset from which on Split takes its lengths as an input."""
_COMPUTED_LENGTHS: Final = "a few nodes that compute the lengths from the size of the axis"
_COMPUTED_BOUNDS: Final = "a few nodes that compute the bounds"
_POSITIONS: Final = "positions of each part, 8 bytes an entry of the axis"
_OF_ONNX: Final = {*Repair, Kind.PARTS, Kind.SEQUENCE, Kind.CASTS} - {Repair.OPEN}
_INT32_MAX: Final = (1 << 31) - 1
_UNKNOWN_SIZES: Final = "the sizes of its parts are known only when the model runs"
_NAMED_PORTS: Final = "its ports name outputs of the model"


class FixWriter:
    """Writes fixes into a model, whose Splits may have at most ``max_outputs`` outputs."""

    def __init__(
        self, editor: Editor, unbind: Unbind | None, max_outputs: int | None, opening: Opening | None = None
    ) -> None:
        self.editor = editor
        self.unbind = unbind
        self.max_outputs = max_outputs
        self.opening = opening

    def write(self, form: Fix, node: ir.Node, site: Site) -> Written:
        """Write a split node in a form, see :class:`~splitops.models.fix.rounds.Forms`: each has a method."""
        site = self.editor.site(node)  # as it is in all calls: the given one is that of the first
        if site.schema.domain and form in _OF_ONNX:
            raise NoFormError(f"OpenVINO IR has no form {str(form)!r}")
        if form in (Kind.PARTS, Kind.SEQUENCE) and not site.schema.gives_sequence:
            raise NoFormError(f"{site.operator} does not give a sequence")
        try:
            writer: Callable[[ir.Node, Site], Written] = getattr(self, f"_{form.name.lower()}")
            return writer(node, site)
        except RuleError as error:
            raise NoFormError(error.message) from error

    def _describe(self, node: ir.Node) -> str:
        return str(self.editor.site(node))

    @property
    def _onnx(self) -> OnnxEditor:
        assert isinstance(self.editor, OnnxEditor)
        return self.editor

    # Repairs of one node

    def _axis(self, node: ir.Node, site: Site) -> Written:
        name, axis = site.schema.axis.name, site.bind().axis
        assert axis is not None  # it is the default
        node.attributes[name] = ir.AttrInt64(name, axis)
        return Written(self._describe(node))

    def _in_full(self, node: ir.Node, site: Site) -> Written:
        row, done = site.schema, []
        stated = node.attributes.get(row.count_attribute or "")
        count = 0 if stated is None or stated.is_ref() else int(stated.value)
        if len(node.inputs) > 1 and node.inputs[1] is None:
            self.editor.set_inputs(node, node.inputs[:1])
            done.append("without the input that is named ''")
        if count > len(node.outputs):
            if count > _MAX_OUTPUTS:
                raise NoFormError(f"nobody reads {count - len(node.outputs)} of its parts")
            node.resize_outputs(count)
            done.append("all outputs declared")
        if self._name_outputs(node):
            done.append("all outputs named")
        if row.keepdims is not None and len(node.inputs) > 1 and row.keepdims.name in node.attributes:
            del node.attributes[row.keepdims.name]
            done.append(f"without {row.keepdims.name}, which has no meaning beside {row.lengths[0].name!r}")
        if not done:
            raise NoFormError("each call of the function may state another number")
        return Written(f"{self._describe(node)}, {', '.join(done)}")

    def _name_outputs(self, node: ir.Node) -> bool:
        unnamed = [value for value in node.outputs if not value.name]
        for value in unnamed:
            value.name = self.editor.names.fresh(f"{stem(node)}_unused")
        return bool(unnamed)

    def _version(self, node: ir.Node, site: Site) -> Written:
        read = replace(site, schema=site.as_written or site.schema)
        way = first_way(read, self._target(node))
        write(node, read, way, self.editor.pen(node))
        return Written(str(way))

    def _number(self, node: ir.Node, site: Site) -> Written:
        name = site.schema.count_attribute
        assert name is not None
        node.attributes[name] = ir.AttrInt64(name, len(node.outputs))
        return Written(self._describe(node))

    def _meaning(self, node: ir.Node, site: Site) -> Written:
        row, chunk = site.schema, site.facts[1]
        if self.unbind is None:
            raise NoFormError(f"chunks of 1 with keepdims = 0 have two meanings; {UNBIND_REPAIRS}")
        assert row.keepdims is not None
        if self.unbind is Unbind.AS_WRITTEN:
            node.attributes.pop(row.keepdims.name)
            return Written(f"{self._describe(node)}, as written")
        if chunk is None or chunk.shape != () or chunk.value != 1:
            raise NoFormError("only the run knows whether the chunks are of 1, as PyTorch's unbind has them")
        self.editor.set_inputs(node, node.inputs[:1])
        return Written(f"{self._describe(node)}, as PyTorch means it")

    def _open(self, node: ir.Node, site: Site) -> Written:
        """Let the lengths follow the size of the axis."""
        row, lengths, count = site.schema, baked_lengths(site), len(node.outputs)
        if self.opening is None or (lengths is None and row.domain):
            raise NoFormError("--open says how the lengths follow the size of the axis")
        if lengths is None:
            raise NoFormError("each call of the function may have other lengths")
        if self.editor.keeps_parts(node):
            raise NoFormError(_NAMED_PORTS)
        division, is_computed = self.opening.division(lengths), True
        if row.domain:
            is_computed = division.rule is not SizeRule.EVEN
            row = schema("VariadicSplit" if is_computed else "Split", domain=row.domain)
        elif row.gives_sequence:
            # The number of chunks follows the size too.
            is_computed, count = division.rule is not SizeRule.CHUNK, 1
        elif self.editor.opset(node) < _LENGTHS_AS_INPUT:
            if division.rule is not SizeRule.EVEN:
                cure = f"splitops convert MODEL --to onnx:{_LENGTHS_AS_INPUT} -o FILE makes them an input"
                raise NoFormError(f"{row} has its lengths as constants; {cure}, which can be computed")
            is_computed = False
        bound = site.bind()
        way = Way(Kind.NODE, row, bound.axis, division, count, is_computed=is_computed, lengths_type=INT64)
        way = replace(way, squeeze=bound.squeeze)
        parts = write(node, site, way, self.editor.pen(node))
        split = next(part.producer() for part in parts if part is not None)
        assert split is not None
        loosen_behind(self.editor.model, split)
        computed = "a few layers that compute the lengths" if row.domain else _COMPUTED_LENGTHS
        return Written(str(way), computed if is_computed else "")

    # Other ways to write a split

    def _target(self, node: ir.Node) -> Target:
        return Target(self.editor.domain, self.editor.opset(node))

    def _way(self, node: ir.Node, site: Site, kind: Kind) -> Way | None:
        """Return the plainest way of a kind that sets the lengths of a split."""
        for way in ways(site, self._target(node), Form.LENGTHS, apart=True, keep=False):
            is_explicit = way.lengths is not None and way.lengths.rule is SizeRule.EXPLICIT
            if way.kind is kind and (not way.is_one_node or is_explicit):
                return way
        return None

    def _cut(self, node: ir.Node) -> Cut:
        """Return what a split of known sizes does; its outputs may be others."""
        cut = self.editor.cut(node)
        if cut is None or cut.sizes is None or len(cut.sizes) != len(node.outputs):
            raise NoFormError(_UNKNOWN_SIZES)
        if self.editor.keeps_parts(node):
            raise NoFormError(_NAMED_PORTS)
        return cut

    def _node(self, node: ir.Node, site: Site) -> Written:
        meant, editor = meant_site(site), self.editor
        if meant is not None:
            return self._meant_lengths(node, site, meant)
        if editor.domain:
            raise NoFormError(f"OpenVINO IR has no form {str(Kind.NODE)!r}")
        if site.error is not None:
            raise NoFormError("the calls of its function mean different lengths")
        way = self._way(node, site, Kind.NODE)
        if way is None:
            raise NoFormError(f"{site.operator} cannot state these lengths")
        write(node, site, way, editor.pen(node))
        self._name_outputs(node)
        return Written(str(way), _COMPUTED_LENGTHS if way.is_computed else "")

    def _meant_lengths(self, node: ir.Node, site: Site, meant: Site) -> Written:
        """Write axis and lengths of another form as the version takes them."""
        pen = self.editor.pen(node)
        if not isinstance(pen, OnnxPen):
            inputs = list(node.inputs)
            for index, (before, after) in enumerate(zip(site.facts, meant.facts, strict=True)):
                value = inputs[index]
                if index == 0 or value is None or after is None:
                    continue
                if before == after and after.type not in FLOATS:
                    continue
                if after.value is not None:
                    inputs[index] = pen.constant(np.array(after.value).astype(np.int64), "lengths")
                else:
                    inputs[index] = pen.reshape(value, [-1] if after.shape else [], after.shape)
            self.editor.set_inputs(node, inputs)
            return Written(self._describe(node))
        way = find_meant_way(meant, self.editor.opset(node))
        if isinstance(way, str):
            raise NoFormError(way)
        is_known = meant.bind().division is not None
        for index, (before, after) in enumerate(zip(site.facts, meant.facts, strict=True)):
            value = node.inputs[index]
            if before == after or is_known or value is None or after is None:
                continue
            listed = pen.op("Reshape", [value, pen.integers([-1])], hint="lengths")
            note(listed, Tensor(after.type, after.shape))
            node.replace_input_with(index, listed)
        write(node, meant, way, pen)
        self._name_outputs(node)
        return Written(str(way), "a few nodes that compute the lengths" if way.is_computed else "")

    def _tree(self, node: ir.Node, site: Site) -> Written:
        cut, data = self._cut(node), node.inputs[0]
        if self.max_outputs is None or self.max_outputs < 2:
            raise NoFormError("a Split with one output has no parts")
        before, lengths = self.editor.describe(node), Division(SizeRule.EXPLICIT, lengths=cut.sizes or ())
        way = Way(Kind.TREE, None, cut.axis, lengths, self.max_outputs)
        splits: dict[ir.Node, None] = {}
        for part in write(node, site, way, self.editor.pen(node)):
            while part is not data and part is not None and (split := part.producer()) is not None:
                splits[split] = None
                part = split.inputs[0]
        text = f"{before} as a tree of {len(splits)} Splits"
        return Written(text, "a copy of the data for each level of the tree", tuple(splits))

    def _slices(self, node: ir.Node, site: Site) -> Written:
        data, size = node.inputs[0], _axis_size(site)
        if site.schema.domain:
            cut = self._cut(node)
            if data is not None and not self.editor.can_slice(data):
                raise NoFormError(f"Slice does not take {type_of(data)}")
            return Written(self._take(node, site, cut, Kind.SLICES))
        if site.schema.gives_sequence:
            try:
                count = slice_elements(node, site, self._onnx)
            except ModelError as error:
                raise NoFormError(error.message) from error
            return Written(f"Slice x {count}(axis={site.bind().axis}, bounds computed)", _COMPUTED_BOUNDS)
        way = self._way(node, site, Kind.SLICES)
        if way is None:
            raise NoFormError("its bounds cannot be written, or Slice does not take the data")
        if isinstance(size, int) and size > _INT32_MAX and self.editor.opset(node) >= _BOUNDS_AS_INPUTS:
            self._slice_two_axes(node, way, size)
        else:
            write(node, site, way, self.editor.pen(node))
        return Written(str(way), "" if way.bounds else _COMPUTED_BOUNDS)

    def _gathers(self, node: ir.Node, site: Site) -> Written:
        if site.schema.domain:
            return Written(self._take(node, site, self._cut(node), Kind.GATHERS), _POSITIONS)
        if self.editor.opset(node) < COMPUTED_POSITIONS:
            raise NoFormError(f"positions are computed from opset {COMPUTED_POSITIONS} on")
        way = self._way(node, site, Kind.GATHERS)
        if way is None:
            raise NoFormError("its bounds cannot be written, or Slice does not take the data")
        write(node, site, way, self.editor.pen(node))
        return Written(str(way), _POSITIONS if way.bounds else _COMPUTED_BOUNDS)

    def _take(self, node: ir.Node, site: Site, cut: Cut, kind: Kind) -> str:
        """Write layers that take constant positions, and describe them."""
        bounds = tuple(pairwise([0, *accumulate(cut.sizes or ())]))
        write(node, site, Way(kind, None, cut.axis, None, len(bounds), bounds=bounds), self.editor.pen(node))
        return f"{kind.title()[:-1]} x {len(bounds)}(axis={cut.axis})"

    def _slice_two_axes(self, node: ir.Node, way: Way, size: int) -> None:
        """Write Slices that name a second axis, all of it.

        onnxruntime makes one Split of Slices of one axis that are the whole of it, in 32 bits
        (GatherSliceToSplitFusion). It takes an end of 2^31 - 1 for that of the axis.
        """
        data = node.inputs[0]
        shape = None if data is None else shape_of(data)
        if not way.bounds or way.axis is None or data is None or shape is None:
            raise NoFormError("its bounds cannot be written, or Slice does not take the data")
        pen, flat = self._onnx.pen(node), len(shape) == 1
        if flat:
            data = pen.unsqueeze(data, 1)
        axes = pen.integers([way.axis, 0 if way.axis % len(shape) else 1])
        parts: list[ir.Value | None] = []
        for output, (begin, end) in zip(node.outputs, way.bounds, strict=True):
            if end == _INT32_MAX:
                end -= size
            stops = pen.integers([INT64_MAX if end is None else end, INT64_MAX])
            part = pen.op("Slice", [data, pen.integers([begin or 0, 0]), stops, axes], hint="part")
            parts.append((pen.squeeze(part, 1) if flat else part) if output.name else None)
        pen.replace(node, parts)

    # Sequences

    def _parts(self, node: ir.Node, site: Site) -> Written:
        sequence_reads(node, self.editor)
        if node.graph is not None:
            raise NoFormError("more reads its sequence than constant positions, lengths and joins")
        return Written(self.editor.changes[-1].after)

    def _sequence(self, node: ir.Node, site: Site) -> Written:
        editor, cut, data = self.editor, self.editor.cut(node), node.inputs[0]
        sizes = None if cut is None else cut.elements
        if cut is None or sizes is None or data is None:
            raise NoFormError("the number of its parts is known only when the model runs")
        kind = type_of(data)
        if kind not in onnx_types("SequenceConstruct", editor.opset(node)):
            raise NoFormError(f"SequenceConstruct does not take {kind}")
        if len(sizes) > _MAX_OUTPUTS:
            raise NoFormError(f"it has {len(sizes)} parts")
        way = Way(
            Kind.SEQUENCE, None, cut.axis, Division(SizeRule.EXPLICIT, lengths=sizes), 1, squeeze=cut.squeeze
        )
        (sequence,) = write(node, site, way, editor.pen(node))
        made = None if sequence is None else sequence.producer()
        if not sizes or made is None:
            return Written("SequenceEmpty")
        part = made.inputs[0]
        if cut.squeeze and part is not None and (squeeze := part.producer()) is not None:
            part = squeeze.inputs[0]
        assert part is not None
        text = f"{editor.describe_maker(part)}, SequenceConstruct"
        return Written(text, "a copy of the parts into the sequence")

    def _casts(self, node: ir.Node, site: Site) -> Written:
        before = str(site)
        cast_type = carry(node, self._onnx)
        return Written(f"{before} on {cast_type}", "Casts of the data, and of what is read of it back")

    # Cures

    def _constants(self, node: ir.Node, site: Site) -> Written:
        """Replace each part of a constant by a constant."""
        fold_constants(node, self.editor, _ANY_SIZE)
        if any(map(is_read, node.outputs)):
            raise NoFormError(_UNKNOWN_SIZES)
        self.editor.remove(node)
        return Written(self.editor.changes[-1].after)

    def _empty(self, node: ir.Node, site: Site) -> Written:
        """Replace Transposes of empty parts by empty tensors."""
        parts = zip(node.outputs, (site.inference and site.inference.parts) or (), strict=False)
        empty = [part for part, shape in parts if shape is not None and 0 in shape]
        readers = [(part, use.node) for part in empty for use in list(part.uses())]
        for part, transpose in readers:
            pen = self.editor.pen(transpose)
            if isinstance(pen, OnnxPen) and is_operator(transpose, "Transpose"):
                _write_empty_tensor(transpose, part, pen)
            elif isinstance(pen, OpenVINOPen) and transpose.op_type == "Transpose":
                _write_empty_layer(transpose, part, pen)
        return Written(f"{self._describe(node)}, without Transposes of what is empty")


def _axis_size(site: Site) -> Dim | None:
    """Return the inferred size of the axis, which lengths prove too."""
    binding, shape = site.binding, None if site.inference is None else site.inference.data
    return None if binding is None or binding.axis is None or shape is None else shape[binding.axis]


def _write_empty_tensor(transpose: ir.Node, part: ir.Value, pen: OnnxPen) -> None:
    """Replace the Transpose of an empty part by an empty tensor of its shape."""
    kind, shape = type_of(part), shape_of(part)
    if kind is None or shape is None:
        raise NoFormError("the element type of the empty part is not known")
    if pen.opset < 9 or kind not in onnx_types("ConstantOfShape", pen.opset, "T2"):
        raise NoFormError(f"opset {pen.opset} cannot state an empty tensor of {kind}")
    order = transpose.attributes.get("perm")
    if order is not None and order.is_ref():
        raise NoFormError("the order of the Transpose is what each caller of the function declares")
    axes = range(len(shape))[::-1] if order is None else order.value
    moved = pen.op("Gather", [pen.op("Shape", [part]), pen.integers(axes)], {"axis": 0}, hint="shape")
    nothing = ir.tensor(np.zeros(1, kind.numpy))
    pen.replace(transpose, [pen.op("ConstantOfShape", [moved], {"value": nothing})])


def _write_empty_layer(transpose: ir.Node, part: ir.Value, pen: OpenVINOPen) -> None:
    """Replace the Transpose of an empty part by an empty tensor of its shape."""
    order, kind, shape = transpose.inputs[1], type_of(part), shape_of(part)
    if kind is None or not kind.bits or shape is None:
        raise NoFormError(f"an empty tensor of {kind or 'an unknown type'} cannot be written")
    inputs = [pen.sizes(part), order, pen.constant(np.array(0), "axis")]
    moved = pen.told(pen.multi("Gather", inputs), INT64, (len(shape),))[0]
    nothing = pen.constant(np.zeros((), kind.numpy), "nothing", kind)
    pen.replace(transpose, [pen.fill(nothing, moved, None)])
