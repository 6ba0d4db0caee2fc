"""Layers that copy, pad and rearrange whole tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import onnx_ir as ir

from splitops.models.convert.pens import LayerPen
from splitops.models.formats.openvino import Layer
from splitops.models.movers.form import (
    LayerForm,
    as_int64,
    axes_of,
    length_of,
    must_know,
    opsets,
    prove,
    rank_of,
)


def _broadcast(pen: LayerPen, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    data, shape, *mapping = sources
    mode = layer.word("mode", ("explicit", "none", "numpy", "bidirectional"), "numpy")
    if mode in ("explicit", "none"):  # version 1 has both words for it
        axes = axes_of(pen, layer, mapping[0], "axes_mapping")
        rank = length_of(pen, shape, f"the rank of what {layer} gives")
        others = [axis for axis in range(rank) if axis not in axes]
        prove(axes == sorted(axes), f"{layer} changes the order of the axes")
        data = pen.op("Unsqueeze", [data, pen.integers(others)]) if others else data
    return pen.op("Expand", [data, as_int64(pen, shape)])


def _tile(pen: LayerPen, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    data, repeats = sources
    rank, count = rank_of(pen, layer, data), length_of(pen, repeats, f"how many repeats {layer} has")
    repeats = as_int64(pen, repeats)
    if count < rank:
        repeats = pen.op("Concat", [pen.integers([1] * (rank - count)), repeats], {"axis": 0})
    elif count > rank:
        data = pen.op("Unsqueeze", [data, pen.integers(range(count - rank))])
    return pen.op("Tile", [data, repeats])


def _pad(pen: LayerPen, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    data, begin, end, *value = sources
    mode = layer.word("pad_mode", ("constant", "edge", "reflect"))
    pads = pen.op("Concat", [as_int64(pen, begin), as_int64(pen, end)], {"axis": 0})
    # ONNX pads with zeros, or what is here.
    filled = value[:1] if mode == "constant" else []
    return pen.op("Pad", [data, pads, *filled], {"mode": mode})


_FAR: Final = (1 << 63) - 1
"""After the end of every axis."""
_MASKS: Final = ("begin_mask", "end_mask", "new_axis_mask", "shrink_axis_mask", "ellipsis_mask")


@dataclass(frozen=True, slots=True)
class _Bound:
    """How a StridedSlice slices one axis; a mask that is 1 takes the end of the axis for a bound."""

    begin: int | ir.Value
    end: int | ir.Value
    step: int
    begin_mask: int
    end_mask: int
    new_axis_mask: int
    shrink_axis_mask: int
    ellipsis_mask: int

    def as_slice(self, pen: LayerPen) -> tuple[int | ir.Value, int | ir.Value, int]:
        """Return begin, end and step as ONNX declares them."""
        if self.shrink_axis_mask:
            if isinstance(self.begin, int):
                return self.begin, _FAR if self.begin == -1 else self.begin + 1, 1
            last = pen.op("Equal", [self.begin, pen.integers([-1])])
            following = pen.op("Add", [self.begin, pen.integers([1])])
            return self.begin, pen.op("Where", [last, pen.integers([_FAR]), following]), 1
        begin = self.begin if not self.begin_mask else 0 if self.step > 0 else _FAR
        end = self.end if not self.end_mask else _FAR if self.step > 0 else -_FAR
        return begin, end, self.step


def _strided_slice(pen: LayerPen, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    """Write a slice, and apart from it the axes that are dropped or added."""
    data = pen.op("Identity", [sources[0]])
    rows: list[tuple[int | ir.Value, int | ir.Value, int, int]] = []
    dropped: list[int] = []
    added: list[int] = []
    axis = 0
    bounds = _bounds(pen, layer, sources)
    for bound in bounds:
        if bound.ellipsis_mask:
            taken = sum(not (other.new_axis_mask or other.ellipsis_mask) for other in bounds)
            axis += rank_of(pen, layer, sources[0]) - taken
        elif bound.new_axis_mask:
            added.append(axis + len(added) - len(dropped))
        else:
            if bound.shrink_axis_mask:
                dropped.append(axis)
            begin, end, step = bound.as_slice(pen)
            if (begin, end, step) != (0, _FAR, 1):
                rows.append((begin, end, axis, step))
            axis += 1
    if rows:
        data = pen.op("Slice", [data, *(_column(pen, column) for column in zip(*rows, strict=True))])
    if dropped:
        data = pen.op("Squeeze", [data, pen.integers(dropped)])
    if added:
        data = pen.op("Unsqueeze", [data, pen.integers(added)])
    return data


def _bounds(pen: LayerPen, layer: Layer, sources: Sequence[ir.Value]) -> list[_Bound]:
    count, steps = None, sources[3:]
    for value in sources[1:]:
        shape = pen.shape_of(value)
        count = shape[0] if shape and isinstance(shape[0], int) else count
    count = must_know(count, f"how many bounds {layer} has")
    masks = [[*layer.integers(name, []), *[0] * count][:count] for name in _MASKS]
    begins, ends = (
        [
            0 if masked else number
            for masked, number in zip(mask, _numbers(pen, value, count, mask), strict=True)
        ]
        for value, mask in zip(sources[1:3], masks, strict=False)
    )
    strides = axes_of(pen, layer, steps[0], "steps") if steps else [1] * count
    found = [_Bound(*row) for row in zip(begins, ends, strides, *masks, strict=True)]
    prove(sum(bound.ellipsis_mask for bound in found) <= 1, f"{layer} has two ellipses")
    both = any(bound.begin_mask and bound.shrink_axis_mask and not bound.ellipsis_mask for bound in found)
    prove(not both, f"{layer} drops an axis at a position that it masks")
    return found


def _numbers(pen: LayerPen, value: ir.Value, count: int, left_out: Sequence[int]) -> list[int | ir.Value]:
    """Return each of some integers: a number, or a value of shape [1] where it is computed and read."""
    stated = pen.numbers(value)
    if stated is not None:
        found: list[int | ir.Value] = stated.reshape(-1).tolist()
        return found
    wide = as_int64(pen, value)
    return [0 if left_out[at] else pen.op("Gather", [wide, pen.integers([at])]) for at in range(count)]


def _column(pen: LayerPen, numbers: Sequence[int | ir.Value]) -> ir.Value:
    """Return numbers and values of shape [1] as one value."""
    if all(isinstance(number, int) for number in numbers):
        return pen.integers([number for number in numbers if isinstance(number, int)])
    parts = [pen.integers([number]) if isinstance(number, int) else number for number in numbers]
    return parts[0] if len(parts) == 1 else pen.op("Concat", parts, {"axis": 0})


def _depth_to_space(pen: LayerPen, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    prove(rank_of(pen, layer, sources[0]) == 4, f"{layer} is not of images")
    mode = layer.word("mode", {"blocks_first": "DCR", "depth_first": "CRD"})
    size = layer.integers("block_size", [1])[0]
    return pen.op("DepthToSpace", sources, {"blocksize": size, "mode": mode})


def _space_to_depth(pen: LayerPen, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    prove(rank_of(pen, layer, sources[0]) == 4, f"{layer} is not of images")
    layer.word("mode", ("blocks_first",))
    return pen.op("SpaceToDepth", sources, {"blocksize": layer.integers("block_size", [1])[0]})


def _shuffle_channels(pen: LayerPen, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    (data,) = sources
    rank = rank_of(pen, layer, data)
    axis, (groups,) = layer.integers("axis", [1])[0] % rank, layer.integers("group", [1])
    sizes = pen.op("Shape", [data])
    before = pen.op("Slice", [sizes, pen.integers([0]), pen.integers([axis])])
    behind = pen.op("Slice", [sizes, pen.integers([axis + 1]), pen.integers([_FAR])])
    shape = pen.op("Concat", [before, pen.integers([groups, -1]), behind], {"axis": 0})
    order = [*range(axis), axis + 1, axis, *range(axis + 2, rank + 1)]
    turned = pen.op("Transpose", [pen.op("Reshape", [data, shape])], {"perm": order})
    return pen.op("Reshape", [turned, sizes])


def _roll(pen: LayerPen, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    data, given_shift, given_axes = sources
    axes, sizes = axes_of(pen, layer, given_axes), pen.shape_of(data)
    shifts = must_know(pen.shape_of(given_shift), f"how many shifts {layer} has")
    single = shifts in ((), (1,))
    turns = pen.op("Reshape", [given_shift, pen.integers([-1])]) if shifts == () else given_shift
    for shift, axis in zip(
        _numbers(pen, turns, 1 if single else len(axes), [0] * len(axes)) * (len(axes) if single else 1),
        axes,
        strict=True,
    ):
        size = None if sizes is None else sizes[axis]
        if isinstance(size, int) and isinstance(shift, int):
            cut: int | ir.Value = -shift % size if size else 0
        else:
            length = pen.op("Max", [pen.size(data, pen.integers([axis])), pen.integers([1])])
            back = pen.integers([-shift]) if isinstance(shift, int) else pen.op("Neg", [shift])
            cut = pen.op("Mod", [back, length])
        if cut == 0:
            continue
        parts = [
            pen.op("Slice", [data, _column(pen, [begin]), _column(pen, [end]), pen.integers([axis])])
            for begin, end in ((cut, _FAR), (0, cut))
        ]
        data = pen.op("Concat", parts, {"axis": axis})
    return pen.op("Identity", [data])


ARRANGING: Final = (
    LayerForm(layer="Broadcast", versions=opsets(1, 3), write=_broadcast),
    LayerForm(layer="Tile", versions=opsets(1), write=_tile),
    LayerForm(layer="Pad", versions=opsets(1, 12), write=_pad),
    LayerForm(layer="StridedSlice", versions=opsets(1), write=_strided_slice),
    LayerForm(layer="DepthToSpace", versions=opsets(1), write=_depth_to_space),
    LayerForm(layer="SpaceToDepth", versions=opsets(1), write=_space_to_depth),
    LayerForm(layer="ShuffleChannels", versions=opsets(1), write=_shuffle_channels),
    LayerForm(layer="Roll", versions=opsets(7), write=_roll),
)
