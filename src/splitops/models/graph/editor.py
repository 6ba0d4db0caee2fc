"""Edits of a graph of onnx-ir nodes, and the queue of nodes that they make worth another look.

ONNX models and OpenVINO IR are both rewritten as onnx-ir graphs, so each rewrite is written once. What
differs between the formats (how a node is read, how one is set) is in the two subclasses of
:class:`Editor`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from splitops.common.progress import track
from splitops.errors import NOWHERE, SplitError, Where
from splitops.models.abstract_values import AbstractTensor
from splitops.models.formats.walk import AnyGraph, FreshNames, label
from splitops.models.graph.applied import Applied
from splitops.models.graph.onnx import (
    constant_array,
    describe_like,
    fixed_array,
    get_abstract_value,
    has_consumers,
    is_constant,
    remove_node,
    replace_all_uses,
    set_inputs,
    shape_of,
    transfer_values,
)
from splitops.models.graph.op_builder import OpBuilder
from splitops.models.ops import BY_LAYER, BY_NODE
from splitops.models.ops.operator import Role as Role
from splitops.models.ops.operator import Spelling, Unknown
from splitops.models.split_nodes import SplitNode
from splitops.models.split_nodes.static_facts import SplitFacts, read_split_facts
from splitops.spec.elements.types import ElementType
from splitops.spec.operators import FAMILY, schema
from splitops.spec.operators.schemas import SourceKind
from splitops.spec.sizes.dims import Range, Shape

T = TypeVar("T")


def roles_of(domain: str) -> dict[str, Role]:
    """Return the roles of the operators of a domain by their names."""
    splits = (schema(name, domain=domain) for name in FAMILY[domain])
    found = {name: operator.role for name, operator in (BY_LAYER if domain else BY_NODE).items()}
    return {name: role for name, role in found.items() if role is not None} | {
        schema.name: Role.SEQUENCE if schema.gives_sequence else Role.SPLIT for schema in splits
    }


class Rewrite(Protocol):
    """One rewrite.

    Attributes:
        name: its name.
        roots: the nodes at which it begins.
    """

    @property
    def name(self) -> str: ...  # noqa: D102

    @property
    def roots(self) -> frozenset[Role]: ...  # noqa: D102

    def rewrite(self, node: ir.Node, editor: Editor, /) -> None:
        """Rewrite what begins at a node, or do nothing."""
        ...


@dataclass(frozen=True, slots=True)
class GraphScope:
    """The path and opset of a graph that nodes are in, and whether it belongs to a model-local function."""

    path: str | None
    opset: int
    in_function: bool = False


class Editor(ABC):
    """A model that is being rewritten.

    Attributes:
        domain: of its operators, as :mod:`splitops.spec.operators` has it.
        model: the model; it is changed in place.
        changes: what was rewritten.
        visits: how often a rewrite has looked at a node.
    """

    domain: ClassVar[str]

    def __init__(self, model: ir.Model, where: Where = NOWHERE) -> None:
        self.model = model
        self.changes: list[Applied] = []
        self.visits = 0
        self._where = where
        self._scopes: dict[ir.Graph | None, GraphScope] = {}
        self._queue: dict[ir.Node, None] = {}
        self._cuts: dict[ir.Node, SplitFacts | None] = {}
        self._positions: dict[ir.Node, int] = {}
        self._labels: dict[ir.Node, str] = {}  # as the model that was given has them
        self._looked: dict[ir.Value | None, set[tuple[str, Any]]] = {}
        self._found: dict[Callable[[Editor], Any], Any] = {}
        self._rewrite = ""
        self._readers: dict[ir.Value, int] = {}  # of constants, as far as they were counted
        for scope, graph in self._graphs():
            for node in graph:
                self._scopes[node.graph] = scope
                self._queue[node] = None
                self._positions[node] = len(self._positions)
                if not node.name:
                    self._labels[node] = label(node)

    @cached_property
    def names(self) -> FreshNames:
        """The names of the model."""
        return FreshNames(self.model)

    def run(self, rewrites: Sequence[Rewrite]) -> None:
        """Apply rewrites until none applies: a node is looked at again only after a change near it."""
        by_root: dict[Role | None, list[Rewrite]] = {}
        for rewrite in rewrites:
            for root in rewrite.roots:
                by_root.setdefault(root, []).append(rewrite)
        for node in track(self._pop_worklist(), "simplify"):
            for rewrite in by_root.get(self.role(node), ()):
                if node.graph is None:
                    break  # the rewrite before this one has removed it
                self.visits += 1
                self._rewrite = rewrite.name
                rewrite.rewrite(node, self)

    def _pop_worklist(self) -> Iterator[ir.Node]:
        """Yield the nodes to look at, also those that are added meanwhile."""
        while self._queue:
            node = next(iter(self._queue))
            del self._queue[node]
            yield node

    # What the format says

    @abstractmethod
    def _graphs(self) -> Iterator[tuple[GraphScope, AnyGraph]]:
        """Yield every graph and function of the model."""

    @abstractmethod
    def role(self, node: ir.Node) -> Role | None:
        """Return what a node is to the rewrites; None is nothing."""

    @abstractmethod
    def read_split_node(self, node: ir.Node) -> SplitNode:
        """Read a split."""

    @abstractmethod
    def attribute(self, node: ir.Node, name: str) -> Any:
        """Return an attribute, a number, numbers or text; None where a node does not set it.

        Raises LookupError where it is known only when a function is called.
        """

    @abstractmethod
    def is_live(self, node: ir.Node) -> bool:
        """Return whether a node is read, or could fail: one whose numbers are known without it could not."""

    def has_fixed_name(self, value: ir.Value) -> bool:
        """Return whether a value cannot give way to another one: an output would lose its name."""
        return False

    def has_fixed_outputs(self, node: ir.Node) -> bool:
        """Return whether the number of a node's outputs cannot change: an output would lose its name."""
        return False

    @abstractmethod
    def has_type(self, element_type: ElementType) -> bool:
        """Return whether the format has constants of an element type."""

    @abstractmethod
    def content(self, value: ir.Value, limit: int) -> tuple[npt.NDArray[Any], ElementType] | None:
        """Return a constant of at most ``limit`` elements and its type; None where none is at hand."""

    def has_empty(self, element_type: ElementType, node: ir.Node) -> bool:
        """Return whether a node can read an empty constant of an element type on every runtime."""
        return True

    @abstractmethod
    def split_constant(self, value: ir.Value, axis: int, sizes: Sequence[int]) -> list[ir.Value] | None:
        """Divide a constant that one node reads into constants beside it; None where it is none.

        They have no names yet; :meth:`use_split_constant` gives them those of the parts.
        """

    def use_split_constant(self, part: ir.Value, old: ir.Value, before: ir.Node) -> None:
        """Let a constant of :meth:`divided` stand for a part of what a node splits, with its name."""
        whole = before.inputs[0]
        assert whole is not None
        self.transfer_values({old: part})
        self.insert_part(part, whole, before)

    @abstractmethod
    def insert_part(self, part: ir.Value, whole: ir.Value, before: ir.Node) -> None:
        """Put a constant of :meth:`divided` in front of a node, with a name of its own."""

    # What the format writes

    @abstractmethod
    def make_builder(self, before: ir.Node) -> OpBuilder:
        """Return what writes nodes in front of one."""

    def can_slice(self, data: ir.Value) -> bool:
        """Return whether a Slice has a form for a tensor."""
        return True

    @abstractmethod
    def fold(
        self, array: npt.NDArray[Any], element_type: ElementType, old: ir.Value, before: ir.Node
    ) -> ir.Value:
        """Return a new constant for the place of a value, with its name where both are in one graph."""

    # Operators that both formats have

    def axis(self, node: ir.Node) -> int | None:
        """Return the axis that a node sets as an attribute; None where it sets none."""
        try:
            found = self.attribute(node, "axis")
        except LookupError:
            return None
        return found if isinstance(found, int) else None

    def written_axis(self, node: ir.Node) -> int | None:
        """Return the axis of a split as it is set: one that is counted from the end is negative."""
        if self.read_split_node(node).schema.axis.kind is SourceKind.ATTRIBUTE:
            return self.axis(node) if "axis" in node.attributes else 0
        axis = fixed_array(node.inputs[1]) if len(node.inputs) > 1 else None
        return None if axis is None or axis.size != 1 else int(axis.reshape(()))

    def window(self, node: ir.Node) -> Hashable:
        """Return the strides, pads and dilations of a convolution; zeros and ones may be left out."""
        usual = {"strides": 1, "pads": 0, "pads_begin": 0, "pads_end": 0, "dilations": 1}
        try:
            found = {name: np.atleast_1d(self.attribute(node, name) or []).tolist() for name in usual}
            padding = self.attribute(node, "auto_pad") or "NOTSET"
        except LookupError:
            return node  # like no other one
        return padding, *(
            tuple(found[name]) if any(number != often for number in found[name]) else ()
            for name, often in usual.items()
        )

    def weights(self, node: ir.Node, axis: int) -> dict[int, int] | None:
        """Return which axes of which inputs make an axis of the output: dividing them divides it.

        The other inputs are the same for every part. None where the node is not a matrix product,
        convolution of one group or sum of which this is known, or where such an input is not a constant.
        """
        shapes = [None if value is None else shape_of(value) for value in node.inputs]
        found: dict[int, int] | None = None
        addend = None
        if node.domain not in ("", "ai.onnx", self.domain):
            return None
        try:
            match node.op_type:
                case "MatMul":
                    found = product_axes(shapes, axis, turned=bool(self.attribute(node, "transpose_b")))
                case "Gemm" if axis == 1:
                    found = {1: 0 if self.attribute(node, "transB") else 1}
                    addend = 2 if len(node.inputs) > 2 and node.inputs[2] is not None else None
                case "Conv" | "Convolution" if axis == 1 and self.attribute(node, "group") in (None, 1):
                    found = {
                        index: 0 for index, value in enumerate(node.inputs) if index and value is not None
                    }
                case "Add" if self.attribute(node, "auto_broadcast") in (None, "numpy"):
                    found, addend = {}, 1 if is_constant(node.inputs[1]) else 0
        except LookupError:
            return None
        return self._with_addend(node, found, addend, axis)

    @abstractmethod
    def spelled(self, node: ir.Node) -> tuple[Spelling, Mapping[str, Any]] | None:
        """Return how the operator of a node is spelled, and its attributes, or None if unknown."""

    def operands(self, node: ir.Node) -> dict[str, npt.NDArray[Any]] | None:
        """Return the operands of a node but its data, by name; None if one of them is not known."""
        found = self.spelled(node)
        if found is None:
            return None
        spelling, attributes = found
        try:
            operands = spelling.read(attributes, node.inputs)
        except Unknown:
            return None
        operands.pop("data", None)
        arrays = {
            name: fixed_array(value) if isinstance(value, ir.Value) else np.array(value)
            for name, value in operands.items()
        }
        known = {name: array for name, array in arrays.items() if array is not None}
        return known if len(known) == len(arrays) else None

    def bounds(self, node: ir.Node, rank: int) -> dict[int, slice] | None:
        """Return what a Slice takes of each axis that it declares; None where it is unknown or not valid."""
        found = self.operands(node) or {}
        if not {"starts", "ends"} <= found.keys():
            return None
        if any(array.ndim != 1 or array.dtype.kind not in "iu" for array in found.values()):
            return None
        count = len(found["starts"])
        usual = {"axes": np.arange(count), "steps": np.ones(count, np.int64)}
        return bounds_of(rank=rank, **{name: array.tolist() for name, array in (usual | found).items()})

    def permutation(self, node: ir.Node, rank: int) -> list[int] | None:
        """Return which axis of its data each axis of a Transpose is; None where that is not known.

        One that sets none turns them round.
        """
        found = self.operands(node)
        order = None if found is None else found.get("order", np.array([]))
        return None if order is None else [int(axis) for axis in order] or list(reversed(range(rank)))

    def gathered(self, node: ir.Node) -> tuple[int, npt.NDArray[Any]] | None:
        """Return axis and positions of a Gather by constant positions; None of another one."""
        found = self.operands(node) or {}
        if "indices" not in found or found["axis"].size != 1:
            return None
        if not found["counts_back"] and (found["indices"] < 0).any():
            return None  # outside the axis
        return int(found["axis"].reshape(())), found["indices"]

    # What is in the model

    def _with_addend(
        self, node: ir.Node, axes: dict[int, int] | None, addend: int | None, axis: int
    ) -> dict[int, int] | None:
        """Return axes of inputs that make an axis of an output, with that of an input that is added to all.

        None where one of the inputs is not a constant.
        """
        shape = shape_of(node.outputs[0])
        if axes is None or shape is None:
            return None
        if addend is not None:
            added = node.inputs[addend]
            own = None if added is None else shape_of(added)
            if own is None or not is_constant(added):
                return None
            at = axis - (len(shape) - len(own))
            if at >= 0 and own[at] != 1:
                axes = {**axes, addend: at}
        return axes if all(is_constant(node.inputs[index]) for index in axes) else None

    def is_fixed(self, node: ir.Node) -> bool:
        """Return whether all that a node reads beside its data is known, if only as sizes of a name."""
        return all(value is None or _is_fixed(value) for value in node.inputs[1:])

    @property
    def graphs(self) -> list[ir.Graph]:
        """Every graph and function with nodes."""
        return [graph for graph in self._scopes if graph is not None]

    def opset(self, node: ir.Node) -> int:
        """Return the opset of the graph that a node is in."""
        return self._scopes[node.graph].opset

    def where(self, node: ir.Node) -> Where:
        """Return the place of a node."""
        return Where(self._where.model, self._scopes[node.graph].path, self._labels.get(node) or label(node))

    def read_split_facts(self, node: ir.Node) -> SplitFacts | None:
        """Return what a split does.

        None of another node, and of one that is invalid, known too little or read in two ways.
        """
        if node not in self._cuts:
            self._cuts[node] = self._read(node)
        return self._cuts[node]

    def _read(self, node: ir.Node) -> SplitFacts | None:
        if self.role(node) not in (Role.SPLIT, Role.SEQUENCE):
            return None
        try:
            split_node = self.read_split_node(node)
            return None if split_node.may_be_unbind else read_split_facts(split_node.bind())
        except SplitError:
            return None

    def describe(self, node: ir.Node) -> str:
        """Write what a node is in one line."""
        if self.read_split_facts(node) is not None:
            return str(self.read_split_node(node))
        axis = self.axis(node)
        return node.op_type if axis is None else f"{node.op_type}(axis={axis})"

    def describe_producer(self, value: ir.Value) -> str:
        """Write in one line what the node is that makes a value."""
        node = value.producer()
        assert node is not None
        return self.describe(node)

    def concat_axis(self, node: ir.Node, rank: int) -> int | None:
        """Return the axis of a Concat of tensors of some rank; None where it sets none of theirs."""
        axis = self.axis(node)
        return axis % rank if axis is not None and -rank <= axis < rank else None

    def skip_identities(self, value: ir.Value) -> ir.Value:
        """Return the value that a value is, behind all Identity nodes of its graph."""
        while True:
            producer = value.producer()
            if producer is None or self.role(producer) is not Role.IDENTITY:
                return value
            behind = producer.inputs[0]
            if behind is None:
                return value
            value = behind

    def part_of(self, value: ir.Value) -> tuple[ir.Node, int] | None:
        """Return the split that makes a value, and the position of the part."""
        found = self.skip_identities(value)
        producer, index = found.producer(), found.index()
        if producer is None or index is None or self.role(producer) is not Role.SPLIT:
            return None
        return producer, index

    def find_sole_consumer(self, value: ir.Value) -> ir.Node | None:
        """Return the only node that reads a value, behind Identity nodes; None where there are others."""
        while not value.is_graph_output():
            uses = value.uses()
            if len(uses) != 1:
                return None
            reader = next(iter(uses)).node
            if self.role(reader) is not Role.IDENTITY:
                return reader
            value = reader.outputs[0]
        return None

    def position(self, node: ir.Node) -> int | None:
        """Return the position of a node among those of its graph; None for one that was added."""
        return self._positions.get(node)

    def is_first_visit(self, value: ir.Value, graph: AnyGraph) -> bool:
        """Return whether the rewrite has yet to look at the readers of a value in a graph as they are."""
        looked = self._looked.setdefault(value, set())
        if (self._rewrite, graph) in looked:
            return False
        looked.add((self._rewrite, graph))
        return True

    def cached_analysis(self, look: Callable[[Editor], T]) -> T:
        """Return what a function finds in the model, which is asked for once."""
        if look not in self._found:
            self._found[look] = look(self)
        found: T = self._found[look]
        return found

    # Changes

    def applied(self, where: Where, before: str, after: str, reason: str) -> None:
        """Report what the rewrite has done."""
        self.changes.append(Applied(self._rewrite, where, before, after, reason))

    def enqueue(self, node: ir.Node | None) -> None:
        """Put a node into the queue, and forget what was read of it."""
        if node is not None and node.graph is not None:
            self._cuts.pop(node, None)
            self._looked.pop(node.inputs[0] if node.inputs else None, None)
            self._queue[node] = None

    def insert(self, before: ir.Node, node: ir.Node) -> list[ir.Value]:
        """Put a new node in front of another one, and return its outputs."""
        graph = before.graph
        assert graph is not None
        graph.insert_before(before, [node])
        self._scopes[node.graph] = self._scopes[graph]
        self._queue[node] = None
        return list(node.outputs)

    def replace(self, old: ir.Value, new: ir.Value) -> None:
        """Let all that reads a value read another one, which is equal."""
        producer = old.producer()
        assert producer is not None
        for use in old.uses():
            self._enqueue_consumers(use.node)
        replace_all_uses({old: new})
        self.enqueue(producer)
        self.enqueue(new.producer())

    def take_name(self, value: ir.Value) -> str | None:
        """Take the name of a value that nobody will read away from it; its node may stay."""
        name = value.name
        if name:
            value.name = self.names.make_name(f"{name}_unused")
        return name

    def _enqueue_consumers(self, reader: ir.Node) -> None:
        """Look again at a node that reads another value now, and at those behind it that see through it."""
        left = [reader]
        while left:
            node = left.pop()
            self.enqueue(node)
            if self.role(node) is Role.IDENTITY:
                left += [use.node for use in reversed(tuple(node.outputs[0].uses()))]

    def substitute(self, node: ir.Node, values: Sequence[ir.Value | None]) -> None:
        """Put values in the places of a node's outputs (None: of one that nobody reads), and remove it."""
        self.substitute_all({node: values})

    def substitute_all(self, places: Mapping[ir.Node, Sequence[ir.Value | None]]) -> None:
        """Substitute nodes of one graph, which are removed together: nobody else reads their outputs then."""
        fresh: dict[ir.Value, ir.Value] = {}  # what was made for its place, by that
        others: list[tuple[ir.Value, ir.Value]] = []
        for node, values in places.items():
            for old, new in zip(node.outputs, values, strict=True):
                if new is None:
                    continue
                if new.producer() is None or new in fresh or has_consumers(new):
                    others.append((old, new))
                else:
                    fresh[new] = old
        self.transfer_values({old: new for new, old in fresh.items()})
        for old, new in others:
            self.replace(old, new)
        makers = {
            next((v.producer() for v in values if v is not None), None): node
            for node, values in places.items()
        }
        for made, node in makers.items():  # one that stands for several is called like the last of them
            if made is not None and made not in self._positions:
                self.name_like(made, node)
        self.remove(*places)

    def transfer_values(self, values: Mapping[ir.Value, ir.Value]) -> None:
        """Put new values in the places of others, see :func:`~splitops.models.graph.onnx.transfer_values`."""
        for old in values:
            for use in old.uses():
                self._enqueue_consumers(use.node)
        transfer_values(values)

    def name_like(self, made: ir.Node, node: ir.Node) -> None:
        """Let a node in the place of another one be called like it."""
        made.name = node.name
        describe_like(made, node)
        self._labels[made] = self._labels.get(node) or label(node)

    def set_inputs(self, node: ir.Node, values: Sequence[ir.Value | None]) -> None:
        """Give a node other inputs."""
        before = [value for value in node.inputs if value is not None]
        set_inputs(node, values)
        self._enqueue_consumers(node)
        # Whether a split of thousands of parts is still needed is asked once, not for each part.
        for maker in dict.fromkeys(map(self._let_go, before)):
            if maker is not None and maker.graph is not None and not self.is_live(maker):
                self.remove(maker)

    def remove(self, *nodes: ir.Node) -> None:
        """Remove nodes of one graph that nobody else reads, and what was made for them alone.

        One of known numbers may have gone with its last reader.
        """
        gone: dict[ir.Node, None] = {}
        left: list[Sequence[ir.Node]] = [nodes]
        while left:
            group = dict.fromkeys(node for node in left.pop() if node.graph is not None and node not in gone)
            gone |= group
            inputs = dict.fromkeys(value for node in group for value in node.inputs if value is not None)
            for node in group:
                set_inputs(node, ())
            makers = dict.fromkeys(self._let_go(value) for value in inputs if value.producer() not in gone)
            left += [(maker,) for maker in reversed(makers) if maker is not None and not self.is_live(maker)]
        for node in gone:  # none of which reads anything now
            self._queue.pop(node, None)
            self._cuts.pop(node, None)
            if node.graph is not None:
                remove_node(node)

    def _let_go(self, value: ir.Value) -> ir.Node | None:
        """Remove an initializer that nobody reads any more; return the node that may go with a value."""
        producer = value.producer()
        self.enqueue(producer)
        if value.is_graph_input() or self._is_read_still(value):
            return None
        if producer is not None:
            return producer if producer.graph is not None else None
        if value.is_initializer():
            graph = value.graph
            if isinstance(graph, ir.Graph) and value.name is not None:
                graph.initializers.pop(value.name, None)
        return None

    def _is_read_still(self, value: ir.Value) -> bool:
        """Return whether a value is read, of which one node less reads it than before.

        onnx-ir lists all readers anew whenever it is asked, and thousands of nodes may share a constant: as
        many as were counted must let go of it before they are counted again.
        """
        if not is_constant(value):
            return has_consumers(value)
        left = self._readers.get(value, 0) - 1
        if left <= 0:
            left = len({use.node for use in value.uses()})
        self._readers[value] = left
        return left > 0 or value.is_graph_output()


def _is_fixed(value: ir.Value) -> bool:
    found = get_abstract_value(value)
    numbers = found.elements if isinstance(found, AbstractTensor) else None
    if numbers is None:
        return constant_array(value) is not None
    return all(entry.name if isinstance(entry, Range) else entry is not None for entry in numbers.flat)


def product_axes(shapes: Sequence[Shape | None], axis: int, *, turned: bool = False) -> dict[int, int] | None:
    """Return the axis of the second matrix, ``turned`` first, that makes the last axis of a product.

    None where the axis is another one.
    """
    left, right = shapes
    if left is None or right is None or len(left) < 2 or len(right) < 2:
        return None
    return {1: len(right) - (2 if turned else 1)} if axis == max(len(left), len(right)) - 1 else None


def bounds_of(
    starts: Sequence[int], ends: Sequence[int], axes: Sequence[int], steps: Sequence[int], rank: int
) -> dict[int, slice] | None:
    """Return what the inputs of a Slice say of each axis; None where no tensor of the rank can be cut so."""
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        return None
    found = {
        axis % rank: slice(start, end, step)
        for axis, start, end, step in zip(axes, starts, ends, steps, strict=True)
        if -rank <= axis < rank
    }
    return found if len(found) == len(axes) else None
