"""Conversion of nodes other than splits from one opset of ONNX to another.

A node is kept if it means the same in both versions, and a few operators are converted here. onnx's version
converter converts every other node separately and one version at a time: if it rejects one, it can still
convert the rest. If the schema of a rejected operator has a body, the body replaces the node, and its nodes
are converted in turn.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import onnx_ir as ir

from splitops.common.integers import INT64_MAX
from splitops.errors import ModelError, Where
from splitops.models.abstract_values import AbstractTensor
from splitops.models.convert.empty_reshapes import write_empty_reshape
from splitops.models.convert.onnx_adapter import Adapter, CanonicalNode, NoAdapterError
from splitops.models.formats.onnx.schemas import Version, find_since_version, find_version
from splitops.models.formats.walk import FreshNames, make_stem
from splitops.models.graph.onnx import find_shape, get_abstract_value, read_constant
from splitops.models.graph.op_builder import OnnxOpBuilder
from splitops.spec.sizes.dims import Range

CONSTANTS_OF_EVERY_TYPE: Final = 9
"""The first opset whose Constant supports every element type."""

_MAX_BODIES: Final = 8
"""Maximum nesting depth of bodies in schemas."""

_UNDEFINED_BEFORE: Final[Mapping[str, int]] = {"AveragePool": 7}
"""For each operator, the first version whose specification defines all values."""

_SOFTMAXES: Final = frozenset({"Softmax", "LogSoftmax", "Hardmax"})

_OTHER_DEFAULTS: Final[Mapping[str, Mapping[str, float]]] = {
    "Clip": {"min": -math.inf, "max": math.inf},
    "Selu": {"alpha": 1.6732, "gamma": 1.0507},
}
"""Defaults of the first version of an operator, if those of later versions differ."""


class OpsetConverter:
    """Converts nodes to another opset, and caches the results of onnx's converter for equal nodes."""

    def __init__(self, names: FreshNames) -> None:
        self._names = names
        self._adapter = Adapter()

    def convert_node(self, node: ir.Node, old: int, new: int, where: Where) -> Sequence[str] | None:
        """Convert a node. Return the operators that replace it, or None if at most its attributes change."""
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
                else f"opset {new} has {node.op_type}-{after}"
            )
            raise ModelError(
                f"{node.op_type}-{before} cannot be converted to opset {new}: {version}, and {error}", where
            ) from error

    def _convert_version(self, node: ir.Node, old: int, new: int, bodies: int) -> Sequence[str] | None:
        before, after = find_version(node.op_type, old), find_version(node.op_type, new)
        assert before is not None  # convert_node has checked it, and bodies are valid
        after = None if after is None or after.deprecated else after
        since = 0 if after is None else after.since
        if before.since == since:
            return None
        if not _make_axes_nonnegative(node, before.since, since):
            raise NoAdapterError("an axis is negative and the rank is unknown")
        if node.op_type in _UNDEFINED_BEFORE and since < _UNDEFINED_BEFORE[node.op_type] <= before.since:
            raise NoAdapterError("that version does not define how padding counts")
        if _needs_allowzero(node, after):
            write_empty_reshape(node, new, self._names)
            return ["If", "Reshape"]
        if _is_empty_reduction(node, after):
            builder = OnnxOpBuilder(new, self._names, make_stem(node))
            builder.replace(node, [builder.add("Identity", [node.inputs[0]])])
            return ["Identity"]
        if after is not None:
            _set_changed_defaults(node, before, after)
            if self._adapter.is_unchanged(node, old, new):
                for name in [name for name in node.attributes if name not in after.attributes]:
                    del node.attributes[name]
                return None
        if node.op_type == "Constant" and (folded := _fold_constant(node)):
            node.attributes.clear()
            node.attributes["value"] = folded
            return ["Constant"]
        if node.op_type == "Constant" and "value" in node.attributes and new < CONSTANTS_OF_EVERY_TYPE:
            return None  # ModelConversion replaces it with an initializer
        canonical = CanonicalNode.from_node(node)
        if canonical.is_open:
            raise NoAdapterError("the node has a body or an attribute that the caller of its function sets")
        if node.op_type == "Shape" and new < 15:
            return _write_shape_slice(node, new, self._names)
        if node.op_type in _SOFTMAXES and before.since >= 13 > new:
            # onnx's converter keeps the axis. Before version 13, it and all later axes count as one.
            if (rewritten := _write_along_axis(node, new, self._names)) is None:
                raise NoAdapterError("the rank of its data is unknown")
            return rewritten
        try:
            replacement = self._adapter.convert(canonical, old, new)
        except NoAdapterError as error:
            return self._convert_by_body(node, canonical, old, new, bodies, error)
        return [made.op_type for made in replacement.inline(node, self._names)]

    def _convert_by_body(
        self, node: ir.Node, canonical: CanonicalNode, old: int, new: int, bodies: int, error: NoAdapterError
    ) -> Sequence[str]:
        """Convert a node by replacing it with the body in its schema. Raise ``error`` if there is no body."""
        body = self._adapter.find_body(canonical, old) if bodies else None
        if body is None:
            raise error
        became: list[str] = []
        for body_node in body.inline(node, self._names):
            try:
                operators = self._convert_version(body_node, body.opset, new, bodies - 1)
            except NoAdapterError as inner:
                raise NoAdapterError(
                    f"{error}; in the body of the operator, {body_node.op_type}: {inner}"
                ) from inner
            became += [body_node.op_type] if operators is None else operators
        return became


def _needs_allowzero(node: ir.Node, version: Version | None) -> bool:
    """Return whether a node is a Reshape that relies on ``allowzero``, which ``version`` does not have.

    Remove the attribute if it has no effect: the shape has no 0, or a 0 would copy the same size.
    """
    if node.op_type != "Reshape" or version is None or "allowzero" in version.attributes:
        return False
    allowzero = node.attributes.get("allowzero")
    if allowzero is None or len(node.inputs) < 2 or not (allowzero.is_ref() or allowzero.as_int()):
        return False
    data, wanted = node.inputs
    entries = None if wanted is None else _read_entries(wanted)
    sizes = () if data is None else find_shape(data) or ()
    if entries is not None and all(_is_kept(entry, sizes[i : i + 1]) for i, entry in enumerate(entries)):
        del node.attributes["allowzero"]
        return False
    if allowzero.is_ref():
        raise NoAdapterError("the caller of its function sets allowzero")
    return True


_IDENTITY_OF_ONE: Final = frozenset({"ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum"})
"""Reductions that return a single element unchanged."""


def _is_empty_reduction(node: ir.Node, version: Version | None) -> bool:
    """Return whether a reduction copies its input because of an attribute that ``version`` does not have.

    Remove this attribute, ``noop_with_empty_axes``, if axes are given.
    """
    noop = node.attributes.get("noop_with_empty_axes")
    if noop is None or noop.is_ref() or not noop.as_int():
        return False
    if version is None or "noop_with_empty_axes" in version.attributes:
        return False
    axes = node.inputs[1] if len(node.inputs) > 1 else None
    count = (0,) if axes is None else find_shape(axes)
    if count is not None and len(count) == 1 and isinstance(count[0], int) and count[0]:
        del node.attributes["noop_with_empty_axes"]
    return count == (0,) and node.op_type in _IDENTITY_OF_ONE


def _read_entries(value: ir.Value) -> list[Any] | None:
    """Return the elements of a 1-D tensor, including unknown ones, or None if they are not tracked."""
    array = read_constant(value)
    if array is None:
        tensor = get_abstract_value(value)
        array = tensor.elements if isinstance(tensor, AbstractTensor) else None
    return None if array is None or array.ndim != 1 else array.tolist()


def _is_kept(entry: Any, size: Sequence[Any]) -> bool:
    """Return whether an entry of a shape is never 0, or equals the size that a 0 would copy."""
    if isinstance(entry, int):
        return entry != 0
    return isinstance(entry, Range) and (entry.lo > 0 or (entry.name is not None and [entry] == list(size)))


def _set_changed_defaults(node: ir.Node, before: Version, after: Version) -> None:
    """Set the attributes that a node omits, if their defaults differ in the new version."""
    if 1 not in (before.since, after.since):
        return
    for name, first in _OTHER_DEFAULTS.get(node.op_type, {}).items():
        if name in before.attributes and name in after.attributes and name not in node.attributes:
            number = first if before.since == 1 else before.attributes[name].default
            node.attributes[name] = ir.AttrFloat32(name, float(number))


def _make_axes_nonnegative(node: ir.Node, before: int, after: int) -> bool:
    """Make axes non-negative if the new version requires it. Return False if this needs an unknown rank."""
    if not before >= 11 > after:
        return True
    # OneHot and Unsqueeze count axes in their outputs.
    counted = node.outputs[0] if node.op_type in ("OneHot", "Unsqueeze") else next(iter(node.inputs), None)
    shape = None if counted is None else find_shape(counted)
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


def _fold_constant(node: ir.Node) -> ir.Attr | None:
    """Return the attribute of a Constant as a ``value``, or None if this is impossible or unnecessary."""
    if any(attribute.is_ref() for attribute in node.attributes.values()) or "value" in node.attributes:
        return None
    array = read_constant(node.outputs[0])
    return None if array is None or array.dtype.kind == "S" else ir.AttrTensor("value", ir.tensor(array))


def _write_shape_slice(node: ir.Node, opset: int, names: FreshNames) -> list[str]:
    """Replace a Shape that sets ``start`` or ``end``, new in opset 15, with a plain Shape and a Slice."""
    bounds = {name: node.attributes[name].as_int() for name in ("start", "end") if name in node.attributes}
    begin, end = bounds.get("start", 0), bounds.get("end", INT64_MAX)
    builder = OnnxOpBuilder(opset, names, make_stem(node))
    shape = builder.add("Shape", [node.inputs[0]])
    builder.replace(node, [builder.slice_axis(shape, 0, begin, end)])
    return ["Shape", "Slice"]


def _write_along_axis(node: ir.Node, opset: int, names: FreshNames) -> list[str] | None:
    """Rewrite a Softmax along any axis as one along the last axis. Return None if the rank is unknown."""
    data, attribute = node.inputs[0], node.attributes.get("axis")
    shape = None if data is None else find_shape(data)
    if shape is None:
        return None
    last = len(shape) - 1
    axis = (-1 if attribute is None else attribute.as_int()) % max(len(shape), 1)
    if axis >= last:
        node.attributes["axis"] = ir.AttrInt64("axis", max(last, 0))
        return [node.op_type]
    order = list(range(len(shape)))
    order[axis], order[last] = last, axis
    builder = OnnxOpBuilder(opset, names, make_stem(node))
    transposed = builder.add("Transpose", [data], {"perm": order})
    softmax = builder.add(node.op_type, [transposed], {"axis": last})
    builder.replace(node, [builder.add("Transpose", [softmax], {"perm": order})])
    return ["Transpose", node.op_type, "Transpose"]
