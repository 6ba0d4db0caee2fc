"""The forms in which the splits of OpenVINO IR are fixed."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Final

import numpy as np
import onnx_ir as ir

from splitops.models.check.baked import baked_lengths
from splitops.models.check.limits import FixForm
from splitops.models.fix.loosened import loosen_behind
from splitops.models.fix.opening import Opening
from splitops.models.fix.rounds import NoFormError, Written
from splitops.models.fix.trees import write_tree
from splitops.models.graph.meant import FLOATS, meant_site
from splitops.models.graph.onnx import is_read, shape_of, type_of
from splitops.models.graph.openvino import DOMAIN
from splitops.models.graph.openvino_editor import OpenVINOEditor
from splitops.models.graph.pen import shape_like
from splitops.models.simplify.constants import fold_constants
from splitops.models.sites import Site
from splitops.models.sites.operands import describe
from splitops.spec.operators import schema
from splitops.spec.sizes.arithmetic import Division
from splitops.spec.sizes.dims import UNKNOWN
from splitops.spec.sizes.rules import SizeRule

_ANY_SIZE: Final = 1 << 62
_INT32_MAX: Final = (1 << 31) - 1


class OpenVINOForms:
    """Writes forms into a model, whose splits may have at most so many outputs."""

    def __init__(self, editor: OpenVINOEditor, most: int | None, opening: Opening | None = None) -> None:
        self.editor = editor
        self.most = most
        self.opening = opening

    def write(self, form: FixForm, node: ir.Node, site: Site) -> Written:
        """Write a split node in a form, see :class:`~splitops.models.fix.rounds.Forms`."""
        match form:
            case FixForm.TREE:
                return write_tree(node, self.editor, self.most)
            case FixForm.SLICES | FixForm.GATHERS:
                return self._selected(node, form)
            case FixForm.OPEN:
                return self._open(node, site)
            case FixForm.CONSTANTS:
                return self._constants(node)
            case FixForm.EMPTY:
                return self._empty(node, site)
            case FixForm.LENGTHS:
                return self._lengths(node, site)
        raise NoFormError(f"OpenVINO IR has no form {str(form)!r}")

    def _selected(self, node: ir.Node, form: FixForm) -> Written:
        """Write a Slice or a Gather for each part that is read."""
        editor, cut, data = self.editor, self.editor.cut(node), node.inputs[0]
        sizes = None if cut is None else cut.sizes
        if cut is None or sizes is None or data is None:
            raise NoFormError("the sizes of its parts are known only when the model runs")
        if editor.keeps_parts(node):
            raise NoFormError("its ports name outputs of the model")
        sliced = form is FixForm.SLICES
        if sliced and not editor.can_slice(data):
            raise NoFormError(f"Slice does not take {type_of(data)}")
        pen = editor.pen(node)
        parts: list[ir.Value | None] = []
        for output, (begin, end) in zip(node.outputs, pairwise([0, *accumulate(sizes)]), strict=True):
            if not is_read(output):
                parts.append(None)
            elif sliced:
                parts.append(pen.slice(data, {cut.axis: slice(begin, end, 1)}))
            else:
                parts.append(pen.gather(data, range(begin, end), cut.axis))
        editor.substitute(node, parts)
        text = f"{'Slice' if sliced else 'Gather'} x {len(sizes)}(axis={cut.axis})"
        return Written(text, "" if sliced else "positions of each part, 8 bytes an entry of the axis")

    def _lengths(self, node: ir.Node, site: Site) -> Written:
        """Write axis and lengths of another form as the operator takes them."""
        meant, pen = meant_site(site), self.editor.pen(node)
        if meant is None:
            raise NoFormError(f"OpenVINO IR has no form {str(FixForm.LENGTHS)!r}")
        inputs = list(node.inputs)
        for index, (before, after) in enumerate(zip(site.facts, meant.facts, strict=True)):
            value = inputs[index]
            if index == 0 or value is None or after is None or (before == after and after.type not in FLOATS):
                continue
            if after.value is not None:
                inputs[index] = pen.constant(np.array(after.value).astype(np.int64), "lengths")
            else:
                inputs[index] = pen.reshape(value, [-1] if after.shape else [], after.shape)
        self.editor.set_inputs(node, inputs)
        return Written(str(self.editor.site(node)))

    def _open(self, node: ir.Node, site: Site) -> Written:
        """Let the lengths follow the size of the axis."""
        lengths, data, axis = baked_lengths(site), node.inputs[0], node.inputs[1]
        if self.opening is None or lengths is None or data is None or axis is None:
            raise NoFormError("--open says how the lengths follow the size of the axis")
        if self.editor.keeps_parts(node):
            raise NoFormError("its ports name outputs of the model")
        division, pen, cost = self.opening.division(lengths), self.editor.pen(node), ""
        is_even = division.rule is SizeRule.EVEN
        bound, row = site.bind(), schema("Split" if is_even else "VariadicSplit", domain=DOMAIN)
        at, count = bound.axis, len(lengths)
        assert at is not None
        if is_even:
            made = pen.split_as(row, division, data, at, [UNKNOWN] * count)
        else:
            # Of a -1, OpenVINO does not check that anything is left.
            inputs = [data, axis, pen.clamped_lengths(data, at, *clamps(division))]
            made, cost = pen.multi(row.name, inputs, outputs=count), "a few layers that compute the lengths"
            pen.told(made, type_of(data), *[shape_like(data, {at: UNKNOWN})] * count)
        split = made[0].producer()
        assert split is not None
        self.editor.substitute(node, list(made))
        loosen_behind(self.editor.model, split)
        shown = division if is_even else None
        return Written(describe(row, at, shown, count).replace("at run time", "computed"), cost)

    def _constants(self, node: ir.Node) -> Written:
        """Replace each part of a constant by a constant."""
        fold_constants(node, self.editor, _ANY_SIZE)
        if any(map(is_read, node.outputs)):
            raise NoFormError("the sizes of its parts are known only when the model runs")
        self.editor.remove(node)
        return Written(self.editor.changes[-1].after)

    def _empty(self, node: ir.Node, site: Site) -> Written:
        """Replace Transposes of empty parts by empty tensors."""
        parts = zip(node.outputs, (site.inference and site.inference.parts) or (), strict=False)
        empty = [part for part, shape in parts if shape is not None and 0 in shape]
        transposes = [use.node for part in empty for use in part.uses() if use.node.op_type == "Transpose"]
        for transpose in transposes:
            self._made_anew(transpose)
        return Written(f"{self.editor.site(node)}, without Transposes of what is empty")

    def _made_anew(self, transpose: ir.Node) -> None:
        editor, (part, order) = self.editor, transpose.inputs
        assert part is not None
        assert order is not None
        kind, rank = type_of(part), shape_of(part)
        if kind is None or not kind.bits or rank is None:
            raise NoFormError(f"an empty tensor of {kind or 'an unknown type'} cannot be written")
        pen = editor.pen(transpose)
        inputs = [pen.sizes(part), order, pen.constant(np.array(0), "axis")]
        moved = pen.told(pen.multi("Gather", inputs), type_of(inputs[0]), (len(rank),))[0]
        nothing = pen.constant(np.zeros((), kind.numpy), "nothing", kind)
        editor.substitute(transpose, [pen.fill(nothing, moved, None)])


def clamps(division: Division) -> tuple[list[int], list[tuple[int, int]]]:
    """Return what is taken from the size of an axis for each length, and the bounds of the length."""
    if division.rule is SizeRule.CHUNK:
        chunk, count = division.chunk, division.count
        return [index * chunk for index in range(count)], [(0, chunk)] * count
    others = sum(length for length in division.lengths if length >= 0)
    bounds = [(0, _INT32_MAX) if length < 0 else (length, length) for length in division.lengths]
    return [others if length < 0 else 0 for length in division.lengths], bounds
