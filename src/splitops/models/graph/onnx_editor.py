"""The editor of ONNX models."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from splitops.errors import NOWHERE, SplitError, Where
from splitops.models.formats.onnx.schemas import version_of
from splitops.models.graph.editor import (
    Editor,
    Role,
    Scope,
    bounds_of,
    note_like,
    permuted,
    product_axes,
    roles_of,
    sliced_sizes,
    take_over,
)
from splitops.models.graph.merging import SiteKey, merged_sites, site_key
from splitops.models.graph.onnx import (
    INITIALIZERS_OF_THEIR_OWN,
    attributes_of,
    constant_array,
    fixed_integers,
    fixed_shape,
    graphs_of,
    has_defaults,
    initializer,
    known,
    note,
    opset_imports,
    owners_of,
    shape_of,
    type_of,
)
from splitops.models.graph.onnx_sites import read_site
from splitops.models.graph.onnx_splits import write_site
from splitops.models.known import Tensor
from splitops.models.sites import Site
from splitops.models.sites.decisions import lying, pieces
from splitops.models.sites.forms import Form, Method, Target
from splitops.models.sites.restating import onnx_types, restate
from splitops.models.sites.statement import stated
from splitops.spec.elements.types import ElementType, from_onnx
from splitops.spec.sizes.dims import Dim, Shape

_ONNX: Final = frozenset({"", "ai.onnx"})
_ROLES: Final = roles_of("") | {"Identity": Role.IDENTITY, "Flatten": Role.RESHAPE}
_CONSTANT_OF_SHAPE: Final = 9
"""The opset that brought it."""
_NEVER_FAIL: Final = frozenset({"Constant", "Identity", "Shape", "Size"})


def is_operator(node: ir.Node, *names: str) -> bool:
    """Return whether a node is one of some operators of ONNX."""
    return node.domain in _ONNX and node.op_type in names


def _is_formed(node: ir.Node, opset: int) -> bool:
    """Return whether a node has the inputs, outputs and attributes that its operator may have."""
    version = version_of(node.op_type, opset)
    if version is None or not version.inputs.has(len(node.inputs)):
        return False
    kinds = {name: attribute.kind for name, attribute in version.attributes.items()}
    return version.outputs.has(len(node.outputs)) and all(
        attribute.type == kinds.get(name) for name, attribute in node.attributes.items()
    )


class OnnxEditor(Editor):
    """An ONNX model that is being rewritten."""

    domain = ""

    def __init__(self, model: ir.Model, where: Where = NOWHERE) -> None:
        self._constants: dict[tuple[str, tuple[int, ...], bytes], ir.Value] = {}
        self._merged: dict[bool, frozenset[SiteKey]] = {}
        super().__init__(model, where)

    def _graphs(self) -> Iterator[tuple[Scope, Any]]:
        imported = opset_imports(self.model.graph, self.model).get("", 0)
        for start, owner in owners_of(self.model):
            for path, graph in graphs_of(owner, start):
                yield (
                    Scope(path, opset_imports(owner).get("", imported), in_function=start is not None),
                    graph,
                )

    def role(self, node: ir.Node) -> Role | None:
        """Return what a node is to the rewrites; None is nothing."""
        role = _ROLES.get(node.op_type) if node.domain in _ONNX else None
        removed = node.graph is None
        return role if role is not None and (removed or _is_formed(node, self.opset(node))) else None

    def site(self, node: ir.Node) -> Site:
        """Read a split."""
        return read_site(node, self.opset(node), self.where(node), defaults=has_defaults(self.model))

    def axis(self, node: ir.Node) -> int | None:
        """Return the axis that a node sets as an attribute."""
        attribute = node.attributes.get("axis")
        return None if attribute is None or attribute.is_ref() else int(attribute.value)

    def stated_axis(self, node: ir.Node) -> int | None:
        """Return the axis of a split as the node sets it."""
        return self.axis(node) if "axis" in node.attributes else 0

    def window(self, node: ir.Node) -> Hashable:
        """Return the strides, pads and dilations of a Conv; zeros and ones may be left out."""
        named = {a.name: a.value for a in node.attributes.values() if not a.is_ref()}
        usual = {"strides": 1, "pads": 0, "dilations": 1}
        lists = ((name, tuple(named.get(name) or ())) for name in usual)
        return named.get("auto_pad") or "NOTSET", *(
            numbers if any(number != usual[name] for number in numbers) else () for name, numbers in lists
        )

    def bounds(self, node: ir.Node, rank: int) -> dict[int, slice] | None:
        """Read a Slice of known bounds."""
        if self.opset(node) < 10:
            named = {name: a for name, a in node.attributes.items() if not a.is_ref()}
            if len(named) != len(node.attributes) or not {"starts", "ends"} <= set(named):
                return None
            starts, ends = list(named["starts"].value), list(named["ends"].value)
            axes = list(named["axes"].value) if "axes" in named else list(range(len(starts)))
            steps = [1] * len(starts)
        else:
            read = [fixed_integers(value) for value in node.inputs[1:]]
            given = [value is not None for value in node.inputs[1:]]
            if any(numbers is None for numbers, is_given in zip(read, given, strict=True) if is_given):
                return None
            starts, ends, *rest = [numbers or [] for numbers in read]
            axes = rest[0] if rest and given[2] else list(range(len(starts)))
            steps = rest[1] if len(rest) > 1 and given[3] else [1] * len(starts)
        return bounds_of(starts, ends, axes, steps, rank)

    def permutation(self, node: ir.Node, rank: int) -> list[int] | None:
        """Return the order that a Transpose declares; the axes turned round where it sets none."""
        attribute = node.attributes.get("perm")
        if attribute is None:
            return list(reversed(range(rank)))
        return None if attribute.is_ref() else [int(axis) for axis in attribute.value]

    def gathered(self, node: ir.Node) -> tuple[int, npt.NDArray[Any]] | None:
        """Read a Gather by constant positions."""
        attribute = node.attributes.get("axis")
        value = node.inputs[1] if len(node.inputs) > 1 else None
        array = None if value is None else constant_array(value)
        if array is None or (attribute is not None and attribute.is_ref()):
            return None
        return 0 if attribute is None else int(attribute.value), array

    def weights(self, node: ir.Node, axis: int) -> dict[int, int] | None:
        """Read a MatMul, Gemm, Conv of one group, or Add."""
        shapes = [None if value is None else shape_of(value) for value in node.inputs]
        named = {
            name: attribute.value for name, attribute in node.attributes.items() if not attribute.is_ref()
        }
        found: dict[int, int] | None = None
        addend = None
        if is_operator(node, "MatMul"):
            found = product_axes(shapes, axis)
        elif is_operator(node, "Gemm") and axis == 1:
            found = {1: 0 if named.get("transB", 0) else 1}
            addend = 2 if len(node.inputs) > 2 and node.inputs[2] is not None else None
        elif is_operator(node, "Conv") and axis == 1 and named.get("group", 1) == 1:
            found = {index: 0 for index, value in enumerate(node.inputs) if index and value is not None}
        elif is_operator(node, "Add"):
            found, addend = {}, 1 if self.is_constant(node.inputs[1]) else 0
        if len(named) != len(node.attributes) or found is None:
            return None
        return self.with_addend(node, found, addend, axis)

    def is_needed(self, node: ir.Node) -> bool:
        """Return whether a node is read, or could fail: one whose numbers are known without it could not."""
        if any(value.uses() or value.is_graph_output() for value in node.outputs) or node.domain not in _ONNX:
            return True
        if node.op_type in _NEVER_FAIL:
            return False
        facts = [known(value) for value in node.outputs]
        return not all(isinstance(found, Tensor) and found.is_whole for found in facts)

    def is_merged(self, node: ir.Node, *, without_lengths: bool = False) -> bool:
        """Return whether onnxruntime takes a Split for another one, see :func:`merged_sites`."""
        if without_lengths not in self._merged:
            self._merged[without_lengths] = merged_sites(self.model, with_lengths=without_lengths)
        return self._site_key(node) in self._merged[without_lengths]

    def _site_key(self, node: ir.Node) -> SiteKey:
        return site_key(self._scopes[node.graph].path, [value.name for value in node.outputs])

    def state_lengths(self, node: ir.Node) -> str | None:
        """State the lengths of a Split; where only a run knows them, the graph computes them."""
        site, opset = self.site(node), self.opset(node)
        try:
            rewritten = restate(site, Target("", opset), Form.LENGTHS, apart=True)
        except SplitError:
            return None
        if rewritten.method is Method.KEPT:
            return None
        key = self._site_key(node)
        write_site(node, site, rewritten, opset, self.names)
        if False in self._merged:
            self._merged[False] -= {key}  # it declares lengths now, also those that cannot be read back
        self.look_again(node)
        return str(rewritten)

    def set_axis(self, node: ir.Node, axis: int) -> None:
        """Set the axis of a Concat."""
        node.attributes["axis"] = ir.AttrInt64("axis", axis)

    def keeps(self, value: ir.Value) -> bool:
        """Any value can give way: an Identity keeps the name of an output."""
        return False

    def keeps_parts(self, node: ir.Node) -> bool:
        """Outputs of a model have names of their own."""
        return False

    def has_type(self, element_type: ElementType) -> bool:
        """Return whether ONNX has an element type."""
        return element_type.onnx_number is not None

    def has_empty(self, element_type: ElementType, node: ir.Node) -> bool:
        """Return whether ConstantOfShape makes an element type.

        OpenVINO reads an empty initializer or Constant as a scalar.
        """
        opset = self.opset(node)
        return opset >= _CONSTANT_OF_SHAPE and element_type in onnx_types("ConstantOfShape", opset, "T2")

    def content(self, value: ir.Value, limit: int) -> tuple[npt.NDArray[Any], ElementType] | None:
        """Return the value and type of an initializer or Constant node."""
        array = constant_array(value, limit=limit)
        if array is None:
            return None
        tensor = ir.convenience.get_const_tensor(value)
        assert tensor is not None
        element_type = from_onnx(tensor.dtype.value)
        return None if element_type is None else (array, element_type)

    def divided(self, value: ir.Value, axis: int, sizes: Sequence[int]) -> list[ir.Value] | None:
        """Divide an initializer that one node reads."""
        tensor = value.const_value
        if tensor is None or not value.is_initializer() or value.is_graph_input():
            return None
        if len(value.uses()) > 1 or value.is_graph_output():
            return None
        pieces = _divided(tensor, axis, sizes)
        if pieces is None or not all(piece.size for piece in pieces):  # see has_empty
            return None
        made = []
        for piece in pieces:
            part = ir.Value(name=self.names.fresh(f"{value.name}_part"), const_value=piece)
            part.type, part.shape = ir.TensorType(piece.dtype), ir.Shape(piece.shape)
            made.append(part)
        return made

    def adopt(self, value: ir.Value, old: ir.Value, before: ir.Node) -> None:
        """Register a part of an initializer in the place of a value, beside the whole."""
        whole = before.inputs[0]
        assert whole is not None
        name = old.name
        self.replace(old, value)
        if whole.graph is before.graph:
            old.name = None
            value.name = name  # the readers, and tools that look for names, find what they found
        self.place(value, whole, before)

    def place(self, part: ir.Value, whole: ir.Value, before: ir.Node) -> None:
        """Register a part of an initializer beside the whole."""
        assert isinstance(whole.graph, ir.Graph)
        assert part.const_value is not None
        part.const_value.name = part.name
        whole.graph.register_initializer(part)

    # Changes

    def add(
        self,
        before: ir.Node,
        operator: str,
        inputs: Sequence[ir.Value | None],
        attributes: Mapping[str, Any] | None = None,
        *,
        outputs: int = 1,
    ) -> list[ir.Value]:
        """Add a node in front of another one, and return its outputs."""
        base = before.name or next((value.name for value in before.outputs if value.name), None) or "split"
        values = [ir.Value(name=self.fresh(f"{base}_{operator.lower()}")) for _ in range(outputs)]
        made = attributes_of(attributes or {})
        name = self.fresh(f"{base}/{operator}")
        return self.insert(before, ir.Node("", operator, inputs, made, outputs=values, name=name))

    def split(
        self, before: ir.Node, data: ir.Value, axis: int, size: Dim, sizes: Sequence[int]
    ) -> list[ir.Value]:
        """Add a Split in front of another node, stated as shortly as its opset allows."""
        row, division = self.shortest(before, sizes, size)
        attributes, facts = stated(row, axis, division)
        inputs: list[ir.Value | None] = [
            None if fact is None else self.constant(np.array(fact.value, np.int64), before) for fact in facts
        ]
        inputs[0] = data
        parts = self.add(before, row.name, inputs, attributes, outputs=len(sizes))
        for part, length in zip(parts, sizes, strict=True):
            note_like(part, data, {axis: length})
        return parts

    def can_slice(self, data: ir.Value) -> bool:
        """Slice takes all that Split takes."""
        return True

    def slice(self, before: ir.Node, data: ir.Value, bounds: Mapping[int, slice]) -> ir.Value:
        """Add a Slice of some axes in front of another node; before opset 10, all steps are 1."""
        stated = {"starts": [b.start for b in bounds.values()], "ends": [b.stop for b in bounds.values()]}
        stated["axes"], steps = list(bounds), [b.step for b in bounds.values()]
        if self.opset(before) < 10:
            found = self.add(before, "Slice", [data], stated)[0]
        else:
            numbers = [*stated.values(), *([steps] if any(step != 1 for step in steps) else [])]
            inputs = [self.constant(np.array(listed, np.int64), before) for listed in numbers]
            found = self.add(before, "Slice", [data, *inputs])[0]
        note_like(found, data, sliced_sizes(data, bounds))
        return found

    def gather(self, before: ir.Node, data: ir.Value, positions: Sequence[int], axis: int) -> ir.Value:
        """Add a Gather of some positions of an axis in front of another node."""
        at = self.constant(np.array(positions, np.int64), before)
        found = self.add(before, "Gather", [data, at], {"axis": axis})[0]
        note_like(found, data, {axis: len(positions)})
        return found

    def concat(self, before: ir.Node, values: Sequence[ir.Value], axis: int) -> ir.Value:
        """Add a Concat in front of another node."""
        return self.add(before, "Concat", values, {"axis": axis})[0]

    def reshape(
        self, before: ir.Node, value: ir.Value, pattern: Sequence[int], shape: Shape | None
    ) -> ir.Value:
        """Add a Reshape in front of another node."""
        if self.opset(before) < 5:
            made = self.add(before, "Reshape", [value], {"shape": list(pattern)})[0]
        else:
            made = self.add(before, "Reshape", [value, self.constant(np.array(pattern, np.int64), before)])[0]
        note(made, Tensor(type_of(value), shape))
        return made

    def transpose(self, before: ir.Node, value: ir.Value, order: Sequence[int]) -> ir.Value:
        """Add a Transpose in front of another node."""
        made = self.add(before, "Transpose", [value], {"perm": list(order)})[0]
        note(made, Tensor(type_of(value), permuted(shape_of(value), order)))
        return made

    def repeat(
        self, before: ir.Node, node: ir.Node, inputs: Sequence[ir.Value | None], axis: int, size: int
    ) -> ir.Value:
        """Add a node like another one, with other inputs."""
        named = {name: attribute.value for name, attribute in node.attributes.items()}
        made = self.add(before, node.op_type, inputs, named)[0]
        note_like(made, node.outputs[0], {axis: size})
        return made

    def squeeze(self, before: ir.Node, value: ir.Value, axis: int) -> ir.Value:
        """Add a Squeeze of one axis in front of another node."""
        if self.opset(before) < 13:
            return self.add(before, "Squeeze", [value], {"axes": [axis]})[0]
        return self.add(before, "Squeeze", [value, self.constant(np.array([axis], np.int64), before)])[0]

    def constant(
        self,
        content: npt.NDArray[Any] | ir.TensorProtocol,
        before: ir.Node,
        *,
        shared: bool = True,
        name: str | None = None,
    ) -> ir.Value:
        """Return a constant that a node can read: an initializer of the main graph where it sees it.

        Args:
            content: the value.
            before: the node.
            shared: whether equal constants may be one.
            name: its name; None makes one.
        """
        array = content if isinstance(content, np.ndarray) and content.dtype != object else None
        in_function = self._scopes[before.graph].in_function
        by_node = in_function or (self.model.ir_version or 0) < INITIALIZERS_OF_THEIR_OWN
        key = None if array is None or not shared else (array.dtype.str, array.shape, array.tobytes())
        if key is not None and key in self._constants and not by_node:
            found = self._constants[key]
            if found.name in self.model.graph.initializers:
                return found
        tensor = ir.tensor(content) if isinstance(content, np.ndarray) else content
        if by_node:
            made = self.constant_node(tensor, before)
            made.name = name or made.name
            return made
        value = initializer(self.model.graph, tensor, name or self.fresh("splitops_constant"))
        if key is not None:
            self._constants[key] = value
        return value

    def constant_node(self, tensor: ir.TensorProtocol, before: ir.Node) -> ir.Value:
        """Add a Constant node in front of another node."""
        value = self.add(before, "Constant", [], {"value": tensor})[0]
        value.type, value.shape = ir.TensorType(tensor.dtype), fixed_shape(tensor)
        return value

    def fold(
        self, array: npt.NDArray[Any], element_type: ElementType, old: ir.Value, before: ir.Node
    ) -> ir.Value:
        """Return a new constant for the place of a value, with its name where both are in the main graph.

        An empty one is a ConstantOfShape: see :meth:`has_empty`.
        """
        if not array.size:
            shape = self.constant(np.array(array.shape, np.int64), before)
            zero = _tensor(np.zeros(1, element_type.numpy), element_type)
            made = self.add(before, "ConstantOfShape", [shape], {"value": zero})[0]
            made.type, made.shape = ir.TensorType(zero.dtype), ir.Shape(array.shape)
            return made
        tensor = _tensor(array, element_type)
        if old.is_graph_output():
            return self.constant_node(tensor, before)
        if before.graph is not self.model.graph:
            return self.constant(tensor, before, shared=False)
        return self.constant(tensor, before, shared=False, name=self.unnamed(old))

    def replace(self, old: ir.Value, new: ir.Value) -> None:
        """Let all that reads a value read another one, which is equal; a graph output keeps its name."""
        if not old.is_graph_output():
            super().replace(old, new)
            return
        producer, origin = old.producer(), new.producer()
        assert producer is not None
        if origin is None or origin.graph is not producer.graph or new.is_graph_output():
            new = self.add(producer, "Identity", [new])[0]
        take_over(new, old)
        name = self.unnamed(old)
        super().replace(old, new)
        new.name = name


def _tensor(array: npt.NDArray[Any], element_type: ElementType) -> ir.Tensor[Any] | ir.StringTensor:
    assert element_type.onnx_number is not None
    dtype = ir.DataType(element_type.onnx_number)
    if dtype == ir.DataType.STRING:
        return ir.StringTensor(array.astype(object), shape=ir.Shape(array.shape))
    return ir.Tensor(array.astype(dtype.numpy(), copy=False), dtype)


def _divided(tensor: ir.TensorProtocol, axis: int, sizes: Sequence[int]) -> list[Any] | None:
    """Return the parts of a tensor; those of one in another file stay in it where they can."""
    element = from_onnx(tensor.dtype.value)
    if element is None:
        return None
    if not isinstance(tensor, ir.ExternalTensor):
        return [_tensor(piece, element) for piece in pieces(tensor.numpy(), axis, sizes)]
    shape = tuple(int(size) for size in tensor.shape.numpy())
    lengths = lying(shape, axis, sizes, element)
    if lengths is None:
        return None
    offset, parts = tensor.offset or 0, []
    for size, length in zip(sizes, lengths, strict=True):
        part_shape = ir.Shape((*shape[:axis], size, *shape[axis + 1 :]))
        parts.append(
            ir.ExternalTensor(
                tensor.location,
                offset,
                length,
                tensor.dtype,
                shape=part_shape,
                name=tensor.name or "",
                base_dir=tensor.base_dir,
            )
        )
        offset += length
    return parts
