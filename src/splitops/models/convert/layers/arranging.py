"""Converters of layers that copy, pad and rearrange whole tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import onnx_ir as ir

from splitops.common.integers import INT64_MAX
from splitops.models.convert.layer_op_builder import LayerOpBuilder
from splitops.models.convert.layers.converter import LayerConverter
from splitops.models.ops.writing import (
    NodeWriter,
    as_int64,
    get_length,
    get_rank,
    read_integers,
    require,
    unwrap,
)


def _write_broadcast(
    builder: LayerOpBuilder, data: ir.Value, shape: ir.Value, *mapping: ir.Value
) -> ir.Value:
    mode = builder.layer.read_enum("mode", ("explicit", "none", "numpy", "bidirectional"), "numpy")
    if mode in ("explicit", "none"):  # version 1 has both names for this mode
        axes = read_integers(builder, mapping[0], "axes_mapping")
        rank = get_length(builder, shape, f"the rank of the output of {builder.layer}")
        others = [axis for axis in range(rank) if axis not in axes]
        require(builder, axes == sorted(axes), "changes the order of the axes, which ONNX does not")
        data = builder.add("Unsqueeze", [data, builder.add_ints(others)]) if others else data
    return builder.add("Expand", [data, as_int64(builder, shape)])


def _write_tile(builder: LayerOpBuilder, data: ir.Value, repeats: ir.Value) -> ir.Value:
    rank = get_rank(builder, data)
    count = get_length(builder, repeats, f"the number of repeats of {builder.layer}")
    repeats = as_int64(builder, repeats)
    if count < rank:
        repeats = builder.add("Concat", [builder.add_ints([1] * (rank - count)), repeats], {"axis": 0})
    elif count > rank:
        data = builder.add("Unsqueeze", [data, builder.add_ints(range(count - rank))])
    return builder.add("Tile", [data, repeats])


def _write_pad(
    builder: LayerOpBuilder, data: ir.Value, begin: ir.Value, end: ir.Value, *value: ir.Value
) -> ir.Value:
    mode = builder.layer.read_enum("pad_mode", ("constant", "edge", "reflect"))
    pads = builder.add("Concat", [as_int64(builder, begin), as_int64(builder, end)], {"axis": 0})
    # ONNX pads with zeros if this value is absent.
    constant = value[:1] if mode == "constant" else []
    return builder.add("Pad", [data, pads, *constant], {"mode": mode})


_MASKS: Final = ("begin_mask", "end_mask", "new_axis_mask", "shrink_axis_mask", "ellipsis_mask")


@dataclass(frozen=True, slots=True)
class _Bound:
    """One entry of the bounds and masks of a StridedSlice. A masked bound is the start or end of the axis."""

    begin: int | ir.Value
    end: int | ir.Value
    step: int
    begin_mask: int
    end_mask: int
    new_axis_mask: int
    shrink_axis_mask: int
    ellipsis_mask: int

    def as_slice(self, builder: LayerOpBuilder) -> tuple[int | ir.Value, int | ir.Value, int]:
        """Return the begin, end and step of an ONNX Slice along the axis."""
        if self.shrink_axis_mask:
            if isinstance(self.begin, int):
                return self.begin, INT64_MAX if self.begin == -1 else self.begin + 1, 1
            last = builder.add("Equal", [self.begin, builder.add_ints([-1])])
            following = builder.add("Add", [self.begin, builder.add_ints([1])])
            return self.begin, builder.add("Where", [last, builder.add_ints([INT64_MAX]), following]), 1
        begin = self.begin if not self.begin_mask else 0 if self.step > 0 else INT64_MAX
        end = self.end if not self.end_mask else INT64_MAX if self.step > 0 else -INT64_MAX
        return begin, end, self.step


def _write_strided_slice(builder: LayerOpBuilder, *sources: ir.Value) -> ir.Value:
    """Write a Slice, a Squeeze of the dropped axes, and an Unsqueeze for the added axes."""
    data = builder.add("Identity", [sources[0]])
    rows: list[tuple[int | ir.Value, int | ir.Value, int, int]] = []
    dropped: list[int] = []
    added: list[int] = []
    axis = 0
    bounds = _read_bounds(builder, sources)
    for bound in bounds:
        if bound.ellipsis_mask:
            explicit = sum(not (each.new_axis_mask or each.ellipsis_mask) for each in bounds)
            axis += get_rank(builder, sources[0]) - explicit
        elif bound.new_axis_mask:
            added.append(axis + len(added) - len(dropped))
        else:
            if bound.shrink_axis_mask:
                dropped.append(axis)
            begin, end, step = bound.as_slice(builder)
            if (begin, end, step) != (0, INT64_MAX, 1):
                rows.append((begin, end, axis, step))
            axis += 1
    if rows:
        data = builder.add("Slice", [data, *(_join(builder, column) for column in zip(*rows, strict=True))])
    if dropped:
        data = builder.add("Squeeze", [data, builder.add_ints(dropped)])
    if added:
        data = builder.add("Unsqueeze", [data, builder.add_ints(added)])
    return data


def _read_bounds(builder: LayerOpBuilder, sources: Sequence[ir.Value]) -> list[_Bound]:
    count, steps = None, sources[3:]
    for value in sources[1:]:
        shape = builder.find_shape(value)
        count = shape[0] if shape and isinstance(shape[0], int) else count
    count = unwrap(count, f"the number of bounds of {builder.layer}")
    masks = [[*builder.layer.read_integers(name, []), *[0] * count][:count] for name in _MASKS]
    begins, ends = (
        [
            0 if masked else number
            for masked, number in zip(mask, _unpack(builder, value, count, mask), strict=True)
        ]
        for value, mask in zip(sources[1:3], masks, strict=False)
    )
    strides = read_integers(builder, steps[0], "steps") if steps else [1] * count
    bounds = [_Bound(*row) for row in zip(begins, ends, strides, *masks, strict=True)]
    require(builder, sum(bound.ellipsis_mask for bound in bounds) <= 1, "has two ellipses")
    both = any(bound.begin_mask and bound.shrink_axis_mask and not bound.ellipsis_mask for bound in bounds)
    require(builder, not both, "sets begin_mask and shrink_axis_mask for the same axis")
    return bounds


def _unpack(
    builder: LayerOpBuilder, value: ir.Value, count: int, left_out: Sequence[int]
) -> list[int | ir.Value]:
    """Return the ``count`` integers of a value: numbers if it is constant, otherwise values of shape [1].

    Computed integers at positions that ``left_out`` marks are not read: they are returned as 0.
    """
    constant = builder.read_constant(value)
    if constant is not None:
        numbers: list[int | ir.Value] = constant.reshape(-1).tolist()
        return numbers
    wide = as_int64(builder, value)
    return [
        0 if left_out[at] else builder.add("Gather", [wide, builder.add_ints([at])]) for at in range(count)
    ]


def _join(builder: LayerOpBuilder, numbers: Sequence[int | ir.Value]) -> ir.Value:
    """Concatenate numbers and values of shape [1] into one 1-D value."""
    if all(isinstance(number, int) for number in numbers):
        return builder.add_ints([number for number in numbers if isinstance(number, int)])
    parts = [builder.add_ints([number]) if isinstance(number, int) else number for number in numbers]
    return parts[0] if len(parts) == 1 else builder.add("Concat", parts, {"axis": 0})


def _write_blocks(operator: str, modes: Mapping[str, Any], builder: NodeWriter, data: ir.Value) -> ir.Value:
    """Write a DepthToSpace or SpaceToDepth. ``modes`` has the attributes of the node for each mode."""
    require(builder, get_rank(builder, data) == 4, "can be converted only for data of rank 4")
    attributes = builder.layer.read_enum("mode", modes)
    size = builder.layer.read_integers("block_size", [1])[0]
    return builder.add(operator, [data], {"blocksize": size, **attributes})


def _write_shuffle_channels(builder: LayerOpBuilder, data: ir.Value) -> ir.Value:
    rank = get_rank(builder, data)
    (axis,), (groups,) = (builder.layer.read_integers(name, [1]) for name in ("axis", "group"))
    axis %= rank
    sizes = builder.add("Shape", [data])
    before = builder.add("Slice", [sizes, builder.add_ints([0]), builder.add_ints([axis])])
    after = builder.add("Slice", [sizes, builder.add_ints([axis + 1]), builder.add_ints([INT64_MAX])])
    shape = builder.add("Concat", [before, builder.add_ints([groups, -1]), after], {"axis": 0})
    order = [*range(axis), axis + 1, axis, *range(axis + 2, rank + 1)]
    shuffled = builder.add("Transpose", [builder.add("Reshape", [data, shape])], {"perm": order})
    return builder.add("Reshape", [shuffled, sizes])


def _write_roll(
    builder: LayerOpBuilder, data: ir.Value, given_shift: ir.Value, given_axes: ir.Value
) -> ir.Value:
    axes, sizes = read_integers(builder, given_axes), builder.find_shape(data)
    shifts = unwrap(builder.find_shape(given_shift), f"the number of shifts of {builder.layer}")
    single = shifts in ((), (1,))
    turns = builder.add("Reshape", [given_shift, builder.add_ints([-1])]) if shifts == () else given_shift
    for shift, axis in zip(
        _unpack(builder, turns, 1 if single else len(axes), [0] * len(axes)) * (len(axes) if single else 1),
        axes,
        strict=True,
    ):
        size = None if sizes is None else sizes[axis]
        if isinstance(size, int) and isinstance(shift, int):
            cut: int | ir.Value = -shift % size if size else 0
        else:
            dynamic = builder.add_size(data, builder.add_ints([axis]))
            length = builder.add("Max", [dynamic, builder.add_ints([1])])
            back = builder.add_ints([-shift]) if isinstance(shift, int) else builder.add("Neg", [shift])
            cut = builder.add("Mod", [back, length])
        if cut == 0:
            continue
        parts = [
            builder.add(
                "Slice", [data, _join(builder, [begin]), _join(builder, [end]), builder.add_ints([axis])]
            )
            for begin, end in ((cut, INT64_MAX), (0, cut))
        ]
        data = builder.add("Concat", parts, {"axis": axis})
    return builder.add("Identity", [data])


_DEPTH_MODES: Final = {"blocks_first": {"mode": "DCR"}, "depth_first": {"mode": "CRD"}}
ARRANGING: Final = (
    LayerConverter(layer="Broadcast", versions=(1, 3), write=_write_broadcast),
    LayerConverter(layer="Tile", write=_write_tile),
    LayerConverter(layer="Pad", versions=(1, 12), write=_write_pad),
    LayerConverter(layer="StridedSlice", write=_write_strided_slice),
    LayerConverter(layer="DepthToSpace", write=partial(_write_blocks, "DepthToSpace", _DEPTH_MODES)),
    LayerConverter(layer="SpaceToDepth", write=partial(_write_blocks, "SpaceToDepth", {"blocks_first": {}})),
    LayerConverter(layer="ShuffleChannels", write=_write_shuffle_channels),
    LayerConverter(layer="Roll", versions=(7,), write=_write_roll),
)
