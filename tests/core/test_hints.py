"""Names and arguments of other libraries are answered with what to write instead, and that works."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import splitops
from splitops.calls.hints import add_hints

DATA = np.arange(35).reshape(5, 7)
onnx: Any = splitops.onnx
openvino: Any = splitops.openvino
modules: Any = splitops

NAMES: dict[str, tuple[Callable[[], Any], str]] = {
    "splitops.split": (lambda: modules.split, "Use splitops.onnx.split or splitops.openvino.split"),
    "splitops.variadic_split": (lambda: modules.variadic_split, "Use splitops.openvino.variadic_split"),
    "onnx.variadic_split": (lambda: onnx.variadic_split, "Use splitops.openvino.variadic_split"),
    "openvino.split_to_sequence": (
        lambda: openvino.split_to_sequence,
        "Use splitops.onnx.split_to_sequence",
    ),
    "chunk": (lambda: modules.chunk, "splitops.onnx.split(x, num_outputs=n)"),
    "onnx.chunk": (lambda: onnx.chunk, "splitops.onnx.split(x, num_outputs=n)"),
    "array_split": (lambda: modules.array_split, "[D // n + 1] * (D % n) + [D // n] * (n - D % n)"),
    "tensor_split": (lambda: openvino.tensor_split, "[D // n + 1] * (D % n) + [D // n] * (n - D % n)"),
    "unbind": (lambda: modules.unbind, "splitops.onnx.split_to_sequence(x, keepdims=0)"),
    "unstack": (lambda: onnx.unstack, "splitops.onnx.split_to_sequence(x, keepdims=0)"),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_of_another_library_says_what_to_use(name: str) -> None:
    ask, hint = NAMES[name]
    with pytest.raises(AttributeError, match=re.escape(hint)):
        ask()


def test_a_name_that_means_nothing_gets_no_hint() -> None:
    with pytest.raises(AttributeError, match=r"^module 'splitops\.onnx' has no attribute 'splat'$"):
        _ = onnx.splat


def test_the_sizes_that_a_hint_gives_are_those_of_array_split() -> None:
    for size in range(9):
        for n in range(1, 5):
            data = np.arange(size)
            sizes = [size // n + 1] * (size % n) + [size // n] * (n - size % n)
            for part, other in zip(onnx.split(data, sizes), np.array_split(data, n), strict=True):
                np.testing.assert_array_equal(part, other)


ARGUMENTS: dict[str, tuple[Callable[[], Any], str]] = {
    "dim": (lambda: onnx.split(DATA, [3, 4], dim=1), "keyword argument 'dim'. Use axis"),
    "dim of openvino": (lambda: openvino.split(DATA, dim=1, num_splits=7), "'dim'. Use axis"),
    "dim of a sequence": (lambda: onnx.split_to_sequence(DATA, 3, dim=1), "'dim'. Use axis"),
    "num_splits": (lambda: onnx.split(DATA, num_splits=3), "Use num_outputs"),
    "num_outputs": (lambda: openvino.split(DATA, 1, num_outputs=7), "Use num_splits"),
    "sizes": (lambda: openvino.variadic_split(DATA, 1, sizes=[3, 4]), "Use split_lengths"),
    "split_size_or_sections": (
        lambda: onnx.split(DATA, split_size_or_sections=3),
        "Use split or num_outputs",
    ),
    "a third argument": (lambda: onnx.split(DATA, [3, 4], 1), "Pass axis by name, for example axis=1"),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_an_argument_of_another_library_says_which_one_is_meant(name: str) -> None:
    ask, hint = ARGUMENTS[name]
    for _ in range(2):
        with pytest.raises(TypeError, match=re.escape(hint)):
            ask()


def test_an_argument_that_means_nothing_gets_no_hint() -> None:
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'axes'$"):
        onnx.split(DATA, [3, 4], axes=1)


def test_a_type_error_inside_of_the_function_stays_as_it_is() -> None:
    def body(data: Any, dims: Any = None) -> None:
        raise TypeError("of its own")

    with pytest.raises(TypeError, match=r"^of its own$"):
        add_hints(body)(DATA, 1)


@pytest.mark.parametrize("opset", [2, 13, 18])
def test_a_number_in_the_place_of_lengths_says_what_gives_parts_of_that_size(opset: int) -> None:
    with pytest.raises(splitops.errors.LengthsError) as error:
        onnx.split(DATA, 3, axis=1, opset=opset)
    assert str(error.value) == (
        f"Split-{opset} [lengths.rank]: split = 3, but it must list the size of each part, such as [3, 3]. "
        "For 3 parts, use num_outputs=3; for parts of size 3, use split_to_sequence(x, 3)"
    )
    assert [part.shape[1] for part in onnx.split(DATA, num_outputs=3, axis=1)] == [3, 3, 1]
    assert [part.shape[1] for part in onnx.split_to_sequence(DATA, 3, axis=1)] == [3, 3, 1]


def test_a_number_in_the_place_of_openvino_lengths_says_what_gives_equal_parts() -> None:
    with pytest.raises(splitops.errors.LengthsError, match=r"use splitops\.openvino\.split\(x, axis, 7\)"):
        openvino.variadic_split(DATA, 1, 7)
    assert len(openvino.split(DATA, 1, 7)) == 7
