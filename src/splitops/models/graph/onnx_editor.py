"""Edit ONNX models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from splitops.errors import NOWHERE, Where
from splitops.models.abstract_values import AbstractTensor
from splitops.models.formats.onnx.schemas import find_version
from splitops.models.formats.walk import (
    MIN_IR_VERSION_OF_CONSTANTS,
    get_opset_imports,
    has_defaults,
    iter_graphs,
    iter_owners,
    make_stem,
)
from splitops.models.graph.editor import Editor, GraphScope, Role, get_roles
from splitops.models.graph.onnx import (
    add_initializer,
    get_abstract_value,
    has_consumers,
    make_shape,
    merge_value_info,
    read_constant,
)
from splitops.models.graph.op_builder import OnnxOpBuilder
from splitops.models.graph.split_nodes import read_split_node
from splitops.models.ops import find_node_spelling
from splitops.models.ops.operator import Spelling
from splitops.models.split_nodes import SplitNode
from splitops.models.split_nodes.static_facts import find_byte_ranges, split_array
from splitops.models.split_nodes.ways import get_onnx_types
from splitops.spec.elements.types import ElementType, from_onnx

_ONNX: Final = frozenset({"", "ai.onnx"})
_ROLES: Final = get_roles("")
_CONSTANT_OF_SHAPE: Final = 9
"""The first opset with ConstantOfShape."""
_NEVER_FAIL: Final = frozenset({"Constant", "Identity", "Shape", "Size"})


def is_operator(node: ir.Node, *names: str) -> bool:
    """Return whether a node is one of the ONNX operators ``names``."""
    return node.domain in _ONNX and node.op_type in names


def _has_valid_signature(node: ir.Node, opset: int) -> bool:
    """Return whether a node has valid numbers of inputs and outputs, and attributes of valid types."""
    version = find_version(node.op_type, opset)
    if version is None or not version.inputs.can_have(len(node.inputs)):
        return False
    kinds = {name: attribute.kind for name, attribute in version.attributes.items()}
    return version.outputs.can_have(len(node.outputs)) and all(
        attribute.type == kinds.get(name) for name, attribute in node.attributes.items()
    )


class OnnxEditor(Editor):
    """Edits an ONNX model as a graph of onnx-ir."""

    domain = ""

    def __init__(self, model: ir.Model, where: Where = NOWHERE) -> None:
        self._constants: dict[tuple[str, tuple[int, ...], bytes], ir.Value] = {}
        self._read_last: dict[ir.Node, int] = {}  # index of the last used output that was found
        super().__init__(model, where)

    def _iter_graphs(self) -> Iterator[tuple[GraphScope, Any]]:
        imported = get_opset_imports(self.model.graph, self.model).get("", 0)
        for start, owner in iter_owners(self.model):
            for path, graph in iter_graphs(owner, start):
                yield (
                    GraphScope(
                        path, get_opset_imports(owner).get("", imported), in_function=start is not None
                    ),
                    graph,
                )

    def find_role(self, node: ir.Node) -> Role | None:
        """Return the role of a node in rewrites, or None if it has none or its signature is invalid."""
        role = _ROLES.get(node.op_type) if node.domain in _ONNX else None
        if role is None or node.graph is None or _has_valid_signature(node, self.get_opset(node)):
            return role
        return None

    def read_split_node(self, node: ir.Node) -> SplitNode:
        """Read a split node with its abstract inputs."""
        opset, where = self.get_opset(node), self.locate(node)
        return read_split_node(node, opset, where, defaults=has_defaults(self.model))

    def read_attribute(self, node: ir.Node, name: str) -> Any:
        """Return the value of an attribute, or None if it is not set. Raise LookupError for a reference."""
        found = node.attributes.get(name)
        if found is not None and found.is_ref():
            raise LookupError(name)
        return None if found is None else found.value

    def find_spelling(self, node: ir.Node) -> tuple[Spelling, Mapping[str, Any]] | None:
        """Return the :class:`Spelling` and attributes of a node, or None if any of these is unknown."""
        found = find_node_spelling(node.op_type, self.get_opset(node)) if node.domain in _ONNX else None
        if found is None or any(attribute.is_ref() for attribute in node.attributes.values()):
            return None
        return found[1], {name: attribute.value for name, attribute in node.attributes.items()}

    def is_live(self, node: ir.Node) -> bool:
        """Return whether a node must stay: an output is used, or the node may fail at run time.

        An ONNX node whose output elements are all inferred cannot fail.
        """
        if node.domain not in _ONNX or self._has_consumers(node):
            return True
        if node.op_type in _NEVER_FAIL:
            return False
        facts = [get_abstract_value(value) for value in node.outputs]
        return not all(isinstance(found, AbstractTensor) and found.is_complete for found in facts)

    def _has_consumers(self, node: ir.Node) -> bool:
        """Return whether an output of a node is used. The last one found to be used is checked first."""
        count, first = len(node.outputs), self._read_last.get(node, 0)
        for index in chain(range(first, count), range(first)):
            if has_consumers(node.outputs[index]):
                self._read_last[node] = index
                return True
        return False

    def has_type(self, element_type: ElementType) -> bool:
        """Return whether ONNX has an element type."""
        return element_type.onnx_number is not None

    def has_empty(self, element_type: ElementType, node: ir.Node) -> bool:
        """Return whether a ConstantOfShape at ``node`` can create an empty tensor of ``element_type``.

        An empty initializer or Constant is not used, because OpenVINO reads it as a scalar.
        """
        opset = self.get_opset(node)
        return opset >= _CONSTANT_OF_SHAPE and element_type in get_onnx_types("ConstantOfShape", opset, "T2")

    def read_constant(self, value: ir.Value, limit: int) -> tuple[npt.NDArray[Any], ElementType] | None:
        """Return the array and the type of an initializer or Constant node, or None if it is unavailable."""
        array = read_constant(value, limit=limit)
        if array is None:
            return None
        tensor = ir.convenience.get_const_tensor(value)
        assert tensor is not None
        element_type = from_onnx(tensor.dtype.value)
        return None if element_type is None else (array, element_type)

    def split_constant(self, value: ir.Value, axis: int, sizes: Sequence[int]) -> list[ir.Value] | None:
        """Split an initializer with a single use.

        Return None for other values, if a part is empty, or if a part of external data is not contiguous.
        """
        tensor = value.const_value
        if tensor is None or not value.is_initializer() or value.is_graph_input():
            return None
        if len(value.uses()) > 1 or value.is_graph_output():
            return None
        pieces = _split_tensor(tensor, axis, sizes)
        if pieces is None or not all(piece.size for piece in pieces):  # see has_empty
            return None
        made = []
        for piece in pieces:
            part = ir.Value(name=self.names.make_name(f"{value.name}_part"), const_value=piece)
            part.type, part.shape = ir.TensorType(piece.dtype), ir.Shape(piece.shape)
            made.append(part)
        return made

    def insert_part(self, part: ir.Value, whole: ir.Value, before: ir.Node) -> None:
        """Register a part of an initializer as an initializer of the same graph."""
        assert isinstance(whole.graph, ir.Graph)
        assert part.const_value is not None
        part.const_value.name = part.name
        whole.graph.register_initializer(part)

    # Edits

    def make_builder(self, before: ir.Node) -> OnnxOpBuilder:
        """Return a builder that inserts nodes before ``before``. It reuses equal initializers."""
        return _OpBuilder(self, before)

    def add_constant(
        self,
        content: npt.NDArray[Any] | ir.TensorProtocol,
        before: ir.Node,
        *,
        shared: bool = True,
        name: str | None = None,
    ) -> ir.Value:
        """Add a constant that ``before`` can read, as an initializer of the main graph if possible.

        With ``shared``, return an equal initializer that was added before, if there is one.
        """
        array = content if isinstance(content, np.ndarray) and content.dtype != object else None
        in_function = self._scopes[before.graph].in_function
        by_node = in_function or (self.model.ir_version or 0) < MIN_IR_VERSION_OF_CONSTANTS
        key = None if array is None or not shared else (array.dtype.str, array.shape, array.tobytes())
        if key is not None and key in self._constants and not by_node:
            found = self._constants[key]
            if found.name in self.model.graph.initializers:
                return found
        tensor = ir.tensor(content) if isinstance(content, np.ndarray) else content
        if by_node:
            made = self.add_constant_node(tensor, before)
            made.name = name or made.name
            return made
        value = add_initializer(self.model.graph, tensor, name or self.names.make_name("splitops_constant"))
        if key is not None:
            self._constants[key] = value
        return value

    def add_constant_node(self, tensor: ir.TensorProtocol, before: ir.Node) -> ir.Value:
        """Insert a Constant node before another node, and return its output."""
        value = self.make_builder(before).add("Constant", [], {"value": tensor})
        value.type, value.shape = ir.TensorType(tensor.dtype), make_shape(tensor)
        return value

    def fold(
        self, array: npt.NDArray[Any], element_type: ElementType, old: ir.Value, before: ir.Node
    ) -> ir.Value:
        """Return a new constant to replace ``old`` with.

        In the main graph, it takes the name of ``old``, unless it is empty or replaces a graph output. An
        empty constant is the output of a ConstantOfShape; see :meth:`has_empty`.
        """
        if not array.size:
            shape = self.add_constant(np.array(array.shape, np.int64), before)
            zero = _make_tensor(np.zeros(1, element_type.numpy), element_type)
            made = self.make_builder(before).add("ConstantOfShape", [shape], {"value": zero})
            made.type, made.shape = ir.TensorType(zero.dtype), ir.Shape(array.shape)
            return made
        tensor = _make_tensor(array, element_type)
        if old.is_graph_output():
            return self.add_constant_node(tensor, before)
        if before.graph is not self.model.graph:
            return self.add_constant(tensor, before, shared=False)
        return self.add_constant(tensor, before, shared=False, name=self.take_name(old))

    def replace(self, old: ir.Value, new: ir.Value) -> None:
        """Replace all uses of a value with an equal one. A graph output keeps its name."""
        if not old.is_graph_output():
            super().replace(old, new)
            return
        producer, origin = old.producer(), new.producer()
        assert producer is not None
        if origin is None or origin.graph is not producer.graph or new.is_graph_output():
            new = self.make_builder(producer).add("Identity", [new])
        merge_value_info(new, old)
        name = self.take_name(old)
        super().replace(old, new)
        new.name = name


class _OpBuilder(OnnxOpBuilder):
    """Inserts nodes before a node of an edited model."""

    def __init__(self, editor: OnnxEditor, before: ir.Node) -> None:
        super().__init__(editor.get_opset(before), editor.names, make_stem(before))
        self._editor = editor
        self._before = before

    def append_node(self, node: ir.Node) -> None:
        super().append_node(node)
        self._editor.insert(self._before, node)

    def add_constant(self, array: npt.NDArray[Any], hint: str = "const") -> ir.Value:
        return self._editor.add_constant(array, self._before)

    def replace(self, node: ir.Node, outputs: Sequence[ir.Value | None]) -> None:
        self._editor.substitute(node, outputs)


def _make_tensor(array: npt.NDArray[Any], element_type: ElementType) -> ir.Tensor[Any] | ir.StringTensor:
    assert element_type.onnx_number is not None
    dtype = ir.DataType(element_type.onnx_number)
    if dtype == ir.DataType.STRING:
        return ir.StringTensor(array.astype(object), shape=ir.Shape(array.shape))
    return ir.Tensor(array.astype(dtype.numpy(), copy=False), dtype)


def _split_tensor(tensor: ir.TensorProtocol, axis: int, sizes: Sequence[int]) -> list[Any] | None:
    """Split a tensor. Parts of external data refer to its file; return None if they are not contiguous."""
    element = from_onnx(tensor.dtype.value)
    if element is None:
        return None
    if not isinstance(tensor, ir.ExternalTensor):
        return [_make_tensor(piece, element) for piece in split_array(tensor.numpy(), axis, sizes)]
    shape = tuple(int(size) for size in tensor.shape.numpy())
    ranges = find_byte_ranges(shape, axis, sizes, element)
    return ranges and [
        ir.ExternalTensor(
            tensor.location,
            (tensor.offset or 0) + offset,
            length,
            tensor.dtype,
            shape=ir.Shape(part),
            name=tensor.name or "",
            base_dir=tensor.base_dir,
        )
        for part, offset, length in ranges
    ]
