"""Layers that copy, pad and rearrange whole tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import onnx_ir as ir

from splitops.models.convert.tape import Tape
from splitops.models.formats.openvino import Layer
from splitops.models.movers.form import (
    LayerForm,
    as_int64,
    constant,
    integers,
    opsets,
    prove,
    rank_of,
    text,
)


def _broadcast(tape: Tape, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    data, shape, *mapping = sources
    mode = text(layer, "mode", "numpy")
    if mode in ("explicit", "none"):  # version 1 has both words for it
        axes = [int(axis) for axis in constant(tape, layer, mapping[0], "axes_mapping").reshape(-1)]
        target = tape.shape_of(shape)
        prove(
            target is not None and isinstance(target[0], int), f"the rank of what {layer} gives is not known"
        )
        assert target is not None
        others = [axis for axis in range(int(target[0])) if axis not in axes]  # type: ignore[arg-type]
        prove(axes == sorted(axes), f"{layer} changes the order of the axes")
        data = tape.op("Unsqueeze", [data, tape.integers(others)]) if others else data
    else:
        prove(mode in ("numpy", "bidirectional"), f"{layer} has mode = {mode!r}")
    return tape.op("Expand", [data, as_int64(tape, shape)])


def _tile(tape: Tape, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    data, repeats = sources
    rank, shape = rank_of(tape, layer, data), tape.shape_of(repeats)
    prove(shape is not None and isinstance(shape[0], int), f"how many repeats {layer} has is not known")
    assert shape is not None
    count = int(shape[0])  # type: ignore[arg-type]
    repeats = as_int64(tape, repeats)
    if count < rank:
        repeats = tape.op("Concat", [tape.integers([1] * (rank - count)), repeats], {"axis": 0})
    elif count > rank:
        data = tape.op("Unsqueeze", [data, tape.integers(range(count - rank))])
    return tape.op("Tile", [data, repeats])


def _pad(tape: Tape, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    data, begin, end, *value = sources
    mode = text(layer, "pad_mode")
    prove(mode in ("constant", "edge", "reflect"), f"{layer} has pad_mode = {mode!r}, which ONNX lacks")
    pads = tape.op("Concat", [as_int64(tape, begin), as_int64(tape, end)], {"axis": 0})
    # ONNX pads with zeros, or what is here.
    filled = value[:1] if mode == "constant" else []
    return tape.op("Pad", [data, pads, *filled], {"mode": mode})


_FAR: Final = (1 << 63) - 1
"""After the end of every axis."""
_MASKS: Final = ("begin_mask", "end_mask", "new_axis_mask", "shrink_axis_mask", "ellipsis_mask")


@dataclass(frozen=True, slots=True)
class _Bound:
    """How a StridedSlice slices one axis; a mask that is 1 takes the end of the axis for a bound."""

    begin: int
    end: int
    step: int
    begin_mask: int
    end_mask: int
    new_axis_mask: int
    shrink_axis_mask: int
    ellipsis_mask: int

    def as_slice(self) -> tuple[int, int, int]:
        """Return begin, end and step as ONNX declares them."""
        if self.shrink_axis_mask:
            return self.begin, _FAR if self.begin == -1 else self.begin + 1, 1
        begin = self.begin if not self.begin_mask else 0 if self.step > 0 else _FAR
        end = self.end if not self.end_mask else _FAR if self.step > 0 else -_FAR
        return begin, end, self.step


def _strided_slice(tape: Tape, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    """Write a slice, and apart from it the axes that are dropped or added."""
    data = tape.op("Identity", [sources[0]])
    rows: list[tuple[int, int, int, int]] = []
    dropped: list[int] = []
    added: list[int] = []
    for index, bound in enumerate(_bounds(tape, layer, sources)):
        axis = index - len(added)
        if bound.new_axis_mask:
            added.append(index - len(dropped))
            continue
        if bound.shrink_axis_mask:
            dropped.append(axis)
        begin, end, step = bound.as_slice()
        if (begin, end, step) != (0, _FAR, 1):
            rows.append((begin, end, axis, step))
    if rows:
        data = tape.op("Slice", [data, *(tape.integers(column) for column in zip(*rows, strict=True))])
    if dropped:
        data = tape.op("Squeeze", [data, tape.integers(dropped)])
    if added:
        data = tape.op("Unsqueeze", [data, tape.integers(added)])
    return data


def _bounds(tape: Tape, layer: Layer, sources: Sequence[ir.Value]) -> list[_Bound]:
    columns = [constant(tape, layer, value, "bounds").reshape(-1).tolist() for value in sources[1:]]
    count = len(columns[0])
    steps = columns[2] if len(columns) > 2 else [1] * count
    masks = [[*integers(layer, name, []), *[0] * count][:count] for name in _MASKS]
    found = [_Bound(*row) for row in zip(*columns[:2], steps, *masks, strict=True)]
    prove(not any(bound.ellipsis_mask for bound in found), f"{layer} has an ellipsis")
    both = any(bound.begin_mask and bound.shrink_axis_mask for bound in found)
    prove(not both, f"{layer} drops an axis at a position that it masks")
    return found


def _depth_to_space(tape: Tape, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    mode = text(layer, "mode")
    prove(rank_of(tape, layer, sources[0]) == 4, f"{layer} is not of images")
    words = {"blocks_first": "DCR", "depth_first": "CRD"}
    prove(mode in words, f"{layer} has mode = {mode!r}")
    attributes = {"blocksize": integers(layer, "block_size", [1])[0], "mode": words[mode]}
    return tape.op("DepthToSpace", sources, attributes)


def _space_to_depth(tape: Tape, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    mode = text(layer, "mode")
    prove(rank_of(tape, layer, sources[0]) == 4, f"{layer} is not of images")
    prove(mode == "blocks_first", f"{layer} has mode = {mode!r}, which ONNX lacks")
    return tape.op("SpaceToDepth", sources, {"blocksize": integers(layer, "block_size", [1])[0]})


def _shuffle_channels(tape: Tape, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    (data,) = sources
    rank = rank_of(tape, layer, data)
    axis, (groups,) = integers(layer, "axis", [1])[0] % rank, integers(layer, "group", [1])
    sizes = tape.op("Shape", [data])
    before = tape.op("Slice", [sizes, tape.integers([0]), tape.integers([axis])])
    behind = tape.op("Slice", [sizes, tape.integers([axis + 1]), tape.integers([_FAR])])
    shape = tape.op("Concat", [before, tape.integers([groups, -1]), behind], {"axis": 0})
    order = [*range(axis), axis + 1, axis, *range(axis + 2, rank + 1)]
    turned = tape.op("Transpose", [tape.op("Reshape", [data, shape])], {"perm": order})
    return tape.op("Reshape", [turned, sizes])


def _roll(tape: Tape, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    data, given_shift, given_axes = sources
    shifts = constant(tape, layer, given_shift, "shift").reshape(-1).tolist()
    axes = constant(tape, layer, given_axes, "axes").reshape(-1).tolist()
    shape = tape.shape_of(data)
    for shift, axis in zip(shifts * len(axes) if len(shifts) == 1 else shifts, axes, strict=True):
        size = None if shape is None else shape[axis]
        prove(isinstance(size, int), f"the size of axis {axis} of {layer} is not known")
        assert isinstance(size, int)
        if size and (cut := -shift % size):
            ends = ((cut, _FAR), (0, cut))
            parts = [
                tape.op("Slice", [data, *(tape.integers([n]) for n in (begin, end, axis))])
                for begin, end in ends
            ]
            data = tape.op("Concat", parts, {"axis": axis})
    return tape.op("Identity", [data])


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
