"""The second call with the very same arguments takes a short cut; it must give what the first one gave."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import splitops
from splitops import backends
from splitops.calls import functions, plan_cache
from splitops.calls.plan import plan_data

CALLS: dict[str, Callable[..., Any]] = {
    "onnx.split": lambda x, **how: splitops.onnx.split(x, [1, 5], axis=1, **how),
    "onnx.split_to_sequence": lambda x, **how: splitops.onnx.split_to_sequence(x, 4, axis=1, **how),
    "openvino.split": lambda x, **how: splitops.openvino.split(x, 1, 3, **how),
    "openvino.variadic_split": lambda x, **how: splitops.openvino.variadic_split(x, 1, [1, -1], **how),
}


@pytest.mark.parametrize("name", CALLS)
def test_every_call_gives_what_the_first_one_gave(name: str) -> None:
    call = CALLS[name]
    data = np.arange(24.0).reshape(4, 6)
    first = [part.copy() for part in call(data)]
    container = type(call(data))
    assert container is (list if name == "onnx.split_to_sequence" else tuple)
    for copy in (None, True, False, True, None):
        parts = call(data, copy=copy)
        assert type(parts) is container
        assert len(parts) == len(first)
        for part, expected in zip(parts, first, strict=True):
            np.testing.assert_array_equal(part, expected)
            assert np.shares_memory(part, data) is not bool(copy)
            assert part.flags.c_contiguous or not copy


@pytest.mark.parametrize("name", CALLS)
def test_other_data_of_the_same_form_are_split_themselves(name: str) -> None:
    call = CALLS[name]
    for start in (0, 100):
        data = np.arange(24.0).reshape(4, 6) + start
        np.testing.assert_array_equal(np.concatenate(call(data), axis=1), data)
        np.testing.assert_array_equal(np.concatenate(call(data, copy=True), axis=1), data)


@pytest.mark.parametrize("name", CALLS)
def test_buffers_are_filled_and_rejected_every_time(name: str) -> None:
    call = CALLS[name]
    data = np.arange(24.0).reshape(4, 6)
    parts = call(data)
    for make in (list, tuple, iter):
        out = [np.zeros_like(part) for part in parts]
        got = call(data, out=make(out))
        assert type(got) is type(parts)
        for part, buffer, expected in zip(got, out, parts, strict=True):
            assert part is buffer
            np.testing.assert_array_equal(part, expected)
    locked = np.zeros_like(parts[-1])
    locked.flags.writeable = False
    rejected = {
        "has dtype|dtype float32": np.zeros(parts[-1].shape, "f4"),
        "has shape": np.zeros((4, 9)),
        "read-only": locked,
        "overlaps data": parts[-1],
        "is a list": parts[-1].tolist(),
    }
    for message, bad in rejected.items():
        out = [np.zeros_like(part) for part in parts]
        out[-1] = bad
        with pytest.raises(splitops.ArrayError, match=message):
            call(data, out=out)
        assert not any(buffer.any() for buffer in out[:-1])
    with pytest.raises(splitops.ArrayError, match="copy=False"):
        call(data, copy=False, out=[np.zeros_like(part) for part in parts])
    np.testing.assert_array_equal(data, np.arange(24.0).reshape(4, 6))


def test_what_was_proved_of_one_type_is_not_believed_of_another() -> None:
    splitops.onnx.split(np.zeros(4), [2, 2], opset=1)
    splitops.openvino.split(np.zeros(4), 0, 2)
    with pytest.raises(splitops.RuleError, match=r"type\.unsupported"):
        splitops.onnx.split(np.zeros(4, np.int64), [2, 2], opset=1)
    with pytest.raises(splitops.RuleError, match=r"type\.unsupported"):
        splitops.openvino.split(np.zeros(4, np.complex64), 0, 2)


@pytest.mark.parametrize("kind", [list, np.array], ids=["list", "array"])
def test_lengths_that_change_while_they_are_planned_spoil_no_later_call(
    kind: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    strict = pytest.importorskip("array_api_strict")
    lengths = kind([7, 11])

    def changing(schema: Any, backend: Any, data: Any, arguments: Any) -> Any:
        lengths[:] = kind([9, 9])  # as another thread may do
        return plan_data(schema, backend, data, arguments)

    data = strict.zeros((18,))
    with monkeypatch.context() as patch:
        patch.setattr(plan_cache, "plan_data", changing)
        assert [part.shape for part in splitops.onnx.split(data, lengths)] == [(7,), (11,)]
    assert [part.shape for part in splitops.onnx.split(data, kind([7, 11]))] == [(7,), (11,)]


@pytest.mark.parametrize("name", CALLS)
def test_a_remembered_call_on_another_library_binds_nothing(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    strict = pytest.importorskip("array_api_strict")
    data = strict.reshape(strict.arange(24), (4, 6))
    first = CALLS[name](data)

    def find_plan(*_: Any) -> Any:
        raise AssertionError("the call is planned again")

    monkeypatch.setattr(plan_cache, "find_plan", find_plan)
    monkeypatch.setattr(functions, "find_plan", find_plan)
    again = CALLS[name](data)
    assert type(again) is type(first)
    for part, other in zip(again, first, strict=True):
        np.testing.assert_array_equal(np.from_dlpack(part), np.from_dlpack(other))
    with pytest.raises(AssertionError, match="planned again"):
        CALLS[name](strict.reshape(data, (2, 12)))


def test_equal_numbers_of_other_types_are_not_taken_for_a_remembered_call() -> None:
    strict = pytest.importorskip("array_api_strict")
    data = strict.zeros((2, 4))
    split: Any = splitops.onnx.split
    for _ in range(2):
        assert len(split(data, [1, 3], axis=1, opset=18)) == 2
        for args, kwargs in (
            (([True, 3],), {"axis": 1}),
            (([1.0, 3.0],), {"axis": 1}),
            (([1, 3],), {"axis": True}),
            (([1, 3],), {"axis": 1, "opset": 18.0}),
            ((np.array([1, 3]).tobytes(),), {"axis": 1}),
        ):
            with pytest.raises(splitops.SplitError):
                split(data, *args, **kwargs)


def test_a_backend_that_is_registered_later_has_the_calls_that_another_one_had(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    strict = pytest.importorskip("array_api_strict")
    data = strict.zeros((4,))
    splitops.onnx.split(data, [1, 3])
    own = backends.get_backend(data)

    class Other:
        def __getattr__(self, name: str) -> Any:
            return getattr(own, name)

        def make_views(self, plan: Any, array: Any) -> tuple[str, ...]:
            return ("other",)

    monkeypatch.setattr(backends, "_REGISTERED", {})
    monkeypatch.setattr(backends, "_CACHE", {})
    backends.register(type(data), Other())  # type: ignore[arg-type]
    for _ in range(2):
        assert splitops.onnx.split(data, [1, 3]) == ("other",)
