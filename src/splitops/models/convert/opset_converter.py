"""The other operators of an ONNX model, moved from one opset to another node by node.

A node whose form means the same in both versions stays; a few are rewritten here; every other one goes
through onnx's own version converter, alone and version by version, so that one operator which it cannot
convert does not keep the rest of the model from moving. What it cannot do either is replaced by the body that
the operator's schema has, whose nodes are moved in turn.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import onnx_ir as ir

from splitops.errors import ModelError, Where
from splitops.models.abstract_values import AbstractTensor
from splitops.models.convert.empty_reshapes import write_empty_reshape
from splitops.models.convert.onnx_adapter import Adapter, CanonicalNode, NoAdapterError
from splitops.models.formats.onnx.schemas import find_since_version, find_version
from splitops.models.formats.walk import FreshNames, make_stem
from splitops.models.graph.onnx import constant_array, get_abstract_value, shape_of
from splitops.models.graph.op_builder import OnnxOpBuilder
from splitops.spec.sizes.dims import Range

CONSTANTS_OF_EVERY_TYPE: Final = 9
"""The opset of the first Constant that can be of every type."""

_INT64_MAX: Final = (1 << 63) - 1
_MAX_BODIES: Final = 8
"""Bodies of operators inside one another."""

_UNDEFINED_BEFORE: Final[Mapping[str, int]] = {"AveragePool": 7}
"""Versions before which an operator's text leaves values open that the later one defines."""

_ALONG_AXIS: Final = frozenset({"Softmax", "LogSoftmax", "Hardmax"})


_OTHER_DEFAULTS: Final[Mapping[str, Mapping[str, float]]] = {
    "Clip": {"min": -math.inf, "max": math.inf},
    "Selu": {"alpha": 1.6732, "gamma": 1.0507},
}
"""Numbers that the first version leaves to something else than the later ones, and what that is."""


class OpsetConverter:
    """Moves the nodes of a model; what onnx's converter makes of one kind of node is asked for once."""

    def __init__(self, names: FreshNames) -> None:
        self._names = names
        self._adapter = Adapter()

    def convert_node(self, node: ir.Node, old: int, new: int, where: Where) -> Sequence[str] | None:
        """Move one node to another opset, and return the operators that it became; None where it stays."""
        before = find_since_version(node.op_type, old)
        if before is None:
            raise ModelError(f"opset {old} has no operator {node.op_type}", where)
        try:
            return self._convert_version(node, old, new, _MAX_BODIES)
        except NoAdapterError as error:
            after = find_since_version(node.op_type, new)
            version = (
                f"opset {new} has no {node.op_type}"
                if after is None
                else f"it is {node.op_type}-{after} there"
            )
            raise ModelError(
                f"{node.op_type}-{before} cannot be moved to opset {new}: {version}, and {error}", where
            ) from error

    def _convert_version(self, node: ir.Node, old: int, new: int, bodies: int) -> Sequence[str] | None:
        before, after = find_since_version(node.op_type, old), find_since_version(node.op_type, new)
        assert before is not None  # move has asked, and a body has what its opset has
        if before == after:
            return None
        if not _nonnegative_axes(node, before, after or 0):
            raise NoAdapterError("an axis is negative, of an unknown rank")
        if node.op_type in _UNDEFINED_BEFORE and (after or 0) < _UNDEFINED_BEFORE[node.op_type] <= before:
            raise NoAdapterError("its text does not say what padding counts for")
        if _needs_allowzero(node, new):
            write_empty_reshape(node, new, self._names)
            return ["If", "Reshape"]
        if _reduces_nothing(node, new):
            builder = OnnxOpBuilder(new, self._names, make_stem(node))
            builder.replace(node, [builder.op("Identity", [node.inputs[0]])])
            return ["Identity"]
        _state_defaults(node, old, new)
        if after is not None and self._adapter.unchanged(node, old, new):
            _drop_new_attributes(node, new)
            return None
        if node.op_type == "Constant" and (folded := _folded_constant(node)):
            node.attributes.clear()
            node.attributes["value"] = folded
            return ["Constant"]
        if node.op_type == "Constant" and "value" in node.attributes and new < CONSTANTS_OF_EVERY_TYPE:
            return None  # an initializer takes its place
        canonical = CanonicalNode.of(node)
        if canonical.is_open:
            raise NoAdapterError("it has a body or an attribute of its caller")
        if node.op_type == "Shape" and new < 15:
            return _sliced_shape(node, new, self._names)
        if node.op_type in _ALONG_AXIS and before >= 13 > new:
            # onnx's converter leaves the axis as it is; before version 13 all axes behind it count as one.
            if (rewritten := _along_last_axis(node, new, self._names)) is None:
                raise NoAdapterError("its rank is not known")
            return rewritten
        try:
            moved = self._adapter.convert(canonical, old, new)
        except NoAdapterError as error:
            return self._by_body(node, canonical, old, new, bodies, error)
        return [made.op_type for made in moved.inline(node, self._names)]

    def _by_body(
        self, node: ir.Node, canonical: CanonicalNode, old: int, new: int, bodies: int, error: NoAdapterError
    ) -> Sequence[str]:
        """Replace a node by the body that its schema has, and move the nodes of that."""
        body = self._adapter.body(canonical, old) if bodies else None
        if body is None:
            raise error
        became: list[str] = []
        for made in body.inline(node, self._names):
            try:
                moved = self._convert_version(made, body.opset, new, bodies - 1)
            except NoAdapterError as inner:
                raise NoAdapterError(
                    f"{error}; of the body that it stands for, {made.op_type}: {inner}"
                ) from inner
            became += [made.op_type] if moved is None else moved
        return became


def _needs_allowzero(node: ir.Node, opset: int) -> bool:
    """Return whether a Reshape needs allowzero, which its opset lacks; leave it out where it does not.

    It does not where no size of the result is a 0 that would be copied instead.
    """
    version = find_version(node.op_type, opset)
    if node.op_type != "Reshape" or version is None or "allowzero" in version.attributes:
        return False
    stated = node.attributes.get("allowzero")
    if stated is None or len(node.inputs) < 2 or not (stated.is_ref() or stated.as_int()):
        return False
    data, wanted = node.inputs
    entries = None if wanted is None else _entries(wanted)
    sizes = () if data is None else shape_of(data) or ()
    if entries is not None and all(_is_kept(entry, sizes[i : i + 1]) for i, entry in enumerate(entries)):
        del node.attributes["allowzero"]
        return False
    if stated.is_ref():
        raise NoAdapterError("whether a size of 0 copies one is said by the caller of the function")
    return True


_OF_ONE: Final = frozenset({"ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum"})
"""Reductions that return one number as it is."""


def _reduces_nothing(node: ir.Node, opset: int) -> bool:
    """Leave noop_with_empty_axes out where it says nothing; return whether it makes the node an Identity."""
    stated, version = node.attributes.get("noop_with_empty_axes"), find_version(node.op_type, opset)
    if stated is None or stated.is_ref() or not stated.as_int():
        return False
    if version is None or "noop_with_empty_axes" in version.attributes:
        return False
    axes = node.inputs[1] if len(node.inputs) > 1 else None
    count = (0,) if axes is None else shape_of(axes)
    if count is not None and len(count) == 1 and isinstance(count[0], int) and count[0]:
        del node.attributes["noop_with_empty_axes"]
    return count == (0,) and node.op_type in _OF_ONE


def _entries(value: ir.Value) -> list[Any] | None:
    """Return the numbers of a 1-D tensor as far as they are known."""
    array = constant_array(value)
    if array is None:
        found = get_abstract_value(value)
        array = found.elements if isinstance(found, AbstractTensor) else None
    return None if array is None or array.ndim != 1 else array.tolist()


def _is_kept(entry: Any, size: Sequence[Any]) -> bool:
    """Return whether an entry of a shape is never 0, or the size that a 0 in its place would copy."""
    if isinstance(entry, int):
        return entry != 0
    return isinstance(entry, Range) and (entry.lo > 0 or (entry.name is not None and [entry] == list(size)))


def _state_defaults(node: ir.Node, old: int, new: int) -> None:
    """State the numbers that a node leaves to a default which is another one at the other opset."""
    before, after = find_version(node.op_type, old), find_version(node.op_type, new)
    if node.op_type not in _OTHER_DEFAULTS or before is None or after is None:
        return
    if 1 not in (before.since, after.since):
        return
    for name, first in _OTHER_DEFAULTS[node.op_type].items():
        if name in before.attributes and name in after.attributes and name not in node.attributes:
            number = first if before.since == 1 else before.attributes[name].default
            node.attributes[name] = ir.AttrFloat32(name, float(number))


def _drop_new_attributes(node: ir.Node, opset: int) -> None:
    version = find_version(node.op_type, opset)
    assert version is not None
    for name in [name for name in node.attributes if name not in version.attributes]:
        del node.attributes[name]


def _nonnegative_axes(node: ir.Node, before: int, after: int) -> bool:
    """Count axes from the front where opsets below 11 need it; return whether that was possible."""
    if not before >= 11 > after:
        return True
    # What adds axes counts them in its output.
    counted = node.outputs[0] if node.op_type in ("OneHot", "Unsqueeze") else next(iter(node.inputs), None)
    shape = None if counted is None else shape_of(counted)
    for name in ("axis", "axes"):
        attribute = node.attributes.get(name)
        if attribute is None or attribute.is_ref():
            continue
        single = attribute.type == ir.AttributeType.INT
        axes = [attribute.as_int()] if single else list(attribute.as_ints())
        if min(axes, default=0) >= 0:
            continue
        if shape is None:
            return False
        axes = [axis + len(shape) if axis < 0 else axis for axis in axes]
        node.attributes[name] = ir.AttrInt64(name, axes[0]) if single else ir.AttrInt64s(name, axes)
    return True


def _folded_constant(node: ir.Node) -> ir.Attr | None:
    """Return the value of a Constant as a tensor, the only form before opset 12."""
    if any(attribute.is_ref() for attribute in node.attributes.values()) or "value" in node.attributes:
        return None
    array = constant_array(node.outputs[0])
    return None if array is None or array.dtype.kind == "S" else ir.AttrTensor("value", ir.tensor(array))


def _sliced_shape(node: ir.Node, opset: int, names: FreshNames) -> list[str]:
    """Write the start and end of a Shape, which it declares from opset 15 on, as a Slice."""
    bounds = {name: node.attributes[name].as_int() for name in ("start", "end") if name in node.attributes}
    begin, end = bounds.get("start", 0), bounds.get("end", _INT64_MAX)
    builder = OnnxOpBuilder(opset, names, make_stem(node))
    shape = builder.op("Shape", [node.inputs[0]])
    builder.replace(node, [builder.part(shape, 0, begin, end)])
    return ["Shape", "Slice"]


def _along_last_axis(node: ir.Node, opset: int, names: FreshNames) -> list[str] | None:
    """Write a Softmax along one axis with one that takes all axes behind it too; None: unknown rank."""
    data, stated = node.inputs[0], node.attributes.get("axis")
    shape = None if data is None else shape_of(data)
    if shape is None:
        return None
    last = len(shape) - 1
    axis = (-1 if stated is None else stated.as_int()) % max(len(shape), 1)
    if axis >= last:
        node.attributes["axis"] = ir.AttrInt64("axis", max(last, 0))
        return [node.op_type]
    order = list(range(len(shape)))
    order[axis], order[last] = last, axis
    builder = OnnxOpBuilder(opset, names, make_stem(node))
    turned = builder.op("Transpose", [data], {"perm": order})
    made = builder.op(node.op_type, [turned], {"axis": last})
    builder.replace(node, [builder.op("Transpose", [made], {"perm": order})])
    return ["Transpose", node.op_type, "Transpose"]
