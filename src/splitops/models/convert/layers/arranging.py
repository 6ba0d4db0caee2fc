"""Layers that copy, pad and rearrange whole tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import onnx_ir as ir

from splitops.models.convert.layer_op_builder import LayerOpBuilder
from splitops.models.convert.layers.form import LayerForm, opsets
from splitops.models.formats.openvino import Layer
from splitops.models.ops.writing import (
    as_int64,
    axes_of,
    length_of,
    must_know,
    rank_of,
    require,
)


def _broadcast(builder: LayerOpBuilder, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    data, shape, *mapping = sources
    mode = layer.read_enum("mode", ("explicit", "none", "numpy", "bidirectional"), "numpy")
    if mode in ("explicit", "none"):  # version 1 has both words for it
        axes = axes_of(builder, layer, mapping[0], "axes_mapping")
        rank = length_of(builder, shape, f"the rank of what {layer} gives")
        others = [axis for axis in range(rank) if axis not in axes]
        require(axes == sorted(axes), f"{layer} changes the order of the axes")
        data = builder.op("Unsqueeze", [data, builder.integers(others)]) if others else data
    return builder.op("Expand", [data, as_int64(builder, shape)])


def _tile(builder: LayerOpBuilder, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    data, repeats = sources
    rank, count = rank_of(builder, layer, data), length_of(builder, repeats, f"how many repeats {layer} has")
    repeats = as_int64(builder, repeats)
    if count < rank:
        repeats = builder.op("Concat", [builder.integers([1] * (rank - count)), repeats], {"axis": 0})
    elif count > rank:
        data = builder.op("Unsqueeze", [data, builder.integers(range(count - rank))])
    return builder.op("Tile", [data, repeats])


def _pad(builder: LayerOpBuilder, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    data, begin, end, *value = sources
    mode = layer.read_enum("pad_mode", ("constant", "edge", "reflect"))
    pads = builder.op("Concat", [as_int64(builder, begin), as_int64(builder, end)], {"axis": 0})
    # ONNX pads with zeros, or what is here.
    filled = value[:1] if mode == "constant" else []
    return builder.op("Pad", [data, pads, *filled], {"mode": mode})


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

    def as_slice(self, builder: LayerOpBuilder) -> tuple[int | ir.Value, int | ir.Value, int]:
        """Return begin, end and step as ONNX declares them."""
        if self.shrink_axis_mask:
            if isinstance(self.begin, int):
                return self.begin, _FAR if self.begin == -1 else self.begin + 1, 1
            last = builder.op("Equal", [self.begin, builder.integers([-1])])
            following = builder.op("Add", [self.begin, builder.integers([1])])
            return self.begin, builder.op("Where", [last, builder.integers([_FAR]), following]), 1
        begin = self.begin if not self.begin_mask else 0 if self.step > 0 else _FAR
        end = self.end if not self.end_mask else _FAR if self.step > 0 else -_FAR
        return begin, end, self.step


def _strided_slice(builder: LayerOpBuilder, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    """Write a slice, and apart from it the axes that are dropped or added."""
    data = builder.op("Identity", [sources[0]])
    rows: list[tuple[int | ir.Value, int | ir.Value, int, int]] = []
    dropped: list[int] = []
    added: list[int] = []
    axis = 0
    bounds = _bounds(builder, layer, sources)
    for bound in bounds:
        if bound.ellipsis_mask:
            taken = sum(not (other.new_axis_mask or other.ellipsis_mask) for other in bounds)
            axis += rank_of(builder, layer, sources[0]) - taken
        elif bound.new_axis_mask:
            added.append(axis + len(added) - len(dropped))
        else:
            if bound.shrink_axis_mask:
                dropped.append(axis)
            begin, end, step = bound.as_slice(builder)
            if (begin, end, step) != (0, _FAR, 1):
                rows.append((begin, end, axis, step))
            axis += 1
    if rows:
        data = builder.op("Slice", [data, *(_column(builder, column) for column in zip(*rows, strict=True))])
    if dropped:
        data = builder.op("Squeeze", [data, builder.integers(dropped)])
    if added:
        data = builder.op("Unsqueeze", [data, builder.integers(added)])
    return data


def _bounds(builder: LayerOpBuilder, layer: Layer, sources: Sequence[ir.Value]) -> list[_Bound]:
    count, steps = None, sources[3:]
    for value in sources[1:]:
        shape = builder.shape_of(value)
        count = shape[0] if shape and isinstance(shape[0], int) else count
    count = must_know(count, f"how many bounds {layer} has")
    masks = [[*layer.read_integers(name, []), *[0] * count][:count] for name in _MASKS]
    begins, ends = (
        [
            0 if masked else number
            for masked, number in zip(mask, _numbers(builder, value, count, mask), strict=True)
        ]
        for value, mask in zip(sources[1:3], masks, strict=False)
    )
    strides = axes_of(builder, layer, steps[0], "steps") if steps else [1] * count
    found = [_Bound(*row) for row in zip(begins, ends, strides, *masks, strict=True)]
    require(sum(bound.ellipsis_mask for bound in found) <= 1, f"{layer} has two ellipses")
    both = any(bound.begin_mask and bound.shrink_axis_mask and not bound.ellipsis_mask for bound in found)
    require(not both, f"{layer} drops an axis at a position that it masks")
    return found


def _numbers(
    builder: LayerOpBuilder, value: ir.Value, count: int, left_out: Sequence[int]
) -> list[int | ir.Value]:
    """Return each of some integers: a number, or a value of shape [1] where it is computed and read."""
    stated = builder.read_constant(value)
    if stated is not None:
        found: list[int | ir.Value] = stated.reshape(-1).tolist()
        return found
    wide = as_int64(builder, value)
    return [
        0 if left_out[at] else builder.op("Gather", [wide, builder.integers([at])]) for at in range(count)
    ]


def _column(builder: LayerOpBuilder, numbers: Sequence[int | ir.Value]) -> ir.Value:
    """Return numbers and values of shape [1] as one value."""
    if all(isinstance(number, int) for number in numbers):
        return builder.integers([number for number in numbers if isinstance(number, int)])
    parts = [builder.integers([number]) if isinstance(number, int) else number for number in numbers]
    return parts[0] if len(parts) == 1 else builder.op("Concat", parts, {"axis": 0})


def _depth_to_space(builder: LayerOpBuilder, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    require(rank_of(builder, layer, sources[0]) == 4, f"{layer} is not of images")
    mode = layer.read_enum("mode", {"blocks_first": "DCR", "depth_first": "CRD"})
    size = layer.read_integers("block_size", [1])[0]
    return builder.op("DepthToSpace", sources, {"blocksize": size, "mode": mode})


def _space_to_depth(builder: LayerOpBuilder, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    require(rank_of(builder, layer, sources[0]) == 4, f"{layer} is not of images")
    layer.read_enum("mode", ("blocks_first",))
    return builder.op("SpaceToDepth", sources, {"blocksize": layer.read_integers("block_size", [1])[0]})


def _shuffle_channels(builder: LayerOpBuilder, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    (data,) = sources
    rank = rank_of(builder, layer, data)
    axis, (groups,) = layer.read_integers("axis", [1])[0] % rank, layer.read_integers("group", [1])
    sizes = builder.op("Shape", [data])
    before = builder.op("Slice", [sizes, builder.integers([0]), builder.integers([axis])])
    behind = builder.op("Slice", [sizes, builder.integers([axis + 1]), builder.integers([_FAR])])
    shape = builder.op("Concat", [before, builder.integers([groups, -1]), behind], {"axis": 0})
    order = [*range(axis), axis + 1, axis, *range(axis + 2, rank + 1)]
    turned = builder.op("Transpose", [builder.op("Reshape", [data, shape])], {"perm": order})
    return builder.op("Reshape", [turned, sizes])


def _roll(builder: LayerOpBuilder, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    data, given_shift, given_axes = sources
    axes, sizes = axes_of(builder, layer, given_axes), builder.shape_of(data)
    shifts = must_know(builder.shape_of(given_shift), f"how many shifts {layer} has")
    single = shifts in ((), (1,))
    turns = builder.op("Reshape", [given_shift, builder.integers([-1])]) if shifts == () else given_shift
    for shift, axis in zip(
        _numbers(builder, turns, 1 if single else len(axes), [0] * len(axes)) * (len(axes) if single else 1),
        axes,
        strict=True,
    ):
        size = None if sizes is None else sizes[axis]
        if isinstance(size, int) and isinstance(shift, int):
            cut: int | ir.Value = -shift % size if size else 0
        else:
            length = builder.op("Max", [builder.size(data, builder.integers([axis])), builder.integers([1])])
            back = builder.integers([-shift]) if isinstance(shift, int) else builder.op("Neg", [shift])
            cut = builder.op("Mod", [back, length])
        if cut == 0:
            continue
        parts = [
            builder.op(
                "Slice", [data, _column(builder, [begin]), _column(builder, [end]), builder.integers([axis])]
            )
            for begin, end in ((cut, _FAR), (0, cut))
        ]
        data = builder.op("Concat", parts, {"axis": axis})
    return builder.op("Identity", [data])


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
