"""The functions of the dialects do remembered calls without entering Python: nobody must notice."""

from __future__ import annotations

import copy
import inspect
import pickle
import pydoc
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from entering import SHORT_CUT, entered

import splitops
from splitops.calls.node import NodeSplit
from splitops.errors import ArrayError, SplitError
from splitops.spec import schema

FUNCTIONS = {
    "onnx.split": splitops.onnx.split,
    "onnx.split_to_sequence": splitops.onnx.split_to_sequence,
    "openvino.split": splitops.openvino.split,
    "openvino.variadic_split": splitops.openvino.variadic_split,
}
functions = pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)


@functions
def test_they_look_like_functions(function: Any) -> None:
    inner = inspect.unwrap(function)
    assert inspect.isfunction(inner)
    assert inspect.signature(function) == inspect.signature(inner)
    assert inspect.getdoc(function) == inspect.getdoc(inner)
    assert (function.__name__, function.__module__) == (inner.__name__, inner.__module__)
    assert pickle.loads(pickle.dumps(function)) is function
    assert copy.deepcopy(function) is function
    assert weakref.ref(function)() is function
    assert inner.__name__ in repr(function)
    assert "Returns:" in pydoc.render_doc(function, renderer=pydoc.plaintext)


CALLS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = {
    "lengths": (splitops.onnx.split, ([1, 3],), {}),
    "a tuple by name": (splitops.onnx.split, (), {"split": (2, 2)}),
    "every name": (splitops.onnx.split, (None,), {"opset": 18, "num_outputs": 3, "axis": -1}),
    "chunks": (splitops.onnx.split_to_sequence, (3,), {}),
    "squeezed": (splitops.onnx.split_to_sequence, (), {"keepdims": 0, "copy": None}),
    "equal": (splitops.openvino.split, (1, 3), {}),
    "equal by name": (splitops.openvino.split, (), {"num_splits": 2, "axis": 0}),
    "lengths in an array": (splitops.onnx.split, (np.array([1, 3]),), {}),
    "lengths and axis in arrays": (
        splitops.openvino.variadic_split,
        (np.array([1]), np.array([4, -1], "i4")),
        {},
    ),
    "the rest": (splitops.openvino.variadic_split, (0, [1, -1]), {"copy": False}),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_remembered_call_gives_what_the_function_gives(name: str) -> None:
    function, args, kwargs = CALLS[name]
    inner: Any = inspect.unwrap(function)
    data = np.arange(24.0).reshape(4, 6)
    expected = inner(data, *args, **kwargs)
    for _ in range(2):
        for call in (function, inner):
            parts = call(data, *args, **kwargs)
            assert type(parts) is type(expected)
            for part, other in zip(parts, expected, strict=True):
                assert np.shares_memory(part, data)
                np.testing.assert_array_equal(part, other)
            kwargs_of_copy = {**kwargs, "copy": True}
            for part, other in zip(call(data, *args, **kwargs_of_copy), expected, strict=True):
                assert not np.shares_memory(part, data)
                np.testing.assert_array_equal(part, other)
            out = [np.full_like(part, -1) for part in expected]
            filled = call(data, *args, **{**kwargs, "copy": None, "out": out})
            assert all(a is b for a, b in zip(filled, out, strict=True))
            for part, other in zip(out, expected, strict=True):
                np.testing.assert_array_equal(part, other)


def test_calls_that_are_wrong_are_rejected_after_the_right_one_as_before() -> None:
    data = np.arange(16.0).reshape(4, 4)
    split: Any = splitops.onnx.split
    for _ in range(2):
        split(data, [2, 2])
        for args, kwargs in (
            ((), {}),
            ((data, [2, 2], 0), {}),
            ((data, [2, 2]), {"axes": 0}),
            ((data, [2, 2]), {"split": [2, 2]}),
            ((data, [2, 2]), {"data": data}),
        ):
            with pytest.raises(TypeError):
                split(*args, **kwargs)
        with pytest.raises(SplitError):
            split(data, [2, 2], axis=True)
        with pytest.raises(SplitError):
            split(data, [2.0, 2.0])
        with pytest.raises(ArrayError):
            split(data, [2, 2], out=[np.empty((2, 4))] * 2, copy=False)
        with pytest.raises(ArrayError):
            split(data, [2, 2], out=[data[:2], data[2:]])
    with pytest.raises(TypeError):
        splitops.openvino.split(data)  # type: ignore[call-arg]


def test_an_error_while_a_name_is_compared_is_not_lost() -> None:
    class Name(str):
        def __hash__(self) -> int:
            return hash("axis")

        def __eq__(self, other: object) -> bool:
            raise RuntimeError("no comparison")

    split: Any = splitops.onnx.split
    data = np.zeros(4)
    split(data, [2, 2])
    with pytest.raises((RuntimeError, TypeError)):
        split(data, [2, 2], **{Name("axis"): 0})


@pytest.mark.skipif(not SHORT_CUT, reason="there is no short cut")
@pytest.mark.parametrize("name", CALLS)
def test_a_remembered_call_enters_no_python(name: str) -> None:
    function, args, kwargs = CALLS[name]
    data = np.arange(24.0).reshape(4, 6)
    out = [np.empty_like(part) for part in function(data, *args, **kwargs)]
    for changed in ({}, {"copy": True}, {"copy": None, "out": out}):
        assert entered(partial(function, data, *args, **{**kwargs, **changed})) == []


def test_a_function_is_called_by_its_type_too() -> None:
    parts = type(splitops.onnx.split).__call__(splitops.onnx.split, np.arange(6), [2, 4])
    assert [part.tolist() for part in parts] == [[0, 1], [2, 3, 4, 5]]


def test_a_node_forgets_plans_and_stays_right() -> None:
    split = NodeSplit(schema("Split"), {"num_outputs": 2})
    for size in (*range(2, 80), 2):
        first, second = split([np.arange(size)])
        assert (first.tolist(), second.size) == (list(range(-(-size // 2))), size // 2)


def test_a_node_of_many_lengths() -> None:
    parts = NodeSplit(schema("Split"), {})([np.arange(300), np.ones(300, np.int64)])
    assert [part.tolist() for part in parts] == [[number] for number in range(300)]
