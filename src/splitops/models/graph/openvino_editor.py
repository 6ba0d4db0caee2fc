"""The editor of OpenVINO models."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from splitops.errors import NOWHERE, SplitError, Where
from splitops.models.formats.openvino.constants import Constant
from splitops.models.formats.openvino.model import Layer, Port
from splitops.models.formats.openvino.sites import layer_site
from splitops.models.formats.openvino.splits import operation_set
from splitops.models.graph.editor import (
    Editor,
    Role,
    Scope,
    bounds_of,
    permuted,
    product_axes,
    roles_of,
    shape_like,
    sliced_sizes,
)
from splitops.models.graph.onnx import fixed_array, fixed_integers, known, note, shape_of, value_fact
from splitops.models.graph.openvino import DOMAIN, graphs_inside, layer_of, make_node, port_of, restate
from splitops.models.known import Tensor
from splitops.models.movers import mover_of
from splitops.models.sites import Site
from splitops.models.sites.decisions import lying, pieces
from splitops.models.sites.statement import stated
from splitops.spec.elements.types import ELEMENT_TYPES, ElementType
from splitops.spec.sizes.dims import Dim, Shape

_ROLES: Final = roles_of(DOMAIN)
_VERSIONS: Final = {
    "Concat": "opset1",
    "Const": "opset1",
    "Reshape": "opset1",
    "Squeeze": "opset1",
    "Slice": "opset8",
    "Transpose": "opset1",
}
_INT64: Final = ELEMENT_TYPES["int64"]
_WITH_SLICE: Final = 11
"""The IR version that came with Slice; older readers may lack it."""


class OpenVINOEditor(Editor):
    """An OpenVINO model that is being rewritten, as :mod:`~splitops.models.graph.openvino` has it."""

    domain = DOMAIN

    def __init__(self, model: ir.Model, where: Where = NOWHERE) -> None:
        self._next: dict[Any, int] = {}
        super().__init__(model, where)

    def _graphs(self) -> Iterator[tuple[Scope, Any]]:
        graphs = list(graphs_inside(self.model.graph))
        # Who reads the model knows the newest operation set of its layers, and so all that came before.
        sets = (operation_set(layer_of(node).version) or 1 for _, graph in graphs for node in graph)
        opset = max(sets, default=1)
        for path, graph in graphs:
            self._next[graph] = max((layer_of(node).id for node in graph), default=-1) + 1
            yield Scope(path, opset), graph

    def role(self, node: ir.Node) -> Role | None:
        """Return what a layer is to the rewrites; None is nothing."""
        role = _ROLES.get(node.op_type)
        return role if role in (Role.SPLIT, Role.SUM) or mover_of(layer_of(node)) else None

    def site(self, node: ir.Node) -> Site:
        """Read a split."""
        facts = [
            None if value is None else value_fact(value, read=index > 0)
            for index, value in enumerate(node.inputs)
        ]
        outputs = [value.name or "" for value in node.outputs]
        return layer_site(layer_of(node), self.where(node), facts, outputs)

    def axis(self, node: ir.Node) -> int | None:
        """Return the axis that a layer sets as an attribute."""
        text = layer_of(node).attribute("axis") or ""
        digits = text.removeprefix("-")
        return int(text) if digits.isascii() and digits.isdigit() and len(digits) < 19 else None

    def stated_axis(self, node: ir.Node) -> int | None:
        """Return the axis of a split as its input declares it."""
        axis = fixed_array(node.inputs[1]) if len(node.inputs) > 1 else None
        return None if axis is None or axis.size != 1 else int(axis.reshape(()))

    def window(self, node: ir.Node) -> Hashable:
        """Return the strides, pads and dilations of a Convolution."""
        names = ("strides", "pads_begin", "pads_end", "dilations", "auto_pad")
        return tuple((layer_of(node).attribute(name) or "").replace(" ", "") for name in names)

    def bounds(self, node: ir.Node, rank: int) -> dict[int, slice] | None:
        """Read a Slice of known bounds."""
        read = [fixed_integers(value) for value in node.inputs[1:]]
        if any(numbers is None for numbers in read) or len(read) not in (3, 4):
            return None
        starts, ends, steps, *rest = [numbers or [] for numbers in read]
        return bounds_of(starts, ends, rest[0] if rest else list(range(len(starts))), steps, rank)

    def permutation(self, node: ir.Node, rank: int) -> list[int] | None:
        """Return the order that a Transpose reads; the axes turned round where it reads none."""
        order = fixed_integers(node.inputs[1]) if len(node.inputs) > 1 else None
        return list(reversed(range(rank))) if order == [] else order

    def gathered(self, node: ir.Node) -> tuple[int, npt.NDArray[Any]] | None:
        """Read a Gather by constant positions; before Gather-8, negative ones are outside."""
        if len(node.inputs) != 3:
            return None
        positions, axis = (fixed_array(value) for value in node.inputs[1:])
        if positions is None or axis is None or axis.size != 1:
            return None
        if layer_of(node).version != "opset8" and (positions < 0).any():
            return None
        return int(axis.reshape(())), positions

    def weights(self, node: ir.Node, axis: int) -> dict[int, int] | None:
        """Read a MatMul, Convolution or Add by constants."""
        layer, shapes = layer_of(node), [None if value is None else shape_of(value) for value in node.inputs]
        if node.op_type == "MatMul":
            turned = (layer.attribute("transpose_b") or "").lower() in ("true", "1")
            return self.with_addend(node, product_axes(shapes, axis, turned=turned), None, axis)
        if node.op_type == "Convolution" and axis == 1:
            return self.with_addend(node, {1: 0}, None, axis)
        if node.op_type == "Add" and layer.attribute("auto_broadcast") in (None, "numpy"):
            return self.with_addend(node, {}, 1 if self.is_constant(node.inputs[1]) else 0, axis)
        return None

    def is_needed(self, node: ir.Node) -> bool:
        """Return whether a layer is read, or may do something else than to be read."""
        return node.op_type != "Const" or any(value.uses() for value in node.outputs)

    def keeps(self, value: ir.Value) -> bool:
        """Return whether a value is an output: its layer and tensor names are the output's."""
        return any(use.node.op_type == "Result" for use in value.uses())

    def keeps_parts(self, node: ir.Node) -> bool:
        """Return whether the ports of a layer name outputs of the model, as they do before IR version 11."""
        return (self.model.ir_version or 0) < _WITH_SLICE and any(map(self.keeps, node.outputs))

    def has_type(self, element_type: ElementType) -> bool:
        """Return whether a constant of numbers has the element type."""
        return element_type.openvino is not None and element_type.bits > 0

    def content(self, value: ir.Value, limit: int) -> tuple[npt.NDArray[Any], ElementType] | None:
        """Return the value and type of a Const."""
        producer = value.producer()
        constant = None if producer is None else layer_of(producer).constant
        if constant is None or producer is None or constant.size > limit * 8:
            return None
        try:
            return constant.array(self.where(producer)), constant.element_type
        except SplitError:
            return None

    def divided(self, value: ir.Value, axis: int, sizes: Sequence[int]) -> list[ir.Value] | None:
        """Divide a Const that one layer reads; parts that lie in one piece share its bytes."""
        producer = value.producer()
        constant = None if producer is None else layer_of(producer).constant
        if constant is None or producer is None or len(value.uses()) != 1:
            return None
        kind, shape = constant.element_type, constant.shape
        lengths = lying(shape, axis, sizes, kind)
        made: list[Constant] = []
        if lengths is not None:
            offset = constant.offset
            for size, length in zip(sizes, lengths, strict=True):
                part = (*shape[:axis], size, *shape[axis + 1 :])
                made.append(Constant(kind, part, constant.weights, offset, length))
                offset += length
        else:
            try:
                array = constant.array(self.where(producer))
            except SplitError:
                return None
            made = [Constant.of(piece, kind) for piece in pieces(array, axis, sizes)]
        layer = layer_of(producer)
        return [
            self._const(part, f"{layer.name}.{index}", producer.graph).outputs[0]
            for index, part in enumerate(made)
        ]

    def place(self, part: ir.Value, whole: ir.Value, before: ir.Node) -> None:
        """Put a part of a Const in front of a layer."""
        producer = part.producer()
        assert producer is not None
        self.insert(before, producer)

    def adopt(self, value: ir.Value, old: ir.Value, before: ir.Node) -> None:
        """Put a part of a Const in the place of a value, with its tensor names."""
        whole = before.inputs[0]
        assert whole is not None
        self.place(value, whole, before)
        self.take_place(value, old)

    # Changes

    def state_lengths(self, node: ir.Node) -> str | None:
        """Write a VariadicSplit in the place of a Split; lengths that only a run knows are computed."""
        cut, data = self.cut(node), node.inputs[0]
        if node.op_type != "Split" or cut is None or data is None:
            return None
        axis = self.constant(np.array(cut.axis), _INT64, f"{node.name}/axis", node)
        lengths = (
            self._equal_lengths(node, data, axis, len(node.outputs))
            if cut.sizes is None
            else self.constant(np.array(cut.sizes, np.int64), _INT64, f"{node.name}/lengths", node)
        )
        shapes = [shape_of(part) for part in node.outputs]
        made = self.add(node, "VariadicSplit", [data, axis, lengths], version="opset1", shapes=shapes)
        self.substitute(node, list(made))
        return self.describe_maker(made[0])

    def _equal_lengths(self, before: ir.Node, data: ir.Value, axis: ir.Value, count: int) -> ir.Value:
        """Add layers that divide the size of an axis; where it does not divide, the lengths do not add up."""
        name, rank = before.name, shape_of(data)
        counted: dict[str, Any] = {"element_type": _INT64, "shapes": [()]}
        shape = self.add(
            before, "ShapeOf", [data], {"output_type": "i64"}, version="opset3", element_type=_INT64,
            shapes=[None if rank is None else (len(rank),)],
        )[0]  # fmt: skip
        zero = self.constant(np.array(0), _INT64, f"{name}/first", before)
        inputs = [shape, axis, zero]
        size = self.add(before, "Gather", inputs, {"batch_dims": 0}, version="opset8", **counted)[0]
        parts = self.constant(np.array(count), _INT64, f"{name}/parts", before)
        data_of = {"auto_broadcast": "numpy", "m_pythondiv": "true"}
        length = self.add(before, "Divide", [size, parts], data_of, version="opset1", **counted)[0]
        many = self.constant(np.array([count]), _INT64, f"{name}/count", before)
        return self.add(
            before, "Broadcast", [length, many], {"mode": "numpy"}, version="opset3", shapes=[(count,)]
        )[0]

    def set_axis(self, node: ir.Node, axis: int) -> None:
        """Set the axis of a Concat."""
        layer = layer_of(node)
        restate(node, replace(layer, data={**(layer.data or {}), "axis": str(axis)}))

    def take_place(self, value: ir.Value, old: ir.Value) -> None:
        """Put an output of a layer in the place of a value, with its tensor names."""
        producer = value.producer()
        assert producer is not None
        layer, port = layer_of(producer), port_of(value)
        named = replace(port, names=port_of(old).names)
        outputs = tuple(named if one.id == port.id else one for one in layer.outputs)
        restate(producer, replace(layer, outputs=outputs))
        value.name, old.name = old.name, None
        self.replace(old, value)

    def add(
        self,
        before: ir.Node,
        operator: str,
        inputs: Sequence[ir.Value],
        data: Mapping[str, object] | None = None,
        *,
        version: str | None = None,
        element_type: ElementType | None = None,
        shapes: Sequence[Shape | None],
    ) -> list[ir.Value]:
        """Add a layer in front of another one.

        Args:
            before: the other one.
            operator: its type.
            inputs: what feeds it.
            data: its attributes.
            version: its operation set; None is the one that every reader of the operator has.
            element_type: that of its outputs; None is the one of its first input.
            shapes: what is known of the shape of each output.
        """
        kind, found = port_of(inputs[0]).precision, known(inputs[0])
        own = found.type if isinstance(found, Tensor) else None
        if element_type is not None:
            kind, own = element_type.precision, element_type
        name = self.fresh(f"{before.name}/{operator}")
        fed = tuple(
            Port(index, port_of(value).precision, port_of(value).dims) for index, value in enumerate(inputs)
        )
        ports = tuple(Port(len(fed) + index, kind, _dims(shape)) for index, shape in enumerate(shapes))
        layer = Layer(
            self._id(before.graph),
            name,
            operator,
            version or _VERSIONS[operator],
            {key: str(value) for key, value in (data or {}).items()},
            fed,
            ports,
        )
        made = self.insert(before, make_node(layer, list(inputs), [f"{name}:{port.id}" for port in ports]))
        for value, shape in zip(made, shapes, strict=True):
            note(value, Tensor(own, shape))
        return made

    def split(
        self, before: ir.Node, data: ir.Value, axis: int, size: Dim, sizes: Sequence[int]
    ) -> list[ir.Value]:
        """Add a split in front of another layer, stated as shortly as the model's operation sets allow."""
        row, division = self.shortest(before, sizes, size)
        attributes, facts = stated(row, axis, division)
        inputs = [data]
        for parameter, fact in zip(row.inputs[1:], facts[1:], strict=False):
            if fact is not None:
                value = np.array(fact.value, np.int64)
                inputs.append(self.constant(value, _INT64, f"{before.name}/{parameter.name}", before))
        shapes = [shape_like(data, {axis: part}) for part in sizes]
        return self.add(
            before, row.name, inputs, attributes, version=f"opset{row.since_version}", shapes=shapes
        )

    def can_slice(self, data: ir.Value) -> bool:
        """Return whether OpenVINO slices tensors of this type: none of strings, none of parts of a byte."""
        found = known(data)
        kind = found.type if isinstance(found, Tensor) else None
        return kind is not None and kind.bits >= 8 and (self.model.ir_version or 0) >= _WITH_SLICE

    def slice(self, before: ir.Node, data: ir.Value, bounds: Mapping[int, slice]) -> ir.Value:
        """Add a Slice of some axes in front of another layer."""
        numbers = {
            "start": [taken.start for taken in bounds.values()],
            "stop": [taken.stop for taken in bounds.values()],
            "step": [taken.step for taken in bounds.values()],
            "axes": list(bounds),
        }
        inputs = [
            self.constant(np.array(listed, np.int64), _INT64, f"{before.name}/{name}", before)
            for name, listed in numbers.items()
        ]
        shape = shape_like(data, sliced_sizes(data, bounds))
        return self.add(before, "Slice", [data, *inputs], shapes=[shape])[0]

    def gather(self, before: ir.Node, data: ir.Value, positions: Sequence[int], axis: int) -> ir.Value:
        """Add a Gather of some positions of an axis in front of another layer."""
        at = self.constant(np.array(positions, np.int64), _INT64, f"{before.name}/positions", before)
        along = self.constant(np.array(axis), _INT64, f"{before.name}/axis", before)
        shapes = [shape_like(data, {axis: len(positions)})]
        return self.add(
            before, "Gather", [data, at, along], {"batch_dims": 0}, version="opset8", shapes=shapes
        )[0]

    def concat(self, before: ir.Node, values: Sequence[ir.Value], axis: int) -> ir.Value:
        """Add a Concat in front of another layer."""
        return self.add(before, "Concat", values, {"axis": axis}, shapes=[None])[0]

    def reshape(
        self, before: ir.Node, value: ir.Value, pattern: Sequence[int], shape: Shape | None
    ) -> ir.Value:
        """Add a Reshape in front of another layer."""
        inputs = [value, self.constant(np.array(pattern, np.int64), _INT64, f"{before.name}/shape", before)]
        return self.add(before, "Reshape", inputs, {"special_zero": "true"}, shapes=[shape])[0]

    def transpose(self, before: ir.Node, value: ir.Value, order: Sequence[int]) -> ir.Value:
        """Add a Transpose in front of another layer."""
        inputs = [value, self.constant(np.array(order, np.int64), _INT64, f"{before.name}/order", before)]
        return self.add(before, "Transpose", inputs, shapes=[permuted(shape_of(value), order)])[0]

    def repeat(
        self, before: ir.Node, node: ir.Node, inputs: Sequence[ir.Value | None], axis: int, size: int
    ) -> ir.Value:
        """Add a layer like another one, fed by others."""
        layer, fed = layer_of(node), [value for value in inputs if value is not None]
        shape = shape_like(node.outputs[0], {axis: size})
        return self.add(before, layer.type, fed, layer.data, version=layer.version, shapes=[shape])[0]

    def squeeze(self, before: ir.Node, value: ir.Value, axis: int) -> ir.Value:
        """Add a Squeeze of one axis in front of another layer."""
        axes = self.constant(np.array([axis], np.int64), _INT64, f"{before.name}/axes", before)
        return self.add(before, "Squeeze", [value, axes], shapes=[shape_like(value, {axis: None})])[0]

    def fold(
        self, array: npt.NDArray[Any], element_type: ElementType, old: ir.Value, before: ir.Node
    ) -> ir.Value:
        """Return a new constant for the place of a value, with its tensor names."""
        index = old.index()
        name = before.name if len(before.outputs) == 1 else f"{before.name}.{index}"
        return self.constant(array, element_type, name or "", before, port_of(old).names)

    def name_like(self, made: ir.Node, node: ir.Node) -> None:
        """Let a layer in the place of another one have its name, runtime information and ports."""
        old, layer = layer_of(node), layer_of(made)
        ports = tuple(
            replace(port_of(value), id=port.id)
            for value, port in zip(made.outputs, layer.outputs, strict=True)
        )
        restate(made, replace(layer, name=old.name, children=old.children, outputs=ports))
        super().name_like(made, node)

    def _id(self, graph: Any) -> int:
        self._next[graph] += 1
        return self._next[graph] - 1

    def _const(self, constant: Constant, name: str, graph: Any, names: tuple[str, ...] = ()) -> ir.Node:
        port = Port(0, constant.element_type.precision, constant.shape, names)
        layer = Layer(self._id(graph), name, "Const", "opset1", {}, (), (port,), constant)
        node = make_node(layer, [], [name])
        note(node.outputs[0], Tensor(constant.element_type, constant.shape))
        return node

    def constant(
        self,
        array: npt.NDArray[Any],
        element_type: ElementType,
        name: str,
        before: ir.Node,
        names: tuple[str, ...] = (),
    ) -> ir.Value:
        """Add a Const in front of another layer.

        Args:
            array: its value.
            element_type: its element type.
            name: the layer's name.
            before: the other layer.
            names: the tensor names.
        """
        node = self._const(Constant.of(array, element_type), name, before.graph, names)
        value = self.insert(before, node)[0]
        if array.ndim <= 1 and element_type.integer:
            note(value, Tensor(element_type, array.shape, array))
        return value


def _dims(shape: Shape | None) -> tuple[int, ...]:
    return tuple(dim if isinstance(dim, int) else -1 for dim in shape or ())
