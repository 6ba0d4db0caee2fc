"""Edits of an onnx-ir model, and the queue of nodes that they make worth another look."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from splitops.dims import Dim
from splitops.errors import NOWHERE, SplitError, Where
from splitops.models.convert.onnx_graph import Names, graphs_of, known, label
from splitops.models.convert.onnx_splits import FAMILY, read_site
from splitops.models.convert.statement import describe_site, stated
from splitops.models.infer.knowledge import Tensor
from splitops.models.simplify.decisions import Cut, cut_of, shortest
from splitops.models.simplify.onnx_values import is_needed, is_operator, note_like, take_over, tensor_shape
from splitops.models.simplify.report import Applied
from splitops.operators import schema

if TYPE_CHECKING:
    from splitops.models.simplify.onnx_pass import SplitPass

__all__ = ["Editor"]

_INITIALIZERS_OF_THEIR_OWN: Final = 4
"""The first IR version in which an initializer need not be an input as well."""


@dataclass(frozen=True, slots=True)
class _Scope:
    path: str | None
    opset: int
    in_function: bool


class Editor:
    """A model that is being rewritten.

    Attributes:
        model: the model; it is changed in place.
        names: its names.
        changes: what was rewritten.
        looks: how often a rewrite has looked at a node.
    """

    def __init__(self, model: ir.Model, where: Where = NOWHERE) -> None:
        self.model = model
        self.names = Names(model)
        self.changes: list[Applied] = []
        self.looks = 0
        self._where = where
        self._scopes: dict[Any, _Scope] = {}
        self._queue: dict[ir.Node, None] = {}
        self._cuts: dict[ir.Node, Cut | None] = {}
        self._positions: dict[ir.Node, int] = {}
        self._labels: dict[ir.Node, str] = {}  # as the model that was given has them
        self._looked: dict[ir.Value | None, set[tuple[str, Any]]] = {}
        self._wishes: dict[str, int] = {}
        self._constants: dict[tuple[str, tuple[int, ...], bytes], ir.Value] = {}
        imported = model.opset_imports.get("", model.opset_imports.get("ai.onnx", 0))
        self._add(model.graph, None, imported, False)
        for function in model.functions.values():
            own = function.opset_imports.get("", function.opset_imports.get("ai.onnx", imported))
            self._add(function, f"function {function.domain}.{function.name}", own, True)

    def _add(self, owner: Any, path: str | None, opset: int, in_function: bool) -> None:
        for inner, graph in graphs_of(owner, path):
            scope = _Scope(inner, opset, in_function)
            for node in graph:
                self._scopes[node.graph] = scope
                self._queue[node] = None
                self._positions[node] = len(self._positions)
                self._labels[node] = label(node)

    def run(self, rewrites: Sequence[SplitPass]) -> None:
        """Apply rewrites until none applies: a node is looked at again only after a change near it."""
        by_root: dict[str, list[SplitPass]] = {}
        for rewrite in rewrites:
            for root in rewrite.roots:
                by_root.setdefault(root, []).append(rewrite)
        while self._queue:
            node = next(iter(self._queue))
            del self._queue[node]
            for rewrite in by_root.get(node.op_type, ()) if is_operator(node, node.op_type) else ():
                if node.graph is None:
                    break  # the rewrite before this one has removed it
                self.looks += 1
                rewrite.rewrite(node, self)

    # What stands in the model

    def opset(self, node: ir.Node) -> int:
        """Return the opset of the graph that a node stands in."""
        return self._scopes[node.graph].opset

    def where(self, node: ir.Node) -> Where:
        """Return the place of a node."""
        return Where(self._where.model, self._scopes[node.graph].path, self._labels.get(node) or label(node))

    def cut(self, node: ir.Node) -> Cut | None:
        """Return what a split does; None of another node, and of one that is invalid or known too little."""
        if node not in self._cuts:
            self._cuts[node] = self._read(node)
        return self._cuts[node]

    def _read(self, node: ir.Node) -> Cut | None:
        if not is_operator(node, *FAMILY):
            return None
        try:
            return cut_of(read_site(node, self.opset(node), self.where(node)).bind())
        except SplitError:
            return None

    def describe(self, node: ir.Node) -> str:
        """Write what a node is in one line."""
        cut = self.cut(node)
        if cut is not None:
            row = schema(node.op_type, self.opset(node), "")
            count = len(node.outputs)
            return describe_site(row, cut.axis, cut.division, count, squeeze=cut.squeeze)
        axis = node.attributes.get("axis")
        return node.op_type if axis is None or axis.is_ref() else f"{node.op_type}(axis={axis.value})"

    def source(self, value: ir.Value) -> ir.Value:
        """Return the value that a value is, behind all Identity nodes of its graph."""
        while True:
            producer = value.producer()
            if producer is None or not is_operator(producer, "Identity"):
                return value
            behind = producer.inputs[0]
            if behind is None:
                return value
            value = behind

    def part_of(self, value: ir.Value) -> tuple[ir.Node, int] | None:
        """Return the Split that makes a value, and the position of the part."""
        found = self.source(value)
        producer, index = found.producer(), found.index()
        if producer is None or index is None or not is_operator(producer, "Split"):
            return None
        return producer, index

    def alone(self, value: ir.Value) -> ir.Node | None:
        """Return the only node that reads a value, behind Identity nodes; None where there are others."""
        while not value.is_graph_output():
            uses = value.uses()
            if len(uses) != 1:
                return None
            reader = next(iter(uses)).node
            if not is_operator(reader, "Identity"):
                return reader
            value = reader.outputs[0]
        return None

    def position(self, node: ir.Node) -> int | None:
        """Return the position of a node among those of its graph; None for one that was added."""
        return self._positions.get(node)

    def first_look(self, rewrite: str, value: ir.Value, graph: Any) -> bool:
        """Return whether a rewrite has yet to look at the readers of a value in a graph, as they are now."""
        looked = self._looked.setdefault(value, set())
        if (rewrite, graph) in looked:
            return False
        looked.add((rewrite, graph))
        return True

    # Changes

    def applied(self, rewrite: SplitPass, where: Where, before: str, after: str, reason: str) -> None:
        """Report a rewrite."""
        self.changes.append(Applied(rewrite.name, where, before, after, reason))

    def look_again(self, node: ir.Node | None) -> None:
        """Put a node into the queue, and forget what was read of it."""
        if node is not None and node.graph is not None:
            self._cuts.pop(node, None)
            self._looked.pop(node.inputs[0] if node.inputs else None, None)
            self._queue[node] = None

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
        made = ir.convenience.convert_attributes(dict(attributes or {}))
        node = ir.Node("", operator, inputs, made, outputs=values, name=self.fresh(f"{base}/{operator}"))
        graph = before.graph
        assert graph is not None
        graph.insert_before(before, [node])
        self._scopes[node.graph] = self._scopes[graph]
        self._queue[node] = None
        return values

    def split(
        self, before: ir.Node, data: ir.Value, axis: int, size: Dim, sizes: Sequence[int]
    ) -> list[ir.Value]:
        """Add a Split in front of another node, stated as shortly as its opset allows.

        Args:
            before: the node.
            data: what is split.
            axis: the axis.
            size: its size.
            sizes: the parts, which add up to it.
        """
        row = schema("Split", self.opset(before), "")
        attributes, facts = stated(row, axis, shortest(row, sizes, size))
        inputs: list[ir.Value | None] = [
            None if fact is None else self.constant(np.array(fact.value, np.int64), before) for fact in facts
        ]
        inputs[0] = data
        parts = self.add(before, "Split", inputs, attributes, outputs=len(sizes))
        for part, length in zip(parts, sizes, strict=True):
            note_like(part, data, {axis: length})
        return parts

    def slice(self, before: ir.Node, data: ir.Value, axis: int, begin: int, end: int) -> ir.Value:
        """Add a Slice in front of another node; ``end`` lies inside the axis."""
        if self.opset(before) < 10:
            found = self.add(before, "Slice", [data], {"axes": [axis], "starts": [begin], "ends": [end]})[0]
        else:
            bounds = [self.constant(np.array([number], np.int64), before) for number in (begin, end, axis)]
            found = self.add(before, "Slice", [data, *bounds])[0]
        note_like(found, data, {axis: end - begin})
        return found

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
        tensor = ir.tensor(content) if isinstance(content, np.ndarray) else content
        array = content if isinstance(content, np.ndarray) and content.dtype != object else None
        own = not self._scopes[before.graph].in_function
        if not own or (self.model.ir_version or 0) < _INITIALIZERS_OF_THEIR_OWN:
            made = self.constant_node(tensor, before)
            made.name = name or made.name
            return made
        key = None if array is None or not shared else (array.dtype.str, array.shape, array.tobytes())
        if key is not None and key in self._constants:
            found = self._constants[key]
            if found.name in self.model.graph.initializers:
                return found
        value = ir.Value(name=name or self.fresh("splitops_constant"), const_value=tensor)
        tensor.name = value.name
        value.type, value.shape = ir.TensorType(tensor.dtype), tensor_shape(tensor)
        self.model.graph.register_initializer(value)
        if key is not None:
            self._constants[key] = value
        return value

    def named_constant(self, tensor: ir.TensorProtocol, old: ir.Value, before: ir.Node) -> ir.Value:
        """Return a constant in the place of a value: with its name where both stand in the main graph."""
        if before.graph is not self.model.graph:
            return self.constant(tensor, before, shared=False)
        name = self._unnamed(old)
        return self.constant(tensor, before, shared=False, name=name)

    def constant_node(self, tensor: ir.TensorProtocol, before: ir.Node) -> ir.Value:
        """Add a Constant node in front of another node."""
        value = self.add(before, "Constant", [], {"value": tensor})[0]
        value.type, value.shape = ir.TensorType(tensor.dtype), tensor_shape(tensor)
        return value

    def replace(self, old: ir.Value, new: ir.Value) -> None:
        """Let all that reads a value read another one, which is equal; a graph output keeps its name."""
        producer = old.producer()
        assert producer is not None
        for use in old.uses():
            self._moved(use.node)
        if not old.is_graph_output():
            old.replace_all_uses_with(new)
        else:
            origin = new.producer()
            if origin is None or origin.graph is not producer.graph or new.is_graph_output():
                new = self.add(producer, "Identity", [new])[0]
            take_over(new, old)
            name = self._unnamed(old)
            old.replace_all_uses_with(new, replace_graph_outputs=True)
            new.name = name
        self.look_again(producer)
        self.look_again(new.producer())

    def fresh(self, wish: str) -> str:
        """Return the wished name, or one like it that is free; counted, as a wish may be common."""
        count = self._wishes.get(wish, 0)
        self._wishes[wish] = count + 1
        return self.names.fresh(f"{wish}_{count}" if count else wish)

    def _unnamed(self, value: ir.Value) -> str | None:
        """Take the name of a value that nobody will read away from it; its node may stay."""
        name = value.name
        if name:
            value.name = self.fresh(f"{name}_unused")
        return name

    def _moved(self, reader: ir.Node) -> None:
        """Look again at a node that reads another value now, and at those behind it that see through it."""
        self.look_again(reader)
        if is_operator(reader, "Identity"):
            for use in reader.outputs[0].uses():
                self._moved(use.node)

    def substitute(self, node: ir.Node, values: Sequence[ir.Value | None]) -> None:
        """Put values in the places of a node's outputs (None: of one that nobody reads), and remove it."""
        made = next((value.producer() for value in values if value is not None), None)
        for old, new in zip(list(node.outputs), values, strict=True):
            if new is None:
                continue
            if new.producer() is not None and not new.uses() and not new.is_graph_output():
                take_over(new, old)  # it was made for this place
                name, old.name = old.name, None
                for use in old.uses():
                    self._moved(use.node)
                old.replace_all_uses_with(new, replace_graph_outputs=True)
                new.name = name or new.name
            else:
                self.replace(old, new)
        if made is not None and made not in self._positions:
            made.name = node.name  # a node in the place of another one is called like it
            self._labels[made] = self._labels.get(node) or label(node)
        self.remove(node)

    def set_inputs(self, node: ir.Node, values: Sequence[ir.Value | None]) -> None:
        """Give a node other inputs."""
        before = [value for value in node.inputs if value is not None]
        node.resize_inputs(len(values))
        for index, value in enumerate(values):
            node.replace_input_with(index, value)
        self._moved(node)
        for value in before:
            self.release(value)

    def remove(self, node: ir.Node) -> None:
        """Remove a node that nobody reads, and what was made for it alone."""
        graph = node.graph
        assert graph is not None
        inputs = [value for value in node.inputs if value is not None]
        graph.remove(node, safe=True)
        self._queue.pop(node, None)
        self._cuts.pop(node, None)
        for value in dict.fromkeys(inputs):
            self.release(value)

    def release(self, value: ir.Value) -> None:
        """Remove the initializer or node behind a value that nobody reads any more, if it could not fail."""
        producer = value.producer()
        self.look_again(producer)
        if value.uses() or value.is_graph_output() or value.is_graph_input():
            return
        if producer is not None:
            if producer.graph is not None and not is_needed(producer):
                self.remove(producer)
        elif value.is_initializer():
            graph = value.graph
            if isinstance(graph, ir.Graph) and value.name is not None:
                graph.initializers.pop(value.name, None)

    def known_values(self, values: Sequence[ir.Value]) -> Iterator[Tensor | None]:
        """Yield what is known of some tensors."""
        for value in values:
            found = known(value)
            yield found if isinstance(found, Tensor) else None
