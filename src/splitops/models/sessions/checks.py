"""Check splits and loops that a runtime does not check: their sizes, lengths and bounds become an output.

These numbers must be an output: the optimiser of a runtime may remove a split together with its own check.
After the run, these numbers are checked against the rules of the operators. If they break a rule, the results
are discarded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from splitops.errors import ModelError, shown
from splitops.models.formats.walk import label
from splitops.models.graph.editor import Editor
from splitops.models.graph.onnx import find_type, read_constant
from splitops.models.graph.onnx_editor import is_operator
from splitops.models.graph.onnx_sequences import find_consumers
from splitops.models.graph.openvino_editor import OpenVINOOpBuilder
from splitops.models.split_nodes import SplitNode
from splitops.spec.elements.types import ELEMENT_TYPES, ElementType
from splitops.spec.operators.schemas import SourceKind
from splitops.spec.sizes.arithmetic import count_parts
from splitops.spec.sizes.dims import UNKNOWN
from splitops.spec.sizes.rules import SizeRule

_BOOL, _INT64 = ELEMENT_TYPES["bool"], ELEMENT_TYPES["int64"]
_MAX_CACHED: Final = 256

Numbers = Iterator[int]


class Rules:
    """The rules for the numbers that each run returns, such as the sizes and lengths of its splits."""

    def __init__(self) -> None:
        self._rules: list[Callable[[Numbers], bool]] = []
        self._valid: set[bytes] = set()

    def add(self, rule: Callable[[Numbers], bool]) -> None:
        """Add a rule. It consumes its numbers from the iterator."""
        self._rules.append(rule)

    def are_met(self, numbers: npt.NDArray[Any]) -> bool:
        """Return whether the numbers that a run returned, such as lengths of splits, obey all rules."""
        key = numbers.tobytes()
        if key in self._valid:
            return True
        left = iter(numbers.tolist())
        try:
            if not all(rule(left) for rule in self._rules):
                return False
        except StopIteration:  # a bound of a loop is not a single number
            return False
        if len(self._valid) == _MAX_CACHED:
            self._valid.clear()
        self._valid.add(key)
        return True


class Checks:
    """Adds checks to the main graph of a model.

    Attributes:
        numbers: the value with the numbers for all rules, set by :meth:`join`; None without checks.
        rules: the rules, or None if there are no checks.
    """

    def __init__(self, editor: Editor) -> None:
        self.numbers: ir.Value | None = None
        self.rules: Rules | None = None
        self._editor = editor
        self._values: dict[ir.Node, list[ir.Value]] = {}

    def _add(self, node: ir.Node, values: list[ir.Value], rule: Callable[[Numbers], bool]) -> None:
        self._values[node] = values
        self.rules = self.rules or Rules()
        self.rules.add(rule)

    def add_split(self, node: ir.Node, split_node: SplitNode, *, safe: bool) -> None:
        """Add the check of a split.

        With ``safe``, also bound the lengths, so that a runtime that does not check them cannot read outside
        the data.

        Raises:
            ModelError: the split is in a body, or its sequence is read at a computed position.
        """
        builder, data = self._make_builder(node), node.inputs[0]
        assert data is not None
        at = _find_lengths_input(split_node) if split_node.bind().division is None else None
        elements = _find_min_length(node, split_node) if split_node.schema.gives_sequence else 0
        values = [_make_shape(builder, data)]
        if at is not None:
            lengths, fact = node.inputs[at], split_node.facts[at]
            assert lengths is not None
            assert fact is not None
            if fact.shape != () and not (fact.shape and isinstance(fact.shape[0], int)):
                values.append(_make_shape(builder, lengths))
            values.append(_to_list(builder, lengths, is_list=fact.shape != ()))
        if safe:
            _clamp_lengths(builder, node, split_node)
        known = replace(split_node, node=None)
        self._add(node, values, lambda numbers: _is_valid(known, at, elements, numbers))

    def add_loop(self, loop: ir.Node, *, endless: bool) -> None:
        """Add the check that a loop iterates at least once. ``endless`` allows a trip count of -1.

        Without an iteration, onnxruntime does not know the sizes of the stacked outputs, and OpenVINO returns
        the outputs of the previous run.

        Raises:
            ModelError: the loop is in a body.
        """
        builder = self._make_builder(loop)
        found = [_to_list(builder, value, is_list=False) for value in loop.inputs[:2] if value is not None]
        count = len(found)

        def is_iterating(numbers: Numbers) -> bool:
            return all(number > 0 or (endless and number == -1) for number in islice(numbers, count))

        self._add(loop, found, is_iterating)

    def join(self) -> None:
        """Concatenate all numbers into :attr:`numbers`. In an ONNX model, this becomes an output."""
        graph = self._editor.model.graph
        last = next((node for node in reversed(graph) if node in self._values), None)
        if last is not None:
            builder = self._editor.make_builder(last)
            numbers = [value for values in self._values.values() for value in values]
            (self.numbers,) = builder.annotate_outputs([builder.concatenate(numbers, 0)], _INT64, (UNKNOWN,))
            if not isinstance(builder, OpenVINOOpBuilder):
                self.numbers.type, self.numbers.shape = ir.TensorType(ir.DataType.INT64), ir.Shape([None])
                graph.outputs.append(self.numbers)

    def _make_builder(self, node: ir.Node) -> Any:
        if node.graph is not self._editor.model.graph:
            raise ModelError(
                f"{shown(label(node))} is in a body, so it cannot be checked", self._editor.locate(node)
            )
        return self._editor.make_builder(node)


def _make_shape(builder: Any, data: ir.Value) -> ir.Value:
    if isinstance(builder, OpenVINOOpBuilder):
        return builder.add_shape(data)
    made: ir.Value = builder.add("Shape", [data])
    return made


def _to_list(builder: Any, value: ir.Value, *, is_list: bool) -> ir.Value:
    """Return a value as a 1-D int64 tensor. ``is_list`` is whether it is 1-D already."""
    if not is_list:
        value = builder.reshape(value, [-1], (UNKNOWN,))
    if find_type(value) is _INT64:
        return value
    if isinstance(builder, OpenVINOOpBuilder):
        return builder.annotate_outputs(
            builder.add_node("Convert", [value], {"destination_type": "i64"}), _INT64, (UNKNOWN,)
        )[0]
    made: ir.Value = builder.cast(value, _INT64)
    return made


def _find_lengths_input(split_node: SplitNode) -> int | None:
    """Return the position of the lengths input of a split, or None if it has none."""
    for source in split_node.schema.lengths:
        if source.kind is SourceKind.INPUT:
            index = split_node.schema.input_index(source.name)
            return index if index < len(split_node.facts) and split_node.facts[index] is not None else None
    return None


def _clamp_lengths(builder: Any, node: ir.Node, split_node: SplitNode) -> None:
    """Bound the lengths of a split in the graph, so that no runtime reads outside the data.

    In ONNX, negative lengths become 0. In OpenVINO, -1 becomes the remainder of the axis, but at least 0.
    Every runtime rejects bounded lengths that do not add up. Splits into sequences are left unchanged.
    """
    at, binding, data = _find_lengths_input(split_node), split_node.bind(), node.inputs[0]
    if at is None or binding.axis is None or data is None or split_node.schema.gives_sequence:
        return
    lengths = node.inputs[at]
    assert lengths is not None
    if binding.division is None:
        if isinstance(builder, OpenVINOOpBuilder):
            bounded = _fill_rest(builder, lengths, data, binding.axis)
        else:
            bounded = builder.add("Max", [lengths, builder.add_ints([0])])
        node.replace_input_with(at, bounded)
    elif binding.division.rule is SizeRule.REMAINDER:
        bounded = builder.compute_clamped_lengths(data, binding.axis, binding.division)
        node.replace_input_with(at, bounded)


def _fill_rest(builder: OpenVINOOpBuilder, lengths: ir.Value, data: ir.Value, axis: int) -> ir.Value:
    """Return the lengths with -1 replaced by the remainder of the axis, or by 0 if it is negative."""

    def add_layer(operator: str, *inputs: ir.Value, kind: ElementType = _INT64, **data: Any) -> ir.Value:
        return builder.annotate_outputs(builder.add_node(operator, inputs, data), kind, (UNKNOWN,))[0]

    lengths = _to_list(builder, lengths, is_list=True)
    minus_one, zero = builder.add_constant(np.array([-1])), builder.add_constant(np.array([0]))
    size = builder.gather(builder.add_shape(data), [axis], 0)
    total = add_layer("ReduceSum", lengths, zero, keep_dims="true")
    rest = add_layer("Subtract", add_layer("Subtract", size, total), builder.add_constant(np.array([1])))
    is_rest = add_layer("Equal", lengths, minus_one, kind=_BOOL, auto_broadcast="numpy")
    return add_layer("Select", is_rest, add_layer("Maximum", rest, zero), lengths, auto_broadcast="numpy")


def _find_min_length(node: ir.Node, split_node: SplitNode) -> int:
    """Return the minimum length of a sequence in which every element that is read exists.

    A rewrite that reads parts of the data instead would return values even if an element does not exist.

    Raises:
        ModelError: a position is computed.
    """
    count = 0
    for reader in find_consumers(node.outputs[0]):
        if is_operator(reader, "SequenceAt") and reader.inputs[1] is not None:
            position = read_constant(reader.inputs[1])
            if position is None:
                raise ModelError(
                    "the position in a sequence is computed, so it cannot be checked", split_node.where
                )
            count = max(count, int(position.item()) + 1, -int(position.item()))
    return count


def _is_valid(split_node: SplitNode, lengths: int | None, elements: int, numbers: Numbers) -> bool:
    """Return whether a split is valid for the numbers of a run: the shape of the data and the lengths.

    ``lengths`` is the position of the lengths input, or None. At least ``elements`` parts are required.
    """
    data, facts = split_node.bind().data, list(split_node.facts)
    assert data.shape is not None
    shape = tuple(islice(numbers, len(data.shape)))
    facts[0] = replace(data, shape=shape)
    if lengths is not None:
        fact = split_node.facts[lengths]
        assert fact is not None
        if fact.shape == ():
            facts[lengths] = replace(fact, value=next(numbers))
        else:
            known = fact.shape[0] if fact.shape else None
            count = known if isinstance(known, int) else next(numbers)
            facts[lengths] = replace(fact, shape=(count,), value=tuple(islice(numbers, count)))
    binding = replace(split_node, facts=tuple(facts)).binding
    if binding is None or binding.axis is None or binding.division is None:
        return False
    return count_parts(binding.division, shape[binding.axis]) >= elements
