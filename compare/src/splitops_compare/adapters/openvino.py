"""OpenVINO on the CPU, which reads ONNX and IR."""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from splitops_compare.worker import CaseInput, Tensor, catch_rejection

FORMATS = ("onnx", "ir")
PACKAGES = ("openvino",)
PRELOAD = ("openvino",)
SETTINGS = {"threads": ("all", "1"), "shapes": ("declared", "given"), "mode": ("performance", "accuracy")}

Array = npt.NDArray[Any]

_TYPES: Final = {
    "bool": "boolean", "float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16",
    "float8_e4m3fn": "f8e4m3", "float8_e5m2": "f8e5m2", "float8_e8m0fnu": "f8e8m0",
    "float4_e2m1fn": "f4e2m1", "nf4": "nf4", "int4": "i4", "uint1": "u1", "uint2": "u2", "uint3": "u3",
    "uint4": "u4", "uint6": "u6",
}  # fmt: skip
"""OpenVINO names of the element types, except strings and integers of 8 bits or more."""
_SMALL: Final = {"f4e2m1": 4, "nf4": 4, "i4": 4, "u1": 1, "u2": 2, "u3": 3, "u4": 4, "u6": 6}
"""Bits per element of the packed types."""


def run(case: CaseInput) -> list[Any]:
    """Run the model, with the shapes that it declares or those of the inputs."""
    import openvino

    core = openvino.Core()
    properties = {"EXECUTION_MODE_HINT": case.setting["mode"].upper()}
    if case.setting["threads"] == "1":
        properties["INFERENCE_NUM_THREADS"] = "1"
    with catch_rejection("load"):
        model = core.read_model(case.model)
        if case.setting["shapes"] == "given":
            model.reshape({name: list(array.shape) for name, array in case.inputs.items()})
    with catch_rejection("compile"):
        request = core.compile_model(model, "CPU", properties).create_infer_request()
    feeds = {name: _make_tensor(array, case.types[name]) for name, array in case.inputs.items()}
    with catch_rejection("run"):
        request.infer(feeds)
        outputs = [request.get_output_tensor(index) for index in range(len(case.outputs))]
    return [_read_value(tensor) for tensor in outputs]


def _make_tensor(array: Array, dtype: str) -> Any:
    import openvino

    if dtype == "string":
        return openvino.Tensor(array.astype(str))
    kind = _TYPES.get(dtype, dtype.replace("uint", "u").replace("int", "i"))
    tensor = openvino.Tensor(getattr(openvino.Type, kind), openvino.Shape(array.shape))
    if not array.size:
        return tensor
    if kind in _SMALL:
        packed = _pack(array.view(np.uint8).reshape(-1), _SMALL[kind])
        tensor.data.view(np.uint8).reshape(-1)[:] = packed[: tensor.byte_size]
    else:
        tensor.data[...] = array.view(tensor.data.dtype)
    return tensor


def _read_value(tensor: Any) -> Any:
    kind, shape = tensor.element_type.get_type_name(), tuple(tensor.shape)
    if kind == "string":
        return tensor.str_data.astype(object)
    dtype = next((dtype for dtype, name in _TYPES.items() if name == kind), tensor.data.dtype.name)
    if kind in _SMALL:
        codes = _unpack(tensor.data.view(np.uint8).reshape(-1), _SMALL[kind], int(np.prod(shape)))
        return Tensor(dtype, codes.reshape(shape))
    return Tensor(dtype, tensor.data.copy().reshape(shape))


def _map_bits(bits: int) -> Array:
    """Return the positions of element bits in a group of bytes: a row per element, lowest bit first."""
    if bits in (2, 4):
        return np.arange(8).reshape(-1, bits)
    if bits == 1:
        return np.arange(7, -1, -1).reshape(-1, 1)
    # Two bytes contain the low bits and the third the high bits. The first element is in the highest bits.
    high = bits // 3
    low, count = bits - high, 24 // bits
    lows = [16 - (index + 1) * low for index in range(count)]
    return np.array(
        [
            [
                *((start + bit) ^ 8 for bit in range(low)),
                *(24 - (index + 1) * high + bit for bit in range(high)),
            ]
            for index, start in enumerate(lows)
        ]
    )


def _pack(codes: Array, bits: int) -> Array:
    bit_map = _map_bits(bits)
    count, size = len(bit_map), bit_map.size // 8
    groups = -(-len(codes) // count)
    elements = np.zeros(groups * count, np.uint8)
    elements[: len(codes)] = codes
    bytes_ = np.zeros((groups, size * 8), np.uint8)
    bytes_[:, bit_map] = (elements.reshape(groups, count, 1) >> np.arange(bits, dtype=np.uint8)) & 1
    return np.packbits(bytes_, axis=1, bitorder="little").reshape(-1)


def _unpack(content: Array, bits: int, count: int) -> Array:
    bit_map = _map_bits(bits)
    size = bit_map.size // 8
    padded = np.zeros(-(-len(content) // size) * size, np.uint8)
    padded[: len(content)] = content
    bits_ = np.unpackbits(padded.reshape(-1, size), axis=1, bitorder="little")[:, bit_map]
    return (bits_ << np.arange(bits, dtype=np.uint8)).sum(axis=2, dtype=np.uint8).reshape(-1)[:count]
