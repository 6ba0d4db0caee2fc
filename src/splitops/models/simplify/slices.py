"""Rewrites of Slices and Gathers that select whole axes, are nested, or together equal a Split."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import onnx_ir as ir

from splitops.models.abstract_values import AbstractTensor
from splitops.models.graph.editor import Editor, Role
from splitops.models.graph.onnx import find_shape, get_abstract_value
from splitops.models.simplify.bounds import (
    compose,
    drop_whole_axes,
    find_sliced_axis,
    find_stride,
    is_whole_axis,
    list_strided_ranges,
)
from splitops.models.split_nodes.static_facts import partition
from splitops.spec.sizes.dims import UNKNOWN, Shape, to_exact


def remove_whole_slice(node: ir.Node, editor: Editor) -> None:
    """Replace a Slice with its data if it selects all axes whole, for all values of unknown sizes."""
    data, part = node.inputs[0], node.outputs[0]
    shape = None if data is None else find_shape(data)
    bounds = None if shape is None else editor.read_slices(node, len(shape))
    if data is None or shape is None or bounds is None or editor.has_fixed_name(part):
        return
    if drop_whole_axes(bounds, shape):
        return
    before, where = _describe_slice(bounds), editor.locate(node)
    editor.replace(part, data)
    editor.remove(node)
    editor.record(where, before, data.name or "its input", "it selects whole axes")


def merge_slices(node: ir.Node, editor: Editor) -> None:
    """Merge a Slice into the Slices that use it, if nothing else does.

    If both slice the same axis, one pair of bounds must have the same effect for every size of the axis.
    """
    data, part = node.inputs[0], node.outputs[0]
    shape = None if data is None else find_shape(data)
    inner = None if shape is None else editor.read_slices(node, len(shape))
    readers = list(part.consumers())
    if data is None or shape is None or inner is None or not readers or part.is_graph_output():
        return
    merged = [_merge(reader, node, inner, shape, editor) for reader in readers]
    for reader, bounds in zip(readers, merged, strict=True):
        if bounds is None or editor.has_fixed_outputs(reader):
            return
    where, before = editor.locate(node), _describe_slice(inner)
    for reader, bounds in zip(readers, merged, strict=True):
        assert bounds is not None
        editor.substitute(reader, [editor.make_builder(reader).slice(data, bounds)])
    editor.remove(node)
    after = (
        f"{_describe_slice(bounds)}" if len(readers) == 1 and bounds else f"{len(readers)} Slices of its data"
    )
    editor.record(where, before, after, "only Slices read it")


def _merge(
    reader: ir.Node, node: ir.Node, inner: dict[int, slice], shape: Shape, editor: Editor
) -> dict[int, slice] | None:
    """Return the bounds of the one Slice that equals two consecutive ones, or None if there is none."""
    if reader.graph is not node.graph or editor.find_role(reader) is not Role.SLICE:
        return None
    if reader.inputs[0] is not node.outputs[0] or node.outputs[0] in reader.inputs[1:]:
        return None
    outer = editor.read_slices(reader, len(shape))
    if outer is None:
        return None
    merged = dict(inner)
    for axis, taken in outer.items():
        both = compose(inner[axis], taken, shape[axis]) if axis in inner else taken
        if both is None:
            return None
        merged[axis] = both
    return drop_whole_axes(merged, shape) or merged


def _describe_slice(bounds: dict[int, slice]) -> str:
    """Return a Slice as text for reports, such as ``Slice(axis 1: 0:4:2)``."""
    parts = []
    for axis, taken in sorted(bounds.items()):
        step = f":{taken.step}" if taken.step != 1 else ""
        end = "" if is_whole_axis(slice(0, taken.stop, 1), UNKNOWN) else taken.stop
        parts.append(f"axis {axis}: {taken.start}:{end}{step}")
    return f"Slice({', '.join(parts)})"


def _find_sliced_axis(node: ir.Node, shape: Shape, editor: Editor) -> tuple[int, range] | None:
    """Return the result of :func:`find_sliced_axis` for a Slice, or None if its bounds are unknown."""
    bounds = editor.read_slices(node, len(shape))
    return None if bounds is None else find_sliced_axis(bounds, shape)


def _read_inner_sizes(shape: Shape, axis: int) -> tuple[int, ...] | None:
    """Return the sizes after ``axis``, or None if one is unknown or 0, so that a Reshape cannot set it."""
    sizes = to_exact(shape[axis + 1 :])
    return None if sizes is None or 0 in sizes else sizes


# Nodes that select positions on an axis of a tensor, and together cover the axis

ReadPositions = Callable[[ir.Node, Shape, Editor], tuple[int, range] | None]
"""Function that returns the axis and the positions that a node selects, or None if it does not match."""


def replace_slices(node: ir.Node, editor: Editor) -> None:
    """Replace Slices of one tensor that together cover an axis of known size with a Split."""
    _replace_by_split(node, editor, _read_contiguous_slice)


def replace_strided_slices(node: ir.Node, editor: Editor) -> None:
    """Replace n Slices with step n, one from each of the first n positions, with Reshape, Split and Squeezes.

    ``x[..., 0::2]`` and ``x[..., 1::2]`` of rotary embeddings become the parts of an axis of size 2, which
    the Reshape adds. There are more nodes than before, but they are about twice as fast: a Slice in steps
    copies one element at a time.
    """
    _replace_by_split(node, editor, _read_strided_slice, strided=True)


def replace_gathers(node: ir.Node, editor: Editor) -> None:
    """Replace Gathers of adjacent positions that together cover an axis of known size with a Split."""
    _replace_by_split(node, editor, partial(_read_gather, rank=1))


def replace_scalar_gathers(node: ir.Node, editor: Editor) -> None:
    """Replace scalar Gathers of all positions of an axis with a Split and a Squeeze for each position.

    This adds nodes: use it only for runtimes in which Split is faster than Gather.
    """
    _replace_by_split(node, editor, partial(_read_gather, rank=0), squeezed=True)


def _read_contiguous_slice(node: ir.Node, shape: Shape, editor: Editor) -> tuple[int, range] | None:
    """Return the axis and the positions of a Slice of one axis in steps of 1, or None for other nodes."""
    found = _find_sliced_axis(node, shape, editor)
    return found if found is not None and found[1].step == 1 else None


def _read_strided_slice(node: ir.Node, shape: Shape, editor: Editor) -> tuple[int, range] | None:
    """Return the axis and positions of a Slice with a step above 1, or None if no Reshape can replace it."""
    found = _find_sliced_axis(node, shape, editor)
    if found is None or _read_inner_sizes(shape, found[0]) is None:
        return None
    return found if found[1].step > 1 else None


def _replace_by_split(
    node: ir.Node, editor: Editor, taken: ReadPositions, *, strided: bool = False, squeezed: bool = False
) -> None:
    """Replace nodes that share the data and role of ``node`` with a Split, if they exactly cover an axis.

    ``taken`` returns the positions that each of them selects.
    """
    data, role = node.inputs[0], editor.find_role(node)
    tensor = None if data is None else get_abstract_value(data)
    if data is None or not isinstance(tensor, AbstractTensor) or tensor.shape is None or node.graph is None:
        return
    if not editor.is_first_visit(data, node.graph) or not _can_split(tensor, editor, node):
        return
    axes: dict[int, dict[ir.Node, range]] = {}
    for reader in data.consumers():
        if reader.graph is not node.graph or editor.find_role(reader) is not role:
            continue
        if editor.has_fixed_name(reader.outputs[0]):
            continue
        if reader.inputs[0] is data and editor.find_position(reader) is not None:
            own = taken(reader, tensor.shape, editor)
            if own is not None:
                axes.setdefault(own[0], {})[reader] = own[1]
    for axis, readers in axes.items():
        size, positions = tensor.shape[axis], readers.values()
        assert isinstance(size, int), "positions are known only if the size is"
        spans = (
            list_strided_ranges(find_stride(positions, size) or 0, size)
            if strided
            else _partition_axis(positions, size)
        )
        if len(spans) > 1:
            _write_split(data, axis, spans, readers, editor, strided=strided, squeezed=squeezed)
            return


def _partition_axis(taken: Iterable[range], size: int) -> list[range]:
    """Return the ranges in ``taken`` that exactly cover an axis, in order. The list is empty if none do."""
    found = partition([(positions.start, positions.stop) for positions in taken], size)
    return [range(begin, end) for begin, end in found or ()]


def _write_split(
    data: ir.Value,
    axis: int,
    spans: Sequence[range],
    readers: Mapping[ir.Node, range],
    editor: Editor,
    *,
    strided: bool,
    squeezed: bool,
) -> None:
    first = min(readers, key=lambda reader: editor.find_position(reader) or 0)
    where, before = editor.locate(first), f"{len(readers)} x {first.op_type}(axis={axis})"
    builder, shape = editor.make_builder(first), find_shape(data)
    sizes = [len(positions) for positions in spans]
    if strided and shape is not None:  # the axis becomes two: the steps, and the positions in a step
        inner = [sizes[0], len(spans), *(_read_inner_sizes(shape, axis) or ())]
        data = builder.reshape(data, [0] * axis + inner, (*shape[:axis], *inner))
        axis, sizes = axis + 1, [1] * len(spans)
    parts = builder.split(data, axis, sum(sizes), sizes)
    by_positions = dict(zip(spans, parts, strict=True))
    for reader, positions in readers.items():
        if positions in by_positions:
            part = by_positions[positions]
            part = editor.make_builder(reader).squeeze(part, axis) if strided or squeezed else part
            editor.replace(reader.outputs[0], part)
            editor.remove(reader)
    editor.record(where, before, editor.describe_producer(parts[0]), "they are the parts of one axis")


def _can_split(found: AbstractTensor, editor: Editor, node: ir.Node) -> bool:
    schemas = editor.make_builder(node).schemas
    return found.type is not None and any(
        found.type in schema.types_of(schema.inputs[0]) for schema in schemas
    )


def find_gathered_axis(
    node: ir.Node, data: ir.Value, shape: Shape, editor: Editor
) -> tuple[int, list[ir.Node]] | None:
    """Return the axis of a scalar Gather, and the Gathers of each of its positions, in order.

    Return None if they are not exactly the uses of ``data``, or if a Split does not accept its element type.
    """
    found, first = get_abstract_value(data), _read_gather(node, shape, editor, rank=0)
    if first is None or not isinstance(found, AbstractTensor) or not _can_split(found, editor, node):
        return None
    size, readers = shape[first[0]], list(data.consumers())
    if not isinstance(size, int) or len(readers) != size:
        return None
    by_position: dict[int, ir.Node] = {}
    for reader in readers:
        if editor.find_role(reader) is not Role.GATHER or reader.graph is not node.graph:
            return None
        taken = None if editor.find_position(reader) is None else _read_gather(reader, shape, editor, rank=0)
        if taken is None or taken[0] != first[0] or reader.inputs[0] is not data:
            return None
        by_position[taken[1].start] = reader
    return (first[0], [by_position[at] for at in range(size)]) if len(by_position) == size else None


def _read_gather(node: ir.Node, shape: Shape, editor: Editor, rank: int) -> tuple[int, range] | None:
    found = editor.read_gather(node)
    if found is None:
        return None
    axis, array = found
    axis = axis + len(shape) if axis < 0 else axis
    size = shape[axis] if 0 <= axis < len(shape) else None
    if not isinstance(size, int) or array.ndim != rank or not array.size:
        return None
    positions = [int(index) for index in array.reshape(-1).tolist()]
    if any(not -size <= index < size for index in positions):
        return None
    begin = positions[0] % size
    if [index % size for index in positions] != list(range(begin, begin + len(positions))):
        return None
    return axis, range(begin, begin + len(positions))
