"""The tests that each backend must pass, depending on its capabilities."""

# ruff: noqa: D102 - the names of the tests are sentences

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import splitops
from splitops.errors import ArrayError, RuleError
from splitops.testing.cases import CASES, FAULTS, Call, InvalidCall
from splitops.testing.library import Library

Array = npt.NDArray[Any]

_EVERY_CASE = pytest.mark.parametrize("case", CASES, ids=str)
_PAIR = Call(splitops.onnx.split, (4, 6), 1, (2, 4), {"split": [2, 4]})


def _make_values(library: Library, shape: tuple[int, ...], name: str | None = None) -> Array:
    """Return an array in which consecutive elements in C order differ."""
    dtype = library.get_numpy_dtype(name or library.element_types[0])
    numbers = np.arange(1, prod(shape) + 1)
    if dtype.kind in "OUST":
        return np.array([f"text {n}" for n in numbers], object).astype(dtype).reshape(shape)
    if dtype.kind == "V" and dtype.itemsize == 1:  # every bit pattern of a float8
        return (numbers % 256).astype(np.uint8).view(dtype).reshape(shape)
    return (numbers % (2 if dtype.kind == "b" else 100)).astype(dtype).reshape(shape)


def _split_expected(case: Call, values: Array) -> list[Array]:
    """Slice ``values`` into the parts that a case expects."""
    axis = case.axis % values.ndim
    parts = []
    for end, size in zip(accumulate(case.sizes), case.sizes, strict=True):
        part = np.take(values, range(end - size, end), axis)
        parts.append(np.squeeze(part, axis) if case.squeeze else part)
    return parts


def _assert_same(library: Library, got: Sequence[Any], expected: Sequence[Array]) -> None:
    assert len(got) == len(expected)
    for part, right in zip(got, expected, strict=True):
        read = library.read(part)
        assert read.shape == right.shape
        assert read.dtype == right.dtype
        if right.dtype.kind in "OT":
            assert read.tolist() == right.tolist()
        else:
            assert read.tobytes() == right.tobytes()


class BackendSuite:
    """Tests to inherit in a test module, with a fixture ``library``. See :mod:`splitops.testing`."""

    @_EVERY_CASE
    @pytest.mark.parametrize("copy", [None, True], ids=["views", "copies"])
    def test_the_parts_are_the_operators_own(self, library: Library, case: Call, copy: bool | None) -> None:
        values = _make_values(library, case.shape)
        data = library.make(values)
        with library.forbid_computing():
            parts = case(data, copy=copy)
        assert type(parts) is (list if case.operator is splitops.onnx.split_to_sequence else tuple)
        _assert_same(library, parts, _split_expected(case, values))
        for part in parts:
            assert type(part) is library.get_part_type(data)
            assert not copy or library.is_contiguous(part)
        np.testing.assert_array_equal(library.read(data), values)

    @pytest.mark.parametrize("fault", FAULTS, ids=str)
    def test_a_broken_rule_is_the_same_error_everywhere(self, library: Library, fault: InvalidCall) -> None:
        data = library.make(_make_values(library, fault.shape))
        with pytest.raises(RuleError) as caught:
            fault(data)
        assert caught.value.rule is fault.rule

    def test_every_element_type_keeps_its_bits(self, library: Library) -> None:
        assert library.element_types
        plan = splitops.plan("Split", shape=(3, 100), axis=1, split=[33, 67])  # of any element type
        for name in library.element_types:
            values = _make_values(library, (3, 100), name)
            data = library.make(values)
            element_type = library.backend.get_element_type(data)
            assert element_type is not None
            assert element_type.name == name
            for copy in (None, True):
                _assert_same(library, plan(data, copy=copy), [values[:, :33], values[:, 33:]])

    def test_other_layouts_give_the_same_parts(self, library: Library) -> None:
        values = _make_values(library, (4, 6))
        for data in library.make_layouts(values):
            for copy in (None, True):
                parts = _PAIR(data, copy=copy)
                _assert_same(library, parts, _split_expected(_PAIR, values))
                assert not copy or all(map(library.is_contiguous, parts))

    def test_views_share_memory_and_copies_do_not(self, library: Library) -> None:
        if not library.backend.capabilities.views:
            pytest.skip(f"{library.name} declares no views")
        data = library.make(_make_values(library, (4, 6)))
        assert all(library.may_share_memory(part, data) for part in _PAIR(data))
        parts = _PAIR(data, copy=True)
        assert not any(library.may_share_memory(part, data) for part in parts)
        assert not library.may_share_memory(*parts)
        whole = splitops.onnx.split(data, [4], copy=True)[0]
        assert not library.may_share_memory(whole, data)

    def test_read_only_data_give_read_only_views(self, library: Library) -> None:
        if not library.backend.capabilities.read_only:
            pytest.skip(f"{library.name} declares no read-only views")
        data = library.make_read_only(_make_values(library, (4, 6)))
        assert not any(map(library.is_writeable, _PAIR(data)))
        assert all(map(library.is_writeable, _PAIR(data, copy=True)))

    @_EVERY_CASE
    def test_out_is_filled_or_rejected(self, library: Library, case: Call) -> None:
        values = _make_values(library, case.shape)
        data, expected = library.make(values), _split_expected(case, values)
        if not library.backend.capabilities.out:
            with pytest.raises(ArrayError):
                case(data, out=[None] * len(expected))
            return
        buffers = [library.make_buffer(np.zeros_like(part)) for part in expected]
        parts = case(data, out=buffers)
        assert all(part is buffer for part, buffer in zip(parts, buffers, strict=True))
        _assert_same(library, parts, expected)

    def test_out_that_does_not_fit_is_rejected_and_nothing_is_written(self, library: Library) -> None:
        if not library.backend.capabilities.out:
            pytest.skip(f"{library.name} declares no out=")
        values = _make_values(library, (4, 6))
        data, expected = library.make(values), _split_expected(_PAIR, values)
        first = library.make_buffer(np.zeros_like(expected[0]))
        other = next(
            name for name in library.element_types if library.get_numpy_dtype(name) != expected[1].dtype
        )
        view = _PAIR(library.make(values))[1]
        bad: list[Any] = [
            library.make_buffer(np.zeros((4, 5), expected[1].dtype)),
            library.make_buffer(np.zeros((4, 4), library.get_numpy_dtype(other))),
            None,
        ]
        if library.backend.capabilities.views:
            own = _PAIR(data)[1]
            bad += [buffer for buffer in (library.make_overlapping(data, own),) if buffer is not None]
        for buffer in bad:
            with pytest.raises(ArrayError):
                _PAIR(data, out=[first, buffer])
        with pytest.raises(ArrayError):
            _PAIR(data, out=[first])
        with pytest.raises(ArrayError):
            splitops.onnx.split(data, [3, 3], axis=1, out=[first, first])
        assert not library.read(first).any()
        assert library.read(view).any()
        np.testing.assert_array_equal(library.read(data), values)

    def test_axis_and_lengths_may_be_its_own_arrays(self, library: Library) -> None:
        values = _make_values(library, (4, 6))
        data = library.make(values)
        lengths, axis = np.array([2, -1], np.int32), np.array(1, np.int32)
        if "int32" not in library.element_types:
            pytest.skip(f"{library.name} has no int32")
        if library.backend.capabilities.lazy:
            with library.forbid_computing(), pytest.raises(ArrayError):
                splitops.openvino.variadic_split(data, 1, library.make(lengths))
            return
        parts = splitops.openvino.variadic_split(data, library.make(axis), library.make(lengths))
        _assert_same(library, parts, _split_expected(_PAIR, values))
        with pytest.raises(RuleError, match=r"axis\.dtype"):
            splitops.openvino.split(data, library.make(np.array(1, np.float32)), 2)
        with pytest.raises(RuleError, match=r"lengths\.rank"):
            splitops.openvino.variadic_split(data, 1, library.make(lengths.reshape(1, 2)))

    def test_a_plan_runs(self, library: Library) -> None:
        values = _make_values(library, (4, 6))
        plan = splitops.plan("Split", shape=(4, 6), axis=1, split=[2, 4])
        _assert_same(library, plan(library.make(values)), _split_expected(_PAIR, values))
        _assert_same(library, plan(library.make(values), copy=True), _split_expected(_PAIR, values))
        with pytest.raises(ArrayError):
            plan(library.make(_make_values(library, (6, 4))))

    def test_calls_that_look_alike_are_told_apart(self, library: Library) -> None:
        """Calls are cached. The cache must distinguish shapes, types, axes and lengths."""
        for shape, axis, sizes in (((4, 6), 1, (2, 4)), ((6, 4), 0, (2, 4)), ((4, 6), 1, (4, 2))):
            case = Call(splitops.onnx.split, shape, axis, sizes, {"split": list(sizes)})
            values = _make_values(library, shape)
            for _ in range(2):
                _assert_same(library, case(library.make(values)), _split_expected(case, values))
        data = library.make(_make_values(library, (3, 2)))
        assert len(splitops.onnx.split(data, [1, 2])) == 2
        lookalikes: list[Any] = [[True, 2], [1.0, 2.0]]
        for lengths in lookalikes:
            with pytest.raises(RuleError):
                splitops.onnx.split(data, lengths)

    def test_gradients_flow(self, library: Library) -> None:
        if not library.backend.capabilities.gradients:
            pytest.skip(f"{library.name} declares no gradients")
        data = library.make(_make_values(library, (4, 6), "float32"))
        right = np.repeat(np.array([[1, 1, 2, 2, 2, 2]], np.float32), 4, 0)

        def sum_parts(data: Any, copy: bool | None) -> Any:
            return library.sum_weighted(_PAIR(data, copy=copy))

        for copy in (None, True):
            gradient = library.compute_gradient(partial(sum_parts, copy=copy), data)
            np.testing.assert_array_equal(gradient, right)

    def test_everything_that_is_declared_as_compiled_is(self, library: Library) -> None:
        declared = library.backend.capabilities.compiled
        if not declared:
            pytest.skip(f"{library.name} declares no compiler")
        compilers = library.get_compilers()
        assert set(declared) == set(compilers)
        values = _make_values(library, (4, 6), "float32")
        missing = []
        for name, run in compilers.items():
            for case in (_PAIR, Call(splitops.openvino.split, (4, 6), 1, (2, 2, 2), {"num_splits": 3})):
                try:
                    parts = run(case, library.make(values))
                except pytest.skip.Exception as skipped:
                    missing.append(f"{name} ({skipped})")
                    break
                _assert_same(library, parts, _split_expected(case, values))
        if missing:
            pytest.skip(f"not run: {', '.join(missing)}")
