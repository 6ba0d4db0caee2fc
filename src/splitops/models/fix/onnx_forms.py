"""The forms of splits in ONNX graphs, each written in the place of a split node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import onnx_ir as ir

from splitops.errors import ModelError, RuleError
from splitops.models.check.baked import baked_lengths
from splitops.models.check.limits import FixForm
from splitops.models.fix.loosened import loosen_behind
from splitops.models.fix.onnx_sequences import carry
from splitops.models.fix.opening import Opening
from splitops.models.fix.report import Unbind
from splitops.models.fix.rounds import NoFormError, Written
from splitops.models.fix.trees import write_tree
from splitops.models.graph.meant import find_meant_form, meant_site
from splitops.models.graph.onnx import constant_array, note, shape_of, stem, type_of
from splitops.models.graph.onnx_editor import OnnxEditor, is_operator
from splitops.models.graph.onnx_sequences import INT64, slice_elements
from splitops.models.graph.onnx_splits import write_site
from splitops.models.graph.pen import OnnxPen
from splitops.models.known import Tensor
from splitops.models.simplify.sequences import sequence_reads
from splitops.models.sites.forms import Form, Method, SplitForm, Target
from splitops.models.sites.rewriting import find_form, find_forms, onnx_types
from splitops.models.sites.site import UNBIND_REPAIRS, Site
from splitops.spec.sizes.dims import Dim, Shape
from splitops.spec.sizes.rules import SizeRule

_MOST_OUTPUTS: Final = 1 << 12
"""The most outputs that are declared for a form, and parts that a sequence is made of."""
_MOST_POSITIONS: Final = 1 << 12
"""Longer parts are gathered at positions that the graph computes."""
_BOUNDS_AS_INPUTS: Final = 10
"""The opset from which on Slice takes its bounds as inputs."""
_LENGTHS_AS_INPUT: Final = 13
"""The opset from which on Split takes its lengths as an input."""
_COMPUTED_LENGTHS: Final = "a few nodes that compute the lengths from the size of the axis"
_COMPUTED_BOUNDS: Final = "a few nodes that compute the bounds"
_INT32_MAX: Final = (1 << 31) - 1
_INT64_MAX: Final = (1 << 63) - 1


class OnnxForms:
    """Writes forms into a model, whose Splits may have at most so many outputs."""

    def __init__(
        self, editor: OnnxEditor, unbind: Unbind | None, most: int | None, opening: Opening | None = None
    ) -> None:
        self.editor = editor
        self.unbind = unbind
        self.most = most
        self.opening = opening
        self._writers: Final[dict[FixForm, Callable[[ir.Node, Site], Written]]] = {
            FixForm.AXIS: self._axis,
            FixForm.IN_FULL: self._in_full,
            FixForm.VERSION: self._version,
            FixForm.NUMBER: self._number,
            FixForm.MEANING: self._meaning,
            FixForm.OPEN: self._open,
            FixForm.LENGTHS: self._lengths,
            FixForm.PARTS: self._parts,
            FixForm.SEQUENCE: self._sequence,
            FixForm.TREE: self._tree,
            FixForm.SLICES: self._slices,
            FixForm.GATHERS: self._gathers,
            FixForm.CASTS: self._casts,
            FixForm.EMPTY: self._empty,
        }

    def write(self, form: FixForm, node: ir.Node, site: Site) -> Written:
        """Write a split node in a form, see :class:`~splitops.models.fix.rounds.Forms`."""
        site = self.editor.site(node)  # as it is in all calls: the given one is that of the first
        if form in (FixForm.PARTS, FixForm.SEQUENCE) and not site.schema.gives_sequence:
            raise NoFormError(f"{site.operator} does not give a sequence")
        try:
            return self._writers[form](node, site)
        except RuleError as error:
            raise NoFormError(error.message) from error

    def _describe(self, node: ir.Node) -> str:
        return str(self.editor.site(node))

    # One split

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
            if count > _MOST_OUTPUTS:
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
        rewritten = find_form(read, Target("", self.editor.opset(node)))
        write_site(node, read, rewritten, self.editor.pen(node))
        return Written(str(rewritten))

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
        row, lengths = site.schema, baked_lengths(site)
        if self.opening is None:
            raise NoFormError("--open says how the lengths follow the size of the axis")
        if lengths is None:
            raise NoFormError("each call of the function may have other lengths")
        division, method = self.opening.division(lengths), Method.COMPUTED
        if row.gives_sequence:
            # The number of chunks follows the size too.
            method = Method.ONE_NODE if division.rule is SizeRule.CHUNK else method
        elif self.editor.opset(node) < _LENGTHS_AS_INPUT:
            if division.rule is not SizeRule.EVEN:
                cure = f"splitops convert MODEL --to onnx:{_LENGTHS_AS_INPUT} -o FILE makes them an input"
                raise NoFormError(f"{row} has its lengths as constants; {cure}, which can be computed")
            method = Method.ONE_NODE
        count = 1 if row.gives_sequence else len(lengths)
        form = SplitForm(
            method, row, site.bind().axis, division, count, lengths_type=INT64, squeeze=site.bind().squeeze
        )
        write_site(node, site, form, self.editor.pen(node))
        loosen_behind(self.editor.model, node)
        return Written(str(form), _COMPUTED_LENGTHS if method is Method.COMPUTED else "")

    def _lengths(self, node: ir.Node, site: Site) -> Written:
        meant = meant_site(site)
        if meant is not None:
            return self._meant_lengths(node, site, meant)
        if site.error is not None:
            raise NoFormError("the calls of its function mean different lengths")
        rewritten = self._way(node, site, Method.ONE_NODE, Method.COMPUTED)
        if rewritten is None:
            raise NoFormError(f"{site.operator} cannot state these lengths")
        write_site(node, site, rewritten, self.editor.pen(node))
        self._name_outputs(node)
        computed = rewritten.method is Method.COMPUTED
        return Written(str(rewritten), _COMPUTED_LENGTHS if computed else "")

    def _meant_lengths(self, node: ir.Node, site: Site, meant: Site) -> Written:
        """Write lengths of another form as the version takes them."""
        rewritten = find_meant_form(meant, self.editor.opset(node))
        if isinstance(rewritten, str):
            raise NoFormError(rewritten)
        pen = self.editor.pen(node)
        known = meant.bind().division is not None
        for index, (before, after) in enumerate(zip(site.facts, meant.facts, strict=True)):
            value = node.inputs[index]
            if before == after or known or value is None or after is None:
                continue
            listed = pen.op("Reshape", [value, pen.integers([-1])], hint="lengths")
            note(listed, Tensor(after.type, after.shape))
            node.replace_input_with(index, listed)
        write_site(node, meant, rewritten, pen)
        self._name_outputs(node)
        computed = rewritten.method is Method.COMPUTED
        return Written(str(rewritten), "a few nodes that compute the lengths" if computed else "")

    def _way(self, node: ir.Node, site: Site, *methods: Method) -> SplitForm | None:
        """Return the plainest way to set the lengths of a split by one of some methods."""
        target = Target("", self.editor.opset(node))
        for way in find_forms(site, target, Form.LENGTHS, apart=True):
            if way.method in methods and (way.method is not Method.ONE_NODE or _is_explicit(way)):
                return way
        return None

    # Trees, Slices and Gathers

    def _tree(self, node: ir.Node, site: Site) -> Written:
        return write_tree(node, self.editor, self.most)

    def _slices(self, node: ir.Node, site: Site) -> Written:
        if site.schema.gives_sequence:
            try:
                count = slice_elements(node, site, self.editor)
            except ModelError as error:
                raise NoFormError(error.message) from error
            return Written(f"Slice x {count}(axis={site.bind().axis}, bounds computed)", _COMPUTED_BOUNDS)
        size = _axis_size(site)
        if isinstance(size, int) and size > _INT32_MAX and self.editor.opset(node) >= _BOUNDS_AS_INPUTS:
            rewritten = self._slices_of_two_axes(node, site, size)
        else:
            rewritten, _ = self._sliced(node, site)
        return Written(str(rewritten), _bounds_cost(rewritten))

    def _slices_of_two_axes(self, node: ir.Node, site: Site, size: int) -> SplitForm:
        """Write Slices that name a second axis, all of it.

        onnxruntime makes one Split of Slices of one axis that are the whole of it, in 32 bits
        (GatherSliceToSplitFusion). It takes an end of 2^31 - 1 for that of the axis.
        """
        rewritten, data = self._way(node, site, Method.SLICED), node.inputs[0]
        shape = None if data is None else shape_of(data)
        if (
            rewritten is None
            or not rewritten.bounds
            or rewritten.axis is None
            or data is None
            or shape is None
        ):
            raise NoFormError("its bounds cannot be written, or Slice does not take the data")
        pen, flat = self.editor.pen(node), len(shape) == 1
        if flat:
            data = pen.unsqueeze(data, 1)
        other = 0 if rewritten.axis % len(shape) else 1
        axes = pen.integers([rewritten.axis, other])
        parts: list[ir.Value | None] = []
        for output, (begin, end) in zip(node.outputs, rewritten.bounds, strict=True):
            if end == _INT32_MAX:
                end -= size
            stops = pen.integers([_INT64_MAX if end is None else end, _INT64_MAX])
            part = pen.op("Slice", [data, pen.integers([begin or 0, 0]), stops, axes], hint="part")
            parts.append((pen.squeeze(part, 1) if flat else part) if output.name else None)
        pen.replace(node, parts)
        return rewritten

    def _sliced(self, node: ir.Node, site: Site) -> tuple[SplitForm, list[ir.Node]]:
        """Write a Slice for each part that is read, and return them."""
        rewritten = self._way(node, site, Method.SLICED)
        if rewritten is None:
            raise NoFormError("its bounds cannot be written, or Slice does not take the data")
        parts = write_site(node, site, rewritten, self.editor.pen(node))
        made = [None if part is None else part.producer() for part in parts]
        return rewritten, [found for found in made if found is not None]

    def _gathers(self, node: ir.Node, site: Site) -> Written:
        if self.editor.opset(node) < 12:
            raise NoFormError("positions are computed from opset 12 on")
        rewritten, slices = self._sliced(node, site)
        for part in slices:
            _gather_instead(part, rewritten, self.editor.pen(part))
        cost = _bounds_cost(rewritten) or "positions of each part, 8 bytes an entry of the axis"
        return Written(str(rewritten).replace("Slice", "Gather"), cost)

    def _empty(self, node: ir.Node, site: Site) -> Written:
        """Replace Transposes of empty parts by empty tensors."""
        for part, shape in zip(node.outputs, _shapes(site), strict=False):
            if shape is None or 0 not in shape:
                continue
            for use in list(part.uses()):
                if is_operator(use.node, "Transpose"):
                    _made_anew(use.node, part, self.editor.pen(use.node))
        return Written(f"{self._describe(node)}, without Transposes of what is empty")

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
        if len(sizes) > _MOST_OUTPUTS:
            raise NoFormError(f"it has {len(sizes)} parts")
        assert kind is not None
        pen = editor.pen(node)
        if not sizes:
            editor.substitute(node, [pen.op("SequenceEmpty", [], {"dtype": kind.onnx_number})])
            return Written("SequenceEmpty")
        parts = pen.split(data, cut.axis, cut.size, sizes)
        split = editor.describe_maker(parts[0])
        if cut.squeeze:
            parts = [pen.squeeze(part, cut.axis) for part in parts]
        editor.substitute(node, [pen.op("SequenceConstruct", parts)])
        return Written(f"{split}, SequenceConstruct", "a copy of the parts into the sequence")

    def _casts(self, node: ir.Node, site: Site) -> Written:
        before = str(site)
        carrier = carry(node, self.editor)
        return Written(f"{before} on {carrier}", "Casts of the data, and of what is read of it back")


def _axis_size(site: Site) -> Dim | None:
    """Return what is known of the size of the axis, of which given lengths tell too."""
    binding, shape = site.binding, None if site.inference is None else site.inference.data
    return None if binding is None or binding.axis is None or shape is None else shape[binding.axis]


def _is_explicit(rewritten: SplitForm) -> bool:
    return rewritten.division is not None and rewritten.division.rule is SizeRule.EXPLICIT


def _bounds_cost(rewritten: SplitForm) -> str:
    return "" if rewritten.bounds else _COMPUTED_BOUNDS


def _gather_instead(part: ir.Node, rewritten: SplitForm, pen: OnnxPen) -> None:
    """Replace a Slice by a Gather of its positions."""
    data, begin, end, axes = part.inputs
    assert data is not None
    assert begin is not None
    assert end is not None
    assert axes is not None
    bounds = constant_array(begin), constant_array(end)
    # OpenVINO takes a constant without entries for one position.
    if bounds[0] is not None and bounds[1] is not None and 0 < bounds[1] - bounds[0] <= _MOST_POSITIONS:
        positions = pen.integers(range(int(bounds[0][0]), int(bounds[1][0])))
    else:
        if not rewritten.bounds:
            end = pen.op("Min", [end, pen.size(data, axes)])  # the last bounds may lie behind the end
        first, last = (pen.op("Squeeze", [bound]) for bound in (begin, end))
        positions = pen.op("Range", [first, last, pen.constant(np.array(1, np.int64))], hint="positions")
    gathered = pen.op("Gather", [data, positions], {"axis": rewritten.axis}, hint="part")
    pen.replace(part, [gathered])


def _shapes(site: Site) -> Sequence[Shape | None]:
    return () if site.inference is None else site.inference.parts or ()


def _made_anew(transpose: ir.Node, part: ir.Value, pen: OnnxPen) -> None:
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
