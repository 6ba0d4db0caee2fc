"""Valid calls of all operator versions with the expected sizes, and invalid calls with the broken rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from splitops import onnx, openvino
from splitops.errors import Rule

Operator = Callable[..., Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Call:
    """A valid call with the expected sizes.

    Attributes:
        operator: the function.
        shape: shape of the data.
        axis: argument ``axis``.
        sizes: expected sizes of the parts along the axis.
        keywords: other arguments.
        squeeze: whether the parts lose the axis.
    """

    operator: Operator
    shape: tuple[int, ...]
    axis: int
    sizes: tuple[int, ...]
    keywords: Mapping[str, Any] = field(default_factory=dict)
    squeeze: bool = False

    def __str__(self) -> str:
        words = [f"{name}={value}" for name, value in self.keywords.items()]
        dialect = self.operator.__module__.rpartition(".")[2]
        return f"{dialect}.{self.operator.__name__}({self.shape}, axis={self.axis}, {', '.join(words)})"

    def __call__(self, data: Any, **more: Any) -> Sequence[Any]:
        """Call the function with an array of shape ``self.shape``."""
        return self.operator(data, axis=self.axis, **self.keywords, **more)


@dataclass(frozen=True, slots=True)
class InvalidCall:
    """A call that breaks ``rule``. The other attributes are as in :class:`Call`."""

    operator: Operator
    shape: tuple[int, ...]
    axis: int
    rule: Rule
    keywords: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.rule}: {Call(self.operator, self.shape, self.axis, (), self.keywords)}"

    def __call__(self, data: Any) -> Sequence[Any]:
        """Call the function with an array of shape ``self.shape``."""
        return self.operator(data, axis=self.axis, **self.keywords)


def _make_split(shape: tuple[int, ...], axis: int, sizes: Sequence[int], **keywords: Any) -> Call:
    return Call(onnx.split, shape, axis, tuple(sizes), keywords)


def _make_sequence(
    shape: tuple[int, ...], axis: int, sizes: Sequence[int], *, squeeze: bool = False, **keywords: Any
) -> Call:
    return Call(onnx.split_to_sequence, shape, axis, tuple(sizes), keywords, squeeze)


CASES: Final = (
    *(_make_split((6, 4), 0, [2, 4], split=[2, 4], opset=opset) for opset in (1, 2, 11, 13, 18)),
    *(_make_split((2, 6, 3), -2, [3, 3], num_outputs=2, opset=opset) for opset in (2, 11, 13, 18)),
    _make_split((5, 3), 0, [2, 0, 3], split=[2, 0, 3]),
    _make_split((2, 7), 1, [2, 2, 2, 1], num_outputs=4),
    _make_split((2, 9), -1, [3, 3, 3, 0], num_outputs=4),
    _make_split((5,), 0, [2, 2, 1, 0], num_outputs=4),
    _make_split((0, 3), 0, [0, 0], num_outputs=2),
    _make_split((4, 0), 0, [1, 3], split=[1, 3]),
    _make_split((3, 2), 0, [3], split=[3]),
    _make_split((2, 130, 2), 1, [1] * 130, num_outputs=130),
    *(_make_sequence((7, 2), 0, [3, 3, 1], split=3, opset=opset) for opset in (11, 24)),
    _make_sequence((2, 5), 1, [1, 4], split=[1, 4]),
    _make_sequence((2, 3), 1, [1, 1, 1]),
    _make_sequence((2, 3), 1, [1, 1, 1], keepdims=0, squeeze=True),
    _make_sequence((3, 2, 2), -3, [1, 1, 1], keepdims=0, squeeze=True, opset=11),
    _make_sequence((0, 2), 0, []),
    _make_sequence((4,), 0, [4], split=9),
    Call(openvino.split, (6, 12, 10), 1, (4, 4, 4), {"num_splits": 3}),
    Call(openvino.split, (2, 0), -1, (0, 0), {"num_splits": 2}),
    Call(openvino.variadic_split, (6, 12), 0, (1, 2, 3), {"split_lengths": [1, 2, 3]}),
    Call(openvino.variadic_split, (6, 12), 0, (4, 2), {"split_lengths": [-1, 2]}),
    Call(openvino.variadic_split, (6, 2), -2, (4, 0, 2), {"split_lengths": [4, -1, 2]}),
)
"""Calls of all operator versions with all size rules, on first, inner and last axes, and with empty parts."""

FAULTS: Final = (
    InvalidCall(onnx.split, (4, 6), 2, Rule.AXIS_RANGE, {"num_outputs": 2}),
    InvalidCall(onnx.split, (), 0, Rule.AXIS_RANGE, {"num_outputs": 1}),
    InvalidCall(onnx.split, (4, 6), 1, Rule.LENGTHS_SUM, {"split": [2, 3]}),
    InvalidCall(onnx.split, (4, 6), 1, Rule.LENGTHS_NEGATIVE, {"split": [8, -2]}),
    InvalidCall(onnx.split, (4, 6), 1, Rule.LENGTHS_CONFLICT, {"split": [2, 4], "num_outputs": 2}),
    InvalidCall(onnx.split, (4, 6), 1, Rule.LENGTHS_MISSING, {}),
    InvalidCall(onnx.split, (4, 6), 1, Rule.PARTS_COUNT, {"num_outputs": 0}),
    InvalidCall(onnx.split, (4, 7), 1, Rule.PARTS_DIVISIBLE, {"num_outputs": 2, "opset": 13}),
    InvalidCall(onnx.split_to_sequence, (4, 6), 1, Rule.CHUNK_POSITIVE, {"split": 0}),
    InvalidCall(onnx.split_to_sequence, (4, 6), 1, Rule.KEEPDIMS_VALUE, {"keepdims": 2}),
    InvalidCall(openvino.split, (4, 7), 1, Rule.PARTS_DIVISIBLE, {"num_splits": 2}),
    InvalidCall(openvino.variadic_split, (4, 6), 1, Rule.REMAINDER_NEGATIVE, {"split_lengths": [7, -1]}),
    InvalidCall(openvino.variadic_split, (4, 6), 1, Rule.REMAINDER_REPEATED, {"split_lengths": [-1, -1]}),
)
"""Calls that must fail with every library."""
