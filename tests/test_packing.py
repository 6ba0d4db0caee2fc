"""Sub-byte storage: by hand, round trips, against ONNX's own, against OpenVINO's own."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from splitops.errors import ArrayError
from splitops.spec import ELEMENT_TYPES, ElementType
from splitops.spec.elements.packing import compute_packed_size, pack, unpack

PACKED = [row for row in ELEMENT_TYPES.values() if row.packed]
WHOLE = [row for row in ELEMENT_TYPES.values() if row.bits >= 8]


def codes(array: np.ndarray, kind: ElementType) -> list[int]:
    return (array.reshape(-1).view(np.uint8) & ((1 << kind.bits) - 1)).tolist()


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("uint1", [0b10110000, 0b10000000], [1, 0, 1, 1, 0, 0, 0, 0, 1]),
        ("uint2", [0b11100100, 0b00000010], [0, 1, 2, 3, 2]),
        ("int2", [0b11100100, 0b00000010], [0, 1, -2, -1, -2]),
        ("uint4", [0x21, 0x43, 0x0F], [1, 2, 3, 4, 15]),
        ("int4", [0xF1, 0x78, 0x0E], [1, -1, -8, 7, -2]),
        ("nf4", [0x21, 0x03], [1, 2, 3]),
        ("float4_e2m1fn", [0x21, 0x0F], [0.5, 1.0, -6.0]),
        # Low two bits of eight elements in two bytes, then their high bits; the first element leads.
        ("uint3", [0b00_01_10_11, 0b00_01_10_11, 0b0000_1111], [0, 1, 2, 3, 4, 5, 6, 7]),
        ("uint3", [0b01_000000, 0, 0b1_0000000], [5]),
        # Low four bits of four elements in two bytes, then their high two bits.
        ("uint6", [0x12, 0x34, 0b00_01_10_11], [1, 18, 35, 52]),
        ("uint6", [0xF0, 0, 0b11_000000], [63]),
        # A stream of bits: x0 | x1 << 6 | x2 << 12 | x3 << 18.
        ("float6_e2m3fn", [0b10_000001, 0b0011_0000, 0b000100_00], [0.125, 0.25, 0.375, 0.5]),
    ],
)
def test_layout(name: str, content: list[int], expected: list[float]) -> None:
    kind = ELEMENT_TYPES[name]
    array = unpack(bytes(content), kind, (len(expected),))
    assert array.dtype == kind.numpy
    assert array.astype(np.float64).tolist() == expected
    # The very bytes that the library of the dtype has for these values.
    assert array.tobytes() == np.array(expected).astype(kind.numpy).tobytes()
    assert pack(array, kind) == bytes(content)


def test_sizes_of_groups() -> None:
    """9 x u3 and 5 x u6 take 6 bytes each."""
    assert compute_packed_size(ELEMENT_TYPES["uint3"], 9) == 6
    assert compute_packed_size(ELEMENT_TYPES["uint6"], 5) == 6
    assert compute_packed_size(ELEMENT_TYPES["float6_e3m2fn"], 5) == 4
    assert compute_packed_size(ELEMENT_TYPES["uint1"], 1 << 70) == 1 << 67
    assert all(compute_packed_size(kind, 0) == 0 for kind in PACKED + WHOLE)


@given(st.sampled_from(PACKED), st.lists(st.integers(0, 5), max_size=4), st.randoms(use_true_random=False))
def test_round_trip(kind: ElementType, shape: list[int], random: object) -> None:
    content = [random.getrandbits(8) for _ in range(compute_packed_size(kind, prod(shape)))]  # type: ignore[attr-defined]
    array = unpack(bytes(content), kind, shape)
    assert array.shape == tuple(shape)
    stored = pack(array, kind)
    assert len(stored) == len(content)
    again = unpack(stored, kind, shape)
    assert codes(again, kind) == codes(array, kind)
    assert pack(again, kind) == stored


@pytest.mark.parametrize("kind", PACKED, ids=str)
def test_bits_behind_the_last_element_are_ignored_and_written_as_zero(kind: ElementType) -> None:
    full = bytes([0xFF] * compute_packed_size(kind, 1))
    one = unpack(full, kind, (1,))
    assert codes(one, kind) == [(1 << kind.bits) - 1]
    assert sum(byte.bit_count() for byte in pack(one, kind)) == kind.bits


@pytest.mark.parametrize("kind", PACKED, ids=str)
def test_any_strides_are_packed_in_order(kind: ElementType) -> None:
    array = unpack(bytes(range(1, compute_packed_size(kind, 24) + 1)), kind, (4, 6))
    for view in (array.T, array[::-1, ::2], array[1:1]):
        assert pack(view, kind) == pack(view.copy(), kind)
        assert codes(unpack(pack(view, kind), kind, view.shape), kind) == codes(view.copy(), kind)


@pytest.mark.parametrize("kind", WHOLE, ids=str)
def test_whole_bytes_are_a_read_only_view(kind: ElementType) -> None:
    content = bytes(compute_packed_size(kind, 6))
    array = unpack(content, kind, (2, 3))
    assert (array.dtype, array.shape) == (kind.numpy, (2, 3))
    assert np.shares_memory(array, np.frombuffer(content, np.uint8))
    assert not array.flags.writeable
    assert pack(array, kind) == content


@pytest.mark.parametrize("kind", PACKED + WHOLE, ids=str)
def test_wrong_number_of_bytes(kind: ElementType) -> None:
    size = compute_packed_size(kind, 3)
    for wrong in (size - 1, size + 1):
        with pytest.raises(ArrayError, match=f"there are {wrong} bytes"):
            unpack(bytes(wrong), kind, (3,))


def test_what_cannot_be_packed() -> None:
    with pytest.raises(ArrayError, match="code 2 does not fit into the 1 bits of uint1"):
        pack(np.array([0, 2], np.uint8), ELEMENT_TYPES["uint1"])
    with pytest.raises(ArrayError, match="an array of uint4 elements must have dtype uint4, not int64"):
        pack(np.array([1]), ELEMENT_TYPES["uint4"])
    with pytest.raises(ArrayError, match="the size of string elements depends on their contents"):
        compute_packed_size(ELEMENT_TYPES["string"], 3)
    with pytest.raises(ArrayError, match="the number of elements is negative"):
        compute_packed_size(ELEMENT_TYPES["uint4"], -1)
    with pytest.raises(ArrayError, match="negative dimension"):
        unpack(b"", ELEMENT_TYPES["uint4"], (-1, 0))


@pytest.mark.parametrize("kind", [kind for kind in PACKED if kind.onnx], ids=str)
def test_onnx_stores_the_same_bytes(kind: ElementType) -> None:
    numpy_helper = pytest.importorskip("onnx.numpy_helper")
    onnx = pytest.importorskip("onnx")
    if not hasattr(onnx.TensorProto, kind.onnx or ""):
        pytest.skip(f"onnx {onnx.__version__} has no {kind.onnx}")
    for count in range(12):
        content = bytes(range(7, 7 + compute_packed_size(kind, count)))
        array = unpack(content, kind, (count,))
        stored = numpy_helper.from_array(array)
        assert stored.data_type == kind.onnx_number
        assert stored.raw_data == pack(array, kind)


OPENVINO = """
import json, sys
import numpy as np
from openvino import Model, Tensor, Type, opset15 as op

answers = []
for name, content, count in json.load(sys.stdin):
    kind = getattr(Type, name)
    tensor = Tensor(kind, [count])
    flat = tensor.data.reshape(-1).view(np.uint8)
    size = tensor.byte_size
    flat[...] = np.frombuffer(bytes.fromhex(content), np.uint8)[: flat.size]
    data = op.parameter([count], kind)
    model = Model([op.result(op.convert(data, "f32"))], [data])
    result = Tensor(Type.f32, [count])
    assert model.evaluate([result], [tensor])
    answers.append([size, flat.size, result.data.tolist()])
print(json.dumps(answers))
"""


@pytest.mark.skipif(
    importlib.util.find_spec("openvino") is None, reason="the openvino package is not installed"
)
def test_openvino_stores_the_same_bytes() -> None:
    """Every type and count: the size of OpenVINO's tensors, and the numbers it reads out of our bytes."""
    rng = np.random.default_rng(3)
    cases = []
    for kind in PACKED:
        for count in range(1, 36) if kind.openvino else ():
            stored = rng.bytes(compute_packed_size(kind, count))
            cases.append((kind, count, pack(unpack(stored, kind, (count,)), kind)))
    jobs = [(kind.openvino, content.hex(), count) for kind, count, content in cases]
    assert len({name for name, _, _ in jobs}) == 8
    done = subprocess.run(
        [sys.executable, "-c", OPENVINO],
        input=json.dumps(jobs),
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    for (kind, count, content), (size, data_size, numbers) in zip(
        cases, json.loads(done.stdout), strict=True
    ):
        assert (size, data_size) == (len(content), len(content)), f"{count} x {kind}"
        array = unpack(content, kind, (count,))
        if kind.name == "nf4":
            values = np.array(numbers, np.float32)
            assert len(set(zip(array.tolist(), values.tolist(), strict=True))) == len(set(array.tolist()))
            assert np.array_equal(np.argsort(array, kind="stable"), np.argsort(values, kind="stable"))
        else:
            assert array.astype(np.float32).tolist() == numbers, f"{count} x {kind}"
