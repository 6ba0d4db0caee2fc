"""Edit a graph of onnx-ir nodes, with a worklist of the nodes near each change.

ONNX models and OpenVINO IR are both rewritten as onnx-ir graphs, so each rewrite is written once. The two
subclasses of :class:`Editor` contain the differences between the formats: how a node is read and written.
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
    copy_description,
    find_elements,
    find_shape,
    get_abstract_value,
    has_consumers,
    is_constant,
    read_constant,
    remove_node,
    replace_all_uses,
    set_inputs,
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


def get_roles(domain: str) -> dict[str, Role]:
    """Return the :class:`Role` of each operator of a domain that has one, keyed by operator name."""
    splits = (schema(name, domain=domain) for name in FAMILY[domain])
    found = {name: operator.role for name, operator in (BY_LAYER if domain else BY_NODE).items()}
    return {name: role for name, role in found.items() if role is not None} | {
        schema.name: Role.SEQUENCE if schema.gives_sequence else Role.SPLIT for schema in splits
    }


class Rewrite(Protocol):
    """A rewrite of a graph.

    Attributes:
        name: name in records of changes.
        roots: roles of the nodes on which it is called.
    """

    @property
    def name(self) -> str: ...  # noqa: D102

    @property
    def roots(self) -> frozenset[Role]: ...  # noqa: D102

    def rewrite(self, node: ir.Node, editor: Editor, /) -> None:
        """Rewrite the pattern that begins at ``node``, or do nothing."""
        ...


@dataclass(frozen=True, slots=True)
class GraphScope:
    """The path and opset of a graph, and whether it belongs to a model-local function."""

    path: str | None
    opset: int
    in_function: bool = False


class Editor(ABC):
    """Edits a model in place.

    Attributes:
        domain: domain of the model's split operators in :mod:`splitops.spec.operators`.
        model: the edited model.
        changes: the applied rewrites.
        visits: number of calls of rewrites.
    """

    domain: ClassVar[str]

    def __init__(self, model: ir.Model, where: Where = NOWHERE) -> None:
        self.model = model
        self.changes: list[Applied] = []
        self.visits = 0
        self._where = where
        self._scopes: dict[ir.Graph | None, GraphScope] = {}
        self._queue: dict[ir.Node, None] = {}
        self._facts: dict[ir.Node, SplitFacts | None] = {}
        self._positions: dict[ir.Node, int] = {}
        self._labels: dict[ir.Node, str] = {}  # labels of unnamed nodes before any edit
        self._looked: dict[ir.Value | None, set[tuple[str, Any]]] = {}
        self._found: dict[Callable[[Editor], Any], Any] = {}
        self._rewrite = ""
        self._readers: dict[ir.Value, int] = {}  # lower bounds of the numbers of consumers of constants
        for scope, graph in self._iter_graphs():
            for node in graph:
                self._scopes[node.graph] = scope
                self._queue[node] = None
                self._positions[node] = len(self._positions)
                if not node.name:
                    self._labels[node] = label(node)

    @cached_property
    def names(self) -> FreshNames:
        """Generator of names that are free in the model."""
        return FreshNames(self.model)

    def run(self, rewrites: Sequence[Rewrite]) -> None:
        """Apply rewrites until none applies. A node is visited again only after a change near it."""
        by_root: dict[Role | None, list[Rewrite]] = {}
        for rewrite in rewrites:
            for root in rewrite.roots:
                by_root.setdefault(root, []).append(rewrite)
        for node in track(self._pop_worklist(), "simplify"):
            for rewrite in by_root.get(self.find_role(node), ()):
                if node.graph is None:
                    break  # the rewrite before this one has removed it
                self.visits += 1
                self._rewrite = rewrite.name
                rewrite.rewrite(node, self)

    def _pop_worklist(self) -> Iterator[ir.Node]:
        """Yield and remove the nodes of the worklist, including those that are added during the iteration."""
        while self._queue:
            node = next(iter(self._queue))
            del self._queue[node]
            yield node

    # Differences between the formats: reading

    @abstractmethod
    def _iter_graphs(self) -> Iterator[tuple[GraphScope, AnyGraph]]:
        """Yield every graph and function of the model."""

    @abstractmethod
    def find_role(self, node: ir.Node) -> Role | None:
        """Return the role of a node in rewrites, or None if it has none."""

    @abstractmethod
    def read_split_node(self, node: ir.Node) -> SplitNode:
        """Read a split node with its abstract inputs."""

    @abstractmethod
    def read_attribute(self, node: ir.Node, name: str) -> Any:
        """Return an attribute as a number, numbers, a bool or text, or None if the node does not set it.

        Raises:
            LookupError: only calls of the function around the node determine the attribute.
        """

    @abstractmethod
    def is_live(self, node: ir.Node) -> bool:
        """Return whether a node must stay: an output is used, or the node may fail at run time."""

    def has_fixed_name(self, value: ir.Value) -> bool:
        """Return whether a value is an output that must keep its name, so that it cannot be replaced."""
        return False

    def has_fixed_outputs(self, node: ir.Node) -> bool:
        """Return whether a node must keep its number of outputs because it determines names in the model."""
        return False

    @abstractmethod
    def has_type(self, element_type: ElementType) -> bool:
        """Return whether the editor can write constants of an element type."""

    @abstractmethod
    def read_constant(self, value: ir.Value, limit: int) -> tuple[npt.NDArray[Any], ElementType] | None:
        """Return the array and the element type of a constant.

        Return None if it is not a constant, is larger than ``limit`` allows, or cannot be read. In ONNX,
        ``limit`` is a number of elements, in OpenVINO a size in units of 8 bytes.
        """

    def has_empty(self, element_type: ElementType, node: ir.Node) -> bool:
        """Return whether every runtime can read an empty constant of ``element_type`` at ``node``."""
        return True

    @abstractmethod
    def split_constant(self, value: ir.Value, axis: int, sizes: Sequence[int]) -> list[ir.Value] | None:
        """Split a constant with a single consumer. Return None for other values, or if it is not possible.

        The parts get their final names in :meth:`use_split_constant`.
        """

    def use_split_constant(self, part: ir.Value, old: ir.Value, before: ir.Node) -> None:
        """Replace the output ``old`` of the split ``before`` with a part from :meth:`split_constant`."""
        whole = before.inputs[0]
        assert whole is not None
        self.transfer_values({old: part})
        self.insert_part(part, whole, before)

    @abstractmethod
    def insert_part(self, part: ir.Value, whole: ir.Value, before: ir.Node) -> None:
        """Add ``part``, which :meth:`split_constant` has made from ``whole``, to the graph before a node."""

    # Differences between the formats: writing

    @abstractmethod
    def make_builder(self, before: ir.Node) -> OpBuilder:
        """Return a builder that inserts nodes before ``before``."""

    def can_slice(self, data: ir.Value) -> bool:
        """Return whether the format has a Slice that accepts this tensor."""
        return True

    @abstractmethod
    def fold(
        self, array: npt.NDArray[Any], element_type: ElementType, old: ir.Value, before: ir.Node
    ) -> ir.Value:
        """Return a new constant to replace ``old`` with. It takes the name of ``old`` if possible."""

    # Operators of both formats

    def find_axis(self, node: ir.Node) -> int | None:
        """Return the ``axis`` attribute of a node, or None if it is not a known integer."""
        try:
            found = self.read_attribute(node, "axis")
        except LookupError:
            return None
        return found if isinstance(found, int) else None

    def find_signed_axis(self, node: ir.Node) -> int | None:
        """Return the axis of a split (by default 0) without normalising it, or None if it is unknown."""
        if self.read_split_node(node).schema.axis.kind is SourceKind.ATTRIBUTE:
            return self.find_axis(node) if "axis" in node.attributes else 0
        axis = find_elements(node.inputs[1]) if len(node.inputs) > 1 else None
        return None if axis is None or axis.size != 1 else int(axis.reshape(()))

    def get_window(self, node: ir.Node) -> Hashable:
        """Return a key for the window of a convolution: its padding mode, strides, pads and dilations.

        An absent attribute and its default have the same key. If one of the attributes is a reference, the
        key is the node itself.
        """
        usual = {"strides": 1, "pads": 0, "pads_begin": 0, "pads_end": 0, "dilations": 1}
        try:
            found = {name: np.atleast_1d(self.read_attribute(node, name) or []).tolist() for name in usual}
            padding = self.read_attribute(node, "auto_pad") or "NOTSET"
        except LookupError:
            return node
        return padding, *(
            tuple(found[name]) if any(number != often for number in found[name]) else ()
            for name, often in usual.items()
        )

    def find_weight_axes(self, node: ir.Node, axis: int) -> dict[int, int] | None:
        """Return the axis of each constant input that must be split to split the output along ``axis``.

        Keys are input indices. All parts share the other inputs, except the variable addend of a sum. Return
        None if an input to split or the other addend is not constant, if a required shape or attribute is
        unknown, if ``axis`` is unsuitable, or if the node is not a matrix product, a sum or a convolution
        with one group.
        """
        shapes = [None if value is None else find_shape(value) for value in node.inputs]
        axes: dict[int, int] | None = None
        addend = None
        if node.domain not in ("", "ai.onnx", self.domain):
            return None
        try:
            match node.op_type:
                case "MatMul":
                    turned = bool(self.read_attribute(node, "transpose_b"))
                    axes = find_product_axes(shapes, axis, turned)
                case "Gemm" if axis == 1:
                    axes = {1: 0 if self.read_attribute(node, "transB") else 1}
                    addend = 2 if len(node.inputs) > 2 and node.inputs[2] is not None else None
                case "Conv" | "Convolution" if axis == 1 and self.read_attribute(node, "group") in (None, 1):
                    axes = {
                        index: 0 for index, value in enumerate(node.inputs) if index and value is not None
                    }
                case "Add" if self.read_attribute(node, "auto_broadcast") in (None, "numpy"):
                    axes, addend = {}, 1 if is_constant(node.inputs[1]) else 0
        except LookupError:
            return None
        return self._add_addend(node, axes, addend, axis)

    @abstractmethod
    def find_spelling(self, node: ir.Node) -> tuple[Spelling, Mapping[str, Any]] | None:
        """Return the :class:`Spelling` and attributes of a node, or None if any of these is unknown."""

    def read_operands(self, node: ir.Node) -> dict[str, npt.NDArray[Any]] | None:
        """Return the elements of all operands except the data, keyed by name, or None if one is unknown."""
        found = self.find_spelling(node)
        if found is None:
            return None
        spelling, attributes = found
        try:
            operands = spelling.read(attributes, node.inputs)
        except Unknown:
            return None
        operands.pop("data", None)
        arrays = {
            name: find_elements(value) if isinstance(value, ir.Value) else np.array(value)
            for name, value in operands.items()
        }
        known = {name: array for name, array in arrays.items() if array is not None}
        return known if len(known) == len(arrays) else None

    def read_slices(self, node: ir.Node, rank: int) -> dict[int, slice] | None:
        """Return the bounds of a Slice, keyed by axis, or None if they are unknown or invalid."""
        operands = self.read_operands(node) or {}
        if not {"starts", "ends"} <= operands.keys():
            return None
        if any(array.ndim != 1 or array.dtype.kind not in "iu" for array in operands.values()):
            return None
        count = len(operands["starts"])
        usual = {"axes": np.arange(count), "steps": np.ones(count, np.int64)}
        return make_slices(rank=rank, **{name: array.tolist() for name, array in (usual | operands).items()})

    def read_permutation(self, node: ir.Node, rank: int) -> list[int] | None:
        """Return the permutation of a Transpose, or None if it is unknown. The default reverses the axes."""
        found = self.read_operands(node)
        order = None if found is None else found.get("order", np.array([]))
        return None if order is None else [int(axis) for axis in order] or list(reversed(range(rank)))

    def read_gather(self, node: ir.Node) -> tuple[int, npt.NDArray[Any]] | None:
        """Return the axis and the indices of a Gather, or None if they are unknown or invalid."""
        found = self.read_operands(node) or {}
        if "indices" not in found or found["axis"].size != 1:
            return None
        if not found["counts_back"] and (found["indices"] < 0).any():
            return None  # negative indices are invalid
        return int(found["axis"].reshape(())), found["indices"]

    # Queries

    def _add_addend(
        self, node: ir.Node, axes: dict[int, int] | None, addend: int | None, axis: int
    ) -> dict[int, int] | None:
        """Add the axis of input ``addend`` to ``axes``, unless the input is broadcast along ``axis``.

        Return None if a shape is unknown, or if the addend or an input to split is not constant.
        """
        shape = find_shape(node.outputs[0])
        if axes is None or shape is None:
            return None
        if addend is not None:
            added = node.inputs[addend]
            added_shape = None if added is None else find_shape(added)
            if added_shape is None or not is_constant(added):
                return None
            at = axis - (len(shape) - len(added_shape))
            if at >= 0 and added_shape[at] != 1:
                axes = {**axes, addend: at}
        return axes if all(is_constant(node.inputs[index]) for index in axes) else None

    def is_fixed(self, node: ir.Node) -> bool:
        """Return whether all elements of the inputs other than the data are known as numbers or symbols."""
        return all(value is None or _is_fixed(value) for value in node.inputs[1:])

    def get_opset(self, node: ir.Node) -> int:
        """Return the opset of the graph of a node."""
        return self._scopes[node.graph].opset

    def locate(self, node: ir.Node) -> Where:
        """Return the location of a node for messages."""
        return Where(self._where.model, self._scopes[node.graph].path, self._labels.get(node) or label(node))

    def read_split_facts(self, node: ir.Node) -> SplitFacts | None:
        """Return the :class:`SplitFacts` of a split, such as its axis and part sizes.

        Return None if the node is not a split, is invalid or ambiguous, or if too little is inferred.
        """
        if node not in self._facts:
            self._facts[node] = self._compute_split_facts(node)
        return self._facts[node]

    def _compute_split_facts(self, node: ir.Node) -> SplitFacts | None:
        if self.find_role(node) not in (Role.SPLIT, Role.SEQUENCE):
            return None
        try:
            split_node = self.read_split_node(node)
            return None if split_node.may_be_unbind else read_split_facts(split_node.bind())
        except SplitError:
            return None

    def describe(self, node: ir.Node) -> str:
        """Describe a node in one line."""
        if self.read_split_facts(node) is not None:
            return str(self.read_split_node(node))
        axis = self.find_axis(node)
        return node.op_type if axis is None else f"{node.op_type}(axis={axis})"

    def describe_producer(self, value: ir.Value) -> str:
        """Describe the producer of a value in one line."""
        node = value.producer()
        assert node is not None
        return self.describe(node)

    def find_concat_axis(self, node: ir.Node, rank: int) -> int | None:
        """Return the non-negative axis of a Concat of tensors of ``rank``, or None if unknown or invalid."""
        axis = self.find_axis(node)
        return axis % rank if axis is not None and -rank <= axis < rank else None

    def skip_identities(self, value: ir.Value) -> ir.Value:
        """Return the value that Identity nodes copy to ``value``, or ``value`` itself if there are none."""
        while True:
            producer = value.producer()
            if producer is None or self.find_role(producer) is not Role.IDENTITY:
                return value
            source = producer.inputs[0]
            if source is None:
                return value
            value = source

    def find_source_split(self, value: ir.Value) -> tuple[ir.Node, int] | None:
        """Return the Split that produces a value and the index of this part, skipping Identity nodes.

        Return None if the producer is not a Split.
        """
        found = self.skip_identities(value)
        producer, index = found.producer(), found.index()
        if producer is None or index is None or self.find_role(producer) is not Role.SPLIT:
            return None
        return producer, index

    def find_sole_consumer(self, value: ir.Value) -> ir.Node | None:
        """Return the node of the only use of a value. Skip Identity nodes.

        Return None if the value has no use or several, or is a graph output.
        """
        while not value.is_graph_output():
            uses = value.uses()
            if len(uses) != 1:
                return None
            consumer = next(iter(uses)).node
            if self.find_role(consumer) is not Role.IDENTITY:
                return consumer
            value = consumer.outputs[0]
        return None

    def find_position(self, node: ir.Node) -> int | None:
        """Return the position of a node in the original model, or None if it was added."""
        return self._positions.get(node)

    def is_first_visit(self, value: ir.Value, graph: AnyGraph) -> bool:
        """Record that the current rewrite has examined a value in ``graph``.

        Return whether it is the first time since the last change near the value.
        """
        looked = self._looked.setdefault(value, set())
        if (self._rewrite, graph) in looked:
            return False
        looked.add((self._rewrite, graph))
        return True

    def analyse_once(self, look: Callable[[Editor], T]) -> T:
        """Run an analysis of the model, or return its result from an earlier call."""
        if look not in self._found:
            self._found[look] = look(self)
        found: T = self._found[look]
        return found

    # Edits

    def record(self, where: Where, before: str, after: str, reason: str) -> None:
        """Record a change by the current rewrite; see :class:`Applied`."""
        self.changes.append(Applied(self._rewrite, where, before, after, reason))

    def enqueue(self, node: ir.Node | None) -> None:
        """Add a node to the worklist. Do nothing for None or a removed node.

        Its cached facts are discarded, as is the record of the rewrites that have examined its first input.
        """
        if node is not None and node.graph is not None:
            self._facts.pop(node, None)
            self._looked.pop(node.inputs[0] if node.inputs else None, None)
            self._queue[node] = None

    def insert(self, before: ir.Node, node: ir.Node) -> list[ir.Value]:
        """Insert a new node before another one, and return its outputs."""
        graph = before.graph
        assert graph is not None
        graph.insert_before(before, [node])
        self._scopes[node.graph] = self._scopes[graph]
        self._queue[node] = None
        return list(node.outputs)

    def replace(self, old: ir.Value, new: ir.Value) -> None:
        """Replace all uses of a value with an equal one."""
        producer = old.producer()
        assert producer is not None
        for use in old.uses():
            self._enqueue_consumers(use.node)
        replace_all_uses({old: new})
        self.enqueue(producer)
        self.enqueue(new.producer())

    def take_name(self, value: ir.Value) -> str | None:
        """Rename a value that will become unused, and return its previous name, or None if it had none."""
        name = value.name
        if name:
            value.name = self.names.make_name(f"{name}_unused")
        return name

    def _enqueue_consumers(self, consumer: ir.Node) -> None:
        """Add a node with changed inputs to the worklist. If it is an Identity, add its consumers, too."""
        pending = [consumer]
        while pending:
            node = pending.pop()
            self.enqueue(node)
            if self.find_role(node) is Role.IDENTITY:
                pending += [use.node for use in reversed(tuple(node.outputs[0].uses()))]

    def substitute(self, node: ir.Node, values: Sequence[ir.Value | None]) -> None:
        """Replace the outputs of a node with ``values``, and remove the node. Unused outputs may be None."""
        self.substitute_all({node: values})

    def substitute_all(self, places: Mapping[ir.Node, Sequence[ir.Value | None]]) -> None:
        """Replace the outputs of nodes of one graph, and remove the nodes, as :meth:`substitute` does.

        Only these nodes may use outputs whose replacement is None.
        """
        fresh: dict[ir.Value, ir.Value] = {}  # replaced outputs, keyed by the values that take their names
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
        producers = {
            next((v.producer() for v in values if v is not None), None): node
            for node, values in places.items()
        }
        for producer, node in producers.items():  # a node that replaces several gets the name of the last
            if producer is not None and producer not in self._positions:
                self.name_like(producer, node)
        self.remove(*places)

    def transfer_values(self, values: Mapping[ir.Value, ir.Value]) -> None:
        """Replace values and move their names; see :func:`~splitops.models.graph.onnx.transfer_values`."""
        for old in values:
            for use in old.uses():
                self._enqueue_consumers(use.node)
        transfer_values(values)

    def name_like(self, made: ir.Node, node: ir.Node) -> None:
        """Name a new node like the node that it replaces, and copy its metadata."""
        made.name = node.name
        copy_description(made, node)
        self._labels[made] = self._labels.get(node) or label(node)

    def set_inputs(self, node: ir.Node, values: Sequence[ir.Value | None]) -> None:
        """Set the inputs of a node, and remove producers that become dead."""
        before = [value for value in node.inputs if value is not None]
        set_inputs(node, values)
        self._enqueue_consumers(node)
        # Check once whether a split with thousands of parts is still live, not for each part.
        for producer in dict.fromkeys(map(self._release, before)):
            if producer is not None and producer.graph is not None and not self.is_live(producer):
                self.remove(producer)

    def remove(self, *nodes: ir.Node) -> None:
        """Remove nodes of one graph whose outputs nothing else uses, and producers that become dead."""
        removed: dict[ir.Node, None] = {}
        pending: list[Sequence[ir.Node]] = [nodes]
        while pending:
            group = dict.fromkeys(n for n in pending.pop() if n.graph is not None and n not in removed)
            removed |= group
            inputs = dict.fromkeys(value for node in group for value in node.inputs if value is not None)
            for node in group:
                set_inputs(node, ())
            freed = dict.fromkeys(self._release(value) for value in inputs if value.producer() not in removed)
            pending += [(node,) for node in reversed(freed) if node is not None and not self.is_live(node)]
        for node in removed:  # their inputs have been removed
            self._queue.pop(node, None)
            self._facts.pop(node, None)
            if node.graph is not None:
                remove_node(node)

    def _release(self, value: ir.Value) -> ir.Node | None:
        """Enqueue the producer of a value that lost a use. Return it if the value is now unused.

        An unused initializer is removed.
        """
        producer = value.producer()
        self.enqueue(producer)
        if value.is_graph_input() or self._is_still_used(value):
            return None
        if producer is not None:
            return producer if producer.graph is not None else None
        if value.is_initializer():
            graph = value.graph
            if isinstance(graph, ir.Graph) and value.name is not None:
                graph.initializers.pop(value.name, None)
        return None

    def _is_still_used(self, value: ir.Value) -> bool:
        """Return whether a value still has consumers after it lost one.

        onnx-ir lists all consumers for each query, and thousands of nodes may share a constant. So the
        consumers of a constant are counted again only after it lost as many as were counted before.
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
        return read_constant(value) is not None
    return all(entry.name if isinstance(entry, Range) else entry is not None for entry in numbers.flat)


def find_product_axes(shapes: Sequence[Shape | None], axis: int, turned: bool) -> dict[int, int] | None:
    """Return ``{1: axis}`` with the axis of the second matrix that becomes the last axis of a matrix product.

    Return None if ``axis`` is not the last one, or if a shape is unknown or has fewer than two axes.
    ``turned`` is whether the second matrix is transposed.
    """
    left, right = shapes
    if left is None or right is None or len(left) < 2 or len(right) < 2:
        return None
    return {1: len(right) - (2 if turned else 1)} if axis == max(len(left), len(right)) - 1 else None


def make_slices(
    starts: Sequence[int], ends: Sequence[int], axes: Sequence[int], steps: Sequence[int], rank: int
) -> dict[int, slice] | None:
    """Return the bounds of a Slice, keyed by axis, or None if its inputs are invalid for ``rank``."""
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        return None
    found = {
        axis % rank: slice(start, end, step)
        for axis, start, end, step in zip(axes, starts, ends, steps, strict=True)
        if -rank <= axis < rank
    }
    return found if len(found) == len(axes) else None
