"""Properties of Split and SplitToSequence, for any implementation that runs an ONNX model.

``run(model, inputs)`` is the implementation: it returns the outputs. Here it is ONNX's reference evaluator.
The tags are those of ``split.md`` and ``split_to_sequence.md``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper
from onnx.reference import ReferenceEvaluator

MOST = 6


def run(model: ModelProto, inputs: Mapping[str, Any]) -> list[Any]:
    """Run a model on an implementation."""
    found: list[Any] = ReferenceEvaluator(model).run(None, dict(inputs))
    return found


def node(kind: str, outputs: int, *, lengths: bool, **attributes: int) -> ModelProto:
    """Return a model of one node, whose input sizes are open."""
    inputs = [helper.make_tensor_value_info("X", TensorProto.INT64, None)]
    if lengths:
        inputs.append(helper.make_tensor_value_info("S", TensorProto.INT64, None))
    names = [f"Y{i}" for i in range(outputs)]
    if kind == "Split":
        made = [helper.make_tensor_value_info(name, TensorProto.INT64, None) for name in names]
    else:
        made = [helper.make_tensor_sequence_value_info(name, TensorProto.INT64, None) for name in names]
    one = helper.make_node(kind, [value.name for value in inputs], names, **attributes)
    graph = helper.make_graph([one], "properties", inputs, made)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=11)


@st.composite
def tensors(draw: st.DrawFn) -> tuple[np.ndarray, int]:
    """Return a tensor of different numbers, with strictly positive dimensions, and an axis of it."""
    shape = draw(st.lists(st.integers(1, MOST), min_size=1, max_size=4))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    return np.arange(np.prod(shape), dtype=np.int64).reshape(shape), axis


def lengths_of(draw: st.DrawFn, size: int) -> list[int]:
    """Return positive lengths that sum to a size."""
    ends = sorted({*draw(st.lists(st.integers(1, size), max_size=4)), size})
    return [end - begin for begin, end in zip([0, *ends], ends, strict=False)]


def check(data: np.ndarray, axis: int, lengths: list[int], parts: list[np.ndarray]) -> None:
    """Check [T1] and [T2] element by element, and that Concat of the parts is the data."""
    assert [part.shape[axis] for part in parts] == lengths
    offset = 0
    for part, length in zip(parts, lengths, strict=True):
        for index in np.ndindex(part.shape):
            at = list(index)
            at[axis] += offset
            assert part[index] == data[tuple(at)]
        offset += length
    assert offset == data.shape[axis]
    np.testing.assert_array_equal(np.concatenate(parts, axis), data)


@settings(deadline=None, max_examples=25)
@given(st.data())
def test_split_by_lengths(data: st.DataObject) -> None:
    """[T3]: the lengths of the outputs are the elements of S."""
    x, axis = data.draw(tensors())
    lengths = data.draw(st.composite(lengths_of)(x.shape[axis]))
    parts = run(node("Split", len(lengths), lengths=True, axis=axis), {"X": x, "S": np.array(lengths)})
    check(x, axis, lengths, parts)


@settings(deadline=None, max_examples=25)
@given(st.data())
def test_split_by_number(data: st.DataObject) -> None:
    """[T4]: chunks of ceil(D / n). Numbers that give an empty output are left out."""
    x, axis = data.draw(tensors())
    size = x.shape[axis]
    numbers = [n for n in range(1, size + 1) if (n - 1) * -(-size // n) < size]
    number = data.draw(st.sampled_from(numbers))
    chunk = -(-size // number)
    lengths = [max(0, min(chunk, size - k * chunk)) for k in range(number)]
    parts = run(node("Split", number, lengths=False, axis=axis, num_outputs=number), {"X": x})
    check(x, axis, lengths, parts)


@settings(deadline=None, max_examples=25)
@given(st.data())
def test_split_to_sequence_by_a_chunk(data: st.DataObject) -> None:
    """[T2] of SplitToSequence: all parts but the last have the length S."""
    x, axis = data.draw(tensors())
    chunk = data.draw(st.integers(1, MOST + 1))
    size = x.shape[axis]
    lengths = [min(chunk, size - begin) for begin in range(0, size, chunk)]
    (parts,) = run(node("SplitToSequence", 1, lengths=True, axis=axis), {"X": x, "S": np.array(chunk)})
    check(x, axis, lengths, parts)


@settings(deadline=None, max_examples=25)
@given(st.data())
def test_split_to_sequence_by_lengths(data: st.DataObject) -> None:
    """[T3] of SplitToSequence: the lengths of the parts are the elements of S."""
    x, axis = data.draw(tensors())
    lengths = data.draw(st.composite(lengths_of)(x.shape[axis]))
    (parts,) = run(node("SplitToSequence", 1, lengths=True, axis=axis), {"X": x, "S": np.array(lengths)})
    check(x, axis, lengths, parts)


@settings(deadline=None, max_examples=25)
@given(tensors(), st.booleans())
def test_split_to_sequence_without_lengths(drawn: tuple[np.ndarray, int], keep: bool) -> None:
    """[T4] of SplitToSequence: parts of one, which may lose the axis."""
    x, axis = drawn
    (parts,) = run(node("SplitToSequence", 1, lengths=False, axis=axis, keepdims=int(keep)), {"X": x})
    whole = list(parts) if keep else [np.expand_dims(part, axis) for part in parts]
    check(x, axis, [1] * x.shape[axis], whole)
